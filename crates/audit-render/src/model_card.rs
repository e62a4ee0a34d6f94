//! The numbers of a report in a model card as Hugging Face reads it: the block `model-index` of the metadata
//! at the top of a README.md. Everything else in the file stays as it is, byte for byte.

use super::Destination;
use super::headline::{Headline, headlines};
use super::view::bound_in_norm;
use audit_base::{Error, Result, files, yaml};
use audit_report::record::Report;
use serde_json::{Value, json};
use std::path::Path;

/// The line above and below the metadata.
const FENCE: &str = "---";
const KEY: &str = "model-index";
/// The name of the task, by which results of this program are known. Those of others are kept.
const TASK: &str = "Image retrieval under attack";

/// Writes the results of `report` into the model card at `path`: a new file, a new block, or the block that
/// is there, where earlier results of audits on the same images are replaced. Errors (exit code 2): the file
/// can't be read or written, its metadata has no end, or its block is not a list of models.
pub fn write(report: &Report, path: &Path) -> Result<()> {
    let shown = path.display();
    let text = match files::read_text(path, files::BY_HAND) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(Error::usage(format!("--model-card: can't read {shown}: {e}"))),
    };
    let updated = update(report, &text).map_err(|e| e.context(format!("--model-card {shown}")))?;
    Destination::open("--model-card", path)?.write(updated.as_bytes())
}

fn update(report: &Report, text: &str) -> Result<String> {
    let name = report.model_name().strip_suffix(".onnx").unwrap_or(report.model_name());
    let Some((head, body)) = split(text)? else {
        let block = render(&json!({ KEY: index(report, name, Value::Null)? }), 0);
        let body = if text.is_empty() { format!("\n# {name}\n") } else { format!("\n{text}") };
        return Ok(format!("{FENCE}\n{block}{FENCE}\n{body}"));
    };
    let (before, block, after) = cut(head);
    let old = match block.is_empty() {
        true => Value::Null,
        false => {
            let mut read: Value = yaml::read("the block model-index", block)?;
            read[KEY].take()
        }
    };
    let block = render(&json!({ KEY: index(report, name, old)? }), 0);
    Ok(format!("{before}{block}{after}{body}"))
}

/// The text up to the line that ends the metadata, and the rest; `None` where there is no metadata.
fn split(text: &str) -> Result<Option<(&str, &str)>> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Ok(None);
    }
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == FENCE {
            return Ok(Some(text.split_at(at)));
        }
        at += line.len();
    }
    Err(Error::usage(format!(
        "line 1 begins metadata with {FENCE}, and no later line ends it with {FENCE}. Add that line"
    )))
}

/// The metadata before, in and after the block; without a block, the new one goes to the end.
fn cut(head: &str) -> (&str, &str, &str) {
    let starts = |line: &str| line.strip_prefix(KEY).is_some_and(|rest| rest.trim_start().starts_with(':'));
    // A list may stand at the margin, under its key.
    let inside = |line: &str| line.starts_with([' ', '\t', '-']) || line.trim().is_empty();
    let (mut at, mut block) = (0, None);
    for line in head.split_inclusive('\n') {
        block = match block {
            None if starts(line) => Some((at, None)),
            Some((from, None)) if !inside(line) => Some((from, Some(at))),
            other => other,
        };
        at += line.len();
    }
    match block {
        None => (head, "", ""),
        Some((from, to)) => {
            let to = to.unwrap_or(head.len());
            (&head[..from], &head[from..to], &head[to..])
        }
    }
}

/// The list of models, with the results of this report in the entry of its model.
fn index(report: &Report, name: &str, old: Value) -> Result<Value> {
    let mut models = match old {
        Value::Null => Vec::new(),
        Value::Array(models) => models,
        _ => {
            return Err(Error::usage(
                "expected a list of models under model-index, found something else. Correct it, or remove it",
            ));
        }
    };
    // A card is of one model. Its name is the repository's, which nobody has to repeat in the file's name.
    let at = models.iter().position(|m| m["name"] == name).or((models.len() == 1).then_some(0));
    let at = at.unwrap_or_else(|| {
        models.push(json!({ "name": name }));
        models.len() - 1
    });
    let new = result(report);
    let mut results = match models[at]["results"].take() {
        Value::Array(results) => results,
        _ => Vec::new(),
    };
    // Folders of different data sets have the same name, such as `test`. An entry whose hash somebody removed
    // has only the name.
    let (hash, id) = (&new["dataset"]["args"]["sha256"], &new["dataset"]["type"]);
    let same_data = |r: &Value| match &r["dataset"]["args"]["sha256"] {
        Value::Null => r["dataset"]["type"] == *id,
        stated => stated == hash,
    };
    results.retain(|r| r["task"]["name"] != TASK || !same_data(r));
    results.push(new);
    models[at]["results"] = results.into();
    Ok(models.into())
}

/// The result of one task on one set of images.
fn result(report: &Report) -> Value {
    let source = &report.data.source;
    let last = source.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or(source);
    let id: String = last.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let metric = |f: &Headline| {
        let (row, of) = (&f.row, f.row.quantity);
        let value = row.value?;
        let rounded = row.shown(value).parse::<f64>().unwrap_or(value);
        let remark = f.mark().map(|mark| format!(", {mark}")).unwrap_or_default();
        let mut args = json!({ "queries": row.queries });
        if row.is_above() {
            args["above"] = true.into();
        }
        if let Some((low, high)) = row.interval {
            args["interval_95"] =
                json!([row.shown(low), row.shown(high)].map(|v| v.parse::<f64>().unwrap_or(f64::NAN)));
        }
        if of.attacked() {
            args["perturbation"] = bound_in_norm(&report.suite).into();
        }
        Some(
            json!({ "type": of.name, "value": rounded, "name": format!("{}{remark}", f.label), "args": args }),
        )
    };
    json!({
        "task": { "type": "image-feature-extraction", "name": TASK },
        "dataset": { "type": id.trim_matches('-'), "name": last, "args": { "sha256": report.data.sha256 } },
        "metrics": headlines(report).iter().filter_map(metric).collect::<Vec<_>>()
    })
}

/// A value as YAML. Texts are in quotation marks, as in JSON, which YAML reads alike.
fn render(value: &Value, indent: usize) -> String {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (name(key), value))
            .map(|(key, value)| match value {
                Value::Object(inner) if !inner.is_empty() => {
                    format!("{pad}{key}:\n{}", render(value, indent + 2))
                }
                Value::Array(items) if !items.is_empty() => format!("{pad}{key}:\n{}", render(value, indent)),
                _ => format!("{pad}{key}: {value}\n"),
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Object(inner) if !inner.is_empty() => {
                    let block = render(item, indent + 2);
                    format!("{pad}- {}", &block[indent + 2..])
                }
                _ => format!("{pad}- {item}\n"),
            })
            .collect(),
        plain => format!("{pad}{plain}\n"),
    }
}

/// A key as YAML: in quotation marks where it is not a plain word.
fn name(key: &str) -> String {
    let word = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if word { key.into() } else { Value::from(key).to_string() }
}

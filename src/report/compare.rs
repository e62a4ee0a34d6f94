//! A comparison of reports, for a terminal and as files.

use super::shown::{COMPARED, cells, shown, word};
use super::{Destination, by_ending, escape, html};
use crate::judge::compare::Comparison;
use crate::{Error, Result};
use std::path::Path;

/// Renders a comparison as a file.
type Render = fn(&Comparison) -> Result<Vec<u8>>;

/// Formats of comparisons, by the extension of the file name.
const FORMATS: &[(&str, Render)] = &[("html", html::comparison), ("json", json), ("md", markdown)];

/// Writes a comparison to a file, in the format of its extension.
pub fn write(comparison: &Comparison, path: &Path) -> Result<()> {
    let at = by_ending(path, FORMATS.iter().map(|f| f.0))?;
    Destination::open("-o", path)?.write(&FORMATS[at].1(comparison)?)
}

fn json(comparison: &Comparison) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(comparison).map_err(|e| Error::internal(format!("the comparison as JSON: {e}")))
}

/// The comparison for a terminal.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    for caution in &comparison.cautions {
        out += &format!("caution: {caution}\n");
    }
    out += &format!("{:<34}{:>12}{:>8}{:>8}{:>12}\n", "model", "robust R@1", "ARS", "ERS", "clean R@1");
    for m in &comparison.models {
        let value = |metric| m.row(metric).map_or("–".into(), |r| format!("{:.1}", r.value));
        let base = if m.base { " (base)" } else { "" };
        let name = brief(&m.model, 33 - base.len());
        let [robust, ars, ers, clean] = COMPARED.map(value);
        out += &format!("{:<34}{robust:>12}{ars:>8}{ers:>8}{clean:>12}\n", format!("{name}{base}"));
    }
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &format!("\n{} against {base}\n", m.model);
        out += &format!("  {:<24}{:>8}{:>8}{:>9}  {:<17}\n", "", "theirs", "base", "change", "95 %");
        for row in shown(m) {
            let [value, base, change, interval] = cells(comparison, row);
            let mark = if row.direction == 0 { "" } else { word(row) };
            let line =
                format!("  {:<24}{value:>8}{base:>8}{change:>9}  {interval:<17} {mark}", row.metric.name());
            out += line.trim_end();
            out.push('\n');
        }
    }
    out
}

fn brief(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

fn markdown(comparison: &Comparison) -> Result<Vec<u8>> {
    let mut out = String::from("## Comparison\n\n");
    for caution in &comparison.cautions {
        out += &format!("> **Caution:** {}\n\n", escape::markdown(caution));
    }
    out += "| model | robust R@1 | ARS | ERS | clean R@1 |\n|---|--:|--:|--:|--:|\n";
    for m in &comparison.models {
        let value = |metric| m.row(metric).map_or("–".into(), |r| format!("{:.1}", r.value));
        let base = if m.base { " (base)" } else { "" };
        let [robust, ars, ers, clean] = COMPARED.map(value);
        out += &format!("| {}{base} | {robust} | {ars} | {ers} | {clean} |\n", escape::markdown(&m.model));
    }
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &format!(
            "\n### {}\n\n| metric | theirs | base | change | 95 % | |\n|---|--:|--:|--:|---|---|\n",
            escape::markdown(&m.model)
        );
        for row in shown(m) {
            let [value, base, change, interval] = cells(comparison, row);
            out += &format!(
                "| {} | {value} | {base} | {change} | {interval} | {} |\n",
                row.metric.name(),
                word(row)
            );
        }
    }
    Ok(out.into_bytes())
}

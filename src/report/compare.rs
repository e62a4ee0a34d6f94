//! A comparison of reports, for a terminal and as files.

use super::markdown::table;
use super::shown::{ARROW, COMPARED, agreement, capital, cells, compared, shown, transfer, word};
use super::{Output, Rendering, escape, html, terminal};
use crate::judge::compare::{ComparedValue, Comparison};
use crate::judge::crossed::Crossed;
use crate::{Error, Result};
use std::path::Path;

/// Formats of comparisons, by the extension of the file name.
const FORMATS: &[Rendering<Comparison>] = &[("html", html::comparison), ("json", json), ("md", markdown)];

/// Claims a file for a comparison. Errors (exit code 2): unknown ending, folder missing or not writable.
pub fn open(path: &Path) -> Result<Output<Comparison>> {
    Output::open(path, FORMATS)
}

/// Writes a comparison to a file, in the format of its extension.
pub fn write(comparison: &Comparison, path: &Path) -> Result<()> {
    open(path)?.write(comparison)
}

fn json(comparison: &Comparison) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(comparison).map_err(|e| Error::internal(format!("the comparison as JSON: {e}")))
}

/// The comparison for a terminal: scores and attacks, and with `all` every metric.
pub fn render(comparison: &Comparison, all: bool) -> String {
    let mut out = String::new();
    for caution in &comparison.cautions {
        out += &terminal::wrap(&format!("caution: {caution}"));
        out.push('\n');
    }
    out += &format!("{:<34}{:>12}{:>8}{:>8}{:>12}\n", "model", "robust R@1", "ARS", "ERS", "clean R@1");
    for m in &comparison.models {
        let base = if m.base { " (base)" } else { "" };
        let name = brief(&m.model, 33 - base.len());
        let [robust, ars, ers, clean] = COMPARED.map(|metric| marked(compared(m, metric)));
        out += &format!("{:<34}{robust:>12}{ars:>8}{ers:>8}{clean:>12}\n", format!("{name}{base}"));
    }
    if comparison.models.iter().any(|m| COMPARED.iter().any(|metric| compared(m, *metric).1)) {
        out += &format!("{VOID} not to be trusted, see above\n");
    }
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &format!("\n{} against {base}\n", m.model);
        out += &format!("  {:<24}{:>8}{:>8}{:>9}  {:<17}\n", "", "theirs", "base", "change", "95 %");
        let (first, others) = shown(m);
        for row in first.iter().chain(others.iter().filter(|_| all)) {
            let [value, base, change, interval] = cells(comparison, row);
            let mark = if row.direction == 0 { "" } else { word(row) };
            let value = marked((value, row.void));
            let line =
                format!("  {:<24}{value:>8}{base:>8}{change:>9}  {interval:<17} {mark}", row.metric.name());
            out += line.trim_end();
            out.push('\n');
        }
        if !all && !others.is_empty() {
            out +=
                &format!("  and {} more: resistances, and retrieval without attack (--all)\n", others.len());
        }
    }
    out + &comparison.crossed.as_ref().map_or(String::new(), together)
}

/// Attacks made on one model and measured on the other, how far both agree, and what they take.
fn together(crossed: &Crossed) -> String {
    let mut out = format!("\n{}\n", terminal::wrap(ARROW));
    let table = transfer(crossed, false);
    for row in std::iter::once(&table.head).chain(&table.rows) {
        let cells: String = row[1..].iter().map(|cell| format!("{cell:>14}")).collect();
        out += &format!("  {:<18}{cells}\n", row[0]);
    }
    agreement(crossed).iter().for_each(|text| out += &(terminal::wrap(&capital(text)) + "\n"));
    out
}

/// The mark of a number without a meaning.
const VOID: &str = "✗";

fn marked((value, void): (String, bool)) -> String {
    if void { format!("{VOID} {value}") } else { value }
}

fn brief(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

fn markdown(comparison: &Comparison) -> Result<Vec<u8>> {
    let struck = |(value, void): (String, bool)| if void { format!("~~{value}~~") } else { value };
    let mut out = String::from("## Comparison\n\n");
    for caution in &comparison.cautions {
        out += &format!("> **Caution:** {}\n\n", escape::markdown(caution));
    }
    out += "| model | robust R@1 | ARS | ERS | clean R@1 |\n|---|--:|--:|--:|--:|\n";
    for m in &comparison.models {
        let base = if m.base { " (base)" } else { "" };
        let [robust, ars, ers, clean] = COMPARED.map(|metric| struck(compared(m, metric)));
        out += &format!("| {}{base} | {robust} | {ars} | {ers} | {clean} |\n", escape::markdown(&m.model));
    }
    for m in comparison.models.iter().filter(|m| !m.base) {
        let (first, others) = shown(m);
        let table = |rows: &[&ComparedValue]| {
            let line = |row: &&ComparedValue| {
                let [value, base, change, interval] = cells(comparison, row);
                let value = struck((value, row.void));
                let name = row.metric.name();
                format!("| {name} | {value} | {base} | {change} | {interval} | {} |\n", word(row))
            };
            let rows: String = rows.iter().map(line).collect();
            format!("| metric | theirs | base | change | 95 % | |\n|---|--:|--:|--:|---|---|\n{rows}")
        };
        out += &format!("\n### {}\n\n{}", escape::markdown(&m.model), table(&first));
        if !others.is_empty() {
            out += &format!(
                "\n<details><summary>Resistances, the worst classes and groups, and retrieval without attack</summary>\n\n{}\n</details>\n",
                table(&others)
            );
        }
    }
    if let Some(crossed) = &comparison.crossed {
        let table = table(&transfer(crossed, true));
        out += &format!("\n### Attacks of one on the other\n\n{ARROW}.\n\n{table}");
        agreement(crossed).iter().for_each(|text| out += &format!("\n{}.\n", capital(text)));
    }
    Ok(out.into_bytes())
}

//! Printed numbers of the papers beside the models of a page.

use crate::matrix::outcome::{SeedResult, TrainedModel};
use crate::matrix::page::cell;
use audit::judge::published::{Beside, PaperTable};
use audit::threat::term::Term;
use std::collections::BTreeMap;

/// The name of each layout's data in the papers, which plans use.
const DATA: [(&str, &str); 4] =
    [("cub-200-2011", "CUB"), ("cars-196", "CARS"), ("sop", "SOP"), ("in-shop", "In-shop")];

/// The papers' name for the data of a layout; `None` for data that no paper has.
pub fn data_name(layout: &str) -> Option<&'static str> {
    DATA.iter().find(|(name, _)| *name == layout).map(|(_, paper)| *paper)
}

/// The papers' names of their data sets.
pub fn data_names() -> impl Iterator<Item = &'static str> {
    DATA.iter().map(|(_, paper)| *paper)
}

/// Whether `audit compare --paper` has rows of this data.
pub fn has_rows(data: &str) -> bool {
    DATA[..3].iter().any(|(_, paper)| *paper == data)
}

/// Printed numbers by name, of one method on one data set, with the paper's digits: `R@1`, `mAP@C`, or behind
/// an attack, `ALI R@1`.
pub type Printed = BTreeMap<String, String>;

/// A table of the papers' numbers and of the models': two lines for each method whose plan states printed
/// numbers. Empty without such a method.
pub fn stated(models: &[(&TrainedModel, &Printed)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in models.iter().flat_map(|(_, printed)| printed.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // Retrieval without an attack, then each attack.
    names.sort_by_key(|name| (name.contains(' '), *name));
    let rows = models.iter().map(|(model, printed)| Row {
        name: &model.spec.name,
        printed: vec![("printed".into(), names.iter().map(|name| printed.get(*name).cloned()).collect())],
        own: names.iter().map(|name| numbers(model, |run| run.scores.numbers.get(*name).copied())).collect(),
        digits: vec![1; names.len()],
    });
    table("", &names, rows.collect())
}

/// The tables of `audit compare --paper`, for the methods whose rows a plan names, each with its reports over
/// seeds. A method is below each of its printed rows.
pub fn compared(beside: &Beside, models: &[(&TrainedModel, &[String], Vec<String>)]) -> String {
    let mut out = String::new();
    for found in &beside.tables {
        let columns: Vec<&str> = found.columns.iter().map(String::as_str).collect();
        let rows = models.iter().filter_map(|(model, names, files)| {
            let of_paper = found.rows.iter().filter_map(|row| Some((row.table?, row)));
            let printed = of_paper.filter(|(_, row)| names.contains(&row.name)).map(|(table, row)| {
                let shown = row.cells.iter().zip(&row.shown);
                let cells = shown.map(|(cell, text)| cell.map(|_| text.clone())).collect();
                (format!("printed, table {table}"), cells)
            });
            let printed: Vec<_> = printed.collect();
            (!printed.is_empty()).then(|| Row {
                name: &model.spec.name,
                printed,
                own: (0..columns.len()).map(|column| report_values(found, files, column)).collect(),
                digits: columns.iter().map(|name| digits(found, name)).collect(),
            })
        });
        out += &table(&found.title, &columns, rows.collect());
    }
    out
}

/// The numbers of a column in the reports.
fn report_values(of: &PaperTable, files: &[String], column: usize) -> Vec<f64> {
    of.rows
        .iter()
        .filter(|row| row.own && files.contains(&row.source))
        .filter_map(|row| row.cells[column])
        .collect()
}

/// Digits after the point: those of a term after its attack. Resistances are in per cent.
fn digits(of: &PaperTable, column: &str) -> usize {
    let scored = of.columns.last().is_some_and(|score| score == "ERS");
    Term::find(column).filter(|_| scored).map_or(1, |term| term.digits)
}

fn numbers(model: &TrainedModel, of: impl Fn(&SeedResult) -> Option<f64>) -> Vec<f64> {
    model.runs.iter().filter_map(of).collect()
}

/// A method: the paper's numbers, once or for each of its tables, and those of its seeds.
struct Row<'a> {
    name: &'a str,
    /// The title of the numbers, and the numbers.
    printed: Vec<(String, Vec<Option<String>>)>,
    own: Vec<Vec<f64>>,
    digits: Vec<usize>,
}

fn table(title: &str, columns: &[&str], rows: Vec<Row>) -> String {
    if rows.is_empty() || columns.is_empty() {
        return String::new();
    }
    let mut out = if title.is_empty() { "\n".into() } else { format!("\n{title}:\n\n") };
    out += &format!("| model | | {} |\n|---|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let own: Vec<String> =
            row.own.iter().zip(&row.digits).map(|(values, digits)| cell(*digits, values)).collect();
        let mut name = format!("{} ", row.name);
        for (what, cells) in &row.printed {
            let cells: Vec<&str> = cells.iter().map(|cell| cell.as_deref().unwrap_or("–")).collect();
            out += &format!("| {name}| {what} | {} |\n", cells.join(" | "));
            name.clear();
        }
        out += &format!("| | here | {} |\n", own.join(" | "));
    }
    out
}

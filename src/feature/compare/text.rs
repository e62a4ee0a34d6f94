//! A comparison of reports, for a terminal and as files.

use super::page;
use crate::Result;
use crate::judge::compare::{ComparedModel, ComparedValue, Comparison};
use crate::judge::crossed::Crossed;
use crate::judge::quantity::Quantity;
use crate::report::markdown::table;
use crate::report::view::{
    ARROW, ROW_HEADS, agreement, capital, cells, compared, compared_first, compared_spread, interval_of,
    row_name, shown, transfer,
};
use crate::report::{Output, Rendering, escape, pretty, terminal};
use crate::visible::visible;
use std::path::Path;

/// Formats of comparisons, by the extension of the file name.
const FORMATS: &[Rendering<Comparison>] = &[("html", page::render), ("json", pretty), ("md", markdown)];

/// Claims a file for a comparison. Errors (exit code 2): unknown extension, folder missing or not writable.
pub fn open(path: &Path) -> Result<Output<Comparison>> {
    Output::open(path, FORMATS)
}

/// Writes a comparison to a file, in the format of its extension.
pub fn write(comparison: &Comparison, path: &Path) -> Result<()> {
    open(path)?.write(comparison)
}

/// The comparison for a terminal: scores and attacks, and with `all` every metric.
pub fn render(comparison: &Comparison, all: bool) -> String {
    let mut out = terminal::wrap(&format!("{}.", comparison.answer)) + "\n\n";
    for caution in &comparison.cautions {
        out += &terminal::wrap(&format!("caution: {caution}"));
        out.push('\n');
    }
    out += &models(comparison);
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &candidate(comparison, m, all);
    }
    out += &comparison.crossed.as_ref().map_or(String::new(), together);
    visible(&out).into_owned()
}

/// The first numbers of all models, a line for each.
fn models(comparison: &Comparison) -> String {
    let columns = compared_first(comparison);
    let heads: Vec<String> = columns.iter().map(|(_, head)| head.clone()).collect();
    let of_model = |m: &ComparedModel| -> Vec<String> {
        columns.iter().map(|(of, _)| marked(compared(comparison, m, of))).collect()
    };
    let numbers: Vec<Vec<String>> = comparison.models.iter().map(of_model).collect();
    let widest = |i: usize| longest(std::iter::once(&heads[i]).chain(numbers.iter().map(|row| &row[i])));
    let wide = |i: usize| if i == 0 { widest(i).max(10) + 2 } else { (widest(i) + 1).max(11) };
    let narrow = |i: usize| widest(i) + 2;
    let mut widths: Vec<usize> = (0..heads.len()).map(wide).collect();
    // All together take 78 columns, and a name needs 20 of them.
    if widths.iter().sum::<usize>() > 78 - 20 {
        widths = (0..heads.len()).map(narrow).collect();
    }
    let name = 78usize.saturating_sub(widths.iter().sum()).max(20);
    let line = |model: &str, cells: &[String]| {
        let cells: String =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        format!("{model:<name$}{cells}\n")
    };
    let mut out = line("model", &heads);
    for (m, cells) in comparison.models.iter().zip(&numbers) {
        let base = if m.base { " (baseline)" } else { "" };
        let model = brief(&m.model, name - 1 - base.len());
        out += &line(&format!("{model}{base}"), cells);
    }
    if comparison.models.iter().any(|m| columns.iter().any(|(of, _)| compared(comparison, m, of).1)) {
        out += &format!("{VOID} not to be trusted, see above\n");
    }
    out
}

/// Characters of the longest word of a row, "not significant".
const LONGEST_WORD: usize = 15;

/// The metrics of a candidate beside the baseline's.
fn candidate(comparison: &Comparison, m: &ComparedModel, all: bool) -> String {
    let (first, others) = shown(m);
    let rows: Vec<&ComparedValue> = first.into_iter().chain(others.iter().copied().filter(|_| all)).collect();
    let of_row = |row: &&ComparedValue| {
        let [value, base, change, interval] = cells(comparison, row);
        let interval = if all { interval_of(comparison, row) } else { interval };
        [marked((value, row.void)), base, change, interval]
    };
    let cells: Vec<[String; 4]> = rows.iter().map(of_row).collect();
    let widest = |i: usize| longest(cells.iter().map(|row| &row[i])) + 1;
    let [value, of_base, change] = [widest(0).max(10), widest(1).max(9), widest(2).max(7)];
    let longest_name = rows.iter().map(|row| row_name(comparison, row).chars().count()).max().unwrap_or(0);
    // With names of up to 19 characters a row takes 80 columns. Where a number takes more room, as in
    // "above 8.00", the interval and the name take less.
    let room = 80usize.saturating_sub(2 + value + of_base + change + 2 + LONGEST_WORD);
    let (name, within) = match all {
        true => (longest_name.max(19), 30),
        false => {
            let within = room.saturating_sub(longest_name).min(16).max(widest(3));
            (longest_name.max(room.saturating_sub(within).min(19)), within)
        }
    };
    let line = |metric: &str, cells: &[String; 4], word: &str| {
        let [number, base_number, difference, interval] = cells;
        let line = format!(
            "  {metric:<name$}{number:>value$}{base_number:>of_base$}{difference:>change$}  {interval:<within$}{word}"
        );
        line.trim_end().to_string() + "\n"
    };
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    let mut out = format!("\n{} against {base}\n", m.model);
    out += &line("", &ROW_HEADS.map(String::from), "");
    for (row, cells) in rows.iter().zip(&cells) {
        out += &line(&row_name(comparison, row), cells, row.word.brief());
    }
    if !all && !others.is_empty() {
        out += &format!("  and {} more: resistances, and clean retrieval (--all)\n", others.len());
    }
    out
}

/// Characters of the longest of these texts.
fn longest<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
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
    let answer = escape::markdown(&comparison.answer);
    let mut out = format!("## Comparison\n\n**{answer}.**\n\n");
    for caution in &comparison.cautions {
        out += &format!("> **Caution:** {}\n\n", escape::markdown(caution));
    }
    let columns = compared_first(comparison);
    let spread = |of: &Quantity| comparison.models.iter().any(|m| compared_spread(m, of).is_some());
    let head =
        |(of, head): &(&Quantity, String)| format!(" {head}{} |", if spread(of) { " (95 %)" } else { "" });
    let heads: String = columns.iter().map(head).collect();
    out += &format!("| model |{heads}\n|---|{}\n", "--:|".repeat(columns.len()));
    for m in &comparison.models {
        let base = if m.base { " (baseline)" } else { "" };
        let cell = |(of, _): &(&Quantity, String)| {
            let spread = compared_spread(m, of).map_or(String::new(), |spread| format!(" ({spread})"));
            format!(" {}{spread} |", struck(compared(comparison, m, of)))
        };
        let cells: String = columns.iter().map(cell).collect();
        out += &format!("| {}{base} |{cells}\n", escape::markdown(&m.model));
    }
    for m in comparison.models.iter().filter(|m| !m.base) {
        let (first, others) = shown(m);
        let table = |rows: &[&ComparedValue]| {
            let line = |row: &&ComparedValue| {
                let [value, base, change, _] = cells(comparison, row);
                let interval = interval_of(comparison, row);
                let value = struck((value, row.void));
                let name = row_name(comparison, row);
                format!("| {name} | {value} | {base} | {change} | {interval} | {} |\n", row.word.text())
            };
            let rows: String = rows.iter().map(line).collect();
            format!("| metric | {} | |\n|---|--:|--:|--:|---|---|\n{rows}", ROW_HEADS.join(" | "))
        };
        out += &format!("\n### {}\n\n{}", escape::markdown(&m.model), table(&first));
        if !others.is_empty() {
            out += &format!(
                "\n<details><summary>Resistances, the worst classes and groups, and clean retrieval</summary>\n\n{}\n</details>\n",
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

//! The first numbers of a report, and the remarks on them.

use super::tables::columns;
use super::wrapped::wrap_in;
use super::{Paint, VOID};
use crate::headline::Headline;
use audit_report::judge::quantity::{ARS, ARS_STRONG, ERS};
use audit_report::judge::row::State;
use comfy_table::{Attribute, Cell, Color, Table};

/// The first numbers side by side, or below each other if they don't fit.
pub(super) fn first_numbers(first: &[Headline], width: usize, paint: Paint) -> String {
    let table = first_table(first, paint);
    if table.lines().all(|line| columns(&line) <= width) {
        return table.to_string();
    }
    let widest = first.iter().map(|f| f.label.chars().count()).max().unwrap_or(0);
    let number = |f: &Headline| {
        let parts = table_rows(f).into_iter().filter(|part| !part.is_empty());
        let text =
            wrap_in(&format!("{:<widest$}  {}", f.label, parts.collect::<Vec<_>>().join(" · ")), width);
        if f.row.void { paint.in_style(VOID, &text) } else { text }
    };
    first.iter().map(number).collect::<Vec<_>>().join("\n")
}

/// The cells of a number in the first table, from top to bottom.
fn table_rows(f: &Headline) -> [String; 4] {
    [
        match f.row.state {
            State::NotMeasured => f.row.state.text().into(),
            State::Measured | State::Withheld => f.row.number(),
        },
        f.mark().unwrap_or_default().into(),
        f.spread().unwrap_or_default(),
        f.queries().unwrap_or_default(),
    ]
}

/// The first numbers side by side. Invalid ones have a mark, and are struck through if there are colours.
fn first_table(first: &[Headline], paint: Paint) -> Table {
    let mut table = paint.table();
    table.set_header(first.iter().map(|f| &f.label));
    let columns: Vec<(bool, [String; 4])> = first.iter().map(|f| (f.row.void, table_rows(f))).collect();
    for row in (0..4).filter(|row| columns.iter().any(|(_, texts)| !texts[*row].is_empty())) {
        table.add_row(columns.iter().map(|(void, texts)| match (row, Cell::new(&texts[row])) {
            (0, cell) if *void => cell.fg(Color::Red).add_attribute(Attribute::CrossedOut),
            (0, cell) => cell.add_attribute(Attribute::Bold),
            (1, cell) => cell.fg(Color::Red),
            (_, cell) => cell,
        }));
    }
    table
}

/// Which end of the scores is robust; `None` if no score is shown.
pub(super) fn direction(first: &[Headline]) -> Option<String> {
    let scores = first.iter().filter(|f| [ARS, ERS, ARS_STRONG].contains(&f.row.quantity));
    let shown = scores.filter(|f| f.row.value.is_some());
    let labels: Vec<&str> = shown.map(|f| f.label.as_str()).collect();
    (!labels.is_empty()).then(|| format!("{}: 0–100, higher is more robust", labels.join(" and ")))
}

/// Remarks on the first numbers. Numbers with the same remark share a sentence, and numbers that are withheld
/// for different reasons the advice, which the last of them has.
pub(super) fn remarks<'h>(first: impl Iterator<Item = &'h Headline>) -> Vec<String> {
    let mut shared: Vec<(Vec<&str>, String, &str)> = Vec::new();
    for f in first.filter(|f| !f.remarks.is_empty()) {
        let text = f.remarks.join("; ");
        match shared.iter_mut().find(|(_, other, _)| *other == text) {
            Some((labels, ..)) => labels.push(&f.label),
            None => shared.push((vec![&f.label], text, f.advice)),
        }
    }
    let last = |i: usize| !shared[i + 1..].iter().any(|(.., advice)| *advice == shared[i].2);
    let sentence = |(i, (labels, text, advice)): (usize, &(Vec<&str>, String, &str))| {
        let text = if labels.len() > 1 { text.replacen("it rests", "they rest", 1) } else { text.clone() };
        format!("{}: {text}{}", labels.join(" and "), if last(i) { *advice } else { "" })
    };
    shared.iter().enumerate().map(sentence).collect()
}

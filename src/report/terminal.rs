//! The report on a terminal. It uses the terminal's width up to a limit, and 80 columns where there is no terminal.

use super::first::{First, Search, firsts, for_others, for_recall};
use super::shown::{RETRIEVAL, bound, capital, measures, number, percent, retrieval, smallest, stepping};
use crate::record::{Finding, Report, Severity};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

/// Longer lines are hard to read.
const WIDEST: usize = 120;
/// Width without a terminal.
const WIDTH: usize = 80;

/// Number of columns to use.
fn width() -> usize {
    Table::new().width().map_or(WIDTH, |w| usize::from(w).clamp(WIDTH, WIDEST))
}

/// Renders the report as text.
pub fn render(report: &Report) -> String {
    render_in(report, width())
}

/// Renders the report in `width` columns.
pub fn render_in(report: &Report, width: usize) -> String {
    let mut out = String::new();
    let wrap = |text: &str| wrap_in(text, width);
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if let Some(alarm) = report.alarm() {
        line(wrap(&format!("!! {alarm}")));
        line(String::new());
    }
    if report.estimated() {
        line(wrap(
            "!! Gradients were estimated, not formed: attacks are weaker so, and these scores flatter the model",
        ));
        line(String::new());
    }
    let s = &report.suite;
    line(wrap(&format!(
        "{} · {} images, {} classes · {}",
        report.model.path, report.data.images, report.data.classes, report.data.source
    )));
    line(wrap(&format!(
        "suite {} ({} form) · {}: ε {}, {} · {}{}",
        s.name,
        s.form,
        s.protocol,
        bound(s),
        stepping(report),
        s.asked(),
        // The text about the sample already contains the seed.
        if s.sampling.is_some() { String::new() } else { format!(" · seed {}", report.seed) }
    )));
    let b = &report.benign;
    line(wrap(&format!(
        "before any attack: R@1 {:.1}  R@2 {:.1}  mAP {:.1}  mAP@R {:.1}{}",
        b.r1,
        b.r2,
        b.map,
        b.map_at_r,
        b.nmi.map_or(String::new(), |v| format!("  NMI {v:.1}"))
    )));

    let first = firsts(report);
    line(first_table(&first).to_string());
    beneath(report, &first).iter().for_each(|text| line(wrap(text)));
    for note in &report.scores.notes {
        line(wrap(note));
    }
    line(attacks_table(report).to_string());
    if !report.retrieval.is_empty() {
        line(wrap("what the queries find without an attack and after it, in %:"));
        line(retrieval_table(report).to_string());
    }
    if let Some(found) = &report.smallest {
        line(wrap(&capital(&smallest(found))));
    }
    // Findings are ordered by severity, the most severe first, and within it as the checks.
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        for w in report.warnings.iter().filter(|w| w.severity == severity) {
            line(wrap(&format!("{} [{}]: {}", severity.word(), w.id, w.text)));
        }
    }
    let t = &report.timing;
    let rate = if t.attacks_s > 0.0 { t.image_steps as f64 / t.attacks_s } else { 0.0 };
    line(wrap(&format!(
        "{:.0} s: model {:.1}, gallery {:.1}, check {:.1}, attacks {:.1} ({rate:.0} image steps a second)",
        t.total_s, t.model_s, t.gallery_s, t.check_s, t.attacks_s
    )));
    out
}

/// The first numbers side by side.
fn first_table(first: &[First]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(first.iter().map(|f| f.label));
    let number = |f: &First| if f.value.is_some() { f.shown() } else { "not measured".into() };
    table.add_row(first.iter().map(number));
    let rows: [fn(&First) -> String; 3] = [
        |f| f.mark.unwrap_or_default().into(),
        |f| f.spread().map_or(String::new(), |s| format!("95 % {s}")),
        |f| if f.queries > 0 { format!("{} queries", f.queries) } else { String::new() },
    ];
    for row in rows {
        let cells: Vec<String> = first.iter().map(row).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.add_row(cells);
        }
    }
    table
}

/// What has to be said about the first numbers, a line each.
fn beneath(report: &Report, first: &[First]) -> Vec<String> {
    let mut lines = vec!["0–100, higher is more robust".to_string()];
    // Scores that one sentence is about share its line.
    let mut said: Vec<(Vec<&str>, String)> = Vec::new();
    for f in first.iter().filter(|f| !f.remarks.is_empty()) {
        let text = f.remarks.join("; ");
        match said.iter_mut().find(|(_, other)| *other == text) {
            Some((labels, _)) => labels.push(f.label),
            None => said.push((vec![f.label], text)),
        }
    }
    lines.extend(said.into_iter().map(|(labels, text)| format!("{}: {text}", labels.join(" and "))));
    if let Some(table) = report.scores.ars.as_ref().and_then(|ars| ars.table) {
        lines.push(format!("ARS as tables print it: {table:.1}"));
    }
    if let Some(search) = for_recall(report) {
        lines.push(format!(
            "strong search: made {} of {} right queries wrong{}; {} image steps",
            search.broken(),
            search.trials,
            decided(&search.decided()),
            search.steps()
        ));
    }
    let others = for_others(report);
    if !others.is_empty() {
        let mut total: Vec<(&str, usize)> = Vec::new();
        for (name, counts) in others.iter().flat_map(Search::decided) {
            match total.iter_mut().find(|(of, _)| *of == name) {
                Some((_, sum)) => *sum += counts,
                None => total.push((name, counts)),
            }
        }
        total.sort_by_key(|(_, counts)| std::cmp::Reverse(*counts));
        lines.push(format!(
            "strong search on {}: best images{}; {} image steps",
            others.iter().map(|s| s.attack).collect::<Vec<_>>().join(", "),
            decided(&total),
            others.iter().map(Search::steps).sum::<usize>()
        ));
    }
    lines
}

/// The members that decided most trials.
fn decided(members: &[(&str, usize)]) -> String {
    let most: Vec<String> = members.iter().take(4).map(|(name, n)| format!("{name} {n}")).collect();
    let more: usize = members.iter().skip(4).map(|(_, n)| n).sum();
    let others = (more > 0).then(|| format!("others {more}"));
    let all: Vec<String> = most.into_iter().chain(others).collect();
    if all.is_empty() { String::new() } else { format!(" (by {})", all.join(" · ")) }
}

/// A row for each measure of an attack.
fn attacks_table(report: &Report) -> Table {
    // Nobody computes an ERS from what the strong search finds.
    let with_ers = report.suite.effort.is_none();
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["attack", "measures", "before", "after", "ERS term", "resistance"];
    header.retain(|name| with_ers || *name != "ERS term");
    table.set_header(&header);
    for a in &report.attacks {
        let mut row = vec![a.code.clone(), measures(report, a), number(a, a.before), number(a, a.after)];
        row.extend(with_ers.then(|| percent(a.ers_term)));
        row.push(percent(a.resistance.per_trial));
        table.add_row(row);
    }
    for i in 2..header.len() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A row for each attack that moves queries, below one for the same queries without attack.
fn retrieval_table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(RETRIEVAL);
    for (name, found) in retrieval(report) {
        table.add_row([vec![name], found.to_vec()].concat());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table of findings, each with its advice.
pub fn findings(findings: &[Finding]) -> String {
    findings_in(findings, width())
}

/// A table of findings in `width` columns.
pub fn findings_in(findings: &[Finding], width: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width as u16);
    table.set_header(["check", "level", "finding"]);
    for f in findings {
        let advice = if f.advice.is_empty() { String::new() } else { format!("\n→ {}", f.advice) };
        let asked = format!("{} {}{advice}", f.asks, capital(&f.found));
        table.add_row([f.check.clone(), f.severity.word().to_string(), asked]);
    }
    // The columns of names and severities do not wrap.
    for i in 0..2 {
        if let Some(column) = table.column_mut(i) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.to_string() + "\n"
}

/// Wraps a paragraph at spaces. Lines after the first are indented.
pub fn wrap(text: &str) -> String {
    wrap_in(text, width())
}

fn wrap_in(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(format!("  {word}"));
        } else {
            if used > 0 {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines.join("\n")
}

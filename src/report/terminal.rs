//! The report on a terminal. It uses the terminal's width up to a limit, and 80 columns where there is no terminal.

use super::shown::{bound, capital, measures, number, percent, stepping};
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
        "suite {} ({} form) · {}: ε {}, {}{}{} · {}{}",
        s.name,
        s.form,
        s.protocol,
        bound(s),
        stepping(s),
        s.in_half(),
        if s.restarts > 0 { format!(", {} random starts", s.restarts) } else { String::new() },
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

    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["attack", "measures", "before", "after", "ERS term", "resistance"]);
    for a in &report.attacks {
        table.add_row([
            a.code.clone(),
            measures(a).to_string(),
            number(a, a.before),
            number(a, a.after),
            percent(a.ers_term),
            percent(a.resistance.per_trial),
        ]);
    }
    for i in 2..6 {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    line(table.to_string());

    let interval =
        |i: Option<(f64, f64)>| i.map_or(String::new(), |(l, h)| format!("  (95 % {l:.1} – {h:.1})"));
    if let Some(ars) = &report.scores.ars {
        let table = ars.table.map_or(String::new(), |t| format!("  as tables print it {t:.1}"));
        line(format!("ARS  {:>5.1}{}{table}", ars.value, interval(ars.interval)));
    }
    if let Some(ers) = &report.scores.ers {
        line(format!("ERS  {:>5.1}{}", ers.value, interval(ers.interval)));
    }
    for note in &report.scores.notes {
        line(wrap(note));
    }
    line("0–100, higher is more robust".into());
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

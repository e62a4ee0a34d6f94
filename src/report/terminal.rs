//! The report on a terminal, 80 columns or less.

use super::Report;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

const WIDTH: usize = 80;

/// Renders the report as text.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    let s = &report.suite;
    line(wrap(&format!(
        "{} · {} images, {} classes · {}",
        report.model.path, report.data.images, report.data.classes, report.data.source
    )));
    line(wrap(&format!(
        "suite {} ({} form) · {}: ε {:.5} ({:.1}/255), α {:.5}, {} steps{} · {} · seed {}",
        s.name,
        s.form,
        s.protocol,
        s.eps,
        s.eps * 255.0,
        s.alpha,
        s.steps,
        if s.restarts > 0 { format!(", {} random starts", s.restarts) } else { String::new() },
        s.asked(),
        report.seed
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
    let number = |v: Option<f64>, digits: usize| v.map_or("–".into(), |v| format!("{v:.digits$}"));
    for a in &report.attacks {
        let digits = if matches!(a.code.as_str(), "TMA" | "ES:D") { 3 } else { 1 };
        table.add_row([
            a.code.clone(),
            measures(&a.code).to_string(),
            number(a.before, digits),
            number(a.after, digits),
            number(a.ers_term, 1),
            number(a.resistance.per_trial, 1),
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
    for w in &report.warnings {
        let mark = if w.severity == crate::check::Severity::Warning { "warning" } else { "note" };
        line(wrap(&format!("{mark} [{}]: {}", w.id, w.text)));
    }
    let t = &report.timing;
    let rate = if t.attacks_s > 0.0 { t.image_steps as f64 / t.attacks_s } else { 0.0 };
    line(wrap(&format!(
        "{:.0} s: model {:.1}, gallery {:.1}, check {:.1}, attacks {:.1} ({rate:.0} image steps a second)",
        t.total_s, t.model_s, t.gallery_s, t.check_s, t.attacks_s
    )));
    out
}

fn measures(code: &str) -> &'static str {
    match code {
        "CA+" | "CA-" => "candidate's rank, %",
        "QA+" | "QA-" => "rank for the query, %",
        "TMA" => "cosine to target",
        "ES:D" => "embedding shift",
        "GTT" => "top-1 kept in top 4, %",
        _ => "R@1, %",
    }
}

/// Breaks a paragraph at spaces; later lines are indented.
fn wrap(text: &str) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > 0 && used + 1 + word.chars().count() > WIDTH {
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

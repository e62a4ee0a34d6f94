//! The report as Markdown. It fits into a pull request's comment (65,536 characters) and a CI step's summary.

use super::escape::markdown;
use super::shown::{bound, measures, number, percent, stepping};
use crate::Result;
use crate::record::{CheckResult, Report, Score, ScoreName, Severity};

/// The largest number of characters of one text, so that all texts together fit into a comment.
const LONGEST: usize = 500;

/// Escapes a text and cuts it to [`LONGEST`] characters.
fn escape(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => markdown(text),
        Some((end, _)) => markdown(&text[..end]) + "…",
    }
}

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let mut out = format!("## Robustness of {}\n\n", escape(report.model_name()));
    if let Some(alarm) = report.alarm() {
        out += &format!("> ❌ **{}**\n\n", escape(&alarm));
    }
    if let Some(gate) = &report.gate {
        let mark = if gate.exit().is_some() { "❌" } else { "✅" };
        out += &format!("{mark} **{}**\n\n", escape(&gate.headline()));
        out += "| | metric | |\n|---|---|---|\n";
        for c in &gate.checks {
            let mark = match c.result {
                CheckResult::Pass => "✅ pass",
                CheckResult::Warn => "⚠️ warn",
                CheckResult::Fail => "❌ fail",
            };
            out += &format!("| {mark} | {} | {} |\n", escape(&c.metric), escape(&c.text));
        }
        out.push('\n');
    }
    out += "| score | 0–100, higher is more robust | 95 % interval |\n|---|--:|--:|\n";
    for name in [ScoreName::Ars, ScoreName::Ers] {
        let Some(Score { value, interval, .. }) = report.scores.get(name) else { continue };
        let interval = interval.map_or("–".into(), |(l, h)| format!("{l:.1} – {h:.1}"));
        out += &format!("| **{name}** | **{value:.1}** | {interval} |\n");
    }
    out += &format!("| R@1 without attack | {:.1} | |\n\n", report.benign.r1);
    for note in &report.scores.notes {
        out += &format!("{}\n\n", escape(note));
    }
    for (severity, mark) in [(Severity::Error, "❌"), (Severity::Warning, "⚠️")] {
        for w in report.warnings.iter().filter(|w| w.severity == severity) {
            out += &format!("> {mark} **{}**: {}\n\n", escape(&w.id), escape(&w.text));
        }
    }
    out += "<details><summary>By attack</summary>\n\n";
    out +=
        "| attack | measures | before | after | 95 % interval | resistance, % |\n|---|---|--:|--:|--:|--:|\n";
    for a in &report.attacks {
        let show = |v| number(a, v);
        let interval =
            a.after_interval.map_or("–".into(), |(l, h)| format!("{} – {}", show(Some(l)), show(Some(h))));
        let resistance = percent(a.resistance.per_trial);
        out += &format!(
            "| {} | {} | {} | {} | {interval} | {resistance} |\n",
            escape(&a.code),
            measures(a),
            show(a.before),
            show(a.after),
        );
    }
    let s = &report.suite;
    out += &format!(
        "\n</details>\n\n<details><summary>How it was measured</summary>\n\nsuite {} ({} form), {}: ε {}, {}{}, {} random starts; images {}; {} on {} images of {} classes ({}); seed {}. {}. Model \
         sha256 {}, data sha256 {}.\n\n</details>\n",
        escape(&s.name),
        s.form,
        s.protocol,
        bound(s),
        stepping(s),
        s.in_half(),
        s.restarts,
        report.model.preprocessing.words(),
        escape(&s.asked()),
        report.data.images,
        report.data.classes,
        escape(&report.data.source),
        report.seed,
        escape(&report.tool.in_words()),
        escape(&report.model.sha256),
        escape(&report.data.sha256),
    );
    Ok(out.into_bytes())
}

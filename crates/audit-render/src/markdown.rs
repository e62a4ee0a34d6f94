//! The report as Markdown. It fits into a pull request's comment (65,536 characters) and a CI step's summary.

use super::assessment::beside_alarm;
use super::catalogues::references;
use super::escape::markdown;
use super::headline::{Headline, StrongSummary, for_others, for_recall, headlines};
use super::sections::{Content, Medium, SECTIONS};
use super::view::{
    Grid, about_ladder, bound, capital, ladder, measures, numbers, percent, stepping, strong_sample,
};
use audit_base::Result;
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::alarm;
use audit_report::record::reason::NOT_CHECKED;
use audit_report::record::{CheckResult, Report, Severity, State, Verdict};

/// The largest number of characters of one text, so that all texts together fit into a comment.
const LONGEST: usize = 500;

/// Escapes a text and cuts it to [`LONGEST`] characters.
fn escape(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => markdown(text),
        Some((end, _)) => markdown(&text[..end]) + "…",
    }
}

/// The report in Markdown, such as for a comment on a pull request.
pub fn render(report: &Report) -> Result<Vec<u8>> {
    let mut out = format!("## Robustness of {}\n\n", escape(report.model_name()));
    if let Some(alarm) = alarm(report) {
        out += &format!("> ❌ **{}**\n\n", escape(&alarm));
    }
    if let Some(caveat) = report.caveat() {
        out += &format!("> ⚠️ **{}**\n\n", escape(&caveat));
    }
    if let Some(found) = beside_alarm(report)? {
        out += &format!("**{}**", escape(&found.headline));
        found.reasons.iter().for_each(|reason| out += &format!(". {}", escape(reason)));
        out += ".\n\n";
    }
    out.extend(report.gate.as_ref().map(verdict));
    out += "| | higher is more robust | 95 % interval | queries | |\n|---|--:|--:|--:|---|\n";
    headlines(report).iter().for_each(|f| out += &first(f));
    out.push('\n');
    if let Some(rungs) = ladder(report) {
        out += &format!("{}.\n\n{}\n", escape(&capital(&about_ladder(report))), table(&rungs));
    }
    for note in &report.scores.notes {
        out += &format!("{}\n\n", escape(note));
    }
    for (severity, mark) in [(Severity::Error, "❌"), (Severity::Warning, "⚠️")] {
        for w in report.warnings.iter().filter(|w| w.severity == severity) {
            out += &format!("> {mark} **{}**: {}\n\n", escape(&w.id), escape(&w.text));
        }
    }
    let gaps =
        report.warnings.iter().filter(|w| w.state == State::NotChecked && w.severity <= Severity::Info);
    for w in gaps {
        out += &format!("> {NOT_CHECKED}, **{}**: {}\n\n", escape(&w.id), escape(&w.text));
    }
    out += &by_attack(report);
    for section in &SECTIONS {
        let Content { sentences, tables } = (section.content)(report, Medium::Page);
        out.extend(sentences.iter().map(|text| format!("{}.\n\n", escape(&capital(text)))));
        out.extend(tables.iter().map(|(title, table)| details(&capital(title), table)));
    }
    out += &searches(report);
    out += &how_measured(report);
    Ok(out.into_bytes())
}

/// How the numbers were measured, folded away.
fn how_measured(report: &Report) -> String {
    let s = &report.suite;
    let hashes: Vec<String> =
        report.model.hashes().map(|(name, hash)| format!("{name} {}", escape(hash))).collect();
    format!(
        "<details><summary>How it was measured</summary>\n\nsuite {} ({} form), {}: ε {}, {}{}; images {}; {} on {} images of {} \
         ({}); seed {}{}. {}. Model {}: {}; data sha256 {}.{}\n\n</details>\n",
        escape(&s.name),
        s.form,
        s.protocol,
        escape(&bound(s)),
        escape(&stepping(report)),
        strong_sample(report).map_or(String::new(), |sample| format!(
            "; {} {}",
            Quantity::robust(report).label,
            escape(&sample)
        )),
        escape(&report.model.preprocessing.words()),
        escape(&s.queries_in_words()),
        report.data.images,
        report.data.in_classes(),
        escape(&report.data.source),
        report.seed,
        report.timing.day(),
        escape(&report.tool.in_words()),
        escape(&report.model.file_in_words()),
        hashes.join(", "),
        escape(&report.data.sha256),
        read_on(report),
    )
}

/// The rules of the gate and their results.
fn verdict(gate: &Verdict) -> String {
    let mark = if gate.exit().is_some() { "❌" } else { "✅" };
    let mut out = format!("{mark} **{}**\n\n| | metric | |\n|---|---|---|\n", escape(&gate.headline()));
    for c in &gate.checks {
        let mark = match c.result {
            CheckResult::Pass => "✅ pass",
            CheckResult::Warn => "⚠️ warn",
            CheckResult::Fail => "❌ fail",
        };
        out += &format!("| {mark} | {} | {} |\n", escape(&c.metric), escape(&c.text));
    }
    out.push('\n');
    out.extend(gate.note.as_ref().map(|note| format!("Note: {}\n\n", escape(note))));
    out
}

fn by_attack(report: &Report) -> String {
    let mut out = String::from("<details><summary>By attack</summary>\n\n");
    out += "| attack | measures | before | after | 95 % interval | resistance, % | of queries |\n|---|---|--:|--:|--:|--:|--:|\n";
    for a in &report.attacks {
        let found = numbers(report, a);
        let resistance = percent(found.resistance);
        let few = if a.small() { " (few)" } else { "" };
        out += &format!(
            "| {} | {} | {} | {} | {} | {resistance}{few} | {} |\n",
            escape(&a.code),
            escape(&measures(report, a)),
            found.number(a.before),
            found.cell(),
            found.spread(),
            a.of(),
        );
    }
    out + "\n</details>\n\n"
}

/// A table as Markdown.
pub fn table(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rules = (0..grid.head.len()).map(|i| if grid.is_text(i) { "---" } else { "--:" });
    let head = line(grid.head.clone()) + &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
    grid.rows.iter().fold(head, |out, row| out + &line(row.iter().map(|cell| escape(cell)).collect()))
}

/// A table that opens below its summary.
fn details(summary: &str, grid: &Grid) -> String {
    format!("<details><summary>{summary}</summary>\n\n{}\n</details>\n\n", table(grid))
}

/// Entries of catalogues of threats.
fn read_on(report: &Report) -> String {
    let all: Vec<String> = references(report).map(|r| escape(&format!("{} {}", r.catalogue, r.id))).collect();
    if all.is_empty() {
        return String::new();
    }
    format!("\n\nTo read on (references, no statement of compliance): {}.", all.join("; "))
}

/// The row of one of the first numbers. An invalid number is struck through.
fn first(f: &Headline) -> String {
    let value = if f.row.void { format!("~~{}~~", f.row.number()) } else { f.row.number() };
    let mark = f.mark().map(|mark| format!("⚠️ **{mark}**"));
    let remarks = (!f.remarks.is_empty()).then(|| escape(&f.advised().join("; ")));
    let notes: Vec<String> = mark.into_iter().chain(remarks).collect();
    let queries = if f.row.queries > 0 { f.row.queries.to_string() } else { String::new() };
    let interval = f.row.spread().unwrap_or_default();
    format!("| **{}** | **{value}** | {interval} | {queries} | {} |\n", escape(&f.label), notes.join(": "))
}

/// What each member of the strong search did.
fn searches(report: &Report) -> String {
    let searches: Vec<StrongSummary> = for_recall(report).into_iter().chain(for_others(report)).collect();
    if searches.is_empty() {
        return String::new();
    }
    let rows = searches.iter().flat_map(|search| {
        let took_part = search.members.iter().filter(|m| m.queries > 0);
        took_part.map(|m| {
            let numbers = [m.queries, m.broken, m.counts, m.steps].map(|n| n.to_string());
            [vec![search.attack.to_string(), m.name.clone(), m.about.clone()], numbers.to_vec()].concat()
        })
    });
    let head = ["attack", "member", "what it does", "queries", "reached its goal", "counts", "image steps"];
    details("The strong search, by member", &Grid::new(&head, &[0, 1, 2], rows))
}

//! A report in few lines, at the end of an audit.

use super::first::{direction, first_numbers, remarks};
use super::tables::{columns, fitted, unframed};
use super::wrapped::wrap_in;
use super::{Paint, RED, YELLOW, style_at, style_of, subject, width};
use crate::assessment::assess_own;
use crate::headline::{headlines, scored};
use crate::sections::{Medium, SECTIONS};
use crate::view::{capital, file_column, ladder, under_attack, within};
use audit_base::visible::is_obeyed;
use audit_report::judge::quantity::{EPS50, Quantity};
use audit_report::judge::row::{State as NumberState, alarm};
use audit_report::record::{Report, Severity, Warning, reason};
use comfy_table::CellAlignment;
use std::cmp::Reverse;

/// Lines of a [`brief`] report, beyond which findings are only named: they fit a terminal of 24 lines, with
/// the command above them. Suites with many measures take a few more.
const BRIEF: usize = 20;

/// The report of an audit that just ended, in about 20 lines, but for grave findings: what was audited, the
/// first numbers, the ladder, findings, the next step and, last, the verdict. `rest` says where everything
/// else is.
pub fn brief(report: &Report, rest: &str) -> String {
    brief_with(report, rest, width(), Paint::detect())
}

/// The same in `width` columns, with colours or without.
pub fn brief_with(report: &Report, rest: &str, width: usize, paint: Paint) -> String {
    let wrap = |text: &str| wrap_in(text, width);
    let s = &report.suite;
    let up_to = if report.smallest.is_some() { "up to " } else { "" };
    let mut lines = vec![
        wrap(&subject(report)),
        wrap(&format!("suite {} · ε {up_to}{}{} · {}", s.name, s.budget(), within(s), s.queries_in_words())),
    ];
    let first = headlines(report);
    // A suite without a score has its result among these, so that they come first.
    let facts = facts(report).into_iter().map(|text| wrap(&capital(&text)));
    let scored = scored(&first);
    let (before, after): (Vec<_>, Vec<_>) = facts.partition(|_| !scored);
    lines.extend(before);
    lines.push(first_numbers(&first, width, paint));
    lines.extend(direction(&first).map(|text| wrap(&text)));
    lines.extend(remarks(first.iter().filter(|f| f.mark.is_some())).iter().map(|text| wrap(text)));
    lines.extend(rungs(report, width, paint));
    lines.extend(after);

    let mut last = Vec::new();
    let assessed = assess_own(report);
    let next = assessed
        .iter()
        .flat_map(|found| &found.next)
        .filter_map(|(text, command)| Some((text, command.as_ref()?)))
        // A command with other characters than it shows is not for pasting.
        .find(|(_, command)| !command.contains(is_obeyed));
    if let Some((text, command)) = next {
        // People paste a command, so it stays in one line.
        last.push(format!("{}\n  {command}", wrap(&format!("next: {text}:"))));
    }
    last.push(wrap(rest));
    if let Some(caveat) = report.caveat() {
        last.push(paint.in_style(YELLOW, &wrap(&format!("!! {caveat}"))));
    }
    last.push(match (alarm(report), &assessed) {
        (Some(alarm), _) => paint.in_style(RED, &wrap(&format!("!! {alarm}"))),
        (None, Ok(found)) => paint.in_style(style_at(found.standing), &wrap(&found.headline)),
        (None, Err(e)) => wrap(&e.message),
    });

    let used: usize = lines.iter().chain(&last).map(|text| text.lines().count()).sum();
    lines.extend(doubts(report, BRIEF.saturating_sub(used), width, paint));
    lines.extend(last);
    lines.join("\n") + "\n"
}

/// The ladder of ε, a column for each; or a row, if the columns don't fit.
fn rungs(report: &Report, width: usize, paint: Paint) -> Option<String> {
    let grid = ladder(report).filter(|_| EPS50.row(report).state == NumberState::Measured)?;
    let across = |name: &str, column: usize| -> Vec<String> {
        std::iter::once(name.to_string()).chain(grid.rows.iter().map(|row| row[column].clone())).collect()
    };
    let mut lines =
        vec![across("a change of at most", 0), across(&format!("{}, %", Quantity::robust(report).label), 1)];
    lines.extend(file_column(report).map(|name| across(name, 3)));
    let drawn = |lines: &[Vec<String>]| {
        let mut table = paint.table();
        table.set_header(&lines[0]);
        table.add_rows(&lines[1..]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        // A frame would take two of the few lines.
        unframed(&mut table);
        table
    };
    let text = drawn(&lines).trim_fmt();
    if text.lines().all(|line| columns(line) <= width) {
        return Some(text);
    }
    lines[0][0] = "at most".into();
    let turned: Vec<Vec<String>> =
        (0..lines[0].len()).map(|i| lines.iter().map(|line| line[i].clone()).collect()).collect();
    Some(fitted(drawn(&turned), width, &[0, 1, 2], None))
}

/// What a suite measures besides the first numbers, a sentence for each kind: measures under attack first.
fn facts(report: &Report) -> Vec<String> {
    let mut facts = under_attack(report);
    let brief = SECTIONS.iter().filter(|section| section.brief);
    facts.extend(brief.flat_map(|section| (section.content)(report, Medium::Terminal).sentences));
    facts
}

/// Errors in full, then the first sentence of warnings: of the grave ones, and of as many others as fit into
/// `room` lines. At last the ids of the rest.
fn doubts(report: &Report, room: usize, width: usize, paint: Paint) -> Vec<String> {
    let mut found: Vec<&Warning> = report.warnings.iter().filter(|w| w.severity > Severity::Info).collect();
    // The remarks below the first numbers say why these are withheld.
    found.retain(|w| !reason::WITHHELD.made(w));
    found.sort_by_key(|w| (Reverse(w.severity), !w.is_grave(), w.is_detail()));
    let text = |w: &&Warning| {
        let text = match w.severity {
            Severity::Error => w.text.as_str(),
            _ => w.text.split_once(". ").map_or(w.text.as_str(), |(first, _)| first),
        };
        wrap_in(&format!("{} [{}]: {text}", w.word(), w.id), width)
    };
    let texts: Vec<String> = found.iter().map(text).collect();
    let rest = |shown: usize| {
        let ids: Vec<&str> = found[shown..].iter().map(|w| w.id.as_str()).collect();
        let noun = match (shown, ids.len()) {
            (0, 1) => "finding",
            (0, _) => "findings",
            _ => "more",
        };
        let them = if ids.len() == 1 { "it" } else { "them" };
        let line = format!("{} {noun} (-v explains {them}): {}", ids.len(), ids.join(", "));
        (!ids.is_empty()).then(|| wrap_in(&line, width))
    };
    let fits = |shown: &usize| {
        let rest = rest(*shown);
        let lines = texts[..*shown].iter().chain(&rest).map(|text| text.lines().count());
        lines.sum::<usize>() <= room
    };
    let least = found.iter().filter(|w| w.is_grave()).count();
    let shown = (least..=found.len()).rev().find(fits).unwrap_or(least);
    let painted = found.iter().zip(&texts).take(shown);
    let painted = painted.map(|(w, text)| paint.in_style(style_of(w.severity), text));
    painted.chain(rest(shown)).collect()
}

//! The report on a terminal. Its width is that of COLUMNS, else of the terminal, up to a limit, or 80 without
//! a terminal. On a terminal with colours it has some, unless NO_COLOR is set. Texts come from models, images
//! and reports of other people: each becomes [`visible`] before it is wrapped, put into a table or coloured.

use super::assessment::{Standing, assess_own, beside_alarm};
use super::headline::{Headline, StrongSummary, for_others, for_recall, headlines};
use super::sections::{Content, Medium, SECTIONS};
use super::view::{
    Grid, about_ladder, bound, capital, file_column, label, ladder, numbers, percent, stepping, within,
};
use audit_base::visible::{is_obeyed, visible};
use audit_report::facts::Facts;
use audit_report::judge::quantity::{ARS, ARS_STRONG, ARS_TABLE, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity};
use audit_report::judge::row::{State as NumberState, alarm};
use audit_report::record::{Attack, CheckResult, Finding, Report, Severity, State, Verdict, Warning, reason};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets,
};
use std::cmp::Reverse;
use std::io::IsTerminal;
use unicode_width::UnicodeWidthStr;

/// Longer lines are hard to read.
const WIDEST: usize = 120;
/// In fewer columns no table fits.
const NARROWEST: usize = 40;
/// Width without a terminal.
const WIDTH: usize = 80;

/// Lines of a [`brief`] report, beyond which findings are only named: they fit a terminal of 24 lines, with
/// the command above them. Suites with many measures take a few more.
const BRIEF: usize = 20;

/// Number of columns to use.
pub fn width() -> usize {
    let stated = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let found = stated.or_else(|| Table::new().width().map(usize::from));
    found.filter(|width| *width > 0).map_or(WIDTH, |width| width.clamp(NARROWEST, WIDEST))
}

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    /// Colours if standard output is a terminal that has some (TERM), and NO_COLOR (no-color.org) is not set.
    pub fn detect() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Paint(std::io::stdout().is_terminal() && !refused && !dumb)
    }

    /// The text with each line in a style, if there is one and colours are on.
    fn in_style(self, style: impl Into<Option<Style>>, text: &str) -> String {
        let Some(Style(style)) = style.into().filter(|_| self.0) else { return text.into() };
        let painted = text.split('\n').map(|line| match line {
            "" => String::new(),
            line => format!("\u{1b}[{style}m{line}\u{1b}[0m"),
        });
        painted.collect::<Vec<_>>().join("\n")
    }

    /// A table with or without styles.
    fn table(self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
        if self.0 {
            table.enforce_styling().style_text_only();
        } else {
            table.force_no_tty();
        }
        table
    }
}

/// A style as terminals know it (ECMA-48, select graphic rendition).
#[derive(Clone, Copy)]
struct Style(&'static str);

const RED: Style = Style("1;31");
const YELLOW: Style = Style("33");
const GREEN: Style = Style("32");
/// Red and crossed out.
const VOID: Style = Style("31;9");

fn style_of(severity: Severity) -> Option<Style> {
    match severity {
        Severity::Error => Some(RED),
        Severity::Warning => Some(YELLOW),
        Severity::Info | Severity::Ok => None,
    }
}

fn style_at(standing: Standing) -> Option<Style> {
    match standing {
        Standing::Void | Standing::Falls => Some(RED),
        Standing::Between => Some(YELLOW),
        Standing::Stands => Some(GREEN),
        Standing::Open => None,
    }
}

/// Renders the report as text.
pub fn render(report: &Report) -> String {
    render_with(report, width(), Paint::detect())
}

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
    let scored = first.iter().any(|f| f.row.quantity != CLEAN_R1 && !f.row.quantity.is_robust());
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
    // Robust R@1 is among the first numbers, and the sizes of the smallest changes have a sentence.
    let told = |a: &Attack| Facts::of_term(&a.code).is_some_and(|of| of.strong_only || of.smallest.is_some());
    let (mut measures, mut missing): (Vec<(String, Vec<String>)>, Vec<&str>) = (Vec::new(), Vec::new());
    for a in report.attacks.iter().filter(|a| !told(a)) {
        let found = numbers(report, a);
        if found.state == NumberState::NotMeasured {
            missing.push(&a.code);
            continue;
        }
        let label = label(report, a);
        let (measure, unit) = label.strip_suffix(", %").map_or((label.as_str(), ""), |name| (name, " %"));
        let before = a.before.map_or(String::new(), |_| format!("{} → ", found.number(a.before)));
        let change = format!("{} {before}{}{unit}", a.code, found.cell());
        match measures.iter_mut().find(|(of, _)| of == measure) {
            Some((_, changes)) => changes.push(change),
            None => measures.push((measure.into(), vec![change])),
        }
    }
    let mut facts = Vec::new();
    if !measures.is_empty() {
        let all = measures.iter().map(|(measure, changes)| format!("{measure}: {}", changes.join(", ")));
        facts.push(format!("clean → under attack: {}", all.collect::<Vec<_>>().join(" · ")));
    }
    if !missing.is_empty() {
        facts.push(format!("{}: {}", NumberState::NotMeasured.text(), missing.join(", ")));
    }
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

/// The gate's verdict.
pub fn verdict(verdict: &Verdict) -> String {
    verdict_with(verdict, Paint::detect())
}

/// The gate's verdict, with colours or without.
pub fn verdict_with(verdict: &Verdict, paint: Paint) -> String {
    let text = visible(&verdict.render()).into_owned();
    let headline = if verdict.exit().is_some() { RED } else { GREEN };
    let of_check = |result| match result {
        CheckResult::Fail => Some(RED),
        CheckResult::Warn => Some(YELLOW),
        CheckResult::Pass => None,
    };
    let styles = std::iter::once(Some(headline)).chain(verdict.checks.iter().map(|c| of_check(c.result)));
    let styled = text.lines().zip(styles.chain(std::iter::repeat(None)));
    styled.map(|(line, style)| paint.in_style(style, line) + "\n").collect()
}

/// Renders the report in `width` columns, with colours or without.
pub fn render_with(report: &Report, width: usize, paint: Paint) -> String {
    let mut out = String::new();
    let wrap = |text: &str| wrap_in(text, width);
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if let Some(alarm) = alarm(report) {
        line(paint.in_style(RED, &wrap(&format!("!! {alarm}"))));
        line(String::new());
    }
    if let Some(caveat) = report.caveat() {
        line(paint.in_style(YELLOW, &wrap(&format!("!! {caveat}"))));
        line(String::new());
    }
    audited(report).iter().for_each(|text| line(wrap(text)));
    match beside_alarm(report) {
        Ok(Some(found)) => line(paint.in_style(style_at(found.standing), &wrap(&found.headline))),
        Ok(None) => {}
        Err(e) => line(wrap(&e.message)),
    }

    let first = headlines(report);
    line(first_numbers(&first, width, paint));
    if let Some(rungs) = ladder(report) {
        line(wrap(&format!("{}:", about_ladder(report))));
        line(table(&rungs, width, paint));
    }
    beneath(report, &first).iter().for_each(|text| line(wrap(text)));
    for note in &report.scores.notes {
        line(wrap(note));
    }
    line(attacks_table(report, width, paint));
    for section in &SECTIONS {
        let Content { sentences, tables } = (section.content)(report, Medium::Terminal);
        sentences.iter().for_each(|text| line(wrap(&capital(text))));
        for (title, grid) in tables {
            if !title.is_empty() {
                line(wrap(&format!("{title}:")));
            }
            line(table(&grid, width, paint));
        }
    }
    // Findings are ordered by severity, the most severe first, and within it as the checks.
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        // The remarks below the first numbers say why these are withheld.
        let shown = |w: &&Warning| w.severity == severity && !reason::WITHHELD.made(w);
        for w in report.warnings.iter().filter(shown) {
            let text = wrap(&format!("{} [{}]: {}", w.word(), w.id, w.text));
            line(paint.in_style(style_of(severity), &text));
        }
    }
    let t = &report.timing;
    let rate = if t.attacks_s > 0.0 { t.image_steps as f64 / t.attacks_s } else { 0.0 };
    let began = if t.began.is_empty() { String::new() } else { format!("began {}; ", t.began) };
    line(wrap(&format!(
        "{began}{:.1} s: model {:.1}, gallery {:.1}, check {:.1}{}, attacks {:.1} ({rate:.0} image steps a second); {}",
        t.total_s,
        t.model_s,
        t.gallery_s,
        t.check_s,
        if t.check_kept { " (cached)" } else { "" },
        t.attacks_s,
        report.tool.in_words()
    )));
    out
}

/// The model and the images.
fn subject(report: &Report) -> String {
    let data = &report.data;
    format!("{} · {} images, {} · {}", report.model.path, data.images, data.in_classes(), data.source)
}

/// What was audited, how, and what retrieval finds without an attack.
fn audited(report: &Report) -> [String; 4] {
    let (s, m) = (&report.suite, &report.model);
    let model = format!(
        "embedding `{}` of {}{}, {} · input {} · {}",
        m.output,
        m.dim,
        m.output_why.as_ref().map_or(String::new(), |why| format!(" ({why})")),
        m.metric,
        m.inputs.join(", "),
        m.preprocessing.words()
    );
    let seed = format!("seed {}", report.seed);
    // The text about a sample names the seed that drew it, which may be another one's if trials are replayed.
    let named = s.sampling.as_ref().is_some_and(|words| words.ends_with(&seed));
    let suite = format!(
        "suite {} ({} form) · {}: ε {}, {} · {}{}",
        s.name,
        s.form,
        s.protocol,
        bound(s),
        stepping(report),
        s.queries_in_words(),
        if named { String::new() } else { format!(" · {seed}") }
    );
    let Some(b) = &report.benign else {
        let nothing = "without an attack: the images have no classes, so that R@1 and mAP were not measured";
        return [subject(report), model, suite, nothing.into()];
    };
    let before = format!(
        "without an attack: R@1 {:.1}  R@2 {:.1}  mAP {:.1}  mAP@R {:.1}{}{}",
        b.r1,
        b.r2,
        b.map,
        b.map_at_r,
        b.nmi.map_or(String::new(), |v| format!("  NMI {v:.1}")),
        b.sampling.as_ref().map_or(String::new(), |sample| format!("  (of {sample})"))
    );
    [subject(report), model, suite, before]
}

/// Columns that a line takes, without its colours.
fn columns(line: &str) -> usize {
    line.split('\u{1b}')
        .enumerate()
        .map(|(i, part)| match (i, part.split_once('m')) {
            (1.., Some((_, shown))) => shown.width(),
            _ => part.width(),
        })
        .sum()
}

fn unframed(table: &mut Table) {
    table.load_style(presets::NOTHING).column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
}

/// A table in at most `width` columns. One that is wider loses its frame, then its column `spare`; at last
/// the columns `words` are broken into lines. Numbers never are.
pub fn fitted(mut table: Table, width: usize, words: &[usize], spare: Option<usize>) -> String {
    let fits = |table: &Table| table.lines().all(|line| columns(&line) <= width);
    if fits(&table) {
        return table.to_string();
    }
    unframed(&mut table);
    if let Some(column) = spare.filter(|_| !fits(&table)).and_then(|at| table.column_mut(at)) {
        column.set_constraint(ColumnConstraint::Hidden);
    }
    if !fits(&table) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
        for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| !words.contains(at)) {
            if column.constraint() != Some(&ColumnConstraint::Hidden) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    // Without a frame, the last column needs no padding.
    table.trim_fmt()
}

/// The first numbers side by side, or below each other if they don't fit.
fn first_numbers(first: &[Headline], width: usize, paint: Paint) -> String {
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
            NumberState::NotMeasured => f.row.state.text().into(),
            NumberState::Measured | NumberState::Withheld => f.row.number(),
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

/// Why a term of ERS can be above 100.
const ABOVE: &str = "ERS terms above 100: 100 stands for ranks and cosines at chance level, and a weak attack can leave them better \
                     than chance";

/// Which end of the scores is robust; `None` if no score is shown.
fn direction(first: &[Headline]) -> Option<String> {
    let scores = first.iter().filter(|f| [ARS, ERS, ARS_STRONG].contains(&f.row.quantity));
    let shown = scores.filter(|f| f.row.value.is_some());
    let labels: Vec<&str> = shown.map(|f| f.label.as_str()).collect();
    (!labels.is_empty()).then(|| format!("{}: 0–100, higher is more robust", labels.join(" and ")))
}

/// Remarks on the first numbers. Numbers with the same remark share a sentence, and numbers that are withheld
/// for different reasons the advice, which the last of them has.
fn remarks<'h>(first: impl Iterator<Item = &'h Headline>) -> Vec<String> {
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

/// Remarks below the first numbers, a line each.
fn beneath(report: &Report, first: &[Headline]) -> Vec<String> {
    let sizes = [(EPS50, "ε50"), (MEDIAN_EPS, "the median ε")];
    let size = sizes.iter().find(|(of, _)| first.iter().any(|f| f.row.quantity == *of));
    let direction = match size {
        Some((_, name)) => format!("higher is more robust; all but {name} are 0–100"),
        None => "0–100, higher is more robust".to_string(),
    };
    let mut lines = vec![direction];
    lines.extend(remarks(first.iter()));
    let table = ARS_TABLE.row(report);
    if table.value.is_some() {
        lines.push(format!("ARS as tables print it: {}", table.number()));
    }
    if report.attacks.iter().any(|a| a.ers_term.is_some_and(|term| term > 100.0)) {
        lines.push(ABOVE.into());
    }
    if let Some(search) = for_recall(report) {
        lines.push(format!(
            "strong search: {} of {} correct queries fail{}; {} image steps",
            search.broken(),
            search.trials,
            decided(&search.decided()),
            search.steps()
        ));
    }
    let others = for_others(report);
    if !others.is_empty() {
        let mut total: Vec<(&str, usize)> = Vec::new();
        for (name, counts) in others.iter().flat_map(StrongSummary::decided) {
            match total.iter_mut().find(|(of, _)| *of == name) {
                Some((_, sum)) => *sum += counts,
                None => total.push((name, counts)),
            }
        }
        total.sort_by_key(|(_, counts)| Reverse(*counts));
        lines.push(format!(
            "strong search on {}: best images{}; {} image steps",
            others.iter().map(|s| s.attack).collect::<Vec<_>>().join(", "),
            decided(&total),
            others.iter().map(StrongSummary::steps).sum::<usize>()
        ));
    }
    lines
}

/// The members that decided most trials.
fn decided(members: &[(&str, usize)]) -> String {
    let most: Vec<String> = members.iter().take(4).map(|(name, n)| format!("{n} by {name}")).collect();
    let more: usize = members.iter().skip(4).map(|(_, n)| n).sum();
    let others = (more > 0).then(|| format!("{more} by others"));
    let all: Vec<String> = most.into_iter().chain(others).collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

/// A row for each measure of an attack. Rows that rest on a few queries are grey.
fn attacks_table(report: &Report, width: usize, paint: Paint) -> String {
    // Without an ERS, its terms mean nothing.
    let with_ers = report.scores.ers.is_some();
    let mut table = paint.table();
    let mut header = vec!["attack", "measures", "before", "after"];
    header.extend(with_ers.then_some("ERS\nterm"));
    header.extend(["resis-\ntance", "of\nqueries"]);
    table.set_header(&header);
    for a in &report.attacks {
        let found = numbers(report, a);
        let mut row = vec![a.code.clone(), label(report, a), found.number(a.before), found.cell()];
        row.extend(with_ers.then(|| percent(a.ers_term)));
        row.extend([percent(found.resistance), a.of()]);
        let cell = |text: String| match a.small() {
            true => Cell::new(visible(&text)).add_attribute(Attribute::Dim),
            false => Cell::new(visible(&text)),
        };
        table.add_row(row.into_iter().map(cell));
    }
    for i in 2..header.len() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    fitted(table, width, &[0, 1], Some(1))
}

/// A table in at most `width` columns, as [`fitted`] makes it. If its numbers and the longest words of its
/// text don't fit, each row is a paragraph: its text, and its numbers with the names of their columns.
pub fn table(grid: &Grid, width: usize, paint: Paint) -> String {
    let longest = |text: &str, broken: bool| {
        let lengths = text.split(|c: char| c == '\n' || broken && c == ' ').map(|part| part.width());
        lengths.max().unwrap_or(0)
    };
    let cells = |i: usize| std::iter::once(&grid.head[i]).chain(grid.rows.iter().map(move |row| &row[i]));
    let least = |i: usize| cells(i).map(|cell| longest(cell, grid.is_text(i))).max().unwrap_or(0);
    if (0..grid.head.len()).map(|i| least(i) + 1).sum::<usize>() > width + 1 {
        let paragraph = |row: &Vec<String>| {
            let (text, numbers): (Vec<usize>, Vec<usize>) = (0..row.len()).partition(|i| grid.is_text(*i));
            let text: Vec<&str> =
                text.iter().map(|i| row[*i].as_str()).filter(|cell| !cell.is_empty()).collect();
            // No line ends within a pair.
            let pair = |i: usize| match grid.strengths {
                true => format!("{} at {}", row[i], grid.head[i]),
                false => format!("{} {}", grid.head[i], row[i]),
            };
            let pairs: Vec<String> = numbers.into_iter().map(|i| pair(i).replace(' ', "\u{a0}")).collect();
            let text = if text.is_empty() { String::new() } else { format!("{}: ", text.join(", ")) };
            wrap_in(&format!("{text}{}", pairs.join(" · ")), width).replace('\u{a0}', " ")
        };
        return grid.rows.iter().map(paragraph).collect::<Vec<_>>().join("\n");
    }
    let mut table = paint.table();
    let seen = |row: &Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect::<Vec<_>>();
    table.set_header(seen(&grid.head));
    table.add_rows(grid.rows.iter().map(seen));
    for (i, column) in table.column_iter_mut().enumerate() {
        let text = grid.is_text(i);
        column.set_cell_alignment(if text { CellAlignment::Left } else { CellAlignment::Right });
    }
    let words: Vec<usize> = (0..grid.head.len()).filter(|i| grid.is_text(*i)).collect();
    fitted(table, width, &words, None)
}

/// A table of findings, each with its advice.
pub fn findings(findings: &[Finding]) -> String {
    findings_with(findings, width(), Paint::detect())
}

/// The same in `width` columns, with colours or without.
pub fn findings_with(findings: &[Finding], width: usize, paint: Paint) -> String {
    let mut table = paint.table();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
    table.set_header(["check", "level", "finding"]);
    for f in findings {
        let advice = if f.advice.is_empty() { String::new() } else { format!("\n→ {}", f.advice) };
        let question = format!("{} {}{advice}", f.asks, capital(&f.found));
        let question = visible(&question).into_owned();
        let level = Cell::new(f.word());
        let level = match f.severity {
            _ if f.state == State::NotChecked => level.add_attribute(Attribute::Dim),
            Severity::Error => level.fg(Color::Red).add_attribute(Attribute::Bold),
            Severity::Warning => level.fg(Color::Yellow),
            Severity::Info | Severity::Ok => level,
        };
        table.add_row([Cell::new(visible(&f.check)), level, Cell::new(question)]);
    }
    // The columns of names and severities do not wrap.
    for i in 0..2 {
        if let Some(column) = table.column_mut(i) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.to_string() + "\n"
}

/// Operators, each with its name, opsets, class and, below, the refused forms.
pub fn operators(rows: &[[String; 4]]) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, opsets, classes) = (widest(0), widest(1), widest(2));
    let as_columns = names + opsets + classes + 4 <= width();
    let row = |[name, since, class, refused]: &[String; 4]| {
        let head = match as_columns {
            true => format!("{name:<names$}  {since:<opsets$}  {class}"),
            // A name that doesn't fit either is broken behind its domain.
            false if name.width() > width() => {
                wrap(&format!("{} {since} {class}", name.replace("::", ":: ")))
            }
            false => wrap(&format!("{name} {since} {class}")),
        };
        let refused = if refused.is_empty() {
            String::new()
        } else {
            format!("\n{}", wrap_under("    refused: ", refused))
        };
        head + &refused + "\n"
    };
    rows.iter().map(row).collect()
}

/// Wraps a paragraph at spaces. Lines after the first are indented.
pub fn wrap(text: &str) -> String {
    wrap_in(text, width())
}

/// Wraps a paragraph beside `head`. Lines after the first are indented by its width. Lines that the text has
/// itself are kept.
pub fn wrap_under(head: &str, text: &str) -> String {
    let used = head.width();
    let indent = format!("\n{}", " ".repeat(used));
    let lines = text.lines().map(|line| wrap_in(line, width().saturating_sub(used)));
    head.to_string() + &lines.collect::<Vec<_>>().join("\n").replace('\n', &indent)
}

fn wrap_in(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in visible(text).split(' ') {
        let last = lines.len() - 1;
        let used = lines[last].width();
        if used > 0 && used + 1 + word.width() > width {
            let shown = lines[last].trim_end().len();
            lines[last].truncate(shown);
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

#[cfg(test)]
mod tests {
    use super::wrap_in;

    /// A Chinese character takes two columns of a terminal.
    #[test]
    fn wide_characters_take_two_columns() {
        let wrapped = wrap_in("甲甲甲甲 乙乙乙乙 abcd abcd", 10);
        assert_eq!(wrapped, "甲甲甲甲\n  乙乙乙乙\n  abcd\n  abcd");
    }
}

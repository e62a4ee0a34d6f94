//! The report on a terminal. Its width is that of COLUMNS, else of the terminal, up to a limit, or 80 without
//! a terminal. On a terminal with colours it has some, unless NO_COLOR is set. Texts come from models, images
//! and reports of other people: each becomes [`visible`] before it is wrapped, put into a table or coloured.

mod brief;
mod first;
mod tables;
mod wrapped;

pub use brief::{brief, brief_with};
pub use tables::{fitted, table};
pub use wrapped::{wrap, wrap_under};

use super::assessment::{Standing, beside_alarm};
use super::headline::{Headline, StrongSummary, for_others, for_recall, headlines};
use super::sections::{Content, Medium, SECTIONS};
use super::view::{about_ladder, bound, capital, label, ladder, numbers, percent, stepping};
use audit_base::visible::visible;
use audit_report::judge::quantity::{ARS_TABLE, EPS50, MEDIAN_EPS};
use audit_report::judge::row::alarm;
use audit_report::record::{CheckResult, Finding, Report, Severity, State, Verdict, Warning, reason};
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets,
};
use first::{first_numbers, remarks};
use std::cmp::Reverse;
use std::io::IsTerminal;
use unicode_width::UnicodeWidthStr;
use wrapped::wrap_in;

/// Longer lines are hard to read.
const WIDEST: usize = 120;
/// In fewer columns no table fits.
const NARROWEST: usize = 40;
/// Width without a terminal.
const WIDTH: usize = 80;

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
    line(wrap(&timing(report)));
    out
}

/// When the audit began, what took how long, and by which program.
fn timing(report: &Report) -> String {
    let t = &report.timing;
    let rate = if t.attacks_s > 0.0 { t.image_steps as f64 / t.attacks_s } else { 0.0 };
    let began = if t.began.is_empty() { String::new() } else { format!("began {}; ", t.began) };
    format!(
        "{began}{:.1} s: model {:.1}, gallery {:.1}, check {:.1}{}, attacks {:.1} ({rate:.0} image steps a second); {}",
        t.total_s,
        t.model_s,
        t.gallery_s,
        t.check_s,
        if t.check_kept { " (cached)" } else { "" },
        t.attacks_s,
        report.tool.in_words()
    )
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

/// Why a term of ERS can be above 100.
const ABOVE: &str = "ERS terms above 100: 100 stands for ranks and cosines at chance level, and a weak attack can leave them better \
                     than chance";

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

//! How numbers are formatted in every report for people.

use crate::judge::compare::{Comparison, Entry, Row};
use crate::record::{Attack, Suite};
use crate::threat::term::Term;
use crate::threat::{Ball, OBJECTIVES, Objective, Search};

/// The label of a row's numbers; empty for a term that only a later version knows.
pub(super) fn measures(row: &Attack) -> &'static str {
    Term::find(&row.code).map_or("", |t| t.label)
}

/// The description of the attack with this code, or of the attack that has this term.
pub(super) fn about(code: &str) -> &'static str {
    let named = |o: &&Objective| o.code == code || o.terms.iter().any(|t| t.name == code);
    OBJECTIVES.iter().find(named).map_or("", |o| o.about)
}

/// A number of a row, with the digits of its term.
pub(super) fn number(row: &Attack, value: Option<f64>) -> String {
    let digits = Term::find(&row.code).map_or(1, |t| t.digits);
    value.map_or("–".into(), |v| format!("{v:.digits$}"))
}

/// A score, a share or a resistance.
pub(super) fn percent(value: Option<f64>) -> String {
    value.map_or("–".into(), |v| format!("{v:.1}"))
}

/// The text with its first letter in upper case.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    // Only ASCII letters change, so that ε stays ε.
    chars.next().map_or(String::new(), |c| std::iter::once(c.to_ascii_uppercase()).chain(chars).collect())
}

/// The bound of perturbations. For the largest change of a pixel it is also a fraction: `0.30196 (77.0/255)`.
pub(super) fn bound(suite: &Suite) -> String {
    let eps = suite.eps;
    match Ball::find(&suite.norm) {
        Ok(ball) if ball.is_box => format!("{eps:.5} ({:.1}/255)", 255.0 * eps),
        _ => format!("{eps:.5} ({})", suite.norm),
    }
}

/// The steps in words.
pub(super) fn stepping(suite: &Suite) -> String {
    match Search::find(&suite.schedule) {
        Ok(search) => (search.words)(suite.steps, suite.alpha),
        Err(_) => format!("{} steps, {}", suite.steps, suite.schedule),
    }
}

/// The cells that every format shows of a row: value, the base's value, change, interval.
pub(super) fn cells(comparison: &Comparison, row: &Row) -> [String; 4] {
    let metric = row.metric;
    let base = comparison.models.iter().find(|m| m.base).and_then(|m| m.row(metric));
    [
        metric.show(row.value),
        base.map_or("–".into(), |b| metric.show(b.value)),
        row.difference.map_or("–".into(), |d| metric.show_change(d.value)),
        row.difference.and_then(|d| d.interval).map_or("–".into(), |(low, high)| {
            format!("{} … {}", metric.show_change(low), metric.show_change(high))
        }),
    ]
}

/// The meaning of a row's difference, in one word.
pub(super) fn word(row: &Row) -> &'static str {
    match row.direction {
        1 => "better",
        -1 => "worse",
        _ if row.difference.is_some() => "not told apart",
        _ => "",
    }
}

/// The rows that reports for people show. The JSON format has all rows.
pub(super) fn shown(entry: &Entry) -> impl Iterator<Item = &Row> {
    entry.rows.iter().filter(|r| !r.metric.as_published())
}

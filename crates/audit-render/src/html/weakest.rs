//! The weakest classes and queries, in tables that the page's script sorts.

use super::page::{section as framed, table};
use crate::view::{Grid, weakest_by_attack};
use audit_report::facts::Facts;
use audit_report::judge::division::LEAST;
use audit_report::judge::score::withstood;
use audit_report::record::{Form, Outcome, Report};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Rows of each table at the most.
const ROWS: [usize; 2] = [40, 20];

/// Results of the attacks on one query, or on the queries of a class.
#[derive(Default)]
struct Tally<'r> {
    queries: usize,
    /// Queries that are correct on clean images, and those that stay correct under every attack on R@1 or on
    /// a decision; `None` without such an attack.
    right: Option<[usize; 2]>,
    /// Sum and number of what the trials withstood.
    withstood: (f64, usize),
    /// The least that a trial withstood, and its attack.
    least: Option<(f64, &'r str)>,
    /// The farthest that an embedding moved.
    shift: f64,
}

impl<'r> Tally<'r> {
    fn of(outcomes: &[&'r Outcome], report: &Report) -> Tally<'r> {
        let basis = report.basis();
        let mut tally = Tally { queries: 1, ..Tally::default() };
        for o in outcomes {
            tally.shift = tally.shift.max(o.shift);
            let Some(found) = withstood(o, &basis) else { continue };
            tally.withstood.0 += found;
            tally.withstood.1 += 1;
            if tally.least.is_none_or(|(least, _)| found < least) {
                tally.least = Some((found, &o.attack));
            }
        }
        let right: Vec<[bool; 2]> = outcomes.iter().filter_map(|o| right(o)).collect();
        let before = right.iter().any(|[before, _]| *before);
        let lost = right.iter().any(|[before, after]| !before || !after);
        tally.right = (!right.is_empty()).then(|| [before.into(), (before && !lost).into()]);
        tally
    }

    fn add(&mut self, other: &Tally) {
        self.queries += other.queries;
        if let Some(more) = other.right {
            let right = self.right.get_or_insert_default();
            *right = [0, 1].map(|i| right[i] + more[i]);
        }
        self.withstood.0 += other.withstood.0;
        self.withstood.1 += other.withstood.1;
    }

    /// Whether there are enough queries for a rank, and a correct one.
    fn ranks(&self) -> bool {
        self.queries >= LEAST && self.right.is_none_or(|[correct, _]| correct > 0)
    }

    /// The share of correct queries that fail, in per cent.
    fn failed(&self) -> Option<f64> {
        let [correct, left] = self.right?;
        (correct > 0).then(|| 100.0 * (correct - left) as f64 / correct as f64)
    }

    /// Whether an attack had nothing to gain, because the query is wrong on clean images.
    fn beyond_attack(&self) -> bool {
        self.mean().is_none() && self.right.is_some_and(|[correct, _]| correct == 0)
    }

    fn mean(&self) -> Option<f64> {
        (self.withstood.1 > 0).then(|| self.withstood.0 / self.withstood.1 as f64)
    }
}

/// Whether the first item, or the decision at a threshold, is correct without and under attack. `None` for
/// other trials.
fn right(o: &Outcome) -> Option<[bool; 2]> {
    let objective = Facts::find(&o.attack).ok()?;
    if let Some(both) = o.before.hit.zip(o.after.hit).filter(|_| objective.hits_are_correct()) {
        return Some(both.into());
    }
    if !objective.measured.decides {
        return None;
    }
    let (before, after) = objective.success(o, Form::Corrected, 2.0)?;
    Some([before < 100.0, after < 100.0])
}

/// The section; empty where no attack moved a query.
pub(super) fn section(report: &Report) -> Markup {
    let moves = |o: &&Outcome| Facts::find(&o.attack).is_ok_and(|of| !of.measured.moves_candidate);
    let mut by_query: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for o in report.outcomes.iter().filter(moves) {
        by_query.entry(&o.query).or_default().push(o);
    }
    if by_query.is_empty() {
        return Markup::default();
    }
    let class = |query: &str| report.labels.get(query).map_or("", String::as_str);
    let mut queries: Vec<(&str, &str, Tally)> =
        by_query.iter().map(|(id, all)| (*id, class(id), Tally::of(all, report))).collect();
    let mut by_class: BTreeMap<&str, Tally> = BTreeMap::new();
    for (_, class, tally) in queries.iter().filter(|(_, class, _)| !class.is_empty()) {
        by_class.entry(class).or_default().add(tally);
    }
    let weak = |t: &Tally| t.mean().unwrap_or(f64::INFINITY);
    let all = by_class.len();
    let mut classes: Vec<(&str, Tally)> = by_class.into_iter().filter(|(_, t)| t.ranks()).collect();
    classes.sort_by(|a, b| {
        let (x, y) = (a.1.failed().unwrap_or(0.0), b.1.failed().unwrap_or(0.0));
        y.total_cmp(&x).then(weak(&a.1).total_cmp(&weak(&b.1))).then(a.0.cmp(b.0))
    });
    queries.sort_by(|a, b| weak(&a.2).total_cmp(&weak(&b.2)).then(a.0.cmp(b.0)));
    let attacked = queries.len();
    queries.retain(|(.., tally)| !tally.beyond_attack());
    let wrong = match attacked - queries.len() {
        0 => None,
        1 => Some("1 query is left out: it is wrong without an attack.".to_string()),
        count => Some(format!("{count} queries are left out: they are wrong without an attack.")),
    };
    let lead = "Withstood: 100 if an attack changed nothing, 0 if it reached its goal; the mean over the attacks on \
                queries. Moved: the largest distance between the clean and an attacked embedding.";
    let left_out = format!(
        "Classes by the share of their correct queries that fail under one of the attacks or more. {} of {all} classes are left out: they have fewer than {LEAST} attacked queries, or no correct one.",
        all - classes.len()
    );
    let content = html! {
        @if !classes.is_empty() {
            .card { h3 { (headline(["class", "classes"], classes.len(), ROWS[0])) } (of_classes(&classes)) @if all > classes.len() { p.note { (left_out) } } }
        } @else if all > 0 {
            p { "No class is ranked: each has fewer than " (LEAST) " attacked queries, or no correct one." }
        }
        @if let Some(grid) = weakest_by_attack(report) {
            .card { h3 { "The weakest classes and groups under each attack" } (worst(&grid)) }
        }
        .card {
            @if !queries.is_empty() {
                h3 { (headline(["query", "queries"], queries.len(), ROWS[1])) } (of_queries(&queries, report.data.has_classes()))
            }
            @if let Some(wrong) = wrong { p.note { (wrong) } }
        }
    };
    let title = match report.data.has_classes() {
        true => "Which classes and queries fail first?",
        false => "Which queries fail first?",
    };
    framed(title, lead, content)
}

/// The head of a table of `all` rows, of which it shows `most` at the most. The noun is a singular and a
/// plural.
fn headline([one, several]: [&str; 2], all: usize, most: usize) -> String {
    match all {
        1 => format!("One {one}"),
        _ if all > most => format!("The weakest {most} of {all} {several}"),
        _ => format!("All {all} {several}, the weakest first"),
    }
}

/// A cell with a number, which the script sorts by.
fn number(value: Option<f64>, digits: usize, name: &str) -> Markup {
    html! {
        td.n data-key=(value.unwrap_or(-1.0)) data-name=(name) { (value.map_or("–".into(), |v| format!("{v:.digits$}"))) }
    }
}

fn of_classes(classes: &[(&str, Tally)]) -> Markup {
    html! {
        .scroll.tall tabindex="0" role="region" aria-label="weakest classes" { table.sort {
            thead { tr {
                th { "Class" } th.n { "queries" } th.n { "correct" } th.n { "fail" } th.n { "fail, %" } th.n { "withstood, %" }
            } }
            tbody {
                @for (class, t) in classes.iter().take(ROWS[0]) {
                    tr {
                        td.id { (class) }
                        (number(Some(t.queries as f64), 0, "queries"))
                        (number(t.right.map(|r| r[0] as f64), 0, "correct"))
                        (number(t.right.map(|r| (r[0] - r[1]) as f64), 0, "fail"))
                        (number(t.failed(), 1, "fail, %"))
                        (number(t.mean(), 1, "withstood, %"))
                    }
                }
            }
        } }
    }
}

/// The weakest classes and groups under each attack.
fn worst(grid: &Grid) -> Markup {
    html! {
        p.note {
            "Of classes and groups with " (LEAST) " attacked queries or more, and a correct one: how many of their correct queries fail. The \
             weakest of several is weak by chance too: the interval takes account of it (Clopper and Pearson at 1 − 0.05/(m + 1) for each of \
             m and for all together, so that all hold at once)."
        }
        (table(grid))
    }
}

fn of_queries(queries: &[(&str, &str, Tally)], has_classes: bool) -> Markup {
    html! {
        .scroll.tall tabindex="0" role="region" aria-label="weakest queries" { table.sort {
            thead { tr {
                th { "Query" } @if has_classes { th { "Class" } } th { "Correct" } th { "Worst attack" } th.n { "moved" } th.n { "withstood, %" }
            } }
            tbody {
                @for (query, class, t) in queries.iter().take(ROWS[1]) {
                    tr {
                        td.id { (query) }
                        @if has_classes { td.id { (class) } }
                        td { (match t.right { None => "–", Some([0, _]) => "never", Some([_, 0]) => "until attacked", _ => "always" }) }
                        td { (t.least.map_or("–", |(_, attack)| attack)) }
                        (number(Some(t.shift), 3, "moved"))
                        (number(t.mean(), 1, "withstood, %"))
                    }
                }
            }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit_report::record::Measures;

    /// A hit of TMIN says that the nearest image is not of the named class.
    #[test]
    fn a_query_that_resists_a_named_class_need_not_be_correct() {
        let hit = |hit| Measures { hit: Some(hit), ..Measures::default() };
        let of = |attack: &str| Outcome {
            attack: attack.into(),
            before: hit(true),
            after: hit(false),
            ..Outcome::default()
        };
        assert_eq!([right(&of("ES")), right(&of("TMIN"))], [Some([true, false]), None]);
    }

    /// A query that is wrong without an attack is no weak one.
    #[test]
    fn wrong_queries_are_not_among_the_weakest() {
        let tally = |correct, withstood| Tally { right: Some([correct, 0]), withstood, ..Tally::default() };
        let [wrong, broken, ranked] = [tally(0, (0.0, 0)), tally(1, (0.0, 1)), tally(0, (30.0, 1))];
        assert!(wrong.beyond_attack() && !broken.beyond_attack() && !ranked.beyond_attack());
    }
}

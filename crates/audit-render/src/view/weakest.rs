//! The weakest classes and groups.

use super::Grid;
use audit_report::judge::breakdown::{self, WeakPart, Weakest};
use audit_report::judge::division::{DIVISIONS, Division, LEAST};
use audit_report::record::Report;

/// Classes or groups that a report for people names of an attack.
const NAMED: usize = 3;

/// A number of classes or groups.
fn counted(number: usize, by: &Division) -> String {
    format!("{number} {}", if number == 1 { by.name } else { by.several })
}

/// The weakest classes or groups under an attack: `class03 17 of 20, class07 12 of 18`.
fn worst(found: &Weakest) -> String {
    let each = found.rows.iter().take(NAMED);
    let each = each.map(|row| format!("{} {} of {}", row.name, row.failed, row.correct));
    each.collect::<Vec<_>>().join(", ")
}

/// The weakest classes and the weakest groups, a sentence without a full stop each: under the strong search,
/// or else under the attack that makes most of one of them fail, of several such attacks the first.
pub fn weakest(report: &Report) -> Vec<String> {
    let all = breakdown::weakest(report);
    let of = |by: &Division| {
        let mine = || all.iter().filter(|found| found.by.name == by.name);
        let robust = mine().find(|found| found.of.is_robust());
        let most = |found: &Weakest| found.rows.first().map_or(0.0, WeakPart::share);
        // Of several that break as much of one class, the first of the report: `max_by` takes the last.
        let found = robust.or_else(|| mine().rev().max_by(|a, b| most(a).total_cmp(&most(b))))?;
        let (low, high) = match robust {
            Some(found) => found.interval(),
            None => found.interval_among(mine().map(Weakest::chances).sum()),
        };
        let left_out = [
            (found.too_few, format!("with fewer than {LEAST} queries")),
            (found.none_correct, "without a correct query".into()),
        ];
        let left_out = left_out.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}"));
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        let left_out = if left_out.is_empty() { left_out } else { format!("; left out: {left_out}") };
        Some(format!(
            "weakest of {} under {}, by the correct queries that fail: {} (95 % for the weakest of all {low:.1} – {high:.1} \
             %){left_out}",
            counted(found.rows.len(), by),
            found.attack(),
            worst(found)
        ))
    };
    DIVISIONS.iter().filter_map(of).collect()
}

/// The weakest classes and groups under each attack; `None` if there are none.
pub fn weakest_by_attack(report: &Report) -> Option<Grid> {
    let row = |found: Weakest| {
        let (low, high) = found.interval();
        vec![
            found.attack().to_string(),
            worst(&found),
            format!("{low:.1} – {high:.1}"),
            counted(found.rows.len(), found.by),
            found.too_few.to_string(),
            found.none_correct.to_string(),
        ]
    };
    let head =
        ["attack", "correct queries that fail", "95 % for the weakest, %", "of", "too few", "none correct"];
    let rows: Vec<_> = breakdown::weakest(report).into_iter().map(row).collect();
    (!rows.is_empty()).then(|| Grid::new(&head, &[0, 1, 2, 3], rows))
}

//! Comparisons of models.

use super::Grid;
use audit_report::judge::compare::{ComparedModel, ComparedValue, Comparison};
use audit_report::judge::crossed::{Cosines, Crossed, ModelCost, Transfer};
use audit_report::judge::quantity::{ARS, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity, ROBUST, ROBUST_TOP1};
use audit_report::judge::row::{DASH, State};
use audit_report::record::number_of_queries;
use std::collections::BTreeSet;

/// The numbers that a comparison shows of each model first, and their names. Robust R@1 has its ε beside it:
/// here, or if the models' differ, in the cells. Scores of the literature have no column if only sizes of
/// changes were measured.
pub fn compared_first(comparison: &Comparison) -> Vec<(&'static Quantity, String)> {
    let has =
        |of: &Quantity| comparison.models.iter().any(|m| m.row(of).is_some_and(|row| row.value.is_some()));
    let robust = common_eps(comparison).map_or(String::new(), |eps| format!(" at {eps}"));
    let scores = has(ARS) || has(ERS) || !has(EPS50) && !has(MEDIAN_EPS);
    let left = compared_robust(comparison);
    let mut all = vec![(left, format!("{}{robust}", left.label))];
    let sizes = [(EPS50, "ε50"), (MEDIAN_EPS, "median ε")].into_iter().filter(|size| has(size.0));
    all.extend(sizes.map(|(of, name)| (of, sized(comparison, of, name))));
    all.extend(
        [(ARS, "ARS"), (ERS, "ERS")].into_iter().filter(|_| scores).map(|(of, name)| (of, name.to_string())),
    );
    all.extend((left == ROBUST).then(|| (CLEAN_R1, CLEAN_R1.label.into())));
    all
}

/// The name of a size of changes, with its norm if that does not count grey levels and all models have it.
fn sized(comparison: &Comparison, of: &Quantity, name: &str) -> String {
    let norm = comparison.models.iter().find_map(|m| m.row(of)?.norm.as_ref());
    let norm = norm.filter(|_| !has_many_norms(comparison, of));
    norm.map_or(name.into(), |norm| format!("{name} ({norm})"))
}

/// Whether models have this size in different norms, so that each value needs its own.
fn has_many_norms(comparison: &Comparison, of: &Quantity) -> bool {
    let rows = comparison.models.iter().filter_map(|m| m.row(of)).filter(|row| row.value.is_some());
    rows.map(|row| row.norm.as_deref()).collect::<BTreeSet<_>>().len() > 1
}

/// Robust R@1, or robust top-1 if all models were audited on images without classes.
fn compared_robust(comparison: &Comparison) -> &'static Quantity {
    let has = |m: &ComparedModel| m.row(ROBUST_TOP1).is_some_and(|row| row.state != State::NotMeasured);
    if comparison.models.iter().all(has) { ROBUST_TOP1 } else { ROBUST }
}

/// The ε of this number, if all models have the same.
fn common_eps(comparison: &Comparison) -> Option<&str> {
    let left = compared_robust(comparison);
    let rows = comparison.models.iter().filter_map(|m| m.row(left)?.eps.as_deref());
    let all: BTreeSet<&str> = rows.collect();
    all.iter().next().copied().filter(|_| all.len() == 1)
}

/// One of these numbers of a model, and whether it is invalid; a dash if it was not measured.
pub fn compared(comparison: &Comparison, entry: &ComparedModel, metric: &Quantity) -> (String, bool) {
    let Some(row) = entry.row(metric) else { return (DASH.into(), false) };
    let eps = row.eps.as_ref().filter(|_| common_eps(comparison).is_none() && row.value.is_some());
    (value_of(comparison, row) + &eps.map_or(String::new(), |eps| format!(" at {eps}")), row.void)
}

/// The 95 % interval of one of these numbers in its own report; `None` if it has none, or is not shown or
/// invalid.
pub fn compared_spread<'c>(entry: &'c ComparedModel, metric: &Quantity) -> Option<&'c str> {
    let row = entry.row(metric).filter(|row| row.state == State::Measured && !row.void)?;
    row.spread.as_deref()
}

/// The value of a row, or its state.
fn value_of(comparison: &Comparison, row: &ComparedValue) -> String {
    let unit = || match &row.norm {
        _ if !has_many_norms(comparison, row.metric) => String::new(),
        Some(norm) => format!(" ({norm})"),
        None => "/255".into(),
    };
    match (row.state, row.value) {
        (State::Withheld, _) => row.state.text().into(),
        (_, value) => value.map_or(DASH.into(), |value| {
            let shown = row.metric.show_in(row.norm.as_deref(), value);
            format!("{}{shown}{}", if row.above { "above " } else { "" }, unit())
        }),
    }
}

/// The name of a row, with the ε that its value depends on, or the norm of a length: bounds on it are in
/// 255ths.
pub fn row_name(comparison: &Comparison, row: &ComparedValue) -> String {
    let eps = row.eps.as_ref().map(|eps| format!(" at {eps}"));
    let norm = row.norm.as_ref().filter(|_| !has_many_norms(comparison, row.metric));
    let beside = eps.or(norm.map(|norm| format!(" ({norm})"))).unwrap_or_default();
    format!("{}{beside}", row.metric.name)
}

/// The heads of a candidate's rows, whose cells are those of [`cells`].
pub const ROW_HEADS: [&str; 4] = ["candidate", "baseline", "change", "95 %"];

/// The cells that every format shows of a row: value, the baseline's value, change, interval.
pub fn cells(comparison: &Comparison, row: &ComparedValue) -> [String; 4] {
    let (metric, norm) = (row.metric, row.norm.as_deref());
    let base = comparison.models.iter().find(|m| m.base).and_then(|m| m.row(metric));
    // How far two numbers differ that are both larger than the largest ε is unknown.
    let unknown = row.above && base.is_some_and(|b| b.above);
    let base_eps = base.and_then(|b| b.eps.as_ref()).filter(|eps| row.eps.as_ref() != Some(eps));
    [
        value_of(comparison, row),
        base.map_or(DASH.into(), |base| value_of(comparison, base))
            + &base_eps.map_or(String::new(), |eps| format!(" at {eps}")),
        row.difference.filter(|_| !unknown).map_or(DASH.into(), |d| metric.show_change_in(norm, d.value)),
        row.difference.and_then(|d| d.interval).map_or(DASH.into(), |(low, high)| {
            let shown = |value| metric.show_change_in(norm, value);
            format!("{} … {}", shown(low), shown(high))
        }),
    ]
}

/// The interval of a row's difference, with its number of queries if they are not all that the value rests
/// on.
pub fn interval_of(comparison: &Comparison, row: &ComparedValue) -> String {
    let [.., interval] = cells(comparison, row);
    let some = row.difference.filter(|d| d.interval.is_some() && d.queries < row.queries);
    interval + &some.map_or(String::new(), |d| format!(" ({})", number_of_queries(d.queries)))
}

/// What the arrows of [`transfer`] mean.
pub const ARROW: &str = "a → b: attacks made on a, measured on b; base is the baseline, cand. the candidate";

/// Results of attacks made on either model and measured on either. With `spread`, attacks made on the other
/// model have the interval of the difference from attacks made on the measured model itself.
pub fn transfer(crossed: &Crossed, spread: bool) -> Grid {
    let cell = |of: &Transfer, made: usize, measured: usize| {
        let cell = &of.cells[made][measured];
        let difference = cell.difference.filter(|_| spread).map_or(String::new(), |d| {
            let interval = d.interval.map_or(String::new(), |(low, high)| {
                format!("; 95 % {} … {}", of.metric.show_change(low), of.metric.show_change(high))
            });
            format!(" ({}{interval})", of.metric.show_change(d.value))
        });
        cell.value.map_or(State::Withheld.text().into(), |value| of.metric.show(value)) + &difference
    };
    let row = |of: &Transfer| {
        vec![of.metric.name.into(), cell(of, 0, 0), cell(of, 1, 0), cell(of, 0, 1), cell(of, 1, 1)]
    };
    let head = ["metric", "base → base", "cand. → base", "base → cand.", "cand. → cand."];
    Grid::new(&head, &[0], crossed.transfer.iter().map(row))
}

/// How well two models agree without an attack, and their cost: a sentence without a full stop each.
pub fn agreement(crossed: &Crossed) -> [String; 2] {
    let of = &crossed.agreement;
    let cosine = match of.cosine {
        Some(Cosines { mean, lowest }) => {
            format!(
                "the cosine of both embeddings is {mean:.4} on average and {lowest:.4} at the lowest of {} images",
                of.images
            )
        }
        None => "embeddings have different lengths, so that they have no cosine".into(),
    };
    let spread = of.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.1} – {high:.1})"));
    let [base, other] = &crossed.costs;
    let cost = |cost: &ModelCost| {
        let size = format!("{} kB", cost.bytes / 1000);
        match cost.image_steps_per_second {
            // Steps that craft one perturbation for many queries are not counted by query.
            0.0 => size,
            rate => format!("{size} and {rate:.0} image steps a second"),
        }
    };
    [
        format!(
            "on clean images {cosine}; both find the same image first for {:.1} % of {}{spread}",
            of.same_first,
            number_of_queries(of.queries)
        ),
        format!(
            "baseline {}, candidate {}, as measured in this audit, which also computes gradients",
            cost(base),
            cost(other)
        ),
    ]
}

/// The rows that reports for people show, in two parts: scores, R@1 and the value after each attack, which
/// come first; and the others. The JSON format has all rows.
pub fn shown(entry: &ComparedModel) -> (Vec<&ComparedValue>, Vec<&ComparedValue>) {
    entry.rows.iter().filter(|row| !row.metric.as_published).partition(|row| row.metric.leading)
}

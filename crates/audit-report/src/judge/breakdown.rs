//! R@1 and wrong decisions after attacks by class and by group of the queries, and the worst of them: the
//! lowest R@1, and the highest share of wrong decisions.
//!
//! The worst of several noisy numbers is bad by chance: of forty equal classes with ten queries each, one is
//! far below the others. So a class counts only with [`LEAST`] queries, the intervals of all classes hold
//! together (Bonferroni), and a gate fails only if the interval of the worst does not reach its bound. The
//! worst is never better than the mean over all classes, so that the interval of this mean bounds it too: the
//! intervals of small classes alone are so wide that they reach any bound.

use super::division::{DIVISIONS, Division, LEAST, divided};
use super::quantity::Quantity;
use super::survivors::{attacked, survivors};
use crate::facts::{FACTS, R1};
use crate::record::{Breakdown, BreakdownRow, Outcome, Report};

/// The code of the attack behind a number that is a share of queries.
fn attack_of(share: &Quantity) -> Option<&'static str> {
    match share.term() {
        None => Some(R1.code),
        Some(term) => Some(FACTS.iter().find(|o| o.judged_by(term))?.code),
    }
}

/// The queries of a report behind such a number, each with whether it counts without an attack and under it.
fn queries_of<'r>(share: &Quantity, report: &'r Report) -> Vec<(&'r str, bool, bool)> {
    let Some(term) = share.term() else {
        if share != Quantity::robust(report) {
            return Vec::new();
        }
        let before = attacked(&report.outcomes).map(|o| o.before.hit == Some(true));
        let left = survivors(&report.outcomes).into_iter();
        return left.zip(before).map(|((query, right), before)| (query, before, right)).collect();
    };
    let judged: Vec<&str> = FACTS.iter().filter(|of| of.judged_by(term)).map(|of| of.code).collect();
    let read = |o: &'r Outcome| {
        let (before, after) = (term.read)(o, report.suite.form)?;
        Some((o.query.as_str(), before == Some(1.0), after == 1.0))
    };
    report.outcomes.iter().filter(|o| judged.contains(&o.attack.as_str())).filter_map(read).collect()
}

/// Classes or groups by the share of their correct queries that an attack makes fail.
pub struct Weakest {
    /// The way in which the queries are divided.
    pub by: &'static Division,
    /// The number that the attack lowers, or for decisions raises.
    pub of: &'static Quantity,
    /// Parts with at least [`LEAST`] attacked queries, of which at least one is correct, the weakest first.
    pub rows: Vec<WeakPart>,
    /// Number of parts with fewer queries.
    pub too_few: usize,
    /// Number of parts with enough queries, none of them correct: they have nothing to lose.
    pub none_correct: usize,
}

/// One class or group.
pub struct WeakPart {
    /// Its name.
    pub name: String,
    /// Number of its attacked queries that are correct on clean images.
    pub correct: usize,
    /// Number of these that fail under attack.
    pub failed: usize,
    /// 95 % interval of the share that fails, in per cent, which holds for all rows together.
    pub interval: (f64, f64),
}

impl WeakPart {
    /// The share of correct queries that fail, in per cent.
    pub fn share(&self) -> f64 {
        100.0 * self.failed as f64 / self.correct as f64
    }
}

impl Weakest {
    /// The attack in a word or two.
    pub fn attack(&self) -> &'static str {
        self.of.term().map_or("the strong search", |term| term.name)
    }

    /// 95 % interval of the share of the weakest of all.
    pub fn interval(&self) -> (f64, f64) {
        self.interval_among(self.chances())
    }

    /// Number of intervals that bound the share of the weakest: of the rows, and of several rows together.
    pub fn chances(&self) -> usize {
        family(self.rows.len())
    }

    /// [`Self::interval`] if the attack was chosen for its weakest part, among several attacks with so many
    /// [`Self::chances`] in all.
    pub fn interval_among(&self, chances: usize) -> (f64, f64) {
        let parts: Vec<_> = self.rows.iter().map(|row| (row.failed, row.correct)).collect();
        of_worst(&parts, chances, true)
    }
}

/// Classes and groups, the weakest first, for each attack that makes queries fail. Empty if no part counts.
pub fn weakest(report: &Report) -> Vec<Weakest> {
    let both = DIVISIONS.iter().flat_map(|by| Quantity::divided().map(move |share| (by, share)));
    both.filter_map(|(by, share)| weakest_of(report, share, by)).collect()
}

fn weakest_of(report: &Report, of: &'static Quantity, by: &'static Division) -> Option<Weakest> {
    let queries = queries_of(of, report);
    // A share of wrong decisions counts the wrong ones.
    let correct = |counted: bool| counted != of.lower_is_better;
    let parts = divided(queries.iter().map(|(query, ..)| *query), (by.parts)(report, attack_of(of)?));
    let (enough, few): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, places)| places.len() >= LEAST);
    let count = |(name, places): &(&str, Vec<usize>)| {
        let mine = || places.iter().map(|i| &queries[*i]).filter(|(_, before, _)| correct(*before));
        let failed = mine().filter(|(.., after)| !correct(*after)).count();
        (name.to_string(), mine().count(), failed)
    };
    let counts: Vec<_> = enough.iter().map(count).filter(|(_, correct, _)| *correct > 0).collect();
    let alpha = 0.05 / counts.len() as f64;
    let row = |(name, correct, failed): &(String, usize, usize)| WeakPart {
        name: name.clone(),
        correct: *correct,
        failed: *failed,
        interval: exact(*failed, *correct, alpha),
    };
    let mut rows: Vec<WeakPart> = counts.iter().map(row).collect();
    rows.sort_by(|a, b| {
        b.share().total_cmp(&a.share()).then(b.correct.cmp(&a.correct)).then(a.name.cmp(&b.name))
    });
    let none_correct = enough.len() - rows.len();
    (!rows.is_empty()).then_some(Weakest { by, of, rows, too_few: few.len(), none_correct })
}

/// Every such share by every division. If no part has [`LEAST`] queries there is no breakdown.
pub fn breakdowns(report: &Report) -> Vec<Breakdown> {
    let both = DIVISIONS.iter().flat_map(|by| Quantity::divided().map(move |share| (by, share)));
    both.filter_map(|(by, share)| breakdown(report, share, by)).collect()
}

fn breakdown(report: &Report, share: &Quantity, by: &Division) -> Option<Breakdown> {
    let queries = queries_of(share, report);
    let parts = divided(queries.iter().map(|(query, ..)| *query), (by.parts)(report, attack_of(share)?));
    let (enough, few): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, places)| places.len() >= LEAST);
    let alpha = 0.05 / enough.len() as f64;
    let count = |places: &[usize], of: fn(&(&str, bool, bool)) -> bool| {
        places.iter().filter(|i| of(&queries[**i])).count()
    };
    let row = |(name, places): &(&str, Vec<usize>)| {
        let (before, after) = (count(places, |q| q.1), count(places, |q| q.2));
        let percent = |hits: usize| 100.0 * hits as f64 / places.len() as f64;
        BreakdownRow {
            name: (*name).into(),
            queries: places.len(),
            before: percent(before),
            after: percent(after),
            interval: exact(after, places.len(), alpha),
        }
    };
    let mut rows: Vec<BreakdownRow> = enough.iter().map(row).collect();
    let sign = if share.lower_is_better { -1.0 } else { 1.0 };
    rows.sort_by(|a, b| {
        (sign * a.after)
            .total_cmp(&(sign * b.after))
            .then(b.queries.cmp(&a.queries))
            .then(a.name.cmp(&b.name))
    });
    let parts: Vec<_> = enough.iter().map(|(_, places)| (count(places, |q| q.2), places.len())).collect();
    Some(Breakdown {
        by: by.name.into(),
        metric: share.name.into(),
        least: LEAST,
        too_few: few.len(),
        worst: rows.first()?.after,
        interval: of_worst(&parts, family(parts.len()), share.lower_is_better),
        rows,
    })
}

/// The interval of the worst in reports of earlier versions, without that of all queries together: from the worst lower to the worst
/// upper end of the rows' intervals.
pub(super) fn of_rows(found: &Breakdown, lower_is_better: bool) -> (f64, f64) {
    worst_ends(found.rows.iter().map(|row| row.interval), lower_is_better)
}

/// Number of intervals that bound the worst share of so many parts: theirs, and that of several together.
fn family(parts: usize) -> usize {
    parts + usize::from(parts > 1)
}

/// 95 % interval of the worst share of several parts, in per cent: from the worst lower to the worst upper
/// end of the exact intervals of the parts and of all of them together, of which `chances` hold at once. For
/// each part: its hits and its queries.
fn of_worst(parts: &[(usize, usize)], chances: usize, lower_is_better: bool) -> (f64, f64) {
    let all = parts.iter().fold((0, 0), |(hits, of), part| (hits + part.0, of + part.1));
    let ends = |(hits, of)| exact(hits, of, 0.05 / chances as f64);
    // One part alone has the same interval twice.
    worst_ends(parts.iter().copied().chain([all]).map(ends), lower_is_better)
}

/// The lowest ends of several intervals, or the highest if lower is better.
fn worst_ends(all: impl Iterator<Item = (f64, f64)>, lower_is_better: bool) -> (f64, f64) {
    match lower_is_better {
        true => all.fold((0.0, 0.0), |worst, one| (one.0.max(worst.0), one.1.max(worst.1))),
        false => all.fold((100.0, 100.0), |worst, one| (one.0.min(worst.0), one.1.min(worst.1))),
    }
}

/// Why a report has no worst value, or will have none; `None` if its trials give one, and for other numbers.
pub fn lacking(report: &Report, metric: &Quantity) -> Option<String> {
    let (share, by) = metric.part_of?;
    let code = attack_of(share)?;
    let parts = (by.parts)(report, code);
    if parts.is_empty() {
        return Some(by.without.into());
    }
    // Trial lists have codes in lower case.
    let rows = report.trials.attacks.get(&code.to_lowercase());
    let queries = rows.into_iter().flatten().map(|row| row.query.as_str());
    let most = divided(queries, parts).into_iter().max_by_key(|(_, places)| places.len());
    match most {
        Some((_, places)) if places.len() >= LEAST => None,
        most => Some(format!(
            "a {} needs {LEAST} attacked queries, and {}. Attack more queries",
            by.name,
            most.map_or("none has any".into(), |(name, places)| format!(
                "the largest, {name}, has {}",
                places.len()
            ))
        )),
    }
}

/// The interval of a share at 1 − `alpha`, in per cent (Clopper and Pearson, Biometrika 1934): the shares
/// under which neither this many hits nor this few have a chance below `alpha`/2.
pub fn exact(hits: usize, of: usize, alpha: f64) -> (f64, f64) {
    let upper = |hits: usize| {
        let (mut low, mut high) = (0.0, 1.0);
        // 50 halvings leave less than 1e-15.
        for _ in 0..50 {
            let p = (low + high) / 2.0;
            if at_most(hits, of, p) > alpha / 2.0 { low = p } else { high = p }
        }
        100.0 * (low + high) / 2.0
    };
    // The lower end is what the upper end of the misses leaves of 100.
    let low = if hits == 0 { 0.0 } else { 100.0 - upper(of - hits) };
    (low, if hits == of { 100.0 } else { upper(hits) })
}

/// The chance of at most `hits` of `of` draws, each with chance 0 < p < 1.
fn at_most(hits: usize, of: usize, p: f64) -> f64 {
    let (mut ln, mut sum) = (of as f64 * (1.0 - p).ln(), 0.0);
    for k in 0..=hits {
        sum += ln.exp();
        ln += ((of - k) as f64 / (k + 1) as f64).ln() + p.ln() - (1.0 - p).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: quantiles of the beta distribution, the intervals' other form, as printed by
    /// research/golden/golden_breakdown.py.
    #[test]
    fn intervals_as_the_beta_distribution_gives_them() {
        for (hits, of, alpha, low, high) in EXPECTED {
            let found = exact(hits, of, alpha);
            assert!((found.0 - low).abs() < 1e-6 && (found.1 - high).abs() < 1e-6, "{hits}/{of}: {found:?}");
        }
    }

    /// The lowest of 40 shares of 0 of 10 is bounded by the mean of 0 of 400, and the highest of 40 shares of
    /// 10 of 10 by that of 400 of 400 (`beta.ppf(1 - .05/82, 1, 400)`). One share alone is its own mean.
    #[test]
    fn the_worst_is_no_better_than_the_mean() {
        let close = |found: (f64, f64), low: f64, high: f64| {
            assert!((found.0 - low).abs() < 1e-4 && (found.1 - high).abs() < 1e-4, "{found:?}");
        };
        close(of_worst(&[(0, 10); 40], family(40), false), 0.0, 1.8336);
        close(of_worst(&[(10, 10); 40], family(40), true), 98.1664, 100.0);
        assert_eq!(of_worst(&[(3, 10)], family(1), false), exact(3, 10, 0.05));
    }

    const EXPECTED: [(usize, usize, f64, f64, f64); 6] = [
        (0, 10, 0.05, 0.0, 30.8497108),
        (3, 10, 0.05, 6.6739511, 65.245285),
        (10, 10, 0.05, 69.1502892, 100.0),
        (0, 20, 0.05 / 48.0, 0.0, 31.4772256),
        (7, 12, 0.05 / 5.0, 20.8527757, 89.6644523),
        (412, 1000, 0.05, 38.1291514, 44.3228111),
    ];
}

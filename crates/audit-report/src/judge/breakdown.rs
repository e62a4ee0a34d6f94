//! R@1 and wrong decisions after attacks by class and by group of the queries, and the worst of them: the
//! lowest R@1, and the highest share of wrong decisions.
//!
//! The worst of several noisy numbers is bad by chance: of forty equal classes with ten queries each, one is
//! far below the others. So a class counts only with [`LEAST`] queries, the intervals of all classes hold
//! together (Bonferroni), and a gate fails only if the interval of the worst does not reach its bound. The
//! worst is never better than the mean over all classes, so that the interval of this mean bounds it too: the
//! intervals of small classes alone are so wide that they reach any bound.
//!
//! Attacked pairs of a group may share identities. They then count as so many independent pairs whose share
//! varies as much (`sharing.rs` of audit-gallery).

use super::division::{DIVISIONS, Division, LEAST, divided};
use super::exact::exact;
use super::quantity::Quantity;
use super::share::ALPHA;
use super::survivors::{attacked, survivors};
use super::verification;
use crate::facts::{FACTS, Facts, R1};
use crate::record::{Breakdown, BreakdownRow, Outcome, Report};
use audit_gallery::space::sharing::inflation;

/// The code of the attack behind a number that is a share of queries.
fn attack_of(share: &Quantity) -> Option<&'static str> {
    match share.term() {
        None => Some(R1.code),
        Some(term) => Some(FACTS.iter().find(|o| o.judged_by(term))?.code),
    }
}

/// A query behind such a number.
struct Counted<'r> {
    query: &'r str,
    /// Whether it counts without an attack.
    before: bool,
    /// Whether it counts under attack.
    after: bool,
    /// The identities of the attacked pair, if its intervals are about other identities.
    pair: Option<[usize; 2]>,
}

/// The queries of a report behind such a number, for intervals of the parts of a division.
fn queries_of<'r>(share: &Quantity, report: &'r Report, by: &Division) -> Vec<Counted<'r>> {
    let Some(term) = share.term() else {
        if share != Quantity::robust(report) {
            return Vec::new();
        }
        let before = attacked(&report.outcomes).map(|o| o.before.hit == Some(true));
        let left = survivors(&report.outcomes).into_iter();
        let counted = |((query, after), before)| Counted { query, before, after, pair: None };
        return left.zip(before).map(counted).collect();
    };
    let judged = FACTS.iter().filter(|of| of.judged_by(term));
    let of_attack = |attack: &'static Facts| {
        let pairs = verification::pairs_of(report, attack.code);
        let read = move |o: &'r Outcome| {
            let (before, after) = (term.read)(o, report.suite.form)?;
            let pair = pairs.get(o.query.as_str()).filter(|_| by.of_identities).map(|(_, pair)| *pair);
            Some(Counted { query: &o.query, before: before == Some(1.0), after: after == 1.0, pair })
        };
        report.outcomes.iter().filter(move |o| attack.made(o)).filter_map(read)
    };
    judged.flat_map(of_attack).collect()
}

/// Of a query, whether it counts, and the identities of its pair.
type Hit = (bool, Option<[usize; 2]>);

/// The exact interval of the share of queries that count, at 1 − `alpha`, in per cent. Pairs that share
/// identities count as fewer.
fn interval(hits: &[Hit], alpha: f64) -> (f64, f64) {
    let count = hits.iter().filter(|(counts, _)| *counts).count() as f64;
    let mean = count / hits.len() as f64;
    let residual = |(counts, pair): &Hit| Some(((*pair)?, f64::from(u8::from(*counts)) - mean));
    let pairs: Option<Vec<_>> = hits.iter().map(residual).collect();
    let inflation = pairs.map_or(1.0, |pairs| inflation(&pairs, alpha));
    exact(count / inflation, hits.len() as f64 / inflation, alpha)
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
    /// Of the correct ones, which fail.
    fails: Vec<Hit>,
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
        let parts: Vec<&[Hit]> = self.rows.iter().map(|row| row.fails.as_slice()).collect();
        of_worst(&parts, chances, true)
    }
}

/// Classes and groups, the weakest first, for each attack that makes queries fail. Empty if no part counts.
pub fn weakest(report: &Report) -> Vec<Weakest> {
    let both = DIVISIONS.iter().flat_map(|by| Quantity::divided().map(move |share| (by, share)));
    both.filter_map(|(by, share)| weakest_of(report, share, by)).collect()
}

fn weakest_of(report: &Report, of: &'static Quantity, by: &'static Division) -> Option<Weakest> {
    let queries = queries_of(of, report, by);
    // A share of wrong decisions counts the wrong ones.
    let correct = |counted: bool| counted != of.lower_is_better;
    let parts = divided(queries.iter().map(|q| q.query), (by.parts)(report, attack_of(of)?));
    let (enough, few): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, places)| places.len() >= LEAST);
    let fails = |(name, places): &(&str, Vec<usize>)| {
        let mine = places.iter().map(|i| &queries[*i]).filter(|q| correct(q.before));
        let fails: Vec<Hit> = mine.map(|q| (!correct(q.after), q.pair)).collect();
        (name.to_string(), fails)
    };
    let counts: Vec<_> = enough.iter().map(fails).filter(|(_, fails)| !fails.is_empty()).collect();
    let alpha = ALPHA / counts.len() as f64;
    let row = |(name, fails): (String, Vec<Hit>)| WeakPart {
        name,
        correct: fails.len(),
        failed: fails.iter().filter(|(fails, _)| *fails).count(),
        interval: interval(&fails, alpha),
        fails,
    };
    let mut rows: Vec<WeakPart> = counts.into_iter().map(row).collect();
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
    let queries = queries_of(share, report, by);
    let parts = divided(queries.iter().map(|q| q.query), (by.parts)(report, attack_of(share)?));
    let (enough, few): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(_, places)| places.len() >= LEAST);
    let alpha = ALPHA / enough.len() as f64;
    let hits = |places: &[usize]| -> Vec<Hit> {
        places.iter().map(|i| &queries[*i]).map(|q| (q.after, q.pair)).collect()
    };
    let row = |(name, places): &(&str, Vec<usize>)| {
        let percent = |counts: fn(&Counted<'_>) -> bool| {
            100.0 * places.iter().filter(|i| counts(&queries[**i])).count() as f64 / places.len() as f64
        };
        BreakdownRow {
            name: (*name).into(),
            queries: places.len(),
            before: percent(|q| q.before),
            after: percent(|q| q.after),
            interval: interval(&hits(places), alpha),
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
    let parts: Vec<Vec<Hit>> = enough.iter().map(|(_, places)| hits(places)).collect();
    let parts: Vec<&[Hit]> = parts.iter().map(Vec::as_slice).collect();
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

/// The interval of the worst in reports of earlier versions, without that of all queries together, and as if
/// no two pairs shared an identity: from the worst lower to the worst upper end of the rows' intervals.
pub(super) fn of_rows(found: &Breakdown, lower_is_better: bool) -> (f64, f64) {
    let alpha = ALPHA / found.rows.len() as f64;
    let ends = |row: &BreakdownRow| {
        let hits = (row.after * row.queries as f64 / 100.0).round();
        exact(hits, row.queries as f64, alpha)
    };
    worst_ends(found.rows.iter().map(ends), lower_is_better)
}

/// Number of intervals that bound the worst share of so many parts: theirs, and that of several together.
fn family(parts: usize) -> usize {
    parts + usize::from(parts > 1)
}

/// 95 % interval of the worst share of several parts, in per cent: from the worst lower to the worst upper
/// end of the exact intervals of the parts and of all of them together, of which `chances` hold at once.
fn of_worst(parts: &[&[Hit]], chances: usize, lower_is_better: bool) -> (f64, f64) {
    let all = parts.concat();
    // One part alone has the same interval twice.
    let each = parts.iter().copied().chain([all.as_slice()]);
    worst_ends(each.map(|hits| interval(hits, ALPHA / chances as f64)), lower_is_better)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest of 40 shares of 0 of 10 is bounded by the mean of 0 of 400, and the highest of 40 shares of
    /// 10 of 10 by that of 400 of 400 (`beta.ppf(1 - .05/82, 1, 400)`). One share alone is its own mean.
    #[test]
    fn the_worst_is_no_better_than_the_mean() {
        let close = |found: (f64, f64), low: f64, high: f64| {
            assert!((found.0 - low).abs() < 1e-4 && (found.1 - high).abs() < 1e-4, "{found:?}");
        };
        let part = |hits: usize| -> Vec<Hit> { (0..10).map(|i| (i < hits, None)).collect() };
        let (none, some, all) = (part(0), part(3), part(10));
        close(of_worst(&[none.as_slice(); 40], family(40), false), 0.0, 1.8336);
        close(of_worst(&[all.as_slice(); 40], family(40), true), 98.1664, 100.0);
        assert_eq!(of_worst(&[some.as_slice()], family(1), false), exact(3.0, 10.0, 0.05));
    }
}

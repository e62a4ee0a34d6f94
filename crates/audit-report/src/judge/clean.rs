//! Differences of two reports in retrieval without an attacker, query by query: on clean images, and under
//! natural corruptions.

use super::quantity::{CLEAN_R1, Follows, OfCorrupted, OfFirst, Quantity};
use super::score::{RESAMPLES, interval};
use crate::facts::R1;
use crate::record::{Outcome, Report, Retrieval, unless_few};
use audit_base::numbers::{mean, variance};
use audit_base::parallel;
use audit_base::random::Random;
use std::collections::BTreeMap;

/// A number of each query, in both reports.
pub(super) struct PerQuery {
    pairs: Vec<[f64; 2]>,
}

impl PerQuery {
    /// The values of the queries that both reports have, for numbers that are a mean over queries; `None` if
    /// the reports are on other images, or a report has no results of single queries.
    pub fn of(metric: &Quantity, base: &Report, candidate: &Report) -> Option<PerQuery> {
        if base.data.sha256 != candidate.data.sha256 {
            return None;
        }
        let pairs = match metric.follows() {
            Follows::Clean(of_first, of_retrieval) => {
                let ranks = of_first.and_then(|of_first| every_query(of_first, base, candidate));
                ranks.or_else(|| attacked(metric, of_retrieval, base, candidate))?
            }
            Follows::Corruptions(_, values) => {
                common(&corrupted(values, base)?, &corrupted(values, candidate)?)
            }
            Follows::Outcomes(_) => return None,
        };
        Some(PerQuery { pairs })
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.pairs.len()
    }

    /// The 95 % interval of the difference of the means, in per cent.
    pub fn interval(&self, seed: u64) -> Option<(f64, f64)> {
        let changes: Vec<f64> =
            self.pairs.iter().map(|[base, candidate]| 100.0 * (candidate - base)).collect();
        paired(&changes, seed)
    }
}

/// From the ranks of the first match, which reports have for every clean query.
fn every_query(of_first: &OfFirst, base: &Report, candidate: &Report) -> Option<Vec<[f64; 2]>> {
    let (a, b) = (base.benign.as_ref()?, candidate.benign.as_ref()?);
    let roles = |r: &Report| (r.data.gallery, r.data.queries);
    // The same images in the same roles, with the same sampling, have the same queries in the same order.
    let same = a.first.len() == b.first.len() && a.sampling == b.sampling && roles(base) == roles(candidate);
    let both = a.first.iter().zip(&b.first).filter(|_| same);
    let pairs: Vec<_> = both.map(|(&x, &y)| [of_first(x), of_first(y)]).collect();
    Some(pairs).filter(|pairs| !pairs.is_empty())
}

/// From the clean retrieval of attacked queries.
fn attacked(
    metric: &Quantity,
    of_retrieval: Option<fn(&Retrieval) -> f64>,
    base: &Report,
    candidate: &Report,
) -> Option<Vec<[f64; 2]>> {
    let value = |o: &Outcome| {
        // If a report has no R@1 of a query, the strong search has it, as it follows the definition of R@1 in
        // every form.
        let hit = o.before.hit.filter(|_| metric == CLEAN_R1 && R1.made(o));
        let found = o.before.retrieval.as_ref().and_then(|found| Some(of_retrieval?(found)));
        found.or(hit.map(f64::from))
    };
    let of = |report: &Report| -> BTreeMap<String, f64> {
        report.outcomes.iter().filter_map(|o| Some((o.query.clone(), value(o)?))).collect()
    };
    Some(common(&of(base), &of(candidate))).filter(|pairs| !pairs.is_empty())
}

/// The value of each query under a natural corruption, or the mean over all.
fn corrupted(values: &OfCorrupted, report: &Report) -> Option<BTreeMap<String, f64>> {
    let mut all: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for c in &report.corrupted {
        let found = values(c);
        if found.is_empty() {
            continue;
        }
        let (sum, count) = all.entry(c.query.clone()).or_default();
        *sum += found.iter().sum::<f64>();
        *count += found.len();
    }
    (!all.is_empty()).then(|| all.into_iter().map(|(id, (sum, n))| (id, sum / n as f64)).collect())
}

/// The values of the queries that both have.
fn common(base: &BTreeMap<String, f64>, candidate: &BTreeMap<String, f64>) -> Vec<[f64; 2]> {
    base.iter().filter_map(|(id, a)| Some([*a, *candidate.get(id)?])).collect()
}

/// Number of values from which the mean of a resample is approximately normal.
const NORMAL: usize = 2000;

/// The 95 % interval of the mean of differences that belong to one query each, by bootstrap over queries.
/// `None` for fewer than 10.
pub(super) fn paired(changes: &[f64], seed: u64) -> Option<(f64, f64)> {
    let n = changes.len();
    if n > NORMAL {
        const Z: f64 = 1.959964;
        let mean = mean(changes);
        let half = Z * (variance(changes) / n as f64).sqrt();
        return Some((mean - half, mean + half));
    }
    unless_few(n, Some(()))?;
    interval(parallel::each(RESAMPLES, &|stream| {
        let mut random = Random::seeded(seed).stream(stream as u64);
        (0..n).map(|_| changes[random.index(n)]).sum::<f64>() / n as f64
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 400 queries the candidate loses 40 and wins 20. The standard error of the mean of these
    /// differences, which are -1, 0 and 1, is √((60/400 − (20/400)²) / 400) = 1.92 %.
    #[test]
    fn a_difference_of_clean_recall_is_paired() {
        let changes = |of: usize| -> Vec<f64> {
            let hit = |hit: bool| 100.0 * f64::from(hit);
            let place = |i: usize| i * 400 / of;
            (0..of).map(|i| hit(!(20..60).contains(&place(i))) - hit(place(i) >= 20)).collect()
        };
        let (low, high) = paired(&changes(400), 1).unwrap();
        assert!(((high - low) / 2.0 / 1.96 / 1.92 - 1.0).abs() < 0.12, "{low} {high}");
        assert!(low < -5.0 && high > -5.0);
        assert_eq!(paired(&[0.0; 40], 1), Some((0.0, 0.0)));
        // With 40,000 queries it is a tenth as wide.
        let (low, high) = paired(&changes(40_000), 1).unwrap();
        assert!(((high - low) / 2.0 / 1.96 / 0.192 - 1.0).abs() < 0.02, "{low} {high}");
        assert_eq!(paired(&[100.0; 9], 1), None);
    }
}

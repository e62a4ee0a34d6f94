//! Differences of two reports in retrieval without an attacker, query by query: on clean images, and under
//! natural corruptions.

use super::quantity::{Clean, Follows, OfCorrupted, OfFirst, Quantity};
use super::score::{RESAMPLES, interval};
use super::share::{self, Z, counts};
use crate::record::{Benign, Report, unless_few};
use audit_base::numbers::{mean, variance};
use audit_base::parallel;
use audit_base::random::Random;
use std::collections::BTreeMap;

/// Whether a number is a mean over all clean queries of the same images in both reports, so that the choice
/// of queries explains no difference.
pub(super) fn census(metric: &Quantity, base: &Report, candidate: &Report) -> bool {
    let of_queries = matches!(metric.follows(), Follows::Clean(Clean::First(_) | Clean::Ranking));
    let all = |r: &Report| r.benign.as_ref().is_some_and(|benign| benign.sampling.is_none());
    of_queries && all(base) && all(candidate) && same_images(base, candidate)
}

/// Whether both reports are on the same images in the same roles, and so have the same queries.
fn same_images(base: &Report, candidate: &Report) -> bool {
    let roles = |r: &Report| (r.data.gallery, r.data.queries);
    base.data.sha256 == candidate.data.sha256 && roles(base) == roles(candidate)
}

/// The values, in both reports, of the queries that a number is the mean of; `None` if the reports are on
/// other images or queries, or a report has no results of these queries.
pub(super) fn per_query(metric: &Quantity, base: &Report, candidate: &Report) -> Option<Vec<[f64; 2]>> {
    if base.data.sha256 != candidate.data.sha256 {
        return None;
    }
    match metric.follows() {
        Follows::Clean(Clean::First(of_first)) => every_query(of_first, base, candidate),
        Follows::Corruptions(_, values) => {
            same_queries(&corrupted(values, base)?, &corrupted(values, candidate)?)
        }
        Follows::Clean(Clean::Ranking | Clean::Together) | Follows::Outcomes(..) => None,
    }
}

/// From the ranks of the first match, if both reports have them of every query that the number rests on.
fn every_query(of_first: &OfFirst, base: &Report, candidate: &Report) -> Option<Vec<[f64; 2]>> {
    let (a, b) = (base.benign.as_ref()?, candidate.benign.as_ref()?);
    let whole = |of: &Benign| of.queries > 0 && of.first.len() == of.queries;
    // The same images in the same roles, with the same sampling, have the same queries in the same order.
    let same = a.queries == b.queries && a.sampling == b.sampling && same_images(base, candidate);
    let pairs = || a.first.iter().zip(&b.first).map(|(&x, &y)| [of_first(x), of_first(y)]).collect();
    (same && whole(a) && whole(b)).then(pairs)
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

/// The values of both, if they have the same queries. The difference of means over others isn't paired.
fn same_queries(base: &BTreeMap<String, f64>, candidate: &BTreeMap<String, f64>) -> Option<Vec<[f64; 2]>> {
    let pairs = || base.values().zip(candidate.values()).map(|(a, b)| [*a, *b]).collect();
    base.keys().eq(candidate.keys()).then(pairs)
}

/// Number of values from which the mean of a resample is approximately normal.
const NORMAL: usize = 2000;

/// The 95 % interval, in per cent, of the difference of the means of values in [0, 1], a pair for each query.
/// If all are 0 or 1 it is that of two shares, otherwise from a bootstrap over queries. `None` for fewer than
/// 10.
pub(super) fn paired(pairs: &[[f64; 2]], seed: u64) -> Option<(f64, f64)> {
    let n = pairs.len();
    unless_few(n, Some(()))?;
    let shares = pairs.iter().map(|[base, candidate]| Some([counts(*base)?, counts(*candidate)?]));
    if let Some(shares) = shares.collect::<Option<Vec<_>>>() {
        return Some(share::paired(&shares, 1.0));
    }
    let changes: Vec<f64> = pairs.iter().map(|[base, candidate]| 100.0 * (candidate - base)).collect();
    if n > NORMAL {
        let mean = mean(&changes);
        let half = Z * (variance(&changes) / n as f64).sqrt();
        return Some((mean - half, mean + half));
    }
    interval(parallel::each(RESAMPLES, &|stream| {
        let mut random = Random::seeded(seed).stream(stream as u64);
        (0..n).map(|_| changes[random.index(n)]).sum::<f64>() / n as f64
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 400 queries the candidate loses 40 and wins 20. The standard error of the mean of these
    /// differences, which are -1, 0 and 1, is √((60/400 − (20/400)²) / 400) = 1.92 %. If values are 0 and ½
    /// instead of 0 and 1, it is half of that.
    #[test]
    fn a_difference_of_clean_recall_is_paired() {
        let pairs = |of: usize, value: f64| -> Vec<[f64; 2]> {
            let hit = |hit: bool| value * f64::from(hit);
            let place = |i: usize| i * 400 / of;
            (0..of).map(|i| [hit(place(i) >= 20), hit(!(20..60).contains(&place(i)))]).collect()
        };
        for value in [1.0, 0.5] {
            for (of, error, tolerance) in [(400, 1.92, 0.12), (40_000, 0.192, 0.02)] {
                let (low, high) = paired(&pairs(of, value), 1).unwrap();
                let found = (high - low) / 2.0 / 1.96 / value;
                assert!((found / error - 1.0).abs() < tolerance, "{value} {of}: {low} {high}");
                assert!(low < -5.0 * value && high > -5.0 * value, "{value} {of}: {low} {high}");
            }
        }
        assert_eq!(paired(&[[0.5, 0.5]; 40], 1), Some((0.0, 0.0)));
        // Shares that agree have a width.
        let (low, high) = paired(&[[1.0, 1.0]; 40], 1).unwrap();
        assert!(low < -8.0 && high > 8.0, "{low} {high}");
        assert_eq!(paired(&[[0.0, 1.0]; 9], 1), None);
    }
}

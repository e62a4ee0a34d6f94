//! Two reports resampled query by query, and their differences with paired intervals.

use super::clean;
use super::quantity::{Follows, Quantity};
use super::row::Difference;
use super::score::{self, Resampled};
use super::share;
use crate::record::{Report, unless_few};

/// Two reports, resampled query by query.
pub struct PairedReports<'r> {
    base: &'r Report,
    candidate: &'r Report,
    resampled: Option<(Resampled, Resampled)>,
}

impl<'r> PairedReports<'r> {
    /// Resamples both reports. If their queries or images differ, differences under attack have no interval.
    pub fn new(base: &'r Report, candidate: &'r Report) -> PairedReports<'r> {
        // Both use one seed, so resample number i contains the same queries in both.
        let resample = |r: &Report| score::resampled(r, base.seed);
        let (a, b) = (resample(base), resample(candidate));
        // Images of different data sets may have the same names.
        let same = a.queries == b.queries && base.data.sha256 == candidate.data.sha256;
        PairedReports { base, candidate, resampled: same.then_some((a, b)) }
    }

    /// Whether both attacked the same queries of the same images, so that differences under attack have
    /// intervals.
    pub fn paired(&self) -> bool {
        self.resampled.is_some()
    }

    /// The difference in `metric`; `None` unless both reports have the number and may show it.
    pub fn difference(&self, metric: &'static Quantity) -> Option<Difference> {
        let (base, candidate) = (metric.row(self.base), metric.row(self.candidate));
        let value = candidate.value? - base.value?;
        let queries = base.queries.min(candidate.queries);
        // Of two numbers that are only known to be larger than the largest ε, the difference is unknown.
        let unknown = base.is_above() && candidate.is_above();
        let census = clean::census(metric, self.base, self.candidate);
        let (interval, queries) = match (unknown, census) {
            (true, _) => (None, 0),
            (false, true) => (None, queries),
            (false, false) => self.interval(metric, queries),
        };
        Some(Difference { value, interval, queries, census })
    }

    /// The interval of a difference of `queries` queries, and the number of queries behind the interval.
    fn interval(&self, metric: &Quantity, queries: usize) -> (Option<(f64, f64)>, usize) {
        if !metric.attacked() {
            let pairs = clean::per_query(metric, self.base, self.candidate);
            return pairs.map_or((None, 0), |pairs| (clean::paired(&pairs, self.base.seed), pairs.len()));
        }
        let Some((a, b)) = &self.resampled else { return (None, 0) };
        if let Some(shares) = self.shares(metric) {
            return (unless_few(shares.len(), Some(share::paired(&shares, 1.0))), queries);
        }
        let both = a.replicates.iter().zip(&b.replicates);
        let changes = both.filter_map(|(x, y)| Some(metric.in_replicate(b, y)? - metric.in_replicate(a, x)?));
        (unless_few(queries, score::interval(changes.collect())), queries)
    }

    /// Whether each query counts in the baseline and in the candidate; `None` unless the number is a share of
    /// the same queries in both.
    fn shares(&self, metric: &Quantity) -> Option<Vec<[bool; 2]>> {
        let Follows::Outcomes(_, Some(of_queries)) = metric.follows() else { return None };
        let (base, candidate) = (of_queries(self.base)?, of_queries(self.candidate)?);
        let pairs = || base.values().zip(candidate.values()).map(|(a, b)| [*a, *b]).collect();
        base.keys().eq(candidate.keys()).then(pairs)
    }
}

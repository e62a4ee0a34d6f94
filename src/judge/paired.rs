//! Two reports resampled query by query, and their differences with paired intervals.

use super::clean::PerQuery;
use super::quantity::Quantity;
use super::row::State;
use super::score::{self, Resampled};
use crate::record::{Report, unless_few};
use serde::Serialize;

/// A difference between two reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The candidate's value minus the baseline's.
    pub value: f64,
    /// 95 % interval by paired bootstrap. `None` if the two reports have no queries in common, or fewer than 10, and for numbers that are
    /// no mean over queries.
    pub interval: Option<(f64, f64)>,
    /// Number of queries that the interval rests on.
    pub queries: usize,
}

impl Difference {
    /// Whether the difference is larger than the choice of queries explains: its interval excludes zero. `None` without an interval.
    pub fn significant(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Two reports, resampled query by query.
pub struct PairedReports<'r> {
    base: &'r Report,
    candidate: &'r Report,
    resampled: Option<(Resampled, Resampled)>,
}

impl<'r> PairedReports<'r> {
    /// Resamples both reports. If their queries differ, differences under attack have no interval.
    pub fn new(base: &'r Report, candidate: &'r Report) -> PairedReports<'r> {
        // Both use one seed, so resample number i contains the same queries in both.
        let resample = |r: &Report| score::resampled(r, base.seed);
        let (a, b) = (resample(base), resample(candidate));
        let same = a.queries == b.queries;
        PairedReports { base, candidate, resampled: same.then_some((a, b)) }
    }

    /// Whether both attacked the same queries, so that differences under attack have intervals.
    pub fn paired(&self) -> bool {
        self.resampled.is_some()
    }

    /// The difference in `metric`; `None` unless both reports have the number and may show it.
    pub fn difference(&self, metric: Quantity) -> Option<Difference> {
        let measured = |r: &Report| {
            let row = metric.row(r);
            row.value.filter(|_| row.state == State::Measured)
        };
        let value = measured(self.candidate)? - measured(self.base)?;
        let (interval, queries) = self.interval(metric);
        Some(Difference { value, interval, queries })
    }

    fn interval(&self, metric: Quantity) -> (Option<(f64, f64)>, usize) {
        if !metric.attacked() {
            let found = PerQuery::of(metric, self.base, self.candidate);
            return found.map_or((None, 0), |found| (found.interval(self.base.seed), found.queries()));
        }
        let Some((a, b)) = &self.resampled else { return (None, 0) };
        let queries = metric.queries(self.base).min(metric.queries(self.candidate));
        let both = a.replicates.iter().zip(&b.replicates);
        let changes = both.filter_map(|(x, y)| Some(metric.in_replicate(b, y)? - metric.in_replicate(a, x)?));
        (unless_few(queries, score::interval(changes.collect())), queries)
    }
}

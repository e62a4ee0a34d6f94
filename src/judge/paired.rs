//! Two reports resampled query by query, and their differences with paired intervals.

use super::quantity::Quantity;
use super::score::{self, Resampled};
use crate::record::Report;
use serde::Serialize;

/// A difference between two reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The other report's value minus the base's.
    pub value: f64,
    /// 95 % interval by paired bootstrap. `None` for benign metrics, which use the whole gallery, and where the two
    /// reports attacked different queries.
    pub interval: Option<(f64, f64)>,
}

impl Difference {
    /// Whether the difference is larger than the choice of queries explains: its interval excludes zero. A difference
    /// without an interval always counts.
    pub fn counts(&self) -> bool {
        self.interval.is_none_or(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Two reports, resampled query by query.
pub struct PairedReports<'r> {
    base: &'r Report,
    other: &'r Report,
    resampled: Option<(Resampled, Resampled)>,
}

impl<'r> PairedReports<'r> {
    /// Resamples both reports. Where their queries differ, differences have no interval.
    pub fn new(base: &'r Report, other: &'r Report) -> PairedReports<'r> {
        // Both use one seed, so resample number i contains the same queries in both.
        let resample = |r: &Report| score::resampled(r, base.seed);
        let (a, b) = (resample(base), resample(other));
        let same = a.queries == b.queries;
        PairedReports { base, other, resampled: same.then_some((a, b)) }
    }

    /// Whether both attacked the same queries, so that differences have intervals.
    pub fn paired(&self) -> bool {
        self.resampled.is_some()
    }

    /// The difference in `metric`; `None` where a report lacks it.
    pub fn difference(&self, metric: Quantity) -> Option<Difference> {
        let value = metric.value(self.other)? - metric.value(self.base)?;
        let interval = self.resampled.as_ref().and_then(|(a, b)| {
            let both = a.replicates.iter().zip(&b.replicates);
            score::interval(
                both.filter_map(|(x, y)| Some(metric.in_replicate(b, y)? - metric.in_replicate(a, x)?))
                    .collect(),
            )
        });
        Some(Difference { value, interval })
    }
}

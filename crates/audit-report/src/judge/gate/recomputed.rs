//! The numbers of a report, computed again from its outcomes.

use crate::judge::breakdown::{self, breakdowns};
use crate::judge::corruption;
use crate::judge::quantity::{self, Follows, Quantity};
use crate::judge::score::{self, Resampled};
use crate::record::{Breakdown, Report};
use audit_base::{Error, Result};

/// A report's numbers, computed from its outcomes.
pub(super) struct Recomputed<'r> {
    which: &'static str,
    report: &'r Report,
    again: Resampled,
    breakdowns: Vec<Breakdown>,
}

impl<'r> Recomputed<'r> {
    pub(super) fn new(which: &'static str, report: &'r Report) -> Recomputed<'r> {
        Recomputed { which, report, again: score::once(report), breakdowns: breakdowns(report) }
    }

    /// The classes or groups of which `metric` is the worst.
    pub(super) fn breakdown(&self, metric: &Quantity) -> Option<&Breakdown> {
        let (of, by) = metric.part_of?;
        quantity::breakdown(&self.breakdowns, of, by)
    }

    /// Refuses a saved number that the outcomes contradict (exit code 2). Benign metrics don't follow from
    /// outcomes.
    pub(super) fn agrees(&self, metric: &Quantity) -> Result<()> {
        /// Share of a number by which versions of the program may differ.
        const SAME: f64 = 1e-6;
        let Some(saved) = metric.value(self.report) else { return Ok(()) };
        let now = match metric.follows() {
            Follows::Clean(..) => return Ok(()),
            Follows::Corruptions(mean, _) => {
                corruption::corruptions(self.report).and_then(|all| Some(mean(&all)?.value))
            }
            Follows::Outcomes(value, _) => {
                self.again.replicates.first().and_then(|all| value(&self.again, all))
            }
        };
        // False for NaN.
        let same = |now: f64, saved: f64| (now - saved).abs() <= SAME * saved.abs().max(1.0);
        // A bound on the worst of several is compared with its interval.
        let found = self.breakdown(metric);
        let intervals = metric.part_of.map(|_| {
            let now = found.map(|found| found.interval);
            [metric.saved(self.report).and_then(|saved| saved.interval), now]
        });
        let earlier = found.map(|found| breakdown::of_rows(found, metric.lower_is_better));
        let equal = |[saved, now]: &[Option<(f64, f64)>; 2]| {
            let is = |(low, high): (f64, f64)| {
                [now, &earlier].into_iter().flatten().any(|of| same(of.0, low) && same(of.1, high))
            };
            saved.is_some_and(is)
        };
        let differ = |what: &str, saved: String, now: Option<String>| {
            Err(Error::usage(format!(
                "{}: {what} `{}` is saved as {saved}, and the {} outcomes of the file give {}. The file was edited or damaged: audit \
                 the model again",
                self.which,
                metric.name,
                self.report.outcomes.len(),
                now.unwrap_or("none".into())
            )))
        };
        let is_saved = |now: Option<f64>| now.is_some_and(|now| same(now, saved));
        if !is_saved(now) && !is_saved(metric.at_stored_eps(self.report)) {
            return differ("the number", saved.to_string(), now.map(|now| now.to_string()));
        }
        match intervals.filter(|both| !equal(both)) {
            None => Ok(()),
            Some(both) => {
                let [saved, now] = both.map(|one| one.map(|(low, high)| format!("{low} – {high}")));
                differ("the 95 % interval of", saved.unwrap_or("none".into()), now)
            }
        }
    }
}

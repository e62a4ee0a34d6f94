//! The time left of a phase.

use std::collections::VecDeque;

/// Seconds over which a rate is measured.
const WINDOW: f64 = 0.5;
/// Number of windows behind a rate, and fewest of them.
const WINDOWS: usize = 20;
const FIRST: usize = 3;
/// How much slower than now the rest may be.
const MARGIN: f64 = 1.5;
/// A bound that is more than so many times the expected time says nothing.
const FAR: f64 = 3.0;

/// Seconds left, from the work that is expected and the rate of the latest windows; the plan's rate until one
/// is measured. There is also an upper bound: the most work that may be left, at this rate and with a margin.
/// A bound counts down and never rises. If the work takes longer after all, none is shown until it holds
/// again.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// Seconds and work at the ends of the latest windows, in their order. Before the first one a model is
    /// loaded and warms up.
    marks: VecDeque<(f64, f64)>,
    /// All of the work that is expected; `None` if it is certain.
    expected: Option<f64>,
    /// Seconds of a unit of work by the plan.
    planned: Option<f64>,
    /// The earliest of the bounds on the end of the work, in seconds.
    latest: f64,
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    /// Share of the expected work that is done.
    pub(super) share: f64,
    /// Seconds expected; `None` if the rate is unknown, or if there is more work than expected.
    pub(super) expected: Option<f64>,
    /// Upper bound on the seconds; `None` if none is known, if the shown one doesn't hold, or if it is far
    /// from what is expected.
    pub(super) most: Option<f64>,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate { marks: VecDeque::new(), expected: None, planned: None, latest: f64::INFINITY }
    }
}

impl Estimate {
    /// Expects so much work in all. By a plan, what is `left` of it takes `seconds` from `now`, about and at
    /// most.
    pub(super) fn expect(&mut self, work: f64, now: f64, left: f64, seconds: Option<[f64; 2]>) {
        self.expected = Some(work);
        if let Some([seconds, most]) = seconds {
            self.planned = (left > 0.0).then(|| seconds / left);
            self.latest = self.latest.min(now + most);
        }
    }

    /// Seconds of a unit of work; `None` in the first seconds.
    pub(super) fn pace(&self) -> Option<f64> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        (self.marks.len() > FIRST).then(|| (last.0 - first.0) / (last.1 - first.1))
    }

    /// Records that at `now`, `made` of the work is done, and at most `left` is left.
    pub(super) fn see(&mut self, now: f64, made: f64, left: f64) -> Left {
        if self.marks.back().is_none_or(|(since, before)| now - since >= WINDOW && made > *before) {
            self.marks.push_back((now, made));
            if self.marks.len() > WINDOWS + 1 {
                self.marks.pop_front();
            }
        }
        let usual = self.expected.map_or(left, |all| (all - made).clamp(0.0, left));
        let (measured, all) = (self.pace(), made + usual);
        if let Some(pace) = measured {
            self.latest = self.latest.min(now + MARGIN * pace * left);
        }
        let pace = measured.or(self.planned);
        let expected = pace.map(|pace| pace * usual).filter(|seconds| *seconds > 0.0);
        let (bound, end) = (self.latest - now, pace.map(|pace| pace * left));
        let holds = end.is_some_and(|seconds| seconds <= bound);
        let near = expected.is_some_and(|seconds| bound <= FAR * seconds);
        let share = if all > 0.0 { made / all } else { 0.0 };
        Left { share, expected, most: (holds && near).then_some(bound) }
    }
}

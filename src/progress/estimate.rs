//! An upper bound on the time of a phase.

use std::collections::VecDeque;

/// Seconds over which a rate is measured.
const WINDOW: f64 = 0.5;
/// Number of windows behind an estimate, and fewest before a bound is shown.
const WINDOWS: usize = 40;
const FIRST: usize = 3;
/// Windows behind the current rate.
const RECENT: usize = 10;
/// How much slower than the slowest of these windows the rest may be.
const MARGIN: f64 = 1.5;

/// An upper bound on the seconds left: the upper bound on the work left, at the slowest recent rate, and a
/// margin. A bound that was shown counts down and never rises. If the work takes longer after all, none is
/// shown until the shown one holds again.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// Seconds and work at the ends of the latest windows, in their order.
    marks: VecDeque<(f64, f64)>,
    /// The earliest of the shown bounds on the end of the work, in seconds.
    latest: f64,
    /// The end of the work at the current rate, in seconds.
    likely: f64,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate { marks: VecDeque::new(), latest: f64::INFINITY, likely: f64::INFINITY }
    }
}

impl Estimate {
    /// Records that at `now`, `made` of the work is done, and at most `left` is left. Returns
    /// [`Estimate::left`].
    pub(super) fn see(&mut self, now: f64, made: f64, left: f64) -> Option<f64> {
        let (since, before) = match self.marks.back() {
            Some(mark) => *mark,
            None => {
                // The work began with the phase.
                self.marks.push_back((0.0, 0.0));
                (0.0, 0.0)
            }
        };
        if now - since >= WINDOW && made > before {
            self.marks.push_back((now, made));
            if self.marks.len() > WINDOWS + 1 {
                self.marks.pop_front();
            }
        }
        let rate = |from: &(f64, f64), to: &(f64, f64)| (to.0 - from.0) / (to.1 - from.1);
        let windows = self.marks.iter().zip(self.marks.iter().skip(1));
        let slowest = windows.map(|(from, to)| rate(from, to)).fold(0.0, f64::max);
        let recent = self.marks.get(self.marks.len().saturating_sub(RECENT + 1));
        if let (true, Some(first), Some(last)) = (self.marks.len() > FIRST, recent, self.marks.back()) {
            self.latest = self.latest.min(now + MARGIN * slowest * left);
            self.likely = now + rate(first, last) * left;
        }
        self.left(now)
    }

    /// Upper bound on the seconds left; `None` if too little is known, or if the work takes longer than
    /// shown.
    pub(super) fn left(&self, now: f64) -> Option<f64> {
        let holds = self.latest.is_finite() && self.likely <= self.latest && now <= self.latest;
        holds.then_some(self.latest - now)
    }
}

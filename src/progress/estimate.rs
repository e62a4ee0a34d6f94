//! The time that a phase takes at most.

use std::collections::VecDeque;

/// Seconds over which a rate is measured.
const WINDOW: f64 = 0.5;
/// Windows that are looked back at, and those before a bound is told.
const WINDOWS: usize = 40;
const FIRST: usize = 3;
/// Windows of the rate at which the work now goes on.
const RECENT: usize = 10;
/// How much slower than in the slowest of these windows the rest may be.
const MARGIN: f64 = 1.5;

/// An upper bound of the seconds left: the work that is left at most, at the slowest rate of late, and a margin. The bound that is told
/// counts down and never rises. If the work takes longer after all, none is told until the one that was told holds again.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// Seconds and work at the ends of the latest windows, in their order.
    marks: VecDeque<(f64, f64)>,
    /// When the work is done at the latest, of all that was told.
    latest: f64,
    /// When it is done at the rate of the latest windows.
    likely: f64,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate { marks: VecDeque::new(), latest: f64::INFINITY, likely: f64::INFINITY }
    }
}

impl Estimate {
    /// At `now`, `made` of the work is done, and `left` is left at most. Returns what [`Estimate::left`] does.
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

    /// The seconds left at most; `None` if too little is known, or if the work takes longer than was told.
    pub(super) fn left(&self, now: f64) -> Option<f64> {
        let holds = self.latest.is_finite() && self.likely <= self.latest && now <= self.latest;
        holds.then_some(self.latest - now)
    }
}

//! How far a phase is, and the time left.

use super::estimate::Estimate;
use super::{Position, span};
use serde_json::{Value, json};

/// The progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    /// Finished steps, with those of an earlier process.
    pub(super) done: u64,
    /// All steps.
    pub(super) total: u64,
    /// Upper bound on the seconds left; `None` if no bound is known, or the announced one doesn't hold.
    pub(super) left: Option<f64>,
    /// Seconds left by the plan; `None` if there is no plan, or if it takes longer.
    pub(super) expected: Option<f64>,
}

impl Progress {
    pub(super) fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }

    /// The time left, in words. A bound that is little more than what is expected says both.
    pub(super) fn time(&self) -> String {
        match (self.expected, self.left) {
            (Some(expected), None) => format!("about {} left", span(expected)),
            (Some(expected), Some(left)) if 2.0 * expected < left => {
                format!("about {} left, at most {}", span(expected), span(left))
            }
            (_, Some(left)) => format!("at most {} left", span(left)),
            (None, None) => String::new(),
        }
    }

    /// A line for people.
    pub(super) fn line(&self, phase: &str, at: Option<&str>) -> String {
        let at = at.map_or(String::new(), |at| format!("{at}, "));
        let time = Some(self.time()).filter(|time| !time.is_empty());
        format!("{phase}: {at}{} %{}", self.percent(), time.map_or(String::new(), |time| format!(", {time}")))
    }

    /// An event for programs.
    pub(super) fn event(&self, phase: &str, at: Option<Position>) -> Value {
        let mut event = json!({ "event": "progress", "phase": phase, "done": self.done, "total": self.total,
            "seconds_left": self.left.map(f64::round), "seconds_expected": self.expected.map(f64::round) });
        if let Some(at) = at {
            at.describe(&mut event);
        }
        event
    }
}

/// The state of a phase's steps. Seconds count from its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    pub(super) total: u64,
    /// Steps done before this process started.
    pub(super) earlier: u64,
    done: u64,
    pub(super) estimate: Estimate,
    /// The end by the plan, in seconds; `None` if there is no plan.
    expected: Option<f64>,
}

impl Track {
    pub(super) fn new(total: u64, earlier: u64) -> Track {
        Track { total, earlier, ..Track::default() }
    }

    /// Records that `done` steps are done. Counted steps measure time only if they take equally long;
    /// otherwise `work` is [made, left at most] in units that do.
    pub(super) fn record(&mut self, now: f64, done: u64, work: Option<[f64; 2]>) -> Progress {
        let position = (self.earlier + done).min(self.total);
        // The count never goes back.
        self.done = self.done.max(position);
        let [made, left] = work.unwrap_or([done as f64, (self.total - position) as f64]);
        let expected = self.expected.map(|end| end - now).filter(|left| *left > 0.0);
        Progress { done: self.done, total: self.total, left: self.estimate.see(now, made, left), expected }
    }

    /// By a plan, the phase ends after so many seconds. What was told does not rise: after a plan that ends
    /// later than the one before, nothing is expected any more.
    pub(super) fn expect(&mut self, end: f64) {
        self.expected = Some(if self.expected.is_some_and(|before| before < end) { 0.0 } else { end });
    }

    /// Ends the phase, even if it has left out steps.
    pub(super) fn end(&mut self) -> Progress {
        self.done = self.total;
        Progress { done: self.total, total: self.total, left: Some(0.0), expected: None }
    }
}

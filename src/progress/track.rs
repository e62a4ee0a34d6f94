//! How far a phase is, and the time left.

use super::estimate::{Estimate, Left};
use super::{Position, span};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    /// Finished steps, with those of an earlier process.
    pub(super) done: u64,
    /// All steps.
    pub(super) total: u64,
    /// Upper bound on the seconds left; `None` if no bound is known or useful.
    pub(super) left: Option<f64>,
    /// Expected seconds left; `None` if they are not known yet, or if there is more work than expected.
    pub(super) expected: Option<f64>,
}

impl Progress {
    pub(super) fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }

    /// The time left, in words: with its bound if that is another time.
    pub(super) fn time(&self) -> String {
        match (self.expected, self.left) {
            (Some(expected), Some(left)) if 2.0 * expected < left => {
                format!("about {} left, at most {}", span(expected), span(left))
            }
            (Some(expected), _) => format!("about {} left", span(expected)),
            (None, _) => String::new(),
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
    /// Work done by this process.
    made: f64,
    /// Whether the share is of the most work that there may be, and not of what is expected.
    pub(super) of_most: bool,
    pub(super) estimate: Estimate,
}

impl Track {
    pub(super) fn new(total: u64, earlier: u64) -> Track {
        Track { total, earlier, ..Track::default() }
    }

    /// Records that `done` steps are done, which take equally long.
    pub(super) fn record(&mut self, now: f64, done: u64) -> Progress {
        let position = (self.earlier + done).min(self.total);
        self.advance(now, [done as f64, (self.total - position) as f64])
    }

    /// Records work, [made, left at most], which takes the place of steps: its share is the share of the
    /// steps that are done.
    pub(super) fn advance(&mut self, now: f64, [made, left]: [f64; 2]) -> Progress {
        self.made = made;
        let Left { mut share, expected, most } = self.estimate.see(now, made, left);
        if self.of_most && made + left > 0.0 {
            share = made / (made + left);
        }
        let own = (share * (self.total - self.earlier.min(self.total)) as f64).round() as u64;
        // More work than expected doesn't end the phase.
        let end = if left > 0.0 { self.total.saturating_sub(1) } else { self.total };
        // The count never goes back.
        self.done = self.done.max((self.earlier + own).min(end));
        Progress { done: self.done, total: self.total, left: most, expected }
    }

    /// Expects `work` in all. `seconds`: how long what is left of it takes by a plan, about and at most.
    pub(super) fn expect(&mut self, now: f64, work: f64, seconds: Option<[f64; 2]>) {
        self.estimate.expect(work, now, work - self.made, seconds);
    }

    /// Ends the phase, even if it has left out steps.
    pub(super) fn end(&mut self) -> Progress {
        self.done = self.total;
        Progress { done: self.total, total: self.total, left: Some(0.0), expected: None }
    }
}

//! Progress on stderr: a bar with the time left on a terminal, a line every few seconds elsewhere (CI logs),
//! JSON lines for programs, or nothing. Notes and errors use the same mode, so that JSON output contains only
//! JSON.
//!
//! A `Phase` (`phase.rs`) shows the numbers of a `Track` (`track.rs`). The time left is that of the expected
//! work, with an upper bound if it is near: see `Estimate`.

mod estimate;
mod phase;
#[cfg(test)]
mod tests;
mod track;

use crate::choice::Choice;
use crate::report::terminal::wrap;
use crate::visible::{visible, visible_json};
pub use phase::Phase;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The values of `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A bar on a terminal, plain lines elsewhere.
    Auto,
    /// Lines of text, one every 10 seconds.
    Plain,
    /// A JSON object on each line, one a second.
    Json,
    /// Warnings and errors only.
    #[default]
    None,
}

impl Choice for Mode {
    const ALL: &'static [(Mode, &'static str, &'static str)] = &[
        (Mode::Auto, "auto", "A bar on a terminal, plain lines elsewhere"),
        (Mode::Plain, "plain", "Lines of text, one every 10 seconds"),
        (Mode::Json, "json", "A JSON object on each line, one a second"),
        (Mode::None, "none", "Warnings and errors only"),
    ];
}

impl Mode {
    /// Prints a remark, except in mode `none`.
    pub fn note(self, text: &str) {
        match self {
            Mode::None => {}
            Mode::Json => event(&json!({ "event": "note", "text": text })),
            Mode::Auto | Mode::Plain => say(text),
        }
    }

    /// Prints, in every mode, that something was requested and not done.
    pub fn warn(self, text: &str) {
        match self {
            Mode::Json => event(&json!({ "event": "warning", "text": text })),
            _ => say(text),
        }
    }

    /// Prints what is about to be done.
    pub fn plan(self, plan: &Announcement) {
        match (self, &plan.text) {
            (Mode::Json, _) => event(&plan.event),
            (Mode::Auto | Mode::Plain, Some(text)) => say(wrap(text)),
            _ => {}
        }
    }

    /// Prints the error that ends the process.
    pub fn error(self, error: &crate::Error) {
        line(&self.error_line(error));
    }

    /// The line that [`Mode::error`] prints.
    pub fn error_line(self, error: &crate::Error) -> String {
        match self {
            Mode::Json => {
                let event = json!({ "event": "error", "exit": error.exit as i32, "text": error.message });
                visible_json(&event.to_string()).into_owned()
            }
            _ => format!("audit: {error}"),
        }
    }

    fn every(self) -> Duration {
        Duration::from_secs(if self == Mode::Json { 1 } else { 10 })
    }
}

/// A text for people on stderr.
fn say(text: impl fmt::Display) {
    line(&visible(&text.to_string()));
}

/// An event for programs on stderr.
fn event(event: &Value) {
    line(&visible_json(&event.to_string()));
}

/// A line on stderr. Work continues if nobody reads it any more, as behind `2>&1 | head`.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What is about to be done, and how long it takes.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// For people; `None` if there is hardly a wait.
    pub text: Option<String>,
    /// For programs.
    pub event: Value,
    /// Seconds that it takes, about.
    pub seconds: f64,
    /// Upper bound on these.
    pub seconds_at_most: f64,
}

/// The current position of the attacks.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The attack's code.
    pub attack: &'static str,
    /// The step of one of the running trials, at most `steps`. Trials of the strong search have no such step.
    pub step: usize,
    /// Steps of a trial; 0 for trials of the strong search, which end at their goal.
    pub steps: usize,
    /// Finished queries of this attack, at most `of`.
    pub queries: usize,
    /// Queries that the strong search has broken so far. It goes on with them, to find a smaller change.
    pub broken: usize,
    /// Number of queries of this attack.
    pub of: usize,
}

/// In words: the attack, its finished queries and the step if a trial has a fixed number of them, or its
/// broken queries.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { attack, step, steps, queries, broken, of } = self;
        match steps {
            0 if broken == of => {
                write!(f, "{attack} {broken}/{of} queries wrong, strong search for smaller changes")
            }
            0 => write!(f, "{attack} {broken}/{of} queries wrong, strong search"),
            _ => write!(f, "{attack} {queries}/{of} queries, step {step}/{steps}"),
        }
    }
}

impl Position {
    /// The end of the attack.
    fn ended(self) -> Position {
        Position { step: self.steps, queries: self.of, ..self }
    }

    /// Adds the position to an event.
    fn describe(&self, event: &mut Value) {
        event["attack"] = self.attack.into();
        if self.steps > 0 {
            event["step"] = self.step.into();
            event["steps"] = self.steps.into();
        } else {
            event["search"] = "strong".into();
            event["queries_broken"] = self.broken.into();
        }
        event["queries_done"] = self.queries.into();
        event["queries"] = self.of.into();
    }
}

/// Steps that one thread counts and another one shows.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<[AtomicU64; 2]>);

impl Meter {
    /// Sets the number of steps that are done, and of all.
    pub fn set(&self, done: usize, total: usize) {
        self.0[1].store(total as u64, Ordering::Relaxed);
        self.0[0].store(done as u64, Ordering::Relaxed);
    }

    /// The current one of `stages`; `None` before the first.
    pub fn name(&self, stages: &[&'static str]) -> Option<&'static str> {
        let [at, total] = [0, 1].map(|i| self.0[i].load(Ordering::Relaxed));
        stages.get(at as usize).copied().filter(|_| total > 0)
    }
}

/// A time limit, written as "30s", "5min", "1h" or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Duration);

impl std::str::FromStr for TimeLimit {
    type Err = crate::Error;
    fn from_str(text: &str) -> crate::Result<TimeLimit> {
        const UNITS: [(&str, f64); 5] = [("", 1.0), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0)];
        let wrong = || crate::Error::usage(format!("expected a time such as 30s or 5min; found {text:?}"));
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (_, each) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        let seconds = number.parse::<f64>().map_err(|_| wrong())? * each;
        let sensible = seconds > 0.0 && seconds < 1e7;
        sensible.then(|| TimeLimit(Duration::from_secs_f64(seconds))).ok_or_else(wrong)
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&span(self.0.as_secs_f64()))
    }
}

/// A duration in words: "40 s", "12 min", "3 h 20 min".
pub fn span(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", s.div_ceil(60)),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

//! Progress on stderr: a bar with the time left on a terminal, a line every few seconds elsewhere (CI logs), JSON lines
//! for programs, or nothing. Notes and errors use the same mode, so that JSON output contains only JSON.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The values of `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A bar on a terminal, plain lines elsewhere.
    #[default]
    Auto,
    /// Lines of text, one every 10 seconds.
    Plain,
    /// A JSON object on each line, one a second.
    Json,
    /// Warnings and errors only.
    None,
}

impl Mode {
    /// Prints a remark, except in mode `none`.
    pub fn note(self, text: &str) {
        match self {
            Mode::None => {}
            Mode::Json => line(json!({ "event": "note", "text": text })),
            Mode::Auto | Mode::Plain => say(text),
        }
    }

    /// Prints, in every mode, that something was asked for and not done.
    pub fn warn(self, text: &str) {
        match self {
            Mode::Json => line(json!({ "event": "warning", "text": text })),
            _ => say(text),
        }
    }

    /// Prints what is about to be done: `text`, if any, for people, `event` for programs.
    pub fn plan(self, text: Option<&str>, event: Value) {
        match (self, text) {
            (Mode::Json, _) => line(event),
            (Mode::Auto | Mode::Plain, Some(text)) => say(text),
            _ => {}
        }
    }

    /// Prints the error that ends the process.
    pub fn error(self, error: &crate::Error) {
        say(self.error_line(error));
    }

    /// The line that [`Mode::error`] prints.
    pub fn error_line(self, error: &crate::Error) -> String {
        match self {
            Mode::Json => {
                json!({ "event": "error", "exit": error.exit as i32, "text": error.message }).to_string()
            }
            _ => format!("audit: {error}"),
        }
    }

    fn every(self) -> Duration {
        Duration::from_secs(if self == Mode::Json { 1 } else { 10 })
    }
}

fn line(event: Value) {
    say(event);
}

/// A line on stderr. Work goes on where nobody reads it any more, as behind `2>&1 | head`.
fn say(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
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
    /// Number of queries of this attack.
    pub of: usize,
}

/// In words: the attack, its queries, and the step where a trial has a fixed number of them.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { attack, step, steps, queries, of } = self;
        match steps {
            0 => write!(f, "{attack} {queries}/{of} queries, strong search"),
            _ => write!(f, "{attack} {queries}/{of} queries, step {step}/{steps}"),
        }
    }
}

impl Position {
    /// Adds the position to an event.
    fn describe(&self, event: &mut Value) {
        event["attack"] = self.attack.into();
        if self.steps > 0 {
            event["step"] = self.step.into();
            event["steps"] = self.steps.into();
        } else {
            event["search"] = "strong".into();
        }
        event["queries_done"] = self.queries.into();
        event["queries"] = self.of.into();
    }
}

/// Steps that one thread counts and another one shows.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<[AtomicU64; 2]>);

impl Meter {
    /// `done` steps of `total` are done.
    pub fn set(&self, done: usize, total: usize) {
        self.0[1].store(total as u64, Ordering::Relaxed);
        self.0[0].store(done as u64, Ordering::Relaxed);
    }
}

/// One phase of an audit. A phase of 0 steps shows the time spent, until [`Phase::begin`] states how many there are.
pub struct Phase {
    name: &'static str,
    mode: Mode,
    bar: Option<ProgressBar>,
    total: u64,
    /// Steps done before this process started.
    earlier: u64,
    since: Instant,
    last: Instant,
}

impl Phase {
    /// Begins a phase of `total` steps.
    pub fn new(name: &'static str, total: u64, mode: Mode) -> Phase {
        let bar = (mode == Mode::Auto && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(total);
            bar.set_style(style(total));
            bar.set_prefix(name);
            bar
        });
        let now = Instant::now();
        let phase = Phase { name, mode, bar, total, earlier: 0, since: now, last: now };
        match mode {
            Mode::Json => line(json!({ "event": "start", "phase": name })),
            Mode::Auto | Mode::Plain if phase.bar.is_none() => say(format_args!("{name} ...")),
            _ => {}
        }
        phase
    }

    /// Sets the number of steps to `total`, of which another process has done `earlier`.
    pub fn begin(&mut self, total: u64, earlier: u64) {
        (self.total, self.earlier) = (total, earlier);
        self.since = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_style(style(total));
            bar.set_length(total);
            bar.set_position(earlier);
            bar.reset_eta();
        }
    }

    /// Reports that this process has done `done` steps.
    pub fn set(&mut self, done: u64, at: Option<Position>) {
        let position = (self.earlier + done).min(self.total);
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            if let Some(at) = at {
                bar.set_message(at.to_string());
            }
            return;
        }
        if self.mode == Mode::None || done == 0 || self.last.elapsed() < self.mode.every() {
            return;
        }
        self.last = Instant::now();
        let left = self.since.elapsed().as_secs_f64() * (self.total - position) as f64 / done as f64;
        if self.mode == Mode::Json {
            let mut event = json!({ "event": "progress", "phase": self.name, "done": position, "total": self.total,
                "seconds_left": left.round() });
            if let Some(at) = at {
                at.describe(&mut event);
            }
            return line(event);
        }
        let at = at.map_or(String::new(), |at| format!("{at}, "));
        say(format_args!("{}: {at}{} %, {} left", self.name, 100 * position / self.total.max(1), span(left)));
    }

    /// Says that the phase goes on, where it has no steps to count.
    pub fn beat(&mut self) {
        if let Some(bar) = &self.bar {
            return bar.tick();
        }
        self.wait(None);
    }

    /// Shows at which of `stages` a meter is. They don't take equally long, so that the time spent is shown, and none left.
    pub fn stage(&mut self, meter: &Meter, stages: &[&'static str]) {
        let [at, total] = [0, 1].map(|i| meter.0[i].load(Ordering::Relaxed));
        let Some(name) = stages.get(at as usize).filter(|_| total > 0) else { return self.beat() };
        if let Some(bar) = &self.bar {
            bar.set_style(styled("{prefix} {msg} {wide_bar:.cyan/dim} {pos}/{len}  {elapsed}"));
            bar.set_length(total);
            bar.set_position(at);
            bar.set_message(*name);
            return;
        }
        self.wait(Some(name));
    }

    /// Says from time to time how long the phase has taken, and at which stage it is.
    fn wait(&mut self, stage: Option<&str>) {
        if self.mode == Mode::None || self.last.elapsed() < self.mode.every() {
            return;
        }
        self.last = Instant::now();
        let spent = self.since.elapsed().as_secs_f64();
        if let Mode::Json = self.mode {
            let mut event = json!({ "event": "wait", "phase": self.name, "seconds": spent.round() });
            if let Some(stage) = stage {
                event["stage"] = stage.into();
            }
            return line(event);
        }
        let stage = stage.map_or(String::new(), |stage| format!("{stage}, "));
        say(format_args!("{}: {stage}{} so far", self.name, span(spent)));
    }

    /// Shows what a meter counts.
    pub fn follow(&mut self, meter: &Meter) {
        let [done, total] = [0, 1].map(|i| meter.0[i].load(Ordering::Relaxed));
        if total == 0 {
            return self.beat();
        }
        if total != self.total {
            self.begin(total, 0);
        }
        self.set(done, None);
    }

    /// Returns the seconds that this process has spent, and the seconds left, estimated from `done` steps.
    pub fn times(&self, done: u64) -> (f64, f64) {
        let spent = self.since.elapsed().as_secs_f64();
        let left = (self.total - (self.earlier + done).min(self.total)) as f64;
        (spent, spent * left / done.max(1) as f64)
    }

    /// Prints a note like [`Mode::note`], without disturbing the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.mode.note(text)),
            None => self.mode.note(text),
        }
    }

    /// Ends the phase.
    pub fn finish(self) {
        let seconds = self.since.elapsed().as_secs_f64();
        match (&self.bar, self.mode) {
            (Some(bar), _) => bar.finish_and_clear(),
            (None, Mode::None) => {}
            (None, Mode::Json) => line(json!({ "event": "end", "phase": self.name, "seconds": seconds })),
            (None, _) => say(format_args!("{} done, {seconds:.1} s", self.name)),
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        // The next output must not share the bar's line.
        if let Some(bar) = self.bar.as_ref().filter(|bar| !bar.is_finished()) {
            bar.finish_and_clear();
        }
    }
}

/// How a bar of `total` steps looks.
fn style(total: u64) -> ProgressStyle {
    styled(match total {
        0 => "{prefix} {spinner} {elapsed}",
        _ => "{prefix} {msg} {wide_bar:.cyan/dim} {percent:>3} %  {eta} left",
    })
}

fn styled(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A duration in words: "40 s", "12 min", "3 h 20 min".
pub fn span(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", s.div_ceil(60)),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::Position;
    use serde_json::json;

    /// A trial of the strong search has no number of steps to count up to.
    #[test]
    fn the_strong_search_is_named_in_place_of_a_step() {
        let published = Position { attack: "ES", step: 5, steps: 32, queries: 3, of: 60 };
        let strong = Position { attack: "R1", step: 5, steps: 0, queries: 3, of: 42 };
        assert_eq!(published.to_string(), "ES 3/60 queries, step 5/32");
        assert_eq!(strong.to_string(), "R1 3/42 queries, strong search");
        let event = |at: Position| {
            let mut event = json!({});
            at.describe(&mut event);
            event
        };
        assert_eq!(
            event(strong),
            json!({ "attack": "R1", "search": "strong", "queries_done": 3, "queries": 42 })
        );
        assert_eq!(
            event(published),
            json!({ "attack": "ES", "step": 5, "steps": 32, "queries_done": 3, "queries": 60 })
        );
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (seconds, said) in
            [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5400.0, "90 min"), (12_000.0, "3 h 20 min")]
        {
            assert_eq!(super::span(seconds), said);
        }
    }
}

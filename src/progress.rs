//! How far the work is, on stderr: a bar with the time left on a terminal, a line every few seconds elsewhere (CI logs),
//! JSON lines for programs, or nothing. Notes and errors take the same way, so that JSON stays JSON.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// What `--progress` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A bar on a terminal, plain lines elsewhere.
    #[default]
    Auto,
    /// Lines of text, one every 10 seconds.
    Plain,
    /// A JSON object on each line, one a second.
    Json,
    /// Nothing but errors.
    None,
}

impl Mode {
    /// A remark on the way. Said in every mode but `none`.
    pub fn note(self, text: &str) {
        match self {
            Mode::None => {}
            Mode::Json => line(json!({ "event": "note", "text": text })),
            Mode::Auto | Mode::Plain => eprintln!("{text}"),
        }
    }

    /// Something that was asked for and not done. Said in every mode.
    pub fn warn(self, text: &str) {
        match self {
            Mode::Json => line(json!({ "event": "warning", "text": text })),
            _ => eprintln!("{text}"),
        }
    }

    /// The error that ends the process.
    pub fn error(self, error: &crate::Error) {
        match self {
            Mode::Json => {
                line(json!({ "event": "error", "exit": error.exit as i32, "text": error.message }));
            }
            _ => eprintln!("audit: {error}"),
        }
    }

    fn every(self) -> Duration {
        Duration::from_secs(if self == Mode::Json { 1 } else { 10 })
    }
}

fn line(event: Value) {
    eprintln!("{event}");
}

/// What the attacks are at.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The attack's code.
    pub attack: &'static str,
    /// The step of a trial at work, of `steps`.
    pub step: usize,
    /// Steps of a trial.
    pub steps: usize,
    /// Queries that this attack is done with, of `of`.
    pub queries: usize,
    /// Queries of this attack.
    pub of: usize,
}

/// One phase of the work.
pub struct Phase {
    name: &'static str,
    mode: Mode,
    bar: Option<ProgressBar>,
    total: u64,
    /// What was done before this process came.
    earlier: u64,
    since: Instant,
    last: Instant,
}

impl Phase {
    /// A phase of `total` steps.
    pub fn new(name: &'static str, total: u64, mode: Mode) -> Phase {
        let bar = (mode == Mode::Auto && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template(
                "{prefix} {msg} {wide_bar:.cyan/dim} {percent:>3} %  {eta} left",
            )
            .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.set_prefix(name);
            bar
        });
        let now = Instant::now();
        let phase = Phase { name, mode, bar, total, earlier: 0, since: now, last: now };
        match mode {
            Mode::Json => line(json!({ "event": "start", "phase": name })),
            Mode::Auto | Mode::Plain if phase.bar.is_none() => eprintln!("{name} ..."),
            _ => {}
        }
        phase
    }

    /// The phase turns out to have `total` steps, of which `earlier` were done by another process.
    pub fn begin(&mut self, total: u64, earlier: u64) {
        (self.total, self.earlier) = (total, earlier);
        self.since = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(earlier);
            bar.reset_eta();
        }
    }

    /// This process has done `done` steps.
    pub fn set(&mut self, done: u64, at: Option<At>) {
        let position = (self.earlier + done).min(self.total);
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            if let Some(At { attack, step, steps, queries, of }) = at {
                bar.set_message(format!("{attack} {queries}/{of} queries, step {step}/{steps}"));
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
            if let Some(At { attack, step, steps, queries, of }) = at {
                event["attack"] = attack.into();
                event["step"] = step.into();
                event["steps"] = steps.into();
                event["queries_done"] = queries.into();
                event["queries"] = of.into();
            }
            return line(event);
        }
        let at = at.map_or(String::new(), |a| {
            format!("{} {}/{} queries, step {}/{}, ", a.attack, a.queries, a.of, a.step, a.steps)
        });
        eprintln!("{}: {at}{} %, {} left", self.name, 100 * position / self.total.max(1), span(left));
    }

    /// How long this process has been at it, and what is left by that after `done` steps, in seconds.
    pub fn times(&self, done: u64) -> (f64, f64) {
        let spent = self.since.elapsed().as_secs_f64();
        let left = (self.total - (self.earlier + done).min(self.total)) as f64;
        (spent, spent * left / done.max(1) as f64)
    }

    /// [`Mode::note`], beside a bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.mode.note(text)),
            None => self.mode.note(text),
        }
    }

    /// The phase is over.
    pub fn finish(self) {
        let seconds = self.since.elapsed().as_secs_f64();
        match (&self.bar, self.mode) {
            (Some(bar), _) => bar.finish_and_clear(),
            (None, Mode::None) => {}
            (None, Mode::Json) => line(json!({ "event": "end", "phase": self.name, "seconds": seconds })),
            (None, _) => eprintln!("{} done, {seconds:.1} s", self.name),
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        // What is said next must not stand on the bar's line.
        if let Some(bar) = self.bar.as_ref().filter(|bar| !bar.is_finished()) {
            bar.finish_and_clear();
        }
    }
}

/// "40 s", "12 min", "3 h 20 min"
pub fn span(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", s.div_ceil(60)),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_said_as_people_say_them() {
        for (seconds, said) in
            [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5400.0, "90 min"), (12_000.0, "3 h 20 min")]
        {
            assert_eq!(super::span(seconds), said);
        }
    }
}

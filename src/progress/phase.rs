//! A phase as it is shown: its bar, its lines or its events.

use super::track::{Progress, Track};
use super::{Announcement, Meter, Mode, Position, event, say, span};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde_json::{Value, json};
use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One phase of an audit. A phase of 0 steps shows the time spent, until [`Phase::begin`] states their
/// number.
pub struct Phase {
    name: &'static str,
    mode: Mode,
    bar: Option<ProgressBar>,
    /// The time left, as the bar shows it.
    time: Arc<Mutex<String>>,
    track: Track,
    /// Seconds left, expected and at most.
    left: [Option<f64>; 2],
    /// The last position of the attacks that was shown.
    shown_at: Option<Option<Position>>,
    since: Instant,
    last: Instant,
    /// The current stage, if it has named stages.
    stage: Option<&'static str>,
    /// Whether its beginning is not shown, nor its end if nothing was shown in between.
    quiet: bool,
}

/// Time after which a usually short phase is announced.
const PATIENCE: Duration = Duration::from_secs(2);

impl Phase {
    /// Begins a usually short phase: without a bar, nothing is shown of it if it ends within two seconds.
    pub fn brief(name: &'static str, mode: Mode) -> Phase {
        Phase::begun(name, 0, mode, true)
    }

    /// Begins a phase of `total` steps, which ends with a line. Its progress is shown after two seconds, and
    /// then from time to time.
    pub fn new(name: &'static str, total: u64, mode: Mode) -> Phase {
        if mode == Mode::Json {
            event(&json!({ "event": "start", "phase": name }));
        }
        Phase::begun(name, total, mode, false)
    }

    fn begun(name: &'static str, total: u64, mode: Mode, quiet: bool) -> Phase {
        let time = Arc::new(Mutex::new(String::new()));
        let bar = (mode == Mode::Auto && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(total);
            bar.set_style(style(total, &time));
            bar.set_prefix(name);
            bar
        });
        let since = Instant::now();
        // The first progress is shown after `PATIENCE`.
        let last = since.checked_sub(mode.every().saturating_sub(PATIENCE)).unwrap_or(since);
        let track = Track::new(total, 0);
        let (left, shown_at, stage) = ([None; 2], None, None);
        Phase { name, mode, bar, time, track, left, shown_at, since, last, stage, quiet }
    }

    /// Sets the number of steps to `total`, of which another process has done `earlier`.
    pub fn begin(&mut self, total: u64, earlier: u64) {
        self.track = Track::new(total, earlier);
        self.left = [None; 2];
        self.since = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_style(style(total, &self.time));
            bar.set_length(total);
            bar.set_position(earlier);
        }
    }

    /// Reports that this process has done `done` steps, which take equally long.
    pub fn set(&mut self, done: u64, at: Option<Position>) {
        let shown = self.track.record(self.since.elapsed().as_secs_f64(), done);
        self.show(shown, done > 0, at);
    }

    /// Reports the work of this process, in place of steps: `made` is done, and at most `left` is left.
    pub fn advance(&mut self, [made, left]: [usize; 2], at: Option<Position>) {
        let shown = self.track.advance(self.since.elapsed().as_secs_f64(), [made as f64, left as f64]);
        self.show(shown, made > 0, at);
    }

    /// Expects so much work of this process in all. `seconds`: how long what is left of it takes by a plan,
    /// about and at most.
    pub fn expect(&mut self, work: usize, seconds: Option<[f64; 2]>) {
        self.track.expect(self.since.elapsed().as_secs_f64(), work as f64, seconds);
    }

    /// Counts the per cent of the most work that there may be, in place of what is expected. If several
    /// expectations may be exceeded, the count would reach 99 % with the first of them, and never goes back.
    pub fn of_most(&mut self) {
        self.track.of_most = true;
    }

    fn show(&mut self, shown: Progress, begun: bool, at: Option<Position>) {
        self.left = [shown.expected, shown.left];
        if let Some(bar) = &self.bar {
            *self.time.lock().unwrap_or_else(PoisonError::into_inner) = shown.time();
            bar.set_position(shown.done);
            if let Some(at) = at {
                bar.set_message(at.to_string());
            }
            return;
        }
        if self.mode == Mode::None || !begun || self.last.elapsed() < self.mode.every() {
            return;
        }
        self.last = Instant::now();
        self.shown_at = Some(at);
        match self.mode {
            Mode::Json => event(&self.event(&shown, at)),
            _ => {
                let at = at.map(|at| at.to_string());
                say(shown.line(self.name, at.as_deref().or(self.stage)));
            }
        }
    }

    fn event(&self, shown: &Progress, at: Option<Position>) -> Value {
        let mut event = shown.event(self.name, at);
        if let Some(stage) = self.stage {
            event["stage"] = stage.into();
        }
        event
    }

    /// Names the next steps. Programs get an event for the first of them, however soon it comes.
    pub fn enter(&mut self, stage: &'static str) {
        self.stage = Some(stage);
        if self.mode == Mode::Json {
            self.last = self.last.checked_sub(self.mode.every()).unwrap_or(self.last);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(stage);
        }
    }

    /// Shows that the phase continues, if it has no steps to count.
    pub fn beat(&mut self) {
        if let Some(bar) = &self.bar {
            return bar.tick();
        }
        self.wait(None);
    }

    /// Shows the current one of `stages` of a meter. They don't take equally long, so the time spent is
    /// shown, and none left.
    pub fn stage(&mut self, meter: &Meter, stages: &[&'static str]) {
        let [at, total] = [0, 1].map(|i| meter.0[i].load(Ordering::Relaxed));
        let Some(name) = meter.name(stages) else { return self.beat() };
        if let Some(bar) = &self.bar {
            bar.set_style(styled("{prefix} {msg} {wide_bar:.cyan/dim} {pos}/{len}  {elapsed}"));
            bar.set_length(total);
            bar.set_position(at);
            bar.set_message(name);
            return;
        }
        self.wait(Some(name));
    }

    /// Shows from time to time how long the phase has taken, and its stage.
    fn wait(&mut self, stage: Option<&str>) {
        if self.mode == Mode::None || self.last.elapsed() < self.mode.every() {
            return;
        }
        self.last = Instant::now();
        self.quiet = false;
        let spent = self.since.elapsed().as_secs_f64();
        if let Mode::Json = self.mode {
            let mut wait = json!({ "event": "wait", "phase": self.name, "seconds": spent.round() });
            if let Some(stage) = stage {
                wait["stage"] = stage.into();
            }
            return event(&wait);
        }
        let stage = stage.map_or(String::new(), |stage| format!("{stage}, "));
        say(format_args!("{}: {stage}{} so far", self.name, span(spent)));
    }

    /// Shows the count of a meter.
    pub fn follow(&mut self, meter: &Meter) {
        let [done, total] = [0, 1].map(|i| meter.0[i].load(Ordering::Relaxed));
        if total == 0 {
            return self.beat();
        }
        if total != self.track.total {
            self.begin(total, 0);
        }
        self.set(done, None);
    }

    /// Returns the seconds that this process has spent, and those left as they are shown: expected, and at
    /// most.
    pub fn times(&self) -> (f64, [Option<f64>; 2]) {
        (self.since.elapsed().as_secs_f64(), self.left)
    }

    /// Seconds of a unit of work; `None` in the first seconds.
    pub fn pace(&self) -> Option<f64> {
        self.track.estimate.pace()
    }

    /// Prints a note like [`Mode::note`], without disturbing the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.mode.note(text)),
            None => self.mode.note(text),
        }
    }

    /// Prints a plan of the phase's work like [`Mode::plan`], without disturbing the bar.
    pub fn plan(&self, plan: &Announcement) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.mode.plan(plan)),
            None => self.mode.plan(plan),
        }
    }

    /// Ends the phase: all of its steps are done or skipped.
    pub fn finish(mut self) {
        let seconds = self.since.elapsed().as_secs_f64();
        let shown = self.track.end();
        match (&self.bar, self.mode) {
            (Some(bar), _) => {
                self.time.lock().unwrap_or_else(PoisonError::into_inner).clear();
                bar.set_position(shown.total);
                bar.finish_and_clear();
                // A phase that somebody waited for leaves one line.
                if !self.quiet && seconds >= PATIENCE.as_secs_f64() {
                    say(format_args!("{}: 100 %, {}", self.name, span(seconds)));
                }
            }
            (None, Mode::None) => {}
            (None, _) if self.quiet => {}
            (None, Mode::Json) => {
                if let Some(at) = self.shown_at.take() {
                    event(&self.event(&shown, at.map(Position::ended)));
                }
                event(&json!({ "event": "end", "phase": self.name, "seconds": seconds }));
            }
            (None, _) => say(format_args!("{}: 100 %, {seconds:.1} s", self.name)),
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

/// The style of a bar of `total` steps, with the time left in words.
fn style(total: u64, time: &Arc<Mutex<String>>) -> ProgressStyle {
    let time = time.clone();
    styled(match total {
        0 => "{prefix} {spinner} {elapsed}",
        _ => "{prefix} {msg} {wide_bar:.cyan/dim} {percent:>3} %  {time}",
    })
    .with_key("time", move |_: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = out.write_str(&time.lock().unwrap_or_else(PoisonError::into_inner));
    })
}

fn styled(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

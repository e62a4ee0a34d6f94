//! Progress on stderr: a bar with the time left on a terminal, a line every few seconds elsewhere (CI logs),
//! JSON lines for programs, or nothing. Notes and errors use the same mode, so that JSON output contains only
//! JSON.
//!
//! The time left is an upper bound and never rises: see `Estimate`.

mod estimate;

use crate::choice::Choice;
use crate::report::terminal::wrap;
use estimate::Estimate;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The values of `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
            Mode::Json => say(json!({ "event": "note", "text": text })),
            Mode::Auto | Mode::Plain => say(text),
        }
    }

    /// Prints, in every mode, that something was requested and not done.
    pub fn warn(self, text: &str) {
        match self {
            Mode::Json => say(json!({ "event": "warning", "text": text })),
            _ => say(text),
        }
    }

    /// Prints what is about to be done.
    pub fn plan(self, plan: &Announcement) {
        match (self, &plan.text) {
            (Mode::Json, _) => say(&plan.event),
            (Mode::Auto | Mode::Plain, Some(text)) => say(wrap(text)),
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

/// A line on stderr. Work continues if nobody reads it any more, as behind `2>&1 | head`.
fn say(text: impl fmt::Display) {
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

/// In words: the attack, its queries, and the step if a trial has a fixed number of them.
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

/// The progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Progress {
    /// Finished steps, with those of an earlier process.
    done: u64,
    /// All steps.
    total: u64,
    /// Upper bound on the seconds left; `None` if no bound is known, or the announced one doesn't hold.
    left: Option<f64>,
    /// Seconds left by the plan; `None` if there is no plan, or if it takes longer.
    expected: Option<f64>,
}

impl Progress {
    fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }

    /// The time left, in words. A bound that is little more than what is expected says both.
    fn time(&self) -> String {
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
    fn line(&self, phase: &str, at: Option<&str>) -> String {
        let at = at.map_or(String::new(), |at| format!("{at}, "));
        let time = Some(self.time()).filter(|time| !time.is_empty());
        format!("{phase}: {at}{} %{}", self.percent(), time.map_or(String::new(), |time| format!(", {time}")))
    }

    /// An event for programs.
    fn event(&self, phase: &str, at: Option<Position>) -> Value {
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
struct Track {
    total: u64,
    /// Steps done before this process started.
    earlier: u64,
    done: u64,
    estimate: Estimate,
    /// The end by the plan, in seconds; `None` if there is no plan.
    expected: Option<f64>,
}

impl Track {
    fn new(total: u64, earlier: u64) -> Track {
        Track { total, earlier, ..Track::default() }
    }

    /// Records that `done` steps are done. Counted steps measure time only if they take equally long;
    /// otherwise `work` is [made, left at most] in units that do.
    fn record(&mut self, now: f64, done: u64, work: Option<[f64; 2]>) -> Progress {
        let position = (self.earlier + done).min(self.total);
        // The count never goes back.
        self.done = self.done.max(position);
        let [made, left] = work.unwrap_or([done as f64, (self.total - position) as f64]);
        let expected = self.expected.map(|end| end - now).filter(|left| *left > 0.0);
        Progress { done: self.done, total: self.total, left: self.estimate.see(now, made, left), expected }
    }

    /// By a plan, the phase ends after so many seconds. What was told does not rise: after a plan that ends
    /// later than the one before, nothing is expected any more.
    fn expect(&mut self, end: f64) {
        self.expected = Some(if self.expected.is_some_and(|before| before < end) { 0.0 } else { end });
    }

    /// Ends the phase, even if it has left out steps.
    fn end(&mut self) -> Progress {
        self.done = self.total;
        Progress { done: self.total, total: self.total, left: Some(0.0), expected: None }
    }
}

/// One phase of an audit. A phase of 0 steps shows the time spent, until [`Phase::begin`] states their
/// number.
pub struct Phase {
    name: &'static str,
    mode: Mode,
    bar: Option<ProgressBar>,
    /// The time left, as the bar shows it.
    time: Arc<Mutex<String>>,
    track: Track,
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
        let mut phase = Phase::begun(name, 0, mode);
        phase.quiet = true;
        phase
    }

    /// Begins a phase of `total` steps, which ends with a line. Its progress is shown after two seconds, and
    /// then from time to time.
    pub fn new(name: &'static str, total: u64, mode: Mode) -> Phase {
        if mode == Mode::Json {
            say(json!({ "event": "start", "phase": name }));
        }
        Phase::begun(name, total, mode)
    }

    fn begun(name: &'static str, total: u64, mode: Mode) -> Phase {
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
        Phase { name, mode, bar, time, track, shown_at: None, since, last, stage: None, quiet: false }
    }

    /// Sets the number of steps to `total`, of which another process has done `earlier`.
    pub fn begin(&mut self, total: u64, earlier: u64) {
        self.track = Track::new(total, earlier);
        self.since = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_style(style(total, &self.time));
            bar.set_length(total);
            bar.set_position(earlier);
        }
    }

    /// Reports that this process has done `done` steps, which take equally long.
    pub fn set(&mut self, done: u64, at: Option<Position>) {
        self.show(done, None, at);
    }

    /// Reports that this process has done `done` steps, which don't measure the time: `made` of the work is
    /// done, and at most `left` is left.
    pub fn advance(&mut self, done: u64, [made, left]: [usize; 2], at: Option<Position>) {
        self.show(done, Some([made as f64, left as f64]), at);
    }

    fn show(&mut self, done: u64, work: Option<[f64; 2]>, at: Option<Position>) {
        let shown = self.track.record(self.since.elapsed().as_secs_f64(), done, work);
        if let Some(bar) = &self.bar {
            *self.time.lock().unwrap_or_else(PoisonError::into_inner) = shown.time();
            bar.set_position(shown.done);
            if let Some(at) = at {
                bar.set_message(at.to_string());
            }
            return;
        }
        if self.mode == Mode::None || done == 0 || self.last.elapsed() < self.mode.every() {
            return;
        }
        self.last = Instant::now();
        self.shown_at = Some(at);
        match self.mode {
            Mode::Json => say(self.event(&shown, at)),
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
            let mut event = json!({ "event": "wait", "phase": self.name, "seconds": spent.round() });
            if let Some(stage) = stage {
                event["stage"] = stage.into();
            }
            return say(event);
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

    /// Returns the seconds that this process has spent; those left if the other steps take as long as the
    /// `done` ones; and an upper bound on those left, if it is known.
    pub fn times(&self, done: u64) -> (f64, f64, Option<f64>) {
        let spent = self.since.elapsed().as_secs_f64();
        let left = (self.track.total - (self.track.earlier + done).min(self.track.total)) as f64;
        (spent, spent * left / done.max(1) as f64, self.track.estimate.left(spent))
    }

    /// Prints a note like [`Mode::note`], without disturbing the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.mode.note(text)),
            None => self.mode.note(text),
        }
    }

    /// Prints a plan of the phase's work like [`Mode::plan`], without disturbing the bar.
    pub fn plan(&mut self, plan: &Announcement) {
        self.track.expect(self.since.elapsed().as_secs_f64() + plan.seconds);
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
                    say(self.event(&shown, at.map(Position::ended)));
                }
                say(json!({ "event": "end", "phase": self.name, "seconds": seconds }));
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
    use super::{Position, Progress, Track};
    use serde_json::json;

    /// A run of a phase: at each second the finished work, an upper bound on the work left, and the finished
    /// steps of 1000.
    fn drive(sequence: impl IntoIterator<Item = (f64, f64, u64)>) -> Vec<Progress> {
        let mut track = Track::new(1000, 0);
        let seconds = sequence.into_iter().enumerate();
        let mut shown: Vec<Progress> =
            seconds.map(|(i, (made, left, done))| track.record(i as f64, done, Some([made, left]))).collect();
        shown.push(track.end());
        shown
    }

    /// Neither the time left nor the per cent go back, and the phase ends at 100 % and with no time left. A
    /// time that is shown is called a bound.
    #[track_caller]
    fn honest(shown: &[Progress]) {
        let seconds: Vec<f64> = shown.iter().filter_map(|s| s.left).collect();
        assert!(seconds.windows(2).all(|pair| pair[1] <= pair[0]), "{seconds:?}");
        assert!(shown.windows(2).all(|pair| pair[1].percent() >= pair[0].percent()), "{shown:?}");
        let last = shown.last().unwrap();
        assert_eq!((last.percent(), last.left), (100, Some(0.0)));
        for s in shown {
            let text = s.line("attacks", None);
            assert_eq!(text.contains("at most") && text.ends_with(" left"), s.left.is_some(), "{text}");
            assert_eq!(s.event("attacks", None)["seconds_left"].is_number(), s.left.is_some());
        }
    }

    /// A phase whose seconds left are known at each second: no bound is below the truth.
    #[track_caller]
    fn bounds(shown: &[Progress], seconds: usize) {
        for (i, s) in shown[..shown.len() - 1].iter().enumerate() {
            assert!(s.left.is_none_or(|left| left >= (seconds - i) as f64), "{s:?} at {i} of {seconds}");
        }
    }

    #[test]
    fn an_even_phase_is_told_its_time() {
        let even = drive((0..=100).map(|t| (10.0 * t as f64, 1000.0 - 10.0 * t as f64, 10 * t)));
        honest(&even);
        bounds(&even, 100);
        // A bound, but not ten times the truth.
        assert!(even[10].left.unwrap() <= 2.0 * 90.0, "{:?}", even[10]);
        assert!(even[..100].iter().skip(5).all(|s| s.left.is_some()));
    }

    /// The strong search: most trials end long before their last step, so most of the upper bound on the work
    /// is never done. The bound falls with it, and at the end the phase is at 100 % although a third of its
    /// steps was left out.
    #[test]
    fn trials_that_end_early_take_time_away() {
        let left = |t: u64| if t < 20 { 20_000.0 - 10.0 * t as f64 } else { 1000.0 - 10.0 * t as f64 };
        let early = drive((0..=60).map(|t| (10.0 * t as f64, left(t), if t < 20 { t } else { 10 * t })));
        honest(&early);
        bounds(&early, 60);
        assert!(early[19].left.unwrap() > 1900.0 && early[21].left.unwrap() <= 150.0);
    }

    /// The first seconds take ten times as long, as while memory is allocated and kernels are chosen.
    #[test]
    fn a_slow_start_gives_a_bound_that_falls() {
        let made = |t: u64| if t < 10 { t as f64 } else { 10.0 + 10.0 * (t - 10) as f64 };
        let slow = drive((0..=109).map(|t| (made(t), 1000.0 - made(t), made(t) as u64)));
        honest(&slow);
        bounds(&slow, 109);
    }

    /// Another program takes half of the machine from the middle on: the shown bound no longer holds, and
    /// none is shown until it does.
    #[test]
    fn a_rate_that_halves_takes_the_bound_back() {
        let made = |t: u64| if t < 50 { 10.0 * t as f64 } else { 500.0 + 5.0 * (t - 50) as f64 };
        let halved = drive((0..=150).map(|t| (made(t), 1000.0 - made(t), made(t) as u64)));
        honest(&halved);
        assert!(halved[49].left.is_some());
        assert!(halved[61..].iter().any(|s| s.left.is_none()));
        bounds(&halved[61..], 89);
    }

    /// A bound far above the plan stands behind it, and a plan that ends later takes back what was expected.
    #[test]
    fn a_plan_is_told_beside_the_bound() {
        let mut track = Track::new(1000, 0);
        track.expect(60.0);
        let record = |track: &mut Track, now: f64| track.record(now, now as u64, None);
        assert_eq!(record(&mut track, 0.4).line("attacks", None), "attacks: 0 %, about 60 s left");
        let both: Vec<_> = (1..=10).map(|t| record(&mut track, f64::from(t))).collect();
        assert_eq!(both[9].expected, Some(50.0));
        assert!(both[9].time().starts_with("about 50 s left, at most "), "{}", both[9].time());
        assert_eq!(both[9].event("attacks", None)["seconds_expected"], 50.0);
        track.expect(40.0);
        assert_eq!(record(&mut track, 11.0).expected, Some(29.0));
        // The time is over, and the phase isn't.
        assert_eq!(record(&mut track, 41.0).expected, None);
        track.expect(90.0);
        let late = record(&mut track, 42.0);
        assert!(late.expected.is_none() && late.time().starts_with("at most "), "{late:?}");
        // Both are told only if they differ.
        let near = Progress { done: 1, total: 2, left: Some(60.0), expected: Some(40.0) };
        assert_eq!(near.time(), "at most 60 s left");
    }

    /// A run that continues an earlier one, and one whose trials had all ended.
    #[test]
    fn a_phase_ends_its_bar() {
        let mut resumed = Track::new(1000, 900);
        assert_eq!(resumed.record(1.0, 10, None).percent(), 91);
        assert_eq!(resumed.record(2.0, 5, None).percent(), 91);
        assert_eq!(resumed.end().percent(), 100);
        let at = Position { attack: "ES", step: 5, steps: 32, queries: 3, of: 60 };
        let event = resumed.end().event("attacks", Some(at.ended()));
        assert_eq!(
            (&event["done"], &event["total"], &event["seconds_left"]),
            (&json!(1000), &json!(1000), &json!(0.0))
        );
        assert_eq!((&event["step"], &event["queries_done"]), (&json!(32), &json!(60)));
    }

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
    fn bounds_are_read_as_people_write_them() {
        use super::TimeLimit;
        for (text, shown) in
            [("30s", "30 s"), ("90", "90 s"), ("5min", "5 min"), ("5m", "5 min"), ("2h", "2 h 0 min")]
        {
            assert_eq!(text.parse::<TimeLimit>().unwrap().to_string(), shown);
        }
        for text in ["", "s", "0", "-1s", "5 days", "1e3"] {
            let e = text.parse::<TimeLimit>().unwrap_err();
            assert!(e.message.contains("30s or 5min"), "{text}: {e}");
        }
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (seconds, text) in
            [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5400.0, "90 min"), (12_000.0, "3 h 20 min")]
        {
            assert_eq!(super::span(seconds), text);
        }
    }
}

//! Progress on stderr: a bar with the time left on a terminal, a line every few seconds elsewhere (CI logs).

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Says how far one phase of the work is.
pub struct Progress {
    kind: Kind,
}

enum Kind {
    Silent,
    Bar(ProgressBar),
    Lines { name: String, total: u64, since: Instant, last: Instant },
}

impl Progress {
    /// Starts a phase of `total` steps.
    pub fn new(name: &str, total: u64, quiet: bool) -> Progress {
        let kind = if quiet {
            Kind::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            let style =
                ProgressStyle::with_template("{msg:>10} {wide_bar:.cyan/dim} {percent:>3} %  {eta:>4} left")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.set_message(name.to_string());
            Kind::Bar(bar)
        } else {
            eprintln!("{name} ...");
            let now = Instant::now();
            Kind::Lines { name: name.into(), total: total.max(1), since: now, last: now }
        };
        Progress { kind }
    }

    /// `done` steps are done.
    pub fn set(&mut self, done: u64) {
        match &mut self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.set_position(done),
            Kind::Lines { name, total, since, last } => {
                if last.elapsed() >= EVERY && done > 0 {
                    *last = Instant::now();
                    let left =
                        since.elapsed().as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
                    eprintln!("{name} {} %, {left:.0} s left", 100 * done / *total);
                }
            }
        }
    }

    /// The phase is over.
    pub fn finish(self) {
        match self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.finish_and_clear(),
            Kind::Lines { name, since, .. } => {
                eprintln!("{name} done, {:.1} s", since.elapsed().as_secs_f64())
            }
        }
    }
}

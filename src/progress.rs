//! Progress on stderr: a bar with the time left on a terminal, a line every tenth elsewhere (CI logs).

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Says how far one phase of the work is.
pub struct Progress {
    kind: Kind,
}

enum Kind {
    Silent,
    Bar(ProgressBar),
    Lines { name: String, total: u64, tenth: u64, since: Instant },
}

impl Progress {
    /// Starts a phase of `total` steps.
    pub fn new(name: &str, total: u64, quiet: bool) -> Progress {
        let kind = if quiet {
            Kind::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{msg:>10} {wide_bar:.cyan/dim} {percent:>3} %  {eta:>4} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.set_message(name.to_string());
            Kind::Bar(bar)
        } else {
            eprintln!("{name} ...");
            Kind::Lines { name: name.into(), total: total.max(1), tenth: 0, since: Instant::now() }
        };
        Progress { kind }
    }

    /// `done` steps are done.
    pub fn set(&mut self, done: u64) {
        match &mut self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.set_position(done),
            Kind::Lines { name, total, tenth, since } => {
                let now = 10 * done / *total;
                if now > *tenth && now < 10 {
                    *tenth = now;
                    let spent = since.elapsed().as_secs_f64();
                    let left = spent * (*total - done.min(*total)) as f64 / done as f64;
                    eprintln!("{name} {} %, {left:.0} s left", 10 * now);
                }
            }
        }
    }

    /// The phase is over.
    pub fn finish(self) {
        match self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.finish_and_clear(),
            Kind::Lines { name, since, .. } => eprintln!("{name} done, {:.1} s", since.elapsed().as_secs_f64()),
        }
    }
}

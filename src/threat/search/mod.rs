//! How images move: one file and one row of [`SEARCHES`] each. A search sees losses and gradients, and moves one image; the runner
//! fills batches, keeps to the bounds and measures what comes of it.

mod apgd;
mod pgd;
mod random;

pub use apgd::APGD;
pub use pgd::PGD;
pub use random::RANDOM;

use super::ball::{Ball, Bound};
use super::draw::Draw;
use crate::error::did_you_mean;
use crate::{Error, Result};
use std::fmt;

/// Every search; the first is the default.
pub static SEARCHES: &[Search] = &[PGD, APGD, RANDOM];

/// A way to look for an image with a low loss.
pub struct Search {
    /// The name as a suite's `schedule`.
    pub name: &'static str,
    /// The steps in words, as reports have them: `(steps, α)`.
    pub words: fn(usize, f32) -> String,
    /// Whether a step needs the loss's gradient, or its value alone.
    pub needs_gradient: bool,
    /// Whether every step is one of the same size from the image before it. On a ball that is a box a model may then make the
    /// steps itself.
    pub plain_steps: bool,
    /// Whether it is given a step size; otherwise α is not used.
    pub takes_alpha: bool,
    /// Begins a run.
    pub begin: fn(&Setting, Draw) -> Box<dyn Walk>,
}

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Where the image may lie.
    pub bound: Bound<'a>,
    /// The image that the run starts from [P].
    pub start: &'a [f32],
    /// The image's shape, [C, H, W].
    pub shape: [usize; 3],
    /// Steps T.
    pub steps: usize,
    /// The step size of searches that are given one.
    pub alpha: f32,
}

/// One image under way.
pub trait Walk: Send + Sync {
    /// The image to begin with, where it isn't the run's own start.
    fn first(&mut self) -> Option<Vec<f32>> {
        None
    }
    /// Takes in the loss at x and its gradient [P] (empty for searches that need none), and moves x within `bound`.
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: &[f32]);
    /// The best image seen and its loss, for searches that keep it: it counts where the last image isn't better.
    fn best(&mut self) -> Option<(f64, Vec<f32>)> {
        None
    }
}

impl Search {
    /// The search called `name`. Error: exit code 2.
    pub fn find(name: &str) -> Result<&'static Search> {
        SEARCHES.iter().find(|s| s.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
            let all: Vec<&str> = SEARCHES.iter().map(|s| s.name).collect();
            Error::usage(format!(
                "unknown schedule `{name}`{}: expected one of {}",
                did_you_mean(name, &all),
                all.join(", ")
            ))
        })
    }

    /// Whether a model that makes signed steps can make all of this search's on `ball`.
    pub fn in_place(&self, ball: &Ball) -> bool {
        self.plain_steps && ball.is_box
    }
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Search {
    fn eq(&self, other: &Search) -> bool {
        self.name == other.name
    }
}

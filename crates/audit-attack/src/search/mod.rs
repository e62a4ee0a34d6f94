//! Search algorithms. Each has one file and one row of [`SEARCHES`]. A search moves one image, given losses
//! and gradients. The runner fills batches, enforces the bounds and measures the result.

mod apgd;
mod bisection;
mod cosine;
mod cw;
mod fmn;
mod grey_levels;
mod momentum;
mod multi_eps;
mod nes;
mod pgd;
mod population;
mod square;

pub use apgd::APGD;
pub use bisection::BISECTION;
pub use cosine::COSINE;
pub use cw::CW;
pub use fmn::FMN;
pub use grey_levels::{GREY_LEVELS, nearest_levels};
pub use momentum::MOMENTUM;
pub use multi_eps::{COSINE_MULTI_EPS, MULTI_EPS, SMALLER_EPS};
pub use nes::NES;
pub use pgd::{FGSM, PGD, RANDOM_START};
pub use population::POPULATION_NES;
pub use square::{RANDOM, RANDOM_8_BIT};

use super::ball::{Ball, Bound};
use super::draw::Draw;
use audit_base::{Error, Result};
use audit_report::facts::Schedule;
use std::f32::consts::PI;
use std::ops::Deref;

/// Every search; the first is the default.
pub static SEARCHES: &[Search] =
    &[PGD, APGD, COSINE, MOMENTUM, RANDOM, NES, POPULATION_NES, RANDOM_START, FGSM, BISECTION, CW, FMN];

/// An algorithm that searches for an image with a low loss.
pub struct Search {
    /// Its name, and other facts that reports need.
    pub facts: &'static Schedule,
    /// Whether every step has the same size and starts from the previous image. A model may then perform the
    /// steps itself if the ball is a box.
    pub plain_steps: bool,
    /// Whether it minimises the size of a perturbation with a loss below 0. All others minimise the loss in
    /// the ball.
    pub smallest: bool,
    /// Images that are tried for each move; `None` if each step moves.
    pub population: Option<usize>,
    /// What it does by whole grey levels in a box.
    pub levels: Levels,
    /// Begins a run.
    pub begin: Begin,
}

/// What a search does by whole grey levels, n/255, in a box. No search does so in other balls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Nothing.
    None,
    /// It changes pixels by whole levels: of an image with 8 bits a channel it makes others.
    Changes,
    /// It rounds every image to whole levels, whatever the clean image is.
    Images,
}

/// Begins a run of a search.
pub type Begin = fn(&Setting, Draw) -> Box<dyn SearchState>;

/// The defaults of [`SEARCHES`]: the lowest loss in the ball, by steps of the search's own kind.
const fn usual(facts: &'static Schedule, begin: Begin) -> Search {
    Search { facts, plain_steps: false, smallest: false, population: None, levels: Levels::None, begin }
}

/// The input of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The set that the image must stay in.
    pub bound: Bound<'a>,
    /// The first image of the run `[P]`.
    pub start: &'a [f32],
    /// Whether a search that chooses its own first image must begin at `start` instead.
    pub warm: bool,
    /// The image's shape, [C, H, W].
    pub shape: [usize; 3],
    /// Number of steps T.
    pub steps: usize,
    /// The step size α, for searches that use it.
    pub alpha: f32,
}

/// The gradient of a loss at an image, as the model gave it.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    /// The gradient times the factor `[P]`; empty for searches that need none.
    pub values: &'a [f32],
    /// The factor, which keeps small gradients from underflowing in half precision. Only searches that
    /// compare lengths need it.
    pub by: f32,
}

impl Scaled<'_> {
    /// An unscaled gradient.
    pub fn of(values: &[f32]) -> Scaled<'_> {
        Scaled { values, by: 1.0 }
    }
}

/// The state of a search on one image.
pub trait SearchState: Send + Sync {
    /// The first image, if the search does not begin at [`Setting::start`].
    fn first(&mut self) -> Option<Vec<f32>> {
        None
    }
    /// Receives the loss at x and its gradient, and moves x within `bound`.
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled);
    /// Writes another image to try to x `[P]`, besides the one that the latest step proposed. Only for
    /// searches that may try several at once.
    fn another(&mut self, _x: &mut [f32], _bound: &Bound) {}
    /// The best image so far and its loss, for searches that record it. It is the result if the last image
    /// has a higher loss.
    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        None
    }
    /// Whether the search has ended before its last step.
    fn done(&self) -> bool {
        false
    }
}

/// The image with the lowest loss so far [P], and this loss.
struct Best {
    loss: f64,
    image: Vec<f32>,
}

impl Best {
    /// The record of a run that begins at `start` [P] and has seen no loss.
    fn new(start: &[f32]) -> Best {
        Best { loss: f64::INFINITY, image: start.to_vec() }
    }

    /// Records x if its loss is the lowest.
    fn see(&mut self, loss: f64, x: &[f32]) {
        if loss < self.loss {
            self.loss = loss;
            self.image.copy_from_slice(x);
        }
    }

    fn result(self) -> Option<(f64, Vec<f32>)> {
        Some((self.loss, self.image))
    }
}

/// The record of a search for the smallest perturbation with a loss below 0.
struct Smallest {
    /// The smallest perturbation found, and its image.
    found: Option<(f32, Vec<f32>)>,
    /// The result if no loss is below 0.
    lowest: Best,
}

impl Smallest {
    /// The record of a run that begins at `start` [P] and has found nothing.
    fn new(start: &[f32]) -> Smallest {
        Smallest { found: None, lowest: Best::new(start) }
    }

    /// Records x. Returns whether its loss is below 0.
    fn see(&mut self, loss: f64, x: &[f32], bound: &Bound) -> bool {
        self.lowest.see(loss, x);
        let below = loss < 0.0;
        if below {
            let size = (bound.ball.size)(x, bound.centre);
            if self.found.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                self.found = Some((size, x.to_vec()));
            }
        }
        below
    }

    /// The smallest perturbation, whatever its loss. If none was found, the image of the lowest loss.
    fn result(self) -> Option<(f64, Vec<f32>)> {
        let found = self.found.map(|(_, image)| (f64::NEG_INFINITY, image));
        found.or_else(|| self.lowest.result())
    }
}

/// The size of step t of T if sizes follow half a cosine wave from `size` to 0: size/2·(1 + cos(π·t/T)).
fn shrinking(size: f32, step: usize, steps: usize) -> f32 {
    let phase = PI * step as f32 / steps.max(1) as f32;
    size * 0.5 * (1.0 + phase.cos())
}

impl Deref for Search {
    type Target = Schedule;

    fn deref(&self) -> &Schedule {
        self.facts
    }
}

impl Search {
    /// The search called `name`. Errors (exit code 2): no search has this name.
    pub fn find(name: &str) -> Result<&'static Search> {
        let schedule = Schedule::find(name)?;
        let found = SEARCHES.iter().find(|s| s.name == schedule.name);
        found.ok_or_else(|| Error::internal(format!("{name} is a schedule and no search")))
    }

    /// Number of moves in `steps` steps.
    pub fn moves(&self, steps: usize) -> usize {
        self.population.map_or(steps, |images| steps / images)
    }

    /// The step size within ε if no protocol has one. With it an image can reach the boundary and still
    /// change direction (Madry et al., ICLR 2018).
    pub fn usual_alpha(&self, eps: f32, steps: usize) -> f32 {
        // A step along losses alone is hardly more than random: T of them go about √T·α, and not T·α. Of the
        // α from 0.08 ε to 0.4 ε that were tried, those from 0.15 ε to 0.3 ε left the least ARS on both
        // bundled models (suite `nes`, L2, ε 1 for plain.onnx and 3 for hardened.onnx, 32 moves, 24 queries).
        let share = if self.population.is_some() { 6.0 } else { 2.5 };
        share * eps / self.moves(steps) as f32
    }

    /// Whether a model with signed steps can perform all steps of this search on `ball`.
    pub fn in_place(&self, ball: &Ball) -> bool {
        self.plain_steps && ball.is_box
    }
}

audit_base::known_by_name!(Search);

/// What the tests of searches for the smallest perturbation share.
#[cfg(test)]
mod smallest_tests {
    use super::*;
    use crate::ball::BALLS;

    /// A run from the centre of `bound`, which ends as the runner ends it: the loss and the image that it
    /// found, and how many losses it saw. `of`: the loss of an image and its gradient, which is scaled here
    /// as the runner scales it.
    pub fn walked(
        search: &Search,
        bound: Bound,
        steps: usize,
        of: impl Fn(&[f32]) -> (f32, Vec<f32>),
    ) -> (f64, Vec<f32>, usize) {
        let (start, shape) = (bound.centre, [1, 1, bound.centre.len()]);
        let setting = Setting { bound, start, warm: false, shape, steps, alpha: 0.0 };
        let mut walk = (search.begin)(&setting, Draw::new(0, "", "", 0));
        let (mut x, mut seen) = (start.to_vec(), 0);
        while seen <= steps && !walk.done() {
            let (loss, gradient) = of(&x);
            let values: Vec<f32> = gradient.iter().map(|g| 8.0 * g).collect();
            walk.step(&mut x, &bound, f64::from(loss), Scaled { values: &values, by: 8.0 });
            seen += 1;
        }
        let (loss, image) = walk.best().unwrap();
        (loss, image, seen)
    }

    /// The size of the image that a search finds around (0.4, 0.4) in one of [`BALLS`], its loss, and itself.
    pub fn found(
        search: &Search,
        ball: usize,
        steps: usize,
        of: impl Fn(&[f32]) -> (f32, Vec<f32>),
    ) -> (f32, f64, Vec<f32>) {
        let (ball, eps, centre) = (&BALLS[ball], [0.5, 2.0][ball], [0.4f32, 0.4]);
        let bound = Bound { ball, eps, centre: &centre, pixels: true, free: None };
        let (loss, image, _) = walked(search, bound, steps, of);
        ((ball.size)(&image, &centre), loss, image)
    }

    /// The loss is below 0 beyond a plane at the Euclidean distance 0.3, whose nearest point is (0.18, 0.24)
    /// away, and whose largest change is 0.3 / 1.4 = 0.2143.
    pub fn plane(x: &[f32]) -> (f32, Vec<f32>) {
        (0.3 - 0.6 * (x[0] - 0.4) - 0.8 * (x[1] - 0.4), vec![-0.6, -0.8])
    }
}

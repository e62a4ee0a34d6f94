//! The attack of Carlini & Wagner ("Towards Evaluating the Robustness of Neural Networks", S&P 2017): the
//! smallest perturbation by a penalty, with Adam. L is below 0 if the attack succeeds.
//!
//! - Euclidean length (section VI.A): it minimises ‖δ‖₂² + c·[L]₊ and bisects the constant c.
//! - Largest change of a pixel (section VI.C): it minimises Σ[|δᵢ| − τ]₊ + c·[L]₊. Once L is below 0 and no
//!   |δᵢ| is above τ, τ falls to 0.9 times the largest |δᵢ|, as in the authors' li_attack.py. If this does
//!   not happen within the iterations of a constant, c is doubled. Either way the search continues from the
//!   latest image.
//!
//! Pixels stay in [0, 1] by projection, the first of the three ways of section V.B. With the change of
//! variables, pixels at 0 or 1 hardly move within few iterations, and images of digits have no others.

use super::{Bound, Scaled, Search, SearchState, Setting, Smallest, usual};
use audit_report::facts::schedules::{self, CW_ROUNDS, cw_steps};

/// The first c. Losses are distances, of the order of 1.
const FIRST: f32 = 1.0;
/// c grows by this factor until it is large enough for the first time: for the Euclidean length, and for the
/// largest change.
const GROWTH: f32 = 10.0;
const DOUBLING: f32 = 2.0;
/// The search for the largest change ends once c is larger than this, as in li_attack.py.
const LARGEST: f32 = 20.0;
/// τ falls to this share of the largest change of a pixel.
const DECREASE: f32 = 0.9;
/// The rate of Adam, in pixels; less in small balls (see [`rate`]).
const RATE: f32 = 0.01;
/// The weights of Adam's running means, and the term that keeps it from dividing by 0.
const MEANS: [f32; 2] = [0.9, 0.999];
const TINY: f32 = 1e-8;

/// Each constant has a ninth of the steps. The result is the smallest perturbation within the ball, by its
/// norm.
pub const CW: Search = Search {
    smallest: true,
    ..usual(&schedules::CW, |setting, _| match setting.bound.ball.is_box {
        true => Box::new(CwLinf::new(setting)),
        false => Box::new(Cw::new(setting)),
    })
};

/// The rate of Adam, at which this many iterations can cross a ball of ε.
fn rate(eps: f32, iterations: usize) -> f32 {
    RATE.min(2.5 * eps / iterations as f32)
}

/// Adam on the pixels of an image [P].
struct Adam {
    rate: f32,
    /// Steps since the start.
    steps: usize,
    /// The running means of the gradient and of its square.
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Adam {
    fn new(pixels: usize, rate: f32) -> Adam {
        Adam { rate, steps: 0, mean: vec![0.0; pixels], square: vec![0.0; pixels] }
    }

    fn restart(&mut self, rate: f32) {
        (self.rate, self.steps) = (rate, 0);
        self.mean.fill(0.0);
        self.square.fill(0.0);
    }

    /// One step of x against `gradient`, a function of a pixel's place and value.
    fn step(&mut self, x: &mut [f32], gradient: impl Fn(usize, f32) -> f32) {
        self.steps += 1;
        let faded = MEANS.map(|m| 1.0 - m.powi(self.steps as i32));
        for (i, x) in x.iter_mut().enumerate() {
            let g = gradient(i, *x);
            self.mean[i] = MEANS[0] * self.mean[i] + (1.0 - MEANS[0]) * g;
            self.square[i] = MEANS[1] * self.square[i] + (1.0 - MEANS[1]) * g * g;
            *x -= self.rate * (self.mean[i] / faded[0]) / ((self.square[i] / faded[1]).sqrt() + TINY);
        }
    }
}

/// The search for the smallest Euclidean length.
struct Cw {
    /// Iterations per constant.
    per: usize,
    /// Constants that have been tried.
    rounds: usize,
    /// The constant, the largest that was too small, and the smallest that was large enough.
    c: f32,
    low: f32,
    high: Option<f32>,
    /// Whether an image was found with this constant.
    found: bool,
    adam: Adam,
    best: Smallest,
}

impl Cw {
    fn new(setting: &Setting) -> Cw {
        let per = cw_steps(setting.steps);
        Cw {
            per,
            rounds: 0,
            c: FIRST,
            low: 0.0,
            high: None,
            found: false,
            adam: Adam::new(setting.start.len(), rate(setting.bound.eps, per)),
            best: Smallest::new(setting.start),
        }
    }

    /// Goes to the next constant, and back to the clean image.
    fn next(&mut self, x: &mut [f32], bound: &Bound) {
        if self.found {
            self.high = Some(self.c);
        } else {
            self.low = self.c;
        }
        self.c = self.high.map_or(self.c * GROWTH, |high| (self.low + high) / 2.0);
        (self.rounds, self.found) = (self.rounds + 1, false);
        self.adam.restart(self.adam.rate);
        x.copy_from_slice(bound.centre);
    }
}

impl SearchState for Cw {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.found |= self.best.see(loss, x, bound);
        // [L]₊ has no gradient while L is below 0.
        let c = if loss > 0.0 { self.c / gradient.by } else { 0.0 };
        self.adam.step(x, |i, x| 2.0 * (x - bound.centre[i]) + c * gradient.values[i]);
        bound.project(x);
        if self.adam.steps == self.per {
            self.next(x, bound);
        }
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }

    fn done(&self) -> bool {
        self.rounds == CW_ROUNDS
    }
}

/// The search for the smallest maximum change of a pixel.
struct CwLinf {
    /// Iterations per constant.
    per: usize,
    /// The constant.
    c: f32,
    /// The free change of a pixel, at first ε.
    tau: f32,
    adam: Adam,
    best: Smallest,
}

impl CwLinf {
    fn new(setting: &Setting) -> CwLinf {
        let (per, tau) = (cw_steps(setting.steps), setting.bound.eps);
        CwLinf {
            per,
            c: FIRST,
            tau,
            adam: Adam::new(setting.start.len(), rate(tau, per)),
            best: Smallest::new(setting.start),
        }
    }
}

impl SearchState for CwLinf {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        let size = (bound.ball.size)(x, bound.centre);
        if self.best.see(loss, x, bound) && size <= self.tau {
            self.tau = DECREASE * size;
            self.adam.restart(rate(self.tau, self.per));
        } else if self.adam.steps == self.per {
            self.c *= DOUBLING;
            self.adam.restart(self.adam.rate);
        }
        let c = if loss > 0.0 { self.c / gradient.by } else { 0.0 };
        let tau = self.tau;
        self.adam.step(x, |i, x| {
            let delta = x - bound.centre[i];
            let outside = if delta.abs() > tau { delta.signum() } else { 0.0 };
            outside + c * gradient.values[i]
        });
        bound.project(x);
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }

    fn done(&self) -> bool {
        self.c > LARGEST
    }
}

#[cfg(test)]
mod tests {
    use super::super::smallest_tests::{found, plane};
    use super::*;
    use crate::ball::BALLS;

    #[test]
    fn the_nearest_point_of_a_plane_is_found() {
        for (ball, least, most) in [(0, 0.2142, 0.2185), (1, 0.3, 0.306)] {
            let (size, _, image) = found(&CW, ball, 9 * 100, plane);
            assert!((least..most).contains(&size), "{size} at {image:?}");
        }
    }

    /// τ falls by a tenth once the image is wrong and within τ, the search continues from this image, and c
    /// is doubled after this many iterations without such an image. By hand, for one pixel that is wrong from
    /// a change of 0.2 on, in the ball of ε 0.45.
    #[test]
    fn tau_falls_and_the_constant_grows() {
        let centre = [0.5f32];
        let bound = Bound { ball: &BALLS[0], eps: 0.45, centre: &centre, pixels: true, free: None };
        let setting =
            Setting { bound, start: &centre, warm: false, shape: [1, 1, 1], steps: 9 * 4, alpha: 0.0 };
        let mut walk = CwLinf::new(&setting);
        let mut x = vec![0.8f32];
        walk.step(&mut x, &bound, -0.1, Scaled::of(&[0.0]));
        // The first step of Adam is as long as its rate, inwards, because 0.3 is above τ.
        assert!((walk.tau - 0.27).abs() < 1e-6 && (x[0] - 0.79).abs() < 1e-6, "{} {x:?}", walk.tau);
        // Wrong, but not within τ: neither changes until the fourth iteration.
        for _ in 0..4 {
            assert_eq!(walk.c, FIRST);
            x[0] = 0.8;
            walk.step(&mut x, &bound, -0.1, Scaled::of(&[0.0]));
        }
        assert_eq!((walk.c, walk.adam.steps), (2.0 * FIRST, 1));
        assert!((walk.tau - 0.27).abs() < 1e-6 && !walk.done());
        walk.c = 16.0;
        for _ in 0..4 {
            walk.step(&mut x, &bound, 0.1, Scaled::of(&[0.0]));
        }
        assert!(walk.done(), "32 is above the largest constant");
    }
}

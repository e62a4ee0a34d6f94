//! The attack of Carlini & Wagner ("Towards Evaluating the Robustness of Neural Networks", S&P 2017): the smallest
//! perturbation by a penalty. It minimises ‖δ‖₂² + c·[L]₊ with Adam and bisects the constant c. L is below 0 where the
//! attack has succeeded.
//!
//! Pixels stay in [0, 1] by projection, the first of the three ways of section V.B. With the change of variables, pixels
//! at 0 or 1 hardly move within few iterations, and images of digits have no others.

use super::{Bound, Search, Setting, Smallest, Walk};

/// Values of c that are tried.
const ROUNDS: usize = 9;
/// The first c. Losses are distances, of the order of 1.
const FIRST: f32 = 1.0;
/// c grows by this factor until it is large enough for the first time.
const GROWTH: f32 = 10.0;
/// The rate of Adam, in pixels, where the ball is not smaller.
const RATE: f32 = 0.01;
/// The weights of the running means of Adam, and what keeps it from dividing by 0.
const MEANS: [f32; 2] = [0.9, 0.999];
const TINY: f32 = 1e-8;

/// The steps are shared among nine values of c. The result is the smallest perturbation within the ball, by its norm.
pub const CW: Search = Search {
    name: "cw",
    words: |steps, _| format!("Carlini & Wagner: {ROUNDS} constants, {} iterations each", per_round(steps)),
    needs_gradient: true,
    plain_steps: false,
    takes_alpha: false,
    begin: |setting, _| Box::new(Cw::new(setting)),
};

fn per_round(steps: usize) -> usize {
    (steps / ROUNDS).max(1)
}

struct Cw {
    /// Iterations per constant.
    per: usize,
    /// Constants that have been tried, and iterations with this one.
    rounds: usize,
    step: usize,
    /// The constant, the largest one that was too small, and the smallest one that was large enough.
    c: f32,
    low: f32,
    high: Option<f32>,
    /// Whether an image was found with this constant.
    found: bool,
    rate: f32,
    /// The running means of the gradient and of its square.
    mean: Vec<f32>,
    square: Vec<f32>,
    /// The factor of the next gradient.
    scale: f32,
    best: Smallest,
}

impl Cw {
    fn new(setting: &Setting) -> Cw {
        let (per, pixels) = (per_round(setting.steps), setting.start.len());
        Cw {
            per,
            rounds: 0,
            step: 0,
            c: FIRST,
            low: 0.0,
            high: None,
            found: false,
            rate: RATE.min(2.5 * setting.bound.eps / per as f32),
            mean: vec![0.0; pixels],
            square: vec![0.0; pixels],
            scale: 1.0,
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
        (self.rounds, self.step, self.found) = (self.rounds + 1, 0, false);
        self.mean.fill(0.0);
        self.square.fill(0.0);
        x.copy_from_slice(bound.centre);
    }
}

impl Walk for Cw {
    fn scaled(&mut self, by: f32) {
        self.scale = by;
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: &[f32]) {
        self.found |= self.best.see(loss, x, bound);
        // [L]₊ has no gradient where L is below 0.
        let c = if loss > 0.0 { self.c / self.scale } else { 0.0 };
        self.step += 1;
        let faded = MEANS.map(|m| 1.0 - m.powi(self.step as i32));
        for (i, x) in x.iter_mut().enumerate() {
            let g = 2.0 * (*x - bound.centre[i]) + c * gradient[i];
            self.mean[i] = MEANS[0] * self.mean[i] + (1.0 - MEANS[0]) * g;
            self.square[i] = MEANS[1] * self.square[i] + (1.0 - MEANS[1]) * g * g;
            *x -= self.rate * (self.mean[i] / faded[0]) / ((self.square[i] / faded[1]).sqrt() + TINY);
        }
        bound.project(x);
        if self.step == self.per {
            self.next(x, bound);
        }
    }

    fn best(&mut self) -> Option<(f64, Vec<f32>)> {
        self.best.take()
    }

    fn done(&self) -> bool {
        self.rounds == ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threat::ball::BALLS;

    /// The loss 0.3 − w·(x − c) with w = (3, 4)/5 is below 0 beyond a plane at distance 0.3: the nearest point of it is
    /// (0.18, 0.24) away. The gradient comes scaled, as the runner's does.
    #[test]
    fn the_nearest_point_of_a_plane_is_found() {
        let centre = [0.4f32, 0.4];
        let bound = Bound { ball: &BALLS[1], eps: 2.0, centre: &centre, pixels: true, free: None };
        let steps = 9 * 100;
        let setting = Setting { bound, start: &centre, warm: false, shape: [1, 1, 2], steps, alpha: 0.0 };
        let mut walk = Cw::new(&setting);
        let mut x = centre.to_vec();
        for _ in 0..steps {
            assert!(!walk.done());
            let loss = 0.3 - 0.6 * (x[0] - 0.4) - 0.8 * (x[1] - 0.4);
            walk.scaled(8.0);
            walk.step(&mut x, &bound, f64::from(loss), &[-0.6 * 8.0, -0.8 * 8.0]);
        }
        assert!(walk.done());
        let (_, image) = walk.best().unwrap();
        let size = (bound.ball.size)(&image, &centre);
        assert!((0.3..0.306).contains(&size), "{size} at {image:?}");
    }
}

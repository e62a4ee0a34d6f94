//! PGD with momentum in a ball whose radius falls to ε (multi-ε: Croce & Hein, "Mind the Box", ICML 2021, who
//! use it in ℓ1). A net that was trained within a ball hides small changes there: searches that begin at the
//! clean image stay near it, and those that come from far away find others. In a box the radius is ε from the
//! first step: the corners of the box that a signed step reaches are far away already.

use super::momentum::{DECAY, MomentumSum, SMALLEST};
use super::{Best, Bound, COSINE, Scaled, Search, SearchState, Setting, shrinking, usual};
use audit_report::facts::schedules;

/// The last radius is ε.
pub const MULTI_EPS: Search = usual(&schedules::MULTI_EPS, |setting, _| {
    let to = setting.bound.eps;
    Box::new(MultiEps::new(setting, if setting.bound.ball.is_box { to } else { setting.bound.widest() }, to))
});

/// In a box [`COSINE`], and elsewhere [`MULTI_EPS`]. For losses that momentum lowers no further in a box.
pub const COSINE_MULTI_EPS: Search = usual(&schedules::COSINE_MULTI_EPS, |setting, draw| {
    let search = if setting.bound.ball.is_box { COSINE } else { MULTI_EPS };
    (search.begin)(setting, draw)
});

/// The last radius is 0.8 of the size of the run's first image: for a smaller perturbation than this one.
pub const SMALLER_EPS: Search = usual(&schedules::MULTI_EPS, |setting, _| {
    let Bound { ball, centre, eps, .. } = setting.bound;
    let to = SMALLER * (ball.size)(setting.start, centre).min(eps);
    Box::new(MultiEps::new(setting, setting.bound.widest(), to))
});

/// By how much [`SMALLER_EPS`] tries to make a perturbation smaller.
const SMALLER: f32 = 0.8;
/// The share of the steps in which the radius falls, by the same factor each; it then stays.
const FALLING: f32 = 0.6;

struct MultiEps {
    /// The first radius and the last.
    radius: [f32; 2],
    /// The size of a step in the ball of radius ε. In another it is in proportion.
    alpha: f32,
    steps: usize,
    step: usize,
    sum: MomentumSum,
    /// Of the images within the last radius.
    best: Best,
}

impl MultiEps {
    fn new(setting: &Setting, from: f32, to: f32) -> MultiEps {
        let Setting { alpha, steps, start, bound, .. } = *setting;
        MultiEps {
            radius: [from.max(to), to],
            alpha,
            steps,
            step: 0,
            sum: MomentumSum::new(start.len(), DECAY),
            best: Best::new(bound.centre),
        }
    }

    /// The radius after this step.
    fn radius(&self) -> f32 {
        let [from, to] = self.radius;
        let gone = self.step as f32 / (FALLING * self.steps as f32).max(1.0);
        to * (from / to).powf((1.0 - gone).max(0.0))
    }
}

impl SearchState for MultiEps {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        let [_, to] = self.radius;
        if (bound.ball.size)(x, bound.centre) <= bound.ball.largest(to) {
            self.best.see(loss, x);
        }
        self.sum.add(gradient.values);
        self.step += 1;
        // The last image lies within the last radius, however few steps there are.
        let radius = if self.step >= self.steps { to } else { self.radius() };
        let size = shrinking(self.alpha, self.step - 1, self.steps) + SMALLEST * self.alpha;
        Bound { eps: radius, ..*bound }.descend(x, &self.sum.values, size * (radius / bound.eps));
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MOMENTUM;
    use super::*;
    use crate::ball::BALLS;
    use crate::draw::Draw;

    /// The lowest loss that a search finds within `eps` of (0.2, 0.5) in 60 steps, and the size of its image.
    /// Along the first value the loss has a valley at 0.2 and a ridge at 0.48, and is below 0 from 0.515 on.
    fn lowest(search: &Search, ball: usize, eps: f32) -> (f64, f32) {
        let centre = [0.2f32, 0.5];
        let bound = Bound { ball: &BALLS[ball], eps, centre: &centre, pixels: true, free: None };
        let setting =
            Setting { bound, start: &centre, warm: false, shape: [1, 1, 2], steps: 60, alpha: eps / 2.0 };
        let of = |x: &[f32]| {
            if x[0] < 0.48 {
                return (f64::from((x[0] - 0.2).abs()), [(x[0] - 0.2).signum(), 0.01]);
            }
            (f64::from(0.28 - 8.0 * (x[0] - 0.48)), [-8.0, 0.01])
        };
        let mut walk = (search.begin)(&setting, Draw::new(0, "R1", "", 1));
        let mut x = vec![0.21, 0.5];
        for _ in 0..60 {
            let (loss, gradient) = of(&x);
            walk.step(&mut x, &bound, loss, Scaled::of(&gradient));
        }
        assert!((bound.ball.size)(&x, &centre) <= eps + 1e-5);
        let (loss, image) = walk.best().unwrap();
        (loss, (bound.ball.size)(&image, &centre))
    }

    /// In a box both are the same search, to the last bit.
    #[test]
    fn in_a_box_it_is_pgd_with_momentum() {
        assert_eq!(lowest(&MULTI_EPS, 0, 0.35), lowest(&MOMENTUM, 0, 0.35));
    }

    /// Expected: the searches that it consists of.
    #[test]
    fn in_a_box_it_takes_the_steps_of_cosine_and_elsewhere_comes_from_far_away() {
        assert_eq!(lowest(&COSINE_MULTI_EPS, 0, 0.35), lowest(&COSINE, 0, 0.35));
        assert_eq!(lowest(&COSINE_MULTI_EPS, 1, 0.35), lowest(&MULTI_EPS, 1, 0.35));
        assert_ne!(lowest(&COSINE, 1, 0.35), lowest(&MULTI_EPS, 1, 0.35));
    }

    #[test]
    fn from_far_away_it_comes_down_on_the_other_side_of_a_ridge() {
        let (without, _) = lowest(&MOMENTUM, 1, 0.35);
        let (with, size) = lowest(&MULTI_EPS, 1, 0.35);
        assert!(with < 0.0 && without > 0.0 && size <= 0.35 + 1e-5, "{with} and {without}, size {size}");
    }
}

//! APGD (Croce & Hein, ICML 2020, algorithm 1). Steps are large and have momentum. When the loss stops
//! decreasing, the step size is halved and the search restarts from the best image so far. The best image is
//! the result.

use super::{Best, Bound, Scaled, Search, SearchState, Setting, usual};
use audit_report::facts::schedules;

/// The step size is 2ε at first and then follows from the loss; α is not used.
pub const APGD: Search = usual(&schedules::APGD, |setting, _| Box::new(Apgd::new(setting)));

/// Share of the steps between two checkpoints that must decrease the loss (ρ).
const ENOUGH: f64 = 0.75;
/// Weight of the new step relative to the momentum.
const STEP_WEIGHT: f32 = 0.75;

struct Apgd {
    /// The step size.
    alpha: f32,
    /// Step numbers at which the step size is reconsidered, in descending order.
    checkpoints: Vec<usize>,
    step: usize,
    /// The image that the latest gradient belongs to.
    at: Vec<f32>,
    /// The image before `at`.
    before: Vec<f32>,
    /// The latest loss; `None` at the start.
    loss: Option<f64>,
    /// Steps since the last checkpoint whose effect is known, and how many of them decreased the loss.
    since: (usize, usize),
    /// State at the last checkpoint: whether the step size was halved, and the best loss.
    halved: bool,
    best_then: f64,
    /// The lowest loss and its image.
    best: Best,
    /// The gradient at this image, which a restart steps along.
    best_gradient: Vec<f32>,
}

impl Apgd {
    fn new(setting: &Setting) -> Apgd {
        let Setting { steps, start, .. } = *setting;
        // w_j = ⌈p_j·T⌉ with p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06); `last` and
        // `next` are p in hundredths.
        let (mut last, mut next) = (0usize, 22usize);
        let mut checkpoints = Vec::new();
        while next < 100 {
            checkpoints.push((next * steps).div_ceil(100));
            (last, next) = (next, next + (next - last).saturating_sub(3).max(6));
        }
        checkpoints.dedup();
        checkpoints.reverse();
        let eps = setting.bound.eps;
        Apgd {
            // A single step has the size ε, as in FGSM.
            alpha: if steps == 1 { eps } else { 2.0 * eps },
            checkpoints,
            step: 0,
            at: start.to_vec(),
            before: start.to_vec(),
            loss: None,
            since: (0, 0),
            halved: false,
            best_then: f64::INFINITY,
            best: Best::new(start),
            best_gradient: vec![0.0; start.len()],
        }
    }

    /// Halves the step size if the steps since the last checkpoint helped too little. The search then goes on
    /// from the best image; returns whether it does.
    fn reconsider(&mut self) -> bool {
        self.checkpoints.pop();
        let few = (self.since.1 as f64) < ENOUGH * self.since.0 as f64;
        let idle = !self.halved && self.best.loss >= self.best_then;
        self.halved = few || idle;
        if self.halved {
            self.alpha /= 2.0;
            self.at.copy_from_slice(&self.best.image);
            self.before.copy_from_slice(&self.best.image);
            self.loss = Some(self.best.loss);
        }
        self.best_then = self.best.loss;
        self.since = (0, 0);
        self.halved
    }
}

impl SearchState for Apgd {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        if let Some(previous) = self.loss.replace(loss) {
            self.since.0 += 1;
            self.since.1 += usize::from(loss < previous);
        }
        if loss < self.best.loss {
            self.best.see(loss, &self.at);
            self.best_gradient.copy_from_slice(gradient.values);
        }
        let at_checkpoint = self.checkpoints.last().is_some_and(|&w| self.step >= w);
        match at_checkpoint && self.reconsider() {
            true => {
                x.copy_from_slice(&self.at);
                bound.descend(x, &self.best_gradient, self.alpha);
            }
            false => bound.descend(x, gradient.values, self.alpha),
        }
        self.step += 1;
        // x ← P(x_k + 0.75(x − x_k) + 0.25(x_k − x_{k−1})). The first step has no momentum.
        if self.step > 1 {
            for (x, (at, before)) in x.iter_mut().zip(self.at.iter().zip(&self.before)) {
                *x = at + STEP_WEIGHT * (*x - at) + (1.0 - STEP_WEIGHT) * (at - before);
            }
            bound.project(x);
        }
        std::mem::swap(&mut self.before, &mut self.at);
        self.at.copy_from_slice(x);
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ball::BALLS;

    fn setting<'a>(steps: usize, start: &'a [f32], centre: &'a [f32]) -> Setting<'a> {
        let bound = Bound { ball: &BALLS[0], eps: 0.5, centre, pixels: true, free: None };
        Setting { bound, start, warm: false, shape: [1, 1, 1], steps, alpha: 0.0 }
    }

    #[test]
    fn checkpoints_of_the_paper() {
        let mut found = Apgd::new(&setting(100, &[0.0], &[0.5])).checkpoints;
        found.reverse();
        assert_eq!(found, [22, 41, 57, 70, 80, 87, 93, 99]);
        assert!(Apgd::new(&setting(1, &[0.0], &[0.5])).checkpoints.iter().all(|&w| w == 1));
    }

    /// Minimises |x − 0.3| in the box [0, 1] with signed steps. A fixed step of 0.4 would never settle at the
    /// minimum.
    #[test]
    fn steps_shrink_until_the_bottom_is_found() {
        let mut x = vec![0.9f32];
        let of = setting(100, &[0.9], &[0.5]);
        let mut walk = Apgd { alpha: 0.4, ..Apgd::new(&of) };
        for _ in 0..100 {
            let (loss, slope) = (f64::from((x[0] - 0.3).abs()), (x[0] - 0.3).signum());
            walk.step(&mut x, &of.bound, loss, Scaled::of(&[slope]));
        }
        assert!(walk.alpha <= 0.4 / 16.0);
        let (loss, best) = Box::new(walk).best().unwrap();
        assert!(loss < 0.01 && (best[0] - 0.3).abs() < 0.01, "{loss} at {best:?}");
    }

    /// The step size stays the same while every step decreases the loss.
    #[test]
    fn steps_that_help_are_kept() {
        let mut x = vec![1.0f32];
        let of = setting(100, &[1.0], &[0.5]);
        let mut walk = Apgd { alpha: 0.004, ..Apgd::new(&of) };
        for _ in 0..100 {
            let loss = f64::from(x[0]);
            walk.step(&mut x, &of.bound, loss, Scaled::of(&[1.0]));
        }
        assert_eq!(walk.alpha, 0.004);
        assert!(x[0] < 0.61);
    }
}

//! PGD with momentum (MI-FGSM: Dong et al., CVPR 2018, algorithm 1). Momentum carries an image across the
//! kinks of nets with ReLU, where the plain step jumps back and forth. Steps shrink, but not to zero. The
//! best image is the result.

use super::{Best, Bound, Scaled, Search, SearchState, Setting, shrinking, usual};
use audit_report::facts::schedules;

/// m ← μ·m + ∇L/mean|∇L| and x ← P(x − (α/2·(1 + cos(π·t/T)) + α/46)·s(m)), T times.
pub const MOMENTUM: Search = usual(&schedules::MOMENTUM, |setting, _| {
    let Setting { alpha, steps, start, .. } = *setting;
    let (sum, best) = (MomentumSum::new(start.len(), DECAY), Best::new(start));
    Box::new(Momentum { alpha, steps, step: 0, sum, best })
});

/// The share of the momentum that a step keeps (μ). Between 0.5 and 0.9 results hardly differ.
pub(super) const DECAY: f32 = 0.75;
/// The last steps have this share of α: 0.13 grey levels if α is 6. Shorter steps no longer change which
/// image is nearest.
pub(super) const SMALLEST: f32 = 1.0 / 46.0;

/// The sum of the gradients so far, each divided by its mean magnitude, with weights that fall with their
/// age.
pub(super) struct MomentumSum {
    /// [P].
    pub values: Vec<f32>,
    /// The share that a step keeps.
    decay: f32,
}

impl MomentumSum {
    /// The sum of no gradients, for images of `length` values.
    pub fn new(length: usize, decay: f32) -> MomentumSum {
        MomentumSum { values: vec![0.0; length], decay }
    }

    /// Adds a gradient [P]. One of zeros leaves the direction as it is.
    pub fn add(&mut self, gradient: &[f32]) {
        let mean = gradient.iter().map(|g| f64::from(g.abs())).sum::<f64>() / gradient.len() as f64;
        let factor = if mean > 0.0 { 1.0 / mean } else { 0.0 };
        for (sum, g) in self.values.iter_mut().zip(gradient) {
            *sum = self.decay * *sum + (f64::from(*g) * factor) as f32;
        }
    }
}

struct Momentum {
    alpha: f32,
    steps: usize,
    step: usize,
    sum: MomentumSum,
    best: Best,
}

impl SearchState for Momentum {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.best.see(loss, x);
        self.sum.add(gradient.values);
        let size = shrinking(self.alpha, self.step, self.steps) + SMALLEST * self.alpha;
        bound.descend(x, &self.sum.values, size);
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::super::COSINE;
    use super::*;
    use crate::ball::BALLS;
    use crate::draw::Draw;

    /// The lowest loss |a − b| + 0.1·(2 − a − b) that a search finds from (0.2, 0.2) in the box [0, 1]², in
    /// 60 steps of half the radius. Across the valley a = b the sign of the gradient changes; along it the
    /// loss falls to 0 at (1, 1).
    fn lowest(search: &Search, centre: [f32; 2]) -> f64 {
        let loss = |x: &[f32]| f64::from((x[0] - x[1]).abs() + 0.1 * (2.0 - x[0] - x[1]));
        let bound = Bound { ball: &BALLS[0], eps: 0.4, centre: &centre, pixels: true, free: None };
        let setting = Setting { bound, start: &centre, warm: false, shape: [1, 1, 2], steps: 60, alpha: 0.2 };
        let mut walk = (search.begin)(&setting, Draw::new(0, "R1", "", 1));
        let mut x = centre.to_vec();
        for _ in 0..60 {
            let across = (x[0] - x[1]).signum();
            let at = loss(&x);
            walk.step(&mut x, &bound, at, Scaled::of(&[across - 0.1, -across - 0.1]));
        }
        walk.best().unwrap().0
    }

    #[test]
    fn momentum_goes_along_a_valley_that_plain_steps_only_cross() {
        let (with, without) = (lowest(&MOMENTUM, [0.2, 0.3]), lowest(&COSINE, [0.2, 0.3]));
        // The box ends at (0.6, 0.7): the loss at its best point (0.6, 0.6) is 0.08.
        assert!(with < without - 0.02 && with >= 0.08 - 1e-6, "{with} and {without}");
    }

    /// Algorithm 1 of the paper by hand, with μ = 0.75 and this file's step sizes.
    #[test]
    fn two_steps_are_those_of_the_paper() {
        let bound = Bound { ball: &BALLS[0], eps: 0.5, centre: &[0.5, 0.5], pixels: true, free: None };
        let start = [0.5f32, 0.5];
        let setting = Setting { bound, start: &start, warm: false, shape: [1, 1, 2], steps: 2, alpha: 0.1 };
        let mut walk = (MOMENTUM.begin)(&setting, Draw::new(0, "R1", "", 1));
        let mut x = start.to_vec();
        walk.step(&mut x, &bound, 1.0, Scaled::of(&[3.0, -1.0]));
        let first = 0.1 + 0.1 / 46.0;
        assert!((x[0] - (0.5 - first)).abs() < 1e-6 && (x[1] - (0.5 + first)).abs() < 1e-6, "{x:?}");
        // 0.75·(1.5, −0.5) + (−1, 1) = (0.125, 0.625): the first value goes on against the new gradient.
        walk.step(&mut x, &bound, 0.5, Scaled::of(&[-2.0, 2.0]));
        let second = 0.05 + 0.1 / 46.0;
        assert!(
            (x[0] - (0.5 - first - second)).abs() < 1e-6 && (x[1] - (0.5 + first - second)).abs() < 1e-6,
            "{x:?}"
        );
        // Without a gradient the direction stays.
        let before = x.clone();
        walk.step(&mut x, &bound, 0.4, Scaled::of(&[0.0, 0.0]));
        assert!(x[0] < before[0] && x[1] < before[1], "{x:?}");
    }
}

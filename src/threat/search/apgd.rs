//! APGD's step size (Croce & Hein, ICML 2020, algorithm 1): large steps with momentum, halved and restarted
//! from the best image so far whenever the loss stops falling.

pub use crate::record::Schedule;

/// Share of the steps between two checkpoints that must lower the loss (ρ).
const ENOUGH: f64 = 0.75;
/// Weight of a step against the movement before it.
const STEP_WEIGHT: f32 = 0.75;

/// The state of one run under [`Schedule::Adaptive`].
pub struct Adaptive {
    /// Steps at whose end the step size is reconsidered, descending: the next one last.
    checkpoints: Vec<usize>,
    /// Steps made.
    step: usize,
    /// The image that the latest gradient belongs to.
    at: Vec<f32>,
    /// The one before it.
    before: Vec<f32>,
    /// The latest loss; `None` at the start and after going back, where there is none to compare the next
    /// with.
    loss: Option<f64>,
    /// Steps since the last checkpoint whose effect is known, and how many of them lowered the loss.
    since: (usize, usize),
    /// At the last checkpoint: whether the step was halved, and the best loss.
    halved: bool,
    best_then: f64,
    /// Lowest loss and its image.
    best: (f64, Vec<f32>),
}

impl Adaptive {
    /// A run of `steps` steps from the image `start`.
    pub fn new(steps: usize, start: &[f32]) -> Self {
        // w_j = ⌈p_j·T⌉ with p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06); p in
        // hundredths
        let (mut last, mut next) = (0usize, 22usize);
        let mut checkpoints = Vec::new();
        while next < 100 {
            checkpoints.push((next * steps).div_ceil(100));
            (last, next) = (next, next + (next - last).saturating_sub(3).max(6));
        }
        checkpoints.dedup();
        checkpoints.reverse();
        Adaptive {
            checkpoints,
            step: 0,
            at: start.to_vec(),
            before: start.to_vec(),
            loss: None,
            since: (0, 0),
            halved: false,
            best_then: f64::INFINITY,
            best: (f64::INFINITY, start.to_vec()),
        }
    }

    /// Takes in a step: `loss` was found at the image before it, `x` is the image after it, in the box
    /// `lo`..`hi`. Replaces `x` by the image to go on from and adjusts the step size `alpha`.
    ///
    /// The loss at `x` itself will be known one step later, so that going back to the best image costs one
    /// step.
    pub fn after_step(&mut self, loss: f64, x: &mut [f32], lo: &[f32], hi: &[f32], alpha: &mut f32) {
        if let Some(previous) = self.loss.replace(loss) {
            self.since.0 += 1;
            self.since.1 += usize::from(loss < previous);
        }
        if loss < self.best.0 {
            self.best = (loss, self.at.clone());
        }
        self.step += 1;
        // x ← P(x_k + 0.75(x − x_k) + 0.25(x_k − x_{k−1})); no momentum in the first step
        if self.step > 1 {
            for i in 0..x.len() {
                let momentum = self.at[i] - self.before[i];
                let moved = self.at[i] + STEP_WEIGHT * (x[i] - self.at[i]) + (1.0 - STEP_WEIGHT) * momentum;
                x[i] = moved.clamp(lo[i], hi[i]);
            }
        }
        std::mem::swap(&mut self.before, &mut self.at);
        self.at.copy_from_slice(x);
        if self.checkpoints.last().is_some_and(|&w| self.step >= w) {
            self.checkpoints.pop();
            let few = (self.since.1 as f64) < ENOUGH * self.since.0 as f64;
            let idle = !self.halved && self.best.0 >= self.best_then;
            self.halved = few || idle;
            if self.halved {
                *alpha /= 2.0;
                x.copy_from_slice(&self.best.1);
                self.at.copy_from_slice(x);
                self.before.copy_from_slice(x);
                self.loss = None;
            }
            self.best_then = self.best.0;
            self.since = (0, 0);
        }
    }

    /// The image with the lowest loss, and that loss.
    pub fn into_best(self) -> (f64, Vec<f32>) {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_of_the_paper() {
        let mut found = Adaptive::new(100, &[0.0]).checkpoints;
        found.reverse();
        assert_eq!(found, [22, 41, 57, 70, 80, 87, 93, 99]);
        assert!(Adaptive::new(1, &[0.0]).checkpoints.iter().all(|&w| w == 1));
    }

    /// |x − 0.3| in the box [0, 1], by signs: a fixed step of 0.4 would jump over the bottom for ever.
    #[test]
    fn steps_shrink_until_the_bottom_is_found() {
        let mut x = vec![0.9f32];
        let mut alpha = 0.4;
        let mut adaptive = Adaptive::new(100, &x);
        for _ in 0..100 {
            let loss = f64::from((x[0] - 0.3).abs());
            x[0] = (x[0] - alpha * (x[0] - 0.3).signum()).clamp(0.0, 1.0);
            adaptive.after_step(loss, &mut x, &[0.0], &[1.0], &mut alpha);
        }
        let (loss, best) = adaptive.into_best();
        assert!(loss < 0.01 && (best[0] - 0.3).abs() < 0.01, "{loss} at {best:?}, step {alpha}");
        assert!(alpha <= 0.4 / 16.0);
    }

    /// While the loss falls with every step, the step stays.
    #[test]
    fn steps_that_help_are_kept() {
        let mut x = vec![1.0f32];
        let mut alpha = 0.004;
        let mut adaptive = Adaptive::new(100, &x);
        for _ in 0..100 {
            let loss = f64::from(x[0]);
            x[0] = (x[0] - alpha).clamp(0.0, 1.0);
            adaptive.after_step(loss, &mut x, &[0.0], &[1.0], &mut alpha);
        }
        assert_eq!(alpha, 0.004);
        assert!(x[0] < 0.61);
    }
}

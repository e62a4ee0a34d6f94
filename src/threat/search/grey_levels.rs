//! PGD with momentum whose images have whole grey levels, n/255, as a file of 8 bits a channel holds them. Steps add up unrounded; losses
//! and gradients are those of the rounded image.

use super::{Best, Bound, Scaled, Search, Setting, Walk, shrinking};

/// Not a schedule of suites: it makes images of a file out of images that another search found.
pub const GREY_LEVELS: Search = Search {
    name: "momentum, 8 bits",
    words: |steps, _| format!("{steps} steps with momentum, rounded to grey levels"),
    needs_gradient: true,
    plain_steps: false,
    takes_alpha: false,
    smallest: false,
    begin: |setting, _| Box::new(GreyLevels::new(setting)),
};

/// The share of the momentum that a step keeps.
const KEPT: f32 = 0.75;
/// How far a level may lie outside of the ball, in levels: ε of whole levels is rounded on its way.
const ROUNDING: f32 = 2e-4;

/// Moves each value of x [P] to the nearest whole grey level in the set. Values that must stay the centre's stay, as do those near which
/// the set holds no level.
pub fn round(x: &mut [f32], bound: &Bound) {
    for (i, v) in x.iter_mut().enumerate() {
        if bound.free.is_some_and(|free| !free[i]) {
            continue;
        }
        let (low, high) = bound.interval(bound.centre[i]);
        let [low, high] = [(low * 255.0 - ROUNDING).ceil(), (high * 255.0 + ROUNDING).floor()];
        if low <= high {
            *v = ((*v * 255.0).round().clamp(low, high) / 255.0).clamp(0.0, 1.0);
        }
    }
}

struct GreyLevels {
    steps: usize,
    /// Steps made.
    step: usize,
    /// The image before rounding [P].
    exact: Vec<f32>,
    /// The sum of the gradients so far, each divided by its mean magnitude, with weights that fall with their age [P].
    sum: Vec<f32>,
    best: Best,
    first: Option<Vec<f32>>,
}

impl GreyLevels {
    fn new(setting: &Setting) -> GreyLevels {
        let mut first = setting.start.to_vec();
        round(&mut first, &setting.bound);
        GreyLevels {
            steps: setting.steps,
            step: 0,
            exact: setting.start.to_vec(),
            sum: vec![0.0; first.len()],
            best: Best::new(&first),
            first: Some(first),
        }
    }
}

impl Walk for GreyLevels {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.best.see(loss, x);
        let mean = gradient.values.iter().map(|g| f64::from(g.abs())).sum::<f64>() / x.len() as f64;
        let factor = if mean > 0.0 { 1.0 / mean } else { 0.0 };
        for (sum, g) in self.sum.iter_mut().zip(gradient.values) {
            *sum = KEPT * *sum + (f64::from(*g) * factor) as f32;
        }
        let alpha = shrinking(bound.eps, self.step, self.steps).max(0.5 / 255.0);
        bound.descend(&mut self.exact, &self.sum, alpha);
        x.copy_from_slice(&self.exact);
        round(x, bound);
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

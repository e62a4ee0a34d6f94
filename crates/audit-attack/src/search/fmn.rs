//! The smallest perturbation by steps in a ball whose radius follows them (FMN: Pintor et al., "Fast
//! Minimum-norm Adversarial Attacks through Adaptive Norm Constraints", NeurIPS 2021, algorithm 1). While the
//! loss is not yet below 0, the radius is the distance of the border by a linear model; later it shrinks
//! below the smallest perturbation found, and grows if that is too small. Deviations: the linear model also
//! says how far the radius may fall, so that a few steps are enough on nets without a defence, whose borders
//! are nearly straight. Steps follow a momentum, are signed in the box, are a share of the radius, and the
//! radius changes by other factors than in the paper.

use super::momentum::MomentumSum;
use super::{Bound, Scaled, Search, SearchState, Setting, Smallest, shrinking, usual};
use audit_report::facts::schedules;

/// Steps follow the momentum of the gradients, and shrink with the radius.
pub const FMN: Search = Search {
    smallest: true,
    ..usual(&schedules::FMN, |setting, _| {
        let Setting { steps, start, .. } = *setting;
        let (sum, best) = (MomentumSum::new(start.len(), DECAY), Smallest::new(start));
        Box::new(Fmn { steps, step: 0, eps: 0.0, sum, best })
    })
};

/// By how much the radius changes in the first steps (γ). It shrinks to almost nothing.
const CHANGE: f32 = 0.2;
/// The smallest change of the radius. A smaller gain isn't worth a step.
const LEAST: f32 = 0.005;
/// The radius never falls below this share of the smallest perturbation found, whatever the linear model
/// says.
const LOWEST: f32 = 0.4;
/// The way to the linear model's border is longer by this share if an image is before it, and shorter if it
/// is beyond, so that the next image lands beyond it.
const BEYOND: f32 = 0.03;
/// The share of the momentum that a step keeps.
const DECAY: f32 = 0.5;

struct Fmn {
    steps: usize,
    step: usize,
    /// The radius that the next image must stay in.
    eps: f32,
    sum: MomentumSum,
    best: Smallest,
}

impl Fmn {
    /// The radius after an image of this `size` and `loss`. `slope` is how much a linear loss falls with each
    /// unit of the radius.
    fn radius(&self, bound: &Bound, size: f32, loss: f64, slope: f64) -> f32 {
        // Of a slope near 0 it would be infinite, and the next line a NaN.
        let way = ((loss / slope) as f32).clamp(f32::MIN, f32::MAX);
        let border = if slope > 0.0 { size + way + way.abs() * BEYOND } else { bound.eps };
        let change = shrinking(CHANGE, self.step, self.steps).max(LEAST);
        let Some(smallest) = self.best.found.as_ref().map(|(size, _)| *size) else {
            return border.max(size * (1.0 + change)).min(bound.eps);
        };
        let below = smallest * (1.0 - change);
        match loss < 0.0 {
            true => border.clamp(LOWEST * smallest, below),
            false => (self.eps * (1.0 + change)).min(smallest * (1.0 - LEAST)),
        }
    }
}

impl SearchState for Fmn {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.best.see(loss, x, bound);
        let size = (bound.ball.size)(x, bound.centre);
        let slope = bound.dual(gradient.values) / f64::from(gradient.by);
        self.eps = self.radius(bound, size, loss, slope);
        self.sum.add(gradient.values);
        // From the centre one step reaches the border of the ball.
        let alpha =
            self.eps * if size == 0.0 { 1.0 } else { shrinking(1.0, self.step, self.steps).max(0.05) };
        Bound { eps: self.eps, ..*bound }.descend(x, &self.sum.values, alpha);
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::super::smallest_tests::{found, plane, walked};
    use super::*;
    use crate::ball::BALLS;

    /// A linear loss is what the model of the border assumes: two steps come within 3 %.
    #[test]
    fn the_border_of_a_plane_is_found_at_once() {
        for (ball, nearest) in [(0, 0.3 / 1.4), (1, 0.3)] {
            let (size, loss, _) = found(&FMN, ball, 2, plane);
            assert!(loss < 0.0 && size / nearest < 1.04, "{ball}: {size}, loss {loss}");
            let (size, ..) = found(&FMN, ball, 40, plane);
            assert!((1.0..1.01).contains(&(size / nearest)), "{ball}: {size}");
        }
    }

    /// The border of 0.2 − (x − 0.4)² in one axis is at √0.2 = 0.4472, far from the estimate by the gradient
    /// at the start. In both balls it is found to 1 %.
    #[test]
    fn a_curved_border_is_found() {
        let bent = |x: &[f32]| {
            let way = x[0] - 0.4 + 1e-3;
            (0.2 - way * way, vec![-2.0 * way, 0.0])
        };
        for ball in [0, 1] {
            let (size, loss, _) = found(&FMN, ball, 60, bent);
            assert!(loss < 0.0 && (0.446..0.452).contains(&size), "{ball}: {size}, loss {loss}");
        }
    }

    /// A border beyond the largest ball is not found, and the lowest loss is the result.
    #[test]
    fn the_largest_ball_is_kept_to() {
        let (size, loss, _) = found(&FMN, 0, 20, |x| (plane(x).0 + 1.0, plane(x).1));
        assert!(loss > 0.0 && size <= 0.5 + 1e-6, "{size}, loss {loss}");
    }

    /// Behind saturated operators a gradient is tiny, and the way back to the border longer than any float.
    #[test]
    fn a_slope_near_zero_moves_no_image_to_nan() {
        let bound = Bound { ball: &BALLS[1], eps: 0.5, centre: &[0.4, 0.4], pixels: true, free: None };
        let loss = |x: &[f32]| if x[0] > 0.5 { -1.0 } else { 0.1 };
        let seen = |x: &[f32]| {
            assert!(x.iter().all(|v| v.is_finite()), "{x:?}");
            (loss(x), vec![if x[0] > 0.5 { -1e-42 } else { -1.0 }, 0.0])
        };
        let (found, image, _) = walked(&FMN, bound, 5, seen);
        assert!(found < 0.0 && image[0] > 0.5, "{found} at {image:?}");
    }

    /// Only one of 100 values may change. The slope over all of them would make the first radius a hundredth
    /// of the border's distance, 0.2, and a few steps would not reach it.
    #[test]
    fn values_that_may_not_change_have_no_part_in_the_slope() {
        let (centre, free) = ([0.5f32; 100], Vec::from_iter((0..100).map(|i| i == 7)));
        let bound = Bound { ball: &BALLS[0], eps: 0.5, centre: &centre, pixels: true, free: Some(&free) };
        let (loss, image, _) = walked(&FMN, bound, 3, |x| (0.2 - (x[7] - 0.5), vec![-1.0; 100]));
        assert!(loss < 0.0 && (0.7..0.71).contains(&image[7]), "{loss}, {}", image[7]);
    }
}

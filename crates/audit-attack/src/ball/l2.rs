//! The Euclidean norm: the change of all pixels together has length at most ε.

use super::Ball;
use audit_report::facts::norms;

/// ‖x − x0‖₂ ≤ ε.
pub const L2: Ball = Ball {
    facts: &norms::L2,
    size: |x, centre| length(x.iter().zip(centre).map(|(a, b)| a - b)),
    project: |x, centre, eps| {
        let size = length(x.iter().zip(centre).map(|(a, b)| a - b));
        if size > eps {
            let share = eps / size;
            x.iter_mut().zip(centre).for_each(|(v, c)| *v = c + (*v - c) * share);
        }
    },
    // A point is uniform in the ball if its direction is normal and the P-th power of its radius is uniform.
    start: |x, bound, draw| {
        let direction: Vec<f32> = x.iter().map(|_| draw.normal()).collect();
        let radius = bound.eps * draw.unit().powf(1.0 / x.len().max(1) as f32);
        let per = radius / length(direction.iter().copied()).max(f32::MIN_POSITIVE);
        x.iter_mut().zip(direction).for_each(|(v, d)| *v += d * per);
    },
    descend: |x, gradient, alpha| {
        // Dividing by the largest entry keeps the squares of small gradients from underflowing, even in
        // float64.
        let largest = gradient.iter().fold(0.0f32, |most, g| g.abs().max(most));
        if largest > 0.0 && largest.is_finite() {
            let per = alpha / length(gradient.iter().map(|g| g / largest));
            x.iter_mut().zip(gradient).for_each(|(v, g)| *v -= g / largest * per);
        }
    },
    dual: |gradient| f64::from(length(gradient.iter().copied())),
    widest: |values| (values as f32).sqrt(),
    amplitude: |eps, values| eps / (values.max(1) as f32).sqrt(),
};

fn length(values: impl Iterator<Item = f32>) -> f32 {
    values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt() as f32
}

//! The maximum norm: no pixel changes by more than ε.

use super::Ball;
use audit_report::facts::norms;

/// max |x − x0| ≤ ε.
pub const LINF: Ball = Ball {
    facts: &norms::LINF,
    size: |x, centre| x.iter().zip(centre).fold(0.0, |most, (a, b)| (a - b).abs().max(most)),
    project: |x, centre, eps| {
        for (v, c) in x.iter_mut().zip(centre) {
            *v = v.max(c - eps).min(c + eps);
        }
    },
    start: |x, bound, draw| {
        for v in x {
            // The start is uniform in the part of the box within [0,1].
            let (low, high) = bound.interval(*v);
            *v = (low + draw.unit() * (high - low)).clamp(low, high);
        }
    },
    descend: |x, gradient, alpha| {
        for (v, g) in x.iter_mut().zip(gradient) {
            let sign = if *g == 0.0 { 0.0 } else { g.signum() };
            *v -= alpha * sign;
        }
    },
    dual: |gradient| gradient.iter().map(|g| f64::from(g.abs())).sum(),
    widest: |_| 1.0,
    amplitude: |eps, _| eps,
};

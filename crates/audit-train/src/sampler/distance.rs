//! By the inverse density of distances on the unit sphere (Wu et al. 2017), distances held in [0.5, 1.4].

use super::{Mined, Sampler};

pub const SAMPLER: Sampler = Sampler {
    name: "distance",
    about: "by the inverse density of its distance on the sphere",
    weight: |batch, anchor, _, candidate| {
        // Relative to the largest that any distance in the range can have, so that nothing overflows.
        let highest = log_weight(batch, LOW).max(log_weight(batch, HIGH));
        (log_weight(batch, batch.distance(anchor, candidate)) - highest).exp()
    },
};

const LOW: f64 = 0.5;
const HIGH: f64 = 1.4;

fn log_weight(batch: &Mined, distance: f64) -> f64 {
    let (d, dim) = (distance.clamp(LOW, HIGH), batch.dim as f64);
    (2.0 - dim) * d.ln() - (dim - 3.0) / 2.0 * (1.0 - d * d / 4.0).ln()
}

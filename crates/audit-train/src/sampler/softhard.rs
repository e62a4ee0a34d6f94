//! Nearer than the farthest image of the anchor's class (Roth and Brattoli's code; with two images of a class in a batch
//! that is the positive).

use super::Sampler;

pub const SAMPLER: Sampler = Sampler {
    name: "softhard",
    about: "nearer than the positive",
    weight: |batch, anchor, positive, candidate| {
        f64::from(u8::from(batch.distance(anchor, candidate) < batch.distance(anchor, positive)))
    },
};

//! The nearest image of another class.

use super::Sampler;

pub const SAMPLER: Sampler = Sampler {
    name: "hardest",
    about: "the nearest of another class",
    weight: |batch, anchor, _, candidate| {
        let own = batch.distance(anchor, candidate);
        let nearer = |c: usize| batch.labels[c] != batch.labels[anchor] && batch.distance(anchor, c) < own;
        f64::from(u8::from(!(0..batch.labels.len()).any(nearer)))
    },
};

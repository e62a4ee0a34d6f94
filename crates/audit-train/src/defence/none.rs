//! No defence.

use super::{Defence, update};
use crate::net::Norms;
use crate::sampler::Anchors;

/// Training on clean images only. Other rows state their differences.
pub const DEFENCE: Defence = Defence {
    name: "none",
    about: "clean images",
    loss: "triplet",
    only: &[],
    sampler: "semihard",
    anchors: Anchors::Pairs,
    attacks_triplets: false,
    formulations: false,
    perturb: "",
    attack: None,
    flags: &[],
    norms: Norms::Frozen,
    sides: &[],
    step: |step| {
        let (embeddings, rest) = step.embed(step.images);
        let triplets = step.mine(&embeddings)?;
        let loss = step.loss_of(&embeddings, &triplets);
        let shown = triplets.of(&rest);
        let seen = step.seen(&shown, &shown, [false; 3], None);
        Ok(update(loss.regularised, &loss.own, seen))
    },
};

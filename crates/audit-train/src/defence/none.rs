//! No defence.

use super::{Defence, update};
use crate::net::Norms;

pub const DEFENCE: Defence = Defence {
    name: "none",
    about: "clean images",
    losses: &["triplet", "contrastive", "margin", "multi-similarity", "info-nce"],
    sampler: "semihard",
    attack: None,
    flags: &[],
    norms: Norms::Frozen,
    sides: &[],
    step: |step| {
        let embeddings = step.embed(step.images);
        let clean = embeddings.detach();
        let triplets = step.mine(&clean)?.of(&clean);
        let loss = step.loss_of(&embeddings)?;
        let seen = step.seen(&triplets, &triplets, [false; 3], None);
        Ok(update(loss.shallow_clone(), &loss, seen))
    },
};

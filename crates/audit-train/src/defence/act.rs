//! ACT, anti-collapse triplet (Zhou et al. 2021): the adversary moves positive and negative towards each
//! other.

use super::{AttackDefaults, Defence, none, update};
use crate::loss::distance;
use tch::Kind;

/// Anti-collapse triplets (Zhou et al., arXiv:2106.03614).
pub const DEFENCE: Defence = Defence {
    name: "act",
    about: "positive and negative drawn together",
    loss: "triplet",
    only: &["triplet"],
    sampler: "random",
    attacks_triplets: true,
    attack: Some(AttackDefaults::LITERATURE),
    step: |step| {
        let moving = [false, true, true];
        let clean = step.clean();
        let triplets = step.mine(&clean)?;
        let (images, moved) = step.attack_triplets(&clean, &triplets, moving, |[_, p, n], _| {
            Some(distance(p, n).mean(Kind::Float))
        });
        let (after, rest) = step.embed_triplets(&images);
        let loss = step.loss_of_triplets(&after, &triplets);
        let seen = step.seen(&triplets.of(&clean), &rest, moving, Some(&moved));
        Ok(update(loss.regularised, &loss.own, seen))
    },
    ..none::DEFENCE
};

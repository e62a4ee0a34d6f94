//! ACT, anti-collapse triplet (Zhou et al. 2021): the adversary draws positive and negative together.

use super::{AttackDefaults, Defence, update};
use crate::loss::{MARGIN, distance, hardness};
use tch::Kind;

pub const DEFENCE: Defence = Defence {
    name: "act",
    about: "positive and negative drawn together",
    losses: &["triplet"],
    sampler: "random",
    attack: Some(AttackDefaults {
        eps: 8.0 / 255.0,
        alpha: 1.0 / 255.0,
        steps: 32,
        fixed: false,
        progressive: false,
    }),
    flags: &[],
    step: |step| {
        let moving = [false, true, true];
        let clean = step.clean();
        let triplets = step.mine(&clean)?;
        let (images, moved) = step.attack_triplets(&clean, &triplets, moving, |[_, p, n], _| {
            Some(distance(p, n).mean(Kind::Float))
        });
        let after = step.embed_triplets(&images);
        let loss = (hardness(&after[0], &after[1], &after[2]) + MARGIN).relu().mean(Kind::Float);
        let seen = step.seen(&triplets.of(&clean), &after, moving, Some(&moved));
        Ok(update(loss.shallow_clone(), &loss, seen))
    },
};

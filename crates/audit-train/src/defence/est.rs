//! EST, embedding-shifted triplet (Zhou et al. 2020): every image is moved as far from itself as possible,
//! and the net is trained on the moved images only.

use super::{AttackDefaults, Defence, none, update};
use crate::loss::distance;
use crate::net::Norms;
use tch::{Kind, no_grad};

/// Embedding-shifted triplets (Zhou et al., ECCV 2020).
pub const DEFENCE: Defence = Defence {
    name: "est",
    about: "every image moved as far from its own embedding as it goes",
    loss: "triplet",
    // As in the rows EST[R] of the HM slides.
    sampler: "random",
    attack: Some(AttackDefaults::LITERATURE),
    norms: Norms::Train,
    step: |step| {
        if step.recipe.settings.norms == Norms::Train && step.net.backbone.has_norm() {
            // robrank embeds the clean batch in training mode, for its log. So the running statistics, with
            // which the attack and the model embed, are of clean and of moved images.
            drop(no_grad(|| step.net.unit(&step.net.weights, step.images, Norms::Train)));
        }
        let clean = step.clean();
        let beside = step.beside(&clean);
        let moved = step.attack(&step.images.shallow_clone(), |e, at| {
            Some(-distance(e, if at == 0 { &beside } else { &clean }).sum(Kind::Float))
        });
        let (embeddings, rest) = step.embed(&moved.images);
        let triplets = step.mine(&embeddings)?;
        let loss = step.loss_of(&embeddings, &triplets);
        let seen = step.seen(&triplets.of(&clean), &triplets.of(&rest), [true; 3], Some(&moved));
        Ok(update(loss.regularised, &loss.own, seen))
    },
    ..none::DEFENCE
};

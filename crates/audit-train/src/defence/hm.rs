//! HM, hardness manipulation (Zhou and Patel 2022): all three images are moved until the triplet reaches its
//! target hardness; each triplet stops by itself.

use super::{AttackDefaults, Defence, none, number, update};
use crate::loss::{MARGIN, distance, hardness};
use crate::recipe::TargetHardness;
use tch::{Kind, Tensor};

/// The target hardness of linear gradual adversary (HM, section 3.2): −γ·min(ℓ, u)/u with the margin γ. The
/// higher the triplet loss ℓ of the previous batch (without regulariser and ICS), the easier the next target.
pub fn gradual(last_loss: f64, u: f64) -> f64 {
    -MARGIN * (last_loss.clamp(0.0, u) / u)
}

/// Hardness manipulation (Zhou and Patel, CVPR 2022).
pub const DEFENCE: Defence = Defence {
    name: "hm",
    about: "anchor, positive and negative moved until the triplet is as hard as a destination",
    loss: "triplet",
    only: &["triplet"],
    sampler: "softhard",
    attacks_triplets: true,
    perturb: "apn",
    attack: Some(AttackDefaults::LITERATURE),
    flags: &["destination", "lga-u", "ics", "perturb"],
    step: |step| {
        let moving = step.recipe.perturb;
        let settings = step.recipe.settings.clone();
        let clean = step.clean();
        let triplets = step.mine(&clean)?;
        let destination = match &step.recipe.destination {
            TargetHardness::Constant(hardness) => Tensor::from(*hardness as f32),
            TargetHardness::Lga => Tensor::from(gradual(step.memory.last_loss, settings.lga_u) as f32),
            TargetHardness::Sampler(sampler, boost) => {
                let [a, p, n] = step.mine_with(sampler, &clean)?.of(&clean);
                hardness(&a, &p, &n) + *boost
            }
        }
        .to_device(clean.device());
        let (images, moved) = step.attack_triplets(&clean, &triplets, moving, |[a, p, n], _| {
            let missing = (&destination - hardness(a, p, n)).relu();
            (number(&missing.max()) > 0.0).then(|| missing.square().mean(Kind::Float))
        });
        // Intra-class structure: an anchor must not move farther than the distance of its positive.
        let ics = settings.ics > 0.0;
        let mut all = images.iter().map(Tensor::shallow_clone).collect::<Vec<_>>();
        if ics {
            let [a, p, _] = triplets.of(step.images);
            all.extend([a, p]);
        }
        let (embeddings, rest) = step.embed(&Tensor::cat(&all, 0));
        let [parts, rest] = [embeddings, rest].map(|e| e.chunk(all.len() as i64, 0));
        let [after, rest] = [&parts, &rest].map(|p| [0, 1, 2].map(|i: usize| p[i].shallow_clone()));
        let base = step.loss_of_triplets(&after, &triplets);
        // `+=` would add the term to `base.own` too, with which `base.regularised` may share its storage.
        let loss = if ics {
            let (a, p) = (&parts[3], &parts[4]);
            let farther = (distance(a, &after[0]) - distance(a, p)).relu().mean(Kind::Float);
            &base.regularised + farther * settings.ics
        } else {
            base.regularised.shallow_clone()
        };
        step.memory.last_loss = number(&base.own.detach());
        let seen = step.seen(&triplets.of(&clean), &rest, moving, Some(&moved));
        Ok(update(loss, &base.own, seen))
    },
    ..none::DEFENCE
};

//! Panum et al. (2021): the positive of some triplets is moved away from its anchor.

use super::{AttackDefaults, Defence, StepSize, update};
use crate::loss::{LossInput, distance};
use crate::net::Norms;
use crate::sampler::Anchors;
use audit::{Error, Result};
use tch::{Kind, Tensor};

pub const DEFENCE: Defence = Defence {
    name: "panum",
    about: "the positive moved away from its anchor, with probability γ",
    losses: &["triplet", "contrastive"],
    sampler: "distance",
    // Appendix A: every data point is an anchor, and is in a positive and in a negative pair.
    anchors: Anchors::Every,
    // Section 4.1: steps of 2ε/i, by which any point of the box can be reached from any start.
    attack: Some(AttackDefaults {
        eps: 0.01,
        alpha: StepSize::PerBox(2.0),
        steps: 5,
        fixed: true,
        progressive: false,
        random_start: true,
    }),
    flags: &["gamma"],
    norms: Norms::Frozen,
    sides: &[],
    step,
};

fn step(step: &mut super::Step) -> Result<super::Update> {
    let clean = step.clean();
    let triplets = step.mine(&clean)?;
    let before = triplets.of(&clean);
    let gamma = step.recipe.settings.gamma;
    let chosen: Vec<i64> = (0..triplets.a.len() as i64).filter(|_| step.dice.unit() < gamma).collect();
    let mut images = triplets.of(step.images);
    let mut moved = None;
    if !chosen.is_empty() {
        let rows = Tensor::from_slice(&chosen).to_device(clean.device());
        let anchors = before[0].index_select(0, &rows);
        let attack = step
            .attack(&images[1].index_select(0, &rows), |e, _| Some(-distance(e, &anchors).mean(Kind::Float)));
        images[1] = images[1].index_copy(0, &rows, &attack.images);
        moved = Some(attack);
    }
    let (after, rest) = step.embed_triplets(&images);
    let LossInput::Triplets(loss) = step.recipe.loss.of else {
        return Err(Error::internal(format!(
            "panum with the loss {}, which takes no triplets",
            step.recipe.loss.name
        )));
    };
    let loss = loss(&after[0], &after[1], &after[2]);
    let seen = step.seen(&before, &rest, [false, true, false], moved.as_ref());
    Ok(update(loss.shallow_clone(), &loss, seen))
}

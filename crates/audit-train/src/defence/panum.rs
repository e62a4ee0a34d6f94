//! Panum et al. (2021), robust training of metric models in its three formulations. The paper's own is the
//! second one: in a share γ of the triplets, the positive is moved away from its anchor.

use super::{AttackDefaults, BatchMeasures, Defence, Step, StepSize, Update, none, shift, update};
use crate::loss::{Labelled, distance, hardness};
use crate::perturb::Perturbed;
use crate::sampler::{Anchors, Triplets};
use crate::settings::Formulation;
use audit::Result;
use tch::{Kind, Tensor};

/// Adversarial deep metric learning (Panum et al., arXiv:2102.07265).
pub const DEFENCE: Defence = Defence {
    name: "panum",
    about: "the positive moved away from its anchor, with probability γ",
    loss: "triplet",
    only: &["triplet", "contrastive"],
    sampler: "distance-clamped",
    // Appendix A: every data point is an anchor, and is in a positive and a negative pair.
    anchors: Anchors::Every,
    attacks_triplets: true,
    formulations: true,
    perturb: "p",
    // Section 4.1: steps of 2ε/i, which reach any point of the box from any start.
    attack: Some(AttackDefaults {
        eps: 0.01,
        alpha: StepSize::PerBox(2.0),
        steps: 5,
        fixed: true,
        progressive: false,
        random_start: true,
    }),
    flags: &["gamma", "formulation", "perturb", "adversarial-weight"],
    step: |step| match step.recipe.settings.formulation {
        Formulation::Shift => regularised(step),
        Formulation::Joint => perturbed(step, [true; 3]),
        Formulation::Sample => perturbed(step, step.recipe.perturb),
    },
    ..none::DEFENCE
};

/// Formulations 1 and 2: the net is trained on triplets, and `moving` images of a share γ of them are moved.
///
/// A single image is moved as in equations 14 to 16 and appendix F: the positive away from the anchor, the
/// negative towards it, the anchor both ways. If all three are moved, they raise the loss itself (equation
/// 11).
fn perturbed(step: &mut Step, moving: [bool; 3]) -> Result<Update> {
    let clean = step.clean();
    let triplets = step.mine(&clean)?;
    let chosen = choose_rows(step, triplets.a.len());
    let places = Tensor::from_slice(&chosen).to_device(clean.device());
    let mut images = triplets.of(step.images);
    let mut moved = None;
    if !chosen.is_empty() {
        let some = triplets.some(&chosen);
        let (loss, rows) = (step.recipe.loss.of, Triplets::consecutive(chosen.len() as i64));
        let all = moving == [true; 3];
        let (images_of_some, attack) = step.attack_triplets(&clean, &some, moving, |parts, _| {
            let [a, p, n] = parts;
            Some(match all {
                true => -loss(&Labelled {
                    e: &Tensor::cat(&parts, 0),
                    classes: &Tensor::new(),
                    triplets: &rows,
                    parameter: None,
                }),
                false => -hardness(a, p, n).mean(Kind::Float),
            })
        });
        for ((image, changed), _) in
            images.iter_mut().zip(&images_of_some).zip(moving).filter(|(_, moves)| *moves)
        {
            *image = image.index_copy(0, &places, changed);
        }
        moved = Some(attack);
    }
    let (after, rest) = step.embed_triplets(&images);
    let loss = step.loss_of_triplets(&after, &triplets);
    let before = triplets.of(&clean);
    let of_moved = |parts: &[Tensor; 3]| {
        let parts = parts.iter().zip(moving).filter(|(_, moves)| *moves);
        Tensor::cat(&parts.map(|(part, _)| part.index_select(0, &places)).collect::<Vec<_>>(), 0)
    };
    let seen = BatchMeasures {
        shift: shift(&of_moved(&before), &of_moved(&rest)),
        ..step.seen(&before, &rest, moving, moved.as_ref())
    };
    Ok(update(loss.regularised, &loss.own, seen))
}

/// Formulation 3 (equation 13): the loss of clean images, plus the mean maximum shift of an embedding times
/// the weight. A share γ of the images is moved.
fn regularised(step: &mut Step) -> Result<Update> {
    let clean = step.clean();
    let chosen = choose_rows(step, step.labels.len());
    let rows = Tensor::from_slice(&chosen).to_device(clean.device());
    let mut images = step.images.shallow_clone();
    let mut moved: Option<Perturbed> = None;
    if !chosen.is_empty() {
        let origin = clean.index_select(0, &rows);
        let beside = step.beside(&origin);
        let attack = step.attack(&images.index_select(0, &rows), |e, at| {
            Some(-distance(e, if at == 0 { &beside } else { &origin }).sum(Kind::Float))
        });
        images = images.index_copy(0, &rows, &attack.images);
        moved = Some(attack);
    }
    let (both, rest) = step.embed(&Tensor::cat(&[step.images, &images], 0));
    let (still, shifted) = (both.chunk(2, 0)[0].shallow_clone(), both.chunk(2, 0)[1].shallow_clone());
    let triplets = step.mine(&still)?;
    let base = step.loss_of(&still, &triplets);
    // If no image was chosen, the batch has no shift to penalise.
    let loss = match moved {
        Some(_) => {
            let largest = distance(&still, &shifted).index_select(0, &rows).mean(Kind::Float);
            &base.regularised + largest * step.recipe.settings.adversarial_weight
        }
        None => base.regularised.shallow_clone(),
    };
    let rest = rest.chunk(2, 0)[1].shallow_clone();
    let seen = BatchMeasures {
        shift: shift(&clean.index_select(0, &rows), &rest.index_select(0, &rows)),
        ..step.seen(&triplets.of(&clean), &triplets.of(&rest), [true; 3], moved.as_ref())
    };
    Ok(update(loss, &base.own, seen))
}

/// Indices out of 0..count, each with probability γ.
fn choose_rows(step: &mut Step, count: usize) -> Vec<i64> {
    let gamma = step.recipe.settings.gamma;
    (0..count as i64).filter(|_| step.dice.unit() < gamma).collect()
}

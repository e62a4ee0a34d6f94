//! ADML+A, +U, +T and +A+U: the net learns from clean images and, with a small weight, from images moved
//! along the gradient of alignment, uniformity, both, or the triplet loss.

use super::{AttackDefaults, Defence, StepSize, none, update};
use crate::loss::{MARGIN, hardness, others, same_class};
use crate::sampler::{Anchors, Triplets};
use crate::settings::{AdmlTarget, References};
use audit::Result;
use tch::{Kind, Tensor};

/// All variants of ADML.
pub const DEFENCE: Defence = Defence {
    name: "adml",
    about: "L(clean) + weight·L(adversarial), images moved by --target alignment, uniformity, alignment-uniformity or triplet",
    loss: "multi-similarity",
    sampler: "distance-clamped",
    anchors: Anchors::Every,
    attack: Some(AttackDefaults { alpha: StepSize::Fixed(0.007), steps: 7, ..AttackDefaults::LITERATURE }),
    flags: &["target", "refs", "adversarial-weight"],
    step,
    ..none::DEFENCE
};

/// The adversary's loss: the negative of its target, summed over images. `e` [B, D] moves, and is compared
/// with `references` [B, D]: the clean batch, or `e` itself. `same` [B, B]: whether two images share a class.
/// The triplet target uses `triplets`, the others every pair.
///
/// Alignment is the mean of ‖f(x̃) − f(y)‖² over the other images of the class (equation 6), uniformity the
/// mean of exp(−‖f(x̃) − f(y)‖²) over images of other classes (equation 7).
pub fn objective(
    target: AdmlTarget,
    e: &Tensor,
    references: &Tensor,
    same: &Tensor,
    triplets: &Triplets,
) -> Tensor {
    let norms = |t: &Tensor| t.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float);
    let squares = norms(e) + norms(references).tr() - e.matmul(&references.tr()) * 2.0;
    let mean = |values: &Tensor, mask: Tensor| {
        let mask = mask.to_kind(Kind::Float);
        let sum = |t: &Tensor| t.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        sum(&(values * &mask)) / sum(&mask).clamp_min(1.0)
    };
    let alignment = || mean(&squares, others(same));
    let uniformity = || mean(&(-&squares).exp(), same.logical_not());
    let raised = match target {
        AdmlTarget::Alignment => alignment(),
        AdmlTarget::Uniformity => uniformity(),
        AdmlTarget::AlignmentUniformity => alignment() + uniformity(),
        AdmlTarget::Triplet => {
            // Each image is the anchor of its triplet; the other two are references.
            let ([a, _, _], [_, p, n]) = (triplets.of(e), triplets.of(references));
            (hardness(&a, &p, &n) + MARGIN).relu()
        }
    };
    -raised.sum(Kind::Float)
}

fn step(step: &mut super::Step) -> Result<super::Update> {
    let clean = step.clean();
    let same = same_class(step.labels, &clean);
    let triplets = step.mine(&clean)?;
    let (target, refs) = (step.recipe.settings.target, step.recipe.settings.refs);
    let moved = step.attack(&step.images.shallow_clone(), |e, _| {
        let references = match refs {
            References::Clean => &clean,
            References::Joint => e,
        };
        Some(objective(target, e, references, &same, &triplets))
    });
    let (both, rest) = step.embed(&Tensor::cat(&[step.images, &moved.images], 0));
    let [quiet, loud] = [0, 1].map(|i| both.chunk(2, 0)[i].shallow_clone());
    // Triplets are mined on the embeddings of each loss.
    let (of_quiet, of_loud) = (step.mine(&quiet)?, step.mine(&loud)?);
    let (quiet, moved_loss) = (step.loss_of(&quiet, &of_quiet), step.loss_of(&loud, &of_loud));
    let loss = quiet.regularised + moved_loss.regularised * step.recipe.settings.adversarial_weight;
    let after = of_loud.of(&rest.chunk(2, 0)[1]);
    let seen = step.seen(&of_loud.of(&clean), &after, [true; 3], Some(&moved));
    Ok(update(loss, &moved_loss.own, seen))
}

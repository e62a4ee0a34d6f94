//! ADML+A, +U and +T: the net learns from clean images and, with a small weight, from ones moved by the gradient of
//! alignment, of uniformity or of the triplet loss.

use super::{AttackDefaults, Defence, update};
use crate::loss::{MARGIN, hardness, others, same_class};
use crate::net::Norms;
use crate::recipe::AdmlTarget;
use audit::Result;
use tch::{Kind, Tensor};

/// The three forms of ADML.
pub const DEFENCE: Defence = Defence {
    name: "adml",
    about: "L(clean) + weight·L(adversarial), images moved by --target alignment, uniformity or triplet",
    losses: &["multi-similarity", "margin"],
    sampler: "distance",
    attack: Some(AttackDefaults { alpha: 0.007, steps: 7, ..AttackDefaults::LITERATURE }),
    flags: &["target", "adversarial-weight"],
    norms: Norms::Frozen,
    sides: &[],
    step,
};

/// What the adversary minimises: the negative of what it raises. `e` moves, `clean` is where the batch was.
pub fn objective(target: AdmlTarget, e: &Tensor, clean: &Tensor, same: &Tensor) -> Tensor {
    let norms = |t: &Tensor| t.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float);
    let squares = norms(e) + norms(clean).tr() - e.matmul(&clean.tr()) * 2.0;
    let mean = |values: Tensor, mask: Tensor| {
        let mask = mask.to_kind(Kind::Float);
        let sum = |t: &Tensor| t.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        sum(&(values * &mask)) / sum(&mask).clamp_min(1.0)
    };
    let raised = match target {
        AdmlTarget::Uniformity => mean((-squares).exp(), same.logical_not()),
        _ => mean(squares, others(same)),
    };
    -raised.sum(Kind::Float)
}

fn step(step: &mut super::Step) -> Result<super::Update> {
    let clean = step.clean();
    let same = same_class(step.labels, &clean);
    let triplets = step.mine(&clean)?;
    let target = step.recipe.settings.target;
    let moved = step.attack(&step.images.shallow_clone(), |e, _| {
        Some(match target {
            AdmlTarget::Triplet => {
                let [a, p, n] = triplets.of(e);
                -(hardness(&a, &p, &n) + MARGIN).relu().sum(Kind::Float)
            }
            other => objective(other, e, &clean, &same),
        })
    });
    let both = step.embed(&Tensor::cat(&[step.images, &moved.images], 0));
    let parts = both.chunk(2, 0);
    let (quiet, moved_loss) = (step.loss_of(&parts[0])?, step.loss_of(&parts[1])?);
    let loss = quiet + &moved_loss * step.recipe.settings.adversarial_weight;
    let seen = step.seen(&triplets.of(&clean), &triplets.of(&parts[1].detach()), [true; 3], Some(&moved));
    Ok(update(loss, &moved_loss, seen))
}

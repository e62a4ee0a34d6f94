//! The attack in training: projected gradient descent on images.

use crate::dice::Dice;
use crate::net::{Net, Norms, Weights};
use std::time::Instant;
use tch::{Tensor, no_grad};

/// Size and speed of the change of images, for pixels in [0, 1].
#[derive(Clone, Copy, Debug)]
pub struct PgdBudget {
    /// Maximum change of a pixel.
    pub eps: f64,
    /// Step size.
    pub alpha: f64,
    /// Number of steps.
    pub steps: u32,
    /// Whether it starts at a random point of the box instead of at the image.
    pub random_start: bool,
}

/// The result and the cost of an attack.
pub struct Perturbed {
    /// The images [n, C, H, W], without gradients.
    pub images: Tensor,
    /// Number of steps.
    pub steps: u32,
    /// Images times steps.
    pub work: u64,
    /// Wall time in seconds.
    pub seconds: f64,
}

/// Descends `loss`, a function of the unit embeddings of the moving images and of the step's index; `None`
/// stops.
///
/// The net is in inference mode, and its weights are detached: gradients are with respect to the images only.
/// A step is α·sign(gradient), so an image with gradient 0 doesn't move.
pub fn pgd(
    net: &Net,
    weights: &Weights,
    start: &Tensor,
    budget: &PgdBudget,
    dice: &mut Dice,
    mut loss: impl FnMut(&Tensor, u32) -> Option<Tensor>,
) -> Perturbed {
    let since = Instant::now();
    let (low, high) = no_grad(|| ((start - budget.eps).clamp_min(0.0), (start + budget.eps).clamp_max(1.0)));
    let mut images = match budget.random_start {
        true => {
            let noise = dice.tensor(&start.size()).to_device(start.device());
            no_grad(|| &low + (&high - &low) * noise)
        }
        false => start.detach(),
    };
    let mut made = 0;
    // With a progressive step size, the first epoch has none. A random start remains, in the whole box.
    let steps = if budget.alpha > 0.0 { budget.steps } else { 0 };
    while made < steps {
        let moving = images.detach().set_requires_grad(true);
        let Some(value) = loss(&net.unit(weights, &moving, Norms::Frozen), made) else { break };
        let gradients = Tensor::run_backward(&[value], &[&moving], false, false);
        images =
            no_grad(|| (moving.detach() - gradients[0].sign() * budget.alpha).maximum(&low).minimum(&high));
        made += 1;
    }
    let work = u64::from(made) * start.size()[0] as u64;
    Perturbed { images, steps: made, work, seconds: since.elapsed().as_secs_f64() }
}

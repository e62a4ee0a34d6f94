//! Whether a quantised model follows its gradient.
//!
//! The gradient of a quantised model passes straight through rounding, and so do the finite differences that
//! hold its rounding. Both can have slopes that the model lacks: a quantiser whose step is larger than its
//! values always gives 0, with a slope of 1, and so does a quantiser less a Round of the same values. Added
//! to a net, such a slope hides the net's own. So here the file itself is moved along the gradient, by steps
//! that are larger than those of its rounding.

use audit_base::Result;
use audit_gallery::space::product;
use audit_report::judge::mean::Mean;
use ndarray::{Array2, ArrayView2};

/// Largest change of a pixel. Nets bend over the first one, and rounding is large beside the last.
const STEPS: [f32; 3] = [1e-1, 3e-2, 1e-2];
/// Passes over a set of images: at both ends of each step.
pub const PASSES: usize = 2 * STEPS.len();
/// Least share of the predicted change, at the best step. Nets by onnxruntime.quantization have 0.5 or more
/// (VGG, ResNet-18, MobileNet v3, EfficientNet-B0, ViT), and false slopes 0.00 to 0.04.
pub const LEAST: f64 = 0.2;
/// Fewest images from which it is judged.
const ENOUGH: usize = 4;
/// Largest standard error of a step that is judged. A model can round so coarsely that nothing is sure at a
/// small step; the large ones decide then. A ViT of 12 blocks has 0.17 at its best step.
const SURE: f64 = 0.2;

/// The change of a quantised model along its gradient, as a share of the predicted one.
#[derive(Clone, Copy, Debug)]
pub struct Secants {
    share: Mean,
}

impl Secants {
    /// The mean over images, at the best step.
    pub fn share(self) -> f64 {
        self.share.value
    }

    /// Whether the model surely changes by less than [`LEAST`].
    pub fn refute(self) -> bool {
        self.most() < LEAST
    }

    /// The largest share that chance explains.
    fn most(self) -> f64 {
        self.share.value + 2.0 * self.share.error
    }
}

/// Moves images [n, P] along the gradient [n, P] of ⟨f(x), ē⟩, where ē is the first n rows of `cotangent`.
/// `embed` is f. Of several sets of images with their gradients, the one that follows its gradient least
/// counts: a model can have false slopes at clean images alone. `None` if too few images have a gradient, or
/// rounding is larger than the predicted change at every step, so that shares scatter.
pub fn follow(
    embed: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
    sets: &[(&[f32], &[f32])],
    cotangent: ArrayView2<f32>,
    pixels: usize,
) -> Result<Option<Secants>> {
    if sets.iter().all(|(images, _)| images.len() < ENOUGH * pixels) {
        return Ok(None);
    }
    let mut least: Option<Secants> = None;
    for (images, gradient) in sets {
        let mut best: Option<Secants> = None;
        for step in STEPS {
            let shares = shares(embed, images, gradient, cotangent, pixels, step)?;
            let share = Mean::of(&shares).filter(|share| shares.len() >= ENOUGH && share.error <= SURE);
            let found = share.map(|share| Secants { share });
            best = best.into_iter().chain(found).max_by(|a, b| a.most().total_cmp(&b.most()));
        }
        least = least.into_iter().chain(best).min_by(|a, b| a.most().total_cmp(&b.most()));
    }
    Ok(least)
}

/// For each image with a gradient: the change of f over a step to both sides, as a share of the predicted
/// change.
fn shares(
    embed: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
    images: &[f32],
    gradient: &[f32],
    cotangent: ArrayView2<f32>,
    pixels: usize,
    step: f32,
) -> Result<Vec<f64>> {
    let [up, down] = [step, -step].map(|step| moved(images, gradient, pixels, step));
    let change = &embed(&up)? - &embed(&down)?;
    let predicted = up.chunks(pixels).zip(down.chunks(pixels)).zip(gradient.chunks(pixels));
    let predicted = predicted.map(|((up, down), g)| {
        let by: Vec<f32> = up.iter().zip(down).map(|(up, down)| up - down).collect();
        product(g, &by)
    });
    let rows = change.rows().into_iter().zip(cotangent.rows());
    let actual = rows.map(|(e, c)| e.iter().zip(c).map(|(e, c)| f64::from(*e) * f64::from(*c)).sum::<f64>());
    Ok(actual.zip(predicted).filter(|(_, predicted)| *predicted > 0.0).map(|(a, p)| a / p).collect())
}

/// Images [n, P] moved along their gradients, so that the pixel with the largest one changes by `step`.
fn moved(images: &[f32], gradient: &[f32], pixels: usize, step: f32) -> Vec<f32> {
    let mut all = Vec::with_capacity(images.len());
    for (image, g) in images.chunks(pixels).zip(gradient.chunks(pixels)) {
        let largest = g.iter().fold(f32::MIN_POSITIVE, |most, g| most.max(g.abs()));
        all.extend(image.iter().zip(g).map(|(x, g)| (x + step * g / largest).clamp(0.0, 1.0)));
    }
    all
}

//! Embeddings in batches of other sizes than the audit's.

use super::{Apart, reflected};
use audit_base::Result;
use audit_base::random::Random;
use audit_gallery::data::GREY_LEVEL;
use audit_gallery::space;
use audit_model::difference::SAME;
use audit_model::reference::Untouched;
use ndarray::Array2;

/// Batch sizes that are tried besides the audit's own: 1, as in a service that answers single requests, and
/// one other.
pub(super) const SIZES: [usize; 2] = [1, 3];
/// Cosine from which differences beside two noises are the same difference.
const ALIKE: f64 = 0.5;
/// Share of the distance between two images from which a difference changes which images are near.
const NOTABLE: f64 = 0.1;

/// How much embeddings differ in batches of another size.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherSize {
    /// Images in a batch.
    pub each: usize,
    pub apart: Apart,
    /// Whether the difference is another function of the image, and not rounding.
    pub persists: bool,
}

/// The batch size of which the embeddings differ the most from those of the audit's; `None` if the batch is
/// fixed. `all` are images and their usual embeddings. Differences above `tolerance` need no explanation.
pub(super) fn other_sizes(
    reference: &mut Untouched,
    all: [(&[f32], &Array2<f32>); 2],
    tolerance: f64,
    pass: &mut dyn FnMut(usize),
) -> Result<Option<OtherSize>> {
    let mut most: Option<OtherSize> = None;
    for each in SIZES {
        for (images, usual) in all {
            pass(1);
            let Some(found) = reference.embed_in_batches(images, each)? else { continue };
            let apart = Apart::of(&found, usual);
            // Only rounding to integers or to half precision is accepted above this limit.
            let doubtful = apart.share > SAME && tolerance > SAME;
            let persists = doubtful && persists(reference, images, each)?;
            let rank = |size: &OtherSize| (size.persists, size.apart.share);
            let size = OtherSize { each, apart, persists };
            most = most.filter(|most| rank(most) >= rank(&size)).or(Some(size));
        }
    }
    Ok(most)
}

/// Whether embeddings in batches of `each` differ by the same beside two noises of up to a grey level, and by
/// enough to change which images are near. The noise turns roundings, so that differences by rounding are
/// others each time, however large they are. A limit on their size alone lets a model through that has
/// another net for batches of one: a large constant in every embedding makes any difference a small share.
fn persists(reference: &mut Untouched, images: &[f32], each: usize) -> Result<bool> {
    let mut random = Random::seeded(0x7065_7273);
    let mut differences: Vec<Vec<f32>> = Vec::new();
    for _ in 0..2 {
        let near: Vec<f32> = images.iter().map(|v| reflected(v + GREY_LEVEL * random.sign_unit())).collect();
        let both = (reference.embed(&near)?, reference.embed_in_batches(&near, each)?);
        let (Some(usual), Some(found)) = both else { return Ok(false) };
        let difference = &found - &usual;
        if length(&difference) < NOTABLE * length(&neighbours(&usual)) {
            return Ok(false);
        }
        differences.push(difference.iter().copied().collect());
    }
    Ok(space::cosine(&differences[0], &differences[1]) >= ALIKE)
}

/// Each embedding less that of the next image.
fn neighbours(e: &Array2<f32>) -> Array2<f32> {
    Array2::from_shape_fn(e.dim(), |(i, k)| e[[i, k]] - e[[(i + 1) % e.nrows(), k]])
}

/// Length of all values as one vector.
fn length(values: &Array2<f32>) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

//! Embeddings in batches of other sizes than the audit's.

use super::Apart;
use super::persistence::persists;
use audit_base::Result;
use audit_model::difference::SAME;
use audit_model::reference::Untouched;
use ndarray::Array2;

/// Batch sizes that are tried besides the audit's own: 1, as in a service that answers single requests, and
/// one other.
pub(super) const SIZES: [usize; 2] = [1, 3];
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
            let mut both = |near: &[f32]| -> Result<_> {
                let usual = reference.embed(near)?;
                Ok(usual.zip(reference.embed_in_batches(near, each)?))
            };
            let persists = doubtful && persists(images, &mut both)?;
            let rank = |size: &OtherSize| (size.persists, size.apart.share);
            let size = OtherSize { each, apart, persists };
            most = most.filter(|most| rank(most) >= rank(&size)).or(Some(size));
        }
    }
    Ok(most)
}

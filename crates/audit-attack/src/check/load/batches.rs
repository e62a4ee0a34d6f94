//! Embeddings in batches of other sizes than the audit's.

use super::Apart;
use super::persistence::persists;
use audit_base::Result;
use audit_model::difference::SAME;
use audit_model::reference::Untouched;
use ndarray::Array2;

/// Batch sizes that are tried besides the audit's own: 1, as in a service that answers single requests, and
/// one other.
const SIZES: [usize; 2] = [1, 3];

/// How much embeddings differ in batches of another size.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherSize {
    /// Images in a batch.
    pub each: usize,
    pub apart: Apart,
    /// Whether the difference is another function of the image, and not rounding.
    pub persists: bool,
}

/// Passes over the images that [`other_sizes`] makes.
pub(super) const PASSES: usize = 2 * SIZES.len() + 2 * (1 + SIZES.len());

/// The batch size of which the embeddings differ the most from those of the audit's; `None` if the batch is
/// fixed. `all` are images and their usual embeddings. The file is compared with itself, as it is and as ONNX
/// Runtime optimises it: a model can be another net for those users alone that give it one image and let ONNX
/// Runtime optimise it. `tolerance` is the difference that is accepted of the model's precision.
pub(super) fn other_sizes(
    reference: &mut Untouched,
    all: [(&[f32], &Array2<f32>); 2],
    tolerance: f64,
    pass: &mut dyn FnMut(usize),
) -> Result<Option<OtherSize>> {
    let mut most: Option<OtherSize> = None;
    for (images, usual) in all {
        pass(1);
        for (form, usual) in
            [(AS_IT_IS, Some(usual.clone())), (OPTIMISED, reference.embed_optimised(images)?)]
        {
            let Some(usual) = usual else { continue };
            for each in SIZES {
                pass(1);
                let Some(found) = (form.in_batches)(reference, images, each)? else { continue };
                let apart = Apart::of(&found, &usual);
                // Only rounding to integers or to half precision is accepted above this limit.
                let doubtful = apart.share > SAME && tolerance > SAME;
                let mut both = |near: &[f32]| -> Result<_> {
                    let usual = (form.usual)(reference, near)?;
                    Ok(usual.zip((form.in_batches)(reference, near, each)?))
                };
                let persists = doubtful && persists(images, &mut both)?;
                let rank = |size: &OtherSize| (size.persists, size.apart.share);
                let size = OtherSize { each, apart, persists };
                most = most.filter(|most| rank(most) >= rank(&size)).or(Some(size));
            }
        }
    }
    Ok(most)
}

type Embeddings = Result<Option<Array2<f32>>>;

/// A form of the file: how it embeds images in the audit's batches, and in batches of another size.
struct FileForm {
    usual: fn(&mut Untouched, &[f32]) -> Embeddings,
    in_batches: fn(&mut Untouched, &[f32], usize) -> Embeddings,
}

const AS_IT_IS: FileForm = FileForm { usual: Untouched::embed, in_batches: Untouched::embed_in_batches };
const OPTIMISED: FileForm =
    FileForm { usual: Untouched::embed_optimised, in_batches: Untouched::embed_optimised_in_batches };

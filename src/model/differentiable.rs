//! What an attack needs of a model.

use crate::Result;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

/// Asked at each step, with the raw embeddings [B, D], for ∂L/∂embedding [B, D], which it overwrites.
pub type Cotangent<'c> = dyn FnMut(ArrayView2<f32>, ArrayViewMut2<f32>) + 'c;

/// A model whose embedding can be differentiated with respect to its images, as one thread has it.
///
/// Images are contiguous `f32` pixels in [0,1], C×H×W each. Embeddings are the model's own
/// output, not normalised: metrics are the business of [`crate::space`].
pub trait Differentiable: Send {
    /// Images that one call processes at the most, B.
    fn batch(&self) -> usize;
    /// The shape of an image, [C, H, W].
    fn shape(&self) -> [usize; 3];
    /// Embeddings [n, D] of n ≤ B images.
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>>;
    /// Embeds a full batch of images [B, P], has `cotangent` write ∂L/∂embedding, and writes ∂L/∂image to `gradient`
    /// [B, P]. `reach` is the largest change that a pixel of each image may make (B): a model that estimates its
    /// gradient looks as far; 0 where nothing is known.
    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()>;
    /// Signed steps in a box, made where the model computes; `None` where the model makes none.
    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        None
    }
    /// Values in one image, P = C·H·W.
    fn pixels(&self) -> usize {
        self.shape().iter().product()
    }
}

/// A batch of images that moves where the model computes: on a GPU no image leaves it between its first and its last step.
pub trait SignedSteps {
    /// Puts an image [P] and the bounds of its pixels into a slot.
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()>;
    /// One step of all slots: x ← clip(x − α·sign(∂L/∂x), low, high), where sign(0) = 0, with α per slot; 0 leaves an image as it
    /// is.
    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()>;
    /// The image [P] in a slot.
    fn get(&mut self, slot: usize) -> Result<&[f32]>;
}

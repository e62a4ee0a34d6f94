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
    /// Images that one call processes at the most.
    fn batch(&self) -> usize;
    /// Values in one image, C·H·W.
    fn pixels(&self) -> usize;
    /// Embeddings [n, D] of n ≤ `batch()` images (`images.len() == n * pixels()`).
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>>;
    /// One PGD step on a full batch: embeds the images x, has `cotangent` write ∂L/∂embedding,
    /// and replaces them by clip(x − α·sign(∂L/∂x), lo, hi). `sign(0) = 0`.
    ///
    /// A model may keep images and bounds where it computes from one step to the next: then it takes them from `batch`
    /// only where `batch.changed`, which it clears, and `batch.x` falls behind until [`Differentiable::fetch`].
    fn step(&mut self, batch: &mut Batch, cotangent: &mut Cotangent) -> Result<()>;
    /// Brings `batch.x` up to the last step. Nothing to do for a model whose steps change `batch.x` itself.
    fn fetch(&mut self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }
}

/// The state of a PGD batch: B images and the box each may move in.
pub struct Batch {
    /// Images, B×P; current after [`Differentiable::fetch`].
    pub x: Vec<f32>,
    /// Lower bounds, max(x0 − ε, 0), B×P.
    pub lo: Vec<f32>,
    /// Upper bounds, min(x0 + ε, 1), B×P.
    pub hi: Vec<f32>,
    /// Step size of each image, B. 0 leaves an image where it is. Read at every step.
    pub alpha: Vec<f32>,
    /// Whether `x`, `lo` or `hi` were written to since the last step. `x` must be current then.
    pub changed: bool,
}

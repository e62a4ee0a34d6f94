//! Attacks: what they target, the loss they minimise, what they measure; and the one PGD loop.

use crate::Result;
use ndarray::{Array2, ArrayView2};

/// A model whose embedding can be differentiated with respect to its images.
///
/// Images are contiguous `f32` pixels in [0,1], C×H×W each. Embeddings are the model's own
/// output, not normalised: metrics are the business of [`crate::space`].
pub trait Differentiable {
    /// Images that one call processes at the most.
    fn batch(&self) -> usize;
    /// Values in one image, C·H·W.
    fn pixels(&self) -> usize;
    /// Embeddings [n, D] of n ≤ `batch()` images (`images.len() == n * pixels()`).
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>>;
    /// One PGD step on a full batch: embeds `batch.x`, asks `cotangent` for ∂L/∂embedding [B, D],
    /// and replaces `batch.x` by clip(x − α·sign(∂L/∂x), lo, hi). `sign(0) = 0`.
    fn step(
        &mut self,
        batch: &mut Batch,
        cotangent: &mut dyn FnMut(ArrayView2<f32>) -> Array2<f32>,
    ) -> Result<()>;
}

/// The state of a PGD batch: B images and the box each may move in.
pub struct Batch {
    /// Current images, B×P.
    pub x: Vec<f32>,
    /// Lower bounds, max(x0 − ε, 0), B×P.
    pub lo: Vec<f32>,
    /// Upper bounds, min(x0 + ε, 1), B×P.
    pub hi: Vec<f32>,
    /// Step size of each image, B. 0 leaves an image where it is.
    pub alpha: Vec<f32>,
}

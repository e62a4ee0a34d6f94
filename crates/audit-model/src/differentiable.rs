//! The interface between attacks and models.

use audit_base::Result;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

/// Called at each step with the raw embeddings [B, D]; overwrites its second argument with ∂L/∂embedding
/// [B, D].
pub type Cotangent<'c> = dyn FnMut(ArrayView2<f32>, ArrayViewMut2<f32>) + 'c;

/// Work on the workers of a model.
pub type OnWorkers<'w> = dyn FnMut(Vec<&mut dyn Differentiable>) -> Result<()> + 'w;

/// One worker of a model whose embedding can be differentiated with respect to its images.
///
/// Images are contiguous `f32` pixels in [0, 1], C×H×W each. Embeddings are the model's own output and not
/// normalised; [`audit_gallery::space`] applies the metric.
pub trait Differentiable: Send {
    /// The number of images that one call processes at most, B.
    fn batch(&self) -> usize;
    /// The shape of an image, [C, H, W].
    fn shape(&self) -> [usize; 3];
    /// Embeddings [n, D] of n ≤ B images.
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>>;
    /// Embeds a full batch of images [B, P], calls `cotangent` for ∂L/∂embedding, and writes ∂L/∂image to
    /// `gradient` [B, P].
    ///
    /// `reach` `[B]` is the width of the interval in which an attack moves a pixel of each image; 0 if
    /// unknown. A model that estimates its gradient uses it as the scale of its finite differences.
    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()>;
    /// Signed steps in a box that the model itself performs; `None` where it does not support them.
    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        None
    }
    /// Values in one image, P = C·H·W.
    fn pixels(&self) -> usize {
        self.shape().iter().product()
    }
}

/// A batch of images that the model itself moves. On a GPU no image is copied to the host between its first
/// and its last step.
pub trait SignedSteps {
    /// Stores an image `[P]` and the bounds of its pixels in a slot.
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()>;
    /// Performs one step in all slots: x ← clip(x − α·sign(∂L/∂x), low, high), with sign(0) = 0. `alpha` has
    /// one value per slot; 0 leaves the image unchanged.
    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()>;
    /// The image `[P]` in a slot.
    fn get(&mut self, slot: usize) -> Result<&[f32]>;
}

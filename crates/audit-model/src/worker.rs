//! One worker of a model: where its tensors are stored, and how an attack step runs. [`super::Workers`]
//! explains workers.

use super::card::Preprocessing;
use super::estimate::Estimator;
use super::gradient::{Exact, embedding_place};
use super::half::Half;
use super::runtime::{Binding, BoundTensor, Memory, Session};
use super::{Cotangent, Differentiable, EMBEDDING, IMAGE, Info, Model, SignedSteps};
use audit_base::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use onnx_grad::graph::{DType, Value};
use std::sync::Arc;

/// One worker of a model. Workers share the sessions; each worker has its own tensors. The source of
/// gradients may be another model.
pub(super) struct Worker {
    /// The forward pass that embeds images outside of attack steps.
    pub(super) forward: Arc<Session>,
    /// Shape of the images, [B, C, H, W].
    shape: [usize; 4],
    /// Length of an embedding, D.
    dim: usize,
    /// What becomes of images on their way.
    preprocessing: Preprocessing,
    /// The tensors of its runs.
    look: Embedder,
    pub(super) gradient: Gradient,
    /// The float16 graphs, where attack steps run in float16.
    pub(super) half: Option<Half>,
}

/// The tensors and binding of a forward pass without a backward pass.
struct Embedder {
    image: BoundTensor,
    embedding: BoundTensor,
    run: Binding,
}

pub(super) enum Gradient {
    Exact(Box<Exact>),
    Estimate(Estimator),
}

/// Standard deviation of the estimator's noise outside of an attack: half of the usual largest change, 8/255.
const SIGMA: f32 = 4.0 / 255.0;

impl Worker {
    pub fn new(
        forward: &Arc<Session>,
        gradient: Gradient,
        half: Option<Half>,
        info: &Info,
        each: usize,
    ) -> Result<Worker> {
        let shape = info.preprocessing.pixel_shape(each);
        let image = forward.place(&Value::new(IMAGE, DType::F32, &shape), Memory::Device)?;
        let mut embedding = embedding_place(forward, [each, info.dim])?;
        let mut run = forward.binding()?;
        run.input(IMAGE, &image)?;
        run.output(EMBEDDING, &mut embedding)?;
        let look = Embedder { image, embedding, run };
        let shape = shape.map(|d| d as usize);
        let preprocessing = info.preprocessing.clone();
        Ok(Worker { forward: forward.clone(), shape, dim: info.dim, preprocessing, look, gradient, half })
    }

    /// Computes ∂⟨f(x), ē⟩/∂x for one batch of images, where `cotangent` gets the embeddings [B, D] and
    /// returns ē [B, D]. Returns the embeddings and the gradient [B, P].
    pub fn product(
        &mut self,
        images: &[f32],
        cotangent: impl Fn(ArrayView2<f32>) -> Result<Array2<f32>>,
    ) -> Result<(Array2<f32>, Vec<f32>)> {
        let mut seen = Ok(Array2::zeros((0, 0)));
        let mut gradient = vec![0.0; images.len()];
        let mut given = |z: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| match cotangent(z) {
            Ok(ct) => {
                seen = Ok(z.to_owned());
                out.assign(&ct);
            }
            Err(error) => {
                seen = Err(error);
                out.fill(0.0);
            }
        };
        Differentiable::gradient(self, images, &vec![0.0; self.shape[0]], &mut given, &mut gradient)?;
        Ok((seen?, gradient))
    }

    /// Signed steps along the exact gradient; `None` where gradients are estimated, and where images are
    /// rounded before each step.
    fn gradient_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        match &mut self.gradient {
            Gradient::Exact(exact) if self.preprocessing.integers.is_none() => Some(exact.as_mut()),
            _ => None,
        }
    }
}

impl Embedder {
    /// Embeddings of shape `size` [B, D]. Where fewer than B images are given, the last rows belong to
    /// padding.
    fn embed(&mut self, forward: &Session, images: &[f32], size: [usize; 2]) -> Result<Array2<f32>> {
        self.image.write(images)?;
        forward.run_bound(&mut self.run)?;
        let e = ArrayView2::from_shape(size, self.embedding.read()?);
        e.map(|e| e.to_owned()).map_err(|e| Error::internal(format!("embeddings: {e}")))
    }
}

impl Differentiable for Worker {
    fn batch(&self) -> usize {
        self.shape[0]
    }
    fn shape(&self) -> [usize; 3] {
        [self.shape[1], self.shape[2], self.shape[3]]
    }
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let n = images.len() / self.pixels();
        let images = self.preprocessing.taken(images);
        let e = self.look.embed(&self.forward, &images, [self.shape[0], self.dim])?;
        Ok(e.slice_move(s![..n, ..]))
    }
    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let Worker { forward, shape, dim, look, gradient: source, preprocessing, .. } = self;
        let images = &*preprocessing.taken(images);
        match source {
            Gradient::Exact(exact) => exact.gradient(images, cotangent, gradient),
            Gradient::Estimate(estimator) => {
                let mut embed = |x: &[f32]| look.embed(forward, x, [shape[0], *dim]);
                let e = embed(images)?;
                let mut ct = Array2::zeros(e.dim());
                cotangent(e.view(), ct.view_mut());
                estimator.passes += 1;
                // Half of ε: a reach is 2ε. Noise of 2ε is beyond the ball, where a hardened model's slope
                // says little about the ball.
                let sigma: Vec<f32> = reach.iter().map(|&r| if r > 0.0 { r / 4.0 } else { SIGMA }).collect();
                let found = estimator.gradient(&mut embed, images, *shape, ct.view(), &sigma)?;
                gradient.copy_from_slice(&found);
                Ok(())
            }
        }
    }
    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        self.gradient_steps()
    }
}

/// A worker that computes gradients in float16. Embeddings that are measured stay float32.
pub struct InHalf<'a> {
    worker: &'a mut Worker,
}

impl Differentiable for InHalf<'_> {
    fn batch(&self) -> usize {
        self.worker.batch()
    }

    fn shape(&self) -> [usize; 3] {
        self.worker.shape()
    }

    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        self.worker.embed(images)
    }

    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let images = &*self.worker.preprocessing.taken(images);
        match &mut self.worker.half {
            Some(half) => half.gradient(images, reach, cotangent, gradient),
            None => self.worker.gradient(images, reach, cotangent, gradient),
        }
    }

    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        if self.worker.preprocessing.integers.is_some() {
            return None;
        }
        match &mut *self.worker {
            Worker { half: Some(half), .. } => Some(half),
            worker => worker.gradient_steps(),
        }
    }
}

impl Model {
    /// The workers with float16 gradients, where the model was opened for them; otherwise the same as
    /// [`Model::workers`].
    pub fn workers_in_half(&mut self) -> Vec<InHalf<'_>> {
        self.workers.iter_mut().map(|worker| InHalf { worker }).collect()
    }
}

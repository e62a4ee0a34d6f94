//! One lane of a model: where its tensors are stored, and how an attack step runs. [`super::Lanes`] explains lanes.

use super::estimate::Estimator;
use super::half::Half;
use super::runtime::{Binding, Place, Session, Side};
use super::{ALPHA, EMBEDDING, HIGH, IMAGE, Info, LOW, NEXT};
use super::{Cotangent, Differentiable, SignedSteps};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use onnx_grad::{DType, Value};
use std::sync::Arc;

/// One lane of a model. Lanes share the sessions; each lane has its own tensors.
pub(super) struct Lane {
    forward: Arc<Session>,
    /// Shape of the images, [B, C, H, W].
    shape: [usize; 4],
    /// Length of an embedding, D.
    dim: usize,
    /// The forward pass that embeds images outside of attack steps.
    look: Look,
    pub(super) gradient: Gradient,
    /// The float16 graphs, where attack steps run in float16.
    pub(super) half: Option<Half>,
}

/// The tensors and binding of a forward pass without a backward pass.
struct Look {
    image: Place,
    embedding: Place,
    run: Binding,
}

/// The source of gradients.
pub(super) enum Gradient {
    Exact(Box<Exact>),
    Estimate(Estimator),
}

/// The forward and backward graphs of an exact gradient, with their tensors and bindings.
pub(super) struct Exact {
    forward: Arc<Session>,
    backward: Arc<Session>,
    /// The cotangent in host memory, [B, D].
    given: Array2<f32>,
    places: Places,
    /// Binding of the forward pass.
    there: Binding,
    /// Binding of the backward pass that overwrites the images with the next ones.
    pub(super) back: Binding,
    /// Binding of the backward pass that computes the gradient, and the gradient's tensor.
    back_to_gradient: (Binding, Place),
    slots: Slots,
}

/// Host copies of the images under signed steps and of their bounds, each [B, P]. They are empty until the first image
/// is put.
#[derive(Default)]
struct Slots {
    x: Vec<f32>,
    low: Vec<f32>,
    high: Vec<f32>,
    newest: Newest,
}

/// Which copy of the images in [`Slots`] is current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Newest {
    /// The host copy; the tensors in [`Places`] are out of date.
    #[default]
    Host,
    /// The tensors in [`Places`].
    Place,
    /// Both.
    Both,
}

/// The tensors that the two sessions exchange, stored where the sessions compute. In each step only the embeddings,
/// their cotangents and the step sizes pass through the host.
struct Places {
    image: Place,
    low: Place,
    high: Place,
    alpha: Place,
    embedding: Place,
    /// The backward graph's input ē.
    cotangent: (String, Place),
    /// The other values of the forward pass that the backward graph reads.
    residuals: Vec<(String, Place)>,
}

/// Standard deviation of the estimator's noise outside of an attack: twice the usual largest change, 8/255.
const SIGMA: f32 = 16.0 / 255.0;

impl Lane {
    pub fn new(
        forward: &Arc<Session>,
        gradient: Gradient,
        half: Option<Half>,
        info: &Info,
        each: usize,
    ) -> Result<Lane> {
        let shape = info.preprocessing.pixel_shape(each);
        let image = forward.place(&Value::new(IMAGE, DType::F32, &shape), Side::Device)?;
        let mut embedding = embedding_place(forward, [each, info.dim])?;
        let mut run = forward.binding()?;
        run.input(IMAGE, &image)?;
        run.output(EMBEDDING, &mut embedding)?;
        let look = Look { image, embedding, run };
        let shape = shape.map(|d| d as usize);
        Ok(Lane { forward: forward.clone(), shape, dim: info.dim, look, gradient, half })
    }

    /// Computes ∂⟨f(x), ē⟩/∂x for one batch of images. Returns the embeddings [B, D] and the gradient [B, P].
    pub fn product(&mut self, images: &[f32], cotangent: ArrayView2<f32>) -> Result<(Array2<f32>, Vec<f32>)> {
        let mut e = Array2::zeros((0, 0));
        let mut gradient = vec![0.0; images.len()];
        let mut seen = |z: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            e = z.to_owned();
            out.assign(&cotangent);
        };
        Differentiable::gradient(self, images, &vec![0.0; self.shape[0]], &mut seen, &mut gradient)?;
        Ok((e, gradient))
    }
}

impl Lane {
    /// Signed steps along the exact gradient; `None` where gradients are estimated.
    pub(super) fn gradient_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        match &mut self.gradient {
            Gradient::Exact(exact) => Some(exact.as_mut()),
            Gradient::Estimate(_) => None,
        }
    }
}

impl Look {
    /// Embeddings of shape `size` [B, D]. Where fewer than B images are given, the last rows belong to padding.
    fn embed(&mut self, forward: &Session, images: &[f32], size: [usize; 2]) -> Result<Array2<f32>> {
        self.image.write(images)?;
        forward.run_bound(&mut self.run)?;
        let e = ArrayView2::from_shape(size, self.embedding.read()?);
        e.map(|e| e.to_owned()).map_err(|e| Error::internal(format!("embeddings: {e}")))
    }
}

impl Exact {
    /// `reads` are the backward graph's inputs. The names are those of its cotangent input and its gradient output.
    pub fn new(
        forward: &Arc<Session>,
        backward: &Arc<Session>,
        reads: &[Value],
        [cotangent, gradient]: [&str; 2],
        info: &Info,
        each: usize,
    ) -> Result<Exact> {
        let place = |name: &str| match reads.iter().find(|v| v.name == name) {
            Some(value) => backward.place(value, Side::Device),
            None => Err(Error::internal(format!("the backward graph has no input {name}"))),
        };
        let size = [each, info.dim];
        // The embedding is left out: if the backward graph reads it, it is already bound.
        let known = [IMAGE, LOW, HIGH, ALPHA, EMBEDDING, cotangent];
        let others = reads.iter().filter(|v| !known.contains(&v.name.as_str()));
        let mut places = Places {
            image: place(IMAGE)?,
            low: place(LOW)?,
            high: place(HIGH)?,
            alpha: place(ALPHA)?,
            embedding: embedding_place(forward, size)?,
            cotangent: (cotangent.to_string(), place(cotangent)?),
            residuals: others
                .map(|v| Ok((v.name.clone(), backward.place(v, Side::Device)?)))
                .collect::<Result<_>>()?,
        };
        let mut there = forward.binding()?;
        there.input(IMAGE, &places.image)?;
        there.output(EMBEDDING, &mut places.embedding)?;
        for (name, place) in &mut places.residuals {
            there.output(name, place)?;
        }
        // Binding the output to an input's tensor is safe: only the last node writes it, and every other node runs
        // before.
        let mut back = places.read_by(backward)?;
        back.output(NEXT, &mut places.image)?;
        let gradient = Value::new(gradient, DType::F32, &info.preprocessing.pixel_shape(each));
        let mut found = backward.place(&gradient, Side::Device)?;
        let mut back_to_gradient = places.read_by(backward)?;
        back_to_gradient.output(&gradient.name, &mut found)?;
        Ok(Exact {
            forward: forward.clone(),
            backward: backward.clone(),
            given: Array2::zeros(size),
            places,
            there,
            back,
            back_to_gradient: (back_to_gradient, found),
            slots: Slots::default(),
        })
    }

    /// Runs the forward pass on the stored images and stores the cotangent for the backward pass.
    fn run_forward(&mut self, cotangent: &mut Cotangent) -> Result<()> {
        self.forward.run_bound(&mut self.there)?;
        let e = ArrayView2::from_shape(self.given.dim(), self.places.embedding.read()?)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        cotangent(e, self.given.view_mut());
        self.places.cotangent.1.write(self.given.as_slice().expect("made row-major"))
    }

    /// Computes ∂L/∂image of images [B, P] and writes it to `gradient` [B, P].
    pub fn gradient(
        &mut self,
        images: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        // This call overwrites the tensor that images under signed steps use, so those are copied to the host first.
        self.bring_slots()?;
        self.slots.newest = Newest::Host;
        self.places.image.write(images)?;
        self.run_forward(cotangent)?;
        let (run, found) = &mut self.back_to_gradient;
        self.backward.run_bound(run)?;
        gradient.copy_from_slice(found.read()?);
        Ok(())
    }

    /// Copies the images to the host where the device has newer ones.
    fn bring_slots(&mut self) -> Result<()> {
        if self.slots.newest == Newest::Place {
            self.slots.x.copy_from_slice(self.places.image.read()?);
            self.slots.newest = Newest::Both;
        }
        Ok(())
    }

    fn slot(&self, slot: usize) -> std::ops::Range<usize> {
        let pixels = self.slots.x.len() / self.given.nrows();
        slot * pixels..(slot + 1) * pixels
    }
}

impl SignedSteps for Exact {
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()> {
        self.bring_slots()?;
        let all = self.given.nrows() * image.len();
        for values in [&mut self.slots.x, &mut self.slots.low, &mut self.slots.high] {
            values.resize(all, 0.0);
        }
        let at = self.slot(slot);
        self.slots.x[at.clone()].copy_from_slice(image);
        self.slots.low[at.clone()].copy_from_slice(low);
        self.slots.high[at].copy_from_slice(high);
        self.slots.newest = Newest::Host;
        Ok(())
    }

    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()> {
        if self.slots.newest == Newest::Host {
            self.places.image.write(&self.slots.x)?;
            self.places.low.write(&self.slots.low)?;
            self.places.high.write(&self.slots.high)?;
        }
        self.places.alpha.write(alpha)?;
        self.run_forward(cotangent)?;
        self.backward.run_bound(&mut self.back)?;
        self.slots.newest = Newest::Place;
        Ok(())
    }

    fn get(&mut self, slot: usize) -> Result<&[f32]> {
        self.bring_slots()?;
        let at = self.slot(slot);
        Ok(&self.slots.x[at])
    }
}

fn embedding_place(forward: &Session, size: [usize; 2]) -> Result<Place> {
    forward.place(&Value::new(EMBEDDING, DType::F32, &size.map(|n| n as i64)), Side::Host)
}

impl Places {
    /// Binds these tensors as the backward session's inputs.
    fn read_by(&self, backward: &Session) -> Result<Binding> {
        let mut binding = backward.binding()?;
        let own = [(IMAGE, &self.image), (LOW, &self.low), (HIGH, &self.high), (ALPHA, &self.alpha)];
        let handed = std::iter::once(&self.cotangent).chain(&self.residuals);
        for (name, place) in own.into_iter().chain(handed.map(|(name, place)| (name.as_str(), place))) {
            binding.input(name, place)?;
        }
        Ok(binding)
    }
}

impl Differentiable for Lane {
    fn batch(&self) -> usize {
        self.shape[0]
    }
    fn shape(&self) -> [usize; 3] {
        [self.shape[1], self.shape[2], self.shape[3]]
    }
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let n = images.len() / self.pixels();
        let e = self.look.embed(&self.forward, images, [self.shape[0], self.dim])?;
        Ok(e.slice_move(s![..n, ..]))
    }
    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let Lane { forward, shape, dim, look, gradient: source, .. } = self;
        match source {
            Gradient::Exact(exact) => exact.gradient(images, cotangent, gradient),
            Gradient::Estimate(estimator) => {
                let mut embed = |x: &[f32]| look.embed(forward, x, [shape[0], *dim]);
                let e = embed(images)?;
                let mut ct = Array2::zeros(e.dim());
                cotangent(e.view(), ct.view_mut());
                estimator.passes += 1;
                let sigma: Vec<f32> = reach.iter().map(|&r| if r > 0.0 { r } else { SIGMA }).collect();
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

//! A model as one thread has it: where its tensors lie, and how a step runs from the images to the next ones.

use super::estimate::Estimator;
use super::half::Half;
use super::runtime::{Binding, Place, Session, Side};
use super::{ALPHA, EMBEDDING, HIGH, IMAGE, Info, LOW, NEXT};
use super::{Cotangent, Differentiable, SignedSteps};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use onnx_grad::{DType, Value};
use std::sync::Arc;

/// The model as one thread has it: sessions are shared, tensors its own.
pub(super) struct Lane {
    forward: Arc<Session>,
    /// Shape of the images, [B, C, H, W].
    shape: [usize; 4],
    /// Length of an embedding.
    dim: usize,
    /// Where images are embedded outside of steps.
    look: Look,
    pub(super) gradient: Gradient,
    /// Where attack steps run in float16.
    pub(super) half: Option<Half>,
}

/// Images on their way through the forward graph alone.
struct Look {
    image: Place,
    embedding: Place,
    run: Binding,
}

/// Where gradients come from.
pub(super) enum Gradient {
    Exact(Box<Exact>),
    Estimate(Estimator),
}

/// Both graphs, where their tensors lie, and how they are run.
pub(super) struct Exact {
    forward: Arc<Session>,
    backward: Arc<Session>,
    /// The cotangent as the host has it, [B, D].
    given: Array2<f32>,
    places: Places,
    /// The forward pass.
    there: Binding,
    /// The backward pass that puts the next images in the place of the last.
    pub(super) back: Binding,
    /// The backward pass that gives the gradient, and where it lies.
    back_to_gradient: (Binding, Place),
    slots: Slots,
}

/// Images under signed steps as the host has them, and their bounds, each [B, P]; empty until the first is put there.
#[derive(Default)]
struct Slots {
    x: Vec<f32>,
    low: Vec<f32>,
    high: Vec<f32>,
    newest: Newest,
}

/// Where the newest images of [`Slots`] are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Newest {
    /// On the host: the places have others.
    #[default]
    Host,
    /// In the places.
    Place,
    /// In both.
    Both,
}

/// All that goes between the sessions, where they compute: per step only embeddings, their cotangents and step sizes come
/// to the host and go back.
struct Places {
    image: Place,
    low: Place,
    high: Place,
    alpha: Place,
    embedding: Place,
    /// The backward graph's input ē.
    cotangent: (String, Place),
    /// What else the backward graph reads of the forward pass.
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

    /// ∂⟨f(x), ē⟩/∂x of the lane's images: embeddings [B, D] and the gradient [B, P].
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
    /// Signed steps along the exact gradient.
    pub(super) fn gradient_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        match &mut self.gradient {
            Gradient::Exact(exact) => Some(exact.as_mut()),
            Gradient::Estimate(_) => None,
        }
    }
}

impl Look {
    /// Embeddings of shape `size` of n images, of others where there are fewer.
    fn embed(&mut self, forward: &Session, images: &[f32], size: [usize; 2]) -> Result<Array2<f32>> {
        self.image.write(images)?;
        forward.run_bound(&mut self.run)?;
        let e = ArrayView2::from_shape(size, self.embedding.read()?);
        e.map(|e| e.to_owned()).map_err(|e| Error::internal(format!("embeddings: {e}")))
    }
}

impl Exact {
    /// `reads` are the backward graph's inputs.
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
        // The node that makes the embedding has no need of it again.
        let known = [IMAGE, LOW, HIGH, ALPHA, EMBEDDING, cotangent];
        let others = reads.iter().map(|v| v.name.as_str()).filter(|name| !known.contains(name));
        let mut places = Places {
            image: place(IMAGE)?,
            low: place(LOW)?,
            high: place(HIGH)?,
            alpha: place(ALPHA)?,
            embedding: embedding_place(forward, size)?,
            cotangent: (cotangent.to_string(), place(cotangent)?),
            residuals: others.map(|name| Ok((name.to_string(), place(name)?))).collect::<Result<_>>()?,
        };
        let mut there = forward.binding()?;
        there.input(IMAGE, &places.image)?;
        there.output(EMBEDDING, &mut places.embedding)?;
        for (name, place) in &mut places.residuals {
            there.output(name, place)?;
        }
        // All nodes lead to the last one, which alone writes: the images are read by then.
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

    /// The forward pass of the images in place, and the cotangent put in place.
    fn run_forward(&mut self, cotangent: &mut Cotangent) -> Result<()> {
        self.forward.run_bound(&mut self.there)?;
        let e = ArrayView2::from_shape(self.given.dim(), self.places.embedding.read()?)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        cotangent(e, self.given.view_mut());
        self.places.cotangent.1.write(self.given.as_slice().expect("made row-major"))
    }

    /// ∂L/∂image of images [B, P], to `gradient`.
    pub fn gradient(
        &mut self,
        images: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        // Images under signed steps lie in the same place: they come back to the host first.
        self.bring_slots()?;
        self.slots.newest = Newest::Host;
        self.places.image.write(images)?;
        self.run_forward(cotangent)?;
        let (run, found) = &mut self.back_to_gradient;
        self.backward.run_bound(run)?;
        gradient.copy_from_slice(found.read()?);
        Ok(())
    }

    /// Brings the images of the slots to the host, where newer ones are in their place.
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
    /// Binds them as the backward session's inputs.
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

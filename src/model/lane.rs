//! A model as one thread has it: where its tensors lie, and how a step runs from the images to the next ones.

use super::estimate::Estimator;
use super::half::Half;
use super::runtime::{Binding, Place, Session, Side};
use super::{ALPHA, EMBEDDING, HIGH, IMAGE, Info, LOW, NEXT};
use crate::attack::{Batch, Cotangent, Differentiable};
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

/// The backward graph, and how it is run.
pub(super) struct Exact {
    backward: Arc<Session>,
    /// The backward graph's output that is ∂⟨f(x), ē⟩/∂x.
    gradient: Value,
    /// The cotangent as the host has it, [B, D].
    given: Array2<f32>,
    places: Places,
    /// The forward pass.
    there: Binding,
    /// The backward pass that puts the next images in the place of the last.
    pub(super) back: Binding,
    /// Whether the images in place are those of the last step.
    stepping: bool,
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
    pub fn gradient(
        &mut self,
        images: &[f32],
        cotangent: ArrayView2<f32>,
    ) -> Result<(Array2<f32>, Vec<f32>)> {
        let mut e = Array2::zeros((0, 0));
        let mut seen = |z: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            e = z.to_owned();
            out.assign(&cotangent);
        };
        let g = match &mut self.gradient {
            Gradient::Exact(exact) => exact.gradient(&self.forward, images, &mut seen)?,
            Gradient::Estimate(_) => self.estimated(images, &vec![SIGMA; self.shape[0]], &mut seen)?,
        };
        Ok((e, g))
    }

    fn estimated(&mut self, x: &[f32], sigma: &[f32], cotangent: &mut Cotangent) -> Result<Vec<f32>> {
        let e = self.embed(x)?;
        let mut ct = Array2::zeros(e.dim());
        cotangent(e.view(), ct.view_mut());
        let Lane { forward, shape, dim, look, gradient, .. } = self;
        let Gradient::Estimate(estimator) = gradient else {
            return Err(Error::internal("an exact gradient was taken for an estimated one"));
        };
        estimator.passes += 1;
        let mut embed = |x: &[f32]| look.embed(forward, x, [shape[0], *dim]);
        estimator.gradient(&mut embed, x, *shape, ct.view(), sigma)
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
        forward: &Session,
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
        let given = Array2::zeros(size);
        Ok(Exact { backward: backward.clone(), gradient, given, places, there, back, stepping: false })
    }

    /// The forward pass of the images in place, and the cotangent put in place.
    fn forward(&mut self, forward: &Session, cotangent: &mut Cotangent) -> Result<()> {
        forward.run_bound(&mut self.there)?;
        let e = ArrayView2::from_shape(self.given.dim(), self.places.embedding.read()?)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        cotangent(e, self.given.view_mut());
        self.places.cotangent.1.write(self.given.as_slice().expect("made row-major"))
    }

    pub fn gradient(
        &mut self,
        forward: &Session,
        images: &[f32],
        cotangent: &mut Cotangent,
    ) -> Result<Vec<f32>> {
        self.stepping = false;
        self.places.image.write(images)?;
        self.forward(forward, cotangent)?;
        let mut gradient = self.backward.place(&self.gradient, Side::Device)?;
        let mut back = self.places.read_by(&self.backward)?;
        back.output(&self.gradient.name, &mut gradient)?;
        self.backward.run_bound(&mut back)?;
        Ok(gradient.read()?.to_vec())
    }

    pub fn step(&mut self, forward: &Session, batch: &mut Batch, cotangent: &mut Cotangent) -> Result<()> {
        if batch.changed {
            self.places.image.write(&batch.x)?;
            self.places.low.write(&batch.lo)?;
            self.places.high.write(&batch.hi)?;
            (batch.changed, self.stepping) = (false, true);
        }
        if !self.stepping {
            return Err(Error::internal("a gradient was asked for between two steps of a batch"));
        }
        self.places.alpha.write(&batch.alpha)?;
        self.forward(forward, cotangent)?;
        self.backward.run_bound(&mut self.back)
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
    fn pixels(&self) -> usize {
        self.shape[1..].iter().product()
    }
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let n = images.len() / self.pixels();
        let e = self.look.embed(&self.forward, images, [self.shape[0], self.dim])?;
        Ok(e.slice_move(s![..n, ..]))
    }
    fn step(&mut self, batch: &mut Batch, cotangent: &mut Cotangent) -> Result<()> {
        if let Some(half) = self.half.as_mut().filter(|half| half.on) {
            return half.step(batch, cotangent);
        }
        if let Gradient::Exact(exact) = &mut self.gradient {
            return exact.step(&self.forward, batch, cotangent);
        }
        let Batch { x, lo, hi, alpha, .. } = batch;
        let pixels = self.pixels();
        // Twice the largest change, which the bounds tell wherever black and white don't cut them off.
        let sigma: Vec<f32> = lo
            .chunks(pixels)
            .zip(hi.chunks(pixels))
            .map(|(lo, hi)| lo.iter().zip(hi).fold(0.0f32, |m, (lo, hi)| m.max(hi - lo)))
            .map(|widest| if widest > 0.0 { widest } else { SIGMA })
            .collect();
        let g = self.estimated(x, &sigma, cotangent)?;
        for (i, v) in x.iter_mut().enumerate() {
            let sign = if g[i] == 0.0 { 0.0 } else { g[i].signum() };
            *v = (*v - alpha[i / pixels] * sign).max(lo[i]).min(hi[i]);
        }
        Ok(())
    }
    fn fetch(&mut self, batch: &mut Batch) -> Result<()> {
        let half = self.half.as_mut().filter(|half| half.on).map(|half| &mut half.exact);
        let exact = match (&mut self.gradient, half) {
            (_, Some(half)) => half,
            (Gradient::Exact(exact), None) => exact.as_mut(),
            (Gradient::Estimate(_), None) => return Ok(()),
        };
        batch.x.copy_from_slice(exact.places.image.read()?);
        Ok(())
    }
}

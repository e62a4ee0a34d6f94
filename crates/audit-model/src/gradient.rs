//! The exact gradient of one worker: the sessions of both graphs, and the tensors that they exchange.

use super::runtime::{Binding, BoundTensor, Memory, Session};
use super::{ALPHA, Cotangent, EMBEDDING, HIGH, IMAGE, Info, LOW, NEXT, Sessions, SignedSteps};
use audit_base::{Error, Result};
use ndarray::{Array2, ArrayView2};
use onnx_grad::graph::{DType, Value};
use std::sync::Arc;

/// The forward and backward graphs of an exact gradient, with their tensors and bindings.
pub struct Exact {
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
    back_to_gradient: (Binding, BoundTensor),
    slots: Slots,
}

/// Host copies of the images under signed steps and of their bounds, each [B, P]. They are empty until the
/// first image is put.
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
    BoundTensor,
    Both,
}

/// The tensors that the two sessions exchange, stored where the sessions compute. In each step only the
/// embeddings, their cotangents and the step sizes pass through the host.
struct Places {
    image: BoundTensor,
    low: BoundTensor,
    high: BoundTensor,
    alpha: BoundTensor,
    embedding: BoundTensor,
    /// Whether the backward graph reads the embedding.
    reads_embedding: bool,
    /// The backward graph's input ē.
    cotangent: (String, BoundTensor),
    /// The other values of the forward pass that the backward graph reads.
    residuals: Vec<(String, BoundTensor)>,
}

impl Exact {
    /// The tensors and bindings of one worker of `each` images.
    pub(super) fn new(sessions: &Sessions, info: &Info, each: usize) -> Result<Exact> {
        let Sessions { forward, backward, inputs: reads, names: [cotangent, gradient], .. } = sessions;
        let place = |name: &str| match reads.iter().find(|v| v.name == name) {
            Some(value) => backward.place(value, Memory::Device),
            None => Err(Error::internal(format!("the backward graph has no input {name}"))),
        };
        let size = [each, info.dim];
        let known = [IMAGE, LOW, HIGH, ALPHA, EMBEDDING, cotangent.as_str()];
        let others = reads.iter().filter(|v| !known.contains(&v.name.as_str()));
        let mut places = Places {
            image: place(IMAGE)?,
            low: place(LOW)?,
            high: place(HIGH)?,
            alpha: place(ALPHA)?,
            embedding: embedding_place(forward, size)?,
            reads_embedding: reads.iter().any(|v| v.name == EMBEDDING),
            cotangent: (cotangent.to_string(), place(cotangent)?),
            residuals: others
                .map(|v| Ok((v.name.clone(), backward.place(v, Memory::Device)?)))
                .collect::<Result<_>>()?,
        };
        let mut there = forward.binding()?;
        there.input(IMAGE, &places.image)?;
        there.output(EMBEDDING, &mut places.embedding)?;
        for (name, place) in &mut places.residuals {
            there.output(name, place)?;
        }
        // Binding the output to an input's tensor is safe: only the last node writes it, and every other node
        // runs before. If the last node is our Chain, which reads the images itself, it reads each value
        // before it writes the next one there (`Steps::run`).
        let mut back = places.read_by(backward)?;
        back.output(NEXT, &mut places.image)?;
        let gradient = Value::new(gradient, DType::F32, &info.preprocessing.pixel_shape(each));
        let mut found = backward.place(&gradient, Memory::Device)?;
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
        // This call overwrites the tensor that images under signed steps use, so those are copied to the host
        // first.
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
        if self.slots.newest == Newest::BoundTensor {
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
        self.slots.newest = Newest::BoundTensor;
        Ok(())
    }

    fn get(&mut self, slot: usize) -> Result<&[f32]> {
        self.bring_slots()?;
        let at = self.slot(slot);
        Ok(&self.slots.x[at])
    }
}

/// The place of a worker's embeddings, of shape `size` [B, D].
pub fn embedding_place(forward: &Session, size: [usize; 2]) -> Result<BoundTensor> {
    forward.place(&Value::new(EMBEDDING, DType::F32, &size.map(|n| n as i64)), Memory::Host)
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
        if self.reads_embedding {
            binding.input(EMBEDDING, &self.embedding)?;
        }
        Ok(binding)
    }
}

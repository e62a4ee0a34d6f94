//! The buffers of a batch.

use crate::ball::Bound;
use audit_base::Result;
use audit_gallery::data::Resampling;
use audit_model::Differentiable;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A batch of images. A slot holds the images that one run tries at once: one, except in long random
/// searches.
pub(super) struct Slots {
    /// Whether the model moves the images itself; then `x` is not used.
    pub(super) in_place: bool,
    /// Images per slot.
    pub(super) each: usize,
    /// The model's images, [B, P]; the images of a slot are adjacent.
    pub(super) x: Vec<f32>,
    /// ∂L/∂x, [B, P].
    pub(super) gradient: Vec<f32>,
    /// Width of the interval in which a pixel of each image moves, [B]; 0 in empty slots.
    pub(super) reach: Vec<f32>,
    /// Step size of each image, [B]; 0 in empty slots.
    pub(super) alpha: Vec<f32>,
    pub(super) pixels: usize,
    /// The photograph that each slot's images are made of; `None` if the run moves the model's images
    /// themselves.
    photographs: Vec<Option<Moving>>,
}

/// A photograph of N values that moves.
struct Moving {
    resampling: Arc<Resampling>,
    /// The images that are tried at once, [each, N].
    x: Vec<f32>,
    /// The gradient for the first of them [N].
    gradient: Vec<f32>,
}

impl Slots {
    pub(super) fn new(count: usize, each: usize, pixels: usize, in_place: bool) -> Slots {
        let all = if in_place { 0 } else { count * each * pixels };
        let (x, gradient) = (vec![0.0; all], vec![0.0; all]);
        let photographs = (0..count).map(|_| None).collect();
        let (reach, alpha) = (vec![0.0; count], vec![0.0; count]);
        Slots { in_place, each, x, gradient, reach, alpha, pixels, photographs }
    }

    /// Empties all slots.
    pub(super) fn clear(&mut self) {
        [&mut self.x, &mut self.reach, &mut self.alpha].into_iter().for_each(|values| values.fill(0.0));
    }

    /// The range of a slot's first image in `x`.
    pub(super) fn at(&self, slot: usize) -> Range<usize> {
        self.at_of(slot, 0)
    }

    /// The range of image k of a slot in `x`.
    fn at_of(&self, slot: usize, k: usize) -> Range<usize> {
        let image = slot * self.each + k;
        image * self.pixels..(image + 1) * self.pixels
    }

    /// Image k of a slot, as its run moves it, and the gradient for the first image.
    pub(super) fn moving(&mut self, slot: usize, k: usize) -> (&mut [f32], &[f32]) {
        let (first, at) = (self.at(slot), self.at_of(slot, k));
        match &mut self.photographs[slot] {
            None => (&mut self.x[at], &self.gradient[first]),
            Some(Moving { x, gradient, .. }) => {
                let n = gradient.len();
                (&mut x[k * n..(k + 1) * n], gradient)
            }
        }
    }

    /// Makes image k of a slot its first.
    pub(super) fn choose(&mut self, slot: usize, k: usize) {
        let (from, to) = (self.at_of(slot, k), self.at(slot).start);
        self.x.copy_within(from, to);
        if let Some(Moving { x, gradient, .. }) = &mut self.photographs[slot] {
            let n = gradient.len();
            x.copy_within(k * n..(k + 1) * n, 0);
        }
    }

    /// Makes the model's images of all photographs. JPEG files get the quality at `place` of
    /// [`QUALITIES`](audit_gallery::data::QUALITIES).
    pub(super) fn resample(&mut self, place: usize) -> Result<()> {
        let Slots { x, photographs, each, pixels, .. } = self;
        let slots = photographs.par_iter().zip(x.par_chunks_mut(*each * *pixels));
        slots.try_for_each(|(photograph, inputs)| {
            let Some(Moving { resampling, x, gradient }) = photograph else { return Ok(()) };
            let images = x.par_chunks(gradient.len()).zip(inputs.par_chunks_mut(*pixels));
            images.try_for_each(|(image, input)| resampling.apply_at(place, image, input))
        })
    }

    /// Computes the gradients for all photographs from those for the model's images.
    pub(super) fn pull_back(&mut self) {
        let Slots { gradient: of_inputs, photographs, each, pixels, .. } = self;
        let slots = photographs.par_iter_mut().zip(of_inputs.par_chunks(*each * *pixels));
        slots.for_each(|(photograph, of_inputs)| {
            let Some(Moving { resampling, gradient, .. }) = photograph else { return };
            resampling.pull_back(&of_inputs[..*pixels], gradient);
        });
    }

    /// Stores an image in a slot. `resampling`: see [`super::CleanImage`].
    pub(super) fn put(
        &mut self,
        model: &mut dyn Differentiable,
        slot: usize,
        x: &[f32],
        bound: &Bound,
        resampling: &Option<Arc<Resampling>>,
    ) -> Result<()> {
        let (low, high) = bound.limits();
        let widest = low.iter().zip(&high).fold(0.0f32, |m, (low, high)| m.max(high - low));
        // In a ball that is no box, hardly any value can use its whole interval.
        self.reach[slot] = if bound.ball.is_box { widest } else { widest.min(2.0 * bound.amplitude()) };
        self.photographs[slot] = resampling.clone().map(|resampling| Moving {
            resampling,
            x: x.repeat(self.each),
            gradient: vec![0.0; x.len()],
        });
        match model.signed_steps().filter(|_| self.in_place) {
            Some(steps) => steps.put(slot, x, &low, &high)?,
            None if resampling.is_some() => (),
            None => {
                for k in 0..self.each {
                    let at = self.at_of(slot, k);
                    self.x[at].copy_from_slice(x);
                }
            }
        }
        Ok(())
    }

    /// Empties a slot and returns its image.
    pub(super) fn take(&mut self, model: &mut dyn Differentiable, slot: usize) -> Result<Vec<f32>> {
        (self.alpha[slot], self.reach[slot]) = (0.0, 0.0);
        match model.signed_steps().filter(|_| self.in_place) {
            Some(steps) => Ok(steps.get(slot)?.to_vec()),
            None => {
                let image = self.moving(slot, 0).0.to_vec();
                self.photographs[slot] = None;
                Ok(image)
            }
        }
    }
}

/// The model's image [P] of an image that a run moved.
pub(super) fn as_input(
    image: &[f32],
    resampling: &Option<Arc<Resampling>>,
    pixels: usize,
) -> Result<Vec<f32>> {
    let Some(resampling) = resampling else { return Ok(image.to_vec()) };
    let mut input = vec![0.0; pixels];
    resampling.apply(image, &mut input)?;
    Ok(input)
}

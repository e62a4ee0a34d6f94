//! The buffers of a batch.

use crate::ball::Bound;
use audit_base::Result;
use audit_model::Differentiable;

/// A batch of images. A slot holds the images that one run tries at once; in all but long random searches that is one.
pub(super) struct Slots {
    /// Whether the model moves the images itself; then `x` is not used.
    pub(super) in_place: bool,
    /// The images of each slot.
    pub(super) each: usize,
    /// The images, [B, P], those of a slot one behind the other.
    pub(super) x: Vec<f32>,
    /// ∂L/∂x, [B, P].
    pub(super) gradient: Vec<f32>,
    /// Largest change that a pixel of each image may make, [B]; 0 in empty slots.
    pub(super) reach: Vec<f32>,
    /// Step size of each image, [B]; 0 in empty slots.
    pub(super) alpha: Vec<f32>,
    pub(super) pixels: usize,
}

impl Slots {
    pub(super) fn new(count: usize, each: usize, pixels: usize, in_place: bool) -> Slots {
        let all = if in_place { 0 } else { count * each * pixels };
        let (x, gradient) = (vec![0.0; all], vec![0.0; all]);
        Slots { in_place, each, x, gradient, reach: vec![0.0; count], alpha: vec![0.0; count], pixels }
    }

    /// Empties all slots.
    pub(super) fn clear(&mut self) {
        [&mut self.x, &mut self.reach, &mut self.alpha].into_iter().for_each(|values| values.fill(0.0));
    }

    /// Where the first image of a slot lies.
    pub(super) fn at(&self, slot: usize) -> std::ops::Range<usize> {
        self.at_of(slot, 0)
    }

    /// Where image k of a slot lies.
    pub(super) fn at_of(&self, slot: usize, k: usize) -> std::ops::Range<usize> {
        let image = slot * self.each + k;
        image * self.pixels..(image + 1) * self.pixels
    }

    /// Stores an image in a slot.
    pub(super) fn put(
        &mut self,
        model: &mut dyn Differentiable,
        slot: usize,
        x: &[f32],
        bound: &Bound,
    ) -> Result<()> {
        let (low, high) = bound.limits();
        self.reach[slot] = low.iter().zip(&high).fold(0.0f32, |m, (low, high)| m.max(high - low));
        match model.signed_steps().filter(|_| self.in_place) {
            Some(steps) => steps.put(slot, x, &low, &high)?,
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
            None => Ok(self.x[self.at(slot)].to_vec()),
        }
    }
}

//! How fast a model computes on this machine.

use crate::model::Model;
use crate::model::inspect::fastest;
use crate::threat::{GRADIENT_PASSES, Room};
use crate::{Error, Result};
use ndarray::ArrayView2;

/// How fast a model is on this machine, all its workers at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// The batches that are at work at the same time.
    pub room: Room,
    /// Seconds to embed an image.
    pub embed_s: f64,
    /// Seconds of a step of one image: forward, backward and update.
    pub step_s: f64,
    /// Seconds that a step on a photograph takes besides: the way to the model's input and back. 0 if attacks
    /// change the input.
    pub photograph_s: f64,
}

/// Forward passes that take about as long as a step.
const STEP: f64 = GRADIENT_PASSES as f64;

impl Speed {
    /// Times rounds of all workers.
    pub fn measure(model: &mut Model) -> Result<Speed> {
        let (count, dim) = (model.at_once(), model.info.dim);
        let room = Room { workers: count / model.batch().max(1), batch: model.batch() };
        let images = vec![0.5; count * model.pixels()];
        let embed_s = fastest(|| model.embed(&images).map(drop))? / count as f64;
        if model.graphs.estimated {
            let passes = crate::model::estimate::POPULATION as f64;
            return Ok(Speed { room, embed_s, step_s: passes * embed_s, photograph_s: 0.0 });
        }
        let ones = vec![1.0; count * dim];
        let cotangent = ArrayView2::from_shape((count, dim), &ones)
            .map_err(|e| Error::internal(format!("cotangent: {e}")))?;
        let step_s = fastest(|| model.gradient(&images, cotangent).map(drop))? / count as f64;
        Ok(Speed { room, embed_s, step_s, photograph_s: 0.0 })
    }

    /// A guess from the forward pass alone.
    pub fn guess(embed_s: f64) -> Speed {
        Speed { room: Room::SINGLE, embed_s, step_s: STEP * embed_s, photograph_s: 0.0 }
    }

    /// Seconds of `steps` steps, `on_photographs` of them on photographs.
    pub(super) fn of_steps(&self, [steps, on_photographs]: [usize; 2]) -> f64 {
        steps as f64 * self.step_s + on_photographs as f64 * self.photograph_s
    }

    /// Seconds of forward passes of all workers, whether their batches are full or not.
    pub fn of_passes(&self, passes: usize) -> f64 {
        let Room { workers, batch } = self.room;
        passes as f64 * (workers * batch) as f64 * self.embed_s.max(self.step_s / STEP)
    }

    /// Seconds of forward passes of all workers, and of single images. An empty place in a batch costs the
    /// model as much as an image, and no resize.
    pub(super) fn of_work(&self, [passes, images]: [usize; 2]) -> f64 {
        self.of_passes(passes) + images as f64 * self.photograph_s / STEP
    }
}

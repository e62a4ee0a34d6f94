//! The work of a run in forward passes of all workers, from which its time is estimated.

use super::search::Search;
use audit_model::Model;

/// Forward passes of a batch that take about as long as a step along a gradient.
pub const GRADIENT_PASSES: usize = 3;

/// The batches that are computed at the same time. The time of a run is proportional to its rounds: a batch
/// of one image takes nearly as long as a full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Batches at the same time.
    pub workers: usize,
    /// Images in each batch.
    pub batch: usize,
}

impl Room {
    /// One image at a time.
    pub const SINGLE: Room = Room { workers: 1, batch: 1 };

    /// That of a model's workers.
    pub fn of(model: &Model) -> Room {
        Room { workers: model.at_once() / model.batch().max(1), batch: model.batch() }
    }

    /// An upper bound on the forward passes of all workers for `runs` runs of `steps` steps, if each tries
    /// `each` images at once. Along a gradient these are JPEG files of one image in several qualities, and
    /// each takes a pass of its own.
    pub fn passes(self, runs: usize, steps: usize, each: usize, search: &Search) -> usize {
        let in_slot = if search.needs_gradient { 1 } else { each };
        let slots = self.workers * (self.batch / in_slot).max(1);
        runs.div_ceil(slots.max(1)) * steps.div_ceil(each) * self.of_round(each, search)
    }

    /// The forward passes of a round.
    pub fn of_round(self, each: usize, search: &Search) -> usize {
        if search.needs_gradient { GRADIENT_PASSES * each } else { each.div_ceil(self.batch.max(1)) }
    }
}

/// Forward passes of all workers: those made, and an upper bound on those left. They estimate time better
/// than image steps do: at the end of a long search most of a batch is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Made so far.
    pub made: usize,
    /// Left at most.
    pub left: usize,
}

//! The work of a run in forward passes of all workers, which tell the time that it takes.

use super::search::Search;
use audit_model::Model;

/// Forward passes of a batch that take about as long as a step along a gradient.
pub const GRADIENT_PASSES: usize = 3;

/// The batches that are at work at the same time. What a run costs in time are its rounds: a batch of one image takes nearly as long as a full
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Batches at the same time.
    pub workers: usize,
    /// Images in each.
    pub batch: usize,
}

impl Room {
    /// One image at a time.
    pub const SINGLE: Room = Room { workers: 1, batch: 1 };

    /// That of a model's workers.
    pub fn of(model: &Model) -> Room {
        Room { workers: model.at_once() / model.batch().max(1), batch: model.batch() }
    }

    /// The forward passes of all workers that `runs` runs of `steps` steps take at most, if each tries `each` images at once. Along a
    /// gradient these are the same image, as files of several qualities, and each takes a pass of its own.
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

/// Forward passes of all workers: those that are made, and those that are left at most. They tell the time better than image steps do: at the
/// end of a long search most of a batch is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Made so far.
    pub made: usize,
    /// Left at most.
    pub left: usize,
}

//! What the search for the smallest perturbation will take, told before it begins: a linear model of the
//! margin says how far a sample of the queries is from failing.

use super::ladder;
use super::members;
use super::run::Strong;
use crate::loss::Loss;
use crate::loss_batch::{Losses, check_embeddings};
use crate::passes::Room;
use crate::trial::Trial;
use audit_base::Result;
use audit_model::Differentiable;
use audit_report::record::Space;
use ndarray::{ArrayView2, ArrayViewMut2};

/// What attacks on some queries take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The queries.
    pub queries: usize,
    /// Those of them that are correct without an attack; the others need none.
    pub correct: usize,
    /// The correct ones whose gradients were looked at.
    pub sample: usize,
    /// A [small change](crate::Plan::small_change).
    pub eps: f32,
    /// The correct ones that withstand it by the linear model.
    pub withstand: usize,
    /// Forward passes of all workers, and of single photographs, if the linear model holds.
    pub usual: [usize; 2],
    /// The same at most.
    pub most: [usize; 2],
}

/// The most queries that are looked at: as much work as a step of the search on each.
const SAMPLE: usize = 16;

impl Strong<'_> {
    /// The forecast for the trials, which have one objective; `None` if no smallest perturbation is searched
    /// for. Costs gradients at a few images. Errors: those of the model and of the images.
    pub fn forecast(&self, workers: Vec<&mut dyn Differentiable>) -> Result<Option<Forecast>> {
        let all: Vec<usize> = (0..self.trials.len()).collect();
        let Some(first) = self.trials.first() else { return Ok(None) };
        if self.plan.ladder_of(first.objective).is_none() {
            return Ok(None);
        }
        let clean = self.without_attack(&all);
        let correct: Vec<&Trial> =
            self.trials.iter().zip(clean).filter(|(_, (_, lost))| !lost).map(|(trial, _)| trial).collect();
        let (queries, count, eps) = (self.trials.len(), correct.len(), self.plan.small_change());
        let room = Room { workers: workers.len(), batch: workers.first().map_or(1, |worker| worker.batch()) };
        let nothing =
            Forecast { queries, correct: 0, sample: 0, eps, withstand: 0, usual: [0; 2], most: [0; 2] };
        let (Some(worker), 1..) = (workers.into_iter().next(), count) else { return Ok(Some(nothing)) };
        let sampled = count.min(SAMPLE);
        let sample: Vec<&Trial> = (0..sampled).map(|i| correct[i * count / sampled]).collect();
        let mut sizes = Vec::new();
        for some in sample.chunks(room.batch) {
            sizes.extend(self.smallest_by_linear_model(worker, some)?);
        }
        let above = |eps: f32| {
            let share =
                sizes.iter().filter(|size| **size > f64::from(eps)).count() as f64 / sizes.len() as f64;
            (count as f64 * share).round() as usize
        };
        let [withstand, hold] = [above(eps), above(self.plan.eps)];
        let objective = first.objective;
        let in_files = |room: Room| match self.plan.in_files(objective) {
            Some(_) => {
                ladder::usual_passes(self.plan.ball, Space::File, [count - hold, withstand - hold], room)
            }
            None => 0,
        };
        let usual = |room: Room| {
            ladder::usual_passes(self.plan.ball, self.plan.space, [count, withstand - hold], room)
                + members::passes_to_the_end(objective.members, self.effort, hold, room)
                + members::passes(self.plan.further(), self.effort, count, room)
                + in_files(room)
        };
        let resizes =
            if self.plan.space == Space::File { usual(Room::SINGLE) } else { in_files(Room::SINGLE) };
        Ok(Some(Forecast {
            queries,
            correct: count,
            sample: sampled,
            eps,
            withstand,
            usual: [usual(room), resizes],
            most: [self.plan.most_passes(objective, count, room), self.plan.most_resizes(objective, count)],
        }))
    }

    /// The smallest size of a perturbation that makes each of the trials fail if the margin is linear in the
    /// image; infinite if its gradient is 0. At most a batch of trials. In file space, of perturbations of
    /// the model's input, which are no larger.
    fn smallest_by_linear_model(
        &self,
        worker: &mut dyn Differentiable,
        trials: &[&Trial],
    ) -> Result<Vec<f64>> {
        let gallery = &self.context.gallery;
        let (batch, pixels) = (worker.batch(), worker.pixels());
        let mut images = vec![0.5; batch * pixels];
        for (image, trial) in images.chunks_mut(pixels).zip(trials) {
            image.copy_from_slice(&(self.others.images)(trial.query)?.data);
        }
        let losses: Vec<Loss> =
            trials.iter().map(|trial| (trial.objective.loss)(self.context, self.plan.form, trial)).collect();
        let mut found = Losses::default();
        let mut fault = None;
        let mut gradient = vec![0.0; batch * pixels];
        let mut cotangent = |raw: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            out.fill(0.0);
            fault = check_embeddings(raw, batch, gallery, trials.iter().copied().enumerate()).err();
            found.place(raw, gallery);
            found.evaluate(gallery, &|i| losses.get(i).map(|loss| (loss, false)));
            for (i, mut out) in out.outer_iter_mut().take(trials.len()).enumerate() {
                let pulled = &mut found.gradient[i * gallery.dim()..][..gallery.dim()];
                gallery.metric.pull_back(raw.row(i).to_slice().expect("row-major"), pulled);
                out.iter_mut().zip(pulled).for_each(|(out, g)| *out = *g);
            }
        };
        worker.gradient(&images, &vec![0.0; batch], &mut cotangent, &mut gradient)?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let size = |i: usize| {
            let Trial { objective, query, .. } = trials[i];
            let free = self.plan.free(self.others.shape, objective, &gallery.ids[*query])?;
            let slope = self.plan.bound(&images[i * pixels..][..pixels], &free);
            Ok(found.losses[i] / slope.dual(&gradient[i * pixels..][..pixels]))
        };
        (0..trials.len()).map(size).collect()
    }
}

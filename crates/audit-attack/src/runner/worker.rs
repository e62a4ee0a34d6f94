//! A worker: it fills its batch with runs, lets them step, and measures those that end.

use super::slots::Slots;
use super::state::State;
use super::task::{Run, Task};
use super::{CleanImage, load, locked};
use crate::draw::{Draw, NOISE};
use crate::loss::Loss;
use crate::loss_batch::Losses;
use crate::passes::{Passes, Room};
use audit_base::{Error, Result};
use audit_model::Differentiable;
use audit_report::record::Space;
use rayon::prelude::*;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Maximum size of the photographs in a worker, in values (256 MiB of float32). A single photograph may be
/// larger.
const PHOTOGRAPHS: usize = 64 << 20;

/// A worker and its batch, and what it shares with the others.
pub(super) struct Worker<'w, 'a, 's> {
    pub task: Task<'a>,
    pub model: &'w mut dyn Differentiable,
    /// Its place among the workers.
    pub place: usize,
    /// Whether it is the only worker.
    alone: bool,
    pub shared: &'w Mutex<State<'a, 's>>,
    pub buffers: Losses,
    pub slots: Slots,
    /// The run in each slot.
    pub active: Vec<Option<Run<'a>>>,
    /// Runs that have not begun, with their clean images.
    ready: VecDeque<Ready>,
}

/// A run, by its job and its start, and the clean images of its trials.
type Ready = ([usize; 2], Result<Vec<CleanImage>>);

/// Number of values of the photographs that a run will try at once, `each` of every clean image; 0 if it
/// moves the model's images.
fn values((_, clean): &Ready, each: usize) -> usize {
    let of_image = |image: &CleanImage| image.resampling.as_ref().map_or(0, |_| image.data.len() * each);
    clean.as_ref().map_or(0, |clean| clean.iter().map(of_image).sum())
}

impl Task<'_> {
    /// Loads the clean images of a run.
    fn fetch(&self, run: [usize; 2], pixels: usize) -> Ready {
        let Task { context, images, trials, jobs, .. } = *self;
        let load = |&trial: &usize| load(&context.gallery, images, trials[trial].query, pixels);
        (run, jobs[run[0]].iter().map(load).collect())
    }
}

impl<'w, 'a, 's> Worker<'w, 'a, 's> {
    pub(super) fn new(
        task: Task<'a>,
        model: &'w mut dyn Differentiable,
        place: usize,
        alone: bool,
        shared: &'w Mutex<State<'a, 's>>,
    ) -> Worker<'w, 'a, 's> {
        let each = task.moved_at_once();
        let (count, pixels) = ((model.batch() / each).max(1), model.pixels());
        let plan = task.plan;
        // In file space the image that moves is not the model's input.
        let plain = task.how.is_none() && plan.space == Space::Input && plan.search.in_place(plan.ball);
        let in_place = plain && model.signed_steps().is_some();
        Worker {
            task,
            model,
            place,
            alone,
            shared,
            buffers: Losses::default(),
            slots: Slots::new(count, each, pixels, in_place),
            active: (0..count).map(|_| None).collect(),
            ready: VecDeque::new(),
        }
    }

    /// Works until no runs are left.
    pub(super) fn work(&mut self) -> Result<()> {
        let mut waiting = Vec::new();
        loop {
            self.fill()?;
            if self.active.iter().all(Option::is_none) {
                return self.measure(&mut waiting, true);
            }
            if self.task.plan.steps > 0 {
                self.step()?;
            }
            let steps = self.advance(&mut waiting)?;
            if self.report(steps) {
                return Ok(());
            }
            self.measure(&mut waiting, false)?;
        }
    }

    /// Begins runs in the free slots, as long as the photographs of the batch fit into memory. Jobs of
    /// several trials take no slot, and are run at once.
    fn fill(&mut self) -> Result<()> {
        let mut free: VecDeque<usize> =
            (0..self.active.len()).filter(|&slot| self.active[slot].is_none()).collect();
        // Photographs are loaded a few at a time, since more of them than fit would wait in memory.
        let at_once = match self.task.plan.space {
            Space::Input => free.len(),
            Space::File if self.alone => rayon::current_num_threads(),
            Space::File => 1,
        };
        while self.ready.len() < free.len() && self.has_room() {
            let before = self.ready.len();
            self.fetch(at_once.min(free.len() - before));
            if self.ready.len() == before {
                break;
            }
        }
        let each = self.slots.each;
        let mut at_work: usize = self.active.iter().flatten().map(|run| run.values(each)).sum();
        while let (Some(&slot), Some(next)) = (free.front(), self.ready.front()) {
            let next_values = values(next, each);
            if at_work > 0 && at_work + next_values > PHOTOGRAPHS {
                break;
            }
            at_work += next_values;
            let Some((run, clean)) = self.ready.pop_front() else { break };
            let mut clean = clean?;
            locked(self.shared).begins(run[0]);
            let task = self.task;
            if task.is_together(run[0]) {
                task.work_together(run, clean, self)?;
                self.fetch(1);
                continue;
            }
            free.pop_front();
            let clean = clean.pop().ok_or_else(|| Error::internal("a job without a trial"))?;
            self.active[slot] = Some(self.begin(run, clean, slot)?);
        }
        Ok(())
    }

    /// Whether another photograph may be loaded besides those of the batch and those that wait for a slot.
    fn has_room(&self) -> bool {
        let each = self.slots.each;
        let at_work: usize = self.active.iter().flatten().map(|run| run.values(each)).sum();
        let waiting: usize = self.ready.iter().map(|next| values(next, each)).sum();
        at_work + waiting <= PHOTOGRAPHS
    }

    /// Takes up to `count` runs from the common list, and loads their clean images.
    fn fetch(&mut self, count: usize) {
        let (task, shared, pixels) = (self.task, self.shared, self.model.pixels());
        let fetch = |run| task.fetch(run, pixels);
        let wanted: Vec<_> = std::iter::from_fn(|| locked(shared).next()).take(count).collect();
        match self.alone {
            true => self.ready.par_extend(wanted.into_par_iter().map(fetch)),
            false => self.ready.extend(wanted.into_iter().map(fetch)),
        }
    }

    /// Prepares a run and stores its first image in a slot.
    fn begin(&mut self, [job, start]: [usize; 2], clean: CleanImage, slot: usize) -> Result<Run<'a>> {
        let Task { context, trials, jobs, plan, how, .. } = self.task;
        let gallery = &context.gallery;
        let trial = &trials[jobs[job][0]];
        let draw = |stream| Draw::new(plan.seed, trial.objective.code, &gallery.ids[trial.query], stream);
        let shape = clean.resampling.as_ref().map_or(self.model.shape(), |way| way.shape());
        let free = plan.free(shape, trial.objective, &gallery.ids[trial.query])?;
        let run = self.task.new_run([job, start], jobs[job][0], clean, shape, free);
        let bound = plan.bound(&run.clean, &run.free);
        if matches!(run.loss, Loss::Still) {
            self.slots.put(self.model, slot, &run.clean, &bound, &run.resampling)?;
            return Ok(Run { begins_clean: true, ..run });
        }
        let given = how.map(|how| (how.start)(jobs[job][0], &bound, shape)).transpose()?.flatten();
        let stream = how.map_or(start as u64, |how| (how.stream)(jobs[job][0]));
        let elsewhere = given.is_some() || start > 0;
        let x = given.unwrap_or_else(|| match start {
            0 => run.clean.clone(),
            _ => bound.start(&mut draw(start as u64)),
        });
        let (x, walk, own) = self.task.walk(bound, x, elsewhere, draw(NOISE + 1 + stream), shape);
        self.slots.put(self.model, slot, &x, &bound, &run.resampling)?;
        self.slots.alpha[slot] = self.task.alpha();
        let begins_clean = !elsewhere && !own;
        Ok(Run { walk: Some(walk), begins_clean, ..run })
    }

    /// Computes losses and gradients in all slots.
    fn step(&mut self) -> Result<()> {
        let has_room = self.has_room();
        let Worker { task, model, alone, shared, buffers, slots, active, ready, .. } = self;
        let (task, shared, count, pixels) = (*task, *shared, active.len(), model.pixels());
        let mut step = || task.step(active, slots, &mut **model, buffers);
        if !*alone {
            return step();
        }
        // If this worker is alone, such as on a GPU whose memory holds no more, the other threads are free.
        // During the step they decode as many images as end per step on average. Otherwise every thread has
        // its own worker.
        let some = count.div_ceil(task.plan.steps).min(count.saturating_sub(ready.len()));
        let some = if has_room { some } else { 0 };
        let next = || locked(shared).next();
        let fetch = |run| task.fetch(run, pixels);
        let ahead = || ready.extend(std::iter::from_fn(next).take(some).map(fetch));
        rayon::join(step, ahead).0
    }

    /// Reports `steps` that are done, and the passes. Returns whether all threads must stop.
    fn report(&self, steps: usize) -> bool {
        let Task { trials, plan, .. } = self.task;
        let running = || self.active.iter().flatten();
        let at = running().next().map(|run| (&trials[run.trial], run.step));
        let first = running().map(|run| run.step).min();
        let at_once = self.task.at_once();
        let rounds = first.map_or(0, |step| (plan.steps - step).div_ceil(at_once));
        let of_round = Room { workers: 1, batch: self.model.batch() }.of_round(at_once, plan.search);
        let passes = Passes { made: of_round, left: of_round * rounds };
        locked(self.shared).stepped(self.place, steps, passes, at)
    }
}

//! Jobs of several trials: the perturbation that they share is crafted on all of them.

use super::slots::Slots;
use super::task::{Run, Task};
use super::worker::Worker;
use super::{CleanImage, load, locked};
use crate::ball::Bound;
use crate::draw::{Draw, NOISE};
use crate::loss_batch::check_embeddings;
use crate::measure::measure_all;
use crate::passes::{GRADIENT_PASSES, Passes};
use crate::search::{RANDOM, Scaled, Setting};
use crate::trial::Trial;
use audit_base::{Error, Result};

/// Perturbations that a random search tries before a further start of a shared one, for each step that
/// follows. Without a gradient they cost about as much as the step.
const SEARCHED_PER_STEP: usize = 3;

/// A perturbation of several trials from one start.
struct Crafted<'a> {
    runs: Vec<Option<Run<'a>>>,
    /// The perturbation [P].
    delta: Vec<f32>,
    /// The mean loss of the trials under it.
    loss: f64,
    /// Which of its values may differ from 0; `None` for all.
    free: Option<Vec<bool>>,
}

impl<'a> Task<'a> {
    /// Runs a job of several trials from one start, or from all starts if its perturbation is then applied to
    /// other trials.
    pub(super) fn work_together(
        &self,
        [job, start]: [usize; 2],
        clean: Vec<CleanImage>,
        worker: &mut Worker,
    ) -> Result<()> {
        if clean.iter().any(|image| image.resampling.is_some()) {
            return Err(Error::internal("photographs of different sizes share no perturbation"));
        }
        let applied = self.applied(job);
        if applied.is_empty() {
            let crafted = self.craft([job, start], clean, worker)?;
            let Some(Crafted { runs, delta, .. }) = crafted else { return Ok(()) };
            let mut waiting: Vec<_> = (runs.into_iter().flatten())
                .map(|run| {
                    let image = run.moved(&delta);
                    (run, image)
                })
                .collect();
            return worker.measure(&mut waiting, true);
        }
        // The start with the most success on the sample counts, and among equals the one with the lowest
        // loss. The queries that the perturbation is measured on have no part in the choice.
        let mut best: Option<(f64, usize, Crafted)> = None;
        for start in 0..=self.plan.restarts {
            let Some(found) = self.craft([job, start], clean.clone(), worker)? else {
                return Ok(());
            };
            let success = self.mean_success(&found, worker)?;
            let better = |(most, _, best): &(f64, usize, Crafted)| {
                success > *most || (success == *most && found.loss < best.loss)
            };
            if best.as_ref().is_none_or(better) {
                best = Some((success, start, found));
            }
        }
        let Some((_, start, Crafted { delta, free, .. })) = best else { return Ok(()) };
        let mut waiting = Vec::new();
        for &trial in applied {
            let clean =
                load(&self.context.gallery, self.images, self.trials[trial].query, worker.model.pixels())?;
            let run = self.new_run([job, start], trial, clean, worker.model.shape(), free.clone());
            let image = run.moved(&delta);
            waiting.push((run, image));
            worker.measure(&mut waiting, false)?;
            if locked(worker.shared).ended {
                return Ok(());
            }
        }
        worker.measure(&mut waiting, true)
    }

    /// Crafts the common perturbation of a job's trials from one start, along the gradient of their mean
    /// loss. `None` if all threads must stop.
    fn craft(
        &self,
        [job, start]: [usize; 2],
        clean: Vec<CleanImage>,
        worker: &mut Worker,
    ) -> Result<Option<Crafted<'a>>> {
        let Task { context, trials, jobs, plan, .. } = *self;
        let gallery = &context.gallery;
        let pixels = worker.model.pixels();
        let members: Vec<&Trial> = jobs[job].iter().map(|&trial| &trials[trial]).collect();
        // Random draws depend on which queries share the perturbation, and not on their order.
        let mut ids: Vec<&str> = members.iter().map(|t| gallery.ids[t.query].as_str()).collect();
        ids.sort_unstable();
        let all = ids.join("\0");
        let draw = |stream| Draw::new(plan.seed, members[0].objective.code, &all, stream);
        let zero = vec![0.0; pixels];
        let shape = worker.model.shape();
        let free = plan.free(shape, members[0].objective, &all)?;
        let bound = Bound { pixels: false, ..plan.bound(&zero, &free) };
        let mut runs: Vec<Option<Run>> = (jobs[job].iter().zip(clean))
            .map(|(&trial, clean)| Some(self.new_run([job, start], trial, clean, shape, free.clone())))
            .collect();
        let first = draw(start as u64);
        let x = match start {
            0 => Some(zero.clone()),
            _ => self.random_search(&runs, &bound, first, worker)?,
        };
        let Some(x) = x else { return Ok(None) };
        let draw = draw(NOISE + 1 + start as u64);
        let (mut delta, mut walk, own) = self.walk(bound, x, start > 0, draw, shape);
        runs.iter_mut().flatten().for_each(|run| run.begins_clean &= !own);
        let mut slots = Slots::new(worker.model.batch(), 1, pixels, false);
        for step in 0..plan.steps {
            let (loss, gradient) = self.mean_gradient(&mut runs, &delta, &bound, &mut slots, worker)?;
            walk.step(&mut delta, &bound, loss, Scaled::of(&gradient));
            if self.stepped_together(&runs, plan.steps - step - 1, worker) {
                return Ok(None);
            }
        }
        let images: Vec<Vec<f32>> = runs.iter().flatten().map(|run| run.moved(&delta)).collect();
        let mut loss = self.mean_loss(&runs, &images, worker)?;
        if let Some((best, at)) = walk.best().filter(|(best, _)| *best < loss) {
            (loss, delta) = (best, at);
        }
        Ok(Some(Crafted { runs, delta, loss, free }))
    }

    /// The mean loss of `runs` under a perturbation, and its gradient [P]. Pixels that are clipped at 0 or 1
    /// contribute no gradient.
    fn mean_gradient(
        &self,
        runs: &mut [Option<Run<'a>>],
        delta: &[f32],
        bound: &Bound,
        slots: &mut Slots,
        worker: &mut Worker,
    ) -> Result<(f64, Vec<f32>)> {
        let Worker { model, buffers, .. } = worker;
        let (mut loss, mut gradient) = (0.0, vec![0.0f32; model.pixels()]);
        let per = 1.0 / runs.len() as f32;
        for runs in runs.chunks_mut(model.batch()) {
            slots.clear();
            for (slot, run) in runs.iter().flatten().enumerate() {
                let at = slots.at(slot);
                slots.x[at].copy_from_slice(&run.moved(delta));
                slots.reach[slot] = 2.0 * bound.amplitude();
            }
            let mut padded: Vec<Option<Run>> = runs.iter_mut().map(Option::take).collect();
            padded.resize_with(model.batch(), || None);
            self.step(&mut padded, slots, &mut **model, buffers)?;
            for (slot, (place, run)) in runs.iter_mut().zip(padded).enumerate() {
                let Some(mut run) = run else { continue };
                run.step += 1;
                loss += run.losses.last().copied().unwrap_or(f64::NAN) * f64::from(per);
                let found = &slots.gradient[slots.at(slot)];
                for (i, g) in gradient.iter_mut().enumerate() {
                    if (0.0..=1.0).contains(&(run.clean[i] + delta[i])) {
                        *g += per * found[i] / run.scale;
                    }
                }
                *place = Some(run);
            }
        }
        Ok((loss, gradient))
    }

    /// The first point of an additional start of a shared perturbation: the best point of a random search,
    /// which tries [`SEARCHED_PER_STEP`] perturbations for each step that follows. From points inside the
    /// ball, gradients of a mean loss lead to poor optima; a corner of the ball often leads to a good one.
    /// `None` if all threads must stop.
    fn random_search(
        &self,
        runs: &[Option<Run>],
        bound: &Bound,
        draw: Draw,
        worker: &mut Worker,
    ) -> Result<Option<Vec<f32>>> {
        let steps = SEARCHED_PER_STEP * self.plan.steps;
        let mut x = vec![0.0; worker.model.pixels()];
        let setting = Setting {
            bound: *bound,
            start: &x,
            warm: false,
            shape: worker.model.shape(),
            steps,
            alpha: self.alpha(),
        };
        let mut search = (RANDOM.begin)(&setting, draw);
        x = search.first().unwrap_or(x);
        for look in 1..=steps {
            let images: Vec<Vec<f32>> = runs.iter().flatten().map(|run| run.moved(&x)).collect();
            let loss = self.mean_loss(runs, &images, worker)?;
            search.step(&mut x, bound, loss, Scaled::of(&[]));
            let left = self.plan.steps + (steps - look) / SEARCHED_PER_STEP;
            if look.is_multiple_of(SEARCHED_PER_STEP) && self.stepped_together(runs, left, worker) {
                return Ok(None);
            }
        }
        Ok(Some(search.best().map_or(x, |(_, best)| best)))
    }

    /// The forward passes of the longest run of a job of several trials, in batches of `batch` images.
    pub(super) fn passes_together(&self, batch: usize) -> usize {
        let most =
            (0..self.jobs.len()).filter(|&job| self.is_together(job)).map(|job| self.jobs[job].len()).max();
        let starts = self.plan.restarts;
        // Each further start begins with a random search of the same cost. An applied perturbation has all
        // starts in one run.
        let times = if self.applied.is_empty() { 1 + starts.min(1) } else { 1 + 2 * starts };
        most.map_or(0, |most| GRADIENT_PASSES * most.div_ceil(batch) * self.plan.steps * times)
    }

    /// Counts a step of trials that share a perturbation; `left` are left from this start. Returns whether
    /// all threads must stop.
    fn stepped_together(&self, runs: &[Option<Run>], left: usize, worker: &Worker) -> bool {
        let Some(run) = runs.iter().flatten().next() else { return false };
        // Steps are counted for the trials that are measured.
        let counted = match self.applied(run.job) {
            [] => runs.len(),
            applied => applied.len(),
        };
        let of_step = GRADIENT_PASSES * runs.len().div_ceil(worker.model.batch());
        let later = match self.applied(run.job) {
            [] => 0,
            _ => 2 * self.plan.steps * self.plan.restarts.saturating_sub(run.start),
        };
        let passes = Passes { made: of_step, left: of_step * (left + later) };
        let at = Some((&self.trials[run.trial], run.step));
        locked(worker.shared).stepped(worker.place, counted, passes, at)
    }

    /// The attacker's mean success on the trials that a perturbation was crafted on, in per cent of their
    /// last term.
    fn mean_success(&self, found: &Crafted<'a>, worker: &mut Worker) -> Result<f64> {
        let Worker { model, buffers, .. } = worker;
        let Task { context, trials, plan, .. } = *self;
        let gallery = &context.gallery;
        let (count, ranked) = (model.batch(), plan.form.ranked_in(gallery) as f64);
        let runs: Vec<&Run> = found.runs.iter().flatten().collect();
        let mut sum = 0.0;
        for some in runs.chunks(count) {
            let images: Vec<Vec<f32>> = some.iter().map(|run| run.moved(&found.delta)).collect();
            let raw = model.embed(&images.concat())?;
            check_embeddings(
                raw.view(),
                some.len(),
                gallery,
                some.iter().map(|r| &trials[r.trial]).enumerate(),
            )?;
            buffers.place(raw.view(), gallery);
            let points = |i: usize| buffers.point(i, gallery);
            let trial = |i: usize| &trials[some[i].trial];
            let clean = |i: usize| (trial(i), gallery.point(trial(i).query));
            let before = measure_all(context, plan.form, &Vec::from_iter((0..some.len()).map(clean)));
            let attacked = (0..some.len()).map(|i| (trial(i), points(i)));
            let after = measure_all(context, plan.form, &Vec::from_iter(attacked));
            for (i, states) in before.into_iter().zip(after).enumerate() {
                let outcome = self.outcome(some[i], &images[i], points(i), found.loss, states)?;
                let success = trial(i).objective.success(&outcome, plan.form, ranked);
                sum += success.map_or(0.0, |(_, after)| after);
            }
        }
        Ok(sum / runs.len().max(1) as f64)
    }

    /// The mean loss of `runs` at `images`, one image per run.
    fn mean_loss(&self, runs: &[Option<Run>], images: &[Vec<f32>], worker: &mut Worker) -> Result<f64> {
        let Worker { model, buffers, .. } = worker;
        let mut sum = 0.0;
        for (runs, images) in runs.chunks(model.batch()).zip(images.chunks(model.batch())) {
            let raw = model.embed(&images.concat())?;
            let whose = runs.iter().flatten().map(|run| &self.trials[run.trial]).enumerate();
            check_embeddings(raw.view(), runs.len(), &self.context.gallery, whose)?;
            buffers.place(raw.view(), &self.context.gallery);
            buffers.evaluate(&self.context.gallery, &|i| runs.get(i)?.as_ref().map(|run| (&run.loss, false)));
            sum += buffers.losses.iter().sum::<f64>();
        }
        Ok(sum / runs.len().max(1) as f64)
    }
}

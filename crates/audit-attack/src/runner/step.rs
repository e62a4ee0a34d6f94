//! One step: losses and gradients at the images of a batch, and where the searches move these.

use super::slots::Slots;
use super::task::{Run, Task};
use super::worker::Worker;
use crate::loss::Loss;
use crate::loss_batch::{Losses, check_embeddings, check_loss};
use crate::search::Scaled;
use audit_base::{Error, Result};
use audit_model::Differentiable;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, concatenate};

impl Task<'_> {
    /// Computes losses and gradients in all slots. A model with signed steps also moves its images.
    pub(super) fn step(
        &self,
        active: &mut [Option<Run>],
        slots: &mut Slots,
        model: &mut dyn Differentiable,
        buffers: &mut Losses,
    ) -> Result<()> {
        slots.resample(0)?;
        let mut fault = None;
        let mut look = |place: usize, raw: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            out.fill(0.0);
            fault = fault.take().or(self.look(active, place, raw, Some(out), buffers).err());
        };
        if slots.in_place {
            let steps = model.signed_steps().ok_or_else(|| Error::internal("signed steps went away"))?;
            steps.step(&slots.alpha, &mut |raw, out| look(0, raw, out))?;
        } else if self.plan.search.needs_gradient {
            model.gradient(&slots.x, &slots.reach, &mut |raw, out| look(0, raw, out), &mut slots.gradient)?;
            // The mean over files of several qualities. Its length doesn't matter, and the way back is
            // linear.
            for place in 1..self.at_once() {
                slots.resample(place)?;
                let mut more = vec![0.0; slots.gradient.len()];
                model.gradient(&slots.x, &slots.reach, &mut |raw, out| look(place, raw, out), &mut more)?;
                slots.gradient.iter_mut().zip(more).for_each(|(sum, g)| *sum += g);
            }
            slots.pull_back();
        } else {
            let batches = slots.x.chunks(model.batch() * slots.pixels);
            let raw: Vec<_> = batches.map(|images| model.embed(images)).collect::<Result<_>>()?;
            let raw: Vec<_> = raw.iter().map(|raw| raw.view()).collect();
            let raw = concatenate(Axis(0), &raw).map_err(|e| Error::internal(format!("embeddings: {e}")))?;
            self.look(active, 0, raw.view(), None, buffers)?;
            for (slot, run) in active.iter().enumerate() {
                if let Some(run) = run.as_ref().filter(|run| run.chosen > 0) {
                    slots.choose(slot, run.chosen);
                }
            }
            return Ok(());
        }
        fault.map_or(Ok(()), Err)
    }

    /// Records the losses of the active slots at their raw embeddings [B, D], the lowest of each slot. If
    /// `out` [B, D], zero on entry, is given, writes ∂L/∂embedding to it. `place` is 0, or the index of
    /// another file of the same images: the highest loss of an image's files counts.
    fn look(
        &self,
        active: &mut [Option<Run>],
        place: usize,
        raw: ArrayView2<f32>,
        mut out: Option<ArrayViewMut2<f32>>,
        buffers: &mut Losses,
    ) -> Result<()> {
        let Task { context, trials, .. } = *self;
        let gallery = &context.gallery;
        let each = self.moved_at_once();
        let of = |image: usize| active[image / each].as_ref();
        let at_work = (0..active.len() * each).filter_map(|image| Some((image, &trials[of(image)?.trial])));
        check_embeddings(raw, active.len() * each, gallery, at_work)?;
        buffers.place(raw, gallery);
        buffers
            .evaluate(gallery, &|image| of(image).map(|run| (&run.loss, run.step == 0 && run.begins_clean)));
        for (slot, run) in active.iter_mut().enumerate() {
            let Some(run) = run else { continue };
            let losses = &buffers.losses[slot * each..][..each];
            losses.iter().try_for_each(|loss| check_loss(*loss, gallery, &trials[run.trial]))?;
            run.chosen = (1..each).fold(0, |best, k| if losses[k] < losses[best] { k } else { best });
            let loss = losses[run.chosen];
            match run.losses.last_mut().filter(|_| place > 0) {
                Some(highest) => *highest = highest.max(loss),
                None => run.losses.push(loss),
            }
            run.stuck |= matches!(run.loss, Loss::Still);
            if let Some(out) = &mut out {
                let gradient = &mut buffers.gradient[slot * gallery.dim()..][..gallery.dim()];
                gallery.metric.pull_back(raw.row(slot).to_slice().expect("row-major"), gradient);
                let largest = gradient.iter().fold(0.0f32, |m, g| m.max(g.abs()));
                run.stuck |= largest == 0.0 && self.at_once() == 1;
                // Only the direction of the gradient matters later. Scaling by a power of two keeps the other
                // bits unchanged, and keeps small gradients (a mean over the gallery) from underflowing in
                // half precision.
                if place == 0 {
                    run.scale = if largest.is_normal() { (-largest.log2().floor()).exp2() } else { 1.0 };
                }
                out.row_mut(slot).iter_mut().zip(gradient).for_each(|(o, g)| *o = *g * run.scale);
            }
            if place > 0 {
                continue;
            }
            let clean = gallery.point(trials[run.trial].query);
            run.shift = gallery.metric.distance(buffers.point(slot * each + run.chosen, gallery), clean);
        }
        Ok(())
    }
}

impl<'a> Worker<'_, 'a, '_> {
    /// Counts a step in every slot and lets the searches move their images. Moves finished runs and their
    /// images to `ended`. Returns the number of steps that are done; a run that ends early counts with all
    /// its steps.
    pub(super) fn advance(&mut self, ended: &mut Vec<(Run<'a>, Vec<f32>)>) -> Result<usize> {
        let Worker { task, model, active, slots, .. } = self;
        let Task { plan, how, .. } = *task;
        let mut steps = 0;
        for (slot, place) in active.iter_mut().enumerate() {
            let Some(run) = place else { continue };
            let left = plan.steps - run.step;
            let tried = task.at_once().min(left);
            if let Some(how) = how {
                let latest = run.losses.last().copied().unwrap_or(f64::NAN);
                let flat = plan.search.needs_gradient && slots.moving(slot, 0).1.iter().all(|g| *g == 0.0);
                let enough = how.enough.is_some_and(|enough| latest < enough);
                // A search may come from outside its ball. It goes on until it is inside.
                let bound = plan.bound(&run.clean, &run.free);
                let most = bound.eps.max(plan.eps) + plan.ball.rounding(plan.eps);
                let inside = |x: &[f32]| (plan.ball.size)(x, &run.clean) <= most;
                run.stuck = (run.stuck || enough || flat) && inside(slots.moving(slot, 0).0);
                if run.stuck {
                    // The image stays the one of the latest loss.
                    steps += left;
                    run.step += tried;
                    let image = slots.take(&mut **model, slot)?;
                    ended.extend(place.take().map(|run| (run, image)));
                    continue;
                }
            }
            // After a gradient of exactly zero, such as that of a closed hinge, the image never moves again.
            run.step += if run.stuck { 0 } else { tried };
            if let Some(walk) = run.walk.as_mut().filter(|_| left > 0 && !slots.in_place) {
                let bound = plan.bound(&run.clean, &run.free);
                let latest = run.losses.last().copied().unwrap_or(f64::NAN);
                let (x, gradient) = slots.moving(slot, 0);
                let values = if plan.search.needs_gradient { gradient } else { &[] };
                walk.step(x, &bound, latest, Scaled { values, by: run.scale });
                for k in 1..slots.each {
                    walk.another(slots.moving(slot, k).0, &bound);
                }
                run.stuck |= walk.done();
            }
            if run.stuck || run.step == plan.steps {
                steps += left;
                let image = slots.take(&mut **model, slot)?;
                ended.extend(place.take().map(|run| (run, image)));
            } else {
                steps += tried;
            }
        }
        Ok(steps)
    }
}

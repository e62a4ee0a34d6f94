//! From the images of finished runs to outcomes: embedded again, measured, and checked against their bounds.

use super::slots::as_input;
use super::task::{Run, Task};
use super::worker::Worker;
use super::{Evidence, LAST, locked};
use crate::loss_batch::{check_embeddings, check_loss};
use crate::measure::measure_all;
use crate::trial::Trial;
use audit_base::{Error, Result};
use audit_report::record::{Measures, Outcome};
use rayon::prelude::*;

impl Worker<'_, '_, '_> {
    /// Embeds the images of finished runs, a full batch at a time, and turns the runs into outcomes. With
    /// `rest` it also processes an incomplete last batch.
    pub(super) fn measure(&mut self, waiting: &mut Vec<(Run, Vec<f32>)>, rest: bool) -> Result<()> {
        let Worker { task, model, shared, buffers, .. } = self;
        let (task, shared) = (*task, *shared);
        let Task { context, trials, plan, .. } = task;
        let gallery = &context.gallery;
        while waiting.len() >= model.batch() || (rest && !waiting.is_empty()) {
            let mut some: Vec<_> = waiting.drain(..waiting.len().min(model.batch())).collect();
            some.par_iter_mut().for_each(|(run, x)| plan.settle(x, &plan.bound(&run.clean, &run.free)));
            let pixels = model.pixels();
            let input = |(run, x): &(Run, Vec<f32>)| as_input(x, &run.resampling, pixels);
            let images = some.par_iter().map(input).collect::<Result<Vec<_>>>()?.concat();
            let raw = model.embed(&images)?;
            let whose = some.iter().map(|(run, _)| &trials[run.trial]).enumerate();
            check_embeddings(raw.view(), some.len(), gallery, whose)?;
            buffers.place(raw.view(), gallery);
            buffers.evaluate(gallery, &|i| some.get(i).map(|(run, _)| (&run.loss, false)));
            let buffers = &*buffers;
            let losses = &buffers.losses;
            let mut last = Vec::with_capacity(some.len());
            for (i, (mut run, x)) in some.into_iter().enumerate() {
                // If the search has seen a better image than its last, that image is measured instead. If it
                // tries files of several qualities, its losses are the highest of them, and the loss here is
                // that of one.
                match run.walk.take().and_then(|walk| walk.best()) {
                    Some((best, image)) if best < losses[i] || task.tries_qualities() => {
                        waiting.push((run, image))
                    }
                    _ => last.push((i, run, x)),
                }
            }
            let embedded = |i: usize| buffers.point(i, gallery);
            let state = |at: Vec<(&Trial, &[f32])>| measure_all(context, plan.form, &at);
            let clean = |trial: usize| (&trials[trial], gallery.point(trials[trial].query));
            let before = state(last.iter().map(|(_, run, _)| clean(run.trial)).collect());
            let after = state(last.iter().map(|(i, run, _)| (&trials[run.trial], embedded(*i))).collect());
            let states = before.into_par_iter().zip(after);
            let found: Vec<Result<Outcome>> = (last.par_iter().zip(states))
                .map(|((i, run, x), states)| task.outcome(run, x, embedded(*i), losses[*i], states))
                .collect();
            for ((i, mut run, image), outcome) in last.into_iter().zip(found) {
                run.losses.push(losses[i]);
                let (point, shape) = (embedded(i).to_vec(), run.shape);
                let evidence = Evidence { image, shape, point, losses: run.losses };
                locked(shared).settle([run.job, run.start], run.trial, outcome?, evidence);
            }
        }
        Ok(())
    }
}

impl Task<'_> {
    pub(super) fn outcome(
        &self,
        run: &Run,
        x: &[f32],
        z: &[f32],
        loss: f64,
        (before, after): (Measures, Measures),
    ) -> Result<Outcome> {
        let Task { context, trials, plan, .. } = *self;
        let gallery = &context.gallery;
        let trial = &trials[run.trial];
        check_loss(loss, gallery, trial)?;
        let linf = x.iter().zip(&run.clean).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        let size = (plan.ball.size)(x, &run.clean);
        // For files, and for models of whole grey levels, a protocol's 0.03137 stands for 8 of them.
        let most = plan.bound(&run.clean, &run.free).eps.max(plan.eps);
        // In this form the condition is false for NaN too.
        let inside = x.iter().all(|v| (0.0..=1.0).contains(v)) && size <= most + plan.ball.rounding(plan.eps);
        if !inside {
            return Err(Error::internal(format!(
                "{} on query `{}`: the attacked image left its bounds: it moved by {size} where ε = {} and pixels lie in \
                 [0, 1]. This is a fault of the model's step; please report it",
                trial.objective.code, gallery.ids[trial.query], plan.eps
            )));
        }
        if let Some(i) = plan.bound(&run.clean, &run.free).fixed().find(|&i| x[i] != run.clean[i]) {
            return Err(Error::internal(format!(
                "{} on query `{}`: value {i} of the attacked image lies outside of the mask and changed from {} to {}. This is a \
                 fault of the model's step; please report it",
                trial.objective.code, gallery.ids[trial.query], run.clean[i], x[i]
            )));
        }
        let clean = gallery.point(trial.query);
        let shift = gallery.metric.distance(z, clean);
        let (loss_best, late_fall) = course(&run.losses, loss);
        Ok(Outcome {
            attack: trial.objective.code.into(),
            query: gallery.ids[trial.query].clone(),
            targets: trial.targets.iter().map(|&t| gallery.ids[t].clone()).collect(),
            start: run.start,
            steps: run.step,
            loss_first: run.losses.first().copied().unwrap_or(loss),
            loss_last: loss,
            loss_best,
            late_fall,
            shift,
            // A perturbation that was crafted on other trials comes in one step. Without gradients the step
            // before the last tries an image that may be no iterate.
            shift_before_last: match self.applied(run.job).is_empty() && plan.search.needs_gradient {
                true => run.shift,
                false => shift,
            },
            linf,
            size: (!plan.ball.is_box).then_some(size),
            before,
            after,
            shared: trial.objective.shared.map(|by| (by.group)(gallery, plan.seed, trial)),
            members: None,
            enough: None,
        })
    }
}

/// The lowest loss of a run, and the share of its decrease that happened in the last [`LAST`] steps.
fn course(losses: &[f64], last: f64) -> (f64, f64) {
    let lowest = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    let best = lowest(losses).min(last);
    let Some(&first) = losses.first().filter(|first| **first > best) else { return (best, 0.0) };
    let early = lowest(&losses[..(losses.len() + 1).saturating_sub(LAST).max(1)]);
    (best, (early.min(first) - best) / (first - best))
}

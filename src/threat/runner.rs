//! Projected gradient descent: the only attack loop.
//!
//! ```text
//! repeat T times:  x ← x − α · sign(∇x L(x));  x ← clip(x, x0 − ε, x0 + ε), clip(x, 0, 1)
//! ```
//!
//! Trials of all attacks go through a batch slot by slot: a trial that is done leaves, the next one takes its place with a
//! step counter of its own, and the batch stays full to the end. Each thread has a batch of its own, and all take their
//! trials from one list: none waits for another.

use super::search::apgd::{Adaptive, Schedule};
use super::{Draw, Loss, Trial, measure_all};
use crate::model::{Batch, Differentiable};
use crate::record::{Form, Measures, Outcome};
use crate::space::Gallery;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use rayon::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps at the end of a run in which nothing much should happen any more ([`Outcome::late_fall`]).
pub const LAST: usize = 10;

/// How trials are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The reading of the definitions.
    pub form: Form,
    /// Largest change of a pixel, ε, in units of the [0,1] range.
    pub eps: f32,
    /// Step size α. A single step takes ε instead (FGSM).
    pub alpha: f32,
    /// Steps T.
    pub steps: usize,
    /// How the step size runs.
    pub schedule: Schedule,
    /// Further runs of each trial from uniform random starts in its box; the run with the lowest final loss
    /// counts.
    pub restarts: usize,
    /// Seeds the random starts.
    pub seed: u64,
}

/// News of a run in progress.
pub enum Event<'a> {
    /// The batch made a step.
    Step {
        /// Steps of single images so far; a trial that ends early counts in full.
        done: usize,
        /// A trial at work and its step, where one is left.
        at: Option<(&'a Trial, usize)>,
    },
    /// A trial, by its place in the list, is done.
    Done(usize, &'a Outcome, &'a Evidence),
}

/// What lies behind an outcome: more than a report keeps of every trial.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The attacked image, C·H·W.
    pub image: Vec<f32>,
    /// Its point in the metric space, D.
    pub point: Vec<f32>,
    /// The loss at each iterate of the run that counts, and at the attacked image.
    pub losses: Vec<f64>,
}

/// Losses at single points that are worth another thread.
const SHARE: usize = 64;

/// Hears of progress, and may break off.
pub type Watch<'w> = dyn FnMut(Event) -> ControlFlow<()> + Send + 'w;

/// The clean image (C·H·W values in [0,1]) of a gallery item.
pub type Images<'i> = dyn Fn(usize) -> Result<Vec<f32>> + Sync + 'i;

/// Runs `trials` and returns their outcomes in the same order, or those finished so far where `watch` breaks off.
///
/// `models` are one model, ready to run in as many threads.
pub fn run(
    models: Vec<&mut dyn Differentiable>,
    gallery: &Gallery,
    images: &Images,
    trials: &[Trial],
    plan: &Plan,
    watch: &mut Watch,
) -> Result<Vec<Outcome>> {
    let task = Task { gallery, images, trials, plan };
    let shared = Mutex::new(Shared {
        task,
        next: 0,
        steps: 0,
        best: HashMap::new(),
        outcomes: Vec::new(),
        watch,
        ended: false,
    });
    let models: Vec<Mutex<&mut dyn Differentiable>> = models.into_iter().map(Mutex::new).collect();
    // A thread of the pool for each: what is parallel within a step finds its own thread first.
    let ran = rayon::broadcast(|thread| {
        let mine = models.iter().skip(thread.index()).step_by(thread.num_threads());
        mine.into_iter().try_for_each(|model| {
            let result = task.work(&mut **locked(model), models.len() == 1, &shared);
            locked(&shared).ended |= result.is_err();
            result
        })
    });
    ran.into_iter().collect::<Result<()>>()?;
    let mut outcomes = shared.into_inner().unwrap_or_else(PoisonError::into_inner).outcomes;
    outcomes.sort_by_key(|(trial, _)| *trial);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// A panic elsewhere ends the program anyhow.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clean image, checked.
fn load(gallery: &Gallery, images: &Images, item: usize, pixels: usize) -> Result<Vec<f32>> {
    let id = &gallery.ids[item];
    let image = images(item).map_err(|e| e.context(format!("image `{id}`")))?;
    if image.len() != pixels {
        return Err(Error::internal(format!(
            "image `{id}` has {} values where the model takes {pixels}",
            image.len()
        )));
    }
    if let Some(v) = image.iter().find(|v| !(0.0..=1.0).contains(*v)) {
        return Err(Error::untrusted(format!(
            "image `{id}` holds the value {v}: perturbations are measured in pixels of [0, 1]"
        )));
    }
    Ok(image)
}

/// What stays the same throughout a run.
#[derive(Clone, Copy)]
struct Task<'a> {
    gallery: &'a Gallery,
    images: &'a Images<'a>,
    trials: &'a [Trial],
    plan: &'a Plan,
}

/// What all threads have a part in.
struct Shared<'a, 'w> {
    task: Task<'a>,
    /// The next run to begin; each trial has one from each of its starts.
    next: usize,
    /// Steps of single images so far.
    steps: usize,
    /// Of trials with runs to come: runs measured so far, and the best.
    best: HashMap<usize, (usize, Outcome, Evidence)>,
    /// Finished trials.
    outcomes: Vec<(usize, Outcome)>,
    watch: &'w mut Watch<'w>,
    /// Whether nothing more is to be done.
    ended: bool,
}

/// A trial in a slot, from one start.
struct Run<'a> {
    /// Index of the trial.
    trial: usize,
    /// 0 = from the clean image.
    start: usize,
    loss: Loss<'a>,
    /// The clean image.
    clean: Vec<f32>,
    /// Steps made.
    step: usize,
    /// Loss at each iterate embedded.
    losses: Vec<f64>,
    /// Distance from the clean embedding to that of the last iterate embedded, once that is known.
    shift: f64,
    /// Whether the last gradient was zero.
    stuck: bool,
    /// Under the adaptive schedule; knows the best image seen.
    adaptive: Option<Adaptive>,
}

impl<'a> Task<'a> {
    /// One thread's share: begins runs as long as there are any. `alone`: no other thread has a share.
    fn work(&self, model: &mut dyn Differentiable, alone: bool, shared: &Mutex<Shared>) -> Result<()> {
        let Task { gallery, images, trials, plan } = *self;
        let (slots, pixels) = (model.batch(), model.pixels());
        let mut batch = Batch {
            x: vec![0.0; slots * pixels],
            lo: vec![0.0; slots * pixels],
            hi: vec![1.0; slots * pixels],
            alpha: vec![0.0; slots],
            changed: true,
        };
        let alpha = match plan.schedule {
            _ if plan.steps == 1 => plan.eps,
            Schedule::Fixed => plan.alpha,
            Schedule::Adaptive => 2.0 * plan.eps,
        };
        let mut active: Vec<Option<Run>> = (0..slots).map(|_| None).collect();
        let (mut waiting, mut room) = (Vec::new(), Room::default());
        let next = || locked(shared).next();
        let fetch = |(trial, start): (usize, usize)| {
            (trial, start, load(gallery, images, trials[trial].query, pixels))
        };
        let mut ready = VecDeque::new();
        loop {
            let free: Vec<usize> = (0..slots).filter(|&slot| active[slot].is_none()).collect();
            let wanted: Vec<_> =
                std::iter::from_fn(next).take(free.len().saturating_sub(ready.len())).collect();
            match alone {
                true => ready.par_extend(wanted.into_par_iter().map(fetch)),
                false => ready.extend(wanted.into_iter().map(fetch)),
            }
            for (slot, (trial, start, clean)) in
                free.into_iter().zip(std::iter::from_fn(|| ready.pop_front()))
            {
                let at = slot * pixels..(slot + 1) * pixels;
                let (lo, hi) = (&mut batch.lo[at.clone()], &mut batch.hi[at.clone()]);
                active[slot] = Some(self.begin(trial, start, clean?, [&mut batch.x[at], lo, hi]));
                (batch.alpha[slot], batch.changed) = (alpha, true);
            }
            if active.iter().all(Option::is_none) {
                return self.measure(&mut waiting, true, model, &mut room, shared);
            }
            if plan.steps > 0 {
                let mut fault = None;
                let mut step = || {
                    model.step(&mut batch, &mut |raw, mut out| {
                        out.fill(0.0);
                        fault = self.cotangent(&mut active, raw, out, &mut room).err();
                    })
                };
                // Beside a model that is alone, as on a GPU, the other threads are free: as many images as end in a step, on
                // average, are decoded during one. Else each thread has a model of its own.
                let stepped = match alone {
                    true => {
                        let some = slots.div_ceil(plan.steps).min(slots - ready.len());
                        let ahead = || ready.extend(std::iter::from_fn(next).take(some).map(fetch));
                        rayon::join(step, ahead).0
                    }
                    false => step(),
                };
                stepped?;
                if let Some(fault) = fault {
                    return Err(fault);
                }
                // Images are looked at where a run ends, and at every step of an adaptive one.
                let last = |run: &Run| run.stuck || run.step + 1 >= plan.steps || run.adaptive.is_some();
                if active.iter().flatten().any(last) {
                    model.fetch(&mut batch)?;
                }
            }
            let steps = self.advance(&mut active, &mut batch, &mut waiting);
            let at = active.iter().flatten().next().map(|run| (&trials[run.trial], run.step));
            if locked(shared).stepped(steps, at) {
                return Ok(());
            }
            self.measure(&mut waiting, false, model, &mut room, shared)?;
        }
    }

    /// Counts a step in every slot. Runs that are at their end leave, with their images. Returns the steps of single images that are
    /// done with it.
    fn advance(
        &self,
        active: &mut [Option<Run<'a>>],
        batch: &mut Batch,
        ended: &mut Vec<(Run<'a>, Vec<f32>)>,
    ) -> usize {
        let (plan, pixels) = (self.plan, batch.x.len() / active.len());
        let mut steps = 0;
        for (slot, place) in active.iter_mut().enumerate() {
            let Some(run) = place else { continue };
            let at = slot * pixels..(slot + 1) * pixels;
            let left = plan.steps - run.step;
            // A gradient of exactly zero, as of a closed hinge, never moves the image again: sign(0) = 0.
            run.step += usize::from(!run.stuck && left > 0);
            if let Some(adaptive) = run.adaptive.as_mut().filter(|_| left > 0) {
                let x = &mut batch.x[at.clone()];
                let (lo, hi) = (&batch.lo[at.clone()], &batch.hi[at.clone()]);
                let latest = run.losses.last().copied().unwrap_or(f64::NAN);
                adaptive.after_step(latest, x, lo, hi, &mut batch.alpha[slot]);
                batch.changed = true;
            }
            if run.stuck || run.step == plan.steps {
                steps += left;
                batch.alpha[slot] = 0.0;
                let image = batch.x[at].to_vec();
                ended.extend(place.take().map(|run| (run, image)));
            } else {
                steps += 1;
            }
        }
        steps
    }

    /// Sets a trial up in a slot: its box, and the image that run number `start` begins with.
    fn begin(&self, trial: usize, start: usize, clean: Vec<f32>, [x, lo, hi]: [&mut [f32]; 3]) -> Run<'a> {
        let (plan, it) = (self.plan, &self.trials[trial]);
        for (i, &v) in clean.iter().enumerate() {
            (x[i], lo[i], hi[i]) = (v, (v - plan.eps).max(0.0), (v + plan.eps).min(1.0));
        }
        if start > 0 {
            let mut draw = Draw::new(plan.seed, it.objective.code, &self.gallery.ids[it.query], start as u64);
            for i in 0..x.len() {
                x[i] = (lo[i] + draw.unit() * (hi[i] - lo[i])).clamp(lo[i], hi[i]);
            }
        }
        Run {
            trial,
            start,
            loss: (it.objective.loss)(self.gallery, plan.form, it),
            clean,
            step: 0,
            losses: Vec::with_capacity(plan.steps + 1),
            shift: 0.0,
            stuck: false,
            adaptive: (plan.schedule == Schedule::Adaptive).then(|| Adaptive::new(plan.steps, x)),
        }
    }

    /// Writes ∂L/∂embedding of the active slots at the raw embeddings [B, D] to `out` [B, D], zero on entry.
    fn cotangent(
        &self,
        active: &mut [Option<Run>],
        raw: ArrayView2<f32>,
        mut out: ArrayViewMut2<f32>,
        room: &mut Room,
    ) -> Result<()> {
        let Task { gallery, trials, plan, .. } = *self;
        let at_work = active.iter().enumerate().filter_map(|(slot, run)| Some((slot, run.as_ref()?)));
        check_embeddings(raw, active.len(), gallery, at_work.map(|(slot, run)| (slot, &trials[run.trial])))?;
        room.place(raw, gallery);
        room.evaluate(gallery, &|slot| {
            active[slot].as_ref().map(|run| (&run.loss, run.step == 0 && run.start == 0))
        });
        for (slot, run) in active.iter_mut().enumerate() {
            let Some(run) = run else { continue };
            check_loss(room.losses[slot], gallery, &trials[run.trial])?;
            run.losses.push(room.losses[slot]);
            let gradient = &mut room.gradient[slot * gallery.dim()..][..gallery.dim()];
            gallery.metric.pull_back(raw.row(slot).to_slice().expect("row-major"), gradient);
            let largest = gradient.iter().fold(0.0f32, |m, g| m.max(g.abs()));
            run.stuck = largest == 0.0;
            // Only signs count downstream. A power of two leaves them, and every bit of the rest, as they
            // are, and keeps small gradients (a mean over the gallery) from vanishing in half precision.
            let scale = if largest.is_normal() { (-largest.log2().floor()).exp2() } else { 1.0 };
            out.row_mut(slot).iter_mut().zip(gradient).for_each(|(o, g)| *o = *g * scale);
            if run.stuck || run.step + 1 >= plan.steps {
                let clean = gallery.point(trials[run.trial].query);
                run.shift = gallery.metric.distance(room.point(slot, gallery), clean);
            }
        }
        Ok(())
    }
}

/// Where a thread computes its losses, kept from step to step: a step allocates nothing here once batches have had their size.
#[derive(Default)]
struct Room {
    /// The points that losses are taken at [n, D].
    points: Vec<f32>,
    /// The losses, n, and ∂L/∂z [n, D].
    losses: Vec<f64>,
    gradient: Vec<f32>,
    /// Of losses on the whole gallery, b of them: which, their z [b, D], distances and ∂L/∂d [b, N], losses, ∂L/∂z.
    wide: Vec<usize>,
    z: Vec<f32>,
    d: Vec<f32>,
    weights: Vec<f32>,
    found: Vec<f64>,
    pulled: Vec<f32>,
    products: Vec<f32>,
}

impl Room {
    /// Puts raw embeddings [n, D] here, as points.
    fn place(&mut self, raw: ArrayView2<f32>, gallery: &Gallery) {
        self.points.clear();
        self.points.extend(raw.iter());
        self.points.chunks_mut(gallery.dim()).for_each(|point| gallery.metric.place(point));
    }

    /// The i-th point.
    fn point(&self, i: usize, gallery: &Gallery) -> &[f32] {
        &self.points[i * gallery.dim()..][..gallery.dim()]
    }

    /// Loss and ∂L/∂z of the i-th point by the i-th loss, 0 where there is none. Those on the whole gallery share two
    /// matrix products; the flag says whether a loss is at the first step from the clean image.
    fn evaluate<'l, 'a: 'l>(
        &mut self,
        gallery: &Gallery,
        loss: &(dyn Fn(usize) -> Option<(&'l Loss<'a>, bool)> + Sync),
    ) {
        let Room { points, losses, gradient, wide, z, d, weights, found, pulled, products } = self;
        let (n, dim) = (gallery.len(), gallery.dim());
        losses.clear();
        losses.resize(points.len() / dim, 0.0);
        gradient.clear();
        gradient.resize(points.len(), 0.0);
        let each = points.par_chunks(dim).zip(gradient.par_chunks_mut(dim)).zip(&mut *losses).enumerate();
        each.with_min_len(SHARE).for_each(|(i, ((point, gradient), found))| {
            if let Some((Loss::Point(loss), first)) = loss(i) {
                *found = loss(point, first, gradient);
            }
        });
        wide.clear();
        z.clear();
        for (i, point) in points.chunks(dim).enumerate() {
            if let Some((Loss::Gallery(_), _)) = loss(i) {
                wide.push(i);
                z.extend_from_slice(point);
            }
        }
        if wide.is_empty() {
            return;
        }
        d.resize(wide.len() * n, 0.0);
        weights.clear();
        weights.resize(wide.len() * n, 0.0);
        found.resize(wide.len(), 0.0);
        pulled.resize(z.len(), 0.0);
        gallery.distances_batch(z, d, products);
        let rows = wide.par_iter().zip(&mut *found).zip(weights.par_chunks_mut(n).zip(d.par_chunks(n)));
        rows.for_each(|((&i, found), (weights, d))| {
            *found = match loss(i) {
                Some((Loss::Gallery(loss), _)) if d.iter().all(|d| d.is_finite()) => loss(d, weights),
                _ => f64::NAN, // inf − inf would pass for a closed hinge
            }
        });
        gallery.gradient_batch(z, d, weights, pulled, products);
        for (k, &i) in wide.iter().enumerate() {
            losses[i] = found[k];
            gradient[i * dim..][..dim].copy_from_slice(&pulled[k * dim..][..dim]);
        }
    }
}

/// Refuses embeddings of another shape than [n, D], or not finite; `trials` says whose the rows are.
fn check_embeddings<'t>(
    raw: ArrayView2<f32>,
    n: usize,
    gallery: &Gallery,
    mut trials: impl Iterator<Item = (usize, &'t Trial)>,
) -> Result<()> {
    if raw.dim() != (n, gallery.dim()) {
        return Err(Error::internal(format!(
            "the model gave embeddings of shape {:?} where the gallery's make it {:?}",
            raw.dim(),
            (n, gallery.dim())
        )));
    }
    match trials.find(|(row, _)| raw.row(*row).iter().any(|v| !v.is_finite())) {
        None => Ok(()),
        Some((_, trial)) => Err(Error::untrusted(format!(
            "{} on query `{}`: the model's embedding is not finite; the audit can't be trusted. Check the model in \
             float32",
            trial.objective.code, gallery.ids[trial.query]
        ))),
    }
}

fn check_loss(loss: f64, gallery: &Gallery, trial: &Trial) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    Err(Error::untrusted(format!(
        "{} on query `{}`: the loss is {loss}; embeddings this large overflow. Use a normalised metric",
        trial.objective.code, gallery.ids[trial.query]
    )))
}

impl Shared<'_, '_> {
    /// The next run: its trial, and which of its starts.
    fn next(&mut self) -> Option<(usize, usize)> {
        let starts = self.task.plan.restarts + 1;
        let run = (!self.ended && self.next < self.task.trials.len() * starts).then_some(self.next)?;
        self.next += 1;
        Some((run / starts, run % starts))
    }

    /// Counts steps; whether that was all.
    fn stepped(&mut self, steps: usize, at: Option<(&Trial, usize)>) -> bool {
        self.steps += steps;
        self.ended = self.ended || (self.watch)(Event::Step { done: self.steps, at }).is_break();
        self.ended
    }

    /// Counts one run of a trial in; after the last, the best of them is the trial's outcome.
    fn settle(&mut self, trial: usize, outcome: Outcome, evidence: Evidence) {
        let (runs, outcome, evidence) = match self.best.remove(&trial) {
            None => (1, outcome, evidence),
            Some((runs, best, of_best)) => {
                // Of equal losses the earlier start's, in whatever order the runs came in.
                let better = (outcome.loss_last, outcome.start) < (best.loss_last, best.start);
                if better { (runs + 1, outcome, evidence) } else { (runs + 1, best, of_best) }
            }
        };
        if runs <= self.task.plan.restarts {
            self.best.insert(trial, (runs, outcome, evidence));
            return;
        }
        self.ended |= (self.watch)(Event::Done(trial, &outcome, &evidence)).is_break();
        self.outcomes.push((trial, outcome));
    }
}

impl<'a> Task<'a> {
    /// Embeds the images of runs that made their steps, a full batch at a time, and turns the runs into outcomes; with
    /// `rest`, also those that make no full batch.
    fn measure(
        &self,
        waiting: &mut Vec<(Run<'a>, Vec<f32>)>,
        rest: bool,
        model: &mut dyn Differentiable,
        room: &mut Room,
        shared: &Mutex<Shared>,
    ) -> Result<()> {
        let Task { gallery, trials, plan, .. } = *self;
        while waiting.len() >= model.batch() || (rest && !waiting.is_empty()) {
            let some: Vec<_> = waiting.drain(..waiting.len().min(model.batch())).collect();
            let images: Vec<f32> = some.iter().flat_map(|(_, x)| x.iter().copied()).collect();
            let raw = model.embed(&images)?;
            let whose = some.iter().map(|(run, _)| &trials[run.trial]).enumerate();
            check_embeddings(raw.view(), some.len(), gallery, whose)?;
            room.place(raw.view(), gallery);
            room.evaluate(gallery, &|i| some.get(i).map(|(run, _)| (&run.loss, false)));
            let room = &*room;
            let losses = &room.losses;
            let mut last = Vec::with_capacity(some.len());
            for (i, (mut run, x)) in some.into_iter().enumerate() {
                // An adaptive run may have seen a better image than its last: then that one is measured
                // instead.
                match run.adaptive.take().map(Adaptive::into_best) {
                    Some((best, image)) if best < losses[i] => waiting.push((run, image)),
                    _ => last.push((i, run, x)),
                }
            }
            let embedded = |i: usize| room.point(i, gallery);
            let state = |at: Vec<(&Trial, &[f32])>| measure_all(gallery, plan.form, &at);
            let clean = |trial: usize| (&trials[trial], gallery.point(trials[trial].query));
            let before = state(last.iter().map(|(_, run, _)| clean(run.trial)).collect());
            let after = state(last.iter().map(|(i, run, _)| (&trials[run.trial], embedded(*i))).collect());
            let states = before.into_par_iter().zip(after);
            let found: Vec<Result<Outcome>> = (last.par_iter().zip(states))
                .map(|((i, run, x), states)| self.outcome(run, x, embedded(*i), losses[*i], states))
                .collect();
            for ((i, mut run, image), outcome) in last.into_iter().zip(found) {
                run.losses.push(losses[i]);
                let evidence = Evidence { image, point: embedded(i).to_vec(), losses: run.losses };
                locked(shared).settle(run.trial, outcome?, evidence);
            }
        }
        Ok(())
    }

    fn outcome(
        &self,
        run: &Run,
        x: &[f32],
        z: &[f32],
        loss: f64,
        (before, after): (Measures, Measures),
    ) -> Result<Outcome> {
        let Task { gallery, trials, plan, .. } = *self;
        let trial = &trials[run.trial];
        check_loss(loss, gallery, trial)?;
        let linf = x.iter().zip(&run.clean).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        // Written so that NaN fails too.
        let inside = x.iter().all(|v| (0.0..=1.0).contains(v)) && linf <= plan.eps + 1e-6;
        if !inside {
            return Err(Error::internal(format!(
                "{} on query `{}`: the attacked image left its box: it moved by {linf} where ε = {} and pixels lie in \
                 [0, 1]. This is a fault of the model's step; please report it",
                trial.objective.code, gallery.ids[trial.query], plan.eps
            )));
        }
        let clean = gallery.point(trial.query);
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
            shift: gallery.metric.distance(z, clean),
            shift_before_last: run.shift,
            linf,
            before,
            after,
        })
    }
}

/// The lowest loss of a run, and the share of its fall that came in the last steps.
fn course(losses: &[f64], last: f64) -> (f64, f64) {
    let lowest = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    let best = lowest(losses).min(last);
    let Some(&first) = losses.first().filter(|first| **first > best) else { return (best, 0.0) };
    let early = lowest(&losses[..(losses.len() + 1).saturating_sub(LAST).max(1)]);
    (best, (early.min(first) - best) / (first - best))
}

/// Losses of images [n × C·H·W], the k-th for the k-th trial, and their points [n, D] in the metric space. `models` as for
/// [`run`].
pub fn losses(
    models: Vec<&mut dyn Differentiable>,
    gallery: &Gallery,
    form: Form,
    trials: &[Trial],
    images: &[Vec<f32>],
) -> Result<(Vec<f64>, Array2<f32>)> {
    let share = trials.len().div_ceil(models.len()).max(1);
    let parts = models.into_par_iter().zip(trials.par_chunks(share)).zip(images.par_chunks(share)).map(
        |((model, trials), images)| {
            let (mut all, mut points, mut room) =
                (Vec::with_capacity(trials.len()), Vec::new(), Room::default());
            for (trials, images) in trials.chunks(model.batch()).zip(images.chunks(model.batch())) {
                let raw = model.embed(&images.concat())?;
                check_embeddings(raw.view(), trials.len(), gallery, trials.iter().enumerate())?;
                let losses: Vec<Loss> = trials.iter().map(|t| (t.objective.loss)(gallery, form, t)).collect();
                room.place(raw.view(), gallery);
                room.evaluate(gallery, &|i| losses.get(i).map(|loss| (loss, false)));
                all.extend(&room.losses);
                points.extend(&room.points);
            }
            Ok((all, points))
        },
    );
    let (losses, points): (Vec<Vec<f64>>, Vec<Vec<f32>>) =
        parts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let points = Array2::from_shape_vec((trials.len(), gallery.dim()), points.concat())
        .map_err(|e| Error::internal(format!("points of {} images: {e}", trials.len())))?;
    Ok((losses.concat(), points))
}

//! Runs trials. The runner fills batches, lets a search move each image within its bounds, and measures the
//! result. It trusts neither the model nor the search.
//!
//! A batch has slots. When a trial ends, the next one takes its slot, with its own step counter and of any
//! objective, so the batch stays full until the list is empty. Each thread has its own batch, and all threads
//! take trials from one list, so that no thread waits for another.

mod outcome;
mod shared;
mod slots;
mod state;

use super::ball::Bound;
use super::draw::{Draw, NOISE};
use super::loss::Loss;
use super::losses::{Losses, check_embeddings, check_loss};
use super::passes::{Passes, Room};
use super::plan::Plan;
use super::search::{Scaled, Setting, Walk};
use super::trial::Trial;
use crate::trial::AttackContext;
use audit_base::{Error, Result};
use audit_gallery::data::Resampling;
use audit_gallery::space::Gallery;
use audit_model::Differentiable;
use audit_report::record::{Outcome, Space};
use ndarray::{ArrayView2, ArrayViewMut2, Axis, concatenate};
use rayon::prelude::*;
use shared::Worker;
use slots::Slots;
use state::State;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of last steps over which a converged run should hardly improve ([`Outcome::late_fall`]).
pub const LAST: usize = 10;

/// Maximum size of the photographs in a worker, in values (256 MiB of float32). A single photograph may be
/// larger.
const PHOTOGRAPHS: usize = 64 << 20;

/// Progress of a run.
pub enum Event<'a> {
    /// A batch has made a step.
    Step {
        /// Steps of single images so far. A trial that ends early counts with all its steps.
        done: usize,
        /// Forward passes made and left, for the remaining time.
        passes: Passes,
        /// One of the running trials and its step, if any is left.
        at: Option<(&'a Trial, usize)>,
    },
    /// Some trials need more searches than on a model without a defence.
    Further(Further),
    /// The strong search has reached the goal of the trial at this position in the list. It may go on, to
    /// find a smaller perturbation.
    Broken(usize),
    /// The trial at this position in the list is done.
    Done(usize, &'a Outcome, &'a Evidence),
}

/// Trials that need more searches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Further {
    /// The ε that they withstand so far.
    pub eps: f32,
    /// Number of these trials.
    pub trials: usize,
    /// Number of trials that were attacked.
    pub of: usize,
    /// Forward passes of all workers that these searches usually take.
    pub usual: usize,
    /// Their maximum if all workers are equally fast. If one is behind, its last batches are not full, and
    /// there are a few more.
    pub most: usize,
}

/// Details of a trial that reports do not store for every trial.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The attacked image, C·H·W.
    pub image: Vec<f32>,
    /// Its shape, [C, H, W].
    pub shape: [usize; 3],
    /// Its point in the metric space, `[D]`.
    pub point: Vec<f32>,
    /// The loss at each iterate of the run that counts, and at the attacked image.
    pub losses: Vec<f64>,
}

/// The first image [P] of a trial's run, within its bound; `None` for the clean image. Arguments: the trial's
/// index, its bound, and the shape of its image. Errors: those of loading another image.
pub type Start<'v> = dyn Fn(usize, &Bound, [usize; 3]) -> Result<Option<Vec<f32>>> + Sync + 'v;

/// What a member of an ensemble changes about the runs of its trials. Functions take the index of a trial.
pub struct Variation<'v> {
    /// The loss, in place of the objective's.
    pub loss: &'v (dyn Fn(usize) -> Loss<'v> + Sync),
    /// The first images.
    pub start: &'v Start<'v>,
    /// The stream of the search's random choices.
    pub stream: &'v (dyn Fn(usize) -> u64 + Sync),
    /// A run ends at the first image whose loss is lower.
    pub enough: Option<f64>,
    /// Images that a run tries at once. More than one only for searches that [propose](Walk::another)
    /// several, or along the mean gradient of JPEG files of several
    /// [qualities](audit_gallery::data::QUALITIES).
    pub at_once: usize,
}

/// Receives progress events, and may stop the run.
pub type Watch<'w> = dyn FnMut(Event) -> ControlFlow<()> + Send + 'w;

/// A clean image as attacks change it.
#[derive(Clone)]
pub struct CleanImage {
    /// Its values in [0, 1], C·H·W.
    pub data: Vec<f32>,
    /// How the model's image is made of it, if it is a photograph at its own size, in whole grey levels;
    /// `None` if it is the model's image.
    pub resampling: Option<Arc<Resampling>>,
}

impl From<Vec<f32>> for CleanImage {
    fn from(data: Vec<f32>) -> CleanImage {
        CleanImage { data, resampling: None }
    }
}

/// Returns the clean image at an index of the gallery.
pub type ImageSource<'i> = dyn Fn(usize) -> Result<CleanImage> + Sync + 'i;

/// Runs `trials`, each with its own perturbation. Returns their outcomes in the same order; if `watch` stops
/// the run, only those of finished trials.
///
/// `models` are the workers of one model, which run in parallel. Errors: an embedding or loss is not finite,
/// or a clean image has values outside [0, 1] (exit code 12); those of `images` and of the model.
pub fn run(
    models: Vec<&mut dyn Differentiable>,
    context: &AttackContext,
    images: &ImageSource,
    trials: &[Trial],
    plan: &Plan,
    watch: &mut Watch,
) -> Result<Vec<Outcome>> {
    let mut all = trials.to_vec();
    let (mut jobs, mut applied) = (Vec::new(), Vec::new());
    for together in together(&context.gallery, plan.seed, trials) {
        let trial = &trials[together[0]];
        let Some(shared) = trial.objective.shared else {
            jobs.push(together);
            applied.push(Vec::new());
            continue;
        };
        let first = all.len();
        let sample =
            context.samples(trial.objective)[(shared.group)(&context.gallery, plan.seed, trial)].iter();
        all.extend(sample.map(|&query| Trial { query, ..trial.clone() }));
        jobs.push((first..all.len()).collect());
        applied.push(together);
    }
    let task = Task { context, images, trials: &all, jobs: &jobs, applied: &applied, plan, how: None };
    start(models, task, watch)
}

/// The trials that have one perturbation, by their index in `trials`: first each trial alone, then those of
/// objectives that [share](crate::Objective::shared) perturbations, by objective and sample.
pub fn together(gallery: &Gallery, seed: u64, trials: &[Trial]) -> Vec<Vec<usize>> {
    let (mut alone, mut shared) = (Vec::new(), BTreeMap::<(&str, usize), Vec<usize>>::new());
    for (i, trial) in trials.iter().enumerate() {
        match trial.objective.shared {
            None => alone.push(vec![i]),
            Some(by) => {
                let group = (by.group)(gallery, seed, trial);
                shared.entry((trial.objective.code, group)).or_default().push(i);
            }
        }
    }
    alone.extend(shared.into_values());
    alone
}

/// Like [`run`], for jobs of trials that share one perturbation δ, x = clip(x0 + δ, 0, 1). A job lists its
/// trials by their index in `trials`, and each trial is in one job. The loss of a job is the mean of the
/// losses of its trials. A job of one trial gives the same outcome as in [`run`].
pub fn run_jobs(
    models: Vec<&mut dyn Differentiable>,
    context: &AttackContext,
    images: &ImageSource,
    trials: &[Trial],
    jobs: &[Vec<usize>],
    plan: &Plan,
    watch: &mut Watch,
) -> Result<Vec<Outcome>> {
    start(models, Task { context, images, trials, jobs, applied: &[], plan, how: None }, watch)
}

/// Like [`run`], for a task.
pub(super) fn start(
    models: Vec<&mut dyn Differentiable>,
    task: Task,
    watch: &mut Watch,
) -> Result<Vec<Outcome>> {
    let room = Room {
        workers: models.len().clamp(1, rayon::current_num_threads()),
        batch: models.first().map_or(1, |model| model.batch()),
    };
    let shared = Mutex::new(State {
        task,
        next: 0,
        steps: 0,
        room,
        queued: task.queued(),
        workers: vec![Passes::default(); models.len()],
        most: usize::MAX,
        measured: HashMap::new(),
        best: HashMap::new(),
        outcomes: Vec::new(),
        watch,
        ended: false,
    });
    let models: Vec<Mutex<&mut dyn Differentiable>> = models.into_iter().map(Mutex::new).collect();
    // Each worker runs in a thread of the pool, so that parallel work within a step finds that thread's queue
    // first.
    let ran = rayon::broadcast(|thread| {
        let mine = models.iter().enumerate().skip(thread.index()).step_by(thread.num_threads());
        mine.into_iter().try_for_each(|(worker, model)| {
            let result = task.work(&mut **locked(model), worker, models.len() == 1, &shared);
            locked(&shared).ended |= result.is_err();
            result
        })
    });
    ran.into_iter().collect::<Result<()>>()?;
    let mut outcomes = shared.into_inner().unwrap_or_else(PoisonError::into_inner).outcomes;
    outcomes.sort_by_key(|(trial, _)| *trial);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Locks even after a panic in another thread, which ends the program anyway.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads a clean image and checks its size and range.
pub(super) fn load(
    gallery: &Gallery,
    images: &ImageSource,
    item: usize,
    pixels: usize,
) -> Result<CleanImage> {
    let id = &gallery.ids[item];
    let image = images(item).map_err(|e| e.context(format!("image `{id}`")))?;
    let values = image.resampling.as_ref().map_or(pixels, |way| way.shape().iter().product());
    if image.data.len() != values {
        return Err(Error::internal(format!(
            "image `{id}` has {} values where {values} are expected",
            image.data.len()
        )));
    }
    if let Some(v) = image.data.iter().find(|v| !(0.0..=1.0).contains(*v)) {
        return Err(Error::untrusted(format!(
            "image `{id}` holds the value {v}: perturbations are measured in pixels of [0, 1]"
        )));
    }
    Ok(image)
}

/// The constant input of all runs.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub context: &'a AttackContext,
    pub images: &'a ImageSource<'a>,
    pub trials: &'a [Trial],
    pub jobs: &'a [Vec<usize>],
    /// For each job, trials that its finished perturbation is applied to; then these are measured instead of
    /// its own. Shorter than the jobs if later jobs have none.
    pub applied: &'a [Vec<usize>],
    pub plan: &'a Plan,
    /// What a member of an ensemble changes. If set, each job has one trial.
    pub how: Option<&'a Variation<'a>>,
}

/// A run of one trial from one start.
struct Run<'a> {
    job: usize,
    trial: usize,
    /// 0 = from the clean image.
    start: usize,
    loss: Loss<'a>,
    /// The clean image.
    clean: Vec<f32>,
    /// Its shape, [C, H, W].
    shape: [usize; 3],
    /// See [`CleanImage`].
    resampling: Option<Arc<Resampling>>,
    /// Which of its values may change; `None` for all.
    free: Option<Vec<bool>>,
    /// Whether the first image is the clean one.
    begins_clean: bool,
    /// The state of the search; `None` in a job of several trials, or if the image stays clean.
    walk: Option<Box<dyn Walk>>,
    /// Steps made.
    step: usize,
    /// The loss at each iterate.
    losses: Vec<f64>,
    /// Distance from the clean embedding to the embedding of the last iterate.
    shift: f64,
    /// Whether no further step would move the image: the last gradient was zero, the query is left alone, or
    /// the search has ended.
    stuck: bool,
    /// The factor applied to ∂L/∂embedding.
    scale: f32,
    /// Index of the image with the lowest loss, of those tried at once.
    chosen: usize,
}

impl Run<'_> {
    /// Number of values of the photographs that it tries at once; 0 if it moves the model's images.
    fn values(&self, each: usize) -> usize {
        self.resampling.as_ref().map_or(0, |_| self.clean.len() * each)
    }

    /// The clean image with a perturbation [P].
    fn moved(&self, delta: &[f32]) -> Vec<f32> {
        self.clean.iter().zip(delta).map(|(x, d)| (x + d).clamp(0.0, 1.0)).collect()
    }
}

impl<'a> Task<'a> {
    /// The trials that a job's perturbation is only applied to.
    fn applied(&self, job: usize) -> &'a [usize] {
        self.applied.get(job).map_or(&[], Vec::as_slice)
    }

    /// Images that a step of a run evaluates.
    fn at_once(&self) -> usize {
        self.how.map_or(1, |how| how.at_once)
    }

    /// Images that a run moves. Along a gradient it moves one, and a step evaluates it as files of several
    /// qualities.
    fn moved_at_once(&self) -> usize {
        if self.plan.search.needs_gradient { 1 } else { self.at_once() }
    }

    /// Whether a step evaluates an image as files of several qualities.
    fn tries_qualities(&self) -> bool {
        self.at_once() > self.moved_at_once()
    }

    /// The number of runs of one trial, and of several.
    fn queued(&self) -> [usize; 2] {
        let starts = self.plan.restarts + 1;
        let mut queued = [0, 0];
        for job in 0..self.jobs.len() {
            // A perturbation that is applied to other trials is crafted from all starts in one run.
            let runs = if self.applied(job).is_empty() { starts } else { 1 };
            queued[usize::from(self.is_together(job))] += runs;
        }
        queued
    }

    /// Whether a job is crafted on several trials, or applied to others.
    fn is_together(&self, job: usize) -> bool {
        self.jobs[job].len() > 1 || !self.applied(job).is_empty()
    }

    /// Runs one worker until no runs are left. `alone` says that it is the only worker.
    fn work(
        &self,
        model: &mut dyn Differentiable,
        worker: usize,
        alone: bool,
        shared: &Mutex<State>,
    ) -> Result<()> {
        let Task { context, images, trials, jobs, plan, .. } = *self;
        let gallery = &context.gallery;
        let each = self.moved_at_once();
        let (count, pixels) = ((model.batch() / each).max(1), model.pixels());
        // In file space the image that moves is not the model's input.
        let plain = self.how.is_none() && plan.space == Space::Input && plan.search.in_place(plan.ball);
        let in_place = plain && model.signed_steps().is_some();
        let mut slots = Slots::new(count, each, pixels, in_place);
        let mut active: Vec<Option<Run>> = (0..count).map(|_| None).collect();
        let (mut waiting, mut buffers) = (Vec::new(), Losses::default());
        let next = || locked(shared).next();
        let fetch = |(job, start): (usize, usize)| {
            let load = |&trial: &usize| load(gallery, images, trials[trial].query, pixels);
            (job, start, jobs[job].iter().map(load).collect::<Result<Vec<_>>>())
        };
        let mut ready: VecDeque<(usize, usize, Result<Vec<CleanImage>>)> = VecDeque::new();
        // Values of the photographs in this batch.
        let values = |image: &CleanImage| image.resampling.as_ref().map_or(0, |_| image.data.len() * each);
        loop {
            let mut free: VecDeque<usize> = (0..count).filter(|&slot| active[slot].is_none()).collect();
            let wanted: Vec<_> =
                std::iter::from_fn(next).take(free.len().saturating_sub(ready.len())).collect();
            match alone {
                true => ready.par_extend(wanted.into_par_iter().map(fetch)),
                false => ready.extend(wanted.into_iter().map(fetch)),
            }
            let mut at_work: usize = active.iter().flatten().map(|run| run.values(each)).sum();
            while let Some(&slot) = free.front() {
                let next_values = match ready.front() {
                    None => break,
                    Some((.., Ok(clean))) => clean.iter().map(values).sum(),
                    Some((.., Err(_))) => 0,
                };
                if at_work > 0 && at_work + next_values > PHOTOGRAPHS {
                    break;
                }
                at_work += next_values;
                let Some((job, start, clean)) = ready.pop_front() else { break };
                let mut clean = clean?;
                locked(shared).begins(job);
                if self.is_together(job) {
                    let buffers = &mut buffers;
                    let mut worker = Worker { model: &mut *model, place: worker, buffers, shared };
                    self.work_together([job, start], clean, &mut worker)?;
                    ready.extend(next().map(fetch));
                    continue;
                }
                free.pop_front();
                let clean = clean.pop().ok_or_else(|| Error::internal("a job without a trial"))?;
                active[slot] = Some(self.begin(job, start, clean, slot, &mut slots, model)?);
            }
            if active.iter().all(Option::is_none) {
                return self.measure(&mut waiting, true, model, &mut buffers, shared);
            }
            if plan.steps > 0 {
                let mut step = || self.step(&mut active, &mut slots, model, &mut buffers);
                // If this worker is alone, such as on a GPU whose memory holds no more, the other threads are
                // free. During the step they decode as many images as end per step on average. Otherwise
                // every thread has its own worker.
                match alone {
                    true => {
                        let some = count.div_ceil(plan.steps).min(count.saturating_sub(ready.len()));
                        let ahead = || ready.extend(std::iter::from_fn(next).take(some).map(fetch));
                        rayon::join(step, ahead).0?;
                    }
                    false => step()?,
                }
            }
            let steps = self.advance(&mut active, &mut slots, model, &mut waiting)?;
            let at = active.iter().flatten().next().map(|run| (&trials[run.trial], run.step));
            let first = active.iter().flatten().map(|run| run.step).min();
            let at_once = self.at_once();
            let rounds = first.map_or(0, |step| (plan.steps - step).div_ceil(at_once));
            let of_round = Room { workers: 1, batch: model.batch() }.of_round(at_once, plan.search);
            let passes = Passes { made: of_round, left: of_round * rounds };
            if locked(shared).stepped(worker, steps, passes, at) {
                return Ok(());
            }
            self.measure(&mut waiting, false, model, &mut buffers, shared)?;
        }
    }

    /// Prepares a run and stores its first image in a slot.
    fn begin(
        &self,
        job: usize,
        start: usize,
        clean: CleanImage,
        slot: usize,
        slots: &mut Slots,
        model: &mut dyn Differentiable,
    ) -> Result<Run<'a>> {
        let Task { context, trials, jobs, plan, how, .. } = *self;
        let gallery = &context.gallery;
        let trial = &trials[jobs[job][0]];
        let draw = |stream| Draw::new(plan.seed, trial.objective.code, &gallery.ids[trial.query], stream);
        let shape = clean.resampling.as_ref().map_or(model.shape(), |way| way.shape());
        let free = plan.free(shape, trial.objective, &gallery.ids[trial.query])?;
        let run = self.new_run([job, start], jobs[job][0], clean, shape, free);
        let bound = plan.bound(&run.clean, &run.free);
        if matches!(run.loss, Loss::Still) {
            slots.put(model, slot, &run.clean, &bound, &run.resampling)?;
            return Ok(Run { begins_clean: true, ..run });
        }
        let given = how.map(|how| (how.start)(jobs[job][0], &bound, shape)).transpose()?.flatten();
        let stream = how.map_or(start as u64, |how| (how.stream)(jobs[job][0]));
        let elsewhere = given.is_some() || start > 0;
        let x = given.unwrap_or_else(|| match start {
            0 => run.clean.clone(),
            _ => bound.start(&mut draw(start as u64)),
        });
        let (x, walk, own) = self.walk(bound, x, elsewhere, draw(NOISE + 1 + stream), shape);
        slots.put(model, slot, &x, &bound, &run.resampling)?;
        slots.alpha[slot] = self.alpha();
        let begins_clean = !elsewhere && !own;
        Ok(Run { walk: Some(walk), begins_clean, ..run })
    }

    /// A run of a trial without a search.
    fn new_run(
        &self,
        [job, start]: [usize; 2],
        trial: usize,
        clean: CleanImage,
        shape: [usize; 3],
        free: Option<Vec<bool>>,
    ) -> Run<'a> {
        let Task { context, trials, plan, how, .. } = *self;
        Run {
            job,
            trial,
            start,
            loss: match how {
                Some(how) => (how.loss)(trial),
                None => (trials[trial].objective.loss)(context, plan.form, &trials[trial]),
            },
            clean: clean.data,
            shape,
            resampling: clean.resampling,
            free,
            begins_clean: start == 0,
            walk: None,
            step: 0,
            losses: Vec::with_capacity(plan.steps + 1),
            shift: 0.0,
            stuck: false,
            scale: 1.0,
            chosen: 0,
        }
    }

    /// Begins a search within `bound` at the point `x`. Returns the first point, the state of the search, and
    /// whether the search chose the point. `elsewhere` says that `x` is not the centre.
    fn walk(
        &self,
        bound: Bound,
        x: Vec<f32>,
        elsewhere: bool,
        draw: Draw,
        shape: [usize; 3],
    ) -> (Vec<f32>, Box<dyn Walk>, bool) {
        let plan = self.plan;
        let warm = elsewhere && self.how.is_some();
        // A step along the gradient of several files counts as that many steps.
        let steps = plan.steps.div_ceil(self.at_once() / self.moved_at_once());
        let setting = Setting { bound, start: &x, warm, shape, steps, alpha: self.alpha() };
        let mut walk = (plan.search.begin)(&setting, draw);
        match walk.first() {
            Some(first) => (first, walk, true),
            None => (x, walk, false),
        }
    }

    /// The step size of searches that use it.
    fn alpha(&self) -> f32 {
        if self.plan.steps == 1 { self.plan.eps } else { self.plan.alpha }
    }

    /// Computes losses and gradients in all slots. A model with signed steps also moves its images.
    fn step(
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

    /// Counts a step in every slot and lets the searches move their images. Moves finished runs and their
    /// images to `ended`. Returns the number of steps that are done; a run that ends early counts with all
    /// its steps.
    fn advance(
        &self,
        active: &mut [Option<Run<'a>>],
        slots: &mut Slots,
        model: &mut dyn Differentiable,
        ended: &mut Vec<(Run<'a>, Vec<f32>)>,
    ) -> Result<usize> {
        let plan = self.plan;
        let mut steps = 0;
        for (slot, place) in active.iter_mut().enumerate() {
            let Some(run) = place else { continue };
            let left = plan.steps - run.step;
            let tried = self.at_once().min(left);
            if let Some(how) = self.how {
                let latest = run.losses.last().copied().unwrap_or(f64::NAN);
                let flat = plan.search.needs_gradient && slots.moving(slot, 0).1.iter().all(|g| *g == 0.0);
                run.stuck |= how.enough.is_some_and(|enough| latest < enough) || flat;
                if run.stuck {
                    // The image stays the one of the latest loss.
                    steps += left;
                    run.step += tried;
                    let image = slots.take(model, slot)?;
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
                let image = slots.take(model, slot)?;
                ended.extend(place.take().map(|run| (run, image)));
            } else {
                steps += tried;
            }
        }
        Ok(steps)
    }
}

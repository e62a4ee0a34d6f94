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
mod step;
mod task;
mod worker;

use super::ball::Bound;
use super::loss::Loss;
use super::passes::{Passes, Room};
use super::plan::Plan;
use super::trial::Trial;
use crate::trial::AttackContext;
use audit_base::{Error, Result};
use audit_gallery::data::Resampling;
use audit_gallery::space::Gallery;
use audit_model::Differentiable;
use audit_report::record::Outcome;
use state::State;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(super) use task::Task;
use worker::Worker;

/// Number of last steps over which a converged run should hardly improve ([`Outcome::late_fall`]).
pub const LAST: usize = 10;

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
    /// Images that a run tries at once. More than one only for searches that
    /// [propose](crate::search::SearchState::another) several, or along the mean gradient of JPEG files of
    /// several [qualities](audit_gallery::data::QUALITIES).
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
            let result = Worker::new(task, &mut **locked(model), worker, models.len() == 1, &shared).work();
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

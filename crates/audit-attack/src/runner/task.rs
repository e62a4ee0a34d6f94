//! The input of all runs, and a run of one trial.

use super::{CleanImage, ImageSource, Variation};
use crate::ball::Bound;
use crate::draw::Draw;
use crate::loss::Loss;
use crate::plan::Plan;
use crate::search::{SearchState, Setting};
use crate::trial::{AttackContext, Trial};
use audit_gallery::data::Resampling;
use std::sync::Arc;

/// The constant input of all runs.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
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
pub(super) struct Run<'a> {
    pub job: usize,
    pub trial: usize,
    /// 0 = from the clean image.
    pub start: usize,
    pub loss: Loss<'a>,
    /// The clean image.
    pub clean: Vec<f32>,
    /// Its shape, [C, H, W].
    pub shape: [usize; 3],
    /// See [`CleanImage`].
    pub resampling: Option<Arc<Resampling>>,
    /// Which of its values may change; `None` for all.
    pub free: Option<Vec<bool>>,
    /// Whether the first image is the clean one.
    pub begins_clean: bool,
    /// The state of the search; `None` in a job of several trials, or if the image stays clean.
    pub walk: Option<Box<dyn SearchState>>,
    /// Steps made.
    pub step: usize,
    /// The loss at each iterate.
    pub losses: Vec<f64>,
    /// Distance from the clean embedding to the embedding of the last iterate.
    pub shift: f64,
    /// Whether no further step would move the image: the last gradient was zero, the query is left alone, or
    /// the search has ended.
    pub stuck: bool,
    /// The factor applied to ∂L/∂embedding.
    pub scale: f32,
    /// Index of the image with the lowest loss, of those tried at once.
    pub chosen: usize,
}

impl Run<'_> {
    /// Number of values of the photographs that it tries at once; 0 if it moves the model's images.
    pub(super) fn values(&self, each: usize) -> usize {
        self.resampling.as_ref().map_or(0, |_| self.clean.len() * each)
    }

    /// The clean image with a perturbation [P].
    pub(super) fn moved(&self, delta: &[f32]) -> Vec<f32> {
        self.clean.iter().zip(delta).map(|(x, d)| (x + d).clamp(0.0, 1.0)).collect()
    }
}

impl<'a> Task<'a> {
    /// The trials that a job's perturbation is only applied to.
    pub(super) fn applied(&self, job: usize) -> &'a [usize] {
        self.applied.get(job).map_or(&[], Vec::as_slice)
    }

    /// Images that a step of a run evaluates.
    pub(super) fn at_once(&self) -> usize {
        self.how.map_or(1, |how| how.at_once)
    }

    /// Images that a run moves. Along a gradient it moves one, and a step evaluates it as files of several
    /// qualities.
    pub(super) fn moved_at_once(&self) -> usize {
        if self.plan.search.needs_gradient { 1 } else { self.at_once() }
    }

    /// Whether a step evaluates an image as files of several qualities.
    pub(super) fn tries_qualities(&self) -> bool {
        self.at_once() > self.moved_at_once()
    }

    /// The number of runs of one trial, and of several.
    pub(super) fn queued(&self) -> [usize; 2] {
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
    pub(super) fn is_together(&self, job: usize) -> bool {
        self.jobs[job].len() > 1 || !self.applied(job).is_empty()
    }

    /// A run of a trial without a search.
    pub(super) fn new_run(
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
    pub(super) fn walk(
        &self,
        bound: Bound,
        x: Vec<f32>,
        elsewhere: bool,
        draw: Draw,
        shape: [usize; 3],
    ) -> (Vec<f32>, Box<dyn SearchState>, bool) {
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
    pub(super) fn alpha(&self) -> f32 {
        if self.plan.steps == 1 { self.plan.eps } else { self.plan.alpha }
    }
}

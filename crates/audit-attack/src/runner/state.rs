//! What the workers of a run share: the runs that are left, progress, and the best run of each job so far.

use super::{Event, Evidence, Task, Watch};
use crate::passes::{Passes, Room};
use crate::trial::Trial;
use audit_report::record::Outcome;
use std::collections::HashMap;

/// The state that all threads share.
pub(super) struct State<'a, 'w> {
    pub(super) task: Task<'a>,
    /// Number of the next run to begin. Each job has one run per start.
    pub(super) next: usize,
    /// Steps of single images so far.
    pub(super) steps: usize,
    /// The batches that are computed at the same time.
    pub(super) room: Room,
    /// Runs that have not begun: those of one trial, and those of several.
    pub(super) queued: [usize; 2],
    /// Passes of each worker so far, and those that its current runs may still need.
    pub(super) workers: Vec<Passes>,
    /// Lowest upper bound so far on the passes of the whole run.
    pub(super) most: usize,
    /// By (job, start): the measured trials of runs with unmeasured trials.
    pub(super) measured: HashMap<[usize; 2], Vec<Measured>>,
    /// By job, for jobs with runs left: the number of runs measured so far, and the best of them.
    pub(super) best: HashMap<usize, (usize, Measurement)>,
    /// Finished trials.
    pub(super) outcomes: Vec<(usize, Outcome)>,
    pub(super) watch: &'w mut Watch<'w>,
    /// Whether all threads must stop.
    pub(super) ended: bool,
}

/// A trial and its result in one run.
pub(super) type Measured = (usize, Outcome, Evidence);

/// A run of a job.
pub(super) struct Measurement {
    /// The attacker's mean success on the trials, in per cent.
    success: f64,
    /// Mean size of the perturbations if the search is for the smallest one, infinite if it found none; 0 in
    /// searches for the lowest loss in the ball.
    size: f64,
    /// Mean loss.
    loss: f64,
    start: usize,
    trials: Vec<Measured>,
}

impl Measurement {
    /// Whether this run counts instead of another run of its job: the one with more success, then the one
    /// with the smaller perturbation, then the one with the lower loss. Among equal runs the earliest start
    /// counts, so that the order in which runs end does not matter.
    fn beats(&self, other: &Measurement) -> bool {
        let order = (other.success.total_cmp(&self.success))
            .then(self.size.total_cmp(&other.size))
            .then(self.loss.total_cmp(&other.loss))
            .then(self.start.cmp(&other.start));
        order.is_lt()
    }
}

impl State<'_, '_> {
    /// The next run to begin: its job and its start.
    pub(super) fn next(&mut self) -> Option<[usize; 2]> {
        let starts = self.task.plan.restarts + 1;
        let run = (!self.ended && self.next < self.task.jobs.len() * starts).then_some(self.next)?;
        self.next += 1;
        let (job, start) = (run / starts, run % starts);
        // A perturbation that is applied to other trials is crafted from all starts at once.
        if start > 0 && !self.task.applied(job).is_empty() {
            return self.next();
        }
        Some([job, start])
    }

    /// Records that a run of `job` begins.
    pub(super) fn begins(&mut self, job: usize) {
        let kind = &mut self.queued[usize::from(self.task.is_together(job))];
        *kind = kind.saturating_sub(1);
    }

    /// Counts steps of a worker, the passes that it has made, and those that its current runs may still need.
    /// Returns whether all threads must stop.
    pub(super) fn stepped(
        &mut self,
        worker: usize,
        steps: usize,
        passes: Passes,
        at: Option<(&Trial, usize)>,
    ) -> bool {
        self.steps += steps;
        let mine = &mut self.workers[worker];
        *mine = Passes { made: mine.made + passes.made, left: passes.left };
        let event = Event::Step { done: self.steps, passes: self.passes(), at };
        self.ended = self.ended || (self.watch)(event).is_break();
        self.ended
    }

    /// Passes that all workers have made, and an upper bound on those left: the longest of the current runs,
    /// then the others. The bound rises once some slots have begun a new run, although no work was added, so
    /// the lowest total so far counts.
    fn passes(&mut self) -> Passes {
        let Task { plan, .. } = self.task;
        let most = |of: fn(&Passes) -> usize| self.workers.iter().map(of).max().unwrap_or(0);
        let (made, begun) = (most(|worker| worker.made), most(|worker| worker.left));
        let [alone, together] = self.queued;
        let alone = self.room.passes(alone, plan.steps, self.task.at_once(), plan.search);
        let together = together.div_ceil(self.room.workers) * self.task.passes_together(self.room.batch);
        self.most = self.most.min(made + begun + alone + together);
        Passes { made, left: self.most.saturating_sub(made).max(begun) }
    }

    /// Records the result of one trial in one run. After the last trial of the last run of a job, the
    /// outcomes of its best run count.
    pub(super) fn settle(
        &mut self,
        [job, start]: [usize; 2],
        trial: usize,
        outcome: Outcome,
        evidence: Evidence,
    ) {
        if !self.task.applied(job).is_empty() {
            self.ended |= (self.watch)(Event::Done(trial, &outcome, &evidence)).is_break();
            self.outcomes.push((trial, outcome));
            return;
        }
        let measured = self.measured.entry([job, start]).or_default();
        measured.push((trial, outcome, evidence));
        if measured.len() < self.task.jobs[job].len() {
            return;
        }
        let trials = self.measured.remove(&[job, start]).unwrap_or_default();
        let found = self.measurement(start, trials);
        let (runs, best) = match self.best.remove(&job) {
            None => (1, found),
            Some((runs, best)) => (runs + 1, if found.beats(&best) { found } else { best }),
        };
        if runs <= self.task.plan.restarts {
            self.best.insert(job, (runs, best));
            return;
        }
        for (trial, outcome, evidence) in best.trials {
            self.ended |= (self.watch)(Event::Done(trial, &outcome, &evidence)).is_break();
            self.outcomes.push((trial, outcome));
        }
    }

    /// The run of a job from `start`, of which all trials are measured.
    fn measurement(&self, start: usize, trials: Vec<Measured>) -> Measurement {
        let Task { context, plan, trials: all, .. } = self.task;
        let ranked = plan.form.ranked_in(&context.gallery) as f64;
        let success = |(trial, outcome, _): &Measured| {
            all[*trial].objective.success(outcome, plan.form, ranked).map_or(0.0, |(_, after)| after)
        };
        let size = |(_, outcome, _): &Measured| match outcome.loss_last < 0.0 {
            true => f64::from(outcome.size.unwrap_or(outcome.linf)),
            false => f64::INFINITY,
        };
        let mean = |of: &dyn Fn(&Measured) -> f64| trials.iter().map(of).sum::<f64>() / trials.len() as f64;
        Measurement {
            success: mean(&success),
            size: if plan.search.smallest { mean(&size) } else { 0.0 },
            loss: mean(&|(_, outcome, _)| outcome.loss_last),
            start,
            trials,
        }
    }
}

//! The strong search as callers see it: its trials are divided into chunks, which run one after the other.

use super::chunk::Chunk;
use crate::measure::measure_all;
use crate::objective::OBJECTIVES;
use crate::passes::{Passes, Room};
use crate::plan::Plan;
use crate::runner::{ImageSource, Watch};
use crate::trial::{AttackContext, Trial};
use audit_base::Result;
use audit_model::{OnWorkers, Route};
use audit_report::record::{Form, Measures, Outcome};

/// Calls its last argument with workers that have the gradients of a route. Returns whether the model has it.
pub type WorkerSource<'l> = dyn FnMut(Route, &mut OnWorkers) -> Result<bool> + 'l;

/// Values of images that a chunk of trials keeps in memory at most, 64 MiB of float32.
const KEPT: usize = 16 << 20;
/// The same if a chunk would have fewer trials than fill the batches: 512 MiB.
const MOST_KEPT: usize = 128 << 20;
/// Bounds of the number of trials in a chunk.
const CHUNK: [usize; 2] = [32, 1024];

/// The clean images of queries as the model takes them, which attacks on other queries may begin from.
#[derive(Clone, Copy)]
pub struct Others<'a> {
    /// By index of the gallery.
    pub images: &'a ImageSource<'a>,
    /// The shape of all of them, [C, H, W].
    pub shape: [usize; 3],
}

/// The files of queries, for the [file column](Plan::in_files) of a ladder.
#[derive(Clone, Copy)]
pub struct QueryFiles<'a> {
    /// Their photographs, by index of the gallery.
    pub images: &'a ImageSource<'a>,
    /// Whether the model's input is another image than the photograph. If it is not, an image of whole grey
    /// levels is its file.
    pub resized: &'a (dyn Fn(usize) -> bool + Sync),
    /// Values of the largest photograph.
    pub largest: usize,
    /// Time of a step on a photograph, as a multiple of that of a step at the model's input.
    pub weight: f64,
}

/// What is attacked, and how.
#[derive(Clone, Copy)]
pub struct Strong<'a> {
    /// The embeddings of all images.
    pub context: &'a AttackContext,
    /// Clean images.
    pub images: &'a ImageSource<'a>,
    /// The trials. Each runs the ensemble of its objective.
    pub trials: &'a [Trial],
    /// Form, ball, ε and seed. Search, steps and restarts are the members' own.
    pub plan: &'a Plan,
    /// Times the usual work.
    pub effort: usize,
    /// Images to begin from besides a trial's own.
    pub others: Others<'a>,
    /// Values of the largest of the trials' images.
    pub largest: usize,
    /// The queries' files, if the plan asks for a search [in files](Plan::in_files).
    pub files: Option<QueryFiles<'a>>,
}

impl Strong<'_> {
    /// Runs every trial through the ensemble of its objective. Reports each trial to `watch` when it is done;
    /// indices are those of the trials. Stops early if `watch` says so. Errors: as for [`crate::run`].
    pub fn run(&self, workers: &mut WorkerSource, watch: &mut Watch) -> Result<()> {
        let largest = self.files.map_or(self.largest, |files| files.largest.max(self.largest));
        let within = |values: usize| values / largest.max(1);
        let least = within(MOST_KEPT).clamp(1, CHUNK[0]);
        let chunk = within(KEPT).clamp(least, CHUNK[1]);
        let mut groups: Vec<Vec<usize>> = Vec::new();
        // Those of a caller come after those of the table.
        let mut codes: Vec<&str> = OBJECTIVES.iter().map(|objective| objective.code).collect();
        for trial in self.trials {
            if !codes.contains(&trial.objective.code) {
                codes.push(trial.objective.code);
            }
        }
        for code in codes {
            let of = |i: &usize| self.trials[*i].objective.code == code;
            let mine: Vec<usize> = (0..self.trials.len()).filter(of).collect();
            groups.extend(mine.chunks(chunk).map(<[usize]>::to_vec));
        }
        let room = room(workers)?;
        let (mut done, mut made) = (0, 0);
        for (i, group) in groups.iter().enumerate() {
            let later = groups[i + 1..].iter().map(|later| self.most_passes(later, room)).sum();
            let mut chunk = Chunk::new(self, group, room, done, Passes { made, left: later });
            if chunk.run(workers, watch)?.is_break() {
                return Ok(());
            }
            made = chunk.passes.made;
            done += group.iter().map(|&i| self.plan.most_work(self.trials[i].objective)).sum::<usize>();
        }
        Ok(())
    }

    /// The outcomes of the trials at `places` without an attack, and whether the attacker's goal is reached.
    pub(super) fn without_attack(&self, places: &[usize]) -> Vec<(Outcome, bool)> {
        let Strong { context, plan, .. } = *self;
        let gallery = &context.gallery;
        let at: Vec<(&Trial, &[f32])> = places
            .iter()
            .map(|&i| &self.trials[i])
            .map(|trial| (trial, gallery.point(trial.query)))
            .collect();
        let of = |(trial, measures): (&Trial, Measures)| {
            let outcome = Outcome {
                attack: trial.objective.code.into(),
                query: gallery.ids[trial.query].clone(),
                targets: trial.targets.iter().map(|&t| gallery.ids[t].clone()).collect(),
                size: (!plan.ball.is_box).then_some(0.0),
                before: measures.clone(),
                after: measures,
                ..Outcome::default()
            };
            let lost = self.success(trial, &outcome) >= 100.0;
            (outcome, lost)
        };
        let measured = measure_all(context, plan.form, &at);
        at.iter().map(|(trial, _)| *trial).zip(measured).map(of).collect()
    }

    /// The attacker's success, in per cent of his way.
    pub(super) fn success(&self, trial: &Trial, outcome: &Outcome) -> f64 {
        let ranked = match trial.foreign(&self.context.gallery) {
            Some((targets, _)) => targets.len() as f64,
            None => self.plan.form.ranked_in(&self.context.gallery) as f64,
        };
        let term = trial.objective.sought();
        let read = (term.read)(outcome, Form::Corrected);
        read.map_or(0.0, |(_, after)| term.success(after, ranked))
    }

    /// The forward passes that trials of one objective take at most.
    fn most_passes(&self, group: &[usize], room: Room) -> usize {
        let first = group.first().map(|&i| self.trials[i].objective);
        first.map_or(0, |objective| {
            let in_files = self.plan.most_passes_in_files(objective, group.len(), room);
            self.plan.most_passes(objective, group.len(), room) - in_files + self.in_files(in_files)
        })
    }

    /// The passes at the model's input that take as long as `passes` on photographs; 0 if no files are
    /// searched.
    pub(super) fn in_files(&self, passes: usize) -> usize {
        self.files.map_or(0, |files| (passes as f64 * files.weight).ceil() as usize)
    }
}

/// The batches that the workers of a model have. The others have the same.
fn room(workers: &mut WorkerSource) -> Result<Room> {
    let mut room = Room { workers: 1, batch: 1 };
    workers(Route::Exact, &mut |workers| {
        room = Room { workers: workers.len(), batch: workers.first().map_or(1, |worker| worker.batch()) };
        Ok(())
    })?;
    Ok(room)
}

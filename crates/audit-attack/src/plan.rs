//! How trials are run: the budget, the search, and the image steps that they take.

use super::ball::{Ball, Bound, whole_levels};
use super::ensemble::{ladder, members};
use super::mask::Mask;
use super::passes::{GRADIENT_PASSES, Room};
use super::search::{Search, nearest_levels};
use super::trial::{Ensemble, Objective, Shared};
use audit_base::Result;
use audit_report::record::{Form, Space, rungs};
use std::collections::BTreeMap;

/// How trials are run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The form of the definitions.
    pub form: Form,
    /// The norm that bounds a perturbation.
    pub ball: &'static Ball,
    /// Which image is changed.
    pub space: Space,
    /// Quality of the JPEG file that a changed image is saved as, in file space; `None` for a PNG.
    pub jpeg: Option<u8>,
    /// Largest size ε of a perturbation in the ball's norm, in units of the [0, 1] range.
    pub eps: f32,
    /// Which pixels may change; `None` for all.
    pub mask: Option<Mask>,
    /// Step size α of searches that use it. A single step has size ε instead (FGSM).
    pub alpha: f32,
    /// Number of steps T.
    pub steps: usize,
    /// The search algorithm.
    pub search: &'static Search,
    /// Number of additional runs of each trial, from uniform random starts in the ball. The run with the
    /// lowest final loss counts. A shared perturbation starts at the result of a random search instead, and
    /// the run with most success on its sample counts.
    pub restarts: usize,
    /// Seed of the random starts and of the searches' random choices.
    pub seed: u64,
    /// Work of the strong search, as a multiple of its usual work, if it runs on every attack instead of one
    /// search. Its members have their own steps, searches and restarts, and most their own step size. Checks
    /// that run one search instead use the plan's.
    pub effort: Option<usize>,
    /// How often ε is halved for [strong-only](audit_report::facts::Facts::strong_only) objectives. The
    /// smallest sufficient perturbation is then searched for, and reported at each of these ε. `None` for ε
    /// alone.
    pub ladder: Option<usize>,
    /// Whether the ladder's file column is searched for in files: some of the images are files of other sizes
    /// than the model's input.
    pub in_files: bool,
    /// Whether the model takes whole grey levels alone. What a search finds is then rounded to them, within
    /// ε, before it is measured.
    pub whole_levels: bool,
}

impl Plan {
    /// The halvings of an objective; `None` if its trials end at ε.
    pub fn ladder_of(&self, objective: &Objective) -> Option<usize> {
        self.ladder.filter(|_| objective.strong_only)
    }

    /// ε and its halves, the largest first.
    pub fn rungs(&self) -> Vec<f32> {
        rungs(self.eps, self.ladder, self.space)
    }

    /// The search for the ladder's file column in the files of queries that the search at the model's input
    /// makes wrong; `None` if there is none.
    pub fn in_files(&self, objective: &Objective) -> Option<Plan> {
        let another = 255.0 * self.eps >= 1.0 - 1e-3;
        let has_file_column = self.in_files && self.space == Space::Input && self.ball.is_box && another;
        self.ladder_of(objective).filter(|_| has_file_column).map(|_| Plan {
            space: Space::File,
            in_files: false,
            ..self.clone()
        })
    }

    /// The same attack within another ε. The step size keeps its proportion to ε: steps that are too long for
    /// the ball, or too short to cross it, would say nothing of the model.
    pub fn within(&self, eps: f32) -> Plan {
        let alpha = f64::from(self.alpha) * f64::from(eps) / f64::from(self.eps);
        Plan { eps, alpha: alpha as f32, ..self.clone() }
    }

    /// The set that contains images near `centre` [P], of which the values in `free` may change.
    pub(super) fn bound<'b>(&self, centre: &'b [f32], free: &'b Option<Vec<bool>>) -> Bound<'b> {
        // No file has values between two grey levels. A search that tried images beyond the last one could
        // end at an image that becomes another one when it is rounded.
        let eps = if self.makes_files() { whole_levels(self.eps) } else { self.eps };
        Bound { ball: self.ball, eps, centre, pixels: true, free: free.as_deref() }
    }

    /// Whether every measured image has whole grey levels and a bound on each pixel, so that its perturbation
    /// is one that a file can hold.
    pub(super) fn makes_files(&self) -> bool {
        self.ball.is_box && (self.whole_levels || self.space == Space::File)
    }

    /// Rounds an image [P] to what a file can hold, or the model accepts, within its bound.
    pub(super) fn settle(&self, x: &mut [f32], bound: &Bound) {
        if self.whole_levels || self.space == Space::File {
            nearest_levels(x, bound);
        }
    }

    /// Which values of an image of `shape` [C, H, W] may change in a trial of `objective` on the query `id`;
    /// `None` for all. A shared perturbation has one mask for all queries. Errors: those of [`Mask::free`].
    pub fn free(&self, shape: [usize; 3], objective: &Objective, id: &str) -> Result<Option<Vec<bool>>> {
        let id = if objective.shared.is_some() { objective.code } else { id };
        let free = |mask: &Mask| match self.space {
            Space::Input => mask.free(shape, self.seed, id),
            Space::File => mask.scaled([shape[1], shape[2]]).free(shape, self.seed, id),
        };
        self.mask.as_ref().map(free).transpose()
    }

    /// The multiple of the strong search's usual work that an attack gets; `None` if one search runs on it.
    pub fn strong(&self, objective: &Objective) -> Option<usize> {
        self.effort.or(objective.strong_only.then_some(1))
    }

    /// The tiers that follow those of the objective.
    pub(super) fn further(&self) -> Ensemble {
        if self.jpeg.is_some() { members::JPEG } else { &[] }
    }

    /// Image steps of an attack on one query: the maximum, or for the strong search the usual number.
    pub fn work(&self, objective: &Objective) -> usize {
        match self.strong(objective) {
            Some(effort) => {
                let descent = self.ladder_of(objective).map_or(0, |_| ladder::usual());
                let in_files = self.in_files(objective).map_or(0, |plan| plan.work(objective));
                members::usual(objective.members, effort)
                    + descent
                    + members::cost(self.further(), effort)
                    + in_files
            }
            // Each further start of a shared perturbation begins with a random search of the same cost.
            None if objective.shared.is_some() => self.steps * (2 * self.restarts + 1),
            None => self.steps * (self.restarts + 1),
        }
    }

    /// Image steps of an attack on one query for which a [small change](Self::small_change) is enough.
    pub fn least_work(&self, objective: &Objective) -> usize {
        match self.ladder_of(objective) {
            Some(_) => {
                let in_files = self.in_files(objective).map_or(0, |plan| plan.least_work(objective));
                ladder::small(self.space)
                    + members::cost(self.further(), self.strong(objective).unwrap_or(1))
                    + in_files
            }
            None => self.work(objective),
        }
    }

    /// The steps of [`Plan::least_work`] that are made on photographs.
    pub fn least_work_on_photographs(&self, objective: &Objective) -> usize {
        match self.space {
            Space::File => self.least_work(objective),
            Space::Input => self.in_files(objective).map_or(0, |plan| plan.least_work(objective)),
        }
    }

    /// The ε up to which the search for the smallest perturbation ends early.
    pub fn small_change(&self) -> f32 {
        ladder::small_change(self.ball, &self.rungs())
    }

    /// Image steps of the attacks of several trials. Trials that share a perturbation share its work.
    pub fn work_of<'o>(&self, trials: impl Iterator<Item = &'o Objective>) -> usize {
        let (mut work, mut shared) = (0, BTreeMap::<&str, (usize, &Shared, usize)>::new());
        for objective in trials {
            let each = self.work(objective);
            match objective.shared {
                None => work += each,
                Some(by) => shared.entry(objective.code).or_insert((each, by, 0)).2 += 1,
            }
        }
        let crafted = |(each, by, queries): (usize, &Shared, usize)| (by.crafting)(queries) * each + queries;
        work + shared.into_values().map(crafted).sum::<usize>()
    }

    /// Upper bound on the forward passes of all workers for an attack on `queries` queries.
    pub fn most_passes(&self, objective: &Objective, queries: usize, room: Room) -> usize {
        match self.strong(objective) {
            Some(effort) => {
                let descent = self
                    .ladder_of(objective)
                    .map_or(0, |_| ladder::passes(self.ball, self.rungs().len(), effort, queries, room));
                members::passes(objective.members, effort, queries, room)
                    + members::passes(self.further(), effort, queries, room)
                    + descent
                    + self.most_passes_in_files(objective, queries, room)
            }
            None => self.passes_of_one_search(objective, queries, room),
        }
    }

    /// Upper bound on the forward passes of all workers for one search on each of `queries` queries, instead
    /// of the strong search.
    pub fn passes_of_one_search(&self, objective: &Objective, queries: usize, room: Room) -> usize {
        match objective.shared {
            // Each perturbation is crafted in one worker, and each further start begins with a random search
            // of the same cost.
            Some(by) => {
                let crafted = (by.crafting)(queries).div_ceil(room.batch.max(1));
                GRADIENT_PASSES * crafted * self.steps * (2 * self.restarts + 1)
            }
            None => room.passes(queries * (self.restarts + 1), self.steps, 1, self.search),
        }
    }

    /// Forward passes of all workers that the search in files takes at most: it may have to look at every
    /// query.
    pub(super) fn most_passes_in_files(&self, objective: &Objective, queries: usize, room: Room) -> usize {
        self.in_files(objective).map_or(0, |plan| plan.most_passes(objective, queries, room))
    }

    /// Forward passes of single photographs that an attack on `queries` queries takes at most; 0 if it
    /// changes the model's input alone.
    pub fn most_resizes(&self, objective: &Objective, queries: usize) -> usize {
        match self.space {
            Space::File => self.most_passes(objective, queries, Room::SINGLE),
            Space::Input => self.most_passes_in_files(objective, queries, Room::SINGLE),
        }
    }

    /// Forward passes of all workers that it usually takes: the strong search seldom needs all of its
    /// members.
    pub fn usual_passes(&self, objective: &Objective, queries: usize, room: Room) -> usize {
        match self.strong(objective) {
            Some(effort) => {
                let descent = self.ladder_of(objective).map_or(0, |_| ladder::usual() * GRADIENT_PASSES);
                let slots = (room.workers * room.batch).max(1);
                members::usual_passes(objective.members, effort, queries, room)
                    + members::passes(self.further(), effort, queries, room)
                    + (queries * descent).div_ceil(slots)
                    + self.in_files(objective).map_or(0, |plan| plan.usual_passes(objective, queries, room))
            }
            None => self.most_passes(objective, queries, room),
        }
    }

    /// Forward passes of the first members of the strong search on one query, which are enough for most
    /// models without a defence.
    pub fn first_passes(&self, objective: &Objective, room: Room) -> usize {
        let first = objective.members.get(..1).unwrap_or_default();
        members::passes(first, self.strong(objective).unwrap_or(1), 1, room)
    }

    /// Upper bound on the image steps of an attack on one query.
    pub fn most_work(&self, objective: &Objective) -> usize {
        let ladder = self.ladder_of(objective);
        let descent = |effort| ladder.map_or(0, |_| ladder::cost(self.ball, self.rungs().len(), effort));
        let members =
            |effort| members::cost(objective.members, effort) + members::cost(self.further(), effort);
        let in_files = self.most_work_in_files(objective);
        self.strong(objective)
            .map_or_else(|| self.work(objective), |effort| members(effort) + descent(effort) + in_files)
    }

    /// Image steps of the search in files for one query at most.
    pub(super) fn most_work_in_files(&self, objective: &Objective) -> usize {
        self.in_files(objective).map_or(0, |plan| plan.most_work(objective))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// PGD with 32 steps at 8/255 on the model's input.
    pub(crate) fn plan() -> Plan {
        Plan {
            form: Form::Published,
            ball: &crate::BALLS[0],
            space: Space::Input,
            jpeg: None,
            eps: 8.0 / 255.0,
            mask: None,
            alpha: 1.0 / 255.0,
            steps: 32,
            search: &crate::PGD,
            restarts: 0,
            seed: 0,
            effort: None,
            ladder: None,
            in_files: false,
            whole_levels: false,
        }
    }

    /// By hand: for recall at 1, 32 steps along a gradient of 3 passes each. All members usually take more.
    #[test]
    fn the_first_members_are_a_part_of_the_strong_search() {
        let (plan, room) = (plan(), Room { workers: 2, batch: 8 });
        let recall = &crate::objective::r1::R1;
        assert_eq!(plan.first_passes(recall, room), 96);
        assert!(plan.usual_passes(recall, 1, room) > 2 * 96);
    }

    /// By hand: with 4 times the effort, searches along gradients make twice the steps, and those without
    /// make them in two runs.
    #[test]
    fn more_effort_raises_the_bound_of_the_ladder() {
        let recall = &crate::objective::r1::R1;
        let of_ladder = |effort: usize| {
            let whole = |ladder| Plan { effort: Some(effort), ladder, ..plan() }.most_work(recall);
            whole(Some(3)) - whole(None)
        };
        assert!(of_ladder(4) > 2 * of_ladder(1) && of_ladder(4) < 4 * of_ladder(1));
    }

    /// In levels around 100: a protocol's 0.03137 stands for 8, 4.5 holds 4, and less than a level stays what
    /// it is. A search may only try images that are measured as they are.
    #[test]
    fn images_of_whole_levels_have_bounds_of_whole_levels() {
        let centre = [100.0 / 255.0];
        let levels = |whole_levels: bool, eps: f32| {
            let plan = Plan { whole_levels, eps, ..plan() };
            let (low, high) = plan.bound(&centre, &None).interval(centre[0]);
            [low, high].map(|v| (v * 255.0 * 1000.0).round() / 1000.0)
        };
        assert_eq!(levels(true, 0.03137), [92.0, 108.0]);
        assert_eq!(levels(true, 4.5 / 255.0), [96.0, 104.0]);
        assert_eq!(levels(true, 0.5 / 255.0), [99.5, 100.5]);
        assert_eq!(levels(false, 4.5 / 255.0), [95.5, 104.5]);
        let x = |plan: &Plan| {
            let bound = plan.bound(&centre, &None);
            let mut x = [bound.interval(centre[0]).1];
            plan.settle(&mut x, &bound);
            (x[0] * 255.0).round()
        };
        assert_eq!(x(&Plan { whole_levels: true, eps: 0.03137, ..plan() }), 108.0);
    }
}

//! The order in which the members of an ensemble run on some trials: tiers, and the searches after them.

use super::ladder;
use super::members::{cost, has_thresholds, passes, usual_passes};
use super::run::{Strong, WorkerSource};
use crate::passes::{Passes, Room};
use crate::runner::{Event, Evidence, Further, Watch};
use crate::trial::{Ensemble, Member, Objective, Trial};
use audit_base::Result;
use audit_report::record::{Enough, MemberResult, Outcome, Space};
use std::ops::ControlFlow;

/// Share of the lowest loss that a tier must take away for the trial to be called closing in.
const CUT: f64 = 0.25;
/// The same for outcomes without such a loss, in per cent of the attacker's way. Where the search has
/// converged (models/hardened.onnx) the tier before gains a tenth of that, elsewhere up to four times that.
const RISE: f64 = 1.0;

/// What is known of a trial.
pub(super) struct State {
    /// The best image so far: how good it is, its outcome and its evidence.
    pub(super) best: Option<(Key, Outcome, Evidence)>,
    /// The classes that were aimed at, by how near they came: (loss, label).
    pub(super) classes: Vec<(f64, usize)>,
    pub(super) members: Vec<MemberResult>,
    /// The best image when the current tier began. Members that start from it start as those beside them do.
    pub(super) entry: Option<Vec<f32>>,
    /// Its loss; infinite where its loss doesn't tell how near the goal is.
    lowest: f64,
    /// Its success, in per cent of the attacker's way.
    success: f64,
    /// Whether the tier before has brought it nearer to the goal, see [`Member::closing`].
    pub(super) closing: bool,
    /// Whether the goal is reached.
    pub(super) reached: bool,
    /// How small a perturbation is enough, if that is asked for.
    pub(super) enough: Option<Enough>,
}

impl State {
    /// Begins a tier. `has_thresholds` says whether the ensemble has losses that tell how near the goal is.
    fn enter(&mut self, has_thresholds: bool) {
        let Some((Key(success, nearness, _), _, evidence)) = &self.best else { return };
        self.entry = Some(evidence.image.clone());
        self.closing = match has_thresholds {
            true => self.lowest.is_finite() && -nearness <= (1.0 - CUT) * self.lowest,
            false => *success >= self.success + RISE,
        };
        (self.lowest, self.success) = (-nearness, *success);
    }
}

/// Order of results; greater is better for the attacker. The loss decides between equal outcomes, if it is
/// one that tells how near the goal is, and between equal losses the run that comes first in the ensemble.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Key(pub(super) f64, pub(super) f64, pub(super) std::cmp::Reverse<usize>);

/// Some trials of one objective.
pub(super) struct Chunk<'s> {
    pub(super) all: &'s Strong<'s>,
    /// The places of the trials in the whole list.
    pub(super) places: &'s [usize],
    pub(super) states: Vec<State>,
    pub(super) room: Room,
    /// Image steps of earlier chunks.
    earlier: usize,
    /// Passes that were made so far, and those of later chunks.
    pub(super) passes: Passes,
    /// Trials whose result was reported.
    reported: usize,
}

impl<'s> Chunk<'s> {
    pub(super) fn new(
        all: &'s Strong<'s>,
        places: &'s [usize],
        room: Room,
        earlier: usize,
        passes: Passes,
    ) -> Chunk<'s> {
        let state = |_| State {
            best: None,
            classes: Vec::new(),
            members: Vec::new(),
            entry: None,
            lowest: f64::INFINITY,
            success: 0.0,
            closing: false,
            reached: false,
            enough: None,
        };
        Chunk { all, places, states: places.iter().map(state).collect(), room, earlier, passes, reported: 0 }
    }

    pub(super) fn trial(&self, i: usize) -> &'s Trial {
        &self.all.trials[self.places[i]]
    }

    /// Runs all members that the trials need; a break if `watch` ended them.
    pub(super) fn run(&mut self, workers: &mut WorkerSource, watch: &mut Watch) -> Result<ControlFlow<()>> {
        let Some(first) = self.places.first() else { return Ok(ControlFlow::Continue(())) };
        let objective = self.all.trials[*first].objective;
        let ladder = self.all.plan.ladder_of(objective);
        let first: Ensemble = if ladder.is_some() { ladder::FIRST } else { &[] };
        let further = self.all.plan.further();
        let ensemble: Vec<&[Member]> =
            first.iter().chain(objective.members).chain(further).copied().collect();
        if self.without_attack(watch)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let whole = self.all.plan.most_work(objective);
        let attacked = self.states.len() - self.reported;
        let most_descent = ladder.map_or(0, |_| {
            let Strong { plan, effort, .. } = *self.all;
            ladder::passes(plan.ball, plan.rungs().len(), effort, attacked, self.room)
                + self.most_passes_in_files(objective, attacked)
        });
        let mut before = 0;
        let members: Vec<&Member> = ensemble.iter().flat_map(|tier| tier.iter()).collect();
        let mut next = 0;
        for (at, tier) in ensemble.iter().enumerate() {
            let standing: Vec<usize> = (0..self.states.len()).filter(|&i| !self.states[i].reached).collect();
            for &i in &standing {
                self.states[i].enter(has_thresholds(objective.members));
            }
            for member in *tier {
                let base = self.earlier + whole * self.reported + before * standing.len();
                next += 1;
                // All of these trials may need all later members.
                let most = |member: &&Member| member.passes(self.all.effort, standing.len(), self.room);
                let later = members[next..].iter().map(most).sum::<usize>() + most_descent;
                // And these the tiers that all trials have.
                let reached = self.states.len() - self.reported - standing.len();
                let later = later + passes(further, self.all.effort, reached, self.room);
                let ended = self.member(member, &standing, [base, later], workers, watch)?;
                if ended.is_break() {
                    return Ok(ended);
                }
                before += member.cost(self.all.effort);
            }
            if at + 1 == first.len() && self.ensemble_ahead(watch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            for i in standing {
                let ends = ladder.is_none() && further.is_empty() && self.states[i].reached;
                if ends && self.report(i, watch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        if ladder.is_some() {
            let unreported = self.states.len() - self.reported;
            let base = self.earlier + whole * self.reported + before * unreported;
            let after = passes(further, self.all.effort, unreported, self.room)
                + self.most_passes_in_files(objective, unreported);
            self.passes.left += after;
            if self.descend(base, workers, watch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.passes.left -= after;
        }
        if self.search_files(whole, workers, watch)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if self.further(whole, workers, watch)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        for i in 0..self.states.len() {
            if self.states[i].best.is_some() && self.report(i, watch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether a trial's image as a file is searched for at the size of its photograph.
    pub(super) fn in_files(&self, i: usize) -> bool {
        let Strong { plan, files, .. } = self.all;
        let trial = self.trial(i);
        plan.in_files(trial.objective).is_some() && files.is_some_and(|files| (files.resized)(trial.query))
    }

    /// Passes that the search in files takes at most on some trials.
    pub(super) fn most_passes_in_files(&self, objective: &Objective, trials: usize) -> usize {
        self.all.in_files(self.all.plan.most_passes_in_files(objective, trials, self.room))
    }

    /// Passes that it usually takes on `trials` trials, `withstand` of which withstand the first searches.
    fn usual_passes_in_files(&self, objective: &Objective, trials: usize, withstand: usize) -> usize {
        let Some(plan) = self.all.plan.in_files(objective) else { return 0 };
        let usual = plan.usual_passes(objective, withstand, self.room);
        let others = trials.saturating_sub(withstand);
        self.all.in_files(usual + ladder::usual_passes(plan.ball, Space::File, [others, 0], self.room))
    }

    /// Searches for ε* in the photographs of the trials whose goal is reached at the model's input. `whole`
    /// is the most work on a trial.
    fn search_files(
        &mut self,
        whole: usize,
        workers: &mut WorkerSource,
        watch: &mut Watch,
    ) -> Result<ControlFlow<()>> {
        let all = self.all;
        let reached: Vec<usize> = (0..self.states.len())
            .filter(|&i| self.states[i].best.is_some() && self.states[i].reached && self.in_files(i))
            .collect();
        let trials: Vec<Trial> = reached.iter().map(|&i| self.trial(i).clone()).collect();
        let plan = trials.first().and_then(|trial| all.plan.in_files(trial.objective));
        let (Some(files), Some(plan)) = (all.files, plan) else { return Ok(ControlFlow::Continue(())) };
        let objective = trials[0].objective;
        let unreported = self.states.len() - self.reported;
        let own = all.plan.most_work_in_files(objective) + cost(all.plan.further(), all.effort);
        let base = self.earlier + whole * self.reported + (whole - own) * unreported;
        let strong = Strong {
            images: files.images,
            trials: &trials,
            plan: &plan,
            largest: files.largest,
            files: None,
            ..*all
        };
        let before = self.passes;
        let (mut made, mut flow) = (before.made, ControlFlow::Continue(()));
        let states = &mut self.states;
        strong.run(workers, &mut |event| {
            match event {
                Event::Step { done, passes, at } => {
                    made = before.made + all.in_files(passes.made);
                    let passes = Passes { made, left: before.left + all.in_files(passes.left) };
                    flow = watch(Event::Step { done: base + done, passes, at });
                }
                Event::Further(_) | Event::Broken(_) => (),
                Event::Done(i, outcome, _) => {
                    if let Some(enough) = &mut states[reached[i]].enough {
                        enough.as_file = outcome.enough.and_then(|found| found.size);
                        enough.steps += outcome.steps;
                    }
                }
            }
            flow
        })?;
        self.passes.made = made;
        Ok(flow)
    }

    /// Runs the tiers that follow an objective's own on the trials that reached the goal before them. `whole`
    /// is the most work on a trial.
    fn further(
        &mut self,
        whole: usize,
        workers: &mut WorkerSource,
        watch: &mut Watch,
    ) -> Result<ControlFlow<()>> {
        let (tiers, effort) = (self.all.plan.further(), self.all.effort);
        let unreported = self.states.len() - self.reported;
        let base = self.earlier + whole * self.reported + (whole - cost(tiers, effort)) * unreported;
        let reached: Vec<usize> = (0..self.states.len())
            .filter(|&i| self.states[i].best.is_some() && self.states[i].reached)
            .collect();
        for tier in tiers {
            for &i in &reached {
                self.states[i].entry = self.states[i].best.as_ref().map(|(.., found)| found.image.clone());
            }
            for member in *tier {
                if self.member(member, &reached, [base, 0], workers, watch)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Tells how many trials withstand [`ladder::FIRST`], and what the ensemble takes on them with the search
    /// for smaller perturbations that follows.
    fn ensemble_ahead(&self, watch: &mut Watch) -> ControlFlow<()> {
        let Strong { plan, effort, .. } = *self.all;
        let standing: Vec<usize> = (0..self.states.len()).filter(|&i| !self.states[i].reached).collect();
        let (Some(&first), trials) = (standing.first(), standing.len()) else {
            return ControlFlow::Continue(());
        };
        let objective = self.trial(first).objective;
        let members = objective.members;
        let attacked = self.states.len() - self.reported;
        let further = passes(plan.further(), effort, attacked, self.room);
        watch(Event::Further(Further {
            eps: plan.eps,
            trials,
            of: attacked,
            usual: usual_passes(members, effort, trials, self.room)
                + further
                + ladder::further(plan.ball, trials, self.room)
                + self.usual_passes_in_files(objective, attacked, trials),
            most: passes(members, effort, trials, self.room)
                + further
                + ladder::passes(plan.ball, plan.rungs().len(), effort, trials, self.room)
                + self.most_passes_in_files(objective, attacked),
        }))
    }

    /// Measures all trials without an attack. A trial whose goal is reached already needs none.
    fn without_attack(&mut self, watch: &mut Watch) -> Result<ControlFlow<()>> {
        let Strong { context, images, plan, .. } = *self.all;
        let gallery = &context.gallery;
        for (i, (outcome, lost)) in self.all.without_attack(self.places).into_iter().enumerate() {
            if !lost {
                continue;
            }
            let trial = self.trial(i);
            let (image, point) = (images(trial.query)?, gallery.point(trial.query).to_vec());
            let shape = image.resampling.as_ref().map_or(self.all.others.shape, |way| way.shape());
            let evidence = Evidence { image: image.data, shape, point, losses: Vec::new() };
            self.states[i].reached = true;
            let ladder = plan.ladder_of(self.trial(i).objective);
            self.states[i].enough = ladder.map(|_| Enough {
                size: Some(0.0),
                as_file: plan.ball.is_box.then_some(0.0),
                ..Enough::default()
            });
            self.states[i].best = Some((Key(100.0, 0.0, std::cmp::Reverse(0)), outcome, evidence));
            if watch(Event::Broken(self.places[i])).is_break() || self.report(i, watch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    pub(super) fn success(&self, trial: &Trial, outcome: &Outcome) -> f64 {
        self.all.success(trial, outcome)
    }

    /// Reports a trial that is done.
    fn report(&mut self, i: usize, watch: &mut Watch) -> ControlFlow<()> {
        self.reported += 1;
        let state = &mut self.states[i];
        let Some((_, best, evidence)) = state.best.take() else { return ControlFlow::Continue(()) };
        let (members, enough) = (std::mem::take(&mut state.members), state.enough.take());
        let below = enough.map_or(0, |enough| enough.steps);
        let steps = members.iter().map(|m| m.steps).sum::<usize>() + below;
        let outcome = Outcome { enough, steps, members: Some(members), ..best };
        watch(Event::Done(self.places[i], &outcome, &evidence))
    }
}

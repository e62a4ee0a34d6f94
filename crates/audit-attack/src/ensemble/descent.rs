//! How small a perturbation is enough: for each query that the strong search broke, a search for ε*, the
//! smallest ε at which an image was found. What is found at one ε counts for every larger one.

use super::chunk::Chunk;
use super::ladder::{
    self, AGAIN, BEST, CLASSES, DOUBTS, FILE, FROM_FAR, GAIN, HALVED, NEAR, ROUNDS, RUNG_CLASSES,
    RUNG_RANDOM, SECOND, SMALLEST, SOFTENED, further,
};
use super::run::WorkerSource;
use super::runs::{Aimed, MemberRuns};
use super::{Aims, Member};
use crate::ball::whole_levels;
use crate::passes::Room;
use crate::plan::Plan;
use crate::runner::{Event, Further, Watch};
use crate::search::Levels;
use audit_base::Result;
use audit_gallery::data::GREY_LEVEL;
use audit_model::Route;
use audit_report::record::{Enough, Outcome, Space};
use std::ops::ControlFlow;

/// Searches of a chunk that go one after the other, and what they share.
struct Descent<'c, 's, 'l> {
    chunk: &'c mut Chunk<'s>,
    workers: &'c mut WorkerSource<'l>,
    /// Image steps before.
    base: usize,
    /// Forward passes that the searches to come take at most.
    left: usize,
}

impl Chunk<'_> {
    /// Finds ε* of every trial whose goal is reached. `base` counts the image steps before.
    pub(super) fn descend(
        &mut self,
        base: usize,
        workers: &mut WorkerSource,
        watch: &mut Watch,
    ) -> Result<ControlFlow<()>> {
        let mut broken = Vec::new();
        let in_files: Vec<bool> = (0..self.states.len()).map(|i| self.in_files(i)).collect();
        for (i, state) in self.states.iter_mut().enumerate().filter(|(_, state)| state.best.is_some()) {
            let files = self.all.plan.makes_files() && !in_files[i];
            let found = state.best.as_ref().filter(|_| state.reached);
            state.enough =
                Some(Enough { size: found.map(|(_, outcome, _)| size(outcome)), ..Enough::default() });
            if files && let Some(enough) = &mut state.enough {
                enough.as_file = enough.size;
            }
            state.entry = found.map(|(.., evidence)| evidence.image.clone());
            broken.extend(found.map(|_| i));
        }
        let ended = Descent { chunk: self, workers, base, left: 0 }.run(&broken, watch)?;
        Ok(if ended.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// The member whose image counts.
    fn best_member(&self, i: usize) -> Option<&'static Member> {
        let counts = self.states[i].members.iter().find(|m| m.counts)?;
        let plan = self.all.plan;
        let members =
            self.trial(i).objective.members.iter().chain(plan.further()).flat_map(|tier| tier.iter());
        members.into_iter().find(|m| m.name == counts.member)
    }

    /// ε* so far; infinite if there is none.
    fn smallest(&self, i: usize) -> f32 {
        self.states[i].enough.and_then(|enough| enough.size).unwrap_or(f32::INFINITY)
    }

    /// Whether an image of whole grey levels is known.
    fn has_file(&self, i: usize) -> bool {
        self.states[i].enough.is_some_and(|enough| enough.as_file.is_some())
    }
}

/// The ε at which images of whole grey levels are searched for, from the smallest ball that holds another
/// such image; none in file space, in which all are such images.
fn levels(plan: &Plan) -> Vec<f32> {
    (plan.rungs().iter().rev().map(|eps| (eps * 255.0 + 1e-3).floor()))
        .filter(|levels| plan.ball.is_box && plan.space == Space::Input && *levels >= 1.0)
        .map(|levels| levels / 255.0)
        .collect()
}

fn size(outcome: &Outcome) -> f32 {
    outcome.size.unwrap_or(outcome.linf)
}

/// Forward passes that [`Descent::come_from_far`] takes at most on so many trials.
fn from_far(plan: &Plan, effort: usize, trials: usize, room: Room) -> usize {
    let most = |member: &Member| member.passes(effort, trials, room);
    let at_rung = most(&RUNG_RANDOM) + most(&RUNG_CLASSES) + most(&AGAIN);
    match plan.ball.is_box {
        true => 0,
        false => ROUNDS * most(&FROM_FAR) + (plan.rungs().len() - 1) * at_rung,
    }
}

impl Descent<'_, '_, '_> {
    /// Runs all searches on the `broken` trials; `None` if `watch` ended them.
    fn run(&mut self, broken: &[usize], watch: &mut Watch) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        let (effort, room) = (self.chunk.all.effort, self.chunk.room);
        let most = |member: &Member, trials: usize| member.passes(effort, trials, room);
        let Some(broken) = self.beyond_a_grey_level(broken, watch)? else { return Ok(None) };
        if broken.is_empty() {
            return Ok(Some(()));
        }
        let broken = &broken[..];
        let of = |chunk: &Chunk, wanted: &dyn Fn(&Member) -> bool| -> Vec<usize> {
            broken.iter().copied().filter(|&i| chunk.best_member(i).is_some_and(wanted)).collect()
        };
        let elsewhere = of(self.chunk, &|member| member.route != Route::Exact);
        let mut blind = of(self.chunk, &|member| member.gradient_free);
        let rungs = plan.rungs();
        let levels = levels(plan);
        let rounds = |trials: usize| ROUNDS * most(&AGAIN, trials);
        let files = levels.len() * most(&FILE, broken.len());
        let after_far =
            |trials: usize| most(&CLASSES, trials) + most(&BEST, trials) + 2 * rounds(trials) + files;
        let after_doubts = |trials: usize| from_far(plan, effort, trials, room) + after_far(trials);
        let doubts =
            |trials: usize| levels.len() * DOUBTS.map(|member| most(member, trials)).iter().sum::<usize>();
        let after_halved = |trials: usize| doubts(trials) + after_doubts(trials);
        let halved = |trials: usize| (rungs.len() - 1) * most(&HALVED, trials);
        let before: Vec<f32> = broken.iter().map(|&i| self.chunk.smallest(i)).collect();
        self.left = most(&SMALLEST, broken.len())
            + most(&SOFTENED, elsewhere.len())
            + most(&SECOND, broken.len())
            // Those on which these searches gain nothing are halved too.
            + halved(broken.len())
            + after_halved(broken.len());
        if self.run_member(&SMALLEST, plan, broken, watch)?.is_none()
            || self.run_member(&SOFTENED, plan, &elsewhere, watch)?.is_none()
            || self.run_member(&SECOND, plan, broken, watch)?.is_none()
        {
            return Ok(None);
        }
        // No smaller change lies along a gradient if the model jumps.
        let stuck =
            |(&i, before): (&usize, f32)| (self.chunk.smallest(i) > (1.0 - GAIN) * before).then_some(i);
        let stuck: Vec<usize> = broken.iter().zip(before).filter_map(stuck).collect();
        blind.extend(stuck);
        blind.sort_unstable();
        blind.dedup();
        self.left = halved(blind.len()) + after_halved(broken.len());
        if self.halve(blind, watch)?.is_none() {
            return Ok(None);
        }
        let eps = plan.small_change();
        let worth: Vec<usize> = broken.iter().copied().filter(|&i| self.chunk.smallest(i) > eps).collect();
        self.left = after_halved(worth.len());
        let ahead = self.ahead(worth.len(), broken);
        if !worth.is_empty() && watch(Event::Further(ahead)).is_break() {
            return Ok(None);
        }
        if self.doubt(&levels, &worth, watch)?.is_none() {
            return Ok(None);
        }
        self.left = after_doubts(worth.len());
        if self.come_from_far(&worth, watch)?.is_none() {
            return Ok(None);
        }
        self.left = after_far(worth.len());
        for (first, later) in [(&CLASSES, most(&BEST, worth.len()) + rounds(worth.len())), (&BEST, 0)] {
            if self.repeat(first, &worth, watch)?.is_none() {
                return Ok(None);
            }
            self.left = later + files;
        }
        self.find_files(&levels, broken, watch)
    }

    /// Tries files that are a grey level from the photograph, in file space. Returns the `broken` trials that
    /// are left: no file is nearer, so that nothing smaller is left to find for the others. `None` if `watch`
    /// ended it.
    fn beyond_a_grey_level(&mut self, broken: &[usize], watch: &mut Watch) -> Result<Option<Vec<usize>>> {
        let (plan, effort, room) = (self.chunk.all.plan, self.chunk.all.effort, self.chunk.room);
        let mut broken = broken.to_vec();
        if plan.space == Space::File {
            self.left = ladder::passes(plan.ball, plan.rungs().len(), effort, broken.len(), room);
            if self.run_member(&FILE, &plan.within(GREY_LEVEL), &broken, watch)?.is_none() {
                return Ok(None);
            }
            broken.retain(|&i| self.chunk.smallest(i) > plan.ball.largest(GREY_LEVEL));
        }
        Ok(Some(broken))
    }

    /// Runs the search without gradients in smaller and smaller balls, on the trials that it breaks there.
    fn halve(&mut self, mut blind: Vec<usize>, watch: &mut Watch) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        for &eps in &plan.rungs()[1..] {
            // Square moves pixels by all of ε, and then the size of the change is ε but for rounding.
            let most = plan.ball.largest(eps);
            blind.retain(|&i| self.chunk.smallest(i) > most);
            if self.run_member(&HALVED, &plan.within(eps), &blind, watch)?.is_none() {
                return Ok(None);
            }
            blind.retain(|&i| self.chunk.smallest(i) <= most);
        }
        Ok(Some(()))
    }

    /// Runs [`DOUBTS`] within half of each ε*, at one of the `levels` after the other, on the trials that
    /// they break there. `None` if `watch` ended it.
    fn doubt(&mut self, levels: &[f32], trials: &[usize], watch: &mut Watch) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        let before: Vec<f32> = trials.iter().map(|&i| self.chunk.smallest(i)).collect();
        let mut open = trials.to_vec();
        for &eps in levels.iter().rev() {
            let rounding = plan.ball.rounding(eps);
            // A protocol's 0.03137 stands for 8 levels, half of which are 4.
            let half = |&i: &usize| 2.0 * eps <= whole_levels(self.chunk.smallest(i)) + rounding;
            let mut standing: Vec<usize> = open.iter().copied().filter(half).collect();
            for member in DOUBTS {
                if self.run_member(member, &plan.within(eps), &standing, watch)?.is_none() {
                    return Ok(None);
                }
                standing.retain(|&i| self.chunk.smallest(i) > eps + rounding);
            }
            open.retain(|i| !standing.contains(i));
        }
        for (&i, before) in trials.iter().zip(before) {
            let smaller = self.chunk.smallest(i) < before;
            if let Some(enough) = &mut self.chunk.states[i].enough {
                enough.passed_by = smaller;
            }
        }
        Ok(Some(()))
    }

    /// Runs [`FROM_FAR`] on `trials`, again on those that it gains on, and then the searches at rungs, in balls
    /// that are no boxes. `None` if `watch` ended it.
    fn come_from_far(&mut self, trials: &[usize], watch: &mut Watch) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        if plan.ball.is_box {
            return Ok(Some(()));
        }
        let Some(gained) = self.run_member(&FROM_FAR, plan, trials, watch)? else { return Ok(None) };
        let mut more = gained.clone();
        for _ in 1..ROUNDS {
            let Some(gained) = self.run_member(&FROM_FAR, plan, &more, watch)? else { return Ok(None) };
            more = gained;
        }
        let worth = |eps: &&f32| plan.ball.largest(**eps) >= plan.small_change();
        for &eps in plan.rungs()[1..].iter().take_while(worth) {
            if self.at_rung(eps, trials, &gained, watch)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Runs [`RUNG_RANDOM`] within `eps` on those of the trials for which it is the first rung below ε*, if
    /// they are near it or among the `gained`, and [`RUNG_CLASSES`] on the latter. What they break is made
    /// smaller at once, so that it may reach further rungs. `None` if `watch` ended it.
    fn at_rung(
        &mut self,
        eps: f32,
        trials: &[usize],
        gained: &[usize],
        watch: &mut Watch,
    ) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        let within = plan.within(eps);
        let most = plan.ball.largest(eps);
        let first = |&i: &usize| {
            let reach = if gained.contains(&i) { 2.0 * most } else { NEAR * eps };
            let size = self.chunk.smallest(i);
            size > most && size <= reach
        };
        let standing: Vec<usize> = trials.iter().copied().filter(first).collect();
        if self.run_member(&RUNG_RANDOM, &within, &standing, watch)?.is_none() {
            return Ok(None);
        }
        let left = |&i: &usize| gained.contains(&i) && self.chunk.smallest(i) > most;
        let left: Vec<usize> = standing.iter().copied().filter(left).collect();
        if self.run_member(&RUNG_CLASSES, &within, &left, watch)?.is_none() {
            return Ok(None);
        }
        let broken = |&i: &usize| self.chunk.smallest(i) <= most;
        let broken: Vec<usize> = standing.iter().copied().filter(broken).collect();
        Ok(self.run_member(&AGAIN, plan, &broken, watch)?.map(|_| ()))
    }

    /// The further searches on `trials` of the `broken` ones.
    fn ahead(&self, trials: usize, broken: &[usize]) -> Further {
        let (of, room, plan) = (broken.len(), self.chunk.room, self.chunk.all.plan);
        let objective = self.chunk.trial(broken[0]).objective;
        let most_in_files = self.chunk.most_passes_in_files(objective, of);
        let in_files = match most_in_files {
            0 => 0,
            _ => self.chunk.all.in_files(ladder::usual_passes(plan.ball, Space::File, [of, trials], room)),
        };
        Further {
            eps: plan.small_change(),
            trials,
            of,
            usual: further(plan.ball, trials, room) + in_files,
            most: self.left + most_in_files,
        }
    }

    /// Runs a member, and then [`AGAIN`] for [`ROUNDS`] rounds: first on all trials, then on those that
    /// gained.
    fn repeat(&mut self, member: &Member, trials: &[usize], watch: &mut Watch) -> Result<Option<()>> {
        let plan = self.chunk.all.plan;
        if self.run_member(member, plan, trials, watch)?.is_none() {
            return Ok(None);
        }
        let mut more = trials.to_vec();
        for _ in 0..ROUNDS {
            let Some(gained) = self.run_member(&AGAIN, plan, &more, watch)? else { return Ok(None) };
            more = gained;
        }
        Ok(Some(()))
    }

    /// Searches for images of whole grey levels, for each trial at the first of the `levels` that reaches its
    /// ε*.
    fn find_files(&mut self, levels: &[f32], broken: &[usize], watch: &mut Watch) -> Result<Option<()>> {
        let (plan, effort, room) = (self.chunk.all.plan, self.chunk.all.effort, self.chunk.room);
        for (at, &eps) in levels.iter().enumerate() {
            let without =
                broken.iter().filter(|&&i| !self.chunk.has_file(i) && !self.chunk.in_files(i)).count();
            self.left = (levels.len() - at) * FILE.passes(effort, without, room);
            let within = |&i: &usize| {
                self.chunk.smallest(i) <= plan.ball.largest(eps)
                    && !self.chunk.has_file(i)
                    && !self.chunk.in_files(i)
            };
            let within: Vec<usize> = broken.iter().copied().filter(within).collect();
            if self.run_member(&FILE, &plan.within(eps), &within, watch)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Runs a member on trials in the ball of `plan`, and keeps what is smaller than before. Returns the
    /// trials on which it gained [`GAIN`]; `None` if `watch` ended it.
    fn run_member(
        &mut self,
        member: &Member,
        plan: &Plan,
        trials: &[usize],
        watch: &mut Watch,
    ) -> Result<Option<Vec<usize>>> {
        let Descent { chunk, workers, base, left } = self;
        *left = left.saturating_sub(member.passes(chunk.all.effort, trials.len(), chunk.room));
        let runs: Vec<Aimed> = chunk.aimed(member, trials);
        let before: Vec<f32> = trials.iter().map(|&i| chunk.smallest(i)).collect();
        let smaller = |_: usize, outcome: &Outcome| {
            let wrong = outcome.after.hit == Some(false);
            [if wrong { -f64::from(size(outcome)) } else { f64::NEG_INFINITY }, 0.0]
        };
        let all = MemberRuns { member, plan, runs: &runs, worth: &smaller };
        let Some(found) = chunk.results(&all, [*base, *left], *workers, watch)? else {
            return Ok(None);
        };
        let files = plan.makes_files();
        for (i, outcome, evidence) in found {
            let Aimed { trial, class, number } = runs[i];
            let in_files = chunk.in_files(trial);
            let state = &mut chunk.states[trial];
            let Some(enough) = &mut state.enough else { continue };
            *base += outcome.steps;
            enough.steps += outcome.steps;
            let size = Some(size(&outcome)).filter(|_| outcome.after.hit == Some(false));
            if let (Aims::Nearest(_), Some(class)) = (member.aims, class) {
                if number == 0 {
                    state.classes.clear();
                }
                state.classes.push((size.map_or(f64::INFINITY, f64::from), class));
                state.classes.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
            let Some(size) = size else { continue };
            if (member.search.levels == Levels::Images || files) && !in_files {
                enough.as_file = Some(enough.as_file.map_or(size, |smallest| smallest.min(size)));
            }
            if enough.size.is_none_or(|smallest| size < smallest) {
                enough.size = Some(size);
                state.entry = Some(evidence.image);
            }
        }
        let gained =
            trials.iter().zip(before).filter(|&(&i, before)| chunk.smallest(i) < (1.0 - GAIN) * before);
        Ok(Some(gained.map(|(&i, _)| i).collect()))
    }
}

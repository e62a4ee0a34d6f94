//! The runs of one member on trials: what they aim at, where they begin, and which image of each trial is
//! best.

use super::chunk::{Chunk, Key};
use super::members::has_thresholds;
use super::run::{Others, Strong, WorkerSource};
use crate::ball::{Bound, whole_levels};
use crate::draw::Draw;
use crate::objective::r1;
use crate::passes::Passes;
use crate::plan::Plan;
use crate::runner::{Event, Evidence, Task, Variation, Watch, load, start};
use crate::search::Levels;
use crate::trial::{Aims, From, Member, Objective, Trial};
use audit_base::Result;
use audit_gallery::data::resized;
use audit_gallery::space::Gallery;
use audit_model::Differentiable;
use audit_report::record::{Form, MemberResult, Outcome};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// A run of a member: a trial of the chunk, the class that it aims at, and its number among the member's runs
/// for this trial.
#[derive(Clone, Copy)]
pub(super) struct Aimed {
    pub trial: usize,
    pub class: Option<usize>,
    pub number: usize,
}

/// Runs of a member, and which of them are good.
pub(super) struct MemberRuns<'r> {
    pub member: &'r Member,
    /// The ball of their perturbations.
    pub plan: &'r Plan,
    pub runs: &'r [Aimed],
    /// The worth of a run's outcome.
    pub worth: &'r (dyn Fn(usize, &Outcome) -> [f64; 2] + Sync),
}

/// What a run found: its place among the runs of a member, the outcome, and its image.
pub(super) type Found = (usize, Outcome, Evidence);

/// Results of runs. Of the runs of one trial only the best keeps its image, the first of equal ones:
/// photographs of all would fill the memory.
#[derive(Default)]
struct Results {
    found: Vec<Found>,
    /// By trial: how good its best run is, which it is, and its place among those found.
    best: HashMap<usize, ([f64; 2], usize, usize)>,
}

impl Results {
    /// Adds the result of run `i` of a trial, which is worth `value`.
    fn add(&mut self, [trial, i]: [usize; 2], value: [f64; 2], outcome: &Outcome, evidence: &Evidence) {
        let better = self
            .best
            .get(&trial)
            .is_none_or(|(before, first, _)| value > *before || (value == *before && i < *first));
        let Evidence { shape, ref point, ref losses, ref image } = *evidence;
        let image = if better { image.clone() } else { Vec::new() };
        if better && let Some((.., place)) = self.best.insert(trial, (value, i, self.found.len())) {
            self.found[place].2.image = Vec::new();
        }
        let kept = Evidence { image, shape, point: point.clone(), losses: losses.clone() };
        self.found.push((i, outcome.clone(), kept));
    }
}

/// The plan of a member's runs in the ball of `plan`.
fn plan_of(member: &Member, plan: &Plan, effort: usize) -> Plan {
    let steps = member.steps_at(effort);
    // A protocol's 0.03137 stands for 8 grey levels. Images of whole levels reach the eighth, which lies
    // beyond.
    let by_levels = member.search.levels != Levels::None && plan.ball.is_box;
    let eps = if by_levels { whole_levels(plan.eps) } else { plan.eps };
    let alpha = match member.alpha {
        Some(share) => share * plan.eps,
        None if plan.ball.is_box && plan.mask.is_none() => plan.alpha,
        // No protocol has a step size for these bounds, and the suite's is for its own search and steps.
        None => (2.5 * plan.eps / steps.max(1) as f32).min(plan.eps),
    };
    Plan { search: member.search, steps, restarts: 0, eps, alpha, ..plan.clone() }
}

/// The stream of random choices of a member's run. It depends on these two, and on no other trial.
fn stream_of(member: &Member, number: usize) -> u64 {
    let kind = member.name.bytes().fold(7u64, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into())) << 16;
    (kind + number as u64) & 0xFFFF_FFFF
}

/// An image whose perturbation is stretched to the radius of the ball.
fn stretched(x: &[f32], bound: &Bound) -> Vec<f32> {
    let size = (bound.ball.size)(x, bound.centre);
    // Clipped pixels shorten it; outside a box the projection leads back to the radius.
    let beyond = if bound.ball.is_box { 1.0 } else { 2.0 };
    let by = if size > 0.0 { beyond * bound.eps / size } else { 1.0 };
    let mut moved: Vec<f32> = x.iter().zip(bound.centre).map(|(x, c)| c + (x - c) * by).collect();
    bound.project(&mut moved);
    moved
}

/// An image that another member found, in this member's set. Images of whole grey levels may lie a little
/// beyond an ε such as 0.03137, see [`plan_of`].
fn moved_within(x: &[f32], bound: &Bound) -> Vec<f32> {
    let mut x = x.to_vec();
    if (bound.ball.size)(&x, bound.centre) > bound.ball.largest(bound.eps) {
        bound.project(&mut x);
    }
    x
}

/// How near to the goal an outcome is. Losses of members are numbers of different kinds: only one that is
/// below 0 at the goal tells how near it is, and of images of one rank any may count.
fn nearness(member: &Member, objective: &Objective, outcome: &Outcome) -> f64 {
    let tells = member.until.is_some() || !has_thresholds(objective.members);
    if tells { -outcome.loss_last } else { f64::NEG_INFINITY }
}

/// The image of a random query, resized to `shape` and projected into `bound`. Errors: those of `others`; see
/// [`load`].
fn other(
    gallery: &Gallery,
    others: &Others,
    bound: &Bound,
    shape: [usize; 3],
    draw: &mut Draw,
) -> Result<Vec<f32>> {
    let queries = gallery.queries();
    let query = queries[draw.index(queries.len())];
    let from = others.shape;
    let image = load(gallery, others.images, query, from.iter().product())?.data;
    let mut x = if from == shape { image } else { resized(&image, from, [shape[1], shape[2]])? };
    bound.project(&mut x);
    Ok(x)
}

impl Chunk<'_> {
    /// The runs of a member.
    pub(super) fn aimed(&self, member: &Member, standing: &[usize]) -> Vec<Aimed> {
        let repeats = member.repeats(self.all.effort);
        let mut runs = Vec::new();
        // A member of the first tier that is one of a later tier too runs once.
        let ran = |trial: usize| self.states[trial].members.iter().any(|m| m.member == member.name);
        let wanted = |&&trial: &&usize| (!member.closing || self.states[trial].closing) && !ran(trial);
        for &trial in standing.iter().filter(wanted) {
            let classes: Vec<Option<usize>> = match member.aims {
                Aims::One => vec![None],
                Aims::Several(n) => vec![None; n],
                Aims::Nearest(n) => {
                    let near = r1::nearest_classes(&self.all.context.gallery, self.trial(trial), n);
                    near.into_iter().map(Some).collect()
                }
                Aims::Best(n) => self.states[trial].classes.iter().take(n).map(|c| Some(c.1)).collect(),
            };
            let each = classes.iter().flat_map(|&class| std::iter::repeat_n(class, repeats));
            runs.extend(each.enumerate().map(|(number, class)| Aimed { trial, class, number }));
        }
        runs
    }

    /// Runs one member on the `standing` trials. `base` counts the image steps before, and `later` the passes
    /// that members after it take at most.
    pub(super) fn member(
        &mut self,
        member: &Member,
        standing: &[usize],
        [base, later]: [usize; 2],
        workers: &mut WorkerSource,
        watch: &mut Watch,
    ) -> Result<ControlFlow<()>> {
        let runs = self.aimed(member, standing);
        let all = self.all;
        let trials: Vec<&Trial> = runs.iter().map(|run| self.trial(run.trial)).collect();
        let worth = |i: usize, outcome: &Outcome| {
            [all.success(trials[i], outcome), nearness(member, trials[i].objective, outcome)]
        };
        let all_runs = MemberRuns { member, plan: all.plan, runs: &runs, worth: &worth };
        let Some(found) = self.results(&all_runs, [base, later], workers, watch)? else {
            return Ok(ControlFlow::Break(()));
        };
        self.take(member, &runs, found);
        Ok(ControlFlow::Continue(()))
    }

    /// Results of the runs of a member, in their order; `None` if `watch` ended them. Only the best run of
    /// each trial has its image.
    pub(super) fn results(
        &mut self,
        of: &MemberRuns,
        [base, later]: [usize; 2],
        workers: &mut WorkerSource,
        watch: &mut Watch,
    ) -> Result<Option<Vec<Found>>> {
        let Strong { context, images, effort, .. } = *self.all;
        let MemberRuns { member, plan, runs, worth } = *of;
        if runs.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if let Some(route) = member.needs
            && !workers(route, &mut |_| Ok(()))?
        {
            return Ok(Some(Vec::new()));
        }
        let trials: Vec<Trial> = runs.iter().map(|run| self.trial(run.trial).clone()).collect();
        let jobs: Vec<Vec<usize>> = (0..trials.len()).map(|i| vec![i]).collect();
        let plan = plan_of(member, plan, effort);
        let stream = |i: usize| stream_of(member, runs[i].number);
        let mut results = Results::default();
        let mut ended = ControlFlow::Continue(());
        let before = Passes { left: self.passes.left + later, ..self.passes };
        let mut made = before.made;
        let mut broken = HashSet::new();
        let first =
            |i: usize, bound: &Bound, shape: [usize; 3]| self.start_image(member, runs[i], bound, shape);
        let loss = |i: usize| (member.loss)(context, plan.form, &trials[i], runs[i].class);
        let how = Variation {
            loss: &loss,
            start: &first,
            stream: &stream,
            enough: member.until,
            at_once: member.at_once,
        };
        let task = Task {
            context,
            images,
            trials: &trials,
            jobs: &jobs,
            applied: &[],
            plan: &plan,
            how: Some(&how),
        };
        let mut see = |event: Event| {
            match event {
                Event::Step { done, passes, at } => {
                    made = before.made + passes.made;
                    let passes = Passes { made, left: before.left + passes.left };
                    ended = watch(Event::Step { done: base + done, passes, at });
                }
                Event::Further(_) | Event::Broken(_) => (),
                Event::Done(i, outcome, evidence) => {
                    let (trial, value) = (runs[i].trial, worth(i, outcome));
                    let breaks = value[0] >= 100.0 && !self.states[trial].reached && broken.insert(trial);
                    if breaks && watch(Event::Broken(self.places[trial])).is_break() {
                        ended = ControlFlow::Break(());
                    }
                    results.add([trial, i], value, outcome, evidence);
                }
            }
            ended
        };
        let mut work = |workers: Vec<&mut dyn Differentiable>| start(workers, task, &mut see).map(drop);
        if let (false, Some(other)) = (workers(member.route, &mut work)?, member.or) {
            workers(other, &mut work)?;
        }
        self.passes.made = made;
        if ended.is_break() {
            return Ok(None);
        }
        let mut found = results.found;
        found.sort_by_key(|(i, _, _)| *i);
        Ok(Some(found))
    }

    /// The image at which a run begins; `None` for the clean one. Errors: those of [`other`].
    fn start_image(
        &self,
        member: &Member,
        run: Aimed,
        bound: &Bound,
        shape: [usize; 3],
    ) -> Result<Option<Vec<f32>>> {
        let Strong { context, others, plan, .. } = self.all;
        let (gallery, trial) = (&context.gallery, self.trial(run.trial));
        let stream = 1 + stream_of(member, run.number);
        let draw = &mut Draw::new(plan.seed, trial.objective.code, &gallery.ids[trial.query], stream);
        let best = self.states[run.trial].entry.as_ref();
        Ok(match member.from {
            From::Clean => None,
            From::Best => best.map(|x| moved_within(x, bound)),
            From::Stretched => best.map(|x| stretched(x, bound)),
            From::Random => Some(bound.start(draw)),
            From::Other => Some(other(gallery, others, bound, shape, draw)?),
        })
    }

    /// Takes over what the runs of a member found, in their order.
    fn take(&mut self, member: &Member, runs: &[Aimed], found: Vec<Found>) {
        for (i, outcome, evidence) in found {
            let Aimed { trial: at, class, number } = runs[i];
            let trial = self.trial(at);
            let success = self.success(trial, &outcome);
            let term = trial.objective.sought();
            let value = (term.read)(&outcome, Form::Corrected).map_or(f64::NAN, |(_, after)| after);
            let state = &mut self.states[at];
            if number == 0 {
                let name = member.name.to_string();
                state.members.push(MemberResult {
                    member: name,
                    steps: 0,
                    value,
                    reached: false,
                    counts: false,
                    idle: true,
                });
                if matches!(member.aims, Aims::Nearest(_)) {
                    state.classes.clear();
                }
            }
            let place = state.members.len() - 1;
            let result = &mut state.members[place];
            result.steps += outcome.steps;
            if term.success(value, 2.0) > term.success(result.value, 2.0) {
                result.value = value;
            }
            result.reached |= success >= 100.0;
            result.idle &= outcome.linf == 0.0;
            state.reached |= success >= 100.0;
            if let (Aims::Nearest(_), Some(class)) = (member.aims, class) {
                state.classes.push((outcome.loss_last, class));
                state.classes.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
            let near = nearness(member, trial.objective, &outcome);
            let key = Key(success, near, std::cmp::Reverse(place));
            if state.best.as_ref().is_none_or(|(best, _, _)| key > *best) {
                state.best = Some((key, outcome, evidence));
                let last = state.members.len() - 1;
                state.members.iter_mut().enumerate().for_each(|(i, m)| m.counts = i == last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BALLS;
    use crate::search::{RANDOM, RANDOM_8_BIT};
    use audit_report::record::Metric;
    use ndarray::array;

    /// The published ε of large images. The stripes of a search by whole levels lay outside of it, which
    /// ended the audit if they were the best image.
    #[test]
    fn searches_by_whole_levels_reach_the_eighth_of_the_published_eps() {
        let plan = Plan { eps: 0.03137, ..crate::plan::tests::plan() };
        let all: Vec<&Member> = r1::RECALL.iter().flat_map(|tier| tier.iter()).collect();
        for (search, eps) in [(&RANDOM_8_BIT, 8.0 / 255.0), (&RANDOM, 0.03137)] {
            let member = all.iter().find(|member| member.search == search).unwrap();
            assert_eq!(plan_of(member, &plan, 1).eps, eps);
        }
        let in_l2 = Plan { ball: &BALLS[1], ..plan };
        let stripes = all.iter().find(|member| member.search == &RANDOM_8_BIT).unwrap();
        assert_eq!(plan_of(stripes, &in_l2, 1).eps, 0.03137);
    }

    /// By hand: images are black, grey and white, and pixels may change by a quarter.
    #[test]
    fn other_images_come_as_near_as_the_ball_lets_them() {
        let ids = ["black", "grey", "white"].map(String::from).to_vec();
        let gallery = Gallery::new(Metric::Euclidean, array![[0.0], [1.0], [2.0]], vec![0; 3], ids).unwrap();
        let images = |item: usize| Ok(vec![item as f32 / 2.0; 2].into());
        let shape = [1, 1, 2];
        let others = Others { images: &images, shape };
        let bound = Bound { ball: &BALLS[0], eps: 0.25, centre: &[0.5, 0.9], pixels: true, free: None };
        let start =
            |seed| other(&gallery, &others, &bound, shape, &mut Draw::new(seed, "CA+", "grey", 1)).unwrap();
        let found: Vec<Vec<f32>> = (0..30).map(start).collect();
        for expected in [[0.25, 0.65], [0.5, 0.65], [0.75, 1.0]] {
            assert!(
                found.iter().any(|x| x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-6)),
                "{expected:?}"
            );
        }
        assert_eq!(start(3), found[3]);
        let images = |_: usize| Ok(vec![2.0; 2].into());
        let wrong = Others { images: &images, shape };
        let refused =
            other(&gallery, &wrong, &bound, shape, &mut Draw::new(0, "CA+", "grey", 1)).unwrap_err();
        assert!(refused.message.contains("holds the value 2"), "{refused}");
    }
}

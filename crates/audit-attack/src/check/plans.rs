//! The attacks of the checks in [`stronger_attacks`](super::stronger_attacks), from which their cost is known
//! before they run.

use crate::{Plan, Room, Trial};
use audit_report::judge::published::PUBLISHED_EPS;
use std::collections::BTreeMap;

/// Random images per trial.
pub(super) const NOISE_IMAGES: usize = 100;
/// Images that the attack without gradients evaluates, per trial.
pub(super) const RANDOM_IMAGES: usize = 300;
/// Random starts of the check `restarts`.
const RANDOM_STARTS: usize = 5;
/// Multiples of ε on the curve.
const CURVE: [f32; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// An attack on all trials that a check makes.
#[derive(Clone, Debug, PartialEq)]
pub enum Attack {
    /// By a search.
    Search(Plan),
    /// `NOISE_IMAGES` random images for each trial.
    Noise,
    /// The audit's own attack, on the other model.
    Transfer,
}

/// The attacks of a check besides the audit's own, from the audit's plan and the largest distance between two
/// images.
pub type Attacks = fn(&Plan, f32) -> Vec<Attack>;

/// Forward passes of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The usual number.
    pub usual: usize,
    /// Upper bound.
    pub most: usize,
}

impl Amount {
    /// Whether the attack may end early, as the strong search does.
    pub(super) fn is_open(self) -> bool {
        self.usual < self.most
    }

    /// What is expected once strong searches have `made` so many passes in place of the `usual` number: how
    /// early they succeed depends on the model.
    pub fn expected(self, [made, usual]: [usize; 2]) -> Amount {
        match usual {
            1.. if self.is_open() => {
                Amount { usual: (self.usual * made).div_ceil(usual).min(self.most), ..self }
            }
            _ => self,
        }
    }
}

impl std::ops::Add for Amount {
    type Output = Amount;
    fn add(self, other: Amount) -> Amount {
        Amount { usual: self.usual + other.usual, most: self.most + other.most }
    }
}

impl Attack {
    /// Its cost on `trials`, with the audit's `plan`.
    pub fn amount(&self, plan: &Plan, trials: &[Trial], room: Room) -> Amount {
        let plan = match self {
            Attack::Search(plan) => plan,
            Attack::Transfer => plan,
            Attack::Noise => {
                let passes = NOISE_IMAGES * trials.len().div_ceil((room.workers * room.batch).max(1));
                return Amount { usual: passes, most: passes };
            }
        };
        let mut queries: BTreeMap<&str, (&Trial, usize)> = BTreeMap::new();
        for trial in trials {
            queries.entry(trial.objective.code).or_insert((trial, 0)).1 += 1;
        }
        // Without an effort a check runs one search, also for objectives that audits attack by the strong
        // search alone.
        let each = queries.into_values().map(|(trial, count)| match plan.effort {
            Some(_) => Amount {
                usual: plan.usual_passes(trial.objective, count, room),
                most: plan.most_passes(trial.objective, count, room),
            },
            None => {
                let most = plan.passes_of_one_search(trial.objective, count, room);
                Amount { usual: most, most }
            }
        });
        each.fold(Amount::default(), |sum, each| sum + each)
    }
}

/// Cost of the attacks of some checks on `trials`, the audit's own included. `other`: whether there is
/// another model, which is assumed to be as fast. `strong`: [what strong searches take](Amount::expected).
pub fn amount(
    plan: &Plan,
    widest: f32,
    checks: &[&super::Check],
    trials: &[Trial],
    room: Room,
    other: bool,
    strong: [usize; 2],
) -> Amount {
    let all = distinct(plan, widest, checks).into_iter().filter(|a| other || *a != Attack::Transfer);
    let each = all.map(|attack| attack.amount(plan, trials, room).expected(strong));
    each.fold(Amount::default(), |sum, each| sum + each)
}

/// The attacks of some checks, the audit's own first, each once: checks share their runs.
pub(super) fn distinct(plan: &Plan, widest: f32, checks: &[&super::Check]) -> Vec<Attack> {
    let mut all = vec![Attack::Search(plan.clone())];
    for attack in checks.iter().flat_map(|check| check.further(plan, widest)) {
        if !all.contains(&attack) {
            all.push(attack);
        }
    }
    all
}

/// The audit's plan with one search instead of the strong search.
pub(super) fn alone(plan: &Plan) -> Plan {
    Plan { effort: None, ..plan.clone() }
}

/// The plan of an attack that may turn an image into any other; `widest` is the largest distance between two.
fn without_bounds(plan: &Plan, widest: f32) -> Plan {
    let steps = 4 * plan.steps;
    let alpha = plan.alpha.max(plan.search.usual_alpha(widest, steps));
    Plan { eps: widest, mask: None, steps, alpha, ..plan.clone() }
}

fn searches(plans: impl IntoIterator<Item = Plan>) -> Vec<Attack> {
    plans.into_iter().map(Attack::Search).collect()
}

pub(super) fn more_steps(plan: &Plan, _: f32) -> Vec<Attack> {
    searches([match plan.effort {
        None => Plan { steps: 2 * plan.steps, ..plan.clone() },
        Some(effort) => Plan { effort: Some(10 * effort), ..plan.clone() },
    }])
}

/// None if the suite itself has as many random starts.
pub(super) fn restarts(plan: &Plan, _: f32) -> Vec<Attack> {
    let enough = plan.effort.is_none() && plan.restarts >= RANDOM_STARTS;
    searches((!enough).then(|| Plan { restarts: plan.restarts.max(RANDOM_STARTS), ..alone(plan) }))
}

/// Step sizes are in grey levels if ε bounds pixels. For L2 lengths, for the large changes of a patch, and if
/// ε itself is only a few grey levels, they are shares of ε. The last of the plans has adaptive steps; a
/// search of populations has none.
pub(super) fn step_size(plan: &Plan, _: f32) -> Vec<Attack> {
    let by_eps = shares_of_eps(plan);
    let plan = alone(plan);
    let population = plan.search.population.is_some();
    let search = if population { plan.search } else { &crate::PGD };
    let moves = plan.search.moves(plan.steps);
    let fixed = STEP_SIZES.map(|n| {
        let alpha = if by_eps { n * plan.eps / moves as f32 } else { n / 255.0 };
        Plan { alpha, search, ..plan.clone() }
    });
    let adaptive = (!population).then(|| Plan { search: &crate::APGD, ..plan.clone() });
    searches(fixed.into_iter().chain(adaptive))
}

/// Step sizes of [`step_size`], in grey levels or in shares of ε.
pub(super) const STEP_SIZES: [f32; 3] = [1.0, 2.0, 3.0];

/// Whether [`STEP_SIZES`] are shares of ε.
pub(super) fn shares_of_eps(plan: &Plan) -> bool {
    !plan.ball.is_box || plan.mask.is_some() || plan.eps < PUBLISHED_EPS
}

/// Of a population, one move.
pub(super) fn one_step(plan: &Plan, _: f32) -> Vec<Attack> {
    let (steps, alpha) = plan.search.population.map_or((1, plan.alpha), |images| (images, plan.eps));
    searches([Plan { steps, alpha, restarts: 0, ..alone(plan) }])
}

/// Half of ε, and twice ε unless nothing lies beyond ε.
pub(super) fn budget(plan: &Plan, widest: f32) -> Vec<Attack> {
    let factors: &[f32] = if plan.eps >= widest { &[0.5] } else { &[0.5, 2.0] };
    searches(factors.iter().map(|factor| plan.within((factor * plan.eps).min(widest))))
}

pub(super) fn unbounded(plan: &Plan, widest: f32) -> Vec<Attack> {
    searches([without_bounds(plan, widest)])
}

pub(super) fn curve(plan: &Plan, widest: f32) -> Vec<Attack> {
    let narrower = CURVE.into_iter().map(|factor| factor * plan.eps).filter(|eps| *eps < widest);
    searches(narrower.map(|eps| plan.within(eps)).chain([without_bounds(plan, widest)]))
}

pub(super) fn noise(_: &Plan, _: f32) -> Vec<Attack> {
    vec![Attack::Noise]
}

/// None if the suite's own attack is this random search.
pub(super) fn black_box(plan: &Plan, _: f32) -> Vec<Attack> {
    let own = plan.effort.is_none() && *plan.search == crate::RANDOM;
    let square = Plan { search: &crate::RANDOM, steps: RANDOM_IMAGES - 1, restarts: 0, ..alone(plan) };
    searches((!own).then_some(square))
}

pub(super) fn transfer(_: &Plan, _: f32) -> Vec<Attack> {
    vec![Attack::Transfer]
}

/// No further attack: the check rounds the images of the audit's own.
pub(super) fn none(_: &Plan, _: f32) -> Vec<Attack> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CHECKS;
    use crate::objective::OBJECTIVES;
    use crate::plan::tests::plan;

    /// By hand, in batches of 8: 16 trials are two rounds. A step along a gradient counts as 3 passes, and
    /// checks share their runs: the audit's 32 steps, 64 for `more-steps`, 2 × 32 for `budget`, which `curve`
    /// reuses, with 32 more each at ε/4 and 4ε, and 128 without bounds.
    #[test]
    fn checks_share_their_runs() {
        let trial = |query| Trial { objective: &OBJECTIVES[0], query, targets: Vec::new() };
        let trials: Vec<Trial> = (0..16).map(trial).collect();
        let room = Room { workers: 1, batch: 8 };
        let of = |names: &[&str]| {
            let checks: Vec<_> = CHECKS.iter().filter(|c| names.contains(&c.reason.id)).collect();
            amount(&plan(), 1.0, &checks, &trials, room, false, [0; 2])
        };
        let steps = |n: usize| Amount { usual: 2 * 3 * n, most: 2 * 3 * n };
        assert_eq!(of(&[]), steps(32));
        assert_eq!(of(&["more-steps"]), steps(32 + 64));
        assert_eq!(of(&["budget"]), steps(32 + 64));
        assert_eq!(of(&["budget", "curve"]), steps(32 + 64 + 64 + 128));
        assert_eq!(of(&["transfer", "eight-bit"]), steps(32));
        // 100 images without a gradient.
        assert_eq!(of(&["noise"]), Amount { usual: 192 + 200, most: 192 + 200 });
    }

    /// By hand: 12,800 images make 128 moves. An image that may go anywhere, over a distance of 1, takes
    /// steps of 6/128.
    #[test]
    fn a_population_is_examined_by_its_moves() {
        let nes = Plan { search: &crate::search::POPULATION_NES, steps: 3200, ..plan() };
        let of = |attacks: Vec<Attack>| {
            let each = attacks.into_iter().map(|attack| match attack {
                Attack::Search(plan) => (plan.search.name, plan.steps, plan.alpha),
                other => panic!("{other:?}"),
            });
            each.collect::<Vec<_>>()
        };
        assert_eq!(of(unbounded(&nes, 1.0)), [("population", 12_800, 6.0 / 128.0)]);
        assert_eq!(of(one_step(&nes, 1.0)), [("population", 100, nes.eps)]);
        let lengths = Plan { eps: 0.01, ..nes.clone() };
        assert_eq!(of(step_size(&lengths, 1.0)), STEP_SIZES.map(|n| ("population", 3200, n * 0.01 / 32.0)));
        assert_eq!(of(step_size(&plan(), 1.0)).len(), STEP_SIZES.len() + 1);
    }

    /// A single step of ε is one search, also beside the strong search for R1: 2 rounds of 3 passes.
    #[test]
    fn one_search_does_not_cost_what_the_strong_search_does() {
        let trial = |query| Trial { objective: &crate::objective::r1::R1, query, targets: Vec::new() };
        let trials: Vec<Trial> = (0..16).map(trial).collect();
        let strong = Plan { effort: Some(1), ..plan() };
        let room = Room { workers: 1, batch: 8 };
        let once = one_step(&strong, 1.0);
        assert_eq!(once[0].amount(&strong, &trials, room), Amount { usual: 6, most: 6 });
        let own = Attack::Search(strong.clone()).amount(&strong, &trials, room);
        assert_eq!(own.most, strong.most_passes(trials[0].objective, 16, room));
    }

    /// By hand: 16 trials of the strong search take a fifth of what they usually take, and a single search
    /// takes what it did.
    #[test]
    fn strong_searches_are_planned_by_the_model() {
        let amount = Amount { usual: 1000, most: 5000 };
        assert_eq!(amount.expected([20, 100]), Amount { usual: 200, most: 5000 });
        assert_eq!(amount.expected([900, 100]), Amount { usual: 5000, most: 5000 });
        assert_eq!(amount.expected([0; 2]), amount);
        let single = Amount { usual: 1000, most: 1000 };
        assert_eq!(single.expected([20, 100]), single);
    }
}

//! What an audit will cost: seconds of each phase, estimated from a few timed runs of the model.

mod samples;
mod speed;
#[cfg(test)]
mod tests;
mod words;

use crate::check::load;
use crate::feature::corruption;
use crate::progress::span;
use crate::record::{Space, size};
use crate::request::StrongSample;
use crate::suite::Suite;
use crate::threat::objective::r1::R1;
use crate::threat::{Objective, Plan};
pub use samples::{clusters, most_ranked, ranking, strong_most};
use serde::Serialize;
pub use speed::Speed;
pub use words::{at_most, foreseen, range, revised, seconds};

/// A phase to come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ahead {
    /// Its name, as progress has it.
    pub phase: &'static str,
    /// Seconds that it will take, about.
    pub seconds: f64,
    /// What shortens it; empty if nothing does.
    pub shorter: String,
}

/// What is ahead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// The phases in their order.
    pub phases: Vec<Ahead>,
    /// Queries that will be attacked.
    pub queries: usize,
    /// Seconds of the attacks on one query.
    pub query_s: f64,
    /// Seconds of the attacks on one query if the strong search succeeds at once. Its work depends on the
    /// model, and nobody knows it beforehand.
    pub least_s: f64,
    /// Seconds of the attacks on all queries at most: no query is lost before the last step of the strong
    /// search.
    pub most_s: f64,
    /// The change that is enough for the model if the estimate holds, as for most without a defence. Others
    /// take up to `most_s`, and [`revised`] tells how long once it is known.
    pub small_change: Option<String>,
}

/// The amount of an audit.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Images to embed.
    pub images: usize,
    /// Queries among them.
    pub queries: usize,
    /// Parts that their attacks are divided into, of which this audit makes one; 1 for a whole run.
    pub parts: usize,
    /// Whether fewer queries may be asked for: not for a part, nor for a run that continues.
    pub may_shorten: bool,
    /// Whether the result of the check at load is known.
    pub checked: bool,
    /// Images that the check at load looks at.
    pub first: usize,
    /// Images and preprocessings that are tried on data of one's own; 0 without.
    pub tried: usize,
    /// Multiplications of ranking and clustering.
    pub ranking: f64,
}

/// Seconds from which people are told what is ahead.
pub const WAIT: f64 = 10.0;
/// Seconds of attacks from which fewer queries are proposed, and what these are to take.
pub const PATIENCE: f64 = 900.0;

/// How many times as long the file as it is takes for an image as the optimised graph, whose batch fills all
/// cores.
const UNOPTIMISED: f64 = 1.5;

/// Multiplications a second of ranking and clustering, of which a core makes about so many.
const RANKING: f64 = 4e9;

const ATTACKS: &str = "attacks";

impl Outlook {
    /// The phases of an audit of a suite, and of the strong search beside it on the `strong` sample.
    pub fn of(
        speed: Speed,
        amount: Amount,
        estimated: bool,
        suite: &Suite,
        plan: &Plan,
        strong: Option<StrongSample>,
    ) -> Outlook {
        let cost = SuiteCost { speed, suite, plan, parts: amount.parts.max(1) };
        let whole = suite.max_queries.unwrap_or(amount.queries).min(amount.queries);
        let share = cost.share(whole, strong);
        let [queries, _] = share;
        let attacks = cost.usual_s(share);
        let least = cost.usual_s(cost.share(whole, Some(StrongSample::Off)));
        let most_s = cost.most_s(share).max(attacks);
        let [query_s, least_s] = [attacks, least].map(|all| all / queries.max(1) as f64);
        let few = (PATIENCE / query_s.max(1e-9)) as usize / 10 * 10;
        let shorter = match few {
            10.. if attacks > PATIENCE && few < queries && amount.may_shorten => {
                format!("--max-queries {few}: {}", span(cost.usual_s(cost.share(few, strong))))
            }
            _ => String::new(),
        };
        let ahead = |phase: &'static str, seconds: f64| Ahead { phase, seconds, shorter: String::new() };
        let embedding = |phase: &'static str, images: usize| ahead(phase, images as f64 * speed.embed_s);
        let corrupted = corruption::images(&suite.corruptions, queries);
        let phases = [
            Some(check_at_load(speed, &amount, estimated)),
            (amount.tried > 0).then(|| embedding("preprocessing", amount.tried)),
            Some(embedding("gallery", amount.images)),
            Some(ahead("retrieval", amount.ranking / RANKING)),
            Some(Ahead { phase: ATTACKS, seconds: attacks, shorter }),
            (corrupted > 0).then(|| embedding("corruptions", corrupted)),
        ];
        let phases = phases.into_iter().flatten().collect();
        let small_change = cost.undefended().then(|| size(plan.ball.name, f64::from(plan.small_change()), 2));
        Outlook { phases, queries, query_s, least_s, most_s, small_change }
    }

    /// Seconds of all phases.
    pub fn total(&self) -> f64 {
        self.phases.iter().map(|p| p.seconds).sum()
    }

    /// Seconds of the attacks, if the strong search beside a suite succeeds at once, and as long as they
    /// usually take.
    pub fn attacks(&self) -> [f64; 2] {
        [self.least_s, self.query_s].map(|s| s * self.queries as f64)
    }
}

/// The check at load. The file itself runs unoptimised.
fn check_at_load(speed: Speed, amount: &Amount, estimated: bool) -> Ahead {
    let passes = load::passes(estimated, amount.first) * amount.first;
    let (seconds, shorter) = match amount.checked {
        true => (0.0, "cached"),
        false => (UNOPTIMISED * passes as f64 * speed.embed_s, "once: the result is cached"),
    };
    Ahead { phase: "check", seconds, shorter: shorter.into() }
}

/// The attacks of a suite on a model, in one part of a run.
struct SuiteCost<'a> {
    speed: Speed,
    suite: &'a Suite,
    plan: &'a Plan,
    /// Parts of the run, at least 1.
    parts: usize,
}

impl SuiteCost<'_> {
    /// Queries of a part, and its share of the `strong` sample, which is drawn from the `whole` run's.
    fn share(&self, whole: usize, strong: Option<StrongSample>) -> [usize; 2] {
        let beside =
            strong_most(strong, self.steps(whole), self.plan).filter(|_| !self.suite.has_robust_r1());
        [whole, beside.map_or(0, |most| most.min(whole))].map(|all| all.div_ceil(self.parts))
    }

    /// Whether the time depends on the model: most without a defence take the least.
    fn undefended(&self) -> bool {
        self.suite.attacks.iter().any(|entry| self.plan.ladder_of(entry.objective).is_some())
    }

    /// Image steps of the suite's own attacks.
    fn steps(&self, queries: usize) -> usize {
        let each = self.suite.attacks.iter().flat_map(|e| std::iter::repeat_n(e.objective, queries));
        self.plan.work_of(each)
    }

    /// Seconds that the attacks on some queries and a sample usually take.
    fn usual_s(&self, [queries, sample]: [usize; 2]) -> f64 {
        let of_all =
            |work: &dyn Fn(&Objective) -> usize| queries * self.suite.objectives().map(work).sum::<usize>();
        let steps = || self.steps(queries) + sample * self.plan.work(&R1);
        self.speed.of_steps(match (self.undefended(), self.plan.space) {
            (true, _) => [
                of_all(&|objective| self.plan.least_work(objective)),
                of_all(&|objective| self.plan.least_work_on_photographs(objective)),
            ],
            (false, Space::Input) => [steps(), 0],
            (false, Space::File) => [steps(); 2],
        })
    }

    /// Seconds that they take at most.
    fn most_s(&self, [queries, sample]: [usize; 2]) -> f64 {
        let of_all = |count: &dyn Fn(&Objective, usize) -> usize| {
            let own: usize = self.suite.attacks.iter().map(|entry| count(entry.objective, queries)).sum();
            own + if sample > 0 { count(&R1, sample) } else { 0 }
        };
        let passes = of_all(&|objective, queries| self.plan.most_passes(objective, queries, self.speed.room));
        let resizes = of_all(&|objective, queries| self.plan.most_resizes(objective, queries));
        self.speed.of_work([passes, resizes])
    }
}

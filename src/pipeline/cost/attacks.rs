//! What the attacks of a suite cost.

use super::{Speed, strong_most};
use crate::record::Space;
use crate::request::StrongSample;
use crate::suite::Suite;
use crate::threat::objective::r1::R1;
use crate::threat::{Objective, Plan};

/// The attacks of a suite on a model, in one part of a run.
pub(super) struct SuiteCost<'a> {
    pub speed: Speed,
    pub suite: &'a Suite,
    pub plan: &'a Plan,
    /// Parts of the run, at least 1.
    pub parts: usize,
}

impl SuiteCost<'_> {
    /// Queries of a part, and its share of the `strong` sample, which is drawn from the `whole` run's.
    pub fn share(&self, whole: usize, strong: Option<StrongSample>) -> [usize; 2] {
        let beside =
            strong_most(strong, self.steps(whole), self.plan).filter(|_| !self.suite.has_robust_r1());
        [whole, beside.map_or(0, |most| most.min(whole))].map(|all| all.div_ceil(self.parts))
    }

    /// Whether the time depends on the model: most without a defence take the least.
    pub fn undefended(&self) -> bool {
        self.suite.attacks.iter().any(|entry| self.plan.ladder_of(entry.objective).is_some())
    }

    /// Image steps of the suite's own attacks.
    fn steps(&self, queries: usize) -> usize {
        let each = self.suite.attacks.iter().flat_map(|e| std::iter::repeat_n(e.objective, queries));
        self.plan.work_of(each)
    }

    /// Seconds that the attacks on some queries and a sample usually take.
    pub fn usual_s(&self, [queries, sample]: [usize; 2]) -> f64 {
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
    pub fn most_s(&self, [queries, sample]: [usize; 2]) -> f64 {
        let of_all = |count: &dyn Fn(&Objective, usize) -> usize| {
            let own: usize = self.suite.attacks.iter().map(|entry| count(entry.objective, queries)).sum();
            own + if sample > 0 { count(&R1, sample) } else { 0 }
        };
        let passes = of_all(&|objective, queries| self.plan.most_passes(objective, queries, self.speed.room));
        let resizes = of_all(&|objective, queries| self.plan.most_resizes(objective, queries));
        self.speed.of_work([passes, resizes])
    }
}

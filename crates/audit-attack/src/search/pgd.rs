//! Projected gradient descent (Madry et al., ICLR 2018), as the published evaluations run it. All steps have
//! the same size, and the last image is the result. One step of size ε is FGSM.

use super::{Bound, Scaled, Search, SearchState, usual};
use crate::Draw;
use audit_report::facts::schedules;

/// x ← P(x − α·s(∇L)), T times.
pub const PGD: Search = Search {
    plain_steps: true,
    ..usual(&schedules::PGD, |setting, _| Box::new(Pgd { alpha: setting.alpha, first: None }))
};

/// PGD from a random image of the ball (Madry et al.; Panum et al.).
pub const RANDOM_START: Search = Search {
    facts: &schedules::RANDOM_START,
    begin: |setting, mut draw: Draw| {
        // If an earlier search has found an image, the run begins there.
        let first = (!setting.warm).then(|| setting.bound.start(&mut draw));
        Box::new(Pgd { alpha: setting.alpha, first })
    },
    ..PGD
};

/// FGSM (Goodfellow et al., ICLR 2015): one step of size ε, whatever number the suite states.
pub const FGSM: Search = usual(&schedules::FGSM, |_, _| Box::new(Fgsm { done: false }));

struct Pgd {
    alpha: f32,
    /// The first image, if it is not the run's.
    first: Option<Vec<f32>>,
}

struct Fgsm {
    done: bool,
}

impl SearchState for Fgsm {
    fn step(&mut self, x: &mut [f32], bound: &Bound, _: f64, gradient: Scaled) {
        bound.descend(x, gradient.values, bound.eps);
        self.done = true;
    }

    fn done(&self) -> bool {
        self.done
    }
}

impl SearchState for Pgd {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, _: f64, gradient: Scaled) {
        bound.descend(x, gradient.values, self.alpha);
    }
}

//! Projected gradient descent (Madry et al., ICLR 2018), as the published evaluations run it. All steps have the same
//! size, and the last image is the result. One step of size ε is FGSM.

use super::{Bound, Scaled, Search, Walk};
use crate::threat::Draw;

/// x ← P(x − α·s(∇L)), T times.
pub const PGD: Search = Search {
    name: "fixed",
    words: |steps, alpha| format!("α {alpha:.5}, {steps} steps"),
    needs_gradient: true,
    plain_steps: true,
    takes_alpha: true,
    smallest: false,
    begin: |setting, _| Box::new(Pgd { alpha: setting.alpha, first: None }),
};

/// PGD from a random image of the ball (Madry et al.; Panum et al.).
pub const RANDOM_START: Search = Search {
    name: "fixed-random",
    words: |steps, alpha| format!("α {alpha:.5}, {steps} steps from a random start"),
    begin: |setting, mut draw: Draw| {
        // Where an earlier search has found an image, that is the first one.
        let first = (!setting.warm).then(|| setting.bound.start(&mut draw));
        Box::new(Pgd { alpha: setting.alpha, first })
    },
    ..PGD
};

/// FGSM (Goodfellow et al., ICLR 2015): one step of size ε, however many the suite states.
pub const FGSM: Search = Search {
    name: "fgsm",
    words: |_, _| "one step of size ε (FGSM)".into(),
    plain_steps: false,
    takes_alpha: false,
    begin: |_, _| Box::new(Fgsm { done: false }),
    ..PGD
};

struct Pgd {
    alpha: f32,
    /// The first image, where it is not the run's.
    first: Option<Vec<f32>>,
}

struct Fgsm {
    done: bool,
}

impl Walk for Fgsm {
    fn step(&mut self, x: &mut [f32], bound: &Bound, _: f64, gradient: Scaled) {
        bound.descend(x, gradient.values, bound.eps);
        self.done = true;
    }

    fn done(&self) -> bool {
        self.done
    }
}

impl Walk for Pgd {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, _: f64, gradient: Scaled) {
        bound.descend(x, gradient.values, self.alpha);
    }
}

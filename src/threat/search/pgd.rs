//! Projected gradient descent (Madry et al., ICLR 2018), as the published evaluations run it. All steps have the same
//! size, and the last image is the result. One step of size ε is FGSM.

use super::{Bound, Search, Walk};

/// x ← P(x − α·s(∇L)), T times.
pub const PGD: Search = Search {
    name: "fixed",
    words: |steps, alpha| format!("α {alpha:.5}, {steps} steps"),
    needs_gradient: true,
    plain_steps: true,
    takes_alpha: true,
    begin: |setting, _| Box::new(Pgd { alpha: setting.alpha }),
};

struct Pgd {
    alpha: f32,
}

impl Walk for Pgd {
    fn step(&mut self, x: &mut [f32], bound: &Bound, _: f64, gradient: &[f32]) {
        bound.descend(x, gradient, self.alpha);
    }
}

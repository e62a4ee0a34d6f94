//! Farther than the positive, by less than the margin η (Schroff et al. 2015).

use super::Sampler;

/// See the module.
pub const SAMPLER: Sampler = Sampler {
    name: "semihard",
    about: "farther than the positive, by less than η",
    weight: |batch, anchor, positive, candidate| {
        let gap = batch.distance(anchor, candidate) - batch.distance(anchor, positive);
        f64::from(u8::from(gap > 0.0 && gap < batch.eta))
    },
};

/// η after a share of the training: η0·(1 − (share/2)²).
pub fn scheduled(eta: f64, share: f64) -> f64 {
    eta * (1.0 - (share / 2.0).powi(2))
}

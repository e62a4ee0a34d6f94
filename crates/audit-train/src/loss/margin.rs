//! Margin loss (Wu et al. 2017): [d(a,p) − β + α]+ and [β − d(a,n) + α]+, over the number of those above 0. β stays
//! fixed.

use super::{Loss, LossInput, distance};
use tch::Kind;

const BETA: f64 = 1.2;
const ALPHA: f64 = 0.2;

pub const LOSS: Loss = Loss {
    name: "margin",
    about: "[d(a,p) − 1.2 + 0.2]+ + [1.2 − d(a,n) + 0.2]+ over the number of pairs above 0",
    of: LossInput::Triplets(|a, p, n| {
        let near = (distance(a, p) - BETA + ALPHA).relu();
        let far = (BETA - distance(a, n) + ALPHA).relu();
        let active = near.gt(0.0).sum(Kind::Float) + far.gt(0.0).sum(Kind::Float);
        (near.sum(Kind::Float) + far.sum(Kind::Float)) / active.clamp_min(1.0)
    }),
};

//! mean d(a,p) + mean [1 − d(a,n)]+ (Hadsell et al. 2006, distances not squared).

use super::{Loss, LossInput, distance};
use tch::Kind;

const MARGIN: f64 = 1.0;

pub const LOSS: Loss = Loss {
    name: "contrastive",
    about: "mean d(a,p) + mean [1 − d(a,n)]+",
    of: LossInput::Triplets(|a, p, n| {
        distance(a, p).mean(Kind::Float) + (MARGIN - distance(a, n)).relu().mean(Kind::Float)
    }),
};

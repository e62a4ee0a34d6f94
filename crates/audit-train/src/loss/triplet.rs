//! mean [d(a,p) − d(a,n) + β]+ (Schroff et al. 2015).

use super::{Loss, LossInput, hardness};
use tch::{Kind, Tensor};

/// β.
pub const MARGIN: f64 = 0.2;

pub const LOSS: Loss =
    Loss { name: "triplet", about: "mean [d(a,p) − d(a,n) + 0.2]+", of: LossInput::Triplets(loss) };

/// The loss of embeddings of anchors, positives and negatives.
pub fn loss(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    (hardness(a, p, n) + MARGIN).relu().mean(Kind::Float)
}

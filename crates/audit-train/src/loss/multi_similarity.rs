//! Multi-similarity loss (Wang et al. 2019) with its pair mining: α = 2, β = 40, base 0.5, mining margin 0.1.

use super::{Loss, LossInput, others};
use tch::{Kind, Tensor};

const ALPHA: f64 = 2.0;
const BETA: f64 = 40.0;
const BASE: f64 = 0.5;
const EPSILON: f64 = 0.1;

pub const LOSS: Loss = Loss {
    name: "multi-similarity",
    about: "soft sums over all pairs that are hard enough (2, 40, 0.1)",
    of: LossInput::Batch(loss),
};

fn loss(e: &Tensor, same: &Tensor) -> Tensor {
    let similarity = e.matmul(&e.tr());
    let (positive, negative) = (others(same), same.logical_not());
    // A positive counts if some negative comes within EPSILON of it, a negative if some positive does.
    let least =
        similarity.detach().masked_fill(&positive.logical_not(), f64::INFINITY).amin([1i64].as_slice(), true);
    let most = similarity
        .detach()
        .masked_fill(&same.shallow_clone(), f64::NEG_INFINITY)
        .amax([1i64].as_slice(), true);
    let positive = positive.logical_and(&(similarity.detach() - EPSILON).lt_tensor(&most));
    let negative = negative.logical_and(&(similarity.detach() + EPSILON).gt_tensor(&least));
    let soft = |exponent: Tensor, mask: Tensor| {
        // log(1 + Σ e^x): the 1 as a column of zeros.
        let zero = exponent.zeros_like().narrow(1, 0, 1);
        let masked = exponent.masked_fill(&mask.logical_not(), f64::NEG_INFINITY);
        Tensor::cat(&[masked, zero], 1).logsumexp([1i64].as_slice(), false)
    };
    let pull = soft((BASE - &similarity) * ALPHA, positive) / ALPHA;
    let push = soft((&similarity - BASE) * BETA, negative) / BETA;
    (pull + push).mean(Kind::Float)
}

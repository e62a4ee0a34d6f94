//! InfoNCE (van den Oord et al. 2018) over all pairs of a class: each positive against all negatives of the anchor, by
//! cosine over a temperature of 0.07.

use super::{Loss, LossInput, others};
use tch::{Kind, Tensor};

const TEMPERATURE: f64 = 0.07;

pub const LOSS: Loss = Loss {
    name: "info-nce",
    about: "−log of a positive's share among itself and all negatives, temperature 0.07",
    of: LossInput::Batch(loss),
};

fn loss(e: &Tensor, same: &Tensor) -> Tensor {
    let logits = e.matmul(&e.tr()) / TEMPERATURE;
    let negatives = logits.masked_fill(same, f64::NEG_INFINITY).logsumexp([1i64].as_slice(), true);
    // log(e^s + Σ e^negatives) − s for every pair.
    let each = logits.logaddexp(&negatives) - &logits;
    each.masked_select(&others(same)).mean(Kind::Float)
}

//! Collapse-aware triplet decoupling (Tian et al. 2024), what CAP and ANP share: collapseness, the readings, the top-rank
//! pair.

use super::{AttackDefaults, Step, Update, number, update};
use crate::loss::{MARGIN, distance, hardness};
use crate::recipe::Reading;
use crate::sampler::Triplets;
use audit::Result;
use tch::{Kind, Tensor};

/// The budget of all three.
pub const ATTACK: AttackDefaults =
    AttackDefaults { eps: 8.0 / 255.0, alpha: 1.0 / 255.0, steps: 16, fixed: false, progressive: true };

/// Below this the released code ends an attack.
const DONE: f64 = 1e-5;

/// Which of the two perturbations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Candidates: positives and negatives.
    Candidates,
    /// Anchors.
    Anchors,
}

/// C = d_w(A,P) − d_w(A,N), d_w = Σ w·d / Σ w with w = exp(rate·d): a negative rate lets near samples count. Scalar.
/// `detached` weights pass no gradient.
pub fn collapseness([a, p, n]: [&Tensor; 3], rate: f64, detached: bool) -> Tensor {
    let mean = |d: Tensor| {
        let of = if detached { d.detach() } else { d.shallow_clone() };
        let weights = (of * rate).softmax(0, Kind::Float);
        (weights * d).sum(Kind::Float)
    };
    mean(distance(a, p)) - mean(distance(a, n))
}

/// Indices of the half of `distances` [T] that is smallest.
fn near(distances: &Tensor) -> Tensor {
    let half = (distances.size()[0] / 2).max(1);
    distances.detach().topk(half, 0, false, true).1
}

/// mean over N_near of d(A,N) − d(A,A0), A0 the clean anchors: per triplet, [T/2].
fn top_rank(a: &Tensor, n: &Tensor, origin: &Tensor) -> Tensor {
    let to_negative = distance(a, n);
    let rows = near(&to_negative);
    (to_negative - distance(a, origin)).index_select(0, &rows)
}

/// L_TR: anchors shall stay nearer to the near positives than to the near negatives.
pub fn top_rank_loss([a, p, n]: [&Tensor; 3]) -> Tensor {
    let near_mean = |d: Tensor| d.index_select(0, &near(&d)).mean(Kind::Float);
    (near_mean(distance(a, p)) - near_mean(distance(a, n)) + 0.04).relu() * 0.5
}

/// What an attack minimises; `None` where it stops.
pub fn objective(
    [a, p, n]: [&Tensor; 3],
    origin: &Tensor,
    phase: Side,
    reading: Reading,
    lambda: f64,
    pair: bool,
) -> Option<Tensor> {
    let c = match reading {
        Reading::Naive => return Some(-hardness(a, p, n).mean(Kind::Float)),
        Reading::Working => collapseness([a, p, n], -lambda, true),
        Reading::Paper => collapseness([a, p, n], -lambda, false),
        Reading::Released => collapseness([a, p, n], lambda, false),
    };
    let value = number(&c.detach());
    let gap = || top_rank(a, n, origin);
    match (phase, reading) {
        (Side::Candidates, _) | (Side::Anchors, Reading::Working | Reading::Naive) if value >= 0.0 => None,
        (Side::Candidates, Reading::Released) if value > -DONE => None,
        (Side::Candidates, _) => Some(-c),
        (Side::Anchors, Reading::Working | Reading::Naive) => Some(match pair {
            true => -c + gap().relu().mean(Kind::Float) * value.min(0.0).exp(),
            false => -c,
        }),
        (Side::Anchors, Reading::Paper) => {
            let extra = pair.then(|| c.clamp_min(0.0).exp() * gap().mean(Kind::Float));
            let whole = extra.map_or_else(|| -&c, |extra| extra - &c);
            (number(&whole.detach()) > 0.0).then_some(whole)
        }
        (Side::Anchors, Reading::Released) => {
            let factor = (-(-value).max(0.0)).exp();
            let extra = pair.then(|| gap().relu().mean(Kind::Float) * factor);
            let whole = extra.map_or_else(|| c.relu(), |extra| extra + c.relu());
            (number(&whole.detach()) >= DONE).then_some(whole)
        }
    }
}

/// One batch of either phase.
pub fn train(step: &mut Step, phase: Side) -> Result<Update> {
    let s = &step.recipe.settings;
    let (reading, lambda, pair) = (s.reading, s.lambda, s.top_rank);
    let moving = [phase == Side::Anchors, phase == Side::Candidates, phase == Side::Candidates];
    let clean = step.clean();
    let triplets: Triplets = step.mine(&clean)?;
    let before = triplets.of(&clean);
    let origin = before[0].shallow_clone();
    let (images, moved) = step.attack_triplets(&clean, &triplets, moving, |now, _| {
        objective(now, &origin, phase, reading, lambda, pair)
    });
    let after = step.embed_triplets(&images);
    let [a, p, n] = [&after[0], &after[1], &after[2]];
    let base = (hardness(a, p, n) + MARGIN).relu().mean(Kind::Float);
    // The released code's switch flips twice a step, so that it adds the pair's loss always.
    let with_pair = pair && (phase == Side::Anchors || reading == Reading::Released);
    let loss = if with_pair { &base + top_rank_loss([a, p, n]) } else { base.shallow_clone() };
    let seen = step.seen(&before, &after, moving, Some(&moved));
    Ok(update(loss, &base, seen))
}

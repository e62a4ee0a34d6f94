//! Collapse-aware triplet decoupling, CA-TRIDE (Tian et al. 2024), and its two parts.

use super::{AttackDefaults, Defence, Step, Update, none, number, update};
use crate::loss::{distance, hardness};
use crate::settings::{Reading, TopRank};
use audit::Result;
use tch::{Kind, Tensor};

/// Collapse-aware perturbation of candidates.
pub const CAP: Defence = Defence {
    name: "cap",
    about: "positives and negatives moved until collapseness reaches 0",
    loss: "triplet",
    sampler: "semihard",
    attacks_triplets: true,
    attack: Some(AttackDefaults { steps: 16, progressive: true, ..AttackDefaults::LITERATURE }),
    flags: &["lambda", "reading", "top-rank", "top-rank-margin", "top-rank-weight"],
    sides: &[Side::Candidates],
    step: train,
    ..none::DEFENCE
};

/// Collapse-aware perturbation of anchors.
pub const ANP: Defence = Defence {
    name: "anp",
    about: "anchors moved until collapseness reaches 0",
    sides: &[Side::Anchors],
    ..CAP
};

/// Both, alternating.
pub const CA_TRIDE: Defence = Defence {
    name: "ca-tride",
    about: "cap and anp in turn, batch by batch",
    sides: &[Side::Candidates, Side::Anchors],
    ..CAP
};

/// Loss at which the released code ends an attack.
const DONE: f64 = 1e-5;

/// The images that a collapse-aware attack moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Candidates: positives and negatives.
    Candidates,
    /// The anchors of triplets.
    Anchors,
}

/// C = d_w(A,P) − d_w(A,N), d_w = Σ w·d / Σ w with w = exp(rate·d): a negative rate gives weight to near
/// samples. Scalar. `detached` weights pass no gradient.
pub fn collapseness([a, p, n]: [&Tensor; 3], rate: f64, detached: bool) -> Tensor {
    let mean = |d: Tensor| {
        let values = if detached { d.detach() } else { d.shallow_clone() };
        let weights = (values * rate).softmax(0, Kind::Float);
        (weights * d).sum(Kind::Float)
    };
    mean(distance(a, p)) - mean(distance(a, n))
}

/// Indices of the smallest half of `distances` `[T]`.
fn nearest_half(distances: &Tensor) -> Tensor {
    let half = (distances.size()[0] / 2).max(1);
    distances.detach().topk(half, 0, false, true).1
}

/// Mean of the smallest half of `distances` `[T]`.
fn near_mean(distances: &Tensor) -> Tensor {
    distances.index_select(0, &nearest_half(distances)).mean(Kind::Float)
}

/// Δ_TR without its factor: how much farther the near negatives are than the clean anchors A0. Without
/// `origin` the anchors haven't moved, so d(A,A0) is 0 and its direction is only rounding.
///
/// Equation 12 and the released code subtract the mean distance of all anchors from A0, which drives every
/// anchor away from its clean embedding. The working reading compares anchor by anchor, in the near half
/// only.
fn top_rank(a: &Tensor, n: &Tensor, origin: Option<&Tensor>, reading: Reading) -> Tensor {
    let to_negative = distance(a, n);
    let Some(origin) = origin else { return near_mean(&to_negative) };
    match reading {
        Reading::Paper => near_mean(&to_negative) - distance(a, origin).mean(Kind::Float),
        Reading::Released => {
            // PyTorch's pairwise_distance adds 1e-6 to each difference, which gives the first step its
            // direction.
            let moved = distance(&(a - origin + 1e-6), &a.zeros_like());
            (near_mean(&to_negative) - moved.mean(Kind::Float)).relu()
        }
        _ => {
            let gap = &to_negative - distance(a, origin);
            gap.index_select(0, &nearest_half(&to_negative)).relu().mean(Kind::Float)
        }
    }
}

/// L_TR (equation 13): anchors must stay nearer to the near positives than to the near negatives, by `margin`
/// (β_TR); times `weight` (γ).
pub fn top_rank_loss([a, p, n]: [&Tensor; 3], margin: f64, weight: f64) -> Tensor {
    (near_mean(&distance(a, p)) - near_mean(&distance(a, n)) + margin).relu() * weight
}

/// The loss that an attack minimises; `None` ends the attack. `origin`: the clean anchors, if they have been
/// moved.
pub fn objective(
    [a, p, n]: [&Tensor; 3],
    origin: Option<&Tensor>,
    side: Side,
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
    let gap = || top_rank(a, n, origin, reading);
    match (side, reading) {
        (Side::Candidates, _) if value >= 0.0 => None,
        (Side::Candidates, Reading::Released) if value > -DONE => None,
        (Side::Candidates, _) => Some(-c),
        (Side::Anchors, Reading::Paper) => {
            let extra = pair.then(|| c.clamp_min(0.0).exp() * gap());
            let whole = extra.map_or_else(|| -&c, |extra| extra - &c);
            (number(&whole.detach()) > 0.0).then_some(whole)
        }
        (Side::Anchors, Reading::Released) => {
            let factor = (-(-value).max(0.0)).exp();
            let extra = pair.then(|| gap() * factor);
            let whole = extra.map_or_else(|| c.relu(), |extra| extra + c.relu());
            (number(&whole.detach()) >= DONE).then_some(whole)
        }
        (Side::Anchors, _) if value >= 0.0 => None,
        (Side::Anchors, _) => Some(match pair {
            true => -c + gap() * value.min(0.0).exp(),
            false => -c,
        }),
    }
}

/// Whether step `at` (from 0) of an attack uses the clean anchors. Not before the anchors have moved: their
/// distance from themselves is only rounding. The released code adds a direction of its own.
pub fn counts_clean_anchors(at: u32, random_start: bool, reading: Reading) -> bool {
    at > 0 || random_start || reading == Reading::Released
}

fn train(step: &mut Step) -> Result<Update> {
    let sides = step.defence.sides;
    let side = sides[step.at as usize % sides.len()];
    let s = &step.recipe.settings;
    let (reading, lambda) = (s.reading, s.lambda);
    let (term, loss_too) = match s.top_rank {
        TopRank::On => (true, true),
        TopRank::Term => (true, false),
        TopRank::Loss => (false, true),
        TopRank::Off => (false, false),
    };
    let (margin, weight) = (s.top_rank_margin, s.top_rank_weight);
    let moving = [side == Side::Anchors, side == Side::Candidates, side == Side::Candidates];
    let clean = step.clean();
    let triplets = step.mine(&clean)?;
    let before = triplets.of(&clean);
    let random_start = s.random_start;
    let (images, moved) = step.attack_triplets(&clean, &triplets, moving, |now, at| {
        let origin = counts_clean_anchors(at, random_start, reading).then_some(&before[0]);
        objective(now, origin, side, reading, lambda, term)
    });
    let (after, rest) = step.embed_triplets(&images);
    let [a, p, n] = [&after[0], &after[1], &after[2]];
    let base = step.loss_of_triplets(&after, &triplets);
    // The released code's switch flips twice a step, so that it always adds the pair's loss.
    let with_pair = loss_too && (side == Side::Anchors || reading == Reading::Released);
    let loss = match with_pair {
        true => &base.regularised + top_rank_loss([a, p, n], margin, weight),
        false => base.regularised.shallow_clone(),
    };
    let seen = step.seen(&before, &rest, moving, Some(&moved));
    Ok(update(loss, &base.own, seen))
}

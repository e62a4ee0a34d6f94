//! FOA and SPFOA: the query changes the order in which it ranks m of its nearest images (Zhou et al.,
//! "Practical Relative Order Attack in Deep Ranking", ICCV 2021, arXiv:2103.05248). SPFOA also keeps other
//! near images at the top.
//!
//! The targets are listed in the attacker's order, nearest first; two targets in their clean order, which the
//! attacker swaps.

use super::{Draw, Form, Loss, Objective, Query, Targets, Trial, measure, spqa, usual};
use crate::trial::AttackContext;
use audit_base::Result;
use audit_report::facts;

/// Swaps the order of two images.
pub const PAIR: Objective = Objective {
    facts: &facts::FOA_PAIR,
    targets: |query, draw| Ok(pair(query, draw)),
    loss: |_, _, trial| Loss::Gallery(Box::new(swapped(trial))),
    ..BASE
};
/// Puts 5 images in another order.
pub const FIVE: Objective = Objective { facts: &facts::FOA_FIVE, ..BASE };
/// Puts 10 images in another order.
pub const TEN: Objective =
    Objective { facts: &facts::FOA_TEN, targets: |query, draw| Ok(several(query, draw, 10)), ..BASE };
/// Puts 25 images in another order.
pub const MANY: Objective =
    Objective { facts: &facts::FOA_MANY, targets: |query, draw| Ok(several(query, draw, 25)), ..BASE };
/// Swaps the order of two images, and keeps other images.
pub const PAIR_KEPT: Objective = Objective {
    facts: &facts::FOA_PAIR_KEPT,
    measure: &measure::ORDER_AND_KEPT,
    // The released code sets ξ before the attack, and leaves it so for two targets.
    loss: |context, form, trial| spqa::keeping(context, trial, swapped(trial), form == Form::Corrected),
    ..PAIR
};
/// Puts 5 images in another order, and keeps other images.
pub const FIVE_KEPT: Objective =
    Objective { facts: &facts::FOA_FIVE_KEPT, measure: &measure::ORDER_AND_KEPT, loss: keeping, ..FIVE };
/// Puts 10 images in another order, and keeps other images.
pub const TEN_KEPT: Objective =
    Objective { facts: &facts::FOA_TEN_KEPT, measure: &measure::ORDER_AND_KEPT, loss: keeping, ..TEN };
/// Puts 25 images in another order, and keeps other images.
pub const MANY_KEPT: Objective =
    Objective { facts: &facts::FOA_MANY_KEPT, measure: &measure::ORDER_AND_KEPT, loss: keeping, ..MANY };

const BASE: Objective = Objective {
    measure: &measure::ORDER,
    targets: |query, draw| -> Result<Targets> { Ok(several(query, draw, 5)) },
    loss: |_, _, trial| Loss::Gallery(Box::new(ordered(trial))),
    ..usual(&facts::FOA_FIVE)
};

fn keeping<'a>(context: &'a AttackContext, _: Form, trial: &Trial) -> Loss<'a> {
    spqa::keeping(context, trial, ordered(trial), true)
}

/// Draws `m` distinct images of the nearest 1 %, in a random order.
fn several(query: &Query, draw: &mut Draw, m: usize) -> Targets {
    let near = query.top_percent();
    match near.len() >= m {
        true => Targets::Chosen(draw.distinct(near, m)),
        false => Targets::Skip("the nearest 1 % of the gallery has fewer images than are to be ordered"),
    }
}

/// Two images, the one nearer to the clean query first.
fn pair(query: &Query, draw: &mut Draw) -> Targets {
    let d = query.distances();
    match several(query, draw, 2) {
        Targets::Chosen(mut two) => {
            two.sort_by(|&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
            Targets::Chosen(two)
        }
        skip => skip,
    }
}

/// [d(q̃, x2) − d(q̃, x1)]₊, x1 nearer to the clean query.
fn swapped<'a>(trial: &Trial) -> impl Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + use<'a> {
    let (nearer, farther) = (trial.targets[0], trial.targets[1]);
    move |d, weights| {
        let gap = d[farther] - d[nearer];
        if gap > 0.0 {
            weights[farther] += 1.0;
            weights[nearer] -= 1.0;
        }
        f64::from(gap.max(0.0))
    }
}

/// The mean over the m × m table of the upper triangle of [d_i − d_j]₊ for i before j. The rest of the table
/// counts as zeros.
fn ordered<'a>(trial: &Trial) -> impl Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + use<'a> {
    let targets = trial.targets.clone();
    move |d, weights| {
        let per = 1.0 / (targets.len() * targets.len()) as f32;
        let mut sum = 0.0;
        for (i, &first) in targets.iter().enumerate() {
            for &second in &targets[i + 1..] {
                let gap = d[first] - d[second];
                if gap > 0.0 {
                    sum += f64::from(gap);
                    weights[first] += per;
                    weights[second] -= per;
                }
            }
        }
        sum * f64::from(per)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: of three distances 3, 1, 2 the pairs (3, 1) and (3, 2) are in the wrong order, by 2 and by 1.
    #[test]
    fn losses_by_hand() {
        let trial = |targets: &[usize]| Trial { objective: &FIVE, query: 0, targets: targets.to_vec() };
        let d = [9.0, 3.0, 1.0, 2.0];
        let mut weights = [0.0; 4];
        let loss = ordered(&trial(&[1, 2, 3]))(&d, &mut weights);
        assert!((loss - 3.0 / 9.0).abs() < 1e-6);
        let per = 1.0 / 9.0;
        assert_eq!(weights, [0.0, 2.0 * per, -per, -per]);
        let mut weights = [0.0; 4];
        assert_eq!(swapped(&trial(&[2, 1]))(&d, &mut weights), 2.0);
        assert_eq!(weights, [0.0, 1.0, -1.0, 0.0]);
        assert_eq!(swapped(&trial(&[1, 2]))(&d, &mut weights), 0.0);
    }
}

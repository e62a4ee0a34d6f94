//! SPQA±: QA± that keeps the top of the query's ranking (Zhou et al., T-PAMI 2024, section 3.4), so that the
//! list still looks right while the targets move.

use super::{Aim, Loss, Objective, Reach, Trial, measure, qa};
use crate::ensemble::members;
use crate::trial::AttackContext;
use audit_report::facts;

/// The largest weight ξ of the loss of the kept images.
const XI_MAX: f64 = 1e9;

/// QA+ that keeps the nearest images.
pub const RAISE: Objective = Objective {
    facts: &facts::SPQA_RAISE,
    measure: &measure::QUERY_RANK_AND_KEPT,
    reach: |_| Reach::Unknown,
    loss: |context, _, trial| loss(context, trial, Aim::First),
    members: members::USUAL,
    ..qa::RAISE
};

/// QA− that keeps the other nearest images.
pub const LOWER: Objective = Objective {
    facts: &facts::SPQA_LOWER,
    measure: &measure::QUERY_RANK_AND_KEPT,
    loss: |context, _, trial| loss(context, trial, Aim::Last),
    members: members::USUAL,
    ..qa::LOWER
};

fn loss<'a>(context: &'a AttackContext, trial: &Trial, aim: Aim) -> Loss<'a> {
    let targets = qa::hinge(&context.gallery, trial.query, trial.targets.clone(), aim);
    keeping(context, trial, move |d, weights| targets(d, 1.0, weights), true)
}

/// `main` + ξ·(QA+ loss of the kept images). The loss s of the kept images sets ξ = min(exp(k·s), 1e9) at
/// each step, and ξ is not differentiated. k is [`AttackContext::xi_k`]. Without `adapt` ξ is that of the
/// clean query.
pub fn keeping<'a>(
    context: &'a AttackContext,
    trial: &Trial,
    main: impl Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + 'a,
    adapt: bool,
) -> Loss<'a> {
    let (gallery, k) = (&context.gallery, context.xi_k);
    let kept = qa::hinge(gallery, trial.query, measure::preserved::items(context, trial), Aim::First);
    let weight = move |s: f64| (k * s).exp().min(XI_MAX);
    let fixed = (!adapt).then(|| {
        let d: Vec<f32> = gallery.distances(gallery.point(trial.query)).iter().map(|&d| d as f32).collect();
        weight(kept(&d, 0.0, &mut vec![0.0; d.len()]))
    });
    Loss::Gallery(Box::new(move |d, weights| {
        let s = kept(d, 0.0, weights);
        let xi = fixed.unwrap_or_else(|| weight(s));
        kept(d, xi, weights);
        main(d, weights) + xi * s
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit_gallery::space::Gallery;
    use audit_report::record::{Form, Metric};
    use ndarray::Array2;

    /// ξ from the definition: at d the loss of the kept images is s, and both the value and the gradient have
    /// the factor min(exp(k·s), 1e9), by the clean query's s if it does not adapt. A query is at 0 and 1,000
    /// images are at 0.01, 0.02, … on a line: the gallery's nearest 1 % are images 1 to 10.
    #[test]
    fn the_weight_of_kept_items_follows_their_loss() {
        let points = Array2::from_shape_fn((1001, 1), |(i, _)| i as f32 / 100.0);
        let ids = (0..1001).map(|i| i.to_string()).collect();
        let mut context: AttackContext =
            Gallery::new(Metric::Euclidean, points, vec![0; 1001], ids).unwrap().into();
        let trial = Trial { objective: &LOWER, query: 0, targets: vec![2] };
        // At the point 0.035 the nearest images are in another order.
        let d: Vec<f32> = (0..1001).map(|i| (i as f32 / 100.0 - 0.035).abs()).collect();
        let part = |targets: Vec<usize>, aim, weights: &mut [f32]| {
            qa::hinge(&context.gallery, 0, targets, aim)(&d, 1.0, weights)
        };
        let (mut of_targets, mut of_kept) = (vec![0.0; 1001], vec![0.0; 1001]);
        let target = part(vec![2], Aim::Last, &mut of_targets);
        let s = part(vec![1, 3, 4, 5, 6], Aim::First, &mut of_kept);
        assert!(s > 0.0);
        for (k, xi) in [(0.0, 1.0), (3e4, (3e4 * s).exp()), (1e12, 1e9)] {
            context.xi_k = k;
            let Loss::Gallery(loss) = (LOWER.loss)(&context, Form::Published, &trial) else { panic!() };
            let mut weights = vec![0.0; 1001];
            let value = loss(&d, &mut weights);
            assert!((value - (target + xi * s)).abs() <= 1e-6 * value, "{value}");
            for (i, w) in weights.iter().enumerate() {
                let expected = of_targets[i] + (xi * f64::from(of_kept[i])) as f32;
                assert!((w - expected).abs() <= 1e-5 * (xi as f32), "{i}: {w}, expected {expected}");
            }
        }
        // Clean, image c is at c/100. Of the kept ones 1, 3, 4, 5, 6, each is farther than the images before
        // it.
        let s = [1, 3, 4, 5, 6].map(|c| (1..=c).sum::<i32>()).iter().sum::<i32>();
        let s = f64::from(s) / 100.0 / (5.0 * 1001.0);
        context.xi_k = 3e4;
        let mut weights = vec![0.0; 1001];
        let Loss::Gallery(loss) = keeping(&context, &trial, |_, _| 0.0, false) else { panic!() };
        let (value, xi) = (loss(&d, &mut weights), (3e4 * s).exp());
        let now = part(vec![1, 3, 4, 5, 6], Aim::First, &mut vec![0.0; 1001]);
        assert!(xi > 2.0 && (value - xi * now).abs() <= 1e-4 * value, "{value}, expected {}", xi * now);
    }
}

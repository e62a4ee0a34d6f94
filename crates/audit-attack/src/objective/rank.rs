//! The rank itself as a smooth loss, and the members of the strong search that use it. Hinges (CA±, QA±)
//! weigh images by how far they are on the wrong side, so that the lowest hinge isn't the best rank. The
//! strong search minimises both.

use super::{Aim, Form, Loss, Trial, foreign};
use crate::ensemble::members::{HINGE, REFINED, RESTART, SQUARE};
use crate::term::Goal;
use crate::trial::AttackContext;
use crate::trial::{Aims, Ensemble, From, Member};
use audit_base::numbers::variance;
use audit_gallery::space::{Gallery, wide};
use audit_model::Route;
use audit_report::facts::members;

/// mean over targets t and images x of s(±(d_t − d_x)/τ), where s(u) = ½ + ½·u/(1 + |u|) grows from 0 to 1.
/// As τ falls to 0, this is the mean rank of the targets, from 0 to 1, or its distance from the last rank;
/// the goal of the objective's term decides. τ is the `share` of the standard deviation of the distances that
/// a ranking sorts, on the clean image. For objectives that measure a mean rank.
pub fn smooth<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, share: f64) -> Loss<'a> {
    let aim = match trial.objective.decisive().goal {
        Goal::Lowest => Aim::First,
        Goal::Highest => Aim::Last,
    };
    let sign = f64::from(aim.sign());
    match trial.objective.measure.moves_candidate {
        true => of_candidate(gallery, form, trial, sign, share),
        false => of_targets(gallery, form, trial, sign, share),
    }
}

/// s(u) and its derivative.
fn step(u: f64) -> (f64, f64) {
    let per = 1.0 / (1.0 + u.abs());
    (0.5 + 0.5 * u * per, 0.5 * per * per)
}

fn deviation(d: &[f64]) -> f64 {
    variance(d).sqrt().max(f64::MIN_POSITIVE)
}

fn of_candidate<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, sign: f64, share: f64) -> Loss<'a> {
    let metric = gallery.metric;
    let own = trial.query;
    let ranking = |&q: &usize| {
        let d = gallery.distances(gallery.point(q));
        let ranked = |i: &usize| *i != own && form.ranks(gallery, q, *i);
        let d: Vec<f64> = (0..gallery.len()).filter(ranked).map(|i| d[i]).collect();
        let tau = share * deviation(&d);
        (wide(gallery.point(q)), d, tau)
    };
    let rankings: Vec<(Vec<f64>, Vec<f64>, f64)> = trial.targets.iter().map(ranking).collect();
    let terms = rankings.iter().map(|(_, d, _)| d.len()).sum::<usize>().max(1) as f64;
    Loss::Point(Box::new(move |z, _, gradient| {
        let mut loss = 0.0;
        for (query, d, tau) in &rankings {
            metric.pair(z, query, 0.0, gradient, |at| {
                let mut slope = 0.0;
                for x in d {
                    let (value, by) = step(sign * (at - x) / tau);
                    loss += value;
                    slope += by;
                }
                (sign * slope / (tau * terms)) as f32
            });
        }
        loss / terms
    }))
}

fn of_targets<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, sign: f64, share: f64) -> Loss<'a> {
    let clean = gallery.point(trial.query);
    if let Some((targets, at)) = trial.foreign(gallery) {
        let all = (0..targets.len()).collect();
        return foreign::loss(targets, among(targets, clean, at, all, sign, share));
    }
    let items: Vec<usize> = (0..gallery.len()).filter(|&i| form.ranks(gallery, trial.query, i)).collect();
    Loss::Gallery(Box::new(among(gallery, clean, trial.targets.clone(), items, sign, share)))
}

/// The smooth rank of `targets` among `items` of a gallery as a function of the distances to it, with its
/// gradient. The clean query is at `clean` [D].
fn among(
    gallery: &Gallery,
    clean: &[f32],
    targets: Vec<usize>,
    items: Vec<usize>,
    sign: f64,
    share: f64,
) -> impl Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + use<> {
    let clean = gallery.distances(clean);
    let tau = share * deviation(&items.iter().map(|&i| clean[i]).collect::<Vec<_>>());
    let terms = (targets.len() * items.len()).max(1) as f64;
    move |d, weights| {
        let mut loss = 0.0;
        for &t in &targets {
            for &x in items.iter().filter(|&&x| x != t) {
                let (value, by) = step(sign * f64::from(d[t] - d[x]) / tau);
                loss += value;
                let by = (sign * by / (tau * terms)) as f32;
                weights[t] += by;
                weights[x] -= by;
            }
        }
        loss / terms
    }
}

/// For objectives that move an image in rankings. A rank has many local optima, so many short runs from
/// distant starts find more than few long ones. After the hinge the smooth rank is minimised. If a model can
/// be widened, or has a straight-through pass other than the softened one, operators saturate on both sides
/// or are flat: gradients say least there, and members do more.
pub const RANKS: Ensemble = &[
    &[Member { steps: 20, ..HINGE }],
    &[
        OTHERS,
        Member {
            facts: &members::OTHERS_WIDENED,
            route: Route::Widened,
            or: Some(Route::StraightThrough),
            steps: 30,
            ..OTHERS
        },
    ],
    &[CLIMB],
    &[Member { facts: &members::OTHERS_CLOSING, steps: 24, closing: true, ..OTHERS }],
    &[Member { facts: &members::CLIMB_CLOSING, closing: true, ..CLIMB }],
    &[Member {
        facts: &members::CLIMB_FINER,
        loss: fine_rank,
        steps: 200,
        needs: Some(Route::StraightThrough),
        ..CLIMB
    }],
    &[
        Member { loss: smooth_rank, steps: 50, ..SQUARE },
        Member {
            facts: &members::RANK_LONGER,
            loss: fine_rank,
            needs: Some(Route::StraightThrough),
            steps: 600,
            ..SQUARE
        },
    ],
];
const OTHERS: Member = Member {
    facts: &members::OTHERS,
    loss: smooth_rank,
    aims: Aims::Several(12),
    steps: 12,
    alpha: Some(1.5),
    from: From::Other,
    ..RESTART
};
const CLIMB: Member =
    Member { facts: &members::CLIMB, loss: smooth_rank, steps: 60, alpha: Some(1.0), ..REFINED };

fn smooth_rank<'a>(context: &'a AttackContext, form: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    smooth(&context.gallery, form, trial, 0.02)
}

/// A smooth rank with hardly any smoothing: if an output saturates, the distances that decide a rank differ
/// by little more than the rounding of float32.
fn fine_rank<'a>(context: &'a AttackContext, form: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    smooth(&context.gallery, form, trial, 0.000002)
}

#[cfg(test)]
mod tests {
    use super::super::{ca, qa};
    use super::*;
    use crate::Objective;
    use audit_report::record::Metric;
    use ndarray::Array2;

    /// Images 0 to 10 at their numbers on a line.
    fn line() -> Gallery {
        let points = Array2::from_shape_fn((11, 1), |(i, _)| i as f32);
        let ids = (0..11).map(|i| i.to_string()).collect();
        Gallery::new(Metric::Euclidean, points, vec![0; 11], ids).unwrap()
    }

    /// The loss of image 0, moved to `z`, and its derivative there.
    fn loss_at(
        gallery: &Gallery,
        objective: &'static Objective,
        target: usize,
        share: f64,
        z: f32,
    ) -> (f64, f64) {
        let trial = Trial { objective, query: 0, targets: vec![target] };
        match smooth(gallery, Form::Corrected, &trial, share) {
            Loss::Point(loss) => {
                let mut gradient = [0.0];
                (loss(&[z], false, &mut gradient), f64::from(gradient[0]))
            }
            Loss::Gallery(loss) => {
                let d: Vec<f32> = (0..11).map(|i| (z - i as f32).abs()).collect();
                let mut weights = vec![0.0; 11];
                let value = loss(&d, &mut weights);
                // ∂|z − i|/∂z is the sign of z − i.
                (value, (0..11).map(|i| f64::from(weights[i] * (z - i as f32).signum())).sum())
            }
            Loss::Still => panic!("a loss"),
        }
    }

    /// By hand, at 4.2. The query ranks 4, 5, 3 and 6 before image 2: 4 of the 10 others. Query 10 ranks the
    /// candidate, 5.8 away, behind 9, 8, 7, 6 and 5: 5 of the 9 others.
    #[test]
    fn without_smoothing_it_is_the_rank() {
        let gallery = line();
        for (objective, target, expected) in [
            (&qa::RAISE, 2, 4.0 / 10.0),
            (&qa::LOWER, 2, 5.0 / 10.0),
            (&ca::RAISE, 10, 5.0 / 9.0),
            (&ca::LOWER, 10, 4.0 / 9.0),
        ] {
            let (found, _) = loss_at(&gallery, objective, target, 1e-9, 4.2);
            assert!((found - expected).abs() < 1e-6, "{objective:?}: {found}, expected {expected}");
        }
    }

    /// Central differences of the loss.
    #[test]
    fn its_gradient_is_its_slope() {
        let gallery = line();
        for (objective, target) in [(&qa::RAISE, 2), (&qa::LOWER, 2), (&ca::RAISE, 10), (&ca::LOWER, 10)] {
            for z in [1.3f32, 4.2, 6.7] {
                let of = |z: f32| loss_at(&gallery, objective, target, 0.5, z);
                let h = 1.0 / 128.0;
                let slope = (of(z + h).0 - of(z - h).0) / f64::from(2.0 * h);
                assert!((of(z).1 - slope).abs() < 0.02 * slope.abs() + 1e-4, "{objective:?} at {z}: {slope}");
            }
        }
    }
}

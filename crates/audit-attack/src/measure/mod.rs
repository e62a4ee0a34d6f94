//! Measures of attacked images, from which an objective's terms are computed, each a row in one of these
//! files. The runner computes them, never the search.

pub mod captured;
mod distance;
mod first;
pub mod preserved;
mod rank;

pub use captured::CAPTURED;
pub use distance::{COSINE, DUPLICATES, OTHERS, REFERENCE, duplicates, others};
pub use first::{HIT, RETAINED, TARGET_CLASS, TOP, TOP1};
pub use rank::{CANDIDATE_RANK, ORDER, ORDER_AND_KEPT, QUERY_RANK, QUERY_RANK_AND_KEPT};

use super::trial::{At, Measure, Trial};
use crate::trial::AttackContext;
use audit_gallery::space::ranks::{Ask, Mark};
use audit_gallery::space::{self, Gallery, benign};
use audit_report::facts::measures;
use audit_report::record::{Form, Measures, Retrieval};

/// The defaults of the rows.
const USUAL: Measure =
    Measure { facts: &measures::HIT, asks: |_| Vec::new(), measured: |_, _| Measures::default() };

/// Measures the point `z` `[D]` for `trial`.
pub fn measure(context: &AttackContext, form: Form, trial: &Trial, z: &[f32]) -> Measures {
    measure_all(context, form, &[(trial, z)]).swap_remove(0)
}

/// Measures many points at once, so that they share matrix products with the gallery. Near ties are decided
/// by direct differences.
pub fn measure_all(context: &AttackContext, form: Form, points: &[(&Trial, &[f32])]) -> Vec<Measures> {
    let gallery = &context.gallery;
    let all = located(context, form, points);
    let asks: Vec<Vec<Ask>> = all.iter().map(|at| (at.trial.objective.measure.asks)(at)).collect();
    let counts: Vec<usize> = asks.iter().map(Vec::len).collect();
    let asks: Vec<Ask> = asks.into_iter().flatten().collect();
    let mut ranks = space::ranks::ranks(gallery, &asks).into_iter();
    let measured = all.iter().zip(counts).map(|(at, count)| {
        let ranks: Vec<usize> = ranks.by_ref().take(count).flatten().collect();
        (at.trial.objective.measure.measured)(at, &ranks)
    });
    let mut measured: Vec<Measures> = measured.collect();
    let moved = |(_, (trial, _)): &(usize, &(&Trial, &[f32]))| {
        !trial.objective.measure.moves_candidate && gallery.positives(trial.query).next().is_some()
    };
    let moved = points.iter().enumerate().filter(moved).map(|(place, &(trial, z))| (place, (trial.query, z)));
    let (places, queries): (Vec<usize>, Vec<(usize, &[f32])>) = moved.unzip();
    for (place, retrieval) in places.into_iter().zip(retrievals(gallery, &queries)) {
        measured[place].retrieval = Some(retrieval);
    }
    measured
}

/// Retrieval by queries moved to other points z `[D]`: (query, z). Each query needs a correct image
/// ([`Gallery::positives`]). Every form leaves out the query's clean copy.
pub fn retrievals(gallery: &Gallery, at: &[(usize, &[f32])]) -> Vec<Retrieval> {
    let ask = |&(query, z): &(usize, _)| {
        let marks: Vec<Mark> = gallery.positives(query).map(Mark::Image).collect();
        Ask { z, marks, left_out: gallery.left_out(query, true) }
    };
    let asks: Vec<Ask> = at.iter().map(ask).collect();
    let found = space::ranks::ranks(gallery, &asks).into_iter().zip(&asks).map(|(mut ranks, ask)| {
        ranks.sort_unstable();
        Retrieval {
            first: ranks[0] == 0,
            ap: benign::ap(&ranks),
            ap_at_r: benign::ap_at_r(&ranks),
            at_c: benign::among(&ranks, ranks.len() + 1),
            cluster: gallery.cluster(ask.z),
        }
    });
    found.collect()
}

/// The lowest and the highest mean rank at the point `z` `[D]` that the rounding of embeddings to float32
/// allows, for objectives that measure a candidate's rank or a query's; `None` for others.
///
/// A float32 coordinate is exact to a share u = 2⁻²⁴ of itself, so the distance between z and x to u·(‖z‖ +
/// ‖x‖), and so is 1 − z·x under cosine, with ‖z‖ = ‖x‖ = 1. Images closer to a target's distance than twice
/// that may come before or after it.
pub fn rank_bounds(context: &AttackContext, form: Form, trial: &Trial, z: &[f32]) -> Option<[f64; 2]> {
    let measure = trial.objective.measure;
    if !measure.mean_rank {
        return None;
    }
    let gallery = &context.gallery;
    let at = At { context, form, trial, z, own_image: trial.query };
    let asks: Vec<(&Gallery, Ask)> = match rank::of_foreign(&at) {
        Some(foreign) => vec![foreign],
        None => (measure.asks)(&at).into_iter().map(|ask| (gallery, ask)).collect(),
    };
    let norm = |x: &[f32]| space::product::<f32, f32>(x, x).sqrt();
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (gallery, Ask { z: from, marks, left_out }) in asks {
        for mark in marks {
            let (distance, to, itself) = match mark {
                Mark::Image(item) => {
                    (gallery.metric.distance(from, gallery.point(item)), gallery.point(item), 1)
                }
                Mark::Distance(distance) => (distance, z, 0),
            };
            let slack = f64::from(f32::EPSILON) * (norm(from) + norm(to));
            let marks = vec![Mark::Distance(distance - slack), Mark::Distance(distance + slack)];
            let ranks =
                space::ranks::ranks(gallery, &[Ask { z: from, marks, left_out: left_out.clone() }]).concat();
            low.push(ranks[0]);
            high.push(ranks[1] - itself);
        }
    }
    Some([mean(&low)?, mean(&high)?])
}

/// The mean of ranks; `None` if there are none.
fn mean(ranks: &[usize]) -> Option<f64> {
    (!ranks.is_empty()).then(|| ranks.iter().sum::<usize>() as f64 / ranks.len() as f64)
}

fn marks<'a>(items: impl IntoIterator<Item = &'a usize>) -> Vec<Mark> {
    items.into_iter().map(|&item| Mark::Image(item)).collect()
}

/// The points, each with the image that counts as its query. Robust R@1 follows the definition in every form.
fn located<'a>(context: &'a AttackContext, form: Form, points: &[(&'a Trial, &'a [f32])]) -> Vec<At<'a>> {
    let gallery = &context.gallery;
    let at = |&(trial, z): &(&'a Trial, _)| At { context, form, trial, z, own_image: trial.query };
    let mut all: Vec<At> = points.iter().map(at).collect();
    let uncertain = |at: &&mut At<'_>| {
        let objective = at.trial.objective;
        let asks = objective.measure.own_image && !objective.strong_only;
        asks && form == Form::Published && at.trial.query < gallery.len()
    };
    let mut undecided: Vec<&mut At> = all.iter_mut().filter(uncertain).collect();
    let ask = |at: &&mut At<'a>| {
        let query = at.trial.query;
        Ask { z: gallery.point(query), marks: marks(&[query]), left_out: gallery.left_out(query, false) }
    };
    let ranks = space::ranks::ranks(gallery, &undecided.iter().map(ask).collect::<Vec<_>>());
    for (at, rank) in undecided.iter_mut().zip(ranks) {
        if rank != [0] {
            let query = at.trial.query;
            at.own_image = form.own_image(gallery, query, &gallery.distances(gallery.point(query)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objective;
    use audit_report::record::Metric;
    use ndarray::Array2;

    /// By hand. Of the images on a line, float32 can hardly tell 1 − 2⁻²⁴ from 1, where two images lie. Seen
    /// from 0, two images come before image 1 (the one of the lower index comes first), and one to three if
    /// coordinates are rounded.
    #[test]
    fn a_rank_is_known_but_for_rounding() {
        let at = [0.0, 1.0, 1.0 - f32::EPSILON / 2.0, 1.0, 0.9, 2.0];
        let points = Array2::from_shape_fn((at.len(), 1), |(i, _)| at[i]);
        let ids = (0..at.len()).map(|i| i.to_string()).collect();
        let context = Gallery::new(Metric::Euclidean, points, vec![0; at.len()], ids).unwrap().into();
        let of = |code: &str, query: usize, target: usize, z: f32| {
            let objective = Objective::find(code).unwrap();
            let trial = Trial { objective, query, targets: vec![target] };
            let found = measure(&context, Form::Corrected, &trial, &[z]);
            (found.rank, rank_bounds(&context, Form::Corrected, &trial, &[z]))
        };
        // The query moves to 0, the position of its clean copy, which isn't ranked.
        assert_eq!(of("QA+", 0, 1, 0.0), (Some(2.0), Some([1.0, 3.0])));
        // A candidate moves to 1, and the query is at 0.
        assert_eq!(of("CA+", 5, 0, 1.0), (Some(2.0), Some([1.0, 4.0])));
        // No image is near.
        assert_eq!(of("CA+", 5, 0, 0.95), (Some(1.0), Some([1.0, 1.0])));
        assert_eq!(of("ES", 0, 1, 0.0).1, None);
    }
}

//! Measures of attacked images. The runner computes them, never the search.

use super::objective::{TOP, foa, foreign, hub, spqa};
use super::trial::{Measure, Trial, percent};
use crate::record::{Form, Measures, Retrieval};
use crate::space::ranks::{Ask, Mark};
use crate::space::{self, Angle, Gallery, benign, wide};

/// Measures the point `z` [D] for `trial`.
pub fn measure(gallery: &Gallery, form: Form, trial: &Trial, z: &[f32]) -> Measures {
    measure_all(gallery, form, &[(trial, z)]).swap_remove(0)
}

/// Measures many points at once, so that they share matrix products with the gallery. Near ties are decided by direct
/// differences.
pub fn measure_all(gallery: &Gallery, form: Form, at: &[(&Trial, &[f32])]) -> Vec<Measures> {
    let (mut asks, mut owners) = (Vec::new(), Vec::new());
    let selves = selves(gallery, form, at);
    for (owner, &(trial, z)) in at.iter().enumerate() {
        let found = questions(gallery, form, trial, z, selves[owner]);
        owners.resize(owners.len() + found.len(), owner);
        asks.extend(found);
    }
    let mut ranks: Vec<Vec<usize>> = vec![Vec::new(); at.len()];
    owners
        .iter()
        .zip(space::ranks::ranks(gallery, &asks))
        .for_each(|(&owner, found)| ranks[owner].extend(found));
    let judged = at.iter().zip(ranks).zip(&selves).map(|((&(trial, z), ranks), &own)| {
        let target = trial.targets.first();
        let first = ranks.first();
        let mut found = Measures::default();
        match trial.objective.measure {
            Measure::CandidateRank => found.rank = mean(&ranks),
            Measure::QueryRank => {
                let foreign = foreign::ask(gallery, trial, z);
                found.rank = foreign.map_or_else(
                    || mean(&ranks),
                    |(foreign, ask)| mean(&space::ranks::ranks(foreign, &[ask])[0]),
                )
            }
            Measure::Captured => found.captured = hub::captured(gallery, trial, z),
            Measure::QueryRankAndKept => {
                let (of_targets, of_kept) = ranks.split_at(trial.targets.len());
                (found.rank, found.kept) = (mean(of_targets), mean(of_kept));
            }
            Measure::Order | Measure::OrderAndKept => {
                let d = trial.targets.iter().map(|&t| gallery.metric.distance(z, gallery.point(t)));
                let (of_targets, of_kept) = ranks.split_at(trial.targets.len());
                let top = of_targets.iter().filter(|&&rank| rank < percent(gallery.len())).count();
                found.order = Some(foa::order(&d.collect::<Vec<_>>()));
                found.top = Some(top as f64 / of_targets.len() as f64);
                found.kept = mean(of_kept);
            }
            Measure::Cosine => {
                found.cosine = target.map(|&t| Angle::between(z, &wide(gallery.point(t))).cosine)
            }
            Measure::Hit => found.hit = first.map(|&rank| rank == 0),
            Measure::Accepted(against) => {
                found.distance = against.distance(gallery, trial, z);
                found.accepted = found.distance.map(|d| d <= gallery.threshold());
            }
            Measure::Retained => {
                let ranked = |t: &usize| *t != own && !gallery.same_view(trial.query, *t);
                found.retained = target.zip(first).map(|(t, &rank)| rank < TOP && ranked(t));
            }
        }
        found
    });
    let mut judged: Vec<Measures> = judged.collect();
    let moved = |(_, (trial, _)): &(usize, &(&Trial, &[f32]))| {
        !trial.objective.measure.moves_candidate() && gallery.positives(trial.query).next().is_some()
    };
    let moved = at.iter().enumerate().filter(moved).map(|(place, &(trial, z))| (place, (trial.query, z)));
    let (places, queries): (Vec<usize>, Vec<(usize, &[f32])>) = moved.unzip();
    for (place, retrieval) in places.into_iter().zip(retrievals(gallery, &queries)) {
        judged[place].retrieval = Some(retrieval);
    }
    judged
}

/// What queries find from other points z [D] than their own: (query, z). Each must have an item to find ([`Gallery::positives`]). Every form
/// leaves out the query's clean copy.
pub fn retrievals(gallery: &Gallery, at: &[(usize, &[f32])]) -> Vec<Retrieval> {
    let ask = |&(query, z): &(usize, _)| {
        let marks: Vec<Mark> = gallery.positives(query).map(Mark::Item).collect();
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

/// The lowest and the highest mean rank at the point `z` [D] that the rounding of embeddings to float32 allows, for objectives that measure a
/// candidate's rank or a query's; `None` for others.
///
/// A float32 coordinate is known to a share u = 2⁻²⁴ of itself, so the distance between z and x to u·(‖z‖ + ‖x‖), and 1 − z·x under
/// cosine, with ‖z‖ = ‖x‖ = 1, as well. Items that are nearer to a target's distance than twice that may come before or after it.
pub fn rank_bounds(gallery: &Gallery, form: Form, trial: &Trial, z: &[f32]) -> Option<[f64; 2]> {
    let usual =
        || questions(gallery, form, trial, z, trial.query).into_iter().map(|ask| (gallery, ask)).collect();
    let asks: Vec<(&Gallery, Ask)> = match trial.objective.measure {
        Measure::QueryRank => foreign::ask(gallery, trial, z).map_or_else(usual, |found| vec![found]),
        Measure::CandidateRank => usual(),
        _ => return None,
    };
    let norm = |x: &[f32]| space::product::<f32, f32>(x, x).sqrt();
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (gallery, Ask { z: from, marks, left_out }) in asks {
        for mark in marks {
            let (distance, to, itself) = match mark {
                Mark::Item(item) => {
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

/// The mean of ranks; `None` where there are none.
fn mean(ranks: &[usize]) -> Option<f64> {
    (!ranks.is_empty()).then(|| ranks.iter().sum::<usize>() as f64 / ranks.len() as f64)
}

/// The items that R@1 and GTT leave out: the queries themselves, see [`Form::own_item`]. Robust R@1 follows the definition in
/// every form.
fn selves(gallery: &Gallery, form: Form, at: &[(&Trial, &[f32])]) -> Vec<usize> {
    let mut selves: Vec<usize> = at.iter().map(|(trial, _)| trial.query).collect();
    let asked: Vec<usize> = (0..at.len())
        .filter(|&i| form == Form::Published && selves[i] < gallery.len())
        .filter(|&i| matches!(at[i].0.objective.measure, Measure::Hit | Measure::Retained))
        .filter(|&i| !at[i].0.objective.strong_only)
        .collect();
    let ask = |&i: &usize| Ask {
        z: gallery.point(selves[i]),
        marks: vec![Mark::Item(selves[i])],
        left_out: gallery.left_out(selves[i], false),
    };
    let ranks = space::ranks::ranks(gallery, &asked.iter().map(ask).collect::<Vec<_>>());
    for (i, rank) in asked.into_iter().zip(ranks) {
        let query = selves[i];
        if rank != [0] {
            let d = gallery.distances(gallery.point(query));
            selves[i] = form.own_item(gallery, query, &d);
        }
    }
    selves
}

/// The ranks that must be known to measure `trial` at `z`. R@1 and GTT leave out the item `own_item`.
fn questions<'a>(
    gallery: &'a Gallery,
    form: Form,
    trial: &Trial,
    z: &'a [f32],
    own_item: usize,
) -> Vec<Ask<'a>> {
    let query = trial.query;
    // The corrected form leaves the clean copy out of rankings; the published form ranks it.
    let own = form == Form::Corrected;
    let items = |targets: &[usize]| targets.iter().map(|&t| Mark::Item(t)).collect();
    match trial.objective.measure {
        Measure::CandidateRank => {
            let ask = |&q: &usize| {
                let mut left_out = gallery.left_out(q, own);
                if own && query < gallery.len() && !left_out.contains(&query) {
                    left_out.push(query);
                }
                let q = gallery.point(q);
                Ask { z: q, marks: vec![Mark::Distance(gallery.metric.distance(q, z))], left_out }
            };
            trial.targets.iter().map(ask).collect()
        }
        Measure::QueryRank if foreign::ranking(gallery, trial).is_some() => Vec::new(),
        Measure::QueryRank => {
            vec![Ask { z, marks: items(&trial.targets), left_out: gallery.left_out(query, own) }]
        }
        Measure::QueryRankAndKept => {
            let marks = items(&[trial.targets.clone(), spqa::kept(gallery, trial)].concat());
            vec![Ask { z, marks, left_out: gallery.left_out(query, own) }]
        }
        Measure::Order | Measure::OrderAndKept => {
            // The top that targets are drawn from leaves the clean copy out in every form.
            let top = Ask { z, marks: items(&trial.targets), left_out: gallery.left_out(query, true) };
            let kept = || {
                let marks = items(&spqa::kept(gallery, trial));
                Ask { z, marks, left_out: gallery.left_out(query, own) }
            };
            [Some(top), trial.objective.measure.keeps().then(kept)].into_iter().flatten().collect()
        }
        Measure::Cosine | Measure::Captured | Measure::Accepted(_) => Vec::new(),
        // The rank of the nearest item of the class decides: at rank 0 no item of another class is nearer.
        Measure::Hit => {
            let far = |i: usize| gallery.metric.distance(z, gallery.point(i));
            let class = gallery.labels[query];
            let mut left_out = gallery.left_out(query, false);
            left_out.extend((own_item < gallery.len()).then_some(own_item));
            let found = (0..gallery.len()).filter(|i| gallery.labels[*i] == class && !left_out.contains(i));
            let positives = found.map(|i| (far(i), i));
            let nearest = positives.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let ask = |(_, i)| Ask { z, marks: vec![Mark::Item(i)], left_out };
            nearest.map(ask).into_iter().collect()
        }
        Measure::Retained => {
            let targets = items(&trial.targets[..trial.targets.len().min(1)]);
            let mut left_out = gallery.left_out(query, false);
            left_out.extend((own_item < gallery.len()).then_some(own_item));
            vec![Ask { z, marks: targets, left_out }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;
    use crate::threat::Objective;
    use ndarray::Array2;

    /// By hand. Of the items on a line, float32 can hardly tell 1 − 2⁻²⁴ from 1, where two items lie. Seen from 0, two items come before item 1
    /// (that of the lower index comes first), and one to three where coordinates are rounded.
    #[test]
    fn a_rank_is_known_but_for_rounding() {
        let at = [0.0, 1.0, 1.0 - f32::EPSILON / 2.0, 1.0, 0.9, 2.0];
        let points = Array2::from_shape_fn((at.len(), 1), |(i, _)| at[i]);
        let ids = (0..at.len()).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(Metric::Euclidean, points, vec![0; at.len()], ids).unwrap();
        let of = |code: &str, query: usize, target: usize, z: f32| {
            let objective = Objective::find(code).unwrap();
            let trial = Trial { objective, query, targets: vec![target] };
            let found = measure(&gallery, Form::Corrected, &trial, &[z]);
            (found.rank, rank_bounds(&gallery, Form::Corrected, &trial, &[z]))
        };
        // The query itself moves to 0, where its clean copy lies, which isn't ranked.
        assert_eq!(of("QA+", 0, 1, 0.0), (Some(2.0), Some([1.0, 3.0])));
        // A candidate moves to 1, and the query is at 0.
        assert_eq!(of("CA+", 5, 0, 1.0), (Some(2.0), Some([1.0, 4.0])));
        // Nothing is near.
        assert_eq!(of("CA+", 5, 0, 0.95), (Some(1.0), Some([1.0, 1.0])));
        assert_eq!(of("ES", 0, 1, 0.0).1, None);
    }
}

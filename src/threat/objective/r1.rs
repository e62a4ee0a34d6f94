//! R1: recall at 1 under the strongest attack that this program has. Robust R@1 is its term: the share of the queries
//! for which no attack found an image that makes an item of another class the nearest.

use super::{Form, Loss, Measure, Objective, Reach, Trial, USUAL, ltm};
use crate::space::Gallery;
use crate::threat::ensemble;
use crate::threat::term;

/// Makes an item of any other class come first.
pub const R1: Objective = Objective {
    code: "R1",
    about: "Perturbs a query until any item of another class comes first, by every search there is.",
    terms: &[term::R1],
    measure: Measure::Hit,
    reach: |_| Reach::Chance,
    targets: ltm::LTM.targets,
    loss: |gallery, form, trial| margin(gallery, form, trial, None),
    members: ensemble::RECALL,
    strong_only: true,
    ..USUAL
};

/// A loss is below 0 only where the other class is nearer by this share of the distance, so that rounding doesn't decide.
const CLEARLY: f32 = 1e-6;

/// min over another class of d − min over the query's class of d. Below 0 the query is lost. With `class` (a label) only
/// items of that class count as another class: the loss of a targeted attack.
pub fn margin<'a>(gallery: &'a Gallery, _: Form, trial: &Trial, class: Option<usize>) -> Loss<'a> {
    let own: Vec<usize> = gallery.positives(trial.query).collect();
    let left_out = gallery.left_out(trial.query, true);
    let mine = gallery.labels[trial.query];
    let wanted = |&i: &usize| match class {
        Some(class) => gallery.labels[i] == class,
        None => gallery.labels[i] != mine,
    };
    let others: Vec<usize> = (0..gallery.len()).filter(wanted).filter(|i| !left_out.contains(i)).collect();
    Loss::Gallery(Box::new(move |d, weights| {
        let nearest = |of: &[usize]| of.iter().copied().min_by(|&a, &b| d[a].total_cmp(&d[b]));
        let (Some(near), Some(other)) = (nearest(&own), nearest(&others)) else { return 0.0 };
        weights[other] = 1.0;
        weights[near] = -1.0;
        f64::from(d[other]) * f64::from(1.0 + CLEARLY) - f64::from(d[near])
    }))
}

/// The labels of the `count` other classes whose nearest item is nearest to the query, nearest first.
pub fn nearest_classes(gallery: &Gallery, query: usize, count: usize) -> Vec<usize> {
    let d = gallery.distances(gallery.point(query));
    let mine = gallery.labels[query];
    let left_out = gallery.left_out(query, true);
    let mut order: Vec<usize> = (0..gallery.len()).filter(|i| gallery.labels[*i] != mine).collect();
    order.retain(|i| !left_out.contains(i));
    order.sort_unstable_by(|&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
    let mut seen = std::collections::HashSet::new();
    order.into_iter().map(|i| gallery.labels[i]).filter(|label| seen.insert(*label)).take(count).collect()
}

//! MIN and TMIN: the smallest perturbation that makes a query wrong, or makes it find a named class
//! (equations 5 and 6 of Panum et al., arXiv:2102.07265). Only searches for the smallest perturbation run
//! them ([`crate::Search::smallest`]).

use super::{Loss, Objective, Query, Reach, Targets, Trial, ltm, measure, nearest_of, nn, r1, usual};
use audit_gallery::space::Gallery;
use audit_report::facts;

/// min ‖δ‖ such that the nearest image of the query with δ has another class. The loss is the margin of R1,
/// which is below 0 exactly then. Queries that are wrong without δ are left alone; their norm is 0.
pub const MIN: Objective = Objective {
    reach: |_| Reach::Chance,
    targets: |query, _| Ok(nn::nearest(query).map_or_else(Targets::Skip, Targets::Chosen)),
    loss: |context, form, trial| match trial.targets.is_empty() {
        true => Loss::Still,
        false => r1::margin(context, form, trial, None),
    },
    members: r1::RECALL,
    ..usual(&facts::MIN)
};

/// min ‖δ‖ such that the nearest image of the query with δ has the class t that the attacker names. t is the
/// class of the target, an image of neither the query's class nor the class that the clean query finds.
pub const TARGETED: Objective = Objective {
    facts: &facts::TARGETED_MIN,
    measure: &measure::TARGET_CLASS,
    // Nearly any image of the class does.
    reach: |_| Reach::Share(5.0),
    targets: |query, draw| {
        Ok(other_classes(query).map_or_else(Targets::Skip, |items| Targets::drawn(draw, &items, 1)))
    },
    loss: |context, _, trial| nearer(&context.gallery, trial),
    correct: |gallery, trial| ranked(gallery, trial.query, |i| !has_named_class(gallery, trial, i)),
    ..usual(&facts::TARGETED_MIN)
};

/// Whether an image has the class that the attacker names.
fn has_named_class(gallery: &Gallery, trial: &Trial, item: usize) -> bool {
    trial.targets.first().is_some_and(|&target| gallery.labels[target] == gallery.labels[item])
}

/// The images that a query ranks and for which `of` is true.
fn ranked(gallery: &Gallery, query: usize, of: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..gallery.len()).filter(|&i| !gallery.excluded(query, i) && of(i)).collect()
}

/// The images whose class may be named. The error is the reason why there is none.
fn other_classes(query: &Query) -> Result<Vec<usize>, &'static str> {
    ltm::classes(query)?;
    let (gallery, own) = (&query.context.gallery, query.index);
    let nearest = gallery.nearest(&query.distances(), 1, |i| !gallery.excluded(own, i));
    let known =
        |i: usize| nearest.iter().chain([&own]).any(|&other| gallery.labels[other] == gallery.labels[i]);
    match ranked(gallery, own, |i| !known(i)) {
        items if items.is_empty() => Err("every image has its class or the class that it finds"),
        items => Ok(items),
    }
}

/// Σ of the difference of the two distances, over the images of other classes that are nearer than the
/// nearest image of t. If there are none, a negative value: the difference to the nearest of the others. The
/// largest difference alone would let a search swing between two images in its way.
fn nearer<'a>(gallery: &'a Gallery, trial: &Trial) -> Loss<'a> {
    let of_class = ranked(gallery, trial.query, |i| has_named_class(gallery, trial, i));
    let others = (trial.objective.correct)(gallery, trial);
    Loss::Gallery(Box::new(move |d, weights| {
        let (Some(target), Some(other)) = (nearest_of(d, &of_class), nearest_of(d, &others)) else {
            return 0.0;
        };
        let far = f64::from(d[target]) + gallery.rounding(target, f64::from(d[target]));
        let mut sum = 0.0;
        for &i in others.iter().filter(|&&i| i == other || f64::from(d[i]) <= far) {
            weights[i] = -1.0;
            weights[target] += 1.0;
            sum += far - f64::from(d[i]);
        }
        sum
    }))
}

//! Distances to images: cosine similarity with a target, and whether a system accepts the perturbed image
//! because the nearest of some images is at most the context's threshold away.

use super::USUAL;
use crate::trial::{At, Measure};
use audit_gallery::space::{Angle, Gallery, wide};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Cosine similarity with the target.
pub const COSINE: Measure = Measure {
    facts: &measures::COSINE,
    measured: |at, _| {
        let cosine = |&t: &usize| Angle::between(at.z, &wide(at.context.gallery.point(t))).cosine;
        Measures { cosine: at.trial.targets.first().map(cosine), ..Measures::default() }
    },
    ..USUAL
};

/// Against one image, the trial's target.
pub const REFERENCE: Measure =
    Measure { facts: &measures::REFERENCE, measured: |at, _| accepted(at, &at.trial.targets), ..USUAL };

/// Against every other image of its class.
pub const DUPLICATES: Measure = Measure {
    facts: &measures::DUPLICATES,
    measured: |at, _| accepted(at, &duplicates(&at.context.gallery, at.trial.query)),
    ..REFERENCE
};

/// Against every image of another class.
pub const OTHERS: Measure = Measure {
    facts: &measures::OTHERS,
    measured: |at, _| accepted(at, &others(&at.context.gallery, at.trial.query, None)),
    ..REFERENCE
};

/// The other images of the query's class.
pub fn duplicates(gallery: &Gallery, query: usize) -> Vec<usize> {
    gallery.positives(query).collect()
}

/// The images of other classes that the query may rank. With `class` (a label) only images of that class.
pub fn others(gallery: &Gallery, query: usize, class: Option<usize>) -> Vec<usize> {
    let labels = &gallery.labels;
    let counts = |&i: &usize| class.map_or(labels[i] != labels[query], |class| labels[i] == class);
    (0..gallery.len()).filter(counts).filter(|&i| !gallery.excluded(query, i)).collect()
}

fn accepted(at: &At, items: &[usize]) -> Measures {
    let gallery = &at.context.gallery;
    let d = items.iter().map(|&i| gallery.metric.distance(at.z, gallery.point(i)));
    let distance = d.min_by(f64::total_cmp);
    Measures { distance, accepted: distance.map(|d| d <= at.context.threshold), ..Measures::default() }
}

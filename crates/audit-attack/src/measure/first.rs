//! Whether a correct image comes first (R@1, top-1), and whether the best match stays among the first.

use super::marks;
use crate::trial::{At, Measure};
use audit_gallery::space::ranks::{Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Whether the nearest image has the query's class.
pub const HIT: Measure = Measure {
    facts: &measures::HIT,
    asks: |at| {
        let labels = &at.context.gallery.labels;
        let (class, left_out) = (labels[at.trial.query], at.without_own_image());
        let same = (0..at.context.gallery.len()).filter(|i| labels[*i] == class && !left_out.contains(i));
        rank_of_nearest(at, same.collect(), left_out)
    },
    measured: |_, ranks| Measures { hit: ranks.first().map(|&rank| rank == 0), ..Measures::default() },
};

/// Whether the nearest image is correct by the objective's definition: one of the targets.
pub const TOP1: Measure = Measure {
    facts: &measures::TOP1,
    asks: |at| {
        let gallery = &at.context.gallery;
        let correct = (at.trial.objective.correct)(gallery, at.trial);
        rank_of_nearest(at, correct, gallery.left_out(at.trial.query, true))
    },
    ..HIT
};

/// [`TOP1`] with all images of other classes than the target's as the correct images.
pub const TARGET_CLASS: Measure = Measure { facts: &measures::TARGET_CLASS, ..TOP1 };

/// The question for the rank of the nearest of some images; none if there are no images. At rank 0 no other
/// image is nearer.
fn rank_of_nearest<'a>(at: &At<'a>, items: Vec<usize>, left_out: Vec<usize>) -> Vec<Ask<'a>> {
    let gallery = &at.context.gallery;
    let items = items.into_iter().map(|i| (gallery.metric.distance(at.z, gallery.point(i)), i));
    let nearest = items.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    nearest.map(|(_, i)| Ask { z: at.z, marks: vec![Mark::Image(i)], left_out }).into_iter().collect()
}

/// The best match is kept while it is among this many nearest images.
pub const TOP: usize = 4;

/// Whether the target is among the nearest [`TOP`].
pub const RETAINED: Measure = Measure {
    facts: &measures::RETAINED,
    asks: |at| {
        let target = marks(at.trial.targets.first());
        vec![Ask { z: at.z, marks: target, left_out: at.without_own_image() }]
    },
    measured: |at, ranks| {
        let ranked = |t: usize| t != at.own_image && !at.context.gallery.same_view(at.trial.query, t);
        let found = at.trial.targets.first().zip(ranks.first());
        Measures { retained: found.map(|(&t, &rank)| rank < TOP && ranked(t)), ..Measures::default() }
    },
};

//! R@1.

use crate::trial::{At, Measure};
use audit_gallery::space::ranks::{Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Whether the nearest item has the query's class.
pub const HIT: Measure = Measure {
    facts: &measures::HIT,
    asks: |at| nearest_of_class(at).into_iter().collect(),
    measured: |_, ranks| Measures { hit: ranks.first().map(|&rank| rank == 0), ..Measures::default() },
};

/// The question for the rank of the nearest item of the class. At rank 0 no item of another class is nearer.
fn nearest_of_class<'a>(at: &At<'a>) -> Option<Ask<'a>> {
    let At { context, trial, z, .. } = *at;
    let gallery = &context.gallery;
    let far = |i: usize| gallery.metric.distance(z, gallery.point(i));
    let class = gallery.labels[trial.query];
    let left_out = at.without_own_item();
    let found = (0..gallery.len()).filter(|i| gallery.labels[*i] == class && !left_out.contains(i));
    let positives = found.map(|i| (far(i), i));
    let nearest = positives.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    nearest.map(|(_, i)| Ask { z, marks: vec![Mark::Item(i)], left_out })
}

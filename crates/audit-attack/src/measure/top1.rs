//! Top-1, with other correct items than those of the query's class.

use crate::trial::Measure;
use audit_gallery::space::ranks::{Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Whether the nearest item is correct by the objective's definition: one of the targets.
pub const TOP1: Measure = Measure {
    facts: &measures::TOP1,
    asks: |at| {
        let gallery = &at.context.gallery;
        let left_out = gallery.left_out(at.trial.query, true);
        let right = (at.trial.objective.right)(gallery, at.trial);
        let right = right.into_iter().map(|i| (gallery.metric.distance(at.z, gallery.point(i)), i));
        let nearest = right.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        nearest.map(|(_, i)| Ask { z: at.z, marks: vec![Mark::Item(i)], left_out }).into_iter().collect()
    },
    measured: |_, ranks| Measures { hit: ranks.first().map(|&rank| rank == 0), ..Measures::default() },
};

/// [`TOP1`] with all items of other classes than the target's as the correct items.
pub const TARGET_CLASS: Measure = Measure { facts: &measures::TARGET_CLASS, ..TOP1 };

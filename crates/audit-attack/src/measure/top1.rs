//! Top-1.

use crate::trial::Measure;
use audit_gallery::space::ranks::{Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Whether the nearest item is one of the targets.
pub const TOP1: Measure = Measure {
    facts: &measures::TOP1,
    asks: |at| {
        let gallery = &at.context.gallery;
        let left_out = gallery.left_out(at.trial.query, true);
        let targets = at.trial.targets.iter().map(|&i| (gallery.metric.distance(at.z, gallery.point(i)), i));
        let nearest = targets.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        nearest.map(|(_, i)| Ask { z: at.z, marks: vec![Mark::Item(i)], left_out }).into_iter().collect()
    },
    measured: |_, ranks| Measures { hit: ranks.first().map(|&rank| rank == 0), ..Measures::default() },
};

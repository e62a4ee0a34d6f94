//! Whether the best match stays at the top.

use super::marks;
use crate::trial::Measure;
use audit_gallery::space::ranks::Ask;
use audit_report::facts::measures;
use audit_report::record::Measures;

/// The best match is kept while it is among this many nearest items.
pub const TOP: usize = 4;

/// Whether the target is among the nearest [`TOP`].
pub const RETAINED: Measure = Measure {
    facts: &measures::RETAINED,
    asks: |at| {
        let target = marks(at.trial.targets.first());
        vec![Ask { z: at.z, marks: target, left_out: at.without_own_item() }]
    },
    measured: |at, ranks| {
        let ranked = |t: usize| t != at.own_item && !at.context.gallery.same_view(at.trial.query, t);
        let found = at.trial.targets.first().zip(ranks.first());
        Measures { retained: found.map(|(&t, &rank)| rank < TOP && ranked(t)), ..Measures::default() }
    },
};

//! ES: embedding shift. The query's embedding moves away from its clean position.

use super::{Loss, Objective, Reach, usual};
use audit_gallery::space::wide;
use audit_report::facts;

/// Maximises the distance from the clean embedding.
pub const ES: Objective = Objective {
    reach: |_| Reach::Chance,
    // −d(q̃, e0). At the clean image the distance is 0 and has no gradient, so the first step maximises the
    // distance from e0 + 1e-7. In that step e0 is z itself and not the embedding of an earlier call: the
    // rounding difference between two calls could be larger than 1e-7.
    loss: |context, form, trial| {
        let gallery = &context.gallery;
        let (metric, clean) = (gallery.metric, wide(gallery.point(trial.query)));
        Loss::Point(Box::new(move |z, first, gradient| {
            let anchor: Vec<f64>;
            let from = if first {
                anchor = z.iter().map(|&v| f64::from(v) + 1e-7).collect();
                &anchor
            } else {
                &clean
            };
            -metric.pair(z, from, form.offset(), gradient, |_| -1.0)
        }))
    },
    ..usual(&facts::ES)
};

//! TMA: targeted mismatch (Tolias et al., ICCV 2019, global descriptor loss). The query takes on the
//! embedding of another image.

use super::{Loss, Objective, Reach, measure, usual};
use audit_gallery::space::{Angle, wide};
use audit_report::facts;

/// Maximises the cosine similarity with a random image.
pub const TMA: Objective = Objective {
    measure: &measure::COSINE,
    reach: |_| Reach::Almost(10.0),
    targets: |query, draw| Ok(query.any_targets(1, draw)),
    // 1 − cos(q̃, t), under every metric
    loss: |context, _, trial| {
        let gallery = &context.gallery;
        let target = trial.targets.first().map_or_else(Vec::new, |&t| wide(gallery.point(t)));
        Loss::Point(Box::new(move |z, _, gradient| {
            let angle = Angle::between(z, &target);
            angle.add_gradient(z, &target, gradient, -1.0);
            1.0 - angle.cosine
        }))
    },
    ..usual(&facts::TMA)
};

//! TMA: targeted mismatch (Tolias et al., ICCV 2019, global descriptor loss). The query takes on the embedding of
//! another item.

use super::{Drawn, Loss, Objective, Reach, USUAL, measure};
use crate::space::{Angle, wide};
use crate::threat::term;

/// Maximises the cosine similarity with a random item.
pub const TMA: Objective = Objective {
    code: "TMA",
    about: "Perturbs a query until its embedding points where a random item's does.",
    terms: &[term::TMA],
    measure: &measure::COSINE,
    reach: |_| Reach::Almost(10.0),
    drawn: Drawn::Anywhere,
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
    ..USUAL
};

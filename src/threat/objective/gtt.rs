//! GTT: greedy top-1 translocation. The query's best match leaves the top of its ranking.

use super::{Attack, Goal, Loss, Measure, Targets, Trial, qa};
use crate::space::Gallery;

/// QA− on the nearest item, judged by whether that stays among the first 4.
pub const GTT: Attack = Attack {
    code: "GTT",
    about: "Perturbs a query until its best match is no longer among the first 4.",
    measure: Measure::Retained,
    drawn: false,
    several: None,
    targets: |query, _| {
        let ranked = |i: usize| !query.gallery.excluded(query.index, i);
        let nearest = query.gallery.nearest(&query.distances(), 1, ranked);
        Ok(if nearest.is_empty() { Targets::Skip("no item to rank") } else { Targets::Chosen(nearest) })
    },
    loss,
};

fn loss<'a>(gallery: &'a Gallery, form: super::Form, trial: &Trial) -> Loss<'a> {
    qa::loss(gallery, form, trial, Goal::Last)
}

//! GTT: greedy top-1 translocation. The query's best match leaves the top of its ranking.

use super::{Aim, Drawn, Loss, Measure, Objective, Reach, Targets, Trial, qa};
use crate::space::Gallery;
use crate::threat::term;

/// QA− on the nearest item. The measure is whether that item stays among the first 4.
pub const GTT: Objective = Objective {
    code: "GTT",
    about: "Perturbs a query until its best match is no longer among the first 4.",
    terms: &[term::GTT],
    measure: Measure::Retained,
    reach: |_| Reach::Share(5.0),
    drawn: Drawn::No,
    several: None,
    targets: |query, _| {
        let ranked = |i: usize| !query.gallery.excluded(query.index, i);
        let nearest = query.gallery.nearest(&query.distances(), 1, ranked);
        Ok(if nearest.is_empty() { Targets::Skip("no item to rank") } else { Targets::Chosen(nearest) })
    },
    loss,
};

fn loss<'a>(gallery: &'a Gallery, form: super::Form, trial: &Trial) -> Loss<'a> {
    qa::loss(gallery, form, trial, Aim::Last)
}

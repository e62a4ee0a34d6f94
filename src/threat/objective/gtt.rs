//! GTT: greedy top-1 translocation. The query's best match leaves the top of its ranking.

use super::{Aim, Loss, Measure, Objective, Reach, Targets, Trial, USUAL, qa};
use crate::space::Gallery;
use crate::threat::term;

/// The best match is kept while it is among so many.
pub const TOP: usize = 4;

/// QA− on the nearest item. The measure is whether that item stays among the first 4.
pub const GTT: Objective = Objective {
    code: "GTT",
    about: "Perturbs a query until its best match is no longer among the first 4.",
    terms: &[term::GTT],
    measure: Measure::Retained,
    reach: |_| Reach::Share(5.0),
    targets: |query, _| {
        let d = query.distances();
        let own = query.own_item(&d);
        let ranked = |i: usize| i != own && !query.gallery.same_view(query.index, i);
        let nearest = query.gallery.nearest(&d, 1, ranked);
        let others = (0..query.gallery.len()).filter(|&i| ranked(i)).take(TOP + 1).count();
        Ok(match others {
            0 => Targets::Skip("no item to rank"),
            _ if others <= TOP => {
                Targets::Skip("at most 4 items can be ranked, so that none can leave the first 4")
            }
            _ => Targets::Chosen(nearest),
        })
    },
    loss,
    ..USUAL
};

fn loss<'a>(gallery: &'a Gallery, form: super::Form, trial: &Trial) -> Loss<'a> {
    qa::loss(gallery, form, trial, Aim::Last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Form, Metric};
    use crate::threat::{Draw, Query};
    use ndarray::Array2;

    /// Among 5 items a query ranks 4: whatever is done to it, its best match stays among them. Among 6 it may leave.
    #[test]
    fn what_cannot_be_lost_is_no_trial() {
        for (items, attacked) in [(2, false), (5, false), (6, true)] {
            let points = Array2::from_shape_fn((items, 1), |(i, _)| i as f32);
            let ids = (0..items).map(|i| i.to_string()).collect();
            let gallery = Gallery::new(Metric::Euclidean, points, vec![0; items], ids).unwrap();
            let query = Query { gallery: &gallery, index: 0, count: 1, form: Form::Corrected };
            let found = (GTT.targets)(&query, &mut Draw::new(0, "GTT", "0", 0)).unwrap();
            assert_eq!(matches!(found, Targets::Chosen(_)), attacked, "{items} items");
        }
    }
}

//! The images that SPQA and SPFOA keep at the top of the query's ranking, so that the list still looks right.

use super::marks;
use crate::trial::AttackContext;
use crate::trial::{At, Drawn, Query, Trial};
use audit_gallery::space::ranks::Ask;
use audit_report::record::Form;

/// The number of kept images.
pub const KEPT: usize = 5;

/// The images G that must stay at the top, at most [`KEPT`] of them, nearest first. If targets are drawn from
/// all images: the images nearest to the clean query. If they are drawn from the nearest 1 %: the others of
/// that 1 %, of which there may be fewer.
pub fn items(context: &AttackContext, trial: &Trial) -> Vec<usize> {
    let mut near = match trial.objective.drawn {
        Drawn::FromNeighbours => {
            let query = Query { context, index: trial.query, count: 0, form: Form::Corrected };
            let mut near = query.top_percent();
            near.retain(|item| !trial.targets.contains(item));
            near
        }
        Drawn::Anywhere | Drawn::No => {
            let gallery = &context.gallery;
            let d = gallery.distances(gallery.point(trial.query));
            gallery.nearest(&d, KEPT, |i| !gallery.excluded(trial.query, i))
        }
    };
    near.truncate(KEPT);
    near
}

/// The question for their ranks.
pub(super) fn ask<'a>(at: &At<'a>) -> Ask<'a> {
    Ask { z: at.z, marks: marks(&items(at.context, at.trial)), left_out: at.left_out() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objective;
    use audit_gallery::space::Gallery;
    use audit_report::record::Metric;
    use ndarray::Array2;

    /// A query at 0 and 1,000 images at 0.01, 0.02, … on a line: the gallery's nearest 1 % are images 1 to
    /// 10.
    #[test]
    fn kept_are_the_nearest_or_what_is_left_of_the_nearest_percent() {
        let points = Array2::from_shape_fn((1001, 1), |(i, _)| i as f32 / 100.0);
        let ids = (0..1001).map(|i| i.to_string()).collect();
        let context = Gallery::new(Metric::Euclidean, points, vec![0; 1001], ids).unwrap().into();
        let of = |code: &str, targets: &[usize]| {
            let objective = Objective::find(code).unwrap();
            items(&context, &Trial { objective, query: 0, targets: targets.to_vec() })
        };
        assert_eq!(of("SPQA+", &[700]), [1, 2, 3, 4, 5]);
        assert_eq!(of("SPQA-", &[2, 4]), [1, 3, 5, 6, 7]);
        assert_eq!(of("SPQA-", &[1, 2, 3, 4, 5, 6, 7]), [8, 9, 10]);
    }
}

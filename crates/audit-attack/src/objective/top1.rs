//! TOP1: the nearest image itself, for images without classes. The correct images of a query are those that
//! the model finds without an attack.

use super::r1::{R1, margin};
use super::{Objective, Query, Targets};
use crate::measure;
use audit_gallery::space::{Gallery, cosine};
use audit_report::facts;

/// Makes any image come first that is neither the nearest image of the clean query nor a near copy of it. The
/// nearest image and its near copies are the targets.
pub const TOP1: Objective = Objective {
    facts: &facts::TOP1,
    measure: &measure::TOP1,
    targets: |query, _| Ok(nearest_with_copies(query).map_or_else(Targets::Skip, Targets::Chosen)),
    loss: |context, form, trial| margin(context, form, trial, None),
    correct: |_, trial| trial.targets.clone(),
    ..R1
};

/// Cosine similarity from which two images count as near copies, such as one photograph saved twice.
pub const NEAR_COPY: f64 = 0.999;

/// The nearest image of the clean query, and the near copies of that image, ascending. The error is the
/// reason why the query can't be attacked.
fn nearest_with_copies(query: &Query) -> Result<Vec<usize>, &'static str> {
    let (gallery, own) = (&query.context.gallery, query.index);
    let ranked = |i: usize| !gallery.excluded(own, i);
    let first = gallery.nearest(&query.distances(), 1, ranked);
    let &nearest = first.first().ok_or("the gallery has no other image")?;
    let mut correct = near_copies(gallery, nearest);
    correct.retain(|&i| ranked(i));
    match (0..gallery.len()).filter(|&i| ranked(i)).count() == correct.len() {
        true => Err("all images that it could find are near copies of one another"),
        false => Ok(correct),
    }
}

/// An image and its near copies in the gallery, ascending.
pub fn near_copies(gallery: &Gallery, item: usize) -> Vec<usize> {
    let same = |&i: &usize| i == item || cosine(gallery.point(item), gallery.point(i)) >= NEAR_COPY;
    (0..gallery.len()).filter(same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::select;
    use crate::trial::AttackContext;
    use audit_report::record::{Form, Metric};
    use ndarray::Array2;

    /// Directions in the plane, in degrees; each image is a class of its own.
    fn context(degrees: &[f64]) -> AttackContext {
        let n = degrees.len();
        let at = |(i, k): (usize, usize)| {
            let angle = degrees[i].to_radians();
            (if k == 0 { angle.cos() } else { angle.sin() }) as f32
        };
        let ids = (0..n).map(|i| i.to_string()).collect();
        let points = Array2::from_shape_fn((n, 2), at);
        Gallery::new(Metric::NormalizedEuclidean, points, (0..n).collect(), ids).unwrap().into()
    }

    /// By hand: the cosine of 2.5° is 0.99905, and of 2.6° 0.99897.
    #[test]
    fn the_targets_are_the_nearest_image_and_its_near_copies() {
        let chosen = |degrees: &[f64]| {
            let found = select(&context(degrees), &TOP1, 1, Form::Corrected, 0, &[0]).unwrap();
            found.trials.first().map(|trial| trial.targets.clone())
        };
        assert_eq!(chosen(&[0.0, 30.0, 10.0, 12.5, 12.6, -11.0]), Some(vec![2, 3]));
        // The nearest image is a near copy of the query, not the query itself.
        assert_eq!(chosen(&[0.0, 0.5, 30.0]), Some(vec![1]));
        assert_eq!(chosen(&[0.0, 10.0, 11.0]), None);
        let skipped =
            select(&context(&[0.0, 10.0, 11.0]), &TOP1, 1, Form::Corrected, 0, &[0]).unwrap().skipped;
        assert!(skipped[0].why.contains("near copies"));
    }

    /// By hand: the nearest image of the query at 0° is at 10°, with a near copy at 12°; another image is 12°
    /// away from the query.
    #[test]
    fn the_margin_is_below_0_where_another_image_is_nearest() {
        let context = context(&[0.0, 10.0, 12.0, -12.0]);
        let trial = select(&context, &TOP1, 1, Form::Corrected, 0, &[0]).unwrap().trials.remove(0);
        let at = |degrees: f64| {
            let z = [degrees.to_radians().cos() as f32, degrees.to_radians().sin() as f32];
            let Loss::Gallery(loss) = (TOP1.loss)(&context, Form::Corrected, &trial) else { panic!() };
            let d: Vec<f32> = context.gallery.distances(&z).into_iter().map(|d| d as f32).collect();
            let found = measure::measure(&context, Form::Corrected, &trial, &z);
            (loss(&d, &mut [0.0; 4]) < 0.0, found.hit)
        };
        assert_eq!(at(0.0), (false, Some(true)));
        assert_eq!(at(11.5), (false, Some(true)));
        assert_eq!(at(-1.5), (true, Some(false)));
    }
}

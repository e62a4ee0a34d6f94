//! Foreign targets (`--targets`): embeddings of something other than the images, such as texts, if the model
//! is the image encoder of a pair. TMA and QA± aim queries at them, and QA± ranks them among themselves. A
//! hub's queries are foreign targets.

use super::{Loss, Query};
use audit_gallery::space::Gallery;

/// The 1 % of the foreign targets nearest to the query, rounded down (at least 1), nearest first; `None` if
/// there are no foreign targets.
pub fn near(query: &Query) -> Option<Vec<usize>> {
    let gallery = &query.context.gallery;
    let (foreign, start) = (gallery.foreign()?, gallery.targets().start);
    let d = foreign.distances(gallery.point(query.index));
    let near = foreign.nearest(&d, (foreign.len() / 100).max(1), |_| true);
    Some(near.into_iter().map(|i| start + i).collect())
}

/// A function of the distances to all foreign targets, and its gradient, as a loss.
pub fn loss<'a>(foreign: &'a Gallery, of: impl Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + 'a) -> Loss<'a> {
    Loss::Point(Box::new(move |z, _, gradient| {
        let (mut d, mut weights, mut room) = (vec![0.0; foreign.len()], vec![0.0; foreign.len()], Vec::new());
        foreign.distances_batch(z, &mut d, &mut room);
        if d.iter().any(|d| !d.is_finite()) {
            return f64::NAN;
        }
        let found = of(&d, &mut weights);
        foreign.gradient_batch(z, &d, &mut weights, gradient, &mut room);
        found
    }))
}

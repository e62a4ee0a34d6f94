//! Foreign targets (`--targets`): embeddings of something else than the images, such as texts of a model of which the image encoder is at
//! hand. TMA and QA± aim queries at them, and QA± ranks them among themselves. A hub's queries are foreign targets.

use super::{Loss, Query, Trial};
use crate::space::Gallery;
use crate::space::ranks::{Ask, Mark};

/// The gallery of foreign targets, and which of its items the trial aims at; `None` where it aims at images.
pub fn ranking<'a>(gallery: &'a Gallery, trial: &Trial) -> Option<(&'a Gallery, Vec<usize>)> {
    let (foreign, all) = (gallery.foreign()?, gallery.targets());
    let at = trial.targets.iter().map(|t| all.contains(t).then(|| t - all.start));
    at.collect::<Option<Vec<usize>>>().filter(|at| !at.is_empty()).map(|at| (foreign, at))
}

/// The 1 % of the foreign targets nearest to the query, rounded down (at least 1), nearest first; `None` where there are none.
pub fn near(query: &Query) -> Option<Vec<usize>> {
    let (foreign, start) = (query.gallery.foreign()?, query.gallery.targets().start);
    let d = foreign.distances(query.gallery.point(query.index));
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

/// The question for the ranks of the trial's targets among all foreign targets, for a query at `z` [D], and their gallery. `None` where
/// it aims at images.
pub fn ask<'a>(gallery: &'a Gallery, trial: &Trial, z: &'a [f32]) -> Option<(&'a Gallery, Ask<'a>)> {
    let (foreign, at) = ranking(gallery, trial)?;
    let marks = at.into_iter().map(Mark::Item).collect();
    Some((foreign, Ask { z, marks, left_out: Vec::new() }))
}

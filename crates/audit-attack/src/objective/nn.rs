//! Attacks of Panum et al., "Adversarial Deep Metric Learning" (arXiv:2102.07265). A query whose nearest
//! image has its class is pushed away from that image. Queries whose nearest image has another class are left
//! alone, and count as failures.

use super::{Loss, Objective, Query, Reach, Targets, Trial, ltm, usual};
use audit_gallery::space::{Gallery, wide};
use audit_report::facts;

/// Algorithm 1: maximises d(q̃, x_j), where x_j is the nearest image, if it has the query's class.
pub const NN: Objective = Objective {
    // Another image of the query's class may then be the nearest.
    reach: |_| Reach::Unknown,
    targets: |query, _| Ok(nearest(query).map_or_else(Targets::Skip, Targets::Chosen)),
    loss: |context, _, trial| push(&context.gallery, trial),
    ..usual(&facts::NN)
};

/// Equation 14 with the query as the point that moves, the "anchor" of appendix F: maximises d(q̃, x_j) −
/// d(q̃, x_k), where x_j is as in [`NN`], and x_k is the nearest image of another class.
pub const ANCHOR: Objective = Objective {
    facts: &facts::ANCHOR,
    targets: |query, _| {
        let nearest = match nearest(query) {
            Ok(nearest) => nearest,
            Err(why) => return Ok(Targets::Skip(why)),
        };
        let (labels, own) = (&query.context.gallery.labels, query.index);
        let other = query.context.gallery.nearest(&query.distances(), 1, |i| labels[i] != labels[own]);
        Ok(Targets::Chosen(if nearest.is_empty() { nearest } else { [nearest, other].concat() }))
    },
    ..NN
};

/// The nearest image, if it has the query's class; otherwise empty. The error says why the query has no R@1.
pub(super) fn nearest(query: &Query) -> Result<Vec<usize>, &'static str> {
    ltm::classes(query)?;
    let (gallery, own) = (&query.context.gallery, query.index);
    let mut nearest = gallery.nearest(&query.distances(), 1, |i| !gallery.excluded(own, i));
    nearest.retain(|&i| gallery.labels[i] == gallery.labels[own]);
    Ok(nearest)
}

/// The sum of −d(q̃, x) over targets x of the query's class and d(q̃, x) over targets of another class.
fn push<'a>(gallery: &'a Gallery, trial: &Trial) -> Loss<'a> {
    let class = gallery.labels[trial.query];
    let sign = |&x: &usize| if gallery.labels[x] == class { -1.0f32 } else { 1.0 };
    let targets: Vec<(f32, Vec<f64>)> =
        trial.targets.iter().map(|x| (sign(x), wide(gallery.point(*x)))).collect();
    if targets.is_empty() {
        return Loss::Still;
    }
    let metric = gallery.metric;
    Loss::Point(Box::new(move |z, _, gradient| {
        let term =
            |(sign, x): &(f32, Vec<f64>)| f64::from(*sign) * metric.pair(z, x, 0.0, gradient, |_| *sign);
        targets.iter().map(term).sum()
    }))
}

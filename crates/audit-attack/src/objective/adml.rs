//! Attacks of "Understanding Metric Learning on Unit Hypersphere and Generating Better Examples for
//! Adversarial Training" (ADML), tables 1, 4 and 5. They maximise a training objective at the query.
//! Distances are squared Euclidean distances of embeddings on the unit sphere; under the Euclidean metric,
//! the model's embeddings are used as they are.

use super::{Draw, Loss, Objective, Query, Reach, Targets, Trial, ltm, usual};
use crate::trial::AttackContext;
use audit_base::Result;
use audit_gallery::space::{Angle, Gallery, wide};
use audit_report::facts;
use audit_report::record::Metric;

/// The margin τ of the triplet loss (Roth et al., ICML 2020, whose framework the paper trains with).
const MARGIN: f64 = 0.2;

/// Intra-class alignment (equations 1 and 6): maximises the mean of ‖q̃ − x‖² over the images x of the
/// query's class.
pub const ALIGNMENT: Objective = Objective {
    reach: |_| Reach::Chance,
    targets: ltm::LTM.targets,
    loss: |context, _, trial| {
        let gallery = &context.gallery;
        let own: Vec<usize> = gallery.positives(trial.query).collect();
        let per = 1.0 / own.len().max(1) as f64;
        Loss::Gallery(Box::new(move |d, weights| {
            let mut loss = 0.0;
            for &x in &own {
                let (squared, slope) = squared(gallery.metric, d[x]);
                loss -= per * squared;
                weights[x] = (-per * slope) as f32;
            }
            loss
        }))
    },
    ..usual(&facts::ALIGNMENT)
};

/// Gaussian hyperspherical energy (equations 3 and 7, s = 1): maximises log of the mean of exp(−‖q̃ − x‖²)
/// over the images x of other classes. The logarithm changes the length of the gradient and not its
/// direction.
pub const UNIFORMITY: Objective = Objective {
    facts: &facts::UNIFORMITY,
    // The point nearest to the other classes on the whole may be nearest to an image of the query's class.
    reach: |_| Reach::Unknown,
    loss: |context, _, trial| {
        let gallery = &context.gallery;
        let class = gallery.labels[trial.query];
        let others: Vec<usize> = (0..gallery.len()).filter(|&x| gallery.labels[x] != class).collect();
        Loss::Gallery(Box::new(move |d, weights| {
            let squares: Vec<(f64, f64)> = others.iter().map(|&x| squared(gallery.metric, d[x])).collect();
            // Relative to the nearest image, so that no sum underflows.
            let least = squares.iter().fold(f64::INFINITY, |least, (s, _)| s.min(least));
            let sum: f64 = squares.iter().map(|(s, _)| (least - s).exp()).sum();
            for (&x, (s, slope)) in others.iter().zip(&squares) {
                weights[x] = ((least - s).exp() / sum * slope) as f32;
            }
            least - (sum / others.len().max(1) as f64).ln()
        }))
    },
    ..ALIGNMENT
};

/// Triplet loss (equation 4): maximises the mean of [‖q̃ − p‖² − ‖q̃ − n‖² + τ]₊ over drawn images p of the
/// query's class and n of other classes; one of each, as in the paper, unless the suite sets more. A negative
/// is drawn as in the paper's training: by distance (Wu et al., ICCV 2017), from a batch of 112 with the
/// query and the positive.
pub const TRIPLET: Objective = Objective {
    facts: &facts::TRIPLET,
    // A closed hinge has no gradient.
    reach: |_| Reach::Unknown,
    targets: pairs,
    loss: triplet,
    ..ALIGNMENT
};

/// ‖a − b‖² of two points at distance d, and its derivative by d.
fn squared(metric: Metric, d: f32) -> (f64, f64) {
    let d = f64::from(d);
    match metric {
        // 1 − cos of unit vectors
        Metric::Cosine => (2.0 * d, 2.0),
        _ => (d * d, 2.0 * d),
    }
}

/// Images per batch.
const BATCH: usize = 112;
/// Smaller distances count as this, and images beyond `FARTHEST` have no triplet loss and are not drawn (Wu
/// et al.).
const NEAREST: f64 = 0.5;
const FARTHEST: f64 = 1.4;

/// `count` images of the query's class, uniformly drawn, then as many of other classes.
fn pairs(query: &Query, draw: &mut Draw) -> Result<Targets> {
    if let Err(why) = ltm::classes(query) {
        return Ok(Targets::Skip(why));
    }
    let (gallery, class) = (&query.context.gallery, query.context.gallery.labels[query.index]);
    let own: Vec<usize> = gallery.positives(query.index).collect();
    let others: Vec<usize> = (0..gallery.len()).filter(|&x| gallery.labels[x] != class).collect();
    let mut targets: Vec<usize> = (0..query.count).map(|_| own[draw.index(own.len())]).collect();
    for _ in 0..query.count {
        let batch: Vec<usize> = (2..BATCH).map(|_| others[draw.index(others.len())]).collect();
        let weights = by_distance(gallery, query.index, &batch);
        let mut rest = f64::from(draw.unit()) * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|w| {
            rest -= w;
            rest < 0.0
        });
        // If all are too far, each is as good.
        let place = drawn.unwrap_or_else(|| draw.index(batch.len()));
        targets.push(batch[place]);
    }
    Ok(Targets::Chosen(targets))
}

/// Weights of images as negatives of a query: 1/q(d), where q is the density of distances d between random
/// points of the unit sphere in D dimensions, q(d) ∝ d^(D−2)·(1 − d²/4)^((D−3)/2) (Wu et al., equation 3).
/// The largest weight is 1.
fn by_distance(gallery: &Gallery, query: usize, items: &[usize]) -> Vec<f64> {
    let own = wide(gallery.point(query));
    let dim = gallery.dim() as f64;
    let log = |&x: &usize| {
        let cosine = Angle::between(gallery.point(x), &own).cosine;
        let d = (2.0 - 2.0 * cosine).max(0.0).sqrt();
        let near = d.max(NEAREST);
        let density = (dim - 2.0) * near.ln() + (dim - 3.0) / 2.0 * (1.0 - near * near / 4.0).max(1e-8).ln();
        if d < FARTHEST { -density } else { f64::NEG_INFINITY }
    };
    let logs: Vec<f64> = items.iter().map(log).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logs.into_iter().map(|log| if log.is_finite() { (log - most).exp() } else { 0.0 }).collect()
}

/// The mean of the hinges over all pairs of a target of the query's class and a target of another class.
fn triplet<'a>(context: &'a AttackContext, _: super::Form, trial: &Trial) -> Loss<'a> {
    let gallery = &context.gallery;
    let class = gallery.labels[trial.query];
    let (own, others): (Vec<usize>, Vec<usize>) =
        trial.targets.iter().partition(|&&x| gallery.labels[x] == class);
    let per = 1.0 / (own.len() * others.len()).max(1) as f64;
    Loss::Gallery(Box::new(move |d, weights| {
        let mut loss = 0.0;
        for &p in &own {
            for &n in &others {
                let (near, far) = (squared(gallery.metric, d[p]), squared(gallery.metric, d[n]));
                let hinge = near.0 - far.0 + MARGIN;
                if hinge > 0.0 {
                    loss -= per * hinge;
                    weights[p] -= (per * near.1) as f32;
                    weights[n] += (per * far.1) as f32;
                }
            }
        }
        loss
    }))
}

//! What a hub captures: the queries that rank it among their first. The image is crafted on a sample of
//! queries and measured on others.

use super::USUAL;
use crate::trial::AttackContext;
use crate::trial::{Measure, Trial};
use audit_gallery::space::Gallery;
use audit_gallery::space::heads::Heads;
use audit_gallery::space::sample_of;
use audit_report::facts::measures::{self, FIRST};
use audit_report::record::{Captured, Measures};

/// Which queries rank the perturbed image among their first.
pub const CAPTURED: Measure = Measure {
    facts: &measures::CAPTURED,
    measured: |at, _| Measures { captured: captured(at.context, at.trial, at.z), ..Measures::default() },
    ..USUAL
};

/// Maximum number of queries that held-out queries are drawn from.
const MAX_SAMPLE: usize = 1000;

/// The queries that the sample and the held-out queries are drawn from: the foreign targets if there are any,
/// else the queries of the hub's `class`, or all.
pub fn eligible_queries(gallery: &Gallery, class: Option<usize>) -> Vec<usize> {
    if gallery.foreign().is_some() {
        return gallery.targets().collect();
    }
    let of = |q: &usize| class.is_none_or(|class| gallery.labels[*q] == class);
    gallery.queries().iter().copied().filter(of).collect()
}

/// The first images of the queries that held-out queries are drawn from, the same for every candidate and
/// seed.
pub fn heads(gallery: &Gallery, class: Option<usize>) -> Heads {
    Heads::new(gallery, sample_of(gallery, &eligible_queries(gallery, class), Some(MAX_SAMPLE), 0), FIRST)
}

/// What the candidate of `trial` captures if its point is `z` [D]; `None` if no query is held out.
fn captured(context: &AttackContext, trial: &Trial, z: &[f32]) -> Option<Captured> {
    let AttackContext { gallery, heads: Some(heads), .. } = context else { return None };
    let (mut left_out, mut first) = (Vec::new(), Vec::new());
    for (place, &q) in heads.queries.iter().enumerate() {
        if gallery.excluded(q, trial.query) || trial.targets.contains(&q) {
            left_out.push(place);
        } else if let Some(rank) = heads.rank(gallery, place, z, trial.query) {
            first.push((place, rank));
        }
    }
    // The sample's queries need not be among `heads`.
    let near = Heads::new(gallery, trial.targets.clone(), FIRST);
    let ranks: Vec<usize> =
        (0..near.queries.len()).filter_map(|place| near.rank(gallery, place, z, trial.query)).collect();
    let within = |k: usize| ranks.iter().filter(|rank| **rank < k).count() as f64;
    let sample = [1, FIRST].map(|k| within(k) / trial.targets.len().max(1) as f64);
    let queries = heads.queries.len();
    (left_out.len() < queries).then_some(Captured { sample, queries, left_out, first })
}

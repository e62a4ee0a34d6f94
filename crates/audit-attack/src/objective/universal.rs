//! UAP: a universal adversarial perturbation (Moosavi-Dezfooli et al., CVPR 2017). One perturbation is added
//! to all queries. It is crafted on a sample of queries and measured on others.

use super::{Objective, Query, Reach, Targets, es, usual};
use crate::trial::Shared;
use crate::{Draw, Trial};
use audit_gallery::space::Gallery;
use audit_gallery::space::sample_of;
use audit_report::facts;

/// Moves the embeddings of a sample's queries away from their clean positions, all by one perturbation.
pub const UNIVERSAL: Objective = Objective {
    // There may be no single change that suits all queries.
    reach: |_| Reach::Unknown,
    targets: |query, _| Ok(held_out(query)),
    loss: es::ES.loss,
    shared: Some(&Shared { samples, group, crafting }),
    ..usual(&facts::UNIVERSAL)
};

/// Number of perturbations, each crafted on its own sample.
pub const PERTURBATIONS: usize = 4;
/// Largest sample, in queries. Samples are smaller if there are few queries: together at most half of them.
const SAMPLE: usize = 100;
/// The samples are the same for every seed, and independent of the samples that --max-queries draws.
const SEED: u64 = 0x5541_5000_0000_0000;

/// The samples of queries that perturbations are crafted on: [`PERTURBATIONS`] disjoint lists.
fn samples(gallery: &Gallery) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = gallery.queries().to_vec();
    let each = SAMPLE.min(left.len() / (2 * PERTURBATIONS));
    let mut next = |stream: u64| {
        let some = sample_of(gallery, &left, Some(each), SEED + stream);
        left.retain(|query| !some.contains(query));
        some
    };
    (0..PERTURBATIONS as u64).map(&mut next).collect()
}

/// Upper bound on the images that perturbations are crafted on, for a number of queries.
fn crafting(queries: usize) -> usize {
    PERTURBATIONS * SAMPLE.min(queries)
}

/// The perturbation that a query is measured under: drawn from the seed and the query's id.
fn group(gallery: &Gallery, seed: u64, trial: &Trial) -> usize {
    Draw::new(seed, trial.objective.code, &gallery.ids[trial.query], 0).index(PERTURBATIONS)
}

fn held_out(query: &Query) -> Targets {
    let samples = query.context.samples(&UNIVERSAL);
    match samples.iter().any(|sample| sample.contains(&query.index)) {
        _ if samples.iter().all(Vec::is_empty) => {
            Targets::Skip("there are too few queries to craft on some and hold others out")
        }
        true => Targets::Skip("a perturbation is crafted on it"),
        false => Targets::Chosen(Vec::new()),
    }
}

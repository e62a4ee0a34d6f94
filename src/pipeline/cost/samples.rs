//! Samples of queries, so that ranking, clustering and the strong search beside a suite don't take hours.

use crate::data::Dataset;
use crate::request::{BenignSample, Request, StrongSample};
use crate::threat::Plan;
use crate::threat::objective::r1::R1;

/// Items × classes × dimensions beyond which there is no clustering unless `--nmi` asks for it: an iteration
/// would take seconds, and there are hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// Multiplications that ranking queries may take before a sample of them has to do: half a minute to some
/// minutes.
const MOST_RANKING: f64 = 2e11;
/// Fewest queries of such a sample.
const LEAST_RANKED: usize = 2000;

/// How many of `all` queries are ranked without an attack, if not all are. `each`: multiplications to rank
/// one.
pub fn most_ranked(request: &Request, all: usize, each: f64) -> Option<usize> {
    let most = match request.queries.benign {
        Some(BenignSample::All) => None,
        Some(BenignSample::Most(n)) => Some(n),
        None => {
            (each * all as f64 > MOST_RANKING).then(|| ((MOST_RANKING / each) as usize).max(LEAST_RANKED))
        }
    };
    most.filter(|most| *most < all)
}

/// Iterations of k-means over all restarts, about.
const ITERATIONS: f64 = 100.0;

/// Multiplications that retrieval without an attack takes, about. Without classes none is measured.
pub fn ranking(request: &Request, dataset: &Dataset, dim: usize) -> f64 {
    if dataset.classless {
        return 0.0;
    }
    let (items, classes) = (dataset.items.len(), dataset.classes.len());
    let each = (items * dim) as f64;
    let ranked = most_ranked(request, items, each).unwrap_or(items) as f64;
    let clustering = if clusters(request, each, classes) { each * classes as f64 } else { 0.0 };
    ranked * each + ITERATIONS * clustering
}

/// Whether embeddings of so many numbers in all are clustered for NMI: where that is quick, and where `--nmi`
/// asks for it.
pub fn clusters(request: &Request, numbers: f64, classes: usize) -> bool {
    request.queries.nmi || numbers * classes as f64 <= MOST_CLUSTERING
}

/// Fewest queries that the strong search attacks besides a suite, if there are so many.
const LEAST_SAMPLE: usize = 32;

/// How many queries the strong search attacks at most beside a suite of so much `work`, in image steps;
/// `None` for none.
pub fn strong_most(requested: Option<StrongSample>, work: usize, plan: &Plan) -> Option<usize> {
    match requested {
        Some(StrongSample::Off) => None,
        Some(StrongSample::Most(n)) => Some(n),
        None => Some((work / plan.work(&R1)).max(LEAST_SAMPLE)),
    }
}

//! MIN: the smallest perturbation that makes a query wrong (equation 5 of Panum et al., arXiv:2102.07265). The searches for
//! it are those that look for the smallest one ([`crate::threat::Search::smallest`]).

use super::{Loss, Objective, Reach, Targets, USUAL, nn, r1};
use crate::threat::term;

/// min ‖δ‖ such that the nearest item of the query with δ has another class. The loss is the margin of R1, which is below 0
/// exactly there. Queries that are wrong without δ are left alone; their norm is 0.
pub const MIN: Objective = Objective {
    code: "MIN",
    about: "Looks for the smallest perturbation that makes a query's nearest item one of another class.",
    terms: &[term::MIN],
    reach: |_| Reach::Chance,
    targets: |query, _| Ok(nn::nearest(query).map_or_else(Targets::Skip, Targets::Chosen)),
    loss: |context, form, trial| match trial.targets.is_empty() {
        true => Loss::Still,
        false => r1::margin(context, form, trial, None),
    },
    members: r1::RECALL,
    smallest: true,
    ..USUAL
};

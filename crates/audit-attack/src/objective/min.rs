//! MIN: the smallest perturbation that makes a query wrong (equation 5 of Panum et al., arXiv:2102.07265). The searches for
//! it are those that look for the smallest one ([`crate::Search::smallest`]).

use super::{Loss, Objective, Reach, Targets, nn, r1, usual};
use audit_report::facts;

/// min ‖δ‖ such that the nearest item of the query with δ has another class. The loss is the margin of R1, which is below 0
/// exactly there. Queries that are wrong without δ are left alone; their norm is 0.
pub const MIN: Objective = Objective {
    reach: |_| Reach::Chance,
    targets: |query, _| Ok(nn::nearest(query).map_or_else(Targets::Skip, Targets::Chosen)),
    loss: |context, form, trial| match trial.targets.is_empty() {
        true => Loss::Still,
        false => r1::margin(context, form, trial, None),
    },
    members: r1::RECALL,
    ..usual(&facts::MIN)
};

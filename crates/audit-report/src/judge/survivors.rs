//! The queries that the strong search for R@1 or top-1 attacked, and whether they withstood it.

use crate::facts::is_robust;
use crate::record::Outcome;
use std::collections::BTreeSet;

/// The outcomes of the strong search for R@1 or top-1.
pub fn attacked(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> + Clone {
    outcomes.iter().filter(|o| is_robust(o) && o.after.hit.is_some())
}

/// The queries that the strong search for R@1 or top-1 attacked, each with whether it is correct under every
/// attack of the outcomes. Robust R@1, or robust top-1, is their share. A query that is wrong without an
/// attack counts as wrong.
pub fn survivors(outcomes: &[Outcome]) -> Vec<(&str, bool)> {
    let mut lost: BTreeSet<&str> = BTreeSet::new();
    for o in outcomes.iter().filter(|o| o.after.hit == Some(false) || o.before.hit == Some(false)) {
        lost.insert(&o.query);
    }
    let attacked = attacked(outcomes);
    attacked.map(|o| (o.query.as_str(), !lost.contains(o.query.as_str()))).collect()
}

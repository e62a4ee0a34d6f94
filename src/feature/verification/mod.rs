//! Verification: whether two images show one identity, decided by a threshold of their distance. It is a part
//! of an audit: the steps call this module, which uses none of them.

mod clean;
mod pairs;

pub use clean::{clean, threshold};
pub use pairs::{listed, of_pairs, probes, sampling, strong_sample};

use crate::record::Report;

/// Puts the groups of all `parts` of a run together.
pub fn merge<'r>(whole: &mut Report, parts: impl Iterator<Item = &'r Report>) {
    let Some(found) = &mut whole.verification else { return };
    for (attack, groups) in parts.filter_map(|part| part.verification.as_ref()).flat_map(|of| &of.group_of) {
        found.group_of.entry(attack.clone()).or_default().extend(groups.clone());
    }
}

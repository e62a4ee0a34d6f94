//! Natural corruptions: what queries find when they are noisy, blurred or turned, without an attacker. It is
//! a part of an audit: the steps call this module, which uses none of them.

mod measure;
mod suite;

pub use measure::{Corrupting, images};
pub use suite::{beside_files, listed, refuse_several_models, without_classes};

use crate::corruption::CORRUPTIONS;
use crate::record::{Corrupted, Report};

/// Puts the results of all `parts` of a run together, in the order of one run.
pub fn merge<'r>(whole: &mut Report, parts: impl Iterator<Item = &'r Report>) {
    let place = |c: &Corrupted| CORRUPTIONS.iter().position(|known| known.name == c.corruption);
    whole.corrupted = parts.flat_map(|part| part.corrupted.clone()).collect();
    whole.corrupted.sort_by(|a, b| a.query.cmp(&b.query).then(place(a).cmp(&place(b))));
}

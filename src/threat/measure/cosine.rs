//! Cosine similarity.

use super::USUAL;
use crate::record::Measures;
use crate::space::{Angle, wide};
use crate::threat::trial::Measure;

/// Cosine similarity with the target.
pub const COSINE: Measure = Measure {
    name: "cosine",
    takes_foreign: true,
    measured: |at, _| {
        let cosine = |&t: &usize| Angle::between(at.z, &wide(at.context.gallery.point(t))).cosine;
        Measures { cosine: at.trial.targets.first().map(cosine), ..Measures::default() }
    },
    ..USUAL
};

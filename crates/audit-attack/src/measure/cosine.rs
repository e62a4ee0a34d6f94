//! Cosine similarity.

use super::USUAL;
use crate::trial::Measure;
use audit_gallery::space::{Angle, wide};
use audit_report::facts::measures;
use audit_report::record::Measures;

/// Cosine similarity with the target.
pub const COSINE: Measure = Measure {
    facts: &measures::COSINE,
    measured: |at, _| {
        let cosine = |&t: &usize| Angle::between(at.z, &wide(at.context.gallery.point(t))).cosine;
        Measures { cosine: at.trial.targets.first().map(cosine), ..Measures::default() }
    },
    ..USUAL
};

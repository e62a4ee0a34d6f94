//! CA-TRIDE: candidates and anchors in turn, batch by batch, candidates first.

use super::Defence;
use super::collapse::{ATTACK, Side, train};

pub const DEFENCE: Defence = Defence {
    name: "ca-tride",
    about: "cap and anp in turn, batch by batch",
    losses: &["triplet"],
    sampler: "semihard",
    attack: Some(ATTACK),
    flags: &["lambda", "reading", "top-rank"],
    step: |step| train(step, if step.at.is_multiple_of(2) { Side::Candidates } else { Side::Anchors }),
};

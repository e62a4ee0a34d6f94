//! ANP, anchor perturbation: the other half of CA-TRIDE, alone.

use super::Defence;
use super::collapse::{ATTACK, Side, train};

pub const DEFENCE: Defence = Defence {
    name: "anp",
    about: "anchors moved until collapseness reaches 0",
    losses: &["triplet"],
    sampler: "semihard",
    attack: Some(ATTACK),
    flags: &["lambda", "reading", "top-rank"],
    step: |step| train(step, Side::Anchors),
};

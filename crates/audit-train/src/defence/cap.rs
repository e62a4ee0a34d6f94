//! CAP, candidate perturbation: one half of CA-TRIDE, alone.

use super::Defence;
use super::collapse::{ATTACK, Side, train};

pub const DEFENCE: Defence = Defence {
    name: "cap",
    about: "positives and negatives moved until collapseness reaches 0",
    losses: &["triplet"],
    sampler: "semihard",
    attack: Some(ATTACK),
    flags: &["lambda", "reading", "top-rank"],
    step: |step| train(step, Side::Candidates),
};

//! How images move.

pub mod apgd;

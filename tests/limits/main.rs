//! Time and memory of audits of hard models. A binary of its own, so that no test of another file runs at the
//! same time and changes the measurements.

#[path = "../common/mod.rs"]
mod common;

mod decoding;
mod large;
mod memory;

//! Time and memory that audits of hard models take. A binary of its own, so that no test of another file runs at the same time and
//! changes what is measured.

#[path = "../common/mod.rs"]
mod common;

mod large;
mod memory;

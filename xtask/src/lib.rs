//! The commands that the README names: see `cargo xtask help`. The package `research` uses their parts.

pub mod backend;
pub mod book;
pub mod ci;
pub mod demo;
pub mod engines;
pub mod fuzz;
pub mod libtorch;
pub mod numbers;
pub mod package;
pub mod parity;
pub mod project;
pub mod python;
pub mod reference;
pub mod setup;
pub mod testing;
pub mod train;
#[path = "../../crates/audit-model/src/runtime/version.rs"]
mod version;
pub mod wheel;

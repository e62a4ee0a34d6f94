//! Trainings over methods, seeds and data. [`lab`] runs `audit-train` and `audit` to make and audit the
//! models, [`outcome`] reads their logs and reports, and [`page`] and [`picture`] are pure functions of
//! these.
//!
//! [`plan`] is `cargo research matrix plan.yaml`, for any data. The experiment on Omniglot has its own list
//! of models and its own questions.

pub mod lab;
pub mod outcome;
pub mod page;
pub mod paper;
pub mod picture;
pub mod plan;
pub mod statistics;

use audit::{Error, Result};
use std::fs;
use std::path::Path;

/// A model to make, for every seed.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in tables and files.
    pub name: String,
    /// The curve that it belongs to.
    pub family: String,
    /// Its label on the curve.
    pub point: String,
    /// Whether it is a row of the main table.
    pub main: bool,
    /// Method and flags of audit-train.
    pub words: Vec<String>,
    /// The model of the same seed that it starts from.
    pub from: Option<String>,
}

/// Words of a text; none of them holds a blank.
pub fn split(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(String::from)
}

/// Writes a file. Exit code 1 if that fails.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::internal(format!("can't write {}: {e}", path.display())))
}

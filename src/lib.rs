//! `audit`: adversarial robustness of ONNX image-embedding models.
//!
//! The life of an audit is one function, [`audit::run`]. It calls, in this order: [`suite`] (what to run), [`model`] (load,
//! differentiate with [`grad`] over [`onnx`], run), [`data`] (images), [`check`] (is the gradient right), [`space`] (gallery,
//! distances), [`attack`] (trials, the PGD loop), [`score`], [`gate`], [`report`]. docs/architecture.md says why.

pub mod attack;
pub mod audit;
pub mod check;
pub mod cli;
pub mod columns;
pub mod compare;
pub mod data;
pub mod doctor;
pub mod error;
pub mod examples;
pub mod gate;
pub mod grad;
pub mod identity;
pub mod interrupt;
pub mod model;
pub mod onnx;
pub mod progress;
pub mod report;
pub mod score;
pub mod space;
pub mod suite;

pub use error::{Error, Exit, Result};

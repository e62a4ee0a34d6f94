//! `audit`: adversarial robustness of ONNX image-embedding models.
//!
//! The life of an audit is one function, [`run::run`]. It calls, in this order: [`suite`] (what to run), [`model`] (load,
//! differentiate with [`onnx_grad`], run), [`data`] (images), [`judge::check`] (is the gradient right), [`space`] (gallery,
//! distances), [`threat`] (objectives, balls, searches), [`judge`] (scores, gates), [`report`]. docs/architecture.md says why.

pub mod choice;
pub mod columns;
pub mod command;
pub mod corruption;
pub mod data;
pub mod engines;
pub mod error;
pub mod files;
pub mod guard;
pub mod interrupt;
pub mod judge;
pub mod model;
pub mod name_index;
pub mod operators;
pub mod parallel;
pub mod progress;
pub mod random;
pub mod record;
pub mod report;
pub mod request;
pub mod run;
pub mod space;
pub mod suite;
pub mod threat;
pub mod yaml;

pub use error::{Error, Exit, Result};
pub use request::Request;
pub use run::run;

//! `audit`: adversarial robustness of ONNX image-embedding models.

pub mod attack;
pub mod audit;
pub mod check;
pub mod cli;
pub mod compare;
pub mod data;
pub mod error;
pub mod examples;
pub mod gate;
pub mod grad;
pub mod model;
pub mod onnx;
pub mod progress;
pub mod report;
pub mod score;
pub mod space;
pub mod suite;

pub use error::{Error, Exit, Result};

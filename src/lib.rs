//! `audit`: adversarial robustness of ONNX image-embedding models.
//!
//! The life of an audit is one function, [`pipeline::run`]. It calls, in this order: [`suite`] (what to run), [`model`] (load,
//! differentiate with [`onnx_grad`], run), [`data`] (images), [`judge::check`] (is the gradient right), [`space`] (gallery,
//! distances), [`threat`] (objectives, balls, searches), [`judge`] (scores, gates), [`report`]. docs/architecture.md says why.
//!
//! A caller says what it wants by a [`Request`], and gets a [`Report`](record::Report):
//!
//! ```
//! use audit::Request;
//!
//! let request = Request::model("models/plain.onnx").suite("smoke").max_queries(12).fail_under("robust_r1=30");
//! # let mut request = request;
//! # request.compute.library.get_or_insert("target/onnxruntime".into());
//! let report = audit::run(&request)?;
//! let robust = report.scores.robust_r1.as_ref().expect("12 queries were attacked");
//! println!("robust R@1 {:.1} of {} queries", robust.value, robust.queries);
//! // No query stands, so the demand is not met: exit code 10.
//! assert_eq!(report.exit(), Some(audit::Exit::Gate));
//! # Ok::<(), audit::Error>(())
//! ```

pub mod cache;
pub mod choice;
pub mod columns;
pub mod command;
pub mod corruption;
pub mod data;
pub mod engines;
pub mod error;
pub mod feature;
pub mod files;
pub mod guard;
pub mod interrupt;
pub mod judge;
pub mod model;
pub mod name_index;
pub mod operators;
pub mod parallel;
pub mod pipeline;
pub mod progress;
pub mod random;
pub mod record;
pub mod report;
pub mod request;
pub mod shards;
pub mod space;
pub mod suite;
pub mod threat;
pub mod yaml;

pub use error::{Error, Exit, Result};
pub use pipeline::{embed, run};
pub use request::Request;

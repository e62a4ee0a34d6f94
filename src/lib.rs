//! `audit`: adversarial robustness of ONNX image-embedding models.
//!
//! The life of an audit is one function, [`pipeline::run`]. It calls, in this order: [`suite`] (what to run),
//! [`model`] (load, differentiate with [`onnx_grad`], run), [`data`] (images), [`check`] (is the gradient
//! correct), [`space`] (gallery, distances), [`threat`] (objectives, balls, searches), [`judge`] (scores,
//! gates), [`report`]. docs/architecture.md has the reasons. A caller makes a [`Request`] and gets a
//! [`Report`](record::Report):
//!
//! ```
//! use audit::Request;
//!
//! let request =
//!     Request::model("models/plain.onnx").suite("smoke").max_queries(12).fail_under("robust_r1=30");
//! # let mut request = request;
//! # request.compute.library.get_or_insert("target/onnxruntime".into());
//! let report = audit::run(&request)?;
//! let robust = report.scores.robust_r1.as_ref().expect("12 queries were attacked");
//! println!("robust R@1 {:.1} of {} queries", robust.value, robust.queries);
//! // No query withstands the attack, so the gate fails: exit code 10.
//! assert_eq!(report.exit(), Some(audit::Exit::Gate));
//! # Ok::<(), audit::Error>(())
//! ```

pub mod cache;
pub mod command;
pub mod feature;
pub mod interrupt;
mod pictures;
pub mod pipeline;
pub mod progress;
pub mod request;
pub mod scheduler_env;
pub mod shards;
pub mod suite;

pub use audit_attack::{self as threat, check};
pub use audit_base::{
    Error, Exit, Result, choice, error, files, guard, numbers, parallel, random, visible, yaml,
};
pub use audit_gallery::{columns, corruption, data, name_index, space};
pub use audit_model::{self as model, operators};
pub use audit_render as report;
pub use audit_report::{facts, judge, record};
pub use pipeline::{embed, run};
pub use request::Request;

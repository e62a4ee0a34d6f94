#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod batch;
mod error;
mod grad;
pub mod graph;
pub mod narrow;
pub mod operators;
mod softer;
pub mod wider;

pub use error::{Error, Result};
pub use grad::{Differentiated, Note, Pass, Processor, Unsupported, differentiate};
pub use graph::{Graph, Types};

pub(crate) use graph::{Attr, Bytes, DType, Dim, Node, Tensor, Value};

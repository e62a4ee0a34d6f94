#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod batch;
mod error;
mod grad;
mod graph;
pub mod narrow;
pub mod operators;
mod wider;

pub use error::{Error, Result};
pub use grad::{Differentiated, Note, Pass, Unsupported, differentiate};
pub use graph::{Attr, AttrProto, DType, Dim, Encoded, Graph, Node, Tensor, Types, Value};
pub use prost::bytes::Bytes;
pub use wider::Saturating;

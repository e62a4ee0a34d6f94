#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod batch;
mod error;
mod grad;
mod graph;
pub mod narrow;
pub mod operators;

pub use error::{Error, Result};
pub use grad::{Differentiated, Note, Pass, Types, Unsupported, differentiate};
pub use graph::{Attr, AttrProto, DType, Dim, Encoded, Graph, Node, Tensor, Value};
pub use prost::bytes::Bytes;

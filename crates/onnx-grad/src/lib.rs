//! ONNX graphs and their gradients: load a model, differentiate it, save both graphs.

mod error;
mod grad;
mod graph;
pub mod narrow;

pub use error::{Error, Result};
pub use grad::{Differentiated, Note, Types, Unsupported, differentiate, rules};
pub use graph::{
    Attr, AttrProto, DType, Dim, Encoded, Expansion, Graph, NEWEST, Node, OLDEST, OPSET, Tensor, Value,
    check_shapes, expanded,
};
pub use prost::bytes::Bytes;

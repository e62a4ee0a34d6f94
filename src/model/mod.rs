//! An ONNX model as something to embed images with and to differentiate.

pub mod runtime;

//! The version of ONNX Runtime, in a file of its own: xtask, which has no dependencies, includes it.

/// The version of ONNX Runtime that set-up fetches and that everything was tested with.
pub const VERSION: &str = "1.31.1";

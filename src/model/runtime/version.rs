//! The version of ONNX Runtime. It has its own file because xtask, which has no dependencies, includes it.

/// The version of ONNX Runtime that `cargo xtask setup` fetches and that the tests use.
pub const VERSION: &str = "1.31.1";

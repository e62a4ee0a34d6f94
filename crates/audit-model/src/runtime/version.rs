//! The versions of ONNX Runtime. They have their own file because xtask, which has no dependencies, includes
//! it.

/// The version of ONNX Runtime that `cargo xtask setup` fetches and that the tests use.
pub const VERSION: &str = "1.31.1";
/// The oldest version that works, as PyPI has it. Older ones are refused: their interface is not yet the one
/// that the program calls.
pub const OLDEST: &str = "1.24.1";
/// The newest version that was tested. Newer ones are used, and the program says so.
pub const NEWEST: &str = "1.32.0";

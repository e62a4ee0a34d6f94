//! `cargo xtask backend`: ONNX's own node tests through the gradient.
//!
//! The tests come from the Python package `onnx`: its wheel brings the code that makes them,
//! tools/node_tests.py writes them as models of one input, and `examples/backend.rs` runs them.

use crate::{
    project::{Error, Result, cargo, root, run, target},
    python, setup,
};
use std::process::{Command, Stdio};

pub const ARGUMENTS: &str = "[--every N] [--list] [WORD ...]; WORD: only tests with that in their name";

pub fn backend(arguments: &[String]) -> Result {
    setup::setup()?;
    let folder = target()?.join("backend");
    let mut write = Command::new(python::with_onnx()?);
    write.args(["-B", "-W", "ignore"]).arg(root().join("tools/node_tests.py")).arg(&folder);
    run(write.stdin(Stdio::null()))?;
    let example = ["run", "--locked", "--example", "backend", "--"];
    run(cargo(&example).arg(&folder).args(arguments)).map_err(|error| match error {
        Error::Failed(message) => Error::Failed(format!("{message}: a test failed, or none was found")),
        usage => usage,
    })
}

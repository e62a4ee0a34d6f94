//! placeholder
use std::path::{Path, PathBuf};
pub fn write(_logs: &[PathBuf], _output: &Path) -> crate::Result<String> {
    todo!()
}

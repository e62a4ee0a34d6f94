//! Results that are reused: each is one file, with everything that it depends on in its name or beside it.

pub(crate) mod clean_retrieval;
pub(crate) mod embeddings;
pub(crate) mod load_check;

use crate::files;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The file of a result in a folder of the user's cache; `None` if the system has no cache folder.
fn entry(folder: &str, key: &str) -> Option<PathBuf> {
    Some(files::cache_folder()?.join(folder).join(format!("{key}.json")))
}

/// Writes a result, and its folder.
fn write(file: &Path, result: &impl Serialize) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    files::replace(file, &serde_json::to_vec(result)?)
}

//! Results that are reused: each is one file, with everything that it depends on in its name or beside it.

pub(crate) mod clean_retrieval;
pub(crate) mod embeddings;
pub(crate) mod load_check;

use crate::files;
use serde::Serialize;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of a result in a folder of the user's cache; `None` if the system has no cache folder.
fn entry(folder: &str, key: &str) -> Option<PathBuf> {
    Some(files::cache_folder()?.join(folder).join(format!("{key}.json")))
}

/// How long a result is cached.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// Writes a result, and its folder, from which results older than [`KEPT`] are removed.
fn write(file: &Path, result: &impl Serialize) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
        remove_old(folder);
    }
    files::replace(file, &serde_json::to_vec(result)?)
}

/// Removes old results, and parts of results that a killed process left.
fn remove_old(folder: &Path) {
    let old = |entry: &DirEntry| {
        let ours = entry.path().extension().is_some_and(|e| e == "json" || e == "partial");
        let written = entry.metadata().and_then(|about| about.modified()).ok();
        ours && written.and_then(|written| written.elapsed().ok()).is_some_and(|age| age > KEPT)
    };
    for entry in folder.read_dir().into_iter().flatten().flatten().filter(old) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(entry.path());
    }
}

//! Files that are written in one go: whoever reads a path finds what was there before, or all of the new file.

use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

/// An empty file beside `path`, which becomes it by [`NamedTempFile::persist`] and is removed when it is dropped before.
pub fn partial(path: &Path) -> Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    // Made as any file is: tempfile's own would be for the user's eyes alone, and so would what becomes of them.
    Builder::new().prefix(&name).suffix(".partial").make_in(folder, |at| File::create_new(at))
}

/// Replaces `path` by a file of these bytes, which are on the disk when this returns.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = partial(path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

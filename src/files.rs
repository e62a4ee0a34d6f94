//! Files: those that are read are regular ones of a bounded size, so that neither a pipe nor a device holds the program up.
//! Those that are written are written in one go: whoever reads a path finds what was there before, or all of the new file.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// The most bytes of a file that people write by hand: suites, model cards.
pub const BY_HAND: u64 = 1 << 24;
/// The most bytes of an image.
pub const IMAGE: u64 = 1 << 30;
/// The most bytes of any other file that is read at once: lists, reports, models.
pub const LARGE: u64 = 1 << 33;

/// Opens a file to be read. Pipes, devices and folders are refused before they are opened.
pub fn open(path: &Path) -> Result<File> {
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "expected a file, found a folder"));
    }
    if !kind.is_file() {
        return Err(Error::other(
            "expected a regular file, found a pipe or a device. Copy what it gives to a file",
        ));
    }
    File::open(path)
}

/// The bytes of a regular file, at most `most`.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size.min(most) as usize)?;
    // What other programs add meanwhile is bounded too.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let found = size.max(bytes.len() as u64);
        return Err(Error::other(format!(
            "it has {found} bytes; at most {most} are read. Is it the right file?"
        )));
    }
    Ok(bytes)
}

/// The text of a regular file of at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    })
}

/// The folder of this program's caches, by the platform's convention; `None` where the environment names none. It need not be
/// there.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = |key: &str| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |below: &str| folder("HOME").map(|home| home.join(below));
    let caches = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home("Library/Caches")
    } else {
        // The XDG base directory specification.
        folder("XDG_CACHE_HOME").or_else(|| home(".cache"))
    };
    Some(caches?.join("audit"))
}

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

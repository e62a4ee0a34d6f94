//! Reading and writing files. Only regular files of a bounded size are read, so that no pipe and no device
//! blocks the program. Files are written atomically: a reader finds either the old file or the whole new one.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::{Builder, NamedTempFile, TempDir};

/// Maximum size of a file that people write by hand, in bytes: suites, model cards.
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
            "it has {found} bytes, and at most {most} are read. Is it the right file?"
        )));
    }
    Ok(bytes)
}

/// `length` bytes of a regular file, from the byte `from` on.
pub fn read_range(path: &Path, from: u64, length: u64) -> Result<Vec<u8>> {
    let mut file = open(path)?;
    if from.saturating_add(length) > file.metadata()?.len() {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the file is shorter than when it was listed"));
    }
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize)?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a regular file of at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| {
        let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    })
}

/// The folder of this program's caches, by the platform's convention; `None` if the environment has no such
/// folder. The folder may not exist yet.
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

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The whole path of a file that need not exist; links to its folder are followed.
pub fn whole_path(path: &Path) -> PathBuf {
    let folder = folder_of(path);
    folder.canonicalize().unwrap_or_else(|_| folder.into()).join(path.file_name().unwrap_or_default())
}

/// An empty file beside `path`, which becomes it by [`NamedTempFile::persist`] and is removed when it is
/// dropped before.
pub fn partial(path: &Path) -> Result<NamedTempFile> {
    let folder = folder_of(path);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    // Created with the default permissions: tempfile's 0600 would stay on the final file.
    Builder::new().prefix(&name).suffix(".partial").make_in(folder, |at| File::create_new(at))
}

/// Why the file at `path` can't be replaced by `new`, of [`partial`]; `None` if nothing is known against it.
#[cfg(unix)]
pub fn unreplaceable(path: &Path, new: &NamedTempFile) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    let there = std::fs::symlink_metadata(path).ok()?;
    let folder = std::fs::metadata(folder_of(path)).ok()?;
    let user = new.as_file().metadata().ok()?.uid();
    if is_mounted(path) {
        return Some("it is a mount of its own, and can't be replaced");
    }
    // In a sticky folder, such as /tmp, the owner of a file or of the folder replaces the file.
    let sticky = folder.mode() & 0o1000 != 0;
    (sticky && user != 0 && ![there.uid(), folder.uid()].contains(&user))
        .then_some("another user owns this file, and its folder lets nobody else replace it")
}

/// Why the file at `path` can't be replaced by `new`, of [`partial`]; `None` if nothing is known against it.
#[cfg(not(unix))]
pub fn unreplaceable(_: &Path, _: &NamedTempFile) -> Option<&'static str> {
    None
}

/// Whether the file is a mount point, as containers have for single files. The device of a file doesn't tell:
/// a mount may be of the same device, and layers of one folder of others.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> bool {
    let (Ok(folder), Ok(mounts)) = (folder_of(path).canonicalize(), std::fs::read("/proc/self/mountinfo"))
    else {
        return false;
    };
    let place = folder.join(path.file_name().unwrap_or_default()).to_string_lossy().into_owned();
    // As the system escapes paths there.
    let octal = [('\\', "\\134"), (' ', "\\040"), ('\t', "\\011"), ('\n', "\\012")];
    let place = octal.into_iter().fold(place, |place, (from, to)| place.replace(from, to));
    String::from_utf8_lossy(&mounts).lines().any(|line| line.split(' ').nth(4) == Some(place.as_str()))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_mounted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |found: Result<std::fs::Metadata>| found.ok().map(|found| found.dev());
    device(std::fs::symlink_metadata(path)) != device(std::fs::metadata(folder_of(path)))
}

/// Replaces `path` by a file of these bytes, which are on the disk when this returns.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = partial(path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Makes a folder and those above it. Returns the new ones, the innermost first.
pub fn make_folder(path: &Path) -> Result<Vec<PathBuf>> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let new = path.ancestors().take_while(missing).map(Path::to_path_buf).collect();
    std::fs::create_dir_all(path)?;
    Ok(new)
}

/// The temporary folders that are there.
static SCRATCH: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A temporary folder, removed when it is dropped, or by [`remove_scratch`].
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes one.
    pub fn new() -> Result<Scratch> {
        let folder = Builder::new().prefix("audit-").tempdir()?;
        SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).push(folder.path().into());
        Ok(Scratch(folder))
    }

    /// A file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != self.0.path());
    }
}

/// Removes every [`Scratch`], where the process ends while a thread still has some.
pub fn remove_scratch() {
    for path in SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // The thread may be writing there; a second try removes what came meanwhile.
        let _ = std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_dir_all(path));
    }
}

/// A zip archive of stored files, whose bytes follow from the names and contents alone: no times, no owners.
pub struct Archive<W> {
    to: W,
    written: u64,
    directory: Vec<u8>,
    files: u16,
}

impl<W: Write> Archive<W> {
    /// An archive with no files yet.
    pub fn new(to: W) -> Archive<W> {
        Archive { to, written: 0, directory: Vec::new(), files: 0 }
    }

    /// Adds a file. Errors: it can't be written, or the archive has more than 65,535 files or 4 GB.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let full = || Error::other("a zip archive holds at most 65,535 files and 4 GB");
        let size = u32::try_from(bytes.len()).map_err(|_| full())?;
        let at = u32::try_from(self.written).map_err(|_| full())?;
        self.files = self.files.checked_add(1).ok_or_else(full)?;
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        // What both headers of a file have (PKWARE's APPNOTE, 4.3.7 and 4.3.12): version 2.0, no flags,
        // stored, midnight of 1980-01-01, checksum, two sizes, two lengths.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        for number in [crc.sum(), size, size, name.len() as u32] {
            common.extend(number.to_le_bytes());
        }
        self.put(b"PK\x03\x04")?;
        self.put(&common)?;
        self.put(name.as_bytes())?;
        self.put(bytes)?;
        self.directory.extend(b"PK\x01\x02\x14\x03");
        self.directory.extend(common);
        // No comment, disk 0, no attributes but a plain file's of Unix: rw-r--r--.
        self.directory.extend([0; 6]);
        self.directory.extend((0o644u32 << 16).to_le_bytes());
        self.directory.extend(at.to_le_bytes());
        self.directory.extend(name.as_bytes());
        Ok(())
    }

    /// Writes the directory, and returns what was written to.
    pub fn finish(mut self) -> Result<W> {
        let at = u32::try_from(self.written).map_err(|_| Error::other("a zip archive holds at most 4 GB"))?;
        let directory = std::mem::take(&mut self.directory);
        self.put(&directory)?;
        self.put(b"PK\x05\x06\0\0\0\0")?;
        self.put(&self.files.to_le_bytes())?;
        self.put(&self.files.to_le_bytes())?;
        self.put(&(directory.len() as u32).to_le_bytes())?;
        self.put(&at.to_le_bytes())?;
        self.put(&[0, 0])?;
        Ok(self.to)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.to.write_all(bytes)
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

//! Tensor data in a file beside the model.

use super::proto::{TensorProto, tensor_proto::DataLocation};
use std::fs::File;
use std::io::{Error, Read, Seek, SeekFrom, Take};
use std::path::{Component, Path, PathBuf};

/// The range of a file that has a tensor's data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalRange {
    /// Path of the file as written in the model, relative to the model's folder.
    pub location: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    path: PathBuf,
}

/// Whether the tensor's data are in another file.
pub(super) fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location == DataLocation::External as i32
}

impl ExternalRange {
    /// The range of a tensor of `model`. Error: it is outside of the model's folder, or missing.
    pub(super) fn of(tensor: &TensorProto, model: &Path) -> Result<ExternalRange, String> {
        let location = entry(tensor, "location")?.unwrap_or_default();
        let (offset, length) = extent(tensor)?;
        let path = beside(model, location)?;
        let fail = |e| unreadable(&path, e);
        regular(&path).map_err(fail)?;
        let size = std::fs::metadata(&path).map_err(fail)?.len();
        let available = size.saturating_sub(offset);
        let length = length.unwrap_or(available);
        if length > available {
            return Err(format!(
                "has external data in {}, which is too short: {length} bytes wanted at offset {offset}, {available} there. \
                 Copy it again",
                path.display()
            ));
        }
        Ok(ExternalRange { location: location.into(), offset, length, path })
    }

    /// A reader of the range.
    pub fn open(&self) -> Result<Take<File>, String> {
        let fail = |e| unreadable(&self.path, e);
        let mut file = File::open(&self.path).map_err(fail)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(fail)?;
        Ok(file.take(self.length))
    }

    /// All bytes of the range.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.length as usize];
        self.open()?.read_exact(&mut bytes).map_err(|e| unreadable(&self.path, e))?;
        Ok(bytes)
    }
}

/// The first byte of a tensor's external data, and the number of bytes; `None`: up to the end of the file.
pub(super) fn extent(tensor: &TensorProto) -> Result<(u64, Option<u64>), String> {
    let number = |key: &str| {
        let text = entry(tensor, key)?;
        text.map(str::parse::<u64>).transpose().map_err(|e| format!("external {key}: {e}"))
    };
    Ok((number("offset")?.unwrap_or(0), number("length")?))
}

/// The value of a key. Duplicates are refused, because readers differ in which one they use.
fn entry<'t>(tensor: &'t TensorProto, key: &str) -> Result<Option<&'t str>, String> {
    let mut values = tensor.external_data.iter().filter(|e| e.key == key).map(|e| e.value.as_str());
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(format!("states the {key} of its external data twice. Export the model again")),
    }
}

/// The file at `location`. Model files are untrusted: they may not name files outside of their own folder.
fn beside(model: &Path, location: &str) -> Result<PathBuf, String> {
    let relative = Path::new(location);
    if location.is_empty()
        || relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(format!("has external data at {location:?}, which is not a file beside the model"));
    }
    let path = model.parent().unwrap_or(Path::new("")).join(relative);
    // Links may not leave the folder either. If the model is a link itself, as in caches of downloads, the
    // folder of its target is allowed too.
    let real = path.canonicalize().map_err(|e| unreadable(&path, e))?;
    let inside = |model: &Path| {
        let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
    };
    if !inside(model) && !model.canonicalize().is_ok_and(|model| inside(&model)) {
        return Err(format!(
            "has external data at {location:?}, which is a link out of the model's folder. Copy the file itself there"
        ));
    }
    Ok(path)
}

fn unreadable(path: &Path, e: Error) -> String {
    format!("has external data in {}: {e}. Put that file beside the model", path.display())
}

/// Refuses pipes and devices, which may never end.
pub(super) fn regular(path: &Path) -> std::io::Result<()> {
    let kind = std::fs::metadata(path)?;
    match kind.is_file() || kind.is_dir() {
        true => Ok(()),
        false => Err(Error::other("expected a regular file, found a pipe or a device")),
    }
}

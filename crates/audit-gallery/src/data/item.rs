//! An image of a data set, and where its pixels are.

use super::Role;
use super::idx::IdxImages;
use crate::columns::BytesColumn;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image, or an embedding without pixels.
#[derive(Clone, Debug)]
pub struct Item {
    /// Name within the data set, `class/file` or the path in a list: unique, and the same on every machine.
    pub id: String,
    /// Index into [`super::Dataset::classes`].
    pub class: usize,
    pub(super) origin: Origin,
}

/// The source of an item's pixels.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    File(Stored),
    /// Image `index` of a file that holds many.
    Packed {
        file: Arc<IdxImages>,
        index: usize,
    },
    Generated {
        seed: u64,
        sample: usize,
    },
    /// An embedding without pixels.
    Embedded {
        camera: Option<u32>,
    },
}

/// An image in a file, and its properties in the list that names it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub path: PathBuf,
    pub part: Part,
    pub camera: Option<u32>,
    pub role: Role,
    pub group: Option<Box<str>>,
    /// Position in the list, for messages: file and line; `None` without a list.
    pub place: Option<Box<str>>,
}

impl Origin {
    /// A whole file that no list names.
    pub fn file(path: PathBuf) -> Origin {
        let (part, role) = (Part::Whole, Role::Both);
        Origin::File(Stored { path, part, camera: None, role, group: None, place: None })
    }
}

/// The part of a file that is an image.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The whole file.
    Whole,
    /// A file in an archive: its first byte and its length.
    Bytes { from: u64, length: u64 },
    /// The value of a Parquet column in a row, counted from 0.
    Value(Arc<BytesColumn>, usize),
    /// A box in the decoded image: left, top, right, bottom, in pixels; right and bottom are exclusive.
    Box([u32; 4]),
}

impl Item {
    /// Role in its layout.
    pub fn role(&self) -> Role {
        match &self.origin {
            Origin::File(stored) => stored.role,
            Origin::Embedded { .. } => Role::Gallery,
            _ => Role::Both,
        }
    }

    /// Whether it has pixels, and not only an embedding.
    pub fn has_pixels(&self) -> bool {
        !matches!(self.origin, Origin::Embedded { .. })
    }

    /// Its file, if no other image is in it.
    pub fn file(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(Stored { path, part: Part::Whole, .. }) => Some(path),
            _ => None,
        }
    }

    /// Its name in messages, if its pixels are in the file `path`.
    pub(super) fn shown(&self, path: &Path) -> String {
        match self.file() {
            Some(_) => path.display().to_string(),
            None => format!("`{}` in {}", self.id, path.display()),
        }
    }

    /// The file of its pixels, which may have other images too.
    pub fn source(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(stored) => Some(&stored.path),
            Origin::Packed { file, .. } => Some(file.path()),
            Origin::Generated { .. } | Origin::Embedded { .. } => None,
        }
    }

    /// Time of the last change of [`Item::source`], in nanoseconds since 1970.
    pub fn modified(&self) -> Option<i64> {
        let time = std::fs::metadata(self.source()?).ok()?.modified().ok()?;
        i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
    }

    /// The part of its file that is this image, in words; `None` for a whole file, and without a file.
    pub fn part(&self) -> Option<String> {
        match &self.origin {
            Origin::File(stored) => match &stored.part {
                Part::Whole => None,
                Part::Bytes { from, length } => Some(format!("{length} bytes from {from}")),
                Part::Value(column, row) => Some(format!("row {row} of {}", column.name())),
                Part::Box(edges) => Some(format!("box {edges:?}")),
            },
            Origin::Packed { index, .. } => Some(format!("image {index}")),
            _ => None,
        }
    }

    /// Its group of queries in its list, such as a site or a camera.
    pub fn group(&self) -> Option<&str> {
        match &self.origin {
            Origin::File(stored) => stored.group.as_deref(),
            _ => None,
        }
    }

    /// The camera of the image. A query never ranks images of its class from its own camera.
    pub fn camera(&self) -> Option<u32> {
        match &self.origin {
            Origin::File(Stored { camera, .. }) | Origin::Embedded { camera } => *camera,
            _ => None,
        }
    }
}

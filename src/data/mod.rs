//! Images to audit a model with: their classes, their identities, and their pixels as the model wants them.
//!
//! Each layout of images on disk has one file here and one row in [`LAYOUTS`]; what it yields is a
//! [`Dataset`], after which nobody asks where an image came from. [`Dataset::builtin`] needs no files.

mod builtin;
mod folder;
mod image;

use crate::{Error, Result};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Seed of the image set that an audit without data uses. Scores on it compare only at equal seeds.
pub const BUILTIN_SEED: u64 = 0;

/// A way in which people store labelled images.
pub struct Layout {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where the images lie and what names their class, in words for the user.
    pub about: &'static str,
    open: fn(&Path) -> Result<Dataset>,
}

/// Every layout that can be read.
pub const LAYOUTS: &[Layout] = &[Layout { name: "folder", about: folder::ABOUT, open: folder::open }];

/// What the pixels must be for the model at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// 1 for grey, 3 for RGB.
    pub channels: usize,
    /// Rows of the image the model sees.
    pub height: usize,
    /// Columns of the image the model sees.
    pub width: usize,
    /// Resize to exactly this (height, width), then cut `height`×`width` from the centre.
    /// `None` resizes straight to `height`×`width`.
    pub resize: Option<(usize, usize)>,
}

/// One image.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name within the data set, `class/file`: unique, and the same on every machine.
    pub id: String,
    /// Index into [`Dataset::classes`].
    pub class: usize,
    origin: Origin,
}

/// Where the pixels of an item come from.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    Generated { seed: u64, sample: usize },
}

/// Labelled images, in an order that is the same on every machine.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// What the images are, for the report: the folder as given, or the generator and its seed.
    pub source: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// The images, class by class.
    pub items: Vec<Item>,
}

/// An image, ready for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// channels × height × width values in [0,1], channels in RGB order.
    pub data: Vec<f32>,
    /// SHA-256 of the file's bytes, or of the generated 8-bit pixels.
    pub digest: [u8; 32],
}

impl Dataset {
    /// The images below `path`, taken for class folders.
    ///
    /// Only lists them: an image that can't be decoded shows when its pixels are asked for.
    /// Exit code 2 where `path` is no such folder, 4 where it or one of its classes holds no images.
    pub fn open(path: &Path) -> Result<Dataset> {
        Self::open_as("folder", path)
    }

    /// The images below `path` in the named layout. Errors as [`Dataset::open`], and for an unknown name.
    pub fn open_as(layout: &str, path: &Path) -> Result<Dataset> {
        let row = LAYOUTS.iter().find(|row| row.name == layout).ok_or_else(|| {
            let known: Vec<_> = LAYOUTS.iter().map(|row| row.name).collect();
            Error::usage(format!("layout `{layout}` is unknown; known: {}", known.join(", ")))
        })?;
        let shown = path.display();
        let zipped = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zip"));
        match std::fs::metadata(path) {
            Err(reason) => {
                Err(Error::usage(format!("data {shown}: {reason}; give the folder of the images")))
            }
            Ok(found) if found.is_dir() => (row.open)(path),
            Ok(_) if zipped => Err(Error::usage(format!(
                "data {shown} is a zip archive; unpack it and give the folder: {}",
                row.about
            ))),
            Ok(_) => Err(Error::usage(format!("data {shown} is a file; expected a folder: {}", row.about))),
        }
    }

    /// The built-in image set: 48 classes of 20 generated handwritten characters. The same seed gives the
    /// same pixels on every machine; another seed gives other classes.
    pub fn builtin(seed: u64) -> Dataset {
        Self::generated(seed, 48, 20)
    }

    /// As [`Dataset::builtin`], with a chosen number of classes and of images in each.
    pub fn generated(seed: u64, classes: usize, samples: usize) -> Dataset {
        builtin::list(seed, classes, samples)
    }

    /// The pixels of item `index`, decoded or generated anew.
    ///
    /// Exit code 2 where the file can't be read or decoded, or where no image can be prepared so.
    ///
    /// # Panics
    /// Where `index` is not below `items.len()`.
    pub fn pixels(&self, index: usize, prep: &Preparation) -> Result<Pixels> {
        prep.check()?;
        let item = &self.items[index];
        match &item.origin {
            Origin::File(path) => image::read(path, prep),
            &Origin::Generated { seed, sample } => Ok(builtin::pixels(seed, item.class, sample, prep)),
        }
    }

    /// Drops every item whose index `wanted` denies. Class indices stay as they are, even of classes
    /// that lose all their items.
    pub fn keep(&mut self, wanted: impl Fn(usize) -> bool) {
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            wanted(index - 1)
        });
    }

    /// Writes the images as 8-bit PNG files in class folders below `dir`, and returns their number.
    /// Opening `dir` then gives the same items in the same order, with `.png` at the end of each id.
    ///
    /// Exit code 2 where `dir` already holds something; 1 where a file can't be written.
    pub fn export(&self, dir: &Path, prep: &Preparation) -> Result<usize> {
        let unwritable = |path: &Path, reason: &dyn std::fmt::Display| {
            Error::internal(format!("can't write {}: {reason}", path.display()))
        };
        // Files left from an earlier export would silently join the data set.
        if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::usage(format!("{} is not empty; name a new folder", dir.display())));
        }
        for class in &self.classes {
            let folder = dir.join(class);
            std::fs::create_dir_all(&folder).map_err(|reason| unwritable(&folder, &reason))?;
        }
        (0..self.items.len()).into_par_iter().try_for_each(|index| {
            let pixels = self.pixels(index, prep)?;
            let id = &self.items[index].id;
            let path = dir.join(if id.ends_with(".png") { id.clone() } else { format!("{id}.png") });
            image::write(&path, &pixels.data, prep).map_err(|reason| unwritable(&path, &reason))
        })?;
        Ok(self.items.len())
    }
}

impl Preparation {
    /// Refuses what no image can be turned into.
    fn check(&self) -> Result<()> {
        let Preparation { channels, height, width, resize } = *self;
        if channels != 1 && channels != 3 {
            return Err(Error::usage(format!(
                "the model takes images of {channels} channels; images have 1 (grey) or 3 (RGB)"
            )));
        }
        let (rows, columns) = resize.unwrap_or((height, width));
        if height == 0 || width == 0 || rows < height || columns < width {
            return Err(Error::usage(format!(
                "can't cut {height}×{width} pixels from an image resized to {rows}×{columns}; \
                 sizes must be positive, and the resize no smaller than the cut"
            )));
        }
        Ok(())
    }
}

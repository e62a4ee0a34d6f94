//! The form of pixels that a model needs, and pixels in this form.

use super::item::Part;
use super::{Crop, Interpolation, file_value, image};
use audit_base::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The form of pixels that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// 1 for grey, 3 for RGB.
    pub channels: usize,
    /// Height of the model's input.
    pub height: usize,
    /// Width of the model's input.
    pub width: usize,
    /// Size before a centre crop of `height`×`width`. `None`: resized to `height`×`width`, without a crop.
    pub resize: Option<Resize>,
    /// Where the centre crop begins.
    pub crop: Crop,
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Whether pixels are rounded to whole grey levels, for a model with an integer input: those of images of
    /// more than 8 bits, and those between pixels.
    pub whole_levels: bool,
}

/// The size of an image before the centre crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// This (height, width), whatever the image's aspect ratio.
    Exact(usize, usize),
    /// Length of the shorter side, with the aspect ratio kept.
    Shorter(usize),
}

impl Preparation {
    /// Resizes to this size, without a crop.
    pub fn new(channels: usize, height: usize, width: usize) -> Preparation {
        let (crop, interpolation) = (Crop::default(), Interpolation::default());
        Preparation { channels, height, width, resize: None, crop, interpolation, whole_levels: false }
    }

    /// The size to which an image of this (height, width) is resized.
    pub(super) fn resized(&self, (height, width): (usize, usize)) -> (usize, usize) {
        match self.resize {
            None => (self.height, self.width),
            Some(Resize::Exact(rows, columns)) => (rows, columns),
            // Rounded down, as in torchvision.
            Some(Resize::Shorter(side)) if height <= width => (side, (side * width / height)),
            Some(Resize::Shorter(side)) => (side * height / width, side),
        }
    }

    /// Refuses sizes that no image can have.
    pub(super) fn check(&self) -> Result<()> {
        let Preparation { channels, height, width, .. } = *self;
        if channels != 1 && channels != 3 {
            return Err(Error::usage(format!(
                "the model takes images of {channels} channels, but images have 1 (grey) or 3 (RGB)"
            )));
        }
        // A square image has the smallest size that [`Resize::Shorter`] gives.
        let (rows, columns) = self.resized((1, 1));
        if height == 0 || width == 0 || rows < height || columns < width {
            return Err(Error::usage(format!(
                "can't cut {height}×{width} pixels from an image resized to {rows}×{columns}. \
                 Sizes must be positive, and the resized image must be no smaller than the cut"
            )));
        }
        Ok(())
    }
}

/// An image, prepared for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// channels × height × width values in [0, 1], in RGB order.
    pub data: Vec<f32>,
    /// SHA-256 of the file's bytes, or of the generated 8-bit pixels.
    pub digest: [u8; 32],
}

impl Pixels {
    /// The pixels of an image file. Errors (exit code 2): it can't be read or decoded, or `prep` is
    /// impossible.
    pub fn read(path: &Path, prep: &Preparation) -> Result<Pixels> {
        prep.check()?;
        Ok(image::read(path, &Part::Whole, path.display(), prep)?.settled(prep))
    }

    /// Rounded to whole grey levels, if the model needs them.
    pub(super) fn settled(mut self, prep: &Preparation) -> Pixels {
        if prep.whole_levels {
            self.data.iter_mut().for_each(|v| *v = file_value(*v));
        }
        self
    }

    /// The first 8 bytes of a SHA-256 of the values: equal for equal images, whatever their files.
    pub fn hash(&self) -> u64 {
        let mut hash = Sha256::new();
        let mut bytes = [0; 4096];
        for values in self.data.chunks(bytes.len() / 4) {
            let (places, _) = bytes.as_chunks_mut();
            for (place, value) in places.iter_mut().zip(values) {
                *place = value.to_le_bytes();
            }
            hash.update(&bytes[..4 * values.len()]);
        }
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

//! Pictures of images in reports and pages, in base64.

use crate::data::{self, Preparation};
use crate::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::imageops::FilterType;

/// Longer side of the attacked pictures, and of the retrieved ones, at the most.
pub const SIDES: [usize; 2] = [224, 64];
/// Longer side of attacked photographs at the most: they are shown at their own size, unless a page of them
/// would be too large to open.
pub const PHOTOGRAPH: usize = 2048;
/// Images that are no larger are shown as they are. Larger ones are photographs, and shown as JPEG of this
/// quality: a page of them would take some ten times as much as PNG.
const SMALL: usize = 96;
/// See [`SMALL`].
const QUALITY: u8 = 88;

/// The difference of two images, amplified, with mid-grey for no difference.
pub fn difference(attacked: &[f32], clean: &[f32], amplification: f32) -> Vec<f32> {
    let each = attacked.iter().zip(clean);
    each.map(|(a, c)| (0.5 + amplification * (a - c)).clamp(0.0, 1.0)).collect()
}

/// Planar pixels as a small picture in base64.
pub fn picture(data: &[f32], prep: &Preparation) -> Result<String> {
    encoded(data, [prep.channels, prep.height, prep.width], SMALL)
}

/// Planar pixels as a picture in base64, no side longer than `side`: PNG, or JPEG of a photograph
/// ([`SMALL`]).
pub fn encoded(pixels: &[f32], shape: [usize; 3], side: usize) -> Result<String> {
    let [_, height, width] = shape;
    let image = data::picture(pixels, shape);
    let longer = height.max(width);
    let scaled = |n: usize| ((n * side / longer) as u32).max(1);
    let small = match longer > side {
        true => image.resize_exact(scaled(width), scaled(height), FilterType::Triangle),
        false => image,
    };
    let file = if longer > SMALL { data::jpeg(&small, QUALITY) } else { data::png(&small) };
    let file = file.map_err(|e| Error::internal(format!("a picture for the report: {e}")))?;
    Ok(STANDARD.encode(file))
}

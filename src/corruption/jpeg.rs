//! JPEG compression.

use super::{Corruption, Picture};
use crate::random::Random;
use crate::{Error, Result};
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder, ImageFormat};

/// The image after JPEG: rounded to 8 bits, encoded with full chroma resolution, and decoded.
pub const JPEG: Corruption = Corruption {
    name: "jpeg",
    about: "JPEG compression",
    parameter: "quality, 1 to 100",
    small: [80.0, 65.0, 58.0, 50.0, 40.0],
    large: [25.0, 18.0, 15.0, 10.0, 7.0],
    in_pixels: false,
    change: |picture, quality, _: &mut Random| compressed(picture, quality as u8),
};

fn compressed(picture: &Picture, quality: u8) -> Result<Vec<f32>> {
    let [channels, height, width] = picture.shape;
    let failed = |e: image::ImageError| Error::internal(format!("an image as JPEG: {e}"));
    let area = height * width;
    // JPEG has the channels of a pixel side by side.
    let bytes: Vec<u8> = (0..area * channels)
        .map(|at| (picture.data[at % channels * area + at / channels] * 255.0).round() as u8)
        .collect();
    let kind = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, quality)
        .write_image(&bytes, width as u32, height as u32, kind)
        .map_err(failed)?;
    let image = image::load_from_memory_with_format(&file, ImageFormat::Jpeg).map_err(failed)?;
    let bytes = if channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() };
    let value = |at: usize| f32::from(bytes[at % area * channels + at / area]) / 255.0;
    Ok((0..area * channels).map(value).collect())
}

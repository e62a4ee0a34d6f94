//! JPEG compression.

use super::{Corruption, Picture};
use crate::data;
use audit_base::random::Random;
use audit_base::{Error, Result};
use image::DynamicImage;
use image::codecs::jpeg::JpegDecoder;
use std::io::Cursor;

/// The image saved as JPEG: rounded to 8 bits, encoded with full chroma resolution, and decoded.
pub const JPEG: Corruption = Corruption {
    name: "jpeg",
    about: "JPEG compression",
    parameter: "quality, 1 to 100",
    small: [80.0, 65.0, 58.0, 50.0, 40.0],
    large: [25.0, 18.0, 15.0, 10.0, 7.0],
    in_pixels: false,
    drawn: false,
    change: |picture, quality, _: &mut Random| compressed(picture, quality as u8),
};

fn compressed(picture: &Picture, quality: u8) -> Result<Vec<f32>> {
    let [channels, height, width] = picture.shape;
    let failed = |e: image::ImageError| Error::internal(format!("an image as JPEG: {e}"));
    let file = data::jpeg(&data::picture(picture.data, picture.shape), quality).map_err(failed)?;
    let decoder = JpegDecoder::new(Cursor::new(&file[..])).map_err(failed)?;
    let image = DynamicImage::from_decoder(decoder).map_err(failed)?;
    let bytes = if channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() };
    let area = height * width;
    let value = |at: usize| f32::from(bytes[at % area * channels + at / area]) / 255.0;
    Ok((0..area * channels).map(value).collect())
}

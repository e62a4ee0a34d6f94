//! Image files to pixels and back.

use super::{Pixels, Preparation};
use crate::{Error, Result};
use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageBuffer, ImageDecoder, ImageReader, ImageResult, Luma, Pixel, Rgb};
use sha2::{Digest, Sha256};
use std::io::Cursor;
use std::path::Path;

/// Reads and prepares one image file.
///
/// The file's content decides its format, not its extension. The EXIF orientation is applied. Alpha is
/// dropped and the colour below it kept, as by PIL's `convert("RGB")`. Grey images become RGB by repetition,
/// RGB images grey by ITU-R 601 luma with PIL's weights. Resizing is bilinear with antialiasing (triangle
/// filter), as in PIL and torchvision. Everything happens in floating point, so 16-bit images keep their
/// depth, and an 8-bit image that already has its size comes out as exactly v/255.
pub fn read(path: &Path, prep: &Preparation) -> Result<Pixels> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).map_err(|reason| Error::usage(format!("can't read {shown}: {reason}")))?;
    let image = decode(&bytes).map_err(|reason| {
        Error::usage(format!("can't decode image {shown}: {reason}; repair the file or remove it"))
    })?;
    let rgb = in_unit_range(image);
    if let Some(value) = rgb.iter().find(|value| !(0.0..=1.0).contains(*value)) {
        return Err(Error::usage(format!(
            "image {shown} has a floating-point pixel of value {value}; expected values in [0,1]"
        )));
    }
    let data = match prep.channels {
        1 => planar(fit(luma(&rgb), prep)),
        _ => planar(fit(rgb, prep)),
    };
    Ok(Pixels { data, digest: Sha256::digest(&bytes).into() })
}

/// Writes planar pixels as an 8-bit PNG file, grey or RGB.
pub fn write(path: &Path, data: &[f32], prep: &Preparation) -> ImageResult<()> {
    let Preparation { channels, height, width, .. } = *prep;
    let area = height * width;
    let bytes: Vec<u8> = (0..area * channels)
        .map(|at| (data[at % channels * area + at / channels] * 255.0).round() as u8)
        .collect();
    let colour = if channels == 1 { image::ColorType::L8 } else { image::ColorType::Rgb8 };
    image::save_buffer_with_format(path, &bytes, width as u32, height as u32, colour, image::ImageFormat::Png)
}

fn decode(bytes: &[u8]) -> ImageResult<DynamicImage> {
    let mut decoder = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?.into_decoder()?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// RGB values over the largest their type can hold. The image crate's own conversion is an ulp off here and there.
fn in_unit_range(image: DynamicImage) -> ImageBuffer<Rgb<f32>, Vec<f32>> {
    fn over<T: Copy>(image: &ImageBuffer<Rgb<T>, Vec<T>>, most: f32) -> ImageBuffer<Rgb<f32>, Vec<f32>>
    where
        Rgb<T>: Pixel<Subpixel = T>,
        f32: From<T>,
    {
        ImageBuffer::from_fn(image.width(), image.height(), |x, y| {
            Rgb(image.get_pixel(x, y).0.map(|value| f32::from(value) / most))
        })
    }
    let colour = image.color();
    match colour.bytes_per_pixel() / colour.channel_count() {
        1 => over(&image.into_rgb8(), 255.0),
        2 => over(&image.into_rgb16(), 65535.0),
        _ => image.into_rgb32f(),
    }
}

/// ITU-R 601 luma. The weights add up to 65536 and f64 holds every product, so a grey pixel stays what it was.
fn luma(rgb: &ImageBuffer<Rgb<f32>, Vec<f32>>) -> ImageBuffer<Luma<f32>, Vec<f32>> {
    ImageBuffer::from_fn(rgb.width(), rgb.height(), |x, y| {
        let [red, green, blue] = rgb.get_pixel(x, y).0.map(f64::from);
        Luma([((19595.0 * red + 38470.0 * green + 7471.0 * blue) / 65536.0) as f32])
    })
}

/// Resizes and cuts from the centre as `prep` says.
fn fit<P: Pixel<Subpixel = f32> + 'static>(
    image: ImageBuffer<P, Vec<f32>>,
    prep: &Preparation,
) -> ImageBuffer<P, Vec<f32>> {
    let (height, width) = (prep.height as u32, prep.width as u32);
    let (rows, columns) =
        prep.resize.map_or((height, width), |(rows, columns)| (rows as u32, columns as u32));
    let image = match image.dimensions() == (columns, rows) {
        true => image,
        false => imageops::resize(&image, columns, rows, FilterType::Triangle),
    };
    match (rows, columns) == (height, width) {
        true => image,
        false => {
            imageops::crop_imm(&image, (columns - width) / 2, (rows - height) / 2, width, height).to_image()
        }
    }
}

/// H×W×C to C×H×W.
fn planar<P: Pixel<Subpixel = f32>>(image: ImageBuffer<P, Vec<f32>>) -> Vec<f32> {
    let channels = P::CHANNEL_COUNT as usize;
    let values = image.into_raw();
    (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels).copied()).collect()
}

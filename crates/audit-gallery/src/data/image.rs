//! Image files to pixels and back.

use super::photograph::{Resampling, grey_level};
use super::room::Room;
use super::{Interpolation, Part, Pixels, Preparation, Resize, format};
use audit_base::{Error, Result, files};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::metadata::Orientation;
use image::{
    ColorType, DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageReader, ImageResult, Luma, Rgb,
};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Display;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

/// Reads and prepares one image; `shown` names it in errors.
///
/// The file's content decides its format, not its extension. The EXIF orientation is applied. Alpha is
/// dropped and the colour below it stays, as in PIL's `convert("RGB")`. Grey images become RGB by repetition,
/// RGB images grey by ITU-R 601 luma with PIL's weights. 8-bit images are processed in 8 bits, with the same
/// result as in PIL; deeper ones in floating point, with their full depth. An image that isn't resized
/// consists of exactly v/255 or v/65535.
pub fn read(path: &Path, part: &Part, shown: impl Display, prep: &Preparation) -> Result<Pixels> {
    let (image, digest, _room) = open(path, part, &shown)?;
    let data = prepare(image, prep).map_err(|e| e.context(format!("image {shown}")))?;
    Ok(Pixels { data, digest })
}

/// The image resized as in `prep`, without the crop: channels × height × width values in [0,1], height and
/// width.
pub fn read_uncut(
    path: &Path,
    part: &Part,
    shown: impl Display,
    prep: &Preparation,
) -> Result<(Vec<f32>, [usize; 2])> {
    let (image, _, _room) = open(path, part, &shown)?;
    let (rows, columns) = prep.resized((image.height() as usize, image.width() as usize));
    let resize = Some(Resize::Exact(rows, columns));
    let whole = Preparation { height: rows, width: columns, resize, ..prep.clone() };
    let data = prepare(image, &whole).map_err(|e| e.context(format!("image {shown}")))?;
    Ok((data, [rows, columns]))
}

/// The decoded image, rotated by its EXIF orientation, [`digest`], and its room in memory.
fn open(path: &Path, part: &Part, shown: &impl Display) -> Result<(DynamicImage, [u8; 32], Room)> {
    with_bytes(path, part, shown, |bytes| {
        let (mut image, orientation, room) = decoded(bytes, path, 0).map_err(|why| why.error(shown))?;
        image.apply_orientation(orientation);
        if let Part::Box(edges @ [left, top, right, bottom]) = *part {
            let (width, height) = (image.width(), image.height());
            let (right, bottom) = (right.min(width), bottom.min(height));
            if left >= right || top >= bottom {
                return Err(Error::usage(format!(
                    "image {shown}: its box {edges:?} (left, top, right, bottom) lies outside of its {width} x {height} pixels. Correct the list"
                )));
            }
            image = image.crop_imm(left, top, right - left, bottom - top);
        }
        Ok((image, digest_of(bytes, part), room))
    })
}

/// SHA-256 of an image's file, and of its box if it is one; `shown` names it in errors.
pub fn digest(path: &Path, part: &Part, shown: impl Display) -> Result<[u8; 32]> {
    with_bytes(path, part, &shown, |bytes| Ok(digest_of(bytes, part)))
}

fn digest_of(bytes: &[u8], part: &Part) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(bytes);
    if let Part::Box(edges) = part {
        edges.iter().for_each(|edge| digest.update(edge.to_le_bytes()));
    }
    digest.finalize().into()
}

/// Reads the file of an image and passes its bytes on.
fn with_bytes<T>(
    path: &Path,
    part: &Part,
    shown: &impl Display,
    then: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    let value;
    let bytes: std::io::Result<Cow<[u8]>> = match part {
        Part::Whole | Part::Box(_) => files::read(path, files::IMAGE).map(Cow::Owned),
        Part::Bytes { from, length } => files::read_range(path, *from, *length).map(Cow::Owned),
        Part::Value(column, row) => {
            value = column.value(*row)?;
            Ok(Cow::Borrowed(value.as_ref()))
        }
    };
    then(&bytes.map_err(|reason| Error::usage(format!("can't read {shown}: {reason}")))?)
}

/// Resizes and crops a decoded image: channels × height × width values in [0,1].
pub fn prepare(image: DynamicImage, prep: &Preparation) -> Result<Vec<f32>> {
    let shape = [prep.channels, image.height() as usize, image.width() as usize];
    if image.width() == 0 || image.height() == 0 {
        return Err(Error::usage("it has no pixels"));
    }
    let colour = image.color();
    match colour.bytes_per_pixel() / colour.channel_count() {
        1 => resample(&image.into_rgb8().into_raw(), BYTE, prep, shape),
        2 => resample(&image.into_rgb16().into_raw(), 65535.0, prep, shape),
        _ => {
            let rgb = image.into_rgb32f().into_raw();
            if let Some(value) = rgb.iter().find(|value| !(0.0..=1.0).contains(*value)) {
                return Err(Error::usage(format!(
                    "a floating-point pixel has value {value}. Expected are values in [0,1]"
                )));
            }
            resample(&rgb, 1.0, prep, shape)
        }
    }
}

/// Resizes and crops RGB values as they are stored, up to `white`: channels × height × width values in [0,1].
/// Large photographs would not fit as floats. The channels are not computed in parallel: see [`Room`].
fn resample<T: Copy + Into<f32>>(
    rgb: &[T],
    white: f32,
    prep: &Preparation,
    shape: [usize; 3],
) -> Result<Vec<f32>> {
    let resampling = Resampling::of_levels(prep, shape, white)?;
    let ((pixels, _), width) = (rgb.as_chunks::<3>(), shape[2]);
    let read = |channel: usize, row: usize, levels: &mut [f32]| {
        let levels = levels.iter_mut().zip(&pixels[row * width..][..width]);
        match prep.channels {
            1 => levels.for_each(|(level, pixel)| *level = luma(*pixel, white)),
            _ => levels.for_each(|(level, pixel)| *level = pixel[channel].into()),
        }
    };
    let mut out = vec![0.0; prep.channels * prep.height * prep.width];
    for (channel, out) in out.chunks_exact_mut(prep.height * prep.width).enumerate() {
        resampling.resize_channel(channel, &read, out);
    }
    Ok(out)
}

/// The 8-bit image of planar values [C, H, W] in [0, 1], with 1 or 3 channels.
pub fn picture(data: &[f32], [channels, height, width]: [usize; 3]) -> DynamicImage {
    let area = height * width;
    let byte =
        |channel: usize, x: u32, y: u32| grey_level(data[channel * area + y as usize * width + x as usize]);
    let (w, h) = (width as u32, height as u32);
    match channels {
        1 => ImageBuffer::from_fn(w, h, |x, y| Luma([byte(0, x, y)])).into(),
        _ => ImageBuffer::from_fn(w, h, |x, y| Rgb([0, 1, 2].map(|c| byte(c, x, y)))).into(),
    }
}

/// The PNG file of an image.
pub fn png(image: &DynamicImage) -> ImageResult<Vec<u8>> {
    let mut file = Vec::new();
    image.write_with_encoder(PngEncoder::new(&mut file))?;
    Ok(file)
}

/// The JPEG file of an image, at a quality from 1 to 100.
pub fn jpeg(image: &DynamicImage, quality: u8) -> ImageResult<Vec<u8>> {
    let mut file = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, quality))?;
    Ok(file)
}

/// Refuses to resize to no pixels or to more than [`MOST_PIXELS`].
pub(super) fn check_resized((height, width): (usize, usize), (rows, columns): (usize, usize)) -> Result<()> {
    if rows == 0 || columns == 0 || rows.saturating_mul(columns) as u64 > MOST_PIXELS {
        return Err(Error::usage(format!(
            "it has {height} x {width} pixels and would be resized to {rows} x {columns}. The most is {} million pixels",
            MOST_PIXELS / 1_000_000
        )));
    }
    Ok(())
}

/// Maximum number of pixels. A larger image is no photograph, and a few at once exceed any memory.
const MOST_PIXELS: u64 = 200_000_000;

/// The image in a file, and its orientation. Errors: why it can't be decoded, and advice. A truncated file is
/// refused.
pub fn decode(bytes: &[u8], path: &Path) -> std::result::Result<(DynamicImage, Orientation), String> {
    let (image, orientation, _) = decoded(bytes, path, 0).map_err(|why| match why {
        Undecoded::Wrong(reason) | Undecoded::NoRoom(reason) => reason,
    })?;
    Ok((image, orientation))
}

/// Why an image can't be decoded, and advice.
pub(super) enum Undecoded {
    Wrong(String),
    /// At present there is too little memory.
    NoRoom(String),
}

impl Undecoded {
    pub(super) fn error(self, shown: &impl Display) -> Error {
        match self {
            Undecoded::Wrong(reason) => Error::usage(format!("can't decode image {shown}: {reason}")),
            // Of another exit code, since the image is not at fault and must not be left out for it.
            Undecoded::NoRoom(reason) => Error::internal(format!("can't decode image {shown}: {reason}")),
        }
    }
}

impl From<String> for Undecoded {
    fn from(reason: String) -> Undecoded {
        Undecoded::Wrong(reason)
    }
}

/// Height and width of the image in a file, turned as its EXIF data say, and how its colours are stored;
/// `None` if its header can't be read.
pub(super) fn header(path: &Path) -> Option<([usize; 2], ColorType)> {
    let file = std::io::BufReader::new(files::open(path).ok()?);
    let mut decoder = ImageReader::new(file).with_guessed_format().ok()?.into_decoder().ok()?;
    let turned = matches!(
        decoder.orientation().ok()?,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    let (width, height) = decoder.dimensions();
    let size = if turned { [width, height] } else { [height, width] };
    Some((size.map(|side| side as usize), decoder.color_type()))
}

/// [`decode`] with the room that the image takes in memory, and `floats` values of each of its pixels.
pub(super) fn decoded(
    bytes: &[u8],
    path: &Path,
    floats: usize,
) -> std::result::Result<(DynamicImage, Orientation, Room), Undecoded> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
    let by = reader.format();
    if bytes.is_empty() {
        return Err(format::EMPTY.to_string().into());
    }
    if by.is_some_and(|by| format::is_cut(by, bytes)) {
        return Err(format::CUT.to_string().into());
    }
    let why = |error: ImageError| format::why(&error, by, bytes, path);
    let mut decoder = reader.into_decoder().map_err(why)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MOST_PIXELS {
        let reason =
            format!("{width} x {height} pixels, and at most {} million are read", MOST_PIXELS / 1_000_000);
        return Err(why(std::io::Error::other(reason).into()).into());
    }
    let orientation = decoder.orientation().map_err(why)?;
    let needed = needed(pixels, decoder.color_type()) + pixels * (floats * size_of::<f32>()) as u64;
    let room = Room::take(needed).ok_or_else(|| {
        Undecoded::NoRoom(format!(
            "{width} x {height} pixels are too large for the memory that is free. Make it smaller, or free memory"
        ))
    })?;
    let image = DynamicImage::from_decoder(decoder).map_err(why)?;
    Ok((image, orientation, room))
}

/// Bytes of a decoded image, and of a copy of it that is rotated, or has other channels.
fn needed(pixels: u64, colour: ColorType) -> u64 {
    let (each, channels) = (u64::from(colour.bytes_per_pixel()), u64::from(colour.channel_count()));
    pixels * (each + each.max(3 * each / channels))
}

/// The largest value of 8 bits.
pub(super) const BYTE: f32 = 255.0;

/// ITU-R 601 luma. The weights sum to 65536 and f64 represents every product, so a grey pixel doesn't change.
fn luma<T: Copy + Into<f32>>(pixel: [T; 3], white: f32) -> f32 {
    let [red, green, blue] = pixel.map(|v| f64::from(v.into()));
    let grey = (19595.0 * red + 38470.0 * green + 7471.0 * blue) / 65536.0;
    if white == BYTE { (grey + 0.5) as u8 as f32 } else { grey as f32 }
}

/// For each place in `wanted` of `to` places: indices and weights of the places, of `from`, that it is made
/// from.
///
/// With antialiasing, as in PIL (`ImagingResample`) and torchvision: the filter widens as the image shrinks,
/// and is renormalised at the edges; for `bytes`, weights are multiples of 2⁻²², as in PIL. Without, as in
/// PyTorch's `interpolate`: two or four neighbours, edges repeated. The cubic's parameter is −0.5 with and
/// −0.75 without, as in these libraries.
pub(super) fn taps(
    from: usize,
    to: usize,
    wanted: Range<usize>,
    how: Interpolation,
    bytes: bool,
) -> Vec<Vec<(usize, f64)>> {
    const FRACTION: f64 = (1u32 << 22) as f64;
    let scale = from as f64 / to as f64;
    let last = from - 1;
    let centre = |i: usize| (i as f64 + 0.5) * scale;
    let (filter, reach): (fn(f64, f64) -> f64, f64) = match how {
        Interpolation::Nearest => {
            return wanted.map(|i| vec![((centre(i) as usize).min(last), 1.0)]).collect();
        }
        Interpolation::Bilinear | Interpolation::BilinearAliased => (|x, _| (1.0 - x).max(0.0), 1.0),
        Interpolation::Bicubic | Interpolation::BicubicAliased => (cubic, 2.0),
    };
    let place = |i: usize| {
        let centre = centre(i);
        let weighted = |at: i64, wide: f64, a: f64| filter(((at as f64 + 0.5 - centre) / wide).abs(), a);
        if matches!(how, Interpolation::Bilinear | Interpolation::Bicubic) {
            let wide = scale.max(1.0);
            let low = (centre - reach * wide + 0.5).floor().max(0.0) as i64;
            let high = ((centre + reach * wide + 0.5).floor() as i64).min(from as i64);
            let weights: Vec<f64> = (low..high).map(|at| weighted(at, wide, -0.5)).collect();
            let sum: f64 = weights.iter().sum();
            let kept = |w: f64| if bytes { (w / sum * FRACTION).round() / FRACTION } else { w / sum };
            return (low..high).zip(weights).map(|(at, w)| (at as usize, kept(w))).collect();
        }
        let (first, count) = ((centre - 0.5).floor() as i64 + 1 - reach as i64, 2 * reach as i64);
        let clipped = |at: i64| at.clamp(0, last as i64) as usize;
        (first..first + count).map(|at| (clipped(at), weighted(at, 1.0, -0.75))).collect()
    };
    wanted.map(place).collect()
}

/// Keys' cubic convolution kernel at distance `x`, with parameter `a`.
fn cubic(x: f64, a: f64) -> f64 {
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of the pixels counts as well: of a photograph, floats that take four times its memory.
    #[test]
    fn an_image_takes_room_for_what_is_made_of_it() {
        let file = png(&picture(&[0.5], [1, 1, 1])).unwrap();
        let fits = |floats| match decoded(&file, Path::new("one.png"), floats) {
            Ok(_) => true,
            Err(Undecoded::NoRoom(_)) => false,
            Err(Undecoded::Wrong(why)) => panic!("{why}"),
        };
        assert!(fits(3));
        assert!(!fits(usize::MAX >> 4));
    }
}

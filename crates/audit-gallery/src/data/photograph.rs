//! A photograph at its own size, the resampling of its pixels to a model's input, and the gradient back.

use super::image::{BYTE, check_resized, decoded, header, jpeg, picture, png, taps};
use super::{Interpolation, Preparation, Resize};
use audit_base::{Error, Result, files};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The decoded image of a file, rotated by its EXIF orientation.
#[derive(Clone, Debug)]
pub struct Photograph {
    /// Channels, height, width.
    pub shape: [usize; 3],
    /// [C, H, W] in [0, 1], multiples of 1/255.
    pub data: Vec<f32>,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
}

/// Differences of the JPEG qualities over which an attack averages its gradient. The first is that of the
/// file that is written.
pub const QUALITIES: [i16; 3] = [0, -10, 10];

/// The smallest difference between two values of an 8-bit file, as a part of the [0, 1] range.
pub const GREY_LEVEL: f32 = 1.0 / BYTE;

/// The grey level to which an 8-bit file rounds a value in [0, 1].
pub fn grey_level(value: f32) -> u8 {
    // For positive numbers, this is faster than `round`.
    (value * BYTE + 0.5) as u8
}

/// The value of an 8-bit file for a value in [0, 1].
pub fn file_value(value: f32) -> f32 {
    f32::from(grey_level(value)) / BYTE
}

impl Photograph {
    /// Reads a file for a model of 1 or 3 channels. Alpha is dropped and the colour below it stays, as in
    /// PIL's `convert("RGB")`. Errors (exit code 2): the file can't be read or decoded; it has more than 8
    /// bits per channel; it is in colour, and the model takes grey images. Exit code 1: it needs more memory
    /// than is free.
    pub fn read(path: &Path, channels: usize) -> Result<Photograph> {
        let bytes = files::read(path, files::IMAGE)
            .map_err(|reason| Error::usage(format!("can't read {}: {reason}", path.display())))?;
        Photograph::of(&bytes, path, channels)
    }

    /// The shape [C, H, W] of the photograph in a file, from its header alone; `None` if that can't be read.
    /// Errors (exit code 2): those of [`Photograph::read`] that a header shows; a file of colours, even if
    /// all are grey, if the model takes grey images.
    pub fn shape(path: &Path, channels: usize) -> Option<Result<[usize; 3]>> {
        let ([height, width], colour) = header(path)?;
        let refused = |why: &str| Some(Err(Error::usage(format!("{} {why}", path.display()))));
        if colour.bytes_per_pixel() != colour.channel_count() {
            return refused("has more than 8 bits a channel");
        }
        if channels == 1 && colour.has_color() {
            return refused("is in colour, and the model takes grey images");
        }
        Some(Ok([channels, height, width]))
    }

    /// Decodes the bytes of a file; `path` names it in errors. Errors: those of [`Photograph::read`].
    pub fn of(bytes: &[u8], path: &Path, channels: usize) -> Result<Photograph> {
        let shown = path.display();
        let (mut image, orientation, _room) =
            decoded(bytes, path, channels).map_err(|why| why.error(&shown))?;
        let colour = image.color();
        if colour.bytes_per_pixel() != colour.channel_count() {
            return Err(Error::usage(format!(
                "{shown} has more than 8 bits a channel, and attacked files have 8. Save it with 8 bits a channel"
            )));
        }
        image.apply_orientation(orientation);
        let rgb = image.into_rgb8();
        let (width, height) = (rgb.width() as usize, rgb.height() as usize);
        if width == 0 || height == 0 {
            return Err(Error::usage(format!("{shown} has no pixels")));
        }
        let values = rgb.into_raw();
        if channels == 1 && values.chunks_exact(3).any(|p| p[0] != p[1] || p[1] != p[2]) {
            return Err(Error::usage(format!(
                "{shown} is in colour, and the model takes grey images. Save it in grey, as `convert(\"L\")` in Pillow does"
            )));
        }
        let plane = |channel: usize| values.iter().skip(channel).step_by(3).map(|v| f32::from(*v) / BYTE);
        // Without its length the vector would grow to twice that.
        let mut data = Vec::with_capacity(channels * width * height);
        (0..channels).for_each(|channel| data.extend(plane(channel)));
        Ok(Photograph { shape: [channels, height, width], data, digest: Sha256::digest(bytes).into() })
    }
}

/// The file of an image [C, H, W] in [0, 1]: a PNG, or a JPEG at a quality from 1 to 100 with full chroma
/// resolution.
pub fn file_of(image: &[f32], shape: [usize; 3], quality: Option<u8>) -> Result<Vec<u8>> {
    let picture = picture(image, shape);
    let file = quality.map_or_else(|| png(&picture), |quality| jpeg(&picture, quality));
    file.map_err(|e| {
        Error::internal(format!("can't encode an image of {} x {} pixels: {e}", shape[1], shape[2]))
    })
}

/// Resizes an image [C, H, W] in [0, 1] by Pillow's bilinear interpolation.
pub fn resized(image: &[f32], from: [usize; 3], [height, width]: [usize; 2]) -> Result<Vec<f32>> {
    let resize = Some(Resize::Exact(height, width));
    let prep = Preparation { resize, ..Preparation::new(from[0], height, width) };
    let mut out = vec![0.0; from[0] * height * width];
    Resampling::new(&prep, from)?.apply(image, &mut out)?;
    Ok(out)
}

/// [`grey_level`] as a float, by additions that compilers vectorise: float32 has no fractions beyond 2²³.
fn whole_level(value: f32) -> f32 {
    const WHOLE: f32 = 8_388_608.0;
    let above = (value * BYTE + 0.5).clamp(0.0, BYTE);
    let nearest = (above + WHOLE) - WHOLE;
    if nearest > above { nearest - 1.0 } else { nearest }
}

/// Number of rows of a photograph that are resized together, for vector instructions. The sum of each pixel
/// keeps its order.
const LANES: usize = 8;

/// Resize and centre crop of images of one size, and the gradient back. Only the crop is computed.
///
/// Along rows, then along columns, as in PIL until version 12 and torchvision. (Later versions start with the
/// cheaper axis, which changes bicubic's overshoots.) With 8-bit images and antialiasing, values are rounded
/// to 8 bits after each pass, as in PIL.
#[derive(Clone)]
pub struct Resampling {
    /// Shape of the photograph: channels, height, width.
    shape: [usize; 3],
    /// For each row and column of the model's input: indices and weights of the places that it is made from.
    rows: Vec<Vec<(usize, f64)>>,
    columns: Vec<Vec<(usize, f64)>>,
    /// For each column of the photograph: the columns of the input that depend on it, and its weights.
    used_by: Vec<Vec<(usize, f32)>>,
    /// Value of white: 255 for images of 8 bits.
    white: f32,
    /// Whether values are clipped after each pass; otherwise overshoots are clipped at the end only.
    antialiased: bool,
    /// Quality of the JPEG file as which the image is saved first; `None`: a lossless file.
    jpeg: Option<u8>,
}

// Loops over indices: with iterators the compiler doesn't vectorise them here, and they take three times as
// long.
#[allow(clippy::needless_range_loop)]
impl Resampling {
    /// From photographs of this shape [C, H, W] to the input in `prep`. Errors (exit code 2): the crop is
    /// larger than the resized image, or that is too large.
    pub fn new(prep: &Preparation, shape: [usize; 3]) -> Result<Resampling> {
        let made = Resampling::of_levels(prep, shape, BYTE)?;
        let mut used_by = vec![Vec::new(); shape[2]];
        for (column, taps) in made.columns.iter().enumerate() {
            taps.iter().for_each(|&(at, weight)| used_by[at].push((column, weight as f32)));
        }
        Ok(Resampling { used_by, ..made })
    }

    /// [`Resampling::new`] for images of another depth, without the gradient back.
    pub(super) fn of_levels(prep: &Preparation, shape: [usize; 3], white: f32) -> Result<Resampling> {
        prep.check()?;
        let [channels, height, width] = shape;
        if channels != prep.channels {
            return Err(Error::internal(format!(
                "an image of {channels} channels for {} of a model",
                prep.channels
            )));
        }
        let (rows, columns) = prep.resized((height, width));
        check_resized((height, width), (rows, columns))?;
        if rows < prep.height || columns < prep.width {
            return Err(Error::usage(format!(
                "an image of {height} x {width} pixels is resized to {rows} x {columns}, and the model takes {} x {}",
                prep.height, prep.width
            )));
        }
        let how = prep.interpolation;
        let antialiased = matches!(how, Interpolation::Bilinear | Interpolation::Bicubic);
        // An image that has its size already is not resized.
        let resized = (rows, columns) != (height, width);
        let along = |from: usize, to: usize, cut: usize| -> Vec<Vec<(usize, f64)>> {
            let first = prep.crop.first(to - cut);
            let wanted = first..first + cut;
            match resized {
                true => taps(from, to, wanted, how, antialiased && white == BYTE),
                false => wanted.map(|i| vec![(i, 1.0)]).collect(),
            }
        };
        Ok(Resampling {
            shape,
            rows: along(height, rows, prep.height),
            columns: along(width, columns, prep.width),
            used_by: Vec::new(),
            white,
            antialiased,
            jpeg: None,
        })
    }

    /// With a JPEG file of this quality, saved and read again, before the resize. The gradient passes the
    /// file straight through.
    pub fn through_jpeg(self, quality: Option<u8>) -> Resampling {
        Resampling { jpeg: quality, ..self }
    }

    /// The image [C, H, W] as read from its JPEG file.
    fn read_again(&self, image: &[f32], quality: u8) -> Result<Vec<f32>> {
        let bytes = file_of(image, self.shape, Some(quality))?;
        Ok(Photograph::of(&bytes, Path::new("the attacked image"), self.shape[0])?.data)
    }

    /// The shape of the photographs, [C, H, W].
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Whether the model's input is the photograph itself.
    pub fn is_identity(&self) -> bool {
        let same = |taps: &[Vec<(usize, f64)>], length: usize| {
            taps.len() == length && taps.iter().enumerate().all(|(i, taps)| taps[..] == [(i, 1.0)])
        };
        same(&self.rows, self.shape[1]) && same(&self.columns, self.shape[2])
    }

    /// Writes the model's input [C, h, w] for a photograph [C, H, W], both in [0, 1]. The photograph is first
    /// rounded to grey levels, as in its file. Error: a JPEG file can't be made (exit code 1).
    pub fn apply(&self, photograph: &[f32], input: &mut [f32]) -> Result<()> {
        self.apply_at(0, photograph, input)
    }

    /// [`Resampling::apply`] for a JPEG file of one of the [`QUALITIES`], by its index.
    pub fn apply_at(&self, place: usize, photograph: &[f32], input: &mut [f32]) -> Result<()> {
        match self.jpeg {
            None => self.resize(photograph, input, whole_level),
            Some(quality) => {
                let quality = (i16::from(quality) + QUALITIES[place]).clamp(1, 100) as u8;
                self.resize(&self.read_again(photograph, quality)?, input, whole_level);
            }
        }
        Ok(())
    }

    /// Writes the model's input in [0, 1]. `level`: the value of a pixel, 0 to white.
    fn resize(&self, image: &[f32], input: &mut [f32], level: impl Fn(f32) -> f32 + Sync) {
        let [_, height, width] = self.shape;
        let read = |channel: usize, row: usize, levels: &mut [f32]| {
            let row = &image[(channel * height + row) * width..][..width];
            levels.iter_mut().zip(row).for_each(|(to, v)| *to = level(*v));
        };
        let channels = input.par_chunks_exact_mut(self.rows.len() * self.columns.len()).enumerate();
        channels.for_each(|(channel, out)| self.resize_channel(channel, &read, out));
    }

    /// Writes a channel of the model's input in [0, 1]. `read` writes the values of a row of a channel, 0 to
    /// white.
    pub(super) fn resize_channel(
        &self,
        channel: usize,
        read: &impl Fn(usize, usize, &mut [f32]),
        out: &mut [f32],
    ) {
        let (columns, width) = (self.columns.len(), self.shape[2]);
        let (from, to) = self.rows_read();
        let mut wide = vec![0.0f64; (to - from) * columns];
        let (mut levels, mut lanes) = (vec![0.0f32; width], vec![[0.0f32; LANES]; width]);
        for (first, wide) in (from..to).step_by(LANES).zip(wide.chunks_mut(columns * LANES)) {
            for (lane, row) in (first..to.min(first + LANES)).enumerate() {
                read(channel, row, &mut levels);
                lanes.iter_mut().zip(&levels).for_each(|(lanes, level)| lanes[lane] = *level);
            }
            self.along_rows(&lanes, wide);
        }
        self.along_columns(&wide, from, out);
    }

    /// Resizes up to [`LANES`] rows to the width of the crop. `lanes`: their pixels by column.
    fn along_rows(&self, lanes: &[[f32; LANES]], out: &mut [f64]) {
        let columns = self.columns.len();
        for (column, taps) in self.columns.iter().enumerate() {
            let mut sums = [0.0f64; LANES];
            for &(at, weight) in taps {
                let read = &lanes[at];
                for lane in 0..LANES {
                    sums[lane] += weight * f64::from(read[lane]);
                }
            }
            if self.antialiased {
                self.settle(&mut sums);
            } else {
                sums.iter_mut().for_each(|sum| *sum = f64::from(*sum as f32));
            }
            for lane in 0..out.len() / columns {
                out[lane * columns + column] = sums[lane];
            }
        }
    }

    /// Writes the crop in [0, 1] from rows of its width. `first`: the photograph's row that `wide` begins
    /// with.
    fn along_columns(&self, wide: &[f64], first: usize, out: &mut [f32]) {
        let columns = self.columns.len();
        let mut sums = vec![0.0f64; columns];
        for (out, taps) in out.chunks_exact_mut(columns).zip(&self.rows) {
            sums.fill(0.0);
            for &(at, weight) in taps {
                let row = &wide[(at - first) * columns..][..columns];
                sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += weight * v);
            }
            self.settle(&mut sums);
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = *sum as f32 / self.white);
        }
    }

    /// Clips sums of weighted levels to [0, white], and rounds them to whole levels if images have 8 bits and
    /// are antialiased.
    fn settle(&self, sums: &mut [f64]) {
        // A value from 0 to 2⁵¹ loses its fraction if 2⁵² is added. Compilers vectorise this and the
        // comparison, but not a cast to a byte.
        const WHOLE: f64 = (1u64 << 52) as f64;
        if self.antialiased && self.white == BYTE {
            for sum in sums {
                let above = (*sum + 0.5).clamp(0.0, f64::from(BYTE));
                let nearest = (above + WHOLE) - WHOLE;
                *sum = if nearest > above { nearest - 1.0 } else { nearest };
            }
        } else {
            let white = f64::from(self.white);
            sums.iter_mut().for_each(|sum| *sum = f64::from(sum.clamp(0.0, white) as f32));
        }
    }

    /// Writes the gradient for the photograph [C, H, W] from that for the model's input [C, h, w]: the
    /// transpose of the resize. Rounding and clipping pass it straight through.
    pub fn pull_back(&self, input: &[f32], photograph: &mut [f32]) {
        let [_, height, width] = self.shape;
        let (rows, columns) = (self.rows.len(), self.columns.len());
        let (from, to) = self.rows_read();
        let channels =
            input.par_chunks_exact(rows * columns).zip(photograph.par_chunks_exact_mut(height * width));
        channels.for_each(|(given, out)| {
            let mut wide = vec![0.0f32; (to - from) * columns];
            for (given, taps) in given.chunks_exact(columns).zip(&self.rows) {
                for &(at, weight) in taps {
                    let row = &mut wide[(at - from) * columns..][..columns];
                    row.iter_mut().zip(given).for_each(|(sum, v)| *sum += weight as f32 * v);
                }
            }
            out[..from * width].fill(0.0);
            out[to * width..].fill(0.0);
            let mut lanes = vec![[0.0f32; LANES]; columns];
            let written = out[from * width..to * width].chunks_mut(width * LANES);
            for (given, out) in wide.chunks(columns * LANES).zip(written) {
                for (lane, row) in given.chunks_exact(columns).enumerate() {
                    lanes.iter_mut().zip(row).for_each(|(lanes, v)| lanes[lane] = *v);
                }
                for (place, taps) in self.used_by.iter().enumerate() {
                    let mut sums = [0.0f32; LANES];
                    for &(column, weight) in taps {
                        let read = &lanes[column];
                        for lane in 0..LANES {
                            sums[lane] += weight * read[lane];
                        }
                    }
                    for lane in 0..out.len() / width {
                        out[lane * width + place] = sums[lane];
                    }
                }
            }
        });
    }

    /// The first row on which the crop depends, and the one after the last.
    fn rows_read(&self) -> (usize, usize) {
        let all = || self.rows.iter().flatten().map(|&(at, _)| at);
        (all().min().unwrap_or(0), all().max().map_or(0, |last| last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::{picture, prepare};
    use super::*;
    use audit_base::choice::Choice;
    use audit_base::random::Random;

    fn photograph(shape: [usize; 3], seed: u64) -> Vec<f32> {
        let mut random = Random::seeded(seed);
        let count = shape.iter().product();
        (0..count).map(|_| ((random.unit() * 256.0) as u8) as f32 / BYTE).collect()
    }

    /// Sizes larger and smaller than the input, on one side only, and equal to it; every interpolation and
    /// kind of resize.
    fn cases() -> Vec<(Preparation, [usize; 3])> {
        let mut all = Vec::new();
        for &(interpolation, ..) in Interpolation::ALL {
            for resize in [None, Some(Resize::Shorter(20)), Some(Resize::Exact(18, 23))] {
                for (channels, height, width) in
                    [(3, 40, 61), (1, 9, 14), (3, 16, 17), (3, 100, 30), (1, 20, 33)]
                {
                    let prep = Preparation { resize, interpolation, ..Preparation::new(channels, 16, 17) };
                    all.push((prep, [channels, height, width]));
                }
            }
        }
        all
    }

    /// tests/it/data.rs compares the images of the data set with Pillow's.
    #[test]
    fn a_photograph_becomes_the_input_that_a_file_of_it_becomes() {
        for (seed, (prep, shape)) in cases().into_iter().enumerate() {
            let data = photograph(shape, seed as u64);
            let expected = prepare(picture(&data, shape), &prep).unwrap();
            let mut found = vec![f32::NAN; expected.len()];
            Resampling::new(&prep, shape).unwrap().apply(&data, &mut found).unwrap();
            assert_eq!(found, expected, "{prep:?} {shape:?}");
        }
    }

    /// Each is the file of its quality, which is limited to 1 to 100.
    #[test]
    fn files_of_several_qualities_are_those_of_each() {
        let shape = [3, 24, 40];
        let data = photograph(shape, 5);
        let way = Resampling::new(&Preparation::new(3, 16, 17), shape).unwrap();
        let apply = |quality: u8, place: usize| {
            let mut input = vec![f32::NAN; 3 * 16 * 17];
            way.clone().through_jpeg(Some(quality)).apply_at(place, &data, &mut input).unwrap();
            input
        };
        for (quality, expected) in [(75, [75, 65, 85]), (95, [95, 85, 100]), (4, [4, 1, 14])] {
            for (place, expected) in expected.into_iter().enumerate() {
                assert_eq!(apply(quality, place), apply(expected, 0), "{quality} at {place}");
            }
        }
        assert_ne!(apply(75, 0), apply(75, 1));
    }

    /// A cast to a byte truncates and saturates.
    #[test]
    fn settled_sums_are_those_of_a_cast() {
        let prep = Preparation { interpolation: Interpolation::Bilinear, ..Preparation::new(1, 4, 4) };
        let resampling = Resampling::new(&prep, [1, 4, 4]).unwrap();
        let halves = (-8..=520).map(|i| f64::from(i) / 2.0);
        let sums = halves.flat_map(|sum| [sum.next_down(), sum, sum.next_up()]);
        for sum in sums.chain([-0.0, f64::INFINITY, f64::NEG_INFINITY]) {
            let mut found = [sum];
            resampling.settle(&mut found);
            assert_eq!(found[0].to_bits(), f64::from((sum + 0.5) as u8).to_bits(), "{sum}");
        }
    }

    #[test]
    fn whole_levels_are_those_of_a_file() {
        for i in -20_000..=80_000 {
            let value = i as f32 / 60_000.0;
            assert_eq!(whole_level(value), f32::from(grey_level(value)), "{value}");
        }
    }

    /// ⟨A x, g⟩ = ⟨x, Aᵀ g⟩. If values are rounded or clipped, this holds up to the error of rounding.
    #[test]
    fn gradients_are_those_of_the_resize() {
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        for (seed, (prep, shape)) in cases().into_iter().enumerate() {
            let resampling = Resampling::new(&prep, shape).unwrap();
            // Differences of grey levels around a mean, so that nothing is clipped.
            let x: Vec<f32> =
                photograph(shape, 7).iter().map(|v| ((127.0 + 60.0 * (v - 0.5)).round()) / BYTE).collect();
            let mut random = Random::seeded(seed as u64);
            let g: Vec<f32> =
                (0..prep.channels * prep.height * prep.width).map(|_| random.sign_unit()).collect();
            let (mut ax, mut atg) = (vec![0.0; g.len()], vec![f32::NAN; x.len()]);
            resampling.apply(&x, &mut ax).unwrap();
            resampling.pull_back(&g, &mut atg);
            let (forward, back) = (dot(&ax, &g), dot(&x, &atg));
            let rounding = if resampling.antialiased { 4.0 * (g.len() as f64).sqrt() / 255.0 } else { 1e-3 };
            assert!((forward - back).abs() < rounding, "{prep:?} {shape:?}: {forward} and {back}");
        }
    }
}

//! Natural corruptions: changes of photographs without an attacker, at five strengths. Each has one file and
//! one row of [`CORRUPTIONS`].
//!
//! Noise, blur, JPEG, brightness and contrast are those of Hendrycks & Dietterich, "Benchmarking Neural
//! Network Robustness to Common Corruptions and Perturbations" (ICLR 2019, arXiv:1903.12261), with the
//! constants of their code: those of CIFAR-10-C for images with no side longer than [`SMALL_SIDE`], those of
//! ImageNet-C for larger ones. Rotation and crop are not in their benchmark.
//!
//! A corruption changes pixels in [0, 1] at the model's size, which attacks change too. Its random choices
//! depend on the seed, its name and the query's id, and are the same at all strengths.

mod blur;
mod brightness;
mod contrast;
pub mod crop;
mod jpeg;
mod noise;
pub mod rotation;

use audit_base::Result;
use audit_base::error::unknown;
use audit_base::random::Random;

/// Every corruption, in the order of reports.
pub static CORRUPTIONS: &[Corruption] = &[
    noise::NOISE,
    blur::BLUR,
    jpeg::JPEG,
    brightness::BRIGHTNESS,
    contrast::CONTRAST,
    rotation::ROTATION,
    crop::CROP,
];

/// Number of strengths of each corruption.
pub const STRENGTHS: usize = 5;

/// Longest side of a small image, in pixels: that of CIFAR-10.
pub const SMALL_SIDE: usize = 32;

/// Side of the images of ImageNet-C, in pixels.
const LARGE_SIDE: f64 = 224.0;

/// A kind of corruption.
pub struct Corruption {
    /// Name in suites, gates and seeds.
    pub name: &'static str,
    /// What it does, as a sentence without a full stop.
    pub about: &'static str,
    /// Meaning of its parameter.
    pub parameter: &'static str,
    /// Parameter at strengths 1 to 5 on small images.
    pub small: [f64; STRENGTHS],
    /// Parameter at strengths 1 to 5 on images of 224 × 224.
    pub large: [f64; STRENGTHS],
    /// Whether the parameter is a length in pixels, which scales with larger images.
    pub in_pixels: bool,
    /// Whether it has random choices, which follow from the seed and the query.
    pub drawn: bool,
    /// (pixels, parameter, random numbers) → corrupted pixels.
    change: fn(&Picture, f64, &mut Random) -> Result<Vec<f32>>,
}

/// The pixels of an image.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// C·H·W values in [0, 1].
    pub data: &'a [f32],
    /// C, H, W. C is 1 or 3.
    pub shape: [usize; 3],
}

impl Corruption {
    /// The corruption called `name`. Error (exit code 2): there is none.
    pub fn find(name: &str) -> Result<&'static Corruption> {
        let found = CORRUPTIONS.iter().find(|c| c.name == name);
        found.ok_or_else(|| unknown("corruption", name, CORRUPTIONS.iter().map(|c| c.name)))
    }

    /// The parameter at `strength`, 1 to 5, on images whose longer side is `side` pixels.
    pub fn value(&self, strength: usize, side: usize) -> f64 {
        let index = strength.clamp(1, STRENGTHS) - 1;
        match (side <= SMALL_SIDE, self.in_pixels) {
            (true, _) => self.small[index],
            (false, true) => self.large[index] * side as f64 / LARGE_SIDE,
            (false, false) => self.large[index],
        }
    }

    /// The image of the query `id` at `strength`, 1 to 5: C·H·W values in [0, 1]. Random choices depend on
    /// the seed and the id.
    pub fn apply(&self, picture: &Picture, strength: usize, seed: u64, id: &str) -> Result<Vec<f32>> {
        let [_, height, width] = picture.shape;
        let parts = [b"corruption", &seed.to_le_bytes()[..], self.name.as_bytes(), b"\0", id.as_bytes()];
        let mut random = Random::keyed(&parts);
        let changed = (self.change)(picture, self.value(strength, height.max(width)), &mut random)?;
        Ok(changed.into_iter().map(|v| v.clamp(0.0, 1.0)).collect())
    }
}

audit_base::known_by_name!(Corruption);

impl Picture<'_> {
    /// The channels, each H·W values.
    fn channels(&self) -> impl Iterator<Item = &[f32]> {
        self.data.chunks(self.shape[1] * self.shape[2])
    }

    /// The image whose pixel at (row, column) is the pixel at `from(row, column)` of this one, with bilinear
    /// interpolation. Edges are repeated beyond the image.
    fn sampled(&self, from: impl Fn(f64, f64) -> (f64, f64)) -> Vec<f32> {
        let [_, height, width] = self.shape;
        let mut out = Vec::with_capacity(self.data.len());
        for channel in self.channels() {
            for place in 0..height * width {
                let (row, column) = from((place / width) as f64, (place % width) as f64);
                let (row, column) =
                    (row.clamp(0.0, (height - 1) as f64), column.clamp(0.0, (width - 1) as f64));
                let (top, left) = (row as usize, column as usize);
                let (down, right) = (row.fract(), column.fract());
                let pixel =
                    |r: usize, c: usize| f64::from(channel[r.min(height - 1) * width + c.min(width - 1)]);
                let above = pixel(top, left) * (1.0 - right) + pixel(top, left + 1) * right;
                let below = pixel(top + 1, left) * (1.0 - right) + pixel(top + 1, left + 1) * right;
                out.push((above * (1.0 - down) + below * down) as f32);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_grow_with_images_where_they_are_lengths() {
        let blur = Corruption::find("blur").unwrap();
        assert_eq!([28, 32].map(|side| blur.value(5, side)), [1.0, 1.0]);
        assert_eq!([112, 224].map(|side| blur.value(5, side)), [3.0, 6.0]);
        let noise = Corruption::find("noise").unwrap();
        assert_eq!([32, 112, 224].map(|side| noise.value(1, side)), [0.04, 0.08, 0.08]);
        let error = Corruption::find("blurr").unwrap_err().message;
        assert!(error.contains("did you mean `blur`?") && error.contains("rotation"), "{error}");
    }

    /// Random choices depend on seed and id only, and the image stays in [0, 1].
    #[test]
    fn corruptions_follow_from_seed_and_id() {
        let data: Vec<f32> = (0..3 * 12 * 10).map(|i| (i % 11) as f32 / 10.0).collect();
        let picture = Picture { data: &data, shape: [3, 12, 10] };
        for corruption in CORRUPTIONS {
            let made = |seed: u64, id: &str| corruption.apply(&picture, 5, seed, id).unwrap();
            let image = made(1, "a");
            assert!(image.iter().all(|v| (0.0..=1.0).contains(v)) && image.len() == data.len());
            assert_ne!(image, data, "{corruption:?}");
            assert_eq!(image, made(1, "a"), "{corruption:?}");
            let differs = (2..20).any(|seed| made(seed, "a") != image);
            assert_eq!(differs, corruption.drawn, "{corruption:?}");
            let of_query = (0..20).any(|n| made(1, &n.to_string()) != image);
            assert_eq!(of_query, corruption.drawn, "{corruption:?}");
        }
    }
}

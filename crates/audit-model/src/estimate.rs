//! Gradients estimated from forward passes alone: natural evolution strategies (NES; Ilyas et al., ICML
//! 2018).
//!
//! The estimate is for models that cannot be differentiated, and the user must ask for it. It is two orders
//! of magnitude slower than a gradient, and noisy, so attacks are weaker. For an output cotangent ē,
//!
//! ```text
//! g ≈ mean over pairs of (⟨f(x + σu), ē⟩ − ⟨f(x − σu), ē⟩) / 2σ · u,   u normal
//! ```

use audit_base::Result;
use audit_base::random::Random;
use ndarray::{Array2, ArrayView2};

pub use audit_report::facts::schedules::POPULATION;
/// Largest side of an image for which noise is drawn per pixel. For larger images coarser noise is drawn and
/// enlarged, because a few passes say little about single pixels.
const FINE: usize = 64;
/// Side of the coarse noise.
const COARSE: usize = 32;

/// The estimator: the seed of its random directions, and a count of passes.
///
/// The directions of an image depend only on the seed and the image's pixels, not on the rest of the batch or
/// on earlier calls. A trial therefore has the same result in every batch and after every interruption.
pub struct Estimator {
    seed: u64,
    /// Forward passes of one batch so far.
    pub passes: u64,
}

impl Estimator {
    /// An estimator whose directions follow from `seed`.
    pub fn new(seed: u64) -> Estimator {
        Estimator { seed, passes: 0 }
    }

    /// Estimates the gradient of ⟨f(x), ē⟩ for a batch `x` of images of `shape` [B, C, H, W], with one σ per
    /// image. The model sees images in [0, 1] alone. Returns [B, C, H, W] as a flat vector.
    pub fn gradient(
        &mut self,
        forward: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
        x: &[f32],
        shape: [usize; 4],
        cotangent: ArrayView2<f32>,
        sigma: &[f32],
    ) -> Result<Vec<f32>> {
        let pixels = shape[1..].iter().product::<usize>();
        let mut gradient = vec![0.0; x.len()];
        let [_, c, h, w] = shape;
        let mut directions: Vec<Random> =
            x.chunks(pixels).map(|image| directions(self.seed, image)).collect();
        for _ in 0..POPULATION / 2 {
            let noise = |random: &mut Random| noise([c, h, w], &mut || normal(random));
            let noise: Vec<f32> = directions.iter_mut().flat_map(noise).collect();
            let mut along = |sign: f32| -> Result<Vec<f32>> {
                let moved = |i: usize| (x[i] + sign * sigma[i / pixels] * noise[i]).clamp(0.0, 1.0);
                let moved: Vec<f32> = (0..x.len()).map(moved).collect();
                self.passes += 1;
                let e = forward(&moved)?;
                let rows = e.rows().into_iter().zip(cotangent.rows());
                Ok(rows.map(|(e, c)| e.dot(&c)).collect())
            };
            let (up, down) = (along(1.0)?, along(-1.0)?);
            for (i, (g, u)) in gradient.iter_mut().zip(&noise).enumerate() {
                let image = i / pixels;
                *g += (up[image] - down[image]) / (sigma[image] * POPULATION as f32) * u;
            }
        }
        Ok(gradient)
    }
}

/// The source of the random directions of one image.
fn directions(seed: u64, image: &[f32]) -> Random {
    let image: Vec<u8> = image.iter().flat_map(|v| v.to_le_bytes()).collect();
    Random::keyed(&[&seed.to_le_bytes(), &image])
}

/// A standard normal number, by the Box–Muller transform.
fn normal(random: &mut Random) -> f32 {
    // The offset of half a step of 2⁻²⁴ avoids the logarithm of 0.
    let mut unit = || random.unit() + 0.5 / (1u32 << 24) as f32;
    let (radius, angle) = (unit(), unit());
    (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
}

/// Noise for an image of shape [C, H, W], from normal numbers: one for each pixel, or where a side is larger
/// than 64 pixels 32 × 32 for each channel, enlarged by bilinear interpolation.
pub fn noise(shape: [usize; 3], normal: &mut dyn FnMut() -> f32) -> Vec<f32> {
    drawn(shape, normal, enlarge)
}

/// [`noise`] that is enlarged to blocks of equal pixels, as in robrank.
pub fn noise_of_blocks(shape: [usize; 3], normal: &mut dyn FnMut() -> f32) -> Vec<f32> {
    drawn(shape, normal, |small, h, w, out| {
        for y in 0..h {
            out.extend((0..w).map(|x| small[y * COARSE / h * COARSE + x * COARSE / w]));
        }
    })
}

fn drawn(
    [c, h, w]: [usize; 3],
    normal: &mut dyn FnMut() -> f32,
    enlarge: impl Fn(&[f32], usize, usize, &mut Vec<f32>),
) -> Vec<f32> {
    if h.max(w) <= FINE {
        return (0..c * h * w).map(|_| normal()).collect();
    }
    let mut out = Vec::with_capacity(c * h * w);
    for _ in 0..c {
        let small: Vec<f32> = (0..COARSE * COARSE).map(|_| normal()).collect();
        enlarge(&small, h, w, &mut out);
    }
    out
}

/// Enlarges COARSE × COARSE to h × w by bilinear interpolation, and appends the result to `out`.
fn enlarge(small: &[f32], h: usize, w: usize, out: &mut Vec<f32>) {
    let source = |i: usize, n: usize| {
        let at = ((i as f32 + 0.5) * COARSE as f32 / n as f32 - 0.5).clamp(0.0, (COARSE - 1) as f32);
        let low = (at as usize).min(COARSE - 2);
        (low, at - low as f32)
    };
    let columns: Vec<(usize, f32)> = (0..w).map(|x| source(x, w)).collect();
    for y in 0..h {
        let (row, down) = source(y, h);
        let at = |row: usize, column: usize| small[row * COARSE + column];
        out.extend(columns.iter().map(|&(column, right)| {
            let top = at(row, column) * (1.0 - right) + at(row, column + 1) * right;
            let bottom = at(row + 1, column) * (1.0 - right) + at(row + 1, column + 1) * right;
            top * (1.0 - down) + bottom * down
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One direction for an image of 72 × 80 pixels and two channels, whose coarse values are `of` (channel,
    /// row, column).
    fn enlarged(of: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
        let mut drawn = 0;
        let mut next = || {
            let (channel, place) = (drawn / (COARSE * COARSE), drawn % (COARSE * COARSE));
            drawn += 1;
            of(channel, place / COARSE, place % COARSE)
        };
        let found = noise([2, 72, 80], &mut next);
        assert_eq!((found.len(), drawn), (2 * 72 * 80, 2 * COARSE * COARSE));
        found
    }

    /// By hand. The centre of pixel i of n lies at (i + ½)·32/n − ½ between the centres of the coarse values,
    /// those at the edges held: a ramp has this value there, and what is constant stays so.
    #[test]
    fn noise_of_large_images_is_enlarged() {
        assert!(enlarged(|_, _, _| 0.75).iter().all(|v| *v == 0.75));
        // Columns: 0.4 of a coarse step each. Rows: 4/9.
        let columns = enlarged(|channel, _, column| (32 * channel + column) as f32);
        let rows = enlarged(|channel, row, _| (32 * channel + row) as f32);
        for (x, expected) in [(0, 0.0), (1, 0.1), (2, 0.5), (3, 0.9), (40, 15.7), (77, 30.5), (79, 31.0)] {
            for (channel, y) in [(0, 0), (0, 35), (1, 71)] {
                let found = columns[(channel * 72 + y) * 80 + x];
                assert!((found - 32.0 * channel as f32 - expected).abs() < 1e-5, "column {x}: {found}");
            }
        }
        for (y, expected) in [(0, 0.0), (1, 1.0 / 6.0), (2, 11.0 / 18.0), (36, 283.0 / 18.0), (71, 31.0)] {
            for (channel, x) in [(0, 0), (0, 40), (1, 79)] {
                let found = rows[(channel * 72 + y) * 80 + x];
                assert!((found - 32.0 * channel as f32 - expected).abs() < 1e-5, "row {y}: {found}");
            }
        }
        // One value alone: at the pixel that is nearest to it, the product of both shares.
        let one = enlarged(|channel, row, column| f32::from((channel, row, column) == (0, 1, 2)));
        // Row 3 lies at 3.5·4/9 − ½ = 19/18, column 6 at 6.5·0.4 − ½ = 2.1.
        assert!((one[3 * 80 + 6] - (17.0 / 18.0) * 0.9).abs() < 1e-6);
        assert!(one[72 * 80..].iter().all(|v| *v == 0.0), "channels are apart");
    }

    /// Of 64 × 96 pixels, two rows and three columns have one number.
    #[test]
    fn blocks_of_large_images_have_one_number() {
        let mut drawn = 0.0;
        let mut next = || {
            drawn += 1.0;
            drawn
        };
        let found = noise_of_blocks([1, 64, 96], &mut next);
        for (i, v) in found.iter().enumerate() {
            assert_eq!(*v, (1 + i / 96 / 2 * 32 + i % 96 / 3) as f32, "pixel {i}");
        }
    }

    /// Up to 64 pixels there is a number for each, as drawn.
    #[test]
    fn noise_of_small_images_is_that_of_each_pixel() {
        let mut drawn = 0.0;
        let mut next = || {
            drawn += 1.0;
            drawn
        };
        let found = noise([1, 64, 2], &mut next);
        assert_eq!(found, (1..=128).map(|v| v as f32).collect::<Vec<_>>());
    }
}

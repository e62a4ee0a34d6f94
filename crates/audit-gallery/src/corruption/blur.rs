//! Gaussian blur.

use super::{Corruption, Picture};
use audit_base::random::Random;

/// Convolution with a Gaussian of standard deviation σ.
pub const BLUR: Corruption = Corruption {
    name: "blur",
    about: "Gaussian blur",
    parameter: "standard deviation, pixels",
    small: [0.4, 0.6, 0.7, 0.8, 1.0],
    large: [1.0, 2.0, 3.0, 4.0, 6.0],
    in_pixels: true,
    drawn: false,
    change: |picture, deviation, _: &mut Random| Ok(blurred(picture, deviation)),
};

/// Radius of the kernel in standard deviations, as in SciPy's `gaussian_filter`.
const REACH: f64 = 4.0;

/// Along rows, then along columns. Edges are repeated beyond the image, as in scikit-image.
fn blurred(picture: &Picture, deviation: f64) -> Vec<f32> {
    let [_, height, width] = picture.shape;
    let radius = (REACH * deviation + 0.5) as usize;
    let kernel: Vec<f64> =
        (0..=2 * radius).map(|i| (-0.5 * ((i as f64 - radius as f64) / deviation).powi(2)).exp()).collect();
    let sum: f64 = kernel.iter().sum();
    let along = |data: &[f64], length: usize, place: &dyn Fn(usize, usize) -> usize| {
        let mut out = vec![0.0; data.len()];
        for line in 0..data.len() / length {
            for at in 0..length {
                let tap = |(i, weight): (usize, &f64)| {
                    let from = (at + i).saturating_sub(radius).min(length - 1);
                    weight / sum * data[place(line, from)]
                };
                out[place(line, at)] = kernel.iter().enumerate().map(tap).sum();
            }
        }
        out
    };
    let mut out = Vec::with_capacity(picture.data.len());
    for channel in picture.channels() {
        let wide: Vec<f64> = channel.iter().map(|v| f64::from(*v)).collect();
        let rows = along(&wide, width, &|row, column| row * width + column);
        let both = along(&rows, height, &|column, row| row * width + column);
        out.extend(both.into_iter().map(|v| v as f32));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blur keeps the sum of values, far from the edges.
    #[test]
    fn a_dot_becomes_a_spot_of_the_same_sum() {
        let mut data = vec![0.0; 31 * 31];
        data[15 * 31 + 15] = 1.0;
        let spot = blurred(&Picture { data: &data, shape: [1, 31, 31] }, 2.0);
        assert!((spot.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert_eq!(spot[15 * 31 + 13], spot[17 * 31 + 15]);
    }
}

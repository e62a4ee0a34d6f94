//! A part of the image, enlarged to its size.

use super::{Corruption, Picture};
use audit_base::random::Random;

/// A part of the image at a random place, resized to the size of the whole.
pub const CROP: Corruption = Corruption {
    name: "crop",
    about: "A part of the image, at a drawn place, resized to the whole",
    parameter: "share of each side that is left",
    small: SHARES,
    large: SHARES,
    in_pixels: false,
    drawn: true,
    change: |picture, share, random: &mut Random| {
        let [_, height, width] = picture.shape;
        let size = [height, width].map(|side| ((side as f64 * share).round() as usize).max(1));
        let start = [random.index(height - size[0] + 1), random.index(width - size[1] + 1)];
        Ok(cropped(picture, start, size))
    },
};

/// Not from a publication.
const SHARES: [f64; 5] = [0.95, 0.9, 0.85, 0.8, 0.75];

/// The part at `start` (row, column) of `size` (height, width), resized to the size of the whole. Bilinear;
/// the centres of pixels are at half integers.
pub fn cropped(picture: &Picture, start: [usize; 2], size: [usize; 2]) -> Vec<f32> {
    let [_, height, width] = picture.shape;
    let scale = [size[0] as f64 / height as f64, size[1] as f64 / width as f64];
    // Nothing beyond the part's edges is read; the edges are repeated.
    let place = |at: f64, axis: usize| {
        let within = ((at + 0.5) * scale[axis] - 0.5).clamp(0.0, (size[axis] - 1) as f64);
        start[axis] as f64 + within
    };
    picture.sampled(|row, column| (place(row, 0), place(column, 1)))
}

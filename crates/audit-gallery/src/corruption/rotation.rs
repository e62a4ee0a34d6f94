//! Rotation by a few degrees.

use super::{Corruption, Picture};
use audit_base::random::Random;

/// Rotation about the centre, in a random direction.
pub const ROTATION: Corruption = Corruption {
    name: "rotation",
    about: "Rotation about the centre, to the left or to the right",
    parameter: "degrees",
    small: DEGREES,
    large: DEGREES,
    in_pixels: false,
    drawn: true,
    change: |picture, degrees, random: &mut Random| {
        let sign = if random.index(2) == 0 { 1.0 } else { -1.0 };
        Ok(rotated(picture, sign * degrees))
    },
};

/// Not from a publication: typical angles of a camera held by hand.
const DEGREES: [f64; 5] = [2.0, 4.0, 6.0, 8.0, 10.0];

/// The image rotated counter-clockwise, bilinear. Edges are repeated beyond the image, which avoids black
/// corners.
pub fn rotated(picture: &Picture, degrees: f64) -> Vec<f32> {
    let [_, height, width] = picture.shape;
    let centre = [(height - 1) as f64 / 2.0, (width - 1) as f64 / 2.0];
    let (sin, cos) = degrees.to_radians().sin_cos();
    picture.sampled(|row, column| {
        let (down, right) = (row - centre[0], column - centre[1]);
        (centre[0] + cos * down + sin * right, centre[1] - sin * down + cos * right)
    })
}

//! Gaussian noise, like that of a sensor in low light.

use super::{Corruption, Picture};
use audit_base::Result;
use audit_base::random::Random;

/// x + σ·z, with independent normal z for each value.
pub const NOISE: Corruption = Corruption {
    name: "noise",
    about: "Gaussian noise on each value",
    parameter: "standard deviation",
    small: [0.04, 0.06, 0.08, 0.09, 0.10],
    large: [0.08, 0.12, 0.18, 0.26, 0.38],
    in_pixels: false,
    drawn: true,
    change: noisy,
};

fn noisy(picture: &Picture, deviation: f64, random: &mut Random) -> Result<Vec<f32>> {
    Ok(picture.data.iter().map(|v| v + deviation as f32 * random.normal()).collect())
}

//! Less contrast.

use super::{Corruption, Picture};
use audit_base::Result;
use audit_base::random::Random;

/// (x − m)·c + m, with the mean m of each channel.
pub const CONTRAST: Corruption = Corruption {
    name: "contrast",
    about: "Less contrast: each value comes nearer to its channel's mean",
    parameter: "share of the contrast that is left",
    small: [0.75, 0.5, 0.4, 0.3, 0.15],
    large: [0.4, 0.3, 0.2, 0.1, 0.05],
    in_pixels: false,
    drawn: false,
    change: flatter,
};

fn flatter(picture: &Picture, share: f64, _: &mut Random) -> Result<Vec<f32>> {
    let mut out = Vec::with_capacity(picture.data.len());
    for channel in picture.channels() {
        let mean = channel.iter().map(|v| f64::from(*v)).sum::<f64>() / channel.len() as f64;
        out.extend(channel.iter().map(|v| ((f64::from(*v) - mean) * share + mean) as f32));
    }
    Ok(out)
}

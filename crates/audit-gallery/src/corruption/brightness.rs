//! More light.

use super::{Corruption, Picture};
use audit_base::Result;
use audit_base::random::Random;

/// Value + c in the colour space hue, saturation, value.
pub const BRIGHTNESS: Corruption = Corruption {
    name: "brightness",
    about: "More brightness, with hue and saturation kept",
    parameter: "added to the largest channel",
    small: [0.05, 0.1, 0.15, 0.2, 0.3],
    large: [0.1, 0.2, 0.3, 0.4, 0.5],
    in_pixels: false,
    drawn: false,
    change: brighter,
};

/// The value of a pixel is its largest channel. Hue and saturation stay, so all channels grow by the same
/// factor; black becomes grey.
fn brighter(picture: &Picture, more: f64, _: &mut Random) -> Result<Vec<f32>> {
    let [channels, height, width] = picture.shape;
    let area = height * width;
    let mut out = picture.data.to_vec();
    for place in 0..area {
        let largest = (0..channels).fold(0.0, |most, c| f64::from(out[c * area + place]).max(most));
        let wanted = (largest + more).min(1.0);
        for channel in 0..channels {
            let value = &mut out[channel * area + place];
            let share = if largest > 0.0 { f64::from(*value) / largest } else { 1.0 };
            *value = (wanted * share) as f32;
        }
    }
    Ok(out)
}

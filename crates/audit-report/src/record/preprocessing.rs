//! The conversion of pixels to a model's input.

use super::{Axes, Channels, Crop, Interpolation};
use audit_base::choice::Choice;
use audit_gallery::data::file_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The conversion of pixels in [0, 1], RGB, channels first, to the model's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preprocessing {
    /// Channels of the input.
    pub channels: usize,
    /// Input height.
    pub height: usize,
    /// Input width.
    pub width: usize,
    /// Order of dimensions.
    pub layout: Axes,
    /// Whether RGB, BGR or grey.
    pub order: Channels,
    /// Factor for the pixels of each channel, in the input's order.
    pub scale: Vec<f32>,
    /// Constant added to each channel after the multiplication.
    pub shift: Vec<f32>,
    /// Size [height, width] that images are resized to before the centre crop.
    pub resize: Option<[usize; 2]>,
    /// Length of the shorter side before the centre crop, instead of `resize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_shorter: Option<usize>,
    /// Where the centre crop begins, if not where torchvision's does.
    #[serde(default, skip_serializing_if = "Crop::is_usual")]
    pub crop: Crop,
    /// The interpolation of resizing.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether mean and std were assumed and not stated.
    pub assumed: bool,
    /// The file beside the model that the preprocessing was read from, such as `preprocessor_config.json`, or
    /// `flags and` this file; absent if there is none, or a card overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// Whether height and width were found by trial: neither the model nor a card or flag fixes them, and the
    /// graph accepts no other usual size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub size_found: bool,
    /// The type of an integer input, such as `uint8`; absent for floats. Images for an integer input are
    /// rounded to whole grey levels, attacked images too, within ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integers: Option<String>,
}

impl Preprocessing {
    /// The preprocessing of an image, in words.
    pub fn words(&self) -> String {
        let list = |v: &mut dyn Iterator<Item = f32>| {
            // Four significant digits hide the rounding to float32, so that numbers are shown as they were
            // stated.
            let all: Vec<String> = v.map(|v| format!("{}", rounded(v))).collect();
            match all.first() {
                Some(first) if all.iter().all(|one| one == first) => first.clone(),
                _ => all.join(", "),
            }
        };
        let order = match self.order {
            Channels::Grey => "grey",
            Channels::Rgb => "RGB",
            Channels::Bgr => "BGR",
        };
        let place = match (self.resize, self.resize_shorter) {
            (_, Some(side)) => format!("shorter side resized to {side}, then a centre crop"),
            (Some(sides), None) if sides != [self.height, self.width] => {
                format!("stretched to {} × {}, then a centre crop", sides[0], sides[1])
            }
            _ => "stretched to this size".into(),
        };
        let name = self.interpolation.name();
        let values = match &self.integers {
            Some(dtype) => {
                let [low, high] = [self.shift[0], self.scale[0] + self.shift[0]];
                format!("whole grey levels, {low} to {high} ({dtype})")
            }
            None if self.shift.iter().all(|v| *v == 0.0) && self.scale.iter().all(|v| *v == 1.0) => {
                "pixels in [0, 1]".into()
            }
            None => format!(
                "pixels in [0, 1] less {}, divided by {}",
                list(&mut self.shift.iter().zip(&self.scale).map(|(shift, scale)| -shift / scale)),
                list(&mut self.scale.iter().map(|scale| 1.0 / scale))
            ),
        };
        let found = if self.size_found { " (the only usual size that its graph takes)" } else { "" };
        format!(
            "{} × {} {order}{found}, {place} ({name}); {values}{}{}",
            self.height,
            self.width,
            if self.assumed { " (assumed)" } else { "" },
            self.taken_from.as_ref().map_or(String::new(), |file| format!(", from {file}"))
        )
    }

    /// Mean and std of each channel, in the input's order, for pixels in [0, 1].
    pub fn mean_and_std(&self) -> (Vec<f32>, Vec<f32>) {
        let both = || self.shift.iter().zip(&self.scale);
        let tidy = |v: f32| rounded(v) as f32;
        (
            both().map(|(shift, scale)| tidy(-shift / scale)).collect(),
            both().map(|(_, scale)| tidy(1.0 / scale)).collect(),
        )
    }

    /// Number of values in one image, C·H·W.
    pub fn pixels(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Shape of a batch of pixels: [batch, channels, height, width].
    pub fn pixel_shape(&self, batch: usize) -> [i64; 4] {
        [batch, self.channels, self.height, self.width].map(|d| d as i64)
    }

    /// Shape of the model's own input.
    pub fn input_shape(&self, batch: usize) -> [i64; 4] {
        let [b, c, h, w] = self.pixel_shape(batch);
        if self.layout == Axes::Nchw { [b, c, h, w] } else { [b, h, w, c] }
    }

    /// The images that the model sees instead of these: in whole grey levels, if its input is one of
    /// integers.
    pub fn taken<'p>(&self, pixels: &'p [f32]) -> Cow<'p, [f32]> {
        match self.integers {
            Some(_) => pixels.iter().map(|v| file_value(*v)).collect(),
            None => Cow::Borrowed(pixels),
        }
    }

    /// Pixels [C, H, W] that become, by this preprocessing, what `pixels` become by `other`.
    pub fn disguise(&self, pixels: &[f32], other: &Preprocessing) -> Vec<f32> {
        let plane = self.height * self.width;
        let mut out = vec![0.0; pixels.len()];
        let from =
            |p: &Preprocessing, c: usize| if p.order == Channels::Bgr { self.channels - 1 - c } else { c };
        for c in 0..self.channels {
            let source = &pixels[from(other, c) * plane..][..plane];
            let target = &mut out[from(self, c) * plane..][..plane];
            for (t, s) in target.iter_mut().zip(source) {
                *t = (s * other.scale[c] + other.shift[c] - self.shift[c]) / self.scale[c];
            }
        }
        out
    }

    /// Preprocesses pixels [n, C, H, W] on the CPU, without a graph. Returns the model's input.
    pub fn apply(&self, pixels: &[f32]) -> Vec<f32> {
        let plane = self.height * self.width;
        let mut out = vec![0.0; pixels.len()];
        for (image, target) in pixels.chunks(self.pixels()).zip(out.chunks_mut(self.pixels())) {
            for c in 0..self.channels {
                let from = if self.order == Channels::Bgr { self.channels - 1 - c } else { c };
                for (i, v) in image[from * plane..][..plane].iter().enumerate() {
                    let to = if self.layout == Axes::Nchw { c * plane + i } else { i * self.channels + c };
                    let value = v * self.scale[c] + self.shift[c];
                    target[to] = match self.integers {
                        Some(_) => value.round().clamp(self.shift[c], self.scale[c] + self.shift[c]),
                        None => value,
                    };
                }
            }
        }
        out
    }
}

/// Rounds to four significant digits. Negative zero becomes zero.
fn rounded(v: f32) -> f64 {
    format!("{v:.3e}").parse().unwrap_or(f64::from(v)) + 0.0
}

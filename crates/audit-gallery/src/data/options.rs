//! Options of images and their role. They have the same names in flags, cards and reports.

use audit_base::choice::Choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Order of an image tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Layout")]
pub enum Axes {
    /// [batch, channels, height, width]
    Nchw,
    /// [batch, height, width, channels]
    Nhwc,
}

impl Choice for Axes {
    const ALL: &'static [(Axes, &'static str, &'static str)] = &[
        (Axes::Nchw, "nchw", "[batch, channels, height, width]"),
        (Axes::Nhwc, "nhwc", "[batch, height, width, channels]"),
    ];
}

/// Order of an image's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// One channel.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red, as OpenCV reads images.
    Bgr,
}

impl Choice for Channels {
    const ALL: &'static [(Channels, &'static str, &'static str)] = &[
        (Channels::Grey, "grey", "One channel"),
        (Channels::Rgb, "rgb", "Red, green, blue"),
        (Channels::Bgr, "bgr", "Blue, green, red, as OpenCV reads images"),
    ];
}

/// How images are interpolated when resized. The `aliased` forms read only the nearest pixels, however much
/// an image shrinks. OpenCV does the same, and so does torchvision on tensors with `antialias=False`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Interpolation {
    #[default]
    Bilinear,
    BilinearAliased,
    Bicubic,
    BicubicAliased,
    Nearest,
}

impl Choice for Interpolation {
    const ALL: &'static [(Interpolation, &'static str, &'static str)] = &[
        (Interpolation::Bilinear, "bilinear", ""),
        (Interpolation::BilinearAliased, "bilinear-aliased", ""),
        (Interpolation::Bicubic, "bicubic", ""),
        (Interpolation::BicubicAliased, "bicubic-aliased", ""),
        (Interpolation::Nearest, "nearest", ""),
    ];
}

/// Which half of an odd rest a centre crop cuts off first, along each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Crop {
    /// Half of the rest, rounded half to even: torchvision, timm, open_clip.
    #[default]
    Rounded,
    /// Half of the rest, rounded down: transformers.
    Floor,
}

impl Crop {
    /// Whether it is the usual one, which reports leave out.
    pub fn is_usual(&self) -> bool {
        *self == Crop::default()
    }

    /// Number of rows or columns that are cut off before the centre, of `rest` altogether.
    pub(super) fn first(self, rest: usize) -> usize {
        match self {
            Crop::Rounded => rest / 2 + usize::from(rest % 4 == 3),
            Crop::Floor => rest / 2,
        }
    }
}

impl Choice for Crop {
    const ALL: &'static [(Crop, &'static str, &'static str)] = &[
        (Crop::Rounded, "rounded", "Half of what is cut off, rounded half to even, as in torchvision"),
        (Crop::Floor, "floor", "Half of what is cut off, rounded down, as in transformers"),
    ];
}

/// The role of an image in retrieval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Every image is a query and ranks all others.
    #[default]
    Both,
    /// The image is only a query, and is not ranked.
    Query,
    /// The image is only ranked, and is not a query.
    Gallery,
}

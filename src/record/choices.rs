//! Options that have the same names in flags, suites and reports.

use crate::choice::Choice;
use crate::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The distance between two embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// ‖a/‖a‖ − b/‖b‖‖, in [0, 2]. The usual choice in the literature.
    #[serde(alias = "N")]
    NormalizedEuclidean,
    /// ‖a − b‖.
    #[serde(alias = "E")]
    Euclidean,
    /// 1 − cos(a, b), in [0, 2].
    #[serde(alias = "C")]
    Cosine,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Metric; 3] = [Metric::NormalizedEuclidean, Metric::Euclidean, Metric::Cosine];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Metric::NormalizedEuclidean => "normalized-euclidean",
            Metric::Euclidean => "euclidean",
            Metric::Cosine => "cosine",
        }
    }

    /// The letter that published evaluation codes use: N, E or C.
    pub fn letter(self) -> &'static str {
        match self {
            Metric::NormalizedEuclidean => "N",
            Metric::Euclidean => "E",
            Metric::Cosine => "C",
        }
    }

    /// Whether embeddings are normalised to unit length.
    pub fn normalizes(self) -> bool {
        self != Metric::Euclidean
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = |m: &Metric| text.eq_ignore_ascii_case(m.name()) || text.eq_ignore_ascii_case(m.letter());
        Metric::ALL.into_iter().find(named).ok_or_else(|| {
            Error::usage(format!(
                "unknown metric `{text}`: expected normalized-euclidean (N), euclidean (E) or cosine (C)"
            ))
        })
    }
}

/// A named budget of attacks: ε, α and the number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Rob28 or Rob224, depending on the size of the model's input.
    Auto,
    /// Budget for small line images.
    Rob28,
    /// Budget for photographs.
    Rob224,
}

impl Protocol {
    /// The name in suites, reports and trial files.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Auto => "auto",
            Protocol::Rob28 => "rob28",
            Protocol::Rob224 => "rob224",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The precision that attack steps compute in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32, as in all other computations.
    #[default]
    Fp32,
    /// float16.
    Fp16,
}

impl Choice for Precision {
    const ALL: &'static [(Precision, &'static str, &'static str)] = &[
        (Precision::Fp32, "fp32", "float32, as in all other computations"),
        (Precision::Fp16, "fp16", "float16"),
    ];
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A score that a suite can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScoreName {
    /// Empirical robustness score.
    Ers,
    /// Adversarial resistance score.
    Ars,
    /// ARS of what the strong search found. R1 stands for ES:R, LTM and GTM, which want the same of a query.
    #[serde(rename = "ars_strong")]
    ArsStrong,
}

impl ScoreName {
    /// Every score.
    pub const ALL: [ScoreName; 3] = [ScoreName::Ers, ScoreName::Ars, ScoreName::ArsStrong];

    /// The name in suites, reports and gates.
    pub fn name(self) -> &'static str {
        match self {
            ScoreName::Ers => "ers",
            ScoreName::Ars => "ars",
            ScoreName::ArsStrong => "ars_strong",
        }
    }
}

impl fmt::Display for ScoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScoreName::Ers => "ERS",
            ScoreName::Ars => "ARS",
            ScoreName::ArsStrong => "ARS, strong",
        })
    }
}

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

/// How images are interpolated when resized. The `aliased` forms read only the nearest pixels, however much an image
/// shrinks. OpenCV does the same, and so does torchvision on tensors with `antialias=False`.
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

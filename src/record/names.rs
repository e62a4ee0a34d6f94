//! Choices that flags, suites and reports name by the same words.

use crate::{Error, Result};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How far apart two embeddings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// ‖a/‖a‖ − b/‖b‖‖, in [0, 2]. The field's default.
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

    /// The letter the literature's evaluation codes use: N, E or C.
    pub fn letter(self) -> &'static str {
        match self {
            Metric::NormalizedEuclidean => "N",
            Metric::Euclidean => "E",
            Metric::Cosine => "C",
        }
    }

    /// Whether points have unit norm.
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

/// A named budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One of the others, by the size of the model's input.
    Auto,
    /// Small line images.
    Rob28,
    /// Photographs.
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

/// What the attacks' steps compute in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32, as everything else.
    #[default]
    Fp32,
    /// float16.
    Fp16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Fp32 => "fp32",
            Precision::Fp16 => "fp16",
        })
    }
}

/// A score a suite can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScoreName {
    /// Empirical robustness score.
    Ers,
    /// Adversarial resistance score.
    Ars,
}

impl ScoreName {
    /// Every score.
    pub const ALL: [ScoreName; 2] = [ScoreName::Ers, ScoreName::Ars];
}

impl fmt::Display for ScoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScoreName::Ers => "ERS",
            ScoreName::Ars => "ARS",
        })
    }
}

/// Order of an image tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Layout")]
pub enum Axes {
    /// [batch, channels, height, width]
    Nchw,
    /// [batch, height, width, channels]
    Nhwc,
}

/// Order of an image's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// One channel.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red, as OpenCV reads images.
    Bgr,
}

/// How pixels between pixels are found. `aliased` looks only at the nearest pixels however much an image shrinks, as
/// OpenCV does, and torchvision on tensors with `antialias=False`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
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

/// What an image is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Every image queries all others.
    #[default]
    Both,
    /// Searched with, never found.
    Query,
    /// Found, never searched with.
    Gallery,
}

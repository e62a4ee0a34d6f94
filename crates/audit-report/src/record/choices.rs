//! Options that have the same names in flags, suites and reports.

use audit_base::choice::Choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

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

impl Choice for Protocol {
    const ALL: &'static [(Protocol, &'static str, &'static str)] = &[
        (Protocol::Auto, "auto", "By the model's input size"),
        (Protocol::Rob28, "rob28", "For small line images"),
        (Protocol::Rob224, "rob224", "For photographs"),
    ];
}

/// Which image an attack changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// The model's input, after resize and crop.
    #[default]
    Input,
    /// The image file at its own size. What is measured is the changed file: 8 bits a channel, resized and
    /// cropped as the clean one.
    File,
}

impl Choice for Space {
    const ALL: &'static [(Space, &'static str, &'static str)] = &[
        (Space::Input, "input", "The model's input, after resize and crop"),
        (Space::File, "file", "The image file at its own size; the changed file is measured"),
    ];
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

audit_base::shown_by_name!(Protocol, Space, Precision);

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
            // In quotation marks, so that a sentence does not read it as two scores.
            ScoreName::ArsStrong => "\"ARS, strong\"",
        })
    }
}

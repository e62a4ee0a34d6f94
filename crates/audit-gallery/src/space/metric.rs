//! The distance between embeddings, by name.

use audit_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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

    /// The cosine of two embeddings at this distance; `None` if it doesn't follow from the distance.
    pub fn cosine(self, distance: f64) -> Option<f64> {
        match self {
            Metric::Cosine => Some(1.0 - distance),
            Metric::NormalizedEuclidean => Some(1.0 - distance * distance / 2.0),
            Metric::Euclidean => None,
        }
    }

    /// Whether embeddings are normalised to unit length.
    pub fn normalizes(self) -> bool {
        self != Metric::Euclidean
    }
}

audit_base::shown_by_name!(Metric);

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

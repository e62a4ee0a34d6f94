//! Retrieval under natural corruptions, without an attacker.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Retrieval of one query under one corruption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Corrupted {
    /// The corruption's name.
    pub corruption: String,
    /// The query's id.
    pub query: String,
    /// Whether the nearest image has the query's class: of the clean query, then at strengths 1 to 5.
    pub first: [bool; 6],
    /// Average precision in [0, 1]: of the clean query, then at strengths 1 to 5.
    pub ap: [f64; 6],
}

/// Retrieval under natural corruptions, in per cent. It is no part of ERS or ARS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Corruptions {
    /// Queries in the means: those with something to find.
    pub queries: usize,
    /// R@1 of the same queries as they are.
    pub clean_r1: f64,
    /// Mean average precision of the same queries as they are.
    pub clean_map: f64,
    /// The mean of R@1 over all rows.
    pub mean_r1: f64,
    /// 95 % interval of `mean_r1`, by bootstrap over queries; Wilson's if all queries agree in all rows.
    pub mean_r1_interval: Option<(f64, f64)>,
    /// The mean of mAP over all rows.
    pub mean_map: f64,
    /// 95 % interval of `mean_map`, by bootstrap over queries; at least Wilson's if it is 0 or 100.
    pub mean_map_interval: Option<(f64, f64)>,
    /// A row for each corruption and strength.
    pub rows: Vec<CorruptionRow>,
}

/// Retrieval under one corruption at one strength, in per cent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptionRow {
    /// The corruption's name.
    pub corruption: String,
    /// From 1 to 5.
    pub strength: usize,
    /// Its parameter, such as a standard deviation (docs/threats.md).
    pub value: f64,
    /// Share of the queries whose nearest image has their class.
    pub r1: f64,
    /// 95 % interval of `r1` (Wilson).
    pub r1_interval: Option<(f64, f64)>,
    /// Mean average precision.
    pub map: f64,
    /// 95 % interval of `map`, by bootstrap over queries; at least Wilson's if it is 0 or 100.
    pub map_interval: Option<(f64, f64)>,
    /// The ε of attacks with the same cost; absent if the suite doesn't look for the smallest perturbations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_eps: Option<SameEps>,
}

/// The smallest ε at which the attack MIN brings R@1 of the same queries as low as a corruption does, in the
/// norm of the suite. It is an upper bound: a better search may need less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SameEps {
    /// ε; 0 if the corruption costs nothing. Absent if the largest ε searched costs less.
    pub eps: Option<f64>,
    /// The lower end of the 95 % interval by bootstrap over queries; absent if it is above the largest ε
    /// searched.
    pub low: Option<f64>,
    /// The upper end; absent if it is above the largest ε searched.
    pub high: Option<f64>,
}

/// Pictures of one query under all corruptions, in base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptedPictures {
    /// The query's id.
    pub query: String,
    /// The query as it is.
    pub clean: String,
    /// A row for each corruption.
    pub rows: Vec<CorruptedRow>,
}

/// One query under one corruption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptedRow {
    /// The corruption's name.
    pub corruption: String,
    /// At strengths 1 to 5.
    pub pictures: Vec<String>,
}

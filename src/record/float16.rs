//! What is known of attacks whose steps ran in float16.

use super::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Steps in float16, and what is known of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfPrecision {
    /// The power of two that cotangents were multiplied with, so that small gradients don't vanish.
    pub loss_scale: f32,
    /// On the first images, with a random cotangent: pixels whose gradient has the sign that it has in float32, of those
    /// where that isn't zero, per cent.
    pub sign_agreement: f64,
    /// Pixels whose gradient is exactly zero in float16 there, per cent.
    pub zero: f64,
    /// The same in float32.
    pub zero_full: f64,
    /// Trials repeated with float32 steps: what came of them.
    pub sample: Vec<Outcome>,
    /// The same trials with float16 steps beside them; absent in a part of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<HalfComparison>,
}

/// The sample both ways. Scores are 0–100, higher is more robust: a higher one in float16 means a weaker attack.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfComparison {
    /// Queries in the sample.
    pub queries: usize,
    /// Trials in the sample.
    pub trials: usize,
    /// Which score: ARS, ERS where there is no ARS, or the mean of the attacks' terms.
    pub score: String,
    /// It, with float16 steps.
    pub half: f64,
    /// It, with float32 steps.
    pub full: f64,
    /// `half` − `full`.
    pub difference: f64,
    /// Its 95 % interval, by paired bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// Attack by attack.
    pub attacks: Vec<HalfTerm>,
}

/// An attack both ways.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfTerm {
    /// CA+, ES:R and so on.
    pub code: String,
    /// Resistance, per cent, with float16 steps; of ES:D and TMA, which have none, the term of ERS.
    pub half: f64,
    /// The same with float32 steps.
    pub full: f64,
    /// `half` − `full`.
    pub difference: f64,
    /// Its standard error, by paired bootstrap over queries.
    pub error: f64,
}

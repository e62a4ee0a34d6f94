//! Data about attacks whose steps ran in float16.

use super::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// The accuracy of float16 steps.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfPrecision {
    /// The power of two that multiplied the cotangents, so that small gradients did not underflow.
    pub loss_scale: f32,
    /// On the first images, with a random cotangent: pixels whose float16 gradient has the sign of the
    /// float32 gradient, in per cent of those whose float32 gradient is not zero.
    pub sign_agreement: f64,
    /// Pixels of these images whose float16 gradient is exactly zero, in per cent.
    pub zero: f64,
    /// Pixels of these images whose float32 gradient is exactly zero, in per cent.
    pub zero_full: f64,
    /// Outcomes of the trials that were repeated with float32 steps.
    pub sample: Vec<Outcome>,
    /// The comparison of these trials with float16 and float32 steps; absent in a part of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<HalfComparison>,
}

/// The sample with float16 and with float32 steps. Scores are 0–100, and higher is more robust, so a higher
/// score in float16 means a weaker attack.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfComparison {
    /// Queries in the sample.
    pub queries: usize,
    /// Trials in the sample.
    pub trials: usize,
    /// Name of the score: ARS, or ERS if there is no ARS, or else the mean of the attacks' terms.
    pub score: String,
    /// The score with float16 steps.
    pub half: f64,
    /// The score with float32 steps.
    pub full: f64,
    /// `half` − `full`.
    pub difference: f64,
    /// 95 % interval of the difference, by paired bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// The comparison of each attack.
    pub attacks: Vec<HalfTerm>,
}

/// One attack with float16 and with float32 steps.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HalfTerm {
    /// The term's name, such as CA+ or ES:R.
    pub code: String,
    /// Resistance in per cent with float16 steps. For ES:D and TMA, which have no resistance, the
    /// contribution to ERS.
    pub half: f64,
    /// That number with float32 steps.
    pub full: f64,
    /// `half` − `full`.
    pub difference: f64,
    /// Standard error of the difference, by paired bootstrap over queries.
    pub error: f64,
}

impl HalfPrecision {
    /// Merges the parts of a run: their samples, in the order of the whole run's `outcomes`. `None` without
    /// parts.
    pub fn merged<'a>(
        parts: impl Iterator<Item = &'a HalfPrecision>,
        outcomes: &[Outcome],
    ) -> Option<HalfPrecision> {
        let parts: Vec<&HalfPrecision> = parts.collect();
        let mut samples = ByTrial::new(parts.iter().flat_map(|p| &p.sample));
        let sample = outcomes.iter().filter_map(|o| samples.take(o)).cloned().collect();
        parts.first().map(|&first| HalfPrecision { sample, comparison: None, ..first.clone() })
    }
}

/// Outcomes by trial.
pub struct ByTrial<'a>(HashMap<String, VecDeque<&'a Outcome>>);

impl<'a> ByTrial<'a> {
    /// The trials of these outcomes.
    pub fn new(outcomes: impl Iterator<Item = &'a Outcome>) -> ByTrial<'a> {
        let mut all: HashMap<_, VecDeque<&Outcome>> = HashMap::new();
        outcomes.for_each(|o| all.entry(trial(o)).or_default().push_back(o));
        ByTrial(all)
    }

    /// The next outcome of the same trial as `o`.
    pub fn take(&mut self, o: &Outcome) -> Option<&'a Outcome> {
        self.0.get_mut(&trial(o))?.pop_front()
    }
}

/// A key that identifies an outcome's trial.
fn trial(o: &Outcome) -> String {
    format!("{}\0{}\0{}", o.attack, o.query, o.targets.join("\0"))
}

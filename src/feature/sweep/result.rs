//! The result of a sweep: a suite over a grid of budgets.

use crate::Exit;
use crate::judge::row::Mark;
use crate::record::{
    Attack, Benign, Data, ModelRecord, RetrievalRow, Scores, Severity, Smallest, SuiteRecord, Timing, Tool,
    Verification, Warning,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A suite over a grid: the same model, images and queries at every point.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Version of this format, that of reports.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: Tool,
    /// The audited model.
    pub model: ModelRecord,
    /// The images.
    pub data: Data,
    /// Retrieval without an attack, in per cent.
    pub benign: Benign,
    /// Seed of the trials, the random starts and the resampling, where it does not vary.
    pub seed: u64,
    /// The names of the settings that vary, in the order of [`SweepPoint::at`].
    pub axes: Vec<String>,
    /// Every combination of their values; the last setting varies fastest.
    pub points: Vec<SweepPoint>,
    /// The command line.
    pub command: String,
}

impl Sweep {
    /// Exit code 12 if a finding invalidates the numbers of a point, unless --allow-untrusted is set.
    pub fn exit(&self, accepted: bool) -> Option<Exit> {
        let mut findings = self.points.iter().flat_map(|point| &point.warnings);
        (!accepted && findings.any(|w| w.severity == Severity::Error)).then_some(Exit::Untrusted)
    }
}

/// The result of the suite at one combination of settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SweepPoint {
    /// The value of each setting that varies, as it was given.
    pub at: Vec<String>,
    /// The same as numbers: sizes in units of the [0, 1] range, counts.
    pub place: Vec<f64>,
    /// The suite at this point.
    pub suite: SuiteRecord,
    /// One row per measure.
    pub attacks: Vec<Attack>,
    /// Retrieval of attacked queries; a row for each attack that moves queries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retrieval: Vec<RetrievalRow>,
    /// The smallest perturbations that make queries wrong, if the suite searches for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Smallest>,
    /// Decisions by a threshold, without the groups of single pairs; absent if no attack of the suite uses
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// ERS and ARS; absent if the suite lacks one of their attacks.
    pub scores: Scores,
    /// Why robust R@1 and the scores are invalid or unreliable, by their names in gates. A number against
    /// which nothing is known, or that is withheld, has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub marks: BTreeMap<String, Mark>,
    /// Findings.
    pub warnings: Vec<Warning>,
    /// Time spent.
    pub timing: Timing,
}

//! Trials as files and reports hold them, and what came of each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Which reading of the definitions.
///
/// `Published` does what the released evaluation code behind the published tables computes, flaws included;
/// `Corrected` does what the papers define. They differ in:
///
/// - GTM's target: an index into a filtered list used as an index into the gallery, and "another class"
///   judged against the class of the nearest item; corrected: the nearest item of a class other than the
///   query's;
/// - LTM's "own class", which holds the query itself; corrected: it does not;
/// - ES:D, taken one step before the end; corrected: at the end;
/// - ranks, which count the clean copies of the query and of the target; corrected: they do not, and random
///   targets are never the query itself;
/// - an offset of 1e-6 in the pairwise distance of ES and GTM; corrected: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Comparable with published tables.
    Published,
    /// As defined.
    Corrected,
}

impl Form {
    /// Items that a ranking holds in a gallery of `n`: ranks lie in 0..ranked, and percentiles refer to it.
    /// The published form ranks the query's clean copy too. `outside`: some queries have none in the gallery.
    pub fn ranked(self, n: usize, outside: bool) -> usize {
        match self {
            Form::Corrected if !outside => n - 1,
            _ => n,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Published => "published",
            Form::Corrected => "corrected",
        })
    }
}

/// What was measured in one state, clean or attacked: what the objective asks for, the others `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// Rank, 0 = nearest, mean over targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<f64>,
    /// Cosine similarity with the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// Whether the nearest item that the query may rank has its class; `None` where no such item has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit: Option<bool>,
    /// Whether the target is among the nearest 4 items other than the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<bool>,
}

/// What became of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// Ids of the targets; empty where there are none.
    pub targets: Vec<String>,
    /// Which start gave this result: 0 = the clean image, others random.
    pub start: usize,
    /// Steps that could still move the image.
    pub steps: usize,
    /// Loss at the first iterate.
    pub loss_first: f64,
    /// Loss at the final image.
    pub loss_last: f64,
    /// Lowest loss at any image of the run.
    #[serde(default)]
    pub loss_best: f64,
    /// Share of the loss's whole fall that came in the last 10 steps; 0 where it didn't fall.
    #[serde(default)]
    pub late_fall: f64,
    /// Distance from the clean embedding to the final one.
    pub shift: f64,
    /// The same before the last step.
    pub shift_before_last: f64,
    /// Largest change of a pixel.
    pub linf: f32,
    /// The size of the perturbation in the norm that bounds it, where that is not the largest change of a pixel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<f32>,
    /// At the clean embedding.
    pub before: Measures,
    /// At the final embedding.
    pub after: Measures,
}

/// A query that an attack can't be run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// Why.
    pub why: String,
}

/// Every random choice of an audit, with item ids as identities: what `--trials` reads. Fields are in alphabetical order, in
/// which reports have always had them; parts of a run compare hashes of this text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialList {
    /// The trials of each attack, by its code in lower case.
    pub attacks: BTreeMap<String, Vec<TrialRow>>,
    /// The reading of the definitions that the trials were made for.
    pub form: Form,
    /// The metric they were made under, by name or letter: "the nearest 1 %" depends on it.
    pub metric: String,
    /// The protocol, by name.
    pub protocol: String,
}

/// The text in JSON.
impl fmt::Display for TrialList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// A trial of a [`TrialList`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialRow {
    /// The query's id.
    pub query: String,
    /// Ids of the targets; absent where they follow from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

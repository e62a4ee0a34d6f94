//! Trials as files and reports store them, and their outcomes.

use super::{Metric, Protocol};
use audit_base::choice::Choice;
use audit_gallery::space::Gallery;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The form of the definitions.
///
/// `Published` computes what the released evaluation code behind the published tables computes, with its
/// errors. `Corrected` computes what the papers define. The differences are:
///
/// - GTM's target. Published: an index into a filtered list is used as an index into the gallery, and
///   "another class" means another class than that of the nearest image. Corrected: the nearest image of a
///   class other than the query's.
/// - LTM's "own class". Published: it contains the query itself. Corrected: it does not.
/// - ES:D. Published: it is measured one step before the end. Corrected: at the end.
/// - Ranks. Published: they count the clean copies of the query and of the target. Corrected: they do not,
///   and random targets are never the query itself.
/// - R@1. Published: the image that it leaves out is the one nearest to the clean query, which is an earlier
///   copy of the query where there is one. Corrected: the query itself.
/// - SPFOA on more than two targets. Published: the weight ξ of the kept images is 1. Corrected: it follows
///   their loss.
/// - The pairwise distance of ES and GTM. Published: an offset of 1e-6 is added to each coordinate.
///   Corrected: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Comparable with published tables.
    Published,
    /// As the papers define.
    Corrected,
}

impl Choice for Form {
    const ALL: &'static [(Form, &'static str, &'static str)] = &[
        (Form::Published, "published", "Comparable with published tables"),
        (Form::Corrected, "corrected", "As the papers define"),
    ];
}

impl Form {
    /// The number of images in a ranking of a gallery of `n`. Ranks are in 0..ranked, and percentiles refer
    /// to this number. The published form also ranks the query's clean copy. `outside` says that some queries
    /// are not in the gallery.
    pub fn ranked(self, n: usize, outside: bool) -> usize {
        match self {
            Form::Corrected if !outside => n.saturating_sub(1),
            _ => n,
        }
    }
}

audit_base::shown_by_name!(Form);

/// The measures of one state, clean or attacked. Those that the objective does not use are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measures {
    /// Mean rank over targets; 0 = nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<f64>,
    /// Cosine similarity with the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// Whether the nearest image that the query may rank has its class; `None` if no such image has it. For
    /// TOP1: is an image that the clean query finds; for TMIN: has another class than the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit: Option<bool>,
    /// Whether the target is among the nearest 4 images other than the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<bool>,
    /// Distance to the image that the perturbed one is compared with by a threshold, or to the nearest of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
    /// Whether this distance is at most the threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    /// Mean rank of the images that the attack keeps at the top of the ranking; 0 = nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<f64>,
    /// How well the targets are in the order that the attacker wants: for two, 1 if they are swapped and
    /// otherwise 0; for more, Kendall's τ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// Share of the targets, in [0, 1], that are among the top: the nearest 1 % of the gallery without the
    /// query's clean copy, from which attacks on an order draw their targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<f64>,
    /// The queries that rank the perturbed image among their first, for attacks that craft it on a sample of
    /// queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Captured>,
    /// Retrieval of the query; absent if the perturbed image is a candidate, or no image that it may rank has
    /// its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<Retrieval>,
}

/// The queries that one image captures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Captured {
    /// Shares of the sample's queries among whose first 1 and first 10 the image is, in [0, 1].
    pub sample: [f64; 2],
    /// Number of queries that held-out ones are drawn from. They have the same order in every trial.
    pub queries: usize,
    /// Places of those that are not held out, ascending: the sample's queries, and those that don't rank the
    /// image.
    pub left_out: Vec<usize>,
    /// Held-out queries among whose first 10 the image is: their places, ascending, and its rank; 0 =
    /// nearest.
    pub first: Vec<(usize, usize)>,
}

impl Captured {
    /// Share of the held-out queries among whose first `k` ≤ 10 the image is, in [0, 1], with a weight for
    /// each of the queries; `None` if the weights of all held-out queries are 0.
    pub fn share(&self, k: usize, weight: impl Fn(usize) -> f64) -> Option<f64> {
        let all: f64 = (0..self.queries).map(&weight).sum();
        let held_out = all - self.left_out.iter().map(|&place| weight(place)).sum::<f64>();
        let first = self.first.iter().filter(|(_, rank)| *rank < k).map(|&(place, _)| weight(place));
        // An empty sum is −0.
        (held_out > 0.0).then(|| (first.sum::<f64>() + 0.0) / held_out)
    }
}

/// Retrieval of one query among the images that it may rank, its own clean copy left out. Shares in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Retrieval {
    /// Whether the nearest image has its class.
    pub first: bool,
    /// Average precision over the whole ranking.
    pub ap: f64,
    /// (1/R) Σ_{k≤R} P@k·rel(k), where R is the number of images to find: the query's part of mAP@R.
    pub ap_at_r: f64,
    /// Share of its class among the nearest R + 1: the query's part of mAP@C.
    pub at_c: f64,
    /// The cluster of the clean gallery whose centre is nearest, by k-means; absent if the gallery was not
    /// clustered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<usize>,
}

/// The outcome of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// Ids of the targets; empty for attacks without targets.
    pub targets: Vec<String>,
    /// The start of the run that counts: 0 = the clean image, others are random.
    pub start: usize,
    /// Number of steps that could still move the image.
    pub steps: usize,
    /// Loss at the first iterate.
    pub loss_first: f64,
    /// Loss at the final image.
    pub loss_last: f64,
    /// Lowest loss at any image of the run.
    #[serde(default)]
    pub loss_best: f64,
    /// Share of the loss's decrease that happened in the last 10 steps; 0 if the loss did not decrease.
    #[serde(default)]
    pub late_fall: f64,
    /// Distance from the clean embedding to the final one.
    pub shift: f64,
    /// Distance from the clean embedding to the one before the last step.
    pub shift_before_last: f64,
    /// Largest change of a pixel.
    pub linf: f32,
    /// The size of the perturbation in the norm that bounds it; absent if that norm is the largest change
    /// of a pixel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<f32>,
    /// Measures at the clean embedding.
    pub before: Measures,
    /// Measures at the final embedding.
    pub after: Measures,
    /// Number of the shared perturbation; absent if the query has its own. `steps` is then 0: other queries'
    /// images made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<usize>,
    /// Results of each member of an ensemble; absent if the attack was one search. `steps` then counts all of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<MemberResult>>,
    /// How small a perturbation is enough; absent unless the suite has a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enough: Option<Enough>,
}

/// The smallest perturbations that were found to make a query wrong: upper bounds of the true ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Enough {
    /// ε*, in the norm that bounds perturbations and in units of the [0, 1] range: 0 if the query is wrong
    /// without an attack; absent if no perturbation within ε was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<f32>,
    /// ε* for files of 8 bits a channel, only in a ball that bounds the largest change of a pixel. If the
    /// suite's `file_column` is `file`, it is that of the query's own file, which is searched if an image at
    /// the model's input was found. Otherwise, and if the file has the model's input size, it is that of
    /// images whose values are all whole grey levels, n/255, searched for at the rungs of the ladder from
    /// 1/255 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_file: Option<f32>,
    /// Image steps of the searches for them, which the trial's `steps` count too.
    pub steps: usize,
    /// Whether a few images of whole grey levels, tried within half of the smallest perturbation that the
    /// searches before had found, made the query wrong. Those searches missed them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_by: bool,
}

/// Result of a member of an ensemble on a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberResult {
    /// The member's name.
    pub member: String,
    /// Image steps of all its runs.
    pub steps: usize,
    /// The best value of the trial's term after its runs, not converted to the term's unit.
    pub value: f64,
    /// Whether it reached the attacker's goal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reached: bool,
    /// Whether its result is the trial's outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
    /// Whether all its runs ended at the clean image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

/// A query that an attack cannot be run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// The reason.
    pub why: String,
}

/// Every random choice of an audit, with images identified by id. `--trials` reads this form. The fields are
/// in alphabetical order, as in all earlier reports, because parts of a run compare hashes of this text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialList {
    /// The trials of each attack, by its code in lower case.
    pub attacks: BTreeMap<String, Vec<TrialRow>>,
    /// The form of the definitions that the trials were made for.
    pub form: Form,
    /// The metric that the trials were made under. It matters because "the nearest 1 %" depends on it.
    pub metric: Metric,
    /// The budget that the trials were made for.
    pub protocol: Protocol,
}

/// Writes the list as JSON.
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
    /// Ids of the targets; absent if they follow from the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

impl Form {
    /// The number of images in a ranking of `gallery`.
    pub fn ranked_in(self, gallery: &Gallery) -> usize {
        self.ranked(gallery.len(), gallery.targets().start > gallery.len())
    }

    /// Whether `item` counts in the ranking of `query`.
    pub fn ranks(self, gallery: &Gallery, query: usize, item: usize) -> bool {
        match self {
            Form::Published => !gallery.same_view(query, item),
            Form::Corrected => !gallery.excluded(query, item),
        }
    }

    /// The image that is left out of a query's ranking as the query itself; `d` `[N]` are the distances from
    /// its clean embedding. The released code does not know which image the query is, and takes the nearest
    /// one, the first of equal ones.
    pub fn own_image(self, gallery: &Gallery, query: usize, d: &[f64]) -> usize {
        match self {
            Form::Published if query < gallery.len() => {
                gallery.nearest(d, 1, |item| !gallery.same_view(query, item))[0]
            }
            _ => query,
        }
    }

    /// The constant added to each coordinate of a difference in the pairwise distance of ES and GTM.
    pub fn offset(self) -> f64 {
        match self {
            Form::Published => 1e-6,
            Form::Corrected => 0.0,
        }
    }
}

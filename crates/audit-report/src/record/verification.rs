//! Decisions by a threshold, as reports state them.

use super::Metric;
use audit_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Source of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Acceptance {
    /// The largest distance at which no more than this share of the impostor pairs is accepted.
    Far(f64),
    /// A cosine: pairs of at least this are accepted.
    Cosine(f64),
    /// A Euclidean distance: pairs of at most this are accepted.
    Euclidean(f64),
}

impl FromStr for Acceptance {
    type Err = Error;

    fn from_str(text: &str) -> Result<Acceptance> {
        let wrong = || {
            Error::usage(format!(
                "threshold `{text}`: expected far=0.001 (a false accept rate above 0 and below 1), cosine=0.3 (a cosine of at \
                 least so much) or euclidean=1.1 (a distance of at most so much)"
            ))
        };
        let (kind, number) = text.split_once('=').ok_or_else(wrong)?;
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        match kind.trim() {
            "far" if number > 0.0 && number < 1.0 => Ok(Acceptance::Far(number)),
            "cosine" if number.abs() <= 1.0 => Ok(Acceptance::Cosine(number)),
            "euclidean" if number > 0.0 && number.is_finite() => Ok(Acceptance::Euclidean(number)),
            _ => Err(wrong()),
        }
    }
}

audit_base::as_text!(Acceptance);

impl fmt::Display for Acceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acceptance::Far(far) => write!(f, "far={far}"),
            Acceptance::Cosine(cosine) => write!(f, "cosine={cosine}"),
            Acceptance::Euclidean(distance) => write!(f, "euclidean={distance}"),
        }
    }
}

impl Acceptance {
    /// The largest distance of an accepted pair in a metric, if it is stated. Of embeddings of length 1 a
    /// cosine c is the Euclidean distance √(2 − 2c). Errors (exit code 2): a cosine for a metric of
    /// embeddings that have any length; a distance that no two embeddings of length 1 have.
    pub fn distance(self, metric: Metric) -> Result<Option<f64>> {
        match (self, metric) {
            (Acceptance::Far(_), _) => Ok(None),
            (Acceptance::Cosine(c), Metric::Cosine) => Ok(Some(1.0 - c)),
            (Acceptance::Cosine(c), Metric::NormalizedEuclidean) => Ok(Some((2.0 - 2.0 * c).sqrt())),
            (Acceptance::Cosine(_), Metric::Euclidean) => Err(Error::usage(format!(
                "threshold {self}: under the metric euclidean embeddings have any length, and their distance doesn't follow from a \
                 cosine. State euclidean=…, or --metric cosine"
            ))),
            (Acceptance::Euclidean(d), _) if metric.normalizes() && d > 2.0 => Err(Error::usage(format!(
                "threshold {self}: under the metric {metric} embeddings have length 1 and are at most 2 apart, so that every pair \
                 would be accepted. State a smaller distance, or --metric euclidean"
            ))),
            (Acceptance::Euclidean(d), Metric::Cosine) => Ok(Some(d * d / 2.0)),
            (Acceptance::Euclidean(d), _) => Ok(Some(d)),
        }
    }
}

/// A system that accepts a pair of images if their distance is at most a threshold: its error rates, without
/// an attack and under attacks on pairs. All shares are in per cent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// The largest distance of an accepted pair, in the model's metric.
    pub threshold: f64,
    /// 95 % interval of the threshold: the distances at which the ends of Wilson's interval of the false
    /// accept rate are reached, for the number of independent pairs that vary as much as the impostor pairs,
    /// which may share identities. From 0 if no pair may be accepted at the lower end. Absent if it was
    /// stated as a distance or a cosine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_interval: Option<(f64, f64)>,
    /// Whether a list gives the pairs. Otherwise they are pairs of a query and an image of the gallery, by
    /// class, each once.
    pub listed: bool,
    /// Number of genuine pairs: both images are of one identity.
    pub genuine: usize,
    /// Number of impostor pairs.
    pub impostor: usize,
    /// Number of identities that these pairs are of; 0 in reports of older versions, whose intervals ignored
    /// that pairs share identities.
    #[serde(default)]
    pub identities: usize,
    /// Share of the impostor pairs that are accepted without an attack.
    pub far: f64,
    /// 95 % interval of `far` at a stated threshold: Wilson's, for the number of independent pairs that vary
    /// as much as these, which may share identities. Absent if the threshold follows from a false accept
    /// rate, and below 10 impostor pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_interval: Option<(f64, f64)>,
    /// Share of the genuine pairs that are accepted without an attack: TAR at this FAR.
    pub tar: f64,
    /// 95 % interval of `tar`: as that of `far` at a stated threshold, otherwise by bootstrap over pairs,
    /// with a threshold from the false accept rate in each resample, widened if pairs share identities. If
    /// all or none are accepted, at least Wilson's for the number of disjoint genuine pairs. From 0 if that
    /// of the threshold is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tar_interval: Option<(f64, f64)>,
    /// The equal error rate without an attack: the mean of FAR and of the share of genuine pairs that are
    /// refused, at the distance where they differ least.
    pub eer: f64,
    /// 95 % interval of `eer`, by bootstrap over pairs, widened if pairs share identities. If it is 0 or 100,
    /// at least Wilson's for the kind of which there are fewer disjoint pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eer_interval: Option<(f64, f64)>,
    /// Accuracy without an attack by the folds of the list; absent if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<Folds>,
    /// The attacked pairs, without an attack and after each attack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attacked: Vec<AttackedPairs>,
    /// By group: wrong decisions without an attack and after each attack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<PairGroup>,
    /// The groups of attacked pairs: by attack, then by query.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group_of: BTreeMap<String, BTreeMap<String, String>>,
}

/// Accuracy as LFW's protocol has it: the share of a fold's pairs that are decided rightly, at the threshold
/// that is best on the other folds. It does not depend on the threshold of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Folds {
    /// Of each fold, per cent.
    pub accuracy: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// The standard error of the mean: the folds' standard deviation (over n − 1), divided by √n.
    pub standard_error: f64,
    /// Number of identities in more than one fold: the folds are then not independent, and the standard error
    /// is too small. LFW's folds share none.
    #[serde(default)]
    pub shared: usize,
}

/// Error rates of the pairs that were attacked: the genuine ones by DODGE, the impostor ones by IMPERSONATE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttackedPairs {
    /// The attacks that were made; empty for the same pairs without an attack.
    pub attacks: Vec<String>,
    /// Number of genuine pairs.
    pub genuine: usize,
    /// Number of impostor pairs.
    pub impostor: usize,
    /// The equal error rate of these pairs.
    pub eer: f64,
    /// 95 % interval of `eer`, as that of all pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eer_interval: Option<(f64, f64)>,
    /// Share of the genuine pairs that are accepted at the threshold that has the requested false accept rate
    /// on these impostor pairs; absent if they are too few for this rate, or if the threshold was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tar: Option<f64>,
}

/// The pairs of a group that an attack was made on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairGroup {
    /// The group that the list of pairs names.
    pub group: String,
    /// Code of the attack.
    pub attack: String,
    /// Number of its pairs that were attacked.
    pub pairs: usize,
    /// Share of them on which the decision is wrong without an attack.
    pub before: f64,
    /// Share of them on which it is wrong after the attack.
    pub after: f64,
    /// 95 % interval of `after`, as that of `far`; absent for fewer than 10 pairs.
    pub interval: Option<(f64, f64)>,
}

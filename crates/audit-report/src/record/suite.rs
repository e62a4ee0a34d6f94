//! The suite that was run: its budget, its space, and where its attacks were made.

use super::{Acceptance, Form, Metric, Precision, Preprocessing, Protocol, Space, number_of_queries};
use crate::facts::{LINF, Norm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bound of perturbations, with the step size that was stated for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EpsAlpha {
    /// Largest size ε of a perturbation, in units of the [0, 1] range.
    pub eps: f32,
    /// Step size α, in the same units.
    pub alpha: f32,
}

/// The suite that was run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Suite")]
pub struct SuiteRecord {
    /// The suite's name.
    pub name: String,
    /// The form of the definitions.
    pub form: Form,
    /// The named budget.
    pub protocol: Protocol,
    /// The norm that bounds perturbations.
    #[serde(default = "linf", skip_serializing_if = "is_linf")]
    pub norm: String,
    /// Where images may change; absent for everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<MaskRecord>,
    /// Which image was changed; absent for the model's input.
    #[serde(default, skip_serializing_if = "is_input")]
    pub space: Space,
    /// The quality of the JPEG files that changed images were saved as, and measured from; absent for PNG,
    /// which is lossless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<u8>,
    /// Largest size ε of a perturbation in this norm, in units of the [0, 1] range.
    pub eps: f32,
    /// Step size α, in the same units.
    pub alpha: f32,
    /// The ε and α, of the protocol or the suite, that `alpha` is in proportion to; absent if `alpha` was
    /// stated for this ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha_scaled_from: Option<EpsAlpha>,
    /// Steps per run.
    pub steps: usize,
    /// The search algorithm, by its name as a suite's `schedule`.
    pub schedule: String,
    /// Number of random starts besides the clean image.
    pub restarts: usize,
    /// Work of the strong search, as a multiple of its usual work, if it ran on every attack.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub effort: Option<usize>,
    /// How often ε is halved for robust R@1; absent if it is measured at ε alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<usize>,
    /// The images behind `as_file` of the ladder: `file` for the queries' files, each at its own size; absent
    /// for images of the model's input size.
    #[serde(default, skip_serializing_if = "is_input")]
    pub file_column: Space,
    /// The other model that the attacks were made on; absent if they were made on the audited model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub surrogate: Option<Surrogate>,
    /// Images that a black-box attack shows the model for each query, one forward pass each; absent for
    /// attacks along gradients.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forward_passes: Option<usize>,
    /// How strictly SPQA and SPFOA keep other images at the top (k of ξ = min(exp(k·s), 1e9)), if one of them
    /// ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub xi_k: Option<f64>,
    /// The class of the queries that hubs are crafted for; absent for all queries.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hub_class: Option<String>,
    /// Natural corruptions of the queries, by name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub corruptions: Vec<String>,
    /// Source of the threshold, in the form of `--threshold`, if an attack uses one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold: Option<Acceptance>,
    /// The precision of attack steps; float32 in reports of versions without a choice. Outcomes are measured
    /// in float32.
    #[serde(default)]
    pub attack_precision: Precision,
    /// Number of queries attacked.
    pub queries: usize,
    /// How the queries were chosen; absent if all were attacked, and for trials of a list that doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// The words of [`SuiteRecord::sampling`] for queries that the model retrieves correctly without an attack.
pub const CORRECT_FIRST: &str = "correct ones first";

/// The part of an image that attacks may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Mask")]
pub struct MaskRecord {
    /// The image file that is white where pixels may change; absent for a rectangle at a place drawn for each
    /// query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// SHA-256 of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The share of the image's area, from 0 to 1.
    pub share: f64,
}

impl std::fmt::Display for MaskRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.share;
        match &self.path {
            Some(path) => write!(f, "the mask {path} ({share:.1} % of the area)"),
            None => write!(f, "a patch of {share:.1} % of the area, at a place drawn for each query"),
        }
    }
}

/// The surrogate: a model that attacks were made on, but not measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Surrogate {
    /// Path of the file, as given on the command line.
    pub path: String,
    /// The model's SHA-256.
    pub sha256: String,
    /// Name of the value that is the embedding; absent, like the fields below, in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How the output's tokens or positions are pooled to an embedding: cls, mean or max; absent if the
    /// output is the embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<String>,
    /// The distance between its embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// The preprocessing of pixels before its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<Preprocessing>,
}

impl SuiteRecord {
    /// The caveat of attacks without the model's own gradient.
    pub fn caveat(&self) -> Option<String> {
        if let Some(surrogate) = &self.surrogate {
            return Some(format!(
                "Transfer: the attacks were made on {} and only measured on this model. Their scores are no white-box scores, \
                 which would be lower",
                surrogate.path
            ));
        }
        self.forward_passes.map(|passes| {
            format!(
                "Black box: the attacks saw no gradient, and {passes} forward passes for each query and attack. Their scores are \
                 no white-box scores, which would be lower"
            )
        })
    }

    /// The largest size ε of a perturbation, as it stands beside numbers: `8/255`, or `0.5 (l2)` in another
    /// norm.
    pub fn budget(&self) -> String {
        size(&self.norm, f64::from(self.eps), 2)
    }

    /// The settings of the attacks, by the names that messages use.
    pub fn settings(&self) -> [(&'static str, String); 18] {
        let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.into());
        [
            ("protocol", self.protocol.to_string()),
            ("form", self.form.to_string()),
            ("norm", self.norm.clone()),
            ("mask", self.masked()),
            ("space", self.space.to_string()),
            ("file column", self.file_column.to_string()),
            ("jpeg", or(self.jpeg.map(|quality| quality.to_string()), "none")),
            ("eps", self.eps.to_string()),
            ("alpha", self.alpha.to_string()),
            ("steps", self.steps.to_string()),
            ("schedule", self.schedule.clone()),
            ("restarts", self.restarts.to_string()),
            ("effort", or(self.effort.map(|n| n.to_string()), "one search")),
            ("ladder", or(self.ladder.map(|n| n.to_string()), "none")),
            ("hub class", or(self.hub_class.clone(), "all")),
            ("threshold", or(self.threshold.map(|stated| stated.to_string()), "none")),
            ("xi_k", or(self.xi_k.map(|k| k.to_string()), "none")),
            ("attack precision", self.attack_precision.to_string()),
        ]
    }

    /// Identity of the mask: its contents, not its path.
    fn masked(&self) -> String {
        match &self.mask {
            None => "none".into(),
            Some(MaskRecord { sha256: Some(sha256), .. }) => format!("sha256 {sha256}"),
            Some(patch) => patch.to_string(),
        }
    }

    /// An addition to the number of steps, if they ran in float16.
    pub fn in_half(&self) -> &'static str {
        if self.attack_precision == Precision::Fp16 { " in float16" } else { "" }
    }

    /// Whether the queries were chosen among those that a model retrieves correctly without an attack: the
    /// audited one, or that of the replayed trials.
    pub fn prefers_correct(&self) -> bool {
        self.sampling.as_ref().is_some_and(|words| words.contains(CORRECT_FIRST))
    }

    /// The number of attacked queries and, if they are a sample, how they were chosen.
    pub fn queries_in_words(&self) -> String {
        self.sampling.clone().unwrap_or_else(|| number_of_queries(self.queries))
    }
}

/// Largest relative difference between two ε that count as one: protocols have truncated decimals, such as
/// 0.03137 for 8/255.
const SAME_EPS: f32 = 1e-3;

impl EpsAlpha {
    /// Whether `eps` is the ε of this pair, except for rounding.
    pub fn is_for(&self, eps: f32) -> bool {
        (eps / self.eps - 1.0).abs() <= SAME_EPS
    }

    /// The step size at `eps`, in proportion.
    pub fn alpha_at(&self, eps: f32) -> f32 {
        match self.is_for(eps) && self.alpha <= eps {
            true => self.alpha,
            // In double precision, a step as long as ε stays so.
            false => (f64::from(self.alpha) * f64::from(eps) / f64::from(self.eps)) as f32,
        }
    }
}

/// The norm of reports that do not name one: the largest change of a pixel.
fn linf() -> String {
    LINF.name.into()
}

fn is_input(space: &Space) -> bool {
    *space == Space::Input
}

fn is_linf(norm: &str) -> bool {
    norm == linf()
}

/// A size of perturbations for people: in 255ths if `norm` is the largest change of a pixel, with at most
/// `digits` digits after the point, and with more below 1/255.
pub fn size(norm: &str, eps: f64, digits: usize) -> String {
    if !Norm::counts_levels(norm) {
        return format!("{} ({norm})", length(eps));
    }
    // ε is stored in float32, whose error would decide how a half is rounded.
    let levels = 255.0 * eps * (1.0 + 1e-7);
    let digits = if levels < 0.1 {
        4
    } else if levels < 1.0 {
        digits.max(2)
    } else {
        digits
    };
    format!("{}/255", trimmed(format!("{levels:.digits$}")))
}

/// A size of perturbations in another norm than the largest change of a pixel, for people.
pub fn length(eps: f64) -> String {
    trimmed(format!("{eps:.4}"))
}

/// A size of perturbations as a flag takes it: in 255ths if it is a whole number of them.
pub fn as_typed(size: f32) -> String {
    let levels = (255.0 * f64::from(size)).round();
    match (1.0..255.0).contains(&levels) && (levels / 255.0) as f32 == size {
        true => format!("{levels}/255"),
        false => size.to_string(),
    }
}

/// A number without zeros at its end.
fn trimmed(number: String) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').into(),
        false => number,
    }
}

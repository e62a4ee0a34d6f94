//! What was audited and how: the program, the model, the images, the check at load, and the time.

use super::{Metric, Preprocessing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Embeddings of texts or other data, not of images: targets of TMA and QA±, queries of HUB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ForeignTargets")]
pub struct ForeignTargetsRecord {
    /// Path of the file, as given on the command line.
    pub path: String,
    /// SHA-256 over names and embeddings, by name.
    pub sha256: String,
    /// Number of targets.
    pub count: usize,
}

/// The program that wrote a report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Tool {
    pub name: String,
    pub version: String,
    /// ONNX Runtime's version.
    pub runtime: String,
    /// The execution provider: cpu or cuda:n.
    pub provider: String,
    /// Why this provider was chosen; absent if the user named it, or ONNX Runtime's library has no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_why: Option<String>,
    /// Whether factors of matrix products could be rounded to TensorFloat-32 (--fast-math).
    #[serde(default)]
    pub fast_math: bool,
    /// Nodes that ran on the CPU with --ep cuda (--allow-cpu-nodes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_nodes: Vec<String>,
}

impl Tool {
    /// The program, the runtime, the provider and the precision in words.
    pub fn in_words(&self) -> String {
        let tf32 = if self.fast_math { " with TF32" } else { "" };
        let why = self.provider_why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("{} {}, {} on {}{tf32}{why}", self.name, self.version, self.runtime, self.provider)
    }
}

/// The audited model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelRecord {
    /// Path of the model file, as given on the command line.
    pub path: String,
    /// SHA-256 of the model file and of its external data, if there are any (docs/formats.md).
    pub sha256: String,
    /// SHA-256 of the net, the same for weights in the model file and in external data; absent in reports of
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_sha256: Option<String>,
    /// Size of the model file and of its external data, in bytes; absent in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Inputs with their shapes.
    pub inputs: Vec<String>,
    /// Name of the value that is the embedding.
    pub output: String,
    /// Why this value was chosen; absent in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_why: Option<String>,
    /// Name of the value before the classifier; absent unless the output looks like class scores, and in
    /// reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_classifier: Option<String>,
    /// Length of an embedding.
    pub dim: usize,
    /// The distance between embeddings.
    pub metric: Metric,
    /// The preprocessing of pixels before the model's input.
    pub preprocessing: Preprocessing,
    /// How the output's tokens or positions are pooled to an embedding: cls, mean or max; absent if the
    /// output is the embedding, and in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<String>,
    /// Licence, from the model card.
    pub licence: Option<String>,
    /// Source, from the model card.
    pub source: Option<String>,
    /// Result of the check at load.
    pub gradient_check: GradientCheck,
    /// Nodes with a softened gradient in the backward passes that the strong search used.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub softened: Vec<String>,
}

impl ModelRecord {
    /// Its file name.
    pub fn name(&self) -> &str {
        self.path.rsplit(['/', '\\']).next().unwrap_or(&self.path)
    }

    /// Its hashes in full, each with its name.
    pub fn hashes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let net = self.net_sha256.as_deref().map(|net| ("net sha256", net));
        std::iter::once(("sha256", self.sha256.as_str())).chain(net)
    }

    /// The path and the size, if it is known.
    pub fn file_in_words(&self) -> String {
        self.bytes.map_or(self.path.clone(), |bytes| format!("{}, {}", self.path, megabytes(bytes)))
    }
}

/// A size in megabytes.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The images of the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Data {
    /// Folder or generator.
    pub source: String,
    /// Number of images, or of embeddings instead of images, including queries.
    pub images: usize,
    /// Number of gallery images; 0 in reports of versions without separate queries.
    #[serde(default)]
    pub gallery: usize,
    /// Number of queries.
    #[serde(default)]
    pub queries: usize,
    /// Number of classes; 0 if the images have none.
    pub classes: usize,
    /// SHA-256 over ids, classes and file contents.
    pub sha256: String,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

impl Data {
    /// Whether the images have classes.
    pub fn has_classes(&self) -> bool {
        self.classes > 0
    }

    /// The number of classes in words.
    pub fn in_classes(&self) -> String {
        match self.classes {
            0 => "no classes".into(),
            1 => "1 class".into(),
            n => format!("{n} classes"),
        }
    }
}

/// Time spent, in seconds, and the amount of work.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// When the audit began, in UTC: `2026-11-26T09:00:00Z`. Of merged parts, the earliest. Empty in reports
    /// of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub began: String,
    /// Loading, differentiating and compiling the model.
    pub model_s: f64,
    /// Decoding and embedding the gallery, with benign metrics.
    pub gallery_s: f64,
    /// The check at load.
    pub check_s: f64,
    /// Attacks of all trials, with their measures.
    pub attacks_s: f64,
    /// The whole audit.
    pub total_s: f64,
    /// Computed attack steps of single images.
    pub image_steps: usize,
    /// Images per model run.
    pub batch: usize,
    /// Requested threads; 0 means one per core.
    pub threads: usize,
    /// Whether the result of the check at load was cached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_kept: bool,
}

impl Timing {
    /// Adds another run's time.
    pub fn add(&mut self, other: &Timing) {
        self.model_s += other.model_s;
        self.gallery_s += other.gallery_s;
        self.check_s += other.check_s;
        self.attacks_s += other.attacks_s;
        self.total_s += other.total_s;
        self.image_steps += other.image_steps;
        if self.began.is_empty() || (!other.began.is_empty() && other.began < self.began) {
            self.began.clone_from(&other.began);
        }
    }

    /// The day it began, in words for a headline: ` · 2026-11-26`; empty if it is not known.
    pub fn day(&self) -> String {
        self.began.split_once('T').map_or(String::new(), |(day, _)| format!(" · {day}"))
    }
}

/// Results of the check at load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GradientCheck {
    /// Largest difference between this program's embeddings and the untouched model's, as a share of the
    /// largest value. Absent if ONNX Runtime cannot run the untouched model.
    pub embedding_error: Option<f64>,
    /// Relative error of directional derivatives against central differences of the untouched model's forward
    /// pass, computed in float32 and with rounding to integers held fixed. It is the median over directions
    /// and images at the best step, along smooth directions. Absent if finite differences are not
    /// possible, or rounding hides them; a warning then says so.
    pub gradient_error: Option<f64>,
    /// That error along the gradient itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_error: Option<f64>,
    /// Number of directional derivatives compared.
    pub directions: usize,
}

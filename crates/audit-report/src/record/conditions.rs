//! What was audited and how: the program, the model, the images, the suite, the check at load, and the time.

use super::{
    Acceptance, Axes, Channels, Crop, Form, Interpolation, Metric, Precision, Protocol, Space,
    number_of_queries,
};
use crate::facts::LINF;
use audit_base::choice::Choice;
use audit_gallery::data::file_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

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
    if !is_linf(norm) {
        return format!("{} ({norm})", trimmed(format!("{eps:.4}")));
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

impl SuiteRecord {
    /// The caveat of attacks without the model's own gradient.
    pub fn caveat(&self) -> Option<String> {
        if let Some(surrogate) = &self.surrogate {
            return Some(format!(
                "Transfer: the attacks were made on {} and only measured on this model. These are no white-box scores, which \
                 would be lower",
                surrogate.path
            ));
        }
        self.forward_passes.map(|passes| {
            format!(
                "Black box: the attacks saw no gradient, and {passes} forward passes for each query and attack. These are no \
                 white-box scores, which would be lower"
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

/// The conversion of pixels in [0, 1], RGB, channels first, to the model's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preprocessing {
    /// Channels of the input.
    pub channels: usize,
    /// Input height.
    pub height: usize,
    /// Input width.
    pub width: usize,
    /// Order of dimensions.
    pub layout: Axes,
    /// Whether RGB, BGR or grey.
    pub order: Channels,
    /// Factor for the pixels of each channel, in the input's order.
    pub scale: Vec<f32>,
    /// Constant added to each channel after the multiplication.
    pub shift: Vec<f32>,
    /// Size [height, width] that images are resized to before the centre crop.
    pub resize: Option<[usize; 2]>,
    /// Length of the shorter side before the centre crop, instead of `resize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_shorter: Option<usize>,
    /// Where the centre crop begins, if not where torchvision's does.
    #[serde(default, skip_serializing_if = "Crop::is_usual")]
    pub crop: Crop,
    /// The interpolation of resizing.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether mean and std were assumed and not stated.
    pub assumed: bool,
    /// The file beside the model that the preprocessing was read from, such as `preprocessor_config.json`, or
    /// `flags and` this file; absent if there is none, or a card overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// Whether height and width were found by trial: neither the model nor a card or flag fixes them, and the
    /// graph accepts no other usual size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub size_found: bool,
    /// The type of an integer input, such as `uint8`; absent for floats. Images for an integer input are
    /// rounded to whole grey levels, attacked images too, within ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integers: Option<String>,
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

impl Preprocessing {
    /// The preprocessing of an image, in words.
    pub fn words(&self) -> String {
        let list = |v: &mut dyn Iterator<Item = f32>| {
            // Four significant digits hide the rounding to float32, so that numbers are shown as they were
            // stated.
            let all: Vec<String> = v.map(|v| format!("{}", rounded(v))).collect();
            match all.first() {
                Some(first) if all.iter().all(|one| one == first) => first.clone(),
                _ => all.join(", "),
            }
        };
        let order = match self.order {
            Channels::Grey => "grey",
            Channels::Rgb => "RGB",
            Channels::Bgr => "BGR",
        };
        let place = match (self.resize, self.resize_shorter) {
            (_, Some(side)) => format!("shorter side resized to {side}, then a centre crop"),
            (Some(sides), None) if sides != [self.height, self.width] => {
                format!("stretched to {} × {}, then a centre crop", sides[0], sides[1])
            }
            _ => "stretched to this size".into(),
        };
        let name = self.interpolation.name();
        let values = match &self.integers {
            Some(dtype) => {
                let [low, high] = [self.shift[0], self.scale[0] + self.shift[0]];
                format!("whole grey levels, {low} to {high} ({dtype})")
            }
            None if self.shift.iter().all(|v| *v == 0.0) && self.scale.iter().all(|v| *v == 1.0) => {
                "pixels in [0, 1]".into()
            }
            None => format!(
                "pixels in [0, 1] less {}, divided by {}",
                list(&mut self.shift.iter().zip(&self.scale).map(|(shift, scale)| -shift / scale)),
                list(&mut self.scale.iter().map(|scale| 1.0 / scale))
            ),
        };
        let found = if self.size_found { " (the only usual size that its graph takes)" } else { "" };
        format!(
            "{} × {} {order}{found}, {place} ({name}); {values}{}{}",
            self.height,
            self.width,
            if self.assumed { " (assumed)" } else { "" },
            self.taken_from.as_ref().map_or(String::new(), |file| format!(", from {file}"))
        )
    }

    /// Mean and std of each channel, in the input's order, for pixels in [0, 1].
    pub fn mean_and_std(&self) -> (Vec<f32>, Vec<f32>) {
        let both = || self.shift.iter().zip(&self.scale);
        let tidy = |v: f32| rounded(v) as f32;
        (
            both().map(|(shift, scale)| tidy(-shift / scale)).collect(),
            both().map(|(_, scale)| tidy(1.0 / scale)).collect(),
        )
    }

    /// Number of values in one image, C·H·W.
    pub fn pixels(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Shape of a batch of pixels: [batch, channels, height, width].
    pub fn pixel_shape(&self, batch: usize) -> [i64; 4] {
        [batch, self.channels, self.height, self.width].map(|d| d as i64)
    }

    /// Shape of the model's own input.
    pub fn input_shape(&self, batch: usize) -> [i64; 4] {
        let [b, c, h, w] = self.pixel_shape(batch);
        if self.layout == Axes::Nchw { [b, c, h, w] } else { [b, h, w, c] }
    }

    /// The images that the model sees instead of these: in whole grey levels, if its input is one of
    /// integers.
    pub fn taken<'p>(&self, pixels: &'p [f32]) -> Cow<'p, [f32]> {
        match self.integers {
            Some(_) => pixels.iter().map(|v| file_value(*v)).collect(),
            None => Cow::Borrowed(pixels),
        }
    }

    /// Pixels [C, H, W] that become, by this preprocessing, what `pixels` become by `other`.
    pub fn disguise(&self, pixels: &[f32], other: &Preprocessing) -> Vec<f32> {
        let plane = self.height * self.width;
        let mut out = vec![0.0; pixels.len()];
        let from =
            |p: &Preprocessing, c: usize| if p.order == Channels::Bgr { self.channels - 1 - c } else { c };
        for c in 0..self.channels {
            let source = &pixels[from(other, c) * plane..][..plane];
            let target = &mut out[from(self, c) * plane..][..plane];
            for (t, s) in target.iter_mut().zip(source) {
                *t = (s * other.scale[c] + other.shift[c] - self.shift[c]) / self.scale[c];
            }
        }
        out
    }

    /// Preprocesses pixels [n, C, H, W] on the CPU, without a graph. Returns the model's input.
    pub fn apply(&self, pixels: &[f32]) -> Vec<f32> {
        let plane = self.height * self.width;
        let mut out = vec![0.0; pixels.len()];
        for (image, target) in pixels.chunks(self.pixels()).zip(out.chunks_mut(self.pixels())) {
            for c in 0..self.channels {
                let from = if self.order == Channels::Bgr { self.channels - 1 - c } else { c };
                for (i, v) in image[from * plane..][..plane].iter().enumerate() {
                    let to = if self.layout == Axes::Nchw { c * plane + i } else { i * self.channels + c };
                    let value = v * self.scale[c] + self.shift[c];
                    target[to] = match self.integers {
                        Some(_) => value.round().clamp(self.shift[c], self.scale[c] + self.shift[c]),
                        None => value,
                    };
                }
            }
        }
        out
    }
}

/// Rounds to four significant digits. Negative zero becomes zero.
fn rounded(v: f32) -> f64 {
    format!("{v:.3e}").parse().unwrap_or(f64::from(v)) + 0.0
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

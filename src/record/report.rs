//! The result of an audit as one serialisable value. Every report format is a pure function of it.

use super::{
    Axes, Channels, Corrupted, CorruptedPictures, Corruptions, Form, HalfPrecision, Interpolation, Metric,
    Outcome, Precision, Protocol, ScoreName, Severity, Skipped, TrialList, Verdict, Verification, Warning,
    reason,
};
use crate::{Error, Exit, Result, files};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Increases when a field changes its meaning or is removed. New fields do not change it.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of an audit, and how they were measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program that wrote the report.
    pub tool: Tool,
    /// The model.
    pub model: Model,
    /// The images.
    pub data: Data,
    /// The suite that was run.
    pub suite: Suite,
    /// Seed of the trials, the random starts and the resampling.
    pub seed: u64,
    /// Whether the user accepted findings of severity error.
    #[serde(default)]
    pub allow_untrusted: bool,
    /// Retrieval without attack, in per cent.
    pub benign: Benign,
    /// One row per measure.
    pub attacks: Vec<Attack>,
    /// What attacked queries find, a row per attack that moves queries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retrieval: Vec<RetrievalRow>,
    /// The smallest perturbations that make queries wrong, where the suite looks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Smallest>,
    /// What hubs are measured on, and what clean images capture; absent where the suite crafts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<Hub>,
    /// What attacks aimed at in place of images; absent where they aimed at images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<ForeignTargets>,
    /// R@1 by class and by group of the queries; absent where no class and no group has enough of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdowns: Vec<Breakdown>,
    /// How the perturbations that queries share were crafted; absent where each query has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<Universal>,
    /// What queries find under natural corruptions, without an attacker; absent where the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corruptions: Option<Corruptions>,
    /// Decisions by a threshold; absent where no attack of the suite is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// The scores.
    pub scores: Scores,
    /// Every random choice and every target, in the form that `--trials` reads.
    pub trials: TrialList,
    /// The outcome of each trial.
    pub outcomes: Vec<Outcome>,
    /// What each query finds under each natural corruption; empty where the suite has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupted: Vec<Corrupted>,
    /// The file that holds `trials`, `outcomes`, `corrupted`, `skipped`, `labels`, `groups` and `examples`, which are empty then; absent where
    /// they are here. [`Report::load`] puts them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials_file: Option<TrialsFile>,
    /// Queries that attacks could not be run on.
    pub skipped: Vec<Skipped>,
    /// Classes of the queries and targets of all trials, by id; empty in reports of versions that did not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Groups of the queries, by id, where the list of images names some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
    /// The accuracy of float16 steps, where attack steps ran in float16.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub half_precision: Option<HalfPrecision>,
    /// Reasons to distrust the result.
    pub warnings: Vec<Warning>,
    /// The part of a run that this report covers; absent for a whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<Part>,
    /// The result of the gate, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gate: Option<Verdict>,
    /// A few attacks to show, where an HTML page was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub examples: Option<Examples>,
    /// The command line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// Time spent. Two runs of the same audit differ only in `timing` and `command`.
    pub timing: Timing,
}

impl Report {
    /// Reads a saved report, and its trials where they are in another file. Errors (exit code 2): the file is not a report, a newer
    /// version of audit wrote it, or its trials can't be read.
    pub fn load(path: &Path) -> Result<Report> {
        let name = path.display();
        let json = files::read_text(path, files::LARGE).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => Error::usage(format!(
                "{name}: expected a report in JSON, as `audit MODEL -o report.json` writes it: {e}"
            )),
            _ => Error::usage(format!("can't read {name}: {e}")),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Report::parse_in(&json, folder).map_err(|e| e.context(name))
    }

    /// Like [`Report::load`], from JSON text. Trials in another file are looked for in the current folder.
    pub fn parse(json: &str) -> Result<Report> {
        Report::parse_in(json, Path::new(""))
    }

    fn parse_in(json: &str, folder: &Path) -> Result<Report> {
        /// The field that reports of all versions have.
        #[derive(Deserialize)]
        struct Stamp {
            schema_version: u32,
        }
        let Stamp { schema_version } = serde_json::from_str(json).map_err(|e| {
            Error::usage(format!("expected a report in JSON, as `audit MODEL -o report.json` writes it: {e}"))
        })?;
        if schema_version > SCHEMA_VERSION {
            return Err(Error::usage(format!(
                "a newer audit wrote this report: its schema_version is {schema_version}, and {} reads up to \
                 {SCHEMA_VERSION}. Update audit, or make the report again with this one",
                concat!("audit ", env!("CARGO_PKG_VERSION"))
            )));
        }
        let mut report: Report = serde_json::from_str(json).map_err(|e| {
            Error::usage(format!("not a whole report (schema_version {schema_version}): {e}"))
        })?;
        report.join(folder)?;
        Ok(report)
    }

    /// Refuses a part of a run (exit code 13), because its scores are not those of the model.
    pub fn whole(&self) -> Result<()> {
        match &self.part {
            None => Ok(()),
            Some(part) => Err(Error::incomplete(format!(
                "the report of {} is part {} of a run. Put all parts together first: audit merge PART... -o whole.json",
                self.model_name(),
                part.partition
            ))),
        }
    }

    /// Findings that invalidate the scores.
    pub fn errors(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|w| w.severity == Severity::Error)
    }

    /// The exit code of the report, if not success: 12 if the result is not trusted and the user did not accept that,
    /// otherwise the gate's.
    pub fn exit(&self) -> Option<Exit> {
        match self.errors().next() {
            Some(_) if !self.allow_untrusted => Some(Exit::Untrusted),
            _ => self.gate.as_ref().and_then(Verdict::exit),
        }
    }

    /// The text at the top of a report with findings of severity error. Robust R@1 keeps its meaning where gradients are
    /// masked and nothing else was found.
    pub fn alarm(&self) -> Option<String> {
        let found: Vec<&str> = self.errors().map(|w| w.id.as_str()).collect();
        let (are, s) = if found.len() == 1 { ("is", "") } else { ("are", "s") };
        let masked_only = self.errors().all(|w| reason::MASKED_GRADIENTS.made(w));
        let of = match (masked_only, &self.scores.robust_r1) {
            (true, Some(robust)) => format!(
                "the scores of attacks along the gradient without a meaning ({}). Robust R@1, {:.1} %, keeps its meaning: it \
                 counts what was found without this gradient",
                found.join(", "),
                robust.value
            ),
            _ => format!("these numbers without a meaning ({})", found.join(", ")),
        };
        (!found.is_empty()).then(|| {
            format!(
                "Not to be trusted: there {are} {} finding{s} that leave{} {of}{}",
                found.len(),
                if s.is_empty() { "s" } else { "" },
                if self.allow_untrusted { "; --allow-untrusted let the audit go on" } else { "" }
            )
        })
    }

    /// Whether gradients were estimated.
    pub fn estimated(&self) -> bool {
        self.warnings.iter().any(|w| reason::GRADIENT_ESTIMATED.made(w))
    }

    /// What a reader must know before any number: that the attacks were not made along the model's own gradient.
    pub fn caveat(&self) -> Option<String> {
        let estimated = || {
            "Gradients were estimated, not formed: attacks are weaker so, and these scores flatter the model"
                .into()
        };
        self.suite.caveat().or_else(|| self.estimated().then(estimated))
    }

    /// The model's file name.
    pub fn model_name(&self) -> &str {
        self.model.path.rsplit(['/', '\\']).next().unwrap_or(&self.model.path)
    }

    /// The report without pictures, verdict and command line. A later audit needs no more for comparison.
    pub fn as_baseline(&self) -> Report {
        Report { gate: None, examples: None, command: None, ..self.clone() }
    }
}

/// Where the trials of a report are, if they are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialsFile {
    /// Path of the file, seen from the report's folder.
    pub path: String,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Number of outcomes in it.
    pub outcomes: usize,
}

/// Embeddings of something else than the images, such as texts, that TMA, QA± and HUB aimed at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForeignTargets {
    /// Path of the file, as given on the command line.
    pub path: String,
    /// SHA-256 over names and embeddings, by name.
    pub sha256: String,
    /// Number of targets.
    pub count: usize,
}

/// A part of a run: a subset of its queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The part, such as "hash:1/3" for the first of three.
    pub partition: String,
    /// Number of trials that the whole run asks for, with those that cannot be run.
    pub trials: usize,
    /// Positions of this part's outcomes among the trials that the whole run asks for.
    pub places: Vec<usize>,
    /// Positions of this part's skipped trials among the trials that the whole run asks for.
    pub skipped_places: Vec<usize>,
    /// SHA-256 over attack and query of each trial that the whole run asks for.
    pub trials_sha256: String,
    /// Scores of the suite.
    pub scores: Vec<ScoreName>,
}

/// A few attacks to show: for each attack, the trials whose embedding moved farthest, and of the others the one that withstood
/// most.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Examples {
    /// The factor that pixel differences are multiplied by in [`Example::difference`].
    pub amplification: f32,
    /// The trials.
    pub trials: Vec<Example>,
    /// Small pictures (base64) of the gallery items that the trials name, by id.
    pub thumbnails: BTreeMap<String, String>,
    /// A map of embeddings in the plane.
    pub map: Map,
    /// A query under natural corruptions; absent where the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<CorruptedPictures>,
}

/// A trial to show. Pictures are in base64: PNG, or JPEG of images of more than 96 pixels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Example {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// The query's class.
    pub class: String,
    /// Ids of the targets.
    pub targets: Vec<String>,
    /// The query's image.
    pub clean: String,
    /// The attacked image.
    pub attacked: String,
    /// Their difference, amplified, with mid-grey for no difference.
    pub difference: String,
    /// The nearest items before the attack, without the query. Where the attack perturbs a candidate, those of its first target.
    pub nearest_before: Vec<Neighbour>,
    /// The nearest items after the attack, without the query.
    pub nearest_after: Vec<Neighbour>,
    /// Held-out queries that the attacked image captures, by its rank; empty for attacks that capture none. Relevant are those of its
    /// class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captured: Vec<Neighbour>,
    /// The loss at each step.
    pub losses: Vec<f64>,
}

/// A gallery item that was retrieved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// The item's id.
    pub id: String,
    /// Whether the item has the query's class.
    pub relevant: bool,
}

/// Embeddings projected onto the two directions in which the gallery varies most.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Map {
    /// The attack whose trials are shown.
    pub attack: String,
    /// Share of the gallery's variance in the plane, in per cent.
    pub variance: f64,
    /// A sample of the gallery.
    pub gallery: Vec<Place>,
    /// A sample of attacked queries.
    pub queries: Vec<Move>,
}

/// A gallery item on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The item's class.
    pub class: String,
    /// The item's position.
    pub at: [f32; 2],
}

/// An attacked query on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// The query's id.
    pub query: String,
    /// The query's class.
    pub class: String,
    /// Position before the attack.
    pub from: [f32; 2],
    /// Position after the attack.
    pub to: [f32; 2],
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
    /// Why this provider; absent where it was asked for by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_why: Option<String>,
    /// Whether factors of matrix products could be rounded to TensorFloat-32 (--fast-math).
    #[serde(default)]
    pub fast_math: bool,
    /// Nodes that ran on the CPU although CUDA was asked for (--allow-cpu-nodes).
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
pub struct Model {
    /// Path of the model file, as given on the command line.
    pub path: String,
    /// SHA-256 of the model file.
    pub sha256: String,
    /// Inputs with their shapes.
    pub inputs: Vec<String>,
    /// Name of the value that is the embedding.
    pub output: String,
    /// Why this value; absent in reports of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_why: Option<String>,
    /// Length of an embedding.
    pub dim: usize,
    /// The distance between embeddings.
    pub metric: Metric,
    /// The preprocessing of pixels before the model's input.
    pub preprocessing: Preprocessing,
    /// Licence, from the model card.
    pub licence: Option<String>,
    /// Source, from the model card.
    pub source: Option<String>,
    /// Result of the check at load.
    pub gradient_check: GradientCheck,
    /// Nodes that softened backward passes change, as far as the strong search used such passes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub softened: Vec<String>,
}

/// The images of the audit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Data {
    /// Folder or generator.
    pub source: String,
    /// Number of images, or of embeddings given instead of images; queries included.
    pub images: usize,
    /// Number of those that are ranked; 0 in reports of versions without separate queries.
    #[serde(default)]
    pub gallery: usize,
    /// Number of those that are queries.
    #[serde(default)]
    pub queries: usize,
    /// Number of classes.
    pub classes: usize,
    /// SHA-256 over ids, classes and file contents.
    pub sha256: String,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

/// The suite that was run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
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
    pub mask: Option<Mask>,
    /// Largest size ε of a perturbation in this norm, in units of the [0,1] range.
    pub eps: f32,
    /// Step size α, in the same units.
    pub alpha: f32,
    /// Steps per run.
    pub steps: usize,
    /// The search algorithm, by its name as a suite's `schedule`.
    pub schedule: String,
    /// Number of random starts besides the clean image.
    pub restarts: usize,
    /// Times the usual work of the strong search, where it ran on every attack.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub effort: Option<usize>,
    /// The other model that the attacks were made on; absent where they were made on the audited model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub surrogate: Option<Surrogate>,
    /// Images that a black-box attack shows the model for each query, one forward pass each; absent for attacks along
    /// gradients.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forward_passes: Option<usize>,
    /// How strictly SPQA and SPFOA keep other items at the top (k of ξ = min(exp(k·s), 1e9)), where one of them ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub xi_k: Option<f64>,
    /// The class of the queries that hubs are for; absent where they are for all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hub_class: Option<String>,
    /// Natural corruptions of the queries, by name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub corruptions: Vec<String>,
    /// What a threshold is taken from, as `--threshold` takes it, where an attack is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold: Option<String>,
    /// The precision of attack steps; float32 in reports of versions without a choice. Outcomes are measured in
    /// float32.
    #[serde(default)]
    pub attack_precision: Precision,
    /// Number of queries attacked.
    pub queries: usize,
    /// How the queries were chosen; absent where all were attacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// The part of an image that attacks may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mask {
    /// The image file that is white where pixels may change; absent for a rectangle at a place drawn for each query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// SHA-256 of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The share of the image's area, from 0 to 1.
    pub share: f64,
}

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.share;
        match &self.path {
            Some(path) => write!(f, "the mask {path} ({share:.1} % of the area)"),
            None => write!(f, "a patch of {share:.1} % of the area, at a place drawn for each query"),
        }
    }
}

/// A model that attacks were made on, and not measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Surrogate {
    /// Path of the file, as given on the command line.
    pub path: String,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// The norm of reports that do not name one: the largest change of a pixel.
fn linf() -> String {
    "linf".into()
}

fn is_linf(norm: &str) -> bool {
    norm == linf()
}

impl Suite {
    /// What a reader must know of attacks that were not made along the model's own gradient.
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

    /// What distinguishes the mask from others: its contents, not its path.
    pub fn masked(&self) -> String {
        match &self.mask {
            None => "none".into(),
            Some(Mask { sha256: Some(sha256), .. }) => format!("sha256 {sha256}"),
            Some(patch) => patch.to_string(),
        }
    }

    /// An addition to the number of steps, where they ran in float16.
    pub fn in_half(&self) -> &'static str {
        if self.attack_precision == Precision::Fp16 { " in float16" } else { "" }
    }

    /// The number of queries attacked and, where they are a sample, how they were chosen.
    pub fn asked(&self) -> String {
        self.sampling.clone().unwrap_or_else(|| format!("{} queries", self.queries))
    }
}

/// Retrieval without attack.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Benign {
    /// Recall at 1, per cent.
    pub r1: f64,
    /// Recall at 2, per cent.
    pub r2: f64,
    /// Mean average precision, per cent.
    pub map: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
    /// Normalised mutual information of a k-means clustering with the classes, per cent.
    pub nmi: Option<f64>,
    /// Adjusted mutual information of the same clustering, which corrects for chance, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami: Option<f64>,
    /// Mean reciprocal rank of the first match, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mrr: Option<f64>,
    /// R-precision, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r_precision: Option<f64>,
    /// mAP@C, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_at_c: Option<f64>,
    /// Cumulative match curve: the share of queries with a match among the first k.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmc: Vec<CmcPoint>,
    /// Retrieval of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// Number of queries in these numbers.
    pub queries: usize,
    /// Number of queries without a possible match, which are left out.
    pub without_positive: usize,
    /// How these queries were chosen; absent where they are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// A point of the cumulative match curve.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CmcPoint {
    /// Number of first items, k.
    pub k: usize,
    /// Queries with a match among the first k items, per cent.
    pub value: f64,
}

/// Retrieval of one class.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassRow {
    /// The class's name.
    pub class: String,
    /// Number of its queries with a possible match.
    pub queries: usize,
    /// Recall at 1, per cent.
    pub r1: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
}

/// One measure. Ranks are percentiles and shares are in per cent; TMA is a cosine, ES:D a distance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attack {
    /// The term's name.
    pub code: String,
    /// The form of the definitions.
    pub form: Form,
    /// Number of trials in the means.
    pub queries: usize,
    /// Number of trials that could not be run, or whose rank already was the attacker's goal.
    pub skipped: usize,
    /// Number of trials that the resistance rests on: of shares those of queries that were right before the attack, of ranks those
    /// whose rank was not the attacker's goal. Absent where there is no resistance, and in reports of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<usize>,
    /// Mean before the attack.
    pub before: Option<f64>,
    /// Mean after the attack.
    pub after: Option<f64>,
    /// 95 % interval of `after`, by bootstrap over queries.
    pub after_interval: Option<(f64, f64)>,
    /// Contribution to ERS.
    pub ers_term: Option<f64>,
    /// Resistance, per cent.
    pub resistance: Resistance,
}

impl Attack {
    /// Whether so few trials stand behind the resistance that it says next to nothing.
    pub fn small(&self) -> bool {
        self.counted.is_some_and(|n| n < FEW)
    }

    /// The number of trials that the resistance rests on, and of how many: `12/16`, or `16` where all of them count.
    pub fn of(&self) -> String {
        match self.counted {
            Some(n) if n != self.queries => format!("{n}/{}", self.queries),
            _ => self.queries.to_string(),
        }
    }
}

/// Trials below which a resistance says next to nothing: one more or less changes it by more than ten points.
pub const FEW: usize = 10;

/// What the queries of an attack find without it and after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalRow {
    /// The attack's code.
    pub attack: String,
    /// Number of queries in the means.
    pub queries: usize,
    /// The same queries without attack.
    pub before: RetrievalMeans,
    /// The attacked queries.
    pub after: RetrievalMeans,
}

/// Retrieval of some queries, in per cent. The gallery is clean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalMeans {
    /// Recall at 1.
    pub r1: f64,
    /// Mean average precision.
    pub map: f64,
    /// mAP@R.
    pub map_at_r: f64,
    /// mAP@C.
    pub map_at_c: f64,
    /// Normalised mutual information of the queries' classes with their clusters: the nearest centre of the k-means
    /// clustering of the clean gallery. Absent where the gallery was not clustered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nmi: Option<f64>,
}

/// R@1 or wrong decisions after attacks, by class or by group of the queries. Classes and groups of few queries are left out. The groups of
/// attacks on pairs are those that their list names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakdown {
    /// What the queries are divided by: class or group.
    pub by: String,
    /// The number that is divided, by its name in gates: robust_r1, or that of an attack, such as attack.ES:R.
    pub metric: String,
    /// Fewest queries of a class or group that has a row.
    pub least: usize,
    /// Number of classes or groups that have fewer queries.
    pub too_few: usize,
    /// The worst of the rows' values after attacks, per cent: the lowest R@1, or the highest share of wrong decisions. The worst of
    /// several noisy numbers is bad by chance too: read it with its interval.
    #[serde(alias = "lowest")]
    pub worst: f64,
    /// 95 % interval of the worst value of any class or group that has a row: from the worst lower to the worst upper end of the rows'
    /// intervals.
    pub interval: (f64, f64),
    /// The classes or groups, the worst first.
    pub rows: Vec<BreakdownRow>,
}

/// R@1, or the share of wrong decisions, of the queries of one class or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakdownRow {
    /// The class or group.
    pub name: String,
    /// Number of its queries that were attacked.
    pub queries: usize,
    /// The value of these without attack, per cent.
    pub before: f64,
    /// The value after the attacks, per cent.
    pub after: f64,
    /// 95 % interval of `after` that holds for all rows together: exact (Clopper and Pearson, 1934), at 1 − 0.05/m for m rows
    /// (Bonferroni).
    pub interval: (f64, f64),
}

/// How universal perturbations were crafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Universal {
    /// Number of perturbations. Each query is measured under one of them.
    pub perturbations: usize,
    /// Number of queries that each is crafted on. They are measured under none.
    pub sample: usize,
}

/// What hubs are measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hub {
    /// Number of queries that held-out ones are drawn from: for each hub, those that are not in its sample.
    pub queries: usize,
    /// Number of queries that a hub is crafted on at most.
    pub sample: usize,
    /// What the clean image that captures most of these queries captures, per cent, for k = 1 and 10.
    pub best_clean: [f64; 2],
}

/// The smallest perturbations that a search found to make queries wrong. They are upper bounds: a better search may find
/// smaller ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Smallest {
    /// The attack's code.
    pub attack: String,
    /// The norm.
    pub norm: String,
    /// The largest norm that was searched, ε.
    pub most: f32,
    /// Number of queries attacked.
    pub queries: usize,
    /// Number of these that are right without attack.
    pub right: usize,
    /// Median of the norms over the queries that are right without attack; absent where more than half of them have none
    /// up to ε.
    pub median: Option<f64>,
    /// R@1 against the norm that an attacker may use, from 0 to ε.
    pub curve: Vec<CurvePoint>,
}

/// A point of the curve of R@1 against the size of perturbations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// The largest norm of a perturbation, in units of the [0,1] range.
    pub eps: f64,
    /// Share of the queries that no perturbation found within it makes wrong, per cent.
    pub r1: f64,
}

/// Both forms of a resistance, per cent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resistance {
    /// Mean over trials, each clamped: equation 30 of the CA-TRIDE paper.
    pub per_trial: Option<f64>,
    /// Ratio of means, as in the paper's tables.
    pub table: Option<f64>,
}

/// The scores, 0–100, higher is better.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// Empirical robustness score.
    pub ers: Option<Score>,
    /// Adversarial resistance score.
    pub ars: Option<Score>,
    /// ARS of what the strong search found, for suites that run it on every attack.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ars_strong: Option<Score>,
    /// R@1 under the strong search; absent where no query was attacked by it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub robust_r1: Option<RobustR1>,
    /// The reasons for missing scores.
    pub notes: Vec<String>,
}

impl Scores {
    /// The score called `name`, if there is one.
    pub fn get(&self, name: ScoreName) -> Option<&Score> {
        match name {
            ScoreName::Ers => self.ers.as_ref(),
            ScoreName::Ars => self.ars.as_ref(),
            ScoreName::ArsStrong => self.ars_strong.as_ref(),
        }
    }
}

/// Robust R@1: the share of the queries for which no attack of the strong search found an image that makes an item of
/// another class the nearest. Queries that are wrong without attack count as wrong. It is an upper bound: a better attack
/// may lower it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RobustR1 {
    /// The share, in per cent.
    pub value: f64,
    /// 95 % interval over queries (Wilson).
    pub interval: (f64, f64),
    /// Queries that were attacked.
    pub queries: usize,
    /// R@1 of the same queries without attack, in per cent.
    pub clean: f64,
    /// What each member of the ensemble did, in its order.
    pub members: Vec<MemberRow>,
}

/// A member of the ensemble over all queries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberRow {
    /// Its name.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Queries that it attacked: those that no earlier tier had broken.
    pub queries: usize,
    /// Queries of these that it broke.
    pub broken: usize,
    /// Queries that it broke, and whose image is the trial's result.
    pub counts: usize,
    /// Image steps.
    pub steps: usize,
}

/// A score and its interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The score. For ARS it is the form per trial.
    pub value: f64,
    /// 95 % interval of the score, by bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// The ratio-of-means form, for ARS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table: Option<f64>,
    /// 95 % interval of the ratio-of-means form.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table_interval: Option<(f64, f64)>,
    /// Whether the interval is so wide that reports for people don't show the score.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub withheld: bool,
}

/// Time spent, in seconds, and the amount of work.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Loading, differentiating and compiling the model.
    pub model_s: f64,
    /// Decoding and embedding the gallery, with benign metrics.
    pub gallery_s: f64,
    /// The check at load.
    pub check_s: f64,
    /// The attacks.
    pub attacks_s: f64,
    /// The whole audit.
    pub total_s: f64,
    /// Computed attack steps of single images.
    pub image_steps: usize,
    /// Images per model run.
    pub batch: usize,
    /// Threads asked for; 0 means one per core.
    pub threads: usize,
    /// Whether the result of the check at load was kept from an earlier audit.
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
    }
}

/// The conversion of pixels in [0,1], RGB, channels first, to the model's input.
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
    /// Order of channels.
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
    /// The interpolation of resizing.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether mean and std were assumed and not stated.
    pub assumed: bool,
}

/// Results of the check at load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GradientCheck {
    /// Largest difference between this program's embeddings and the untouched model's, as a share of the largest value.
    /// Absent where ONNX Runtime cannot run the untouched model.
    pub embedding_error: Option<f64>,
    /// Relative error of directional derivatives against central differences of the untouched model's forward pass,
    /// computed in float32 and with rounding to integers held fixed. It is the median over directions and images at the
    /// best step, along smooth directions. Absent where finite differences are not possible, or rounding hides them; a
    /// warning then says so.
    pub gradient_error: Option<f64>,
    /// The same error along the gradient itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_error: Option<f64>,
    /// Number of directional derivatives compared.
    pub directions: usize,
}

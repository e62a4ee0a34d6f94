//! The result of an audit as one serialisable value. Every format is a pure function of it.

use super::{
    Axes, Channels, Form, HalfPrecision, Interpolation, Metric, Outcome, Precision, Protocol, ScoreName,
    Severity, Skipped, TrialList, Verdict, Warning, reason,
};
use crate::{Error, Exit, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Grows when a field changes its meaning or goes away; new fields leave it.
pub const SCHEMA_VERSION: u32 = 1;

/// All that an audit found, and how it was measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What made the report.
    pub tool: Tool,
    /// The model.
    pub model: Model,
    /// The images.
    pub data: Data,
    /// What was run.
    pub suite: Suite,
    /// Fixes the trials, the random starts and the resampling.
    pub seed: u64,
    /// Whether findings of weight error were to be lived with.
    #[serde(default)]
    pub allow_untrusted: bool,
    /// Retrieval without attack, in per cent but for NMI.
    pub benign: Benign,
    /// A row per measure.
    pub attacks: Vec<Attack>,
    /// The scores.
    pub scores: Scores,
    /// Every random choice and every target, in the form that `--trials` reads.
    pub trials: TrialList,
    /// What came of each trial.
    pub outcomes: Vec<Outcome>,
    /// Trials that could not be run.
    pub skipped: Vec<Skipped>,
    /// Where the attacks' steps ran in float16: how that does, and the trials repeated in float32.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub half_precision: Option<HalfPrecision>,
    /// Reasons to distrust the result.
    pub warnings: Vec<Warning>,
    /// Which part of a run this is, where it is not a whole one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<Part>,
    /// What the gate says, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gate: Option<Verdict>,
    /// A few attacks to look at, where a page was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub examples: Option<Examples>,
    /// The command line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// Where the time went. It and `command` are all that differs between two runs of the same audit.
    pub timing: Timing,
}

impl Report {
    /// Reads a saved report. Errors (exit code 2): not a report, or one of a newer audit.
    pub fn load(path: &Path) -> Result<Report> {
        let name = path.display();
        let json =
            std::fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
        Report::parse(&json).map_err(|e| e.context(name))
    }

    /// [`Report::load`] of JSON text.
    pub fn parse(json: &str) -> Result<Report> {
        /// All that a report of any version has.
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
        serde_json::from_str(json)
            .map_err(|e| Error::usage(format!("not a whole report (schema_version {schema_version}): {e}")))
    }

    /// Refuses a part of a run (exit code 13): its numbers are not the model's.
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

    /// Findings that leave the numbers without a meaning.
    pub fn errors(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|w| w.severity == Severity::Error)
    }

    /// The exit code that the report asks for, if not success: of a result that is not to be trusted, unless that was to
    /// be lived with; then of the gate.
    pub fn exit(&self) -> Option<Exit> {
        match self.errors().next() {
            Some(_) if !self.allow_untrusted => Some(Exit::Untrusted),
            _ => self.gate.as_ref().and_then(Verdict::exit),
        }
    }

    /// What stands above everything else where there are findings of weight error.
    pub fn alarm(&self) -> Option<String> {
        let found: Vec<&str> = self.errors().map(|w| w.id.as_str()).collect();
        let (are, s) = if found.len() == 1 { ("is", "") } else { ("are", "s") };
        (!found.is_empty()).then(|| {
            format!(
                "Not to be trusted: there {are} {} finding{s} that leave{} these numbers without a meaning ({}){}",
                found.len(),
                if s.is_empty() { "s" } else { "" },
                found.join(", "),
                if self.allow_untrusted { "; --allow-untrusted let the audit go on" } else { "" }
            )
        })
    }

    /// Whether the attacks had only estimates of the gradient.
    pub fn estimated(&self) -> bool {
        self.warnings.iter().any(|w| reason::GRADIENT_ESTIMATED.made(w))
    }

    /// The model's file name.
    pub fn model_name(&self) -> &str {
        self.model.path.rsplit(['/', '\\']).next().unwrap_or(&self.model.path)
    }

    /// What a later audit needs to compare itself with this one: all but pictures, verdict and command line.
    pub fn as_baseline(&self) -> Report {
        Report { gate: None, examples: None, command: None, ..self.clone() }
    }
}

/// A part of a run, by queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// "hash:1/3": the first of three.
    pub partition: String,
    /// Trials of the whole.
    pub trials: usize,
    /// Trials of the whole that can't be run.
    pub skipped: usize,
    /// Where this part's outcomes stand in the whole's.
    pub places: Vec<usize>,
    /// The same of the trials that could not be run.
    pub skipped_places: Vec<usize>,
    /// Over the whole's trials.
    pub trials_sha256: String,
    /// Scores of the suite.
    pub scores: Vec<ScoreName>,
}

/// A few attacks to look at: for some attacks, the trial that moved its embedding farthest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Examples {
    /// What differences of pixels are multiplied with in [`Example::difference`].
    pub amplification: f32,
    /// The trials.
    pub trials: Vec<Example>,
    /// Small pictures (PNG in base64) of the gallery items that the trials name, by id.
    pub thumbnails: BTreeMap<String, String>,
    /// Embeddings in the plane.
    pub map: Map,
}

/// A trial to look at. Pictures are PNG in base64.
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
    /// Their difference, amplified, around mid-grey.
    pub difference: String,
    /// The items nearest before the attack, the query left out.
    pub nearest_before: Vec<Neighbour>,
    /// The items nearest after it.
    pub nearest_after: Vec<Neighbour>,
    /// The loss at each step.
    pub losses: Vec<f64>,
}

/// A gallery item that was retrieved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// Its id.
    pub id: String,
    /// Whether it has the query's class.
    pub relevant: bool,
}

/// Embeddings in the plane: the two directions in which the gallery varies most.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Map {
    /// The attack whose trials are shown.
    pub attack: String,
    /// Share of the gallery's variance that the plane holds, per cent.
    pub variance: f64,
    /// Some of the gallery.
    pub gallery: Vec<Place>,
    /// Some attacked queries.
    pub queries: Vec<Move>,
}

/// A gallery item on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Its class.
    pub class: String,
    /// Where it lies.
    pub at: [f32; 2],
}

/// An attacked query on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// Its id.
    pub query: String,
    /// Its class.
    pub class: String,
    /// Before the attack.
    pub from: [f32; 2],
    /// After it.
    pub to: [f32; 2],
}

/// What made a report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Tool {
    pub name: String,
    pub version: String,
    /// ONNX Runtime's version.
    pub runtime: String,
    /// cpu or cuda:n.
    pub provider: String,
    /// Whether factors of products were allowed to be rounded to TensorFloat-32 (--fast-math).
    #[serde(default)]
    pub fast_math: bool,
    /// Nodes that ran on the CPU though CUDA was asked for (--allow-cpu-nodes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_nodes: Vec<String>,
}

impl Tool {
    /// The tool, the runtime, and where and how precisely the model ran.
    pub fn in_words(&self) -> String {
        let tf32 = if self.fast_math { " with TF32" } else { "" };
        format!("{} {}, {} on {}{tf32}", self.name, self.version, self.runtime, self.provider)
    }
}

/// The audited model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// As given on the command line.
    pub path: String,
    /// Of the file.
    pub sha256: String,
    /// Inputs with their shapes.
    pub inputs: Vec<String>,
    /// The value taken as embedding.
    pub output: String,
    /// Length of an embedding.
    pub dim: usize,
    /// The distance.
    pub metric: Metric,
    /// What is done to pixels before the model's input.
    pub preprocessing: Preprocessing,
    /// From the model card.
    pub licence: Option<String>,
    /// From the model card.
    pub source: Option<String>,
    /// The check at load.
    pub gradient_check: GradientCheck,
}

/// The images audited on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Data {
    /// Folder or generator.
    pub source: String,
    /// Images, or embeddings given instead of images; queries included.
    pub images: usize,
    /// Those of them that are ranked; 0 in reports of versions that knew no separate queries.
    #[serde(default)]
    pub gallery: usize,
    /// Those of them that search.
    #[serde(default)]
    pub queries: usize,
    /// Their classes.
    pub classes: usize,
    /// Over ids, classes and file contents.
    pub sha256: String,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

/// What was run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// The reading of the definitions.
    pub form: Form,
    /// The budget.
    pub protocol: Protocol,
    /// The norm that bounds perturbations.
    #[serde(default = "linf", skip_serializing_if = "is_linf")]
    pub norm: String,
    /// Their largest size in it, in units of the [0,1] range.
    pub eps: f32,
    /// Step size, same units.
    pub alpha: f32,
    /// PGD steps.
    pub steps: usize,
    /// How the step size runs.
    pub schedule: String,
    /// Random starts beside the clean one.
    pub restarts: usize,
    /// What steps were computed in; float32 before there was a choice. Outcomes are measured in float32.
    #[serde(default)]
    pub attack_precision: Precision,
    /// Queries attacked.
    pub queries: usize,
    /// How they were chosen, where they are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// The norm of reports that name none: the largest change of a pixel.
fn linf() -> String {
    "linf".into()
}

fn is_linf(norm: &str) -> bool {
    norm == linf()
}

impl Suite {
    /// What is to be said of the steps beside their number, where they ran in float16.
    pub fn in_half(&self) -> &'static str {
        if self.attack_precision == Precision::Fp16 { " in float16" } else { "" }
    }

    /// How many queries were attacked, and how they were chosen where they are not all.
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
    /// The same adjusted for chance, per cent.
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
    /// Cumulative match curve: queries with a match among the first k.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmc: Vec<CmcPoint>,
    /// Retrieval class by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// Images these run over.
    pub queries: usize,
    /// Images with nothing to find, left out.
    pub without_positive: usize,
}

/// A point of the cumulative match curve.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CmcPoint {
    /// The first so many.
    pub k: usize,
    /// Queries with a match among them, per cent.
    pub value: f64,
}

/// Retrieval of one class.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassRow {
    /// Its name.
    pub class: String,
    /// Its queries with something to find.
    pub queries: usize,
    /// Recall at 1, per cent.
    pub r1: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
}

/// One measure. Ranks are percentiles and shares per cent; TMA is a cosine, ES:D a distance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attack {
    /// The term's name.
    pub code: String,
    /// The reading of the definitions.
    pub form: Form,
    /// Trials behind the numbers.
    pub queries: usize,
    /// Trials that could not be run or had nothing to attack.
    pub skipped: usize,
    /// Mean before the attack.
    pub before: Option<f64>,
    /// Mean after it.
    pub after: Option<f64>,
    /// 95 % interval of `after`, by bootstrap over queries.
    pub after_interval: Option<(f64, f64)>,
    /// Contribution to ERS.
    pub ers_term: Option<f64>,
    /// Resistance, per cent.
    pub resistance: Resistance,
}

/// Both forms of a resistance, per cent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resistance {
    /// Mean over trials, each clamped: equation 30 of the CA-TRIDE paper.
    pub per_trial: Option<f64>,
    /// Ratio of means: what its tables print.
    pub table: Option<f64>,
}

/// The scores, 0–100, higher is better.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// Empirical robustness score.
    pub ers: Option<Score>,
    /// Adversarial resistance score.
    pub ars: Option<Score>,
    /// Why one is missing.
    pub notes: Vec<String>,
}

impl Scores {
    /// A score, if there is one.
    pub fn get(&self, name: ScoreName) -> Option<&Score> {
        match name {
            ScoreName::Ers => self.ers.as_ref(),
            ScoreName::Ars => self.ars.as_ref(),
        }
    }
}

/// A score and its interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The headline.
    pub value: f64,
    /// Its 95 % interval, by bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// The ratio-of-means form, for ARS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table: Option<f64>,
    /// Its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table_interval: Option<(f64, f64)>,
}

/// Seconds spent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Loading, differentiating and compiling the model.
    pub model_s: f64,
    /// Decoding and embedding the gallery, benign metrics included.
    pub gallery_s: f64,
    /// The check at load.
    pub check_s: f64,
    /// The attacks.
    pub attacks_s: f64,
    /// All of it.
    pub total_s: f64,
    /// PGD steps of single images that were paid for.
    pub image_steps: usize,
    /// Images per model run.
    pub batch: usize,
    /// Threads asked for; 0 for one per core.
    pub threads: usize,
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

/// From pixels in [0,1], RGB, channels first, to what the model's input takes.
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
    /// Multiplied with a pixel of each channel of the input, in the input's order.
    pub scale: Vec<f32>,
    /// Added after that.
    pub shift: Vec<f32>,
    /// Resize before the centre crop.
    pub resize: Option<[usize; 2]>,
    /// Length of the shorter side before the centre crop, instead of `resize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_shorter: Option<usize>,
    /// How images are resized.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Whether mean and std were assumed rather than stated.
    pub assumed: bool,
}

/// What the check at load measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GradientCheck {
    /// Largest difference between our embeddings and the untouched model's, as a share of the largest value. Absent
    /// where ONNX Runtime can't run the model as it is.
    pub embedding_error: Option<f64>,
    /// Relative error of directional derivatives against central differences of the untouched model's forward (in
    /// float32, and with rounding to integers held still): median over directions and images, best step, along smooth
    /// directions. Absent where there is nothing to compare with, which a warning says.
    pub gradient_error: Option<f64>,
    /// The same along the gradient itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_error: Option<f64>,
    /// Directional derivatives compared.
    pub directions: usize,
}

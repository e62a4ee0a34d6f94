//! What to audit and how, as plain data. The command line and callers of the library make a [`Request`]; no
//! later code depends on flags.

use crate::choice::Choice;
use crate::data::Split;
use crate::model::card::Card;
use crate::model::runtime::{Cuda, Options, Provider};
use crate::progress::Mode;
use crate::record::{Acceptance, Form, Partition, Precision, Space};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Settings of an audit. [`Request::model`] has those of `audit MODEL.onnx`; the other methods and the fields
/// change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The model, an .onnx file.
    pub model: PathBuf,
    /// How the model is read.
    pub reading: Reading,
    /// The images.
    pub images: Images,
    /// The attacks.
    pub attack: Attack,
    /// The attacked queries, and the queries of the numbers without an attack.
    pub queries: Queries,
    /// Seed of the trials and the random starts.
    pub seed: u64,
    /// Whether to continue if a check finds that the numbers will be invalid.
    pub allow_untrusted: bool,
    /// The machine.
    pub compute: Compute,
    /// Rules of the gate.
    pub gate: Demands,
    /// The files to write.
    pub output: Output,
    /// How a long run is divided, continued and sped up.
    pub run: LongRun,
    /// How progress is shown on stderr.
    pub progress: Mode,
    /// The command line that the report states; `None` if there is none.
    pub command: Option<String>,
}

/// How a model is read: preprocessing, output, metric, and the source of its gradient.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// A model card: a file, or the name of a built-in card. `None`: the model's name with .yaml, if that
    /// file exists.
    pub card: Option<PathBuf>,
    /// Keys that override the card.
    pub stated: Card,
    /// Where gradients come from.
    pub gradient: Gradient,
}

/// Images, or embeddings instead of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Images {
    /// A folder in one of the layouts, a list of images, or `generated:CxN`. `None`: generated images.
    pub data: Option<PathBuf>,
    /// The layout's name; `None`: detected.
    pub layout: Option<String>,
    /// Split of the data, if they have splits; `None`: the test split.
    pub split: Option<Split>,
    /// The column of the images in a list or in Parquet files; `None`: by its usual names.
    pub image_column: Option<String>,
    /// The column of the classes; `None`: by its usual names.
    pub label_column: Option<String>,
    /// Whether the images have classes.
    pub labels: Labels,
    /// A file of embeddings to search in. Every image is then a query.
    pub gallery: Option<PathBuf>,
    /// A file of embeddings that attacks aim at instead of images.
    pub targets: Option<PathBuf>,
    /// Whether an image that can't be read ends the audit, instead of being left out.
    pub strict: bool,
}

/// Whether images have classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Labels {
    /// The classes of the layout, which may have none.
    #[default]
    Layout,
    /// No classes, whatever the layout says.
    None,
}

impl Choice for Labels {
    const ALL: &'static [(Labels, &'static str, &'static str)] = &[
        (
            Labels::Layout,
            "layout",
            "The classes of the layout; a folder that directly contains images has none",
        ),
        (Labels::None, "none", "No classes: the image that the clean query finds counts as correct"),
    ];
}

impl Images {
    /// The folder of the images, if `folder` is inside it: files written there would be images of the next
    /// audit.
    pub fn around(&self, folder: &Path) -> Option<&Path> {
        let data = self.data.as_deref().filter(|data| data.is_dir())?;
        let inside = folder.canonicalize().ok()?.starts_with(data.canonicalize().ok()?);
        inside.then_some(data)
    }
}

/// A suite, and changes to it. `None` leaves the suite's or the protocol's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attack {
    /// A built-in suite, or a .yaml file.
    pub suite: String,
    /// Form of the definitions.
    pub form: Option<Form>,
    /// What bounds a perturbation, by name: linf or l2.
    pub norm: Option<String>,
    /// An image: pixels may change where it is white.
    pub mask: Option<PathBuf>,
    /// Which image is changed.
    pub space: Option<Space>,
    /// The quality of the JPEG files that changed images are saved as; `None` for PNG.
    pub jpeg: Option<u8>,
    /// A rectangle of this share of the area may change: `0.1`.
    pub patch: Option<String>,
    /// Largest size of a perturbation, as text: `8/255`, `2.0`.
    pub eps: Option<String>,
    /// Step size, as text.
    pub alpha: Option<String>,
    /// Number of PGD steps.
    pub steps: Option<usize>,
    /// auto, rob28 or rob224.
    pub protocol: Option<String>,
    /// The class whose queries a hub should capture.
    pub hub_class: Option<String>,
    /// The threshold at which a pair is accepted.
    pub threshold: Option<Acceptance>,
    /// Surrogate: another model, on which the attacks are made.
    pub surrogate: Option<PathBuf>,
    /// Precision of the attacks' steps.
    pub precision: Precision,
}

/// The attacked queries, and the queries of the numbers without an attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queries {
    /// Attack at most this many; `None`: the suite's number, or all.
    pub most: Option<usize>,
    /// The choice of queries, if not all are attacked.
    pub sample: Sample,
    /// How many the strong search attacks in addition; `None`: as many as take no longer than the suite, at
    /// least 32.
    pub strong: Option<StrongSample>,
    /// Queries behind the numbers without an attack; `None`: all, or a sample if ranking all would take
    /// minutes.
    pub benign: Option<BenignSample>,
    /// A file of trials or a report whose trials are repeated.
    pub trials: Option<PathBuf>,
    /// Whether to cluster for NMI and AMI even if it takes hours.
    pub nmi: bool,
}

/// Where and how a model runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compute {
    /// The execution provider.
    pub provider: Ep,
    /// Whether CUDA may round the factors of products to TensorFloat-32.
    pub fast_math: bool,
    /// Whether nodes without a CUDA kernel may run on the CPU.
    pub allow_cpu_nodes: bool,
    /// Images per model run, in each thread; `None`: chosen by size.
    pub batch: Option<usize>,
    /// Threads; 0: one per core.
    pub threads: usize,
    /// ONNX Runtime's library; `None`: searched for.
    pub library: Option<PathBuf>,
    /// Bytes that a model may use; `None`: what is free, less a reserve.
    pub memory: Option<u64>,
}

/// Rules of the gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demands {
    /// Lower bounds, METRIC=N.
    pub fail_under: Vec<String>,
    /// Upper bounds, METRIC=N.
    pub fail_over: Vec<String>,
    /// Largest drops against the baseline, METRIC=N.
    pub max_drop: Vec<String>,
    /// An earlier report, .json, whose trials an audit repeats.
    pub baseline: Option<PathBuf>,
}

/// The files that an audit writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Output {
    /// Reports; the extension chooses the format.
    pub reports: Vec<PathBuf>,
    /// Whether JSON reports get the pictures of attacks that pages show.
    pub pictures: bool,
    /// The trials, .json; reports then refer to this file.
    pub trials: Option<PathBuf>,
    /// A folder for the changed photographs of an audit in file space.
    pub attacked: Option<PathBuf>,
    /// The report as a baseline for later audits, unless the gate fails.
    pub baseline: Option<PathBuf>,
}

/// How a long run is divided, continued and sped up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LongRun {
    /// Whether to continue from the journal.
    pub resume: bool,
    /// The journal; `None`: beside the first report.
    pub journal: Option<PathBuf>,
    /// The part to run; `None`: the whole.
    pub partition: Option<Partition>,
    /// A file of `audit embed` to read embeddings from.
    pub gallery_cache: Option<PathBuf>,
    /// A folder to cache embeddings in.
    pub cache: Option<PathBuf>,
    /// Whether to read and write nothing in the user's cache folder.
    pub no_cache: bool,
}

/// The suite of audits, and of commands that examine them.
pub const USUAL_SUITE: &str = "robust";

impl Default for Attack {
    fn default() -> Attack {
        Attack {
            suite: USUAL_SUITE.into(),
            form: None,
            norm: None,
            mask: None,
            space: None,
            jpeg: None,
            patch: None,
            eps: None,
            alpha: None,
            steps: None,
            protocol: None,
            hub_class: None,
            threshold: None,
            surrogate: None,
            precision: Precision::Fp32,
        }
    }
}

impl Default for Request {
    fn default() -> Request {
        Request::model("")
    }
}

impl Request {
    /// An audit by suite `robust` on generated images, which shows no progress and writes no file.
    pub fn model(path: impl Into<PathBuf>) -> Request {
        Request {
            model: path.into(),
            reading: Reading::default(),
            images: Images::default(),
            attack: Attack::default(),
            queries: Queries::default(),
            seed: 0,
            allow_untrusted: false,
            compute: Compute::default(),
            gate: Demands::default(),
            output: Output::default(),
            run: LongRun::default(),
            progress: Mode::None,
            command: None,
        }
    }

    /// With a built-in suite or a .yaml file.
    #[must_use]
    pub fn suite(mut self, name: &str) -> Request {
        self.attack.suite = name.into();
        self
    }

    /// On the images of a folder or a list.
    #[must_use]
    pub fn data(mut self, path: impl Into<PathBuf>) -> Request {
        self.images.data = Some(path.into());
        self
    }

    /// Within ε, such as `8/255`.
    #[must_use]
    pub fn eps(mut self, size: &str) -> Request {
        self.attack.eps = Some(size.into());
        self
    }

    /// On at most this many queries.
    #[must_use]
    pub fn max_queries(mut self, most: usize) -> Request {
        self.queries.most = Some(most);
        self
    }

    /// With this seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Request {
        self.seed = seed;
        self
    }

    /// With a report, whose format the file's extension chooses. May be repeated.
    #[must_use]
    pub fn report(mut self, file: impl Into<PathBuf>) -> Request {
        self.output.reports.push(file.into());
        self
    }

    /// With a lower bound of a metric, such as `robust_r1=30`. May be repeated.
    #[must_use]
    pub fn fail_under(mut self, demand: &str) -> Request {
        self.gate.fail_under.push(demand.into());
        self
    }
}

impl Compute {
    /// Options of sessions on a provider.
    pub fn options(&self, provider: Provider) -> Options {
        let provider = match provider {
            Provider::Cuda(Cuda { device, .. }) => {
                Provider::Cuda(Cuda { device, tf32: self.fast_math, cpu_nodes: self.allow_cpu_nodes })
            }
            Provider::Cpu => Provider::Cpu,
        };
        Options { provider, threads: self.threads }
    }
}

/// Where an audit computes. As text: auto, cpu, cuda or cuda:N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Ep {
    /// On CUDA if it is available, else on the CPU.
    #[default]
    Auto,
    /// Only on this provider.
    On(Provider),
}

impl std::str::FromStr for Ep {
    type Err = Error;
    fn from_str(text: &str) -> Result<Ep> {
        match text {
            "auto" => Ok(Ep::Auto),
            _ => text.parse().map(Ep::On).map_err(|e: Error| match text.starts_with("cuda:") {
                true => e,
                false => Error::usage("expected auto, cpu, cuda or cuda:N"),
            }),
        }
    }
}

/// How many queries the strong search attacks besides the suite. As text: a number, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StrongSample {
    /// None.
    Off,
    /// At most this many.
    Most(usize),
}

/// Choice of the attacked queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// Stratified by class.
    #[default]
    Any,
    /// Stratified by class, among the queries that are correct without an attack; others if these don't
    /// suffice.
    Correct,
}

impl Choice for Sample {
    const ALL: &'static [(Sample, &'static str, &'static str)] = &[
        (Sample::Any, "any", "Stratified by class"),
        (
            Sample::Correct,
            "correct",
            "Stratified by class, among the queries that are correct without an attack; others if these don't suffice",
        ),
    ];
}

/// Number of queries behind the numbers without an attack. As text: a number, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BenignSample {
    /// Every query.
    All,
    /// At most this many.
    Most(usize),
}

/// Where gradients come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gradient {
    /// Derived from the model's graph.
    #[default]
    Exact,
    /// Estimated from forward passes.
    Estimate,
}

impl Choice for Gradient {
    const ALL: &'static [(Gradient, &'static str, &'static str)] = &[
        (Gradient::Exact, "exact", "Derived from the model's graph"),
        (Gradient::Estimate, "estimate", "Estimated from forward passes"),
    ];
}

impl std::str::FromStr for StrongSample {
    type Err = Error;
    fn from_str(text: &str) -> Result<StrongSample> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("off") => Ok(StrongSample::Off),
            Ok(n) if n > 0 => Ok(StrongSample::Most(n)),
            _ => Err(Error::usage("expected a number of queries, at least 1, or off")),
        }
    }
}

impl std::str::FromStr for BenignSample {
    type Err = Error;
    fn from_str(text: &str) -> Result<BenignSample> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("all") => Ok(BenignSample::All),
            Ok(n) if n > 0 => Ok(BenignSample::Most(n)),
            _ => Err(Error::usage("expected a number of queries, at least 1, or all")),
        }
    }
}

impl std::fmt::Display for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Ep::Auto => f.write_str("auto"),
            Ep::On(provider) => provider.fmt(f),
        }
    }
}

impl std::fmt::Display for StrongSample {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            StrongSample::Off => f.write_str("off"),
            StrongSample::Most(n) => n.fmt(f),
        }
    }
}

impl std::fmt::Display for BenignSample {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            BenignSample::All => f.write_str("all"),
            BenignSample::Most(n) => n.fmt(f),
        }
    }
}

/// In serde these are texts, which `FromStr` reads and `Display` writes.
macro_rules! as_text {
    ($($name:ident)*) => {$(
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<$name> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}
as_text!(Ep StrongSample BenignSample);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_after_json() {
        let mut request =
            Request::model("m.onnx").suite("strong").data("photos").eps("8/255").report("r.json");
        request.compute.provider = "cuda:1".parse().unwrap();
        request.queries.strong = Some(StrongSample::Off);
        request.queries.benign = Some("200".parse().unwrap());
        request.run.partition = Some("hash:1/2".parse().unwrap());
        request.attack.threshold = Some("far=0.01".parse().unwrap());
        request.reading.stated.size = Some([32, 48]);
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request, "{text}");
        // Missing fields have the values of an audit without flags.
        let short: Request = serde_json::from_str(r#"{"model": "m.onnx"}"#).unwrap();
        assert_eq!(short, Request::model("m.onnx"));
        for wrong in [r#"{"compute": {"provider": "tpu"}}"#, r#"{"queries": {"strong": "0"}}"#] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}

//! What to audit and how, as plain data. The command line and callers of the library make a [`Request`]; no
//! later code depends on flags.

mod choices;

use crate::data::Split;
use crate::model::card::Card;
use crate::model::runtime::{Cuda, Options, Provider};
use crate::progress::Mode;
use crate::record::{Acceptance, Form, Partition, Precision, Protocol, Space};
pub use choices::{BenignSample, Ep, Gradient, Labels, Sample, StrongSample};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Settings of an audit. [`Request::model`] has those of `audit MODEL.onnx`; the other methods and the fields
/// change them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The budget that the suite's ε, α and steps come from.
    pub protocol: Option<Protocol>,
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
    /// ONNX Runtime's library; `None`: searched for. A process loads one: that of its first audit.
    pub library: Option<PathBuf>,
    /// Bytes that a model may use; `None`: what is free, less a reserve. All audits of a process have the
    /// limit of the first one; another one is refused.
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

impl Request {
    /// An audit by suite `robust` on generated images, which shows no progress and writes no file.
    pub fn model(path: impl Into<PathBuf>) -> Request {
        Request { model: path.into(), ..Request::default() }
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

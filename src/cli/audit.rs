//! The flags of an audit, which other commands have too.

use crate::data::{LAYOUTS, Split};
use crate::engines;
use crate::model::card::{Card, Pooling};
use crate::model::memory::Bytes;
use crate::model::runtime::{Cuda, Options, Provider};
use crate::progress::Mode;
use crate::record::{Acceptance, Axes, Channels, Form, Interpolation, Metric, Partition, Precision};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;

/// What to audit, how to attack, and where reports go.
#[derive(Clone, Debug, Args)]
pub struct AuditFlags {
    /// The model, an .onnx file
    #[arg(required = true)]
    pub model: Option<PathBuf>,
    /// Built-in suite (`audit suites` lists them) or a .yaml file
    #[arg(long, default_value = "ars")]
    pub suite: String,
    /// Images: a folder in one of the layouts, a .csv manifest, or generated:CxN for C classes of N generated images [default: 48
    /// classes of 20]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Layout of the data on disk [default: detected; class folders if it is no known benchmark]
    #[arg(long, value_parser = layouts())]
    pub layout: Option<String>,
    /// Part of a benchmark [default: test]
    #[arg(long)]
    pub split: Option<Split>,
    /// Gallery of embeddings to search in: a .parquet file with the columns id, label and embedding, or a .npy file with ids
    /// and labels in a .csv file beside it. Every image of the data is then a query
    #[arg(long, value_name = "FILE")]
    pub gallery: Option<PathBuf>,
    /// Targets of TMA, QA+, QA- and HUB instead of images, such as text embeddings of a CLIP-like model: a .parquet file with
    /// the columns id and embedding, or a .npy file with ids in a .csv file beside it
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Stop at the first image that can't be read, instead of leaving it out
    #[arg(long)]
    pub strict_data: bool,
    /// File to write the report to; the ending chooses the format. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load it
    #[arg(long, value_name = "FILE")]
    pub trials_out: Option<PathBuf>,
    /// Seed of the trials and the random starts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Attack at most this many queries, stratified by class
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// How --max-queries chooses: any, or correct, which prefers queries that are right without attack. Fewer queries then suffice,
    /// because each can still be broken. Numbers of the two samples are not comparable; reports state the sample
    #[arg(long, value_enum, value_name = "WHICH", default_value = "any")]
    pub sample: Sample,
    /// Number of queries that the strong search attacks in addition to the suite, for robust R@1, or off [default: as many as take no
    /// longer than the suite, at least 32]
    #[arg(long, value_name = "N|off", value_parser = strong_sample)]
    pub strong_sample: Option<StrongSample>,
    /// Make the attacks on another model of the same input, and measure them on this model. The scores are those of a transfer
    /// attack: no gate compares them with white-box scores
    #[arg(long, value_name = "FILE")]
    pub surrogate: Option<PathBuf>,
    /// Number of queries for R@1, mAP and the other numbers without attack, or all [default: all; a sample, which reports state, if
    /// ranking all would take minutes]
    #[arg(long, value_name = "N|all", value_parser = benign_sample)]
    pub benign_sample: Option<BenignSample>,
    /// Always cluster for NMI and AMI, with progress, even if it takes hours, as for SOP and In-shop [default: if it takes at most minutes]
    #[arg(long)]
    pub nmi: bool,
    /// With --suite hub: the class whose queries the changed images shall capture [default: all queries]
    #[arg(long, value_name = "CLASS")]
    pub hub_class: Option<String>,
    /// With --suite faces and --suite threshold: the threshold at which a pair is accepted as one identity. far=0.001 determines it from
    /// the impostor pairs of the images, for this false accept rate; cosine=0.3 and euclidean=1.1 state it [default: the suite's, mostly
    /// far=0.001]
    #[arg(long, value_name = "far=RATE|cosine=MIN|euclidean=MAX")]
    pub threshold: Option<Acceptance>,
    /// Repeat the trials of a file or of an earlier report
    #[arg(long, value_name = "FILE")]
    pub trials: Option<PathBuf>,
    /// Form of the definitions: as released code computes them, or as the papers define them [default: the suite's]
    #[arg(long)]
    pub form: Option<Form>,
    /// What bounds a perturbation: linf, the largest change of a pixel, or l2, the Euclidean length of all changes [default: the
    /// suite's, mostly linf]
    #[arg(long, value_name = "linf|l2")]
    pub norm: Option<String>,
    /// An image of the model's input size: attacks may change the pixels where it is white. ε is 1 unless --eps says otherwise
    #[arg(long, value_name = "IMAGE", conflicts_with = "patch")]
    pub mask: Option<PathBuf>,
    /// Attacks may change a rectangle of this share of the area, such as 0.1, at a random place for each query. ε is 1 unless
    /// --eps says otherwise
    #[arg(long, value_name = "SHARE")]
    pub patch: Option<String>,
    /// Largest size of a perturbation: for linf the largest change of a pixel, such as 8/255; for l2 a length, such as 2.0. If it is not
    /// the protocol's or the suite's, the step size follows in proportion [default: by protocol; none for l2]
    #[arg(long)]
    pub eps: Option<String>,
    /// Step size, such as 3/255, at most ε [default: by protocol, in proportion to ε]
    #[arg(long)]
    pub alpha: Option<String>,
    /// PGD steps [default: by protocol]
    #[arg(long)]
    pub steps: Option<usize>,
    /// rob28 or rob224 [default: by the model's input size]
    #[arg(long)]
    pub protocol: Option<String>,
    /// Distance: normalized-euclidean, euclidean or cosine [default: normalized-euclidean]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// Continue even if a check finds that the numbers will be invalid; the report then says so first
    #[arg(long)]
    pub allow_untrusted: bool,
    /// What the gate demands.
    #[command(flatten)]
    pub demands: Demands,
    /// Write the report as a baseline for later audits, unless the gate fails
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub save_baseline: Option<PathBuf>,
    /// What the model takes and gives.
    #[command(flatten)]
    pub described: Described,
    /// Source of gradients: exact, derived from the graph, or, as a last resort, estimated from many forward passes
    #[arg(long, value_enum, default_value = "exact", help_heading = "Model")]
    pub gradient: GradientSource,
    /// Precision of the attacks' steps. fp16 is meant for GPUs, and slower on a CPU. Outcomes are always measured in float32, and
    /// a sample of the trials is repeated with float32 steps to check that the attacks are no weaker
    #[arg(long, value_enum, value_name = "TYPE", default_value = "fp32", help_heading = "Machine")]
    pub attack_precision: Precision,
    /// Where it computes.
    #[command(flatten)]
    pub compute: Compute,
    /// Recompute what is otherwise cached, and cache nothing: the check at load and, for a large gallery, retrieval without attack and the
    /// choice of trials [default: cached in the user's cache folder, for the same model, options, images, program and runtime]
    #[arg(long, help_heading = "Machine")]
    pub no_cache: bool,
    /// Continue a run that was interrupted or killed: repeat its command and add this flag. Trials in the journal are not run
    /// again; without a journal, the run starts from the beginning
    #[arg(long, help_heading = "Long runs")]
    pub resume: bool,
    /// File that saves each finished trial at once, so that --resume can continue; removed when all reports are written
    /// [default: the first -o with .journal added; none without -o]
    #[arg(long, value_name = "FILE", help_heading = "Long runs")]
    pub journal: Option<PathBuf>,
    /// Run part M of N: a hash of its id assigns each query to a part. `audit merge` combines the parts. auto takes the part from the
    /// environment of Slurm, Kubernetes, AWS Batch, GNU parallel, GitLab and others (docs/engines.md)
    #[arg(long, value_name = "hash:M/N|auto", value_parser = partition, help_heading = "Long runs")]
    pub partition: Option<Partition>,
    /// Read the embeddings of the images from this file of `audit embed`. Some are computed again and compared; a file that was made
    /// with other settings or of other images is refused
    #[arg(long, value_name = "FILE", help_heading = "Long runs")]
    pub gallery_cache: Option<PathBuf>,
    /// Cache embeddings in this folder, so that a second suite or a resumed run embeds no image twice
    #[arg(long, value_name = "FOLDER", conflicts_with = "gallery_cache", help_heading = "Long runs")]
    pub cache: Option<PathBuf>,
    /// How to show progress on stderr
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto", help_heading = "Machine")]
    pub progress: Mode,
    /// No progress on stderr: --progress none
    #[arg(short, long, help_heading = "Machine")]
    pub quiet: bool,
}

impl AuditFlags {
    /// What the flags say of the model.
    pub fn card(&self) -> crate::Result<Card> {
        Ok(Card { metric: self.metric, ..self.described.card()? })
    }

    /// How progress is shown.
    pub fn mode(&self) -> Mode {
        if self.quiet { Mode::None } else { self.progress }
    }
}

/// Flags of the gate.
#[derive(Clone, Debug, Default, Args)]
pub struct Demands {
    /// Fail (exit code 10) where a metric is lower: robust_r1=30, attack.ES:R=20, benign.r1=60. May be repeated
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub fail_under: Vec<String>,
    /// Fail (exit code 10) where a metric is higher, for those where lower is more robust: attack.QA-=20
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub fail_over: Vec<String>,
    /// Fail (exit code 11) where a metric is worse than the baseline's by more than N, and by more than chance
    /// explains: ars=1.0. [default with a baseline: 1 point of ars, ers and benign.r1; benign.r1 always]
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub max_drop: Vec<String>,
    /// An earlier report, .json; an audit repeats its trials
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub baseline: Option<PathBuf>,
}

impl Demands {
    /// Whether there are any.
    pub fn asked(&self) -> bool {
        let lists = [&self.fail_under, &self.fail_over, &self.max_drop];
        self.baseline.is_some() || lists.iter().any(|list| !list.is_empty())
    }
}

/// Where and how a model runs.
#[derive(Clone, Debug, Args)]
pub struct Compute {
    /// Execution provider: auto, cpu, cuda or cuda:N. auto uses CUDA if the library of ONNX Runtime supports it and there is a device,
    /// else the CPU; reports say which and why. CUDA needs the GPU build (`pip install onnx-audit[cuda]` or `cargo xtask setup --cuda`)
    #[arg(long, default_value = "auto", help_heading = "Machine")]
    pub ep: Ep,
    /// With --ep cuda: round the factors of products to TensorFloat-32. Faster; reports say so
    #[arg(long, help_heading = "Machine")]
    pub fast_math: bool,
    /// With --ep cuda: run nodes for which CUDA has no kernel on the CPU, instead of refusing the model. Slow; reports say so
    #[arg(long, help_heading = "Machine")]
    pub allow_cpu_nodes: bool,
    /// Images per model run, in each thread. Changes the time, not the trials
    #[arg(long, value_parser = batch(), help_heading = "Machine")]
    pub batch: Option<usize>,
    /// The library.
    #[command(flatten)]
    pub runtime: Runtime,
}

impl Compute {
    /// How sessions are to be made on a provider.
    pub fn options(&self, provider: Provider) -> Options {
        let provider = match provider {
            Provider::Cuda(Cuda { device, .. }) => {
                Provider::Cuda(Cuda { device, tf32: self.fast_math, cpu_nodes: self.allow_cpu_nodes })
            }
            Provider::Cpu => Provider::Cpu,
        };
        Options { provider, threads: self.runtime.threads }
    }
}

/// The library of ONNX Runtime, and what it may take of the machine.
#[derive(Clone, Debug, Args)]
pub struct Runtime {
    /// Threads [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = threads(), help_heading = "Machine")]
    pub threads: usize,
    /// ONNX Runtime's library [default: $ORT_DYLIB_PATH, beside the program, its Python environment, conda, the system]
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    pub ort_lib: Option<PathBuf>,
    /// Memory that a model may use, such as 4G or 512M [default: what is free, less a tenth and at least 256M]. A model that needs more is
    /// refused (exit code 3)
    #[arg(long, value_name = "SIZE", help_heading = "Machine")]
    pub memory: Option<Bytes>,
}

/// What is said of the model's input and output: a card, and flags that go before it.
#[derive(Clone, Debug, Args)]
pub struct Described {
    /// Model card: a file, or face-bgr or face-rgb for face recognisers with 112x112 pixels and (x - 127.5)/128 [default: the
    /// model's name with .yaml, if this file exists]
    #[arg(long, value_name = "FILE|NAME", help_heading = "Model")]
    pub card: Option<PathBuf>,
    /// Name of the input for the images
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub input: Option<String>,
    /// Name of the value that is the embedding
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub output: Option<String>,
    /// How the tokens, or the positions of a feature map, become one embedding
    #[arg(long, value_enum, help_heading = "Model")]
    pub pooling: Option<Pooling>,
    /// Input height and width, if the model does not fix them: 224, or 256x128
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub size: Option<[usize; 2]>,
    /// Order of the input's dimensions
    #[arg(long, value_enum, help_heading = "Model")]
    pub image_layout: Option<Axes>,
    /// Order of the input's channels
    #[arg(long, value_enum, help_heading = "Model")]
    pub channels: Option<Channels>,
    /// Values of black and white before mean and std are applied: 0,1 or 0,255 or -1,1
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub range: Option<Vec<f32>>,
    /// Value to subtract per channel, in units of the range
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub mean: Option<Vec<f32>>,
    /// Value to divide by per channel, in units of the range
    #[arg(long, value_delimiter = ',', num_args = 1, help_heading = "Model")]
    pub std: Option<Vec<f32>>,
    /// Height and width to resize to before the centre crop
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub resize: Option<[usize; 2]>,
    /// Length to resize the shorter side to before the centre crop, instead of --resize
    #[arg(long, value_name = "N", conflicts_with = "resize", help_heading = "Model")]
    pub resize_shorter: Option<usize>,
    /// Interpolation when images are resized
    #[arg(long, value_enum, help_heading = "Model")]
    pub interpolation: Option<Interpolation>,
}

impl Described {
    /// What the flags say of the model.
    pub fn card(&self) -> crate::Result<Card> {
        let range = match self.range.as_deref() {
            None => None,
            Some([low, high]) if low < high => Some([*low, *high]),
            Some(other) => {
                return Err(crate::Error::usage(format!(
                    "--range takes two increasing values such as 0,255; found {other:?}"
                )));
            }
        };
        Ok(Card {
            input: self.input.clone(),
            output: self.output.clone(),
            pooling: self.pooling,
            size: self.size,
            layout: self.image_layout,
            channels: self.channels,
            range,
            mean: self.mean.clone(),
            std: self.std.clone(),
            resize: self.resize,
            resize_shorter: self.resize_shorter,
            interpolation: self.interpolation,
            ..Default::default()
        })
    }
}

/// Where an audit is to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ep {
    /// On CUDA if it is available, else on the CPU.
    Auto,
    /// Only on this provider.
    On(Provider),
}

impl std::str::FromStr for Ep {
    type Err = crate::Error;
    fn from_str(text: &str) -> crate::Result<Ep> {
        match text {
            "auto" => Ok(Ep::Auto),
            _ => text.parse().map(Ep::On).map_err(|e: crate::Error| match text.starts_with("cuda:") {
                true => e,
                false => crate::Error::usage("expected auto, cpu, cuda or cuda:N"),
            }),
        }
    }
}

/// How many queries the strong search attacks besides the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrongSample {
    /// None.
    Off,
    /// At most this many.
    Most(usize),
}

/// Which queries are attacked where not all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sample {
    /// Stratified by class.
    Any,
    /// Stratified by class, among the queries that are right without attack; others if these don't suffice.
    Correct,
}

/// How many queries the numbers without attack are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenignSample {
    /// Every query.
    All,
    /// At most this many.
    Most(usize),
}

fn benign_sample(text: &str) -> std::result::Result<BenignSample, String> {
    match text.parse() {
        _ if text.eq_ignore_ascii_case("all") => Ok(BenignSample::All),
        Ok(n) if n > 0 => Ok(BenignSample::Most(n)),
        _ => Err("expected a number of queries, at least 1, or all".into()),
    }
}

fn strong_sample(text: &str) -> std::result::Result<StrongSample, String> {
    match text.parse() {
        _ if text.eq_ignore_ascii_case("off") => Ok(StrongSample::Off),
        Ok(n) if n > 0 => Ok(StrongSample::Most(n)),
        _ => Err("expected a number of queries, at least 1, or off".into()),
    }
}

/// Where gradients come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GradientSource {
    /// Derived from the model's graph.
    Exact,
    /// Estimated from forward passes.
    Estimate,
}

/// The names of all layouts.
fn layouts() -> clap::builder::PossibleValuesParser {
    LAYOUTS
        .iter()
        .map(|layout| clap::builder::PossibleValue::new(layout.name).help(layout.about))
        .collect::<Vec<_>>()
        .into()
}

/// The largest number of threads: more than any machine has cores, fewer than any machine refuses.
const MOST_THREADS: u64 = 1024;

/// The most images per model run.
const MOST_BATCH: u64 = 1 << 16;

pub(super) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=MOST_THREADS)
}

pub(super) fn batch() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_BATCH)
}

fn partition(text: &str) -> Result<Partition, String> {
    match text {
        "auto" => engines::partition(|name| std::env::var(name).ok()),
        _ => text.parse(),
    }
}

fn size(text: &str) -> Result<[usize; 2], String> {
    let mut sides = text.split('x').map(|s| s.parse::<usize>().ok().filter(|&n| n > 0));
    match (sides.next(), sides.next(), sides.next()) {
        (Some(Some(n)), None, None) => Ok([n, n]),
        (Some(Some(h)), Some(Some(w)), None) => Ok([h, w]),
        _ => Err("expected a side such as 224, or height x width such as 256x128".into()),
    }
}

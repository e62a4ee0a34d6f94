//! The command line as flags. No logic.

mod audit;
mod writes;

pub use audit::{
    AuditFlags, BenignSample, Compute, Demands, Described, Ep, GradientSource, Runtime, Sample, StrongSample,
};

pub use writes::{WRITTEN, Written};

use crate::progress::{Mode, TimeLimit};
use crate::record::Metric;
use audit::batch;
use clap::builder::RangedU64ValueParser;
use clap::{Arg, Args, Parser, Subcommand};
use std::path::PathBuf;

/// The text below the flags in `audit --help`.
const EXAMPLES: &str = "Examples:
  audit --suite ars model.onnx
  audit --suite full model.onnx --data photos/ -o report.json -o report.html
  audit --suite full model.onnx --data photos/ -o report.json -o report.html --resume
                                        continues after Ctrl-C, a crash or a kill
  audit model.onnx --baseline base.json --max-drop ars=1.0 -o report.junit.xml
  audit model.onnx --data photos/ --partition hash:1/3 -o part1.json
  audit model.onnx --data photos/ --ep cuda --ort-lib target/onnxruntime-gpu
                                        on a GPU (docs/cuda.md)
  audit model.onnx --data photos/ --ep cuda --attack-precision fp16
                                        steps in float16, outcomes in float32
  audit model.onnx --data photos/ --surrogate other.onnx
                                        attacks made on another model
  audit compare before.json after.json

Progress as JSON lines (--progress json), one event a line on stderr: start and end of a phase (model, check, \
preprocessing, gallery, retrieval, attacks, sample in float32, corruptions); plan with the phases ahead and their seconds; progress with \
done, total, seconds_left (an upper bound that never rises; null if none is known) and, in the attacks, attack, step, steps, \
queries_done, queries, or with seconds if a phase has no steps to count; note; warning; error with exit and text.

Exit codes: 0 done · 1 internal error · 2 usage · 3 model can't be audited · 4 nothing to evaluate · 10 gate failed · \
11 regression against the baseline · 12 result not trustworthy · 13 incomplete: parts are missing · 130 interrupted, continue with --resume";

/// Audits the adversarial robustness of ONNX image-embedding models.
#[derive(Debug, Parser)]
#[command(
    version,
    long_version = writes::version(),
    about,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(after_help = EXAMPLES)]
pub struct Cli {
    /// What to do; without a command, an audit.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of an audit.
    #[command(flatten)]
    pub run: AuditFlags,
}

impl Cli {
    /// How progress and errors are shown.
    pub fn mode(&self) -> Mode {
        match &self.command {
            None => self.run.mode(),
            Some(Command::Run(flags)) => flags.mode(),
            Some(Command::Sweep(flags)) => flags.run.mode(),
            Some(Command::Geometry(flags)) => flags.run.mode(),
            Some(Command::Embed(flags)) => flags.run.mode(),
            Some(Command::Compare(flags)) => flags.run.mode(),
            Some(_) => Mode::Auto,
        }
    }
}

/// Commands beside the audit itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Audit a model (the default)
    #[command(after_help = EXAMPLES)]
    Run(Box<AuditFlags>),
    /// Describe a model: what it is, whether it can be audited, and what an audit costs here
    Inspect(Box<InspectFlags>),
    /// Run all checks for reasons to distrust an audit of this model
    Doctor(Box<DoctorFlags>),
    /// Run a suite over a grid of ε, steps, random starts and numbers of targets, with a curve for each attack
    Sweep(Box<SweepFlags>),
    /// Measure the embedding space and how far attacks move embeddings: distances, energies, triplets, a map of classes
    Geometry(Box<GeometryFlags>),
    /// List the operators whose gradient is known
    #[command(after_help = "Example:\n  audit ops | grep -i norm")]
    Ops {
        /// As the Markdown file docs/operators.md
        #[arg(long)]
        markdown: bool,
    },
    /// List the attacks
    #[command(
        after_help = "Example, a suite of some of them:\n  attacks: [ES, GTM]\n  form: corrected\n(in my.yaml; then audit \
    --suite my.yaml model.onnx)"
    )]
    Attacks,
    /// List the built-in suites
    #[command(after_help = "Example:\n  audit --suite smoke model.onnx")]
    Suites,
    /// Render a saved report in other formats
    Report(ReportFlags),
    /// Compare reports or two models with the first one: differences with 95 % intervals
    Compare(Box<CompareFlags>),
    /// Combine the parts of a run (`--partition`)
    Merge(MergeFlags),
    /// Embed the images once, for the parts of a run or for other suites
    Embed(Box<EmbedFlags>),
    /// Check a saved report against thresholds and a baseline
    Gate(GateFlags),
    /// Write the model and its gradient as one ONNX graph, for any ONNX runtime
    Grad(Box<GradFlags>),
    /// Print the JSON Schema of reports
    #[command(after_help = "Example:\n  audit schema > report.schema.json")]
    Schema,
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  audit completions bash > ~/.local/share/bash-completion/completions/audit\n  audit \
    completions zsh > ~/.zfunc/_audit\n  audit completions fish > ~/.config/fish/completions/audit.fish"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(
        after_help = "Examples:\n  audit man > audit.1\n  audit man gate > audit-gate.1\n  audit man | man -l -"
    )]
    Man {
        /// The command to describe [default: audit itself]
        command: Option<String>,
    },
    /// Write generated images as PNG class folders
    #[command(hide = true)]
    Images(ImagesFlags),
}

/// The flags of the gate.
const GATE: &[&str] = &["fail_under", "fail_over", "max_drop", "baseline", "save_baseline"];

/// Hides flags of an audit that have no effect on a command.
fn hiding(flags: &'static [&'static str]) -> impl FnMut(Arg) -> Arg {
    move |flag| {
        let hidden = flag.is_hide_set() || flags.contains(&flag.get_id().as_str());
        flag.hide(hidden)
    }
}

/// Flags of `audit doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit doctor model.onnx\n  audit doctor model.onnx --data photos/ --surrogate other.onnx -o \
    doctor.json\n\nExit codes: 0 no check invalidates the score · 12 a check found that the score means nothing",
    mut_args(hiding(GATE)),
    mut_args(hiding(&["resume", "journal", "partition", "trials_out", "strong_sample", "nmi", "attack_precision"])),
    mut_arg("surrogate", |a| a.help("Another model of the same input; the images attacked on it are tried on this model")),
    mut_arg("reports", |a| a.help("File to write the findings to, .json. May be repeated")),
    mut_arg("max_queries", |a| a.help("Attack at most this many queries, stratified by class [default: 16]"))
)]
pub struct DoctorFlags {
    /// The audit that is to be trusted.
    #[command(flatten)]
    pub run: AuditFlags,
    /// Of the checks that attack, run only these, such as black-box,noise (docs/trust.md lists all)
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
}

/// Flags of `audit sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit sweep model.onnx --data photos/ --over eps=1/255,2/255,4/255,8/255 -o sweep.html\n  audit sweep \
    model.onnx --suite ars --over m=1,2,5,10 --over w=1,2,5,10 --max-queries 200 -o sweep.json -o sweep.csv\n\nThe last setting \
    varies fastest. All other settings come from the suite or the flags; the step size follows ε in proportion, unless --alpha states it. \
    --resume continues an interrupted sweep",
    mut_args(hiding(GATE)),
    mut_args(hiding(&["partition", "trials", "trials_out", "attack_precision"])),
    mut_arg("reports", |a| a.help("File to write to: .html, .json or .csv. May be repeated")),
    mut_arg("strong_sample", |a| a.help("Number of queries that the strong search attacks at each point, for robust R@1, or off [default: as \
    many as in an audit]"))
)]
pub struct SweepFlags {
    /// The audit at each point.
    #[command(flatten)]
    pub run: AuditFlags,
    /// A setting (eps, steps, restarts, w or m) and its values: eps=2/255,4/255. May be repeated: every combination is run
    #[arg(long, value_name = "KEY=V,V", required = true)]
    pub over: Vec<String>,
}

/// Flags of `audit geometry`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit geometry model.onnx --data photos/ -o geometry.html -o geometry.json\n  audit geometry model.onnx \
    --data photos/ --suite adml --max-queries 100\n\ndocs/papers.md maps each part to the figures and tables of the papers",
    mut_args(hiding(GATE)),
    mut_args(hiding(&["resume", "journal", "partition", "trials", "trials_out", "attack_precision", "surrogate", "gallery", "targets"])),
    mut_args(hiding(&["strong_sample", "sample", "hub_class", "threshold", "nmi"])),
    mut_arg("suite", |a| a.default_value("geometry").help("Suite with the budget and attacks on queries; the map shows the first attack")),
    mut_arg("reports", |a| a.help("File to write to: .html or .json. May be repeated")),
    mut_arg("max_queries", |a| a.help("Attack at most this many queries, and as many triplets [default: 56]"))
)]
pub struct GeometryFlags {
    /// The audit whose model, images and attacks it is about.
    #[command(flatten)]
    pub run: AuditFlags,
}

/// Flags of `audit inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit inspect model.onnx\n  audit inspect model.onnx --write-card\n  audit inspect model.onnx --output /avgpool/Flatten_output_0 --json\n\n\
    Exit codes: 0 it can be audited · 2 usage · 3 it can't be audited, has no gradient, or needs more memory or time than it may use: the output names the problem"
)]
pub struct InspectFlags {
    /// The model, an .onnx file
    pub model: PathBuf,
    /// Suite to estimate the cost of
    #[arg(long, default_value = "ars")]
    pub suite: String,
    /// Write a model card beside the model, with everything that is known; comments mark what was assumed
    #[arg(long)]
    pub write_card: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Distance: normalized-euclidean, euclidean or cosine [default: normalized-euclidean]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// Bound of the time it takes, such as 30s or 5min. What is not known by then is said to be not measured
    #[arg(long, value_name = "TIME", default_value = "1min", help_heading = "Machine")]
    pub time_limit: TimeLimit,
    /// What the model takes and gives.
    #[command(flatten)]
    pub described: Described,
    /// Where it computes.
    #[command(flatten)]
    pub compute: Compute,
}

/// Flags of `audit grad`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit grad model.onnx -o model.grad.onnx\n  audit grad model.onnx --raw -o model.grad.onnx\n  audit \
    grad model.onnx --batch 8 -o model.grad.onnx\n\nThe inputs of the file are image and cotangent (the derivative of a loss with respect to the embedding). The outputs are embedding and \
    gradient (the derivative of the loss with respect to the image). docs/gradients.md runs it from Python\n\nExit codes: \
    0 written · 2 usage · 3 no gradient, or none for any batch · 12 the file disagrees with the audit's own gradient, or this gradient with \
    finite differences: nothing is written"
)]
pub struct GradFlags {
    /// The model, an .onnx file
    pub model: PathBuf,
    /// File to write to, .onnx; weights of 1.5 GB or more are written to a second file, FILE.data
    #[arg(short = 'o', long = "report", alias = "file", value_name = "FILE")]
    pub file: PathBuf,
    /// Use the model's own input unchanged [default: pixels in [0,1], RGB or grey, channels first, with preprocessing in the graph]
    #[arg(long)]
    pub raw: bool,
    /// Write a graph for this batch size only [default: any batch size; the model's own if it is fixed]
    #[arg(long, value_parser = batch())]
    pub batch: Option<usize>,
    /// What the model takes and gives.
    #[command(flatten)]
    pub described: Described,
    /// The library of ONNX Runtime.
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Flags of `audit report`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit report report.json -o report.html -o report.md\n  audit report report.json -o metrics.json \
    -o model.cdx.json -o model.intoto.json\n  audit report report.json --model-card README.md\n  audit report report.json --bundle evidence.zip"
)]
pub struct ReportFlags {
    /// A saved report, .json
    pub report: PathBuf,
    /// File to write to; the ending chooses the format. Without one, the report is printed. May be repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load it
    #[arg(long, value_name = "FILE", requires = "output")]
    pub trials_out: Option<PathBuf>,
    /// Hugging Face model card, README.md, whose block `model-index` gets the numbers; the rest of the file is unchanged
    #[arg(long, value_name = "FILE")]
    pub model_card: Option<PathBuf>,
    /// Archive of evidence to write, .zip: the attacked images, and a script that verifies every outcome with the untouched model.
    /// This runs the trials again. Start it in the folder in which the audit was started
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// Flags of `audit compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit after.onnx --data photos/ --trials before.json -o after.json\n  audit compare before.json after.json -o comparison.html\n  audit \
    compare report.json --paper CUB\n  audit compare float.onnx int8.onnx --data photos/ -o comparison.html\n\nTwo models are audited on the \
    same trials, and the attacks made on each are measured on the other. Flags of audits, such as --data, need models",
    mut_args(of_comparison)
)]
pub struct CompareFlags {
    /// The audit of each model.
    #[command(flatten)]
    pub run: AuditFlags,
    /// The reports, or the model, to compare with the first
    #[arg(index = 2, value_name = "FILE")]
    pub others: Vec<PathBuf>,
    /// Show the reports beside the rows that papers print for a data set instead: CUB, CARS or SOP
    #[arg(long, value_name = "DATA", conflicts_with_all = ["sort", "anyway"])]
    pub paper: Option<String>,
    /// Sort the models by a metric, the most robust first [default: as given]
    #[arg(long, value_name = "METRIC")]
    pub sort: Option<String>,
    /// Print all metrics, not only scores, R@1 and the value after each attack
    #[arg(long)]
    pub all: bool,
    /// Compare even where data, protocol or trials differ
    #[arg(long)]
    pub anyway: bool,
}

impl CompareFlags {
    /// The files to compare.
    pub fn files(&self) -> Vec<PathBuf> {
        self.run.model.iter().chain(&self.others).cloned().collect()
    }
}

/// Hides and refuses the flags of an audit that have no part in a comparison.
fn of_comparison(flag: Arg) -> Arg {
    const UNWANTED: &[&str] =
        &["partition", "trials", "trials_out", "attack_precision", "surrogate", "gallery", "gallery_cache"];
    match flag.get_id().as_str() {
        "model" => flag
            .index(1)
            .value_name("FILE")
            .help("Saved reports, .json, or two models, .onnx; the first is the base"),
        "reports" => flag.help("File to write to: .html, .json or .md. May be repeated"),
        unwanted if GATE.contains(&unwanted) || UNWANTED.contains(&unwanted) => {
            flag.hide(true).conflicts_with("model")
        }
        _ => flag,
    }
}

/// Flags of `audit merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example, on three machines:\n  audit model.onnx --data photos/ --partition hash:1/3 -o part1.json\n  audit \
    model.onnx --data photos/ --partition hash:2/3 -o part2.json\n  audit model.onnx --data photos/ --partition hash:3/3 -o \
    part3.json\nand then:\n  audit merge part1.json part2.json part3.json -o whole.json -o whole.html\n\nThe report equals that of \
    one run, except for timing and command line. If the page shall show pictures, write an .html of every part too: its .json then \
    contains them.\n\nParts of `audit embed` are combined in the same way:\n  audit merge gallery1.parquet gallery2.parquet -o \
    gallery.parquet\nWhat to run again after some parts failed:\n  sbatch --array=$(audit merge --missing parts/) audit.sbatch\n\nExit codes: 0 merged · 2 not a part · 13 parts of different runs, or missing parts: the message names each"
)]
pub struct MergeFlags {
    /// The reports of all parts, .json, or their embeddings, .parquet, in any order
    #[arg(required_unless_present = "missing")]
    pub parts: Vec<PathBuf>,
    /// Combine nothing. Print the numbers of the parts that this folder lacks, such as 3,7-9; exit code 13 if there are any
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["parts", "output"])]
    pub missing: Option<PathBuf>,
    /// File to write to; the ending chooses the format. May be repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load it
    #[arg(long, value_name = "FILE", requires = "output")]
    pub trials_out: Option<PathBuf>,
}

/// Flags of `audit embed`: those of an audit that say how images are embedded.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit embed model.onnx --data photos/ -o gallery.parquet\n  audit model.onnx --data photos/ \
    --gallery-cache gallery.parquet --partition hash:1/3 -o part1.json\nin parts:\n  audit embed model.onnx --data photos/ \
    --partition hash:1/3 -o gallery1.parquet\n  audit merge gallery1.parquet gallery2.parquet gallery3.parquet -o gallery.parquet",
    mut_args(of_embedding),
    mut_arg("reports", |a| a.required(true).help("File to write to, .parquet"))
)]
pub struct EmbedFlags {
    /// The audit that will use the embeddings.
    #[command(flatten)]
    pub run: AuditFlags,
}

/// Hides and refuses the flags of an audit that have no part in embedding images.
fn of_embedding(flag: Arg) -> Arg {
    const WANTED: &[&str] = &[
        "model",
        "data",
        "layout",
        "split",
        "strict_data",
        "reports",
        "card",
        "input",
        "output",
        "pooling",
        "size",
        "image_layout",
        "channels",
        "range",
        "mean",
        "std",
        "resize",
        "resize_shorter",
        "interpolation",
        "gradient",
        "ep",
        "fast_math",
        "allow_cpu_nodes",
        "memory",
        "threads",
        "batch",
        "ort_lib",
        "partition",
        "progress",
        "quiet",
    ];
    match WANTED.contains(&flag.get_id().as_str()) {
        true => flag,
        false => flag.hide(true).conflicts_with("reports"),
    }
}

/// Flags of `audit gate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit gate report.json --fail-under robust_r1=30\n  audit gate report.json --baseline base.json \
    --max-drop ars=1.0\n\nMetrics:\n  \
    robust_r1, ars, ers       scores\n  \
    attack.ES:R               the mean after an attack (audit attacks)\n  \
    attack.ES:R.resistance    its resistance per trial; .table: by means\n  \
    attack.ES:R.worst_class   the lowest of any class; .worst_group\n  \
    benign.r1, benign.map     without attack\n  \
    corruption.blur@3.r1      under a natural corruption\n\nExit codes: 0 passed · 10 a threshold is missed · 11 worse than the baseline · 2 unknown \
    or missing metric"
)]
pub struct GateFlags {
    /// A saved report, .json
    pub report: PathBuf,
    /// What is demanded.
    #[command(flatten)]
    pub demands: Demands,
    /// Also use the rules of the `gate` section of this suite
    #[arg(long)]
    pub suite: Option<String>,
    /// File to write the report with the verdict to; the ending chooses the format. May be repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
}

/// Flags of `audit images`.
#[derive(Debug, Args)]
#[allow(missing_docs)]
pub struct ImagesFlags {
    /// Folder to write to
    #[arg(long)]
    pub out: PathBuf,
    /// Seed of the generated characters
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Height and width
    #[arg(long, default_value_t = 28, value_parser = few())]
    pub size: usize,
    /// 1 for grey, 3 for colour
    #[arg(long, default_value_t = 1, value_parser = few())]
    pub channels: usize,
    /// Number of classes, each a folder
    #[arg(long, default_value_t = 48, value_parser = few())]
    pub classes: usize,
    /// Images in each class
    #[arg(long, default_value_t = 20, value_parser = few())]
    pub samples: usize,
}

/// Counts and sides of generated images.
fn few() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=4096)
}

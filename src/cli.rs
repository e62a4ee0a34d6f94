//! The command line as flags. No logic.

use crate::data::{LAYOUTS, Split};
use crate::engines;
use crate::model::card::{Card, Pooling};
use crate::model::runtime::{Cuda, Options, Provider};
use crate::progress::Mode;
use crate::record::{Acceptance, Axes, Channels, Form, Interpolation, Metric, Partition, Precision};
use clap::builder::RangedU64ValueParser;
use clap::{Arg, Args, Parser, Subcommand};
use std::path::PathBuf;

/// What stands below the flags of an audit.
const EXAMPLES: &str = "Examples:
  audit --suite ars model.onnx
  audit --suite full model.onnx --data photos/ -o report.json -o report.html
  audit --suite full model.onnx --data photos/ -o report.json -o report.html --resume
                                        after Ctrl-C, a crash or a kill: goes on
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
done, total, seconds_left and, in the attacks, attack, step, steps, queries_done, queries, or with seconds where a phase has no \
steps to count; note; warning; error with exit and text.

Exit codes: 0 done · 1 internal error · 2 usage · 3 model can't be audited · 4 nothing to evaluate · 10 gate failed · \
11 regression against the baseline · 12 result not trustworthy · 13 incomplete: parts are missing · 130 interrupted, go on with --resume";

/// Audits the adversarial robustness of ONNX image-embedding models.
#[derive(Debug, Parser)]
#[command(
    version,
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
    /// The audit.
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
    /// Say what a model is, whether it can be audited, and what an audit costs here
    Inspect(Box<InspectFlags>),
    /// Look for reasons to distrust an audit of this model: every check there is
    Doctor(Box<DoctorFlags>),
    /// Run a suite over a grid of ε, steps, random starts and numbers of targets: one table, and a curve for each attack
    Sweep(Box<SweepFlags>),
    /// Measure how embeddings lie and how far attacks move them: distances, energies, triplets, a map of classes
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
    /// Compare reports, or two models, with the first: differences with 95 % intervals
    Compare(Box<CompareFlags>),
    /// Put the parts of a run (`--partition`) together
    Merge(MergeFlags),
    /// Embed the images once, for the parts of a run or for other suites
    Embed(Box<EmbedFlags>),
    /// Hold a saved report against thresholds and a baseline
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
        /// The command it is about [default: audit itself]
        command: Option<String>,
    },
    /// Write generated images as PNG class folders
    #[command(hide = true)]
    Images(ImagesFlags),
}

/// Flags of `audit doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit doctor model.onnx\n  audit doctor model.onnx --data photos/ --surrogate other.onnx -o \
    doctor.json\n\nExit codes: 0 nothing that leaves a score without a meaning · 12 a check found that the score means nothing",
    mut_arg("fail_under", |a| a.hide(true)), mut_arg("fail_over", |a| a.hide(true)),
    mut_arg("max_drop", |a| a.hide(true)), mut_arg("baseline", |a| a.hide(true)),
    mut_arg("save_baseline", |a| a.hide(true)), mut_arg("resume", |a| a.hide(true)),
    mut_arg("trials_out", |a| a.hide(true)), mut_arg("strong_sample", |a| a.hide(true)), mut_arg("nmi", |a| a.hide(true)),
    mut_arg("attack_precision", |a| a.hide(true)), mut_arg("journal", |a| a.hide(true)), mut_arg("partition", |a| a.hide(true)),
    mut_arg("surrogate", |a| a.help("Another model of the same input, whose attacked images are tried on this one")),
    mut_arg("reports", |a| a.help("File to write the findings to, .json. May be repeated")),
    mut_arg("max_queries", |a| a.help("Attack at most so many queries, of each class its share [default: 16]"))
)]
pub struct DoctorFlags {
    /// The audit that is to be trusted.
    #[command(flatten)]
    pub run: AuditFlags,
    /// Of the checks that attack, make these alone, such as black-box,noise (docs/trust.md lists all)
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
}

/// Flags of `audit sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit sweep model.onnx --data photos/ --over eps=1/255,2/255,4/255,8/255 -o sweep.html\n  audit sweep \
    model.onnx --suite ars --over m=1,2,5,10 --over w=1,2,5,10 --max-queries 200 -o sweep.json -o sweep.csv\n\nThe last setting \
    varies fastest. Other settings are the suite's or the flags', the step size too. --resume goes on with a sweep that was \
    interrupted",
    mut_arg("fail_under", |a| a.hide(true)), mut_arg("fail_over", |a| a.hide(true)),
    mut_arg("max_drop", |a| a.hide(true)), mut_arg("baseline", |a| a.hide(true)),
    mut_arg("save_baseline", |a| a.hide(true)), mut_arg("partition", |a| a.hide(true)),
    mut_arg("trials", |a| a.hide(true)), mut_arg("trials_out", |a| a.hide(true)), mut_arg("attack_precision", |a| a.hide(true)),
    mut_arg("reports", |a| a.help("File to write to: .html, .json or .csv. May be repeated")),
    mut_arg("strong_sample", |a| a.help("Queries that the strong search attacks at each point, for robust R@1 [default: off]"))
)]
pub struct SweepFlags {
    /// The audit at each point.
    #[command(flatten)]
    pub run: AuditFlags,
    /// A setting and its values: eps=2/255,4/255 or steps, restarts, w, m. May be repeated: every combination is run
    #[arg(long, value_name = "KEY=V,V", required = true)]
    pub over: Vec<String>,
}

/// Flags of `audit geometry`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit geometry model.onnx --data photos/ -o geometry.html -o geometry.json\n  audit geometry model.onnx \
    --data photos/ --suite adml --max-queries 100\n\ndocs/papers.md says which figure and table of the papers each part is",
    mut_arg("fail_under", |a| a.hide(true)), mut_arg("fail_over", |a| a.hide(true)),
    mut_arg("max_drop", |a| a.hide(true)), mut_arg("baseline", |a| a.hide(true)),
    mut_arg("save_baseline", |a| a.hide(true)), mut_arg("partition", |a| a.hide(true)),
    mut_arg("resume", |a| a.hide(true)), mut_arg("journal", |a| a.hide(true)),
    mut_arg("trials", |a| a.hide(true)), mut_arg("attack_precision", |a| a.hide(true)),
    mut_arg("surrogate", |a| a.hide(true)), mut_arg("gallery", |a| a.hide(true)), mut_arg("targets", |a| a.hide(true)),
    mut_arg("strong_sample", |a| a.hide(true)), mut_arg("sample", |a| a.hide(true)),
    mut_arg("trials_out", |a| a.hide(true)), mut_arg("hub_class", |a| a.hide(true)), mut_arg("threshold", |a| a.hide(true)), mut_arg("nmi", |a| a.hide(true)),
    mut_arg("suite", |a| a.default_value("geometry").help("Budget, and attacks on queries; the map shows the first")),
    mut_arg("reports", |a| a.help("File to write to: .html or .json. May be repeated")),
    mut_arg("max_queries", |a| a.help("Attack at most so many queries, and as many triplets [default: 56]"))
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
    Exit codes: 0 it can be audited · 2 usage · 3 it can't, or it has no gradient: the problem is named"
)]
pub struct InspectFlags {
    /// The model, an .onnx file
    pub model: PathBuf,
    /// Suite that the cost is told of
    #[arg(long, default_value = "ars")]
    pub suite: String,
    /// Write a model card beside the model: everything that is known, and what was assumed as comments
    #[arg(long)]
    pub write_card: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Distance: normalized-euclidean, euclidean or cosine [default: normalized-euclidean]
    #[arg(long, value_parser = metric)]
    pub metric: Option<Metric>,
    /// What the model takes and gives.
    #[command(flatten)]
    pub described: Described,
    /// Execution provider: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", help_heading = "Machine")]
    pub ep: Ep,
    /// Threads [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = threads(), help_heading = "Machine")]
    pub threads: usize,
    /// Images per model run, in each thread
    #[arg(long, value_parser = batch(), help_heading = "Machine")]
    pub batch: Option<usize>,
    /// ONNX Runtime's library [default: $ORT_DYLIB_PATH, beside the program, its Python environment, conda, the system]
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    pub ort_lib: Option<PathBuf>,
}

/// Flags of `audit grad`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit grad model.onnx -o model.grad.onnx\n  audit grad model.onnx --raw -o model.grad.onnx\n  audit \
    grad model.onnx --batch 8 -o model.grad.onnx\n\nThe file takes image and cotangent (the derivative of a loss by the embedding) \
    and gives embedding and gradient (the derivative of the loss by the image). docs/gradients.md runs it from Python\n\nExit codes: \
    0 written · 2 usage · 3 no gradient, or none for any batch · 12 the file disagrees with the audit's own gradient, or that with \
    finite differences: nothing is written"
)]
pub struct GradFlags {
    /// The model, an .onnx file
    pub model: PathBuf,
    /// File to write to, .onnx; weights of 1.5 GB and more go to a second file, its name with .data added
    #[arg(short = 'o', long = "file", value_name = "FILE")]
    pub file: PathBuf,
    /// Take the model's own input as it is [default: pixels in [0,1], RGB or grey, channels first, with preprocessing in the graph]
    #[arg(long)]
    pub raw: bool,
    /// Write a graph for this batch alone [default: any batch; the model's own where that is fixed]
    #[arg(long, value_parser = batch())]
    pub batch: Option<usize>,
    /// What the model takes and gives.
    #[command(flatten)]
    pub described: Described,
    /// Threads [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = threads(), help_heading = "Machine")]
    pub threads: usize,
    /// ONNX Runtime's library [default: $ORT_DYLIB_PATH, beside the program, its Python environment, conda, the system]
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    pub ort_lib: Option<PathBuf>,
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
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json: the reports in JSON then are short and name it, and commands that read such a report read both
    #[arg(long, value_name = "FILE", requires = "output")]
    pub trials_out: Option<PathBuf>,
    /// Hugging Face model card, README.md, whose block `model-index` is to have the numbers; the rest of the file stays
    #[arg(long, value_name = "FILE")]
    pub model_card: Option<PathBuf>,
    /// Archive of evidence to write, .zip: the attacked images and a script that confirms every outcome from the untouched model.
    /// The trials are run once more for it, in the folder that the audit was started in
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// Flags of `audit compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit after.onnx --data photos/ --trials before.json -o after.json\n  audit compare before.json after.json -o comparison.html\n  audit \
    compare report.json --paper CUB\n  audit compare float.onnx int8.onnx --data photos/ -o comparison.html\n\nTwo models are audited on the \
    same trials, and the attacks made on each are measured on the other. The flags of audits, such as --data, are for models",
    mut_args(of_comparison)
)]
pub struct CompareFlags {
    /// The audit of each model.
    #[command(flatten)]
    pub run: AuditFlags,
    /// The others
    #[arg(index = 2, value_name = "FILE")]
    pub others: Vec<PathBuf>,
    /// Set the reports beside the rows that papers print for a data set instead: CUB, CARS or SOP
    #[arg(long, value_name = "DATA", conflicts_with_all = ["sort", "anyway"])]
    pub paper: Option<String>,
    /// Order the models by a metric, the most robust first [default: as given]
    #[arg(long, value_name = "METRIC")]
    pub sort: Option<String>,
    /// Print every metric, not only scores, R@1 and the value after each attack
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
    const UNWANTED: &[&str] = &[
        "fail_under",
        "fail_over",
        "max_drop",
        "baseline",
        "save_baseline",
        "partition",
        "trials",
        "trials_out",
        "attack_precision",
        "surrogate",
        "gallery",
        "gallery_cache",
    ];
    match flag.get_id().as_str() {
        "model" => flag
            .index(1)
            .value_name("FILE")
            .help("Saved reports, .json, or two models, .onnx; the first is the base"),
        "reports" => flag.help("File to write to: .html, .json or .md. May be repeated"),
        unwanted if UNWANTED.contains(&unwanted) => flag.hide(true).conflicts_with("model"),
        _ => flag,
    }
}

/// Flags of `audit merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example, on three machines:\n  audit model.onnx --data photos/ --partition hash:1/3 -o part1.json\n  audit \
    model.onnx --data photos/ --partition hash:2/3 -o part2.json\n  audit model.onnx --data photos/ --partition hash:3/3 -o \
    part3.json\nand then:\n  audit merge part1.json part2.json part3.json -o whole.json -o whole.html\n\nThe report is that of \
    one run, but for timing and command line. For pictures in the page give every part an .html too: the .json then holds \
    them.\n\nParts of `audit embed` are put together in the same way:\n  audit merge gallery1.parquet gallery2.parquet -o \
    gallery.parquet\nWhat to run again after some parts failed:\n  sbatch --array=$(audit merge --missing parts/) audit.sbatch\n\nExit codes: 0 merged · 2 not a part · 13 parts of different runs, or parts missing: each is named"
)]
pub struct MergeFlags {
    /// The reports of all parts, .json, or their embeddings, .parquet, in any order
    #[arg(required_unless_present = "missing")]
    pub parts: Vec<PathBuf>,
    /// Put nothing together, but print the numbers of the parts that this folder lacks, as in 3,7-9; exit code 13 if there are any
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["parts", "output"])]
    pub missing: Option<PathBuf>,
    /// File to write to; the ending chooses the format. May be repeated
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json: the reports in JSON then are short and name it, and commands that read such a report read both
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
    /// Take the demands of a suite's `gate` section too
    #[arg(long)]
    pub suite: Option<String>,
    /// File to write the report with the verdict to; the ending chooses the format. May be repeated
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
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
    /// Fail (exit code 11) where a metric is worse than the baseline's by more than so much, and by more than chance
    /// explains: ars=1.0. [default with a baseline: 1 point of ars, ers and benign.r1; benign.r1 always]
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub max_drop: Vec<String>,
    /// An earlier report, .json; an audit replays its trials
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

/// Flags of `audit images`.
#[derive(Debug, Args)]
#[allow(missing_docs)]
pub struct ImagesFlags {
    /// Folder to write to
    #[arg(long)]
    pub out: PathBuf,
    /// Another seed draws other characters
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Height and width
    #[arg(long, default_value_t = 28, value_parser = few())]
    pub size: usize,
    /// 1 for grey, 3 for colour
    #[arg(long, default_value_t = 1, value_parser = few())]
    pub channels: usize,
    /// Classes, each a folder
    #[arg(long, default_value_t = 48, value_parser = few())]
    pub classes: usize,
    /// Images in each class
    #[arg(long, default_value_t = 20, value_parser = few())]
    pub samples: usize,
}

/// Flags of an audit.
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
    /// How the data lies on disk [default: detected; class folders where it looks like no benchmark]
    #[arg(long, value_parser = layouts())]
    pub layout: Option<String>,
    /// Part of a benchmark: train or test [default: test]
    #[arg(long, value_parser = split)]
    pub split: Option<Split>,
    /// Search a gallery of embeddings, a .parquet file with the columns id, label and embedding, or a .npy file with ids
    /// and labels in a .csv file beside it; every image of the data is then a query
    #[arg(long, value_name = "FILE")]
    pub gallery: Option<PathBuf>,
    /// Aim TMA, QA+, QA- and HUB at embeddings of something else than the images, such as texts of a CLIP-like model: a .parquet file with
    /// the columns id and embedding, or a .npy file with ids in a .csv file beside it
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Stop at the first image that can't be read instead of leaving it out
    #[arg(long)]
    pub strict_data: bool,
    /// File to write the report to; the ending chooses the format. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// File for the trials, .json: the reports in JSON then are short and name it, and commands that read such a report read both
    #[arg(long, value_name = "FILE")]
    pub trials_out: Option<PathBuf>,
    /// Fixes trials and random starts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Attack at most so many queries, of each class its share
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// Which queries those are: any, or correct, which takes queries that are right without attack before others. There is more to
    /// lose so, and fewer queries do; numbers of the two samples don't compare, and reports state the sample
    #[arg(long, value_enum, value_name = "WHICH", default_value = "any")]
    pub sample: Sample,
    /// Queries that the strong search attacks besides the suite, for robust R@1: a number, or off [default: so many that it
    /// takes no longer than the suite, but at least 32]
    #[arg(long, value_name = "N|off", value_parser = strong_sample)]
    pub strong_sample: Option<StrongSample>,
    /// Make the attacks on another model of the same input, and measure them on this one. The scores are those of a transfer
    /// attack: no gate compares them with white-box scores
    #[arg(long, value_name = "FILE")]
    pub surrogate: Option<PathBuf>,
    /// Queries behind R@1, mAP and the other numbers without attack: a number, or all [default: all, and where ranking them would
    /// take minutes, a sample that reports state]
    #[arg(long, value_name = "N|all", value_parser = benign_sample)]
    pub benign_sample: Option<BenignSample>,
    /// Cluster for NMI and AMI however long it takes, with progress: of SOP and In-shop hours [default: where it takes minutes at most]
    #[arg(long)]
    pub nmi: bool,
    /// With --suite hub: the class whose queries the changed images are to capture [default: all queries]
    #[arg(long, value_name = "CLASS")]
    pub hub_class: Option<String>,
    /// With --suite faces and --suite threshold: which pairs are accepted as of one identity. far=0.001 takes the threshold with this
    /// false accept rate from the images' impostor pairs; cosine=0.3 and euclidean=1.1 state it [default: the suite's, mostly
    /// far=0.001]
    #[arg(long, value_name = "far=RATE|cosine=MIN|euclidean=MAX")]
    pub threshold: Option<Acceptance>,
    /// Replay the trials of a file, or of an earlier report
    #[arg(long, value_name = "FILE")]
    pub trials: Option<PathBuf>,
    /// Reading of the definitions: published (as released code computes them) or corrected (as defined)
    #[arg(long, value_parser = form)]
    pub form: Option<Form>,
    /// What bounds a perturbation: linf, the largest change of a pixel, or l2, the Euclidean length of all changes [default: the
    /// suite's, mostly linf]
    #[arg(long, value_name = "linf|l2")]
    pub norm: Option<String>,
    /// An image of the model's input size that is white where attacks may change pixels. ε is 1 unless --eps says otherwise
    #[arg(long, value_name = "IMAGE", conflicts_with = "patch")]
    pub mask: Option<PathBuf>,
    /// Attacks may change a rectangle of this share of the area, such as 0.1, at a place drawn for each query. ε is 1 unless
    /// --eps says otherwise
    #[arg(long, value_name = "SHARE")]
    pub patch: Option<String>,
    /// Largest size of a perturbation: for linf the largest change of a pixel, such as 8/255; for l2 a length, such as 2.0
    /// [default: by protocol; none for l2]
    #[arg(long)]
    pub eps: Option<String>,
    /// Step size, such as 3/255 [default: by protocol]
    #[arg(long)]
    pub alpha: Option<String>,
    /// PGD steps [default: by protocol]
    #[arg(long)]
    pub steps: Option<usize>,
    /// rob28 or rob224 [default: by the model's input size]
    #[arg(long)]
    pub protocol: Option<String>,
    /// Distance: normalized-euclidean, euclidean or cosine [default: normalized-euclidean]
    #[arg(long, value_parser = metric)]
    pub metric: Option<Metric>,
    /// Go on where a check finds that the numbers will mean nothing; the report then says so first
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
    /// Where gradients come from: formed out of the graph, or, as a last resort, estimated from many forward passes
    #[arg(long, value_enum, default_value = "exact", help_heading = "Model")]
    pub gradient: GradientSource,
    /// What the attacks' steps compute in. fp16 is meant for GPUs, and slower on a CPU. Outcomes are measured in float32 all
    /// the same, and a sample of the trials is repeated with float32 steps to see that the attacks are no weaker
    #[arg(long, value_enum, value_name = "TYPE", default_value = "fp32", help_heading = "Machine")]
    pub attack_precision: Precision,
    /// Execution provider: auto, cpu, cuda or cuda:N. auto takes CUDA where the library of ONNX Runtime has it and a device is
    /// there, else the CPU; reports say which and why. CUDA wants the GPU build (`pip install onnx-audit[cuda]` or `cargo xtask setup --cuda`)
    #[arg(long, default_value = "auto", help_heading = "Machine")]
    pub ep: Ep,
    /// With --ep cuda: let products round their factors to TensorFloat-32. Faster; reports say so
    #[arg(long, help_heading = "Machine")]
    pub fast_math: bool,
    /// With --ep cuda: let nodes that CUDA has no kernel for run on the CPU, instead of an error. Slow; reports say so
    #[arg(long, help_heading = "Machine")]
    pub allow_cpu_nodes: bool,
    /// Threads [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = threads(), help_heading = "Machine")]
    pub threads: usize,
    /// Images per model run, in each thread; changes the time, not the trials
    #[arg(long, value_parser = batch(), help_heading = "Machine")]
    pub batch: Option<usize>,
    /// ONNX Runtime's library [default: $ORT_DYLIB_PATH, beside the program, its Python environment, conda, the system]
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    pub ort_lib: Option<PathBuf>,
    /// Make the check at load anew, and of a large gallery retrieval without attack and the draw of trials, and don't keep the results
    /// [default: kept in the user's folder of caches, and believed only for the same model, options, images, program and runtime]
    #[arg(long, help_heading = "Machine")]
    pub no_cache: bool,
    /// Go on with a run that was interrupted or killed: the same command again, and this flag. Trials that the journal holds
    /// are not run again; where there is no journal, the run begins anew
    #[arg(long, help_heading = "Long runs")]
    pub resume: bool,
    /// File that finished trials are written to at once, so that --resume can go on; removed when all reports are written
    /// [default: the first -o with .journal added; none without -o]
    #[arg(long, value_name = "FILE", help_heading = "Long runs")]
    pub journal: Option<PathBuf>,
    /// Run one part of n, 1/n to n/n: the queries that a hash of their ids puts there. `audit merge` puts parts together. auto takes
    /// the part from the environment of Slurm, Kubernetes, AWS Batch, GNU parallel, GitLab and others (docs/engines.md)
    #[arg(long, value_name = "hash:M/N|auto", value_parser = partition, help_heading = "Long runs")]
    pub partition: Option<Partition>,
    /// Take the embeddings of the images from this file of `audit embed`. Some are computed again and compared; a file that was made
    /// in another way, or of other images, is refused
    #[arg(long, value_name = "FILE", help_heading = "Long runs")]
    pub gallery_cache: Option<PathBuf>,
    /// Keep embeddings in this folder, so that a second suite or a resumed run embeds no image twice
    #[arg(long, value_name = "FOLDER", conflicts_with = "gallery_cache", help_heading = "Long runs")]
    pub cache: Option<PathBuf>,
    /// Progress on stderr
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto", help_heading = "Machine")]
    pub progress: Mode,
    /// No progress on stderr: --progress none
    #[arg(short, long, help_heading = "Machine")]
    pub quiet: bool,
}

/// Where an audit is to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ep {
    /// On CUDA where it can be had, else on the CPU.
    Auto,
    /// There and nowhere else.
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
    /// At most so many.
    Most(usize),
}

/// Which queries are attacked where not all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sample {
    /// Of each class its share.
    Any,
    /// The same among those that are right without attack, and others where these don't suffice.
    Correct,
}

/// How many queries the numbers without attack are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenignSample {
    /// All.
    All,
    /// At most so many.
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

/// What is said of the model's input and output: a card, and flags that go before it.
#[derive(Clone, Debug, Args)]
pub struct Described {
    /// Model card: a file, or face-bgr or face-rgb, for face recognisers of 112x112 pixels and (x - 127.5)/128 [default: the
    /// model's name with .yaml, if there is one]
    #[arg(long, value_name = "FILE|NAME", help_heading = "Model")]
    pub card: Option<PathBuf>,
    /// Input that takes the images
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub input: Option<String>,
    /// Value that is the embedding
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub output: Option<String>,
    /// How tokens, or the places of a feature map, become one embedding
    #[arg(long, value_enum, help_heading = "Model")]
    pub pooling: Option<Pooling>,
    /// Input height and width, where the model leaves them open: 224, or 256x128
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub size: Option<[usize; 2]>,
    /// Order of the input's dimensions
    #[arg(long, value_enum, help_heading = "Model")]
    pub image_layout: Option<Axes>,
    /// Order of the input's channels
    #[arg(long, value_enum, help_heading = "Model")]
    pub channels: Option<Channels>,
    /// Values of black and white before mean and std: 0,1 or 0,255 or -1,1
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub range: Option<Vec<f32>>,
    /// Subtracted per channel, in units of the range
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub mean: Option<Vec<f32>>,
    /// Divided by per channel, in units of the range
    #[arg(long, value_delimiter = ',', num_args = 1, help_heading = "Model")]
    pub std: Option<Vec<f32>>,
    /// Height and width to resize to before the centre crop
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub resize: Option<[usize; 2]>,
    /// Length to resize the shorter side to before the centre crop, instead of --resize
    #[arg(long, value_name = "N", conflicts_with = "resize", help_heading = "Model")]
    pub resize_shorter: Option<usize>,
    /// How images are resized
    #[arg(long, value_enum, help_heading = "Model")]
    pub interpolation: Option<Interpolation>,
}

/// Where gradients come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GradientSource {
    /// Formed out of the model's graph.
    Exact,
    /// Estimated from forward passes.
    Estimate,
}

impl Described {
    /// What the flags say of the model.
    pub fn card(&self) -> crate::Result<Card> {
        let range = match self.range.as_deref() {
            None => None,
            Some([low, high]) if low < high => Some([*low, *high]),
            Some(other) => {
                return Err(crate::Error::usage(format!(
                    "--range takes two rising values such as 0,255, and found are {other:?}"
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

impl AuditFlags {
    /// What the flags say of the model.
    pub fn card(&self) -> crate::Result<Card> {
        Ok(Card { metric: self.metric, ..self.described.card()? })
    }

    /// How progress is shown.
    pub fn mode(&self) -> Mode {
        if self.quiet { Mode::None } else { self.progress }
    }

    /// How sessions are to be made on a provider.
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

/// The names of all layouts.
fn layouts() -> clap::builder::PossibleValuesParser {
    LAYOUTS
        .iter()
        .map(|layout| clap::builder::PossibleValue::new(layout.name).help(layout.about))
        .collect::<Vec<_>>()
        .into()
}

/// The most threads that can be asked for: more than any machine has cores, fewer than any machine refuses.
const MOST_THREADS: u64 = 1024;

/// The most images per model run.
const MOST_BATCH: u64 = 1 << 16;

fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=MOST_THREADS)
}

fn batch() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_BATCH)
}

/// Counts and sides of generated images.
fn few() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=4096)
}

fn partition(text: &str) -> Result<Partition, String> {
    match text {
        "auto" => engines::partition(|name| std::env::var(name).ok()),
        _ => text.parse(),
    }
}

fn form(text: &str) -> Result<Form, String> {
    match text {
        "published" => Ok(Form::Published),
        "corrected" => Ok(Form::Corrected),
        _ => Err("expected published or corrected".into()),
    }
}

fn metric(text: &str) -> Result<Metric, String> {
    text.parse::<Metric>().map_err(|e| e.to_string())
}

fn split(text: &str) -> Result<Split, String> {
    text.parse::<Split>().map_err(|e| e.to_string())
}

fn size(text: &str) -> Result<[usize; 2], String> {
    let mut sides = text.split('x').map(|s| s.parse::<usize>().ok().filter(|&n| n > 0));
    match (sides.next(), sides.next(), sides.next()) {
        (Some(Some(n)), None, None) => Ok([n, n]),
        (Some(Some(h)), Some(Some(w)), None) => Ok([h, w]),
        _ => Err("expected a side such as 224, or height x width such as 256x128".into()),
    }
}

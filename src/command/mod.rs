//! The command line. Each command has a file: its flags, the request that they make, and how the result is
//! printed. Nothing below this folder knows of flags.

pub mod args;
pub mod attack;
pub mod audit;
pub mod compare;
pub mod demo;
pub mod doctor;
pub mod embed;
pub mod gate;
pub mod geometry;
pub mod grad;
pub mod images;
pub mod inspect;
mod listed;
pub mod merge;
pub mod report;
mod short;
pub mod sweep;
mod values;
mod words;
mod writes;

pub use short::{SHORT, short_help};
pub use values::choice;
pub use words::{advised, misspelt, with_fix};
pub use writes::{WRITTEN, Written};

use crate::progress::Mode;
use crate::record::Report;
use crate::report as reports;
use crate::request::Request;
use crate::{Exit, Result, interrupt};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// What a command prints, and its exit code if that is not 0.
pub type Done = (String, Option<Exit>);

/// The text below the flags in `audit --help`.
const EXAMPLES: &str = "Examples:
  audit model.onnx --data photos/ --max-queries 50 -o report.html
  audit model.onnx --data photos/ -o report.json -o report.html --resume
                                        continues after Ctrl-C, a crash or a kill
  audit model.onnx --data photos/ --fail-under eps50=2 -o report.junit.xml
  audit model.onnx --data photos/ --baseline base.json --max-drop robust_r1=5
  audit --suite ars model.onnx --data photos/
                                        the published score
  audit model.onnx --data photos/ --partition hash:1/3 -o part1.json
  audit model.onnx --data photos/ --ep cuda --ort-lib target/onnxruntime-gpu
                                        on a GPU (docs/cuda.md)
  audit model.onnx --data photos/ --ep cuda --attack-precision fp16
                                        steps in float16, outcomes in float32
  audit --suite ars model.onnx --data photos/ --surrogate other.onnx
                                        attacks made on another model
  audit compare before.json after.json

--progress json prints an event a line on stderr: start and end of a phase, plan, progress, wait, note, warning, error. \
docs/long-runs.md lists their fields.

Exit codes: 0 done · 1 internal error · 2 usage · 3 model can't be audited · 4 nothing to evaluate · 10 gate failed · \
11 regression against the baseline · 12 result not trustworthy · 13 incomplete: parts are missing · 14 no attacked file found · 130 interrupted, continue with --resume";

/// Audits the adversarial robustness of ONNX image-embedding models.
#[derive(Debug, Parser)]
#[command(
    name = "audit",
    version,
    long_version = writes::version(),
    about,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(after_help = EXAMPLES)]
pub struct Cli {
    /// The command; without one, an audit.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of an audit.
    #[command(flatten)]
    pub run: audit::AuditArgs,
}

/// Commands beside the audit itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Audit a model (the default)
    #[command(after_help = EXAMPLES)]
    Run(Box<audit::AuditArgs>),
    /// Audit two small models that come with the program, and show them side by side
    Demo(demo::DemoArgs),
    /// Describe a model: what it is, whether it can be audited, and what an audit costs here
    Inspect(Box<inspect::InspectArgs>),
    /// Run all checks for reasons to distrust an audit of this model
    Doctor(Box<doctor::DoctorArgs>),
    /// Change one photograph so that a search in a gallery, or a comparison of faces, gets it wrong
    Attack(Box<attack::AttackArgs>),
    /// Run a suite over a grid of ε, steps, random starts, numbers of targets and seeds, with a curve for
    /// each attack
    Sweep(Box<sweep::SweepArgs>),
    /// Measure the embedding space and how far attacks move embeddings: distances, energies, triplets, a map
    /// of classes
    Geometry(Box<geometry::GeometryArgs>),
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
    Report(report::ReportArgs),
    /// Compare saved reports, or two models, with the first one: differences with 95 % intervals
    Compare(Box<compare::CompareArgs>),
    /// Combine the parts of a run (`--partition`)
    Merge(merge::MergeArgs),
    /// Embed the images once, for the parts of a run or for other suites
    Embed(Box<embed::EmbedArgs>),
    /// Check a saved report against thresholds and a baseline
    Gate(gate::GateCommand),
    /// Write the model and its gradient as one ONNX graph, for any ONNX runtime
    Grad(Box<grad::GradArgs>),
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
    #[command(after_help = "Example:\n  audit images --out photos --size 224 --channels 3")]
    Images(images::ImagesArgs),
}

impl Cli {
    /// How progress and errors are shown.
    pub fn mode(&self) -> Mode {
        match &self.command {
            None => self.run.progress.mode(),
            Some(Command::Run(args)) => args.progress.mode(),
            Some(Command::Demo(args)) => args.progress.mode(),
            Some(Command::Inspect(args)) => args.progress.mode(),
            Some(Command::Doctor(args)) => args.progress.mode(),
            Some(Command::Attack(args)) => args.progress.mode(),
            Some(Command::Sweep(args)) => args.progress.mode(),
            Some(Command::Geometry(args)) => args.progress.mode(),
            Some(Command::Embed(args)) => args.progress.mode(),
            Some(Command::Compare(args)) => args.progress.mode(),
            Some(Command::Gate(args)) => args.progress.mode(),
            Some(Command::Grad(args)) => args.progress.mode(),
            Some(_) => Mode::Auto,
        }
    }

    /// Runs the command. `words` are those of the command line after the program's name.
    pub fn run(self, words: impl Iterator<Item = OsString>) -> Result<Done> {
        let line = || command_line(words);
        match self.command {
            None => self.run.run(line()),
            Some(Command::Run(args)) => args.run(line()),
            Some(Command::Demo(args)) => args.run(),
            Some(Command::Inspect(args)) => args.run(line()),
            Some(Command::Doctor(args)) => args.run(),
            Some(Command::Attack(args)) => args.run(line()),
            Some(Command::Sweep(args)) => args.run(line()),
            Some(Command::Geometry(args)) => args.run(line()),
            Some(Command::Ops { markdown }) => Ok(passed(listed::operators(markdown))),
            Some(Command::Attacks) => Ok(passed(listed::attacks())),
            Some(Command::Suites) => listed::suites().map(passed),
            Some(Command::Report(args)) => args.run(),
            Some(Command::Compare(args)) => args.run(line()),
            Some(Command::Merge(args)) => args.run(&line()),
            Some(Command::Embed(args)) => args.run(),
            Some(Command::Gate(args)) => args.run(),
            Some(Command::Grad(args)) => args.run(),
            Some(Command::Schema) => reports::schema().map(passed),
            Some(Command::Completions { shell }) => Ok(passed(listed::completions(shell))),
            Some(Command::Man { command }) => listed::man(command.as_deref()).map(passed),
            Some(Command::Images(args)) => args.run(),
        }
    }
}

fn passed(text: String) -> Done {
    (text, None)
}

fn shown(report: &Report) -> Done {
    (reports::terminal::render(report) + &gate_of(report), report.exit())
}

/// The verdict of the gate; empty without rules.
fn gate_of(report: &Report) -> String {
    report.gate.as_ref().map_or(String::new(), reports::terminal::verdict)
}

/// The files that a command wrote, or if it wrote none what its -o would write.
fn elsewhere<'p>(files: impl IntoIterator<Item = &'p PathBuf>, otherwise: &str) -> String {
    let files: Vec<String> = files.into_iter().map(|file| file.display().to_string()).collect();
    if files.is_empty() { otherwise.into() } else { format!("written: {}", files.join(", ")) }
}

/// A line with the files that a command wrote; empty if it wrote none.
fn written<'p>(files: impl IntoIterator<Item = &'p PathBuf>) -> String {
    let files = elsewhere(files, "");
    if files.is_empty() { files } else { reports::terminal::wrap(&files) + "\n" }
}

/// The command line, quoted for a shell.
fn command_line(words: impl Iterator<Item = OsString>) -> String {
    let words = words.map(|word| reports::escape::shell(&word.to_string_lossy()));
    std::iter::once("audit".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// A request with its command line, once this process answers signals and has the threads that it asks for.
fn begin(request: Request, command: String) -> Request {
    listen_within(request.compute.threads);
    Request { command: Some(command), ..request }
}

/// Makes this process answer signals, and limits its threads.
fn listen_within(threads: usize) {
    interrupt::listen();
    limit(threads);
}

/// Limits the threads of losses, ranks and decoding, as those of the model. 0: as many as the system runs at
/// a time, and not what RAYON_NUM_THREADS says.
fn limit(threads: usize) {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { all() } else { threads };
    // A process has one pool, and nothing has used it yet.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

//! `audit MODEL`, and `audit run MODEL`.

use super::args::{
    BesideArgs, GateArgs, GoalArgs, InsteadArgs, LabelArgs, ProgressArgs, ResumeArgs, SavedArgs, Shared,
};
use super::values::{choice, partition};
use super::{Done, begin, elsewhere, gate_of, misspelt};
use crate::Result;
use crate::record::{Partition, Precision, Space};
use crate::report;
use crate::request::{Output, Request, USUAL_SUITE};
use clap::Args;
use std::path::PathBuf;

/// What to audit, how to attack, and where reports go.
#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// The model: an .onnx file, or a folder with one
    #[arg(required = true)]
    pub model: Option<PathBuf>,
    /// Built-in suite (`audit suites` lists them) or a .yaml file
    #[arg(long, default_value = USUAL_SUITE)]
    pub suite: String,
    /// File to write the report to; the extension chooses the format. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Put the pictures of the page into JSON reports too, so that `audit report` and `audit merge` can make
    /// pages with them
    #[arg(long)]
    pub pictures: bool,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load
    /// it
    #[arg(long, value_name = "FILE")]
    pub trials_out: Option<PathBuf>,
    /// Which image attacks change: the model's input, or the image file at its own size. With file, the
    /// changed file is measured: 8 bits a channel, decoded, resized and cropped as the clean one
    /// (docs/files.md). With input, suite robust attacks no files [default: the suite's, mostly input]
    #[arg(long, value_parser = choice::<Space>(), value_name = "input|file")]
    pub space: Option<Space>,
    /// With --space file: save changed images as JPEG files of this quality, 1 to 100, and measure these
    /// files. ε bounds the change before JPEG [default: PNG, without loss]
    #[arg(long, value_name = "QUALITY", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg: Option<u8>,
    /// With --space file: a new folder for the changed images, a file for each attack and query, and
    /// attacked.csv, which lists them
    #[arg(long, value_name = "FOLDER")]
    pub attacked_out: Option<PathBuf>,
    /// Attack at most this many queries, stratified by class
    /// [default: the suite's: 100 with robust, all with ars]
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// Repeat the trials of a file or of an earlier report
    #[arg(long, value_name = "FILE")]
    pub trials: Option<PathBuf>,
    /// Flags of every command that attacks.
    #[command(flatten)]
    pub shared: Shared,
    /// Whether the images have classes.
    #[command(flatten)]
    pub labels: LabelArgs,
    /// Targets and queries.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Numbers in addition to the suite's.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Another gallery or another model to attack.
    #[command(flatten)]
    pub instead: InsteadArgs,
    /// Rules of the gate.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Write the report as a baseline for later audits, unless the gate fails or the report is worse than
    /// --baseline
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub save_baseline: Option<PathBuf>,
    /// Precision of the attacks' steps. fp16 is meant for GPUs, and slower on a CPU. Outcomes are always
    /// measured in float32, and a sample of the trials is repeated with float32 steps to check that the
    /// attacks are no weaker
    #[arg(long, value_parser = choice::<Precision>(), value_name = "TYPE", default_value = "fp32", help_heading = "Machine")]
    pub attack_precision: Precision,
    /// Continuing.
    #[command(flatten)]
    pub resume: ResumeArgs,
    /// Run part M of N: a hash of its id assigns each query to a part. `audit merge` combines the parts. auto
    /// takes the part from the environment of Slurm, Kubernetes, AWS Batch, GNU parallel, GitLab and others
    /// (docs/engines.md)
    #[arg(long, value_name = "hash:M/N|auto", value_parser = partition, help_heading = "Long runs")]
    pub partition: Option<Partition>,
    /// Saved embeddings.
    #[command(flatten)]
    pub saved: SavedArgs,
    /// Print every table, and what each finding means
    #[arg(short, long)]
    pub verbose: bool,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl AuditArgs {
    /// The request that the flags make. Errors (exit code 2): those of [`Shared::request`].
    pub fn request(&self) -> Result<Request> {
        let model = self.model.clone().unwrap_or_default();
        let mut request = self.shared.request(&model, &self.suite, &self.progress)?;
        request.images.labels = self.labels.labels.unwrap_or_default();
        self.goal.apply(&mut request);
        self.beside.apply(&mut request);
        self.instead.apply(&mut request);
        self.resume.apply(&mut request);
        (request.attack.precision, request.attack.space) = (self.attack_precision, self.space);
        request.attack.jpeg = self.jpeg;
        (request.queries.most, request.queries.trials) = (self.max_queries, self.trials.clone());
        request.gate = self.gate.demands();
        request.output = Output {
            reports: self.reports.clone(),
            pictures: self.pictures,
            trials: self.trials_out.clone(),
            attacked: self.attacked_out.clone(),
            baseline: self.save_baseline.clone(),
        };
        (request.run.partition, request.run.gallery_cache) =
            (self.partition, self.saved.gallery_cache.clone());
        Ok(request)
    }

    /// Audits the model.
    pub(super) fn run(&self, command: String) -> Result<Done> {
        if let Some(error) = self.model.as_ref().and_then(|path| misspelt(path.as_os_str())) {
            return Err(error);
        }
        let request = begin(self.request()?, command);
        let report = crate::pipeline::run(&request)?;
        let Output { reports, trials, attacked, .. } = &request.output;
        let rest = "-o report.html writes a page with plots and examples, -o report.json every trial";
        let elsewhere = elsewhere(reports.iter().chain(trials).chain(attacked), rest);
        let text = match self.verbose {
            true => report::terminal::render(&report) + &report::terminal::wrap(&elsewhere) + "\n",
            false => report::terminal::brief(&report, &format!("{elsewhere}; -v prints all tables")),
        };
        Ok((text + &gate_of(&report), report.exit()))
    }
}

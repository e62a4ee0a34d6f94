//! `audit inspect`.

use super::args::{ComputeArgs, ProgressArgs, ReadingArgs};
use super::{Done, listen_within};
use crate::Result;
use crate::feature::inspect::{self, Inspect};
use crate::model::exported::file_of;
use crate::progress::TimeLimit;
use crate::request::USUAL_SUITE;
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit inspect model.onnx\n  audit inspect model.onnx --write-card\n  audit inspect model.onnx --output /avgpool/Flatten_output_0 --json\n\n\
    Exit codes: 0 it can be audited · 2 usage · 3 it can't be audited, has no gradient, or needs more memory or time than allowed · 12 its embeddings are random, or depend on the other images of a batch: the output names the problem"
)]
pub struct InspectArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// Suite to estimate the cost of
    #[arg(long, default_value = USUAL_SUITE)]
    pub suite: String,
    /// Write a draft of a model card beside the model; comments mark assumptions
    #[arg(long)]
    pub write_card: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Time limit, such as 30s or 5min. Results that are missing by then are printed as not measured
    #[arg(long, value_name = "TIME", default_value = "1min", help_heading = "Machine")]
    pub time_limit: TimeLimit,
    /// How the model is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Where it computes.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl InspectArgs {
    pub(super) fn run(&self, command: String) -> Result<Done> {
        listen_within(self.compute.runtime.threads);
        inspect::run(&Inspect {
            model: file_of(&self.model)?,
            suite: self.suite.clone(),
            write_card: self.write_card,
            time_limit: self.time_limit,
            json: self.json,
            reading: self.reading.reading()?,
            compute: self.compute.compute(),
            progress: self.progress.mode(),
            command,
        })
    }
}

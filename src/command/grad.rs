//! `audit grad`.

use super::args::{DescribedArgs, ProgressArgs, RuntimeArgs};
use super::values::batch;
use super::{Done, listen_within, passed};
use crate::Result;
use crate::feature::grad_file::{self, GradFile};
use crate::model::exported::file_of;
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit grad`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit grad model.onnx -o model.grad.onnx\n  audit grad model.onnx --raw -o model.grad.onnx\n  audit \
    grad model.onnx --batch 8 -o model.grad.onnx\n\nThe inputs of the file are image and cotangent (the derivative of a loss with respect to the embedding). The outputs are embedding and \
    gradient (the derivative of the loss with respect to the image). docs/gradients.md runs it from Python\n\nExit codes: \
    0 written · 2 usage · 3 no gradient, or none for any batch · 12 the file disagrees with the audit's own gradient, or this gradient with \
    finite differences: nothing is written"
)]
pub struct GradArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// File to write to, .onnx; weights of 1.5 GB or more are written to a second file, FILE.HASH.data
    #[arg(short = 'o', long = "report", alias = "file", value_name = "FILE")]
    pub file: PathBuf,
    /// Use the model's own input unchanged [default: pixels in [0, 1], RGB or grey, channels first, with
    /// preprocessing in the graph]
    #[arg(long)]
    pub raw: bool,
    /// Write a graph for this batch size only [default: any batch size; the model's own if it is fixed]
    #[arg(long, value_parser = batch())]
    pub batch: Option<usize>,
    /// The card, and flags that override it.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// The library.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// How errors are shown; there is no progress.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl GradArgs {
    pub(super) fn run(&self) -> Result<Done> {
        listen_within(self.runtime.threads);
        let request = GradFile {
            model: file_of(&self.model)?,
            file: self.file.clone(),
            raw: self.raw,
            batch: self.batch,
            reading: self.described.reading()?,
            threads: self.runtime.threads,
            library: self.runtime.ort_lib.clone(),
            memory: self.runtime.memory.map(|bytes| bytes.0),
        };
        grad_file::run(&request).map(passed)
    }
}

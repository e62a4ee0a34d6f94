//! `audit embed`.

use super::args::{ComputeArgs, DescribedArgs, GradientArgs, ImageArgs, LabelArgs, ProgressArgs};
use super::values::partition;
use super::{Done, listen_within, passed};
use crate::Result;
use crate::feature::embed;
use crate::model::exported::file_of;
use crate::record::Partition;
use crate::request::Request;
use crate::visible::visible;
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit embed`: the flags of an audit that change how images are embedded.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit embed model.onnx --data photos/ -o gallery.parquet\n  audit model.onnx --data photos/ \
    --gallery-cache gallery.parquet --partition hash:1/3 -o part1.json\nin parts:\n  audit embed model.onnx --data photos/ \
    --partition hash:1/3 -o gallery1.parquet\n  audit merge gallery1.parquet gallery2.parquet gallery3.parquet -o gallery.parquet"
)]
pub struct EmbedArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// File to write to, .parquet
    #[arg(short = 'o', long = "report", value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// The images.
    #[command(flatten)]
    pub images: ImageArgs,
    /// Whether they have classes.
    #[command(flatten)]
    pub labels: LabelArgs,
    /// The card, and flags that override it.
    #[command(flatten)]
    pub described: DescribedArgs,
    /// Where gradients come from.
    #[command(flatten)]
    pub gradient: GradientArgs,
    /// Where it computes.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Embed part M of N: a hash of its id assigns each image to a part. `audit merge` combines the parts.
    /// auto takes the part from the environment of Slurm, Kubernetes, AWS Batch, GNU parallel, GitLab and
    /// others (docs/engines.md)
    #[arg(long, value_name = "hash:M/N|auto", value_parser = partition, help_heading = "Long runs")]
    pub partition: Option<Partition>,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl EmbedArgs {
    /// The audit that will use the embeddings. Errors (exit code 2): `--range` has other than two increasing
    /// values.
    pub fn request(&self) -> Result<Request> {
        let mut request = Request::model(file_of(&self.model)?);
        request.reading = self.described.reading()?;
        request.reading.gradient = self.gradient.gradient;
        request.images = self.images.images();
        request.images.labels = self.labels.labels.unwrap_or_default();
        request.compute = self.compute.compute();
        request.run.partition = self.partition;
        request.progress = self.progress.mode();
        Ok(request)
    }

    pub(super) fn run(&self) -> Result<Done> {
        let request = self.request()?;
        listen_within(request.compute.threads);
        Ok(passed(visible(&embed::run(&request, &self.file)?).into_owned()))
    }
}

//! `audit geometry`.

use super::args::{ProgressArgs, SavedArgs, Shared};
use super::{Done, begin, elsewhere};
use crate::feature::geometry;
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::visible::visible;
use crate::{Result, interrupt};
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit geometry`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit geometry model.onnx --data photos/ -o geometry.html -o geometry.json\n  audit geometry model.onnx \
    --data photos/ --suite adml --max-queries 100\n\ndocs/papers.md maps each part to the figures and tables of the papers"
)]
pub struct GeometryArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// Suite with the budget and attacks on queries; the map shows the first attack
    #[arg(long, default_value = "geometry")]
    pub suite: String,
    /// File to write to: .html or .json. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Attack at most this many queries, and as many triplets [default: 56]
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// Flags of every command that attacks.
    #[command(flatten)]
    pub shared: Shared,
    /// Saved embeddings.
    #[command(flatten)]
    pub saved: SavedArgs,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl GeometryArgs {
    /// The audit whose model, images and attacks are measured. Errors (exit code 2): those of
    /// [`Shared::request`].
    pub fn request(&self) -> Result<Request> {
        let mut request = self.shared.request(&self.model, &self.suite, &self.progress)?;
        request.queries.most = self.max_queries;
        request.run.gallery_cache = self.saved.gallery_cache.clone();
        request.output.reports = self.reports.clone();
        Ok(request)
    }

    pub(super) fn run(&self, command: String) -> Result<Done> {
        let request = begin(self.request()?, command);
        let found = geometry::run(&request).map_err(interrupt::with_next_step)?;
        let rest =
            elsewhere(&self.reports, "-o geometry.html shows distances, triplets and a map of classes");
        let text = format!("{}{}\n", geometry::terminal(&found), wrap(&rest));
        Ok((visible(&text).into_owned(), found.exit(request.allow_untrusted)))
    }
}

//! `audit sweep`.

use super::args::{InsteadArgs, ProgressArgs, SavedArgs};
use super::compare::Audits;
use super::{Done, begin, elsewhere};
use crate::Result;
use crate::feature::sweep;
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::visible::visible;
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit sweep`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit sweep model.onnx --data photos/ --over eps=1/255,2/255,4/255,8/255 -o sweep.html\n  audit sweep \
    model.onnx --suite ars --over m=1,2,5,10 --over w=1,2,5,10 --max-queries 200 -o sweep.json -o sweep.csv\n\nThe last setting \
    varies fastest. All other settings come from the suite or the flags; the step size follows ε in proportion, unless --alpha states it. \
    --resume continues an interrupted sweep",
    mut_arg("strong_sample", |a| a.help("Number of queries that the strong search attacks at each point, for robust R@1, or off [default: as \
    many as in an audit]"))
)]
pub struct SweepArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// A setting (eps, steps, restarts, w, m or seed) and its values: eps=2/255,4/255. May be repeated:
    /// every combination is run
    #[arg(long, value_name = "KEY=V,V", required = true)]
    pub over: Vec<String>,
    /// File to write to: .html, .json or .csv. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// The audit at each point.
    #[command(flatten)]
    pub audits: Audits,
    /// Another gallery or another model to attack.
    #[command(flatten)]
    pub instead: InsteadArgs,
    /// Saved embeddings.
    #[command(flatten)]
    pub saved: SavedArgs,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl SweepArgs {
    /// The audit at each point. Errors (exit code 2): those of [`Audits::request`].
    pub fn request(&self) -> Result<Request> {
        let mut request = self.audits.request(&self.model, &self.reports, &self.progress)?;
        self.instead.apply(&mut request);
        request.run.gallery_cache = self.saved.gallery_cache.clone();
        Ok(request)
    }

    pub(super) fn run(&self, command: String) -> Result<Done> {
        let request = begin(self.request()?, command);
        let found = sweep::run(&request, &self.over)?;
        let rest = "-o sweep.html shows curves, -o sweep.csv has a row for each point and measure";
        let text = format!("{}{}\n", sweep::terminal(&found), wrap(&elsewhere(&self.reports, rest)));
        Ok((visible(&text).into_owned(), found.exit(request.allow_untrusted)))
    }
}

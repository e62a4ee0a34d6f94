//! `audit doctor`.

use super::args::{GoalArgs, InsteadArgs, ProgressArgs, SavedArgs, Shared};
use super::{Done, listen_within, written};
use crate::feature::doctor::{self, Doctor};
use crate::request::USUAL_SUITE;
use crate::{Result, interrupt};
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit doctor model.onnx\n  audit doctor model.onnx --data photos/ --surrogate other.onnx -o \
    doctor.json\n\nExit codes: 0 no check invalidates the numbers · 12 a check found that the numbers are invalid",
    mut_arg("surrogate", |a| a.help("Another model of the same input; the images attacked on it are tried on this model"))
)]
pub struct DoctorArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// Built-in suite (`audit suites` lists them) or a .yaml file
    #[arg(long, default_value = USUAL_SUITE)]
    pub suite: String,
    /// File to write the findings to, .json. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Attack at most this many queries, stratified by class [default: 16]
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// Repeat the trials of a file or of an earlier report
    #[arg(long, value_name = "FILE")]
    pub trials: Option<PathBuf>,
    /// Of the checks that attack, run only these, such as black-box,noise (docs/trust.md lists all)
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Flags of every command that attacks.
    #[command(flatten)]
    pub shared: Shared,
    /// Targets and queries.
    #[command(flatten)]
    pub goal: GoalArgs,
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

impl DoctorArgs {
    /// The request that the flags make. Errors (exit code 2): those of [`Shared::request`].
    pub fn doctor(&self) -> Result<Doctor> {
        let mut request = self.shared.request(&self.model, &self.suite, &self.progress)?;
        self.goal.apply(&mut request);
        self.instead.apply(&mut request);
        (request.queries.most, request.queries.trials) = (self.max_queries, self.trials.clone());
        request.run.gallery_cache = self.saved.gallery_cache.clone();
        request.output.reports = self.reports.clone();
        Ok(Doctor { audit: request, only: self.only.clone() })
    }

    pub(super) fn run(&self) -> Result<Done> {
        let doctor = self.doctor()?;
        listen_within(doctor.audit.compute.threads);
        let found = doctor::run(&doctor).map_err(interrupt::with_next_step)?;
        Ok((found.render() + &written(&self.reports), found.exit()))
    }
}

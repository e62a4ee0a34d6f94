//! `audit demo`.

use super::args::ProgressArgs;
use super::{Done, passed};
use crate::report;
use crate::report::terminal::wrap;
use crate::{Result, feature, interrupt};
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit demo`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  audit demo --out first")]
pub struct DemoArgs {
    /// Folder to write the models and their reports to
    #[arg(short = 'o', long, alias = "output", default_value = "audit-demo", value_name = "FOLDER")]
    pub out: PathBuf,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl DemoArgs {
    pub(super) fn run(&self) -> Result<Done> {
        interrupt::listen();
        let made = feature::demo::run(&self.out, self.progress.mode())?;
        let mut lines = Vec::new();
        for made in &made.reports {
            lines.push(format!("{}: {}", made.model.path, report::verdict(made)?));
        }
        lines.push(made.comparison.answer.clone());
        let pages: Vec<String> = made.pages.iter().map(|page| page.display().to_string()).collect();
        lines.push(format!("open {} for both side by side; each alone: {}", pages[0], pages[1..].join(", ")));
        lines.push("with a model of your own: audit model.onnx --data photos/".into());
        Ok(passed(lines.iter().map(|line| wrap(line) + "\n").collect()))
    }
}

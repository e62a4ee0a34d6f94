//! `audit report`.

use super::{Cli, Command, Done, passed, shown, written};
use crate::feature::evidence;
use crate::model::memory::Bytes;
use crate::pipeline::settings::{refuse_inputs, refuse_one_file_for_two};
use crate::record::Report;
use crate::report::{self, Target};
use crate::request::Request;
use crate::{Error, Result, interrupt};
use clap::{Args, Parser};
use std::path::PathBuf;

/// Flags of `audit report`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit report report.json -o report.html -o report.md\n  audit report report.json -o metrics.json \
    -o model.cdx.json -o model.intoto.json\n  audit report report.json --model-card README.md\n  audit report report.json --bundle evidence.zip"
)]
pub struct ReportArgs {
    /// A saved report, .json
    pub report: PathBuf,
    /// File to write to; the extension chooses the format. Without one, the report is printed. May be
    /// repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load
    /// it
    #[arg(long, value_name = "FILE", requires = "output")]
    pub trials_out: Option<PathBuf>,
    /// Hugging Face model card, README.md, whose block `model-index` gets the numbers; the rest of the file
    /// is unchanged
    #[arg(long, value_name = "FILE")]
    pub model_card: Option<PathBuf>,
    /// Archive of evidence to write, .zip: the attacked images, and a script that verifies every outcome with
    /// the untouched model. This runs the trials again. Start it in the folder in which the audit was started
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// With --bundle: memory that the model may use, such as 4G or 512M. That of the report's command line is
    /// left out [default: the free memory, less a tenth and at least 256M]
    #[arg(long, value_name = "SIZE", requires = "bundle")]
    pub memory: Option<Bytes>,
}

impl ReportArgs {
    /// Renders a saved report, with the verdict that it has.
    pub(super) fn run(&self) -> Result<Done> {
        let others = [
            ("--trials-out", &self.trials_out),
            ("--model-card", &self.model_card),
            ("--bundle", &self.bundle),
        ];
        let others: Vec<_> =
            others.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))).collect();
        refuse_inputs(&[("the report", self.report.as_path())], &others)?;
        let reports = self.output.iter().map(|path| ("-o", path.as_path()));
        refuse_one_file_for_two(reports.chain(others))?;
        let report = Report::load(&self.report)?;
        let targets = Target::open_all(&self.output)?;
        report::write_all(targets, report::open_trials(self.trials_out.as_deref())?, &report, true)?;
        if let Some(card) = &self.model_card {
            report.whole()?;
            report::model_card::write(&report, card)?;
        }
        let files = written(self.output.iter().chain(&self.trials_out).chain(&self.model_card));
        if let Some(to) = &self.bundle {
            interrupt::listen();
            let memory = self.memory.map(|bytes| bytes.0);
            return evidence::bundle(&report, &self.report, &made_by, to, memory)
                .map(|text| passed(files + &text));
        }
        Ok(passed(if files.is_empty() { shown(&report).0 } else { files }))
    }
}

/// The request of a report's command line. Errors (exit code 2): this version doesn't know it; it is no audit
/// of one model.
pub fn made_by(command: &str) -> Result<Request> {
    let cli = Cli::try_parse_from(report::escape::words(command)).map_err(|_| {
        Error::usage(format!("this version of audit doesn't know the report's command line, `{command}`"))
    })?;
    match &cli.command {
        None => cli.run.request(),
        Some(Command::Run(args)) => args.request(),
        Some(_) => Err(Error::usage(format!("the report was made by `{command}`"))),
    }
}

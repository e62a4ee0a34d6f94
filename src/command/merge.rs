//! `audit merge`.

use super::{Done, passed, shown, written};
use crate::feature::merge;
use crate::pipeline::settings;
use crate::report::{self, Target};
use crate::{Error, Exit, Result};
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example, on three machines:\n  audit model.onnx --data photos/ --partition hash:1/3 -o part1.json\n  audit \
    model.onnx --data photos/ --partition hash:2/3 -o part2.json\n  audit model.onnx --data photos/ --partition hash:3/3 -o \
    part3.json\nand then:\n  audit merge part1.json part2.json part3.json -o whole.json -o whole.html\n\nThe report equals that of \
    one run, except for timing and command line. For pictures in the page, give --pictures to every part.\n\nParts of `audit embed` are combined in the same way:\n  audit merge gallery1.parquet gallery2.parquet -o \
    gallery.parquet\nWhat to run again after some parts failed:\n  sbatch --array=$(audit merge --missing parts/) audit.sbatch\n\nExit codes: 0 merged · 2 not a part · 13 parts of different runs, or missing parts: the message names each"
)]
pub struct MergeArgs {
    /// The reports of all parts, .json, or their embeddings, .parquet, in any order
    #[arg(required_unless_present = "missing")]
    pub parts: Vec<PathBuf>,
    /// Combine nothing. Print the numbers of the parts that this folder lacks, such as 3,7-9; exit code 13 if
    /// there are any
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["parts", "output"])]
    pub missing: Option<PathBuf>,
    /// File to write to; the extension chooses the format. May be repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// File for the trials, .json. JSON reports then refer to this file; commands that read the report load
    /// it
    #[arg(long, value_name = "FILE", requires = "output")]
    pub trials_out: Option<PathBuf>,
}

impl MergeArgs {
    pub(super) fn run(&self, command: &str) -> Result<Done> {
        if let Some(folder) = &self.missing {
            let missing = merge::missing(folder)?;
            return Ok((missing.clone(), (!missing.is_empty()).then_some(Exit::Incomplete)));
        }
        let parts: Vec<_> = self.parts.iter().map(|path| ("a part", path.as_path())).collect();
        let reports = self.output.iter().map(|path| ("-o", path.as_path()));
        let trials = self.trials_out.iter().map(|path| ("--trials-out", path.as_path()));
        let outputs: Vec<_> = reports.chain(trials).collect();
        settings::refuse_inputs(&parts, &outputs)?;
        settings::refuse_one_file_for_two(outputs)?;
        if self.parts.iter().any(|path| merge::holds_embeddings(path)) {
            if self.trials_out.is_some() {
                return Err(Error::usage(
                    "--trials-out is for parts of an audit, and embeddings have no trials. Leave it out",
                ));
            }
            return merge::merge_embeddings(&self.parts, &self.output).map(passed);
        }
        let targets = Target::open_all(&self.output)?;
        let trials = report::open_trials(self.trials_out.as_deref())?;
        let report = merge::merge(&self.parts, command)?;
        report::write_all(targets, trials, &report, true)?;
        let (text, exit) = shown(&report);
        Ok((text + &written(self.output.iter().chain(&self.trials_out)), exit))
    }
}

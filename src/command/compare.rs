//! `audit compare`.

use super::args::{BesideArgs, GoalArgs, ProgressArgs, ResumeArgs, Shared};
use super::{Done, begin, passed, written};
use crate::feature;
use crate::judge::{compare, published};
use crate::pipeline::settings;
use crate::report;
use crate::request::Request;
use crate::{Error, Result};
use clap::{Args, Parser};
use std::path::{Path, PathBuf};

/// Flags of `audit compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit after.onnx --data photos/ --trials before.json -o after.json\n  audit compare before.json after.json -o comparison.html\n  audit \
    compare report.json --paper CUB\n  audit compare float.onnx int8.onnx --data photos/ -o comparison.html\n\nWith two models, both are audited on the \
    same trials, and the attacks made on each are also measured on the other. Flags of audits, such as --data, are for models only"
)]
pub struct CompareArgs {
    /// Saved reports, .json, or two models, .onnx; the first is the baseline
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File to write to: .html, .json or .md. May be repeated
    #[arg(short = 'o', long = "report", value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Show the reports beside the rows that papers print for a data set instead: CUB, CARS or SOP
    #[arg(long, value_name = "DATA", conflicts_with_all = ["sort", "anyway", "all"])]
    pub paper: Option<String>,
    /// Sort the models by a metric, the most robust first [default: as given]
    #[arg(long, value_name = "METRIC")]
    pub sort: Option<String>,
    /// Print all metrics, not only scores, R@1 and the value after each attack
    #[arg(long)]
    pub all: bool,
    /// Compare even if data, protocol or trials differ
    #[arg(long)]
    pub anyway: bool,
    /// The audit of each model.
    #[command(flatten)]
    pub audits: Audits,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

/// The audits of a comparison or of a sweep.
#[derive(Debug, PartialEq, Args)]
pub struct Audits {
    /// Built-in suite (`audit suites` lists them) or a .yaml file
    #[arg(long, default_value = "ars")]
    pub suite: String,
    /// Attack at most this many queries, stratified by class
    #[arg(long, value_name = "N")]
    pub max_queries: Option<usize>,
    /// Flags of every command that attacks.
    #[command(flatten)]
    pub shared: Shared,
    /// Targets and queries.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Numbers in addition to the suite's.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Continuing.
    #[command(flatten)]
    pub resume: ResumeArgs,
}

impl Audits {
    /// The audit of `model`. Errors (exit code 2): those of [`Shared::request`].
    pub fn request(&self, model: &Path, reports: &[PathBuf], shown: &ProgressArgs) -> Result<Request> {
        let mut request = self.shared.request(model, &self.suite, shown)?;
        self.goal.apply(&mut request);
        self.beside.apply(&mut request);
        self.resume.apply(&mut request);
        request.queries.most = self.max_queries;
        request.output.reports = reports.to_vec();
        Ok(request)
    }
}

/// A command line without flags of audits, to find out whether there are any.
#[derive(Parser)]
struct Silent {
    #[command(flatten)]
    audits: Audits,
}

impl CompareArgs {
    pub(super) fn run(&self, command: String) -> Result<Done> {
        if let Some(models) = self.models()? {
            let [first, _] = models;
            let request = begin(self.audits.request(first, &self.reports, &self.progress)?, command);
            let (comparison, exit) = feature::compare::run(models, &request)?;
            return Ok((feature::compare::render(&comparison, self.all) + &written(&self.reports), exit));
        }
        // A comparison would replace a report that took hours.
        let reports: Vec<_> = self.files.iter().map(|path| ("a report to compare", path.as_path())).collect();
        let outputs: Vec<_> = self.reports.iter().map(|path| ("-o", path.as_path())).collect();
        settings::refuse_inputs(&reports, &outputs)?;
        if let Some(data_set) = &self.paper {
            let beside = published::beside(&self.files, data_set)?;
            self.reports.iter().try_for_each(|path| report::paper::write(&beside, path))?;
            return Ok(passed(report::paper::render(&beside) + &written(&self.reports)));
        }
        let files =
            self.reports.iter().map(|path| feature::compare::open(path)).collect::<Result<Vec<_>>>()?;
        let comparison = compare::compare(&self.files, self.sort.as_deref(), self.anyway)?;
        files.into_iter().try_for_each(|file| file.write(&comparison))?;
        Ok(passed(feature::compare::render(&comparison, self.all) + &written(&self.reports)))
    }

    /// The two models to compare; `None` if the files are reports. Errors (exit code 2): some are models and
    /// some are reports, or flags are for the other kind.
    fn models(&self) -> Result<Option<[&Path; 2]>> {
        let (models, reports): (Vec<&PathBuf>, Vec<&PathBuf>) = self
            .files
            .iter()
            .partition(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx")));
        let stated = || Silent::try_parse_from(["audit"]).is_ok_and(|silent| silent.audits != self.audits);
        match (models.as_slice(), reports.as_slice()) {
            ([], reports) if stated() => Err(Error::usage(format!(
                "flags of audits, such as --data and --suite, need two models, .onnx, but {} is taken for a saved report: leave them out, or \
                 name two models",
                reports[0].display()
            ))),
            ([], _) => Ok(None),
            ([model, ..], [report, ..]) => Err(Error::usage(format!(
                "{} is a model, and {} is taken for a saved report: name two models or saved reports. A report of the model on the same \
                 trials: audit {} --data … --trials {} -o OTHER.json",
                model.display(),
                report.display(),
                model.display(),
                report.display()
            ))),
            ([a, b], []) if self.paper.is_none() && self.sort.is_none() && !self.anyway => Ok(Some([a, b])),
            ([_, _], []) => Err(Error::usage(
                "--paper, --sort and --anyway are for saved reports: leave them out, or audit each model and compare the reports",
            )),
            (models, []) => Err(Error::usage(format!(
                "{} model{} to compare: name two. More than two are compared by their reports (audit MODEL --trials FIRST.json -o NEXT.json)",
                models.len(),
                if models.len() == 1 { "" } else { "s" }
            ))),
        }
    }
}

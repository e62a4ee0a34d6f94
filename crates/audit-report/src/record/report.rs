//! The result of an audit as one serialisable value. Every report format is a pure function of it.

use super::{
    Attack, Benign, Breakdown, Corrupted, Corruptions, Data, Examples, ForeignTargetsRecord, HalfPrecision,
    Hub, ModelRecord, Outcome, Partition, RetrievalRow, ScoreName, Scores, Severity, Skipped, Smallest,
    SuiteRecord, Timing, Tool, TrialList, Universal, Verdict, Verification, Warning, reason,
};
use audit_base::{Error, Exit, Result, files};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Increases when a field changes its meaning or is removed. New fields do not change it.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of an audit, and how they were measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format: [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program that wrote the report.
    pub tool: Tool,
    /// The audited model.
    pub model: ModelRecord,
    /// The images.
    pub data: Data,
    /// The suite that was run.
    pub suite: SuiteRecord,
    /// Seed of the trials, the random starts and the resampling.
    pub seed: u64,
    /// Whether the user accepted findings of severity error.
    #[serde(default)]
    pub allow_untrusted: bool,
    /// Retrieval without an attack, in per cent; absent if the images have no classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benign: Option<Benign>,
    /// One row per measure.
    pub attacks: Vec<Attack>,
    /// Retrieval of attacked queries, a row for each attack that moves queries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retrieval: Vec<RetrievalRow>,
    /// The smallest perturbations that make queries wrong, if the suite searches for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Smallest>,
    /// Queries that hubs are measured on, and what clean images capture; absent if the suite has no hubs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<Hub>,
    /// Foreign targets of the attacks; absent if they aimed at images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<ForeignTargetsRecord>,
    /// R@1 by class and by group of the queries; absent if no class and no group has enough of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdowns: Vec<Breakdown>,
    /// How the perturbations that queries share were crafted; absent if each query has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<Universal>,
    /// Retrieval under natural corruptions, without an attacker; absent if the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corruptions: Option<Corruptions>,
    /// Decisions by a threshold; absent if no attack of the suite uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// ERS, ARS and robust R@1, with intervals.
    pub scores: Scores,
    /// Every random choice and every target, in the form that `--trials` reads.
    pub trials: TrialList,
    /// The outcome of each trial.
    pub outcomes: Vec<Outcome>,
    /// Retrieval of each query under each natural corruption; empty if the suite has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupted: Vec<Corrupted>,
    /// The file that holds `trials`, `outcomes`, `corrupted`, `skipped`, `labels`, `groups` and `examples`,
    /// which are empty then; absent if they are here. [`Report::load`] puts them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials_file: Option<TrialsFile>,
    /// Queries that attacks could not be run on.
    pub skipped: Vec<Skipped>,
    /// Classes of the queries and targets of all trials, by id; empty in reports of older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Groups of the queries, by id, if the list of images has groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
    /// The accuracy of float16 steps, if attack steps ran in float16.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub half_precision: Option<HalfPrecision>,
    /// Findings, and checks that did not run.
    pub warnings: Vec<Warning>,
    /// The part of a run that this report covers; absent for a whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<Part>,
    /// The result of the gate, if it has rules.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gate: Option<Verdict>,
    /// A few attacks to show. They are in pages, and in JSON if `--pictures` was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub examples: Option<Examples>,
    /// The command line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
    /// Time spent. Two runs of the same audit differ only in `timing` and `command`.
    pub timing: Timing,
}

impl Report {
    /// Reads a saved report, and its trials if they are in another file. Errors (exit code 2): the file is
    /// not a report, a newer version of audit wrote it, or its trials can't be read.
    pub fn load(path: &Path) -> Result<Report> {
        let name = path.display();
        let json = files::read_text(path, files::LARGE).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => Error::usage(format!(
                "{name}: expected a report in JSON, as `audit MODEL -o report.json` writes it: {e}"
            )),
            _ => Error::usage(format!("can't read {name}: {e}")),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Report::parse_in(&json, folder).map_err(|e| e.context(name))
    }

    /// Like [`Report::load`], from JSON text. Trials in another file are looked for in the current folder.
    pub fn parse(json: &str) -> Result<Report> {
        Report::parse_in(json, Path::new(""))
    }

    fn parse_in(json: &str, folder: &Path) -> Result<Report> {
        /// The field that reports of all versions have.
        #[derive(Deserialize)]
        struct Stamp {
            schema_version: u32,
        }
        let Stamp { schema_version } = serde_json::from_str(json).map_err(|e| {
            Error::usage(format!("expected a report in JSON, as `audit MODEL -o report.json` writes it: {e}"))
        })?;
        if schema_version > SCHEMA_VERSION {
            return Err(Error::usage(format!(
                "a newer audit wrote this report: its schema_version is {schema_version}, and {} reads up to \
                 {SCHEMA_VERSION}. Update audit, or make the report again with this one",
                concat!("audit ", env!("CARGO_PKG_VERSION"))
            )));
        }
        let mut report: Report = serde_json::from_str(json).map_err(|e| {
            Error::usage(format!("not a whole report (schema_version {schema_version}): {e}"))
        })?;
        report.join(folder)?;
        // Reports of earlier versions don't have it.
        let untrusted = report.untrusted();
        report.gate.iter_mut().for_each(|gate| gate.untrusted = untrusted);
        Ok(report)
    }

    /// Refuses a part of a run (exit code 13), because its scores are not those of the model.
    pub fn whole(&self) -> Result<()> {
        match &self.part {
            None => Ok(()),
            Some(part) => Err(Error::incomplete(format!(
                "the report of {} is part {} of a run. Put all parts together first: audit merge PART... -o whole.json",
                self.model_name(),
                part.partition
            ))),
        }
    }

    /// Findings that invalidate the scores.
    pub fn errors(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|w| w.severity == Severity::Error)
    }

    /// Whether `finding` invalidates the scores, and the user did not accept that. Formats with failures show
    /// such a finding as one, and an accepted finding as a warning.
    pub fn fails_by(&self, finding: &Warning) -> bool {
        !self.allow_untrusted && finding.severity == Severity::Error
    }

    /// Whether a finding invalidates the scores, and the user did not accept that.
    pub fn untrusted(&self) -> bool {
        self.warnings.iter().any(|finding| self.fails_by(finding))
    }

    /// The exit code of the report, if not success: 12 if the result is not trusted and the user did not
    /// accept that, otherwise the gate's.
    pub fn exit(&self) -> Option<Exit> {
        match self.untrusted() {
            true => Some(Exit::Untrusted),
            false => self.gate.as_ref().and_then(Verdict::exit),
        }
    }

    /// Whether its images came as a list of pairs.
    pub fn lists_pairs(&self) -> bool {
        self.verification.as_ref().is_some_and(|found| found.listed)
            || self.warnings.iter().any(|w| reason::ONE_KIND_OF_PAIRS.made(w))
    }

    /// Whether gradients were estimated.
    pub fn estimated(&self) -> bool {
        self.warnings.iter().any(|w| reason::GRADIENT_ESTIMATED.made(w))
    }

    /// The caveat before all numbers, if attacks were not made along the model's own gradient.
    pub fn caveat(&self) -> Option<String> {
        let estimated = || {
            "Gradients were estimated from forward passes. The attacks are weaker, so these scores are too high"
                .into()
        };
        self.suite.caveat().or_else(|| self.estimated().then(estimated))
    }

    /// The model's file name.
    pub fn model_name(&self) -> &str {
        self.model.name()
    }

    /// The report without pictures, verdict and command line. A later audit needs no more for comparison.
    pub fn as_baseline(&self) -> Report {
        Report { gate: None, examples: None, command: None, ..self.clone() }
    }
}

/// Where the trials of a report are, if they are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialsFile {
    /// Path of the file, seen from the report's folder.
    pub path: String,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Number of outcomes in it.
    pub outcomes: usize,
}

/// A part of a run: a subset of its queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The part, such as "hash:1/3" for the first of three.
    pub partition: Partition,
    /// Number of trials of the whole run, including those that cannot be run.
    pub trials: usize,
    /// Positions of this part's outcomes among the trials of the whole run.
    pub places: Vec<usize>,
    /// Positions of this part's skipped trials among the trials of the whole run.
    pub skipped_places: Vec<usize>,
    /// SHA-256 over attack and query of each trial of the whole run.
    pub trials_sha256: String,
    /// Scores of the suite.
    pub scores: Vec<ScoreName>,
}

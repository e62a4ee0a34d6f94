//! What the gate says of a report.

use crate::Exit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a failed check leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is not checked.
    Off,
    /// It is said.
    Warn,
    /// The gate fails.
    #[default]
    Error,
}

/// What the gate says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The baseline's model (path and SHA-256), where there is one.
    pub baseline: Option<Baseline>,
    /// One for each thing demanded.
    pub checks: Vec<Check>,
}

/// What a report was held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// The model's path.
    pub model: String,
    /// Its file's SHA-256.
    pub sha256: String,
}

/// One thing demanded and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The metric's name.
    pub metric: String,
    /// What was demanded.
    pub kind: Kind,
    /// The bound, or the tolerance.
    pub limit: f64,
    /// The metric's value.
    pub found: f64,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// The baseline's value, for drops.
    pub baseline: Option<f64>,
    /// The 95 % interval of the change from the baseline.
    pub change_interval: Option<(f64, f64)>,
    /// What came of it.
    pub result: CheckResult,
    /// The same in words.
    pub text: String,
}

/// What a check demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// No less than the bound.
    Min,
    /// No more than the bound.
    Max,
    /// No drop beyond the tolerance.
    Drop,
}

impl Kind {
    /// The name in identifiers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Min => "min",
            Kind::Max => "max",
            Kind::Drop => "drop",
        }
    }
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// As demanded.
    Pass,
    /// Not as demanded, at level warn.
    Warn,
    /// Not as demanded, at level error.
    Fail,
}

impl CheckResult {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            CheckResult::Pass => "pass",
            CheckResult::Warn => "warn",
            CheckResult::Fail => "FAIL",
        }
    }
}

impl Verdict {
    /// How many checks came out so.
    pub fn count(&self, result: CheckResult) -> usize {
        self.checks.iter().filter(|c| c.result == result).count()
    }

    /// The exit code of a failed gate: 10 where a threshold is missed, 11 where only the baseline is.
    pub fn exit(&self) -> Option<Exit> {
        let failed = |drop: bool| {
            self.checks.iter().any(|c| c.result == CheckResult::Fail && (c.kind == Kind::Drop) == drop)
        };
        match (failed(false), failed(true)) {
            (true, _) => Some(Exit::Gate),
            (false, true) => Some(Exit::Regression),
            (false, false) => None,
        }
    }

    /// The verdict in one line.
    pub fn headline(&self) -> String {
        let warned = match self.count(CheckResult::Warn) {
            0 => String::new(),
            n => format!(", {n} warned"),
        };
        let of = self.checks.len();
        match self.exit() {
            Some(exit) => {
                let why = if exit == Exit::Regression {
                    "regression against the baseline"
                } else {
                    "threshold missed"
                };
                format!("gate FAILED: {why}; {} of {of} checks failed{warned}", self.count(CheckResult::Fail))
            }
            None => format!("gate passed: {of} check{}{warned}", if of == 1 { "" } else { "s" }),
        }
    }

    /// The verdict for a terminal.
    pub fn render(&self) -> String {
        let width = self.checks.iter().map(|c| c.metric.chars().count()).max().unwrap_or(0);
        let line = |c: &Check| format!("  {}  {:<width$}  {}\n", c.result.word(), c.metric, c.text);
        std::iter::once(self.headline() + "\n").chain(self.checks.iter().map(line)).collect()
    }
}

//! The result of the gate.

use audit_base::Exit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The consequence of a failed check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The check is not made.
    Off,
    /// The failure is reported, and the gate passes.
    Warn,
    /// The gate fails.
    #[default]
    Error,
}

/// The result of the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The baseline's model, if there is a baseline.
    pub baseline: Option<Baseline>,
    /// One check per bound.
    pub checks: Vec<GateCheck>,
    /// What the verdict doesn't cover, if that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The model of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// The model's path.
    pub model: String,
    /// The model's SHA-256.
    pub sha256: String,
}

/// A bound and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateCheck {
    /// The metric's name.
    pub metric: String,
    /// The kind of bound.
    pub kind: GateCheckKind,
    /// The bound, or the tolerance of a drop.
    pub limit: f64,
    /// The metric's value.
    pub found: f64,
    /// 95 % interval of the value.
    pub interval: Option<(f64, f64)>,
    /// Whether this value or the baseline's is withheld, so that reports for people show neither.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// The baseline's value, for drops.
    pub baseline: Option<f64>,
    /// 95 % interval of the change from the baseline.
    pub change_interval: Option<(f64, f64)>,
    /// Whether the bound is met.
    pub result: CheckResult,
    /// The result in words.
    pub text: String,
}

/// The kinds of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GateCheckKind {
    /// The value must not be below the bound.
    Min,
    /// The value must not be above the bound.
    Max,
    /// The loss against the baseline must not exceed the tolerance.
    Drop,
}

impl GateCheckKind {
    /// The name in identifiers.
    pub fn name(self) -> &'static str {
        match self {
            GateCheckKind::Min => "min",
            GateCheckKind::Max => "max",
            GateCheckKind::Drop => "drop",
        }
    }
}

/// Whether a bound is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// The bound is met.
    Pass,
    /// The bound is not met, at level warn.
    Warn,
    /// The bound is not met, at level error.
    Fail,
}

impl CheckResult {
    /// The result as one word, for people.
    pub fn word(self) -> &'static str {
        match self {
            CheckResult::Pass => "pass",
            CheckResult::Warn => "warn",
            CheckResult::Fail => "FAIL",
        }
    }
}

impl Verdict {
    /// The number of checks with this result.
    pub fn count(&self, result: CheckResult) -> usize {
        self.checks.iter().filter(|c| c.result == result).count()
    }

    /// The exit code of a failed gate: 10 if a threshold is missed, 11 if only a drop from the baseline
    /// failed.
    pub fn exit(&self) -> Option<Exit> {
        let failed = |drop: bool| {
            self.checks
                .iter()
                .any(|c| c.result == CheckResult::Fail && (c.kind == GateCheckKind::Drop) == drop)
        };
        match (failed(false), failed(true)) {
            (true, _) => Some(Exit::Gate),
            (false, true) => Some(Exit::Regression),
            (false, false) => None,
        }
    }

    /// The result in one line.
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
                format!(
                    "gate FAILED: {why}; {} of {of} check{} failed{warned}",
                    self.count(CheckResult::Fail),
                    if of == 1 { "" } else { "s" }
                )
            }
            None => format!("gate passed: {of} check{}{warned}", if of == 1 { "" } else { "s" }),
        }
    }

    /// The result for a terminal.
    pub fn render(&self) -> String {
        let width = self.checks.iter().map(|c| c.metric.chars().count()).max().unwrap_or(0);
        let line = |c: &GateCheck| format!("  {}  {:<width$}  {}\n", c.result.word(), c.metric, c.text);
        let note = self.note.as_ref().map(|note| format!("  note  {note}\n"));
        std::iter::once(self.headline() + "\n").chain(self.checks.iter().map(line)).chain(note).collect()
    }
}

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
    /// Whether a finding invalidates the report, and the user did not accept that, so that no gate passes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
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
    /// The metric's value; null if the report lacks a number of the baseline.
    pub found: Option<f64>,
    /// 95 % interval of the value.
    pub interval: Option<(f64, f64)>,
    /// Whether this value or the baseline's is withheld, so that reports for people show neither.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// Whether a drop was not decided: a number is withheld, contradicted or missing, or the baseline's is
    /// only known to be larger.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// The baseline's value, for drops.
    pub baseline: Option<f64>,
    /// Whether the baseline's value is only known to be larger.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baseline_above: bool,
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
    /// The bound is not met, at level warn or as chance explains, or a drop was not decided.
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

    /// The exit code, if the gate didn't pass: 12 if the report is not to be trusted, 10 if a threshold is
    /// missed, 11 if only drops from the baseline failed, 10 if none of these was decided.
    pub fn exit(&self) -> Option<Exit> {
        self.failure().map(|(exit, _)| exit)
    }

    /// The exit code, and the reason in words.
    fn failure(&self) -> Option<(Exit, &'static str)> {
        let failed =
            |of: fn(&GateCheck) -> bool| self.checks.iter().any(|c| c.result == CheckResult::Fail && of(c));
        if self.untrusted {
            Some((Exit::Untrusted, "the result is not to be trusted"))
        } else if failed(|c| c.kind != GateCheckKind::Drop) {
            Some((Exit::Gate, "threshold missed"))
        } else if failed(|c| !c.undecided) {
            Some((Exit::Regression, "regression against the baseline"))
        } else {
            failed(|_| true).then_some((Exit::Gate, "undecided against the baseline"))
        }
    }

    /// The result in one line.
    pub fn headline(&self) -> String {
        let warned = match self.count(CheckResult::Warn) {
            0 => String::new(),
            n => format!(", {n} warned"),
        };
        let of = self.checks.len();
        let s = if of == 1 { "" } else { "s" };
        match self.failure() {
            Some((Exit::Untrusted, why)) => format!("gate not judged: {why}"),
            Some((_, why)) => {
                let failed = self.count(CheckResult::Fail);
                format!("gate FAILED: {why}; {failed} of {of} check{s} failed{warned}")
            }
            None => format!("gate passed: {of} check{s}{warned}"),
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

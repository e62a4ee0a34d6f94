//! The gate: thresholds and a baseline against a report. One [`Verdict`] is behind both the text and the exit code.
//!
//! - A threshold (`min`, `max`) is held against the number that the report prints.
//! - A drop (`max_drop`) counts when the change for the worse exceeds the tolerance *and* the paired interval of the
//!   change leaves out zero: noise of the choice of queries doesn't fail a build. Benign metrics run over the whole
//!   gallery and have no interval; there the tolerance alone decides.

use crate::judge::compare::{Difference, Pair, mismatches};
use crate::report::Report;
use crate::report::metric::{Metric, row};
use crate::{Error, Exit, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Points that R@1 without attack, and the scores where no drop is named, may lose against a baseline. A model can buy
/// robustness with retrieval, up to collapse: R@1 is therefore always watched.
pub const TOLERANCE: f64 = 1.0;

/// Differences that are no more than rounding: 58 hits of 100 are 57.99999999999999 %.
const ROUNDING: f64 = 1e-9;

/// The metrics that a baseline is held to where no `max_drop` is given at all.
const WATCHED: [&str; 2] = ["ars", "ers"];

/// The metric that a baseline is always held to.
const ALWAYS: &str = "benign.r1";

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

/// What is demanded of one metric, as it stands in a suite's `gate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// The least it may be.
    pub min: Option<f64>,
    /// The most it may be.
    pub max: Option<f64>,
    /// The most it may lose against the baseline.
    pub max_drop: Option<f64>,
    /// What a failure leads to.
    #[serde(default)]
    pub level: Level,
}

/// A metric and what is demanded of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The metric.
    pub metric: Metric,
    /// The demand.
    pub demand: Demand,
}

/// Rules in the order they were given; no metric twice, but for what a baseline brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// The rules of a suite, overridden by flags such as `ars=45`. Errors (exit code 2): unknown metric, no number, or
    /// a bound on the side where it demands nothing.
    pub fn settle(suite: &[Rule], under: &[String], over: &[String], drop: &[String]) -> Result<Rules> {
        let mut rules = Rules(suite.to_vec());
        for (flag, texts) in [("--fail-under", under), ("--fail-over", over), ("--max-drop", drop)] {
            for text in texts {
                let (metric, value) = assignment(text).map_err(|e| e.context(flag))?;
                let demand = rules.demand(metric);
                demand.level = Level::Error;
                match flag {
                    "--fail-under" => demand.min = Some(value),
                    "--fail-over" => demand.max = Some(value),
                    _ => demand.max_drop = Some(value),
                }
            }
        }
        rules.0.iter().try_for_each(check)?;
        Ok(rules)
    }

    /// The demand on a metric, made if there is none.
    fn demand(&mut self, metric: Metric) -> &mut Demand {
        let at = self.0.iter().position(|r| r.metric == metric).unwrap_or_else(|| {
            self.0.push(Rule { metric, demand: Demand::default() });
            self.0.len() - 1
        });
        &mut self.0[at].demand
    }

    /// Every metric that is demanded something of.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.0.iter().filter(|r| r.demand.level != Level::Off).map(|r| &r.metric)
    }

    /// Whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// With what a baseline brings: R@1 is watched, and the scores unless drops are named.
    fn against(mut self, baseline: &Report, report: &Report) -> Result<Rules> {
        let named = self.0.iter().any(|r| r.demand.max_drop.is_some());
        for name in WATCHED.iter().filter(|_| !named).chain(&[ALWAYS]) {
            let metric = Metric::find(name)?;
            let both = metric.value(baseline).is_some() && metric.value(report).is_some();
            let own = self.0.iter().find(|r| r.metric == metric).map(|r| r.demand);
            let settled = own.is_some_and(|d| d.level == Level::Off || d.max_drop.is_some());
            if both && !settled {
                // A rule of its own, so that a threshold at level warn doesn't make this one a warning.
                self.0
                    .push(Rule { metric, demand: Demand { max_drop: Some(TOLERANCE), ..Demand::default() } });
            }
        }
        Ok(self)
    }
}

/// "ars=45"
fn assignment(text: &str) -> Result<(Metric, f64)> {
    let wrong = || Error::usage(format!("`{text}`: expected a metric and a number, such as ars=45"));
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value = value.trim().parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(wrong)?;
    Ok((Metric::find(name)?, value))
}

/// Refuses what can only be a mistake.
pub fn check(rule: &Rule) -> Result<()> {
    let Rule { metric, demand } = rule;
    let name = &metric.name;
    let stated = [("min", demand.min), ("max", demand.max), ("max_drop", demand.max_drop)];
    if let Some((which, value)) = stated.iter().find_map(|(k, v)| Some((k, v.filter(|v| !v.is_finite())?))) {
        return Err(Error::usage(format!(
            "{which} of {name} is {value}, with which nothing compares: state a number"
        )));
    }
    if stated.iter().all(|(_, value)| value.is_none()) && demand.level != Level::Off {
        return Err(Error::usage(format!(
            "{name} is demanded nothing of: state its min, max or max_drop, or level: off"
        )));
    }
    if demand.max_drop.is_some_and(|d| d < 0.0) {
        return Err(Error::usage(format!("max_drop of {name} is a tolerance: 0 or more")));
    }
    if metric.lower_is_better() && demand.min.is_some() {
        return Err(Error::usage(format!(
            "{name}: lower is more robust, so a lower bound demands nothing; state an upper one (--fail-over, max)"
        )));
    }
    if !metric.lower_is_better() && demand.max.is_some() {
        return Err(Error::usage(format!(
            "{name}: higher is more robust, so an upper bound demands nothing; state a lower one (--fail-under, min)"
        )));
    }
    Ok(())
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
    /// Holds a report against rules and a baseline. Errors (exit code 2): a metric that the report or the baseline
    /// lacks; a baseline made under other conditions.
    pub fn judge(report: &Report, baseline: Option<&Report>, rules: &Rules) -> Result<Verdict> {
        report.whole()?;
        baseline.map_or(Ok(()), |b| comparable(b, report))?;
        let rules = match baseline {
            Some(b) => rules.clone().against(b, report)?,
            None => rules.clone(),
        };
        let pair = baseline.map(|b| Pair::new(b, report)).transpose()?;
        let mut checks = Vec::new();
        for Rule { metric, demand } in rules.0.iter().filter(|r| r.demand.level != Level::Off) {
            let found = metric.value(report).ok_or_else(|| lacks("this report", report, metric))?;
            let worse = if metric.lower_is_better() { 1.0 } else { -1.0 };
            let interval = own_interval(report, metric);
            let spread = interval
                .map_or(String::new(), |(l, h)| format!(" (95 % {} – {})", metric.show(l), metric.show(h)));
            let mut add = |kind, limit, failed: bool, difference: Option<Difference>, text: String| {
                let result = match (failed, demand.level) {
                    (false, _) => CheckResult::Pass,
                    (true, Level::Error) => CheckResult::Fail,
                    (true, _) => CheckResult::Warn,
                };
                let baseline = difference.map(|d| found - d.value);
                let change_interval = difference.and_then(|d| d.interval);
                let metric = metric.name.clone();
                checks.push(Check {
                    metric,
                    kind,
                    limit,
                    found,
                    interval,
                    baseline,
                    change_interval,
                    result,
                    text,
                });
            };
            if let Some(min) = demand.min {
                let low = found < min - ROUNDING;
                let how = if low { "below the required" } else { "at least the required" };
                add(Kind::Min, min, low, None, format!("{}{spread}, {how} {min}", exact(metric, found, min)));
            }
            if let Some(max) = demand.max {
                let high = found > max + ROUNDING;
                let how = if high { "above the allowed" } else { "within the allowed" };
                add(
                    Kind::Max,
                    max,
                    high,
                    None,
                    format!("{}{spread}, {how} {max}", exact(metric, found, max)),
                );
            }
            if let (Some(tolerance), Some(pair), Some(base)) = (demand.max_drop, &pair, baseline) {
                let change = pair.difference(metric).ok_or_else(|| lacks("the baseline", base, metric))?;
                let drop = change.value * worse;
                let beyond = drop > tolerance + ROUNDING;
                let failed = beyond && change.counts();
                let spread = change.interval.map_or(String::new(), |(l, h)| {
                    format!(" (95 % {} … {})", metric.show_change(l), metric.show_change(h))
                });
                let how = match () {
                    _ if failed => format!("worse by more than the tolerance {tolerance}"),
                    _ if beyond => {
                        format!("beyond the tolerance {tolerance}, but no more than chance explains")
                    }
                    _ => format!("within the tolerance {tolerance}"),
                };
                let text = format!(
                    "{}, baseline {}: {}{spread}, {how}",
                    metric.show(found),
                    metric.show(found - change.value),
                    metric.show_change(change.value)
                );
                add(Kind::Drop, tolerance, failed, Some(change), text);
            }
        }
        let baseline =
            baseline.map(|b| Baseline { model: b.model.path.clone(), sha256: b.model.sha256.clone() });
        Ok(Verdict { baseline, checks })
    }

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

/// Refuses a baseline that no drop can be told from (exit code 2): made on other images, under another protocol, with other
/// trials. The report may lack its outcomes as yet.
pub fn comparable(baseline: &Report, report: &Report) -> Result<()> {
    baseline.whole().map_err(|e| e.context("--baseline"))?;
    let differs = mismatches(baseline, report);
    if differs.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the baseline was made under other conditions, so that no drop can be told. They differ in {}. Audit with \
         --baseline, which replays the baseline's trials, or save a new one with --save-baseline",
        differs.join("; in ")
    )))
}

/// With as many digits as it takes to see on which side of the bound a value lies.
fn exact(metric: &Metric, found: f64, bound: f64) -> String {
    let shown = metric.show(found);
    let (low, high) = (found < bound - ROUNDING, found > bound + ROUNDING);
    let same = shown.parse::<f64>().is_ok_and(|v| (v < bound) == low && (v > bound) == high);
    if same { shown } else { format!("{found}") }
}

fn own_interval(report: &Report, metric: &Metric) -> Option<(f64, f64)> {
    match metric.name.as_str() {
        "ars" => report.scores.ars.as_ref()?.interval,
        "ars.table" => report.scores.ars.as_ref()?.table_interval,
        "ers" => report.scores.ers.as_ref()?.interval,
        name => row(report, name.strip_prefix("attack.")?)?.after_interval,
    }
}

fn lacks(which: &str, report: &Report, metric: &Metric) -> Error {
    let has: Vec<String> =
        Metric::all().into_iter().filter(|m| m.value(report).is_some()).map(|m| m.name).collect();
    Error::usage(format!(
        "{which} has no `{}`: it is of suite {}{}. It has {}",
        metric.name,
        report.suite.name,
        report.scores.notes.first().map_or(String::new(), |n| format!(" ({n})")),
        has.join(", ")
    ))
}

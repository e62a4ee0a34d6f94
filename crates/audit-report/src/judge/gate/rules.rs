//! Rules of the gate, as suites and flags state them, and those that a baseline adds.

use crate::judge::quantity::{
    ARS, ARS_STRONG, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity, ROBUST, ROBUST_TOP1,
};
use crate::record::{Level, Report};
use audit_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The metrics that are checked against a baseline if no `max_drop` is stated.
const WATCHED: [&Quantity; 7] = [ROBUST, ROBUST_TOP1, EPS50, ARS, ERS, ARS_STRONG, MEDIAN_EPS];

/// The metric that is always checked against a baseline: a model can gain robustness by losing retrieval, up
/// to collapse.
const ALWAYS: &Quantity = CLEAN_R1;

/// The bounds of one metric, as in a suite's `gate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// The lowest value allowed.
    pub min: Option<f64>,
    /// The highest value allowed.
    pub max: Option<f64>,
    /// The largest loss allowed against the baseline.
    pub max_drop: Option<f64>,
    /// The consequence of a failure.
    #[serde(default)]
    pub level: Level,
}

impl Demand {
    /// The largest loss allowed, unless the rule is off.
    fn drop(&self) -> Option<f64> {
        self.max_drop.filter(|_| self.level != Level::Off)
    }

    /// Whether it has no bound.
    fn is_empty(&self) -> bool {
        self.min.is_none() && self.max.is_none() && self.max_drop.is_none()
    }
}

/// A condition of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The number of the report that is checked.
    pub metric: &'static Quantity,
    /// The bounds that it must keep.
    pub demand: Demand,
}

/// Rules in the order given. A metric occurs once for each level, and again in rules that a baseline adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(pub(super) Vec<Rule>);

impl Rules {
    /// The rules of a suite, overridden by flags such as `robust_r1=45`. A flag replaces one bound of the
    /// suite; the others keep their level. Errors (exit code 2): an unknown metric, a value that is not a
    /// number, or a bound on the side where every value passes.
    pub fn settle(suite: &[Rule], under: &[String], over: &[String], drop: &[String]) -> Result<Rules> {
        suite.iter().try_for_each(check)?;
        let mut rules = Rules(suite.to_vec());
        type Bound = fn(&mut Demand) -> &mut Option<f64>;
        let flags: [(&str, &[String], Bound); 3] = [
            ("--fail-under", under, |d| &mut d.min),
            ("--fail-over", over, |d| &mut d.max),
            ("--max-drop", drop, |d| &mut d.max_drop),
        ];
        for (flag, texts, bound) in flags {
            for text in texts {
                let (metric, value) = assignment(text).map_err(|e| e.context(flag))?;
                let of_suite = rules.0.iter_mut().filter(|rule| rule.metric == metric);
                of_suite.for_each(|rule| *bound(&mut rule.demand) = None);
                *bound(rules.demand(metric)) = Some(value);
            }
        }
        rules.0.retain(|rule| rule.demand.level == Level::Off || !rule.demand.is_empty());
        rules.0.iter().try_for_each(check)?;
        Ok(rules)
    }

    /// The bounds of a metric at level error. A rule is added if there is none.
    fn demand(&mut self, metric: &'static Quantity) -> &mut Demand {
        let strict = |r: &Rule| r.metric == metric && r.demand.level == Level::Error;
        let at = self.0.iter().position(strict).unwrap_or_else(|| {
            self.0.push(Rule { metric, demand: Demand::default() });
            self.0.len() - 1
        });
        &mut self.0[at].demand
    }

    /// The metrics that have a rule, except those with level off.
    pub fn metrics(&self) -> impl Iterator<Item = &'static Quantity> {
        self.0.iter().filter(|r| r.demand.level != Level::Off).map(|r| r.metric)
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some rule needs no baseline.
    pub fn have_bounds(&self) -> bool {
        let bounded = |demand: &Demand| demand.min.is_some() || demand.max.is_some();
        self.0.iter().any(|rule| rule.demand.level != Level::Off && bounded(&rule.demand))
    }

    /// The metrics whose drop has a bound.
    pub(super) fn drops(&self) -> impl Iterator<Item = &'static Quantity> {
        self.0.iter().filter(|r| r.demand.drop().is_some()).map(|r| r.metric)
    }

    /// Whether the drop of a metric has a bound, or is switched off.
    fn settles(&self, metric: &Quantity) -> bool {
        let settled = |demand: &Demand| demand.level == Level::Off || demand.max_drop.is_some();
        self.0.iter().any(|rule| rule.metric == metric && settled(&rule.demand))
    }

    /// Whether drops are stated that replace the default ones. R@1 is always watched, so that its own bound
    /// replaces nothing.
    fn replace_watched(&self) -> bool {
        self.drops().any(|metric| metric != ALWAYS)
    }

    /// Adds the rules of a baseline: R@1, and the scores unless drops are stated. The baseline has these
    /// numbers.
    pub(super) fn against(mut self, baseline: &Report) -> Rules {
        let replaced = self.replace_watched();
        let watched = WATCHED.into_iter().filter(|_| !replaced).chain([ALWAYS]);
        let found = watched.filter(|metric| metric.value(baseline).is_some() && !self.settles(metric));
        // A separate rule, so that a threshold with level warn does not make this one a warning.
        let rule = |metric: &'static Quantity| {
            let demand = Demand { max_drop: Some(metric.tolerance), ..Demand::default() };
            Rule { metric, demand }
        };
        let added: Vec<Rule> = found.map(rule).collect();
        self.0.extend(added);
        self
    }

    /// The metrics that are compared with a baseline: those whose drop has a bound, and those that the
    /// baseline adds.
    pub fn compared(&self, baseline: &Report) -> Vec<&'static Quantity> {
        self.clone().against(baseline).drops().collect()
    }

    /// The metrics of a baseline that are not compared, because the drops of others are stated.
    pub(super) fn unwatched(&self, baseline: &Report) -> Vec<&'static Quantity> {
        let replaced = WATCHED.into_iter().filter(|_| self.replace_watched());
        replaced.filter(|metric| metric.value(baseline).is_some() && !self.settles(metric)).collect()
    }

    /// The metrics that would be watched if the baseline had them, as the report does.
    pub(super) fn missed(&self, baseline: &Report, report: &Report) -> Vec<&'static Quantity> {
        let watched = WATCHED.into_iter().filter(|_| !self.replace_watched());
        let missed = |metric: &&Quantity| metric.value(baseline).is_none() && metric.value(report).is_some();
        watched.filter(missed).filter(|metric| !self.settles(metric)).collect()
    }
}

/// Parses "robust_r1=45".
fn assignment(text: &str) -> Result<(&'static Quantity, f64)> {
    let wrong = || Error::usage(format!("`{text}`: expected a metric and a number, such as robust_r1=45"));
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value = value.trim().parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(wrong)?;
    Ok((Quantity::find(name)?, value))
}

/// Refuses a rule that cannot be intended. Errors: exit code 2.
pub fn check(rule: &Rule) -> Result<()> {
    let Rule { metric, demand } = rule;
    let name = metric.name;
    let stated = [("min", demand.min), ("max", demand.max), ("max_drop", demand.max_drop)];
    if let Some((which, value)) = stated.iter().find_map(|(k, v)| Some((k, v.filter(|v| !v.is_finite())?))) {
        return Err(Error::usage(format!(
            "{which} of {name} is {value}, which can't be compared: state a number"
        )));
    }
    if stated.iter().all(|(_, value)| value.is_none()) && demand.level != Level::Off {
        return Err(Error::usage(format!(
            "the rule for `{name}` has no bound. Set min, max or max_drop, or level: off"
        )));
    }
    if demand.max_drop.is_some_and(|d| d < 0.0) {
        let drop = demand.max_drop.unwrap_or_default();
        return Err(Error::usage(format!("max_drop of {name} is {drop}: expected 0 or more")));
    }
    if metric.lower_is_better && demand.min.is_some() {
        return Err(Error::usage(format!(
            "{name}: lower is more robust, so a lower bound checks nothing. Set an upper one (--fail-over, max)"
        )));
    }
    if !metric.lower_is_better && demand.max.is_some() {
        return Err(Error::usage(format!(
            "{name}: higher is more robust, so an upper bound checks nothing. Set a lower one (--fail-under, min)"
        )));
    }
    Ok(())
}

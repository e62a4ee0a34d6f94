//! The gate: checks a report against thresholds and a baseline. The text and the exit code come from the same
//! [`Verdict`].
//!
//! - A threshold (`min`, `max`) applies to the number that the report prints.
//! - A drop (`max_drop`) fails if the loss exceeds the tolerance *and* its paired interval excludes zero, so
//!   that noise from the choice of queries does not fail a build. A clean metric of all queries has no such
//!   noise: the tolerance alone decides.
//! - A number that rests on fewer than 10 queries, or whose interval is too wide, is withheld and meets no
//!   bound.
//! - A checked number is computed again from the outcomes. A report whose outcomes contradict it is refused.

use crate::judge::breakdown::{self, breakdowns};
use crate::judge::compare::mismatches;
use crate::judge::paired::PairedReports;
use crate::judge::quantity::{
    self, ARS, ARS_STRONG, CLEAN_R1, EPS50, ERS, Follows, LISTED, Needs, Quantity, ROBUST, ROBUST_TOP1,
};
use crate::judge::row::{Difference, Row, State};
use crate::judge::score::{self, Resampled};
use crate::judge::{corruption, strong};
use crate::record::{Baseline, Breakdown, CheckResult, GateCheck, GateCheckKind, Level, Report, Verdict};
use audit_base::error::nearest;
use audit_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The baseline in messages.
const BASELINE: &str = "the baseline";

/// Differences up to this size are rounding errors: 58 hits of 100 are 57.99999999999999 %.
const ROUNDING: f64 = 1e-9;

/// The metrics that are checked against a baseline if no `max_drop` is stated.
const WATCHED: [&Quantity; 6] = [ROBUST, ROBUST_TOP1, EPS50, ARS, ERS, ARS_STRONG];

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

/// A condition of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The number of the report that is checked.
    pub metric: &'static Quantity,
    /// The bounds that it must keep.
    pub demand: Demand,
}

/// Rules in the order given. No metric occurs twice, except in rules that a baseline adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// The rules of a suite, overridden by flags such as `robust_r1=45`. Errors (exit code 2): an unknown
    /// metric, a value that is not a number, or a bound on the side where every value passes.
    pub fn settle(suite: &[Rule], under: &[String], over: &[String], drop: &[String]) -> Result<Rules> {
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
                let demand = rules.demand(metric);
                demand.level = Level::Error;
                *bound(demand) = Some(value);
            }
        }
        rules.0.iter().try_for_each(check)?;
        Ok(rules)
    }

    /// The bounds of a metric. A rule is added if there is none.
    fn demand(&mut self, metric: &'static Quantity) -> &mut Demand {
        let at = self.0.iter().position(|r| r.metric == metric).unwrap_or_else(|| {
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

    /// The metrics whose drop is not checked, because there is no baseline.
    fn drops(&self) -> Vec<&'static str> {
        let drops = self.0.iter().filter(|r| r.demand.level != Level::Off && r.demand.max_drop.is_some());
        drops.map(|rule| rule.metric.name).collect()
    }

    /// Adds the rules of a baseline: R@1, and the scores unless a drop is stated for any metric.
    fn against(mut self, baseline: &Report, report: &Report) -> Rules {
        let named = self.0.iter().any(|r| r.demand.max_drop.is_some());
        for metric in WATCHED.into_iter().filter(|_| !named).chain([ALWAYS]) {
            // If only one has it, `judge` refuses to compare.
            let any = metric.value(baseline).is_some() || metric.value(report).is_some();
            let own = self.0.iter().find(|r| r.metric == metric).map(|r| r.demand);
            let settled = own.is_some_and(|d| d.level == Level::Off || d.max_drop.is_some());
            if any && !settled {
                // This is a separate rule, so that a threshold with level warn does not make this one a
                // warning.
                let demand = Demand { max_drop: Some(metric.tolerance), ..Demand::default() };
                self.0.push(Rule { metric, demand });
            }
        }
        self
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

impl Verdict {
    /// Checks a report against rules and a baseline. Errors: the report or the baseline lacks a metric, or
    /// the baseline was made under other conditions (exit code 2); the report is a part of a run (exit code
    /// 13).
    pub fn judge(report: &Report, baseline: Option<&Report>, rules: &Rules) -> Result<Verdict> {
        report.whole()?;
        let mut rules = rules.clone();
        let stated = rules.0.len();
        let mut against = None;
        if let Some(baseline) = baseline {
            comparable(baseline, report)?;
            rules = rules.against(baseline, report);
            against = Some((baseline, PairedReports::new(baseline, report)));
        }
        let mut checks = Vec::new();
        let recomputed = Recomputed::new("this report", report);
        let of_baseline = baseline.map(|b| Recomputed::new(BASELINE, b));
        for (i, Rule { metric, demand }) in
            rules.0.iter().enumerate().filter(|(_, r)| r.demand.level != Level::Off)
        {
            let found = metric.value(report).ok_or_else(|| lacks("this report", report, metric))?;
            recomputed.agrees(metric)?;
            if let (Some(_), Some(of_baseline)) = (demand.max_drop, &of_baseline) {
                of_baseline.agrees(metric)?;
            }
            let held = CheckedNumber { row: metric.row(report), level: demand.level, found };
            let undecided = held.row.undecided();
            if let Some(why) = &undecided {
                checks.extend(demand.min.map(|min| held.withheld(GateCheckKind::Min, min, why)));
                checks.extend(demand.max.map(|max| held.withheld(GateCheckKind::Max, max, why)));
            } else {
                checks.extend(demand.min.map(|min| held.at_least(min, report)));
                checks.extend(demand.max.map(|max| held.threshold(GateCheckKind::Max, max)));
            }
            if let (Some(tolerance), Some((base, pair))) = (demand.max_drop, &against) {
                let before = metric.value(base).ok_or_else(|| lacks(BASELINE, base, metric))?;
                let rows = [held.row.clone(), metric.row(base)];
                let why = undecided.or_else(|| Some(format!("in the baseline {}", rows[1].undecided()?)));
                if let Some(why) = why {
                    // A score that nobody requested only warns if its interval is too wide.
                    let few = rows.iter().any(|row| row.few().is_some());
                    let level = if i < stated || few { held.level } else { Level::Warn };
                    let check = CheckedNumber { level, ..held.clone() }.withheld(
                        GateCheckKind::Drop,
                        tolerance,
                        &why,
                    );
                    checks.push(GateCheck { baseline: Some(before), ..check });
                    continue;
                }
                let change = pair.difference(metric).ok_or_else(|| lacks(BASELINE, base, metric))?;
                // If all clean queries are ranked, not a sample of them, the tolerance alone decides.
                let sampled = |r: &Report| r.benign.as_ref().is_some_and(|b| b.sampling.is_some());
                let all =
                    matches!(metric.follows(), Follows::Clean(..)) && !sampled(report) && !sampled(base);
                let interval = change.interval.filter(|_| !all);
                let change = Difference { interval, ..change };
                let refuted = strong::refuted(report, metric)
                    .or_else(|| Some(format!("in the baseline {}", strong::refuted(base, metric)?)));
                checks.push(held.drop(tolerance, &rows[1], change, refuted, i < stated));
            }
        }
        let baseline =
            baseline.map(|b| Baseline { model: b.model.path.clone(), sha256: b.model.sha256.clone() });
        let strong = report.scores.robust_r1.is_some() || report.outcomes.iter().any(|o| o.members.is_some());
        let published = match report.suite.surrogate {
            None => {
                "Judged on published numbers only: the strong search attacked no query, so that a stronger attack may find less \
                 robustness. Leave out --strong-sample off"
            }
            Some(_) => {
                "Judged on transfer attacks only: attacks on the model itself may find less robustness"
            }
        };
        let drops = rules.drops();
        let unchecked = (baseline.is_none() && !drops.is_empty()).then(|| {
            format!(
                "The drop of {} was not checked, as there is no baseline. Add --baseline FILE",
                drops.join(", ")
            )
        });
        let notes: Vec<String> =
            (!strong).then(|| published.to_string()).into_iter().chain(unchecked).collect();
        let note = Some(notes.join(". ")).filter(|note| !note.is_empty());
        Ok(Verdict { baseline, checks, note })
    }
}

/// A report's numbers, computed from its outcomes.
struct Recomputed<'r> {
    which: &'static str,
    report: &'r Report,
    again: Resampled,
    breakdowns: Vec<Breakdown>,
}

impl<'r> Recomputed<'r> {
    fn new(which: &'static str, report: &'r Report) -> Recomputed<'r> {
        Recomputed { which, report, again: score::once(report), breakdowns: breakdowns(report) }
    }

    /// Refuses a saved number that the outcomes contradict (exit code 2). Benign metrics don't follow from
    /// outcomes.
    fn agrees(&self, metric: &Quantity) -> Result<()> {
        /// Share of a number by which versions of the program may differ.
        const SAME: f64 = 1e-6;
        let Some(saved) = metric.value(self.report) else { return Ok(()) };
        let now = match metric.follows() {
            Follows::Clean(..) => return Ok(()),
            Follows::Corruptions(mean, _) => {
                corruption::corruptions(self.report).and_then(|all| Some(mean(&all)?.value))
            }
            Follows::Outcomes(value) => self.again.replicates.first().and_then(|all| value(&self.again, all)),
        };
        // False for NaN.
        let same = |now: f64, saved: f64| (now - saved).abs() <= SAME * saved.abs().max(1.0);
        // A bound on the worst of several is compared with its interval.
        let intervals = metric.part_of.map(|(of, by)| {
            let now = quantity::breakdown(&self.breakdowns, of, by).map(|b| b.interval);
            [metric.saved(self.report).and_then(|saved| saved.interval), now]
        });
        let equal = |[a, b]: &[Option<(f64, f64)>; 2]| {
            a.zip(*b).is_some_and(|(a, b)| same(a.0, b.0) && same(a.1, b.1))
        };
        let differ = |what: &str, saved: String, now: Option<String>| {
            Err(Error::usage(format!(
                "{}: {what} `{}` is saved as {saved}, and the {} outcomes of the file give {}. The file was edited or damaged: audit \
                 the model again",
                self.which,
                metric.name,
                self.report.outcomes.len(),
                now.unwrap_or("none".into())
            )))
        };
        if !now.is_some_and(|now| same(now, saved)) {
            return differ("the number", saved.to_string(), now.map(|now| now.to_string()));
        }
        match intervals.filter(|both| !equal(both)) {
            None => Ok(()),
            Some(both) => {
                let [saved, now] = both.map(|one| one.map(|(low, high)| format!("{low} – {high}")));
                differ("the 95 % interval of", saved.unwrap_or("none".into()), now)
            }
        }
    }
}

/// A number of the report, with the data for its checks.
#[derive(Clone)]
struct CheckedNumber {
    row: Row,
    level: Level,
    /// The saved value, which a verdict in JSON has even if it is withheld.
    found: f64,
}

impl CheckedNumber {
    /// The ε beside the number.
    fn eps_note(&self) -> String {
        self.row.budget.as_ref().map_or(String::new(), |budget| format!(" at {budget}"))
    }

    /// Checks the number against a bound.
    fn threshold(&self, kind: GateCheckKind, bound: f64) -> GateCheck {
        let (metric, found) = (self.row.quantity, self.found);
        // The worst of several numbers is beyond a bound by chance if its interval reaches the bound.
        let reaches = |(low, high)| if kind == GateCheckKind::Max { low <= bound } else { high >= bound };
        let by_chance = metric.part_of.is_some() && self.row.interval.is_some_and(reaches);
        let (failed, how) = match kind {
            GateCheckKind::Max if found > bound + ROUNDING && by_chance => {
                (false, "the highest of several is high by chance, and its interval reaches the allowed")
            }
            GateCheckKind::Max if found > bound + ROUNDING => (true, "above the allowed"),
            GateCheckKind::Max => (false, "within the allowed"),
            _ if found < bound - ROUNDING && by_chance => {
                (false, "the lowest of several is low by chance, and its interval reaches the required")
            }
            _ if found < bound - ROUNDING && self.row.is_above() => {
                (true, "the largest ε that was searched, which does not show the required")
            }
            _ if found < bound - ROUNDING => (true, "below the required"),
            _ => (false, "at least the required"),
        };
        let spread = self.row.spread().map_or(String::new(), |spread| format!(" (95 % {spread})"));
        let above = if self.row.is_above() { "above " } else { "" };
        let text =
            format!("{above}{}{}{spread}, {how} {bound}", exact(metric, found, bound), self.eps_note());
        self.check(kind, bound, failed, text)
    }

    /// A number that is withheld meets no bound.
    fn withheld(&self, kind: GateCheckKind, bound: f64, why: &str) -> GateCheck {
        let text =
            format!("{}: {why}, so that it meets no bound. Audit more queries", State::Withheld.text());
        GateCheck { withheld: true, ..self.check(kind, bound, true, text) }
    }

    /// Checks the number against a lower bound. A contradicted number fails too.
    fn at_least(&self, bound: f64, report: &Report) -> GateCheck {
        let check = self.threshold(GateCheckKind::Min, bound);
        match strong::refuted(report, self.row.quantity) {
            Some(why) if check.result == CheckResult::Pass => {
                let text = format!("{}, but {why}. Gate on robust_r1", check.text);
                self.check(GateCheckKind::Min, bound, true, text)
            }
            _ => check,
        }
    }

    /// Checks the number against that of the baseline, from which it differs by `change`. `refuted` is why
    /// one of the two numbers is too high. A stated rule then fails; a default rule warns, and robust R@1
    /// decides.
    fn drop(
        &self,
        tolerance: f64,
        base: &Row,
        change: Difference,
        refuted: Option<String>,
        stated: bool,
    ) -> GateCheck {
        let (metric, found) = (self.row.quantity, self.found);
        let drop = if metric.lower_is_better { change.value } else { -change.value };
        let beyond = drop > tolerance + ROUNDING;
        let failed = beyond && change.significant() != Some(false);
        let spread = change.interval.map_or(String::new(), |(l, h)| {
            format!(" (95 % {} … {})", metric.show_change(l), metric.show_change(h))
        });
        let how = match (beyond, failed) {
            (_, true) => format!("worse by more than the tolerance {tolerance}"),
            (true, false) => format!("beyond the tolerance {tolerance}, but no more than chance explains"),
            (false, false) => format!("within the tolerance {tolerance}"),
        };
        // With the usual digits, a change beyond the tolerance may look equal to it.
        let shown = metric.show_change(change.value);
        let rounded = shown.parse::<f64>().map(|v| if metric.lower_is_better { v } else { -v });
        let told_apart = rounded.is_ok_and(|drop| (drop > tolerance + ROUNDING) == beyond);
        let shown = if told_apart { shown } else { format!("{:+.*}", metric.digits + 2, change.value) };
        let result = match self.row.is_above() && base.is_above() {
            true => "both are above the largest ε that was searched".to_string(),
            false => format!("{shown}{spread}, {how}"),
        };
        let text = format!("{}{}, baseline {}: {result}", self.row.number(), self.eps_note(), base.number());
        let check = match refuted {
            Some(why) if !failed => {
                let level = if stated { self.level } else { Level::Warn };
                CheckedNumber { level, ..self.clone() }.check(
                    GateCheckKind::Drop,
                    tolerance,
                    true,
                    format!("{text}, but {why}. Gate on robust_r1"),
                )
            }
            _ => self.check(GateCheckKind::Drop, tolerance, failed, text),
        };
        GateCheck { baseline: Some(found - change.value), change_interval: change.interval, ..check }
    }

    fn check(&self, kind: GateCheckKind, limit: f64, failed: bool, text: String) -> GateCheck {
        let result = match (failed, self.level) {
            (false, _) => CheckResult::Pass,
            (true, Level::Error) => CheckResult::Fail,
            (true, _) => CheckResult::Warn,
        };
        GateCheck {
            metric: self.row.quantity.name.into(),
            kind,
            limit,
            found: self.found,
            interval: self.row.interval,
            withheld: false,
            baseline: None,
            change_interval: None,
            result,
            text,
        }
    }
}

/// Refuses rules about an ε that is not measured, and about classes or groups with too few queries (exit code
/// 2). The report need not have outcomes yet.
pub fn refuse_unmeasured(rules: &Rules, report: &Report) -> Result<()> {
    let lacking = rules.metrics().find_map(|metric| Some((metric, lacking(report, metric)?)));
    lacking.map_or(Ok(()), |(metric, why)| {
        Err(Error::usage(format!(
            "the gate has a rule for `{}`, which this audit can't measure: {why}",
            metric.name
        )))
    })
}

/// Refuses a baseline that is not comparable with the report (exit code 2): made on other images, under
/// another protocol or with other trials. The report need not have outcomes yet.
pub fn comparable(baseline: &Report, report: &Report) -> Result<()> {
    baseline.whole().map_err(|e| e.context("--baseline"))?;
    let differs = mismatches(baseline, report);
    if differs.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the baseline was made under other conditions and can't be compared: the reports differ in {}. To make comparable ones, \
         audit the new model with the baseline's suite, data and trials: audit MODEL --data … --suite {} --baseline BASE.json judges \
         at once, and audit MODEL --data … --suite {} --trials BASE.json -o NEW.json makes a report for `audit gate NEW.json \
         --baseline BASE.json`. To begin with a new baseline: --save-baseline",
        differs.join("; in "),
        baseline.suite.name,
        baseline.suite.name
    )))
}

/// Formats a value with enough digits to show on which side of the bound it is.
fn exact(metric: &Quantity, found: f64, bound: f64) -> String {
    let shown = metric.show(found);
    let (low, high) = (found < bound - ROUNDING, found > bound + ROUNDING);
    let same = shown.parse::<f64>().is_ok_and(|v| (v < bound) == low && (v > bound) == high);
    if same { shown } else { format!("{found}") }
}

/// Why a report can't have the metric.
fn lacking(report: &Report, metric: &Quantity) -> Option<String> {
    metric.beside_ladder(report).or_else(|| breakdown::lacking(report, metric))
}

fn lacks(which: &str, report: &Report, metric: &'static Quantity) -> Error {
    let has: Vec<&str> = Quantity::of(report).filter(|m| m.value(report).is_some()).map(|m| m.name).collect();
    let whole = metric.whole();
    let beside = whole.beside(report.data.has_classes()).map(str::to_string);
    let unmeasured = || {
        let row = whole.row(report);
        row.why.filter(|_| whole.is_robust() && row.state == State::NotMeasured)
    };
    let save = if which == BASELINE { ". Make a new baseline: --save-baseline" } else { "" };
    if let Some(why) = beside.or_else(|| lacking(report, metric)).or_else(unmeasured) {
        return Error::usage(format!("{which} has no `{}`: {why}{save}", metric.name));
    }
    let note = match metric.needs {
        Needs::Score(of) => report.scores.notes.iter().find(|n| n.starts_with(&format!("no {of}: "))),
        _ => None,
    };
    Error::usage(format!(
        "{which} has no `{}`: it is of suite {}{}. It has {} other metrics; the nearest are {}. {LISTED}{save}",
        metric.name,
        report.suite.name,
        note.map_or(String::new(), |note| format!(" ({note})")),
        has.len(),
        nearest(metric.name, &has)
    ))
}

//! The gate: checks a report against thresholds and a baseline. The text and the exit code come from the same
//! [`Verdict`].
//!
//! - A threshold (`min`, `max`) applies to the number that the report prints.
//! - A drop (`max_drop`) fails if the loss exceeds the tolerance *and* its paired interval excludes zero, so
//!   that noise from the choice of queries does not fail a build. A clean metric of all queries has no such
//!   noise: the tolerance alone decides. A loss beyond the tolerance that chance explains is a warning.
//! - A number that rests on fewer than 10 queries, or whose interval is too wide, is withheld and meets no
//!   bound.
//! - A drop is undecided if a number is withheld, contradicted or missing, or if the baseline's is only known
//!   to be larger. It is never called a regression.
//! - A checked number is computed again from the outcomes. A report whose outcomes contradict it is refused.
//! - No gate passes on a report that is not to be trusted, and a baseline that is not is refused.

use crate::judge::breakdown::{self, breakdowns};
use crate::judge::compare::{self, mismatches};
use crate::judge::paired::PairedReports;
use crate::judge::quantity::{
    self, ARS, ARS_STRONG, CLEAN_R1, Clean, EPS50, ERS, Follows, LISTED, Needs, Quantity, ROBUST, ROBUST_TOP1,
};
use crate::judge::row::{Difference, ROUNDING, Row, State};
use crate::judge::score::{self, Resampled};
use crate::judge::{corruption, strong};
use crate::record::reason::NO_CLUSTERING;
use crate::record::{Baseline, Breakdown, CheckResult, GateCheck, GateCheckKind, Level, Report, Verdict};
use audit_base::error::nearest;
use audit_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The baseline in messages.
const BASELINE: &str = "the baseline";

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
pub struct Rules(Vec<Rule>);

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
    fn drops(&self) -> impl Iterator<Item = &'static Quantity> {
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
    fn against(mut self, baseline: &Report) -> Rules {
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
    fn unwatched(&self, baseline: &Report) -> Vec<&'static Quantity> {
        let replaced = WATCHED.into_iter().filter(|_| self.replace_watched());
        replaced.filter(|metric| metric.value(baseline).is_some() && !self.settles(metric)).collect()
    }

    /// The metrics that would be watched if the baseline had them, as the report does.
    fn missed(&self, baseline: &Report, report: &Report) -> Vec<&'static Quantity> {
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

impl Verdict {
    /// Checks a report against rules and a baseline. Errors: the report or the baseline lacks a metric that a
    /// rule states, the baseline is not to be trusted, or was made under other conditions (exit code 2); the
    /// report is a part of a run (exit code 13).
    pub fn judge(report: &Report, baseline: Option<&Report>, rules: &Rules) -> Result<Verdict> {
        report.whole()?;
        let (mut all, stated) = (rules.clone(), rules.0.len());
        let mut against = None;
        if let Some(baseline) = baseline {
            comparable(baseline, report)?;
            refuse_baseline(rules, baseline)?;
            all = all.against(baseline);
            against = Some((baseline, PairedReports::new(baseline, report)));
        }
        let mut checks = Vec::new();
        let recomputed = Recomputed::new("this report", report);
        for (i, Rule { metric, demand }) in
            all.0.iter().enumerate().filter(|(_, r)| r.demand.level != Level::Off)
        {
            let drop = demand.max_drop.zip(against.as_ref());
            let Some(found) = metric.value(report) else {
                // A model that loses a number of the baseline is no mistake of the user.
                let only_drop = demand.min.is_none() && demand.max.is_none();
                let Some((tolerance, (base, _))) = drop.filter(|_| only_drop) else {
                    return Err(lacks("this report", report, metric));
                };
                let rows = [metric.row(report), metric.row(base)];
                checks.push(unmeasured(rows, demand.level, tolerance, metric.value(base)));
                continue;
            };
            recomputed.agrees(metric)?;
            let row = metric.row(report);
            // Reports of earlier versions have a wider interval of the worst of several.
            let interval = recomputed.breakdown(metric).map(|found| found.interval).or(row.interval);
            let doubt = doubt(report, &row);
            let held = CheckedNumber { row: Row { interval, ..row }, level: demand.level, found, doubt };
            let undecided = held.row.undecided();
            let bounds = [(GateCheckKind::Min, demand.min), (GateCheckKind::Max, demand.max)];
            for (kind, bound) in bounds.into_iter().filter_map(|(kind, bound)| Some((kind, bound?))) {
                checks.push(match &undecided {
                    Some(why) => held.withheld(kind, bound, why),
                    None => held.bounded(kind, bound),
                });
            }
            let Some((tolerance, (base, pair))) = drop else { continue };
            let before = metric.value(base).ok_or_else(|| lacks(BASELINE, base, metric))?;
            let of_base = metric.row(base);
            let why = undecided.or_else(|| Some(format!("in the baseline {}", of_base.undecided()?)));
            if let Some(why) = why {
                // A score that nobody requested only warns if its interval is too wide.
                let few = [&held.row, &of_base].iter().any(|row| row.few().is_some());
                let level = if i < stated || few { held.level } else { Level::Warn };
                let check = CheckedNumber { level, ..held }.withheld(GateCheckKind::Drop, tolerance, &why);
                checks.push(GateCheck { baseline: Some(before), ..check });
                continue;
            }
            let change = pair.difference(metric).ok_or_else(|| lacks(BASELINE, base, metric))?;
            checks.push(held.drop(tolerance, (base, &of_base), change, i < stated));
        }
        if let Some((base, _)) = &against {
            checks.extend(rules.missed(base, report).into_iter().map(|metric| uncompared(metric, report)));
        }
        Ok(Verdict {
            baseline: baseline
                .map(|b| Baseline { model: b.model.path.clone(), sha256: b.model.sha256.clone() }),
            checks,
            note: note(report, baseline, rules),
            untrusted: report.untrusted(),
        })
    }
}

/// What a verdict doesn't cover.
fn note(report: &Report, baseline: Option<&Report>, rules: &Rules) -> Option<String> {
    let strong = report.scores.robust_r1.is_some() || report.outcomes.iter().any(|o| o.members.is_some());
    let published = match report.suite.surrogate {
        None => {
            "Judged on published numbers only: the strong search attacked no query, so that a stronger attack may find less \
             robustness. Leave out --strong-sample off"
        }
        Some(_) => "Judged on transfer attacks only: attacks on the model itself may find less robustness",
    };
    let names = |metrics: &[&Quantity]| metrics.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
    let unchecked = match baseline {
        None => {
            let drops: Vec<_> = rules.drops().collect();
            (!drops.is_empty()).then(|| {
                format!(
                    "The drop of {} was not checked, as there is no baseline. Add --baseline FILE",
                    names(&drops)
                )
            })
        }
        Some(baseline) => {
            let unwatched = rules.unwatched(baseline);
            let flag = |metric: &&Quantity| format!("--max-drop {}={}", metric.name, metric.tolerance);
            let flags: Vec<String> = unwatched.iter().map(flag).collect();
            (!flags.is_empty()).then(|| {
                format!(
                    "The drop of {} was not checked, as max_drop is stated for other metrics. Add {}",
                    names(&unwatched),
                    flags.join(" ")
                )
            })
        }
    };
    let void = baseline.is_some_and(|base| rules.compared(base).iter().any(|metric| metric.void(base)));
    let accepted =
        void.then(|| "The baseline is not to be trusted: it was made with --allow-untrusted".into());
    let published = (!strong).then(|| published.to_string());
    let notes = [published, unchecked, accepted].into_iter().flatten();
    let notes: Vec<String> = notes.chain(doubts(report, baseline)).collect();
    Some(notes.join(". ")).filter(|note| !note.is_empty())
}

/// What a reader of the verdict must know of the attacks' strength. Transfer attacks have their own note.
fn doubts(report: &Report, baseline: Option<&Report>) -> Vec<String> {
    let own = compare::strength(report).into_iter().filter(|_| report.suite.surrogate.is_none());
    // A comparable baseline has the caveats of the report.
    let of_baseline = baseline.and_then(compare::left_out).map(|text| format!("Baseline: {text}"));
    let of_both = baseline.map(|base| compare::of_both(base, report)).unwrap_or_default();
    own.chain(of_baseline).chain(of_both).collect()
}

/// The metrics that a model has lost or is worse in than the baseline, by however little a report shows. On
/// another machine, the further digits of one model's numbers differ.
pub fn worse(verdict: &Verdict) -> Vec<&str> {
    let worse = |check: &&GateCheck| {
        let metric = Quantity::find(&check.metric).ok();
        let sign = if metric.is_some_and(|of| of.lower_is_better) { -1.0 } else { 1.0 };
        let shown = 0.5 * 0.1f64.powi(metric.map_or(1, |of| of.digits) as i32);
        let lost = |before: f64| check.found.is_none_or(|found| sign * (before - found) > shown);
        check.kind == GateCheckKind::Drop && check.baseline.is_some_and(lost)
    };
    verdict.checks.iter().filter(worse).map(|check| check.metric.as_str()).collect()
}

/// Why a number of a report meets no bound, though it is shown: a finding invalidates it, and the user did
/// not accept that, or a stronger attack contradicts it.
fn doubt(report: &Report, row: &Row) -> Option<String> {
    if row.void && !report.allow_untrusted {
        return Some("it is not to be trusted".into());
    }
    Some(format!("{}. Gate on robust_r1", strong::refuted(report, row.quantity)?))
}

/// The check of a number that the baseline has and the report lacks.
fn unmeasured([row, base]: [Row; 2], level: Level, limit: f64, baseline: Option<f64>) -> GateCheck {
    let why = row.why.as_deref().unwrap_or_default();
    let text = format!(
        "{}: {why}, so that it can't be compared with the baseline's {}",
        row.state.text(),
        base.number()
    );
    GateCheck { baseline, baseline_above: base.is_above(), ..lone(row.quantity, level, limit, None, text) }
}

/// The check of a watched number that the report has and the baseline lacks: a warning.
fn uncompared(metric: &'static Quantity, report: &Report) -> GateCheck {
    let row = metric.row(report);
    let text = format!(
        "{}{}, and the baseline has none: its drop was not checked. Make a new baseline: --save-baseline",
        row.number(),
        eps_note(&row)
    );
    let check = lone(metric, Level::Warn, metric.tolerance, metric.value(report), text);
    GateCheck { interval: row.interval, withheld: row.state == State::Withheld, ..check }
}

/// The check of a drop if only one of the two reports has the number.
fn lone(metric: &Quantity, level: Level, limit: f64, found: Option<f64>, text: String) -> GateCheck {
    let result = Answer::Undecided.at(level);
    GateCheck {
        metric: metric.name.into(),
        kind: GateCheckKind::Drop,
        limit,
        found,
        interval: None,
        withheld: false,
        undecided: true,
        baseline: None,
        baseline_above: false,
        change_interval: None,
        result,
        text,
    }
}

/// What a check found.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// The bound is met.
    Met,
    /// It is not met, which chance may explain.
    Chance,
    /// It is not met.
    Missed,
    /// Whether it is met is unknown.
    Undecided,
}

impl Answer {
    /// The result of a check of this level.
    fn at(self, level: Level) -> CheckResult {
        match (self, level) {
            (Answer::Met, _) => CheckResult::Pass,
            (Answer::Missed | Answer::Undecided, Level::Error) => CheckResult::Fail,
            (Answer::Chance | Answer::Missed | Answer::Undecided, _) => CheckResult::Warn,
        }
    }
}

/// The ε beside a number.
fn eps_note(row: &Row) -> String {
    row.budget.as_ref().map_or(String::new(), |budget| format!(" at {budget}"))
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

    /// The classes or groups of which `metric` is the worst.
    fn breakdown(&self, metric: &Quantity) -> Option<&Breakdown> {
        let (of, by) = metric.part_of?;
        quantity::breakdown(&self.breakdowns, of, by)
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
            Follows::Outcomes(value, _) => {
                self.again.replicates.first().and_then(|all| value(&self.again, all))
            }
        };
        // False for NaN.
        let same = |now: f64, saved: f64| (now - saved).abs() <= SAME * saved.abs().max(1.0);
        // A bound on the worst of several is compared with its interval.
        let found = self.breakdown(metric);
        let intervals = metric.part_of.map(|_| {
            let now = found.map(|found| found.interval);
            [metric.saved(self.report).and_then(|saved| saved.interval), now]
        });
        let earlier = found.map(|found| breakdown::of_rows(found, metric.lower_is_better));
        let equal = |[saved, now]: &[Option<(f64, f64)>; 2]| {
            let is = |(low, high): (f64, f64)| {
                [now, &earlier].into_iter().flatten().any(|of| same(of.0, low) && same(of.1, high))
            };
            saved.is_some_and(is)
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
        let is_saved = |now: Option<f64>| now.is_some_and(|now| same(now, saved));
        if !is_saved(now) && !is_saved(metric.at_stored_eps(self.report)) {
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
struct CheckedNumber {
    row: Row,
    level: Level,
    /// The saved value, which a verdict in JSON has even if it is withheld.
    found: f64,
    /// Why it meets no bound, though it is shown.
    doubt: Option<String>,
}

impl CheckedNumber {
    /// Checks the number against a bound. One that is known to be wrong meets none.
    fn bounded(&self, kind: GateCheckKind, bound: f64) -> GateCheck {
        let (missed, text) = self.threshold(kind, bound);
        match &self.doubt {
            Some(why) if !missed => self.check(kind, bound, Answer::Missed, format!("{text}, but {why}")),
            _ => self.check(kind, bound, if missed { Answer::Missed } else { Answer::Met }, text),
        }
    }

    /// Whether the number is beyond a bound, and the result in words.
    fn threshold(&self, kind: GateCheckKind, bound: f64) -> (bool, String) {
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
        let shown = exact(metric, found, bound);
        (failed, format!("{above}{shown}{}{spread}, {how} {bound}", eps_note(&self.row)))
    }

    /// A number that is withheld meets no bound.
    fn withheld(&self, kind: GateCheckKind, bound: f64, why: &str) -> GateCheck {
        let text =
            format!("{}: {why}, so that it meets no bound. Audit more queries", State::Withheld.text());
        let answer = if kind == GateCheckKind::Drop { Answer::Undecided } else { Answer::Missed };
        GateCheck { withheld: true, ..self.check(kind, bound, answer, text) }
    }

    /// Checks the number against that of the baseline, from which it differs by `change`. If the change is
    /// undecided a stated rule fails; a default rule warns, and robust R@1 decides.
    fn drop(
        &self,
        tolerance: f64,
        (baseline, base): (&Report, &Row),
        change: Difference,
        stated: bool,
    ) -> GateCheck {
        let metric = self.row.quantity;
        let drop = if metric.lower_is_better { change.value } else { -change.value };
        let beyond = drop > tolerance + ROUNDING;
        let failed = beyond && change.significant() != Some(false);
        // The baseline may be far above what was searched, so that the loss may be larger than the change.
        let at_least = base.is_above() && !self.row.is_above();
        let spread = change.interval.map_or(String::new(), |(l, h)| {
            format!(" (95 % {} … {})", metric.show_change(l), metric.show_change(h))
        });
        let how = match (beyond, failed) {
            (_, true) => format!("worse by more than the tolerance {tolerance}"),
            _ if at_least => format!("which may exceed the tolerance {tolerance}"),
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
            false if at_least => {
                format!("a loss of at least {}{spread}, {how}", shown.trim_start_matches(['+', '-']))
            }
            false => format!("{shown}{spread}, {how}"),
        };
        let text =
            format!("{}{}, baseline {}: {result}", self.row.number(), eps_note(&self.row), base.number());
        let of_base = || Some(format!("in the baseline {}", doubt(baseline, base)?));
        let doubt = self.doubt.clone().or_else(of_base).filter(|_| !failed);
        let answer = match (failed, beyond) {
            (true, _) => Answer::Missed,
            _ if doubt.is_some() || at_least => Answer::Undecided,
            (false, true) => Answer::Chance,
            (false, false) => Answer::Met,
        };
        let level = if answer == Answer::Undecided && !stated { Level::Warn } else { self.level };
        let but = doubt.map_or(String::new(), |why| format!(", but {why}"));
        GateCheck {
            baseline: Some(self.found - change.value),
            baseline_above: base.is_above(),
            change_interval: change.interval,
            result: answer.at(level),
            ..self.check(GateCheckKind::Drop, tolerance, answer, text + &but)
        }
    }

    fn check(&self, kind: GateCheckKind, limit: f64, answer: Answer, text: String) -> GateCheck {
        GateCheck {
            metric: self.row.quantity.name.into(),
            kind,
            limit,
            found: Some(self.found),
            interval: self.row.interval,
            withheld: false,
            undecided: kind == GateCheckKind::Drop && answer == Answer::Undecided,
            baseline: None,
            baseline_above: false,
            change_interval: None,
            result: answer.at(self.level),
            text,
        }
    }
}

/// Refuses rules about an ε that is not measured, about classes or groups with too few queries, and about
/// clusters of a gallery that is not clustered (exit code 2). The report need not have outcomes yet.
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

/// Refuses a baseline that a drop can't be judged against (exit code 2): it lacks a number that a rule states,
/// its outcomes contradict the number, or a finding invalidates it, and the user did not accept that.
pub fn refuse_baseline(rules: &Rules, baseline: &Report) -> Result<()> {
    baseline.whole().map_err(|e| e.context("--baseline"))?;
    let recomputed = Recomputed::new(BASELINE, baseline);
    for metric in rules.compared(baseline) {
        metric.value(baseline).ok_or_else(|| lacks(BASELINE, baseline, metric))?;
        if metric.void(baseline) && !baseline.allow_untrusted {
            let found: Vec<&str> = baseline.errors().map(|w| w.id.as_str()).collect();
            let robust = Quantity::robust(baseline);
            let or = match robust.void(baseline) || robust.value(baseline).is_none() {
                true => String::new(),
                false => format!(", or compare robust R@1 alone: --max-drop {}=1", robust.name),
            };
            return Err(Error::usage(format!(
                "`{}` of the baseline is not to be trusted ({}). Make a new baseline: --save-baseline{or}",
                metric.name,
                found.join(", ")
            )));
        }
        recomputed.agrees(metric)?;
    }
    Ok(())
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
    let unclustered = || {
        let of_clusters = matches!(metric.follows(), Follows::Clean(Clean::Together));
        let left_out = report.warnings.iter().find(|warning| NO_CLUSTERING.made(warning))?;
        of_clusters.then(|| left_out.text.clone())
    };
    metric.beside_ladder(report).or_else(|| breakdown::lacking(report, metric)).or_else(unclustered)
}

fn lacks(which: &str, report: &Report, metric: &'static Quantity) -> Error {
    let has: Vec<&str> = Quantity::of(report).filter(|m| m.value(report).is_some()).map(|m| m.name).collect();
    let whole = metric.whole();
    let beside = whole.beside(report.data.has_classes()).map(str::to_string);
    let unmeasured = || {
        let row = whole.row(report);
        let laddered = whole == EPS50 && report.scores.robust().is_some_and(|robust| robust.ladder.is_some());
        row.why.filter(|_| (whole.is_robust() || laddered) && row.state == State::NotMeasured)
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

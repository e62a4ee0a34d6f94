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
//!
//! `rules.rs` has the rules, `checks.rs` the check of one number, and `recomputed.rs` the comparison with the
//! outcomes.

mod checks;
mod recomputed;
mod rules;

use crate::judge::breakdown;
use crate::judge::compare::{self, mismatches};
use crate::judge::paired::PairedReports;
use crate::judge::quantity::{Clean, EPS50, Follows, LISTED, MEDIAN_EPS, Needs, Quantity};
use crate::judge::row::{Row, State};
use crate::judge::strong::Contradictions;
use crate::record::reason::NO_CLUSTERING;
use crate::record::{Baseline, GateCheck, GateCheckKind, Level, Report, Verdict};
use audit_base::error::nearest;
use audit_base::{Error, Result};
use checks::{CheckedNumber, doubt, uncompared, unmeasured};
use recomputed::Recomputed;
pub use rules::{Demand, Rule, Rules, check};

const BASELINE: &str = "the baseline";

impl Verdict {
    /// Checks a report against rules and a baseline. Errors: the report or the baseline lacks a metric that a
    /// rule states, the baseline is not to be trusted, or was made under other conditions (exit code 2); the
    /// report is a part of a run (exit code 13).
    pub fn judge(report: &Report, baseline: Option<&Report>, rules: &Rules) -> Result<Verdict> {
        report.whole()?;
        let (mut all, mut against) = (rules.clone(), None);
        if let Some(baseline) = baseline {
            comparable(baseline, report)?;
            refuse_baseline(rules, baseline)?;
            all = all.against(baseline);
            against = Some((Contradictions::of(baseline), PairedReports::new(baseline, report)));
        }
        let (known, recomputed) = (Contradictions::of(report), Recomputed::new("this report", report));
        let judge = Judge { report, known, recomputed, against };
        let mut checks = Vec::new();
        for (i, rule) in all.0.iter().enumerate().filter(|(_, r)| r.demand.level != Level::Off) {
            checks.extend(judge.checks(rule, i < rules.0.len())?);
        }
        if let Some((base, _)) = &judge.against {
            let missed = rules.missed(base.report, report).into_iter();
            checks.extend(missed.map(|metric| uncompared(metric, report)));
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

/// What rules are checked against.
struct Judge<'r> {
    report: &'r Report,
    known: Contradictions<'r>,
    recomputed: Recomputed<'r>,
    /// The baseline, and its differences from the report.
    against: Option<(Contradictions<'r>, PairedReports<'r>)>,
}

impl Judge<'_> {
    /// The checks of a rule, which was stated or is a default one. Errors: those of [`Verdict::judge`].
    fn checks(&self, Rule { metric, demand }: &Rule, stated: bool) -> Result<Vec<GateCheck>> {
        let report = self.report;
        let drop = demand.max_drop.zip(self.against.as_ref());
        let Some(found) = metric.value(report) else {
            // A model that loses a number of the baseline is no mistake of the user.
            let only_drop = demand.min.is_none() && demand.max.is_none();
            let Some((tolerance, (base, _))) = drop.filter(|_| only_drop) else {
                return Err(lacks("this report", report, metric));
            };
            let rows = [metric.row(report), metric.row(base.report)];
            return Ok(vec![unmeasured(rows, demand.level, tolerance, metric.value(base.report))]);
        };
        self.recomputed.agrees(metric)?;
        let row = metric.row(report);
        // Reports of earlier versions have a wider interval of the worst of several.
        let interval = self.recomputed.breakdown(metric).map(|found| found.interval).or(row.interval);
        let doubt = doubt(&self.known, &row);
        let held = CheckedNumber { row: Row { interval, ..row }, level: demand.level, found, doubt };
        let undecided = held.row.undecided();
        let bounds = [(GateCheckKind::Min, demand.min), (GateCheckKind::Max, demand.max)];
        let mut checks = Vec::new();
        for (kind, bound) in bounds.into_iter().filter_map(|(kind, bound)| Some((kind, bound?))) {
            checks.push(match &undecided {
                Some(why) => held.withheld(kind, bound, why),
                None => held.bounded(kind, bound),
            });
        }
        if let Some((tolerance, baseline)) = drop {
            checks.push(check_drop(held, tolerance, baseline, stated)?);
        }
        Ok(checks)
    }
}

/// Checks a number against the baseline's. Error (exit code 2): the baseline lacks it.
fn check_drop(
    held: CheckedNumber,
    tolerance: f64,
    (base, pair): &(Contradictions, PairedReports),
    stated: bool,
) -> Result<GateCheck> {
    let metric = held.row.quantity;
    let absent = || lacks(BASELINE, base.report, metric);
    let before = metric.value(base.report).ok_or_else(absent)?;
    let of_base = metric.row(base.report);
    let why = held.row.undecided();
    if let Some(why) = why.or_else(|| Some(format!("in the baseline {}", of_base.undecided()?))) {
        // A score that nobody requested only warns if its interval is too wide.
        let few = [&held.row, &of_base].iter().any(|row| row.few().is_some());
        let level = if stated || few { held.level } else { Level::Warn };
        let check = CheckedNumber { level, ..held }.withheld(GateCheckKind::Drop, tolerance, &why);
        return Ok(GateCheck { baseline: Some(before), ..check });
    }
    let change = pair.difference(metric).ok_or_else(absent)?;
    Ok(held.drop(tolerance, (base, &of_base), change, stated))
}

fn names(metrics: &[&Quantity]) -> String {
    metrics.iter().map(|metric| metric.name).collect::<Vec<_>>().join(", ")
}

/// The numbers of a baseline that were not compared, and the flags that compare them; `None` if there are
/// none.
fn not_compared(report: &Report, baseline: &Report, rules: &Rules) -> Option<String> {
    let flag = |metric: &&Quantity| format!("--max-drop {}={}", metric.name, metric.tolerance);
    let flags = |metrics: &[&Quantity]| metrics.iter().map(flag).collect::<Vec<_>>().join(" ");
    let unwatched = rules.unwatched(baseline);
    if !unwatched.is_empty() {
        return Some(format!(
            "The drop of {} was not checked, as max_drop is stated for other metrics. Add {}",
            names(&unwatched),
            flags(&unwatched)
        ));
    }
    if rules.compared(baseline).iter().any(|metric| metric.attacked()) {
        return None;
    }
    // Decisions about listed pairs, for example, have no number that is watched.
    let has = |of: &&'static Quantity| [report, baseline].iter().all(|r| of.value(r).is_some());
    let both: Vec<&Quantity> = Quantity::of_terms().filter(has).collect();
    let add = || format!("No number under attack was compared with the baseline. Add {}", flags(&both));
    (!both.is_empty()).then(add)
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
        Some(baseline) => not_compared(report, baseline, rules),
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
    let suite = baseline.suite.name.clone() + &compare::flags_of(baseline, std::slice::from_ref(report));
    Err(Error::usage(format!(
        "the baseline was made under other conditions and can't be compared: the reports differ in {}. To make comparable ones, \
         audit the new model with the baseline's suite, data and trials: audit MODEL --data … --suite {suite} --baseline BASE.json \
         judges at once, and audit MODEL --data … --suite {suite} --trials BASE.json -o NEW.json makes a report for `audit gate \
         NEW.json --baseline BASE.json`. To begin with a new baseline: audit MODEL … --save-baseline FILE",
        differs.join("; in ")
    )))
}

/// Refuses a baseline that a drop can't be judged against (exit code 2): it lacks a number that a rule
/// states, its outcomes contradict the number, or a finding invalidates it, and the user did not accept that.
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
                "`{}` of the baseline is not to be trusted ({}). Make a new baseline: audit MODEL … --save-baseline FILE{or}",
                metric.name,
                found.join(", ")
            )));
        }
        recomputed.agrees(metric)?;
    }
    Ok(())
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
        let searched = laddered || whole == MEDIAN_EPS && report.smallest.is_some();
        row.why.filter(|_| (whole.is_robust() || searched) && row.state == State::NotMeasured)
    };
    let save =
        if which == BASELINE { ". Make a new baseline: audit MODEL … --save-baseline FILE" } else { "" };
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

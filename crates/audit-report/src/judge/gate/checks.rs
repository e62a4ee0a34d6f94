//! The check of one number: against a threshold, and against the baseline's.

use crate::judge::quantity::Quantity;
use crate::judge::row::{Difference, ROUNDING, Row, State};
use crate::judge::stars::LEVELS;
use crate::judge::strong::Contradictions;
use crate::record::{CheckResult, GateCheck, GateCheckKind, Level, Report, size};

/// Why a number of a report meets no bound, though it is shown: a finding invalidates it, and the user did
/// not accept that, or a stronger attack contradicts it.
pub(super) fn doubt(known: &Contradictions, row: &Row) -> Option<String> {
    if row.void && !known.report.allow_untrusted {
        return Some("it is not to be trusted".into());
    }
    Some(format!("{}. Gate on robust_r1", known.refuted(row.quantity)?))
}

/// The check of a number that the baseline has and the report lacks.
pub(super) fn unmeasured(
    [row, base]: [Row; 2],
    level: Level,
    limit: f64,
    baseline: Option<f64>,
) -> GateCheck {
    let why = row.why.as_deref().unwrap_or_default();
    let text = format!(
        "{}: {why}, so that it can't be compared with the baseline's {}",
        row.state.text(),
        base.number()
    );
    let check = gate_check(row.quantity, GateCheckKind::Drop, limit, None, Answer::Undecided, level, text);
    GateCheck { baseline, baseline_above: base.is_above(), ..check }
}

/// The check of a watched number that the report has and the baseline lacks: a warning.
pub(super) fn uncompared(metric: &'static Quantity, report: &Report) -> GateCheck {
    let row = metric.row(report);
    let text = format!(
        "{}{}, and the baseline has none: its drop was not checked. Make a new baseline: audit MODEL … --save-baseline FILE",
        row.number(),
        eps_note(&row)
    );
    let (kind, answer, found) = (GateCheckKind::Drop, Answer::Undecided, metric.value(report));
    let check = gate_check(metric, kind, metric.tolerance, found, answer, Level::Warn, text);
    GateCheck { interval: row.interval, withheld: row.state == State::Withheld, ..check }
}

/// A check without an interval and without a baseline.
fn gate_check(
    metric: &Quantity,
    kind: GateCheckKind,
    limit: f64,
    found: Option<f64>,
    answer: Answer,
    level: Level,
    text: String,
) -> GateCheck {
    GateCheck {
        metric: metric.name.into(),
        kind,
        limit,
        found,
        interval: None,
        withheld: false,
        undecided: kind == GateCheckKind::Drop && answer == Answer::Undecided,
        baseline: None,
        baseline_above: false,
        change_interval: None,
        result: answer.at(level),
        text,
    }
}

/// What a check found.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
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

/// The ε beside a number. Bounds on sizes are in 255ths in every norm, so a length is named too.
fn eps_note(row: &Row) -> String {
    let length = row.norm.as_ref().zip(row.value);
    let length = length.map(|(norm, value)| format!(" = 255 × {}", size(norm, value / LEVELS, 2)));
    length.or(row.budget.as_ref().map(|budget| format!(" at {budget}"))).unwrap_or_default()
}

/// A number of the report, with the data for its checks.
pub(super) struct CheckedNumber {
    pub(super) row: Row,
    pub(super) level: Level,
    /// The saved value, which a verdict in JSON has even if it is withheld.
    pub(super) found: f64,
    /// Why it meets no bound, though it is shown.
    pub(super) doubt: Option<String>,
}

impl CheckedNumber {
    /// Checks the number against a bound. One that is known to be wrong meets none.
    pub(super) fn bounded(&self, kind: GateCheckKind, bound: f64) -> GateCheck {
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
    pub(super) fn withheld(&self, kind: GateCheckKind, bound: f64, why: &str) -> GateCheck {
        let text =
            format!("{}: {why}, so that it meets no bound. Audit more queries", State::Withheld.text());
        let answer = if kind == GateCheckKind::Drop { Answer::Undecided } else { Answer::Missed };
        GateCheck { withheld: true, ..self.check(kind, bound, answer, text) }
    }

    /// Checks the number against that of the baseline, from which it differs by `change`. If the change is
    /// undecided a stated rule fails; a default rule warns, and robust R@1 decides.
    pub(super) fn drop(
        &self,
        tolerance: f64,
        (baseline, base): (&Contradictions, &Row),
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
            (false, false) if drop <= ROUNDING => "no loss".into(),
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
        let check = gate_check(self.row.quantity, kind, limit, Some(self.found), answer, self.level, text);
        GateCheck { interval: self.row.interval, ..check }
    }
}

/// Formats a value with enough digits to show on which side of the bound it is.
fn exact(metric: &Quantity, found: f64, bound: f64) -> String {
    let shown = metric.show(found);
    let (low, high) = (found < bound - ROUNDING, found > bound + ROUNDING);
    let same = shown.parse::<f64>().is_ok_and(|v| (v < bound) == low && (v > bound) == high);
    if same { shown } else { format!("{found}") }
}

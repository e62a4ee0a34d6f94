//! A number of a report as every surface takes it: the value, its interval, the queries that it rests on, and whether it may be shown.
//! Words about numbers, such as "better" or "withheld", follow from rows and from nothing else.

use super::quantity::{Quantity, is_robust_r1, rests_on_few};
use crate::record::{Attack, Report, RetrievalRow, RobustR1};
use crate::threat::Objective;
use crate::threat::term::Term;
use serde::Serialize;

/// What is known of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was measured.
    Measured,
    /// The report doesn't have it.
    NotMeasured,
    /// It was measured, and is not shown: it rests on too few queries, or its interval is too wide.
    Withheld,
}

/// A number of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which number it is.
    pub quantity: Quantity,
    /// The value, in the unit of the quantity; `None` unless it was measured and may be shown.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Number of queries behind it; 0 if it was not measured.
    pub queries: usize,
    /// Whether it was measured and may be shown.
    pub state: State,
    /// Why it was not measured, or is withheld.
    pub why: Option<String>,
    /// The ε under which it holds, for numbers that mean nothing without it.
    pub budget: Option<String>,
    /// Whether a finding leaves it without a meaning.
    pub void: bool,
}

impl Quantity {
    /// The number as a row.
    pub fn row(self, report: &Report) -> Row {
        let value = self.value(report);
        let (state, why) = match (value, self.withheld(report)) {
            (None, _) => (State::NotMeasured, Some(not_measured(self, report))),
            (Some(_), Some(why)) => (State::Withheld, Some(why)),
            (Some(_), None) => (State::Measured, None),
        };
        Row {
            quantity: self,
            value: value.filter(|_| state == State::Measured),
            interval: value.and(self.interval(report)),
            queries: value.map_or(0, |_| self.queries(report)),
            state,
            why,
            budget: value.and(self.budget(report)),
            void: value.is_some() && self.void(report),
        }
    }
}

/// The numbers of an attack as every table takes them, of a report and of a point of a sweep: none of them is there if it is withheld.
#[derive(Clone, Debug, PartialEq)]
pub struct AttackRow {
    /// Mean after the attack.
    pub after: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Resistance, per cent.
    pub resistance: Option<f64>,
    /// Whether they were measured and may be shown.
    pub state: State,
    /// Why they are withheld.
    pub why: Option<String>,
}

impl AttackRow {
    /// The numbers of a row of a report.
    pub fn of(attack: &Attack) -> AttackRow {
        let robust = Term::find(&attack.code).is_some_and(is_robust_r1);
        let why = rests_on_few(attack.queries).filter(|_| robust && attack.after.is_some());
        let shown = why.is_none();
        AttackRow {
            after: attack.after.filter(|_| shown),
            interval: attack.after_interval.filter(|_| shown),
            resistance: attack.resistance.per_trial.filter(|_| shown),
            state: match attack.after {
                None => State::NotMeasured,
                Some(_) if shown => State::Measured,
                Some(_) => State::Withheld,
            },
            why,
        }
    }
}

/// R@1 of attacked queries, in per cent; `None` if it is withheld, because it is robust R@1.
pub fn attacked_r1(row: &RetrievalRow) -> Option<f64> {
    let robust = Objective::find(&row.attack).is_ok_and(|of| of.terms.iter().any(is_robust_r1));
    Some(row.after.r1).filter(|_| !robust || rests_on_few(row.queries).is_none())
}

/// Robust R@1 and its interval; `None` if it is withheld.
pub fn robust_r1(robust: &RobustR1) -> Option<(f64, Option<(f64, f64)>)> {
    rests_on_few(robust.queries).is_none().then_some((robust.value, robust.interval))
}

/// Why a report doesn't have a number, without the words "not measured".
fn not_measured(quantity: Quantity, report: &Report) -> String {
    if quantity != Quantity::Robust {
        return "the suite doesn't measure it".into();
    }
    match report.skipped.iter().find(|s| Objective::find(&s.attack).is_ok_and(|of| of.strong_only)) {
        Some(skipped) => skipped.why.clone(),
        None if report.benign.queries == 0 => "no query has another image of its class in the gallery".into(),
        None if report.suite.surrogate.is_some() => {
            "it is a white-box number, and these attacks were made on another model".into()
        }
        None if report.verification.as_ref().is_some_and(|found| found.listed) => {
            "a list of pairs doesn't say who is on all images".into()
        }
        None => "--strong-sample off".into(),
    }
}

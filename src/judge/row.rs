//! A number of a report as every surface takes it: the value, its interval, the queries that it rests on, and whether it may be shown.
//! Words about numbers, such as "better" or "withheld", follow from rows and from nothing else.

use super::quantity::Quantity;
use crate::record::Report;
use crate::threat::Objective;
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

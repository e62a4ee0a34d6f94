//! A comparison as a value, and the words of its differences.

use super::crossed::Crossed;
use super::paired::Difference;
use super::quantity::Quantity;
use super::row::{Row, State};
use serde::Serialize;

/// Several reports, compared with the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Which model is the most robust, in a sentence, or why that can't be said. A significant loss of clean R@1 comes first.
    pub answer: String,
    /// The models, in the order given or sorted. The first one given is the baseline.
    pub models: Vec<ComparedModel>,
    /// Reasons to doubt the comparison: mismatches that the user accepted, and remarks.
    pub cautions: Vec<String>,
    /// What two models that were audited together have to do with each other; absent where saved reports were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossed: Option<Crossed>,
}

/// A model in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedModel {
    /// The report's file.
    pub report: String,
    /// The model's file name.
    pub model: String,
    /// Whether this is the baseline.
    pub base: bool,
    /// The metrics that this report or the baseline's has.
    pub rows: Vec<ComparedValue>,
}

/// A row of a comparison: a metric of a model beside the baseline's.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedValue {
    /// What was measured.
    pub metric: Quantity,
    /// In the unit of the metric; absent if it was not measured or is withheld.
    pub value: Option<f64>,
    /// Whether it was measured and may be shown.
    pub state: State,
    /// Why it was not measured or is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// 95 % interval of the value in its own report.
    pub interval: Option<(f64, f64)>,
    /// Number of queries behind the value.
    pub queries: usize,
    /// The ε under which the value holds, as `8/255`, for metrics that mean nothing without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<String>,
    /// Its difference from the baseline; `None` for the baseline itself, and unless both values may be shown.
    pub difference: Option<Difference>,
    /// Whether the value has no meaning, so that reports strike it through.
    pub void: bool,
    /// The difference in a word.
    pub word: Word,
    /// 1 for better, −1 for worse, otherwise 0.
    pub direction: i8,
}

/// What a difference from the baseline means. It follows from both rows and the difference's interval alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The baseline itself.
    Baseline,
    /// The interval excludes zero, and the candidate is better.
    Better,
    /// The interval excludes zero, and the candidate is worse.
    Worse,
    /// The interval includes zero.
    NoSignificantDifference,
    /// The difference has no interval.
    NoInterval,
    /// One of both reports doesn't have the number.
    NotMeasured,
    /// One of both numbers is withheld.
    Withheld,
    /// A finding leaves one of both numbers without a meaning.
    Void,
}

impl Word {
    /// The word of a candidate's row beside the baseline's.
    pub(super) fn of(base: &Row, candidate: &Row, difference: Option<&Difference>) -> Word {
        let either = |of: fn(&Row) -> bool| of(base) || of(candidate);
        let Some(difference) = difference else {
            return if either(|row| row.state == State::NotMeasured) {
                Word::NotMeasured
            } else {
                Word::Withheld
            };
        };
        let better = (difference.value > 0.0) != candidate.quantity.lower_is_better();
        match difference.significant() {
            _ if either(|row| row.void) => Word::Void,
            None => Word::NoInterval,
            Some(false) => Word::NoSignificantDifference,
            Some(true) if better => Word::Better,
            Some(true) => Word::Worse,
        }
    }

    /// For people; empty for the baseline.
    pub fn text(self) -> &'static str {
        match self {
            Word::Baseline => "",
            Word::Better => "better",
            Word::Worse => "worse",
            Word::NoSignificantDifference => "no significant difference",
            Word::NoInterval => "no interval",
            Word::NotMeasured => "not measured",
            Word::Withheld => "withheld",
            Word::Void => "not to be trusted",
        }
    }

    /// The same in at most 15 characters, for a terminal.
    pub fn brief(self) -> &'static str {
        match self {
            Word::NoSignificantDifference => "not significant",
            Word::Void => "not trusted",
            other => other.text(),
        }
    }
}

impl ComparedModel {
    /// The row of a metric.
    pub fn row(&self, metric: Quantity) -> Option<&ComparedValue> {
        self.rows.iter().find(|r| r.metric == metric)
    }
}

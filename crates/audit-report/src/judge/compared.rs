//! A comparison as a value.

use super::crossed::Crossed;
use super::quantity::Quantity;
use super::row::{Difference, State, Word};
use serde::Serialize;

/// Several reports, compared with the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The most robust model, in a sentence, or why it is undecided. A significant loss of clean R@1 comes
    /// first.
    pub answer: String,
    /// The models, in the order given or sorted. The first one given is the baseline.
    pub models: Vec<ComparedModel>,
    /// Reasons to doubt the comparison: mismatches that the user accepted, and remarks.
    pub cautions: Vec<String>,
    /// Transfer, agreement and cost of two models that were audited together; absent if saved reports were
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossed: Option<Crossed>,
}

/// A model in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedModel {
    /// The report's file.
    pub report: String,
    /// The model's file name, with as many folders as tell the models apart; the report's if the models have
    /// one path.
    pub model: String,
    /// Whether this is the baseline.
    pub base: bool,
    /// The metrics that this report or the baseline's has.
    pub rows: Vec<ComparedValue>,
}

/// A row of a comparison: a metric of a model beside the baseline's.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedValue {
    /// The metric.
    pub metric: &'static Quantity,
    /// In the unit of the metric; absent if it was not measured or is withheld.
    pub value: Option<f64>,
    /// Whether the number is only known to be larger than `value`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub above: bool,
    /// Whether it was measured and may be shown.
    pub state: State,
    /// The reason why it was not measured or is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// 95 % interval of the value in its own report.
    pub interval: Option<(f64, f64)>,
    /// The same as `low – high`, as the report itself shows it.
    #[serde(skip)]
    pub spread: Option<String>,
    /// Number of queries behind the value.
    pub queries: usize,
    /// The ε of the value, such as `8/255`, for metrics that depend on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<String>,
    /// The norm of a size, if it does not count grey levels: `value` is 255 times the length that is shown.
    #[serde(skip)]
    pub norm: Option<String>,
    /// Its difference from the baseline; `None` for the baseline itself, and unless both values may be shown.
    pub difference: Option<Difference>,
    /// Whether the value has no meaning, so that reports strike it through.
    pub void: bool,
    /// The difference in a word.
    pub word: Word,
    /// 1 for better, −1 for worse, otherwise 0.
    pub direction: i8,
}

impl ComparedModel {
    /// The row of a metric.
    pub fn row(&self, metric: &Quantity) -> Option<&ComparedValue> {
        self.rows.iter().find(|r| r.metric == metric)
    }
}

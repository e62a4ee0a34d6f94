//! A number of a report as every output shows it: the value, its interval, its number of queries, and whether
//! it may be shown. All words about numbers, such as "better" or "withheld", are in this file and follow from
//! rows only.

use super::quantity::{EPS50, MEDIAN_EPS, Needs, Quantity};
use super::reading::{Reading, counted, on_few};
use super::score::WIDEST;
use super::stars::{LEVELS, ROUNDING as SIZE_ROUNDING};
use super::strong::Contradictions;
use crate::facts::term::Term;
use crate::facts::{Facts, Norm, is_robust_term};
use crate::record::{Attack, Hub, Report, RetrievalRow, reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "NumberState")]
pub enum State {
    /// It was measured.
    Measured,
    /// The report doesn't have it.
    NotMeasured,
    /// It was measured, and is not shown: it rests on too few queries, or its interval is too wide.
    Withheld,
}

impl State {
    /// The state in words, for people; empty for a number that is shown.
    pub fn text(self) -> &'static str {
        match self {
            State::Measured => "",
            State::NotMeasured => "not measured",
            State::Withheld => "withheld",
        }
    }
}

/// Why a number is invalid or unreliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It is not shown.
    Withheld,
    /// The model masks the gradient that its attacks follow.
    MaskedGradients,
    /// A finding invalidates it.
    Untrusted,
    /// A stronger attack contradicts it.
    Contradicted,
}

impl Mark {
    /// The reason in words, for people.
    pub fn text(self) -> &'static str {
        match self {
            Mark::Withheld => State::Withheld.text(),
            Mark::MaskedGradients => "masked gradients",
            Mark::Untrusted => Word::Void.text(),
            Mark::Contradicted => "contradicted",
        }
    }
}

/// Differences up to this size are rounding errors: 58 hits of 100 are 57.99999999999999 %.
pub(super) const ROUNDING: f64 = 1e-9;

/// A dash, for a missing number.
pub const DASH: &str = "–";

/// A number of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The quantity.
    pub quantity: &'static Quantity,
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
    /// A value, or an end of the interval, at or above this is only known to be larger.
    pub most: Option<f64>,
    /// The smallest possible value, where smaller changes don't exist.
    pub least: Option<f64>,
    /// The ε of the value, for numbers that depend on one.
    pub budget: Option<String>,
    /// The norm of a size, if it does not count grey levels: the value is 255 times a length.
    pub norm: Option<String>,
    /// Whether it is shown as that length.
    pub as_length: bool,
    /// Whether a finding invalidates it.
    pub void: bool,
}

impl Quantity {
    /// The number as a row.
    pub fn row(&'static self, report: &Report) -> Row {
        let row = self.row_of(self.saved(report));
        match row.state {
            State::NotMeasured => Row { why: Some(not_measured(self, report)), ..row },
            _ => Row {
                budget: self.at_eps.then(|| report.suite.budget()),
                norm: self.norm_of(report),
                void: self.void(report),
                ..row
            },
        }
    }

    /// The norm of a size in this report, if it does not count grey levels.
    fn norm_of(&self, report: &Report) -> Option<String> {
        let norm = &report.suite.norm;
        (self.size && !Norm::counts_levels(norm)).then(|| norm.clone())
    }

    /// The row of a saved number, such as one of a point of a sweep, which has its findings and its ε
    /// elsewhere.
    pub fn row_of(&'static self, saved: Option<Reading>) -> Row {
        let why = saved.and_then(|saved| self.withheld(&saved));
        let state = match (saved, &why) {
            (None, _) => State::NotMeasured,
            (Some(_), Some(_)) => State::Withheld,
            (Some(_), None) => State::Measured,
        };
        Row {
            quantity: self,
            value: saved.filter(|_| state == State::Measured).map(|saved| saved.value),
            interval: saved.and_then(|saved| saved.interval),
            queries: saved.map_or(0, |saved| saved.queries),
            state,
            why,
            most: saved.and_then(|saved| saved.most),
            least: saved.and_then(|saved| saved.least),
            budget: None,
            norm: None,
            as_length: false,
            void: false,
        }
    }

    /// Why no report for people shows the number: it rests on too few queries, or its interval is too wide.
    /// `None` if it is shown.
    fn withheld(&self, saved: &Reading) -> Option<String> {
        let wide = || match saved.interval {
            Some((low, high)) => format!(
                "its 95 % interval, {} – {}, is wider than {WIDEST:.0} points",
                self.show(low),
                self.show(high)
            ),
            None => "it has no interval".into(),
        };
        let why = saved.on_few().or_else(|| saved.withheld.then(wide));
        why.filter(|_| self.score)
    }
}

impl Row {
    /// The value; a dash if it was not measured or is withheld.
    pub fn number(&self) -> String {
        self.value.map_or(DASH.into(), |value| self.show(value))
    }

    /// Whether the value is only known to be larger than what is stated.
    pub fn is_above(&self) -> bool {
        self.value.is_some_and(|value| self.above(value))
    }

    fn above(&self, value: f64) -> bool {
        self.most.is_some_and(|most| value >= most)
    }

    /// Whether nothing smaller exists than the value. It then says nothing about how certain it is.
    pub fn is_least(&self) -> bool {
        self.value.is_some_and(|value| self.least(value))
    }

    fn least(&self, value: f64) -> bool {
        !self.above(value) && self.least.is_some_and(|least| value <= least * (1.0 + SIZE_ROUNDING))
    }

    /// The row of a size, shown as a length if its norm does not count grey levels: without the factor 255.
    pub fn as_length(self) -> Row {
        Row { as_length: self.norm.is_some(), ..self }
    }

    /// The norm, if the row is shown as a length.
    fn shown_norm(&self) -> Option<&str> {
        self.norm.as_deref().filter(|_| self.as_length)
    }

    /// A value of this number in the unit that is shown, not rounded.
    pub fn in_shown_unit(&self, value: f64) -> f64 {
        if self.as_length { value / LEVELS } else { value }
    }

    /// A value of this number as it is shown.
    pub fn shown(&self, value: f64) -> String {
        self.quantity.show_in(self.shown_norm(), value)
    }

    /// A value, or an end of the interval.
    fn show(&self, value: f64) -> String {
        let above = if self.above(value) { "above " } else { "" };
        format!("{above}{}", self.shown(value))
    }

    /// The value, or the word for withheld; a dash if it was not measured.
    pub fn cell(&self) -> String {
        if self.state == State::Withheld { self.state.text().into() } else { self.number() }
    }

    /// The interval as `low – high`; `None` if both ends are the smallest possible value.
    pub fn spread(&self) -> Option<String> {
        self.interval.filter(|(_, high)| !self.least(*high)).map(|(low, high)| match self.above(low) {
            true => self.show(low),
            false => format!("{} – {}", self.show(low), self.show(high)),
        })
    }

    /// Why it rests on too few queries for a verdict, if it does.
    pub fn few(&self) -> Option<String> {
        on_few(self.queries).filter(|_| self.state != State::NotMeasured)
    }

    /// Why it meets no bound, whatever its value: it is withheld, or rests on too few queries.
    pub fn undecided(&self) -> Option<String> {
        self.why.clone().filter(|_| self.state == State::Withheld).or_else(|| self.few())
    }

    /// Why the number is invalid or unreliable; `None` if nothing is known against it, or if it was not
    /// measured.
    pub fn mark(&self, known: &Contradictions) -> Option<Mark> {
        let along = match self.quantity.needs {
            Needs::Score(_) | Needs::Smallest => true,
            Needs::Term(term) => !is_robust_term(term.name),
            Needs::Nothing | Needs::Ladder | Needs::Corruption(_) => false,
        };
        match self.void {
            _ if self.state == State::NotMeasured => None,
            _ if self.state == State::Withheld => Some(Mark::Withheld),
            true if along && masked(known.report) => Some(Mark::MaskedGradients),
            true => Some(Mark::Untrusted),
            false => known.refuted(self.quantity).map(|_| Mark::Contradicted),
        }
    }
}

/// Whether the strong search found that the gradient is hidden.
pub fn masked(report: &Report) -> bool {
    report.errors().any(|w| reason::MASKED_GRADIENTS.made(w))
}

/// The numbers of an attack, for the tables of reports and of sweeps.
#[derive(Clone, Debug, PartialEq)]
pub struct AttackRow {
    /// Mean under attack; `None` if it is withheld.
    pub after: Option<f64>,
    /// Its 95 % interval; `None` if it is withheld.
    pub interval: Option<(f64, f64)>,
    /// Resistance, per cent; `None` if it is withheld.
    pub resistance: Option<f64>,
    /// Whether they were measured and may be shown.
    pub state: State,
    /// Why they are withheld.
    pub why: Option<String>,
    digits: usize,
}

impl AttackRow {
    /// The numbers of a row of a report, or of a point of a sweep. `hub` are the queries that hubs are
    /// measured on, if the report has them.
    pub fn of(attack: &Attack, hub: Option<&Hub>) -> AttackRow {
        let known = Term::find(&attack.code);
        let row =
            known.and_then(|term| Some(Quantity::after(term)?.row_of(Reading::of_attack(attack, term, hub))));
        let measured = if attack.after.is_some() { State::Measured } else { State::NotMeasured };
        // A term that only a later version knows is shown as it is.
        let state = row.as_ref().map_or(measured, |row| row.state);
        let shown = state != State::Withheld;
        // The resistance may rest on fewer queries than the mean.
        let few = known
            .is_some_and(|term| is_robust_term(term.name) && on_few(counted(attack, term, hub)).is_some());
        AttackRow {
            after: attack.after.filter(|_| shown),
            interval: row.as_ref().map_or(attack.after_interval, |row| row.interval).filter(|_| shown),
            resistance: attack.resistance.per_trial.filter(|_| shown && !few),
            state,
            why: row.as_ref().and_then(|row| row.why.clone()),
            digits: row.map_or(1, |row| row.quantity.digits),
        }
    }

    /// A value with the digits of the attack's term; a dash without one.
    pub fn number(&self, value: Option<f64>) -> String {
        value.map_or(DASH.into(), |value| format!("{value:.*}", self.digits))
    }

    /// The mean under attack, or the word for withheld.
    pub fn cell(&self) -> String {
        if self.state == State::Withheld { self.state.text().into() } else { self.number(self.after) }
    }

    /// The interval as `low – high`; a dash without one.
    pub fn spread(&self) -> String {
        let spread = |(low, high)| format!("{} – {}", self.number(Some(low)), self.number(Some(high)));
        self.interval.map_or(DASH.into(), spread)
    }
}

/// R@1 of attacked queries, in per cent; `None` if it is withheld, because it is robust R@1.
pub fn attacked_r1(row: &RetrievalRow) -> Option<f64> {
    let robust =
        Facts::find(&row.attack).is_ok_and(|of| of.terms.iter().any(|term| is_robust_term(term.name)));
    Some(row.after.r1).filter(|_| !robust || on_few(row.queries).is_none())
}

/// Why a report doesn't have a number, without the words "not measured".
fn not_measured(quantity: &Quantity, report: &Report) -> String {
    if let Some(why) = quantity.beside(report.data.has_classes()) {
        return why.into();
    }
    if quantity == EPS50 && report.scores.robust().is_some_and(|robust| robust.ladder.is_some()) {
        return "no attacked query is correct without an attack".into();
    }
    if quantity == MEDIAN_EPS && report.smallest.is_some() {
        return "an attack can make none of the attacked queries worse".into();
    }
    if quantity != Quantity::robust(report) {
        return "the suite doesn't measure it".into();
    }
    match report.skipped.iter().find(|s| Facts::find(&s.attack).is_ok_and(|of| of.strong_only)) {
        Some(skipped) => skipped.why.clone(),
        None if report.benign.as_ref().is_some_and(|benign| benign.queries == 0) => {
            "no query has another image of its class in the gallery".into()
        }
        None if report.suite.surrogate.is_some() => {
            "it is a white-box number, and these attacks were made on another model".into()
        }
        None if report.lists_pairs() => "a list of pairs doesn't say who is on all images".into(),
        None if report.part.is_some() => "no query of this part is in the sample of the strong search".into(),
        None => "it was left out by --strong-sample off".into(),
    }
}

/// The text at the top of a report with findings of severity error. Robust R@1 stays valid if masked
/// gradients are the only one.
pub fn alarm(report: &Report) -> Option<String> {
    let found: Vec<&str> = report.errors().map(|w| w.id.as_str()).collect();
    let (are, s) = if found.len() == 1 { ("is", "") } else { ("are", "s") };
    let robust = Quantity::robust(report).row(report);
    let of = match robust.value.filter(|_| !robust.void) {
        Some(_) => format!(
            "the scores of attacks along the gradient ({}). R{} at {}, {} %, stays valid: it also counts images that \
             were found without this gradient",
            found.join(", "),
            &robust.quantity.label[1..],
            report.suite.budget(),
            robust.number()
        ),
        None => format!("these numbers ({})", found.join(", ")),
    };
    (!found.is_empty()).then(|| {
        format!(
            "Not to be trusted: there {are} {} finding{s} that invalidate{} {of}{}",
            found.len(),
            if s.is_empty() { "s" } else { "" },
            if report.allow_untrusted { "; the audit continued because of --allow-untrusted" } else { "" }
        )
    })
}

/// A difference between two reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The candidate's value minus the baseline's.
    pub value: f64,
    /// Paired 95 % interval: of shares of queries [`difference`](super::share::difference), of other numbers
    /// from a bootstrap; wider if attacked pairs share identities. `None` if the two reports have no queries
    /// in common, or fewer than 10, or attacked other pairs, for numbers that are no mean over queries or
    /// whose queries have no results of their own, if both values are of all queries, and if both are only
    /// known to be larger than what is stated.
    pub interval: Option<(f64, f64)>,
    /// Number of queries that the interval rests on.
    pub queries: usize,
    /// Whether both values are of all queries, so that the choice of queries explains nothing of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub census: bool,
}

impl Difference {
    /// Whether the difference is larger than the choice of queries explains: its interval excludes zero, on
    /// the side of the value. `None` without an interval.
    pub fn significant(&self) -> Option<bool> {
        let (low, high) = self.interval?;
        Some((low > 0.0 && self.value > 0.0) || (high < 0.0 && self.value < 0.0))
    }

    /// Whether it counts for a verdict: it is significant, or if both values are of all queries it exceeds
    /// the usual tolerance of `quantity`. `None` if neither can be told.
    fn counts(&self, quantity: &Quantity) -> Option<bool> {
        match self.census {
            true => Some(self.value.abs() > quantity.tolerance + ROUNDING),
            false => self.significant(),
        }
    }
}

/// Verdict on a difference from the baseline. It follows only from both rows and the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The baseline itself.
    Baseline,
    /// The candidate is better: the interval excludes zero, or both values are of all queries and differ by
    /// more than the usual tolerance.
    Better,
    /// The candidate is worse, likewise.
    Worse,
    /// The interval includes zero, or both values are of all queries and within the usual tolerance.
    NoSignificantDifference,
    /// The difference has no interval, or sizes in different norms have no difference.
    NoInterval,
    /// One of both reports doesn't have the number.
    NotMeasured,
    /// One of both numbers is withheld.
    Withheld,
    /// A finding invalidates one of the two numbers.
    Void,
}

impl Word {
    /// The verdict on a candidate's row against the baseline's.
    pub(super) fn of(base: &Row, candidate: &Row, difference: Option<&Difference>) -> Word {
        let either = |of: fn(&Row) -> bool| of(base) || of(candidate);
        let Some(difference) = difference else {
            return match () {
                () if either(|row| row.state == State::NotMeasured) => Word::NotMeasured,
                () if either(|row| row.state == State::Withheld) => Word::Withheld,
                () => Word::NoInterval,
            };
        };
        let better = (difference.value > 0.0) != candidate.quantity.lower_is_better;
        match difference.counts(candidate.quantity) {
            _ if either(|row| row.void) => Word::Void,
            None => Word::NoInterval,
            Some(false) => Word::NoSignificantDifference,
            Some(true) if better => Word::Better,
            Some(true) => Word::Worse,
        }
    }

    /// The verdict in words, for people; empty for the baseline.
    pub fn text(self) -> &'static str {
        match self {
            Word::Baseline => "",
            Word::Better => "better",
            Word::Worse => "worse",
            Word::NoSignificantDifference => "no significant difference",
            Word::NoInterval => "no interval",
            Word::NotMeasured => State::NotMeasured.text(),
            Word::Withheld => State::Withheld.text(),
            Word::Void => "not to be trusted",
        }
    }

    /// The verdict in at most 15 characters, for a terminal.
    pub fn brief(self) -> &'static str {
        match self {
            Word::NoSignificantDifference => "not significant",
            Word::Void => "not trusted",
            other => other.text(),
        }
    }
}

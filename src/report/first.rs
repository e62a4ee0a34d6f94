//! What every report says first: R@1 without attack, the scores of the suite, and robust R@1; and, beside each number,
//! what takes it back.

use crate::judge::quantity::{CLEAN_R1, Quantity};
use crate::judge::row::{Row, State};
use crate::judge::strong;
use crate::record::ScoreName::{self, Ars, ArsStrong, Ers};
use crate::record::{MemberRow, Report, reason, unless_few};
use crate::threat::objective::r1;
use crate::threat::term::TERMS;
use crate::threat::{OBJECTIVES, Objective};

/// One of the first numbers.
pub(super) struct First {
    /// Which number it is.
    pub quantity: Quantity,
    /// Its name for people, with the ε under which it holds if it means nothing without it.
    pub label: String,
    /// What it is, in a sentence or two.
    pub meaning: String,
    /// The value; `None` where it was not measured.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Number of queries behind it; 0 where it was not measured.
    pub queries: usize,
    /// What takes the number back, in a word or two.
    pub mark: Option<&'static str>,
    /// Whether the number has no meaning, so that pages strike it through.
    pub void: bool,
    /// What a reader must know to read the number.
    pub remarks: Vec<String>,
}

impl First {
    /// The number; a dash where it was not measured.
    pub fn shown(&self) -> String {
        self.value.map_or("–".into(), |v| self.quantity.show(v))
    }

    /// The interval as `low – high`.
    pub fn spread(&self) -> Option<String> {
        self.interval.map(|(low, high)| format!("{} – {}", self.quantity.show(low), self.quantity.show(high)))
    }

    /// All of it in one line, without the name.
    pub fn line(&self) -> String {
        let mut parts: Vec<String> = self.value.is_some().then(|| self.shown()).into_iter().collect();
        parts.extend(self.mark.map(str::to_string));
        parts.extend(self.spread().map(|s| format!("95 % {s}")));
        parts.extend((self.queries > 0).then(|| format!("{} queries", self.queries)));
        parts.extend(self.remarks.iter().cloned());
        parts.join("; ")
    }
}

/// The first numbers, in their order.
pub(super) fn firsts(report: &Report) -> Vec<First> {
    // A score of attacks that don't go along the model's own gradient has another name, as it is another number.
    let scores = match (&report.suite.surrogate, report.suite.forward_passes) {
        (Some(_), _) => [(Ars, "ARS, transfer"), (Ers, "ERS, transfer"), (ArsStrong, "ARS, strong")],
        (None, Some(_)) => [(Ars, "ARS, black box"), (Ers, "ERS, black box"), (ArsStrong, "ARS, strong")],
        (None, None) => [(Ars, "ARS"), (Ers, "ERS"), (ArsStrong, "ARS, strong")],
    };
    let mut all = vec![clean(report)];
    all.extend(scores.into_iter().filter_map(|(of, label)| score(report, of, label)));
    all.push(robust(report));
    all
}

/// Whether the strong search found that the gradient is hidden.
pub(super) fn masked(report: &Report) -> bool {
    report.errors().any(|w| reason::MASKED_GRADIENTS.made(w))
}

fn clean(report: &Report) -> First {
    let void = CLEAN_R1.void(report);
    let of = report.benign.queries;
    let hits = (report.benign.r1 * of as f64 / 100.0).round() as usize;
    let b = &report.benign;
    let nmi = b.nmi.map_or(String::new(), |v| format!(", NMI {v:.1}"));
    First {
        quantity: CLEAN_R1,
        label: "clean R@1".into(),
        meaning: format!(
            "Retrieval without attack. R@2 {:.1}, mAP {:.1}, mAP@R {:.1}{nmi}.",
            b.r2, b.map, b.map_at_r
        ),
        value: Some(report.benign.r1),
        // Of all queries it is no estimate; of a sample it is.
        interval: unless_few(of, report.benign.sampling.as_ref().map(|_| strong::wilson(hits, of))),
        queries: report.benign.queries,
        mark: void.then_some(UNTRUSTED),
        void,
        remarks: Vec::new(),
    }
}

const UNTRUSTED: &str = "not to be trusted";
/// The mark of a score whose interval is too wide.
pub(super) const WITHHELD: &str = "withheld";

fn score(report: &Report, name: ScoreName, label: &'static str) -> Option<First> {
    let quantity = Quantity::Score(name);
    let Row { value, interval, state, why, void, .. } = quantity.row(report);
    if state == State::NotMeasured {
        return None;
    }
    let contradicted = strong::refuted(report, quantity).is_some();
    let mark = match (void, contradicted) {
        _ if state == State::Withheld => Some(WITHHELD),
        (true, _) if masked(report) => Some("masked gradients"),
        (true, _) => Some(UNTRUSTED),
        (false, true) => Some("contradicted"),
        (false, false) => None,
    };
    let mut remarks = Vec::new();
    if contradicted && let Some(robust) = &report.scores.robust_r1 {
        remarks.push(format!(
            "under a stronger attack R@1 falls to {:.1} % at {}",
            robust.value,
            report.suite.budget()
        ));
    }
    if masked(report) {
        remarks.push("the model masks its gradient, so that attacks find too little".into());
    }
    remarks.extend(why.map(withheld));
    let counted = |score| TERMS.iter().filter(|term| term.weight(score) > 0).count();
    let meaning = match name {
        Ars => {
            let table = Quantity::Table.row(report).value;
            let table = table.map_or(String::new(), |t| format!(" As published tables print it: {t:.1}."));
            format!(
                "Mean resistance to {} attacks: 100 if they achieve nothing, 0 if they reach their goal.{table}",
                counted(name)
            )
        }
        ArsStrong => "The same as ARS, of the worst that the strong search found for each trial.".into(),
        Ers => format!(
            "Mean of {} after-attack results. A collapsed model can score high: read it with R@1.",
            counted(name)
        ),
    };
    Some(First {
        quantity,
        label: label.into(),
        meaning,
        value,
        interval,
        queries: report.suite.queries,
        mark,
        void,
        remarks,
    })
}

/// Why a score is not shown, and what to do.
fn withheld(why: String) -> String {
    format!("{why}: too little to distinguish a weak model from a strong one. Audit more queries")
}

fn robust(report: &Report) -> First {
    let Row { value, interval, queries, state, why, budget, void, .. } = Quantity::Robust.row(report);
    let why = why.unwrap_or_default();
    let remarks = match &report.scores.robust_r1 {
        None => vec![format!("not measured: {why}")],
        Some(_) if state == State::Withheld => vec![withheld(why)],
        Some(robust) => {
            let before = format!("without attack R@1 of these queries is {:.1} %", robust.clean);
            let terms = strong::contradicted_terms(&report.outcomes);
            let left: Vec<String> = terms.iter().map(|(t, left)| format!("{} {left:.0} %", t.name)).collect();
            let weaker =
                (!left.is_empty()).then(|| format!("the suite's own attacks leave {}", left.join(", ")));
            std::iter::once(before).chain(weaker).collect()
        }
    };
    First {
        quantity: Quantity::Robust,
        label: budget.map_or("robust R@1".into(), |budget| format!("robust R@1 at {budget}")),
        meaning: "Share of all attacked queries that stay correct under every image that the strong search tried. An upper bound: a better \
                  attack may lower it."
            .into(),
        value,
        interval,
        queries,
        mark: match state {
            State::Withheld => Some(WITHHELD),
            _ => void.then_some(UNTRUSTED),
        },
        void,
        remarks,
    }
}

/// What the members of the strong search did on one attack.
pub(super) struct StrongSummary<'r> {
    /// The attack's code.
    pub attack: &'r str,
    /// Number of its trials. For R1, only those of queries that are right without attack: members attack no others.
    pub trials: usize,
    /// A row for each member.
    pub members: Vec<MemberRow>,
}

impl StrongSummary<'_> {
    /// Members whose images are results, the most frequent first: names with the number of trials.
    pub fn decided(&self) -> Vec<(&str, usize)> {
        let all = self.members.iter().filter(|m| m.counts > 0).map(|m| (m.name.as_str(), m.counts));
        let mut all: Vec<(&str, usize)> = all.collect();
        all.sort_by_key(|(_, counts)| std::cmp::Reverse(*counts));
        all
    }

    /// Image steps of all members.
    pub fn steps(&self) -> usize {
        self.members.iter().map(|m| m.steps).sum()
    }

    /// Trials whose goal was reached by the image that counts.
    pub fn broken(&self) -> usize {
        self.members.iter().map(|m| m.counts).sum()
    }
}

/// What the members did to make queries wrong.
pub(super) fn for_recall(report: &Report) -> Option<StrongSummary<'_>> {
    let robust = report.scores.robust_r1.as_ref().filter(|r| !r.members.is_empty())?;
    let right = (robust.clean * robust.queries as f64 / 100.0).round() as usize;
    Some(StrongSummary { attack: r1::R1.code, trials: right, members: robust.members.clone() })
}

/// What the members did on the other attacks, where the strong search ran on them. There an image counts as the result if
/// it is the best of its trial, whether it reached the goal or not.
pub(super) fn for_others(report: &Report) -> Vec<StrongSummary<'static>> {
    let others = OBJECTIVES.iter().filter(|o| !o.strong_only);
    others.filter_map(|objective| search(report, objective)).collect()
}

fn search(report: &Report, objective: &'static Objective) -> Option<StrongSummary<'static>> {
    let mine = || report.outcomes.iter().filter(|o| o.attack == objective.code);
    let trials = mine().filter(|o| o.members.is_some()).count();
    let of = objective.members.iter().flat_map(|tier| tier.iter());
    let rows = of.map(|member| {
        let results = || mine().flat_map(|o| o.members.iter().flatten()).filter(|m| m.member == member.name);
        MemberRow {
            name: member.name.into(),
            about: member.about.into(),
            queries: results().count(),
            broken: results().filter(|m| m.reached).count(),
            counts: results().filter(|m| m.counts).count(),
            steps: results().map(|m| m.steps).sum(),
        }
    });
    (trials > 0).then(|| StrongSummary { attack: objective.code, trials, members: rows.collect() })
}

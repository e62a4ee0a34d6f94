//! The first numbers of every report: clean R@1, the scores of the suite, and robust R@1, each with a mark if
//! it is invalid or unreliable.

use super::view::{bounded, smallest_words};
use audit_report::facts;
use audit_report::facts::term::terms_of;
use audit_report::facts::{FACTS, Facts};
use audit_report::judge::quantity::{
    ARS, ARS_STRONG, ARS_TABLE, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity, ROBUST,
};
use audit_report::judge::row::{Mark, Row, State, masked};
use audit_report::judge::strong::{self, Contradictions};
use audit_report::record::{MemberRow, Report, ScoreName, number_of_queries};

/// One of the first numbers.
pub(super) struct Headline {
    /// The number.
    pub row: Row,
    /// Its name for people, with the ε that it depends on.
    pub label: String,
    /// Explanation in a sentence or two.
    pub meaning: String,
    /// Why the number is invalid or unreliable.
    pub mark: Option<Mark>,
    /// What a reader must know to read the number.
    pub remarks: Vec<String>,
    /// What follows of the last remark, and what to do, with the sign before it; empty unless the number is
    /// withheld.
    pub advice: &'static str,
}

impl Headline {
    fn of(known: &Contradictions, row: Row, label: &str, meaning: String, remarks: Vec<String>) -> Headline {
        let at = row.budget.as_ref().map_or(String::new(), |budget| format!(" at {budget}"));
        let advice = match known.report.part {
            _ if row.state != State::Withheld => "",
            Some(_) => ". Combine the parts: audit merge",
            None => ": too little to distinguish a weak model from a strong one. Audit more queries",
        };
        Headline { mark: row.mark(known), label: format!("{label}{at}"), row, meaning, remarks, advice }
    }

    /// The remarks, the last one with the advice.
    pub fn advised(&self) -> Vec<String> {
        let mut remarks = self.remarks.clone();
        if let Some(last) = remarks.last_mut() {
            last.push_str(self.advice);
        }
        remarks
    }

    /// Why the number is invalid or unreliable, in a word or two.
    pub fn mark(&self) -> Option<&'static str> {
        self.mark.map(Mark::text)
    }

    /// The number of queries in words; `None` if the number was not measured.
    pub fn queries(&self) -> Option<String> {
        (self.row.queries > 0).then(|| number_of_queries(self.row.queries))
    }

    /// The interval with its level.
    pub fn spread(&self) -> Option<String> {
        self.row.spread().map(|spread| format!("95 % {spread}"))
    }

    /// All of it in one line, without the name.
    pub fn line(&self) -> String {
        let value = self.row.value.map(|_| self.row.number());
        let parts = [value, self.mark().map(str::to_string), self.spread(), self.queries()];
        parts.into_iter().flatten().chain(self.advised()).collect::<Vec<_>>().join("; ")
    }
}

/// The first numbers, in their order.
pub(super) fn headlines(report: &Report) -> Vec<Headline> {
    let known = &Contradictions::of(report);
    // A score of attacks without the model's own gradient is another number, so it has another name.
    let by = match (&report.suite.surrogate, report.suite.forward_passes) {
        (Some(_), _) => ", transfer",
        (None, Some(_)) => ", black box",
        (None, None) => "",
    };
    let scores = [(ARS, format!("ARS{by}")), (ERS, format!("ERS{by}")), (ARS_STRONG, "ARS, strong".into())];
    let scores = scores.iter().filter_map(|(of, label)| score(known, of, label));
    // The largest ε of a search for the smallest changes is no ε that anybody asks about, and nobody misses
    // R@1 beside decisions about pairs.
    let beside =
        report.smallest.is_some() || report.verification.is_some() && report.scores.robust().is_none();
    let robust = (!beside).then(|| robust(known));
    let sizes = eps50(known).into_iter().chain(median_eps(known));
    clean(known).into_iter().chain(corrupted(known)).chain(scores).chain(robust).chain(sizes).collect()
}

/// Whether the number that a suite is about is among the first numbers. The result of other suites, such as
/// those on pairs, is what their attacks change.
pub(super) fn scored(first: &[Headline]) -> bool {
    first.iter().any(|f| f.row.quantity != CLEAN_R1 && !f.row.quantity.is_robust())
}

/// Retrieval without an attack; `None` if the images have no classes.
fn clean(known: &Contradictions) -> Option<Headline> {
    let report = known.report;
    let b = report.benign.as_ref()?;
    let nmi = b.nmi.map_or(String::new(), |v| format!(", NMI {v:.1}"));
    let meaning = format!(
        "Share of queries whose nearest image has their class, without an attack. R@2 {:.1}, mAP {:.1}, mAP@R {:.1}{nmi}.",
        b.r2, b.map, b.map_at_r
    );
    Some(Headline::of(known, CLEAN_R1.row(report), CLEAN_R1.label, meaning, Vec::new()))
}

/// Retrieval under natural corruptions, their mean; `None` if the suite has none.
fn corrupted(known: &Contradictions) -> Option<Headline> {
    let found = known.report.corruptions.as_ref()?;
    let row = Quantity::find("corruption.r1").ok()?.row(known.report);
    let remark = format!("without a corruption R@1 of these queries is {:.1} %", found.clean_r1);
    let meaning = "Mean of R@1 over all natural corruptions and their strengths, without an attacker.";
    Some(Headline::of(known, row, "R@1 under corruptions", meaning.into(), vec![remark]))
}

/// A score; `None` if it was not measured.
fn score(known: &Contradictions, of: &'static Quantity, label: &str) -> Option<Headline> {
    let report = known.report;
    let row = of.row(report);
    if row.state == State::NotMeasured {
        return None;
    }
    let robust = ROBUST.row(report);
    let contradicted = robust.value.filter(|_| known.refuted(of).is_some()).map(|_| {
        let at = robust.budget.as_deref().unwrap_or_default();
        format!("under a stronger attack R@1 falls to {} % at {at}", robust.number())
    });
    let masked =
        masked(report).then(|| "the model masks its gradient, so that attacks find too little".to_string());
    let remarks = contradicted.into_iter().chain(masked).chain(row.why.clone()).collect();
    let counted = |score| terms_of(score).count();
    let meaning = if of == ARS {
        let table = ARS_TABLE.row(report);
        let table = table
            .value
            .map_or(String::new(), |_| format!(" As published tables print it: {}.", table.number()));
        let counted = counted(ScoreName::Ars);
        format!(
            "Mean resistance to {counted} attacks: 100 if they achieve nothing, 0 if they reach their goal.{table}"
        )
    } else if of == ERS {
        let counted = counted(ScoreName::Ers);
        format!("Mean of {counted} after-attack results. A collapsed model can score high: read it with R@1.")
    } else {
        "ARS of the worst image that the strong search found for each trial.".into()
    };
    Some(Headline::of(known, row, label, meaning, remarks))
}

fn robust(known: &Contradictions) -> Headline {
    let report = known.report;
    let row = Quantity::robust(report).row(report);
    let why = row.why.as_deref().unwrap_or_default();
    let remarks = match (row.state, report.scores.robust()) {
        (State::Measured, Some(_)) if !report.data.has_classes() => {
            vec!["without an attack 100 by definition: the images have no classes".into()]
        }
        (State::Measured, Some(robust)) => {
            let before = format!("without an attack R@1 of these queries is {:.1} %", robust.clean);
            let left: Vec<String> =
                known.terms().iter().map(|(t, left)| format!("{} {left:.0} %", t.name)).collect();
            let weaker =
                (!left.is_empty()).then(|| format!("the suite's own attacks leave {}", left.join(", ")));
            std::iter::once(before).chain(weaker).collect()
        }
        (State::Withheld, _) => vec![why.to_string()],
        _ => vec![format!("{}: {why}", State::NotMeasured.text())],
    };
    let stay = match report.data.has_classes() {
        true => "stay correct",
        false => "find the same image, or a near copy of it,",
    };
    let meaning = format!(
        "Share of all attacked queries that {stay} under every image that the strong search tried. An upper bound: a better attack may lower it."
    );
    Headline::of(known, row, Quantity::robust(report).label, meaning, remarks)
}

/// ε50; `None` if it was not measured.
fn eps50(known: &Contradictions) -> Option<Headline> {
    let report = known.report;
    let row = EPS50.row(report).as_length();
    let remarks = match row.state {
        State::NotMeasured => return None,
        State::Withheld => row.why.clone().into_iter().collect(),
        State::Measured if row.is_least() => vec!["no file changes by less".into()],
        State::Measured => Vec::new(),
    };
    let meaning = format!(
        "ε50 bounds {}{}: within it half of the correct queries fail. An upper bound: a better attack may find smaller changes.",
        bounded(report),
        unit(&row)
    );
    let label = format!("ε50{}", unit(&row));
    Some(Headline::of(known, row, &label, meaning, remarks))
}

/// The unit of a size of changes, behind its name.
fn unit(row: &Row) -> String {
    row.norm.as_ref().map_or(", in 255ths".into(), |norm| format!(" ({norm})"))
}

/// The median of the smallest perturbations; `None` if the suite doesn't look for them.
fn median_eps(known: &Contradictions) -> Option<Headline> {
    let report = known.report;
    let words = smallest_words(report.smallest.as_ref()?);
    let row = MEDIAN_EPS.row(report).as_length();
    let remarks = match row.state {
        State::NotMeasured => return None,
        State::Withheld => row.why.clone().into_iter().collect(),
        State::Measured => Vec::new(),
    };
    let meaning = format!(
        "{} within this ε, which bounds {}{}. An upper bound: a better attack may find smaller changes.",
        words.half,
        bounded(report),
        unit(&row)
    );
    let label = format!("median ε{}", unit(&row));
    Some(Headline::of(known, row, &label, meaning, remarks))
}

/// What the members of the strong search did on one attack.
pub(super) struct StrongSummary<'r> {
    /// The attack's code.
    pub attack: &'r str,
    /// Number of its trials. For R1, only those of queries that are correct without an attack: members attack
    /// no others.
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

/// The members' results on R@1.
pub(super) fn for_recall(report: &Report) -> Option<StrongSummary<'_>> {
    let robust = report.scores.robust().filter(|r| !r.members.is_empty())?;
    let attack = if report.data.has_classes() { facts::R1 } else { facts::TOP1 };
    Some(StrongSummary { attack: attack.code, trials: robust.correct()[0], members: robust.members.clone() })
}

/// The members' results on the other attacks of the strong search. There the best image of a trial is the
/// result, whether it reached the goal or not.
pub(super) fn for_others(report: &Report) -> Vec<StrongSummary<'static>> {
    let others = FACTS.iter().filter(|o| !o.strong_only);
    others.filter_map(|objective| search(report, objective)).collect()
}

fn search(report: &Report, objective: &'static Facts) -> Option<StrongSummary<'static>> {
    let mine = report.outcomes.iter().filter(|o| o.attack == objective.code);
    let trials = mine.clone().filter(|o| o.members.is_some()).count();
    let members = || strong::member_rows(objective, mine, |m| m.counts);
    (trials > 0).then(|| StrongSummary { attack: objective.code, trials, members: members() })
}

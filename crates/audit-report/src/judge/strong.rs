//! Results of the strong search: robust R@1, and whether it contradicts other numbers.

use super::ladder::ladder;
use super::quantity::{Needs, Quantity, ROBUST};
use super::share::wilson;
use super::survivors::{attacked, survivors};
use crate::facts::members::MemberFacts;
use crate::facts::term::Term;
use crate::facts::{FACTS, Facts, is_robust};
use crate::record::{FEW, Found, MemberResult, MemberRow, Outcome, Report, Robust, ScoreName, unless_few};
use std::collections::HashMap;

/// Robust R@1, or robust top-1, of the queries that the strong search attacked; `None` if it attacked none.
pub fn robust(report: &Report) -> Option<Robust> {
    let outcomes = &report.outcomes;
    let counts = Counts::of(outcomes)?;
    let objective = attacked(outcomes).next().and_then(|o| Facts::find(&o.attack).ok());
    let members = objective.map(|of| member_rows(of, attacked(outcomes), |m| m.reached && m.counts));
    Some(Robust {
        value: counts.share(counts.left),
        interval: counts.interval(),
        eps: Some(report.suite.eps),
        queries: counts.queries,
        clean: counts.share(counts.clean),
        members: members.unwrap_or_default(),
        ladder: ladder(report),
    })
}

/// Numbers of queries of the strong search.
struct Counts {
    queries: usize,
    /// Those that are correct without an attack.
    clean: usize,
    /// Those that no attack of the report made wrong.
    left: usize,
}

impl Counts {
    /// `None` if no query was attacked.
    fn of(outcomes: &[Outcome]) -> Option<Counts> {
        let queries = attacked(outcomes).count();
        let clean = attacked(outcomes).filter(|o| o.before.hit == Some(true)).count();
        let left = survivors(outcomes).into_iter().filter(|(_, right)| *right).count();
        (queries > 0).then_some(Counts { queries, clean, left })
    }

    /// The share that `some` of the attacked queries are, in per cent.
    fn share(&self, some: usize) -> f64 {
        100.0 * some as f64 / self.queries as f64
    }

    /// 95 % interval of the share that is left.
    fn interval(&self) -> Option<(f64, f64)> {
        unless_few(self.queries, Some(wilson(self.left, self.queries)))
    }
}

/// What each member of the strong search did on the `outcomes` of an objective. `counts`: whether the image
/// of a result is one that the row counts.
pub fn member_rows<'o>(
    objective: &Facts,
    outcomes: impl Iterator<Item = &'o Outcome> + Clone,
    counts: fn(&MemberResult) -> bool,
) -> Vec<MemberRow> {
    let row = |member: &MemberFacts| {
        let results = || {
            let all = outcomes.clone().flat_map(|o| o.members.iter().flatten());
            all.filter(|m| m.member == member.name)
        };
        MemberRow {
            name: member.name.into(),
            about: member.about.into(),
            queries: results().count(),
            broken: results().filter(|m| m.reached).count(),
            counts: results().filter(|m| counts(m)).count(),
            steps: results().map(|m| m.steps).sum(),
        }
    };
    objective.members_in(outcomes.clone()).into_iter().map(row).collect()
}

/// The result of a check of the strong search, if it attacked no query. `outcomes` are all of the audit.
pub fn no_strong_search(outcomes: &[Outcome]) -> Found {
    // A list of pairs has no R@1, whatever the flags.
    match outcomes.iter().any(|o| o.after.accepted.is_some()) {
        true => Found::not_checked("decisions about pairs were attacked, and not R@1", ""),
        false => Found::not_checked(
            "no query was attacked by the strong search",
            "Audit without `--strong-sample off`, `--surrogate` and `--only`",
        ),
    }
}

/// Advice to get more queries for a check that counts them.
pub const MORE_QUERIES: &str = "Attack more queries: --max-queries";

/// A term of R@1 beside the strong search, on the queries that both attacked.
struct TermComparison {
    term: &'static Term,
    /// Queries that both attacked, and how many of them the term's attack left correct.
    of: usize,
    left: usize,
    /// Queries that only the strong search broke, and only the attack.
    only: [usize; 2],
}

impl TermComparison {
    /// Each term of an attack in the outcomes.
    fn all(outcomes: &[Outcome]) -> Vec<TermComparison> {
        let strong: HashMap<&str, bool> =
            attacked(outcomes).map(|o| (o.query.as_str(), o.after.hit == Some(true))).collect();
        let beside = |term: &'static Term| {
            let mut found = TermComparison { term, of: 0, left: 0, only: [0, 0] };
            // One perturbation for many queries is another threat than one for each, and so no weak search
            // for the same.
            let judged = FACTS.iter().filter(|of| of.judged_by(term) && !of.shares);
            let codes: Vec<&str> = judged.map(|of| of.code).collect();
            let mine = |o: &&Outcome| codes.contains(&o.attack.as_str()) && !is_robust(o);
            for o in outcomes.iter().filter(mine) {
                let (Some(hit), Some(&robust)) = (o.after.hit, strong.get(o.query.as_str())) else {
                    continue;
                };
                found.of += 1;
                found.left += usize::from(hit);
                found.only[0] += usize::from(hit && !robust);
                found.only[1] += usize::from(!hit && robust);
            }
            (found.of > 0).then_some(found)
        };
        Term::all().filter(|term| term.recall).filter_map(beside).collect()
    }

    /// Whether the strong search broke more queries, by at least a tenth of enough of them.
    fn material(&self) -> bool {
        self.of >= FEW && self.only[0] as f64 - self.only[1] as f64 >= MATERIAL * self.of as f64
    }

    /// Whether it did so beyond chance.
    fn contradicted(&self) -> bool {
        self.material() && beyond_chance(self.only[0], self.only[1])
    }

    /// Whether chance can't explain the result: the strong search broke hardly more, of enough queries that
    /// the attack left; or it left too few to matter.
    fn decides(&self) -> bool {
        (!self.material() && beyond_chance(self.left, 0)) || (self.left as f64) < MATERIAL * self.of as f64
    }
}

/// The terms of R@1 that the strong search contradicts: it broke more queries than the attack did, of the
/// same ones, beyond chance and by at least a tenth of them, of at least [`FEW`]. Each with the share of
/// these queries that its attack left, in per cent.
pub fn contradicted_terms(outcomes: &[Outcome]) -> Vec<(&'static Term, f64)> {
    let all = TermComparison::all(outcomes);
    let contradicted = all.iter().filter(|beside| beside.contradicted());
    contradicted.map(|b| (b.term, 100.0 * b.left as f64 / b.of as f64)).collect()
}

/// Whether robust R@1 is below what the suite's own attacks leave of the same queries, beyond chance.
pub fn contradicted(outcomes: &[Outcome]) -> Found {
    let Some(counts) = Counts::of(outcomes) else { return no_strong_search(outcomes) };
    let all = TermComparison::all(outcomes);
    if all.is_empty() {
        let shares = |of: &&Facts| of.shares && outcomes.iter().any(|o| of.made(o));
        let why = match FACTS.iter().find(shares) {
            Some(of) => format!(
                "{} makes one perturbation for many queries, which is another threat, and no other attack of the suite",
                of.code
            ),
            None => "no other attack of the suite".into(),
        };
        return Found::not_checked(format!("{why} is on R@1, so that there is nothing to confirm"), "");
    }
    let terms = contradicted_terms(outcomes);
    if terms.is_empty() {
        let few: Vec<&str> =
            all.iter().filter(|beside| !beside.decides()).map(|beside| beside.term.name).collect();
        let why = || {
            format!("too few queries to tell whether a stronger attack finds more than {}", few.join(", "))
        };
        let told = !all.iter().any(|b| b.material()) && all.iter().any(|b| beyond_chance(b.left, 0));
        let little = "a stronger attack finds little more than the suite's";
        return match (few.is_empty(), told) {
            (true, _) => Found::passed(little),
            (false, true) => Found::passed(format!("{little}; not judged: {}", why())),
            (false, false) => Found::not_checked(why(), MORE_QUERIES),
        };
    }
    let each: Vec<String> = terms.iter().map(|(term, left)| format!("{} {left:.0} %", term.name)).collect();
    Found::warning(format!(
        "under a stronger attack R@1 falls to {:.1} % at the same ε ({}{} queries); the suite's attacks leave more of \
         the same queries: {}. Scores of these attacks say how strong they are, more than how robust the model is",
        counts.share(counts.left),
        counts.interval().map_or(String::new(), |(low, high)| format!("95 % {low:.1} – {high:.1}, ")),
        counts.queries,
        each.join(", ")
    ))
}

/// What the strong search contradicts in a report. It takes all outcomes to tell, so they are compared once
/// for all numbers of the report.
pub struct Contradictions<'r> {
    /// The report.
    pub report: &'r Report,
    terms: Vec<(&'static Term, f64)>,
}

impl<'r> Contradictions<'r> {
    /// Those in `report`.
    pub fn of(report: &'r Report) -> Contradictions<'r> {
        Contradictions { report, terms: contradicted_terms(&report.outcomes) }
    }

    /// The [`contradicted_terms`] of the report.
    pub fn terms(&self) -> &[(&'static Term, f64)] {
        &self.terms
    }

    /// Why a bound on a quantity can't be met: the strong search contradicts the number. `None` if it
    /// doesn't, and for numbers that it doesn't concern.
    pub fn refuted(&self, quantity: &Quantity) -> Option<String> {
        let robust = ROBUST.saved(self.report)?;
        let hit = match quantity.needs {
            Needs::Term(term) => term.recall && self.terms().iter().any(|(of, _)| *of == term),
            Needs::Score(ScoreName::Ars | ScoreName::Ers) => !self.terms().is_empty(),
            Needs::Score(ScoreName::ArsStrong)
            | Needs::Nothing
            | Needs::Ladder
            | Needs::Smallest
            | Needs::Corruption(_) => false,
        };
        let show = |value| ROBUST.show(value);
        hit.then(|| {
            format!(
                "a stronger attack contradicts it: R@1 falls to {} %{} at {}",
                show(robust.value),
                robust.interval.map_or(String::new(), |(low, high)| format!(
                    " (95 % {} – {})",
                    show(low),
                    show(high)
                )),
                self.report.suite.budget()
            )
        })
    }
}

/// Smallest share of the queries, correct without an attack, that masked gradients must hide to be reported.
pub const MATERIAL: f64 = 0.1;
/// Probability below which a result is beyond chance.
const CHANCE: f64 = 0.01;

/// Whether `wins` against `losses` are more than chance explains: the one-sided sign test.
pub fn beyond_chance(wins: usize, losses: usize) -> bool {
    let n = wins + losses;
    // P(at least this many wins | wins and losses are equally likely), summed from the largest count down.
    let (mut term, mut sum) = (0.5f64.powi(n.min(1000) as i32), 0.0);
    for k in (wins..=n).rev() {
        sum += term;
        term *= k as f64 / (n - k + 1) as f64;
    }
    wins > losses && (n > 1000 || sum < CHANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Severity, State};

    /// A trial on query `i`: correct without an attack, and `hit` under attack. `strong` if the strong search
    /// made it.
    fn trial(attack: &str, i: usize, hit: bool, strong: bool) -> Outcome {
        let of = |hit| crate::record::Measures { hit: Some(hit), ..Default::default() };
        Outcome {
            attack: attack.into(),
            query: format!("q{i}"),
            before: of(true),
            after: of(hit),
            members: strong.then(Vec::new),
            ..Outcome::default()
        }
    }

    /// The strong search breaks the first `wins` of `of` queries, ES the last `losses`.
    fn outcomes_of_both(of: usize, wins: usize, losses: usize) -> Vec<Outcome> {
        let strong = (0..of).map(|i| trial("R1", i, i >= wins, true));
        strong.chain((0..of).map(|i| trial("ES", i, i < of - losses, false))).collect()
    }

    /// Chances as above. At least a tenth of the queries is required: a few of a thousand change no score.
    #[test]
    fn scores_are_contradicted_beyond_chance() {
        for (of, wins, losses, found) in [
            (40, 6, 0, Severity::Info),
            (40, 7, 0, Severity::Warning),
            (1000, 7, 0, Severity::Ok),
            (1000, 99, 0, Severity::Ok),
            (1000, 100, 0, Severity::Warning),
            (40, 10, 1, Severity::Warning),
            (40, 9, 1, Severity::Info),
            (40, 0, 20, Severity::Ok),
        ] {
            let outcomes = outcomes_of_both(of, wins, losses);
            let result = contradicted(&outcomes);
            assert_eq!(result.severity(), found, "{wins} to {losses} of {of}: {result:?}");
            assert_eq!(contradicted_terms(&outcomes).is_empty(), found < Severity::Warning);
        }
        // Only the attack that leaves more is contradicted.
        let mut outcomes = outcomes_of_both(40, 20, 0);
        outcomes.extend((0..40).map(|i| trial("LTM", i, i >= 20, false)));
        let terms = contradicted_terms(&outcomes);
        assert_eq!(
            terms.iter().map(|(term, left)| (term.name, *left)).collect::<Vec<_>>(),
            [("ES:R", 100.0)]
        );
        let Found::Failed(_, text) = contradicted(&outcomes) else { panic!() };
        assert!(text.contains("R@1 falls to 50.0 %") && text.contains("ES:R 100 %"), "{text}");
        // A perturbation that all queries share may well leave more of them than one for each.
        let shared = (0..40).map(|i| Outcome { shared: Some(0), ..trial("UAP", i, true, false) });
        outcomes.extend(shared);
        assert_eq!(contradicted_terms(&outcomes).len(), 1);
        // Queries that the strong search didn't attack don't count.
        outcomes.retain(|o| o.attack != "R1" || o.query == "q1");
        assert_eq!(contradicted(&outcomes).state(), State::NotChecked);
    }

    /// Queries that the strong search didn't attack, or too few for the sign test, are not checked. By hand:
    /// 7 to 0 is the least that is beyond chance, and a tenth is the least that counts.
    #[test]
    fn what_can_t_be_told_is_not_checked() {
        let state = |found: Found| found.state();
        assert_eq!(state(contradicted(&[])), State::NotChecked);
        // ES as an attack of the suite, which leaves `survivors` of 16 queries; the strong search leaves as
        // many.
        for (survivors, expected) in [(1, State::Passed), (6, State::NotChecked), (7, State::Passed)] {
            let strong = (0..16).map(|i| trial("R1", i, i < survivors, true));
            let all: Vec<Outcome> =
                strong.chain((0..16).map(|i| trial("ES", i, i < survivors, false))).collect();
            assert_eq!(state(contradicted(&all)), expected, "{survivors}");
        }
        // Without an attack on R@1 there is nothing to confirm. One perturbation for many queries is an
        // attack on R@1, and another threat.
        let mut alone: Vec<Outcome> = (0..16).map(|i| trial("R1", i, true, true)).collect();
        let why = |outcomes: &[Outcome]| match contradicted(outcomes) {
            Found::NotChecked(unchecked) => unchecked.why,
            other => panic!("{other:?}"),
        };
        assert!(why(&alone).starts_with("no other attack of the suite is on R@1"), "{}", why(&alone));
        alone.extend((0..16).map(|i| Outcome { shared: Some(0), ..trial("UAP", i, false, false) }));
        assert!(why(&alone).starts_with("UAP makes one perturbation for many queries, "), "{}", why(&alone));
    }

    /// By hand: of 10 queries the strong search breaks 4 and ES 3 others; 3 are left.
    #[test]
    fn a_query_is_lost_to_whatever_attack_broke_it() {
        let mut outcomes = outcomes_of_both(10, 4, 3);
        let counts = |outcomes: &[Outcome]| Counts::of(outcomes).map(|of| [of.queries, of.clean, of.left]);
        assert_eq!(counts(&outcomes), Some([10, 10, 3]));
        assert_eq!(Counts::of(&outcomes).unwrap().interval(), Some(wilson(3, 10)));
        // One was wrong without an attack.
        outcomes[9].before.hit = Some(false);
        assert_eq!(counts(&outcomes), Some([10, 9, 3]));
        outcomes[5].before.hit = Some(false);
        assert_eq!(counts(&outcomes), Some([10, 8, 2]));
        outcomes.retain(|o| o.attack != "R1");
        assert_eq!(counts(&outcomes), None);
    }
}

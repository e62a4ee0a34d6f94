//! The facts of attacks: what scores, gates, comparisons and every report format need to know of an
//! objective, a measure, a norm or a schedule, without a gallery, a model or a loss. The attacks themselves
//! are in the crate of attacks, whose rows name their facts.

pub mod measures;
pub mod members;
pub mod norms;
pub mod objectives;
pub mod protocols;
pub mod schedules;
pub mod term;

pub use measures::Measured;
pub use norms::{LINF, NORMS, Norm};
pub use objectives::*;
pub use schedules::{SCHEDULES, Schedule};

use crate::record::{Form, Outcome};
use audit_base::Result;
use audit_base::error::unknown;
use members::MemberFacts;
use std::fmt;
use term::Term;

/// The facts of an attacker's objective.
#[derive(Clone, Copy)]
pub struct Facts {
    /// The code in suites, reports and seeds, such as "CA+".
    pub code: &'static str,
    /// What the attack does, in one sentence.
    pub about: &'static str,
    /// The terms that measure the attack, in the order of reports, at least one. The last one decides whether
    /// a trial succeeded.
    pub terms: &'static [Term],
    /// The term that the strong search minimises or maximises, if it isn't the decisive one: a distance,
    /// which can still grow when R@1 is lost, or the sample of queries that a hub is crafted on.
    pub sought: Option<&'static Term>,
    /// The measure of these terms.
    pub measured: &'static Measured,
    /// For objectives about pairs: whether these are genuine pairs. `None` for others.
    pub pairs: Option<bool>,
    /// The source of the targets.
    pub drawn: Drawn,
    /// The suite parameter that sets the number of targets ("w", "m") and the usual number, for attacks on
    /// several targets.
    pub several: Option<(&'static str, usize)>,
    /// Whether the strong search attacks it in every suite. The remaining R@1 is robust R@1.
    pub strong_only: bool,
    /// Words of reports for its smallest perturbations, for objectives that need these. Only searches for the
    /// smallest perturbation run them.
    pub smallest: Option<&'static SmallestWords>,
    /// Whether its trials share a few perturbations, each crafted on a sample of queries.
    pub shares: bool,
    /// The members of its strong search, in the order in which they run.
    pub members: &'static [MemberFacts],
}

/// The effect of an objective's smallest perturbations, in words.
pub struct SmallestWords {
    /// The attacked queries that count: "correct queries".
    pub queries: &'static str,
    /// The effect on one of them: "a query fails".
    pub event: &'static str,
    /// The verdict: "Half of the correct searches fail".
    pub half: &'static str,
    /// Their searches: "correct searches".
    pub searches: &'static str,
    /// The number that remains under perturbations of a size: "R@1".
    pub left: &'static str,
}

/// The source of an objective's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// The targets follow from the model, or the attack has none.
    No,
    /// Drawn from all images.
    Anywhere,
    /// Drawn from the nearest neighbours of each query under the model.
    FromNeighbours,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl Facts {
    /// The codes of the objectives for which `of` is true, for messages.
    pub fn codes(of: impl Fn(&Facts) -> bool) -> String {
        let codes: Vec<&str> = FACTS.iter().filter(|o| of(o)).map(|o| o.code).collect();
        codes.join(", ")
    }

    /// The objective with a term called `name`.
    pub fn of_term(name: &str) -> Option<&'static Facts> {
        FACTS.iter().find(|o| o.terms.iter().any(|t| t.name == name))
    }

    /// The objective called `code`. Case is ignored, and a typographic minus sign is accepted. Errors (exit
    /// code 2): no objective has this code.
    pub fn find(code: &str) -> Result<&'static Facts> {
        let plain = code.trim().replace('\u{2212}', "-");
        let found = FACTS.iter().find(|o| o.code.eq_ignore_ascii_case(&plain));
        found.ok_or_else(|| unknown("attack", code, FACTS.iter().map(|o| o.code)))
    }

    /// Whether `outcome` is of this objective.
    pub fn made(&self, outcome: &Outcome) -> bool {
        outcome.attack == self.code
    }

    /// The members of its strong search in `outcomes`: its own, and those of JPEG files if one of them ran.
    pub fn members_in<'o>(&self, outcomes: impl Iterator<Item = &'o Outcome>) -> Vec<&'static MemberFacts> {
        let jpeg = members::JPEG;
        let is_jpeg = |name: &str| jpeg.iter().any(|member| member.name == name);
        let ran = outcomes.flat_map(|o| o.members.iter().flatten()).any(|found| is_jpeg(&found.member));
        self.members.iter().chain(if ran { jpeg } else { &[] }).collect()
    }

    /// The term that decides whether a trial succeeded.
    pub fn decisive(&self) -> &'static Term {
        self.terms.last().expect("every objective has a term")
    }

    /// The term that the strong search minimises or maximises.
    pub fn sought(&self) -> &'static Term {
        self.sought.unwrap_or(self.decisive())
    }

    /// Whether a hit of its outcomes says that the query is correct. For attacks on a named class it says
    /// that the nearest image is of another class than that one.
    pub fn hits_are_correct(&self) -> bool {
        self.strong_only || self.terms.iter().any(|term| term.recall)
    }

    /// Whether `term` is one of this objective's terms.
    pub fn judged_by(&self, term: &Term) -> bool {
        self.terms.contains(term)
    }

    /// Whether a trial may have `count` targets, for objectives whose targets are drawn.
    pub fn takes_targets(&self, count: usize) -> bool {
        match self.measured.orders {
            true => count > 1,
            false => count == 1 || (count > 1 && self.several.is_some()),
        }
    }

    /// The attacker's success before and after, in per cent: 0 is his worst value, 100 his goal. `None` if
    /// nothing was measured. `ranked` is the number of images in a ranking.
    pub fn success(&self, outcome: &Outcome, form: Form, ranked: f64) -> Option<(f64, f64)> {
        let term = self.decisive();
        let (before, after) = (term.read)(outcome, form)?;
        Some((term.success(before?, ranked), term.success(after, ranked)))
    }
}

/// Whether an outcome is of the strong search for R@1 or top-1: of R1, or of TOP1 if images have no classes.
/// A report has one of them.
pub fn is_robust(outcome: &Outcome) -> bool {
    FACTS.iter().any(|of| of.strong_only && of.made(outcome))
}

/// Whether a term, by its name, is robust R@1 or robust top-1.
pub fn is_robust_term(name: &str) -> bool {
    Facts::of_term(name).is_some_and(|of| of.strong_only)
}

/// Whether a member of the strong search, by its name in reports, attacks without any gradient.
pub fn gradient_free(member: &str) -> bool {
    FACTS.iter().flat_map(|o| o.members).any(|m| m.name == member && m.gradient_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_objective_is_judged_and_searched_by_terms_of_its_own() {
        for facts in FACTS {
            assert!(facts.terms.contains(facts.decisive()), "{facts:?}");
            assert!(facts.terms.contains(facts.sought()), "{facts:?}");
        }
    }

    #[test]
    fn a_hit_of_an_attack_on_a_named_class_is_not_a_correct_query() {
        for facts in [ES, LTM, GTM, R1, TOP1, MIN, UNIVERSAL] {
            assert!(facts.hits_are_correct(), "{facts:?}");
        }
        assert!(!TARGETED_MIN.hits_are_correct() && !TMA.hits_are_correct());
    }
}

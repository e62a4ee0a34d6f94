//! Attack objectives. Each has one file and one row of [`OBJECTIVES`].
//!
//! To add one, write `<code>.rs` with that row and name it in the table. Definitions follow Zhou et al., "Adversarial
//! Attack and Defense in Deep Ranking" (T-PAMI 2024, arXiv:2106.03614), Tolias et al. (ICCV 2019) for TMA and Wang et
//! al. (CVPR 2020) for LTM.

mod adml;
mod ca;
pub mod es;
pub mod foa;
pub mod foreign;
mod gtm;
pub mod gtt;
pub mod hub;
mod ltm;
pub mod min;
mod nn;
mod qa;
pub mod r1;
pub mod rank;
pub mod spqa;
mod tma;
pub mod universal;
pub mod within;

pub use super::trial::{Aim, Drawn, Objective, Query, Reach, Targets};

use super::draw::Draw;
use super::ensemble::members;
use super::loss::Loss;
use super::measure;
use super::trial::Trial;
use crate::Result;
use crate::error::unknown;
use crate::record::Form;

/// Every objective, in the order of reports.
pub static OBJECTIVES: &[Objective] = &[
    ca::RAISE,
    ca::LOWER,
    qa::RAISE,
    qa::LOWER,
    tma::TMA,
    es::ES,
    ltm::LTM,
    gtm::GTM,
    gtt::GTT,
    r1::R1,
    spqa::RAISE,
    spqa::LOWER,
    foa::PAIR,
    foa::FIVE,
    foa::TEN,
    foa::MANY,
    foa::PAIR_KEPT,
    foa::FIVE_KEPT,
    foa::TEN_KEPT,
    foa::MANY_KEPT,
    nn::NN,
    nn::ANCHOR,
    min::MIN,
    adml::ALIGNMENT,
    adml::UNIFORMITY,
    adml::TRIPLET,
    hub::HUB,
    universal::UNIVERSAL,
    within::DODGE,
    within::IMPERSONATE,
    within::EVADE,
    within::COLLIDE,
];

/// What most rows of [`OBJECTIVES`] have in common: no targets, R@1, the usual strong search, a perturbation for each query.
const USUAL: Objective = Objective {
    code: "",
    about: "",
    terms: &[],
    sought: None,
    measure: &measure::HIT,
    pairs: None,
    reach: |_| Reach::Unknown,
    drawn: Drawn::No,
    several: None,
    targets: |_, _| Ok(Targets::Chosen(Vec::new())),
    loss: |_, _, _| Loss::Still,
    members: members::USUAL,
    strong_only: false,
    smallest: false,
    shared: None,
};

impl Objective {
    /// The codes of the objectives that `of` holds for, for messages.
    pub fn codes(of: impl Fn(&Objective) -> bool) -> String {
        let codes: Vec<&str> = OBJECTIVES.iter().filter(|o| of(o)).map(|o| o.code).collect();
        codes.join(", ")
    }

    /// The objective with a term called `name`.
    pub fn of_term(name: &str) -> Option<&'static Objective> {
        OBJECTIVES.iter().find(|o| o.terms.iter().any(|t| t.name == name))
    }

    /// The objective called `code`. Case is ignored, and a typographic minus sign is accepted. Errors (exit code 2): no
    /// objective has this code.
    pub fn find(code: &str) -> Result<&'static Objective> {
        let plain = code.trim().replace('\u{2212}', "-");
        let found = OBJECTIVES.iter().find(|o| o.code.eq_ignore_ascii_case(&plain));
        found.ok_or_else(|| unknown("attack", code, OBJECTIVES.iter().map(|o| o.code)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_objective_is_judged_and_searched_by_terms_of_its_own() {
        for objective in OBJECTIVES {
            assert!(objective.terms.contains(objective.decisive()), "{objective:?}");
            assert!(objective.terms.contains(objective.sought()), "{objective:?}");
        }
    }
}

//! Attack objectives, each a row of [`OBJECTIVES`]. A file has one objective, or a family.
//!
//! To add one, write its facts in [`audit_report::facts::objectives`], then `<name>.rs` with a row that names
//! them. Definitions follow Zhou et al., "Adversarial Attack and Defense in Deep Ranking" (T-PAMI 2024,
//! arXiv:2106.03614), Tolias et al. (ICCV 2019) for TMA and Wang et al. (CVPR 2020) for LTM.

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
pub mod top1;
pub mod universal;
pub mod within;

pub use super::trial::{Aim, Drawn, Objective, Query, Reach, Targets};

use super::draw::Draw;
use super::ensemble::members;
use super::loss::Loss;
use super::measure;
use super::trial::Trial;
use audit_base::{Error, Result};
use audit_report::facts::Facts;
use audit_report::record::Form;

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
    top1::TOP1,
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
    min::TARGETED,
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

/// The defaults of [`OBJECTIVES`]: no targets, R@1, the usual strong search, a perturbation for each query.
const fn usual(facts: &'static Facts) -> Objective {
    Objective {
        facts,
        measure: &measure::HIT,
        reach: |_| Reach::Unknown,
        targets: |_, _| Ok(Targets::Chosen(Vec::new())),
        loss: |_, _, _| Loss::Still,
        members: members::USUAL,
        correct: |gallery, trial| gallery.positives(trial.query).collect(),
        shared: None,
    }
}

/// The image with the smallest distance, of some.
fn nearest_of(d: &[f32], items: &[usize]) -> Option<usize> {
    items.iter().copied().min_by(|&a, &b| d[a].total_cmp(&d[b]))
}

impl Objective {
    /// The objective called `code`. Case is ignored, and a typographic minus sign is accepted. Errors (exit
    /// code 2): no objective has this code.
    pub fn find(code: &str) -> Result<&'static Objective> {
        let facts = Facts::find(code)?;
        let found = OBJECTIVES.iter().find(|o| o.code == facts.code);
        found.ok_or_else(|| Error::internal(format!("{code} has facts and no objective")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit_report::facts::{self, FACTS};

    /// Each norm is a ball, and each schedule is a search, in the same order.
    #[test]
    fn every_ball_and_every_search_has_its_facts() {
        let names = |all: &[&'static str]| all.join(" ");
        let balls: Vec<&str> = crate::BALLS.iter().map(|ball| ball.name).collect();
        assert_eq!(names(&balls), names(&facts::NORMS.iter().map(|norm| norm.name).collect::<Vec<_>>()));
        let searches: Vec<&str> = crate::SEARCHES.iter().map(|search| search.name).collect();
        let schedules: Vec<&str> = facts::SCHEDULES.iter().map(|schedule| schedule.name).collect();
        assert_eq!(names(&searches), names(&schedules));
    }

    /// The rows here and the rows of facts are the same objectives, in the same order, with the same
    /// measures.
    #[test]
    fn every_objective_has_its_facts() {
        let codes = |all: &[&str]| all.join(" ");
        assert_eq!(
            codes(&OBJECTIVES.iter().map(|o| o.code).collect::<Vec<_>>()),
            codes(&FACTS.iter().map(|f| f.code).collect::<Vec<_>>())
        );
        let jpeg = || crate::ensemble::members::JPEG.iter().flat_map(|tier| tier.iter());
        assert!(jpeg().map(|member| member.facts).eq(facts::members::JPEG));
        for objective in OBJECTIVES {
            assert_eq!(objective.measure.facts, objective.measured, "{objective:?}");
            assert_eq!(objective.shared.is_some(), objective.shares, "{objective:?}");
            let members = || objective.members.iter().flat_map(|tier| tier.iter());
            assert!(members().map(|m| m.facts).eq(objective.facts.members), "{objective:?}");
            for member in members().chain(jpeg()) {
                assert_eq!(!member.search.needs_gradient, member.facts.gradient_free, "{}", member.name);
            }
        }
    }
}

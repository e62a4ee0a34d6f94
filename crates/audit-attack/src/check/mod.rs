//! Checks that look for reasons to distrust a result. [`CHECKS`] has a function for each of
//! [`reason::REASONS`] that needs one; the other reasons are found directly, at the start or the end of an
//! audit.
//!
//! Every audit runs the cheap checks: on a first batch of images ([`load`]), on the clean embeddings
//! ([`clean`]) and on the outcomes of its attacks ([`attacked`]). `audit doctor` also runs the checks that
//! attack again ([`Check::examine`]): with more steps, other budgets, noise, or no gradient. A finding of
//! level error means that the scores are invalid. The exit code then is 12, unless the user chose to
//! continue.
//!
//! The checks follow the lists of Carlini et al., "On Evaluating Adversarial Robustness" (arXiv:1902.06705),
//! Athalye et al. (ICML 2018), Pintor et al., "Indicators of Attack Failure" (NeurIPS 2022), and the flags of
//! AutoAttack.

pub mod attacked;
pub mod clean;
pub mod float16;
pub mod gradient;
pub mod load;
mod masked;
pub mod plans;
pub mod preprocessing;
pub mod secants;
pub mod stronger_attacks;

use crate::Plan;
use audit_base::{Error, Result};
use audit_model::{Info, remedy};
use audit_report::record::{Finding, Found, Masking, Reason, Severity, Warning, reason};

/// A check: its question and its function.
pub struct Check {
    /// The question, and the advice if the check fails.
    pub reason: &'static Reason,
    /// Its function. The kind of input decides when it runs.
    pub run: CheckFn,
}

/// The function of a check, by its input.
pub enum CheckFn {
    /// A first batch of images and their gradients.
    Load(fn(&load::Measured) -> Found),
    /// A sample of images, preprocessed in other ways.
    Preprocessing(fn(&mut preprocessing::PreprocessingSample) -> Result<Found>),
    /// The clean embeddings.
    Clean(fn(&clean::CleanRetrieval) -> Found),
    /// The outcomes of all trials.
    Attacked(fn(&attacked::Outcomes) -> Found),
    /// The outcomes of the trials of the strong search.
    Strong(fn(&attacked::Outcomes) -> Found),
    /// Further attacks.
    Doctor(plans::Attacks, fn(&mut stronger_attacks::DoctorInput) -> Result<Found>),
    /// Another attack on the same trials, which should not be better than the audit's own attack.
    Rival(plans::Attacks, fn(&mut stronger_attacks::DoctorInput) -> Result<Found>),
}

impl Check {
    /// Whether the doctor attacks for this check alone.
    pub fn attacks(&self) -> bool {
        self.strong() || matches!(self.run, CheckFn::Doctor(..) | CheckFn::Rival(..))
    }

    /// The attacks that it makes besides the audit's own, by the plan of the audit and the largest distance
    /// between two images.
    fn further(&self, plan: &Plan, widest: f32) -> Vec<plans::Attack> {
        match self.run {
            CheckFn::Doctor(attacks, _) | CheckFn::Rival(attacks, _) => attacks(plan, widest),
            _ => Vec::new(),
        }
    }

    /// Whether it needs the strong search.
    pub fn strong(&self) -> bool {
        matches!(self.run, CheckFn::Strong(_))
    }

    /// What to do about a finding. An attack that beats the strong search needs other advice than one that
    /// beats a suite's attack: no other suite searches more, and the strong search does not depend on one
    /// gradient, so that masking is not the cause. If an attack beats a suite's, `masking` says whether it
    /// may be the cause.
    fn advice(&self, strong: bool, masking: Masking) -> &'static str {
        match self.run {
            CheckFn::Rival(..) if strong => reason::MORE_EFFORT,
            _ => masking.decides(self.reason.advice),
        }
    }

    /// Runs a check that attacks again; `None` for the others. `masking` is what is known of the model's
    /// gradient.
    pub fn examine(
        &self,
        input: &mut stronger_attacks::DoctorInput,
        masking: Masking,
    ) -> Result<Option<Finding>> {
        let (CheckFn::Doctor(_, examine) | CheckFn::Rival(_, examine)) = self.run else { return Ok(None) };
        let found = examine(input)?;
        Ok(Some(self.reason.advising(self.advice(input.plan.effort.is_some(), masking), found)))
    }
}

const fn check(reason: &'static Reason, run: CheckFn) -> Check {
    Check { reason, run }
}

/// Every check, in the order of `audit doctor`'s table. Of several errors at load, the first ends an audit.
pub static CHECKS: &[Check] = &[
    check(&reason::FINITE, CheckFn::Load(load::finite)),
    check(&reason::RANDOMISED, CheckFn::Load(load::repeatable)),
    check(&reason::BATCH_DEPENDENCE, CheckFn::Load(load::company)),
    check(&reason::PARITY, CheckFn::Load(load::parity)),
    check(&reason::RUNTIME_OPTIMISER, CheckFn::Load(load::shipped)),
    check(&reason::BATCH_SIZE, CheckFn::Load(load::batch_size)),
    check(&reason::PRECISION, CheckFn::Load(load::precision)),
    check(&reason::GRADIENT_ESTIMATED, CheckFn::Load(load::estimated)),
    check(&reason::ZERO_GRADIENT, CheckFn::Load(load::zero)),
    check(&reason::GRADIENT, CheckFn::Load(load::right)),
    check(&reason::GRADIENT_DEVIATES, CheckFn::Load(load::deviates)),
    check(&reason::IMAGE_HIDDEN, CheckFn::Load(load::hidden)),
    check(&reason::STRAIGHT_THROUGH, CheckFn::Load(load::straight_through)),
    check(&reason::FLAT_OPERATORS, CheckFn::Load(load::flat)),
    check(&reason::SATURATED_GRADIENT, CheckFn::Load(load::saturated)),
    check(&reason::PREPROCESSING_DOUBTFUL, CheckFn::Preprocessing(preprocessing::doubtful)),
    check(&reason::COLLAPSE, CheckFn::Clean(clean::collapse)),
    check(&reason::ZERO_EMBEDDING, CheckFn::Clean(clean::zero)),
    check(&reason::DUPLICATES, CheckFn::Clean(clean::duplicates)),
    check(&reason::LONE_IMAGES, CheckFn::Clean(clean::lone)),
    check(&reason::BOUNDS, CheckFn::Attacked(attacked::bounds)),
    check(&reason::DIRECTION, CheckFn::Attacked(attacked::direction)),
    check(&reason::UNFINISHED, CheckFn::Attacked(attacked::unfinished)),
    check(&reason::SILENT_SUCCESS, CheckFn::Attacked(attacked::silent)),
    check(&reason::HALF_PRECISION, CheckFn::Attacked(float16::weaker)),
    check(&reason::WORST_CASE, CheckFn::Attacked(attacked::worst_case)),
    check(&reason::MASKED_GRADIENTS, CheckFn::Strong(attacked::masked)),
    check(&reason::CONTRADICTED, CheckFn::Strong(attacked::contradicted)),
    check(&reason::MORE_STEPS, CheckFn::Rival(plans::more_steps, stronger_attacks::more_steps)),
    check(&reason::RESTARTS, CheckFn::Rival(plans::restarts, stronger_attacks::restarts)),
    check(&reason::STEP_SIZE, CheckFn::Rival(plans::step_size, stronger_attacks::step_size)),
    check(&reason::ONE_STEP, CheckFn::Rival(plans::one_step, stronger_attacks::one_step)),
    check(&reason::BUDGET, CheckFn::Doctor(plans::budget, stronger_attacks::budget)),
    check(&reason::UNBOUNDED, CheckFn::Doctor(plans::unbounded, stronger_attacks::unbounded)),
    check(&reason::CURVE, CheckFn::Doctor(plans::curve, stronger_attacks::curve)),
    check(&reason::NOISE, CheckFn::Rival(plans::noise, stronger_attacks::noise)),
    check(&reason::BLACK_BOX, CheckFn::Rival(plans::black_box, stronger_attacks::black_box)),
    check(&reason::TRANSFER, CheckFn::Rival(plans::transfer, stronger_attacks::transfer)),
    check(&reason::EIGHT_BIT, CheckFn::Doctor(plans::none, stronger_attacks::eight_bit)),
];

/// Runs the checks for which `of` returns a finding.
fn findings(mut of: impl FnMut(&CheckFn) -> Option<Found>) -> Vec<Finding> {
    CHECKS.iter().filter_map(|c| Some(c.reason.finding(of(&c.run)?))).collect()
}

/// Runs the checks on the first batch.
pub fn at_load(measured: &load::Measured) -> Vec<Finding> {
    findings(|run| match run {
        CheckFn::Load(check) => Some(check(measured)),
        _ => None,
    })
}

/// Runs the checks of the preprocessing.
pub fn of_preprocessing(sample: &mut preprocessing::PreprocessingSample) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    for c in CHECKS {
        if let CheckFn::Preprocessing(check) = c.run {
            all.push(c.reason.finding(check(sample)?));
        }
    }
    Ok(all)
}

/// Runs the checks on the clean embeddings.
pub fn of_retrieval(retrieval: &clean::CleanRetrieval) -> Vec<Finding> {
    findings(|run| match run {
        CheckFn::Clean(check) => Some(check(retrieval)),
        _ => None,
    })
}

/// Runs the checks on outcomes.
pub fn of_outcomes(outcomes: &attacked::Outcomes) -> Vec<Finding> {
    findings(|run| match run {
        CheckFn::Attacked(check) | CheckFn::Strong(check) => Some(check(outcomes)),
        _ => None,
    })
}

/// The findings that are warnings, for a report.
pub fn warnings(findings: Vec<Finding>) -> impl Iterator<Item = Warning> {
    findings.into_iter().filter_map(Finding::warning)
}

/// Refuses to continue if the scores of an audit, or a gradient to be written, would be invalid. `otherwise`
/// ends the refusal. Errors: exit code 12.
pub fn admit(model: &Info, findings: &[Finding], otherwise: &str) -> Result<()> {
    match findings.iter().find(|f| f.severity == Severity::Error) {
        None => Ok(()),
        Some(f) => {
            let alone = f.invalidates(&reason::BATCH_DEPENDENCE) && model.fixed_batch.is_none();
            Err(Error::untrusted(format!(
                "{}: {}. {}. `audit doctor` makes more checks{otherwise}",
                model.path.display(),
                f.found,
                f.advice
            ))
            .lacking(alone.then(|| remedy::row("--batch", 1))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit_report::record::State;

    /// No suite is stronger than the strong search, and an attack that beats it does not prove masked
    /// gradients.
    #[test]
    fn what_beats_the_strong_search_asks_for_more_work() {
        let rivals: Vec<&Check> = CHECKS.iter().filter(|c| matches!(c.run, CheckFn::Rival(..))).collect();
        assert!(rivals.iter().any(|c| c.reason.id == "black-box"));
        for rival in rivals {
            let strong = rival.advice(true, Masking::Unknown);
            assert!(
                strong.contains("effort") && !strong.contains("strict") && !strong.contains("masked"),
                "{strong}"
            );
        }
        let eight_bit = CHECKS.iter().find(|c| c.reason.id == "eight-bit").unwrap();
        assert_eq!(eight_bit.advice(true, Masking::NotFound), eight_bit.reason.advice);
    }

    /// If an attack beats the suite's, there are two possible causes. Only the check `masked-gradients` tells
    /// them apart, so no other check concludes that gradients are masked, or says so of a model that masks
    /// nothing.
    #[test]
    fn only_one_check_concludes_that_gradients_are_masked() {
        for check in CHECKS.iter().filter(|c| !c.strong()) {
            let advice = |masking| check.advice(false, masking);
            for certain in ["are masked, so", "gradient is masked", "masks", "invalid"] {
                assert!(
                    !check.reason.advice.contains(certain),
                    "{}: {}",
                    check.reason.id,
                    check.reason.advice
                );
                for masking in [Masking::NotFound, Masking::Unknown] {
                    assert!(!advice(masking).contains(certain), "{}: {}", check.reason.id, advice(masking));
                }
            }
        }
        let check = |id: &str| CHECKS.iter().find(|c| c.reason.id == id).unwrap();
        for id in ["one-step", "budget", "noise", "black-box", "transfer"] {
            let advice = |masking| check(id).advice(false, masking);
            assert!(advice(Masking::Found).contains("the gradient is masked"), "{id}");
            assert!(
                advice(Masking::NotFound).contains("too weak")
                    && advice(Masking::NotFound).contains("no masking")
            );
            assert!(advice(Masking::Unknown).contains("too weak, or gradients are masked"), "{id}");
        }
    }

    /// Each state has its word in tables and its place in reports.
    #[test]
    fn the_three_states_are_told_apart() {
        let finding = |found| reason::TRANSFER.finding(found);
        let passed = finding(Found::passed("0 of 8"));
        assert_eq!((passed.word(), passed.state, passed.severity), ("ok", State::Passed, Severity::Ok));
        assert!(passed.advice.is_empty() && passed.warning().is_none());
        let failed = finding(Found::warning("5 of 8"));
        assert_eq!(
            (failed.word(), failed.state, failed.severity),
            ("warning", State::Failed, Severity::Warning)
        );
        let failed = failed.warning().unwrap();
        assert!(
            failed.text.starts_with("5 of 8. The attack of the suite is too weak, or"),
            "{}",
            failed.text
        );
        assert_eq!(serde_json::to_value(&failed).unwrap().get("state"), None);
        let gap = finding(Found::not_checked("there is no other model", "Name one: --surrogate"));
        assert_eq!((gap.word(), gap.severity), ("not checked", Severity::Info));
        assert_eq!(gap.advice, "Name one: --surrogate");
        let json = serde_json::to_value(&gap).unwrap();
        assert_eq!((&json["state"], &json["severity"]), (&"not-checked".into(), &"info".into()));
        let gap = gap.warning().unwrap();
        assert_eq!(
            (gap.word(), gap.text.as_str()),
            ("not checked", "there is no other model. Name one: --surrogate")
        );
        assert_eq!(serde_json::to_value(&gap).unwrap()["state"], "not-checked");
        // In formats that have only warnings, a gap with the weight of a warning is one.
        let grave = finding(Found::not_checked("no file", "").weighing(Severity::Warning)).warning().unwrap();
        assert_eq!((grave.word(), grave.text.as_str()), ("warning", "not checked: no file"));
        // A report of an older version has no states.
        let old: Warning =
            serde_json::from_str(r#"{"id": "noise", "severity": "error", "text": "8 of 128"}"#).unwrap();
        assert_eq!((old.state, old.word()), (State::Failed, "error"));
    }
}

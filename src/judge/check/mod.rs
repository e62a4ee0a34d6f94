//! Reasons to distrust a result, one row each in [`CHECKS`].
//!
//! Every audit makes the checks that cost next to nothing: on a first batch of images ([`load`]), on the clean embeddings
//! ([`clean`]) and on the outcomes of its attacks ([`attacked`]). `audit doctor` makes these and the ones that attack anew
//! ([`doctor`]): with more steps, other budgets, noise, no gradient. A finding of level error means that the numbers mean
//! nothing: exit code 12, unless told to go on.
//!
//! The checks follow the lists of Carlini et al., "On Evaluating Adversarial Robustness" (arXiv:1902.06705), Athalye et
//! al. (ICML 2018), Pintor et al., "Indicators of Attack Failure" (NeurIPS 2022), and the flags of AutoAttack.

pub mod attacked;
pub mod clean;
pub mod doctor;
pub mod gradient;
pub mod half;
pub mod load;
pub mod preprocessing;

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How much a finding weighs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing found.
    Ok,
    /// Worth knowing when reading the numbers.
    Info,
    /// The numbers may not mean what they seem to.
    Warning,
    /// The numbers mean nothing.
    Error,
}

impl Severity {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A finding of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warning {
    /// Stable name, for machines.
    pub id: String,
    /// Its weight.
    pub severity: Severity,
    /// What was found and what to do about it.
    pub text: String,
}

impl Warning {
    /// A finding of weight `warning`.
    pub fn new(id: &str, text: impl Into<String>) -> Self {
        Warning { id: id.into(), severity: Severity::Warning, text: text.into() }
    }
    /// A finding of weight `info`.
    pub fn info(id: &str, text: impl Into<String>) -> Self {
        Warning { id: id.into(), severity: Severity::Info, text: text.into() }
    }
}

/// A check: what it asks, how, and what to do where it finds something.
pub struct Check {
    /// Stable name of its findings.
    pub id: &'static str,
    /// What it asks, in a few words.
    pub asks: &'static str,
    /// What to do about a finding.
    pub advice: &'static str,
    /// How it is made.
    pub run: Run,
}

/// How a check is made: on what it looks.
pub enum Run {
    /// On a first batch of images and their gradients.
    Load(fn(&load::Measured) -> Found),
    /// On a sample of images, preprocessed in other ways.
    Preprocessing(fn(&mut preprocessing::Sample) -> Result<Found>),
    /// On the clean embeddings.
    Clean(fn(&clean::Retrieval) -> Found),
    /// On the outcomes of the attacks.
    Attacked(fn(&attacked::Outcomes) -> Found),
    /// By attacking anew.
    Doctor(fn(&mut doctor::Patient) -> Result<Found>),
}

/// What a check found: its weight, and what, in words.
pub type Found = (Severity, String);

/// A check's finding, with what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// The check's name.
    pub check: String,
    /// What it asks.
    pub asks: String,
    /// Weight: ok, info, warning or error.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where nothing is to be done.
    pub advice: String,
}

impl Check {
    /// The finding that `found` makes.
    pub fn finding(&self, (severity, found): Found) -> Finding {
        let advice = if severity > Severity::Info { self.advice } else { "" };
        Finding { check: self.id.into(), asks: self.asks.into(), severity, found, advice: advice.into() }
    }
}

impl Finding {
    /// For a report; `None` where nothing was found.
    pub fn warning(self) -> Option<Warning> {
        let Finding { check: id, severity, found, advice, .. } = self;
        let text = if advice.is_empty() { found } else { format!("{found}. {advice}") };
        (severity > Severity::Ok).then_some(Warning { id, severity, text })
    }
}

const fn load(
    id: &'static str,
    asks: &'static str,
    run: fn(&load::Measured) -> Found,
    advice: &'static str,
) -> Check {
    Check { id, asks, advice, run: Run::Load(run) }
}

const fn clean(
    id: &'static str,
    asks: &'static str,
    run: fn(&clean::Retrieval) -> Found,
    advice: &'static str,
) -> Check {
    Check { id, asks, advice, run: Run::Clean(run) }
}

const fn attacked(
    id: &'static str,
    asks: &'static str,
    run: fn(&attacked::Outcomes) -> Found,
    advice: &'static str,
) -> Check {
    Check { id, asks, advice, run: Run::Attacked(run) }
}

const fn doctor(
    id: &'static str,
    asks: &'static str,
    run: fn(&mut doctor::Patient) -> Result<Found>,
    advice: &'static str,
) -> Check {
    Check { id, asks, advice, run: Run::Doctor(run) }
}

/// Every check, in the order of `audit doctor`'s table: of several errors at load the first ends an audit.
pub static CHECKS: &[Check] = &[
    load(
        "finite",
        "Are embeddings and gradient finite?",
        load::finite,
        "Check the preprocessing (range, mean, std) and the model in its own framework; a division by zero or an overflow \
         is the usual cause",
    ),
    load(
        "randomised",
        "Does the same image give the same embedding?",
        load::repeatable,
        "Export the model in inference mode, without random operators: an attack on a moving target proves nothing",
    ),
    load(
        "parity",
        "Do our embeddings agree with the untouched file's?",
        load::parity,
        "The audit would be of another model. Please report this with the model's architecture",
    ),
    load(
        "runtime-optimiser",
        "Does ONNX Runtime's optimiser leave the embeddings alone?",
        load::shipped,
        "The audit is of the model as it is written; deployed with default options it computes something else",
    ),
    load(
        "batch-dependence",
        "Is an embedding the same in other company?",
        load::company,
        "Batch normalisation exported in training mode is the usual cause: export the model in inference mode",
    ),
    load(
        "precision",
        "Does the model compute in float32?",
        load::precision,
        "Mind that the audit is of its float32 form",
    ),
    load(
        "gradient-estimated",
        "Are gradients formed, not estimated?",
        load::estimated,
        "Attacks find less this way, so that scores flatter the model and compare with no others: audit with exact \
         gradients where they can be had",
    ),
    load(
        "zero-gradient",
        "Is there a gradient on every image?",
        load::zero,
        "White-box attacks can't move there, and count as withstood, so that the model would look robust without being it. \
         Audit with --gradient estimate, or the model before what flattens it",
    ),
    load(
        "gradient",
        "Does the gradient agree with finite differences?",
        load::right,
        "A score from it would call a weak model robust, so none is given. Please report this with the model's \
         architecture, or audit with --gradient estimate",
    ),
    load(
        "straight-through",
        "Is nothing rounded on the way?",
        load::straight_through,
        "The model is flat there, and an attack made for it may find more",
    ),
    load(
        "flat-operators",
        "Does the gradient reach every path?",
        load::flat,
        "An attack that goes round them may find more: compare with --gradient estimate",
    ),
    load(
        "saturated-gradient",
        "Does the gradient point somewhere, and near by to the same place?",
        load::saturated,
        "Gradients that vanish or turn with every step mislead attacks: trust the score only if `audit doctor` finds that \
         attacks without gradients do no better",
    ),
    Check {
        id: "preprocessing-doubtful",
        asks: "Does no other preprocessing retrieve better?",
        advice: "Check how the model was trained, and state it in the model card",
        run: Run::Preprocessing(preprocessing::doubtful),
    },
    clean(
        "collapse",
        "Do embeddings tell images apart?",
        clean::collapse,
        "The preprocessing is wrong, or the model has collapsed. A collapsed model can score high; its scores mean nothing",
    ),
    clean(
        "duplicates",
        "Is every embedding unlike the others?",
        clean::duplicates,
        "Which of equals comes first is chance: remove the copies from the data, or read R@1 as the range",
    ),
    clean(
        "lone-images",
        "Has every query something to find?",
        clean::lone,
        "They have no R@1 and are left out of it; give each class two images or more",
    ),
    attacked(
        "bounds",
        "Do attacked images stay in their bounds?",
        attacked::bounds,
        "This is a fault of the attack; please report it",
    ),
    attacked(
        "direction",
        "Does each attack move its measure towards its goal?",
        attacked::direction,
        "An attack that does nothing, or the opposite, shows nothing about the model. Run `audit doctor` for the cause",
    ),
    attacked(
        "unfinished",
        "Had the attacks stopped getting anywhere?",
        attacked::unfinished,
        "More steps would find more. The suites `ars-strict` and `ers-strict` take adaptive ones, which end nearer to the \
         best",
    ),
    attacked(
        "silent-success",
        "Is the last image the best one?",
        attacked::silent,
        "The published form counts the last image even so; the suites `ars-strict` and `ers-strict` count the best",
    ),
    attacked(
        "half-precision",
        "Are the attacks as strong as with steps in float32?",
        half::weaker,
        "Audit without --attack-precision fp16: steps then run in float32",
    ),
    attacked("worst-case", "How many queries survive every recall attack?", attacked::worst_case, ""),
    doctor(
        "more-steps",
        "Do twice the steps find no more?",
        doctor::more_steps,
        "Audit with more --steps, or with `--suite ars-strict`",
    ),
    doctor(
        "restarts",
        "Do random starts find no more?",
        doctor::restarts,
        "Audit with `--suite ars-strict`, which has random starts",
    ),
    doctor(
        "step-size",
        "Do other step sizes find no more?",
        doctor::step_size,
        "Audit with `--suite ars-strict`, whose steps adapt",
    ),
    doctor(
        "one-step",
        "Are many steps better than one?",
        doctor::one_step,
        "The gradient misleads over more than one step: gradients are masked, and the score with them",
    ),
    doctor(
        "budget",
        "Does a larger ε make attacks stronger?",
        doctor::budget,
        "More room can't hurt an attack that works: gradients are masked, and the score with them",
    ),
    doctor(
        "unbounded",
        "Does an attack without bounds reach its goal?",
        doctor::unbounded,
        "Without bounds every model falls, as one image may become another: the attack fails, not the model resists",
    ),
    doctor(
        "curve",
        "Does retrieval fall to nothing as ε grows?",
        doctor::curve,
        "Audit at several --eps, and read the whole curve",
    ),
    doctor(
        "noise",
        "Is random noise worse than the attack?",
        doctor::noise,
        "Chance finds what the gradient doesn't: gradients are masked, and the score with them",
    ),
    doctor(
        "black-box",
        "Is an attack without gradients worse?",
        doctor::black_box,
        "Gradients are masked, and the score with them. Audit with --gradient estimate to see how far",
    ),
    doctor(
        "transfer",
        "Is an attack on another model worse?",
        doctor::transfer,
        "Gradients are masked: the other model's point the better way",
    ),
    doctor(
        "eight-bit",
        "Do attacked images survive being saved?",
        doctor::eight_bit,
        "The attack lives on changes smaller than a grey level, which no image file holds",
    ),
];

/// The findings of the checks that `of` gives a finding for.
fn findings(mut of: impl FnMut(&Run) -> Option<Found>) -> Vec<Finding> {
    CHECKS.iter().filter_map(|c| Some(c.finding(of(&c.run)?))).collect()
}

/// On the first batch.
pub fn at_load(measured: &load::Measured) -> Vec<Finding> {
    findings(|run| match run {
        Run::Load(check) => Some(check(measured)),
        _ => None,
    })
}

/// On a sample of images.
pub fn of_preprocessing(sample: &mut preprocessing::Sample) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    for c in CHECKS {
        if let Run::Preprocessing(check) = c.run {
            all.push(c.finding(check(sample)?));
        }
    }
    Ok(all)
}

/// On the clean embeddings.
pub fn of_retrieval(retrieval: &clean::Retrieval) -> Vec<Finding> {
    findings(|run| match run {
        Run::Clean(check) => Some(check(retrieval)),
        _ => None,
    })
}

/// On outcomes.
pub fn of_outcomes(outcomes: &attacked::Outcomes) -> Vec<Finding> {
    findings(|run| match run {
        Run::Attacked(check) => Some(check(outcomes)),
        _ => None,
    })
}

/// For a report: whatever was found.
pub fn warnings(findings: Vec<Finding>) -> impl Iterator<Item = Warning> {
    findings.into_iter().filter_map(Finding::warning)
}

/// Refuses to go on where an audit could only end in numbers that mean nothing. Error: exit code 12.
pub fn admit(model: &str, findings: &[Finding]) -> Result<()> {
    match findings.iter().find(|f| f.severity == Severity::Error) {
        None => Ok(()),
        Some(f) => {
            // There is nothing to attack in embeddings that are no numbers.
            let next = if f.check == "finite" { "" } else { "; --allow-untrusted audits it all the same" };
            Err(Error::untrusted(format!(
                "{model}: {}. {}. `audit doctor` looks further{next}",
                f.found, f.advice
            )))
        }
    }
}

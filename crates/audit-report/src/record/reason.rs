//! Reasons to distrust a result. [`REASONS`] has a row for each, and findings are created only from rows.

use super::source;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No fault was found.
    Ok,
    /// A fact that helps to interpret the scores.
    Info,
    /// The scores may be misleading.
    Warning,
    /// The scores are invalid.
    Error,
}

impl Severity {
    /// The severity as one word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The check ran and found nothing, or its answer follows from the file and the flags.
    Passed,
    /// The check ran and found something of some severity.
    #[default]
    Failed,
    /// Nothing was examined.
    NotChecked,
}

impl State {
    fn failed(&self) -> bool {
        *self == State::Failed
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// No fault, and what the check saw.
    Passed(String),
    /// A fault: its severity, and what the check saw.
    Failed(Severity, String),
    /// Nothing was examined.
    NotChecked(Unchecked),
}

/// Why a check did not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Unchecked {
    /// The reason, without a full stop.
    pub why: String,
    /// What to do so that it runs; empty if nothing does.
    pub how: String,
    /// Severity of the missing check itself. Reports leave out `Ok`.
    pub severity: Severity,
}

impl Found {
    /// Nothing casts doubt.
    pub fn passed(seen: impl Into<String>) -> Found {
        Found::Passed(seen.into())
    }

    /// A fault that invalidates the scores.
    pub fn error(seen: impl Into<String>) -> Found {
        Found::Failed(Severity::Error, seen.into())
    }

    /// A fault by which scores may mislead.
    pub fn warning(seen: impl Into<String>) -> Found {
        Found::Failed(Severity::Warning, seen.into())
    }

    /// A fact that helps to interpret the scores.
    pub fn note(seen: impl Into<String>) -> Found {
        Found::Failed(Severity::Info, seen.into())
    }

    /// A fault of `severity` if `fault`; otherwise nothing casts doubt.
    pub fn judged(fault: bool, severity: Severity, seen: String) -> Found {
        if fault { Found::Failed(severity, seen) } else { Found::Passed(seen) }
    }

    /// Nothing was examined, because of `why`; `how` to change that.
    pub fn not_checked(why: impl Into<String>, how: impl Into<String>) -> Found {
        Found::NotChecked(Unchecked { why: why.into(), how: how.into(), severity: Severity::Info })
    }

    /// The result with the severity of the gap, if the check did not run.
    pub fn weighing(self, severity: Severity) -> Found {
        match self {
            Found::NotChecked(unchecked) => Found::NotChecked(Unchecked { severity, ..unchecked }),
            found => found,
        }
    }

    /// The severity of the result.
    pub fn severity(&self) -> Severity {
        match self {
            Found::Passed(_) => Severity::Ok,
            Found::Failed(severity, _) | Found::NotChecked(Unchecked { severity, .. }) => *severity,
        }
    }

    /// Passed, failed or not checked.
    pub fn state(&self) -> State {
        match self {
            Found::Passed(_) => State::Passed,
            Found::Failed(..) => State::Failed,
            Found::NotChecked(_) => State::NotChecked,
        }
    }

    /// The more severe of two results of one check. A result that was not checked gives way to any other.
    pub fn or_graver(self, other: Found) -> Found {
        let rank = |found: &Found| (found.state() != State::NotChecked, found.severity());
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// A reason to distrust a result: a row of [`REASONS`].
#[derive(Debug)]
#[expect(clippy::manual_non_exhaustive, reason = "the private field forces creation through the table")]
pub struct Reason {
    /// Stable identifier of its findings.
    pub id: &'static str,
    /// When the reason is checked, in the words of docs/trust.md.
    pub when: &'static str,
    /// The question, in a few words.
    pub asks: &'static str,
    /// What to do about a finding; empty if the finding states it.
    pub advice: &'static str,
    /// Address of the paper or page that defines what is asked, or says why it matters.
    pub source: &'static str,
    _row: (),
}

/// The result of checking a reason, with advice. [`Reason::finding`] creates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::manual_non_exhaustive, reason = "the private field forces creation through the table")]
pub struct Finding {
    /// The reason's id.
    pub check: String,
    /// The reason's question.
    pub asks: String,
    /// Whether the check passed, failed or did not run.
    pub state: State,
    /// The severity: ok, info, warning or error. Of a check that did not run it says how far the gap casts
    /// doubt.
    pub severity: Severity,
    /// What was found, or why nothing was examined.
    pub found: String,
    /// What to do about it; empty if no action is needed.
    pub advice: String,
    #[serde(skip)]
    row: (),
}

/// A finding in a report. [`Finding::warning`] creates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::manual_non_exhaustive, reason = "the private field forces creation through the table")]
pub struct Warning {
    /// The reason's id.
    pub id: String,
    /// How far the finding invalidates the numbers.
    pub severity: Severity,
    /// `not-checked` for a check that did not run; absent for findings.
    #[serde(default, skip_serializing_if = "State::failed")]
    pub state: State,
    /// What was found, or why nothing was examined, and what to do about it.
    pub text: String,
    #[serde(skip)]
    row: (),
}

impl Reason {
    /// Creates a finding of this reason from the result `found`.
    pub fn finding(&self, found: Found) -> Finding {
        self.advising(self.advice, found)
    }

    /// Creates a finding with `advice` in place of the table's.
    pub fn advising(&self, advice: &str, found: Found) -> Finding {
        let (state, severity) = (found.state(), found.severity());
        let (found, advice) = match found {
            Found::Failed(severity, seen) if severity > Severity::Info => (seen, advice.into()),
            Found::Passed(seen) | Found::Failed(_, seen) => (seen, String::new()),
            Found::NotChecked(Unchecked { why, how, .. }) => (why, how),
        };
        Finding { check: self.id.into(), asks: self.asks.into(), state, severity, found, advice, row: () }
    }

    /// Creates a finding of severity `warning`, for a report.
    pub fn warning(&self, found: impl Into<String>) -> Warning {
        self.finding(Found::warning(found)).into_warning()
    }

    /// Creates a finding of severity `info`, for a report.
    pub fn note(&self, found: impl Into<String>) -> Warning {
        self.finding(Found::note(found)).into_warning()
    }

    /// Whether a finding of a report belongs to this reason.
    pub fn made(&self, warning: &Warning) -> bool {
        warning.id == self.id
    }
}

impl Finding {
    /// Whether this finding belongs to `reason` and invalidates the scores.
    pub fn invalidates(&self, reason: &Reason) -> bool {
        self.check == reason.id && self.severity == Severity::Error
    }

    /// The result as a word, for people: "ok", "note", "warning", "error" or "not checked".
    pub fn word(&self) -> &'static str {
        if self.state == State::NotChecked { NOT_CHECKED } else { self.severity.word() }
    }

    /// Converts the finding for a report; `None` if it casts no doubt.
    pub fn warning(self) -> Option<Warning> {
        (self.severity > Severity::Ok).then(|| self.into_warning())
    }

    fn into_warning(self) -> Warning {
        let Finding { check: id, state, severity, found, advice, .. } = self;
        let text = if advice.is_empty() { found } else { format!("{found}. {advice}") };
        // Formats that show only warnings don't show states.
        let unchecked = state == State::NotChecked && severity > Severity::Info;
        let text = if unchecked { format!("{NOT_CHECKED}: {text}") } else { text };
        Warning { id, severity, state, text, row: () }
    }
}

impl Warning {
    /// Whether a short report must state it: the numbers are invalid, or may be of something else than was
    /// meant.
    pub fn is_grave(&self) -> bool {
        self.severity == Severity::Error || GRAVE.iter().any(|reason| reason.made(self))
    }

    /// Whether it is about a detail of the data, which a short report states last.
    pub fn is_detail(&self) -> bool {
        DETAILS.iter().any(|reason| reason.made(self))
    }

    /// What it is, as a word for people: "note", "warning", "error" or "not checked".
    pub fn word(&self) -> &'static str {
        match (self.state, self.severity) {
            (State::NotChecked, Severity::Ok | Severity::Info) => NOT_CHECKED,
            (_, severity) => severity.word(),
        }
    }
}

/// Reasons by which the numbers may be of something else than was meant.
static GRAVE: [&Reason; 4] = [&CLASS_SCORES, &COLLAPSE, &PREPROCESSING_DOUBTFUL, &IMAGE_HIDDEN];

/// Reasons that are details of the data.
static DETAILS: [&Reason; 5] = [&DUPLICATES, &LONE_IMAGES, &OTHER_FILES, &FEW_QUERIES, &SMALL_TERMS];

/// The word of all outputs for a check that did not run.
pub const NOT_CHECKED: &str = "not checked";

/// Advice if another attack is better than the strong search.
pub const MORE_EFFORT: &str = "The strong search did not find the best attacks, so its numbers are too high. Give it more work: \
                               `effort: 10` in the suite file";

/// Advice if another attack is better than the suite's. The check `masked-gradients` decides between the two
/// causes; see [`Masking`].
pub const WEAK_OR_MASKED: &str =
    "The attack of the suite is too weak, or gradients are masked. Its score is too high";

/// The result of the check `masked-gradients` for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masking {
    /// The exact gradient is masked.
    Found,
    /// No masking was found.
    NotFound,
    /// The check did not run.
    Unknown,
}

impl Masking {
    /// Reads it from the findings of a model.
    pub fn of(findings: &[Finding]) -> Masking {
        let found = findings.iter().find(|f| f.check == MASKED_GRADIENTS.id);
        match found.map(|f| f.state) {
            Some(State::Failed) => Masking::Found,
            Some(State::Passed) => Masking::NotFound,
            Some(State::NotChecked) | None => Masking::Unknown,
        }
    }

    /// `advice` completed by this result, if it is [`WEAK_OR_MASKED`].
    pub fn decides(self, advice: &'static str) -> &'static str {
        if advice != WEAK_OR_MASKED {
            return advice;
        }
        match self {
            Masking::Found => {
                "The check `masked-gradients` finds that the gradient is masked, so the score is invalid. Read robust R@1"
            }
            Masking::NotFound => {
                "The attack of the suite is too weak, so its score is too high: `masked-gradients` finds no masking. Read robust \
                 R@1, or audit with more --steps or `--suite ars-strict`"
            }
            Masking::Unknown => {
                "The attack of the suite is too weak, or gradients are masked. Its score is too high. The check `masked-gradients` \
                 tells which of the two it is, and was not checked"
            }
        }
    }
}

/// How to make the checks of the gradient run, if gradients are estimated.
pub const EXACT_GRADIENT: &str =
    "Leave --gradient estimate out, if every operator of the model has a gradient rule";

/// Defines a constant and a row of the table for each reason: its id, its source, when it is checked, its
/// question, its advice.
macro_rules! reasons {
    ($($name:ident = $id:literal, $source:expr, $when:literal, $asks:literal, $advice:expr;)*) => {
        $(#[doc = $asks] pub static $name: Reason =
            Reason { id: $id, when: $when, asks: $asks, advice: $advice, source: $source, _row: () };)*

        /// Every reason.
        pub static REASONS: &[&Reason] = &[$(&$name),*];
    };
}

reasons! {
    FINITE = "finite", source::FLOATING_POINT, "always", "Are embeddings and gradient finite?",
        "Check the preprocessing (range, mean, std) and the model in its own framework. A division by \
         zero or an overflow is the usual cause";
    RANDOMISED = "randomised", source::MASKING, "always", "Does the same image give the same embedding?",
        "Export the model in inference mode, without random operators. An attack on a model whose output changes at random \
         proves nothing";
    BATCH_DEPENDENCE = "batch-dependence", source::BATCH_NORMALISATION, "always", "Does an embedding stay the same if the other images of its batch change?",
        "Usual causes are dynamic quantisation, batch normalisation in training mode, and a Reshape that takes a batch for one image";
    PARITY = "parity", source::ONNX_OPERATORS, "always", "Do our embeddings agree with the untouched file's?",
        "An audit would examine another model than the file's. Please report this with the model's architecture";
    RUNTIME_OPTIMISER = "runtime-optimiser", source::GRAPH_OPTIMISATIONS, "always", "Does ONNX Runtime's optimiser leave the embeddings unchanged?",
        "The audit examines the model as the file states it. With ONNX Runtime's default options, the deployed model computes other \
         embeddings";
    BATCH_SIZE = "batch-size", source::BATCH_NORMALISATION, "always", "Does an embedding stay the same if the size of its batch changes?",
        "The audit examines the model at one batch size. At other batch sizes the model computes other embeddings. Look for \
         nodes that read the size of the batch, and export the model without them";
    PRECISION = "precision", source::MIXED_PRECISION, "always", "Does the model compute in float32?",
        "The audit examines the float32 form of the model";
    GRADIENT_ESTIMATED = "gradient-estimated", source::NES, "always", "Are gradients exact, not estimated?",
        "Attacks along estimated gradients are weaker. The scores are therefore too high and not comparable with others. Audit with \
         exact gradients where they are available";
    ZERO_GRADIENT = "zero-gradient", source::ATTACK_FAILURE, "always", "Is there a gradient on every image?",
        "White-box attacks can't change these images and count as withstood. The model would look robust without being robust. \
         Audit with --gradient estimate, or audit the model without the layer that makes the gradient zero";
    GRADIENT = "gradient", source::DIFFERENTIATION, "always", "Does the gradient agree with finite differences?",
        "Attacks along a wrong gradient would call a weak model robust, so no score is given. Please report this with the \
         model's architecture, or audit with --gradient estimate";
    GRADIENT_DEVIATES = "gradient-deviates", source::DIFFERENTIATION, "always", "Is the gradient as accurate as finite differences can measure?",
        "Such a small error changes few signs of the gradient and hardly changes scores. Please report this with the model's \
         architecture";
    IMAGE_HIDDEN = "image-hidden", source::CA_TRIDE, "always", "Does the embedding depend on the image?",
        "Such a model hardly distinguishes images. Check that it is trained and that its weights are loaded";
    STRAIGHT_THROUGH = "straight-through", source::STRAIGHT_THROUGH, "always", "Does the gradient pass no rounding?",
        "The true gradient of rounding is zero. An attack made for quantised models may find more";
    FLAT_OPERATORS = "flat-operators", source::MASKING, "always", "Does the gradient reach every path?",
        "An attack that does not need their gradient may find more: compare with --gradient estimate";
    SATURATED_GRADIENT = "saturated-gradient", source::MASKING, "always", "Is the gradient non-zero and stable under small changes?",
        "Gradients that vanish or change direction with every step mislead attacks: trust the score only if `audit \
         doctor` finds that attacks without gradients do no better";
    PREPROCESSING_DOUBTFUL = "preprocessing-doubtful", source::PREPROCESSING, "with `--data`", "Is no other preprocessing better at retrieval?",
        "Check how the model was trained, and state it in the model card";
    COLLAPSE = "collapse", source::CA_TRIDE, "always", "Do embeddings distinguish images?",
        "One of three causes: the preprocessing is wrong; the images are not of the kind that the model was trained on, or too few \
         to decide; or the model has collapsed. A collapsed model can have high scores, but they mean nothing";
    ZERO_EMBEDDING = "zero-embedding", source::NORMFACE, "always", "Does every embedding have a direction?",
        "A zero embedding has no direction, so normalised and cosine distances from it are undefined. Look at these images and at the layers \
         whose outputs are zero, or take --metric euclidean";
    DUPLICATES = "duplicates", source::NEAR_DUPLICATES, "always", "Do all images have different embeddings?",
        "The order of equal embeddings is arbitrary. Remove the copies from the data, or read R@1 as the range";
    LONE_IMAGES = "lone-images", source::RETRIEVAL, "always", "Does every query have an image of its class to find?",
        "They have no R@1 and are left out of it. Give each class two images or more";
    BOUNDS = "bounds", source::BALL, "always", "Do attacked images stay within their bounds?",
        "This is a fault of the attack. Please report it";
    DIRECTION = "direction", source::EVALUATING, "always", "Does each attack move its measure towards its goal?",
        "An attack that does nothing, or the opposite, shows nothing about the model. Run `audit doctor` \
         for the cause";
    UNFINISHED = "unfinished", source::ATTACK_FAILURE, "always", "Had the attacks converged?",
        "More steps would find more. The suites `ars-strict` and `ers-strict` use adaptive steps, which \
         end nearer to the optimum";
    SILENT_SUCCESS = "silent-success", source::ATTACK_FAILURE, "always", "Is the last image of each attack its best one?",
        "The published form counts the last image all the same; the suites `ars-strict` and `ers-strict` count \
         the best";
    HALF_PRECISION = "half-precision", source::MIXED_PRECISION, "with `--attack-precision fp16`", "Are the attacks as strong as with steps in float32?",
        "Audit without --attack-precision fp16: steps then run in float32";
    WORST_CASE = "worst-case", source::EVALUATING, "always", "How many queries withstand every attack on R@1?",
        "";
    MASKED_GRADIENTS = "masked-gradients", source::MASKING, "with the strong search", "Do attacks with softened gradients or without gradients break no more queries than the exact gradient?",
        "The exact gradient is masked, so that scores of attacks along it are invalid. Read robust R@1, and \
         audit the model without the layer that masks its gradient";
    CONTRADICTED = "contradicted", source::ENSEMBLE, "with the strong search", "Does the strong search confirm the suite's R@1?",
        "Read robust R@1, and gate on it: --fail-under robust_r1=N";
    MORE_STEPS = "more-steps", source::EVALUATING, "doctor", "Do twice as many steps find no more?",
        "Audit with more --steps, or with `--suite ars-strict`";
    RESTARTS = "restarts", source::EVALUATING, "doctor", "Do random starts find no more?",
        "Audit with random starts: `--suite ars-strict`, or `restarts: 5` in a suite file";
    STEP_SIZE = "step-size", source::ENSEMBLE, "doctor", "Do other step sizes find no more?",
        "Audit with adaptive steps: `--suite ars-strict`, or `schedule: adaptive` in a suite file";
    ONE_STEP = "one-step", source::MASKING, "doctor", "Are many steps better than one?",
        WEAK_OR_MASKED;
    BUDGET = "budget", source::MASKING, "doctor", "Does a larger ε make attacks stronger?",
        WEAK_OR_MASKED;
    UNBOUNDED = "unbounded", source::MASKING, "doctor", "Does an attack without bounds reach its goal?",
        "Without bounds an attack can turn one image into another, so no model resists it. That it misses its goal is a fault of \
         the attack, not robustness of the model";
    CURVE = "curve", source::EVALUATING, "doctor", "Does R@1 fall to chance as ε grows?",
        "Audit at several --eps, and read the whole curve";
    NOISE = "noise", source::MASKING, "doctor", "Is random noise weaker than the attack?",
        WEAK_OR_MASKED;
    BLACK_BOX = "black-box", source::MASKING, "doctor", "Is an attack without gradients weaker?",
        WEAK_OR_MASKED;
    TRANSFER = "transfer", source::ATTACK_FAILURE, "doctor, with `--surrogate`", "Is an attack made on another model weaker?",
        WEAK_OR_MASKED;
    EIGHT_BIT = "eight-bit", source::FGSM, "doctor", "Do attacked images stay effective when they are saved in 8 bits?",
        "The attack depends on changes smaller than one grey level, which 8-bit images cannot store";
    CANDIDATES = "candidates-outside", source::RANKING_ATTACK, "always", "Are the candidates of CA± images of the gallery?",
        "By definition, candidates are images of the gallery. Audit the images of the gallery instead of its embeddings, if \
         you have them";
    KEPT_ITEMS = "few-kept-items", source::DEEP_RANKING, "with SPQA or SPFOA", "Are there 5 images to keep at the top of the ranking?",
        "Be careful when comparing with runs on a larger gallery";
    BUILT_IN_DATA = "built-in-data", source::DATA_BIAS, "without `--data`, or with `generated:`", "Are the images your own?",
        "Give your own images: --data FOLDER";
    PREPROCESSING_ASSUMED = "preprocessing-assumed", source::PREPROCESSING, "always", "Is the preprocessing stated?",
        "If the model was trained with other values, or normalises inside, state --mean and --std (0 and 1 for none)";
    CLASS_SCORES = "class-scores", source::FACENET, "always", "Is the output an embedding?",
        "If they are, export the model without its classifier (timm: num_classes=0), or audit the value before it: --output NAME. \
         Instead of a detector, audit the model that embeds what it cuts out";
    UNREADABLE_IMAGES = "unreadable-images", source::DATASHEETS, "always", "Could every image be read?",
        "Repair these files, or remove them";
    OTHER_FILES = "other-files", source::DATASHEETS, "with `--data`", "Is every file among the images an image?",
        "If these are images, give them their format's extension, or convert them to PNG. Otherwise remove them";
    TWO_CLASSES = "two-classes", source::NEAR_DUPLICATES, "always", "Is every image in one class only?",
        "A query that finds the copy counts as wrong. Correct the classes, or remove the copies";
    ONE_KIND_OF_PAIRS = "pairs-of-one-kind", source::FACENET, "with a list of pairs", "Are there genuine and impostor pairs?",
        "Add pairs of the other kind to the list";
    NEAR_COPIES = "near-copies", source::NEAR_DUPLICATES, "without classes", "Does each query have one nearest image?",
        "";
    UNUSED_DATA = "unused-data", source::DATASHEETS, "with `--data`", "Was everything used that the data state?",
        "";
    NO_CLUSTERING = "no-clustering", source::CLUSTERING, "always", "Was clustering fast enough to be done?",
        "";
    FAST_MATH = "fast-math", source::CUDA_PROVIDER, "with `--fast-math`", "Were products computed in full float32?",
        "Compare only with scores made with --fast-math, or leave it out";
    CPU_NODES = "cpu-nodes", source::EXECUTION_PROVIDERS, "with `--allow-cpu-nodes`", "Did every node run on the GPU?",
        "";
    FEW_QUERIES = "few-queries", source::BOOTSTRAP, "always", "Are there enough queries?",
        "Read the intervals, and compare models on more queries";
    SMALL_TERMS = "small-terms", source::BOOTSTRAP, "always", "Is each resistance measured on ten queries or more?",
        "Audit more queries. For attacks on queries (not on pairs), --sample correct prefers queries that are correct without an attack";
    WITHHELD = "withheld", source::BOOTSTRAP, "always", "Are there enough queries for a score?",
        "Audit more queries";
    ROSE = "rose", source::EVALUATING, "always", "Does no attack increase the R@1 that it attacks?",
        "";
    PASS_LEFT_OUT = "pass-left-out", source::MASKING, "with the strong search", "Could every backward pass be built?",
        "Free memory, or use a machine with more memory, and audit again";
    PART_OF_A_RUN = "part-of-a-run", source::BOOTSTRAP, "with `--partition`", "Is the run complete?",
        "`audit merge` combines the parts";
    SAMPLING_NOISE = "sampling-noise", source::BOOTSTRAP, "with a baseline", "Does the gate tolerate differences that chance explains?",
        "The gate can miss a drop of that size: audit more queries, or increase the tolerance";
}

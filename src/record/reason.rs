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

/// The result of a check: its severity and a text.
pub type Found = (Severity, String);

/// A reason to distrust a result: a row of [`REASONS`].
#[derive(Debug)]
#[expect(clippy::manual_non_exhaustive, reason = "nobody else in this crate makes one either")]
pub struct Reason {
    /// Stable identifier of its findings.
    pub id: &'static str,
    /// When the reason is checked, in the words of docs/trust.md.
    pub when: &'static str,
    /// The question, in a few words.
    pub asks: &'static str,
    /// What to do about a finding; empty where the finding states it.
    pub advice: &'static str,
    /// Address of the paper or page that defines what is asked, or says why it matters.
    pub source: &'static str,
    _row: (),
}

/// The result of checking a reason, with advice. [`Reason::finding`] creates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::manual_non_exhaustive, reason = "nobody else in this crate makes one either")]
pub struct Finding {
    /// The reason's id.
    pub check: String,
    /// The reason's question.
    pub asks: String,
    /// The severity: ok, info, warning or error.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where no action is needed.
    pub advice: String,
    #[serde(skip)]
    row: (),
}

/// A finding in a report. [`Finding::warning`] creates it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::manual_non_exhaustive, reason = "nobody else in this crate makes one either")]
pub struct Warning {
    /// The reason's id.
    pub id: String,
    /// The severity.
    pub severity: Severity,
    /// What was found, and what to do about it.
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
    pub fn advising(&self, advice: &'static str, (severity, found): Found) -> Finding {
        let advice = if severity > Severity::Info { advice } else { "" };
        Finding {
            check: self.id.into(),
            asks: self.asks.into(),
            severity,
            found,
            advice: advice.into(),
            row: (),
        }
    }

    /// Creates a finding of severity `warning`, for a report.
    pub fn warning(&self, found: impl Into<String>) -> Warning {
        self.finding((Severity::Warning, found.into())).into_warning()
    }

    /// Creates a finding of severity `info`, for a report.
    pub fn note(&self, found: impl Into<String>) -> Warning {
        self.finding((Severity::Info, found.into())).into_warning()
    }

    /// Whether a finding of a report belongs to this reason.
    pub fn made(&self, warning: &Warning) -> bool {
        warning.id == self.id
    }
}

impl Finding {
    /// Whether this finding belongs to `reason` and invalidates the scores.
    pub fn condemns(&self, reason: &Reason) -> bool {
        self.check == reason.id && self.severity == Severity::Error
    }

    /// Converts the finding for a report; `None` where no fault was found.
    pub fn warning(self) -> Option<Warning> {
        (self.severity > Severity::Ok).then(|| self.into_warning())
    }

    fn into_warning(self) -> Warning {
        let Finding { check: id, severity, found, advice, .. } = self;
        let text = if advice.is_empty() { found } else { format!("{found}. {advice}") };
        Warning { id, severity, text, row: () }
    }
}

/// Advice where another attack outdoes the strong search.
pub const MORE_EFFORT: &str = "The strong search left something: its numbers are upper bounds, and here too high. Give it more \
                               work: `effort: 10` in the suite file";

/// Defines a constant and a row of the table for each reason: its id, its source, when it is checked, its
/// question, its advice.
macro_rules! reasons {
    ($($name:ident = $id:literal, $source:expr, $when:literal, $asks:literal, $advice:literal;)*) => {
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
        "Export the model in inference mode, without random operators. An attack on a model that changes \
         proves nothing";
    PARITY = "parity", source::ONNX_OPERATORS, "always", "Do our embeddings agree with the untouched file's?",
        "The audit would be of another model. Please report this with the model's architecture";
    RUNTIME_OPTIMISER = "runtime-optimiser", source::GRAPH_OPTIMISATIONS, "always", "Does ONNX Runtime's optimiser leave the embeddings alone?",
        "The audit is of the model as it is written. Deployed with default options, it computes something \
         else";
    BATCH_DEPENDENCE = "batch-dependence", source::BATCH_NORMALISATION, "always", "Is an embedding the same in other company?",
        "Batch normalisation exported in training mode is the usual cause: export the model in inference \
         mode";
    BATCH_SIZE = "batch-size", source::BATCH_NORMALISATION, "always", "Is an embedding the same in batches of any size?",
        "The audit is of the model in batches of the size that it chose. In others the model is another one, which an audit \
         does not see. Look for nodes that read the size of the batch, and export the model without them";
    PRECISION = "precision", source::MIXED_PRECISION, "always", "Does the model compute in float32?",
        "Mind that the audit is of its float32 form";
    GRADIENT_ESTIMATED = "gradient-estimated", source::NES, "always", "Are gradients formed, not estimated?",
        "Attacks find less this way, so that scores flatter the model and compare with no others: audit \
         with exact gradients where they can be had";
    ZERO_GRADIENT = "zero-gradient", source::ATTACK_FAILURE, "always", "Is there a gradient on every image?",
        "White-box attacks can't move there, and count as withstood, so that the model would look robust \
         without being it. Audit with --gradient estimate, or the model before what flattens it";
    GRADIENT = "gradient", source::DIFFERENTIATION, "always", "Does the gradient agree with finite differences?",
        "A score from it would call a weak model robust, so none is given. Please report this with the \
         model's architecture, or audit with --gradient estimate";
    GRADIENT_DEVIATES = "gradient-deviates", source::DIFFERENTIATION, "always", "Is the gradient as right as finite differences can tell?",
        "So small an error changes few signs of the gradient, and scores hardly. Please report this with the model's \
         architecture";
    IMAGE_HIDDEN = "image-hidden", source::CA_TRIDE, "always", "Does the embedding depend on the image?",
        "Such a model tells its images apart by next to nothing: see that it is trained, and its weights loaded";
    STRAIGHT_THROUGH = "straight-through", source::STRAIGHT_THROUGH, "always", "Is nothing rounded on the way?",
        "The model is flat there, and an attack made for it may find more";
    FLAT_OPERATORS = "flat-operators", source::MASKING, "always", "Does the gradient reach every path?",
        "An attack that goes round them may find more: compare with --gradient estimate";
    SATURATED_GRADIENT = "saturated-gradient", source::MASKING, "always", "Does the gradient point somewhere, and near by to the same place?",
        "Gradients that vanish or turn with every step mislead attacks: trust the score only if `audit \
         doctor` finds that attacks without gradients do no better";
    PREPROCESSING_DOUBTFUL = "preprocessing-doubtful", source::PREPROCESSING, "with `--data`", "Does no other preprocessing retrieve better?",
        "Check how the model was trained, and state it in the model card";
    COLLAPSE = "collapse", source::CA_TRIDE, "always", "Do embeddings tell images apart?",
        "One of three causes: the preprocessing is wrong; the images are not of the kind that the model was trained on, or too few \
         to tell; or the model has collapsed. A collapsed model can score high, but its scores mean nothing";
    ZERO_EMBEDDING = "zero-embedding", source::NORMFACE, "always", "Has every embedding a direction?",
        "An embedding of zeros is as far from everything as from anything: look at these images and at the layers that end \
         in zeros, or take --metric euclidean";
    DUPLICATES = "duplicates", source::NEAR_DUPLICATES, "always", "Is every embedding unlike the others?",
        "Which of equals comes first is chance: remove the copies from the data, or read R@1 as the range";
    LONE_IMAGES = "lone-images", source::RETRIEVAL, "always", "Has every query something to find?",
        "They have no R@1 and are left out of it. Give each class two images or more";
    BOUNDS = "bounds", source::BALL, "always", "Do attacked images stay in their bounds?",
        "This is a fault of the attack. Please report it";
    DIRECTION = "direction", source::EVALUATING, "always", "Does each attack move its measure towards its goal?",
        "An attack that does nothing, or the opposite, shows nothing about the model. Run `audit doctor` \
         for the cause";
    UNFINISHED = "unfinished", source::ATTACK_FAILURE, "always", "Had the attacks stopped getting anywhere?",
        "More steps would find more. The suites `ars-strict` and `ers-strict` take adaptive ones, which \
         end nearer to the best";
    SILENT_SUCCESS = "silent-success", source::ATTACK_FAILURE, "always", "Is the last image the best one?",
        "The published form counts the last image even so; the suites `ars-strict` and `ers-strict` count \
         the best";
    HALF_PRECISION = "half-precision", source::MIXED_PRECISION, "with `--attack-precision fp16`", "Are the attacks as strong as with steps in float32?",
        "Audit without --attack-precision fp16: steps then run in float32";
    WORST_CASE = "worst-case", source::EVALUATING, "always", "How many queries survive every recall attack?",
        "";
    MASKED_GRADIENTS = "masked-gradients", source::MASKING, "with the strong search", "Do softened gradients, or none, find no more than the exact one?",
        "The exact gradient is hidden, so that scores of attacks along it say nothing about the model. Read robust R@1, and \
         audit the model before what hides its gradient";
    CONTRADICTED = "contradicted", source::ENSEMBLE, "with the strong search", "Does a stronger attack leave the suite's R@1 standing?",
        "Read robust R@1, and gate on it: --fail-under robust_r1=N";
    MORE_STEPS = "more-steps", source::EVALUATING, "doctor", "Do twice the steps find no more?",
        "Audit with more --steps, or with `--suite ars-strict`";
    RESTARTS = "restarts", source::EVALUATING, "doctor", "Do random starts find no more?",
        "Audit with random starts: `--suite ars-strict`, or `restarts: 5` in a suite file";
    STEP_SIZE = "step-size", source::ENSEMBLE, "doctor", "Do other step sizes find no more?",
        "Audit with steps that adapt: `--suite ars-strict`, or `schedule: adaptive` in a suite file";
    ONE_STEP = "one-step", source::MASKING, "doctor", "Are many steps better than one?",
        "The gradient misleads over more than one step: gradients are masked, and the score with them";
    BUDGET = "budget", source::MASKING, "doctor", "Does a larger ε make attacks stronger?",
        "More room can't hurt an attack that works: gradients are masked, and the score with them";
    UNBOUNDED = "unbounded", source::MASKING, "doctor", "Does an attack without bounds reach its goal?",
        "Without bounds every model falls, as one image may become another: the attack fails, not the \
         model resists";
    CURVE = "curve", source::EVALUATING, "doctor", "Does retrieval fall to nothing as ε grows?",
        "Audit at several --eps, and read the whole curve";
    NOISE = "noise", source::MASKING, "doctor", "Is random noise worse than the attack?",
        "Chance finds what the gradient doesn't: gradients are masked, and the score with them";
    BLACK_BOX = "black-box", source::MASKING, "doctor", "Is an attack without gradients worse?",
        "Gradients are masked, and the score with them. Audit with --gradient estimate to see how far";
    TRANSFER = "transfer", source::ATTACK_FAILURE, "doctor, with `--surrogate`", "Is an attack on another model worse?",
        "Gradients are masked: the other model's point the better way";
    EIGHT_BIT = "eight-bit", source::FGSM, "doctor", "Do attacked images survive being saved?",
        "The attack lives on changes smaller than a grey level, which no image file holds";
    CANDIDATES = "candidates-outside", source::RANKING_ATTACK, "always", "Are the candidates of CA± items of the gallery?",
        "By the definition candidates are items of the gallery. Audit images of the gallery, where there are any, instead of \
         their embeddings";
    KEPT_ITEMS = "few-kept-items", source::DEEP_RANKING, "with SPQA or SPFOA", "Are there 5 items to keep at the top?",
        "Compare with runs on a larger gallery only with care";
    BUILT_IN_DATA = "built-in-data", source::DATA_BIAS, "without `--data`, or with `generated:`", "Are the images your own?",
        "Give your own with --data";
    PREPROCESSING_ASSUMED = "preprocessing-assumed", source::PREPROCESSING, "always", "Is the preprocessing stated?",
        "If the model was trained with others, or has them inside, state --mean and --std (0 and 1 for none)";
    CLASS_SCORES = "class-scores", source::FACENET, "always", "Is the output an embedding?",
        "If they are, export the model without its classifier (timm: num_classes=0), or audit the value before it: --output NAME";
    UNREADABLE_IMAGES = "unreadable-images", source::DATASHEETS, "always", "Could every image be read?",
        "Mend them, or take them out";
    OTHER_FILES = "other-files", source::DATASHEETS, "with `--data`", "Is every file among the images an image?",
        "If these are images, give them their format's ending, or convert them to PNG. Otherwise remove them";
    NO_CLUSTERING = "no-clustering", source::CLUSTERING, "always", "Was there time to cluster?",
        "";
    FAST_MATH = "fast-math", source::CUDA_PROVIDER, "with `--fast-math`", "Were products rounded no further than float32?",
        "Compare with scores made so, or leave it out";
    CPU_NODES = "cpu-nodes", source::EXECUTION_PROVIDERS, "with `--allow-cpu-nodes`", "Did every node run on the GPU?",
        "";
    FEW_QUERIES = "few-queries", source::BOOTSTRAP, "always", "Are there queries enough?",
        "Mind the intervals, and compare models on more";
    SMALL_TERMS = "small-terms", source::BOOTSTRAP, "always", "Does each resistance rest on ten queries or more?",
        "Audit more queries; attacks on queries, not on pairs, also take those that are right without attack: --sample correct";
    WITHHELD = "withheld", source::BOOTSTRAP, "always", "Are there queries enough for a score?",
        "Audit more queries";
    ROSE = "rose", source::EVALUATING, "always", "Does no attack raise the R@1 that it attacks?",
        "";
    PASS_LEFT_OUT = "pass-left-out", source::MASKING, "with the strong search", "Could every backward pass be formed?",
        "Free memory, or run on a machine with more, and audit again";
    PART_OF_A_RUN = "part-of-a-run", source::BOOTSTRAP, "with `--partition`", "Is the run whole?",
        "`audit merge` puts the parts together";
    SAMPLING_NOISE = "sampling-noise", source::BOOTSTRAP, "with a baseline", "Does the gate tolerate what chance explains?",
        "A drop of that size can pass unseen: audit more queries, or tolerate more";
}

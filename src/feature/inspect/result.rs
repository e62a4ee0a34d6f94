//! What is found out of a model file, as data.

use super::{Inspect, QUERIES};
use crate::data::{BUILTIN_SEED, Dataset};
use crate::model::card::Card;
use crate::model::inspect::{Inspection, ModelKind, Taken};
use crate::pipeline::cost::{Amount, Outlook, Speed, seconds};
use crate::pipeline::images::CHECKED_IMAGES;
use crate::pipeline::machine::Machine;
use crate::pipeline::open::metric;
use crate::progress::TimeLimit;
use crate::report::again::first_audit;
use crate::report::escape::words;
use crate::suite::Suite;
use crate::visible::is_obeyed;
use crate::{Error, Exit, Result, operators};
use serde::Serialize;
use std::path::Path;

/// Content of the terminal and of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Path of the file.
    pub model: String,
    /// Bytes of the file and of the external data that it refers to.
    pub bytes: u64,
    /// SHA-256 of the file, and of the external data that it refers to if there are any.
    pub sha256: String,
    /// SHA-256 of the net, the same whether its weights lie in the file or beside it.
    pub net_sha256: String,
    /// Files with external data, as the model names them.
    pub external_data: Vec<String>,
    /// What it looks like, in words.
    pub looks_like: String,
    /// Inputs and outputs with their shapes, as declared.
    pub inputs: Vec<String>,
    /// See `inputs`.
    pub outputs: Vec<String>,
    /// The value that is the embedding, its length, and why it is this value.
    pub embedding: Option<Embedding>,
    /// What happens to an image.
    pub preprocessing: Option<String>,
    /// Whether mean and std were assumed, not stated.
    pub preprocessing_assumed: Option<bool>,
    /// The batch, where the file fixes it.
    pub fixed_batch: Option<usize>,
    /// Why the model takes one image at a time, if its input leaves the batch open and its nodes fix it.
    pub one_at_a_time: Option<String>,
    /// The narrowest float type that the file computes in.
    pub precision: String,
    /// Operators on the way to the embedding, with the number of their nodes and the class of their gradient.
    pub operators: Vec<OperatorCount>,
    /// Nodes whose gradient is not the derivative: rounded or flat.
    pub no_derivative: Vec<String>,
    /// Where it computes, and why there.
    pub machine: String,
    /// What an audit costs.
    pub cost: Option<AuditCost>,
    /// Results that took longer than `--time-limit`.
    pub not_measured: Option<String>,
    /// Why an audit would refuse it, or why it has no gradient.
    pub problem: Option<String>,
    /// What to do.
    pub next: Vec<String>,
    /// Whether values are quantised on the way to the embedding.
    #[serde(skip)]
    pub(super) quantised: bool,
    #[serde(skip)]
    pub(super) exit: Option<Exit>,
}

/// The value that is the embedding.
#[derive(Clone, Debug, Serialize)]
pub struct Embedding {
    /// Of the value in the ONNX graph.
    pub name: String,
    /// Its dimensions.
    pub dim: usize,
    /// Why this value was taken, such as being the only output.
    pub why: String,
}

/// How often the model uses an operator.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorCount {
    /// The type of its nodes, such as `Conv`.
    pub name: String,
    /// Nodes of the graph.
    pub nodes: usize,
    /// The class of its gradient as `audit ops` has it; empty where there is none.
    pub gradient: String,
}

/// An estimate of the seconds that an audit takes.
#[derive(Clone, Debug, Serialize)]
pub struct AuditCost {
    /// The suite of the attacks.
    pub suite: String,
    /// Seconds of the check at load, once per audit.
    pub check_s: f64,
    /// Seconds to embed one image.
    pub image_s: f64,
    /// Seconds to attack one query by all attacks.
    pub query_s: f64,
    /// Seconds to attack 50 queries, with suite `robust` of a model without a defence.
    pub attacks_50_s: f64,
    /// The same if the strong search beside a suite succeeds at once; equal to it with suite `robust`.
    pub attacks_50_least_s: f64,
    /// Seconds to attack 50 queries at most.
    pub attacks_50_most_s: f64,
    /// These times in words.
    #[serde(skip)]
    pub(super) attacks: String,
}

impl Findings {
    /// The findings of an inspection. `written`: that the card was written, in words.
    pub(super) fn new(
        request: &Inspect,
        machine: &Machine,
        card: &Card,
        suite: &Suite,
        found: &Inspection,
        written: Option<String>,
    ) -> Result<Findings> {
        let taken = found.taken.as_ref().ok();
        let info = taken.map(|t| &t.info);
        let class = |op: &str| operators::class_of(op).unwrap_or_default();
        let operators = taken.into_iter().flat_map(|t| &t.operators);
        let problem = match &found.taken {
            Err(e) => Some(e),
            Ok(taken) => taken.refused.as_ref(),
        };
        let measured = taken.filter(|t| t.refused.is_none()).and_then(|t| Some((t, t.embed_s?)));
        Ok(Findings {
            model: request.model.display().to_string(),
            bytes: found.identity.bytes,
            sha256: found.identity.sha256.clone(),
            net_sha256: found.identity.net_sha256.clone(),
            external_data: found.identity.beside.clone(),
            looks_like: found.look.words().into(),
            inputs: found.inputs.clone(),
            outputs: found.outputs.clone(),
            embedding: info.map(|i| Embedding {
                name: i.output.clone(),
                dim: i.dim,
                why: i.output_why.clone(),
            }),
            preprocessing: info.map(|i| i.preprocessing.words()),
            preprocessing_assumed: info.map(|i| i.preprocessing.assumed),
            fixed_batch: info.and_then(|i| i.fixed_batch),
            one_at_a_time: info.and_then(|i| i.alone.clone()),
            precision: found.precision.name().into(),
            quantised: taken.is_some_and(|t| t.notes.iter().any(|n| n.straight_through)),
            operators: operators
                .map(|(op, n)| OperatorCount { name: op.clone(), nodes: *n, gradient: class(op).into() })
                .collect(),
            no_derivative: taken.map_or(Vec::new(), |t| t.notes.iter().map(|n| n.node.clone()).collect()),
            machine: format!("{}, {}", machine.in_words(), metric(card)),
            cost: measured.map(|(t, embed_s)| AuditCost::of(t, embed_s, suite)).transpose()?,
            not_measured: taken.and_then(|t| unmeasured(t, request.time_limit)),
            exit: problem.map(|e| if e.exit == Exit::Untrusted { Exit::Untrusted } else { Exit::Model }),
            problem: problem.map(|e| e.message.clone()),
            next: written.into_iter().chain(next_steps(request, found, problem)).collect(),
        })
    }
}

impl AuditCost {
    /// What an audit with a suite costs, if a forward pass of one image takes `embed_s` seconds.
    fn of(taken: &Taken, embed_s: f64, suite: &Suite) -> Result<AuditCost> {
        let p = &taken.info.preprocessing;
        let (_, plan) = suite.plan(p.height.max(p.width), 0)?;
        let images = Dataset::builtin(BUILTIN_SEED).items.len();
        let amount = Amount {
            images,
            queries: QUERIES,
            parts: 1,
            may_shorten: true,
            checked: false,
            first: CHECKED_IMAGES,
            tried: 0,
            ranking: 0.0,
        };
        let suite = &Suite { max_queries: Some(QUERIES), ..suite.clone() };
        let outlook = Outlook::of(Speed::guess(embed_s), amount, false, suite, &plan, None);
        Ok(AuditCost {
            suite: suite.name.clone(),
            check_s: outlook.phases[0].seconds,
            image_s: embed_s,
            query_s: outlook.query_s,
            attacks_50_s: outlook.attacks()[1],
            attacks_50_least_s: outlook.attacks()[0],
            attacks_50_most_s: outlook.most_s,
            attacks: format!("{}{}", outlook.attacks_in_words(seconds), outlook.sooner()),
        })
    }
}

fn next_steps(request: &Inspect, found: &Inspection, problem: Option<&Error>) -> Vec<String> {
    let (model, exists) = (request.model.to_string_lossy(), |name: &str| Path::new(name).exists());
    let audit = |more: &[String]| first_audit(&model, &words(&request.command), more, QUERIES, &exists);
    let instead = found.look.instead().map(String::from);
    let mut steps: Vec<String> = match problem {
        Some(problem) => {
            // What the output looks like is nothing if its values are not of one image.
            let instead = instead.filter(|_| problem.exit != Exit::Untrusted);
            let flags = problem.flags.first().filter(|_| !found.look.is_other());
            flags.map(|row| audit(row)).or(instead).into_iter().collect()
        }
        None if found.look.is_other() && instead.is_some() => instead.into_iter().collect(),
        None => {
            let own = "that audit uses generated images. For your own add --data FOLDER, with one folder for each class";
            // A card that was just written has its own line.
            let assumed = found.taken.as_ref().is_ok_and(|t| t.info.preprocessing.assumed);
            let card = (assumed && !request.write_card)
                .then(|| "state how images are prepared, in a card: --write-card drafts one".to_string());
            match (&found.look, &found.before) {
                (ModelKind::Classifier(_), Some(row)) => vec![audit(row), own.into()],
                (ModelKind::Classifier(_), None) => instead.into_iter().collect(),
                (ModelKind::Short(_), Some(row)) => {
                    let scores = format!("if its values are class scores: {}", audit(row));
                    [card, Some(audit(&[])), Some(scores)].into_iter().flatten().collect()
                }
                _ => card.into_iter().chain([audit(&[]), own.into()]).collect(),
            }
        }
    };
    // A command is pasted, and would have other characters than it shows.
    steps.retain(|step| !step.contains(is_obeyed));
    steps
}

/// Results that are missing after the time limit, in words; `None` if there are none.
fn unmeasured(taken: &Taken, limit: TimeLimit) -> Option<String> {
    let what = match (taken.embed_s, taken.compared) {
        (None, false) => {
            "the time of a forward pass, and whether images of a batch change each other's embeddings"
        }
        (None, true) => "the time of a forward pass",
        (Some(_), false) => "whether images of a batch change each other's embeddings",
        (Some(_), true) => return None,
    };
    Some(format!("{what}. This takes longer than {limit}. fix: a higher --time-limit"))
}

//! `audit inspect`: what a model file is, whether it can be audited, and what an audit of it costs on this
//! machine.

use crate::choice::Choice;
use crate::data::{BUILTIN_SEED, Dataset};
use crate::error::shortened;
use crate::model::card::{Card, Preprocessing};
use crate::model::inspect::{Follow, Inspection, Look, STAGES, Taken, inspect};
use crate::pipeline::cost::{Amount, Outlook, Speed, range, seconds};
use crate::pipeline::images::CHECKED_IMAGES;
use crate::pipeline::machine::Machine;
use crate::pipeline::open::metric;
use crate::pipeline::settings::{refuse_without_cuda, settle_card};
use crate::progress::{Meter, Mode, Phase, TimeLimit};
use crate::record::megabytes;
use crate::report::Destination;
use crate::report::again::first_audit;
use crate::report::escape::words;
use crate::report::terminal::wrap_under;
use crate::request::{Compute, Reading};
use crate::suite::Suite;
use crate::visible::{is_obeyed, visible_json, visible_name};
use crate::{Error, Exit, Result, interrupt, operators};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Queries for which the cost is estimated.
const QUERIES: usize = 50;
/// Kinds of operators that are named.
const SHOWN: usize = 8;

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
    quantised: bool,
    #[serde(skip)]
    exit: Option<Exit>,
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
    attacks: String,
}

/// What is asked of a model.
pub struct Inspect {
    /// The model, an .onnx file.
    pub model: PathBuf,
    /// The suite whose cost is estimated.
    pub suite: String,
    /// Whether to write a model card beside the model.
    pub write_card: bool,
    /// Bound of the time it takes.
    pub time_limit: TimeLimit,
    /// Whether the findings are JSON.
    pub json: bool,
    /// How the model is read.
    pub reading: Reading,
    /// What it runs on.
    pub compute: Compute,
    /// How progress is shown.
    pub progress: Mode,
    /// The command line, which the next steps repeat in part.
    pub command: String,
}

/// Examines the model. Returns the findings as text, and the exit code with which an audit would refuse the
/// model: 12 if its embedding is drawn at random or depends on the other images of a batch, 3 otherwise.
pub fn run(request: &Inspect) -> Result<(String, Option<Exit>)> {
    refuse_without_cuda(&request.compute)?;
    let path = request.model.as_path();
    let card = settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), path)?;
    let to = request.write_card.then(|| card_file(path)).transpose()?;
    let suite = Suite::load(&request.suite)?;
    let machine = Machine::choose(&request.compute, request.progress)?;
    let found = watched(path, &card, &machine, request)?;
    let mut findings = findings(request, &machine, &card, &suite, &found)?;
    if let (Some((to, file)), Ok(taken)) = (to, &found.taken) {
        to.write(write_card(path, &card, taken).as_bytes())?;
        let text = format!("{} is written. Read its comments, and correct what was assumed", file.display());
        findings.next.insert(0, text);
    }
    let text = match request.json {
        true => {
            let json = serde_json::to_string_pretty(&findings)
                .map_err(|e| Error::internal(format!("the findings as JSON: {e}")))?;
            format!("{}\n", visible_json(&json))
        }
        false => findings.render(),
    };
    Ok((text, findings.exit))
}

/// Passes on what an inspection tells from its thread.
struct Reporter {
    meter: Meter,
    known: Arc<Mutex<Option<Inspection>>>,
}

impl Follow for Reporter {
    fn stage(&self, stage: usize) {
        self.meter.set(stage, STAGES.len());
    }
    fn known(&self, so_far: Inspection) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(so_far);
    }
}

/// [`inspect`] within the time limit; says what it is doing if it takes a while. Errors (exit code 3): the
/// limit is reached while the file is read.
fn watched(path: &Path, card: &Card, machine: &Machine, request: &Inspect) -> Result<Inspection> {
    let mut phase = Phase::brief("inspect", request.progress);
    let limit = request.time_limit;
    let (meter, known) = (Meter::default(), Arc::new(Mutex::new(None)));
    let reporter = Reporter { meter: meter.clone(), known: known.clone() };
    let (at, card, options, batch) =
        (path.to_path_buf(), card.clone(), machine.options, request.compute.batch);
    let work = move || inspect(&at, &card, options, batch, &reporter);
    let mut look = || phase.stage(&meter, &STAGES);
    let found = interrupt::watched_for(Some(limit.0), "while the model was inspected", &mut look, work)?;
    if let Some(found) = found {
        phase.finish();
        return found;
    }
    let late = || {
        Error::model(format!(
            "{}: whether it can be audited is unknown: {} took longer than {limit}. fix: a higher --time-limit",
            path.display(),
            meter.name(&STAGES).unwrap_or("inspecting it")
        ))
    };
    drop(phase);
    let so_far = known.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut so_far = so_far.ok_or_else(late)?;
    if so_far.taken.is_err() {
        so_far.taken = Err(late());
    }
    Ok(so_far)
}

fn findings(
    request: &Inspect,
    machine: &Machine,
    card: &Card,
    suite: &Suite,
    found: &Inspection,
) -> Result<Findings> {
    let looks_like = found.look.words();
    let taken = found.taken.as_ref().ok();
    let info = taken.map(|t| &t.info);
    let class = |op: &str| operators::class_of(op).unwrap_or_default();
    let operators = taken.into_iter().flat_map(|t| &t.operators);
    let problem = match &found.taken {
        Err(e) => Some(e),
        Ok(taken) => taken.refused.as_ref(),
    };
    let (model, exists) = (request.model.to_string_lossy(), |name: &str| Path::new(name).exists());
    let audit = |more: &[String]| first_audit(&model, &words(&request.command), more, QUERIES, &exists);
    let measured = taken.filter(|t| t.refused.is_none()).and_then(|t| Some((t, t.embed_s?)));
    let untrusted = problem.is_some_and(|e| e.exit == Exit::Untrusted);
    let mut next: Vec<String> = Vec::new();
    if let Some(problem) = problem {
        // What the output looks like is nothing if its values are not of one image.
        let instead = found.look.instead().filter(|_| !untrusted);
        let flags = problem.flags.first().filter(|_| !found.look.is_other());
        next.extend(flags.map(|row| audit(row)).or_else(|| instead.map(String::from)));
    } else if let (true, Some(instead)) = (found.look.is_other(), found.look.instead()) {
        next.push(instead.into());
    } else {
        let own = "that audit uses generated images. For your own add --data FOLDER, with one folder for each class";
        // A card that was just written has its own line.
        let assumed = info.is_some_and(|i| i.preprocessing.assumed) && !request.write_card;
        let card =
            assumed.then(|| "state how images are prepared, in a card: --write-card drafts one".to_string());
        next.extend(match (&found.look, &found.before) {
            (Look::Classifier(_), Some(row)) => vec![audit(row), own.into()],
            (Look::Classifier(_), None) => found.look.instead().map(String::from).into_iter().collect(),
            (Look::Short(_), Some(row)) => {
                let scores = format!("if its values are class scores: {}", audit(row));
                [card, Some(audit(&[])), Some(scores)].into_iter().flatten().collect()
            }
            _ => card.into_iter().chain([audit(&[]), own.into()]).collect(),
        });
    }
    // A command is pasted, and would have other characters than it shows.
    next.retain(|step| !step.contains(is_obeyed));
    Ok(Findings {
        model: request.model.display().to_string(),
        bytes: found.identity.bytes,
        sha256: found.identity.sha256.clone(),
        net_sha256: found.identity.net_sha256.clone(),
        external_data: found.identity.beside.clone(),
        looks_like: looks_like.into(),
        inputs: found.inputs.clone(),
        outputs: found.outputs.clone(),
        embedding: info.map(|i| Embedding { name: i.output.clone(), dim: i.dim, why: i.output_why.clone() }),
        preprocessing: info.map(|i| i.preprocessing.words()),
        preprocessing_assumed: info.map(|i| i.preprocessing.assumed),
        fixed_batch: info.and_then(|i| i.fixed_batch),
        one_at_a_time: info.and_then(|i| i.alone.clone()),
        precision: found.precision.name().into(),
        quantised: info.is_some_and(|i| i.quantised()),
        operators: operators
            .map(|(op, n)| OperatorCount { name: op.clone(), nodes: *n, gradient: class(op).into() })
            .collect(),
        no_derivative: info.map_or(Vec::new(), |i| i.notes.iter().map(|n| n.node.clone()).collect()),
        machine: format!("{}, {}", machine.in_words(), metric(card)),
        cost: measured.map(|(t, embed_s)| cost(t, embed_s, suite)).transpose()?,
        not_measured: taken.and_then(|t| unmeasured(t, request.time_limit)),
        exit: problem.map(|_| if untrusted { Exit::Untrusted } else { Exit::Model }),
        problem: problem.map(|e| e.message.clone()),
        next,
    })
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

/// What an audit with a suite costs, if a forward pass of one image takes `embed_s` seconds.
fn cost(taken: &Taken, embed_s: f64, suite: &Suite) -> Result<AuditCost> {
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

impl Findings {
    /// The lines for a terminal: a name and what is to be said, wrapped beside it.
    fn render(&self) -> String {
        let mut lines: Vec<(&str, String)> = Vec::new();
        let short = |hash: &str| format!("{}…", &hash[..12.min(hash.len())]);
        let beside = if self.external_data.is_empty() {
            String::new()
        } else {
            format!(" with {}", self.external_data.join(", "))
        };
        lines.push((
            "file",
            format!(
                "{}{beside} · {} · sha256 {} · net {}",
                self.model,
                megabytes(self.bytes),
                short(&self.sha256),
                short(&self.net_sha256)
            ),
        ));
        lines.push(("looks like", self.looks_like.clone()));
        let batch = match (&self.one_at_a_time, self.fixed_batch, &self.embedding) {
            (Some(why), ..) => format!(" · one image at a time: {why}"),
            (None, Some(n), _) => format!(" · the batch is fixed to {n}"),
            (None, None, Some(_)) => " · any batch".into(),
            (None, None, None) => String::new(),
        };
        // A line of its own could pass for one of the program's.
        let listed = |names: &[String]| visible_name(&names.join(", ")).into_owned();
        lines.push(("inputs", listed(&self.inputs) + &batch));
        lines.push(("outputs", listed(&self.outputs)));
        if let Some(e) = &self.embedding {
            lines.push(("embedding", format!("`{}`, {} values: {}", visible_name(&e.name), e.dim, e.why)));
        }
        lines.extend(self.preprocessing.iter().map(|p| ("images", p.clone())));
        let quantised = ", quantised; its gradient is the one without the rounding (straight-through)";
        lines.push((
            "precision",
            format!("{}{}", self.precision, if self.quantised { quantised } else { "" }),
        ));
        if !self.operators.is_empty() {
            lines.push(("operators", self.operators_in_words()));
        }
        lines.push(("computes on", self.machine.clone()));
        if let Some(c) = &self.cost {
            lines.push((
                "an audit",
                format!(
                    "suite {}: {} for the check at load (once), {} for 1000 images, {} a query; {QUERIES} queries {}. Estimated from \
                     forward passes",
                    c.suite,
                    seconds(c.check_s),
                    seconds(1000.0 * c.image_s),
                    range([c.attacks_50_least_s, c.attacks_50_s].map(|s| s / QUERIES as f64), seconds),
                    c.attacks
                ),
            ));
        }
        lines.extend(self.not_measured.iter().map(|what| match self.cost {
            None => ("an audit", format!("not measured: {what}")),
            Some(_) => ("not checked", what.clone()),
        }));
        lines.extend(self.problem.iter().map(|p| ("problem", p.clone())));
        lines.extend(self.next.iter().map(|n| ("next", n.clone())));
        lines.iter().map(|(name, text)| wrap_under(&format!("{name:<12}"), text) + "\n").collect()
    }

    fn operators_in_words(&self) -> String {
        let nodes: usize = self.operators.iter().map(|o| o.nodes).sum();
        let some: Vec<String> =
            self.operators.iter().take(SHOWN).map(|o| format!("{} {}", o.name, o.nodes)).collect();
        let more = self.operators.len().saturating_sub(SHOWN);
        let more = match more {
            0 => String::new(),
            1 => ", 1 more kind".into(),
            more => format!(", {more} more kinds"),
        };
        let without: Vec<&str> =
            self.operators.iter().filter(|o| o.gradient.is_empty()).map(|o| o.name.as_str()).collect();
        let gradient = match (&self.problem, self.no_derivative.len()) {
            (Some(_), _) if !without.is_empty() => format!("; without a gradient: {}", without.join(", ")),
            (Some(_), _) if self.exit == Some(Exit::Model) => "; the gradient can't be formed".into(),
            (_, 0) => "; each has its gradient".into(),
            (_, n) => format!(
                "; each has its gradient, but {n} nodes round or are flat: {}",
                shortened(&self.no_derivative, 3)
            ),
        };
        format!("{nodes} nodes of {} kinds: {}{more}{gradient}", self.operators.len(), some.join(", "))
    }
}

/// Where the card goes: beside the model, unless there is one.
fn card_file(model: &Path) -> Result<(Destination, PathBuf)> {
    let file = model.with_extension("yaml");
    if file.exists() {
        return Err(Error::usage(format!(
            "--write-card: {} is there already. Remove it, or edit it",
            file.display()
        )));
    }
    Ok((Destination::open("--write-card", &file)?, file))
}

/// A card with everything that is known, and what was assumed as comments to be filled in.
fn write_card(path: &Path, card: &Card, taken: &Taken) -> String {
    let info = &taken.info;
    let p = &info.preprocessing;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = format!(
        "# Model card of {}: what the file of weights doesn't say about its input and output.\n# Written by `audit inspect \
         --write-card`. Lines that begin with # are not read; docs/formats.md has every key.\n\n",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    out += "# The file that this card belongs to. An audit of another one is refused.\n";
    out += &format!("sha256: {}\n\n", info.identity.sha256);
    out += "# The value that is the embedding, and how tokens or a feature map become one vector (cls, mean, max).\n";
    out += &format!("output: {}\n", quoted(&info.output));
    match info.pooling {
        Some(pooling) => out += &format!("pooling: {}\n\n", pooling.name()),
        None => out += "# pooling: mean\n\n",
    }
    out += "# The input: height and width, order of dimensions (nchw, nhwc), order of channels (rgb, bgr, grey).\n";
    out += &format!(
        "size: [{}, {}]\nlayout: {}\nchannels: {}\n\n",
        p.height,
        p.width,
        p.layout.name(),
        p.order.name()
    );
    out += &written_preprocessing(p, card);
    out += "# The distance between embeddings: normalized-euclidean, euclidean or cosine.\n";
    out += &format!("metric: {}\n\n", metric(card));
    out += "# Both are copied into reports.\n";
    for (key, value) in [("licence", &card.licence), ("source", &card.source)] {
        out += &match value {
            Some(value) => format!("{key}: {}\n", quoted(value)),
            None => format!("# {key}:\n"),
        };
    }
    out
}

/// The part of a card about pixels.
fn written_preprocessing(p: &Preprocessing, card: &Card) -> String {
    let list = |values: Vec<f32>| format!("{values:?}");
    let (mean, std) = p.mean_and_std();
    let mark = if p.assumed || p.integers.is_some() { "# " } else { "" };
    let mut out = String::new();
    out += match p.assumed {
        _ if p.integers.is_some() => {
            "# Pixels: the input is one of integers and takes grey levels as they are. Range, mean and std are those of its graph.\n"
        }
        true => {
            "# Pixels: values of black and white (range), what is subtracted (mean) and divided by (std), in units of the range.\n# \
             ASSUMED: nothing states them, and an audit takes ImageNet's. See how the model was trained; then remove the #.\n"
        }
        false => {
            "# Pixels: values of black and white (range), what is subtracted (mean) and divided by (std), in units of the range.\n"
        }
    };
    out += &format!("{mark}range: [0, 1]\n{mark}mean: {}\n{mark}std: {}\n\n", list(mean), list(std));
    out += "# The size that images get before their middle is cut out (resize: [height, width]; or resize_shorter: N, which keeps\n# \
            their shape, as torchvision does), and how they are resized.\n";
    let assumed = card.resize.is_none() && card.resize_shorter.is_none();
    let mark = if assumed { "# " } else { "" };
    out += &match (p.resize, p.resize_shorter) {
        (_, Some(side)) => format!("{mark}resize_shorter: {side}\n"),
        (Some([h, w]), None) => format!("{mark}resize: [{h}, {w}]\n"),
        (None, None) => format!("# resize: [{}, {}]\n", p.height, p.width),
    };
    if !p.crop.is_usual() {
        out += &format!(
            "# Where the centre crop begins: transformers rounds half of an odd rest down.\ncrop: {}\n",
            p.crop.name()
        );
    }
    out + &format!("interpolation: {}\n\n", p.interpolation.name())
}

//! Description of a model file without an audit: inputs, outputs, kind of model, and the time of a forward
//! pass.

use super::card::Card;
use super::identity::ModelIdentity;
use super::mixing::{self, Mixing};
use super::prepared::{Loaded, ModelSource, PrepareMode, Prepared, declared};
use super::remedy::{self, Flags};
use super::runtime::{self, Input, Optimise, Options, Provider, Session};
use super::{IMAGE, Info, Pass};
use audit_base::random::Random;
use audit_base::{Error, Result};
use ndarray::Array2;
use onnx_grad::graph::{DType, Dim, Node, Value};
use onnx_grad::{Graph, Note};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What a model looks like, by its outputs and its last operators.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// A vector for each image.
    Embedding,
    /// A vector of few values that a last layer makes of many: an embedding or class scores. Holds the value
    /// before that layer.
    Short(String),
    /// Class scores, for each image or for each place of it. Holds the value before the classifier, where
    /// there is one.
    Classifier(Option<String>),
    /// Boxes.
    Detector,
    /// A map about as large as the image.
    Dense,
    /// Tokens or a feature map.
    Tokens,
    /// A model of something else.
    NoImages,
    /// None of these.
    Unknown,
}

impl Look {
    /// In words.
    pub fn words(&self) -> &'static str {
        match self {
            Look::Embedding => "an embedding of images",
            Look::Short(_) => "an embedding of few values, or a classifier of few classes",
            Look::Classifier(_) => "a classifier: its output holds class scores, not an embedding",
            Look::Detector => "a detector: its outputs are boxes",
            Look::Dense => "a map as large as the image, such as a segmentation, a depth or a mask",
            Look::Tokens => "tokens or a feature map, not one vector an image",
            Look::NoImages => "no model of images: no input has four dimensions",
            Look::Unknown => "no kind of model that is known here",
        }
    }

    /// What to audit instead, if no flag makes this file a model of embeddings.
    pub fn instead(&self) -> Option<&'static str> {
        match self {
            Look::Classifier(_) => Some(
                "export it without its classifier (timm: num_classes=0), or name the value before it with --output",
            ),
            Look::Detector => Some(
                "an audit is about images that are found again by one embedding each. Audit the model that embeds what the detector \
                 cuts out, or name a value of its backbone with --output, and pool it if it is a map: --pooling mean",
            ),
            Look::Dense => Some(
                "an audit is about images that are found again by one embedding each: name a value of its backbone with --output, and \
                 pool it if it is a map: --pooling mean",
            ),
            Look::NoImages => Some(
                "give a file that takes one image, [N, C, H, W]: of a model of images and texts, such as CLIP, its image encoder; of a \
                 model of videos, the part that embeds one frame",
            ),
            Look::Embedding | Look::Short(_) | Look::Tokens | Look::Unknown => None,
        }
    }

    /// Whether no flag but `--output` makes this file a model of embeddings.
    pub fn is_other(&self) -> bool {
        matches!(self, Look::Detector | Look::Dense)
    }

    /// The refusal of a file that looks like this, with what to audit instead if no flag helps.
    pub(super) fn explain(&self, refused: Error) -> Error {
        match self.instead().filter(|_| self.is_other()) {
            None => refused,
            Some(instead) => {
                let message = format!("{}\nIt looks like {}; {instead}", refused.message, self.words());
                Error { message, flags: Vec::new(), ..refused }
            }
        }
    }

    /// Flags that may read the value before the last layer, if that layer may make class scores.
    pub(super) fn before(&self) -> Vec<Flags> {
        match self {
            Look::Short(before) | Look::Classifier(Some(before)) => {
                let output = remedy::row("--output", before);
                let pooled = [output.clone(), remedy::row("--pooling", "mean")].concat();
                vec![output, pooled]
            }
            _ => Vec::new(),
        }
    }
}

/// Facts about a file that doesn't open as a model.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Images in a batch that it would run with, their height and width.
    pub images: Option<[usize; 3]>,
    /// Shapes of its outputs, for this batch.
    pub outputs: Vec<(String, Vec<i64>)>,
}

/// What inspecting a file consists of, for progress.
pub const STAGES: [&str; 4] =
    ["reading the file", "preparing the graph", "timing a forward pass", "comparing images of a batch"];

/// Facts about a file.
#[derive(Clone)]
pub struct Inspection {
    /// Its hashes and size.
    pub identity: ModelIdentity,
    /// Inputs and outputs as the file declares them.
    pub inputs: Vec<String>,
    /// See `inputs`.
    pub outputs: Vec<String>,
    /// The narrowest float type that the file computes in.
    pub precision: DType,
    /// What it looks like.
    pub look: Look,
    /// Flags that read the value before its last layer, if it looks like a classifier.
    pub before: Option<Flags>,
    /// The model as an audit would take it, or why it would not.
    pub taken: Result<Taken>,
}

/// A model as an audit would take it.
#[derive(Clone)]
pub struct Taken {
    /// Facts about it.
    pub info: Info,
    /// Nodes whose gradient rule differs from the true derivative; empty if no gradient can be formed.
    pub notes: Vec<Note>,
    /// Operators on the way to the embedding, with the number of their nodes; the most frequent first.
    pub operators: Vec<(String, usize)>,
    /// Why an audit refuses it: its embedding is drawn at random or depends on the other images of a batch
    /// (exit code 12), or has no gradient.
    pub refused: Option<Error>,
    /// Seconds that a forward pass of one image takes, with all workers at work; `None` before it is
    /// measured.
    pub embed_s: Option<f64>,
    /// Whether it is known that images of a batch don't change each other's embeddings, or there is nothing
    /// to know.
    pub compared: bool,
}

/// Who is told of an inspection on its way.
pub trait Follow {
    /// One of [`STAGES`] begins.
    fn stage(&self, stage: usize);
    /// Facts so far, of the file alone or of the model.
    fn known(&self, so_far: Inspection);
}

/// Looks into a file. Errors: it can't be read (exit code 2), or is no ONNX model (exit code 3). What an
/// audit would refuse is part of the result. `follow` is told what is known before steps that may take long.
pub fn inspect(
    path: &Path,
    card: &Card,
    options: Options,
    batch: Option<usize>,
    follow: &dyn Follow,
) -> Result<Inspection> {
    follow.stage(0);
    let file = Loaded::read(path)?;
    let identity = file.identity.clone();
    // Weights are shared by the copies of a graph.
    let graph = file.graph.clone();
    let inspection = |look: Look, taken: Result<Taken>| Inspection {
        identity: identity.clone(),
        inputs: declared(&graph.inputs),
        outputs: declared(&graph.outputs),
        precision: graph.precision,
        look,
        before: None,
        taken,
    };
    let unseen = |seen: &Seen| look(&graph, seen, card.output.as_deref(), None);
    let unknown = Error::model(format!("{}: the graph is not prepared yet", path.display()));
    follow.known(inspection(unseen(&Seen::default()), Err(unknown)));
    let mut seen = Seen::default();
    let tell = |taken: &Taken| follow.known(inspection(taken.info.look.clone(), Ok(taken.clone())));
    let source = ModelSource {
        path,
        card,
        options,
        batch,
        mode: PrepareMode { unrun: true, ..PrepareMode::default() },
    };
    let taken = take(file.clone(), source, &mut seen, follow, &tell);
    Ok(match taken {
        Ok(taken) => {
            let look = taken.info.look.clone();
            let open = |card: &Card| Prepared::opens(&file, ModelSource { card, ..source });
            let before = remedy::working(card, &look.before(), &open);
            Inspection { before, ..inspection(look, Ok(taken)) }
        }
        Err(e) => inspection(unseen(&seen), Err(e)),
    })
}

fn take(
    file: Loaded,
    source: ModelSource,
    seen: &mut Seen,
    follow: &dyn Follow,
    tell: &dyn Fn(&Taken),
) -> Result<Taken> {
    follow.stage(1);
    let ModelSource { path, options, .. } = source;
    let prepared = Prepared::of(file, source, seen)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    prepared.graph.nodes.iter().for_each(|n| *counts.entry(&n.op).or_default() += 1);
    let mut operators: Vec<(String, usize)> = counts.into_iter().map(|(op, n)| (op.to_string(), n)).collect();
    operators.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    // A gradient graph for weights that aren't known takes none of the time in which kernels are turned
    // round. What can't be formed so may be with them.
    let processor = options.provider.processor();
    let without_weights =
        prepared.differentiate_as(&runtime::hollow(&prepared.graph), IMAGE, Pass::Exact, processor);
    let (notes, without_gradient) =
        match without_weights.or_else(|_| prepared.differentiate(IMAGE, Pass::Exact, processor)) {
            Ok(g) => (g.notes, None),
            Err(e) => (Vec::new(), Some(e)),
        };
    let drawn = prepared.info.refuse_drawn().err();
    let refused = drawn.or(without_gradient);
    let info = prepared.info.clone();
    // Whatever is refused already needs no comparison.
    let untimed = Taken { info, notes, operators, compared: refused.is_some(), refused, embed_s: None };
    tell(&untimed);
    follow.stage(2);
    let named = |e: Error| e.context(path.display());
    let mut session =
        Session::new(&prepared.graph, prepared.workers.options(options), Optimise::All).map_err(named)?;
    let embed_s = forward_seconds(&prepared, &mut session).map_err(named)?;
    let timed = Taken { embed_s: Some(embed_s), ..untimed };
    if timed.compared {
        return Ok(timed);
    }
    tell(&timed);
    follow.stage(3);
    let mixing = mixing(&prepared, &mut session, options)?;
    let refused = mixing.map(|mixing| mixing.error(path, timed.info.fixed_batch));
    Ok(Taken { refused, compared: true, ..timed })
}

/// Looks whether images of a batch change each other's embeddings. The images are noise, the second half of
/// them dark, and bright in the second run.
fn mixing(prepared: &Prepared, session: &mut Session, options: Options) -> Result<Option<Mixing>> {
    let (info, each) = (&prepared.info, prepared.workers.each);
    let pixels = info.preprocessing.pixels();
    let mut random = Random::seeded(0);
    let images: Vec<f32> = (0..each * pixels)
        .map(|i| random.unit() * if i < pixels * each.div_ceil(2) { 1.0 } else { 0.1 })
        .collect();
    let shape = info.preprocessing.pixel_shape(each);
    let options = Options { provider: Provider::Cpu, ..options };
    mixing::look(&images, info, &prepared.input, options, &mut |images| {
        let found = session.run(&[(IMAGE, Input::Host(&shape, images))], &[super::EMBEDDING])?;
        let values = found[0].floats()?.1.to_vec();
        Array2::from_shape_vec((each, info.dim), values)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))
    })
}

/// Seconds of a forward pass of an image, where every worker runs at once as one of them does here alone.
fn forward_seconds(prepared: &Prepared, session: &mut Session) -> Result<f64> {
    let Prepared { info, workers, .. } = prepared;
    let shape = info.preprocessing.pixel_shape(workers.each);
    let images = vec![0.5; workers.each * info.preprocessing.pixels()];
    let pass = || {
        session
            // The first run also rejects graphs that inference accepts and kernels do not.
            .run(&[(IMAGE, Input::Host(&shape, &images))], &[super::EMBEDDING])
            .map(drop)
    };
    Ok(fastest(pass)? / (workers.each * workers.count) as f64)
}

/// Runs of [`fastest`], unless they take longer than so many seconds in all.
const RUNS: (usize, f64) = (5, 0.25);

/// Seconds of the fastest of some runs, after one that makes room. Other programs slow single runs down.
pub fn fastest(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    for _ in 0..RUNS.0 {
        let since = Instant::now();
        run()?;
        best = best.min(since.elapsed().as_secs_f64());
        if began.elapsed().as_secs_f64() > RUNS.1 {
            break;
        }
    }
    Ok(best)
}

/// Lengths of ImageNet classifiers' outputs: 1k with and without a background class, 21k and 22k.
const CLASSES: [i64; 5] = [1000, 1001, 21_841, 21_842, 21_843];
/// Embeddings are seldom shorter, and the classes of small data sets seldom more.
const SHORT: usize = 64;
/// Words in names of outputs that hold class scores, and in those of boxes.
const SCORES: [&str; 5] = ["logit", "prob", "class", "softmax", "score"];
const BOXES: [&str; 3] = ["box", "det", "anchor"];
/// Operators that only detectors have.
const DETECTS: [&str; 2] = ["NonMaxSuppression", "RoiAlign"];
/// Operators that make class scores shares.
const SHARES: [&str; 2] = ["Softmax", "LogSoftmax"];
/// Operators that may stand between a classifier's weights and its output.
const AFTER: [&str; 12] = [
    "Softmax",
    "LogSoftmax",
    "Sigmoid",
    "Identity",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Cast",
    "Add",
    "Dropout",
    "QuantizeLinear",
    "DequantizeLinear",
];
/// Operators that hold a classifier's weights.
const WEIGHTED: [&str; 3] = ["Gemm", "MatMul", "Conv"];
/// Tokens of a transformer are fewer than so many; a detector's grid has more places.
const MOST_TOKENS: i64 = 4096;
/// Pixels between the places of a detector's grids, and the anchors at each place: those of YOLO.
const STRIDES: [usize; 3] = [8, 16, 32];
const ANCHORS: [i64; 2] = [1, 3];

/// What a file looks like. `named` is the value that is taken for the embedding, of `dim` values, where one
/// is.
pub fn look(graph: &Graph, seen: &Seen, named: Option<&str>, dim: Option<usize>) -> Look {
    let inside = named.is_some_and(|name| !graph.outputs.iter().any(|o| o.name == name));
    if inside {
        // Somebody chose a value on purpose.
        return if dim.is_some() { Look::Embedding } else { Look::Unknown };
    }
    if graph.inputs.iter().all(|i| i.shape.as_ref().is_some_and(|s| s.len() != 4)) {
        return Look::NoImages;
    }
    let has = |words: &[&str], name: &str| words.iter().any(|word| name.to_lowercase().contains(word));
    let sizes = |v: &Value| {
        let known = seen.outputs.iter().find(|(name, _)| *name == v.name);
        known.map_or_else(|| declared_shape(v), |s| s.1.clone())
    };
    let output = match (named, &graph.outputs[..]) {
        (Some(name), _) => Some(name),
        (None, [one]) => Some(one.name.as_str()),
        _ => None,
    };
    let shares = output.is_some_and(|name| is_shares(graph, name));
    let boxes = |o: &Value| {
        let corners = graph.outputs.len() > 1 && corners(&sizes(o), seen);
        corners || (!shares && grid(&sizes(o), seen)) || (named.is_none() && has(&BOXES, &o.name))
    };
    if graph.outputs.iter().any(boxes) || detects(graph) {
        return Look::Detector;
    }
    let Some(output) = output else { return Look::Unknown };
    let shape = graph.outputs.iter().find(|o| o.name == output).map(sizes).unwrap_or_default();
    let before = || before_classifier(graph, output);
    let classes = match dim {
        Some(n) => CLASSES.contains(&(n as i64)),
        None => shape.len() == 2 && CLASSES.contains(&shape[1]),
    };
    match dim {
        _ if shares || classes || has(&SCORES, output) => Look::Classifier(before()),
        // Pooled channels are no class scores.
        Some(n) if n < SHORT && shape.iter().skip(1).product::<i64>() == n as i64 => {
            before().map_or(Look::Embedding, Look::Short)
        }
        Some(_) => Look::Embedding,
        None if dense(&shape, seen) => Look::Dense,
        None if (3..=4).contains(&shape.len()) => Look::Tokens,
        // Its size is open, for instance.
        None if shape.len() == 2 && shape[1] >= SHORT as i64 => Look::Embedding,
        None => Look::Unknown,
    }
}

/// The shape that a file declares; −1 where it leaves a dimension open.
fn declared_shape(v: &Value) -> Vec<i64> {
    let known = |d: &Dim| if let Dim::Known(n) = d { *n } else { -1 };
    v.shape.iter().flatten().map(known).collect()
}

/// Whether a node of the graph or of a graph within it is one that only detectors have.
fn detects(graph: &Graph) -> bool {
    graph.nodes.iter().any(|n| DETECTS.contains(&n.op.as_str()) || n.graphs().any(detects))
}

/// Whether an output has four values for each of several boxes of an image: [N, boxes, 4], or [boxes, 4] for
/// all images together.
fn corners(shape: &[i64], seen: &Seen) -> bool {
    match *shape {
        [_, _, 4] => true,
        [boxes, 4] => seen.images.is_some_and(|[batch, ..]| boxes != batch as i64),
        _ => false,
    }
}

/// Whether an output has values for each place of a detector's grids.
///
/// Places of the coarser grids alone are as few as tokens. There, only [N, places, values] with three anchors a
/// place counts. The number of values must not be a multiple of 8, as lengths of tokens are, and that of places
/// no multiple of 64, as widths of nets are: [N, 768, 5] may be the features of five parts of an image.
fn grid(shape: &[i64], seen: &Seen) -> bool {
    let [_, a, b] = *shape else { return false };
    let places = |strides: &[usize]| -> i64 {
        let [_, height, width] = seen.images.unwrap_or_default();
        strides.iter().map(|stride| (height / stride * (width / stride)) as i64).sum()
    };
    let grids = |n: i64| n > 0 && ANCHORS.iter().any(|anchors| anchors * places(&STRIDES) == n);
    let coarse = |n: i64, values: i64| {
        let some = [&STRIDES[1..], &STRIDES[1..2], &STRIDES[2..]];
        let usual = n % 64 == 0 || values % 8 == 0;
        n > 0 && values > 4 && !usual && some.iter().any(|grids| ANCHORS[1] * places(grids) == n)
    };
    coarse(a, b) || [a, b].into_iter().any(|n| n > MOST_TOKENS || grids(n))
}

/// Whether an output is a map of at least half the height and width of the images.
fn dense(shape: &[i64], seen: &Seen) -> bool {
    let (&[_, _, height, width], Some([_, high, wide])) = (shape, seen.images) else { return false };
    2 * height >= high as i64 && 2 * width >= wide as i64
}

/// Whether a value holds shares of classes, as Softmax makes them.
fn is_shares(graph: &Graph, output: &str) -> bool {
    let mut at = output;
    for _ in 0..AFTER.len() {
        let Some(node) = graph.nodes.iter().find(|n| n.outputs.iter().any(|o| o == at)) else { return false };
        if SHARES.contains(&node.op.as_str()) {
            return true;
        }
        match node.inputs.first() {
            Some(from) if AFTER.contains(&node.op.as_str()) => at = from,
            _ => return false,
        }
    }
    false
}

/// Whether an output holds class scores, by its name or by the operator that makes it.
pub(super) fn is_scores(graph: &Graph, output: &str) -> bool {
    let name = output.to_lowercase();
    SCORES.iter().any(|word| name.contains(word)) || is_shares(graph, output)
}

/// The value that a classifier's weights are applied to, as far as the last operators show it.
fn before_classifier(graph: &Graph, output: &str) -> Option<String> {
    let mut at = output.to_string();
    for _ in 0..AFTER.len() {
        let node: &Node = graph.nodes.iter().find(|n| n.outputs.contains(&at))?;
        let fixed = |name: &String| graph.constants.contains_key(name) || name.is_empty();
        let from = node.inputs.iter().find(|name| !fixed(name))?.clone();
        if WEIGHTED.contains(&node.op.as_str()) {
            return (!graph.inputs.iter().any(|i| i.name == from)).then_some(from);
        }
        if !AFTER.contains(&node.op.as_str()) {
            return None;
        }
        at = from;
    }
    None
}

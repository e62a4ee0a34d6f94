//! What a model file is, without an audit: what goes in and comes out, what it looks like, and how long a pass takes.

use super::card::Card;
use super::runtime::{self, Optimise, Options, Session};
use super::{IMAGE, Info, Loaded, Pass, Prepared, Taking};
use crate::{Error, Result};
use onnx_grad::{DType, Graph, Node};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Lengths of ImageNet classifiers' outputs: 1k with and without a background class, 21k and 22k.
pub const CLASSES: [usize; 5] = [1000, 1001, 21_841, 21_842, 21_843];

/// What a model looks like, by its outputs and its last operators.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// A vector for each image.
    Embedding,
    /// Class scores. Holds the value before the classifier, where there is one.
    Classifier(Option<String>),
    /// Boxes.
    Detector,
    /// Tokens or a feature map.
    Tokens,
    /// None of these.
    Unknown,
}

impl Look {
    /// In words, and what to do where an audit of it would mean nothing; empty where nothing need be done.
    pub fn words(&self) -> (&'static str, String) {
        match self {
            Look::Embedding => ("an embedding of images", String::new()),
            Look::Classifier(Some(before)) => (
                "a classifier: its output holds class scores",
                format!(
                    "audit the values before its classifier: --output {before} (or export it without: timm has num_classes=0)"
                ),
            ),
            Look::Classifier(None) => (
                "a classifier: its output holds class scores",
                "export it without its classifier (timm: num_classes=0), or name the value before it with --output".into(),
            ),
            Look::Detector => (
                "a detector: its outputs are boxes",
                "an audit is about images that are found again by one embedding each. Audit the model that embeds what the \
                 detector cuts out, or name a value of its backbone with --output and pool it: --pooling mean"
                    .into(),
            ),
            Look::Tokens => (
                "tokens or a feature map, not one vector an image",
                "say how they become one vector: --pooling mean, max, or cls for the first token".into(),
            ),
            Look::Unknown => ("nothing that is known here", "name the value that is the embedding: --output NAME".into()),
        }
    }
}

/// What was found out about a file.
pub struct Inspection {
    /// Bytes of the file, without those of weights beside it.
    pub bytes: usize,
    /// Inputs and outputs as the file declares them.
    pub inputs: Vec<String>,
    /// See `inputs`.
    pub outputs: Vec<String>,
    /// The narrowest float type that the file computes in.
    pub precision: DType,
    /// What it looks like.
    pub look: Look,
    /// The model as an audit would take it, or why it would not.
    pub taken: Result<Taken>,
}

/// A model as an audit would take it.
pub struct Taken {
    /// Facts about it.
    pub info: Info,
    /// Operators on the way to the embedding, with the number of their nodes; the most frequent first.
    pub operators: Vec<(String, usize)>,
    /// Why there is no gradient; `None` where there is one.
    pub without_gradient: Option<String>,
    /// Seconds that a forward pass of one image takes, with all lanes at work.
    pub embed_s: f64,
}

/// Looks into a file. Errors: it can't be read (exit code 2), or is no ONNX model (exit code 3). What an audit would refuse is
/// part of the result.
pub fn inspect(path: &Path, card: &Card, options: Options, batch: Option<usize>) -> Result<Inspection> {
    let file = Loaded::read(path)?;
    let size = file.bytes;
    // Weights are shared by the copies of a graph.
    let graph = file.graph.clone();
    let taken = take(file, path, card, options, batch);
    let named = card.output.as_deref().or(taken.as_ref().ok().map(|t| t.info.output.as_str()));
    let dim = taken.as_ref().ok().map(|t| t.info.dim);
    let declared = |values: &[onnx_grad::Value]| {
        values.iter().map(|v| format!("{} {}", v.name, v.shape_text())).collect::<Vec<_>>()
    };
    Ok(Inspection {
        bytes: size,
        inputs: declared(&graph.inputs),
        outputs: declared(&graph.outputs),
        precision: graph.precision,
        look: look(&graph, named, dim),
        taken,
    })
}

fn take(file: Loaded, path: &Path, card: &Card, options: Options, batch: Option<usize>) -> Result<Taken> {
    let taking = Taking { unrun: true, ..Taking::default() };
    let prepared = Prepared::of(file, path, card, options, batch, taking)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    prepared.graph.nodes.iter().for_each(|n| *counts.entry(&n.op).or_default() += 1);
    let mut operators: Vec<(String, usize)> = counts.into_iter().map(|(op, n)| (op.to_string(), n)).collect();
    operators.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    // A gradient graph for weights that aren't known takes none of the time in which kernels are turned round. What can't be
    // formed so may be with them.
    let without_weights = prepared.differentiate_as(&runtime::hollow(&prepared.graph), IMAGE, Pass::Exact);
    let (notes, without_gradient) =
        match without_weights.or_else(|_| prepared.differentiate(IMAGE, Pass::Exact)) {
            Ok(g) => (g.notes, None),
            Err(e) => (Vec::new(), Some(e.message)),
        };
    let embed_s = forward_seconds(&prepared, options).map_err(|e| e.context(path.display()))?;
    let mut info = prepared.info;
    info.notes = notes;
    Ok(Taken { info, operators, without_gradient, embed_s })
}

/// Seconds of a forward pass of an image, where every lane runs at once as one of them does here alone.
fn forward_seconds(prepared: &Prepared, options: Options) -> Result<f64> {
    let Prepared { graph, info, lanes, .. } = prepared;
    let mut session = Session::new(graph, lanes.options(options), Optimise::All)?;
    let shape = info.preprocessing.pixel_shape(lanes.each);
    let images = vec![0.5; lanes.each * info.preprocessing.pixels()];
    let mut run = || {
        let since = Instant::now();
        session.run(&[(IMAGE, super::runtime::Input::Host(&shape, &images))], &[super::EMBEDDING])?;
        Ok::<f64, Error>(since.elapsed().as_secs_f64())
    };
    // The first run makes room. It also rejects graphs that inference accepts and kernels do not.
    run().map_err(|e| Error::model(e.message))?;
    Ok(run()? / (lanes.each * lanes.count) as f64)
}

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

/// What a file looks like. `named` is the value that is taken for the embedding, of `dim` values, where one is.
fn look(graph: &Graph, named: Option<&str>, dim: Option<usize>) -> Look {
    let inside = named.is_some_and(|name| !graph.outputs.iter().any(|o| o.name == name));
    if inside {
        // Somebody chose a value on purpose.
        return if dim.is_some() { Look::Embedding } else { Look::Unknown };
    }
    let has = |words: &[&str], name: &str| words.iter().any(|word| name.to_lowercase().contains(word));
    let sizes = |v: &onnx_grad::Value| -> Vec<i64> {
        let known = |d: &onnx_grad::Dim| if let onnx_grad::Dim::Known(n) = d { *n } else { -1 };
        v.shape.iter().flatten().map(known).collect()
    };
    let grid = |v: &onnx_grad::Value| sizes(v).len() == 3 && sizes(v)[1..].iter().any(|&n| n > MOST_TOKENS);
    let detects = graph.nodes.iter().any(|n| DETECTS.contains(&n.op.as_str()));
    if detects || graph.outputs.iter().any(|o| grid(o) || (named.is_none() && has(&BOXES, &o.name))) {
        return Look::Detector;
    }
    let output = match (named, &graph.outputs[..]) {
        (Some(name), _) => name,
        (None, [one]) => one.name.as_str(),
        _ => return Look::Unknown,
    };
    let made = |name: &str| graph.nodes.iter().find(|n| n.outputs.iter().any(|o| o == name));
    let shares = made(output).is_some_and(|n| SHARES.contains(&n.op.as_str()));
    let declared = graph.outputs.iter().find(|o| o.name == output).map(sizes).unwrap_or_default();
    let as_many = |n: usize| CLASSES.contains(&n);
    let classes =
        dim.is_some_and(as_many) || (declared.len() == 2 && usize::try_from(declared[1]).is_ok_and(as_many));
    match dim {
        _ if shares || classes || has(&SCORES, output) => Look::Classifier(before_classifier(graph, output)),
        Some(_) => Look::Embedding,
        None if (3..=4).contains(&declared.len()) => Look::Tokens,
        None => Look::Unknown,
    }
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

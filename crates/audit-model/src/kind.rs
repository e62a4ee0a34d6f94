//! What a model file looks like: a model of embeddings, a classifier, a detector or something else.

use super::remedy::{self, Flags};
use audit_base::Error;
use onnx_grad::Graph;
use onnx_grad::graph::{Dim, Node, Value};

/// What a model looks like, by its outputs and its last operators.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelKind {
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

impl ModelKind {
    /// What a file looks like. `named` is the value that is taken for the embedding, and `dim` its length, if
    /// they are known.
    pub(super) fn of(graph: &Graph, seen: &Seen, named: Option<&str>, dim: Option<usize>) -> ModelKind {
        let inside = named.is_some_and(|name| !graph.outputs.iter().any(|o| o.name == name));
        if inside {
            // Somebody chose a value on purpose.
            return if dim.is_some() { ModelKind::Embedding } else { ModelKind::Unknown };
        }
        if graph.inputs.iter().all(|i| i.shape.as_ref().is_some_and(|s| s.len() != 4)) {
            return ModelKind::NoImages;
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
            return ModelKind::Detector;
        }
        let Some(output) = output else { return ModelKind::Unknown };
        let shape = graph.outputs.iter().find(|o| o.name == output).map(sizes).unwrap_or_default();
        let before = || before_classifier(graph, output);
        let classes = match dim {
            Some(n) => CLASSES.contains(&(n as i64)),
            None => shape.len() == 2 && CLASSES.contains(&shape[1]),
        };
        match dim {
            _ if shares || classes || has(&SCORES, output) => ModelKind::Classifier(before()),
            // Pooled channels are no class scores.
            Some(n) if n < SHORT && shape.iter().skip(1).product::<i64>() == n as i64 => {
                before().map_or(ModelKind::Embedding, ModelKind::Short)
            }
            Some(_) => ModelKind::Embedding,
            None if dense(&shape, seen) => ModelKind::Dense,
            None if (3..=4).contains(&shape.len()) => ModelKind::Tokens,
            // Its size is open, for instance.
            None if shape.len() == 2 && shape[1] >= SHORT as i64 => ModelKind::Embedding,
            None => ModelKind::Unknown,
        }
    }

    /// In words.
    pub fn words(&self) -> &'static str {
        match self {
            ModelKind::Embedding => "an embedding of images",
            ModelKind::Short(_) => "an embedding of few values, or a classifier of few classes",
            ModelKind::Classifier(_) => "a classifier: its output holds class scores, not an embedding",
            ModelKind::Detector => "a detector: its outputs are boxes",
            ModelKind::Dense => "a map as large as the image, such as a segmentation, a depth or a mask",
            ModelKind::Tokens => "tokens or a feature map, not one vector an image",
            ModelKind::NoImages => "no model of images: no input has four dimensions",
            ModelKind::Unknown => "no kind of model that is known here",
        }
    }

    /// What to audit instead, if no flag makes this file a model of embeddings.
    pub fn instead(&self) -> Option<&'static str> {
        match self {
            ModelKind::Classifier(_) => Some(
                "export it without its classifier (timm: num_classes=0), or name the value before it with --output",
            ),
            ModelKind::Detector => Some(
                "an audit is about images that are found again by one embedding each. Audit the model that embeds what the detector \
                 cuts out, or name a value of its backbone with --output, and pool it if it is a map: --pooling mean",
            ),
            ModelKind::Dense => Some(
                "an audit is about images that are found again by one embedding each: name a value of its backbone with --output, and \
                 pool it if it is a map: --pooling mean",
            ),
            ModelKind::NoImages => Some(
                "give a file that takes one image, [N, C, H, W]: of a model of images and texts, such as CLIP, its image encoder; of a \
                 model of videos, the part that embeds one frame",
            ),
            ModelKind::Embedding | ModelKind::Short(_) | ModelKind::Tokens | ModelKind::Unknown => None,
        }
    }

    /// Whether no flag but `--output` makes this file a model of embeddings.
    pub fn is_other(&self) -> bool {
        matches!(self, ModelKind::Detector | ModelKind::Dense)
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
            ModelKind::Short(before) | ModelKind::Classifier(Some(before)) => {
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
pub(super) struct Seen {
    /// Images in a batch that it would run with, their height and width.
    pub images: Option<[usize; 3]>,
    /// Shapes of its outputs, for this batch.
    pub outputs: Vec<(String, Vec<i64>)>,
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
/// Places of the coarser grids alone are as few as tokens. There, only [N, places, values] with three anchors
/// a place counts. The number of values must not be a multiple of 8, as lengths of tokens are, and that of
/// places no multiple of 64, as widths of nets are: [N, 768, 5] may be the features of five parts of an
/// image.
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

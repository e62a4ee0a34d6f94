//! Choice of the embedding among a model's outputs, and its pooling to one vector per image.

use super::EMBEDDING;
use super::card::{Axes, Card, Pooling};
use super::kind::is_scores;
use super::remedy::{self, Flags};
use audit_base::choice::Choice;
use audit_base::visible::visible_name;
use audit_base::{Error, Result};
use ndarray::Array2;
use onnx_grad::graph::{DType, Node, Tensor, Value};
use onnx_grad::{Graph, Types};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// How an output's shape is interpreted, for a known batch.
enum Reading {
    /// One vector per image. Other dimensions may be 1.
    Vector,
    /// Tokens or a feature map: the axes to pool over, and the axis to keep.
    Places(Vec<usize>, usize),
}

fn read(shape: &[i64], batch: usize, layout: Axes) -> Option<Reading> {
    let b = batch as i64;
    match shape {
        [d] if b == 1 && *d > 1 => Some(Reading::Vector),
        [n, rest @ ..] if *n == b => match rest.iter().filter(|&&d| d != 1).count() {
            1 => Some(Reading::Vector),
            _ if shape.contains(&0) => None,
            _ => match (rest.len(), layout) {
                (2, _) => Some(Reading::Places(vec![1], 2)),
                (3, Axes::Nchw) => Some(Reading::Places(vec![2, 3], 1)),
                (3, Axes::Nhwc) => Some(Reading::Places(vec![1, 2], 3)),
                _ => None,
            },
        },
        _ => None,
    }
}

/// Whether a value of this shape can be the embedding: a vector for each image, or a map if it is pooled.
pub(super) fn fits(shape: &[i64], batch: usize, pooling: Option<Pooling>, layout: Axes) -> bool {
    match read(shape, batch, layout) {
        Some(Reading::Vector) => pooling.is_none(),
        Some(Reading::Places(..)) => pooling.is_some(),
        None => false,
    }
}

/// What exporters of whole CLIP models call the embeddings of images, beside those of texts and the logits.
const IMAGE_EMBEDDINGS: &str = "image_embeds";

/// The output that is the embedding by its name, among several; `None` if the shapes of all decide.
pub(super) fn usual(outputs: &[String]) -> Option<&'static str> {
    let named = outputs.len() > 1 && outputs.iter().any(|name| name == IMAGE_EMBEDDINGS);
    named.then_some(IMAGE_EMBEDDINGS)
}

/// Makes a value of a graph its only output. Errors (exit code 3): no node computes a value of that name.
pub(super) fn choose(graph: &mut Graph, name: &str) -> Result<()> {
    let exists = graph.nodes.iter().any(|n| n.outputs.iter().any(|o| o == name));
    if !exists {
        let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
        return Err(Error::model(format!(
            "has no value {name:?}. Its outputs are: {}",
            visible_name(&outputs.join(", "))
        )));
    }
    graph.outputs = vec![Value { name: name.to_string(), dtype: DType::Other(0), shape: None }];
    Ok(())
}

/// An output that holds the embedding, before pooling.
struct Found {
    name: String,
    dtype: DType,
    shape: Vec<i64>,
    reading: Reading,
}

/// Finds the output of a specialised graph that holds the embedding. Errors (exit code 3): none qualifies, or
/// several.
fn find(graph: &Graph, types: &Types, batch: usize, pooling: Option<Pooling>, layout: Axes) -> Result<Found> {
    let (mut vectors, mut places, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for output in &graph.outputs {
        let Some((dtype, shape)) = types.get(&output.name) else {
            lines.push(format!("  {}, which is no tensor", visible_name(&output.name)));
            continue;
        };
        lines.push(format!("  {} {shape:?}", visible_name(&output.name)));
        let Some(reading) = read(shape, batch, layout).filter(|_| dtype.is_float()) else { continue };
        let of = if matches!(reading, Reading::Vector) { &mut vectors } else { &mut places };
        of.push(Found { name: output.name.clone(), dtype: *dtype, shape: shape.clone(), reading });
    }
    let outputs = lines.join("\n");
    let other_kind = !places.is_empty();
    let pooled = places.first().map(|found| match found.reading {
        Reading::Places(ref axes, _) if axes.len() == 1 => remedy::row("--pooling", "cls"),
        _ => remedy::row("--pooling", "mean"),
    });
    let several = likeliest(graph, if pooling.is_some() { &places } else { &vectors });
    let several: Vec<Flags> = several.iter().map(|found| remedy::row("--output", &found.name)).collect();
    let mut wanted = if pooling.is_some() { places } else { vectors };
    match (wanted.pop(), wanted.is_empty()) {
        (Some(found), true) => Ok(found),
        (Some(_), false) => Err(Error::model(format!(
            "several outputs could be the embedding. Its outputs, for a batch of {batch}, are:\n{outputs}\n\
             Choose one of them with --output"
        ))
        .lacking(several)),
        (None, _) if pooling.is_some() => Err(Error::model(format!(
            "--pooling needs an output of tokens, [N, T, D], or a feature map, [N, C, H, W]. Its outputs, for a \
             batch of {batch}, are:\n{outputs}\nLeave --pooling out, or name another value with --output"
        ))),
        (None, _) if other_kind => Err(Error::model(format!(
            "gives tokens or a feature map instead of one embedding per image. Its outputs, for a batch of \
             {batch}, are:\n{outputs}\nState how they are pooled: --pooling mean, max, or cls for the first token"
        ))
        .lacking(pooled)),
        (None, _) => Err(Error::model(format!(
            "no output is an embedding, [N, D] or [N, D, 1, 1]. Its outputs, for a batch of {batch}, are:\n{outputs}\n\
             Name the value that is the embedding with --output. It may lie inside of the graph"
        ))
        .lacking(inner_vectors(graph, types, batch, layout))),
    }
}

/// Outputs of which each could be the embedding, the likeliest first: no class scores, then those from which
/// others are computed, as a classifier's scores are from its features, then those with more values, as heads
/// for few classes or attributes lie beside the embedding, then the last ones.
fn likeliest<'f>(graph: &Graph, candidates: &'f [Found]) -> Vec<&'f Found> {
    if candidates.len() < 2 {
        return candidates.iter().collect();
    }
    let sources: HashSet<&str> = candidates.iter().flat_map(|found| sources_of(graph, &found.name)).collect();
    let mut all: Vec<&Found> = candidates.iter().rev().collect();
    all.sort_by_cached_key(|found| {
        let dim: i64 = match found.reading {
            Reading::Vector => found.shape.iter().product(),
            Reading::Places(_, kept) => found.shape[kept],
        };
        (is_scores(graph, &found.name), !sources.contains(found.name.as_str()), Reverse(dim))
    });
    all
}

/// The values that a value is computed from.
fn sources_of<'g>(graph: &'g Graph, name: &'g str) -> HashSet<&'g str> {
    let makes = |node: &'g Node| node.outputs.iter().map(move |output| (output.as_str(), node));
    let producers: HashMap<&str, &Node> = graph.nodes.iter().flat_map(makes).collect();
    let (mut found, mut open) = (HashSet::new(), vec![name]);
    while let Some(at) = open.pop() {
        for input in producers.get(at).copied().into_iter().flat_map(|node| &node.inputs) {
            if !input.is_empty() && found.insert(input.as_str()) {
                open.push(input);
            }
        }
    }
    found
}

/// Vectors inside of a graph, the nearest to its outputs first.
fn inner_vectors(graph: &Graph, types: &Types, batch: usize, layout: Axes) -> Vec<Flags> {
    let mut found: Vec<&str> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let mut at: HashSet<&str> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
    for _ in 0..NEAR {
        let makes = |node: &&Node| node.outputs.iter().any(|output| at.contains(output.as_str()));
        let inputs = graph.nodes.iter().filter(makes).flat_map(|node| &node.inputs).map(String::as_str);
        // In the order of the graph.
        let next: Vec<&str> = inputs.filter(|name| !graph.constants.contains_key(*name)).collect();
        for name in &next {
            let vector = types.get(*name).is_some_and(|(dtype, shape)| {
                dtype.is_float() && matches!(read(shape, batch, layout), Some(Reading::Vector))
            });
            if vector && seen.insert(name) {
                found.push(name);
            }
        }
        at = next.into_iter().collect();
    }
    found.into_iter().map(|name| remedy::row("--output", name)).collect()
}

/// Nodes between an output and an inner vector at most.
const NEAR: usize = 6;

/// Finds the embedding among the outputs of a specialised graph and brings it to shape [batch, D] under a
/// fixed name. Returns its name in the file, and D. Errors (exit code 3): no output or several qualify, or
/// the output is not float32.
pub(super) fn pick(
    graph: &mut Graph,
    types: &mut Types,
    batch: usize,
    pooling: Option<Pooling>,
    layout: Axes,
) -> Result<(String, usize)> {
    let found = find(graph, types, batch, pooling, layout)?;
    if found.dtype != DType::F32 {
        return Err(Error::model(format!(
            "output {:?} is {}. Only float32, float16 and bfloat16 models are covered. Export it in float32",
            found.name,
            found.dtype.name()
        )));
    }
    if found.shape.contains(&0) {
        let empty = |name: &String| types.get(name).is_some_and(|(_, shape)| shape.contains(&0));
        let first = graph.nodes.iter().find(|node| node.outputs.iter().any(empty));
        return Err(Error::model(format!(
            "output {:?} has no values: its shape is {:?} for a batch of {batch}{}. Give --size if the model is for larger images, or \
             export it again",
            found.name,
            found.shape,
            first
                .map_or(String::new(), |node| format!(". The first empty value is that of {}", node.label()))
        )));
    }
    let dim = bring(graph, types, &found, batch, pooling)?;
    Ok((found.name, dim as usize))
}

/// Appends the nodes that bring the output found to shape [batch, D], as the graph's only output. Returns D.
fn bring(
    graph: &mut Graph,
    types: &mut Types,
    Found { name, shape, reading, .. }: &Found,
    batch: usize,
    pooling: Option<Pooling>,
) -> Result<i64> {
    let dim = match reading {
        Reading::Places(_, kept) => shape[*kept],
        Reading::Vector => shape.iter().skip(usize::from(shape.len() > 1)).product(),
    };
    let fixed = [batch as i64, dim];
    let mut constant = |name: &str, t: Tensor| {
        graph.constants.insert(name.to_string(), t);
        name.to_string()
    };
    let node = match (reading, pooling) {
        (Reading::Places(axes, _), Some(Pooling::Cls)) => {
            if axes.len() > 1 {
                return Err(Error::model(format!(
                    "--pooling cls: output {name} {shape:?} is a feature map, which has no first token. State \
                     --pooling mean or max"
                )));
            }
            let first = constant("audit/first-token", Tensor::i64(&[], &[0]));
            Node::new("Gather", &[name, &first], EMBEDDING).with("axis", 1)
        }
        (Reading::Places(axes, _), pooling) => {
            let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
            let axes = constant("audit/pooled-axes", Tensor::ints(&axes));
            let op = if pooling == Some(Pooling::Max) { "ReduceMax" } else { "ReduceMean" };
            // The pooled value has its own name because the gradient of a maximum reads it again.
            let pooled = "audit/pooled";
            graph.nodes.push(Node::new(op, &[name, &axes], pooled).with("keepdims", 0));
            types.insert(pooled.into(), (DType::F32, fixed.to_vec()));
            Node::new("Identity", &[pooled], EMBEDDING)
        }
        (Reading::Vector, _) if *shape == fixed => Node::new("Identity", &[name], EMBEDDING),
        (Reading::Vector, _) => {
            let to = constant("audit/embedding-shape", Tensor::ints(&fixed));
            Node::new("Reshape", &[name, &to], EMBEDDING)
        }
    };
    graph.nodes.push(node);
    graph.outputs = vec![Value::new(EMBEDDING, DType::F32, &fixed)];
    for (name, t) in graph.constants.iter().filter(|(name, _)| name.starts_with("audit/")) {
        types.insert(name.clone(), (t.dtype, t.shape.clone()));
    }
    types.insert(EMBEDDING.into(), (DType::F32, fixed.to_vec()));
    graph.prune();
    Ok(dim)
}

/// Why `chosen` is the embedding of a file with these outputs, in words.
pub(super) fn why(outputs: &[String], card: &Card, chosen: &str) -> String {
    let why = match (&card.output, outputs) {
        (Some(_), _) if !outputs.iter().any(|o| o == chosen) => {
            "named by card or flag, inside the graph".into()
        }
        (Some(_), _) => "named by card or flag".into(),
        (None, [_]) => "its only output".into(),
        (None, all) if usual(all) == Some(chosen) => "by its name".into(),
        (None, all) if card.pooling.is_some() => {
            format!("the only one of {} outputs that can be pooled", all.len())
        }
        (None, all) => format!("the only one of {} outputs that is a vector for each image", all.len()),
    };
    let pooled = |p: Pooling| format!(", pooled by {}", p.name());
    why + &card.pooling.map_or(String::new(), pooled)
}

/// Pools an output's values to embeddings [batch, D] without a graph, as a reference for [`pick`].
pub(super) fn pool(
    shape: &[i64],
    values: &[f32],
    batch: usize,
    pooling: Option<Pooling>,
    layout: Axes,
) -> Result<Array2<f32>> {
    let unexpected = || Error::internal(format!("the embedding has shape {shape:?}, for a batch of {batch}"));
    let shaped = |values: Vec<f32>| {
        let dim = values.len() / batch.max(1);
        Array2::from_shape_vec((batch, dim), values).map_err(|_| unexpected())
    };
    let (axes, kept) = match (read(shape, batch, layout), pooling) {
        (Some(Reading::Vector), None) => return shaped(values.to_vec()),
        (Some(Reading::Places(axes, kept)), Some(_)) => (axes, kept),
        _ => return Err(unexpected()),
    };
    let dim = shape[kept] as usize;
    let count = axes.iter().map(|&a| shape[a] as usize).product::<usize>();
    // If the kept axis is last, each position is contiguous. If it is second, each channel is.
    let at = |image: usize, place: usize, d: usize| {
        let image = image * count * dim;
        values[image + if kept == 1 { d * count + place } else { place * dim + d }]
    };
    let mut out = Vec::with_capacity(batch * dim);
    for image in 0..batch {
        for d in 0..dim {
            let places = (0..count).map(|place| at(image, place, d));
            out.push(match pooling {
                Some(Pooling::Cls) => at(image, 0, d),
                Some(Pooling::Max) => places.fold(f32::NEG_INFINITY, f32::max),
                _ => (places.map(f64::from).sum::<f64>() / count as f64) as f32,
            });
        }
    }
    shaped(out)
}

//! Sizes that follow from shapes and constants, before anything of that size is computed.
//!
//! ONNX Runtime folds constants when it makes a session. So a graph is looked at before it is folded. A
//! session without optimisation infers shapes and computes nothing. Where a shape is itself computed, from
//! constants or from other shapes, the few small nodes that do so run, and inference goes on with their
//! results.

use super::library::bounds_folding;
use super::{Optimise, Options, Provider, Session};
use crate::memory::{self, Bytes};
use audit_base::Result;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use onnx_grad::{Graph, Types};
use std::collections::{HashMap, HashSet};

/// How often inference goes on with values of shapes. Each time it gets past a node whose shape an earlier
/// value states.
const ROUNDS: usize = 32;
/// How deep graphs may lie within graphs.
const DEEPEST: usize = 8;
/// Values of a tensor from which it states no shape.
const MOST: usize = 1024;
/// Operators whose inputs state the shape of what they make, so that no shape means an unknown one and not a
/// scalar.
const SHAPED: [&str; 9] =
    ["CenterCropPad", "ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile"];

/// Sessions that tell shapes.
pub(super) const CPU: Options = Options { provider: Provider::Cpu, threads: 0 };

/// Bytes of a value, at most `u64::MAX`; `None` where the shape or the element size is not known.
pub fn bytes_of((dtype, shape): &(DType, Vec<i64>)) -> Option<u64> {
    let size = |&d: &i64| u64::try_from(d).ok();
    let count = shape.iter().map(size).try_fold(1u64, |all, d| Some(all.saturating_mul(d?)))?;
    Some(count.saturating_mul(dtype.size()? as u64))
}

/// Elements of a constant of floats from which no shape depends on its values.
const LARGE: usize = 1024;

/// The graph with its large constants of floats as inputs. Types and shapes are the same, and a session of it
/// copies no weights.
pub fn hollow(graph: &Graph) -> Graph {
    let floats = [DType::F32, DType::F16, DType::BF16, DType::F64];
    let large = |t: &Tensor| floats.contains(&t.dtype) && t.len() >= LARGE;
    let mut hollow = graph.clone();
    hollow.constants.retain(|_, t| !large(t));
    let weights = graph.constants.iter().filter(|(_, t)| large(t));
    hollow.inputs.extend(weights.map(|(name, t)| Value::new(name, t.dtype, &t.shape)));
    hollow
}

/// A value of which nothing is known yet.
pub(super) fn untyped(name: &str) -> Value {
    Value { name: name.to_string(), dtype: DType::Other(0), shape: None }
}

/// The graph with every value that a node makes as an output: ONNX Runtime tells types of outputs only.
pub fn exposed(graph: &Graph) -> Graph {
    let mut exposed = graph.clone();
    let made = graph.nodes.iter().flat_map(|node| &node.outputs).filter(|out| !out.is_empty());
    exposed.outputs = made.map(|out| untyped(out)).collect();
    exposed
}

/// Refuses a graph with a value that is larger than a model's memory, as far as sizes follow from shapes and
/// constants. What doesn't follow is left to the arena. Errors (exit code 3): the node, its size and the
/// limit.
pub fn check(graph: &Graph) -> Result<()> {
    match memory::limit() {
        Some(_) => within(graph, DEEPEST),
        None => Ok(()),
    }
}

/// [`check`] of a graph that may lie within another one.
fn within(graph: &Graph, depth: usize) -> Result<()> {
    let mut graph = hollow(graph);
    // What can't be compiled is refused later, in words for the whole graph.
    let Ok(types) = types_of(&graph) else { return Ok(()) };
    refuse_large(&graph, &types)?;
    // The rest of a graph is looked at again once it is folded.
    let mut part = if bounds_folding() { constant_part(&graph, &types) } else { graph.clone() };
    let mut known = types.clone();
    for _ in 0..ROUNDS {
        let found = shape_values(&part, &known);
        if found.is_empty() {
            break;
        }
        for graph in [&mut part, &mut graph] {
            substitute(graph, &found);
        }
        let Ok(types) = types_of(&part) else { break };
        refuse_large(&part, &types)?;
        known = types;
    }
    bodies(&graph, &types, depth)
}

/// Bytes of the largest value that ONNX Runtime folds by default, and here.
pub const MOST_FOLDED: u64 = 1 << 30;

/// Bytes that are folded whatever the limit: what states shapes is far smaller.
const LEAST_FOLDED: u64 = 1 << 20;

/// Bytes of the largest value to fold of a graph. All that nodes make stays within the memory of a model
/// then, but for what is made of its own weights, such as transposed ones.
pub fn most_folded(graph: &Graph) -> u64 {
    let Some(limit) = memory::limit() else { return MOST_FOLDED };
    let weights = graph.constants.values().map(|t| t.bytes.len() as u64).max().unwrap_or(0);
    let share = limit.bytes / (graph.nodes.len() as u64).max(1);
    // Eight bits or four of a weight become a float.
    share.max(8 * weights).clamp(LEAST_FOLDED, MOST_FOLDED)
}

/// Replaces nodes by the values that they make.
fn substitute(graph: &mut Graph, values: &HashMap<String, Tensor>) {
    let made = |node: &Node| node.outputs.iter().all(|out| out.is_empty() || values.contains_key(out));
    let gone: Vec<Node> = graph.nodes.extract_if(.., |node| made(node)).collect();
    let values = gone
        .iter()
        .flat_map(|node| &node.outputs)
        .filter_map(|out| Some((out.clone(), values.get(out)?.clone())));
    graph.constants.extend(values);
}

/// The nodes that follow from constants and from shapes that are known, of any size.
fn constant_part(graph: &Graph, types: &Types) -> Graph {
    let mut part = graph.clone();
    part.inputs.clear();
    part.outputs.clear();
    part.nodes.clear();
    let mut made: HashSet<&str> = HashSet::new();
    for node in &graph.nodes {
        if let Some((out, shape)) = measured(node, types) {
            part.constants.insert(out.to_string(), shape);
            continue;
        }
        let of_part =
            |x: &String| x.is_empty() || part.constants.contains_key(x) || made.contains(x.as_str());
        if node.is_function() && !node.inputs.is_empty() && node.inputs.iter().all(of_part) {
            made.extend(node.outputs.iter().map(String::as_str));
            part.nodes.push(node.clone());
        }
    }
    part
}

/// Refuses a node that makes a value of more bytes than a model may use, and one that makes more constants
/// than that together.
pub fn refuse_large(graph: &Graph, types: &Types) -> Result<()> {
    let Some(limit) = memory::limit() else { return Ok(()) };
    let mut constant: HashSet<&str> = graph.constants.keys().map(String::as_str).collect();
    let mut folded = 0u64;
    for node in &graph.nodes {
        let made = || node.outputs.iter().filter_map(|out| Some((out, types.get(out)?)));
        for (out, of) in made() {
            let Some(bytes) = bytes_of(of).filter(|bytes| *bytes > limit.bytes) else { continue };
            let shape = of.1.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            return Err(memory::exceeded(format!(
                "{} makes {out} of shape [{shape}], {}",
                node.label(),
                Bytes(bytes)
            )));
        }
        let fixed = |name: &String| name.is_empty() || constant.contains(name.as_str());
        if node.inputs.iter().all(fixed) && node.captured().iter().all(fixed) {
            constant.extend(node.outputs.iter().map(String::as_str));
            folded = made().filter_map(|(_, of)| bytes_of(of)).fold(folded, u64::saturating_add);
            if folded > limit.bytes {
                return Err(memory::exceeded(format!(
                    "the constants that it computes up to {} take {}",
                    node.label(),
                    Bytes(folded)
                )));
            }
        }
    }
    Ok(())
}

/// Types and shapes by inference alone; −1 where a dimension is not known, no entry where nothing is.
fn types_of(graph: &Graph) -> Result<Types> {
    let mut types: Types =
        graph.constants.iter().map(|(name, t)| (name.clone(), (t.dtype, t.shape.clone()))).collect();
    for input in &graph.inputs {
        let known = |d: &Dim| if let Dim::Known(n) = d { *n } else { -1 };
        if let Some(dims) = &input.shape {
            types.insert(input.name.clone(), (input.dtype, dims.iter().map(known).collect()));
        }
    }
    let probe = exposed(graph);
    if probe.outputs.is_empty() {
        return Ok(types);
    }
    let session = Session::new(&probe, CPU, Optimise::Off)?;
    // An empty shape is a scalar's or an unknown rank.
    let found = session.output_types().into_iter().filter(|(.., shape)| !shape.is_empty());
    types.extend(found.map(|(name, dtype, shape)| (name, (dtype, shape))));
    Ok(types)
}

/// Values that state shapes and follow from constants and shapes, if they would tell more than `types` does.
fn shape_values(graph: &Graph, types: &Types) -> HashMap<String, Tensor> {
    let mut found: HashMap<String, Tensor> = HashMap::new();
    // Values that follow, by the nodes that compute them.
    let mut follow: HashSet<&str> =
        graph.constants.iter().filter(|(_, t)| t.len() <= MOST).map(|(name, _)| name.as_str()).collect();
    let mut small = graph.clone();
    small.inputs.clear();
    small.nodes.clear();
    for node in &graph.nodes {
        if let Some((out, shape)) = measured(node, types) {
            found.insert(out.to_string(), shape);
            follow.insert(out);
            continue;
        }
        let follows = |x: &String| x.is_empty() || follow.contains(x.as_str());
        if node.is_function() && few(node, types) && node.inputs.iter().all(follows) {
            follow.extend(node.outputs.iter().map(String::as_str));
            small.nodes.push(node.clone());
        }
    }
    let computed: HashSet<&str> = small.nodes.iter().flat_map(|n| &n.outputs).map(String::as_str).collect();
    let mut wanted: Vec<String> = Vec::new();
    for name in graph.nodes.iter().filter(|node| open(node, types)).flat_map(|node| &node.inputs) {
        if computed.contains(name.as_str()) && !wanted.contains(name) {
            wanted.push(name.clone());
        }
    }
    if wanted.is_empty() {
        return HashMap::new();
    }
    small.constants.extend(found.iter().map(|(name, t)| (name.clone(), t.clone())));
    small.outputs = wanted.iter().map(|name| untyped(name)).collect();
    small.prune();
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    // Where it fails the whole graph does, and says so better.
    let ran = Session::new(&small, CPU, Optimise::Off).and_then(|mut session| session.run(&[], &names));
    let Ok(ran) = ran else { return HashMap::new() };
    wanted.into_iter().zip(ran).filter_map(|(name, held)| Some((name, held.constant(MOST)?))).collect()
}

/// Whether the shape of what a node makes is not known yet, so that values would tell more.
fn open(node: &Node, types: &Types) -> bool {
    let stated = SHAPED.contains(&node.op.as_str());
    let open = |out: &String| types.get(out).map_or(stated, |(_, shape)| shape.iter().any(|d| *d < 0));
    node.outputs.iter().any(|out| !out.is_empty() && open(out))
}

/// Whether what a node makes of small values is small too.
fn few(node: &Node, types: &Types) -> bool {
    let count = |shape: &[i64]| shape.iter().try_fold(1i64, |all, d| all.checked_mul(*d));
    let small =
        |out: &String| types.get(out).is_none_or(|(_, shape)| count(shape).is_some_and(|n| n <= MOST as i64));
    !open(node, types) && node.outputs.iter().all(small)
}

/// What a Shape or Size node makes, and its value, if the shape of its input is known; `None` for other
/// nodes.
fn measured<'n>(node: &'n Node, types: &Types) -> Option<(&'n str, Tensor)> {
    if !node.domain.is_empty() || !["Shape", "Size"].contains(&node.op.as_str()) {
        return None;
    }
    let (_, shape) = types.get(node.input(0)?).filter(|(_, shape)| shape.iter().all(|d| *d >= 0))?;
    let out = node.output(0)?;
    if node.op == "Size" {
        let count = shape.iter().try_fold(1i64, |all, d| all.checked_mul(*d))?;
        return Some((out, Tensor::i64(&[], &[count])));
    }
    let rank = shape.len() as i64;
    let at = |name: &str, default: i64| {
        let place = node.int(name, default);
        (if place < 0 { place + rank } else { place }).clamp(0, rank) as usize
    };
    Some((out, Tensor::ints(shape.get(at("start", 0)..at("end", rank)).unwrap_or_default())))
}

/// [`check`] of the graphs within nodes, as far as they don't depend on what is not known here.
fn bodies(graph: &Graph, types: &Types, depth: usize) -> Result<()> {
    if depth == 0 {
        return Ok(());
    }
    for body in graph.nodes.iter().flat_map(Node::graphs) {
        let mut inner = graph.clone();
        inner.nodes.clone_from(&body.nodes);
        inner.inputs.clone_from(&body.inputs);
        inner.outputs.clone_from(&body.outputs);
        let read: HashSet<String> =
            body.nodes.iter().flat_map(|node| node.inputs.iter().cloned().chain(node.captured())).collect();
        inner.constants.retain(|name, _| read.contains(name));
        inner.constants.extend(body.constants.clone());
        let own: HashSet<&str> = body
            .nodes
            .iter()
            .flat_map(|n| &n.outputs)
            .chain(inner.constants.keys())
            .map(String::as_str)
            .collect();
        let given: HashSet<&str> = body.inputs.iter().map(|v| v.name.as_str()).collect();
        let captured: Vec<Value> = read
            .iter()
            .filter(|name| !name.is_empty() && !own.contains(name.as_str()) && !given.contains(name.as_str()))
            .filter_map(|name| {
                let (dtype, shape) = types.get(name)?;
                let dims =
                    shape.iter().map(|d| if *d < 0 { Dim::Free(String::new()) } else { Dim::Known(*d) });
                Some(Value { name: name.clone(), dtype: *dtype, shape: Some(dims.collect()) })
            })
            .collect();
        inner.inputs.extend(captured);
        within(&inner, depth - 1)?;
    }
    Ok(())
}

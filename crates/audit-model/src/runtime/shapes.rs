//! Constant folding, and type and shape inference, by ONNX Runtime.

use super::sizes::{self, CPU, exposed, hollow, untyped};
use super::{Input, Optimise, Provider, Session, builder, fault, handover};
use crate::refused;
use audit_base::{Error, Result};
use onnx_grad::graph::{Node, Value};
use onnx_grad::{Graph, Types};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use std::collections::BTreeSet;
use std::path::Path;

/// Lets ONNX Runtime fold the constants of a graph with fixed input shapes. This removes shape arithmetic and
/// dead nodes, and merges batch norms into convolutions. The result has only standard operators. Errors (exit
/// code 3): ONNX Runtime refuses the graph, or it needs more memory than a model may use.
pub fn specialise(graph: &Graph) -> Result<Graph> {
    sizes::check(graph)?;
    let once = fold(graph)?;
    // ONNX Runtime inlines operators without a kernel after it inferred shapes. Their shape arithmetic folds
    // in a second pass.
    let left = |n: &Node| matches!(n.op.as_str(), "Shape" | "Size") && n.domain.is_empty();
    if once.nodes.iter().any(left) { fold(&once) } else { Ok(once) }
}

fn fold(graph: &Graph) -> Result<Graph> {
    let b = builder(CPU, Optimise::Off, graph.nodes.len())?;
    rewritten(graph, b.with_optimization_level(GraphOptimizationLevel::Level1).map_err(fault_of_setting)?)
}

/// The graph as ONNX Runtime runs it on the CPU of this machine, in operators of its own: fused, and in the
/// layouts that its kernels take. A session of it needs no optimisation. Errors (exit code 3): ONNX Runtime
/// refuses the graph.
pub fn optimised(graph: &Graph) -> Result<Graph> {
    let b = builder(CPU, Optimise::All, graph.nodes.len())?;
    // Constants are folded already, so nothing is computed. Memory of its own goes with the session; the
    // arena of all sessions would keep it.
    rewritten(graph, b.with_config_entry("session.use_env_allocators", "0").map_err(fault_of_setting)?)
}

/// Constants that ONNX Runtime adds if it fuses a MatMul and an Add. It refuses a graph that has a constant
/// of this name already (1.31), as its own result and a file that it saved have.
const FUSED: [&str; 2] = ["gemm_input_shape", "gemm_output_shape"];

fn rename_fused(graph: &mut Graph) {
    for name in FUSED {
        if graph.constants.contains_key(name) {
            graph.rename(name, &format!("audit/{name}"));
        }
    }
}

/// The graph as ONNX Runtime rewrites it, in a session that never runs.
fn rewritten(graph: &Graph, b: SessionBuilder) -> Result<Graph> {
    let mut graph = graph.clone();
    rename_fused(&mut graph);
    let (committed, [model, weights]) = handover::receive(|[model, weights]| {
        let b = writing(b, model, weights, sizes::most_folded(&graph)).map_err(fault_of_setting)?;
        Session::commit(&graph, Provider::Cpu, b).map(drop)
    })?;
    committed?;
    let path = Path::new("the optimised graph");
    let mut rewritten = Graph::decode_beside(model.into(), weights.into(), path).map_err(refused)?;
    // The file declares every operator set that ONNX Runtime knows.
    let mut used: BTreeSet<String> = graph.opsets.keys().cloned().collect();
    add_domains(&rewritten, &mut used);
    rewritten.opsets.retain(|domain, _| used.contains(domain));
    rewritten.precision = graph.precision;
    rewritten.prune();
    rename_fused(&mut rewritten);
    Ok(rewritten)
}

/// Adds the operator sets of a graph's nodes and of the graphs within them.
fn add_domains(graph: &Graph, used: &mut BTreeSet<String>) {
    for node in &graph.nodes {
        used.insert(node.domain.clone());
        node.graphs().for_each(|inner| add_domains(inner, used));
    }
}

fn fault_of_setting(e: impl Into<ort::Error>) -> Error {
    fault("setting up")(e.into())
}

/// A session that folds constants of at most `most` bytes each, and writes the graph to `model` and its large
/// weights to `weights`.
fn writing(b: SessionBuilder, model: &Path, weights: &Path, most: u64) -> ort::Result<SessionBuilder> {
    let name = weights.file_name().unwrap_or_default().to_string_lossy();
    let most = most.to_string();
    let settings = [
        // Known from 1.27 on.
        ("optimization.constant_folding_max_output_size_in_bytes", most.as_str()),
        // Another copy of the weights, for a session that never runs.
        ("session.disable_prepacking", "1"),
        // Beside the graph, because protobuf ends at 2 GB; within it they would also be copied once more.
        ("session.optimized_model_external_initializers_file_name", &name),
        ("session.optimized_model_external_initializers_min_size_in_bytes", "1024"),
    ];
    let b = b.with_optimized_model_path(model)?;
    settings.into_iter().try_fold(b, |b, (key, value)| Ok(b.with_config_entry(key, value)?))
}

/// Element type and shape of every value of a graph whose input shapes are fixed.
///
/// The graph runs once, on zeros. The run rejects graphs that inference accepts and kernels do not, such as
/// those with impossible attributes. It also yields the shapes that inference leaves open or is known to get
/// wrong.
pub fn infer(graph: &Graph) -> Result<Types> {
    let (mut types, open) = inferred(graph)?;
    run(graph, &mut types, &open)?;
    Ok(types)
}

/// [`infer`], which runs the graph only where that yields shapes. The caller runs it.
pub fn infer_unrun(graph: &Graph) -> Result<Types> {
    let (mut types, open) = inferred(graph)?;
    let unknown =
        |open: &[String]| open.iter().any(|name| types.get(name).is_some_and(|(_, shape)| !shape.is_empty()));
    if !open.is_empty() && (unknown(&open) || !all_scalars(graph, &open)?) {
        run(graph, &mut types, &open)?;
    }
    Ok(types)
}

/// What inference finds without a run, as far as it is known to be right. A graph that might not end can be
/// asked.
pub fn infer_statically(graph: &Graph) -> Result<Types> {
    let (mut types, open) = inferred(graph)?;
    types.retain(|name, _| !open.contains(name));
    Ok(types)
}

/// Whether the values, for which inference gives no dimension, are scalars and have no unknown rank:
/// inference gives the shape of their shape. A run would tell too, and a run may take minutes.
fn all_scalars(graph: &Graph, values: &[String]) -> Result<bool> {
    let mut probe = graph.clone();
    probe.outputs.clear();
    ask_shapes(&mut probe, values);
    probe.prune();
    Ok(without_weights(&probe)?.output_types().iter().all(|(.., shape)| shape[..] == [0]))
}

/// Adds the shapes of these values to a graph's outputs. Returns their names.
fn ask_shapes(graph: &mut Graph, values: &[String]) -> Vec<String> {
    let names: Vec<String> = values.iter().map(|name| format!("audit/shape-of/{name}")).collect();
    graph.nodes.extend(values.iter().zip(&names).map(|(of, name)| Node::new("Shape", &[of], name)));
    graph.outputs.extend(names.iter().map(|name| untyped(name)));
    names
}

/// A session that tells types: without the weights, unless its kernels take none but constant ones.
fn without_weights(graph: &Graph) -> Result<Session> {
    let hollow = Session::new(&hollow(graph), CPU, Optimise::Off);
    hollow.or_else(|_| Session::new(graph, CPU, Optimise::Off))
}

/// Whether inference is known to get shapes of the graph wrong. In ceil_mode, it counts pooling windows that
/// start beyond the padding; kernels omit them. For a ConvTranspose with output_shape, it gets the rank
/// wrong.
pub fn infers_wrong(graph: &Graph) -> bool {
    graph.nodes.iter().any(|n| n.int("ceil_mode", 0) != 0 || n.attrs.contains_key("output_shape"))
}

/// What inference finds, and the values whose shapes it leaves open or is known to get wrong.
fn inferred(graph: &Graph) -> Result<(Types, Vec<String>)> {
    let mut types: Types =
        graph.constants.iter().map(|(n, t)| (n.clone(), (t.dtype, t.shape.clone()))).collect();
    for input in &graph.inputs {
        types.insert(input.name.clone(), (input.dtype, fixed_shape(input)?));
    }
    let session = without_weights(&exposed(graph))?;
    let doubtful = infers_wrong(graph);
    let mut open = Vec::new();
    for (name, dtype, shape) in session.output_types() {
        // An empty shape is either a scalar's or an unknown rank.
        if doubtful || shape.is_empty() || shape.iter().any(|&d| d < 0) {
            open.push(name.clone());
        }
        types.insert(name, (dtype, shape));
    }
    drop(session);
    for node in &graph.nodes {
        node.check_shapes(|name| types.get(name).map(|(_, shape)| shape.as_slice())).map_err(Error::model)?;
    }
    sizes::refuse_large(graph, &types)?;
    Ok((types, open))
}

/// Runs the graph on zeros, and completes `types` with the shapes of the values that are `open`.
fn run(graph: &Graph, types: &mut Types, open: &[String]) -> Result<()> {
    // All values together would fill the memory. This run keeps only the outputs and the open shapes.
    let mut probe = graph.clone();
    let shapes = ask_shapes(&mut probe, open);
    let mut session = Session::new(&probe, CPU, Optimise::Off)?;
    let zeros: Vec<(String, Vec<i64>, Vec<f32>)> = graph
        .inputs
        .iter()
        .map(|i| {
            let shape = types[&i.name].1.clone();
            let count = shape.iter().product::<i64>() as usize;
            (i.name.clone(), shape, vec![0.0; count])
        })
        .collect();
    let feed: Vec<(&str, Input)> = zeros.iter().map(|(n, s, v)| (n.as_str(), Input::Host(s, v))).collect();
    let outputs = graph.outputs.iter().map(|o| o.name.as_str());
    let wanted: Vec<&str> = shapes.iter().map(String::as_str).chain(outputs).collect();
    let ran = session.run(&feed, &wanted)?;
    for (name, shape) in open.iter().zip(ran) {
        if let Some(entry) = types.get_mut(name) {
            entry.1 = shape.ints()?;
        }
    }
    Ok(())
}

pub(crate) fn fixed_shape(value: &Value) -> Result<Vec<i64>> {
    use onnx_grad::graph::Dim;
    let dims = value.shape.as_deref().unwrap_or_default();
    dims.iter()
        .map(|d| match d {
            Dim::Known(n) => Ok(*n),
            Dim::Free(_) => {
                Err(Error::internal(format!("input {} has shape {}", value.name, value.shape_text())))
            }
        })
        .collect()
}

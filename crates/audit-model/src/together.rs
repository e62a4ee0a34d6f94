//! The two graphs of a gradient as ONNX Runtime optimises them together.
//!
//! Convolutions run in a blocked layout of channels. ONNX Runtime reorders each value that leaves or enters a
//! graph, and a gradient has dozens of residuals, which leave one graph and enter the other. So it optimises
//! the joined graph, which keeps them in blocks. The result is cut in two again, where the cotangent comes in:
//! losses are computed between the two sessions.

use super::runtime::{self, Optimise, Options, Provider, Session};
use super::{EMBEDDING, IMAGE};
use audit_base::Result;
use onnx_grad::graph::{DType, Value};
use onnx_grad::{Differentiated, Graph};
use std::collections::HashSet;

/// Whether the graphs of a gradient are optimised together: those of convolutional nets, on the CPU. A single
/// convolution, which cuts an image into the patches of a transformer, leaves the others nothing to gain.
pub fn pays(g: &Differentiated, options: Options) -> bool {
    let convolutions = g.forward.nodes.iter().filter(|node| node.op == "Conv").count();
    let whole = runtime::is_whole(g.forward.nodes.len() + g.backward.nodes.len());
    options.provider == Provider::Cpu && convolutions > 1 && whole
}

/// The forward and backward sessions of a `joined` graph, and the inputs of the backward one. Errors (exit
/// code 3): ONNX Runtime refuses a graph.
pub fn sessions(joined: Graph, options: Options) -> Result<(Session, Session, Vec<Value>)> {
    let optimised = runtime::optimised(&joined)?;
    // Its weights are in memory twice by now.
    drop(joined);
    let [forward, mut backward] = cut(optimised);
    let session = |graph: &Graph| Session::new(graph, options, Optimise::Off);
    let first = session(&forward)?;
    let mut types = first.output_types();
    // An empty shape is a scalar's, or of unknown rank.
    if types.iter().any(|(.., shape)| shape.is_empty() || shape.iter().any(|d| *d < 0)) {
        let inferred = runtime::infer(&forward)?;
        for (name, dtype, shape) in &mut types {
            (*dtype, *shape) = inferred[name.as_str()].clone();
        }
    }
    let handed = types.iter().map(|(name, dtype, shape)| Value::new(name, *dtype, shape));
    let read: HashSet<String> = reads(&backward).collect();
    backward.inputs.extend(handed.filter(|value| read.contains(&value.name)));
    let second = session(&backward)?;
    Ok((first, second, backward.inputs))
}

/// The forward part of a joined graph, whose residuals have no type yet, and the backward part, which lacks
/// them as inputs. What the embedding needs is forward. The rest is backward, also nodes that follow from the
/// image alone: what they read is mostly in blocks, what they make is not.
fn cut(joined: Graph) -> [Graph; 2] {
    let mut forward = joined.clone();
    forward.outputs.retain(|value| value.name == EMBEDDING);
    forward.inputs.retain(|value| value.name == IMAGE);
    forward.prune();
    let outputs = forward.nodes.iter().flat_map(|node| &node.outputs);
    let made: HashSet<String> = outputs.filter(|out| !out.is_empty()).cloned().collect();
    let mut backward = joined;
    backward.outputs.retain(|value| value.name != EMBEDDING);
    backward.nodes.retain(|node| !node.outputs.iter().any(|out| made.contains(out)));
    backward.prune();
    let mut seen = HashSet::from([EMBEDDING.to_string()]);
    for name in reads(&backward) {
        if made.contains(&name) && seen.insert(name.clone()) {
            forward.outputs.push(Value { name, dtype: DType::Other(0), shape: None });
        }
    }
    [forward, backward]
}

/// The values that the nodes of a graph read.
fn reads(graph: &Graph) -> impl Iterator<Item = String> {
    graph.nodes.iter().flat_map(|node| node.inputs.iter().cloned().chain(node.captured()))
}

//! The two graphs of a gradient as ONNX Runtime optimises them together.
//!
//! Convolutions run in a blocked layout of channels. ONNX Runtime reorders each value that leaves or enters a
//! graph, and a gradient has dozens of residuals, which leave one graph and enter the other. So it optimises
//! the joined graph, which keeps them in blocks. Chains of elementwise operators become one operator each
//! (`runtime/fused/`). The result is cut in two again, where the cotangent comes in: losses are computed
//! between the two sessions.

use super::runtime::{self, Optimise, Options, Provider, Session};
use super::{EMBEDDING, IMAGE};
use audit_base::Result;
use onnx_grad::graph::{DType, Node, Value};
use onnx_grad::{Differentiated, Graph};
use std::collections::{HashMap, HashSet};

/// Whether the graphs of a gradient are optimised together: those of convolutional nets, on the CPU, if they
/// can be joined and all shapes follow from the graph. A single convolution, which cuts an image into the
/// patches of a transformer, leaves the others nothing to gain.
pub fn pays(g: &Differentiated, options: Options) -> bool {
    let convolutions = g.forward.nodes.iter().filter(|node| node.op == "Conv").count();
    let whole = runtime::is_whole(g.forward.nodes.len() + g.backward.nodes.len());
    let inferable = !runtime::infers_wrong(&g.forward);
    options.provider == Provider::Cpu && convolutions > 1 && whole && inferable && joinable(g)
}

/// Whether no value of the file has the name of another one in the backward graph. Nodes that follow from
/// constants are in both graphs.
fn joinable(g: &Differentiated) -> bool {
    let makers: HashMap<&str, &Node> = g
        .forward
        .nodes
        .iter()
        .flat_map(|node| node.outputs.iter().map(move |out| (out.as_str(), node)))
        .collect();
    let same = |node: &Node| {
        let mut makers = node.outputs.iter().filter_map(|out| makers.get(out.as_str()));
        makers.all(|maker| *maker == node)
    };
    let handed = |name: &String| g.residuals.contains(name) || name == IMAGE;
    let mut given = g.backward.inputs.iter().map(|input| &input.name).filter(|name| !handed(name));
    let known = |name: &String| makers.contains_key(name.as_str()) || g.forward.constants.contains_key(name);
    g.backward.nodes.iter().all(same) && !given.any(known)
}

/// The forward and backward sessions of a `joined` graph, and the inputs of the backward one. Errors (exit
/// code 3): ONNX Runtime refuses a graph.
pub fn sessions(joined: Graph, options: Options) -> Result<(Session, Session, Vec<Value>)> {
    let mut optimised = runtime::optimised(&joined)?;
    // `optimised` has its own copy of the weights.
    drop(joined);
    // A chain runs on one thread, and ONNX Runtime's operators on all that a session has. No chain crosses
    // the cut: a value joins a chain only with all of its readers.
    if options.threads == 1
        && let Ok(types) = runtime::infer_statically(&optimised)
    {
        runtime::fuse(&mut optimised, types)?;
    }
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
/// image alone: what they read is mostly in blocks, what they make is not. All of them lead to the gradient,
/// and so to the node that overwrites the image.
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

#[cfg(test)]
mod tests {
    use super::super::runtime::Cuda;
    use super::*;
    use onnx_grad::graph::Tensor;
    use onnx_grad::{Pass, Processor, differentiate};

    /// The gradient of two convolutions with `middle` from "a" to "b" between them.
    fn gradient(middle: Node) -> Differentiated {
        let conv = |x: &str, y: &str| Node::new("Conv", &[x, "w"], y);
        let nodes = vec![conv(IMAGE, "a"), middle, conv("b", EMBEDDING)];
        let mut graph = Graph::new(nodes, [("w".into(), Tensor::f32(&[1, 1, 1, 1], &[2.0]))].into());
        let value = |name: &str| Value::new(name, DType::F32, &[1, 1, 4, 4]);
        (graph.inputs, graph.outputs) = (vec![value(IMAGE)], vec![value(EMBEDDING)]);
        let names = graph.nodes.iter().flat_map(|node| node.outputs.clone()).chain([IMAGE.to_string()]);
        let mut types: onnx_grad::Types = names.map(|name| (name, (DType::F32, vec![1, 1, 4, 4]))).collect();
        types.insert("w".into(), (DType::F32, vec![1; 4]));
        differentiate(&graph, &types, &[IMAGE], Pass::Exact, Processor::Cpu).unwrap()
    }

    /// By hand.
    #[test]
    fn convolutional_nets_on_the_cpu() {
        let on = |provider| Options { provider, threads: 1 };
        let cpu = on(Provider::Cpu);
        let relu = || Node::new("Relu", &["a"], "b");
        assert!(pays(&gradient(relu()), cpu));
        assert!(!pays(&gradient(relu()), on(Provider::Cuda(Cuda::default()))));
        let pool = Node::new("MaxPool", &["a"], "b").with("kernel_shape", vec![1i64, 1]).with("ceil_mode", 1);
        assert!(!pays(&gradient(pool), cpu), "shapes may be inferred wrong");
        let mut named = gradient(relu());
        super::super::append_update(&mut named.backward, &named.gradients[0], &[1, 1, 4, 4]);
        assert!(pays(&named, cpu));
        named.forward.rename("a", "audit/sign");
        assert!(!pays(&named, cpu), "a value of the file has the name of one of ours");
        let mut one = gradient(relu());
        one.forward.nodes[0].op = "Gemm".into();
        assert!(!pays(&one, cpu), "one convolution");
    }

    /// By hand: the forward part ends at the embedding and hands over what the rest reads.
    #[test]
    fn a_joined_graph_is_cut_where_the_cotangent_comes_in() {
        let joined = gradient(Node::new("Relu", &["a"], "b")).join();
        let [forward, backward] = cut(joined);
        assert_eq!(forward.nodes.len(), 3);
        let names = |values: &[Value]| values.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&forward.outputs), [EMBEDDING, "b"]);
        assert!(backward.nodes.iter().all(|node| !node.outputs.contains(&"b".to_string())));
        assert_eq!(names(&backward.outputs).len(), 1);
    }
}

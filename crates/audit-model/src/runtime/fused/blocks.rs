//! Elementwise operators moved into ONNX Runtime's blocked layout.
//!
//! Convolutions on CPUs run on tensors whose channels lie in blocks (MLAS's NCHWc): 16 or 8 values of one place,
//! then those of the next. ONNX Runtime reorders a tensor before each operator that has no kernel for blocks. A
//! product with one value for each channel, as squeeze and excitation has, and the sum over places in its
//! gradient are such operators. Ours has them in blocks.

use super::{Readers, is_large, number, operator_index, spread};
use crate::runtime::{Input, Optimise, Options, Provider, Session};
use crate::shaped::BLOCKED;
use audit_base::Result;
use onnx_grad::graph::{DType, Node, Value};
use onnx_grad::{Graph, Types};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// The channels of a block on this machine. Errors: ONNX Runtime doesn't have the operator that is asked.
pub(super) fn width() -> Result<usize> {
    static WIDTH: OnceLock<usize> = OnceLock::new();
    if let Some(width) = WIDTH.get() {
        return Ok(*width);
    }
    // Of 64 channels with two places, numbered in their order before: the second place of the first channel
    // comes after the block's channels.
    const SHAPE: [i64; 4] = [1, 64, 1, 2];
    let mut node = Node::new("ReorderInput", &["x"], "y");
    node.domain = BLOCKED.into();
    let mut graph = Graph::new(vec![node], [].into());
    graph.opsets.insert(BLOCKED.into(), 1);
    graph.inputs = vec![Value::new("x", DType::F32, &SHAPE)];
    graph.outputs = vec![Value::new("y", DType::F32, &SHAPE)];
    let values: Vec<f32> = (0..128).map(|v| v as f32).collect();
    let mut session = Session::new(&graph, Options { provider: Provider::Cpu, threads: 1 }, Optimise::Off)?;
    let held = session.run(&[("x", Input::Host(&SHAPE, &values))], &["y"])?.remove(0);
    let (_, blocked) = held.floats()?;
    let width = blocked.iter().position(|v| *v == 1.0).unwrap_or(1);
    Ok(*WIDTH.get_or_init(|| width))
}

/// Whether the node is ONNX Runtime's change of layout out of blocks (`ReorderOutput`) or into them
/// (`ReorderInput`), from or to channels first.
fn reorders(node: &Node, op: &str) -> bool {
    node.domain == BLOCKED && node.op == op && node.int("channels_last", 0) == 0
}

/// Values that lie in blocks: ONNX Runtime's own operators read blocks only if they write them.
pub(super) fn blocked(graph: &Graph) -> HashSet<String> {
    let mut blocked = HashSet::new();
    for node in &graph.nodes {
        let made = node.domain == BLOCKED || node.inputs.iter().any(|name| blocked.contains(name));
        if made && node.op != "ReorderOutput" && node.op != "ReduceSum" {
            blocked.extend(node.outputs.iter().cloned());
        }
    }
    blocked
}

/// Whether a tensor of shape `shape` has one value for each channel or image of a tensor of shape `of`, the same
/// at all places. In blocks, `of` counts the channels that fill up the last block too.
pub(super) fn is_channelwise(shape: &[i64], of: &[i64], blocked: bool) -> bool {
    let [.., n, c, h, w] = *of else { return false };
    let [images, channels, places] = match *shape {
        [images, channels, 1, 1] => [images, channels, h * w],
        [channels, 1, 1] => [1, channels, h * w],
        _ => return false,
    };
    let all = channels == c || channels == 1 || blocked && channels < c;
    of.len() == 4 && (images == n || images == 1) && all && places > 1
}

/// Whether the node adds up all places of each channel.
pub(super) fn is_sum_over_places(node: &Node, graph: &Graph, types: &Types) -> bool {
    let axes = || match node.input(1) {
        Some(name) => graph.const_ints(name),
        None => node.ints("axes").map(<[i64]>::to_vec),
    };
    let of_four = |name| matches!(types.get(name), Some((DType::F32, shape)) if shape.len() == 4 && shape[2] * shape[3] > 1);
    node.op == "ReduceSum"
        && node.domain.is_empty()
        && node.int("keepdims", 1) == 1
        && node.input(0).is_some_and(of_four)
        && axes().is_some_and(|axes| matches!(axes[..], [2 | -2, 3 | -1]))
}

/// A node that can be computed in blocks.
struct Move {
    /// The node as it is then.
    node: Node,
    /// The type of its result.
    kind: (DType, Vec<i64>),
    /// An operand that has to be brought into blocks.
    outside: Option<String>,
}

/// The name in blocks of a value.
fn in_blocks(name: &str) -> String {
    format!("audit/blocks/{name}")
}

/// Moves elementwise operators, sums over places and spreads whose operands come out of blocks into them, where
/// that saves changes of layout. `types` gains the values in blocks.
///
/// A moved operator can have operands of two layouts, for which no operator but ours has a kernel: a tensor in
/// blocks, and one value for each channel in the usual order.
pub(super) fn enter(graph: &mut Graph, types: &mut Types, width: usize) {
    let readers = Readers::of(graph);
    let enters = |i: &usize| reorders(&graph.nodes[*i], "ReorderInput");
    let reordered = graph.nodes.iter().filter(|node| reorders(node, "ReorderOutput"));
    let given: HashMap<String, String> =
        reordered.map(|node| (node.outputs[0].clone(), node.inputs[0].clone())).collect();
    let mut idle: HashSet<usize> = HashSet::new();
    let (moved, twins, left) = loop {
        // The value in blocks of each value that would exist in blocks if all others moved.
        let (mut moved, mut twins) = (HashMap::<usize, Move>::new(), given.clone());
        for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !idle.contains(i)) {
            let Some(new) = as_moved(node, graph, types, &twins, width) else { continue };
            if node.op != "ReduceSum" {
                types.insert(new.node.outputs[0].clone(), new.kind.clone());
                twins.insert(node.outputs[0].clone(), new.node.outputs[0].clone());
            }
            moved.insert(i, new);
        }
        // Whether node i takes a value with a twin in blocks, and whether someone takes it out of them.
        let takes = |i: &usize, name: &str| {
            enters(i)
                || moved.get(i).zip(twins.get(name)).is_some_and(|(new, twin)| new.node.inputs.contains(twin))
        };
        let leaves =
            |name: &str| !readers.are_nodes(name) || !readers.nodes(name).iter().all(|i| takes(i, name));
        // A move pays if a reader takes the result in blocks, or if nobody else takes an operand out of them.
        let pays = |i: usize, new: &Move| {
            let node = &graph.nodes[i];
            let name = &node.outputs[0];
            let read_by = readers.nodes(name);
            let mut operands = node.inputs.iter().filter(|name| twins.contains_key(*name));
            match &new.outside {
                // One change of layout more and one less; the operands and their chain may follow.
                Some(_) => read_by.iter().any(enters) && !leaves(name),
                None => {
                    node.op == "ReduceSum"
                        || read_by.iter().any(|i| takes(i, name))
                        || operands.any(|name| !leaves(name))
                }
            }
        };
        let before = idle.len();
        idle.extend(moved.iter().filter(|(i, new)| !pays(**i, new)).map(|(i, _)| *i));
        if idle.len() == before {
            let left: HashSet<String> = twins.keys().filter(|name| leaves(name)).cloned().collect();
            break (moved, twins, left);
        }
    };
    let (mut nodes, mut renamed, mut entered) = (Vec::new(), HashMap::new(), HashSet::new());
    for (i, node) in graph.nodes.iter().enumerate() {
        let name = &node.outputs[0];
        let twin = node.inputs.first().and_then(|input| twins.get(input));
        if let Some(new) = moved.get(&i) {
            if let Some(outside) = &new.outside
                && entered.insert(outside.clone())
            {
                types.insert(in_blocks(outside), new.kind.clone());
                nodes.push(changed("ReorderInput", outside, &in_blocks(outside)));
            }
            nodes.push(new.node.clone());
            if let Some(twin) = twins.get(name).filter(|_| left.contains(name)) {
                nodes.push(changed("ReorderOutput", twin, name).with("channels", types[name].1[1]));
            }
        } else if let Some(twin) = twin
            && reorders(node, "ReorderInput")
            && types.get(twin).is_some_and(|kind| types.get(name) == Some(kind))
            && readers.are_nodes(name)
        {
            renamed.insert(name.clone(), twin.clone());
        } else {
            nodes.push(node.clone());
        }
    }
    for name in nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        if let Some(twin) = renamed.get(name) {
            name.clone_from(twin);
        }
    }
    graph.nodes = nodes;
    graph.prune();
}

/// The node with its operands in blocks; `None` if it has to stay. `twins` has the values in blocks of others.
fn as_moved(
    node: &Node,
    graph: &Graph,
    types: &Types,
    twins: &HashMap<String, String>,
    width: usize,
) -> Option<Move> {
    let (dtype, shape) = types.get(node.output(0)?)?;
    let mut new = node.clone();
    if is_sum_over_places(node, graph, types) {
        new.inputs = vec![twins.get(node.input(0)?)?.clone()];
        let kind = (*dtype, shape.clone());
        return Some(Move { node: new.with("channels", shape[1]), kind, outside: None });
    }
    let spread = node.input(0).and_then(|x| spread::in_blocks(node, graph, types, twins.get(x)?, width));
    if let Some((mut node, kind)) = spread {
        node.outputs[0] = in_blocks(&new.outputs[0]);
        return Some(Move { node, kind, outside: None });
    }
    operator_index(node).filter(|_| is_large(*dtype, shape))?;
    let (mut kind, mut outside) = (None, None);
    // ONNX Runtime brings no other numbers of channels into blocks.
    let enterable = shape.len() == 4 && shape[1] % 4 == 0;
    for name in &mut new.inputs {
        let whole = types.get(name) == types.get(&node.outputs[0]);
        if let Some(twin) = twins.get(name).filter(|_| whole) {
            kind = types.get(twin).cloned();
            name.clone_from(twin);
        } else if whole && enterable && outside.as_ref().is_none_or(|known| known == name) {
            outside = Some(name.clone());
            *name = in_blocks(name);
        } else if number(graph, name).is_none() && !is_channelwise(&types.get(name)?.1, shape, false) {
            return None;
        }
    }
    let kind = kind?;
    // Channels that fill up the last block are zeros, and convolutions multiply them by zeros: none may become
    // NaN.
    if node.op == "Div" && kind.1 != *shape {
        return None;
    }
    new.outputs[0] = in_blocks(&node.outputs[0]);
    Some(Move { node: new, kind, outside })
}

/// ONNX Runtime's change of layout between blocks and channels first.
fn changed(op: &str, from: &str, to: &str) -> Node {
    let mut node = Node::new(op, &[from], to).with("channels_last", 0i64);
    node.domain = BLOCKED.into();
    node
}

//! Elementwise operators moved into ONNX Runtime's blocked layout.
//!
//! Convolutions on CPUs run on tensors whose channels lie in blocks (MLAS's NCHWc): 16 or 8 values of one
//! place, then those of the next. ONNX Runtime reorders a tensor before each operator that has no kernel for
//! blocks. A product with one value for each channel, as squeeze and excitation has, and the sum over places
//! in its gradient are such operators. Ours has them in blocks.

use super::{Readers, is_large, number, operator_index, spread};
use crate::runtime::{Input, Optimise, Options, Provider, Session};
use crate::specialise::BLOCKED;
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
    // Value 1 is channel 0 at place 1: in blocks it follows the channels of the first block at place 0.
    const SHAPE: [i64; 4] = [1, 64, 1, 2];
    let node = Node::new("ReorderInput", &["x"], "y").in_domain(BLOCKED);
    let mut graph = Graph::new(vec![node], [].into());
    graph.opsets.insert(BLOCKED.into(), 1);
    graph.inputs = vec![Value::new("x", DType::F32, &SHAPE)];
    graph.outputs = vec![Value::new("y", DType::F32, &SHAPE)];
    let values: Vec<f32> = (0..128).map(|v| v as f32).collect();
    let mut session = Session::new(&graph, Options { provider: Provider::Cpu, threads: 1 }, Optimise::Off)?;
    let held = session.run(&[("x", Input::Host(&SHAPE, &values))], &["y"])?.remove(0);
    let (_, blocked) = held.floats()?;
    let width = blocked.iter().position(|v| *v == 1.0).unwrap_or(1);
    // Another thread may have measured the same meanwhile.
    let _ = WIDTH.set(width);
    Ok(width)
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

/// Whether a tensor of shape `shape` has one value for each channel or image of a tensor of shape `of`, the
/// same at all places. In blocks, `of` counts the channels that fill up the last block too.
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
fn is_sum_over_places(node: &Node, graph: &Graph, types: &Types) -> bool {
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
    result_type: (DType, Vec<i64>),
    /// An operand that has to be brought into blocks.
    outside: Option<String>,
}

fn blocked_name(name: &str) -> String {
    format!("audit/blocks/{name}")
}

/// Moves elementwise operators, sums over places and spreads into blocks, if an operand comes out of them and
/// a reader takes the result in blocks, or nobody else takes the operand out. `types` gains the values in
/// blocks.
///
/// A moved operator can have operands of two layouts, for which no operator but ours has a kernel: a tensor
/// in blocks, and one value for each channel in the usual order.
pub(super) fn move_into_blocks(graph: &mut Graph, types: &mut Types, width: usize) {
    let nodes = Moves::settled(graph, types, width).nodes(types);
    graph.nodes = nodes;
    graph.prune();
}

/// What moves into blocks.
struct Moves<'g> {
    graph: &'g Graph,
    readers: Readers<'g>,
    /// The nodes that move, by index.
    moved: HashMap<usize, Move>,
    /// The value in blocks of each value that has one.
    twins: HashMap<String, String>,
}

impl<'g> Moves<'g> {
    /// The moves that pay, if all of them are made.
    fn settled(graph: &'g Graph, types: &mut Types, width: usize) -> Moves<'g> {
        let (moved, twins) = (HashMap::new(), HashMap::new());
        let mut moves = Moves { graph, readers: Readers::new(graph), moved, twins };
        let mut idle: HashSet<usize> = HashSet::new();
        loop {
            moves.move_all_but(&idle, types, width);
            let before = idle.len();
            let stay = moves.moved.iter().filter(|(i, new)| !moves.pays(**i, new, types));
            idle.extend(stay.map(|(i, _)| *i));
            if idle.len() == before {
                return moves;
            }
        }
    }

    /// Moves all nodes that can be moved, except those in `idle`.
    fn move_all_but(&mut self, idle: &HashSet<usize>, types: &mut Types, width: usize) {
        let graph = self.graph;
        let reordered = graph.nodes.iter().filter(|node| reorders(node, "ReorderOutput"));
        self.twins = reordered.map(|node| (node.outputs[0].clone(), node.inputs[0].clone())).collect();
        self.moved.clear();
        for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !idle.contains(i)) {
            let Some(new) = as_moved(node, graph, types, &self.twins, width) else { continue };
            if node.op != "ReduceSum" {
                types.insert(new.node.outputs[0].clone(), new.result_type.clone());
                self.twins.insert(node.outputs[0].clone(), new.node.outputs[0].clone());
            }
            self.moved.insert(i, new);
        }
    }

    /// Whether the node makes what `twin` is.
    fn makes(&self, i: usize, twin: &str, types: &Types) -> bool {
        let node = &self.graph.nodes[i];
        let same = types.get(twin).is_some_and(|own| types.get(&node.outputs[0]) == Some(own));
        reorders(node, "ReorderInput") && same && self.readers.are_nodes(&node.outputs[0])
    }

    /// Whether the node, which reads the value, takes it in blocks.
    fn takes_twin(&self, i: usize, name: &str, types: &Types) -> bool {
        let in_move = |twin: &String| self.moved.get(&i).is_some_and(|new| new.node.inputs.contains(twin));
        self.twins.get(name).is_some_and(|twin| self.makes(i, twin, types) || in_move(twin))
    }

    /// Whether the value is also read outside of blocks.
    fn is_read_outside(&self, name: &str, types: &Types) -> bool {
        let mut nodes = self.readers.nodes(name).iter();
        !self.readers.are_nodes(name) || !nodes.all(|&i| self.takes_twin(i, name, types))
    }

    /// Whether the node's move is worth its changes of layout.
    fn pays(&self, i: usize, new: &Move, types: &Types) -> bool {
        let node = &self.graph.nodes[i];
        let name = &node.outputs[0];
        let mut read_by = self.readers.nodes(name).iter();
        if new.outside.is_some() {
            // The operand is brought into blocks instead of the result.
            let result = &new.node.outputs[0];
            return read_by.any(|&i| self.makes(i, result, types)) && !self.is_read_outside(name, types);
        }
        let mut operands = node.inputs.iter().filter(|name| self.twins.contains_key(*name));
        node.op == "ReduceSum"
            || read_by.any(|&i| self.takes_twin(i, name, types))
            || operands.any(|name| !self.is_read_outside(name, types))
    }

    /// The graph's nodes after the moves.
    fn nodes(&self, types: &mut Types) -> Vec<Node> {
        let outside_too: HashSet<String> =
            self.twins.keys().filter(|name| self.is_read_outside(name, types)).cloned().collect();
        let (mut nodes, mut entered) = (Vec::new(), HashSet::new());
        let mut renamed: HashMap<String, String> = HashMap::new();
        for (i, node) in self.graph.nodes.iter().enumerate() {
            let name = &node.outputs[0];
            let twin = node.inputs.first().and_then(|input| self.twins.get(input));
            if let Some(new) = self.moved.get(&i) {
                if let Some(outside) = &new.outside
                    && entered.insert(outside.clone())
                {
                    types.insert(blocked_name(outside), new.result_type.clone());
                    nodes.push(reorder_node("ReorderInput", outside, &blocked_name(outside)));
                }
                nodes.push(new.node.clone());
                if let Some(twin) = self.twins.get(name).filter(|_| outside_too.contains(name)) {
                    nodes.push(reorder_node("ReorderOutput", twin, name).with("channels", types[name].1[1]));
                }
            } else if let Some(twin) = twin.filter(|twin| self.makes(i, twin, types)) {
                let twin = renamed.get(twin).unwrap_or(twin).clone();
                renamed.insert(name.clone(), twin);
            } else {
                nodes.push(node.clone());
            }
        }
        for name in nodes.iter_mut().flat_map(|node| &mut node.inputs) {
            if let Some(twin) = renamed.get(name) {
                name.clone_from(twin);
            }
        }
        nodes
    }
}

/// The node with its operands in blocks; `None` if it has to stay. `twins` has the values in blocks of
/// others.
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
        let twin = twins.get(node.input(0)?).filter(|twin| types.contains_key(*twin))?;
        new.inputs = vec![twin.clone()];
        let result_type = (*dtype, shape.clone());
        return Some(Move { node: new.with("channels", shape[1]), result_type, outside: None });
    }
    let spread = node.input(0).and_then(|x| spread::moved(node, graph, types, twins.get(x)?, width));
    if let Some((mut node, result_type)) = spread {
        node.outputs[0] = blocked_name(&new.outputs[0]);
        return Some(Move { node, result_type, outside: None });
    }
    operator_index(node).filter(|_| is_large(*dtype, shape))?;
    let (mut result_type, mut outside) = (None, None);
    // ONNX Runtime brings no other numbers of channels into blocks.
    let enterable = shape.len() == 4 && shape[1] % 4 == 0;
    for name in &mut new.inputs {
        let whole = types.get(name) == types.get(&node.outputs[0]);
        if let Some(twin) = twins.get(name).filter(|_| whole) {
            result_type = types.get(twin).cloned();
            name.clone_from(twin);
        } else if whole && enterable && outside.as_ref().is_none_or(|known| known == name) {
            outside = Some(name.clone());
            *name = blocked_name(name);
        } else if number(graph, name).is_none() && !is_channelwise(&types.get(name)?.1, shape, false) {
            return None;
        }
    }
    let result_type = result_type?;
    // Convolutions multiply the channels that fill up the last block by zeros, which does not undo a NaN.
    if node.op == "Div" && result_type.1 != *shape {
        return None;
    }
    new.outputs[0] = blocked_name(&node.outputs[0]);
    Some(Move { node: new, result_type, outside })
}

/// ONNX Runtime's change of layout between blocks and channels first.
fn reorder_node(op: &str, from: &str, to: &str) -> Node {
    Node::new(op, &[from], to).with("channels_last", 0i64).in_domain(BLOCKED)
}

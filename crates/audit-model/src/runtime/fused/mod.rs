//! Chains of elementwise operators as one operator of ours, for CPUs.
//!
//! ONNX Runtime passes over memory once for each elementwise operator, and a gradient has long chains of
//! them: the derivative of Swish takes four. Our operator computes a chain tile by tile, in the cache. Its
//! results are equal to those of ONNX Runtime's operators, bit by bit, with two exceptions: a sum over all
//! places of each channel, in which a chain can end, adds in another order, and the sigmoid that follows from
//! Swish has other last digits.
//!
//! This file finds the chains. `operator.rs` computes them, `blocks.rs` moves them into blocks of channels,
//! `spread.rs` has the gradient of a depthwise convolution with strides, and `swish.rs` Swish.

mod blocks;
mod operator;
mod spread;
mod swish;
#[cfg(test)]
mod tests;

pub(super) use operator::domain;

use audit_base::{Error, Result};
use blocks::is_channelwise;
use onnx_grad::graph::{DType, Node};
use onnx_grad::{Graph, Types};
use operator::{CHAIN, DOMAIN, Elementwise, OPERATORS, SIGMOID_OF_SWISH, WIDTHS};
use std::collections::{HashMap, HashSet};

/// Smallest tensor, in values, for which a chain is faster than its operators.
const LEAST: i64 = 16_384;
/// Smallest H·W for which a chain in the usual layout has operands of one value for each channel: it goes
/// channel by channel.
const LEAST_PLACES: i64 = 512;
const MOST_OPERATORS: usize = 12;

/// The index in [`OPERATORS`] of a node's operator.
fn operator_index(node: &Node) -> Option<usize> {
    let fits =
        |row: &Elementwise| row.op == node.op && row.domain == node.domain && row.inputs == node.inputs.len();
    OPERATORS.iter().position(fits).filter(|_| node.outputs.len() == 1)
}

/// Whether a chain on tensors of this type and shape is faster than its operators.
fn is_large(dtype: DType, shape: &[i64]) -> bool {
    let positive = shape.iter().all(|d| *d > 0);
    dtype == DType::F32 && positive && shape.iter().product::<i64>() >= LEAST
}

/// The number that a value is, if it is a constant of one element.
fn number(graph: &Graph, name: &str) -> Option<f32> {
    let values = graph.constants.get(name).filter(|t| t.dtype == DType::F32 && t.len() == 1)?.to_f32s()?;
    values.first().copied()
}

/// Who reads the values of a graph.
struct Readers<'a> {
    nodes: HashMap<&'a str, Vec<usize>>,
    /// Values that sub-graphs read, and outputs.
    others: HashSet<String>,
}

impl Readers<'_> {
    fn new(graph: &Graph) -> Readers<'_> {
        let mut nodes: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|name| nodes.entry(name).or_default().push(i));
        }
        let captured = graph.nodes.iter().flat_map(Node::captured);
        Readers { nodes, others: captured.chain(graph.outputs.iter().map(|v| v.name.clone())).collect() }
    }

    /// The nodes that have the value as an input, in ascending order.
    fn nodes(&self, name: &str) -> &[usize] {
        self.nodes.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether nodes alone read the value.
    fn are_nodes(&self, name: &str) -> bool {
        !self.others.contains(name)
    }
}

enum Operand {
    Number(f32),
    /// A tensor of the chain's shape.
    Full,
    /// One value for each channel or image.
    Channelwise,
}

/// A graph with the types of its values and the names of those in blocks.
struct Typed<'a> {
    graph: &'a Graph,
    types: Types,
    blocked: &'a HashSet<String>,
}

impl Typed<'_> {
    /// The operand `name` of an operator on tensors of the shape of `of`; `None` if no chain can have it.
    fn operand(&self, name: &str, of: &str) -> Option<Operand> {
        if let Some(number) = number(self.graph, name) {
            return Some(Operand::Number(number));
        }
        let [(dtype, shape), (_, whole)] = [self.types.get(name)?, self.types.get(of)?];
        if self.are_alike(name, of) {
            return Some(Operand::Full);
        }
        let [own, blocked] = [name, of].map(|name| self.blocked.contains(name));
        let channelwise = !own && *dtype == DType::F32 && is_channelwise(shape, whole, blocked);
        let channelwise = channelwise && (blocked || whole[2] * whole[3] >= LEAST_PLACES);
        channelwise.then_some(Operand::Channelwise)
    }

    /// Whether two values have one shape and one layout.
    fn are_alike(&self, a: &str, b: &str) -> bool {
        let kind = |name| Some((self.types.get(name)?, self.blocked.contains(name)));
        kind(a).is_some() && kind(a) == kind(b)
    }

    /// Whether a chain can have the node.
    fn is_elementwise(&self, node: &Node) -> bool {
        let Some(out) = operator_index(node).and(node.output(0)) else { return false };
        let large = self.types.get(out).is_some_and(|(dtype, shape)| is_large(*dtype, shape));
        large && node.inputs.iter().all(|name| self.operand(name, out).is_some())
    }

    /// Whether a chain can end in the node: the sum over all places of each channel, of a tensor in blocks.
    /// ONNX Runtime sums channels in the usual order as fast.
    fn is_sum(&self, node: &Node) -> bool {
        node.op == "ReduceSum" && node.input(0).is_some_and(|name| self.blocked.contains(name))
    }

    /// A tensor of the shape of a chain that ends in the node.
    fn whole<'n>(&self, last: &'n Node) -> &'n str {
        if self.is_sum(last) { &last.inputs[0] } else { &last.outputs[0] }
    }
}

/// Replaces chains of elementwise operators by one operator each, and moves those between tensors in blocks
/// into blocks. `types` are those of the graph's values; a value without a type is in no chain. Errors: ONNX
/// Runtime lacks the layout that it wrote; an operator of ours is in no chain.
pub fn fuse(graph: &mut Graph, mut types: Types) -> Result<()> {
    swish::join(graph, &types);
    let blocked = blocks::blocked(graph);
    let width = if blocked.is_empty() { 1 } else { blocks::width()? };
    let known = WIDTHS.contains(&width);
    if known {
        blocks::move_into_blocks(graph, &mut types, width);
    }
    let blocked = if known { blocks::blocked(graph) } else { HashSet::new() };
    let typed = Typed { graph, types, blocked: &blocked };
    // Backwards: a value belongs to the chain of its readers, if they are all in one.
    let readers = Readers::new(graph);
    let mut root: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut chains: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        let sum = typed.is_sum(node);
        if !sum && !typed.is_elementwise(node) {
            continue;
        }
        let name = node.outputs[0].as_str();
        let read_by = readers.nodes(name);
        let of_readers = read_by.first().and_then(|&reader| root[reader]);
        let joins = of_readers.filter(|chain| {
            !sum && readers.are_nodes(name)
                && read_by.iter().all(|&reader| root[reader] == Some(*chain))
                && chains[chain].len() < MOST_OPERATORS
                && typed.are_alike(name, typed.whole(&graph.nodes[*chain]))
        });
        let chain = joins.unwrap_or(i);
        root[i] = Some(chain);
        chains.entry(chain).or_default().push(i);
    }
    let mut made: HashMap<usize, Node> = HashMap::new();
    let mut gone: HashSet<usize> = HashSet::new();
    for (last, mut members) in chains {
        members.reverse();
        let nodes: Vec<&Node> = members.iter().map(|&i| &graph.nodes[i]).collect();
        if let Some(node) = chain(&nodes, &typed, width) {
            made.insert(last, node);
            gone.extend(members);
        }
    }
    let nodes = graph.nodes.clone();
    let replaced = |(i, node): (usize, Node)| match made.remove(&i) {
        Some(chain) => Some(chain),
        None => (!gone.contains(&i)).then_some(node),
    };
    graph.nodes = nodes.into_iter().enumerate().filter_map(replaced).collect();
    if graph.nodes.iter().any(|node| node.domain == DOMAIN) {
        graph.opsets.insert(DOMAIN.into(), 1);
    }
    match graph.nodes.iter().find(|node| is_stranded(node, graph, &blocked)) {
        Some(node) => Err(Error::model(format!("{} is in no chain", node.label()))),
        None => Ok(()),
    }
}

/// Whether the node is one that only a chain can compute: it would run on the wrong values, or not at all.
fn is_stranded(node: &Node, graph: &Graph, blocked: &HashSet<String>) -> bool {
    let apart = |name: &String| !blocked.contains(name) && number(graph, name).is_none();
    let in_blocks = node.inputs.iter().any(|name| blocked.contains(name));
    let mixed = operator_index(node).is_some() && node.inputs.iter().any(apart);
    in_blocks && (node.op == "ReduceSum" || mixed) || node.op == SIGMOID_OF_SWISH
}

/// The nodes of a chain, each after those that it reads, as one node. `None` if no tensor of the chain's
/// shape is an input, or if it is one node of ONNX Runtime's.
fn chain(nodes: &[&Node], typed: &Typed, width: usize) -> Option<Node> {
    let last = nodes.last()?;
    let sum = typed.is_sum(last).then_some(*last);
    let steps = if sum.is_some() { &nodes[..nodes.len() - 1] } else { nodes };
    let made: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(i, node)| (node.outputs[0].as_str(), i)).collect();
    let whole = typed.whole(last);
    let (mut full, mut channelwise, mut numbers) = (vec![], vec![], vec![]);
    let read = steps.iter().flat_map(|node| &node.inputs).map(String::as_str).chain(sum.map(|_| whole));
    for name in read.filter(|name| !made.contains_key(name)) {
        if full.contains(&name)
            || channelwise.contains(&name)
            || numbers.iter().any(|(known, _)| *known == name)
        {
            continue;
        }
        match typed.operand(name, whole)? {
            Operand::Number(value) => numbers.push((name, value)),
            Operand::Full => full.push(name),
            Operand::Channelwise => channelwise.push(name),
        }
    }
    let by_channel = sum.is_some() || !channelwise.is_empty();
    let blocked = typed.blocked.contains(whole);
    // No operator of ONNX Runtime has tensors in blocks together with others.
    let ours = by_channel && blocked || last.domain == DOMAIN;
    if full.is_empty() || nodes.len() < 2 && !ours {
        return None;
    }
    // Operands by place: inputs, numbers, results.
    let mut places: Vec<&str> = full.iter().chain(&channelwise).copied().collect();
    places.extend(numbers.iter().map(|(name, _)| *name));
    places.extend(steps.iter().map(|node| node.outputs[0].as_str()));
    let place = |name: &str| Some(places.iter().position(|known| *known == name)? as i64);
    let (mut codes, mut attrs) = (Vec::new(), Vec::new());
    for node in steps {
        let row = operator_index(node)?;
        codes.extend([row as i64, place(&node.inputs[0])?, place(node.inputs.last()?)?]);
        let mut own = OPERATORS[row].attrs.iter().map(|(name, default)| node.float(name, *default));
        attrs.extend([own.next().unwrap_or_default(), own.next().unwrap_or_default()]);
    }
    // ONNX Runtime takes no empty list.
    codes.push(0);
    attrs.push(0.0);
    let layout = match (by_channel, blocked) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => width as i64,
    };
    let inputs: Vec<&str> = full.iter().chain(&channelwise).copied().collect();
    let mut node = Node::new(CHAIN, &inputs, &last.outputs[0])
        .in_domain(DOMAIN)
        .with("full", full.len() as i64)
        .with("numbers", numbers.iter().map(|(_, value)| *value).chain([0.0]).collect::<Vec<f32>>())
        .with("steps", codes)
        .with("attrs", attrs)
        .with("width", layout);
    if let Some(sum) = sum {
        node = node.with("summand", place(whole)?).with("channels", sum.int("channels", 0));
    }
    node.name = last.name.clone();
    Some(node)
}

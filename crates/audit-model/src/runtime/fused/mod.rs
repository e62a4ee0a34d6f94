//! Chains of elementwise operators as one operator of ours, for CPUs.
//!
//! ONNX Runtime passes over memory once for each elementwise operator, and a gradient has long chains of
//! them: the derivative of Swish takes four. Our operator computes a chain block by block, in the cache. Its
//! results are equal to those of ONNX Runtime's operators, bit by bit. A chain can end in the sum over all
//! places of each channel, in another order of summands than ONNX Runtime's.

mod blocks;
mod operator;
mod spread;
mod swish;

pub(super) use operator::domain;

use audit_base::Result;
use blocks::{is_channelwise, is_sum_over_places};
use onnx_grad::graph::{DType, Node};
use onnx_grad::{Graph, Types};
use operator::{CHAIN, DOMAIN, Elementwise, LANES, OPERATORS};
use std::collections::{HashMap, HashSet};

/// Smallest tensor, in values, for which a chain is faster than its operators.
const LEAST: i64 = 16_384;
/// Most operators of a chain.
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

/// What an operand of a chain is.
enum Operand {
    Number(f32),
    /// A tensor of the chain's shape.
    Full,
    /// One value for each channel.
    Channelwise,
}

/// A graph with the types of its values and the names of those in blocks.
struct Typed<'a> {
    graph: &'a Graph,
    types: Types,
    blocked: HashSet<String>,
}

impl Typed<'_> {
    /// The operand `name` of an operator on tensors of the shape of `of`; `None` if no chain can have it.
    fn operand(&self, name: &str, of: &str) -> Option<Operand> {
        if let Some(number) = number(self.graph, name) {
            return Some(Operand::Number(number));
        }
        let [(dtype, shape), (like, whole)] = [self.types.get(name)?, self.types.get(of)?];
        let [own, blocked] = [name, of].map(|name| self.blocked.contains(name));
        if own == blocked && shape == whole && dtype == like {
            return Some(Operand::Full);
        }
        let channelwise = !own && *dtype == DType::F32 && is_channelwise(shape, whole, blocked);
        channelwise.then_some(Operand::Channelwise)
    }

    /// Whether a chain can have the node.
    fn is_elementwise(&self, node: &Node) -> bool {
        let Some(out) = operator_index(node).and(node.output(0)) else { return false };
        let large = self.types.get(out).is_some_and(|(dtype, shape)| is_large(*dtype, shape));
        large && node.inputs.iter().all(|name| self.operand(name, out).is_some())
    }

    /// Whether a chain can end in the node: the sum over all places of each channel.
    fn is_sum(&self, node: &Node) -> bool {
        let of = node.input(0).filter(|_| node.op == "ReduceSum");
        let large = |name| self.types.get(name).is_some_and(|(dtype, shape)| is_large(*dtype, shape));
        of.is_some_and(|name| {
            self.blocked.contains(name) || is_sum_over_places(node, self.graph, &self.types) && large(name)
        })
    }
}

/// Replaces chains of elementwise operators by one operator each, and moves those between tensors in blocks
/// into blocks. `types` are those of the graph's values; a value without a type is in no chain. Errors: ONNX
/// Runtime lacks the layout that it wrote.
pub fn fuse(graph: &mut Graph, mut types: Types) -> Result<()> {
    swish::join(graph, &types);
    let blocked = blocks::blocked(graph);
    let width = if blocked.is_empty() { 1 } else { blocks::width()? };
    let known = width > 1 && LANES % width == 0;
    if known {
        blocks::enter(graph, &mut types, width);
    }
    let blocked = if known { blocks::blocked(graph) } else { HashSet::new() };
    let typed = Typed { graph, types, blocked };
    // Backwards: a value belongs to the chain of its readers, if they are all in one.
    let mut readers: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|name| readers.entry(name).or_default().push(i));
    }
    let inner: HashSet<String> = graph.nodes.iter().flat_map(Node::captured).collect();
    let must_stay = |name: &str| inner.contains(name) || graph.outputs.iter().any(|value| value.name == name);
    let mut root: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut chains: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        let sum = typed.is_sum(node);
        if !sum && !typed.is_elementwise(node) {
            continue;
        }
        let name = node.outputs[0].as_str();
        let read_by = readers.get(name).map(Vec::as_slice).unwrap_or_default();
        let of_readers = read_by.first().and_then(|&reader| root[reader]);
        let joins = of_readers.filter(|chain| {
            !sum && !must_stay(name)
                && read_by.iter().all(|&reader| root[reader] == Some(*chain))
                && chains[chain].len() < MOST_OPERATORS
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
    Ok(())
}

/// The nodes of a chain, each after those that it reads, as one node. `None` if no tensor of the chain's shape
/// is an input, or if it is one node of ONNX Runtime's.
fn chain(nodes: &[&Node], typed: &Typed, width: usize) -> Option<Node> {
    let last = nodes.last()?;
    let sum = typed.is_sum(last).then_some(*last);
    let steps = if sum.is_some() { &nodes[..nodes.len() - 1] } else { nodes };
    let made: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(i, node)| (node.outputs[0].as_str(), i)).collect();
    let whole = if sum.is_some() { last.input(0)? } else { last.output(0)? };
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
    let inputs: Vec<&str> = full.iter().chain(&channelwise).copied().collect();
    let mut node = Node::new(CHAIN, &inputs, &last.outputs[0])
        .with("full", full.len() as i64)
        .with("numbers", numbers.iter().map(|(_, value)| *value).chain([0.0]).collect::<Vec<f32>>())
        .with("steps", codes)
        .with("attrs", attrs)
        .with(
            "width",
            if !by_channel {
                0
            } else if blocked {
                width as i64
            } else {
                1
            },
        );
    if let Some(sum) = sum {
        node = node
            .with("summand", place(whole)?)
            .with("channels", sum.int("channels", typed.types[whole].1[1]));
    }
    node.domain = DOMAIN.into();
    node.name = last.name.clone();
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::super::{Input, Optimise, Options, Provider, Session, infer, load};
    use super::*;
    use onnx_grad::graph::{Tensor, Value};

    const SHAPE: [i64; 4] = [2, 16, 30, 30];

    fn value(name: &str, shape: &[i64]) -> Value {
        Value::new(name, DType::F32, shape)
    }

    /// A graph of inputs a and b, a gate for each channel, and the number 1.5.
    fn graph(nodes: Vec<Node>, outputs: &[&str]) -> Graph {
        let mut graph = Graph::new(nodes, [("number".into(), Tensor::f32(&[], &[1.5]))].into());
        graph.inputs = vec![value("a", &SHAPE), value("b", &SHAPE), value("gate", &[2, 16, 1, 1])];
        graph.outputs = outputs.iter().map(|name| value(name, &SHAPE)).collect();
        graph.prune_inputs();
        graph
    }

    fn fused(mut graph: Graph) -> Option<Graph> {
        if load(None, None).is_err() {
            println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
            return None;
        }
        let types = infer(&graph).unwrap();
        fuse(&mut graph, &types);
        Some(graph)
    }

    fn operators(graph: &Graph) -> Vec<&str> {
        graph.nodes.iter().map(|node| node.op.as_str()).collect()
    }

    /// Numbers of all sizes and signs, and those that are no numbers.
    fn numbers(seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let mut values: Vec<f32> =
            (0..SHAPE.iter().product()).map(|_| (next() - 0.5) * 10f32.powf(8.0 * next() - 4.0)).collect();
        let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, f32::MAX];
        values[8 * seed as usize..][..8].copy_from_slice(&special);
        values
    }

    /// Whether the graph and its chain give the same bits. Expected: ONNX Runtime's own operators.
    fn equal(nodes: Vec<Node>) {
        let alone = graph(nodes, &["y"]);
        let Some(chain) = fused(alone.clone()) else { return };
        assert_eq!(operators(&chain), [CHAIN], "{:?}", operators(&alone));
        let options = Options { provider: Provider::Cpu, threads: 1 };
        let (a, b) = (numbers(1), numbers(2));
        let all = [("a", Input::Host(&SHAPE, &a)), ("b", Input::Host(&SHAPE, &b))];
        let known = |name: &str| alone.inputs.iter().any(|input| input.name == name);
        let feed: Vec<(&str, Input)> = all.into_iter().filter(|(name, _)| known(name)).collect();
        let [expected, found] = [&alone, &chain].map(|graph| {
            let mut session = Session::new(graph, options, Optimise::Off).unwrap();
            let held = session.run(&feed, &["y"]).unwrap().remove(0);
            let (shape, values) = held.floats().unwrap();
            assert_eq!(shape, SHAPE);
            values.to_vec()
        });
        let differ = |(x, y): (&f32, &f32)| x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan());
        let places: Vec<usize> = (0..found.len()).filter(|&i| differ((&expected[i], &found[i]))).collect();
        let first = places.first().map(|&i| (a[i], b[i], expected[i], found[i]));
        let (count, names) = (places.len(), operators(&alone));
        assert!(
            places.is_empty(),
            "{names:?}: {count} values differ, first (a, b, expected, found): {first:?}"
        );
    }

    #[test]
    fn chains_equal_their_operators_to_the_last_bit() {
        let clipped = |alpha: f32, beta: f32| {
            Node::new("HardSigmoid", &["a"], "h").with("alpha", alpha).with("beta", beta)
        };
        equal(vec![
            clipped(-1.0, 1.0),
            Node::new("Mul", &["h", "b"], "m"),
            Node::new("Sub", &["number", "m"], "s"),
            Node::new("ThresholdedRelu", &["s"], "t").with("alpha", -1.5f32),
            Node::new("Neg", &["t"], "n"),
            Node::new("Add", &["n", "a"], "p"),
            Node::new("Div", &["p", "b"], "y"),
        ]);
        for [alpha, beta] in [[-1.0, 1.0], [1.0, 0.0], [0.2, 0.5], [1.0 / 6.0, 0.5], [2f32.powi(120), 0.0]] {
            equal(vec![clipped(alpha, beta), Node::new("Neg", &["h"], "y")]);
        }
        equal(vec![Node::new("HardSigmoid", &["a"], "h"), Node::new("Neg", &["h"], "y")]);
        equal(vec![Node::new("ThresholdedRelu", &["a"], "t"), Node::new("Neg", &["t"], "y")]);
        for op in ["Add", "Sub", "Mul", "Div"] {
            for operands in [["a", "b"], ["a", "number"], ["number", "a"], ["b", "b"]] {
                equal(vec![Node::new(op, &operands, "m"), Node::new("Neg", &["m"], "y")]);
            }
        }
    }

    /// By hand: of 15 operators, the first three are a chain of their own.
    #[test]
    fn a_long_chain_is_cut() {
        let name = |i: usize| if i == 15 { "y".to_string() } else { format!("v{i}") };
        let node = |i: usize| Node::new("Add", &[&name(i - 1), "b"], &name(i));
        let mut nodes = vec![Node::new("Neg", &["a"], &name(1))];
        nodes.extend((2..=15).map(node));
        let Some(cut) = fused(graph(nodes, &["y"])) else { return };
        assert_eq!(operators(&cut), [CHAIN, CHAIN]);
    }

    /// By hand: the derivative of Swish is one chain, whichever of its values the forward pass reads too.
    #[test]
    fn a_value_belongs_to_the_chain_of_its_readers() {
        let nodes = || {
            vec![
                Node::new("Sigmoid", &["a"], "s"),
                Node::new("HardSigmoid", &["s"], "rest").with("alpha", -1.0f32).with("beta", 1.0f32),
                Node::new("Mul", &["a", "rest"], "m"),
                Node::new("Add", &["s", "m"], "slope"),
                Node::new("Mul", &["b", "slope"], "y"),
            ]
        };
        let Some(chain) = fused(graph(nodes(), &["y"])) else { return };
        assert_eq!(operators(&chain), ["Sigmoid", CHAIN]);
        let Some(cut) = fused(graph(nodes(), &["y", "m"])) else { return };
        assert_eq!(operators(&cut), ["Sigmoid", CHAIN, CHAIN], "a chain ends at an output");
        let mut two = nodes();
        two.push(Node::new("Sigmoid", &["m"], "z"));
        let Some(cut) = fused(graph(two, &["y", "z"])) else { return };
        assert_eq!(operators(&cut), ["Sigmoid", CHAIN, CHAIN, "Sigmoid"], "a chain ends at another reader");
    }

    /// By hand.
    #[test]
    fn gates_and_small_tensors_stay() {
        let gated = vec![Node::new("Mul", &["a", "gate"], "m"), Node::new("Add", &["m", "b"], "y")];
        let Some(graph_of_gate) = fused(graph(gated, &["y"])) else { return };
        assert_eq!(operators(&graph_of_gate), ["Mul", "Add"]);
        let mut small =
            graph(vec![Node::new("Neg", &["a"], "m"), Node::new("Add", &["m", "b"], "y")], &["y"]);
        for value in small.inputs.iter_mut().chain(&mut small.outputs) {
            *value = Value::new(value.name.clone(), DType::F32, &[2, 4, 30, 30]);
        }
        let Some(small) = fused(small) else { return };
        assert_eq!(operators(&small), ["Neg", "Add"]);
    }
}

//! Chains of elementwise operators as one operator of ours, for CPUs.
//!
//! ONNX Runtime passes over memory once for each elementwise operator, and a gradient has long chains of
//! them: the derivative of Swish takes four. Our operator computes a chain block by block, in the cache. Its
//! results are equal to those of ONNX Runtime's operators, bit by bit.

use super::fault;
use audit_base::Result;
use onnx_grad::graph::{DType, Node};
use onnx_grad::{Graph, Types};
use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::TensorElementType;
use std::collections::{HashMap, HashSet};

/// The operator's domain and name. No node of a file has the domain: operators of unknown domains are
/// refused.
const DOMAIN: &str = "audit.fused";
const CHAIN: &str = "Chain";
/// Values of a block: few enough that a chain's operands stay in the first-level cache.
const BLOCK: usize = 512;
/// Smallest tensor, in values, for which a chain is faster than its operators.
const LEAST: i64 = 16_384;
/// Most operators of a chain.
const MOST_OPERATORS: usize = 12;

/// An elementwise operator on a block: attributes, both inputs (the same one twice if there is one), output.
type Apply = fn([f32; 2], &[f32], &[f32], &mut [f32]);

/// An operator that a chain can have.
struct Elementwise {
    op: &'static str,
    inputs: usize,
    /// Names and defaults of its attributes, two at most.
    attrs: &'static [(&'static str, f32)],
    apply: Apply,
}

/// The operators of a chain, as ONNX Runtime's kernels compute them.
const OPERATORS: [Elementwise; 7] = [
    binary("Add", |_, a, b, out| zip(a, b, out, |a, b| a + b)),
    binary("Sub", |_, a, b, out| zip(a, b, out, |a, b| a - b)),
    binary("Mul", |_, a, b, out| zip(a, b, out, |a, b| a * b)),
    binary("Div", |_, a, b, out| zip(a, b, out, |a, b| a / b)),
    unary("Neg", &[], |_, a, _, out| map(a, out, |a| -a)),
    unary("HardSigmoid", &[("alpha", 0.2), ("beta", 0.5)], |[alpha, beta], a, _, out| {
        map(a, out, |a| {
            let line = alpha * a + beta;
            // NaN stays NaN.
            let below = if line > 1.0 { 1.0 } else { line };
            if below < 0.0 { 0.0 } else { below }
        });
    }),
    unary("ThresholdedRelu", &[("alpha", 1.0)], |[alpha, _], a, _, out| {
        map(a, out, |a| if a > alpha { a } else { 0.0 });
    }),
];

const fn binary(op: &'static str, apply: Apply) -> Elementwise {
    Elementwise { op, inputs: 2, attrs: &[], apply }
}

const fn unary(op: &'static str, attrs: &'static [(&'static str, f32)], apply: Apply) -> Elementwise {
    Elementwise { op, inputs: 1, attrs, apply }
}

/// By index, so that the compiler makes vector instructions of it: with iterators, the loops take three times
/// as long.
#[allow(clippy::needless_range_loop)]
fn zip(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let n = out.len();
    let (a, b) = (&a[..n], &b[..n]);
    for i in 0..n {
        out[i] = f(a[i], b[i]);
    }
}

/// [`zip`] for one input.
#[allow(clippy::needless_range_loop)]
fn map(a: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    let n = out.len();
    let a = &a[..n];
    for i in 0..n {
        out[i] = f(a[i]);
    }
}

/// The index in [`OPERATORS`] of a node's operator.
fn operator_index(node: &Node) -> Option<usize> {
    if !node.domain.is_empty() || node.outputs.len() != 1 {
        return None;
    }
    OPERATORS.iter().position(|row| row.op == node.op && row.inputs == node.inputs.len())
}

/// Replaces chains of elementwise operators by one operator each. `types` are those of the graph's values; a
/// value without a type is in no chain.
pub fn fuse(graph: &mut Graph, types: &Types) {
    let constant = |name: &str| {
        let values =
            graph.constants.get(name).filter(|t| t.dtype == DType::F32 && t.len() == 1)?.to_f32s()?;
        values.first().copied()
    };
    let elementwise = |node: &Node| {
        operator_index(node)?;
        let (dtype, shape) = types.get(node.output(0)?)?;
        let large = shape.iter().all(|d| *d > 0) && shape.iter().product::<i64>() >= LEAST;
        let alike = |name: &String| {
            constant(name).is_some() || types.get(name).is_some_and(|(d, s)| d == dtype && s == shape)
        };
        (*dtype == DType::F32 && large && node.inputs.iter().all(alike)).then_some(())
    };
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
        if elementwise(node).is_none() {
            continue;
        }
        let name = node.outputs[0].as_str();
        let read_by = readers.get(name).map(Vec::as_slice).unwrap_or_default();
        let of_readers = read_by.first().and_then(|&reader| root[reader]);
        let joins = of_readers.filter(|chain| {
            !must_stay(name)
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
        if let Some(node) = chain(&nodes, &constant) {
            made.insert(last, node);
            gone.extend(members);
        }
    }
    if made.is_empty() {
        return;
    }
    let nodes = std::mem::take(&mut graph.nodes);
    let replaced = |(i, node): (usize, Node)| match made.remove(&i) {
        Some(chain) => Some(chain),
        None => (!gone.contains(&i)).then_some(node),
    };
    graph.nodes = nodes.into_iter().enumerate().filter_map(replaced).collect();
    graph.opsets.insert(DOMAIN.into(), 1);
}

/// The nodes of a chain, each after those that it reads, as one node. `None` if there is one node only, or no
/// input but numbers.
fn chain(nodes: &[&Node], constant: &impl Fn(&str) -> Option<f32>) -> Option<Node> {
    let made: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(i, node)| (node.outputs[0].as_str(), i)).collect();
    let (mut inputs, mut numbers): (Vec<&str>, Vec<(&str, f32)>) = (vec![], vec![]);
    for name in nodes.iter().flat_map(|node| &node.inputs).filter(|name| !made.contains_key(name.as_str())) {
        match constant(name) {
            Some(value) if !numbers.iter().any(|(known, _)| known == name) => numbers.push((name, value)),
            None if !inputs.contains(&name.as_str()) => inputs.push(name),
            _ => (),
        }
    }
    if nodes.len() < 2 || inputs.is_empty() {
        return None;
    }
    let place = |name: &str| {
        let number = || Some(inputs.len() + numbers.iter().position(|(known, _)| *known == name)?);
        let result = || Some(inputs.len() + numbers.len() + made.get(name)?);
        inputs.iter().position(|known| *known == name).or_else(number).or_else(result)
    };
    let (mut steps, mut attrs) = (Vec::new(), Vec::new());
    for node in nodes {
        let row = operator_index(node)?;
        let first = place(&node.inputs[0])?;
        let second = place(node.inputs.last()?)?;
        steps.extend([row, first, second].map(|v| v as i64));
        let mut own = OPERATORS[row].attrs.iter().map(|(name, default)| node.float(name, *default));
        attrs.extend([own.next().unwrap_or_default(), own.next().unwrap_or_default()]);
    }
    let last = nodes.last()?;
    let mut node = Node::new(CHAIN, &inputs, &last.outputs[0])
        .with("numbers", numbers.iter().map(|(_, value)| *value).chain([0.0]).collect::<Vec<f32>>())
        .with("steps", steps)
        .with("attrs", attrs);
    node.domain = DOMAIN.into();
    node.name = last.name.clone();
    Some(node)
}

/// The domain of our operator, if the graph has it. Errors: ONNX Runtime can't register it.
pub fn domain(graph: &Graph) -> Result<Option<OperatorDomain>> {
    let build = || OperatorDomain::new(DOMAIN)?.add(Chain);
    graph.opsets.contains_key(DOMAIN).then(build).transpose().map_err(fault("setting up"))
}

/// The operator: inputs of one shape, one output of it.
struct Chain;

/// The operators of a chain and its constant numbers.
struct Steps {
    numbers: Vec<f32>,
    steps: Vec<Step>,
}

/// One operator of a chain.
struct Step {
    apply: Apply,
    attrs: [f32; 2],
    /// Places of the operands: inputs, then numbers, then results of earlier steps.
    operands: [usize; 2],
}

impl Operator for Chain {
    type Kernel<'attr> = Steps;

    fn name(&self) -> &str {
        CHAIN
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [OperatorInput::variadic(1).homogenous(TensorElementType::Float32)]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn infer_shape(&self, ctx: &mut ShapeInferenceContext) -> ort::Result<()> {
        ctx.inputs().first().map_or(Ok(()), |first| ctx.set_output(0, first))
    }

    fn create_kernel<'attr>(&self, ctx: &KernelContext<'attr>) -> ort::Result<Steps> {
        let lacks = |what: &str| ort::Error::new(format!("{CHAIN} has no valid {what}"));
        let mut numbers: Vec<f32> = ctx.get("numbers").ok_or_else(|| lacks("numbers"))?;
        // An attribute that is an empty list would be refused, so a zero follows the numbers.
        numbers.pop();
        let codes: Vec<i64> = ctx.get("steps").ok_or_else(|| lacks("steps"))?;
        let attrs: Vec<f32> = ctx.get("attrs").ok_or_else(|| lacks("attrs"))?;
        let first = ctx.inputs()?.len() + numbers.len();
        let mut steps: Vec<Step> = Vec::new();
        for (code, attrs) in codes.chunks_exact(3).zip(attrs.chunks_exact(2)) {
            let [row, a, b] = [code[0], code[1], code[2]].map(|v| v as usize);
            let row = OPERATORS.get(row).ok_or_else(|| lacks("steps"))?;
            if a.max(b) >= first + steps.len() {
                return Err(lacks("steps"));
            }
            steps.push(Step { apply: row.apply, attrs: [attrs[0], attrs[1]], operands: [a, b] });
        }
        if steps.is_empty() { Err(lacks("steps")) } else { Ok(Steps { numbers, steps }) }
    }
}

/// All workers run one kernel at once, and ort takes it as `&mut`: nothing in it may ever change.
const _: fn() = || {
    fn shared<T: Sync>() {}
    shared::<Steps>();
};

impl Kernel for Steps {
    fn compute(&mut self, ctx: &ComputeContext) -> ort::Result<()> {
        let lacks = || ort::Error::new(format!("{CHAIN} lacks a tensor"));
        let values = (0..ctx.num_inputs()?)
            .map(|i| ctx.input(i)?.ok_or_else(lacks))
            .collect::<ort::Result<Vec<_>>>()?;
        let inputs = values.iter().map(|v| v.try_extract_tensor::<f32>()).collect::<ort::Result<Vec<_>>>()?;
        let shape = inputs.first().ok_or_else(lacks)?.0.to_vec();
        let mut output = ctx.output(0, shape)?.ok_or_else(lacks)?;
        let (_, out) = output.try_extract_tensor_mut::<f32>()?;
        let inputs: Vec<&[f32]> = inputs.iter().map(|(_, values)| *values).collect();
        if inputs.iter().any(|values| values.len() != out.len()) {
            return Err(ort::Error::new(format!("{CHAIN}: inputs of different sizes")));
        }
        self.run(&inputs, out);
        Ok(())
    }
}

impl Steps {
    /// Computes the chain for inputs that are as long as `out`.
    fn run(&self, inputs: &[&[f32]], out: &mut [f32]) {
        let Some((last, steps)) = self.steps.split_last() else { return };
        let mut blocks: Vec<[f32; BLOCK]> = self.numbers.iter().map(|number| [*number; BLOCK]).collect();
        blocks.resize(self.numbers.len() + steps.len(), [0.0; BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let (start, n) = (i * BLOCK, out.len());
            for (step, at) in steps.iter().zip(self.numbers.len()..) {
                let (before, after) = blocks.split_at_mut(at);
                step.run(inputs, before, start, &mut after[0][..n]);
            }
            last.run(inputs, &blocks, start, out);
        }
    }
}

impl Step {
    /// One block of the step, from `start`.
    fn run(&self, inputs: &[&[f32]], blocks: &[[f32; BLOCK]], start: usize, out: &mut [f32]) {
        let [a, b] = self.operands.map(|place| match inputs.get(place) {
            Some(input) => &input[start..start + out.len()],
            None => &blocks[place - inputs.len()][..out.len()],
        });
        (self.apply)(self.attrs, a, b, out);
    }
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

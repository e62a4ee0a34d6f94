//! A small graph, made from any bytes, that is sound: each byte chooses an operator, further ones its inputs
//! and attributes, and what doesn't fit is left out. Shapes are known by construction, as the rules of the
//! gradient need them.

use onnx_grad::graph::{DType, Node, Tensor, Value};
use onnx_grad::{Graph, Pass, Processor, Types, differentiate};
use std::collections::{BTreeMap, BTreeSet};

/// Most numbers of a value.
const MAX_ELEMENTS: i64 = 4096;
/// Most operators of a graph.
const NODES: usize = 24;

const UNARY: [&str; 38] = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Celu",
    "Ceil",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
];
const BINARY: [&str; 9] = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean"];
const REDUCTIONS: [&str; 10] = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
];

/// Bytes, one after the other; zeros behind their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> i64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        i64::from(*first)
    }

    /// 0 where there is nothing to choose from, such as an axis of a scalar.
    fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count.max(1)
    }

    /// From `low` up to and with `high`.
    fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.next() % (high - low + 1)
    }
}

/// A graph on its way.
struct Made {
    nodes: Vec<Node>,
    constants: BTreeMap<String, Tensor>,
    types: Types,
    /// float32 values that nodes may read: name and shape.
    values: Vec<(String, Vec<i64>)>,
}

impl Made {
    fn name(&self) -> String {
        format!("v{}", self.nodes.len())
    }

    /// A value that an earlier node makes.
    fn pick(&self, bytes: &mut Bytes) -> (String, Vec<i64>) {
        // As often the last one, so that graphs are deep.
        let at = bytes.below(2 * self.values.len()).min(self.values.len() - 1);
        self.values[at].clone()
    }

    fn constant(&mut self, tensor: Tensor, dtype: DType, shape: &[i64]) -> String {
        let name = format!("c{}", self.constants.len());
        self.constants.insert(name.clone(), tensor);
        self.types.insert(name.clone(), (dtype, shape.to_vec()));
        name
    }

    fn ints(&mut self, values: &[i64]) -> String {
        self.constant(Tensor::ints(values), DType::I64, &[values.len() as i64])
    }

    fn floats(&mut self, shape: &[i64]) -> String {
        let values: Vec<f32> =
            (0..shape.iter().product::<i64>()).map(|i| (i % 7) as f32 * 0.25 - 0.5).collect();
        self.constant(Tensor::f32(shape, &values), DType::F32, shape)
    }

    /// Adds a node whose first output has this shape, unless that is too large.
    fn push(&mut self, node: Node, shape: Vec<i64>) {
        let count = shape.iter().try_fold(1i64, |all, &d| all.checked_mul(d));
        if count.is_none_or(|n| n > MAX_ELEMENTS) || shape.iter().any(|&d| d < 1) {
            return;
        }
        let name = node.outputs[0].clone();
        self.types.insert(name.clone(), (DType::F32, shape.clone()));
        self.nodes.push(node);
        self.values.push((name, shape));
    }
}

/// The shape that two broadcast to.
fn broadcast(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let at =
        |of: &[i64], from_last: usize| if from_last < of.len() { of[of.len() - 1 - from_last] } else { 1 };
    let pair = |i: usize| match (at(a, i), at(b, i)) {
        (x, y) if x == y || y == 1 => Some(x),
        (1, y) => Some(y),
        _ => None,
    };
    (0..a.len().max(b.len())).rev().map(pair).collect()
}

/// A graph from these bytes.
fn graph(bytes: &[u8]) -> (Graph, Types) {
    let mut bytes = Bytes(bytes);
    let shape: Vec<i64> = (0..bytes.within(1, 4)).map(|_| bytes.within(1, 6)).collect();
    let mut made = Made {
        nodes: vec![],
        constants: BTreeMap::new(),
        types: Types::from([("x".to_string(), (DType::F32, shape.clone()))]),
        values: vec![("x".into(), shape.clone())],
    };
    while made.nodes.len() < NODES && !bytes.0.is_empty() {
        let (x, of) = made.pick(&mut bytes);
        match bytes.below(8) {
            0 => {
                let node = Node::new(UNARY[bytes.below(UNARY.len())], &[&x], &made.name());
                made.push(node, of);
            }
            1 | 2 => pair(&mut made, &mut bytes, &x, &of),
            3 => reduce(&mut made, &mut bytes, &x, &of),
            4 => shaped(&mut made, &mut bytes, &x, &of),
            5 => indexed(&mut made, &mut bytes, &x, &of),
            6 => window(&mut made, &mut bytes, &x, &of),
            _ => normalised(&mut made, &mut bytes, &x, &of),
        }
    }
    let (last, _) = made.values[made.values.len() - 1].clone();
    let Made { nodes, constants, types, .. } = made;
    let value = |name: &str| Value::new(name, types[name].0, &types[name].1);
    let mut graph = Graph::new(nodes, constants);
    (graph.inputs, graph.outputs) = (vec![value("x")], vec![value(&last)]);
    (graph, types)
}

/// Operators of two values.
fn pair(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    let (y, other) = made.pick(bytes);
    let name = made.name();
    match bytes.below(4) {
        0 => {
            let fits = of.len() > 1 && other.len() > 1 && of[of.len() - 1] == other[other.len() - 2];
            let Some(mut shape) = broadcast(&of[..of.len().max(2) - 2], &other[..other.len().max(2) - 2])
            else {
                return;
            };
            if fits {
                shape.extend([of[of.len() - 2], other[other.len() - 1]]);
                made.push(Node::new("MatMul", &[x, &y], &name), shape);
            }
        }
        1 => {
            let axis = bytes.below(of.len());
            let fits = !of.is_empty()
                && of.len() == other.len()
                && (0..of.len()).all(|i| i == axis || of[i] == other[i]);
            if fits {
                let mut shape = of.to_vec();
                shape[axis] += other[axis];
                made.push(Node::new("Concat", &[x, &y], &name).with("axis", axis as i64), shape);
            }
        }
        2 => {
            let Some(shape) = broadcast(of, &other) else { return };
            let asked = format!("{name}/asked");
            let op = ["Less", "Greater", "LessOrEqual"][bytes.below(3)];
            made.types.insert(asked.clone(), (DType::Bool, shape.clone()));
            made.nodes.push(Node::new(op, &[x, &y], &asked));
            made.push(Node::new("Where", &[&asked, x, &y], &name), shape);
        }
        _ => {
            let op = BINARY[bytes.below(BINARY.len())];
            if let Some(shape) = broadcast(of, &other) {
                made.push(Node::new(op, &[x, &y], &name), shape);
            }
        }
    }
}

/// Reductions, over some axes.
fn reduce(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    let (name, mask, keep) = (made.name(), bytes.next(), bytes.below(2) == 1);
    let axes: Vec<i64> = (0..of.len()).filter(|i| mask >> i & 1 == 1).map(|i| i as i64).collect();
    // No axes are all of them.
    let gone = |i: &usize| axes.is_empty() || axes.contains(&(*i as i64));
    let shape: Vec<i64> = match keep {
        true => (0..of.len()).map(|i| if gone(&i) { 1 } else { of[i] }).collect(),
        false => (0..of.len()).filter(|i| !gone(i)).map(|i| of[i]).collect(),
    };
    let op = REDUCTIONS[bytes.below(REDUCTIONS.len())];
    let mut node = Node::new(op, &[x], &name).with("keepdims", i64::from(keep));
    if !axes.is_empty() {
        let axes = made.ints(&axes);
        node.inputs.push(axes);
    }
    made.push(node, shape);
}

/// Operators that move numbers.
fn shaped(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    let name = made.name();
    match bytes.below(5) {
        0 => {
            let mut perm: Vec<i64> = (0..of.len() as i64).collect();
            (0..perm.len()).for_each(|i| {
                let j = bytes.below(i + 1);
                perm.swap(i, j);
            });
            let shape = perm.iter().map(|&p| of[p as usize]).collect();
            made.push(Node::new("Transpose", &[x], &name).with("perm", perm), shape);
        }
        1 => {
            // Two neighbouring axes become one, or all.
            let axis = bytes.below(of.len());
            let shape = match axis + 1 < of.len() {
                true => [&of[..axis], &[of[axis] * of[axis + 1]], &of[axis + 2..]].concat(),
                false => vec![of.iter().product()],
            };
            let to = made.ints(&shape);
            made.push(Node::new("Reshape", &[x, &to], &name), shape);
        }
        2 => {
            let axis = bytes.below(of.len() + 1);
            let mut shape = of.to_vec();
            shape.insert(axis, 1);
            if shape.len() < 6 {
                let axes = made.ints(&[axis as i64]);
                made.push(Node::new("Unsqueeze", &[x, &axes], &name), shape);
            }
        }
        3 => {
            let times: Vec<i64> = of.iter().map(|_| bytes.within(1, 2)).collect();
            let shape = of.iter().zip(&times).map(|(d, t)| d * t).collect();
            let times = made.ints(&times);
            made.push(Node::new("Tile", &[x, &times], &name), shape);
        }
        _ => {
            let larger: Vec<i64> = of.iter().map(|&d| if d == 1 { bytes.within(1, 3) } else { d }).collect();
            let to = made.ints(&larger);
            made.push(Node::new("Expand", &[x, &to], &name), larger);
        }
    }
}

/// Operators that take numbers at places.
fn indexed(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    let (name, axis) = (made.name(), bytes.below(of.len()));
    if of.is_empty() {
        return;
    }
    let mut shape = of.to_vec();
    match bytes.below(4) {
        0 => {
            let from = bytes.within(0, of[axis] - 1);
            let step = bytes.within(1, 3);
            shape[axis] = (of[axis] - from + step - 1) / step;
            let parts = [&[from][..], &[i64::MAX], &[axis as i64], &[step]].map(|p| made.ints(p));
            let inputs: Vec<&str> = [x].into_iter().chain(parts.iter().map(String::as_str)).collect();
            made.push(Node::new("Slice", &inputs, &name), shape);
        }
        1 => {
            let places: Vec<i64> =
                (0..bytes.within(1, 4)).map(|_| bytes.within(-of[axis], of[axis] - 1)).collect();
            shape[axis] = places.len() as i64;
            let places = made.ints(&places);
            made.push(Node::new("Gather", &[x, &places], &name).with("axis", axis as i64), shape);
        }
        2 => {
            let pads: Vec<i64> = (0..2 * of.len()).map(|_| bytes.within(0, 2)).collect();
            let mode = ["constant", "edge", "reflect"][bytes.below(3)];
            // A reflection takes fewer than there are.
            if mode == "reflect" && (0..of.len()).any(|i| pads[i].max(pads[of.len() + i]) >= of[i]) {
                return;
            }
            (0..of.len()).for_each(|i| shape[i] += pads[i] + pads[of.len() + i]);
            let pads = made.ints(&pads);
            made.push(Node::new("Pad", &[x, &pads], &name).with("mode", mode), shape);
        }
        _ => {
            let axis = made.constant(Tensor::ints(&[axis as i64]), DType::I64, &[1]);
            let flags = [bytes.within(0, 1), bytes.within(0, 1)];
            let node = Node::new("CumSum", &[x, &axis], &name);
            made.push(node.with("exclusive", flags[0]).with("reverse", flags[1]), shape);
        }
    }
}

/// Convolutions and pooling.
fn window(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    if of.len() < 3 {
        return;
    }
    let (name, axes) = (made.name(), of.len() - 2);
    let mut some = |low, high| (0..axes).map(|_| bytes.within(low, high)).collect::<Vec<i64>>();
    let (kernel, strides, dilations) = (some(1, 3), some(1, 3), some(1, 2));
    // Pooling takes no window that is all padding.
    let pads: Vec<i64> = [some(0, 2), some(0, 2)].concat();
    let pads: Vec<i64> = pads.iter().enumerate().map(|(i, &p)| p.min(kernel[i % axes] - 1)).collect();
    let size = |i: usize| {
        let room = of[i + 2] + pads[i] + pads[axes + i] - (dilations[i] * (kernel[i] - 1) + 1);
        if room < 0 { 0 } else { room / strides[i] + 1 }
    };
    let sizes: Vec<i64> = (0..axes).map(size).collect();
    let (channels, kind) = (bytes.within(1, 3), bytes.below(4));
    if sizes.contains(&0) {
        return;
    }
    let pooled = [&of[..2], &sizes].concat();
    let node = |op: &str, inputs: &[&str]| {
        Node::new(op, inputs, &name).with("strides", strides.clone()).with("pads", pads.clone())
    };
    match kind {
        0 => {
            let w = made.floats(&[&[channels, of[1]], &kernel[..]].concat());
            let node = node("Conv", &[x, &w]).with("dilations", dilations.clone());
            made.push(node, [&[of[0], channels], &sizes[..]].concat());
        }
        1 => {
            let w = made.floats(&[&[of[1], channels], &kernel[..]].concat());
            let size = |i: usize| {
                strides[i] * (of[i + 2] - 1) + dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[axes + i]
            };
            let shape = [of[0], channels].into_iter().chain((0..axes).map(size)).collect();
            made.push(node("ConvTranspose", &[x, &w]).with("dilations", dilations.clone()), shape);
        }
        2 => {
            let node = node("MaxPool", &[x]).with("kernel_shape", kernel.clone());
            made.push(node.with("dilations", dilations.clone()), pooled);
        }
        _ => {
            let node = node("AveragePool", &[x]).with("kernel_shape", kernel.clone());
            let padding = bytes.within(0, 1);
            made.push(node.with("dilations", dilations.clone()).with("count_include_pad", padding), pooled);
        }
    }
}

/// Normalisations and pooling over everything.
fn normalised(made: &mut Made, bytes: &mut Bytes, x: &str, of: &[i64]) {
    let name = made.name();
    if of.is_empty() {
        return;
    }
    let axis = bytes.below(of.len());
    let kind = bytes.below(6);
    if kind > 2 && of.len() < 3 {
        return;
    }
    match kind {
        0 | 1 => {
            let op = ["Softmax", "LogSoftmax"][kind];
            made.push(Node::new(op, &[x], &name).with("axis", axis as i64), of.to_vec());
        }
        2 => {
            let gain = made.floats(&of[axis..]);
            let node = Node::new("LayerNormalization", &[x, &gain], &name).with("axis", axis as i64);
            made.push(node, of.to_vec());
        }
        3 => {
            let of_channels = ["gain", "shift"].map(|_| made.floats(&of[1..2]));
            let node = Node::new("InstanceNormalization", &[x, &of_channels[0], &of_channels[1]], &name);
            made.push(node, of.to_vec());
        }
        4 => made.push(Node::new("LRN", &[x], &name).with("size", bytes.within(1, 5)), of.to_vec()),
        _ => {
            let op = ["GlobalAveragePool", "GlobalMaxPool"][bytes.below(2)];
            let shape = of.iter().enumerate().map(|(i, &d)| if i < 2 { d } else { 1 }).collect();
            made.push(Node::new(op, &[x], &name), shape);
        }
    }
}

/// The gradient of a graph made from these bytes, in every pass. Every operator that is made has a rule, so
/// that nothing is refused but an output that doesn't depend on the input; what comes out is a graph whose
/// nodes read what is there, and can be written.
pub fn entry(bytes: &[u8]) {
    let (graph, types) = graph(bytes);
    for pass in [Pass::Exact, Pass::ThroughFlat, Pass::Softened, Pass::StraightThrough] {
        match differentiate(&graph, &types, &["x"], pass, Processor::Cpu) {
            Ok(found) => {
                for graph in [&found.forward, &found.backward] {
                    sound(graph);
                }
            }
            Err(e) => assert!(e.disconnected || !e.nodes.is_empty(), "operators without a rule: {e}"),
        }
    }
}

/// Each input of a node is an input of the graph, a constant, or an output of an earlier node; each output of
/// the graph is there.
fn sound(graph: &Graph) {
    let mut known: BTreeSet<&str> = graph.inputs.iter().map(|v| v.name.as_str()).collect();
    known.extend(graph.constants.keys().map(String::as_str));
    for node in &graph.nodes {
        for name in node.inputs.iter().filter(|name| !name.is_empty()) {
            assert!(known.contains(name.as_str()), "{} reads `{name}`, which nothing makes", node.label());
        }
        known.extend(node.outputs.iter().map(String::as_str));
    }
    for value in &graph.outputs {
        assert!(known.contains(value.name.as_str()), "nothing makes the output `{}`", value.name);
    }
    let again = Graph::decode_as_is(graph.encode().into(), std::path::Path::new("gradient.onnx"));
    assert_eq!(again.expect("what was written can be read").nodes.len(), graph.nodes.len());
}

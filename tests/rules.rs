//! Every gradient rule against central finite differences of ONNX Runtime's own forward: one-node graphs of random
//! shapes and attributes, points kept away from kinks, tolerance 1e-3.

mod common;

use audit::grad::{self, rules};
use audit::model::runtime::{self, Input, Optimise, Options, Provider, Session};
use audit::onnx::{Attr, DType, Graph, Node, Tensor, Value};
use common::Rng;

const CPU: Options = Options { provider: Provider::Cpu, threads: 1 };
const CASES: u64 = 100;

/// A graph around one node, its float inputs (all differentiated) and the values to differentiate at.
struct Case {
    graph: Graph,
    points: Vec<Vec<f32>>,
}

impl Case {
    fn new(mut node: Node) -> Case {
        node.name = "node".into();
        if node.outputs == [""] {
            node.outputs = vec!["y".into()];
        }
        let outputs =
            node.outputs.iter().map(|o| Value { name: o.clone(), dtype: DType::Other(0), shape: None });
        let mut graph = Graph::new(vec![], Default::default());
        graph.outputs = outputs.collect();
        graph.nodes.push(node);
        Case { graph, points: vec![] }
    }
    fn input(mut self, name: &str, shape: &[i64], values: Vec<f32>) -> Case {
        assert_eq!(values.len() as i64, shape.iter().product::<i64>(), "{name}");
        self.graph.inputs.push(Value::new(name, DType::F32, shape));
        self.points.push(values);
        self
    }
    fn ints(mut self, name: &str, values: &[i64]) -> Case {
        self.graph.constants.insert(name.into(), Tensor::ints(values));
        self
    }
    fn constant(mut self, name: &str, t: Tensor) -> Case {
        self.graph.constants.insert(name.into(), t);
        self
    }
}

fn size(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

fn normal(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| r.normal()).collect()
}

fn positive(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 0.5 + 2.0 * r.unit()).collect()
}

/// Normal, but no value within 0.15 of a kink.
fn away(r: &mut Rng, shape: &[i64], kinks: &[f32]) -> Vec<f32> {
    let mut value = || loop {
        let v = 2.0 * r.normal();
        if kinks.iter().all(|k| (v - k).abs() > 0.15) {
            return v;
        }
    };
    (0..size(shape)).map(|_| value()).collect()
}

/// All different, no two within 0.3: whatever is the greatest stays so.
fn distinct(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    let n = size(shape);
    let mut v: Vec<f32> = (0..n).map(|i| (i as f32 - n as f32 / 2.0) * 0.3).collect();
    r.shuffle(&mut v);
    v
}

fn unary(op: &'static str, values: fn(&mut Rng, &[i64]) -> Vec<f32>) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(0, 4);
        let shape = r.shape(rank);
        Case::new(Node::new(op, &["x"], "y")).input("x", &shape, values(r, &shape))
    }
}

/// Two shapes that broadcast.
fn broadcast_pair(r: &mut Rng) -> (Vec<i64>, Vec<i64>) {
    let rank = r.int(1, 4);
    let full = r.shape(rank);
    let side = |r: &mut Rng| -> Vec<i64> {
        let cut = if r.bool() { 0 } else { r.int(0, full.len() as i64) as usize };
        full[cut..].iter().map(|&d| if r.int(0, 3) == 0 { 1 } else { d }).collect()
    };
    (side(r), side(r))
}

/// Draws the values of a tensor of a shape.
type Values = fn(&mut Rng, &[i64]) -> Vec<f32>;

fn binary(op: &'static str, values: [Values; 2]) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (a, b) = broadcast_pair(r);
        let (va, vb) = (values[0](r, &a), values[1](r, &b));
        Case::new(Node::new(op, &["a", "b"], "y")).input("a", &a, va).input("b", &b, vb)
    }
}

fn variadic(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (a, b) = broadcast_pair(r);
        // One pool of distinct values, so that extremes are clear across inputs too.
        let all = distinct(r, &[(size(&a) + size(&b)) as i64]);
        let (va, vb) = all.split_at(size(&a));
        Case::new(Node::new(op, &["a", "b"], "y")).input("a", &a, va.to_vec()).input("b", &b, vb.to_vec())
    }
}

fn conv(r: &mut Rng) -> Case {
    let dims = r.pick(&[1usize, 2, 2, 2, 3]);
    let group = r.pick(&[1, 1, 2, 3]);
    let (per_in, per_out) = (if r.bool() { 1 } else { r.int(1, 3) }, r.int(1, 3));
    let most = if dims == 3 { 2 } else { 3 };
    let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, most)).collect();
    let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 4)).collect();
    let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
    let extra = if dims == 3 { 3 } else { 7 };
    let space: Vec<i64> = (0..dims).map(|d| (kernel[d] - 1) * dilations[d] + 1 + r.int(0, extra)).collect();
    let x = [&[2, group * per_in], space.as_slice()].concat();
    let w = [&[group * per_out, per_in], kernel.as_slice()].concat();
    let bias = r.bool();
    let inputs: &[&str] = if bias { &["x", "w", "b"] } else { &["x", "w"] };
    let mut node = Node::new("Conv", inputs, "y").with("group", group).with("strides", strides);
    match r.int(0, 5) {
        0 => node = node.with("auto_pad", "SAME_UPPER"),
        1 => node = node.with("auto_pad", "SAME_LOWER"),
        2 => node = node.with("auto_pad", "VALID"),
        _ => node = node.with("pads", (0..2 * dims).map(|_| r.int(0, 2)).collect::<Vec<i64>>()),
    }
    // ONNX Runtime computes SAME padding for dilated kernels in its own way; nobody exports that.
    if node.attrs.contains_key("pads") {
        node = node.with("dilations", dilations);
    }
    let weights = Tensor::f32(&w, &normal(r, &w));
    let mut case = Case::new(node).input("x", &x, normal(r, &x)).constant("w", weights);
    if bias {
        let b = [w[0]];
        case = case.constant("b", Tensor::f32(&b, &normal(r, &b)));
    }
    case
}

fn pool(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let dims = r.pick(&[1usize, 2, 2, 3]);
        let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, 3)).collect();
        let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
        let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 5)).collect();
        let extra = if dims == 3 { 3 } else { 7 };
        let space: Vec<i64> =
            (0..dims).map(|d| (kernel[d] - 1) * dilations[d] + 1 + r.int(0, extra)).collect();
        let x = [&[2, 3], space.as_slice()].concat();
        let mut node =
            Node::new(op, &["x"], "y").with("kernel_shape", kernel.clone()).with("strides", strides);
        if r.int(0, 4) == 0 {
            node = node.with("auto_pad", r.pick(&["SAME_UPPER", "SAME_LOWER", "VALID"]));
        } else {
            let pads: Vec<i64> = (0..2 * dims).map(|i| r.int(0, kernel[i % dims] / 2)).collect();
            node = node.with("pads", pads).with("ceil_mode", r.int(0, 1)).with("dilations", dilations);
        }
        if op == "AveragePool" {
            node = node.with("count_include_pad", r.int(0, 1));
        }
        Case::new(node).input("x", &x, distinct(r, &x))
    }
}

fn reduce(op: &'static str, values: fn(&mut Rng, &[i64]) -> Vec<f32>) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let keep = r.int(0, 1);
        let axes: Vec<i64> =
            (0..rank).filter_map(|d| r.pick(&[None, None, Some(d), Some(d - rank)])).collect();
        let inputs: &[&str] = if axes.is_empty() { &["x"] } else { &["x", "axes"] };
        let case = Case::new(Node::new(op, inputs, "y").with("keepdims", keep)).input(
            "x",
            &shape,
            values(r, &shape),
        );
        if axes.is_empty() { case } else { case.ints("axes", &axes) }
    }
}

fn with_axis(op: &'static str, values: fn(&mut Rng, &[i64]) -> Vec<f32>) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let axis = r.int(-rank, rank - 1);
        Case::new(Node::new(op, &["x"], "y").with("axis", axis)).input("x", &shape, values(r, &shape))
    }
}

fn image(r: &mut Rng) -> Vec<i64> {
    vec![r.int(1, 3), r.int(1, 4), r.int(1, 5), r.int(1, 5)]
}

fn norm(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let mut x = image(r);
        // Statistics of one or two values make the function nearly a step.
        x[2] += 3;
        x[3] += 3;
        let layer = op == "LayerNormalization";
        let axis = if layer { r.pick(&[-1, 3, 2, 1]) } else { 1 };
        let scale: Vec<i64> = match (layer, axis) {
            (false, _) => vec![x[1]],
            (true, -1 | 3) => x[3..].to_vec(),
            (true, a) => x[a as usize..].to_vec(),
        };
        let mut node = Node::new(op, &["x", "scale", "bias"], "y").with("epsilon", 1e-3f32);
        if layer {
            node = node.with("axis", axis);
        }
        let s = Tensor::f32(&scale, &positive(r, &scale));
        let b = Tensor::f32(&scale, &normal(r, &scale));
        let mut case = Case::new(node).input("x", &x, normal(r, &x)).constant("scale", s).constant("bias", b);
        if op == "BatchNormalization" {
            case.graph.nodes[0].inputs.extend(["mean".into(), "var".into()]);
            let (mean, var) = (normal(r, &scale), positive(r, &scale));
            case =
                case.constant("mean", Tensor::f32(&scale, &mean)).constant("var", Tensor::f32(&scale, &var));
        }
        case
    }
}

fn gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 5), r.int(1, 5), r.int(1, 5));
    let (ta, tb) = (r.int(0, 1), r.int(0, 1));
    let a = if ta == 1 { [k, m] } else { [m, k] };
    let b = if tb == 1 { [n, k] } else { [k, n] };
    let c: Vec<i64> = r.pick(&[&[][..], &[1], &[0], &[1, 0], &[0, 1], &[0, 0]]).to_vec();
    // 0 stands for "the full size here".
    let c: Vec<i64> =
        c.iter().enumerate().map(|(i, &d)| if d == 1 { 1 } else { [m, n][i + 2 - c.len()] }).collect();
    let with_c = r.bool();
    let inputs: &[&str] = if with_c { &["a", "b", "c"] } else { &["a", "b"] };
    let node = Node::new("Gemm", inputs, "y")
        .with("alpha", 0.5 + r.unit())
        .with("beta", 0.5 + r.unit())
        .with("transA", ta)
        .with("transB", tb);
    let case = Case::new(node).input("a", &a, normal(r, &a)).input("b", &b, normal(r, &b));
    if with_c { case.input("c", &c, normal(r, &c)) } else { case }
}

fn matmul(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let (batch_a, batch_b) = if r.bool() { broadcast_pair(r) } else { (vec![], vec![]) };
    let a = if r.int(0, 4) == 0 { vec![k] } else { [batch_a, vec![m, k]].concat() };
    let b = if r.int(0, 4) == 0 { vec![k] } else { [batch_b, vec![k, n]].concat() };
    Case::new(Node::new("MatMul", &["a", "b"], "y")).input("a", &a, normal(r, &a)).input(
        "b",
        &b,
        normal(r, &b),
    )
}

fn with_ints(
    op: &'static str,
    name: &'static str,
    ints: fn(&mut Rng, &[i64]) -> Vec<i64>,
) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let values = ints(r, &shape);
        Case::new(Node::new(op, &["x", name], "y")).input("x", &shape, normal(r, &shape)).ints(name, &values)
    }
}

fn reshape_to(r: &mut Rng, shape: &[i64]) -> Vec<i64> {
    match r.int(0, 2) {
        0 => vec![-1],
        1 => [shape, &[1]].concat(),
        _ => vec![0, -1],
    }
}

fn squeeze(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let mut shape = r.shape(rank);
    let at = r.int(0, rank);
    shape.insert(at as usize, 1);
    Case::new(Node::new("Squeeze", &["x", "axes"], "y"))
        .input("x", &shape, normal(r, &shape))
        .ints("axes", &[at])
}

fn unsqueeze(r: &mut Rng) -> Case {
    let rank = r.int(0, 3);
    let shape = r.shape(rank);
    let at = r.int(-rank - 1, rank);
    Case::new(Node::new("Unsqueeze", &["x", "axes"], "y"))
        .input("x", &shape, normal(r, &shape))
        .ints("axes", &[at])
}

fn transpose(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let mut perm: Vec<i64> = (0..rank).collect();
    r.shuffle(&mut perm);
    let mut node = Node::new("Transpose", &["x"], "y");
    if r.bool() {
        node = node.with("perm", perm);
    }
    Case::new(node).input("x", &shape, normal(r, &shape))
}

fn concat(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let axis = r.int(-rank, rank - 1);
    let a = r.shape(rank);
    let mut b = a.clone();
    b[((axis + rank) % rank) as usize] = r.int(1, 4);
    let node = Node::new("Concat", &["a", "b", "a"], "y").with("axis", axis);
    Case::new(node).input("a", &a, normal(r, &a)).input("b", &b, normal(r, &b))
}

fn split(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let axis = r.int(-rank, rank - 1);
    let even = r.bool();
    // An even split's last part may be smaller, but not empty.
    let sizes = if even { [2, 2, r.int(1, 2)] } else { [r.int(1, 3), r.int(1, 3), r.int(1, 3)] };
    let mut shape = r.shape(rank);
    shape[((axis + rank) % rank) as usize] = sizes.iter().sum();
    let mut node = Node::new("Split", &["x", "split"], "").with("axis", axis);
    node.outputs = vec!["y0".into(), "y1".into(), "y2".into()];
    if even {
        node.inputs.truncate(1);
        node = node.with("num_outputs", 3);
    }
    let mut case = Case::new(node).input("x", &shape, normal(r, &shape));
    if r.bool() {
        // A part that nobody uses.
        case.graph.outputs.remove(1);
    }
    if even { case } else { case.ints("split", &sizes) }
}

fn slice(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape: Vec<i64> = (0..rank).map(|_| r.int(3, 8)).collect();
    let axes: Vec<i64> = (0..rank).filter(|_| r.bool()).collect();
    let axes = if axes.is_empty() { vec![rank - 1] } else { axes };
    let (mut starts, mut ends, mut steps) = (vec![], vec![], vec![]);
    for &a in &axes {
        let size = shape[a as usize];
        let step = r.pick(&[1, 1, 2, 3, -1, -2]);
        let low = r.int(0, size - 2);
        if step > 0 {
            starts.push(if r.bool() { low } else { low - size });
            ends.push(r.pick(&[size, i64::MAX, -1, size - 1]));
        } else {
            starts.push(r.pick(&[size - 1, -1, i64::MAX, size - 2]));
            ends.push(r.pick(&[0, i64::MIN]));
        }
        steps.push(step);
    }
    Case::new(Node::new("Slice", &["x", "starts", "ends", "axes", "steps"], "y"))
        .input("x", &shape, normal(r, &shape))
        .ints("starts", &starts)
        .ints("ends", &ends)
        .ints("axes", &axes)
        .ints("steps", &steps)
}

fn gather(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let size = shape[((axis + rank) % rank) as usize];
    let of: Vec<i64> = match r.int(0, 3) {
        0 => vec![],
        1 => vec![r.int(1, 4)],
        2 => vec![r.int(1, 3), r.int(1, 3)],
        // More picks of one position than are gathered one by one.
        _ => vec![8 * size],
    };
    let indices: Vec<i64> = (0..self::size(&of)).map(|_| r.int(-size, size - 1)).collect();
    Case::new(Node::new("Gather", &["x", "i"], "y").with("axis", axis))
        .input("x", &shape, normal(r, &shape))
        .constant("i", Tensor::i64(&of, &indices))
}

fn pad(r: &mut Rng) -> Case {
    let rank = r.int(2, 4);
    let shape: Vec<i64> = (0..rank).map(|_| r.int(3, 6)).collect();
    let mode = r.pick(&["constant", "reflect", "edge", "wrap"]);
    let low = if mode == "constant" { -1 } else { 0 };
    let pads: Vec<i64> = (0..2 * rank).map(|_| if r.bool() { r.int(low, 2) } else { 0 }).collect();
    Case::new(Node::new("Pad", &["x", "pads"], "y").with("mode", mode))
        .input("x", &shape, normal(r, &shape))
        .ints("pads", &pads)
}

fn clip(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let (lo, hi) = (r.bool(), r.bool());
    let mut node = Node::new("Clip", &["x", "", ""], "y");
    if lo {
        node.inputs[1] = "lo".into();
    }
    if hi {
        node.inputs[2] = "hi".into();
    }
    while node.inputs.last().is_some_and(String::is_empty) {
        node.inputs.pop();
    }
    let mut case = Case::new(node).input("x", &shape, away(r, &shape, &[-1.0, 0.5]));
    if lo {
        case = case.constant("lo", Tensor::f32(&[], &[-1.0]));
    }
    if hi {
        case = case.constant("hi", Tensor::f32(&[], &[0.5]));
    }
    case
}

fn where_(r: &mut Rng) -> Case {
    let (a, b) = broadcast_pair(r);
    let c = if r.bool() { a.clone() } else { vec![1] };
    let condition: Vec<u8> = (0..size(&c)).map(|_| r.int(0, 1) as u8).collect();
    let condition = Tensor { dtype: DType::Bool, shape: c, bytes: condition.into() };
    Case::new(Node::new("Where", &["c", "a", "b"], "y"))
        .input("a", &a, normal(r, &a))
        .input("b", &b, normal(r, &b))
        .constant("c", condition)
}

fn prelu(r: &mut Rng) -> Case {
    let x = image(r);
    let slope = r.pick(&[[0, 1, 1], [1, 1, 1]]);
    let slope: Vec<i64> = slope.iter().enumerate().map(|(i, &d)| if d == 0 { x[i + 1] } else { d }).collect();
    Case::new(Node::new("PRelu", &["x", "slope"], "y")).input("x", &x, away(r, &x, &[0.0])).input(
        "slope",
        &slope,
        normal(r, &slope),
    )
}

fn pow(r: &mut Rng) -> Case {
    if r.bool() {
        return binary("Pow", [positive, normal])(r);
    }
    let shape = r.shape(3);
    let exponent = r.pick(&[2.0, 3.0, 0.5, 2.7, -1.0, 1.0, 0.0]);
    let case = Case::new(Node::new("Pow", &["x", "p"], "y")).input("x", &shape, positive(r, &shape));
    if exponent == 3.0 {
        return case.constant("p", Tensor::i64(&[], &[3]));
    }
    case.constant("p", Tensor::f32(&[], &[exponent]))
}

fn cast(r: &mut Rng) -> Case {
    let shape = r.shape(2);
    // Through double and back would need a second node; identity casts and widening are what a single one can show.
    Case::new(Node::new("Cast", &["x"], "y").with("to", DType::F32.code() as i64)).input(
        "x",
        &shape,
        normal(r, &shape),
    )
}

fn attributed(
    op: &'static str,
    kinks: &'static [f32],
    name: &'static str,
    values: &'static [f32],
) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let shape = r.shape(3);
        let mut node = Node::new(op, &["x"], "y");
        if r.bool() {
            node.attrs.insert(name.into(), Attr::Float(r.pick(values)));
        }
        Case::new(node).input("x", &shape, away(r, &shape, kinks))
    }
}

fn hard_sigmoid(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    // Kinks where alpha·x + beta is 0 or 1.
    let (alpha, beta) = (1.0f32 / 6.0, 0.5f32);
    let node = Node::new("HardSigmoid", &["x"], "y").with("alpha", alpha).with("beta", beta);
    Case::new(node).input("x", &shape, away(r, &shape, &[-3.0, 3.0]))
}

fn gelu(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let node = Node::new("Gelu", &["x"], "y").with("approximate", r.pick(&["none", "tanh"]));
    Case::new(node).input("x", &shape, normal(r, &shape))
}

fn blocks(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let mut x = image(r);
        let b = r.int(1, 3);
        let mut node = Node::new(op, &["x"], "y").with("blocksize", b);
        if op == "DepthToSpace" {
            x[1] *= b * b;
            node = node.with("mode", r.pick(&["DCR", "CRD"]));
        } else {
            x[2] *= b;
            x[3] *= b;
        }
        Case::new(node).input("x", &x, normal(r, &x))
    }
}

fn lp_normalization(r: &mut Rng) -> Case {
    let mut case = with_axis("LpNormalization", |r, s| away(r, s, &[0.0]))(r);
    case.graph.nodes[0].attrs.insert("p".into(), Attr::Int(r.int(1, 2)));
    case
}

fn expand_to(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let full = r.shape(rank);
    let x: Vec<i64> = full.iter().map(|&d| if r.bool() { 1 } else { d }).collect();
    let mut to = full;
    if r.bool() {
        to.insert(0, 2);
    }
    Case::new(Node::new("Expand", &["x", "to"], "y")).input("x", &x, normal(r, &x)).ints("to", &to)
}

fn global(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let x = image(r);
        Case::new(Node::new(op, &["x"], "y")).input("x", &x, distinct(r, &x))
    }
}

fn flatten(r: &mut Rng) -> Case {
    let shape = r.shape(4);
    Case::new(Node::new("Flatten", &["x"], "y").with("axis", r.int(0, 4))).input(
        "x",
        &shape,
        normal(r, &shape),
    )
}

type Sample = Box<dyn Fn(&mut Rng) -> Case>;

/// The sample cases: one entry for each rule.
fn samples() -> Vec<(&'static str, Sample)> {
    fn entry(op: &'static str, f: impl Fn(&mut Rng) -> Case + 'static) -> (&'static str, Sample) {
        (op, Box::new(f))
    }
    let away0 = |r: &mut Rng, s: &[i64]| away(r, s, &[0.0]);
    vec![
        entry("Abs", unary("Abs", away0)),
        entry("Add", binary("Add", [normal, normal])),
        entry("AveragePool", pool("AveragePool")),
        entry("BatchNormalization", norm("BatchNormalization")),
        entry("Cast", cast),
        entry("Celu", attributed("Celu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Clip", clip),
        entry("Concat", concat),
        entry("Conv", conv),
        entry("Cos", unary("Cos", normal)),
        entry("DepthToSpace", blocks("DepthToSpace")),
        entry("Div", binary("Div", [normal, positive])),
        entry("Elu", attributed("Elu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Erf", unary("Erf", normal)),
        entry("Exp", unary("Exp", normal)),
        entry("Expand", expand_to),
        entry("Flatten", flatten),
        entry("Gather", gather),
        entry("Gelu", gelu),
        entry("Gemm", gemm),
        entry("GlobalAveragePool", global("GlobalAveragePool")),
        entry("GlobalMaxPool", global("GlobalMaxPool")),
        entry("HardSigmoid", hard_sigmoid),
        entry("HardSwish", unary("HardSwish", |r, s| away(r, s, &[-3.0, 3.0]))),
        entry("Identity", unary("Identity", normal)),
        entry("InstanceNormalization", norm("InstanceNormalization")),
        entry("LayerNormalization", norm("LayerNormalization")),
        entry("LeakyRelu", attributed("LeakyRelu", &[0.0], "alpha", &[0.3, -0.2])),
        entry("Log", unary("Log", positive)),
        entry("LogSoftmax", with_axis("LogSoftmax", normal)),
        entry("LpNormalization", lp_normalization),
        entry("MatMul", matmul),
        entry("Max", variadic("Max")),
        entry("MaxPool", pool("MaxPool")),
        entry("Mean", variadic("Mean")),
        entry("Min", variadic("Min")),
        entry("Mish", unary("Mish", normal)),
        entry("Mul", binary("Mul", [normal, normal])),
        entry("Neg", unary("Neg", normal)),
        entry("PRelu", prelu),
        entry("Pad", pad),
        entry("Pow", pow),
        entry("Reciprocal", unary("Reciprocal", positive)),
        entry("ReduceL1", reduce("ReduceL1", away0)),
        entry("ReduceL2", reduce("ReduceL2", positive)),
        entry("ReduceLogSumExp", reduce("ReduceLogSumExp", normal)),
        entry("ReduceMax", reduce("ReduceMax", distinct)),
        entry("ReduceMean", reduce("ReduceMean", normal)),
        entry("ReduceMin", reduce("ReduceMin", distinct)),
        entry("ReduceSum", reduce("ReduceSum", normal)),
        entry("ReduceSumSquare", reduce("ReduceSumSquare", normal)),
        entry("Relu", unary("Relu", away0)),
        entry("Reshape", with_ints("Reshape", "shape", reshape_to)),
        entry("Selu", attributed("Selu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Sigmoid", unary("Sigmoid", normal)),
        entry("Sin", unary("Sin", normal)),
        entry("Slice", slice),
        entry("Softmax", with_axis("Softmax", normal)),
        entry("Softplus", unary("Softplus", normal)),
        entry("Softsign", unary("Softsign", away0)),
        entry("SpaceToDepth", blocks("SpaceToDepth")),
        entry("Split", split),
        entry("Sqrt", unary("Sqrt", positive)),
        entry("Squeeze", squeeze),
        entry("Sub", binary("Sub", [normal, normal])),
        entry("Sum", variadic("Sum")),
        entry("Tanh", unary("Tanh", normal)),
        entry("ThresholdedRelu", attributed("ThresholdedRelu", &[0.5, 1.0], "alpha", &[0.5])),
        entry("Tile", with_ints("Tile", "repeats", |r, s| s.iter().map(|_| r.int(1, 3)).collect())),
        entry("Transpose", transpose),
        entry("Unsqueeze", unsqueeze),
        entry("Where", where_),
    ]
}

/// ⟨a, b⟩ in double precision.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum()
}

/// Relative error of the gradient along one direction, at the best of several steps.
fn error_along(
    case: &Case,
    forward: &mut Session,
    cotangents: &[Vec<f32>],
    gradient: &[Vec<f32>],
    v: &[Vec<f32>],
) -> f64 {
    let names: Vec<&str> = case.graph.outputs.iter().map(|o| o.name.as_str()).collect();
    let shapes: Vec<Vec<i64>> = case.graph.inputs.iter().map(shape).collect();
    let mut phi = |h: f32| -> f64 {
        let points: Vec<Vec<f32>> = case
            .points
            .iter()
            .zip(v)
            .map(|(x, v)| x.iter().zip(v).map(|(x, v)| x + h * v).collect())
            .collect();
        let feed: Vec<(&str, Input)> = case
            .graph
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| (input.name.as_str(), Input::Host(&shapes[i], &points[i])))
            .collect();
        let y = forward.run(&feed, &names).unwrap();
        y.iter().zip(cotangents).map(|(y, c)| dot(y.floats().unwrap().1, c)).sum()
    };
    let along: f64 = gradient.iter().zip(v).map(|(g, v)| dot(g, v)).sum();
    let scale = gradient.iter().map(|g| dot(g, g)).sum::<f64>().sqrt().max(1e-3);
    [3e-2f32, 1e-2, 3e-3]
        .iter()
        .map(|&h| {
            // Two central differences, extrapolated: the error falls with h⁴.
            let central = |phi: &mut dyn FnMut(f32) -> f64, h: f32| (phi(h) - phi(-h)) / (2.0 * h as f64);
            let (wide, narrow) = (central(&mut phi, h), central(&mut phi, h / 2.0));
            ((4.0 * narrow - wide) / 3.0 - along).abs() / scale
        })
        .fold(f64::INFINITY, f64::min)
}

fn shape(value: &Value) -> Vec<i64> {
    use audit::onnx::Dim;
    let dims = value.shape.as_deref().unwrap_or_default();
    dims.iter().map(|d| if let Dim::Known(n) = d { *n } else { panic!("{value:?}") }).collect()
}

/// Median error over directions, or what went wrong.
fn check(case: &Case, r: &mut Rng) -> Result<f64, String> {
    let text = |e: audit::Error| e.to_string();
    let types = runtime::infer(&case.graph).map_err(text)?;
    let mut graph = case.graph.clone();
    for out in &mut graph.outputs {
        let (dtype, dims) = &types[&out.name];
        *out = Value::new(out.name.clone(), *dtype, dims);
    }
    let wrt: Vec<&str> = graph.inputs.iter().map(|i| i.name.as_str()).collect();
    let g = grad::differentiate(&graph, &types, &wrt, false).map_err(|e| e.to_string())?;
    let mut forward = Session::new(&g.forward, CPU, Optimise::Off).map_err(text)?;
    let mut backward = Session::new(&g.backward, CPU, Optimise::All).map_err(text)?;

    let shapes: Vec<Vec<i64>> = graph.inputs.iter().map(shape).collect();
    let host = |name: &str| {
        let i = graph.inputs.iter().position(|x| x.name == name)?;
        Some(Input::Host(&shapes[i], &case.points[i]))
    };
    let feed: Vec<(&str, Input)> = wrt.iter().map(|n| (*n, host(n).unwrap())).collect();
    let from_forward: Vec<&str> =
        g.residuals.iter().map(String::as_str).filter(|n| host(n).is_none()).collect();
    let held = forward.run(&feed, &from_forward).map_err(text)?;
    let y_shapes: Vec<Vec<i64>> = graph.outputs.iter().map(shape).collect();
    let cotangents: Vec<Vec<f32>> = y_shapes.iter().map(|s| normal(r, s)).collect();
    let mut feed: Vec<(&str, Input)> =
        from_forward.iter().copied().zip(held.iter().map(Input::Held)).collect();
    feed.extend(g.residuals.iter().filter_map(|n| Some((n.as_str(), host(n)?))));
    feed.extend(
        g.cotangents.iter().enumerate().map(|(i, n)| (n.as_str(), Input::Host(&y_shapes[i], &cotangents[i]))),
    );
    feed.retain(|(n, _)| g.backward.inputs.iter().any(|i| i.name == *n));
    let names: Vec<&str> = g.gradients.iter().map(String::as_str).collect();
    let gradients = backward.run(&feed, &names).map_err(text)?;
    let gradients: Vec<Vec<f32>> = gradients.iter().map(|g| g.floats().unwrap().1.to_vec()).collect();

    let mut errors: Vec<f64> = (0..5)
        .map(|_| {
            let v: Vec<Vec<f32>> =
                case.points.iter().map(|p| p.iter().map(|_| r.normal() / 2.0).collect()).collect();
            error_along(case, &mut forward, &cotangents, &gradients, &v)
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    Ok(errors[2])
}

#[test]
fn every_rule_has_a_sample_case() {
    let samples = samples();
    let missing: Vec<&str> = rules::all()
        .filter(|rule| matches!(rule.class, rules::Class::Exact(_)))
        .map(|rule| rule.op)
        .filter(|op| !samples.iter().any(|(name, _)| name == op))
        .collect();
    assert!(missing.is_empty(), "no sample case in tests/rules.rs for {missing:?}");
}

#[test]
fn every_rule_agrees_with_finite_differences() {
    common::load_runtime();
    let mut wrong = Vec::new();
    for (op, sample) in samples() {
        for seed in 0..CASES {
            let mut r = Rng::new(seed * 1000 + op.len() as u64);
            let case = sample(&mut r);
            assert_eq!(case.graph.nodes[0].op, op);
            match check(&case, &mut r) {
                Ok(error) if error < 1e-3 => {}
                Ok(error) => wrong.push(format!(
                    "{op} #{seed}: error {error:.1e}: {:?} {:?}",
                    case.graph.nodes[0].attrs,
                    case.graph.inputs.iter().map(|i| i.shape_text()).collect::<Vec<_>>()
                )),
                Err(e) => wrong.push(format!(
                    "{op} #{seed}: {e} {:?} {:?}",
                    case.graph.nodes[0].attrs,
                    case.graph.inputs.iter().map(|i| i.shape_text()).collect::<Vec<_>>()
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

//! Every gradient rule against central finite differences of ONNX Runtime's own forward: one-node graphs of random
//! shapes and attributes, points kept away from kinks, tolerance 1e-3.

mod common;

use audit::model::runtime::{self, Input, Optimise, Options, Provider, Session};
use common::Rng;
use onnx_grad::operators::{self, Class};
use onnx_grad::{Attr, DType, Differentiated, Graph, Node, Tensor, Value, differentiate};

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
    /// Integers that the graph computes, as far as the rule can see.
    fn computed(mut self, name: &str, shape: &[i64], values: &[i64]) -> Case {
        let t = Tensor::i64(shape, values);
        self.graph.constants.insert(format!("{name}/given"), t);
        self.graph.nodes.insert(0, Node::new("Identity", &[&format!("{name}/given")], name));
        self
    }
    /// [`Case::computed`] or a constant.
    fn indices(self, r: &mut Rng, name: &str, shape: &[i64], values: &[i64]) -> Case {
        if r.bool() {
            self.computed(name, shape, values)
        } else {
            self.constant(name, Tensor::i64(shape, values))
        }
    }
    fn ints(mut self, name: &str, values: &[i64]) -> Case {
        self.graph.constants.insert(name.into(), Tensor::ints(values));
        self
    }
    /// A float input: constant or, as if it were computed from the image, differentiated too.
    fn maybe(self, r: &mut Rng, name: &str, shape: &[i64], values: fn(&mut Rng, &[i64]) -> Vec<f32>) -> Case {
        let values = values(r, shape);
        if r.bool() {
            self.input(name, shape, values)
        } else {
            self.constant(name, Tensor::f32(shape, &values))
        }
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

/// Products, and those of a value with a function of itself that make an activation: Swish and HardSwish as two nodes, in
/// either order, the gate being read elsewhere too, or not quite the gate.
fn mul(r: &mut Rng) -> Case {
    if r.bool() {
        return binary("Mul", [normal, normal])(r);
    }
    let shape = r.shape(3);
    let node = if r.bool() { Node::new("Mul", &["a", "h"], "y") } else { Node::new("Mul", &["h", "a"], "y") };
    let mut case = Case::new(node);
    let gate = match r.int(0, 2) {
        0 => Node::new("Sigmoid", &["a"], "h"),
        kind => Node::new("HardSigmoid", &["a"], "h")
            .with("alpha", 1.0f32 / 6.0)
            .with("beta", if kind == 1 { 0.5f32 } else { 0.25 }),
    };
    case.graph.nodes.insert(0, gate);
    if r.bool() {
        case.graph.nodes[1].outputs = vec!["z".into()];
        case.graph.nodes.push(Node::new("Mul", &["z", "h"], "y"));
    }
    // Kinks of the gate where its argument is 0 or 1.
    case.input("a", &shape, away(r, &shape, &[-3.0, 3.0, -1.5, 4.5]))
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

/// Channels that fill half a block, for which Conv has other gradients: at stride 1, depthwise at stride 2, and dense at stride 2
/// with large kernels.
fn conv_in_blocks(r: &mut Rng) -> Case {
    let (stride, depthwise) = (r.pick(&[1, 2]), r.bool());
    let small = stride == 1 || depthwise;
    let kernel: Vec<i64> = (0..2).map(|_| if small { r.int(1, 3) } else { r.int(5, 6) }).collect();
    let before: Vec<i64> = (0..2).map(|d| r.int(0, kernel[d] - 1)).collect();
    let y: Vec<i64> = (0..2).map(|_| r.int(2, 4)).collect();
    // The other pad, so that an image of twice the places comes of it, as of most nets that halve.
    let after: Vec<i64> =
        (0..2).map(|d| (y[d] - 1) * stride + kernel[d] - before[d] - stride * y[d]).collect();
    if after.iter().any(|&p| p < 0) {
        return conv_in_blocks(r);
    }
    let node = Node::new("Conv", &["x", "w"], "y").with("strides", vec![stride, stride]);
    let node = node.with("pads", [before, after].concat()).with("group", if depthwise { 8 } else { 1 });
    let dilations = if depthwise { r.int(1, 2) } else { 1 };
    let node = node.with("dilations", vec![dilations; 2]);
    // Dilated windows and odd sizes leave pixels over, or reach beyond.
    let odd = |r: &mut Rng, size: i64| {
        if depthwise { size + kernel.iter().sum::<i64>() + r.int(0, 2) } else { size }
    };
    let x = [1, 8, odd(r, stride * y[0]), odd(r, stride * y[1])];
    let w = [8, if depthwise { 1 } else { 8 }, kernel[0], kernel[1]];
    Case::new(node).input("x", &x, normal(r, &x)).constant("w", Tensor::f32(&w, &normal(r, &w)))
}

fn conv(r: &mut Rng) -> Case {
    if r.int(0, 2) == 0 {
        return conv_in_blocks(r);
    }
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
    weighted(r, node, &x, &w, w[0])
}

/// Image, weights and bias, the latter two constant or on the path.
fn weighted(r: &mut Rng, node: Node, x: &[i64], w: &[i64], channels: i64) -> Case {
    let bias = node.inputs.len() == 3;
    let case = Case::new(node).input("x", x, normal(r, x)).maybe(r, "w", w, normal);
    if bias { case.maybe(r, "b", &[channels], normal) } else { case }
}

fn conv_transpose(r: &mut Rng) -> Case {
    let dims = r.pick(&[1usize, 2, 2, 2, 3]);
    let group = r.pick(&[1, 1, 2, 3]);
    let (per_in, per_out) = (r.int(1, 3), if r.bool() { 1 } else { r.int(1, 3) });
    let most = if dims == 3 { 2 } else { 3 };
    let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, most)).collect();
    let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 3)).collect();
    let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
    let space: Vec<i64> = (0..dims).map(|_| r.int(2, if dims == 3 { 3 } else { 5 })).collect();
    let x = [&[2, group * per_in], space.as_slice()].concat();
    let w = [&[group * per_in, per_out], kernel.as_slice()].concat();
    let inputs: &[&str] = if r.bool() { &["x", "w", "b"] } else { &["x", "w"] };
    let mut node =
        Node::new("ConvTranspose", inputs, "y").with("group", group).with("strides", strides.clone());
    match r.int(0, 6) {
        0 => node = node.with("auto_pad", "SAME_UPPER"),
        1 => node = node.with("auto_pad", "SAME_LOWER"),
        2 => node = node.with("auto_pad", "VALID"),
        3 => {
            let full = |d: usize| (space[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1;
            // Inference gives up on outputs smaller than the input.
            let shape: Vec<i64> = (0..dims).map(|d| (full(d) - r.int(0, 2)).max(space[d])).collect();
            node = node.with("output_shape", shape).with("dilations", dilations);
        }
        _ => {
            let pads: Vec<i64> = (0..2 * dims).map(|d| r.int(0, (kernel[d % dims] - 1).min(1))).collect();
            let extra: Vec<i64> = strides.iter().map(|s| r.int(0, s - 1)).collect();
            node = node.with("pads", pads).with("output_padding", extra).with("dilations", dilations);
        }
    }
    weighted(r, node, &x, &w, group * per_out)
}

fn col2im(r: &mut Rng) -> Case {
    let image = [r.int(5, 7), r.int(5, 7)];
    let block = [r.int(1, 3), r.int(1, 3)];
    let (stride, dilation, pad) = (r.int(1, 2), r.int(1, 2), r.int(0, 1));
    let count = |d: usize| (image[d] + 2 * pad - (block[d] - 1) * dilation - 1) / stride + 1;
    let x = [2, 3 * block[0] * block[1], count(0) * count(1)];
    let node = Node::new("Col2Im", &["x", "image", "block"], "y")
        .with("strides", vec![stride; 2])
        .with("dilations", vec![dilation; 2])
        .with("pads", vec![pad; 4]);
    Case::new(node).input("x", &x, normal(r, &x)).ints("image", &image).ints("block", &block)
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
        if op == "MaxPool" && dims == 2 && r.bool() {
            // Windows that tile the image.
            let x = [2, 3, kernel[0] * r.int(1, 4), kernel[1] * r.int(1, 4)];
            let node =
                Node::new(op, &["x"], "y").with("kernel_shape", kernel.clone()).with("strides", kernel);
            return Case::new(node).input("x", &x, distinct(r, &x));
        }
        let x = [&[2, 3], space.as_slice()].concat();
        let mut node =
            Node::new(op, &["x"], "y").with("kernel_shape", kernel.clone()).with("strides", strides.clone());
        if r.int(0, 4) == 0 {
            let mode = r.pick(&["SAME_UPPER", "SAME_LOWER", "VALID"]);
            node = node.with("auto_pad", mode);
            if mode == "VALID" {
                node = node.with("ceil_mode", r.int(0, 1));
            }
            // Windows with gaps between them: ONNX Runtime runs no such MaxPool by itself.
            if op == "MaxPool" {
                let no_gaps: Vec<i64> = strides.iter().zip(&kernel).map(|(s, k)| *s.min(k)).collect();
                node = node.with("strides", no_gaps);
            }
        } else {
            let pads: Vec<i64> = (0..2 * dims).map(|i| r.int(0, kernel[i % dims] / 2)).collect();
            node = node.with("ceil_mode", r.int(0, 1)).with("dilations", dilations);
            if r.int(0, 2) > 0 {
                node = node.with("pads", pads);
            }
        }
        if op == "LpPool" {
            node = node.with("p", r.int(1, 3));
        }
        if op == "AveragePool" {
            node = node.with("count_include_pad", r.int(0, 1));
        }
        let values = if op == "LpPool" { away(r, &x, &[0.0]) } else { distinct(r, &x) };
        Case::new(node).input("x", &x, values)
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
        if op == "GroupNormalization" {
            let groups = r.int(1, 3);
            x[1] *= groups;
            node = node.with("num_groups", groups);
        }
        let scale = if layer { scale } else { vec![x[1]] };
        if op == "BatchNormalization" {
            node.inputs.extend(["mean".into(), "var".into()]);
        }
        let case = Case::new(node)
            .input("x", &x, normal(r, &x))
            .maybe(r, "scale", &scale, positive)
            .maybe(r, "bias", &scale, normal);
        if op != "BatchNormalization" {
            return case;
        }
        case.maybe(r, "mean", &scale, normal).maybe(r, "var", &scale, positive)
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
        .indices(r, "i", &of, &indices)
}

fn gather_elements(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let at = ((axis + rank) % rank) as usize;
    let of: Vec<i64> = (0..shape.len()).map(|d| r.int(1, if d == at { 6 } else { shape[d] })).collect();
    let indices: Vec<i64> = (0..size(&of)).map(|_| r.int(-shape[at], shape[at] - 1)).collect();
    Case::new(Node::new("GatherElements", &["x", "i"], "y").with("axis", axis))
        .input("x", &shape, normal(r, &shape))
        .indices(r, "i", &of, &indices)
}

/// `count` index rows into the first axes of `shape`, different ones if `unique`.
fn rows(r: &mut Rng, shape: &[i64], count: usize, unique: bool) -> Vec<i64> {
    let mut all: Vec<Vec<i64>> = vec![vec![]];
    for &size in shape {
        all = all.iter().flat_map(|row| (0..size).map(|i| [row.as_slice(), &[i]].concat())).collect();
    }
    r.shuffle(&mut all);
    (0..count)
        .flat_map(|k| all[if unique { k } else { r.int(0, all.len() as i64 - 1) as usize }].clone())
        .collect()
}

fn gather_nd(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let batch = r.int(0, rank - 1) as usize;
    let depth = r.int(1, rank - batch as i64) as usize;
    let mut of = shape[..batch].to_vec();
    if batch == 0 || r.bool() {
        of.push(r.int(1, 4));
    }
    let indices = rows(r, &shape[batch..batch + depth], size(&of), false);
    of.push(depth as i64);
    Case::new(Node::new("GatherND", &["x", "i"], "y").with("batch_dims", batch as i64))
        .input("x", &shape, normal(r, &shape))
        .indices(r, "i", &of, &indices)
}

/// Data and updates, all values different for max and min.
fn scattered(r: &mut Rng, node: Node, shape: &[i64], indices: (&[i64], Vec<i64>), of: &[i64]) -> Case {
    let reduction = node.str("reduction", "none").to_string();
    let all = distinct(r, &[(size(shape) + size(of)) as i64]);
    let (data, updates) = all.split_at(size(shape));
    let case = Case::new(node).input("x", shape, data.to_vec()).indices(r, "i", indices.0, &indices.1);
    if reduction == "mul" {
        let updates = normal(r, of);
        return case.constant("u", Tensor::f32(of, &updates));
    }
    case.input("u", of, updates.to_vec())
}

fn scatter_elements(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let at = ((axis + rank) % rank) as usize;
    let reduction = r.pick(&["none", "add", "mul", "max", "min"]);
    let mut of: Vec<i64> = shape.iter().map(|&d| r.int(1, d)).collect();
    // Without reduction every position at most once: along the axis a cut of one permutation.
    let mut order: Vec<i64> = (0..shape[at]).collect();
    r.shuffle(&mut order);
    if reduction != "none" {
        of[at] = r.int(1, 5);
    }
    let inner: usize = size(&of[at + 1..]);
    let index = |k: usize, r: &mut Rng| match reduction {
        "none" => order[k / inner % of[at] as usize],
        _ => r.int(-shape[at], shape[at] - 1),
    };
    let indices: Vec<i64> = (0..size(&of)).map(|k| index(k, r)).collect();
    let node =
        Node::new("ScatterElements", &["x", "i", "u"], "y").with("axis", axis).with("reduction", reduction);
    scattered(r, node, &shape, (&of, indices), &of)
}

fn scatter_nd(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let shape = r.shape(rank);
    let depth = r.int(1, rank) as usize;
    let reduction = r.pick(&["none", "add", "mul", "max", "min"]);
    let most = if reduction == "none" { size(&shape[..depth]) as i64 } else { 5 };
    let count = r.int(1, most);
    let indices = rows(r, &shape[..depth], count as usize, reduction == "none");
    let of = [&[count], &shape[depth..]].concat();
    let node = Node::new("ScatterND", &["x", "i", "u"], "y").with("reduction", reduction);
    scattered(r, node, &shape, (&[count, depth as i64], indices), &of)
}

fn top_k(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let k = r.int(1, shape[((axis + rank) % rank) as usize]);
    let mut node = Node::new("TopK", &["x", "k"], "").with("axis", axis).with("largest", r.int(0, 1));
    node.outputs = vec!["y".into(), "i".into()];
    let mut case = Case::new(node).input("x", &shape, distinct(r, &shape)).ints("k", &[k]);
    case.graph.outputs.truncate(1);
    case
}

fn cum_sum(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let node =
        Node::new("CumSum", &["x", "axis"], "y").with("exclusive", r.int(0, 1)).with("reverse", r.int(0, 1));
    let axis = Tensor::i64(&[], &[r.int(-rank, rank - 1)]);
    Case::new(node).input("x", &shape, normal(r, &shape)).constant("axis", axis)
}

fn trilu(r: &mut Rng) -> Case {
    let rank = r.int(2, 4);
    let shape = r.shape(rank);
    let node = Node::new("Trilu", &["x", "k"], "y").with("upper", r.int(0, 1));
    let mut case = Case::new(node).input("x", &shape, normal(r, &shape));
    if r.bool() {
        return case.constant("k", Tensor::i64(&[], &[r.int(-3, 3)]));
    }
    case.graph.nodes[0].inputs.truncate(1);
    case
}

fn einsum(r: &mut Rng) -> Case {
    const EQUATIONS: &[&str] = &[
        "bkn,bcn->bkc",
        "bhwc,hkc->bhwk",
        "bhwc,wkc->bhwk",
        "BGHID,BGHJD->BGHIJ",
        "BGHIJ,BGHJD->BGHID",
        "ij,jk",
        "ba , bc",
        "ij->ji",
        "ij->i",
        "ij->",
        "i,j->ij",
        "i,i->",
        "ij,jk,kl->il",
        "ijk,il,jl->kl",
        "...ij,...jk->...ik",
        "...i,...i",
        "i...,ij->j...",
        "ii->i",
        "ii",
        "iij,jk->ik",
        "bii,bi->bi",
        ",ij->ij",
        "ij,kl->il",
    ];
    let equation = r.pick(EQUATIONS);
    let left = equation.split("->").next().unwrap().replace(' ', "");
    let sizes: Vec<i64> = (0..128).map(|_| r.int(1, 3)).collect();
    let around: Vec<i64> = vec![r.int(1, 3); r.int(0, 2) as usize];
    let names = ["a", "b", "c"];
    let terms: Vec<&str> = left.split(',').collect();
    let node = Node::new("Einsum", &names[..terms.len()], "y").with("equation", equation);
    let mut case = Case::new(node);
    for (term, name) in terms.iter().zip(names) {
        let mut shape: Vec<i64> = vec![];
        // Ellipses broadcast. (Of different lengths they crash the runtime, 1.31.)
        let dots: Vec<i64> = around.iter().map(|&d| if r.bool() { 1 } else { d }).collect();
        for part in term.replace("...", ".").chars() {
            match part {
                '.' => shape.extend(&dots),
                c => shape.push(sizes[c as usize]),
            }
        }
        let values = normal(r, &shape);
        case = case.input(name, &shape, values);
    }
    case
}

fn resize(r: &mut Rng) -> Case {
    let mode = r.pick(&["nearest", "linear", "cubic"]);
    let coordinates = r.pick(&[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
    ]);
    let x = [r.int(1, 2), r.int(1, 3), r.int(2, 6), r.int(2, 6)];
    let mut node = Node::new("Resize", &["x", "", "", ""], "y")
        .with("mode", mode)
        .with("coordinate_transformation_mode", coordinates);
    if mode == "nearest" {
        let rounding = r.pick(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]);
        node = node.with("nearest_mode", rounding);
    } else if r.int(0, 3) == 0 && coordinates != "tf_crop_and_resize" {
        node = node.with("antialias", 1);
    }
    if mode == "cubic" {
        node = node.with("cubic_coeff_a", r.pick(&[-0.75f32, -0.5])).with("exclude_outside", r.int(0, 1));
    }
    let few = r.bool();
    if few {
        node = node.with("axes", vec![2, 3]);
    }
    let lead = if few { 0 } else { 2 };
    let mut case = Case::new(node).input("x", &x, normal(r, &x));
    let node = &mut case.graph.nodes[0];
    let mut extra: Vec<(&str, Tensor)> = vec![];
    if coordinates == "tf_crop_and_resize" {
        node.inputs[1] = "roi".into();
        let mut roi = vec![0.0; lead];
        roi.extend([0.1, 0.2]);
        roi.extend(vec![1.0; lead]);
        roi.extend([r.pick(&[0.8, 1.3]), 0.9]);
        extra.push(("roi", Tensor::f32(&[roi.len() as i64], &roi)));
    }
    if r.bool() {
        let mut scales = vec![1.0; lead];
        scales.extend((0..2).map(|_| r.pick(&[2.0, 3.0, 1.0, 1.5, 0.6, 2.7])));
        node.inputs[2] = "scales".into();
        node.inputs.truncate(3);
        extra.push(("scales", Tensor::f32(&[scales.len() as i64], &scales)));
    } else {
        let policy = r.pick(&["stretch", "stretch", "not_larger"]);
        let mut sizes = x[..lead].to_vec();
        if policy == "stretch" || lead > 0 {
            for size in &x[2..] {
                let other = r.int(2, 9);
                sizes.push(r.pick(&[2 * size, 3 * size, other]));
            }
        } else {
            // Sizes that need no rounding; the second is larger than what comes out.
            node.attrs.insert("keep_aspect_ratio_policy".into(), policy.into());
            sizes.extend([2 * x[2], 2 * x[3] + 1]);
        }
        node.inputs[3] = "sizes".into();
        extra.push(("sizes", Tensor::ints(&sizes)));
    }
    extra.into_iter().fold(case, |case, (name, t)| case.constant(name, t))
}

/// Quantised integers as constants, differentiated by the scale; the way through them is tested on its own.
fn dequantize(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(2, 4), r.int(1, 4)];
    let per_axis = r.bool();
    let scale = if per_axis { vec![shape[1]] } else { vec![] };
    let bytes: Vec<u8> = (0..size(&shape)).map(|_| r.int(0, 255) as u8).collect();
    let zero: Vec<u8> = (0..size(&scale)).map(|_| r.int(0, 255) as u8).collect();
    let q = Tensor { dtype: DType::I8, shape: shape.to_vec(), bytes: bytes.into() };
    let zero = Tensor { dtype: DType::I8, shape: scale.clone(), bytes: zero.into() };
    Case::new(Node::new("DequantizeLinear", &["q", "s", "z"], "y").with("axis", 1))
        .constant("q", q)
        .input("s", &scale, positive(r, &scale))
        .constant("z", zero)
}

/// Some entries are zeros.
fn with_zeros(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    normal(r, shape).into_iter().map(|v| if r.int(0, 4) == 0 { 0.0 } else { v }).collect()
}

/// Inside (−1, 1).
fn small(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 1.6 * r.unit() - 0.8).collect()
}

/// Above 1.
fn above_one(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 1.5 + r.unit()).collect()
}

fn fmod(r: &mut Rng) -> Case {
    let (a, b) = broadcast_pair(r);
    // a = b·(whole + a half or so): far from where the remainder jumps, for any pair that broadcasts.
    let vb: Vec<f32> = (0..size(&b)).map(|_| r.pick(&[2.0f32, 4.0])).collect();
    let va: Vec<f32> =
        (0..size(&a)).map(|_| r.pick(&[-1.0, 1.0]) * (4.0 * r.int(0, 2) as f32 + 1.0)).collect();
    Case::new(Node::new("Mod", &["a", "b"], "y").with("fmod", 1)).input("a", &a, va).input("b", &b, vb)
}

fn shrink(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let node = Node::new("Shrink", &["x"], "y").with("lambd", 0.7f32).with("bias", 0.3f32);
    Case::new(node).input("x", &shape, away(r, &shape, &[-0.7, 0.7]))
}

fn local_response(r: &mut Rng) -> Case {
    let mut x = r.shape(4);
    x[1] += 2;
    // The runtime takes odd sizes and images only.
    let node = Node::new("LRN", &["x"], "y")
        .with("size", r.pick(&[1, 3, 5]))
        .with("alpha", 0.5f32)
        .with("beta", 0.6f32)
        .with("bias", 1.5f32);
    Case::new(node).input("x", &x, normal(r, &x))
}

fn mean_variance(r: &mut Rng) -> Case {
    let mut x = image(r);
    x[2] += 3;
    let mut node = Node::new("MeanVarianceNormalization", &["x"], "y");
    if r.bool() {
        node = node.with("axes", vec![2, 3]);
    }
    Case::new(node).input("x", &x, normal(r, &x))
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
        let mut node = Node::new(op, &["x"], "y");
        if op == "GlobalLpPool" {
            node = node.with("p", r.int(1, 3));
            return Case::new(node).input("x", &x, away(r, &x, &[0.0]));
        }
        Case::new(node).input("x", &x, distinct(r, &x))
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

/// Part of a gradient would be missing without a word.
#[test]
fn what_no_rule_covers_is_refused() {
    common::load_runtime();
    let image = || vec![0.5; 12];
    let clip = Case::new(Node::new("Clip", &["x", "low"], "y")).input("x", &[3, 4], image());
    let pad = Case::new(Node::new("Pad", &["x", "pads"], "y").with("mode", "wrap"));
    let one_hot = Case::new(Node::new("OneHot", &["at", "depth", "values"], "y"));
    let cases = [
        (clip.input("low", &[], vec![0.1]), "a bound computed from the image"),
        (pad.input("x", &[3, 4], image()).ints("pads", &[-1, 0, 2, 0]), "wrap that crops"),
        (
            one_hot.ints("at", &[1]).ints("depth", &[4]).input("values", &[2], vec![0.0, 1.0]),
            "values computed from the image",
        ),
    ];
    for (case, expected) in cases {
        let error = differentiated(&case, |_| vec![]).map(drop).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Where several values of a window are largest, all of the gradient goes to the first of them in reading order, as in PyTorch
/// (`max_pool2d`) and as ONNX Runtime's own index output says; expected here by looking at every window. Behind a Relu, with
/// or without another reader of its values, a maximum of 0 gets none.
#[test]
fn of_equal_values_a_max_pool_chooses_the_first() {
    common::load_runtime();
    let mut r = Rng::new(5);
    for _ in 0..60 {
        let mut two = |low, high| [r.int(low, high), r.int(low, high)];
        let (kernel, strides, dilations) = (two(1, 4), two(1, 3), two(1, 2));
        let (pads, more) = (two(0, 1), two(0, 7));
        let pads = [0, 1].map(|d| pads[d].min(kernel[d] - 1));
        let reach = [0, 1].map(|d| (kernel[d] - 1) * dilations[d] + 1);
        let [h, w] = [0, 1].map(|d| reach[d] + more[d]);
        let counts = [0, 1].map(|d| ([h, w][d] + 2 * pads[d] - reach[d]) / strides[d] + 1);
        let x: Vec<f32> = (0..2 * h * w).map(|_| r.int(-1, 1) as f32).collect();
        let ct: Vec<f32> = (0..2 * counts[0] * counts[1]).map(|i| 1.0 + i as f32).collect();
        let pool = Node::new("MaxPool", &["x"], "y")
            .with("kernel_shape", kernel.to_vec())
            .with("strides", strides.to_vec())
            .with("dilations", dilations.to_vec())
            .with("pads", [pads, pads].concat());
        let (relu, read_elsewhere) = (r.bool(), r.bool());
        let mut case = Case::new(pool).input("x", &[1, 2, h, w], x.clone());
        if relu {
            case.graph.nodes[0].inputs[0] = "on".into();
            case.graph.nodes.insert(0, Node::new("Relu", &["x"], "on"));
        }
        let elsewhere = relu && read_elsewhere;
        if elsewhere {
            case.graph.nodes.push(Node::new("Neg", &["on"], "z"));
            case.graph.outputs.push(Value { name: "z".into(), dtype: DType::Other(0), shape: None });
        }

        let on = |v: f32| if relu && v <= 0.0 { 0.0 } else { 1.0 };
        let seen = |at: usize| on(x[at]) * x[at];
        let mut expected = vec![0.0f32; x.len()];
        for (o, ct) in ct.iter().enumerate() {
            let o = o as i64;
            let [plane, row, column] =
                [o / (counts[0] * counts[1]), o / counts[1] % counts[0], o % counts[1]];
            let place = |k: i64, number: i64, d: usize| number * strides[d] + k * dilations[d] - pads[d];
            let window = (0..kernel[0]).flat_map(|i| (0..kernel[1]).map(move |j| (i, j)));
            let inside = window.map(|(i, j)| (place(i, row, 0), place(j, column, 1)));
            let inside = inside.filter(|&(i, j)| (0..h).contains(&i) && (0..w).contains(&j));
            let at = inside.map(|(i, j)| ((plane * h + i) * w + j) as usize);
            let first = at.reduce(|best, at| if seen(at) > seen(best) { at } else { best }).unwrap();
            expected[first] += ct * on(x[first]);
        }
        if elsewhere {
            expected.iter_mut().zip(&x).for_each(|(e, &x)| *e -= on(x));
        }
        let cotangents = if elsewhere { vec![ct, vec![1.0; x.len()]] } else { vec![ct] };
        let (_, _, gradients) = differentiated(&case, |_| cotangents).unwrap();
        let said = format!("{kernel:?} {strides:?} {dilations:?} {pads:?} of {h} x {w}, {relu} {elsewhere}");
        assert_eq!(gradients, [expected], "{said}");
    }
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
        entry("Acos", unary("Acos", small)),
        entry("Acosh", unary("Acosh", above_one)),
        entry("Add", binary("Add", [normal, normal])),
        entry("Asin", unary("Asin", small)),
        entry("Asinh", unary("Asinh", normal)),
        entry("Atan", unary("Atan", normal)),
        entry("Atanh", unary("Atanh", small)),
        entry("AveragePool", pool("AveragePool")),
        entry("BatchNormalization", norm("BatchNormalization")),
        entry("Cast", cast),
        entry("Celu", attributed("Celu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Clip", clip),
        entry("Col2Im", col2im),
        entry("Concat", concat),
        entry("Conv", conv),
        entry("ConvTranspose", conv_transpose),
        entry("Cos", unary("Cos", normal)),
        entry("Cosh", unary("Cosh", normal)),
        entry("CumSum", cum_sum),
        entry("DepthToSpace", blocks("DepthToSpace")),
        entry("DequantizeLinear", dequantize),
        entry("Div", binary("Div", [normal, positive])),
        entry("Einsum", einsum),
        entry("Elu", attributed("Elu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Erf", unary("Erf", normal)),
        entry("Exp", unary("Exp", normal)),
        entry("Expand", expand_to),
        entry("Flatten", flatten),
        entry("Gather", gather),
        entry("GatherElements", gather_elements),
        entry("GatherND", gather_nd),
        entry("Gelu", gelu),
        entry("Gemm", gemm),
        entry("GlobalAveragePool", global("GlobalAveragePool")),
        entry("GlobalLpPool", global("GlobalLpPool")),
        entry("GlobalMaxPool", global("GlobalMaxPool")),
        entry("GroupNormalization", norm("GroupNormalization")),
        entry("HardSigmoid", hard_sigmoid),
        entry("HardSwish", unary("HardSwish", |r, s| away(r, s, &[-3.0, 3.0]))),
        entry("Identity", unary("Identity", normal)),
        entry("InstanceNormalization", norm("InstanceNormalization")),
        entry("LRN", local_response),
        entry("LayerNormalization", norm("LayerNormalization")),
        entry("LeakyRelu", attributed("LeakyRelu", &[0.0], "alpha", &[0.3, -0.2])),
        entry("Log", unary("Log", positive)),
        entry("LogSoftmax", with_axis("LogSoftmax", normal)),
        entry("LpNormalization", lp_normalization),
        entry("LpPool", pool("LpPool")),
        entry("MatMul", matmul),
        entry("Max", variadic("Max")),
        entry("MaxPool", pool("MaxPool")),
        entry("Mean", variadic("Mean")),
        entry("MeanVarianceNormalization", mean_variance),
        entry("Min", variadic("Min")),
        entry("Mish", unary("Mish", normal)),
        entry("Mod", fmod),
        entry("Mul", mul),
        entry("Neg", unary("Neg", normal)),
        entry("PRelu", prelu),
        entry("Pad", pad),
        entry("Pow", pow),
        entry("Reciprocal", unary("Reciprocal", positive)),
        entry("ReduceL1", reduce("ReduceL1", away0)),
        entry("ReduceL2", reduce("ReduceL2", positive)),
        entry("ReduceLogSum", reduce("ReduceLogSum", positive)),
        entry("ReduceLogSumExp", reduce("ReduceLogSumExp", normal)),
        entry("ReduceMax", reduce("ReduceMax", distinct)),
        entry("ReduceMean", reduce("ReduceMean", normal)),
        entry("ReduceMin", reduce("ReduceMin", distinct)),
        entry("ReduceProd", reduce("ReduceProd", with_zeros)),
        entry("ReduceSum", reduce("ReduceSum", normal)),
        entry("ReduceSumSquare", reduce("ReduceSumSquare", normal)),
        entry("Relu", unary("Relu", away0)),
        entry("Reshape", with_ints("Reshape", "shape", reshape_to)),
        entry("Resize", resize),
        entry("ScatterElements", scatter_elements),
        entry("ScatterND", scatter_nd),
        entry("Selu", attributed("Selu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Shrink", shrink),
        entry("Sigmoid", unary("Sigmoid", normal)),
        entry("Sin", unary("Sin", normal)),
        entry("Sinh", unary("Sinh", normal)),
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
        entry("Tan", unary("Tan", small)),
        entry("Tanh", unary("Tanh", normal)),
        entry("ThresholdedRelu", attributed("ThresholdedRelu", &[0.5, 1.0], "alpha", &[0.5])),
        entry("Tile", with_ints("Tile", "repeats", |r, s| s.iter().map(|_| r.int(1, 3)).collect())),
        entry("TopK", top_k),
        entry("Transpose", transpose),
        entry("Trilu", trilu),
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
    use onnx_grad::Dim;
    let dims = value.shape.as_deref().unwrap_or_default();
    dims.iter().map(|d| if let Dim::Known(n) = d { *n } else { panic!("{value:?}") }).collect()
}

/// Forward graph, cotangents of the outputs, gradients of the inputs.
type Found = (Session, Vec<Vec<f32>>, Vec<Vec<f32>>);

/// Differentiates a case, for the cotangents that `choose` makes of its outputs' shapes.
fn differentiated(case: &Case, choose: impl FnOnce(&[Vec<i64>]) -> Vec<Vec<f32>>) -> Result<Found, String> {
    let text = |e: audit::Error| e.to_string();
    let types = runtime::infer(&case.graph).map_err(text)?;
    let mut graph = case.graph.clone();
    for out in &mut graph.outputs {
        let (dtype, dims) = &types[&out.name];
        *out = Value::new(out.name.clone(), *dtype, dims);
    }
    let wrt: Vec<&str> = graph.inputs.iter().map(|i| i.name.as_str()).collect();
    let g = differentiate(&graph, &types, &wrt, false).map_err(|e| e.to_string())?;
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
    let cotangents = choose(&y_shapes);
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
    drop(held);
    Ok((forward, cotangents, gradients))
}

/// Median error over directions, or what went wrong.
fn check(case: &Case, r: &mut Rng) -> Result<f64, String> {
    let (mut forward, cotangents, gradients) =
        differentiated(case, |shapes| shapes.iter().map(|s| normal(r, s)).collect())?;
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
    let missing: Vec<&str> = operators::all()
        .filter(|o| o.class == Class::Exact)
        .map(|o| o.name)
        .filter(|op| !samples.iter().any(|(name, _)| name == op))
        .collect();
    assert!(missing.is_empty(), "no sample case in tests/rules.rs for {missing:?}");
}

#[test]
fn every_rule_agrees_with_finite_differences() {
    common::load_runtime();
    let mut wrong = Vec::new();
    // RULES=Conv,Resize: only these.
    let only = std::env::var("RULES").ok();
    for (op, sample) in samples() {
        if only.as_ref().is_some_and(|only| !only.split(',').any(|o| o == op)) {
            continue;
        }
        for seed in 0..CASES {
            let mut r = Rng::new(seed * 1000 + op.len() as u64);
            let case = sample(&mut r);
            let node = case.graph.nodes.last().unwrap();
            assert_eq!(node.op, op);
            match check(&case, &mut r) {
                Ok(error) if error < 1e-3 => {}
                Ok(error) => wrong.push(format!(
                    "{op} #{seed}: error {error:.1e}: {:?} {:?}",
                    node.attrs,
                    case.graph.inputs.iter().map(|i| i.shape_text()).collect::<Vec<_>>()
                )),
                Err(e) => wrong.push(format!(
                    "{op} #{seed}: {e} {:?} {:?}",
                    node.attrs,
                    case.graph.inputs.iter().map(|i| i.shape_text()).collect::<Vec<_>>()
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// The graph of some nodes x → y, differentiated: y and the gradient at `x` for a cotangent.
fn gradient(
    nodes: Vec<Node>,
    constants: &[(&str, Tensor)],
    shape: &[i64],
    x: &[f32],
    cotangent: &[f32],
) -> (Vec<f32>, Vec<f32>, Differentiated) {
    let constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs.push(Value::new("x", DType::F32, shape));
    graph.outputs.push(Value::new("y", DType::F32, shape));
    let types = runtime::infer(&graph).unwrap();
    let g = differentiate(&graph, &types, &["x"], false).unwrap();
    let mut forward = Session::new(&g.forward, CPU, Optimise::Off).unwrap();
    let mut backward = Session::new(&g.backward, CPU, Optimise::All).unwrap();
    let residuals = g.residuals.iter().map(String::as_str).filter(|r| !["x", "y"].contains(r));
    let handed: Vec<&str> = std::iter::once("y").chain(residuals).collect();
    let held = forward.run(&[("x", Input::Host(shape, x))], &handed).unwrap();
    let mut feed: Vec<(&str, Input)> = handed.iter().copied().zip(held.iter().map(Input::Held)).collect();
    feed.push(("x", Input::Host(shape, x)));
    feed.push((&g.cotangents[0], Input::Host(shape, cotangent)));
    feed.retain(|(name, _)| g.backward.inputs.iter().any(|i| i.name == *name));
    let out = backward.run(&feed, &[&g.gradients[0]]).unwrap();
    (held[0].floats().unwrap().1.to_vec(), out[0].floats().unwrap().1.to_vec(), g)
}

fn quantised(middle: Option<Node>) -> Vec<Node> {
    let after = if middle.is_some() { "moved" } else { "q" };
    let mut nodes = vec![Node::new("QuantizeLinear", &["x", "s", "z"], "q")];
    nodes.extend(middle);
    nodes.push(Node::new("DequantizeLinear", &[after, "s", "z"], "y"));
    nodes
}

#[test]
fn quantisation_passes_gradients_straight_through_where_nothing_is_clipped() {
    common::load_runtime();
    let byte = |dtype, v: u8| Tensor { dtype, shape: vec![], bytes: vec![v].into() };
    let scale = ("s", Tensor::f32(&[], &[0.1]));
    // Eight bits without sign around 128: -12.8 to 12.7.
    let constants = [scale.clone(), ("z", byte(DType::U8, 128))];
    let x = [-13.0, -12.8, 0.03, 12.7, 12.8, 99.0];
    let (_, g, grad) = gradient(quantised(None), &constants, &[6], &x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let close = |g: &[f32], expected: &[f32]| g.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(&g, &[0.0, 2.0, 3.0, 4.0, 0.0, 0.0]), "{g:?}");
    assert!(grad.notes.len() == 1 && grad.notes[0].straight_through, "{:?}", grad.notes);
    // With sign, through an operator that moves integers.
    let constants =
        [scale, ("z", byte(DType::I8, 0)), ("axes", Tensor::ints(&[0])), ("flip", Tensor::ints(&[-1]))];
    let ends = ("ends", Tensor::ints(&[i64::MIN]));
    let constants = [constants.as_slice(), &[ends]].concat();
    let flip = Node::new("Slice", &["q", "flip", "ends", "axes", "flip"], "moved");
    let (_, g, _) = gradient(quantised(Some(flip)), &constants, &[2], &[0.5, 20.0], &[1.0, 2.0]);
    assert!(close(&g, &[2.0, 0.0]), "{g:?}");
}

/// Values and gradients of tests/golden/quantise.json, by PyTorch's fake quantisation (tools/golden_quantise.py).
#[test]
fn quantisation_is_that_of_pytorch() {
    common::load_runtime();
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/quantise.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let numbers = |v: &serde_json::Value| -> Vec<f32> {
        v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    };
    let shape: Vec<i64> = numbers(&golden["shape"]).iter().map(|d| *d as i64).collect();
    let cases = golden["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 4);
    for (name, case) in cases {
        let [scale, zero, x, cotangent] = ["scale", "zero", "x", "cotangent"].map(|key| numbers(&case[key]));
        let [y, expected] = ["y", "gradient"].map(|key| numbers(&case[key]));
        let signed = case["low"].as_i64() == Some(-128);
        let n = if scale.len() == 1 { vec![] } else { vec![scale.len() as i64] };
        let zero: Vec<u8> = zero.iter().map(|z| if signed { *z as i8 as u8 } else { *z as u8 }).collect();
        let dtype = if signed { DType::I8 } else { DType::U8 };
        let zero = Tensor { dtype, shape: n.clone(), bytes: zero.into() };
        let constants = [("s", Tensor::f32(&n, &scale)), ("z", zero)];
        let (values, gradient, _) = gradient(quantised(None), &constants, &shape, &x, &cotangent);
        let close =
            |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
        assert!(close(&values, &y), "{name}: values");
        assert!(close(&gradient, &expected), "{name}: gradient");
    }
}

#[test]
fn computing_with_quantised_integers_is_refused() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![3].into() };
    let constants = [("s".to_string(), Tensor::f32(&[], &[0.1])), ("z".to_string(), byte)];
    let nodes = quantised(Some(Node::new("Max", &["q", "q"], "moved")));
    let mut graph = Graph::new(nodes, constants.into());
    graph.inputs.push(Value::new("x", DType::F32, &[2]));
    graph.outputs.push(Value::new("y", DType::F32, &[2]));
    let types = runtime::infer(&graph).unwrap();
    let refused = differentiate(&graph, &types, &["x"], false).unwrap_err();
    assert!(refused.to_string().contains("Max \"moved\": computes with quantised integers"), "{refused}");
}

#[test]
fn the_table_of_operators_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operators.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == audit::operators::table(true),
        "docs/operators.md is out of date: cargo run -- ops --markdown > docs/operators.md"
    );
}

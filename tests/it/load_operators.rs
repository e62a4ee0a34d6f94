//! Operators that are expanded at load, against ONNX Runtime's own kernels for them: graphs of one node,
//! random shapes and attributes. One side is the original file, the other the canonical graph; both run in
//! ONNX Runtime.

use crate::common::{CPU, Rng, says, words};
use audit::model::runtime::{self, Input, Optimise, Session};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Dim, Node, Tensor, Value};
use onnx_grad::operators::{self, Class};
use std::path::Path;

const CASES: u64 = 24;
/// Largest difference, as a share of the largest value: float32 sums in another order.
const TOLERANCE: f32 = 1e-5;

/// A graph of one node, its float inputs and their values.
struct Case {
    graph: Graph,
    points: Vec<Vec<f32>>,
    /// Largest change of a value by rounding to integers.
    step: f32,
}

fn case(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> Case {
    let mut node = Node::new(op, inputs, "");
    node.name = "node".into();
    node.domain = domain.into();
    node.outputs = outputs.iter().map(|o| o.to_string()).collect();
    let mut graph = Graph::new(vec![node], Default::default());
    graph.opsets = [(String::new(), 23), (MS.to_string(), 1), (ML.to_string(), 1)].into();
    graph.outputs = outputs
        .iter()
        .filter(|o| !o.is_empty())
        .map(|o| Value { name: o.to_string(), dtype: DType::Other(0), shape: None })
        .collect();
    Case { graph, points: vec![], step: 0.0 }
}

impl Case {
    fn opset(mut self, version: i64) -> Case {
        self.graph.opsets.insert(String::new(), version);
        self
    }
    fn with(mut self, name: &str, value: impl Into<Attr>) -> Case {
        self.graph.nodes[0].attrs.insert(name.into(), value.into());
        self
    }
    fn input(mut self, r: &mut Rng, name: &str, shape: &[i64]) -> Case {
        self.points.push((0..shape.iter().product::<i64>()).map(|_| r.normal()).collect());
        self.graph.inputs.push(Value::new(name, DType::F32, shape));
        self
    }
    fn weights(self, r: &mut Rng, name: &str, shape: &[i64]) -> Case {
        let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| r.normal()).collect();
        self.constant(name, Tensor::f32(shape, &values))
    }
    fn when(self, yes: bool, then: impl FnOnce(Case) -> Case) -> Case {
        if yes { then(self) } else { self }
    }
    fn constant(mut self, name: &str, t: Tensor) -> Case {
        self.graph.constants.insert(name.into(), t);
        self
    }
}

fn bools(shape: &[i64], values: &[bool]) -> Tensor {
    Tensor { dtype: DType::Bool, shape: shape.to_vec(), bytes: values.iter().map(|&b| b as u8).collect() }
}

fn run(graph: &Graph, case: &Case) -> Vec<Vec<f32>> {
    let mut session = Session::new(graph, CPU, Optimise::Off).unwrap();
    let inputs = &case.graph.inputs;
    let known = |d: &Dim| if let Dim::Known(n) = d { *n } else { 0 };
    let shapes: Vec<Vec<i64>> =
        inputs.iter().map(|i| i.shape.iter().flatten().map(known).collect()).collect();
    let mut feed: Vec<(&str, Input)> = Vec::new();
    for ((input, shape), values) in inputs.iter().zip(&shapes).zip(&case.points) {
        feed.push((&input.name, Input::Host(shape, values)));
    }
    let names: Vec<&str> = case.graph.outputs.iter().map(|o| o.name.as_str()).collect();
    session.run(&feed, &names).unwrap().iter().map(|h| h.floats().unwrap().1.to_vec()).collect()
}

fn decode(graph: &Graph) -> audit::Result<Graph> {
    Graph::decode(graph.encode().into(), Path::new("test.onnx")).map_err(audit::model::refused)
}

fn check(name: &str, make: &dyn Fn(&mut Rng) -> Case) {
    for seed in 0..CASES {
        let case = make(&mut Rng::new(seed));
        let node = &case.graph.nodes[0];
        let canonical = decode(&case.graph).unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        let ours = runtime::specialise(&canonical).unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        assert!(
            ours.nodes.iter().all(|n| n.domain.is_empty() && !matches!(n.op.as_str(), "Shape" | "Range")),
            "{name}, seed {seed}: left after specialising: {:?}",
            ours.nodes.iter().map(Node::label).collect::<Vec<_>>()
        );
        for ((a, b), out) in run(&ours, &case).iter().zip(run(&case.graph, &case)).zip(&case.graph.outputs) {
            let scale = b.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
            let off = a.iter().zip(&b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
            assert_eq!(a.len(), b.len(), "{name}, seed {seed}, {}: {:?}", out.name, node.attrs);
            assert!(
                off <= (TOLERANCE * scale).max(1.001 * case.step),
                "{name}, seed {seed}, output {}: off by {off} of {scale}; attributes {:?}, inputs {:?}",
                out.name,
                node.attrs,
                case.graph.inputs
            );
        }
    }
}

const MS: &str = "com.microsoft";
const ML: &str = "ai.onnx.ml";

fn attention(r: &mut Rng) -> Case {
    let (kv, each) = (r.int(1, 3), r.pick(&[1, 1, 2, 3]));
    let (b, s, size) = (r.int(1, 2), r.int(1, 6), r.int(1, 5));
    let (t, v_size) = (if r.bool() { s } else { r.int(1, 6) }, if r.bool() { size } else { r.int(1, 5) });
    let n = kv * each;
    let mask = r.int(0, 3);
    // Keys and values of earlier steps.
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let mut inputs = vec!["q", "k", "v", if mask > 0 { "mask" } else { "" }];
    if past > 0 {
        inputs.extend(["pk", "pv"]);
    }
    let outputs: &[&str] = match past {
        0 if r.bool() => &["y"],
        0 => &["y", "", "", "qk"],
        _ => &["y", "k2", "v2"],
    };
    let mut c = case("", "Attention", &inputs, outputs);
    c = if r.bool() {
        c.input(r, "q", &[b, s, n * size])
            .input(r, "k", &[b, t, kv * size])
            .input(r, "v", &[b, t, kv * v_size])
            .with("q_num_heads", n)
            .with("kv_num_heads", kv)
    } else {
        c.input(r, "q", &[b, n, s, size]).input(r, "k", &[b, kv, t, size]).input(r, "v", &[b, kv, t, v_size])
    };
    if past > 0 {
        c = c.input(r, "pk", &[b, kv, past, size]).input(r, "pv", &[b, kv, past, v_size]);
    }
    let t = past + t;
    let shape = [b, n, s, t];
    let cut = r.int(0, 2) as usize;
    let mut shape: Vec<i64> = shape[cut..].to_vec();
    if shape.len() == 4 && r.bool() {
        shape[1] = 1;
    }
    let count = shape.iter().product::<i64>();
    c = match mask {
        1 => {
            // Every query sees at least its first key.
            let seen: Vec<bool> = (0..count).map(|i| i % t == 0 || r.bool()).collect();
            c.constant("mask", bools(&shape, &seen))
        }
        2 => c.input(r, "mask", &shape),
        3 => c.weights(r, "mask", &shape),
        _ => c,
    };
    c = c.when(r.bool(), |c| c.with("is_causal", 1));
    c = c.when(r.bool(), |c| c.with("scale", 0.1 + r.unit()));
    c.when(r.bool(), |c| c.with("softcap", 0.5 + 3.0 * r.unit()))
}

fn rotary(r: &mut Rng) -> Case {
    let (b, n, s, half) = (r.int(1, 2), r.int(1, 3), r.int(1, 4), r.int(1, 3));
    let positions = r.bool();
    let inputs: &[&str] = if positions { &["x", "cos", "sin", "at"] } else { &["x", "cos", "sin"] };
    let mut c = case("", "RotaryEmbedding", inputs, &["y"]);
    let flat = r.bool();
    // ONNX Runtime's kernel takes partial rotations only with the number of heads.
    let partial = flat && r.bool();
    let size = if partial { 2 * half + 2 } else { 2 * half };
    c = if flat {
        c.input(r, "x", &[b, s, n * size]).with("num_heads", n)
    } else {
        c.input(r, "x", &[b, n, s, size])
    };
    c = c.when(partial, |c| c.with("rotary_embedding_dim", 2 * half));
    c = c.when(r.bool(), |c| c.with("interleaved", 1));
    if positions {
        let at: Vec<i64> = (0..b * s).map(|_| r.int(0, 7)).collect();
        c = c.constant("at", Tensor::i64(&[b, s], &at));
        c.weights(r, "cos", &[8, half]).weights(r, "sin", &[8, half])
    } else {
        c.weights(r, "cos", &[b, s, half]).weights(r, "sin", &[b, s, half])
    }
}

/// int32 mask of keys "m" of `b` items, `s` queries and `t` keys, in one of its forms: a number of keys, that
/// and the first key, a value for each key, or for each query and key. Each query sees a key.
/// MultiHeadAttention has, instead of first keys, sums of lengths behind the numbers of keys, which the
/// kernel doesn't read.
fn key_mask(r: &mut Rng, c: Case, b: i64, s: i64, t: i64) -> Case {
    let ends: Vec<i32> = (0..b).map(|_| r.int(1, t) as i32).collect();
    let starts: Vec<i32> = ends.iter().map(|end| r.int(0, i64::from(*end) - 1) as i32).collect();
    let mut rows = |count: i64| -> Vec<i32> {
        let row = |r: &mut Rng| {
            let shown = r.int(0, t - 1);
            (0..t).map(|at| i32::from(at == shown || r.bool())).collect::<Vec<_>>()
        };
        (0..count).flat_map(|_| row(r)).collect()
    };
    let (keys, pairs) = (rows(b), rows(b * s));
    let (shape, values) = match r.int(0, 3) {
        0 => (vec![b], ends),
        1 if c.graph.nodes[0].op == "Attention" => (vec![2 * b], [ends, starts].concat()),
        1 => (vec![3 * b + 2], [ends, vec![0; 2 * b as usize + 2]].concat()),
        2 => (vec![b, t], keys),
        _ => (vec![b, s, t], pairs),
    };
    let mask = Tensor { shape, ..int32(&values) };
    c.constant("m", mask).when(r.bool(), |c| c.with("mask_filter_value", -5_000.0f32))
}

fn packed_attention(r: &mut Rng) -> Case {
    let (b, s, width, n, size) = (r.int(1, 2), r.int(1, 5), r.int(1, 6), r.int(1, 3), r.int(1, 4));
    // Keys and values of earlier steps, of which the kernel requires one size.
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let own_v = past == 0 && r.bool();
    let v = if own_v { r.int(1, 4) } else { size };
    // The kernel takes no bias beside a past.
    let (biased, masked) = (past == 0 && r.bool(), r.bool());
    let (mask, before) = (if masked { "m" } else { "" }, if past > 0 { "past" } else { "" });
    let inputs = ["x", "w", "b", mask, before, if biased { "bias" } else { "" }];
    let total = n * (2 * size + v);
    let outputs: &[&str] = if past > 0 { &["y", "present"] } else { &["y"] };
    let mut c = case(MS, "Attention", &inputs, outputs)
        .input(r, "x", &[b, s, width])
        .weights(r, "w", &[width, total])
        .weights(r, "b", &[total])
        .with("num_heads", n);
    c = c.when(own_v, |c| c.with("qkv_hidden_sizes", vec![n * size, n * size, n * v]));
    c = c.when(past > 0, |c| c.input(r, "past", &[2, b, n, past, size]));
    c = if masked { key_mask(r, c, b, s, past + s) } else { c };
    if biased {
        let shape = [if r.bool() { b } else { 1 }, if r.bool() { n } else { 1 }, s, past + s];
        c = c.input(r, "bias", &shape);
    }
    // If a mask leaves a query none of the keys up to its own, kernels differ.
    c = c.when(!masked && r.bool(), |c| c.with("unidirectional", 1));
    c.when(r.bool(), |c| c.with("scale", 0.1 + r.unit()))
}

fn multi_head(r: &mut Rng) -> Case {
    let (b, s, t, n, size, v) =
        (r.int(1, 2), r.int(1, 5), r.int(1, 5), r.int(1, 3), r.int(1, 4), r.int(1, 4));
    let (bias, added, masked) = (r.bool(), r.bool(), r.bool());
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let v = if past > 0 { size } else { v };
    let mut names = vec!["q", "k", "v", if bias { "b" } else { "" }, if masked { "m" } else { "" }];
    names.push(if added { "bias" } else { "" });
    names.extend(if past > 0 { vec!["pk", "pv"] } else { vec![] });
    let outputs: &[&str] = match r.int(0, 2) {
        _ if past > 0 => &["y", "k2", "v2"],
        0 => &["y", "", "", "qk"],
        _ => &["y"],
    };
    let mut c = case(MS, "MultiHeadAttention", &names, outputs)
        .input(r, "q", &[b, s, n * size])
        .input(r, "k", &[b, t, n * size])
        .input(r, "v", &[b, t, n * v])
        .with("num_heads", n);
    // The type of the scores isn't inferred.
    c.graph.outputs.iter_mut().for_each(|out| out.dtype = DType::F32);
    c = c.when(bias, |c| c.weights(r, "b", &[n * (2 * size + v)]));
    c = c.when(past > 0, |c| c.input(r, "pk", &[b, n, past, size]).input(r, "pv", &[b, n, past, v]));
    c = if masked { key_mask(r, c, b, s, past + t) } else { c };
    if added {
        let shape = [if r.bool() { b } else { 1 }, if r.bool() { n } else { 1 }, s, past + t];
        c = c.input(r, "bias", &shape);
    }
    // In the scores the kernel has the lowest float, and not −∞, for a key that isn't seen.
    let plain = s == t && !masked && outputs.len() < 4;
    c.when(plain && r.bool(), |c| c.with("unidirectional", 1))
}

fn rms(r: &mut Rng, op: &'static str) -> Case {
    let shape: Vec<i64> = (0..r.int(2, 4)).map(|_| r.int(1, 5)).collect();
    let rank = shape.len() as i64;
    // ONNX Runtime's own operator supports the last axis only.
    let axis = if op == "RMSNormalization" { r.int(0, rank - 1) } else { rank - 1 };
    let c = case("", op, &["x", "scale"], &["y"])
        .input(r, "x", &shape)
        .weights(r, "scale", &shape[axis as usize..])
        .with("axis", if r.bool() { axis } else { axis - rank });
    c.when(r.bool(), |c| c.with("epsilon", 0.01))
}

fn skip(r: &mut Rng, op: &'static str) -> Case {
    let (b, s, d) = (r.int(1, 3), r.int(1, 4), r.int(2, 6));
    let plain = op == "SkipLayerNormalization";
    let bias = r.bool();
    let mut inputs = vec!["x", "skip", "gamma"];
    inputs.extend(plain.then_some("beta"));
    inputs.extend(bias.then_some("bias"));
    let outputs: &[&str] = if r.bool() { &["y"] } else { &["y", "", "", "sum"] };
    let mut c = case(MS, op, &inputs, outputs)
        .input(r, "x", &[b, s, d])
        .input(r, "skip", &[b, s, d])
        .weights(r, "gamma", &[d])
        .with("epsilon", 1e-3);
    c = c.when(plain, |c| c.weights(r, "beta", &[d]));
    c.when(bias, |c| c.weights(r, "bias", &[d]))
}

fn group(r: &mut Rng) -> Case {
    let (groups, each) = (r.int(1, 3), r.int(1, 3));
    let x = [2, groups * each, r.int(1, 4), r.int(2, 4)];
    let old = r.bool();
    let width = [if old { groups } else { x[1] }];
    case("", "GroupNormalization", &["x", "scale", "bias"], &["y"])
        .opset(if old { 18 } else { 21 })
        .input(r, "x", &x)
        .weights(r, "scale", &width)
        .weights(r, "bias", &width)
        .with("num_groups", groups)
        .with("epsilon", 0.01)
}

fn fused_conv(r: &mut Rng) -> Case {
    let (group, per_in, per_out) = (r.int(1, 2), r.int(1, 2), r.int(1, 2));
    let sum = r.bool();
    let stride = r.int(1, 2);
    let x = [2, group * per_in, 6, 7];
    let inputs: &[&str] = if sum { &["x", "w", "b", "z"] } else { &["x", "w"] };
    let mut c = case(MS, "FusedConv", inputs, &["y"])
        .input(r, "x", &x)
        .weights(r, "w", &[group * per_out, per_in, 3, 3])
        .with("group", group)
        .with("strides", vec![stride, stride])
        .with("pads", vec![1, 0, 1, 0]);
    if sum {
        let y = [2, group * per_out, (6 - 1) / stride + 1, (7 - 3) / stride + 1];
        c = c.weights(r, "b", &[group * per_out]).input(r, "z", &y);
    }
    activation(r, c, true)
}

fn activation(r: &mut Rng, c: Case, listed: bool) -> Case {
    let op = r.pick(&["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"]);
    // The product's kernel has no Clip, and the convolution's no Selu.
    let op = if op == "Clip" && !listed { "Selu" } else { op };
    let (a, b) = (0.1 + 0.2 * r.unit(), 0.5 + 0.2 * r.unit());
    let c = c.with("activation", op);
    match (op, listed) {
        ("LeakyRelu", true) => c.with("activation_params", vec![a]),
        ("HardSigmoid" | "Clip", true) => c.with("activation_params", vec![a, b]),
        ("LeakyRelu", false) => c.with("activation_alpha", a),
        ("HardSigmoid", false) => c.with("activation_alpha", a).with("activation_beta", b),
        ("Selu", false) => c.with("activation_alpha", a).with("activation_gamma", b),
        _ => c,
    }
}

fn fused_gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "FusedGemm", &["a", "b", "c"], &["y"])
        .input(r, "a", &[k, m])
        .weights(r, "b", &[k, n])
        .weights(r, "c", &[n])
        .with("transA", 1)
        .with("alpha", 0.5 + r.unit())
        .with("beta", 0.5 + r.unit());
    activation(r, c, false)
}

fn fused_matmul(r: &mut Rng, op: &'static str) -> Case {
    let lead: Vec<i64> = (0..r.int(0, 2)).map(|_| r.int(1, 3)).collect();
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let mut side = |[rows, columns]: [i64; 2]| {
        let older = op == "TransposeMatMul";
        let (across, first) = (r.bool(), !older && !lead.is_empty() && r.bool());
        let [rows, columns] = if across { [columns, rows] } else { [rows, columns] };
        let shape = match first {
            true => [&[rows], lead.as_slice(), &[columns]].concat(),
            false => [lead.as_slice(), &[rows, columns]].concat(),
        };
        (shape, i64::from(across), i64::from(first))
    };
    let ((a, ta, first_a), (b, tb, first_b)) = (side([m, k]), side([k, n]));
    let c = case(MS, op, &["a", "b"], &["y"]).input(r, "a", &a).input(r, "b", &b);
    let c = c.with("transA", ta).with("transB", tb);
    let c = c.when(first_a + first_b > 0, |c| c.with("transBatchA", first_a).with("transBatchB", first_b));
    c.with("alpha", if r.bool() { 1.0 } else { 0.3 })
}

fn gelu(r: &mut Rng, op: &'static str, bias: bool) -> Case {
    let shape = [r.int(1, 3), r.int(1, 3), r.int(1, 6)];
    let bias = bias && (op == "BiasGelu" || r.bool());
    let mut c = case(MS, op, if bias { &["x", "b"] } else { &["x"] }, &["y"]).input(r, "x", &shape);
    c = c.when(bias, |c| c.weights(r, "b", &shape[2..]));
    c.when(op == "QuickGelu" && r.bool(), |c| c.with("alpha", 0.5 + r.unit()))
}

fn swish(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 6)];
    let c = case("", "Swish", &["x"], &["y"]).opset(24).input(r, "x", &shape);
    if r.bool() { c.with("alpha", 0.5 + r.unit()) } else { c }
}

/// Quantises the inputs, applies an operator to integers and dequantises its result. `inputs` names the
/// operator's inputs, in order: x, a and b are the quantised inputs; s… and z… scales and zero points; the
/// others are constants of `case`. `float` says that the operator's result is float.
fn on_integers(r: &mut Rng, mut c: Case, quantised: &[(&str, &[i64])], float: bool) -> Case {
    let byte = |v: i64| Tensor { dtype: DType::U8, shape: vec![], bytes: vec![v as u8].into() };
    let op = c.graph.nodes.pop().unwrap();
    for (name, shape) in quantised {
        c = c.input(r, &format!("{name}_float"), shape);
        let (s, z) = (format!("s{name}"), format!("z{name}"));
        c.graph.nodes.push(Node::new("QuantizeLinear", &[&format!("{name}_float"), &s, &z], name));
        c = c.constant(&s, Tensor::f32(&[], &[0.013 + 0.02 * r.unit()])).constant(&z, byte(r.int(110, 140)));
    }
    c.graph.nodes.push(op);
    if float {
        return c;
    }
    // One step of rounding, if the sum lies between two integers.
    c.step = 0.02 + 0.03 * r.unit();
    let out = c.graph.nodes.last_mut().unwrap();
    out.outputs = vec!["q".into()];
    c.graph.nodes.push(Node::new("DequantizeLinear", &["q", "sy", "zy"], "y"));
    let step = c.step;
    c.constant("sy", Tensor::f32(&[], &[step])).constant("zy", byte(r.int(110, 140)))
}

fn weights_of_bytes(r: &mut Rng, shape: &[i64]) -> Tensor {
    let bytes = (0..shape.iter().product()).map(|_| r.int(0, 255) as u8).collect();
    Tensor { dtype: DType::U8, shape: shape.to_vec(), bytes }
}

fn int32(values: &[i32]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { dtype: DType::I32, shape: vec![values.len() as i64], bytes }
}

/// Scale and zero point of constant weights w.
fn with_weights(r: &mut Rng, c: Case, shape: &[i64]) -> Case {
    let weights = weights_of_bytes(r, shape);
    let zero = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![r.int(100, 150) as u8].into() };
    c.constant("w", weights).constant("sw", Tensor::f32(&[], &[0.004])).constant("zw", zero)
}

fn q_conv(r: &mut Rng) -> Case {
    let (n, channels, m) = (r.int(1, 2), r.int(1, 3), r.int(1, 3));
    let bias: Vec<i32> = (0..m).map(|_| r.int(-3000, 3000) as i32).collect();
    let c = case("", "QLinearConv", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"], &["y"]);
    let c = with_weights(r, c, &[m, channels, 3, 3])
        .constant("bias", int32(&bias))
        .with("pads", vec![1, 1, 1, 1]);
    on_integers(r, c, &[("x", &[n, channels, 4, 5])], false)
}

/// ONNX Runtime's own form, for images with channels last.
fn own_q_conv(r: &mut Rng) -> Case {
    let (n, channels, m) = (r.int(1, 2), r.int(1, 3), r.int(1, 3));
    let last = r.bool();
    let x = if last { [n, 4, 5, channels] } else { [n, channels, 4, 5] };
    let c = case(MS, "QLinearConv", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[m, channels, 3, 3])
        .with("kernel_shape", vec![3, 3])
        .with("pads", vec![1, 0, 1, 0])
        .with("channels_last", i64::from(last));
    on_integers(r, c, &[("x", &x)], false)
}

fn nhwc_max_pool(r: &mut Rng) -> Case {
    let shape = [r.int(1, 2), r.int(2, 5), r.int(2, 5), r.int(1, 3)];
    let mut c = case(MS, "NhwcMaxPool", &["x"], &["q"])
        .with("kernel_shape", vec![2, 2])
        .with("strides", vec![1, r.int(1, 2)]);
    c.graph.outputs[0].name = "y".into();
    let mut c = on_integers(r, c, &[("x", &shape)], true);
    c.graph.nodes.push(Node::new("DequantizeLinear", &["q", "sx", "zx"], "y"));
    c
}

fn gated_add(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 4), r.int(1, 5)];
    let c = case(MS, "GatedAdd", &["x", "z", "gate"], &["y"]).input(r, "x", &shape).input(r, "z", &shape);
    c.input(r, "gate", &[shape[0], shape[1], 1])
}

fn scaled_silu(r: &mut Rng) -> Case {
    let scaled = r.bool();
    let c = case(MS, "ScaledSiLU", if scaled { &["x", "s"] } else { &["x"] }, &["y"]);
    let shape = [r.int(1, 3), r.int(1, 6)];
    let c = c.input(r, "x", &shape).with("alpha", 0.5 + r.unit());
    c.when(scaled, |c| c.constant("s", Tensor::f32(&[], &[1.7])))
}

fn q_matmul(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case("", "QLinearMatMul", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[k, n]);
    on_integers(r, c, &[("x", &[m, k])], false)
}

fn q_gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let bias: Vec<i32> = (0..n).map(|_| r.int(-3000, 3000) as i32).collect();
    let c = case(MS, "QGemm", &["x", "sx", "zx", "w", "sw", "zw", "bias", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[n, k]).constant("bias", int32(&bias)).with("transB", 1);
    on_integers(r, c, &[("x", &[m, k])], false)
}

fn q_two(r: &mut Rng, op: &'static str) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let c = case(MS, op, &["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], &["y"]);
    on_integers(r, c, &[("a", &shape), ("b", &shape)], false)
}

fn q_one(r: &mut Rng, op: &'static str) -> Case {
    let shape = [r.int(1, 2), r.int(2, 4), r.int(2, 5), r.int(2, 5)];
    let mut c = case(MS, op, &["x", "sx", "zx", "sy", "zy"], &["y"]);
    c = match op {
        "QLinearAveragePool" => c
            .with("kernel_shape", vec![2, 2])
            .with("strides", vec![1, 1])
            .with("channels_last", i64::from(r.bool())),
        "QLinearGlobalAveragePool" => c.with("channels_last", i64::from(r.bool())),
        "QLinearLeakyRelu" => c.with("alpha", 0.3f32),
        "QLinearSoftmax" if r.bool() => c.with("axis", r.int(1, 3)).with("opset", 12),
        "QLinearSoftmax" => c.with("axis", -1).with("opset", 13),
        _ => c,
    };
    on_integers(r, c, &[("x", &shape)], false)
}

fn q_concat(r: &mut Rng) -> Case {
    let (n, k) = (r.int(1, 3), r.int(1, 4));
    let c =
        case(MS, "QLinearConcat", &["sy", "zy", "a", "sa", "za", "b", "sb", "zb"], &["y"]).with("axis", 1);
    on_integers(r, c, &[("a", &[n, k, 2]), ("b", &[n, 3, 2])], false)
}

fn q_to_float(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "MatMulIntegerToFloat", &["x", "w", "sx", "sw", "zx", "zw", "bias"], &["y"]);
    let c = with_weights(r, c, &[k, n]).weights(r, "bias", &[n]);
    on_integers(r, c, &[("x", &[m, k])], true)
}

fn q_dynamic(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "DynamicQuantizeMatMul", &["x", "w", "sw", "zw", "bias"], &["y"]).input(r, "x", &[m, k]);
    with_weights(r, c, &[k, n]).weights(r, "bias", &[n])
}

/// The pair of com.microsoft with nothing in between.
fn q_pair(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let mut c = case(MS, "QuantizeLinear", &["x", "s", "z"], &["q"]).input(r, "x", &shape);
    let mut back = Node::new("DequantizeLinear", &["q", "s", "z"], "y");
    back.domain = MS.into();
    c.graph.nodes.push(back);
    c.graph.outputs[0].name = "y".into();
    let zero = Tensor { dtype: DType::U16, shape: vec![], bytes: 30000u16.to_le_bytes().to_vec().into() };
    c.constant("s", Tensor::f32(&[], &[0.001])).constant("z", zero)
}

fn matmul_bits(r: &mut Rng) -> Case {
    let (m, n, k, block) = (r.int(1, 3), r.int(1, 4), 4 * r.int(1, 20), r.pick(&[16, 32]));
    let bits = r.pick(&[2, 4, 8]);
    let (blocks, per_byte) = ((k + block - 1) / block, 8 / bits);
    let mut bytes = |count: i64| -> Vec<u8> { (0..count).map(|_| r.int(0, 255) as u8).collect() };
    let (weights, zeros) =
        (bytes(n * blocks * block / per_byte), bytes(n * ((blocks + per_byte - 1) / per_byte)));
    let tensor = |shape: Vec<i64>, bytes: Vec<u8>| Tensor { dtype: DType::U8, shape, bytes: bytes.into() };
    let zeros = tensor(vec![n, zeros.len() as i64 / n], zeros);
    // Columns in another order than the groups that share a scale; the kernel supports it for 4 bits and
    // whole blocks.
    let sorted = bits == 4 && k % block == 0 && r.bool();
    let groups: Vec<i32> = (0..k).map(|_| r.int(0, blocks - 1) as i32).collect();
    let (with_zeros, g) = (r.bool(), if sorted { "g" } else { "" });
    case(MS, "MatMulNBits", &["x", "w", "s", if with_zeros { "z" } else { "" }, g], &["y"])
        .input(r, "x", &[2, m, k])
        .constant("w", tensor(vec![n, blocks, block / per_byte], weights))
        .weights(r, "s", &[n, blocks])
        .when(with_zeros, |c| c.constant("z", zeros))
        .when(sorted, |c| c.constant("g", int32(&groups)))
        .with("K", k)
        .with("N", n)
        .with("bits", bits)
        .with("block_size", block)
}

fn own_grid_sample(r: &mut Rng) -> Case {
    case(MS, "GridSample", &["x", "grid"], &["y"])
        .input(r, "x", &[2, 2, 4, 5])
        .input(r, "grid", &[2, 3, 2, 2])
        .with("mode", r.pick(&["bilinear", "nearest", "bicubic"]))
        .with("padding_mode", r.pick(&["zeros", "border", "reflection"]))
        .with("align_corners", r.int(0, 1))
}

fn own_trilu(r: &mut Rng) -> Case {
    case(MS, "Trilu", &["x"], &["y"]).input(r, "x", &[2, 3, 4]).with("upper", r.int(0, 1))
}

fn expand_dims(r: &mut Rng) -> Case {
    let axis = Tensor { shape: vec![], ..int32(&[r.int(-3, 2) as i32]) };
    case(MS, "ExpandDims", &["x", "axis"], &["y"]).input(r, "x", &[2, 3]).constant("axis", axis)
}

fn distances(r: &mut Rng) -> Case {
    let (m, n, d) = (r.int(1, 4), r.int(1, 4), r.int(1, 5));
    case(MS, "CDist", &["a", "b"], &["y"])
        .input(r, "a", &[m, d])
        .input(r, "b", &[n, d])
        .with("metric", r.pick(&["euclidean", "sqeuclidean"]))
}

fn conv_transpose(r: &mut Rng) -> Case {
    let (n, c, m, stride) = (r.int(1, 2), r.int(1, 3), r.int(1, 3), r.int(1, 2));
    let pads: Vec<i64> = (0..4).map(|_| r.int(0, 1)).collect();
    case(MS, "ConvTransposeWithDynamicPads", &["x", "w", "pads", "b"], &["y"])
        .input(r, "x", &[n, c, 3, 4])
        .weights(r, "w", &[c, m, 3, 3])
        .weights(r, "b", &[m])
        .constant("pads", Tensor::ints(&pads))
        .with("strides", vec![stride, stride])
}

fn own_gather_nd(r: &mut Rng) -> Case {
    let at: Vec<i32> = (0..3).flat_map(|_| [r.int(0, 1) as i32, r.int(0, 3) as i32]).collect();
    let at = Tensor { shape: vec![3, 2], ..int32(&at) };
    case(MS, "GatherND", &["x", "at"], &["y"]).input(r, "x", &[2, 4, 3]).constant("at", at)
}

fn linear_attention(r: &mut Rng) -> Case {
    let (b, t, heads, each) = (r.int(1, 2), r.int(1, 5), r.int(1, 2), r.int(1, 2));
    let (keys, values) = (r.int(1, 4), r.int(1, 4));
    let rule = r.pick(&["linear", "gated", "delta", "gated_delta"]);
    let past = r.bool();
    let (gated, delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    let given = |yes: bool, name: &'static str| if yes { name } else { "" };
    let names = ["q", "k", "v", given(past, "past"), given(gated, "g"), given(delta, "beta")];
    let scale = if r.bool() { 0.0 } else { 0.1 + r.unit() };
    let mut c = case(MS, "LinearAttention", &names, &["y", "state"])
        .input(r, "q", &[b, t, heads * each * keys])
        .input(r, "k", &[b, t, heads * keys])
        .input(r, "v", &[b, t, heads * values])
        .with("q_num_heads", heads * each)
        .with("kv_num_heads", heads)
        .with("update_rule", rule)
        .with("scale", scale);
    if past {
        c = c.input(r, "past", &[b, heads, keys, values]);
    }
    if gated {
        let width = if r.bool() { heads } else { heads * keys };
        c = c.input(r, "g", &[b, t, width]);
    }
    if delta {
        c = c.input(r, "beta", &[b, t, heads]);
    }
    c
}

fn own_pad(r: &mut Rng) -> Case {
    let pads: Vec<i64> = (0..6).map(|_| r.int(0, 1)).collect();
    let mode = r.pick(&["constant", "edge", "reflect"]);
    let valued = mode == "constant" && r.bool();
    let inputs: &[&str] = if valued { &["x", "pads", "v"] } else { &["x", "pads"] };
    case(MS, "Pad", inputs, &["y"])
        .input(r, "x", &[2, 3, 4])
        .constant("pads", Tensor::ints(&pads))
        .when(valued, |c| c.constant("v", Tensor::f32(&[1], &[0.7])))
        .with("mode", mode)
}

fn q_attention(r: &mut Rng) -> Case {
    let (b, s, width, n, size) = (r.int(1, 2), r.int(1, 4), r.int(1, 5), r.int(1, 3), r.int(1, 3));
    let c = case(MS, "QAttention", &["x", "w", "b", "sx", "sw", "", "zx", "zw"], &["y"])
        .weights(r, "b", &[3 * n * size])
        .with("num_heads", n);
    let c = c.when(r.bool(), |c| c.with("unidirectional", 1));
    let c = with_weights(r, c, &[width, 3 * n * size]);
    on_integers(r, c, &[("x", &[b, s, width])], true)
}

fn q_where(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let seen: Vec<bool> = (0..shape[0] * shape[1]).map(|_| r.bool()).collect();
    let c = case(MS, "QLinearWhere", &["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"], &["y"])
        .constant("c", bools(&shape, &seen));
    on_integers(r, c, &[("a", &shape), ("b", &shape)], false)
}

fn own_rotary(r: &mut Rng) -> Case {
    let (b, n, s, half) = (r.int(1, 2), r.int(1, 3), r.int(1, 4), r.int(1, 3));
    let (flat, stated) = (r.bool(), r.bool());
    let partial = flat && stated && r.bool();
    let size = if partial { 2 * half + 2 } else { 2 * half };
    let shape = if flat { vec![b, s, n * size] } else { vec![b, n, s, size] };
    let at = match r.bool() {
        true => Tensor::i64(&[1], &[r.int(0, 4)]),
        false => Tensor::i64(&[b, s], &(0..b * s).map(|_| r.int(0, 7)).collect::<Vec<_>>()),
    };
    case(MS, "RotaryEmbedding", &["x", "at", "cos", "sin"], &["y"])
        .input(r, "x", &shape)
        .constant("at", at)
        .weights(r, "cos", &[8, half])
        .weights(r, "sin", &[8, half])
        .when(stated, |c| c.with("num_heads", n))
        .when(partial, |c| c.with("rotary_embedding_dim", 2 * half))
        .when(r.bool(), |c| c.with("interleaved", 1))
}

fn unfold(r: &mut Rng) -> Case {
    case(MS, "UnfoldTensor", &["x"], &["y"])
        .input(r, "x", &[3, 5, 4])
        .with("dim", r.pick(&[-1i64, -2, 0, 1, 2]))
        .with("size", r.int(1, 3))
        .with("step", r.int(1, 2))
}

fn features(r: &mut Rng, op: &'static str) -> Case {
    let (inputs, places): (&[&str], _) =
        if op == "ArrayFeatureExtractor" { (&["x", "at"], r.int(1, 6)) } else { (&["x"], 1) };
    let c = case(ML, op, inputs, &["y"]).input(r, "x", &[3, 4]);
    match op {
        "ArrayFeatureExtractor" => {
            let at: Vec<i64> = (0..places).map(|_| r.int(0, 3)).collect();
            c.constant("at", Tensor::i64(&[1, places], &at))
        }
        "Binarizer" => c.with("threshold", r.normal()),
        "Normalizer" => c.with("norm", r.pick(&["MAX", "L1", "L2"])),
        _ => {
            let each = r.pick(&[1, 4]);
            let values = |r: &mut Rng| -> Vec<f32> { (0..each).map(|_| r.normal()).collect() };
            c.with("offset", Attr::Floats(values(r))).with("scale", Attr::Floats(values(r)))
        }
    }
}

/// x · (whether x is present), through an optional.
fn optional(r: &mut Rng) -> Case {
    let mut c = case("", "Optional", &["x"], &["o"]).input(r, "x", &[2, 3]).opset(21);
    c.graph.nodes.extend([
        Node::new("OptionalGetElement", &["o"], "value"),
        Node::new("OptionalHasElement", &["o"], "there"),
        Node::new("Cast", &["there"], "factor").with("to", i64::from(DType::F32.code())),
        Node::new("Mul", &["value", "factor"], "y"),
    ]);
    c.graph.outputs[0].name = "y".into();
    c
}

/// Makes a case of an operator.
type Make = fn(&mut Rng, &'static str) -> Case;

/// A domain, operators of it with one generator, and the generator.
const CASES_OF: &[(&str, &str, Make)] = &[
    ("", "Attention", |r, _| attention(r)),
    ("", "GroupNormalization", |r, _| group(r)),
    ("", "Optional OptionalGetElement OptionalHasElement", |r, _| optional(r)),
    ("", "QLinearConv", |r, _| q_conv(r)),
    ("", "QLinearMatMul", |r, _| q_matmul(r)),
    ("", "RMSNormalization SimplifiedLayerNormalization", rms),
    ("", "RotaryEmbedding", |r, _| rotary(r)),
    ("", "Swish", |r, _| swish(r)),
    (ML, "ArrayFeatureExtractor Binarizer Normalizer Scaler", features),
    (MS, "Attention", |r, _| packed_attention(r)),
    (MS, "BiasGelu FastGelu", |r, op| gelu(r, op, true)),
    (MS, "Gelu QuickGelu", |r, op| gelu(r, op, false)),
    (MS, "CDist", |r, _| distances(r)),
    (MS, "ConvTransposeWithDynamicPads", |r, _| conv_transpose(r)),
    (MS, "QuantizeLinear DequantizeLinear", |r, _| q_pair(r)),
    (MS, "DynamicQuantizeMatMul", |r, _| q_dynamic(r)),
    (MS, "ExpandDims", |r, _| expand_dims(r)),
    (MS, "FusedConv", |r, _| fused_conv(r)),
    (MS, "FusedGemm", |r, _| fused_gemm(r)),
    (MS, "FusedMatMul TransposeMatMul", fused_matmul),
    (MS, "GatherND", |r, _| own_gather_nd(r)),
    (MS, "GatedAdd", |r, _| gated_add(r)),
    (MS, "GridSample", |r, _| own_grid_sample(r)),
    (MS, "LinearAttention", |r, _| linear_attention(r)),
    (MS, "MatMulIntegerToFloat", |r, _| q_to_float(r)),
    (MS, "MatMulNBits", |r, _| matmul_bits(r)),
    (MS, "MultiHeadAttention", |r, _| multi_head(r)),
    (MS, "NhwcMaxPool", |r, _| nhwc_max_pool(r)),
    (MS, "Pad", |r, _| own_pad(r)),
    (MS, "QAttention", |r, _| q_attention(r)),
    (MS, "QGemm", |r, _| q_gemm(r)),
    (MS, "QLinearAdd QLinearMul", q_two),
    (MS, "QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearSigmoid QLinearSoftmax", q_one),
    (MS, "QLinearConcat", |r, _| q_concat(r)),
    (MS, "QLinearConv", |r, _| own_q_conv(r)),
    (MS, "QLinearWhere", |r, _| q_where(r)),
    (MS, "RotaryEmbedding", |r, _| own_rotary(r)),
    (MS, "ScaledSiLU", |r, _| scaled_silu(r)),
    (MS, "SkipLayerNormalization SkipSimplifiedLayerNormalization", skip),
    (MS, "Trilu", |r, _| own_trilu(r)),
    (MS, "UnfoldTensor", |r, _| unfold(r)),
];

/// A domain, an operator and its generator.
fn cases() -> impl Iterator<Item = (&'static str, &'static str, Make)> {
    CASES_OF.iter().flat_map(|(domain, all, make)| words(all).into_iter().map(move |op| (*domain, op, *make)))
}

#[test]
#[ignore = "slow"]
fn expansions_compute_what_the_kernels_do() {
    crate::common::load_runtime();
    let mut wrong = Vec::new();
    for (domain, op, make) in cases() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(op, &|r| make(r, op))));
        if result.is_err() {
            wrong.push(format!("{domain}::{op}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_expansion_has_a_case() {
    let cases: Vec<(&str, &str)> = cases().map(|(domain, op, _)| (domain, op)).collect();
    let missing: Vec<(&str, &str)> = operators::all()
        .filter(|o| o.class == Class::Expanded)
        .map(|o| (o.domain, o.name))
        .filter(|row| !cases.contains(row) && !BY_DEFINITION.contains(&row.1))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Operators without a kernel in ONNX Runtime: compared with their definition, written out here;
/// LinearAttention with its kernel for com.microsoft.
const BY_DEFINITION: [&str; 5] =
    ["CausalConvWithState", "CumProd", "LinearAttention", "SwiGLU", "TensorScatter"];

/// Checks the last named output of a graph decoded from its file.
fn defined(c: &Case, expected: &[f32]) {
    let ours = decode(&c.graph).unwrap();
    let found = run(&ours, c).pop().unwrap();
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
    let Node { op, attrs, .. } = &c.graph.nodes[0];
    assert!(found.len() == expected.len() && close, "{op} {attrs:?}: {found:?}, expected {expected:?}");
}

#[test]
fn newer_operators_compute_what_their_definition_says() {
    crate::common::load_runtime();
    for seed in 0..CASES {
        let r = &mut Rng::new(seed);
        cum_prod(r);
        tensor_scatter(r);
        swiglu(r);
        causal_conv(r);
        packed_heads(r);
    }
}

/// Queries, keys and values in one input, or keys and values, for which ONNX Runtime has no kernel on the
/// CPU: compared with its kernel for separate inputs.
fn packed_heads(r: &mut Rng) {
    let (b, s, n, size) = (r.int(1, 2), r.int(1, 4), r.int(1, 3), r.int(1, 4));
    let t = r.int(1, 4);
    let names = ["q", "k", "v"];
    let apart = |lengths: [i64; 3], r: &mut Rng| {
        let start = case(MS, "MultiHeadAttention", &names, &["y"]).with("num_heads", n);
        let given = names.iter().zip(lengths);
        given.fold(start, |c, (name, length)| c.input(r, name, &[b, length, n * size]))
    };
    // [batch, length, heads, parts, size]: the parts of each head lie side by side.
    let pack = |parts: &[Vec<f32>]| -> Vec<f32> {
        let heads = parts[0].len() / size as usize;
        let of_head = |head: usize| {
            parts.iter().flat_map(move |part| &part[head * size as usize..(head + 1) * size as usize])
        };
        (0..heads).flat_map(of_head).copied().collect()
    };
    let all = apart([s, s, s], r);
    let expected = run(&all.graph, &all).remove(0);
    let mut one = case(MS, "MultiHeadAttention", &["q"], &["y"]).with("num_heads", n);
    one = one.input(r, "q", &[b, s, n, 3, size]);
    one.points = vec![pack(&all.points)];
    defined(&one, &expected);

    let all = apart([s, t, t], r);
    let expected = run(&all.graph, &all).remove(0);
    let mut two = case(MS, "MultiHeadAttention", &["q", "k"], &["y"]).with("num_heads", n);
    two = two.input(r, "q", &[b, s, n * size]).input(r, "k", &[b, t, n, 2, size]);
    two.points = vec![all.points[0].clone(), pack(&all.points[1..])];
    defined(&two, &expected);
}

fn cum_prod(r: &mut Rng) {
    let [a, n, b] = [r.int(1, 3), r.int(1, 4), r.int(1, 3)];
    let (exclusive, reverse) = (r.bool(), r.bool());
    let axis = Tensor::i64(&[], &[r.pick(&[1, -2])]);
    let c = case("", "CumProd", &["x", "axis"], &["y"])
        .opset(26)
        .input(r, "x", &[a, n, b])
        .constant("axis", axis);
    let c = c.with("exclusive", i64::from(exclusive)).with("reverse", i64::from(reverse));
    let mut expected = vec![0.0; c.points[0].len()];
    for (i, k) in (0..a).flat_map(|i| (0..b).map(move |k| (i, k))) {
        let place = |j: i64| ((i * n + j) * b + k) as usize;
        let mut product = 1.0;
        for step in 0..n {
            let at = place(if reverse { n - 1 - step } else { step });
            let next = product * c.points[0][at];
            expected[at] = if exclusive { product } else { next };
            product = next;
        }
    }
    defined(&c, &expected);
}

fn tensor_scatter(r: &mut Rng) {
    let [batch, heads, most, size] = [r.int(1, 3), r.int(1, 2), r.int(3, 6), r.int(1, 3)];
    let (rows, circular) = (r.int(1, 3), r.bool());
    let from: Vec<i64> =
        (0..batch).map(|_| r.int(0, if circular { most - 1 } else { most - rows })).collect();
    let c = case("", "TensorScatter", &["x", "u", "at"], &["y"])
        .opset(24)
        .input(r, "x", &[batch, heads, most, size])
        .input(r, "u", &[batch, heads, rows, size])
        .constant("at", Tensor::ints(&from))
        .when(circular, |c| c.with("mode", "circular"))
        .when(r.bool(), |c| c.with("axis", 2));
    let mut expected = c.points[0].clone();
    for (i, v) in c.points[1].iter().enumerate() {
        let i = i as i64;
        let (lead, row, k) = (i / (rows * size), i / size % rows, i % size);
        let at = (from[(lead / heads) as usize] + row) % most;
        expected[((lead * most + at) * size + k) as usize] = *v;
    }
    defined(&c, &expected);
}

fn swiglu(r: &mut Rng) {
    let (shape, alpha) = ([r.int(1, 3), r.int(1, 5)], 0.5 + r.unit());
    let c = case("", "SwiGLU", &["a", "b"], &["y"])
        .opset(28)
        .input(r, "a", &shape)
        .input(r, "b", &shape)
        .with("alpha", alpha);
    let both = c.points[0].iter().zip(&c.points[1]);
    let expected: Vec<f32> = both.map(|(a, b)| a / (1.0 + (-alpha * a).exp()) * b).collect();
    defined(&c, &expected);
}

fn causal_conv(r: &mut Rng) {
    let [batch, channels, length, kernel] = [r.int(1, 2), r.int(1, 3), r.int(1, 5), r.int(1, 4)];
    let (state, silu) = (kernel > 1 && r.bool(), r.bool());
    let inputs: &[&str] = if state { &["x", "w", "b", "s"] } else { &["x", "w", "b"] };
    let mut c = case("", "CausalConvWithState", inputs, &["y"])
        .opset(27)
        .input(r, "x", &[batch, channels, length])
        .weights(r, "w", &[channels, 1, kernel])
        .weights(r, "b", &[channels])
        .when(silu, |c| c.with("activation", "silu"));
    if state {
        c = c.input(r, "s", &[batch, channels, kernel - 1]);
    }
    let (w, b) = (c.graph.constants["w"].to_f32s().unwrap(), c.graph.constants["b"].to_f32s().unwrap());
    let mut expected = vec![];
    for (row, t) in (0..batch * channels).flat_map(|row| (0..length).map(move |t| (row, t))) {
        let channel = row % channels;
        let mut y = b[channel as usize];
        for k in 0..kernel {
            let at = t + k - (kernel - 1);
            let x = match (at >= 0, state) {
                (true, _) => c.points[0][(row * length + at) as usize],
                (false, true) => c.points[1][(row * (kernel - 1) + at + kernel - 1) as usize],
                (false, false) => 0.0,
            };
            y += w[(channel * kernel + k) as usize] * x;
        }
        expected.push(if silu { y / (1.0 + (-y).exp()) } else { y });
    }
    defined(&c, &expected);
}

/// An input that an expansion doesn't cover is refused with the node and the reason.
#[test]
fn what_is_not_covered_is_refused_by_name() {
    let r = &mut Rng::new(0);
    let mode = "qk_matmul_output_mode";
    let cases = [
        case("", "Attention", &["q", "k", "v"], &["y", "", "", "qk"]).with(mode, 4),
        case("", "BitCast", &["x"], &["y"]).opset(26).with("to", 7),
        case(MS, "Attention", &["x", "w", "b", "", "", "", "n"], &["y"]).with("num_heads", 2),
        case(MS, "Attention", &["x", "w", "b"], &["y"]),
        case(MS, "MultiHeadAttention", &["q", "", "v"], &["y"]).with("num_heads", 2),
        case(MS, "LinearAttention", &["q", "k", "v"], &["y"]).with("state_window", 4),
        case(MS, "RotaryEmbedding", &["x", "at", "c", "s"], &["y"]).with("scale", 2.0f32),
        case(MS, "FusedConv", &["x", "w"], &["y"]).with("activation", "Gelu"),
        case(MS, "QuickGelu", &[], &["y"]),
    ];
    let refused = |case: Case| decode(&case.input(r, "x", &[1, 2, 3, 4]).graph).unwrap_err().to_string();
    insta::assert_snapshot!(cases.map(refused).join("\n\n"));
}

/// Keys and values of an earlier run, heads in front: their layout is known once shapes are.
#[test]
fn keys_of_four_dimensions_are_refused() {
    crate::common::load_runtime();
    let r = &mut Rng::new(1);
    let case = case(MS, "MultiHeadAttention", &["q", "k", "v"], &["y"]).with("num_heads", 2);
    let case = case.input(r, "q", &[1, 2, 8]).input(r, "k", &[1, 2, 2, 4]).input(r, "v", &[1, 2, 2, 4]);
    let error = runtime::specialise(&decode(&case.graph).unwrap()).unwrap_err();
    says(&error.message, &["ONNX Runtime doesn't take the graph"]);
}

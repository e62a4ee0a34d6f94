//! Mutated models: `Model::open` and the check at load end with an error or with a gradient that passed its
//! check; no panic, no crash of the runtime, no hang.
//!
//! Each case runs in its own process (proptest's fork), so that a crash inside ONNX Runtime or a hang fails
//! that case, shrunk and named, and not the whole test. `PROPTEST_CASES=20000 cargo test --test fuzz` tries
//! more cases.

mod common;

use audit::check;
use audit::model::Model;
use audit::model::card::{Card, Pooling};
use common::{CPU, Rng, Temp};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Dim, Node, Tensor, Value};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const SIDE: i64 = 12;

/// The mutation of a model: its kind, its place (modulo the number of places), and its value.
#[derive(Clone, Debug)]
struct Mutation {
    kind: u8,
    at: u32,
    other: u32,
    value: i64,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let value = prop_oneof![
        -3i64..20,
        proptest::sample::select(vec![
            i64::MIN,
            i64::MAX,
            i32::MAX.into(),
            i32::MIN.into(),
            1 << 33,
            1 << 20,
            -(1 << 20),
        ]),
    ];
    let all = (0u8..KINDS, any::<u32>(), any::<u32>(), value);
    all.prop_map(|(kind, at, other, value)| Mutation { kind, at, other, value })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150),
        fork: true,
        timeout: 60_000,
        max_shrink_iters: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_models_give_an_error_or_a_checked_gradient(
        base in 0..BASES.len(),
        mutations in proptest::collection::vec(mutation(), 1..4),
    ) {
        let mut graph = BASES[base]();
        for m in &mutations {
            mutate(&mut graph, m);
        }
        let mut bytes = graph.encode();
        for m in &mutations {
            damage(&mut bytes, m);
        }
        if let Ok(check) = load(&bytes) {
            // A model that passes has a right gradient, or one that can't be compared (dynamic quantisation).
            prop_assert!(check.gradient_error.is_none_or(|e| e <= 1e-2), "{check:?}");
        }
    }
}

/// The start of an audit: open the model, then compare it with the file.
fn load(bytes: &[u8]) -> audit::Result<audit::record::GradientCheck> {
    // A mutation can give a valid model tensors of gigabytes, which takes minutes and is no hang.
    common::load_runtime_within(Some(1 << 30));
    let temp = Temp::new();
    let path = temp.write("mutated.onnx", bytes);
    let card = Card { pooling: Some(Pooling::Mean), ..Default::default() };
    let mut model = match Model::open(&path, &card, CPU, None) {
        // Pooling is for maps and tokens; a vector refuses it.
        Err(_) => Model::open(&path, &Card::default(), CPU, None)?,
        model => model?,
    };
    let batch = model.batch();
    let pixels = Rng::new(1).units(batch * model.pixels());
    let measured = check::load::measure(&mut model, &pixels, batch, &mut |_, _| {})?;
    check::admit(&model.info, &check::at_load(&measured), "")?;
    Ok(measured.summary())
}

/// The unmutated models are valid.
#[test]
fn the_models_that_are_mutated_load() {
    for (base, model) in BASES.iter().enumerate() {
        let check = load(&model().encode()).unwrap_or_else(|e| panic!("model {base}: {e}"));
        assert!(check.gradient_error.is_none_or(|e| e <= 1e-2), "model {base}: {check:?}");
    }
}

/// A chain of a million nodes: nothing recurses over nodes, and the test ends in reasonable time.
#[test]
fn a_million_nodes_are_refused_or_loaded() {
    let value = |i: usize| if i == 0 { "x".to_string() } else { format!("v{i}") };
    let n = 1_000_000;
    let nodes = (0..n).map(|i| Node::new("Neg", &[&value(i)], &value(i + 1))).collect();
    let graph = image_to(nodes, vec![], &value(n));
    let error = load(&graph.encode()).unwrap_err().to_string();
    assert!(error.contains("nodes"), "{error}");
}

fn image_to(nodes: Vec<Node>, constants: Vec<(&str, Tensor)>, output: &str) -> Graph {
    let mut g = Graph::new(nodes, constants.into_iter().map(|(n, t)| (n.to_string(), t)).collect());
    let free = Dim::Free("batch".into());
    let dims = vec![free, Dim::Known(1), Dim::Known(SIDE), Dim::Known(SIDE)];
    g.inputs = vec![Value { name: "x".into(), dtype: DType::F32, shape: Some(dims) }];
    g.outputs = vec![Value { name: output.into(), dtype: DType::F32, shape: None }];
    g
}

fn normal(shape: &[i64]) -> Tensor {
    let mut r = Rng::new(shape.iter().sum::<i64>() as u64);
    let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| 0.4 * r.normal()).collect();
    Tensor::f32(shape, &values)
}

/// The models that are mutated.
const BASES: [fn() -> Graph; 5] = [convolutional, transformer, resampling, quantised, conditional];

/// A small ResNet-like net.
fn convolutional() -> Graph {
    let node = Node::new;
    image_to(
        vec![
            node("Conv", &["x", "w1", "b1"], "c1").with("pads", vec![1, 1, 1, 1]),
            node("BatchNormalization", &["c1", "one", "b1", "b1", "one"], "n1"),
            node("Relu", &["n1"], "r1"),
            node("MaxPool", &["r1"], "m1")
                .with("kernel_shape", vec![3, 3])
                .with("strides", vec![2, 2])
                .with("pads", vec![1, 1, 1, 1]),
            node("Conv", &["m1", "w2"], "c2").with("group", 2).with("dilations", vec![1, 1]),
            node("AveragePool", &["c2"], "a2").with("kernel_shape", vec![2, 2]),
            node("GlobalAveragePool", &["a2"], "g"),
            node("Flatten", &["g"], "f"),
            node("Gemm", &["f", "w3", "b3"], "y").with("transB", 1).with("alpha", 0.5f32),
        ],
        vec![
            ("w1", normal(&[4, 1, 3, 3])),
            ("b1", normal(&[4])),
            ("one", Tensor::f32(&[4], &[1.0; 4])),
            ("w2", normal(&[6, 2, 3, 3])),
            ("w3", normal(&[5, 6])),
            ("b3", normal(&[5])),
        ],
        "y",
    )
}

/// A transformer block with the shape arithmetic that exporters leave behind.
fn transformer() -> Graph {
    let node = Node::new;
    image_to(
        vec![
            node("Conv", &["x", "patch"], "p").with("strides", vec![4, 4]),
            node("Shape", &["p"], "s"),
            node("Gather", &["s", "zero"], "b").with("axis", 0),
            node("Concat", &["b", "rest"], "to").with("axis", 0),
            node("Reshape", &["p", "to"], "flat"),
            node("Transpose", &["flat"], "tokens").with("perm", vec![0, 2, 1]),
            node("Concat", &["b", "one_eight"], "cls_shape").with("axis", 0),
            node("Expand", &["cls", "cls_shape"], "cls_b"),
            node("Concat", &["cls_b", "tokens"], "t").with("axis", 1),
            node("Add", &["t", "position"], "t0"),
            node("LayerNormalization", &["t0", "gain", "gain"], "ln").with("axis", -1),
            node("MatMul", &["ln", "wqkv"], "qkv"),
            Node {
                outputs: ["q", "k", "v"].map(String::from).to_vec(),
                ..node("Split", &["qkv", "thirds"], "q").with("axis", 2)
            },
            node("Transpose", &["k"], "kt").with("perm", vec![0, 2, 1]),
            node("MatMul", &["q", "kt"], "scores"),
            node("Div", &["scores", "root"], "scaled"),
            node("Softmax", &["scaled"], "a").with("axis", -1),
            node("MatMul", &["a", "v"], "o"),
            node("Add", &["o", "t0"], "t1"),
            node("Gelu", &["t1"], "g"),
            node("Slice", &["g", "zero", "one", "one"], "first"),
            node("Squeeze", &["first", "one"], "e"),
            node("ReduceL2", &["e", "one"], "n").with("keepdims", 1),
            node("Clip", &["n", "tiny"], "n0"),
            node("Div", &["e", "n0"], "y"),
        ],
        vec![
            ("patch", normal(&[8, 1, 4, 4])),
            ("zero", Tensor::ints(&[0])),
            ("one", Tensor::ints(&[1])),
            ("rest", Tensor::ints(&[8, -1])),
            ("one_eight", Tensor::ints(&[1, 8])),
            ("thirds", Tensor::ints(&[8, 8, 8])),
            ("cls", normal(&[1, 1, 8])),
            ("position", normal(&[1, 10, 8])),
            ("gain", normal(&[8])),
            ("wqkv", normal(&[8, 24])),
            ("root", Tensor::f32(&[], &[2.83])),
            ("tiny", Tensor::f32(&[], &[1e-6])),
        ],
        "y",
    )
}

/// Resampling, padding and other operators that move values.
fn resampling() -> Graph {
    let node = Node::new;
    image_to(
        vec![
            node("Resize", &["x", "", "scales"], "r")
                .with("mode", "cubic")
                .with("coordinate_transformation_mode", "half_pixel"),
            node("Pad", &["r", "pads"], "p").with("mode", "reflect"),
            node("ConvTranspose", &["p", "w"], "t").with("strides", vec![2, 2]),
            node("InstanceNormalization", &["t", "gain", "gain"], "n").with("epsilon", 1e-3f32),
            node("PRelu", &["n", "slope"], "l"),
            node("DepthToSpace", &["l"], "d").with("blocksize", 2),
            node("Tile", &["d", "repeats"], "tiled"),
            node("Gather", &["tiled", "index"], "picked").with("axis", 2),
            node("Greater", &["picked", "half"], "c"),
            node("Mul", &["picked", "half"], "h"),
            node("Where", &["c", "picked", "h"], "z"),
            node("Pow", &["z", "two"], "sq"),
            node("ReduceMean", &["sq", "space"], "m").with("keepdims", 0),
            node("Einsum", &["m", "head"], "y").with("equation", "bc,cd->bd"),
        ],
        vec![
            ("scales", Tensor::f32(&[4], &[1.0, 1.0, 1.5, 0.75])),
            ("pads", Tensor::ints(&[0, 0, 1, 2, 0, 0, 2, 1])),
            ("w", normal(&[1, 8, 3, 3])),
            ("gain", normal(&[8])),
            ("slope", Tensor::f32(&[8, 1, 1], &[0.1; 8])),
            ("repeats", Tensor::ints(&[1, 2, 1, 1])),
            ("index", Tensor::ints(&[0, 3, 3, 5, -1])),
            ("half", Tensor::f32(&[], &[0.5])),
            ("two", Tensor::f32(&[], &[2.0])),
            ("space", Tensor::ints(&[2, 3])),
            ("head", normal(&[4, 6])),
        ],
        "y",
    )
}

/// Quantised weights and activations.
fn quantised() -> Graph {
    let node = Node::new;
    image_to(
        vec![
            node("QuantizeLinear", &["x", "sx", "zx"], "qx"),
            node("DequantizeLinear", &["qx", "sx", "zx"], "dx"),
            node("DequantizeLinear", &["qw", "sw"], "dw").with("axis", 0),
            node("Conv", &["dx", "dw"], "c").with("strides", vec![2, 2]),
            node("QuantizeLinear", &["c", "sc", "zc"], "qc"),
            node("DequantizeLinear", &["qc", "sc", "zc"], "dc"),
            node("HardSwish", &["dc"], "h"),
            node("GlobalMaxPool", &["h"], "g"),
            node("Flatten", &["g"], "y"),
        ],
        vec![
            ("sx", Tensor::f32(&[], &[1.0 / 255.0])),
            ("zx", Tensor { dtype: DType::U8, shape: vec![], bytes: vec![0].into() }),
            ("qw", Tensor { dtype: DType::I8, shape: vec![4, 1, 3, 3], bytes: (0..36).collect() }),
            ("sw", Tensor::f32(&[4], &[0.02, 0.03, 0.01, 0.02])),
            ("sc", Tensor::f32(&[], &[0.02])),
            ("zc", Tensor { dtype: DType::I8, shape: vec![], bytes: vec![3].into() }),
        ],
        "y",
    )
}

/// A condition, and values chosen by position.
fn conditional() -> Graph {
    let node = Node::new;
    let branch = |op: &str| {
        let mut g = Graph::new(vec![node(op, &["c"], "chosen")], Default::default());
        g.outputs = vec![Value { name: "chosen".into(), dtype: DType::F32, shape: None }];
        Attr::Graph(Box::new(g))
    };
    let condition = node("If", &["is_map"], "z").with("then_branch", branch("Sigmoid"));
    let condition = condition.with("else_branch", branch("Identity"));
    image_to(
        vec![
            node("Conv", &["x", "w"], "c").with("auto_pad", "SAME_UPPER"),
            node("Shape", &["c"], "shape"),
            node("Size", &["shape"], "rank"),
            node("Equal", &["rank", "four"], "is_map"),
            condition,
            node("CumSum", &["z", "axis"], "s"),
            node("GatherND", &["s", "where"], "picked").with("batch_dims", 1),
            Node {
                outputs: ["top", "at"].map(String::from).to_vec(),
                ..node("TopK", &["picked", "k"], "top").with("axis", 1)
            },
            node("ReduceLogSumExp", &["top", "last"], "y").with("keepdims", 0),
        ],
        vec![
            ("w", normal(&[3, 1, 3, 3])),
            ("four", Tensor::i64(&[], &[4])),
            ("axis", Tensor::i64(&[], &[3])),
            // One row of positions for each image of the default batch of small images.
            ("where", Tensor::i64(&[8, 3, 1], &[0, 2, 1].repeat(8))),
            ("k", Tensor::ints(&[2])),
            ("last", Tensor::ints(&[3])),
        ],
        "y",
    )
}

const KINDS: u8 = 20;

/// Replacements for operators: some that fit, some that don't, some that have no gradient rule.
const OPERATORS: [[&str; 8]; 2] = [
    ["Relu", "Softmax", "Transpose", "Conv", "MatMul", "Add", "Reshape", "LSTM"],
    ["Loop", "NonZero", "Resize", "TopK", "Cast", "Round", "ConstantOfShape", "Attention"],
];
const DTYPES: [DType; 8] =
    [DType::F16, DType::F64, DType::I64, DType::I8, DType::Bool, DType::U8, DType::BF16, DType::Other(8)];

fn mutate(g: &mut Graph, m: &Mutation) {
    let (at, other) = (m.at as usize, m.other as usize);
    if g.nodes.is_empty() {
        return;
    }
    let n = g.nodes.len();
    let (i, j) = (at % n, other % n);
    let mut names: Vec<String> = g.constants.keys().cloned().collect();
    names.extend(g.nodes.iter().flat_map(|n| n.outputs.iter().cloned()));
    names.extend(["x".to_string(), "nowhere".to_string(), String::new()]);
    let name = names[other % names.len()].clone();
    match m.kind {
        0 => drop(g.nodes.remove(i)),
        1 => g.nodes.insert(j, g.nodes[i].clone()),
        2 => g.nodes.swap(i, j),
        3 => {
            // An input becomes another value: a cycle, a wrong rank, a dangling name, none.
            if let Some(input) = pick(&mut g.nodes[i].inputs, other) {
                *input = names[at.wrapping_add(other) % names.len()].clone();
            }
        }
        4 => g.nodes[i].inputs.push(name),
        5 => drop(g.nodes[i].inputs.pop()),
        6 => {
            if let Some(output) = pick(&mut g.nodes[i].outputs, other) {
                *output = name;
            }
        }
        7 => g.nodes[i].op = OPERATORS.as_flattened()[other % 16].into(),
        8..=12 => mutate_attribute(&mut g.nodes[i], m),
        13..=16 => mutate_constant(g, m),
        17 => {
            let (input, value) = (&mut g.inputs[0], m.value);
            match input.shape.as_mut().and_then(|s| pick(s, other)) {
                Some(d) => *d = Dim::Known(value),
                None => input.shape = None,
            }
        }
        18 => drop(g.opsets.insert(["", "com.microsoft", "elsewhere"][at % 3].into(), m.value)),
        _ => g.outputs[0] = Value { name, dtype: DTYPES[at % DTYPES.len()], shape: None },
    }
}

/// Changes, adds or removes an attribute.
fn mutate_attribute(node: &mut Node, m: &Mutation) {
    let (at, other) = (m.at as usize, m.other as usize);
    match m.kind {
        8..=10 => {
            // An absurd number in an attribute, or a known attribute where none was.
            let keys: Vec<String> = node.attrs.keys().cloned().collect();
            match keys.get(other % keys.len().max(1)).and_then(|k| node.attrs.get_mut(k)) {
                Some(Attr::Int(v)) => *v = m.value,
                Some(Attr::Ints(v)) => match pick(v, at / 7) {
                    Some(v) => *v = m.value,
                    None => v.push(m.value),
                },
                Some(Attr::Float(v)) => *v = [f32::NAN, f32::INFINITY, 0.0, -1e30, m.value as f32][at % 5],
                Some(Attr::Str(v)) => *v = ["", "nonsense", "linear", "b...,->c", "VALID"][at % 5].into(),
                _ => {
                    let name = ["axis", "keepdims", "group", "pads", "perm", "ceil_mode", "to"][at % 7];
                    node.attrs.insert(name.into(), Attr::Int(m.value));
                }
            }
        }
        11 => {
            let attrs = &mut node.attrs;
            let key = attrs.keys().nth(other % attrs.len().max(1)).cloned();
            key.inspect(|key| drop(attrs.remove(key)));
        }
        _ => {
            let key = node.attrs.keys().next().cloned().unwrap_or("axis".into());
            let wrong = match at % 4 {
                0 => Attr::Str("x".into()),
                1 => Attr::Ints(vec![m.value; other % 9]),
                2 => Attr::Float(m.value as f32),
                _ => Attr::Graph(Box::default()),
            };
            node.attrs.insert(key, wrong);
        }
    }
}

/// Gives a constant another shape, type or value, or removes it.
fn mutate_constant(g: &mut Graph, m: &Mutation) {
    let (at, other) = (m.at as usize, m.other as usize);
    let Some(key) = g.constants.keys().nth(at % g.constants.len().max(1)).cloned() else { return };
    let Some(t) = g.constants.get_mut(&key) else { return };
    match m.kind {
        13 => match pick(&mut t.shape, other) {
            Some(d) => *d = m.value,
            None => t.shape.push(m.value),
        },
        14 => t.dtype = DTYPES[other % DTYPES.len()],
        15 if t.dtype == DType::I64 => {
            let mut values = t.to_i64s().unwrap_or_default();
            if let Some(v) = pick(&mut values, other) {
                *v = m.value;
            }
            *t = Tensor::i64(&t.shape.clone(), &values);
        }
        15 => {
            let mut bytes = t.bytes.to_vec();
            bytes.truncate(other % bytes.len().max(1));
            t.bytes = bytes.into();
        }
        _ => drop(g.constants.remove(&key)),
    }
}

/// Also damages the bytes of one case in four, so that names are doubled and lengths are wrong.
fn damage(bytes: &mut Vec<u8>, m: &Mutation) {
    if !m.other.is_multiple_of(4) || bytes.is_empty() {
        return;
    }
    let at = m.at as usize % bytes.len();
    match m.other / 4 % 3 {
        0 => bytes[at] ^= 1 << (m.value & 7),
        1 => bytes[at] = m.value as u8,
        _ => bytes.truncate(at),
    }
}

fn pick<T>(of: &mut [T], at: usize) -> Option<&mut T> {
    let n = of.len();
    of.get_mut(at % n.max(1))
}

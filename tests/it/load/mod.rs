//! Loading: embeddings of every shape, batches and precisions. `shapes.rs` has what follows from shapes, and
//! `files.rs` local functions and damaged files.

mod files;
mod shapes;

use crate::common::models::{subgraph, untyped};
use crate::common::transcript::portable;
use crate::common::{CPU, Rng, says};
use audit::check;
use audit::model::Model;
use audit::model::card::{Card, Pooling};
use audit::model::runtime::Options;
use audit::record::{Finding, Severity};
use ndarray::{Array2, ArrayView2};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const SIDE: i64 = 8;
const BATCH: i64 = 2;

/// A graph of grey images "x" to the outputs named, of a fixed batch.
fn grey(batch: i64, nodes: Vec<Node>, constants: &[(&str, Tensor)], outputs: &[&str]) -> Graph {
    let constants = constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs = vec![Value::new("x", DType::F32, &[batch, 1, SIDE, SIDE])];
    graph.outputs = outputs.iter().map(|o| untyped(o)).collect();
    graph
}

fn weights(shape: &[i64]) -> Tensor {
    let mut r = Rng::new(5);
    let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| 0.3 * r.normal()).collect();
    Tensor::f32(shape, &values)
}

/// A graph whose first node is a convolution to "map", [batch, 4, 3, 3].
fn mapped(batch: i64, more: &[Node], constants: &[(&str, Tensor)], outputs: &[&str]) -> Graph {
    let conv = Node::new("Conv", &["x", "w"], "map").with("strides", vec![2, 2]);
    let weights = ("w", weights(&[4, 1, 3, 3]));
    grey(batch, [&[conv], more].concat(), &[&[weights], constants].concat(), outputs)
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    crate::common::load_runtime();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{name}.onnx"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(name: &str, graph: &Graph, pooling: Option<Pooling>, output: Option<&str>) -> audit::Result<Model> {
    let card = Card { pooling, output: output.map(str::to_string), ..Default::default() };
    Model::open(&write(name, &graph.encode()), &card, CPU, None)
}

fn pixels(batch: i64) -> Vec<f32> {
    Rng::new(9).units((batch * SIDE * SIDE) as usize)
}

#[track_caller]
fn refused(name: &str, graph: &Graph, pooling: Option<Pooling>) -> String {
    portable(&open(name, graph, pooling, None).err().expect("refused").message)
}

/// The check at load: the error of the gradient, and the findings.
fn measured(model: &mut Model) -> (Option<f64>, Vec<Finding>) {
    let measured = check::load::measure(model, &pixels(BATCH), BATCH as usize, &mut |_, _| {}).unwrap();
    let findings = check::at_load(&measured);
    check::admit(&model.info, &findings, "").unwrap();
    (measured.summary().gradient_error, findings)
}

/// Our embedding, pooled in the graph, against the file's output pooled on the CPU.
fn agrees(model: &mut Model, batch: i64, dim: usize) {
    let x = pixels(batch);
    let ours: Array2<f32> = model.embed(&x).unwrap();
    let theirs = model.reference().unwrap().embed(&x).unwrap().unwrap();
    assert_eq!(ours.dim(), (batch as usize, dim));
    assert_eq!(theirs.dim(), ours.dim());
    assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-5), "{ours} {theirs}");
}

/// The reference takes any number of images, whatever its own batch and the model's.
#[test]
fn the_reference_takes_any_number_of_images() {
    let mut graph = mapped(BATCH, &[Node::new("GlobalAveragePool", &["map"], "y")], &[], &["y"]);
    for free in [false, true] {
        if free {
            graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Free("n".into());
        }
        let path = write(&format!("reference-{free}"), &graph.encode());
        let model = Model::open(&path, &Card::default(), CPU, free.then_some(64)).unwrap();
        let mut reference = model.reference().unwrap();
        let all = pixels(40);
        let mut embed = |images: &[f32]| reference.embed(images).unwrap().unwrap();
        let alone: Vec<Array2<f32>> = all.chunks(model.pixels()).map(&mut embed).collect();
        for n in [1, 3, 8, 9, 40] {
            let together = embed(&all[..n * model.pixels()]);
            assert_eq!(together.dim(), (n, 4));
            for (row, alone) in together.rows().into_iter().zip(&alone) {
                assert!(row.iter().zip(alone).all(|(a, b)| (a - b).abs() < 1e-5), "{n} images");
            }
        }
    }
}

#[test]
fn feature_maps_and_tokens_are_pooled_as_stated() {
    let graph = mapped(BATCH, &[], &[], &["map"]);
    for pooling in [Pooling::Mean, Pooling::Max] {
        agrees(&mut open("map", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
    let told = [Some(Pooling::Cls), None].map(|pooling| refused("map", &graph, pooling));
    insta::assert_snapshot!(told.join("\n\n"));

    // [batch, 9 tokens, 4]
    let columns = Node::new("Reshape", &["map", "flat"], "columns");
    let tokens = Node::new("Transpose", &["columns"], "tokens").with("perm", vec![0, 2, 1]);
    let graph = mapped(BATCH, &[columns, tokens], &[("flat", Tensor::ints(&[0, 4, -1]))], &["tokens"]);
    for pooling in [Pooling::Cls, Pooling::Mean, Pooling::Max] {
        agrees(&mut open("tokens", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
}

#[test]
fn dimensions_of_one_and_batches_of_one_are_no_hindrance() {
    let pool = Node::new("GlobalAveragePool", &["map"], "pooled");
    let graph = mapped(BATCH, std::slice::from_ref(&pool), &[], &["pooled"]);
    agrees(&mut open("pooled", &graph, None, None).unwrap(), BATCH, 4);
    let graph = mapped(1, &[pool, Node::new("Squeeze", &["pooled"], "vector")], &[], &["vector"]);
    agrees(&mut open("vector", &graph, None, None).unwrap(), 1, 4);
}

/// ONNX Runtime's GatherND would read beyond the data.
#[test]
fn indices_of_another_batch_are_refused() {
    let places = |batch: i64| Tensor::i64(&[batch, 2, 1], &[3, 1].repeat(batch as usize));
    let nodes = || {
        let gather = Node::new("GatherND", &["flat", "where"], "y").with("batch_dims", 1);
        vec![Node::new("Flatten", &["x"], "flat"), gather]
    };
    let graph = grey(BATCH, nodes(), &[("where", places(BATCH))], &["y"]);
    agrees(&mut open("places", &graph, None, None).unwrap(), BATCH, 2);
    let graph = grey(BATCH, nodes(), &[("where", places(2 * BATCH))], &["y"]);
    insta::assert_snapshot!(refused("displaced", &graph, None));
}

/// A value of 64 TiB, which no machine has: refused before anything is computed.
#[cfg(target_os = "linux")]
#[test]
fn what_no_memory_holds_is_refused() {
    use audit::model::memory::{Bytes, limit};
    let nodes = vec![
        Node::new("Flatten", &["x"], "flat"),
        Node::new("Unsqueeze", &["flat", "axis"], "tall"),
        Node::new("Expand", &["tall", "to"], "large"),
        Node::new("ReduceSum", &["large", "axis"], "y").with("keepdims", 0),
    ];
    let row = SIDE * SIDE;
    let to = Tensor::ints(&[BATCH, (1 << 44) / row / BATCH, row]);
    let graph = grey(BATCH, nodes, &[("axis", Tensor::ints(&[1])), ("to", to)], &["y"]);
    let told = refused("large", &graph, None);
    let free = Bytes(limit().unwrap().bytes).to_string();
    insta::assert_snapshot!(told.replace(&free, "…"));
}

/// Each thread takes its own batch: results don't depend on it, whether or not images fill the batches.
#[test]
fn threads_are_nothing_to_embeddings_and_gradients() {
    let bent = Node::new("Softplus", &["map"], "bent");
    let graph = mapped(BATCH, &[bent, Node::new("GlobalAveragePool", &["bent"], "mean")], &[], &["mean"]);
    let path = write("threads", &graph.encode());
    let all = pixels(4 * BATCH);
    let cotangent = Array2::from_shape_fn((4 * BATCH as usize, 4), |(i, j)| (i + 2 * j) as f32 - 3.0);
    let with = |threads: usize| {
        let options = Options { threads, ..CPU };
        let mut model = Model::open(&path, &Card::default(), options, None).unwrap();
        assert_eq!((model.batch(), model.at_once()), (BATCH as usize, threads * BATCH as usize));
        let some = model.embed(&all[..all.len() - model.pixels()]).unwrap();
        (some, model.gradient(&all, cotangent.view()).unwrap())
    };
    let one = with(1);
    assert_eq!(one.0.nrows(), 4 * BATCH as usize - 1);
    assert!(one.1.1.iter().any(|g| *g != 0.0));
    for threads in [2, 3, 8] {
        assert_eq!(with(threads), one, "{threads} threads");
    }
}

/// A gradient whose cotangents follow from the embeddings takes one forward pass; attacks on triplets rely on
/// that.
#[test]
fn cotangents_follow_from_the_forward_pass_of_their_gradient() {
    let bent = Node::new("Softplus", &["map"], "bent");
    let graph = mapped(BATCH, &[bent, Node::new("GlobalAveragePool", &["bent"], "mean")], &[], &["mean"]);
    let options = Options { threads: 2, ..CPU };
    let mut model = Model::open(&write("follow", &graph.encode()), &Card::default(), options, None).unwrap();
    let all = pixels(4 * BATCH);
    let batches = Mutex::new(Vec::new());
    let rows = |from: usize, e: ArrayView2<f32>| {
        batches.lock().unwrap().push(from);
        Ok(e.mapv(|v| v + from as f32))
    };
    let (embeddings, gradient) = model.gradient_from(&all, rows).unwrap();
    let mut batches = batches.into_inner().unwrap();
    batches.sort();
    assert_eq!(batches, Vec::from_iter((0..4).map(|batch| batch * BATCH as usize)));
    let mut cotangent = embeddings.clone();
    for (i, mut row) in cotangent.rows_mut().into_iter().enumerate() {
        row += (i / BATCH as usize * BATCH as usize) as f32;
    }
    assert_eq!(model.gradient(&all, cotangent.view()).unwrap(), (embeddings, gradient));
    let refusing = |_: usize, _: ArrayView2<f32>| Err(audit::Error::untrusted("not finite"));
    assert_eq!(model.gradient_from(&all, refusing).unwrap_err().message, "not finite");
}

#[test]
fn of_several_outputs_one_is_chosen() {
    let pools = ["mean", "max"].into_iter().zip(["GlobalAveragePool", "GlobalMaxPool"]);
    let pools: Vec<Node> = pools.map(|(name, op)| Node::new(op, &["map"], name)).collect();
    let graph = mapped(BATCH, &pools, &[], &["mean", "max", "map"]);
    insta::assert_snapshot!(refused("several", &graph, None));
    agrees(&mut open("several", &graph, None, Some("max")).unwrap(), BATCH, 4);
    // With stated pooling, only the feature map qualifies.
    let model = open("several", &graph, Some(Pooling::Mean), None).unwrap();
    assert_eq!(model.info.output, "map");
}

/// Quantised: the warning names each quantiser that the gradient passes unchanged.
#[test]
fn quantised_models_say_where_the_gradient_is_led_past_rounding() {
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![0].into() };
    let mut quantise = Node::new("QuantizeLinear", &["x", "scale", "zero"], "q");
    quantise.name = "input_quantiser".into();
    let nodes = vec![
        quantise,
        Node::new("DequantizeLinear", &["q", "scale", "zero"], "seen"),
        Node::new("Conv", &["seen", "w"], "map"),
        Node::new("GlobalAveragePool", &["map"], "y"),
    ];
    let constants =
        [("scale", Tensor::f32(&[], &[1.0 / 255.0])), ("zero", byte), ("w", weights(&[4, 1, 3, 3]))];
    let mut model = open("quantised", &grey(BATCH, nodes, &constants, &["y"]), None, None).unwrap();
    let (error, findings) = measured(&mut model);
    assert!(error.unwrap() < 1e-2, "{error:?}");
    let said = findings.iter().find(|f| f.check == "straight-through").unwrap();
    assert_eq!(said.severity, Severity::Warning);
    says(&said.found, &["QuantizeLinear \"input_quantiser\""]);
}

/// onnxruntime's quantiser in the QOperator format leaves a Pad, and a Concat, on integers, with integers as
/// constants. Finite differences say whether the gradient is right.
#[test]
fn quantised_values_may_lie_beside_quantised_constants() {
    let bytes = |shape: &[i64], v: u8| Tensor {
        dtype: DType::U8,
        shape: shape.to_vec(),
        bytes: vec![v; shape.iter().product::<i64>() as usize].into(),
    };
    let nodes = vec![
        Node::new("QuantizeLinear", &["x", "scale", "zero"], "q"),
        Node::new("Pad", &["q", "pads", "grey"], "padded"),
        Node::new("Concat", &["padded", "row"], "joined").with("axis", 2),
        Node::new("DequantizeLinear", &["joined", "scale", "zero"], "seen"),
        Node::new("Conv", &["seen", "w"], "map"),
        Node::new("GlobalAveragePool", &["map"], "y"),
    ];
    let constants = [
        ("scale", Tensor::f32(&[], &[1.0 / 255.0])),
        ("zero", bytes(&[], 0)),
        ("grey", bytes(&[], 100)),
        ("pads", Tensor::ints(&[0, 0, 0, 0, 0, 0, 1, 1])),
        ("row", bytes(&[BATCH, 1, 1, SIDE + 1], 7)),
        ("w", weights(&[4, 1, 3, 3])),
    ];
    let mut model = open("beside", &grey(BATCH, nodes, &constants, &["y"]), None, None).unwrap();
    agrees(&mut model, BATCH, 4);
    let (error, _) = measured(&mut model);
    assert!(error.unwrap() < 1e-2, "{error:?}");
}

/// Float weights between quantised values, as some exporters write them, are not rounded, and a value that
/// is quantised twice is: ONNX Runtime's optimiser makes 8-bit integers of the former, and one quantiser of
/// the latter two. Expected are the embeddings of the file as it is written.
#[test]
fn a_quantised_model_is_rounded_where_the_file_says_so() {
    let byte = |v: u8| Tensor { dtype: DType::U8, shape: vec![], bytes: vec![v].into() };
    let constants = [
        ("scale", Tensor::f32(&[], &[1.0 / 255.0])),
        ("zero", byte(0)),
        ("fine", Tensor::f32(&[], &[0.01])),
        ("middle", byte(128)),
        ("coarse", Tensor::f32(&[], &[0.017])),
        ("lower", byte(100)),
        ("w", weights(&[4, 1, 3, 3])),
    ];
    let convolved = vec![
        Node::new("QuantizeLinear", &["x", "scale", "zero"], "q"),
        Node::new("DequantizeLinear", &["q", "scale", "zero"], "pixels"),
        Node::new("Conv", &["pixels", "w"], "map"),
        Node::new("QuantizeLinear", &["map", "fine", "middle"], "levels"),
        Node::new("DequantizeLinear", &["levels", "fine", "middle"], "seen"),
        Node::new("GlobalAveragePool", &["seen"], "y"),
    ];
    let twice = vec![
        Node::new("Conv", &["x", "w"], "map"),
        Node::new("QuantizeLinear", &["map", "fine", "middle"], "levels"),
        Node::new("DequantizeLinear", &["levels", "fine", "middle"], "once"),
        Node::new("QuantizeLinear", &["once", "coarse", "lower"], "others"),
        Node::new("DequantizeLinear", &["others", "coarse", "lower"], "seen"),
        Node::new("GlobalAveragePool", &["seen"], "y"),
    ];
    for (name, nodes) in [("weights", convolved), ("twice", twice)] {
        let mut model = open(name, &grey(BATCH, nodes, &constants, &["y"]), None, None).unwrap();
        agrees(&mut model, BATCH, 4);
    }
}

/// Dequantised int8 values that are reshaped, as in the patches of a ViT of which only linear layers are
/// quantised: with an optimiser of ONNX Runtime on, it refused the graph. Expected are the file's embeddings.
#[test]
fn dequantised_values_may_be_reshaped() {
    let zero = Tensor { dtype: DType::I8, shape: vec![], bytes: vec![0x80].into() };
    let constants = [
        ("scale", Tensor::f32(&[], &[1.0 / 255.0])),
        ("zero", zero),
        ("rows", Tensor::ints(&[BATCH, SIDE * SIDE])),
        ("w", weights(&[SIDE * SIDE, 4])),
    ];
    let nodes = vec![
        Node::new("QuantizeLinear", &["x", "scale", "zero"], "q"),
        Node::new("DequantizeLinear", &["q", "scale", "zero"], "seen"),
        Node::new("Reshape", &["seen", "rows"], "flat"),
        Node::new("MatMul", &["flat", "w"], "y"),
    ];
    let mut graph = grey(BATCH, nodes, &constants, &["y"]);
    // From 21 on, ONNX Runtime's default options refuse such files too.
    graph.opsets.insert(String::new(), 17);
    agrees(&mut open("reshaped", &graph, None, None).unwrap(), BATCH, 4);
}

/// Of quantised values many are exactly 0, where a rectifier has two slopes. The gradient is that of PyTorch,
/// which takes the slope below 0 there, and none at a bound of ReLU6. Such a model was refused, as an ArcFace
/// net with PReLU is in 8 bits. So were one that clips a sum, one that writes a rectifier as a choice, and
/// one that takes the largest value of a map, among which PyTorch's amax shares the gradient.
#[test]
fn quantised_values_of_zero_are_held_on_their_side_of_a_kink() {
    let byte = |v: u8| Tensor { dtype: DType::U8, shape: vec![], bytes: vec![v].into() };
    let constants = [
        // The values of "map" are about as large as this scale.
        ("coarse", Tensor::f32(&[], &[0.5])),
        ("middle", byte(128)),
        ("slope", Tensor::f32(&[4, 1, 1], &[-0.5, 0.2, 0.1, 3.0])),
        ("low", Tensor::f32(&[], &[0.0])),
        ("high", Tensor::f32(&[], &[1.0])),
        ("two", Tensor::f32(&[], &[2.0])),
        ("small", Tensor::f32(&[], &[0.2])),
        ("sides", Tensor::ints(&[2, 3])),
        ("w", weights(&[4, 1, 3, 3])),
    ];
    let wide = Node::new("Cast", &["seen"], "wide").with("to", DType::F64);
    let narrow = Node::new("Cast", &["wide_bent"], "bent").with("to", DType::F32);
    let chosen = vec![
        Node::new("Greater", &["seen", "low"], "above"),
        Node::new("Mul", &["seen", "small"], "leaning"),
        Node::new("Where", &["above", "seen", "leaning"], "bent"),
    ];
    for (i, rectifier) in [
        vec![Node::new("PRelu", &["seen", "slope"], "bent")],
        vec![Node::new("LeakyRelu", &["seen"], "bent").with("alpha", 0.3f32)],
        vec![Node::new("Relu", &["seen"], "bent")],
        vec![wide, Node::new("Relu", &["wide"], "wide_bent"), narrow],
        vec![Node::new("Clip", &["seen", "low", "high"], "bent")],
        vec![Node::new("Clip", &["seen", "", "high"], "bent")],
        vec![
            Node::new("Add", &["seen", "seen"], "twice"),
            Node::new("Clip", &["twice", "low", "two"], "bent"),
        ],
        chosen,
        vec![Node::new("GlobalMaxPool", &["seen"], "bent")],
        vec![Node::new("ReduceMax", &["seen", "sides"], "bent").with("keepdims", 1i64)],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("zeros-{i}");
        let mut nodes = vec![
            Node::new("Conv", &["x", "w"], "map"),
            Node::new("QuantizeLinear", &["map", "coarse", "middle"], "levels"),
            Node::new("DequantizeLinear", &["levels", "coarse", "middle"], "seen"),
        ];
        nodes.extend(rectifier);
        nodes.push(Node::new("GlobalAveragePool", &["bent"], "y"));
        let mut model = open(&name, &grey(BATCH, nodes, &constants, &["y"]), None, None).unwrap();
        agrees(&mut model, BATCH, 4);
        let (error, _) = measured(&mut model);
        assert!(error.unwrap() < 1e-2, "{name}: {error:?}");
    }
}

/// bfloat16 throughout, and with Casts to and from float32 within: computed in float32, from the rounded
/// weights. ONNX Runtime has no kernels for it on the CPU, so the expected values come from a float32 model
/// of the same numbers.
#[test]
fn bfloat16_models_compute_in_float32_and_say_so() {
    let (bf16, f32) = (DType::BF16.code() as i64, DType::F32.code() as i64);
    let exact = weights(&[4, 1, 3, 3]);
    let bits = exact.bytes.chunks(4).flat_map(|b| [b[2], b[3]]).collect();
    let rounded = exact.bytes.chunks(4).flat_map(|b| [0, 0, b[2], b[3]]).collect();
    let narrow = Tensor { dtype: DType::BF16, shape: exact.shape.clone(), bytes: bits };
    let wide = Tensor { dtype: DType::F32, shape: exact.shape.clone(), bytes: rounded };
    let net = |input: &str| {
        vec![
            Node::new("Conv", &[input, "w"], "map").with("strides", vec![2, 2]),
            Node::new("Softplus", &["map"], "soft"),
        ]
    };
    let head = Node::new("GlobalAveragePool", &["soft"], "y");
    let mut all = grey(BATCH, [net("x"), vec![head.clone()]].concat(), &[("w", narrow.clone())], &["y"]);
    all.inputs[0].dtype = DType::BF16;
    let mut mixed = vec![Node::new("Cast", &["x"], "half").with("to", bf16)];
    mixed.extend(net("half"));
    mixed.push(Node::new("Cast", &["soft"], "single").with("to", f32));
    mixed.push(Node::new("GlobalAveragePool", &["single"], "y"));
    let mixed = grey(BATCH, mixed, &[("w", narrow)], &["y"]);
    let float = grey(BATCH, [net("x"), vec![head]].concat(), &[("w", wide)], &["y"]);

    let x = pixels(BATCH);
    let cotangent = Array2::from_elem((BATCH as usize, 4), 0.7f32);
    let mut expected = open("float", &float, None, None).unwrap();
    let (e, g) = expected.gradient(&x, cotangent.view()).unwrap();
    for (name, graph) in [("bf16", all), ("bf16-mixed", mixed)] {
        let mut model = open(name, &graph, None, None).unwrap();
        assert_eq!(model.info.precision, DType::BF16);
        let (ours, gradient) = model.gradient(&x, cotangent.view()).unwrap();
        assert!(ours.iter().zip(&e).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {ours} {e}");
        assert!(gradient.iter().zip(&g).all(|(a, b)| (a - b).abs() < 1e-6), "{name}");
        let (error, findings) = measured(&mut model);
        assert!(error.unwrap() < 1e-2, "{name}: {error:?}");
        says(&findings.iter().find(|f| f.check == "precision").expect(name).found, &["bfloat16"]);
    }
}

/// Gradients estimated from forward passes, against exact ones.
#[test]
fn estimated_signs_agree_with_exact_ones_and_follow_from_the_seed() {
    let mut r = Rng::new(1);
    let values: Vec<f32> = (0..64 * 4).map(|_| 0.2 * r.normal()).collect();
    let nodes = vec![
        Node::new("Flatten", &["x"], "flat"),
        Node::new("MatMul", &["flat", "w"], "product"),
        Node::new("Tanh", &["product"], "y"),
    ];
    let graph = grey(2, nodes, &[("w", Tensor::f32(&[64, 4], &values))], &["y"]);
    let path = write("estimate", &graph.encode());
    let mut r = Rng::new(2);
    let x = r.units(2 * 64);
    let cotangent = Array2::from_shape_fn((2, 4), |_| r.normal());
    let (_, exact) =
        Model::open(&path, &Card::default(), CPU, None).unwrap().gradient(&x, cotangent.view()).unwrap();
    let estimate = |seed| {
        let mut model = Model::open_estimated(&path, &Card::default(), CPU, None, seed).unwrap();
        let (_, g) = model.gradient(&x, cotangent.view()).unwrap();
        // 50 mirrored pairs, and the embedding itself.
        assert_eq!(model.passes(), 101);
        assert!(model.graphs.estimated);
        g
    };
    let g = estimate(7);
    let agree = g.iter().zip(&exact).filter(|(a, b)| a.signum() == b.signum()).count();
    // 50 directions of 64: the expected cosine is about 0.65, for which 70 % of signs agree; chance gives 50
    // ± 4 %.
    assert!(agree as f32 > 0.62 * exact.len() as f32, "{agree} of {}", exact.len());
    assert_eq!(g, estimate(7));
    assert_ne!(g, estimate(8));
}

/// ONNX Runtime's last level of optimisation writes these operators into saved models.
#[test]
fn a_model_saved_for_one_machine_says_so() {
    let mut conv = Node::new("Conv", &["x", "w"], "map");
    conv.domain = "com.microsoft.nchwc".into();
    let mut graph = grey(BATCH, vec![conv], &[("w", weights(&[8, 1, 3, 3]))], &["map"]);
    graph.opsets.insert("com.microsoft.nchwc".into(), 1);
    insta::assert_snapshot!(refused("blocked", &graph, None));
}

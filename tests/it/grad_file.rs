//! `audit grad`: the file against the audit's own gradient, finite differences and PyTorch, run as its users
//! run it.

use crate::common::models::{DIM, SIDE, Weights, grey, small, trunk, trunk_weights, value};
use crate::common::{CPU, Ran, Rng, Temp, one_line, program, ran, run, says};
use crate::report_fixture::python;
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{Input, Session};
use ndarray::{Array2, ArrayView2};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor};
use std::path::Path;

const PLAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/plain.onnx");

fn stage(graph: &Graph) -> Temp {
    crate::common::load_runtime();
    let dir = Temp::new();
    dir.write("model.onnx", graph.encode());
    dir
}

fn grad(dir: &Temp, args: &[&str]) -> Ran {
    ran(program(dir.path()).arg("grad").args(args))
}

/// Writes the gradient of `model`. Returns the output, and the graph.
fn written(dir: &Temp, model: &str, args: &[&str]) -> (String, Graph) {
    let done = grad(dir, &[&[model, "-o", "model.grad.onnx"], args].concat()).ended(0);
    let path = dir.join("model.grad.onnx");
    (done.out, Graph::decode_as_is(std::fs::read(&path).unwrap().into(), &path).unwrap())
}

/// The embeddings and gradients of the file.
struct File {
    session: Session,
    /// Shape of one image.
    shape: Vec<i64>,
    dim: usize,
}

impl File {
    fn new(graph: &Graph) -> File {
        let dims = |i: usize| -> Vec<i64> {
            let dims = graph.inputs[i].shape.as_deref().unwrap();
            dims[1..].iter().map(|d| if let Dim::Known(n) = d { *n } else { panic!("{d:?}") }).collect()
        };
        let session = Session::as_shipped(graph, CPU).unwrap();
        File { session, shape: dims(0), dim: dims(1)[0] as usize }
    }
    fn pixels(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }
    fn run(&mut self, image: &[f32], cotangent: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let n = (image.len() / self.pixels()) as i64;
        let shape = [&[n][..], &self.shape].concat();
        let rows = [n, self.dim as i64];
        let feed = [("image", Input::Host(&shape, image)), ("cotangent", Input::Host(&rows, cotangent))];
        let found = self.session.run(&feed, &["embedding", "gradient"]).unwrap();
        let values = |i: usize| found[i].floats().unwrap().1.to_vec();
        (values(0), values(1))
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b))) / norm(&mut b.iter().map(|b| f64::from(*b)))
}

/// Relative error of the gradient along itself, by central differences of the file's own embeddings.
fn finite_difference(file: &mut File, x: &[f32], cotangent: &[f32], gradient: &[f32]) -> f64 {
    let most = gradient.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let mut phi = |h: f32| -> f64 {
        let moved: Vec<f32> = x.iter().zip(gradient).map(|(x, g)| x + h * g / most).collect();
        let (e, _) = file.run(&moved, cotangent);
        e.iter().zip(cotangent).map(|(e, c)| f64::from(*e) * f64::from(*c)).sum()
    };
    let expected = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>() / f64::from(most);
    let error = |h: f32| ((phi(h) - phi(-h)) / (2.0 * f64::from(h)) - expected).abs() / expected;
    [1e-2, 1e-3, 1e-4].into_iter().map(error).fold(f64::INFINITY, f64::min)
}

/// Compares a file for any batch at a batch that the program itself did not try.
fn agrees(dir: &Temp, model: &Path, graph: &Graph) {
    const BATCH: usize = 4;
    let mut file = File::new(graph);
    let mut own = Model::open(model, &Card::default(), CPU, Some(BATCH)).unwrap();
    let rng = &mut Rng::new(1);
    let x = rng.units(BATCH * own.pixels());
    let cotangent: Vec<f32> = (0..BATCH * own.info.dim).map(|_| rng.normal()).collect();
    let view = ArrayView2::from_shape((BATCH, own.info.dim), &cotangent).unwrap();
    let (e, g): (Array2<f32>, Vec<f32>) = own.gradient(&x, view).unwrap();
    let (embedding, gradient) = file.run(&x, &cotangent);
    assert!(distance(&embedding, e.as_slice().unwrap()) < 1e-5, "{}", dir.path().display());
    assert!(distance(&gradient, &g) < 1e-4);
    assert!(finite_difference(&mut file, &x, &cotangent, &gradient) < 2e-2);
}

#[test]
fn the_bundled_model_for_any_batch() {
    crate::common::load_runtime();
    let dir = Temp::new();
    let (said, graph) = written(&dir, PLAIN, &[]);
    let values = |of: &[onnx_grad::graph::Value]| -> Vec<String> {
        of.iter().map(|v| format!("{} {}", v.name, v.shape_text())).collect()
    };
    assert_eq!(values(&graph.inputs), ["image [batch, 1, 28, 28]", "cotangent [batch, 128]"]);
    assert_eq!(values(&graph.outputs), ["embedding [batch, 128]", "gradient [batch, 1, 28, 28]"]);
    let shapes = [values(&graph.inputs), values(&graph.outputs)].concat();
    assert!(shapes.iter().all(|s| said.contains(s.split_once(' ').unwrap().1)), "{said}");
    assert_eq!(graph.opsets.iter().collect::<Vec<_>>(), [(&String::new(), &21)]);
    assert!(graph.nodes.iter().all(|n| n.domain.is_empty()));
    assert_eq!(graph.metadata["audit.model"], "plain.onnx");
    assert_eq!(graph.metadata["audit.model_sha256"].len(), 64);
    agrees(&dir, Path::new(PLAIN), &graph);
}

/// By the model's own input, the gradient is the gradient by pixels times the standard deviation, at the
/// input that the pixels become.
#[test]
fn raw_is_the_models_own_input() {
    let dir = stage(&small());
    let words = ["--range", "0,1", "--mean", "0.4", "--std", "0.25"];
    let mut by_pixels = File::new(&written(&dir, "model.onnx", &words).1);
    let (said, graph) = written(&dir, "model.onnx", &[&["--raw"][..], &words].concat());
    assert!(said.contains("the model's own input"), "{said}");
    let mut raw = File::new(&graph);
    let rng = &mut Rng::new(2);
    let x = rng.units(3 * raw.pixels());
    let cotangent = rng.units(3 * raw.dim);
    let inner: Vec<f32> = x.iter().map(|x| (x - 0.4) / 0.25).collect();
    let (e, g) = by_pixels.run(&x, &cotangent);
    let (embedding, gradient) = raw.run(&inner, &cotangent);
    let scaled: Vec<f32> = gradient.iter().map(|g| g / 0.25).collect();
    assert!(distance(&embedding, &e) < 1e-5 && distance(&scaled, &g) < 1e-4);
}

/// PyTorch's x[:, [2, 1, 0]].clamp(0, 1) passes the gradient at black and white pixels too: that of a channel
/// is the cotangent of the channel in its place.
#[test]
fn black_and_white_pixels_have_a_gradient_in_bgr_too() {
    let nodes =
        vec![Node::new("Clip", &["image", "low", "high"], "c"), Node::new("Flatten", &["c"], "embedding")];
    let mut graph = grey(nodes, Weights::new(1).floats("low", &[], &[0.0]).floats("high", &[], &[1.0]));
    let plane = 6 * 6;
    graph.inputs = vec![value("image", Dim::Free("batch".into()), &[3, 6, 6])];
    graph.outputs = vec![value("embedding", Dim::Free("batch".into()), &[3 * plane as i64])];
    let dir = stage(&graph);
    let mut file = File::new(&written(&dir, "model.onnx", &["--channels", "bgr"]).1);
    let rng = &mut Rng::new(3);
    let x: Vec<f32> = rng.units(3 * plane).into_iter().map(f32::round).collect();
    let cotangent: Vec<f32> = (0..3 * plane).map(|_| rng.normal()).collect();
    let (_, gradient) = file.run(&x, &cotangent);
    let expected: Vec<f32> = cotangent.chunks(plane).rev().flatten().copied().collect();
    assert_eq!(gradient, expected);
}

/// Such a file has preprocessing in it, and gets more in front, in nodes of the same kind. One model with
/// both in its flags has the same embeddings and gradients.
#[test]
fn a_file_that_the_command_wrote_is_a_model_too() {
    let dir = stage(&small());
    written(&dir, "model.onnx", &["--mean", "0.4", "--std", "0.25"]);
    std::fs::rename(dir.join("model.grad.onnx"), dir.join("first.onnx")).unwrap();
    let words = ["--input", "image", "--output", "embedding", "--mean", "0.5", "--std", "0.5"];
    let mut twice = File::new(&written(&dir, "first.onnx", &words).1);
    // ((x − 0.5) / 0.5 − 0.4) / 0.25 = (x − 0.7) / 0.125
    let mut once = File::new(&written(&dir, "model.onnx", &["--mean", "0.7", "--std", "0.125"]).1);
    let rng = &mut Rng::new(5);
    let (x, cotangent) = (rng.units(2 * once.pixels()), rng.units(2 * once.dim));
    let (e, g) = once.run(&x, &cotangent);
    let (embedding, gradient) = twice.run(&x, &cotangent);
    assert!(distance(&embedding, &e) < 1e-4 && distance(&gradient, &g) < 1e-4);
}

#[test]
fn a_fixed_batch_stays() {
    let dir = stage(&small());
    let (said, graph) = written(&dir, "model.onnx", &["--batch", "3"]);
    assert_eq!(graph.inputs[0].fixed_batch(), Some(3));
    assert!(said.contains("a batch of 3"), "{said}");
    let mut fixed = small();
    fixed.inputs = vec![value("image", Dim::Known(2), &[1, SIDE, SIDE])];
    fixed.outputs = vec![value("embedding", Dim::Known(2), &[DIM])];
    dir.write("fixed.onnx", fixed.encode());
    let (_, graph) = written(&dir, "fixed.onnx", &[]);
    assert_eq!(graph.inputs[0].fixed_batch(), Some(2));
    let done = grad(&dir, &["fixed.onnx", "--batch", "3", "-o", "other.onnx"]);
    assert!(done.code == Some(2) && done.err.contains("fixed to 2"), "{}", done.err);
    assert!(!dir.join("other.onnx").exists());
}

/// A class token that is expanded to the batch, a reshape of all tokens, and a row number for each image.
fn tokens() -> Graph {
    let nodes = vec![
        Node::new("Shape", &["image"], "shape").with("end", 1),
        Node::new("Concat", &["shape", "token-shape"], "class-shape").with("axis", 0),
        Node::new("Expand", &["token", "class-shape"], "class"),
        Node::new("Reshape", &["image", "rows"], "patches"),
        Node::new("Concat", &["class", "patches"], "all").with("axis", 1),
        Node::new("MatMul", &["all", "w"], "hidden"),
        Node::new("Tanh", &["hidden"], "active"),
        Node::new("Squeeze", &["shape"], "count"),
        Node::new("Range", &["zero", "count", "one"], "range"),
        Node::new("Reshape", &["range", "column"], "images"),
        Node::new("Concat", &["shape", "ones"], "images-shape").with("axis", 0),
        Node::new("Expand", &["five", "images-shape"], "place"),
        Node::new("Concat", &["images", "place"], "which").with("axis", 1),
        Node::new("GatherND", &["active", "which"], "picked"),
        Node::new("ReduceMean", &["active", "axes"], "mean").with("keepdims", 0),
        Node::new("Add", &["picked", "mean"], "embedding"),
    ];
    let own = Weights::new(3)
        .normal("token", &[1, 1, SIDE], 1.0)
        .normal("w", &[SIDE, DIM], 0.4)
        .ints("token-shape", &[1, SIDE])
        .ints("rows", &[-1, SIDE, SIDE])
        .ints("column", &[-1, 1])
        .ints("ones", &[1])
        .ints("axes", &[1]);
    let mut graph = grey(nodes, own);
    for (name, v) in [("zero", 0), ("one", 1)] {
        graph.constants.insert(name.into(), Tensor::i64(&[], &[v]));
    }
    graph.constants.insert("five".into(), Tensor::i64(&[1, 1], &[5]));
    graph
}

#[test]
fn what_a_model_makes_of_its_batch_is_made_of_any() {
    let dir = stage(&tokens());
    let (_, graph) = written(&dir, "model.onnx", &[]);
    assert_eq!(graph.inputs[0].shape_text(), "[batch, 1, 12, 12]");
    assert!(graph.nodes.iter().any(|n| n.op == "Shape"));
    agrees(&dir, &dir.join("model.onnx"), &graph);
}

/// The embedding is divided by the batch: no integer, and nothing that a graph for any batch can hold as a
/// constant.
#[test]
fn another_use_of_the_batch_is_refused_with_the_way_out() {
    let mut nodes = trunk("image", "inner", "");
    nodes.push(Node::new("Shape", &["image"], "shape").with("end", 1));
    nodes.push(Node::new("Cast", &["shape"], "count").with("to", DType::F32.code() as i64));
    nodes.push(Node::new("Div", &["inner", "count"], "embedding"));
    let dir = stage(&grey(nodes, trunk_weights(Weights::new(1), "", 1)));
    let done = grad(&dir, &["model.onnx", "-o", "model.grad.onnx"]).ended(3);
    says(&done.err, &["--batch 1", "Div"]);
    assert_eq!(dir.names(), ["model.onnx"]);
    let (_, graph) = written(&dir, "model.onnx", &["--batch", "1"]);
    assert_eq!(graph.inputs[0].fixed_batch(), Some(1));
}

#[test]
fn nodes_without_their_own_derivative_are_named() {
    let mut nodes = trunk("image", "inner", "");
    nodes.push(Node::new("Round", &["inner"], "rounded"));
    nodes.push(Node::new("Add", &["inner", "rounded"], "embedding"));
    nodes[4].name = "coarse".into();
    let dir = stage(&grey(nodes, trunk_weights(Weights::new(1), "", 1)));
    let (said, graph) = written(&dir, "model.onnx", &[]);
    assert!(said.contains("Gradient of zero") && said.contains("Round \"coarse\""), "{said}");
    assert_eq!(graph.metadata["audit.zero_gradient"], "Round \"coarse\"");
}

/// A model that an audit refuses is not written: there is one rule for both.
#[test]
fn a_gradient_that_an_audit_refuses_is_not_written() {
    let steps = [Node::new("Mul", &["image", "four"], "scaled"), Node::new("Floor", &["scaled"], "stepped")];
    let weights = trunk_weights(Weights::new(1), "", 1).floats("four", &[], &[4.0]);
    let dir = stage(&grey([&steps[..], &trunk("stepped", "embedding", "")].concat(), weights));
    let audited = run(dir.path(), ["model.onnx", "--max-queries", "2", "-q"]).ended(12);
    let done = grad(&dir, &["model.onnx", "-o", "out.onnx"]).ended(12);
    for said in [&audited.err, &done.err] {
        says(&one_line(said), &["the gradient is zero on every image"]);
    }
    says(&done.err, &["nothing is written"]);
    assert!(!done.err.contains("--allow-untrusted") && !dir.join("out.onnx").exists(), "{}", done.err);
}

#[test]
fn wrong_use_is_an_error() {
    let dir = stage(&small());
    says(&grad(&dir, &["model.onnx", "-o", "model.txt"]).ended(2).err, &[".onnx"]);
    says(&grad(&dir, &["model.onnx", "-o", "nowhere/model.grad.onnx"]).ended(2).err, &["nowhere"]);
    dir.write("broken.onnx", "no model");
    let done = grad(&dir, &["broken.onnx", "-o", "model.grad.onnx"]).ended(3);
    assert_eq!(done.err.matches("broken.onnx").count(), 1, "{}", done.err);
}

/// Both programs of docs/gradients.md, in a folder with a model that PyTorch exported, against PyTorch's own
/// gradient.
#[test]
#[ignore = "needs Python with torch, onnx, onnxruntime"]
fn the_python_of_the_documentation_agrees_with_pytorch() {
    const EXPORT: &str = include_str!("grad_file_export.py");
    const COMPARE: &str = include_str!("grad_file_compare.py");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gradients.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    let dir = Temp::new();
    for (i, block) in blocks.iter().enumerate() {
        dir.write(&format!("{i}.py"), block);
    }
    let folder = dir.path().to_str().unwrap();
    let needs = "torch, onnx, onnxruntime";
    python(needs, EXPORT, &[folder]);
    let words = ["--range", "0,1", "--mean", "0.5,0.4,0.3", "--std", "0.2,0.3,0.25"];
    let (_, graph) = written(&dir, "model.onnx", &words);
    assert_eq!(graph.inputs[0].shape_text(), "[batch, 3, 20, 20]");
    assert_eq!(python(needs, COMPARE, &[folder]), "compared\n");
}

/// A convolutional net with `middle` from "m1" to "m2", 16 channels, and `last` from "f" to its embedding.
fn convolutional(middle: Vec<Node>, last: &str) -> Graph {
    let conv = |x: &str, w: &str, y: &str| Node::new("Conv", &[x, w], y).with("pads", vec![1i64; 4]);
    let swish = [Node::new("Sigmoid", &["c1"], "s1"), Node::new("Mul", &["c1", "s1"], "m1")];
    let pooled = [Node::new("GlobalAveragePool", &["c3"], "p"), Node::new("Flatten", &["p"], "f")];
    let mut nodes = vec![conv("image", "w1", "c1")];
    nodes.extend(swish.into_iter().chain(middle));
    nodes.extend([conv("m2", "w2", "c2"), Node::new("Relu", &["c2"], "r2"), conv("r2", "w3", "c3")]);
    nodes.extend(pooled.into_iter().chain([Node::new(last, &["f"], "embedding")]));
    let weights = Weights::new(4).normal("w1", &[16, 1, 3, 3], 0.5).normal("w2", &[16, 16, 3, 3], 0.2);
    grey(nodes, weights.normal("w3", &[DIM, 16, 3, 3], 0.3))
}

/// Dequantised int8 values that the gradient reads again: ONNX Runtime's default options put a quantiser
/// behind the reader, and refused the graph. At grey levels the model's quantiser changes nothing, so that the
/// same net without it has the expected embeddings and central differences.
#[test]
fn int8_values_that_the_gradient_reads_again() {
    let net = |quantised: bool| {
        let pool = Node::new("MaxPool", &[if quantised { "seen" } else { "image" }], "pooled");
        let nodes = vec![
            Node::new("QuantizeLinear", &["image", "scale", "zero"], "levels"),
            Node::new("DequantizeLinear", &["levels", "scale", "zero"], "seen"),
            pool.with("kernel_shape", vec![2i64, 2]).with("strides", vec![2i64, 2]),
            Node::new("Flatten", &["pooled"], "flat"),
            Node::new("MatMul", &["flat", "w"], "embedding"),
        ];
        let weights = Weights::new(4).normal("w", &[SIDE * SIDE / 4, DIM], 0.3);
        let mut graph = grey(nodes, weights.floats("scale", &[], &[1.0 / 255.0]));
        let zero = Tensor { dtype: DType::I8, shape: vec![], bytes: vec![0x80].into() };
        graph.constants.insert("zero".into(), zero);
        graph.opsets.insert(String::new(), 17);
        graph.prune();
        graph
    };
    let [mut quantised, mut float] = [true, false].map(|quantised| {
        let dir = stage(&net(quantised));
        File::new(&written(&dir, "model.onnx", &[]).1)
    });
    // No two levels are equal, so that each largest value is one pixel.
    let x: Vec<f32> = (0..SIDE * SIDE).map(|i| (50 + i * 37 % (SIDE * SIDE)) as f32 / 255.0).collect();
    let rng = &mut Rng::new(7);
    let cotangent: Vec<f32> = (0..DIM).map(|_| rng.normal()).collect();
    let (embedding, gradient) = quantised.run(&x, &cotangent);
    assert!(distance(&embedding, &float.run(&x, &cotangent).0) < 1e-5);
    assert!(finite_difference(&mut float, &x, &cotangent, &gradient) < 2e-2);
}

/// Both graphs of convolutional nets are optimised together and cut in two: values cross the cut in blocks of
/// channels (16 here), and in rows; the embedding itself is one (Tanh and LpNormalization read their output).
/// Nets that can't be optimised so, because shapes are inferred wrong or names are ours, are attacked too.
#[test]
fn graphs_that_are_optimised_together() {
    let same = |name: &str| vec![Node::new("Identity", &["m1"], name), Node::new("Identity", &[name], "m2")];
    let pool = Node::new("MaxPool", &["m1"], "m2").with("kernel_shape", vec![2i64, 2]);
    let pool = pool.with("strides", vec![3i64, 3]).with("ceil_mode", 1).with("pads", vec![1i64; 4]);
    let nets = [
        convolutional(same("s"), "Tanh"),
        convolutional(same("s"), "LpNormalization"),
        convolutional(same("s"), "Identity"),
        convolutional(same("cotangent/audit/embedding"), "Identity"),
        convolutional(same("audit/alpha"), "Identity"),
        convolutional(vec![pool], "Identity"),
    ];
    for net in nets {
        let dir = stage(&net);
        let (_, graph) = written(&dir, "model.onnx", &[]);
        agrees(&dir, &dir.join("model.onnx"), &graph);
        steps_along_the_sign(&dir.join("model.onnx"));
    }
}

/// A signed step, which overwrites the image in its place, moves it by α along the sign of the gradient.
fn steps_along_the_sign(model: &Path) {
    const ALPHA: f32 = 0.01;
    let mut model = Model::open(model, &Card::default(), CPU, Some(1)).unwrap();
    let rng = &mut Rng::new(2);
    let x = rng.units(model.pixels());
    let cotangent = Array2::from_shape_simple_fn((1, model.info.dim), || rng.normal());
    let (_, gradient) = model.gradient(&x, cotangent.view()).unwrap();
    let mut workers = model.workers();
    let steps = workers[0].signed_steps().unwrap();
    steps.put(0, &x, &vec![0.0; x.len()], &vec![1.0; x.len()]).unwrap();
    steps.step(&[ALPHA], &mut |_, mut given| given.assign(&cotangent)).unwrap();
    let expected = x.iter().zip(&gradient).map(|(x, g)| (x - ALPHA * sign(*g)).clamp(0.0, 1.0));
    let expected: Vec<f32> = expected.collect();
    assert!(distance(steps.get(0).unwrap(), &expected) < 1e-6);
}

fn sign(v: f32) -> f32 {
    if v == 0.0 { 0.0 } else { v.signum() }
}

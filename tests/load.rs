//! Loading: local functions, conditions, embeddings of every shape, and damaged files.

mod common;

use audit::attack::Differentiable;
use audit::model::Model;
use audit::model::card::Card;
use audit::model::output::Pooling;
use audit::model::runtime::{Options, Provider};
use audit::onnx::{DType, Graph, Node, Tensor, Value};
use common::Rng;
use ndarray::Array2;
use std::path::{Path, PathBuf};

const CPU: Options = Options { provider: Provider::Cpu, threads: 1 };
const SIDE: i64 = 8;
const BATCH: i64 = 2;

fn untyped(name: &str) -> Value {
    Value { name: name.into(), dtype: DType::Other(0), shape: None }
}

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

/// [batch, 4, 3, 3] named "map", out of a convolution.
fn map() -> (Vec<Node>, (&'static str, Tensor)) {
    let conv = Node::new("Conv", &["x", "w"], "map").with("strides", vec![2, 2]);
    (vec![conv], ("w", weights(&[4, 1, 3, 3])))
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{name}.onnx"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(name: &str, graph: &Graph, pooling: Option<Pooling>, output: Option<&str>) -> audit::Result<Model> {
    common::load_runtime();
    let card = Card { pooling, output: output.map(str::to_string), ..Default::default() };
    Model::open(&write(name, &graph.encode()), &card, CPU, None)
}

fn pixels(batch: i64) -> Vec<f32> {
    let mut r = Rng::new(9);
    (0..batch * SIDE * SIDE).map(|_| r.unit()).collect()
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

#[test]
fn feature_maps_and_tokens_are_pooled_as_stated() {
    let (mut nodes, w) = map();
    let graph = grey(BATCH, nodes.clone(), std::slice::from_ref(&w), &["map"]);
    for pooling in [Pooling::Mean, Pooling::Max] {
        agrees(&mut open("map", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
    let error = open("map", &graph, Some(Pooling::Cls), None).err().unwrap().to_string();
    assert!(error.contains("feature map"), "{error}");
    let error = open("map", &graph, None, None).err().unwrap().to_string();
    assert!(error.contains("--pooling"), "{error}");

    // [batch, 9 tokens, 4]
    nodes.push(Node::new("Reshape", &["map", "flat"], "columns"));
    nodes.push(Node::new("Transpose", &["columns"], "tokens").with("perm", vec![0, 2, 1]));
    let graph = grey(BATCH, nodes, &[w, ("flat", Tensor::ints(&[0, 4, -1]))], &["tokens"]);
    for pooling in [Pooling::Cls, Pooling::Mean, Pooling::Max] {
        agrees(&mut open("tokens", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
}

#[test]
fn dimensions_of_one_and_batches_of_one_are_no_hindrance() {
    let (mut nodes, w) = map();
    nodes.push(Node::new("GlobalAveragePool", &["map"], "pooled"));
    let graph = grey(BATCH, nodes.clone(), std::slice::from_ref(&w), &["pooled"]);
    agrees(&mut open("pooled", &graph, None, None).unwrap(), BATCH, 4);

    nodes.push(Node::new("Squeeze", &["pooled"], "vector"));
    let graph = grey(1, nodes, std::slice::from_ref(&w), &["vector"]);
    agrees(&mut open("vector", &graph, None, None).unwrap(), 1, 4);
}

#[test]
fn of_several_outputs_one_is_chosen() {
    let (mut nodes, w) = map();
    nodes.push(Node::new("GlobalAveragePool", &["map"], "mean"));
    nodes.push(Node::new("GlobalMaxPool", &["map"], "max"));
    let graph = grey(BATCH, nodes, std::slice::from_ref(&w), &["mean", "max", "map"]);
    let error = open("several", &graph, None, None).err().unwrap().to_string();
    assert!(error.contains("--output") && error.contains("mean") && error.contains("max"), "{error}");
    agrees(&mut open("several", &graph, None, Some("max")).unwrap(), BATCH, 4);
    // With pooling stated, only the feature map qualifies.
    let model = open("several", &graph, Some(Pooling::Mean), None).unwrap();
    assert_eq!(model.info.output, "map");
}

#[test]
fn a_condition_that_is_constant_is_folded() {
    let branch = |op: &str| {
        let mut g = Graph::new(vec![Node::new(op, &["map"], "chosen")], Default::default());
        g.outputs = vec![untyped("chosen")];
        audit::onnx::Attr::Graph(Box::new(g))
    };
    let (mut nodes, w) = map();
    // Known from the shape alone, as exporters write it.
    nodes.push(Node::new("Shape", &["map"], "shape"));
    nodes.push(Node::new("Size", &["shape"], "rank"));
    nodes.push(Node::new("Equal", &["rank", "four"], "is_map"));
    let mut condition = Node::new("If", &["is_map"], "y");
    condition.attrs.insert("then_branch".into(), branch("GlobalAveragePool"));
    condition.attrs.insert("else_branch".into(), branch("Identity"));
    nodes.push(condition);
    let graph = grey(BATCH, nodes, &[w, ("four", Tensor::i64(&[], &[4]))], &["y"]);
    agrees(&mut open("if", &graph, None, None).unwrap(), BATCH, 4);
}

#[test]
fn nodes_in_any_order_are_sorted_and_cycles_are_named() {
    let n = 100_000;
    let value = |i: usize| if i == 0 { "x".to_string() } else { format!("v{i}") };
    let chain: Vec<Node> = (0..n).rev().map(|i| Node::new("Neg", &[&value(i)], &value(i + 1))).collect();
    let graph = grey(1, chain, &[], &[&value(n)]);
    let sorted = Graph::decode(graph.encode().into(), Path::new("chain.onnx")).unwrap();
    assert!(sorted.nodes.iter().enumerate().all(|(i, node)| node.inputs[0] == value(i)));

    let cycle = vec![Node::new("Add", &["x", "b"], "a"), Node::new("Neg", &["a"], "b")];
    let graph = grey(1, cycle, &[], &["b"]);
    let error = Graph::decode(graph.encode().into(), Path::new("c.onnx")).unwrap_err().to_string();
    assert!(error.contains("cycle") && error.contains("c.onnx"), "{error}");

    let twice = vec![Node::new("Neg", &["x"], "a"), Node::new("Abs", &["x"], "a")];
    let graph = grey(1, twice, &[], &["a"]);
    let error = Graph::decode(graph.encode().into(), Path::new("t.onnx")).unwrap_err().to_string();
    assert!(error.contains("twice") && error.contains("Neg \"a\""), "{error}");
}

/// Bytes flipped, cut and doubled: an error or a graph, never a panic.
#[test]
fn damaged_bytes_are_no_reason_to_panic() {
    let (mut nodes, w) = map();
    nodes.push(Node::new("GlobalAveragePool", &["map"], "y"));
    let whole = grey(BATCH, nodes, std::slice::from_ref(&w), &["y"]).encode();
    for seed in 0..3000 {
        let mut r = Rng::new(seed);
        let mut bytes = whole.clone();
        for _ in 0..r.int(1, 4) {
            let at = r.int(0, bytes.len() as i64 - 1) as usize;
            match r.int(0, 3) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = r.int(0, 255) as u8,
                2 => bytes[at] ^= 1 << r.int(0, 7),
                _ => bytes.insert(at, r.int(0, 255) as u8),
            }
        }
        let _ = Graph::decode(bytes.into(), Path::new("damaged.onnx"));
    }
}

//! Models of thousands of nodes: the time to load one grows with the number of its nodes, and its gradient is
//! right.

use crate::common::models::{Weights, grey};
use crate::common::{CPU, Rng, Temp, load_runtime};
use audit::check;
use audit::model::Model;
use audit::model::card::Card;
use onnx_grad::Graph;
use onnx_grad::graph::Node;
use std::time::{Duration, Instant};

/// Residual blocks of a convolution, a tanh and a sum, about `n` nodes in a row.
fn chain(n: usize) -> Graph {
    let mut weights = Weights::new(7).normal("first", &[4, 1, 3, 3], 0.4).normal("head", &[8, 4], 1.0);
    let pads = || vec![1i64, 1, 1, 1];
    let mut nodes = vec![Node::new("Conv", &["image", "first"], "v0").with("pads", pads())];
    for i in 0..n / 3 {
        let [at, w, c, t, to] =
            [format!("v{i}"), format!("w{i}"), format!("c{i}"), format!("t{i}"), format!("v{}", i + 1)];
        // Small, so that the sum of many neither explodes nor hides the image.
        weights = weights.normal(&w, &[4, 4, 3, 3], 0.02);
        nodes.push(Node::new("Conv", &[&at, &w], &c).with("pads", pads()));
        nodes.push(Node::new("Tanh", &[&c], &t));
        nodes.push(Node::new("Add", &[&at, &t], &to));
    }
    nodes.push(Node::new("GlobalAveragePool", &[&format!("v{}", n / 3)], "pooled"));
    nodes.push(Node::new("Flatten", &["pooled"], "flat"));
    nodes.push(Node::new("Gemm", &["flat", "head"], "embedding").with("transB", 1i64));
    grey(nodes, weights)
}

fn open(graph: &Graph, temp: &Temp) -> (Model, Duration) {
    let path = temp.write("chain.onnx", graph.encode());
    let start = Instant::now();
    let model = Model::open(&path, &Card::default(), CPU, Some(2)).unwrap();
    (model, start.elapsed())
}

/// Six times the nodes take six times the time, and twice that on a busy machine; with a pass whose time
/// grows with the square they would take 36 times.
#[test]
#[ignore = "slow"]
fn the_time_to_load_grows_with_the_nodes() {
    load_runtime();
    let temp = Temp::new();
    let [short, long] = [2_000, 12_000].map(chain);
    let mut least = [Duration::MAX; 2];
    // Alternating, so that other work on the machine slows both; the best time counts.
    for _ in 0..3 {
        for (least, graph) in least.iter_mut().zip([&short, &long]) {
            *least = open(graph, &temp).1.min(*least);
        }
    }
    eprintln!("{least:?}");
    assert!(least[1] < 12 * least[0], "{least:?}");
}

/// A gradient that runs in pieces agrees with finite differences of the file itself.
#[test]
#[ignore = "slow"]
fn the_gradient_of_thousands_of_nodes_is_right() {
    load_runtime();
    let temp = Temp::new();
    let (mut model, _) = open(&chain(6_000), &temp);
    assert!(model.graphs.backward_nodes > 8_000, "{}", model.graphs.backward_nodes);
    let pixels = Rng::new(1).units(2 * model.pixels());
    let measured = check::load::measure(&mut model, &pixels, 2, &mut |_, _| {}).unwrap();
    let summary = measured.summary();
    assert!(summary.gradient_error.is_some_and(|e| e < 1e-2), "{summary:?}");
}

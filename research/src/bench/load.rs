//! `cargo research bench load`: CPU time and memory of loading a model of many nodes, gradient included.
//!
//! The model is loaded for batches of 4 on one thread. Linux only: it reads /proc.

use super::cpu_seconds;
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{self, Options, Provider};
use audit::{Error, Result};
use clap::{Args, ValueEnum};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Node, Tensor, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rows and columns of an image.
const SIDE: i64 = 12;

/// The model to write and load.
#[derive(Args)]
pub struct Flags {
    /// What its nodes are
    kind: Kind,
    /// How many nodes it has, about
    nodes: usize,
    /// The .onnx file to write
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Blocks of convolutions
    Residual,
    /// Sigmoid and Tanh in turns
    Sigmoids,
}

/// Writes the model, loads it, and returns `nodes, nodes of the gradient graph, CPU seconds, peak megabytes`.
pub fn measure(flags: &Flags) -> Result<String> {
    let Flags { kind, nodes, file } = flags;
    let graph = match kind {
        Kind::Residual => residual(*nodes),
        Kind::Sigmoids => sigmoids(*nodes),
    };
    std::fs::write(file, graph.encode())
        .map_err(|e| Error::usage(format!("can't write {}: {e}", file.display())))?;
    runtime::load(None, None)?;
    let before = cpu_seconds()?;
    let options = Options { provider: Provider::Cpu, threads: 1 };
    let model = Model::open(file, &Card::default(), options, Some(4))?;
    let seconds = cpu_seconds()? - before;
    let peak = crate::memory("self", "VmHWM")
        .ok_or_else(|| Error::internal("the system does not say how much memory this process took"))?;
    let megabytes = peak as f64 / 1024.0;
    Ok(format!("{}, {}, {seconds:.1}, {megabytes:.0}", graph.nodes.len(), model.graphs.backward_nodes))
}

/// Grey images to embeddings of 8 numbers: a convolution to four channels, `body` from "v0" to its returned
/// value, a head.
fn model(body: impl FnOnce(&mut Vec<Node>, &mut BTreeMap<String, Tensor>) -> String) -> Graph {
    let mut constants = BTreeMap::new();
    let mut nodes = vec![Node::new("Conv", &["image", "first"], "v0").with("pads", vec![1i64, 1, 1, 1])];
    constants.insert("first".to_string(), weights(&[4, 1, 3, 3], 0.4, 0));
    constants.insert("head".to_string(), weights(&[8, 4], 1.0, 1));
    let last = body(&mut nodes, &mut constants);
    nodes.push(Node::new("GlobalAveragePool", &[&last], "pooled"));
    nodes.push(Node::new("Flatten", &["pooled"], "flat"));
    nodes.push(Node::new("Gemm", &["flat", "head"], "embedding").with("transB", 1i64));
    let mut graph = Graph::new(nodes, constants);
    graph.inputs = vec![Value::new("image", DType::F32, &[4, 1, SIDE, SIDE])];
    graph.outputs = vec![Value::new("embedding", DType::F32, &[4, 8])];
    graph
}

/// Blocks of Conv, Relu, Conv, Add, each convolution with its own weights.
fn residual(count: usize) -> Graph {
    model(|nodes, constants| {
        for i in 0..count / 4 {
            let [at, a, b, w, r, c] = ["v", "a", "b", "w", "r", "c"].map(|kind| format!("{kind}{i}"));
            let to = format!("v{}", i + 1);
            // Small, so that the sum of many neither explodes nor hides the image.
            constants.insert(a.clone(), weights(&[4, 4, 3, 3], 0.02, i as u32 + 2));
            constants.insert(b.clone(), weights(&[4, 4, 3, 3], 0.02, i as u32 + 3));
            let pads = || vec![1i64, 1, 1, 1];
            nodes.push(Node::new("Conv", &[&at, &a], &w).with("pads", pads()));
            nodes.push(Node::new("Relu", &[&w], &r));
            nodes.push(Node::new("Conv", &[&r, &b], &c).with("pads", pads()));
            nodes.push(Node::new("Add", &[&at, &c], &to));
        }
        format!("v{}", count / 4)
    })
}

/// Alternating Sigmoid and Tanh: each stores a value for the gradient.
fn sigmoids(count: usize) -> Graph {
    model(|nodes, _| {
        for i in 0..count {
            let operator = if i % 2 == 0 { "Sigmoid" } else { "Tanh" };
            nodes.push(Node::new(operator, &[&format!("v{i}")], &format!("v{}", i + 1)));
        }
        format!("v{count}")
    })
}

/// Pseudorandom values in [−size, size]: Marsaglia's xorshift32.
fn weights(shape: &[i64], size: f32, seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let values: Vec<f32> = (0..shape.iter().product::<i64>())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            size * (state as f32 / u32::MAX as f32 * 2.0 - 1.0)
        })
        .collect();
    Tensor::f32(shape, &values)
}

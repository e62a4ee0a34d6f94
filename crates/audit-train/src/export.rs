//! Exports a trained net as an ONNX file with a model card for `audit`.

use crate::checkpoint::replace;
use crate::net::{EPSILON, IMAGENET, Layer, Net};
use crate::settings::PhotographSize;
use audit::files::hex;
use audit::{Error, Result};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Names of the input and the output.
pub const NAMES: [&str; 2] = ["image", "embedding"];

/// The net as a graph: `image` [batch, C, H, W] → `embedding` [batch, D], not normalised. The card has mean
/// and std.
pub fn graph(net: &Net) -> Result<Graph> {
    let mut constants = BTreeMap::new();
    for (name, t) in &net.weights {
        let flat = t.detach().to_device(tch::Device::Cpu).contiguous().view(-1);
        let values = Vec::<f32>::try_from(flat)
            .map_err(|e| Error::internal(format!("reading the weight {name}: {e}")))?;
        constants.insert(name.clone(), Tensor::f32(&t.size(), &values));
    }
    let mut nodes = Vec::new();
    let last = emit(&net.layers, NAMES[0].to_string(), &mut nodes);
    // The last node's output gets the name that users see.
    for node in &mut nodes {
        node.outputs.iter_mut().filter(|o| **o == last).for_each(|o| *o = NAMES[1].into());
    }
    let mut graph = Graph::new(nodes, constants);
    let (channels, side) = net.backbone.input;
    let batch = || Dim::Free("batch".into());
    let value = |name: &str, rest: &[i64]| {
        let shape = std::iter::once(batch()).chain(rest.iter().map(|&d| Dim::Known(d))).collect();
        Value { name: name.into(), dtype: DType::F32, shape: Some(shape) }
    };
    graph.inputs = vec![value(NAMES[0], &[channels, side, side])];
    graph.outputs = vec![value(NAMES[1], &[net.dim])];
    Ok(graph)
}

/// Writes `path` and, beside it, its card with the extension .yaml. `resize`: size of photographs in
/// training. `source`: origin of the model.
pub fn write(net: &Net, path: &Path, resize: PhotographSize, source: &str) -> Result<()> {
    let bytes = graph(net)?.encode();
    let hash = hex(&Sha256::digest(&bytes));
    let mut card = String::from("# Written by audit-train; audit reads it with the model.\n");
    if net.backbone.photograph {
        let row = |values: [f64; 3]| values.map(|v| v.to_string()).join(", ");
        card += "channels: rgb\n";
        card += &format!("range: [0, 1]\nmean: [{}]\nstd: [{}]\n", row(IMAGENET[0]), row(IMAGENET[1]));
        card += match resize {
            PhotographSize::Square => "resize: [256, 256]\n",
            PhotographSize::Shorter => "resize_shorter: 256\n",
        };
    } else {
        card += "channels: grey\nrange: [0, 1]\nmean: [0]\nstd: [1]\n";
    }
    card += "metric: normalized-euclidean\n";
    // JSON strings are YAML strings.
    card += &format!("source: {}\nsha256: {hash}\n", serde_json::Value::from(source));
    replace(path, &bytes)?;
    replace(&path.with_extension("yaml"), card.as_bytes())
}

fn windowed(node: Node, &[kernel, stride, pad]: &[i64; 3]) -> Node {
    node.with("kernel_shape", vec![kernel; 2]).with("strides", vec![stride; 2]).with("pads", vec![pad; 4])
}

/// Appends the layers' nodes and returns the name of the last output.
fn emit(layers: &[Layer], mut x: String, nodes: &mut Vec<Node>) -> String {
    for layer in layers {
        let out = format!("v{}", nodes.len());
        let (w, b) = (|name: &str| format!("{name}.weight"), |name: &str| format!("{name}.bias"));
        let mut node = match layer {
            Layer::Conv { name, window, bias, .. } => {
                let mut inputs = vec![x, w(name)];
                inputs.extend(bias.then(|| b(name)));
                let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
                windowed(Node::new("Conv", &inputs, &out), window)
            }
            Layer::Norm { name, .. } => {
                let stats = ["running_mean", "running_var"].map(|part| format!("{name}.{part}"));
                Node::new("BatchNormalization", &[&x, &w(name), &b(name), &stats[0], &stats[1]], &out)
                    .with("epsilon", EPSILON as f32)
            }
            Layer::Relu => Node::new("Relu", &[&x], &out),
            Layer::MaxPool { window } => windowed(Node::new("MaxPool", &[&x], &out), window),
            Layer::MeanPool => Node::new("GlobalAveragePool", &[&x], &out),
            Layer::Flatten => Node::new("Flatten", &[&x], &out).with("axis", 1),
            Layer::Linear { name, .. } => {
                Node::new("Gemm", &[&x, &w(name), &b(name)], &out).with("transB", 1)
            }
            Layer::Residual { body, shortcut } => {
                let body = emit(body, x.clone(), nodes);
                let shortcut = emit(shortcut, x, nodes);
                let sum = format!("v{}", nodes.len());
                nodes.push(Node {
                    name: format!("add{}", nodes.len()),
                    ..Node::new("Add", &[&body, &shortcut], &sum)
                });
                Node::new("Relu", &[&sum], &format!("v{}", nodes.len()))
            }
        };
        node.name = match layer {
            Layer::Conv { name, .. } | Layer::Norm { name, .. } | Layer::Linear { name, .. } => name.clone(),
            _ => format!("{}{}", node.op.to_lowercase(), nodes.len()),
        };
        x = node.outputs[0].clone();
        nodes.push(node);
    }
    x
}

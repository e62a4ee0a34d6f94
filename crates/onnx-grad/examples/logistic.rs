//! Differentiates y = sigmoid(x · w), prints both graphs, and writes them as one file:
//! `cargo run --example logistic -- logistic.grad.onnx`. The file has the inputs x and ∂L/∂y and the outputs
//! y and ∂L/∂x.

use onnx_grad::graph::{DType, Node, Tensor, Value};
use onnx_grad::{Graph, Pass, Processor, Types, differentiate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("expected the path of the .onnx file to write")?;
    let nodes = vec![Node::new("MatMul", &["x", "w"], "logit"), Node::new("Sigmoid", &["logit"], "y")];
    let w = Tensor::f32(&[3, 1], &[0.5, -1.0, 2.0]);
    let mut graph = Graph::new(nodes, [("w".to_string(), w)].into());
    graph.inputs.push(Value::new("x", DType::F32, &[4, 3]));
    graph.outputs.push(Value::new("y", DType::F32, &[4, 1]));

    // Shape inference, or a runtime, supplies these.
    let shapes = [("x", vec![4, 3]), ("w", vec![3, 1]), ("logit", vec![4, 1]), ("y", vec![4, 1])];
    let types: Types = shapes.map(|(name, shape)| (name.to_string(), (DType::F32, shape))).into();

    let gradient = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu)?;
    for (title, graph) in [("forward", &gradient.forward), ("backward", &gradient.backward)] {
        println!("{title}:");
        for node in &graph.nodes {
            println!("  {} = {}({})", node.outputs.join(", "), node.op, node.inputs.join(", "));
        }
    }
    println!("the backward graph reads {}", gradient.residuals.join(", "));
    std::fs::write(&file, gradient.join().encode())?;
    Ok(())
}

//! A stand-in for a bought face model: the input and output of many such models, with the bundled net for
//! characters inside. `docs/tutorials/face.md` audits it, because a real one can't be part of the repository.

use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};

/// `plain` [batch, 1, 28, 28] → [batch, 128] behind the input of a face model: blue, green, red, 112 × 112,
/// (x − 127.5)/128. The first layer turns this into grey values in [0, 1], and the second takes the mean of
/// each 4 × 4 pixels.
pub fn stand_in(plain: &Graph) -> Graph {
    let mut graph = plain.clone();
    let weights = [0.114f32, 0.587, 0.299].map(|share| share * 128.0 / 255.0);
    graph.constants.insert("grey.weight".into(), Tensor::f32(&[1, 3, 1, 1], &weights));
    graph.constants.insert("grey.bias".into(), Tensor::f32(&[1], &[127.5 / 255.0]));
    let image = plain.inputs[0].name.clone();
    let front = [
        Node::new("Conv", &["data", "grey.weight", "grey.bias"], "grey"),
        Node::new("AveragePool", &["grey"], &image)
            .with("kernel_shape", vec![4i64, 4])
            .with("strides", vec![4i64, 4]),
    ];
    graph.nodes.splice(0..0, front);
    let shape = [Dim::Free("batch".into()), Dim::Known(3), Dim::Known(112), Dim::Known(112)];
    graph.inputs = vec![Value { name: "data".into(), dtype: DType::F32, shape: Some(shape.to_vec()) }];
    graph
}

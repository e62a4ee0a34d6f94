//! Models small enough to be made inside a test, and images for them.

use super::{Rng, Temp};
use audit::data::{Dataset, Preparation};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Dim, Node, Tensor, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Height and width of the images.
pub const SIDE: i64 = 12;
/// Length of the embeddings.
pub const DIM: i64 = 8;

/// Named weights, random from a seed.
pub struct Weights {
    rng: Rng,
    all: BTreeMap<String, Tensor>,
}

impl Weights {
    pub fn new(seed: u64) -> Weights {
        Weights { rng: Rng::new(seed), all: BTreeMap::new() }
    }
    /// Normal values, scaled.
    pub fn normal(mut self, name: &str, shape: &[i64], scale: f32) -> Weights {
        let count = shape.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| scale * self.rng.normal()).collect();
        self.all.insert(name.into(), Tensor::f32(shape, &values));
        self
    }
    /// Values between 0.5 and 1.5: variances, scales.
    pub fn positive(mut self, name: &str, shape: &[i64]) -> Weights {
        let count = shape.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| 0.5 + self.rng.unit()).collect();
        self.all.insert(name.into(), Tensor::f32(shape, &values));
        self
    }
    pub fn floats(mut self, name: &str, shape: &[i64], values: &[f32]) -> Weights {
        self.all.insert(name.into(), Tensor::f32(shape, values));
        self
    }
    pub fn ints(mut self, name: &str, values: &[i64]) -> Weights {
        self.all.insert(name.into(), Tensor::ints(values));
        self
    }
}

/// A dimension called "batch".
pub fn free() -> Dim {
    Dim::Free("batch".into())
}

/// A float32 value whose first dimension is `batch`.
pub fn value(name: &str, batch: Dim, rest: &[i64]) -> Value {
    let shape = std::iter::once(batch).chain(rest.iter().map(|&d| Dim::Known(d))).collect();
    Value { name: name.into(), dtype: DType::F32, shape: Some(shape) }
}

/// A value of any type and shape.
pub fn untyped(name: &str) -> Value {
    Value { name: name.into(), dtype: DType::Other(0), shape: None }
}

/// The graph of a branch or of a loop's body.
pub fn subgraph(nodes: Vec<Node>, inputs: Vec<Value>, outputs: &[&str]) -> Attr {
    let mut graph = Graph::new(nodes, BTreeMap::new());
    graph.inputs = inputs;
    graph.outputs = outputs.iter().map(|name| untyped(name)).collect();
    Attr::Graph(Box::new(graph))
}

/// A graph of grey images "image" to "embedding", batch free.
pub fn grey(nodes: Vec<Node>, weights: Weights) -> Graph {
    let mut graph = Graph::new(nodes, weights.all);
    graph.inputs = vec![value("image", free(), &[1, SIDE, SIDE])];
    graph.outputs = vec![value("embedding", free(), &[DIM])];
    graph
}

/// Conv (stride 2), ReLU, Gemm: from `image` [N, `channels`, 12, 12] to `embedding` [N, 8].
pub fn trunk(image: &str, embedding: &str, prefix: &str) -> Vec<Node> {
    let name = |s: &str| format!("{prefix}{s}");
    vec![
        Node::new("Conv", &[image, &name("w1")], &name("c1"))
            .with("strides", vec![2i64, 2])
            .with("pads", vec![1i64, 1, 1, 1]),
        Node::new("Relu", &[&name("c1")], &name("r1")),
        Node::new("Flatten", &[&name("r1")], &name("f1")),
        Node::new("Gemm", &[&name("f1"), &name("w2"), &name("b2")], embedding).with("transB", 1i64),
    ]
}

pub fn trunk_weights(weights: Weights, prefix: &str, channels: i64) -> Weights {
    weights
        .normal(&format!("{prefix}w1"), &[4, channels, 3, 3], 0.4)
        .normal(&format!("{prefix}w2"), &[DIM, 4 * 36], 0.1)
        .normal(&format!("{prefix}b2"), &[DIM], 0.1)
}

/// [`trunk`] before nodes that turn "e" into "embedding".
pub fn before(nodes: Vec<Node>, weights: Weights) -> Graph {
    grey([trunk("image", "e", ""), nodes].concat(), trunk_weights(weights, "", 1))
}

/// The smallest model: [`trunk`] on grey images.
pub fn small() -> Graph {
    grey(trunk("image", "embedding", ""), trunk_weights(Weights::new(1), "", 1))
}

/// A model of colour images of 96 pixels, which says nothing of their preprocessing: a convolution and its
/// mean.
pub fn colour() -> Graph {
    let nodes = vec![
        Node::new("Conv", &["image", "kernel"], "map").with("kernel_shape", vec![3i64, 3]),
        Node::new("GlobalAveragePool", &["map"], "mean"),
        Node::new("Flatten", &["mean"], "embedding"),
    ];
    let mut graph = grey(nodes, Weights::new(1).normal("kernel", &[DIM, 3, 3, 3], 0.3));
    graph.inputs = vec![value("image", free(), &[3, 96, 96])];
    graph
}

/// `classes` folders of `samples` images below `name`, from the built-in generator, as PNG files.
pub fn images(temp: &Temp, name: &str, classes: usize, samples: usize, channels: usize) -> PathBuf {
    let side = SIDE as usize;
    let dir = temp.join(name);
    let prep = Preparation::new(channels, side, side);
    let count = Dataset::generated(7, classes, samples).export(&dir, &prep).unwrap();
    assert_eq!(count, classes * samples);
    dir
}

/// A folder with the smallest model, `model.onnx`, and `data/` with `classes` classes of `samples` grey
/// images.
pub fn stage(classes: usize, samples: usize) -> Temp {
    let temp = Temp::new();
    temp.write("model.onnx", small().encode());
    images(&temp, "data", classes, samples, 1);
    temp
}

/// A model file, and class folders of images for it.
pub struct Bench {
    pub temp: Temp,
    pub model: String,
    pub data: String,
}

impl Bench {
    /// `classes` classes of `samples` images of `channels` channels.
    pub fn new(graph: &Graph, classes: usize, samples: usize, channels: usize) -> Bench {
        let temp = Temp::new();
        let model = temp.write("model.onnx", graph.encode()).display().to_string();
        let data = images(&temp, "data", classes, samples, channels).display().to_string();
        Bench { temp, model, data }
    }

    pub fn audit(&self, args: &[&str]) -> audit::Result<audit::record::Report> {
        super::audit(&[&[self.model.as_str(), "--data", &self.data], args].concat())
    }

    /// The path of a file beside the model.
    pub fn path(&self, name: &str) -> String {
        self.temp.join(name).display().to_string()
    }
}

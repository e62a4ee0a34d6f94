//! A graph of one node with values of its inputs, and its results in ONNX Runtime.

use crate::common::CPU;
pub use crate::common::Rng;
use audit::model::runtime::{Input, Optimise, Session};
use onnx_grad::Graph;
pub use onnx_grad::graph::{Attr, DType, Node, Tensor};
use onnx_grad::graph::{Dim, Value};
use std::path::Path;

pub const MS: &str = "com.microsoft";
pub const ML: &str = "ai.onnx.ml";

/// A domain, an operator of it, and what makes a case of it.
pub type Row = (&'static str, &'static str, fn(&mut Rng) -> Case);

/// A graph of one node, its float inputs and their values.
pub struct Case {
    pub graph: Graph,
    pub points: Vec<Vec<f32>>,
    /// Largest change of a value by rounding to integers.
    pub step: f32,
}

pub fn case(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> Case {
    let mut node = Node::new(op, inputs, "");
    node.name = "node".into();
    node.domain = domain.into();
    node.outputs = outputs.iter().map(|o| o.to_string()).collect();
    let mut graph = Graph::new(vec![node], Default::default());
    graph.opsets = [(String::new(), 23), (MS.to_string(), 1), (ML.to_string(), 1)].into();
    graph.outputs = outputs
        .iter()
        .filter(|o| !o.is_empty())
        .map(|o| Value { name: o.to_string(), dtype: DType::Other(0), shape: None })
        .collect();
    Case { graph, points: vec![], step: 0.0 }
}

impl Case {
    pub fn opset(mut self, version: i64) -> Case {
        self.graph.opsets.insert(String::new(), version);
        self
    }
    pub fn with(mut self, name: &str, value: impl Into<Attr>) -> Case {
        self.graph.nodes[0].attrs.insert(name.into(), value.into());
        self
    }
    pub fn input(mut self, r: &mut Rng, name: &str, shape: &[i64]) -> Case {
        self.points.push((0..shape.iter().product::<i64>()).map(|_| r.normal()).collect());
        self.graph.inputs.push(Value::new(name, DType::F32, shape));
        self
    }
    pub fn weights(self, r: &mut Rng, name: &str, shape: &[i64]) -> Case {
        let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| r.normal()).collect();
        self.constant(name, Tensor::f32(shape, &values))
    }
    pub fn when(self, yes: bool, then: impl FnOnce(Case) -> Case) -> Case {
        if yes { then(self) } else { self }
    }
    pub fn constant(mut self, name: &str, t: Tensor) -> Case {
        self.graph.constants.insert(name.into(), t);
        self
    }
}

pub fn bools(shape: &[i64], values: &[bool]) -> Tensor {
    Tensor { dtype: DType::Bool, shape: shape.to_vec(), bytes: values.iter().map(|&b| b as u8).collect() }
}

pub fn int32(values: &[i32]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { dtype: DType::I32, shape: vec![values.len() as i64], bytes }
}

pub fn run(graph: &Graph, case: &Case) -> Vec<Vec<f32>> {
    let mut session = Session::new(graph, CPU, Optimise::Off).unwrap();
    let inputs = &case.graph.inputs;
    let known = |d: &Dim| if let Dim::Known(n) = d { *n } else { 0 };
    let shapes: Vec<Vec<i64>> =
        inputs.iter().map(|i| i.shape.iter().flatten().map(known).collect()).collect();
    let mut feed: Vec<(&str, Input)> = Vec::new();
    for ((input, shape), values) in inputs.iter().zip(&shapes).zip(&case.points) {
        feed.push((&input.name, Input::Host(shape, values)));
    }
    let names: Vec<&str> = case.graph.outputs.iter().map(|o| o.name.as_str()).collect();
    session.run(&feed, &names).unwrap().iter().map(|h| h.floats().unwrap().1.to_vec()).collect()
}

pub fn decode(graph: &Graph) -> audit::Result<Graph> {
    Graph::decode(graph.encode().into(), Path::new("test.onnx")).map_err(audit::model::refused)
}

/// Checks the last named output of a graph decoded from its file.
pub fn defined(c: &Case, expected: &[f32]) {
    let ours = decode(&c.graph).unwrap();
    let found = run(&ours, c).pop().unwrap();
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
    let Node { op, attrs, .. } = &c.graph.nodes[0];
    assert!(found.len() == expected.len() && close, "{op} {attrs:?}: {found:?}, expected {expected:?}");
}

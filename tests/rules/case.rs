//! A one-node graph with the point to differentiate it at, and generators of such points.

pub use crate::common::Rng;
pub use onnx_grad::Graph;
pub use onnx_grad::graph::{Attr, DType, Node, Tensor, Value};

/// A graph around one node, its float inputs (all differentiated) and the values to differentiate at.
pub struct Case {
    pub graph: Graph,
    pub points: Vec<Vec<f32>>,
}

impl Case {
    pub fn new(mut node: Node) -> Case {
        node.name = "node".into();
        if node.outputs == [""] {
            node.outputs = vec!["y".into()];
        }
        let outputs =
            node.outputs.iter().map(|o| Value { name: o.clone(), dtype: DType::Other(0), shape: None });
        let mut graph = Graph::new(vec![], Default::default());
        graph.outputs = outputs.collect();
        graph.nodes.push(node);
        Case { graph, points: vec![] }
    }
    pub fn input(mut self, name: &str, shape: &[i64], values: Vec<f32>) -> Case {
        assert_eq!(values.len() as i64, shape.iter().product::<i64>(), "{name}");
        self.graph.inputs.push(Value::new(name, DType::F32, shape));
        self.points.push(values);
        self
    }
    /// [`Case::input`] of normal values.
    pub fn normal(self, r: &mut Rng, name: &str, shape: &[i64]) -> Case {
        let values = normal(r, shape);
        self.input(name, shape, values)
    }
    /// Integers that the graph computes, from the rule's point of view.
    pub fn computed(mut self, name: &str, shape: &[i64], values: &[i64]) -> Case {
        let t = Tensor::i64(shape, values);
        self.graph.constants.insert(format!("{name}/given"), t);
        self.graph.nodes.insert(0, Node::new("Identity", &[&format!("{name}/given")], name));
        self
    }
    /// [`Case::computed`] or a constant.
    pub fn indices(self, r: &mut Rng, name: &str, shape: &[i64], values: &[i64]) -> Case {
        if r.bool() {
            self.computed(name, shape, values)
        } else {
            self.constant(name, Tensor::i64(shape, values))
        }
    }
    pub fn ints(mut self, name: &str, values: &[i64]) -> Case {
        self.graph.constants.insert(name.into(), Tensor::ints(values));
        self
    }
    /// A float input: constant or, as if the graph computed it from the image, differentiated too.
    pub fn maybe(self, r: &mut Rng, name: &str, shape: &[i64], values: Values) -> Case {
        let values = values(r, shape);
        if r.bool() {
            self.input(name, shape, values)
        } else {
            self.constant(name, Tensor::f32(shape, &values))
        }
    }
    pub fn constant(mut self, name: &str, t: Tensor) -> Case {
        self.graph.constants.insert(name.into(), t);
        self
    }
}

/// Draws the values of a tensor of a shape.
pub type Values = fn(&mut Rng, &[i64]) -> Vec<f32>;

pub fn size(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

pub fn normal(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| r.normal()).collect()
}

pub fn positive(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 0.5 + 2.0 * r.unit()).collect()
}

/// Normal, but no value within 0.15 of a kink.
pub fn away(r: &mut Rng, shape: &[i64], kinks: &[f32]) -> Vec<f32> {
    let mut value = || loop {
        let v = 2.0 * r.normal();
        if kinks.iter().all(|k| (v - k).abs() > 0.15) {
            return v;
        }
    };
    (0..size(shape)).map(|_| value()).collect()
}

/// All different, no two within 0.3: the largest value stays the largest.
pub fn distinct(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    let n = size(shape);
    let mut v: Vec<f32> = (0..n).map(|i| (i as f32 - n as f32 / 2.0) * 0.3).collect();
    r.shuffle(&mut v);
    v
}

/// Two shapes that broadcast.
pub fn broadcast_pair(r: &mut Rng) -> (Vec<i64>, Vec<i64>) {
    let rank = r.int(1, 4);
    let full = r.shape(rank);
    let side = |r: &mut Rng| -> Vec<i64> {
        let cut = if r.bool() { 0 } else { r.int(0, full.len() as i64) as usize };
        full[cut..].iter().map(|&d| if r.int(0, 3) == 0 { 1 } else { d }).collect()
    };
    (side(r), side(r))
}

pub fn image(r: &mut Rng) -> Vec<i64> {
    vec![r.int(1, 3), r.int(1, 4), r.int(1, 5), r.int(1, 5)]
}

/// Some entries are zeros.
pub fn with_zeros(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    normal(r, shape).into_iter().map(|v| if r.int(0, 4) == 0 { 0.0 } else { v }).collect()
}

/// Inside (−1, 1).
pub fn small(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 1.6 * r.unit() - 0.8).collect()
}

/// Above 1.
pub fn above_one(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    (0..size(shape)).map(|_| 1.5 + r.unit()).collect()
}

/// Normal, but no value near zero.
pub fn away_from_zero(r: &mut Rng, shape: &[i64]) -> Vec<f32> {
    away(r, shape, &[0.0])
}

pub type Sample = Box<dyn Fn(&mut Rng) -> Case>;

/// An operator and the generator of its cases.
pub fn entry(op: &'static str, f: impl Fn(&mut Rng) -> Case + 'static) -> (&'static str, Sample) {
    (op, Box::new(f))
}

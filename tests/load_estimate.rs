//! Gradients estimated from forward passes, against exact ones.

mod common;

use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{Options, Provider};
use common::Rng;
use ndarray::Array2;
use onnx_grad::{DType, Graph, Node, Tensor, Value};
use std::path::PathBuf;

const CPU: Options = Options { provider: Provider::Cpu, threads: 1 };

fn model() -> PathBuf {
    let mut r = Rng::new(1);
    let values: Vec<f32> = (0..64 * 4).map(|_| 0.2 * r.normal()).collect();
    let nodes = vec![
        Node::new("Flatten", &["x"], "flat"),
        Node::new("MatMul", &["flat", "w"], "product"),
        Node::new("Tanh", &["product"], "y"),
    ];
    let mut graph = Graph::new(nodes, [("w".to_string(), Tensor::f32(&[64, 4], &values))].into());
    graph.inputs = vec![Value::new("x", DType::F32, &[2, 1, 8, 8])];
    graph.outputs = vec![Value { name: "y".into(), dtype: DType::Other(0), shape: None }];
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("estimate.onnx");
    std::fs::write(&path, graph.encode()).unwrap();
    path
}

#[test]
fn estimated_signs_agree_with_exact_ones_and_follow_from_the_seed() {
    common::load_runtime();
    let path = model();
    let mut r = Rng::new(2);
    let x: Vec<f32> = (0..2 * 64).map(|_| r.unit()).collect();
    let cotangent = Array2::from_shape_fn((2, 4), |_| r.normal());
    let (_, exact) =
        Model::open(&path, &Card::default(), CPU, None).unwrap().gradient(&x, cotangent.view()).unwrap();
    let estimate = |seed| {
        let mut model = Model::open_estimated(&path, &Card::default(), CPU, None, seed).unwrap();
        let (_, g) = model.gradient(&x, cotangent.view()).unwrap();
        // 50 mirrored pairs, and the embedding itself.
        assert_eq!(model.passes(), 101);
        assert!(model.info.estimated);
        g
    };
    let g = estimate(7);
    let agree = g.iter().zip(&exact).filter(|(a, b)| a.signum() == b.signum()).count();
    // 50 directions of 64: the expected cosine is about 0.65, of which 70 % of signs follow; chance gives 50 ± 4 %.
    assert!(agree as f32 > 0.62 * exact.len() as f32, "{agree} of {}", exact.len());
    assert_eq!(g, estimate(7));
    assert_ne!(g, estimate(8));
}

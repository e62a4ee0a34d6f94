//! `Graph::wider` against the functions that its documentation names, written out here in double precision.

use crate::common::{CPU, load_runtime};
use audit::model::runtime::{self, Input, Optimise, Session};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Node, Tensor, Value};
use std::f64::consts::FRAC_2_SQRT_PI;

const X: [f32; 7] = [-300.0, -20.0, -1.5, 0.0, 2.5, 40.0, 300.0];
const FACTOR: f32 = 50.0;

/// 2/√π · Σ (−1)ⁿ x²ⁿ⁺¹ / (n!·(2n + 1)). Beyond 4, where it is ±1 to 2·10⁻⁸, the sum loses its digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, 0.0);
    for n in 0..200 {
        sum += term / f64::from(2 * n + 1);
        term *= -x * x / f64::from(n + 1);
    }
    FRAC_2_SQRT_PI * sum
}

/// x → y by one node.
fn graph(node: Node, constants: &[(&str, Tensor)]) -> Graph {
    let mut graph =
        Graph::new(vec![node], constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect());
    graph.inputs.push(Value::new("x", DType::F32, &[X.len() as i64]));
    graph.outputs.push(Value::new("y", DType::F32, &[X.len() as i64]));
    graph
}

/// The operator's own function, and its centre: 0 but for the last two.
type Row = (Node, &'static [(&'static str, f32)], f64, fn(f64) -> f64);

#[test]
fn wider_operators_are_the_same_functions_of_smaller_values() {
    load_runtime();
    let node = |op: &str| Node::new(op, &["x"], "y");
    let rows: [Row; 6] = [
        (node("Sigmoid"), &[], 0.0, |x| 1.0 / (1.0 + (-x).exp())),
        (node("Tanh"), &[], 0.0, f64::tanh),
        (node("Erf"), &[], 0.0, erf),
        // Operators that no factor widens become another operator with the same ends.
        (node("Sign"), &[], 0.0, f64::tanh),
        (node("HardSigmoid").with("alpha", 0.5f32).with("beta", 1.5f32), &[], -2.0, |x| {
            (0.5 * x + 1.5).clamp(0.0, 1.0)
        }),
        (Node::new("Clip", &["x", "low", "high"], "y"), &[("low", -1.0), ("high", 3.0)], 1.0, |x| {
            x.clamp(-1.0, 3.0)
        }),
    ];
    for (node, constants, centre, f) in rows {
        let op = node.op.clone();
        let constants: Vec<(&str, Tensor)> =
            constants.iter().map(|(name, value)| (*name, Tensor::f32(&[], &[*value]))).collect();
        let graph = graph(node, &constants);
        let mut types = runtime::infer(&graph).unwrap();
        let found = graph.saturating(&types);
        assert_eq!(
            (found.len(), found[0].input.as_str(), f64::from(found[0].centre)),
            (1, "x", centre),
            "{op}"
        );
        let wider = graph.wider(&[(found[0].clone(), FACTOR)], &mut types);
        assert!(
            wider.nodes.iter().flat_map(|n| n.inputs.iter().chain(&n.outputs)).all(|v| types.contains_key(v))
        );
        let mut session = Session::new(&wider, CPU, Optimise::All).unwrap();
        let y = session.run(&[("x", Input::Host(&[X.len() as i64], &X))], &["y"]).unwrap();
        for (x, y) in X.iter().zip(y[0].floats().unwrap().1) {
            let expected = f(centre + (f64::from(*x) - centre) / f64::from(FACTOR));
            assert!((f64::from(*y) - expected).abs() < 1e-5, "{op}({x}): {y} where {expected} is expected");
        }
    }
}

#[test]
fn operators_without_two_ends_are_left_as_they_are() {
    load_runtime();
    let low = [("low", Tensor::f32(&[], &[0.0]))];
    for (node, constants) in [
        (Node::new("Relu", &["x"], "y"), &[][..]),
        (Node::new("Softsign", &["x"], "y"), &[]),
        (Node::new("Clip", &["x", "low"], "y"), &low),
        (Node::new("HardSigmoid", &["x"], "y").with("alpha", 0.0f32), &[]),
    ] {
        let graph = graph(node, constants);
        assert_eq!(graph.saturating(&runtime::infer(&graph).unwrap()), []);
    }
}

//! The passes of graphs of a few nodes: which of them have a slope, what they say, and that they take all
//! that the exact rules take.

use super::{PASSES, to};
use crate::case::*;
use crate::{common, passed};
use audit::model::runtime;
use onnx_grad::{Differentiated, Pass, Processor, Unsupported, differentiate};

/// Nodes from x [3] to y, differentiated.
fn of_nodes(nodes: &[Node], constants: &[(&str, Tensor)], pass: Pass) -> Result<Differentiated, Unsupported> {
    let constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes.to_vec(), constants);
    graph.inputs.push(Value::new("x", DType::F32, &[3]));
    graph.outputs.push(Value::new("y", DType::F32, &[3]));
    let types = runtime::infer(&graph).unwrap();
    differentiate(&graph, &types, &["x"], pass, Processor::Cpu)
}

/// The gradient at x of Σ cᵢ·yᵢ.
fn slope(nodes: &[Node], constants: &[(&str, Tensor)], pass: Pass, x: &[f32; 3], c: [f32; 3]) -> Vec<f32> {
    let mut nodes = nodes.to_vec();
    let mut case = Case::new(nodes.pop().unwrap());
    case.graph.nodes = [nodes, std::mem::take(&mut case.graph.nodes)].concat();
    case.graph.constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let case = case.input("x", &[3], x.to_vec());
    passed(&case, pass, |_| vec![c.to_vec()]).unwrap().2.remove(0)
}

fn number(value: f32) -> Tensor {
    Tensor::f32(&[], &[value])
}

#[test]
fn thresholds_have_a_gradient_in_softened_passes_alone() {
    common::load_runtime();
    let constants = [("half", number(0.5)), ("one", number(1.0)), ("zero", number(0.0))];
    let on = Node::new("Greater", &["x", "half"], "on");
    let cast = [on.clone(), Node::new("Cast", &["on"], "y").with("to", to(DType::F32))];
    let chosen = [on, Node::new("Where", &["on", "one", "zero"], "y")];
    for nodes in [&cast, &chosen] {
        for pass in [Pass::Exact, Pass::ThroughFlat] {
            assert!(of_nodes(nodes, &constants, pass).unwrap_err().disconnected, "{pass:?}");
        }
        let at = |pass| slope(nodes, &constants, pass, &[0.45, 0.9, -2.0], [1.0, 2.0, -1.0]);
        // 1/(2·√(0.1·max(|x − 0.5|, 0.1))): 5 within 0.1, 2.5 at 0.4, 1 at 2.5.
        let found = at(Pass::Softened);
        for (found, expected) in found.iter().zip([5.0, 5.0, -1.0]) {
            assert!((found - expected).abs() < 1e-4, "{found} where {expected} is expected");
        }
        assert_eq!(at(Pass::StraightThrough), [1.0, 2.0, -1.0]);
        let g = of_nodes(nodes, &constants, Pass::Softened).unwrap();
        let labels = [r#"Greater "on""#.to_string(), nodes[1].label()];
        assert_eq!((g.softened.as_slice(), g.notes.len()), (&labels[..], 0));
    }
}

#[test]
fn rounding_passes_as_asked() {
    common::load_runtime();
    let nodes = [Node::new("Round", &["x"], "y")];
    let at = |pass| slope(&nodes, &[], pass, &[0.2, 1.7, -3.0], [1.0, 2.0, -1.0]);
    assert_eq!(PASSES.map(|pass| at(pass)[1]), [0.0, 2.0, 2.0, 2.0]);
    let said = PASSES.map(|pass| {
        let g = of_nodes(&nodes, &[], pass).unwrap();
        (g.notes.first().map(|note| note.straight_through), g.softened.len())
    });
    assert_eq!(said, [(Some(false), 0), (Some(true), 0), (None, 1), (None, 1)]);
}

/// x − (x mod 1/4) rounds down. Its exact gradient is 0, with no flat operator in it.
#[test]
fn a_value_minus_its_remainder_passes_like_rounding() {
    common::load_runtime();
    let nodes =
        [Node::new("Mod", &["x", "quarter"], "rest").with("fmod", 1), Node::new("Sub", &["x", "rest"], "y")];
    let at = |pass| slope(&nodes, &[("quarter", number(0.25))], pass, &[0.2, 1.7, -3.1], [1.0, 2.0, -1.0]);
    assert_eq!(PASSES.map(|pass| at(pass)[1]), [0.0, 0.0, 2.0, 2.0]);
}

/// A note and no error: without softening, the gradient also bypasses these nodes.
#[test]
fn integers_that_are_not_numbers_end_the_way_and_nothing_else() {
    common::load_runtime();
    let whole = Node::new("Cast", &["x"], "at").with("to", to(DType::I64));
    // Positions that depend on the image: 1, 0, 1.
    let picked = [whole.clone(), Node::new("Gather", &["x", "at"], "y")];
    // An integer product.
    let product = [
        whole,
        Node::new("Mul", &["at", "at"], "square"),
        Node::new("Cast", &["square"], "number").with("to", to(DType::F32)),
        Node::new("Add", &["x", "number"], "y"),
    ];
    for pass in PASSES {
        assert_eq!(slope(&picked, &[], pass, &[1.2, 0.3, 1.9], [1.0, 2.0, 4.0]), [2.0, 5.0, 0.0], "{pass:?}");
        assert_eq!(
            slope(&product, &[], pass, &[1.2, 0.3, 1.9], [1.0, 2.0, 4.0]),
            [1.0, 2.0, 4.0],
            "{pass:?}"
        );
    }
    let notes = of_nodes(&product, &[], Pass::Softened).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].node == r#"Mul "square""#, "{notes:?}");
}

#[test]
fn a_graph_without_such_operators_has_one_backward_graph() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![128].into() };
    let constants = [("s", number(0.1)), ("z", byte)];
    // Quantisation always passes straight through. No other operator here saturates, and the Clip has no
    // bounds.
    let nodes = [
        Node::new("QuantizeLinear", &["x", "s", "z"], "q"),
        Node::new("DequantizeLinear", &["q", "s", "z"], "d"),
        Node::new("Exp", &["d"], "e"),
        Node::new("Clip", &["e"], "c"),
        Node::new("Cast", &["c"], "y").with("to", to(DType::F32)),
    ];
    let of = |pass| of_nodes(&nodes, &constants, pass).unwrap();
    let exact = of(Pass::Exact);
    for pass in PASSES {
        let g = of(pass);
        assert!(g.softened.is_empty(), "{pass:?}: {:?}", g.softened);
        assert_eq!((&g.backward, &g.forward, &g.notes), (&exact.backward, &exact.forward, &exact.notes));
    }
}

/// ONNX Runtime's static quantisation with QuantFormat.QOperator pools integers. By hand: the second value is
/// the largest of all three windows, so that it takes the sum of the cotangents.
#[test]
fn a_pool_of_quantised_integers_passes_the_gradient_in_every_pass() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![128].into() };
    let ints = |name, values: &[i64]| (name, Tensor::ints(values));
    let constants = [("s", number(0.1)), ("z", byte), ints("image", &[1, 1, 1, 3]), ints("flat", &[3])];
    let pool = Node::new("MaxPool", &["q"], "p").with("kernel_shape", vec![1i64, 3]);
    let nodes = [
        Node::new("Reshape", &["x", "image"], "r"),
        Node::new("QuantizeLinear", &["r", "s", "z"], "q"),
        pool.with("pads", vec![0i64, 1, 0, 1]),
        Node::new("DequantizeLinear", &["p", "s", "z"], "d"),
        Node::new("Reshape", &["d", "flat"], "y"),
    ];
    for pass in PASSES {
        let found = slope(&nodes, &constants, pass, &[0.2, 1.7, 0.5], [1.0, 2.0, 4.0]);
        let close =
            found.iter().zip([0.0, 7.0, 0.0]).all(|(found, expected)| (found - expected).abs() < 1e-5);
        assert!(close, "{pass:?}: {found:?}");
    }
}

/// The other passes take all shapes and attributes that the exact rules take.
#[test]
#[ignore = "slow"]
fn every_sample_case_has_all_passes() {
    common::load_runtime();
    let mut wrong = Vec::new();
    for (op, sample) in crate::samples() {
        for seed in 0..15 {
            let case = sample(&mut Rng::new(seed * 1000 + op.len() as u64));
            let found = PASSES.map(|pass| {
                let choose =
                    |shapes: &[Vec<i64>]| shapes.iter().map(|s| normal(&mut Rng::new(seed), s)).collect();
                passed(&case, pass, choose).map(|(_, _, gradients)| gradients)
            });
            let shapes = |g: &[Vec<f32>]| g.iter().map(Vec::len).collect::<Vec<_>>();
            let Ok(exact) = &found[0] else { panic!("{op} #{seed}: {found:?}") };
            for (pass, found) in PASSES.iter().zip(&found) {
                match found {
                    Ok(g) if shapes(g) == shapes(exact) && g.iter().flatten().all(|v| v.is_finite()) => {}
                    other => wrong.push(format!("{op} #{seed}, {pass:?}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

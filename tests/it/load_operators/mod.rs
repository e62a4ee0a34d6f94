//! Operators that are expanded at load, against ONNX Runtime's own kernels for them: graphs of one node,
//! random shapes and attributes. One side is the original file, the other the canonical graph; both run in
//! ONNX Runtime. Each file has the cases of a family of operators.

mod attention;
mod case;
mod definitions;
mod elementwise;
mod index;
mod linear;
mod norm;
mod quantised;

use crate::common::says;
use audit::model::runtime;
use case::*;
use definitions::DEFINED;
use onnx_grad::Graph;
use onnx_grad::operators::{self, Class};

const CASES: u64 = 24;
/// Largest difference, as a share of the largest value: float32 sums in another order.
const TOLERANCE: f32 = 1e-5;

fn rows() -> impl Iterator<Item = &'static Row> {
    let families =
        [attention::CASES, elementwise::CASES, index::CASES, linear::CASES, norm::CASES, quantised::CASES];
    families.into_iter().flatten()
}

fn check(name: &str, make: fn(&mut Rng) -> Case) {
    for seed in 0..CASES {
        let case = make(&mut Rng::new(seed));
        let node = &case.graph.nodes[0];
        let canonical = decode(&case.graph).unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        let ours = runtime::specialise(&canonical).unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
        assert!(
            ours.nodes.iter().all(|n| n.domain.is_empty() && !matches!(n.op.as_str(), "Shape" | "Range")),
            "{name}, seed {seed}: left after specialising: {:?}",
            ours.nodes.iter().map(Node::label).collect::<Vec<_>>()
        );
        for ((a, b), out) in run(&ours, &case).iter().zip(run(&case.graph, &case)).zip(&case.graph.outputs) {
            let scale = b.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
            let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).unwrap_or(0.0);
            assert_eq!(a.len(), b.len(), "{name}, seed {seed}, {}: {:?}", out.name, node.attrs);
            // NaN is not within it.
            assert!(
                off <= (TOLERANCE * scale).max(1.001 * case.step),
                "{name}, seed {seed}, output {}: off by {off} of {scale}; attributes {:?}, inputs {:?}",
                out.name,
                node.attrs,
                case.graph.inputs
            );
        }
    }
}

#[test]
#[ignore = "slow"]
fn expansions_compute_what_the_kernels_do() {
    crate::common::load_runtime();
    let mut wrong = Vec::new();
    for (domain, op, make) in rows() {
        if std::panic::catch_unwind(|| check(op, *make)).is_err() {
            wrong.push(format!("{domain}::{op}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_expansion_has_a_case() {
    for (domain, op, make) in rows() {
        let case = make(&mut Rng::new(0));
        assert!(case.graph.nodes.iter().any(|n| n.domain == *domain && n.op == *op), "{domain}::{op}");
    }
    // The standard's LinearAttention has no kernel, but the expansion of com.microsoft's.
    let defined = |op: &str| op == "LinearAttention" || DEFINED.iter().any(|row| row.0 == op);
    let covered = |domain: &str, op: &str| {
        rows().any(|row| (row.0, row.1) == (domain, op)) || (domain.is_empty() && defined(op))
    };
    let missing: Vec<(&str, &str)> = operators::all()
        .filter(|o| o.class == Class::Expanded)
        .map(|o| (o.domain, o.name))
        .filter(|(domain, op)| !covered(domain, op))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn newer_operators_compute_what_their_definition_says() {
    crate::common::load_runtime();
    for seed in 0..CASES {
        DEFINED.iter().for_each(|(_, compare)| compare(&mut Rng::new(seed)));
    }
}

/// Numbers of heads that inputs of four dimensions don't need: 0, and the right ones. The slow test above has
/// them too.
#[test]
fn heads_may_be_stated_that_are_apart_already() {
    crate::common::load_runtime();
    let r = &mut Rng::new(2);
    for stated in [0, 3] {
        let attention = case("", "Attention", &["q", "q", "q"], &["y"]).with("q_num_heads", stated);
        let rotary = |domain: &str, inputs: &[&str]| {
            let case = case(domain, "RotaryEmbedding", inputs, &["y"]).with("num_heads", stated);
            case.constant("at", Tensor::i64(&[1], &[0]))
        };
        let mut cases = vec![attention.with("kv_num_heads", stated).input(r, "q", &[2, 3, 4, 6])];
        let forms: [(&str, &[&str], &[i64]); 2] =
            [("", &["x", "cos", "sin"], &[2, 4, 3]), (MS, &["x", "at", "cos", "sin"], &[4, 3])];
        for (domain, inputs, cache) in forms {
            let case = rotary(domain, inputs).input(r, "x", &[2, 3, 4, 6]);
            cases.push(case.weights(r, "cos", cache).weights(r, "sin", cache));
        }
        for case in cases {
            let ours = runtime::specialise(&decode(&case.graph).unwrap()).unwrap();
            let (found, expected) = (run(&ours, &case), run(&case.graph, &case));
            let close = found[0].iter().zip(&expected[0]).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close && found[0].len() == expected[0].len(), "{:?}", case.graph.nodes[0]);
        }
    }
}

/// An input that an expansion doesn't cover is refused with the node and the reason.
#[test]
fn what_is_not_covered_is_refused_by_name() {
    let r = &mut Rng::new(0);
    let mode = "qk_matmul_output_mode";
    let cases = [
        case("", "Attention", &["q", "k", "v"], &["y", "", "", "qk"]).with(mode, 4),
        case("", "BitCast", &["x"], &["y"]).opset(26).with("to", 7),
        case(MS, "Attention", &["x", "w", "b", "", "", "", "n"], &["y"]).with("num_heads", 2),
        case(MS, "Attention", &["x", "w", "b"], &["y"]),
        case(MS, "MultiHeadAttention", &["q", "", "v"], &["y"]).with("num_heads", 2),
        case(MS, "LinearAttention", &["q", "k", "v"], &["y"]).with("state_window", 4),
        case(MS, "RotaryEmbedding", &["x", "at", "c", "s"], &["y"]).with("scale", 2.0f32),
        case(MS, "FusedConv", &["x", "w"], &["y"]).with("activation", "Gelu"),
        case(MS, "QuickGelu", &[], &["y"]),
    ];
    let refused = |case: Case| decode(&case.input(r, "x", &[1, 2, 3, 4]).graph).unwrap_err().to_string();
    insta::assert_snapshot!(cases.map(refused).join("\n\n"));
}

/// ONNX Runtime refuses a graph that it fused before, as a file that it saved was, if there is more to fuse.
#[test]
fn a_graph_that_was_fused_before_is_fused_again() {
    crate::common::load_runtime();
    let r = &mut Rng::new(3);
    let layer = |x: &str, product: &str, y: &str| {
        [Node::new("MatMul", &[x, "w"], product), Node::new("Add", &[product, "b"], y)]
    };
    let mut case = case("", "Relu", &["x"], &["y"]).opset(21).input(r, "x", &[2, 3, 4]);
    case.graph.nodes = layer("x", "p", "y").to_vec();
    let case = case.weights(r, "w", &[4, 4]).weights(r, "b", &[4]);
    let mut twice = runtime::specialise(&case.graph).unwrap();
    let fused = |graph: &Graph| graph.nodes.iter().filter(|node| node.op == "Gemm").count();
    assert_eq!(fused(&twice), 1, "ONNX Runtime no longer fuses: {:?}", twice.nodes);
    twice.rename("y", "x2");
    twice.nodes.extend(layer("x2", "p2", "y"));
    twice.outputs[0].name = "y".into();
    // The names of the weights may have changed.
    twice.constants.extend(case.graph.constants.clone());
    let twice = runtime::specialise(&twice).unwrap();
    assert_eq!(fused(&twice), 2);
    // As a file that was saved by ONNX Runtime has it.
    let mut saved = case;
    saved.graph.nodes = layer("x", "p", "q").to_vec();
    saved.graph.nodes.push(Node::new("Reshape", &["q", "gemm_input_shape"], "y"));
    let saved = saved.constant("gemm_input_shape", Tensor::ints(&[-1, 4]));
    assert_eq!(fused(&runtime::specialise(&saved.graph).unwrap()), 1);
}

/// Keys and values of an earlier run, heads in front: their layout is known once shapes are.
#[test]
fn keys_of_four_dimensions_are_refused() {
    crate::common::load_runtime();
    let r = &mut Rng::new(1);
    let case = case(MS, "MultiHeadAttention", &["q", "k", "v"], &["y"]).with("num_heads", 2);
    let case = case.input(r, "q", &[1, 2, 8]).input(r, "k", &[1, 2, 2, 4]).input(r, "v", &[1, 2, 2, 4]);
    let error = runtime::specialise(&decode(&case.graph).unwrap()).unwrap_err();
    says(&error.message, &["ONNX Runtime doesn't take the graph"]);
}

//! Normalisations.

use super::case::*;

pub const CASES: &[Row] = &[
    ("", "GroupNormalization", group),
    ("", "RMSNormalization", |r| rms(r, "RMSNormalization")),
    ("", "SimplifiedLayerNormalization", |r| rms(r, "SimplifiedLayerNormalization")),
    (MS, "SkipLayerNormalization", |r| skip(r, "SkipLayerNormalization")),
    (MS, "SkipSimplifiedLayerNormalization", |r| skip(r, "SkipSimplifiedLayerNormalization")),
];

fn rms(r: &mut Rng, op: &'static str) -> Case {
    let shape: Vec<i64> = (0..r.int(2, 4)).map(|_| r.int(1, 5)).collect();
    let rank = shape.len() as i64;
    // ONNX Runtime's own operator supports the last axis only.
    let axis = if op == "RMSNormalization" { r.int(0, rank - 1) } else { rank - 1 };
    let c = case("", op, &["x", "scale"], &["y"])
        .input(r, "x", &shape)
        .weights(r, "scale", &shape[axis as usize..])
        .with("axis", if r.bool() { axis } else { axis - rank });
    c.when(r.bool(), |c| c.with("epsilon", 0.01))
}

fn skip(r: &mut Rng, op: &'static str) -> Case {
    let (b, s, d) = (r.int(1, 3), r.int(1, 4), r.int(2, 6));
    let plain = op == "SkipLayerNormalization";
    let bias = r.bool();
    let mut inputs = vec!["x", "skip", "gamma"];
    inputs.extend(plain.then_some("beta"));
    inputs.extend(bias.then_some("bias"));
    let outputs: &[&str] = if r.bool() { &["y"] } else { &["y", "", "", "sum"] };
    let mut c = case(MS, op, &inputs, outputs)
        .input(r, "x", &[b, s, d])
        .input(r, "skip", &[b, s, d])
        .weights(r, "gamma", &[d])
        .with("epsilon", 1e-3);
    c = c.when(plain, |c| c.weights(r, "beta", &[d]));
    c.when(bias, |c| c.weights(r, "bias", &[d]))
}

fn group(r: &mut Rng) -> Case {
    let (groups, each) = (r.int(1, 3), r.int(1, 3));
    let x = [2, groups * each, r.int(1, 4), r.int(2, 4)];
    let old = r.bool();
    let width = [if old { groups } else { x[1] }];
    case("", "GroupNormalization", &["x", "scale", "bias"], &["y"])
        .opset(if old { 18 } else { 21 })
        .input(r, "x", &x)
        .weights(r, "scale", &width)
        .weights(r, "bias", &width)
        .with("num_groups", groups)
        .with("epsilon", 0.01)
}

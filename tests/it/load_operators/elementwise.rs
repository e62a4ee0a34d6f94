//! Operators on one value at a time, and those of ai.onnx.ml on one feature at a time.

use super::case::*;

pub const CASES: &[Row] = &[
    ("", "Swish", swish),
    (MS, "BiasGelu", |r| gelu(r, "BiasGelu", true)),
    (MS, "FastGelu", |r| gelu(r, "FastGelu", true)),
    (MS, "Gelu", |r| gelu(r, "Gelu", false)),
    (MS, "QuickGelu", |r| gelu(r, "QuickGelu", false)),
    (MS, "GatedAdd", gated_add),
    (MS, "ScaledSiLU", scaled_silu),
    (ML, "ArrayFeatureExtractor", |r| features(r, "ArrayFeatureExtractor")),
    (ML, "Binarizer", |r| features(r, "Binarizer")),
    (ML, "Normalizer", |r| features(r, "Normalizer")),
    (ML, "Scaler", |r| features(r, "Scaler")),
];

fn gelu(r: &mut Rng, op: &'static str, bias: bool) -> Case {
    let shape = [r.int(1, 3), r.int(1, 3), r.int(1, 6)];
    let bias = bias && (op == "BiasGelu" || r.bool());
    let mut c = case(MS, op, if bias { &["x", "b"] } else { &["x"] }, &["y"]).input(r, "x", &shape);
    c = c.when(bias, |c| c.weights(r, "b", &shape[2..]));
    c.when(op == "QuickGelu" && r.bool(), |c| c.with("alpha", 0.5 + r.unit()))
}

fn swish(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 6)];
    let c = case("", "Swish", &["x"], &["y"]).opset(24).input(r, "x", &shape);
    if r.bool() { c.with("alpha", 0.5 + r.unit()) } else { c }
}

fn gated_add(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 4), r.int(1, 5)];
    let c = case(MS, "GatedAdd", &["x", "z", "gate"], &["y"]).input(r, "x", &shape).input(r, "z", &shape);
    c.input(r, "gate", &[shape[0], shape[1], 1])
}

fn scaled_silu(r: &mut Rng) -> Case {
    let scaled = r.bool();
    let c = case(MS, "ScaledSiLU", if scaled { &["x", "s"] } else { &["x"] }, &["y"]);
    let shape = [r.int(1, 3), r.int(1, 6)];
    let c = c.input(r, "x", &shape).with("alpha", 0.5 + r.unit());
    c.when(scaled, |c| c.constant("s", Tensor::f32(&[], &[1.7])))
}

fn features(r: &mut Rng, op: &'static str) -> Case {
    let (inputs, places): (&[&str], _) =
        if op == "ArrayFeatureExtractor" { (&["x", "at"], r.int(1, 6)) } else { (&["x"], 1) };
    let c = case(ML, op, inputs, &["y"]).input(r, "x", &[3, 4]);
    match op {
        "ArrayFeatureExtractor" => {
            let at: Vec<i64> = (0..places).map(|_| r.int(0, 3)).collect();
            c.constant("at", Tensor::i64(&[1, places], &at))
        }
        "Binarizer" => c.with("threshold", r.normal()),
        "Normalizer" => c.with("norm", r.pick(&["MAX", "L1", "L2"])),
        _ => {
            let each = r.pick(&[1, 4]);
            let values = |r: &mut Rng| -> Vec<f32> { (0..each).map(|_| r.normal()).collect() };
            c.with("offset", Attr::Floats(values(r))).with("scale", Attr::Floats(values(r)))
        }
    }
}

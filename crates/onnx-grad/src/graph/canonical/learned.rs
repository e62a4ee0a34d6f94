//! Operators of ai.onnx.ml that prepare or select features. Converters of scikit-learn append them to nets.

use super::{DType, Done, Expansion, Node, Rewrite, Tensor, standard};

const ML: &str = "ai.onnx.ml";

const fn learned(op: &'static str, expand: fn(&mut Rewrite, &Node) -> Done) -> Expansion {
    Expansion { domain: ML, ..standard(op, 1, expand) }
}

pub(super) const EXPANSIONS: &[Expansion] = &[
    learned("ArrayFeatureExtractor", |rw, node| {
        let at = rw.reshape(&node.x(1)?, &[-1]);
        rw.finish(node, "Gather", &[&node.x(0)?, &at], &[("axis", (-1i64).into())])
    }),
    learned("Binarizer", |rw, node| {
        let threshold = rw.scalar(node.float("threshold", 0.0));
        let above = rw.op("Greater", &[&node.x(0)?, &threshold]);
        rw.finish(node, "Cast", &[&above], &[("to", DType::F32.into())])
    }),
    learned("Normalizer", normalise),
    learned("Scaler", |rw, node| {
        let mut y = rw.cast(&node.x(0)?, DType::F32);
        for (attr, op) in [("offset", "Sub"), ("scale", "Mul")] {
            if let Some(values) = node.floats(attr) {
                let values = rw.constant(Tensor::f32(&[values.len() as i64], values));
                y = rw.op(op, &[&y, &values]);
            }
        }
        rw.finish(node, "Identity", &[&y], &[])
    }),
];

fn normalise(rw: &mut Rewrite, node: &Node) -> Done {
    let x = rw.cast(&node.x(0)?, DType::F32);
    let by = |p: i64| [("axis", (-1i64).into()), ("p", p.into())];
    match node.str("norm", "MAX") {
        "L1" => rw.finish(node, "LpNormalization", &[&x], &by(1)),
        "L2" => rw.finish(node, "LpNormalization", &[&x], &by(2)),
        "MAX" => {
            let last = rw.ints(&[-1]);
            let most = rw.op("ReduceMax", &[&x, &last]);
            rw.finish(node, "Div", &[&x, &most], &[])
        }
        other => Err(format!("norm={other} is not known")),
    }
}

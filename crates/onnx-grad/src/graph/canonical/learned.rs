//! Operators of ai.onnx.ml that prepare or select features. Converters of scikit-learn append them to nets.

use super::{Attr, DType, Done, Expansion, Node, Rewrite, Tensor, standard};

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
        rw.finish(node, "Cast", &[&above], &[("to", float())])
    }),
    learned("Normalizer", normalise),
    learned("Scaler", |rw, node| {
        let mut y = rw.push("Cast", &[&node.x(0)?], &[("to", float())]);
        for (attr, op) in [("offset", "Sub"), ("scale", "Mul")] {
            if let Some(Attr::Floats(values)) = node.attrs.get(attr) {
                let values = rw.constant(Tensor::f32(&[values.len() as i64], values));
                y = rw.op(op, &[&y, &values]);
            }
        }
        rw.finish(node, "Identity", &[&y], &[])
    }),
];

fn float() -> Attr {
    i64::from(DType::F32.code()).into()
}

fn normalise(rw: &mut Rewrite, node: &Node) -> Done {
    let x = rw.push("Cast", &[&node.x(0)?], &[("to", float())]);
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

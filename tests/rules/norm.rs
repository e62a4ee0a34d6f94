//! Normalisations and softmax.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("BatchNormalization", norm("BatchNormalization")),
        entry("GroupNormalization", norm("GroupNormalization")),
        entry("InstanceNormalization", norm("InstanceNormalization")),
        entry("LRN", local_response),
        entry("LayerNormalization", norm("LayerNormalization")),
        entry("LogSoftmax", with_axis("LogSoftmax", normal)),
        entry("LpNormalization", lp_normalization),
        entry("MeanVarianceNormalization", mean_variance),
        entry("Softmax", with_axis("Softmax", normal)),
    ]
}

fn with_axis(op: &'static str, values: Values) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let axis = r.int(-rank, rank - 1);
        Case::new(Node::new(op, &["x"], "y").with("axis", axis)).input("x", &shape, values(r, &shape))
    }
}

fn norm(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let mut x = image(r);
        // Statistics of one or two values make the function nearly a step.
        x[2] += 3;
        x[3] += 3;
        let layer = op == "LayerNormalization";
        let axis = if layer { r.pick(&[-1, 3, 2, 1]) } else { 1 };
        let scale: Vec<i64> = match (layer, axis) {
            (false, _) => vec![x[1]],
            (true, -1 | 3) => x[3..].to_vec(),
            (true, a) => x[a as usize..].to_vec(),
        };
        let mut node = Node::new(op, &["x", "scale", "bias"], "y").with("epsilon", 1e-3f32);
        if layer {
            node = node.with("axis", axis);
            // Mean and inverse deviation are outputs too.
            node.outputs.extend(["mean", "inverse"][..r.int(0, 2) as usize].iter().map(|o| o.to_string()));
        }
        if op == "GroupNormalization" {
            let groups = r.int(1, 3);
            x[1] *= groups;
            node = node.with("num_groups", groups);
        }
        let scale = if layer { scale } else { vec![x[1]] };
        if op == "BatchNormalization" {
            node.inputs.extend(["mean".into(), "var".into()]);
        }
        let case = Case::new(node)
            .normal(r, "x", &x)
            .maybe(r, "scale", &scale, positive)
            .maybe(r, "bias", &scale, normal);
        if op != "BatchNormalization" {
            return case;
        }
        case.maybe(r, "mean", &scale, normal).maybe(r, "var", &scale, positive)
    }
}

fn local_response(r: &mut Rng) -> Case {
    let mut x = r.shape(4);
    x[1] += 2;
    // The runtime accepts only odd sizes and images.
    let node = Node::new("LRN", &["x"], "y")
        .with("size", r.pick(&[1, 3, 5]))
        .with("alpha", 0.5f32)
        .with("beta", 0.6f32)
        .with("bias", 1.5f32);
    Case::new(node).normal(r, "x", &x)
}

fn mean_variance(r: &mut Rng) -> Case {
    let mut x = image(r);
    x[2] += 3;
    let mut node = Node::new("MeanVarianceNormalization", &["x"], "y");
    if r.bool() {
        node = node.with("axes", vec![2, 3]);
    }
    Case::new(node).normal(r, "x", &x)
}

fn lp_normalization(r: &mut Rng) -> Case {
    let mut case = with_axis("LpNormalization", |r, s| away(r, s, &[0.0]))(r);
    case.graph.nodes[0].attrs.insert("p".into(), Attr::Int(r.int(1, 2)));
    case
}

//! Operators that came after the canonical opset, where they aren't fused ones or normalisations.

use super::{Done, Expansion, Node, Rewrite, Tensor, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("CausalConvWithState", 27, causal_conv).refuses("weights computed in the graph"),
    standard("CumProd", 26, cum_prod),
    standard("SwiGLU", 28, |rw, node| {
        let a = node.x(0)?;
        let steeper = rw.scale(&a, node.float("alpha", 1.0));
        let gate = rw.op("Sigmoid", &[&steeper]);
        let gated = rw.op("Mul", &[&a, &gate]);
        rw.finish(node, "Mul", &[&gated, &node.x(1)?], &[])
    }),
    standard("TensorScatter", 24, tensor_scatter),
];

/// Operators that ONNX Runtime doesn't run in the canonical opset, and that nothing here stands for.
const UNKNOWN: [(&str, i64); 2] = [("BitCast", 26), ("LinearAttention", 27)];

/// Refuses what can't be written in the canonical opset.
pub(super) fn known(node: &Node) -> Done {
    match UNKNOWN.iter().find(|(op, _)| *op == node.op && node.domain.is_empty()) {
        None => Ok(()),
        Some((_, since)) => Err(format!(
            "came with opset {since}, and can't be written with operators of opset {}. Export the model with older operators",
            super::OPSET
        )),
    }
}

/// A tensor's sizes around an axis, each as a list of one: all in front together, the axis, all behind together.
fn around(rw: &mut Rewrite, x: &str, axis: &str) -> [String; 3] {
    let shape = rw.op("Shape", &[x]);
    let one = rw.ints(&[1]);
    let (axis, zero) = (rw.op("Reshape", &[axis, &one]), rw.ints(&[0]));
    let axis = rw.push("Cast", &[&axis], &[("to", 7i64.into())]);
    let rank = rw.op("Size", &[&shape]);
    let counted = rw.op("Add", &[&axis, &rank]);
    let negative = rw.op("Less", &[&axis, &zero]);
    let axis = rw.op("Where", &[&negative, &counted, &axis]);
    let (after, end) = (rw.op("Add", &[&axis, &one]), rw.ints(&[i64::MAX]));
    let mut part = |from: &str, to: &str| {
        let sizes = rw.op("Slice", &[&shape, from, to]);
        rw.op("ReduceProd", &[&sizes])
    };
    let parts = [part(&zero, &axis), part(&axis, &after), part(&after, &end)];
    let line = rw.ints(&[1]);
    parts.map(|part| rw.op("Reshape", &[&part, &line]))
}

/// 0, 1, … up to a size (a list of one), in a shape.
fn counted(rw: &mut Rewrite, size: &str, shape: &[i64]) -> String {
    let none = rw.constant(Tensor::i64(&[0], &[]));
    let size = rw.op("Reshape", &[size, &none]);
    let (zero, one) = (rw.constant(Tensor::i64(&[], &[0])), rw.constant(Tensor::i64(&[], &[1])));
    let range = rw.op("Range", &[&zero, &size, &one]);
    rw.reshape(&range, shape)
}

/// Each value of the output is the product of a copy of the axis whose other values are 1.
fn cum_prod(rw: &mut Rewrite, node: &Node) -> Done {
    let x = node.x(0)?;
    let [before, size, after] = around(rw, &x, &node.x(1)?);
    let one = rw.ints(&[1]);
    let apart = rw.concat(&[&before, &one, &size, &after], 0);
    let copies = rw.op("Reshape", &[&x, &apart]);
    let (of, with) = (counted(rw, &size, &[1, -1, 1, 1]), counted(rw, &size, &[1, 1, -1, 1]));
    let (low, high) = if node.int("reverse", 0) == 0 { (with, of) } else { (of, with) };
    let compare = if node.int("exclusive", 0) == 0 { "LessOrEqual" } else { "Less" };
    let seen = rw.op(compare, &[&low, &high]);
    let factor = rw.scalar(1.0);
    let factor = rw.op("CastLike", &[&factor, &x]);
    let factors = rw.op("Where", &[&seen, &copies, &factor]);
    let axis = rw.ints(&[2]);
    let product = rw.push("ReduceProd", &[&factors, &axis], &[("keepdims", 0i64.into())]);
    let shape = rw.op("Shape", &[&x]);
    rw.finish(node, "Reshape", &[&product, &shape], &[])
}

/// Writes rows of an update into a cache, from an index on that each batch has.
fn tensor_scatter(rw: &mut Rewrite, node: &Node) -> Done {
    let (past, update) = (node.x(0)?, node.x(1)?);
    let axis = rw.constant(Tensor::i64(&[], &[node.int("axis", -2)]));
    let [_, size, after] = around(rw, &past, &axis);
    let [_, rows, _] = around(rw, &update, &axis);
    let (batch, any) = (rw.dim(&past, 0), rw.ints(&[-1]));
    let mut fold = |x: &str, size: &str| {
        let shape = rw.concat(&[&batch, &any, size, &after], 0);
        rw.op("Reshape", &[x, &shape])
    };
    let (folded, update) = (fold(&past, &size), fold(&update, &rows));
    let mut at = counted(rw, &rows, &[1, 1, -1, 1]);
    if let Some(index) = node.input(2) {
        let index = rw.reshape(index, &[-1, 1, 1, 1]);
        let index = rw.push("Cast", &[&index], &[("to", 7i64.into())]);
        at = rw.op("Add", &[&at, &index]);
    }
    match node.str("mode", "linear") {
        "linear" => {}
        "circular" => at = rw.op("Mod", &[&at, &size]),
        other => return Err(format!("mode={other} is not known")),
    }
    let shape = rw.op("Shape", &[&update]);
    let at = rw.op("Expand", &[&at, &shape]);
    let written = rw.push("ScatterElements", &[&folded, &at, &update], &[("axis", 2i64.into())]);
    let shape = rw.op("Shape", &[&past]);
    rw.finish(node, "Reshape", &[&written, &shape], &[])
}

/// A depthwise convolution of the past and the input, one behind the other.
fn causal_conv(rw: &mut Rewrite, node: &Node) -> Done {
    let (x, weights) = (node.x(0)?, node.x(1)?);
    let Some(&[channels, _, kernel]) = rw.constants.get(&weights).map(|w| w.shape.as_slice()) else {
        return Err("its weights must be constant, of three dimensions".into());
    };
    let past = match node.input(3) {
        Some(past) => past.to_string(),
        None => {
            let (batch, sizes) = (rw.dim(&x, 0), rw.ints(&[channels, kernel - 1]));
            let shape = rw.concat(&[&batch, &sizes], 0);
            let zero = rw.scalar(0.0);
            let zero = rw.op("CastLike", &[&zero, &x]);
            rw.op("Expand", &[&zero, &shape])
        }
    };
    let whole = rw.concat(&[&past, &x], 2);
    if let Some(out) = node.output(1) {
        // The last values: none of a kernel of one.
        let from = rw.ints(&[if kernel > 1 { 1 - kernel } else { i64::MAX }]);
        let (to, axis) = (rw.ints(&[i64::MAX]), rw.ints(&[2]));
        rw.nodes.push(Node::new("Slice", &[&whole, &from, &to, &axis], out));
    }
    let inputs: Vec<&str> = [whole.as_str(), &weights].into_iter().chain(node.input(2)).collect();
    let y = rw.push("Conv", &inputs, &[("group", channels.into())]);
    match node.str("activation", "none") {
        "none" => rw.finish(node, "Identity", &[&y], &[]),
        "silu" | "swish" => {
            let gate = rw.op("Sigmoid", &[&y]);
            rw.finish(node, "Mul", &[&y, &gate], &[])
        }
        other => Err(format!("activation={other} is not known")),
    }
}

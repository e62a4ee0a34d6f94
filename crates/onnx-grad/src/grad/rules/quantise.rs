//! Quantisation: the straight-through estimator, which passes gradients through rounding unchanged (Bengio et
//! al., arXiv:1308.3432), and none if a value is clipped, as in PyTorch's fake_quantize.
//!
//! A quantised integer q represents the number scale·(q − zero point). Its gradient is that of q as a real
//! number.

use super::{Done, Rule, exact, straight_through};
use crate::DType;
use crate::grad::Cx;

pub(super) const RULES: &[Rule] = &[
    exact("DequantizeLinear", dequantize),
    // The scale, computed from the extremes of x, counts as a constant; nothing is clipped.
    straight_through("DynamicQuantizeLinear", |cx| cx.give_first(cx.div(&cx.gy(), &cx.y(1)))),
    straight_through("QuantizeLinear", quantize).but("4-bit integers and 8-bit floats"),
];

/// The shape in which one scale, or one per slice along `axis`, broadcasts.
fn broadcast_shape(cx: &Cx) -> Vec<i64> {
    let (x, scale) = (cx.x_shape(0), cx.x_shape(1));
    let mut shape = vec![1; x.len()];
    if let [n] = scale
        && *n > 1
    {
        let axis = super::shape::axis(cx.node.int("axis", 1), x.len());
        shape[axis] = *n;
    }
    shape
}

/// Scales or zero points, as floats that broadcast: a single one, one per slice of an axis, or one per block
/// of an axis.
fn spread(cx: &Cx, values: &str, dtype: DType, to: DType) -> String {
    let values = cx.cast(values, dtype, to);
    let (x, block) = (cx.x_shape(0), cx.node.int("block_size", 0));
    if block == 0 {
        return cx.reshape(&values, &broadcast_shape(cx));
    }
    let axis = super::shape::axis(cx.node.int("axis", 1), x.len());
    let blocks: Vec<i64> = (0..x[axis]).map(|i| i / block).collect();
    cx.op_with("Gather", &[&values, &cx.ints(&blocks)], &[("axis", (axis as i64).into())])
}

fn quantize(cx: &Cx) -> Done {
    let to = cx.y_type();
    let (low, high) = to.quantised_range().ok_or_else(|| format!("quantising to {to:?} is not covered"))?;
    let x = cx.cast(&cx.x(0), cx.x_type(0), DType::F32);
    let scale = spread(cx, &cx.x(1), cx.x_type(1), DType::F32);
    let ratio = cx.div(&x, &scale);
    let mut q = cx.op("Round", &[&ratio]);
    if let Some(zero) = zero_point(cx, DType::F32) {
        q = cx.add(&q, &zero);
    }
    let above = cx.op("GreaterOrEqual", &[&q, &cx.scalar(low)]);
    let below = cx.op("LessOrEqual", &[&q, &cx.scalar(high)]);
    let inside = cx.op("And", &[&above, &below]);
    let g = cx.only_where(&inside, &cx.div(&cx.gy(), &scale));
    if cx.wants(1) {
        // The gradient of x/scale + zero point.
        let g = cx.neg(&cx.mul(&g, &ratio));
        give_scale(cx, &cx.cast(&g, DType::F32, cx.x_type(1)));
    }
    if cx.wants(0) {
        cx.give(0, cx.cast(&g, DType::F32, cx.x_type(0)));
    }
    Ok(())
}

/// Gives the scales their gradient: each value adds to that of its own scale.
fn give_scale(cx: &Cx, g: &str) {
    let (shape, block) = (cx.y_shape(), cx.node.int("block_size", 0));
    if block == 0 {
        let g = cx.unbroadcast(g, shape, &broadcast_shape(cx));
        return cx.give(1, cx.reshape(&g, cx.x_shape(1)));
    }
    // The last block may be incomplete.
    let axis = super::shape::axis(cx.node.int("axis", 1), shape.len());
    let blocks = cx.x_shape(1)[axis];
    let mut after = vec![0; shape.len()];
    after[axis] = blocks * block - shape[axis];
    let g = cx.pad(g, &vec![0; shape.len()], &after);
    let apart = [&shape[..axis], &[blocks, block], &shape[axis + 1..]].concat();
    cx.give(1, cx.reduce_sum(&cx.reshape(&g, &apart), &[axis as i64 + 1], false));
}

/// Input `i`, integers, minus their zero point (input `zero`), as floats. One zero point, one per slice of an
/// axis, or several in a shape that broadcasts.
pub(super) fn centred(cx: &Cx, i: usize, zero: usize, axis: usize) -> String {
    let q = cx.cast(&cx.x(i), cx.x_type(i), DType::F32);
    let Some(name) = cx.node.input(zero) else { return q };
    let zero_point = cx.cast(name, cx.x_type(zero), DType::F32);
    if cx.x_shape(zero).len() > 1 {
        return cx.sub(&q, &zero_point);
    }
    let mut shape = vec![1; cx.x_shape(i).len()];
    if let [n] = cx.x_shape(zero)
        && *n > 1
    {
        shape[axis] = *n;
    }
    cx.sub(&q, &cx.reshape(&zero_point, &shape))
}

/// The zero point, if there is one, as floats that broadcast.
fn zero_point(cx: &Cx, dtype: DType) -> Option<String> {
    Some(spread(cx, cx.node.input(2)?, cx.x_type(2), dtype))
}

fn dequantize(cx: &Cx) -> Done {
    let (gy, own) = (cx.gy(), cx.x_type(1));
    if cx.wants(0) {
        let g = cx.mul(&gy, &spread(cx, &cx.x(1), own, own));
        cx.give(0, cx.cast(&g, own, DType::F32));
    }
    if cx.wants(1) {
        let mut q = cx.cast(&cx.x(0), cx.x_type(0), own);
        if let Some(zero) = zero_point(cx, own) {
            q = cx.sub(&q, &zero);
        }
        give_scale(cx, &cx.mul(&gy, &q));
    }
    Ok(())
}

//! Quantisation: the estimator that passes gradients straight through rounding (Bengio et al., arXiv:1308.3432), none
//! where values are clipped, as PyTorch's fake_quantize has it.
//!
//! A quantised integer q stands for the number scale·(q − zero point); its gradient is that of q as if it were a real
//! number.

use super::{Done, Rule, exact, straight_through};
use crate::DType;
use crate::grad::Cx;

pub(super) const RULES: &[Rule] = &[
    exact("DequantizeLinear", dequantize).but(BLOCKS),
    // The scale, out of the extremes of x, counts as a constant; nothing is clipped.
    straight_through("DynamicQuantizeLinear", |cx| cx.give_first(cx.div(&cx.gy(), &cx.y(1)))),
    straight_through("QuantizeLinear", quantize)
        .but("block_size; 4-bit and 8-bit float types; a scale computed from the image"),
];

const BLOCKS: &str = "block_size";

/// The shape in which one scale, or one per slice along `axis`, broadcasts.
fn broadcast_shape(cx: &Cx) -> Result<Vec<i64>, String> {
    if cx.node.int("block_size", 0) != 0 {
        return Err(format!("{BLOCKS} is not covered"));
    }
    let (x, scale) = (cx.x_shape(0), cx.x_shape(1));
    let mut shape = vec![1; x.len()];
    if let [n] = scale
        && *n > 1
    {
        let axis = super::shape::axis(cx.node.int("axis", 1), x.len());
        shape[axis] = *n;
    }
    Ok(shape)
}

fn quantize(cx: &Cx) -> Done {
    if cx.wants(1) {
        return Err("a scale computed from the input is not covered".into());
    }
    let (low, high) = match cx.y_type(0) {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        other => return Err(format!("quantising to {other:?} is not covered")),
    };
    let shape = broadcast_shape(cx)?;
    let x = cx.cast(&cx.x(0), cx.x_type(0), DType::F32);
    let scale = cx.reshape(&cx.cast(&cx.x(1), cx.x_type(1), DType::F32), &shape);
    let mut q = cx.div(&x, &scale);
    if let Some(zero) = zero_point(cx, DType::F32, &shape) {
        q = cx.add(&q, &zero);
    }
    let (above, below) = (cx.greater(&q, low - 0.5), cx.less(&q, high + 0.5));
    let inside = cx.op("And", &[&above, &below]);
    let g = cx.only_where(&inside, &cx.div(&cx.gy(), &scale));
    cx.give_first(cx.cast(&g, DType::F32, cx.x_type(0)))
}

/// The zero point, if there is one, as floats that broadcast.
fn zero_point(cx: &Cx, dtype: DType, shape: &[i64]) -> Option<String> {
    let zero = cx.node.input(2)?;
    Some(cx.reshape(&cx.cast(zero, cx.x_type(2), dtype), shape))
}

fn dequantize(cx: &Cx) -> Done {
    let shape = broadcast_shape(cx)?;
    let (gy, own) = (cx.gy(), cx.x_type(1));
    if cx.wants(0) {
        let g = cx.mul(&gy, &cx.reshape(&cx.x(1), &shape));
        cx.give(0, cx.cast(&g, own, DType::F32));
    }
    if cx.wants(1) {
        let mut q = cx.cast(&cx.x(0), cx.x_type(0), own);
        if let Some(zero) = zero_point(cx, own, &shape) {
            q = cx.sub(&q, &zero);
        }
        let g = cx.unbroadcast(&cx.mul(&gy, &q), cx.y_shape(0), &shape);
        cx.give(1, cx.reshape(&g, cx.x_shape(1)));
    }
    Ok(())
}

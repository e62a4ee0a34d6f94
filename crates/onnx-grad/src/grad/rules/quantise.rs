//! Quantisation: the estimator that passes gradients straight through rounding (Bengio et al., arXiv:1308.3432), none
//! where values are clipped, as PyTorch's fake_quantize has it.
//!
//! A quantised integer q stands for the number scale·(q − zero point); its gradient is that of q as if it were a real
//! number.

use super::{Rule, exact, straight_through};
use crate::DType;
use crate::grad::Cx;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("DequantizeLinear", dequantize).but(BLOCKS),
    straight_through("DynamicQuantizeLinear", dynamic),
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

fn quantize(cx: &mut Cx) -> Done {
    if cx.wants(1) {
        return Err("a scale computed from the image is not covered".into());
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
    let scale = cx.cast(&cx.x(1), cx.x_type(1), DType::F32);
    let scale = cx.reshape(&scale, &shape);
    let mut q = cx.div(&x, &scale);
    if cx.node.input(2).is_some() {
        let zero = cx.cast(&cx.x(2), cx.x_type(2), DType::F32);
        let zero = cx.reshape(&zero, &shape);
        q = cx.add(&q, &zero);
    }
    let above = cx.greater(&q, low - 0.5);
    let below = cx.less(&q, high + 0.5);
    let inside = cx.op("And", &[&above, &below]);
    let gy = cx.gy();
    let g = cx.div(&gy, &scale);
    let g = cx.only_where(&inside, &g);
    let g = cx.cast(&g, DType::F32, cx.x_type(0));
    cx.give(0, g);
    Ok(())
}

/// The scale, out of the extremes of x, counts as a constant; nothing is clipped.
fn dynamic(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let g = cx.div(&gy, &cx.y(1));
    cx.give(0, g);
    Ok(())
}

fn dequantize(cx: &mut Cx) -> Done {
    let shape = broadcast_shape(cx)?;
    let (gy, own) = (cx.gy(), cx.x_type(1));
    if cx.wants(0) {
        let scale = cx.reshape(&cx.x(1), &shape);
        let g = cx.mul(&gy, &scale);
        let g = cx.cast(&g, own, DType::F32);
        cx.give(0, g);
    }
    if cx.wants(1) {
        let mut q = cx.cast(&cx.x(0), cx.x_type(0), own);
        if cx.node.input(2).is_some() {
            let zero = cx.cast(&cx.x(2), cx.x_type(2), own);
            let zero = cx.reshape(&zero, &shape);
            q = cx.sub(&q, &zero);
        }
        let (full, to) = (cx.y_shape(0), cx.x_shape(1));
        let g = cx.mul(&gy, &q);
        let g = cx.unbroadcast(&g, full, &shape);
        let g = cx.reshape(&g, to);
        cx.give(1, g);
    }
    Ok(())
}

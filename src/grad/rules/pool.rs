//! Pooling over windows.

use super::conv::Window;
use super::{Rule, exact};
use crate::grad::Cx;
use crate::onnx::{Attr, DType};

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[exact("AveragePool", average_pool), exact("MaxPool", max_pool)];

/// Sends each output's gradient to the position that the forward pool chose (its second output, flat over the tensor).
fn max_pool(cx: &mut Cx) -> Done {
    if cx.node.int("storage_order", 0) != 0 {
        return Err("storage_order=1 is not covered".into());
    }
    let (x, y) = (cx.x_shape(0), cx.y_shape(0));
    let kernel = cx.node.ints("kernel_shape").ok_or("has no kernel_shape")?.to_vec();
    let window = Window::of(cx.node, &kernel, &x[2..])?;
    // Windows that don't touch never choose the same position, and a plain scatter is faster than an adding one.
    let apart = (0..kernel.len()).all(|d| (kernel[d] - 1) * window.dilations[d] < window.strides[d]);
    let indices = cx.extra_output(1, DType::I64, y);
    let gy = cx.gy();
    let zeros = cx.zeros(&[x.iter().product()]);
    let indices = cx.reshape(&indices, &[-1]);
    let flat = cx.reshape(&gy, &[-1]);
    let reduction = if apart { "none" } else { "add" };
    let g = cx.op_with(
        "ScatterElements",
        &[&zeros, &indices, &flat],
        &[("axis", Attr::Int(0)), ("reduction", reduction.into())],
    );
    let g = cx.reshape(&g, x);
    cx.give(0, g);
    Ok(())
}

/// Spreads each output's gradient, divided by the number of values averaged, over its window.
fn average_pool(cx: &mut Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape(0));
    let kernel = cx.node.ints("kernel_shape").ok_or("has no kernel_shape")?.to_vec();
    let window = Window::of(cx.node, &kernel, &x[2..])?;
    let n = kernel.len();
    let include_pad = cx.node.int("count_include_pad", 0) != 0;
    let explicit = cx.node.str("auto_pad", "NOTSET") == "NOTSET" && cx.node.ints("pads").is_some();
    // Values that one output averages, per axis: inside the image, or inside image and padding; a window that
    // ceil_mode lets hang over the padding counts only what lies within.
    let counts: Vec<Vec<f32>> = (0..n)
        .map(|d| {
            let size = x[2 + d];
            let total = |o: i64| {
                let start = o * window.strides[d] - window.before[d];
                let reach = (kernel[d] - 1) * window.dilations[d] + 1;
                let after = if explicit {
                    cx.node.ints("pads").map_or(0, |p| p[n + d])
                } else {
                    ((y[2 + d] - 1) * window.strides[d] + reach - window.before[d] - size).max(0)
                };
                let (low, high) = if include_pad { (i64::MIN, size + after) } else { (0, size) };
                let inside = |k: &i64| {
                    let at = start + k * window.dilations[d];
                    at >= low && at < high
                };
                (0..kernel[d]).filter(inside).count().max(1) as f32
            };
            (0..y[2 + d]).map(total).collect()
        })
        .collect();
    let mut inverse = vec![1.0f32];
    for axis in &counts {
        inverse = inverse.iter().flat_map(|a| axis.iter().map(move |c| a / c)).collect();
    }
    let gy = cx.gy();
    let scaled = if inverse.windows(2).all(|w| w[0] == w[1]) {
        cx.scale(&gy, inverse[0])
    } else {
        let shape = [&[1, 1], &y[2..]].concat();
        let inverse = cx.floats(&shape, &inverse);
        cx.mul(&gy, &inverse)
    };
    // Every channel alike: as images of one channel this is a single product, not one per group.
    let one = |shape: &[i64]| [&[shape[0] * shape[1], 1], &shape[2..]].concat();
    let flat = cx.reshape(&scaled, &one(y));
    let ones = cx
        .floats(&[&[1, 1], kernel.as_slice()].concat(), &vec![1.0; kernel.iter().product::<i64>() as usize]);
    let g = window.transpose(cx, &flat, &ones, 1, &x[2..], &y[2..]);
    let g = cx.reshape(&g, x);
    cx.give(0, g);
    Ok(())
}

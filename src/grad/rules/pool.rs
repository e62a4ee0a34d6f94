//! Pooling over windows.

use super::conv::{SAME, Window};
use super::{Rule, exact};
use crate::grad::Cx;
use crate::onnx::{Attr, DType, Tensor};

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("AveragePool", average_pool).but(SAME),
    exact("GlobalLpPool", global_lp_pool),
    exact("LpPool", lp_pool).but(SAME),
    exact("MaxPool", max_pool).but("storage_order=1; auto_pad=SAME_* with dilations"),
];

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
    if let Some(g) = compared(cx, &window, x, y) {
        cx.give(0, g);
        return Ok(());
    }
    let indices = cx.extra_output(1, DType::I64, y);
    let gy = cx.gy();
    let size = [x.iter().product()];
    let indices = cx.reshape(&indices, &[-1]);
    let flat = cx.reshape(&gy, &[-1]);
    let axis = [("axis", Attr::Int(0))];
    let g = if apart {
        let zeros = cx.zeros(&size);
        cx.op_with("ScatterElements", &[&zeros, &indices, &flat], &axis)
    } else {
        cx.scatter_add("ScatterElements", &size, &indices, &flat, &axis)
    };
    let g = cx.reshape(&g, x);
    cx.give(0, g);
    Ok(())
}

/// Values beyond which a pool's image doesn't fit into caches, and passes over it wait for memory.
const SMALL: i64 = 1 << 21;

/// The same without asking the forward pool for positions, where windows tile the image: who is as large as its window's
/// maximum, and first of those, as the pool would choose.
///
/// ONNX Runtime's pools that say positions compare value by value, those that don't use vector registers. Measured (1.31, CPU, one
/// thread, 2×2, both passes): 2 to 3 times faster on what fits into caches, a step of a net of two convolutions at 28 pixels 14 % in
/// all; on 64 × 224 × 224 no faster when all threads do it.
fn compared(cx: &mut Cx, window: &Window, x: &[i64], y: &[i64]) -> Option<String> {
    let kernel = &window.kernel;
    let tiles =
        *kernel == window.strides && kernel.len() == 2 && (0..2).all(|d| x[2 + d] == kernel[d] * y[2 + d]);
    let small = x.iter().product::<i64>() <= SMALL;
    if !tiles || !small || window.before != [0, 0] || window.dilations != [1, 1] || cx.x_type(0) != DType::F32
    {
        return None;
    }
    let places = kernel.iter().product::<i64>() as f32;
    let scales = cx.constant(Tensor::f32(&[4], &[1.0, 1.0, kernel[0] as f32, kernel[1] as f32]));
    let spread = |cx: &mut Cx, small: &str| {
        let attrs = [
            ("mode", "nearest"),
            ("coordinate_transformation_mode", "asymmetric"),
            ("nearest_mode", "floor"),
        ];
        cx.op_with("Resize", &[small, "", &scales], &attrs.map(|(name, value)| (name, value.into())))
    };
    let greatest = spread(cx, &cx.y(0));
    let behind = cx.sub(&greatest, &cx.x(0));
    let behind = cx.positive(&behind);
    // Of a window's maxima the first scores highest, above 0; nothing else reaches that.
    let mut left = Vec::with_capacity((x[2] * x[3]) as usize);
    for (i, j) in (0..x[2]).flat_map(|i| (0..x[3]).map(move |j| (i, j))) {
        let before = (i % kernel[0]) * kernel[1] + j % kernel[1];
        left.push((places - before as f32) / places);
    }
    let left = cx.floats(&[1, 1, x[2], x[3]], &left);
    let score = cx.sub(&left, &behind);
    let attrs: [(&str, Attr); 2] =
        [("kernel_shape", kernel.as_slice().into()), ("strides", kernel.as_slice().into())];
    let best = cx.op_with("MaxPool", &[&score], &attrs);
    let best = spread(cx, &best);
    let short = cx.sub(&best, &score);
    // Scores differ by 1/places at least.
    let first =
        cx.op_with("HardSigmoid", &[&short], &[("alpha", (-2.0 * places).into()), ("beta", 1.0f32.into())]);
    let gy = cx.gy();
    let gy = spread(cx, &gy);
    Some(cx.mul(&gy, &first))
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
    let g = spread(cx, &window, &scaled);
    cx.give(0, g);
    Ok(())
}

/// Adds each output's value to all of its window. Every channel alike: as images of one channel this is a single
/// product, not one per group.
fn spread(cx: &mut Cx, window: &Window, values: &str) -> String {
    let (x, y) = (cx.x_shape(0), cx.y_shape(0));
    let flat = cx.reshape(values, &[&[y[0] * y[1], 1], &y[2..]].concat());
    let ones = cx.filled(1.0, &[&[1, 1], window.kernel.as_slice()].concat());
    let g = window.transpose(cx, &flat, &ones, 1, &x[2..], &y[2..]);
    cx.reshape(&g, x)
}

/// y = (Σ |x|ᵖ)^(1/p): gy·y^(1−p), 0 where y is; what is left is the factor x·|x|^(p−2).
fn over_norm(cx: &mut Cx, p: i64) -> String {
    let (gy, y) = (cx.gy(), cx.y(0));
    if p == 1 {
        return gy;
    }
    let exponent = cx.scalar(1.0 - p as f32);
    let power = cx.op("Pow", &[&y, &exponent]);
    let g = cx.mul(&gy, &power);
    let positive = cx.greater(&y, 0.0);
    cx.only_where(&positive, &g)
}

/// Gives input 0 `g`·x·|x|^(p−2).
fn times_slope(cx: &mut Cx, g: &str, p: i64) -> Done {
    let x = cx.x(0);
    let slope = if p == 2 {
        x
    } else {
        let sign = cx.op("Sign", &[&x]);
        let size = cx.op("Abs", &[&x]);
        let exponent = cx.scalar(p as f32 - 1.0);
        let power = cx.op("Pow", &[&size, &exponent]);
        cx.mul(&sign, &power)
    };
    let g = cx.mul(g, &slope);
    cx.give(0, g);
    Ok(())
}

fn global_lp_pool(cx: &mut Cx) -> Done {
    let p = cx.node.int("p", 2);
    let g = over_norm(cx, p);
    times_slope(cx, &g, p)
}

fn lp_pool(cx: &mut Cx) -> Done {
    let p = cx.node.int("p", 2);
    let kernel = cx.node.ints("kernel_shape").ok_or("has no kernel_shape")?.to_vec();
    let window = Window::of(cx.node, &kernel, &cx.x_shape(0)[2..])?;
    let g = over_norm(cx, p);
    let g = spread(cx, &window, &g);
    times_slope(cx, &g, p)
}

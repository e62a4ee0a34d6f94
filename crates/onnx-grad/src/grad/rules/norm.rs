//! Normalisations and softmax.

use super::{Done, Rule, exact, shape::axis_of, soften};
use crate::DType;
use crate::grad::Cx;

pub(super) const RULES: &[Rule] = &[
    exact("BatchNormalization", batch_norm),
    exact("GroupNormalization", group_norm).but("scale and bias per group (opset 18 to 20)"),
    exact("InstanceNormalization", instance_norm),
    exact("LRN", local_response),
    exact("LayerNormalization", layer_norm).but("float64"),
    exact("LogSoftmax", log_softmax).softer(soften::log_softmax, soften::log_softmax_line),
    exact("LpNormalization", lp_norm),
    exact("MeanVarianceNormalization", mean_variance),
    exact("Softmax", softmax).softer(soften::softmax, soften::softmax_line),
];

/// With frozen statistics, an affine map per channel: y = k·(x − mean) + bias, k = scale/√(var + ε).
fn batch_norm(cx: &Cx) -> Done {
    if cx.node.int("training_mode", 0) != 0 {
        return Err(
            "was exported in training mode, so that an output depends on the other inputs of its batch. \
                    Call model.eval() and export it again"
                .into(),
        );
    }
    let var = cx.add(&cx.x(4), &cx.scalar(cx.node.float("epsilon", 1e-5)));
    let std = cx.op("Sqrt", &[&var]);
    let k = cx.div(&cx.x(1), &std);
    let per_channel = per_channel(cx.x_shape(0).len().max(2), -1);
    let others: Vec<i64> = (0..cx.x_shape(0).len() as i64).filter(|&d| d != 1).collect();
    let gy = cx.gy();
    if cx.wants(0) {
        cx.give(0, cx.mul(&gy, &cx.reshape(&k, &per_channel)));
    }
    if (1..5).all(|i| !cx.wants(i)) {
        return Ok(());
    }
    let centred = cx.sub(&cx.x(0), &cx.reshape(&cx.x(3), &per_channel));
    let product = cx.mul(&gy, &centred);
    let total = cx.reduce_sum(&gy, &others, false);
    let along = cx.reduce_sum(&product, &others, false);
    cx.give(2, total.clone());
    cx.give(1, cx.div(&along, &std));
    cx.give(3, cx.neg(&cx.mul(&total, &k)));
    cx.give(4, cx.scale(&cx.div(&cx.mul(&along, &k), &var), -0.5));
    Ok(())
}

/// The shape in which one number per channel (`n` channels) broadcasts.
fn per_channel(rank: usize, n: i64) -> Vec<i64> {
    (0..rank).map(|d| if d == 1 { n } else { 1 }).collect()
}

/// The gradient of (x − mean)/std over `axes` (kept), from the gradient g of the normalised value: (g −
/// mean(g) − x̂·mean(g·x̂))/std. It reads x − mean instead of x̂ and divides the means by std instead, which
/// saves a pass.
fn through_standardise(cx: &Cx, g: &str, centred: &str, inverse_std: &str, axes: &[i64]) -> String {
    let mean = |v: &str| cx.op("ReduceMean", &[v, &cx.ints(axes)]);
    let mean_g = mean(g);
    // In this order, neither factor leaves the range of float16.
    let slope = cx.mul(&cx.mul(&mean(&cx.mul(g, centred)), inverse_std), inverse_std);
    let rest = cx.sub(&cx.sub(g, &mean_g), &cx.mul(centred, &slope));
    cx.mul(&rest, inverse_std)
}

/// x − mean and 1/√(var + ε) over `axes` (kept). Their product is x̂.
fn standardise(cx: &Cx, x: &str, epsilon: f32, axes: &[i64]) -> (String, String) {
    let mean = |v: &str| cx.op("ReduceMean", &[v, &cx.ints(axes)]);
    let centred = cx.sub(x, &mean(x));
    let var = mean(&cx.square(&centred));
    let std = cx.op("Sqrt", &[&cx.add(&var, &cx.scalar(epsilon))]);
    let inverse_std = cx.op("Reciprocal", &[&std]);
    (centred, inverse_std)
}

/// Gives scale (input 1) and bias (input 2) their gradients, if they are computed from the input: those of a
/// product and a sum, which broadcast from shape `to`, reshaped to the inputs' own shapes.
fn scale_and_bias(cx: &Cx, xhat: &dyn Fn() -> String, to: [&[i64]; 2]) {
    for (i, to) in [(1, to[0]), (2, to[1])] {
        if cx.wants(i) {
            let g = if i == 1 { cx.mul(&cx.gy(), &xhat()) } else { cx.gy() };
            let g = cx.unbroadcast(&g, cx.x_shape(0), to);
            cx.give(i, cx.reshape_from(&g, to, cx.x_shape(i)));
        }
    }
}

fn layer_norm(cx: &Cx) -> Done {
    let x = cx.x_shape(0);
    let at = axis_of(cx, -1);
    let axes: Vec<i64> = (at as i64..x.len() as i64).collect();
    let kept: Vec<i64> = (0..x.len()).map(|d| if d < at { x[d] } else { 1 }).collect();
    // Statistics have the type stash_type: float32 by default and in every file seen.
    let mean = cx.extra_output(1, DType::F32, &kept);
    let inverse_std = cx.extra_output(2, DType::F32, &kept);
    let centred = cx.sub(&cx.x(0), &mean);
    let xhat = || cx.mul(&centred, &inverse_std);
    let g = cx.mul(&cx.gy(), &cx.x(1));
    let mut gx = through_standardise(cx, &g, &centred, &inverse_std, &axes);
    let count = x[at..].iter().product::<i64>() as f32;
    if cx.has_gy(1) {
        gx = cx.add(&gx, &cx.scale(&cx.gy_of(1), 1.0 / count));
    }
    if cx.has_gy(2) {
        // The derivative of 1/std is −(x − mean)/(n std³).
        let slope = cx.scale(&cx.mul(&cx.gy_of(2), &cx.square(&inverse_std)), -1.0 / count);
        gx = cx.add(&gx, &cx.mul(&slope, &xhat()));
    }
    cx.give(0, gx);
    scale_and_bias(cx, &xhat, [cx.x_shape(1), if cx.wants(2) { cx.x_shape(2) } else { &[] }]);
    Ok(())
}

fn instance_norm(cx: &Cx) -> Done {
    let shape = cx.x_shape(0);
    let axes: Vec<i64> = (2..shape.len() as i64).collect();
    let (centred, inverse_std) = standardise(cx, &cx.x(0), cx.node.float("epsilon", 1e-5), &axes);
    let per_channel = per_channel(shape.len(), shape[1]);
    let g = cx.mul(&cx.gy(), &cx.reshape(&cx.x(1), &per_channel));
    cx.give(0, through_standardise(cx, &g, &centred, &inverse_std, &axes));
    scale_and_bias(cx, &|| cx.mul(&centred, &inverse_std), [&per_channel, &per_channel]);
    Ok(())
}

/// Standardises (N, groups, rest), then scales and shifts per channel.
fn group_norm(cx: &Cx) -> Done {
    let (x, groups) = (cx.x_shape(0), cx.node.int("num_groups", 1));
    if cx.x_shape(1) != &x[1..2] {
        return Err("scale and bias per group, the form of opset 18 to 20, are not covered".into());
    }
    let grouped = [x[0], groups, x[1..].iter().product::<i64>() / groups];
    let per_channel = per_channel(x.len(), x[1]);
    let flat = cx.reshape(&cx.x(0), &grouped);
    let (centred, inverse_std) = standardise(cx, &flat, cx.node.float("epsilon", 1e-5), &[2]);
    let g = cx.mul(&cx.gy(), &cx.reshape(&cx.x(1), &per_channel));
    let g = through_standardise(cx, &cx.reshape(&g, &grouped), &centred, &inverse_std, &[2]);
    cx.give(0, cx.reshape(&g, x));
    if cx.wants(1) || cx.wants(2) {
        let xhat = || cx.reshape(&cx.mul(&centred, &inverse_std), x);
        scale_and_bias(cx, &xhat, [&per_channel, &per_channel]);
    }
    Ok(())
}

fn mean_variance(cx: &Cx) -> Done {
    let axes = cx.node.ints("axes").unwrap_or(&[0, 2, 3]);
    let (centred, inverse_std) = standardise(cx, &cx.x(0), 0.0, axes);
    cx.give_first(through_standardise(cx, &cx.gy(), &centred, &inverse_std, axes))
}

/// y = x·s^−β with s = bias + α/size·Σ x² over neighbouring channels: gy·s^−β − 2αβ/size · x·Σ gy·x·s^(−β−1),
/// summed over the channels that have this one as a neighbour.
fn local_response(cx: &Cx) -> Done {
    let (alpha, beta) = (cx.node.float("alpha", 1e-4), cx.node.float("beta", 0.75));
    let (bias, size) = (cx.node.float("bias", 1.0), cx.node.int("size", 1));
    let shape = cx.x_shape(0);
    let rows = [shape[0], 1, shape[1], shape[2..].iter().product()];
    let (low, high) = ((size - 1) / 2, size / 2);
    let ones = cx.filled(1.0, &[1, 1, size, 1]);
    let neighbours = |v: &str, before: i64, after: i64| {
        let v = cx.reshape(v, &rows);
        let v = cx.op_with("Conv", &[&v, &ones], &[("pads", vec![before, 0, after, 0].into())]);
        cx.reshape(&v, shape)
    };
    let x = cx.x(0);
    let total = neighbours(&cx.square(&x), low, high);
    let s = cx.add(&cx.scale(&total, alpha / size as f32), &cx.scalar(bias));
    let direct = cx.mul(&cx.gy(), &cx.power(&s, -beta));
    let part = cx.div(&cx.mul(&direct, &x), &s);
    let part = cx.mul(&neighbours(&part, high, low), &x);
    let part = cx.scale(&part, 2.0 * alpha * beta / size as f32);
    cx.give_first(cx.sub(&direct, &part))
}

fn softmax(cx: &Cx) -> Done {
    cx.give_first(through_softmax(cx, &cx.y(0), &[axis_of(cx, -1) as i64]))
}

/// The gradient through softmax with the result y: y·(gy − Σ gy·y) along the axes.
pub(super) fn through_softmax(cx: &Cx, y: &str, axes: &[i64]) -> String {
    let gy = cx.gy();
    let total = cx.reduce_sum(&cx.mul(&gy, y), axes, true);
    cx.mul(&cx.sub(&gy, &total), y)
}

/// gy − exp(y)·Σ gy along the axis.
fn log_softmax(cx: &Cx) -> Done {
    let soft = cx.op("Exp", &[&cx.y(0)]);
    let total = cx.reduce_sum(&cx.gy(), &[axis_of(cx, -1) as i64], true);
    cx.give_first(cx.sub(&cx.gy(), &cx.mul(&soft, &total)))
}

/// y = x/‖x‖: (gy − s·Σ gy·y)/‖x‖ along the axis, s = y for p = 2 and sign(x) for p = 1; 0 if ‖x‖ is 0.
fn lp_norm(cx: &Cx) -> Done {
    let (axes, one) = ([axis_of(cx, -1) as i64], cx.node.int("p", 2) == 1);
    let (gy, x, y) = (cx.gy(), cx.x(0), cx.y(0));
    let norm = cx.op(if one { "ReduceL1" } else { "ReduceL2" }, &[&x, &cx.ints(&axes)]);
    let direction = if one { cx.op("Sign", &[&x]) } else { y.clone() };
    let total = cx.reduce_sum(&cx.mul(&gy, &y), &axes, true);
    let g = cx.div(&cx.sub(&gy, &cx.mul(&direction, &total)), &norm);
    cx.give_first(cx.only_where(&cx.greater(&norm, 0.0), &g))
}

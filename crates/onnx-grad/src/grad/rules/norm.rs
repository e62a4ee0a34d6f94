//! Normalisations and softmax.

use super::{Rule, exact, shape::axis};
use crate::DType;
use crate::grad::Cx;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("BatchNormalization", batch_norm),
    exact("GroupNormalization", group_norm).but("scale and bias per group (opset 18 to 20)"),
    exact("InstanceNormalization", instance_norm),
    exact("LRN", local_response),
    exact("LayerNormalization", layer_norm),
    exact("LogSoftmax", log_softmax),
    exact("LpNormalization", lp_norm),
    exact("MeanVarianceNormalization", mean_variance),
    exact("Softmax", softmax),
];

/// With frozen statistics an affine map per channel, y = k·(x − mean) + bias with k = scale/√(var + ε).
fn batch_norm(cx: &mut Cx) -> Done {
    if cx.node.int("training_mode", 0) != 0 {
        return Err(
            "was exported in training mode, so that an embedding depends on the other images of its batch. \
                    Call model.eval() and export it again"
                .into(),
        );
    }
    let epsilon = cx.node.float("epsilon", 1e-5);
    let e = cx.scalar(epsilon);
    let var = cx.add(&cx.x(4), &e);
    let std = cx.op("Sqrt", &[&var]);
    let k = cx.div(&cx.x(1), &std);
    let rank = cx.x_shape(0).len();
    let mut per_channel = vec![1; rank.max(2)];
    per_channel[1] = -1;
    let others: Vec<i64> = (0..rank as i64).filter(|&d| d != 1).collect();
    let gy = cx.gy();
    if cx.wants(0) {
        let k = cx.reshape(&k, &per_channel);
        let g = cx.mul(&gy, &k);
        cx.give(0, g);
    }
    if (1..5).all(|i| !cx.wants(i)) {
        return Ok(());
    }
    let mean = cx.reshape(&cx.x(3), &per_channel);
    let centred = cx.sub(&cx.x(0), &mean);
    let product = cx.mul(&gy, &centred);
    let total = cx.reduce_sum(&gy, &others, false);
    let along = cx.reduce_sum(&product, &others, false);
    cx.give(2, total.clone());
    let g = cx.div(&along, &std);
    cx.give(1, g);
    let g = cx.mul(&total, &k);
    let g = cx.op("Neg", &[&g]);
    cx.give(3, g);
    let g = cx.mul(&along, &k);
    let g = cx.div(&g, &var);
    let g = cx.scale(&g, -0.5);
    cx.give(4, g);
    Ok(())
}

/// The gradient of (x − mean)/std over `axes` (kept), given that of the normalised value:
/// (g − mean(g) − x̂·mean(g·x̂))/std.
fn through_standardise(cx: &mut Cx, g: &str, xhat: &str, inverse_std: &str, axes: &[i64]) -> String {
    let mean = |cx: &mut Cx, v: &str| {
        let axes = cx.ints(axes);
        cx.op("ReduceMean", &[v, &axes])
    };
    let mean_g = mean(cx, g);
    let gx = cx.mul(g, xhat);
    let mean_gx = mean(cx, &gx);
    let along = cx.mul(xhat, &mean_gx);
    let centred = cx.sub(g, &mean_g);
    let rest = cx.sub(&centred, &along);
    cx.mul(&rest, inverse_std)
}

/// x̂ = (x − mean)/√(var + ε) over `axes`, kept, and 1/√(var + ε).
fn standardise(cx: &mut Cx, x: &str, epsilon: f32, axes: &[i64]) -> (String, String) {
    let axes = cx.ints(axes);
    let mean = cx.op("ReduceMean", &[x, &axes]);
    let centred = cx.sub(x, &mean);
    let square = cx.mul(&centred, &centred);
    let var = cx.op("ReduceMean", &[&square, &axes]);
    let e = cx.scalar(epsilon);
    let var = cx.add(&var, &e);
    let std = cx.op("Sqrt", &[&var]);
    let inverse_std = cx.op("Reciprocal", &[&std]);
    (cx.mul(&centred, &inverse_std), inverse_std)
}

/// Gives scale (input 1) and bias (input 2) their gradients, where they are computed from the image: those of a
/// product and a sum, which broadcast from shape `to` and are held in the inputs' own.
fn scale_and_bias(cx: &mut Cx, xhat: &str, to: [&[i64]; 2]) {
    let gy = cx.gy();
    let full = cx.x_shape(0);
    for (i, to) in [(1, to[0]), (2, to[1])] {
        if cx.wants(i) {
            let g = if i == 1 { cx.mul(&gy, xhat) } else { gy.clone() };
            let g = cx.unbroadcast(&g, full, to);
            let own = cx.x_shape(i);
            let g = if to == own { g } else { cx.reshape(&g, own) };
            cx.give(i, g);
        }
    }
}

fn layer_norm(cx: &mut Cx) -> Done {
    let x = cx.x_shape(0);
    let at = axis(cx.node.int("axis", -1), x.len());
    let axes: Vec<i64> = (at as i64..x.len() as i64).collect();
    let kept: Vec<i64> = (0..x.len()).map(|d| if d < at { x[d] } else { 1 }).collect();
    // Statistics come in stash_type, float32 by default and in every file seen.
    let mean = cx.extra_output(1, DType::F32, &kept);
    let inverse_std = cx.extra_output(2, DType::F32, &kept);
    let centred = cx.sub(&cx.x(0), &mean);
    let xhat = cx.mul(&centred, &inverse_std);
    let gy = cx.gy();
    let g = cx.mul(&gy, &cx.x(1));
    let g = through_standardise(cx, &g, &xhat, &inverse_std, &axes);
    cx.give(0, g);
    let to = [cx.x_shape(1), if cx.wants(2) { cx.x_shape(2) } else { &[] }];
    scale_and_bias(cx, &xhat, to);
    Ok(())
}

fn instance_norm(cx: &mut Cx) -> Done {
    let epsilon = cx.node.float("epsilon", 1e-5);
    let shape = cx.x_shape(0);
    let axes: Vec<i64> = (2..shape.len() as i64).collect();
    let x = cx.x(0);
    let (xhat, inverse_std) = standardise(cx, &x, epsilon, &axes);
    let mut per_channel = vec![1; shape.len()];
    per_channel[1] = shape[1];
    let scale = cx.reshape(&cx.x(1), &per_channel);
    let gy = cx.gy();
    let g = cx.mul(&gy, &scale);
    let g = through_standardise(cx, &g, &xhat, &inverse_std, &axes);
    cx.give(0, g);
    scale_and_bias(cx, &xhat, [&per_channel, &per_channel]);
    Ok(())
}

/// Standardises (N, groups, rest), scales and shifts per channel.
fn group_norm(cx: &mut Cx) -> Done {
    let (x, groups) = (cx.x_shape(0), cx.node.int("num_groups", 1));
    if cx.x_shape(1) != &x[1..2] {
        return Err("scale and bias per group, the form of opset 18 to 20, are not covered".into());
    }
    let epsilon = cx.node.float("epsilon", 1e-5);
    let grouped = [x[0], groups, x[1..].iter().product::<i64>() / groups];
    let mut per_channel = vec![1; x.len()];
    per_channel[1] = x[1];
    let flat = cx.reshape(&cx.x(0), &grouped);
    let (flat, inverse_std) = standardise(cx, &flat, epsilon, &[2]);
    let scale = cx.reshape(&cx.x(1), &per_channel);
    let gy = cx.gy();
    let g = cx.mul(&gy, &scale);
    let g = cx.reshape(&g, &grouped);
    let g = through_standardise(cx, &g, &flat, &inverse_std, &[2]);
    let g = cx.reshape(&g, x);
    cx.give(0, g);
    if cx.wants(1) || cx.wants(2) {
        let xhat = cx.reshape(&flat, x);
        scale_and_bias(cx, &xhat, [&per_channel, &per_channel]);
    }
    Ok(())
}

fn mean_variance(cx: &mut Cx) -> Done {
    let axes = cx.node.ints("axes").unwrap_or(&[0, 2, 3]).to_vec();
    let x = cx.x(0);
    let (xhat, inverse_std) = standardise(cx, &x, 0.0, &axes);
    let gy = cx.gy();
    let g = through_standardise(cx, &gy, &xhat, &inverse_std, &axes);
    cx.give(0, g);
    Ok(())
}

/// y = x·s^−β with s = bias + α/size·Σ x² over neighbouring channels:
/// gy·s^−β − 2αβ/size · x·Σ gy·x·s^(−β−1), that sum over the channels whose neighbour this one is.
fn local_response(cx: &mut Cx) -> Done {
    let (alpha, beta) = (cx.node.float("alpha", 1e-4), cx.node.float("beta", 0.75));
    let (bias, size) = (cx.node.float("bias", 1.0), cx.node.int("size", 1));
    let shape = cx.x_shape(0);
    let rows = [shape[0], 1, shape[1], shape[2..].iter().product()];
    let (low, high) = ((size - 1) / 2, size / 2);
    let ones = cx.filled(1.0, &[1, 1, size, 1]);
    let neighbours = |cx: &mut Cx, v: &str, before: i64, after: i64| {
        let v = cx.reshape(v, &rows);
        let v = cx.op_with("Conv", &[&v, &ones], &[("pads", vec![before, 0, after, 0].into())]);
        cx.reshape(&v, shape)
    };
    let (gy, x) = (cx.gy(), cx.x(0));
    let square = cx.mul(&x, &x);
    let total = neighbours(cx, &square, low, high);
    let total = cx.scale(&total, alpha / size as f32);
    let bias = cx.scalar(bias);
    let s = cx.add(&total, &bias);
    let exponent = cx.scalar(-beta);
    let power = cx.op("Pow", &[&s, &exponent]);
    let direct = cx.mul(&gy, &power);
    let part = cx.mul(&direct, &x);
    let part = cx.div(&part, &s);
    let part = neighbours(cx, &part, high, low);
    let part = cx.mul(&part, &x);
    let part = cx.scale(&part, 2.0 * alpha * beta / size as f32);
    let g = cx.sub(&direct, &part);
    cx.give(0, g);
    Ok(())
}

/// y·(gy − Σ gy·y) along the axis.
fn softmax(cx: &mut Cx) -> Done {
    let at = axis(cx.node.int("axis", -1), cx.x_shape(0).len()) as i64;
    let (gy, y) = (cx.gy(), cx.y(0));
    let product = cx.mul(&gy, &y);
    let total = cx.reduce_sum(&product, &[at], true);
    let rest = cx.sub(&gy, &total);
    let g = cx.mul(&rest, &y);
    cx.give(0, g);
    Ok(())
}

/// gy − exp(y)·Σ gy along the axis.
fn log_softmax(cx: &mut Cx) -> Done {
    let at = axis(cx.node.int("axis", -1), cx.x_shape(0).len()) as i64;
    let (gy, y) = (cx.gy(), cx.y(0));
    let soft = cx.op("Exp", &[&y]);
    let total = cx.reduce_sum(&gy, &[at], true);
    let part = cx.mul(&soft, &total);
    let g = cx.sub(&gy, &part);
    cx.give(0, g);
    Ok(())
}

/// y = x/‖x‖: (gy − s·Σ gy·y)/‖x‖ along the axis, s = y for p = 2 and sign(x) for p = 1; 0 where x is.
fn lp_norm(cx: &mut Cx) -> Done {
    let at = axis(cx.node.int("axis", -1), cx.x_shape(0).len()) as i64;
    let p = cx.node.int("p", 2);
    let (gy, x, y) = (cx.gy(), cx.x(0), cx.y(0));
    let axes = cx.ints(&[at]);
    let norm = cx.op(if p == 1 { "ReduceL1" } else { "ReduceL2" }, &[&x, &axes]);
    let direction = if p == 1 { cx.op("Sign", &[&x]) } else { y.clone() };
    let product = cx.mul(&gy, &y);
    let total = cx.reduce_sum(&product, &[at], true);
    let along = cx.mul(&direction, &total);
    let rest = cx.sub(&gy, &along);
    let g = cx.div(&rest, &norm);
    let positive = cx.greater(&norm, 0.0);
    let g = cx.only_where(&positive, &g);
    cx.give(0, g);
    Ok(())
}

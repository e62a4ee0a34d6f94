//! Normalisations and softmax.

use super::{Rule, exact, shape::axis};
use crate::grad::Cx;
use crate::onnx::DType;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("BatchNormalization", batch_norm),
    exact("InstanceNormalization", instance_norm),
    exact("LayerNormalization", layer_norm),
    exact("LogSoftmax", log_softmax),
    exact("LpNormalization", lp_norm),
    exact("Softmax", softmax),
];

/// With frozen statistics an affine map per channel: gy · scale/√(var + ε).
fn batch_norm(cx: &mut Cx) -> Done {
    if (1..5).any(|i| cx.wants(i)) {
        return Err("its scale, bias or statistics are computed from the image, which is not covered".into());
    }
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
    let mut shape = vec![1; rank.max(2)];
    shape[1] = -1;
    let k = cx.reshape(&k, &shape);
    let gy = cx.gy();
    let g = cx.mul(&gy, &k);
    cx.give(0, g);
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

fn layer_norm(cx: &mut Cx) -> Done {
    if cx.wants(1) || cx.wants(2) {
        return Err("its scale or bias is computed from the image, which is not covered".into());
    }
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
    Ok(())
}

fn instance_norm(cx: &mut Cx) -> Done {
    if cx.wants(1) || cx.wants(2) {
        return Err("its scale or bias is computed from the image, which is not covered".into());
    }
    let epsilon = cx.node.float("epsilon", 1e-5);
    let shape = cx.x_shape(0);
    let axes: Vec<i64> = (2..shape.len() as i64).collect();
    let axes_input = cx.ints(&axes);
    let x = cx.x(0);
    let mean = cx.op("ReduceMean", &[&x, &axes_input]);
    let centred = cx.sub(&x, &mean);
    let square = cx.mul(&centred, &centred);
    let var = cx.op("ReduceMean", &[&square, &axes_input]);
    let e = cx.scalar(epsilon);
    let var = cx.add(&var, &e);
    let std = cx.op("Sqrt", &[&var]);
    let inverse_std = cx.op("Reciprocal", &[&std]);
    let xhat = cx.mul(&centred, &inverse_std);
    let mut per_channel = vec![1; shape.len()];
    per_channel[1] = -1;
    let scale = cx.reshape(&cx.x(1), &per_channel);
    let gy = cx.gy();
    let g = cx.mul(&gy, &scale);
    let g = through_standardise(cx, &g, &xhat, &inverse_std, &axes);
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

//! Discrete Fourier transforms. The transpose of a transform is N times the inverse transform, F*.

use super::{Done, Rule, exact, shape::axis};
use crate::grad::Cx;

pub(super) const RULES: &[Rule] = &[
    exact("DFT", dft).but("an axis computed in the graph; an inverse of one side to another length"),
    exact("STFT", stft).but("a step computed in the graph; frames of more than 4096 values"),
];

/// The real part of complex numbers, whose last axis has 2 values.
fn real(cx: &Cx, a: &str, rank: usize) -> String {
    let (from, to, last) = (cx.ints(&[0]), cx.ints(&[1]), cx.ints(&[rank as i64 - 1]));
    cx.op("Slice", &[a, &from, &to, &last])
}

/// `a`, which has `size` values along axis `at`, cropped or filled with zeros at the end to `wanted` values.
fn resized(cx: &Cx, a: &str, rank: usize, at: usize, size: i64, wanted: i64) -> String {
    let mut after = vec![0; rank];
    after[at] = wanted - size;
    cx.pad(a, &vec![0; rank], &after)
}

/// The transform along an axis.
fn transform(cx: &Cx, a: &str, at: usize, inverse: bool, onesided: bool) -> String {
    let axis = cx.constant(crate::Tensor::i64(&[], &[at as i64]));
    let attrs = [("inverse", i64::from(inverse).into()), ("onesided", i64::from(onesided).into())];
    cx.op_with("DFT", &[a, "", &axis], &attrs)
}

/// x [.., n, 1 or 2] → y [.., N, 2]: y = F x, or F* x / N for the inverse. A onesided transform has N / 2 + 1
/// values.
fn dft(cx: &Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let rank = x.len();
    let at = axis(cx.const_ints(2)?.and_then(|v| v.first().copied()).unwrap_or(-2), rank);
    let (inverse, onesided) = (cx.node.int("inverse", 0) != 0, cx.node.int("onesided", 0) != 0);
    let length = match cx.const_ints(1)?.and_then(|v| v.first().copied()) {
        Some(length) => length,
        None if inverse && onesided => y[at],
        None => x[at],
    };
    let gy = cx.gy();
    if inverse && onesided {
        // Each value but the first, and the middle one of an even length, also stands for its conjugate.
        let g = transform(cx, &gy, at, false, true);
        let half = length / 2 + 1;
        let own = |k: i64| k == 0 || 2 * k == length;
        let counts: Vec<f32> = (0..half).map(|k| if own(k) { 1.0 } else { 2.0 } / length as f32).collect();
        let mut column = vec![1; rank];
        column[at] = half;
        let g = cx.mul(&g, &cx.floats(&column, &counts));
        return cx.give_first(resized(cx, &g, rank, at, half, x[at]));
    }
    let g = resized(cx, &gy, rank, at, y[at], length);
    let g = transform(cx, &g, at, !inverse, false);
    let g = cx.scale(&g, if inverse { 1.0 / length as f32 } else { length as f32 });
    let g = resized(cx, &g, rank, at, length, x[at]);
    cx.give_first(if x[rank - 1] == 1 { real(cx, &g, rank) } else { g })
}

/// Frames of x [B, L, 1 or 2], each multiplied by the window and transformed: y [B, frames, N or N / 2 + 1,
/// 2].
fn stft(cx: &Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let step = cx.const_ints(1)?.and_then(|v| v.first().copied()).ok_or("has no frame_step")?;
    let length = match (cx.node.input(2), cx.const_ints(3)?.and_then(|v| v.first().copied())) {
        (_, Some(length)) => length,
        (Some(_), None) => cx.x_shape(2)[0],
        (None, None) => return Err("has neither window nor frame_length".into()),
    };
    let g = resized(cx, &cx.gy(), 4, 2, y[2], length);
    let mut g = cx.scale(&transform(cx, &g, 2, true, false), length as f32);
    let parts = x.get(2).copied().unwrap_or(1);
    if parts == 1 {
        g = real(cx, &g, 4);
    }
    if cx.wants(2) {
        // Each value of the window multiplies one value of every frame.
        let starts = 0..y[1];
        let places: Vec<i64> = starts.flat_map(|i| (0..length).map(move |k| i * step + k)).collect();
        let places = cx.constant(crate::Tensor::i64(&[y[1], length], &places));
        let values = cx.reshape(&cx.x(0), &[x[0], x[1], parts]);
        let frames = cx.op_with("Gather", &[&values, &places], &[("axis", 1i64.into())]);
        cx.give(2, cx.reduce_sum(&cx.mul(&g, &frames), &[0, 1, 3], false));
    }
    if cx.node.input(2).is_some() {
        g = cx.mul(&g, &cx.reshape(&cx.x(2), &[length, 1]));
    }
    // Adds frames at their positions: a ConvTranspose whose kernel is the identity.
    let frames = cx.reshape(&cx.transpose(&g, &[0, 3, 2, 1]), &[x[0] * parts, length, y[1]]);
    let places = cx.identity(&[length, 1, length], length)?;
    let g = cx.op_with("ConvTranspose", &[&frames, &places], &[("strides", vec![step].into())]);
    let g = resized(cx, &g, 3, 2, (y[1] - 1) * step + length, x[1]);
    let g = cx.transpose(&cx.reshape(&g, &[x[0], parts, x[1]]), &[0, 2, 1]);
    cx.give_first(cx.reshape(&g, x))
}

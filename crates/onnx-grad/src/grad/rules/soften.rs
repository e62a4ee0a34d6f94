//! Backward passes that are not the derivative, for operators that saturate or are flat. They are for attacks
//! only: the model itself measures the attacked image, so the steps may follow any slope. This is the
//! backward pass differentiable approximation (BPDA) of Athalye et al., ICML 2018, for graphs.
//!
//! A softened rule is the derivative of a similar function: close to the operator where that has a useful
//! slope, with a slope that falls slowly, never to 0, where it saturates. The slope depends on the value
//! itself and not on other values of the tensor: no axis has to be the batch, so an image's gradient doesn't
//! depend on its batch. Only softmax reads other values, those along its own axis.
//!
//! [`Pass::StraightThrough`](crate::Pass) has the slope of a straight line instead.

use super::norm::through_softmax;
use super::shape::axis_of;
use super::{Apply, Done, pass_through};
use crate::grad::Cx;

/// Share of the gradient that passes at the kink of a rectifier, on its flat side. An attack on
/// `models/hardened.onnx` (100 steps, 48 queries) leaves 8 % of the queries correct at 0.01, 12 % at 0.05,
/// and 10 % along the exact gradient.
const LEAN: f32 = 0.01;
/// Maximum |x| at which the softened sigmoid has the sigmoid's own slope.
pub(crate) const SIGMOID_UNTIL: f32 = 2.0;
/// Maximum |x| at which the softened hyperbolic tangent, error function, arc tangent and softsign have their
/// own slopes.
pub(crate) const TANH_UNTIL: f32 = 1.0;
/// Maximum |a − b| at which a comparison is a line; beyond, its slope falls.
const LINE_UNTIL: f32 = 0.1;
/// Maximum mean distance of softmax's arguments from their mean; they are divided until it is reached.
const SPREAD: f32 = 2.0;
/// Mean distance of Hardmax's arguments from their mean, after division by a temperature. Behind a product
/// quantiser (16 centres for each of 16 parts) of `models/plain.onnx`, the strong search without this slope
/// left 13 of 40 queries at ε 4/255. Of these, 30 steps with momentum towards each of 12 classes, from the
/// clean image and from a random one, broke 1 at a distance of 2, 5 at 9 and 4 at 23.
const HARD_SPREAD: f32 = 8.0;
/// Minimum temperature of Hardmax: if all values are equal, their spread is 0.
const HARD_LEAST: f32 = 1e-6;

/// The output as floats of the gradients' type.
fn result(cx: &Cx) -> String {
    cx.cast(&cx.y(0), cx.y_type(), cx.gy_type())
}

/// m = max(|x|/until, 1): 1 where the operator has its own slope, rising where it saturates.
fn excess(cx: &Cx, x: &str, until: f32) -> String {
    let size = cx.scale(&cx.op("Abs", &[x]), 1.0 / until);
    cx.op("Max", &[&size, &cx.scalar(1.0)])
}

/// `slope` of x/m, divided by √m, m = [`excess`]: an S-shaped curve that continues as a root beyond `until`.
/// A logarithm, whose slope falls as 1/m, would put nearly all weight on the few values at the middle of a
/// steep curve.
fn tailed(cx: &Cx, until: f32, slope: impl Fn(&str) -> String) -> Done {
    let x = cx.x(0);
    let m = excess(cx, &x, until);
    let slope = cx.div(&slope(&cx.div(&x, &m)), &cx.op("Sqrt", &[&m]));
    cx.give_first(cx.mul(&cx.gy(), &slope))
}

/// s·(1 − s).
pub(super) fn sigmoid(cx: &Cx) -> Done {
    tailed(cx, SIGMOID_UNTIL, |v| {
        let s = cx.op("Sigmoid", &[v]);
        cx.mul(&s, &cx.sub(&cx.scalar(1.0), &s))
    })
}

/// 1 − t².
pub(super) fn tanh(cx: &Cx) -> Done {
    tailed(cx, TANH_UNTIL, |v| cx.sub(&cx.scalar(1.0), &cx.square(&cx.op("Tanh", &[v]))))
}

/// 2/√π · exp(−x²).
pub(super) fn erf(cx: &Cx) -> Done {
    tailed(cx, TANH_UNTIL, |v| {
        let e = cx.op("Exp", &[&cx.neg(&cx.square(v))]);
        cx.scale(&e, std::f32::consts::FRAC_2_SQRT_PI)
    })
}

/// 1/(1 + x²).
pub(super) fn atan(cx: &Cx) -> Done {
    tailed(cx, TANH_UNTIL, |v| cx.op("Reciprocal", &[&cx.add(&cx.square(v), &cx.scalar(1.0))]))
}

/// 1/(1 + |x|)².
pub(super) fn softsign(cx: &Cx) -> Done {
    tailed(cx, TANH_UNTIL, |v| {
        let root = cx.add(&cx.op("Abs", &[v]), &cx.scalar(1.0));
        cx.op("Reciprocal", &[&cx.square(&root)])
    })
}

/// A wave, `value` with `slope` at x, as its quotient by m = max(|x|/π, 1): beyond half a wavelength, it gets
/// lower. Far out the input makes many waves, and their slope is large and of no use. It would hide all other
/// slopes: an attack on `models/plain.onnx` behind a rotation by 0.2·sin(w·x), |w·x| some thousands (30 steps
/// towards each of 10 classes, ε 4/255), left 35 of 41 queries along the wave's own slope, 13 along this one,
/// and 12 without the wave.
fn lower(cx: &Cx, value: &str, slope: &str) -> Done {
    let x = cx.x(0);
    let m = excess(cx, &x, std::f32::consts::PI);
    let beyond = cx.positive(&cx.sub(&m, &cx.scalar(1.0)));
    // The slope of m is sign(x)/π beyond, and 0 within.
    let rise = cx.scale(&cx.mul(&beyond, &cx.op("Sign", &[&x])), std::f32::consts::FRAC_1_PI);
    let own = cx.sub(slope, &cx.div(&cx.mul(value, &rise), &m));
    cx.give_first(cx.mul(&cx.gy(), &cx.div(&own, &m)))
}

/// cos x.
pub(super) fn sine(cx: &Cx) -> Done {
    lower(cx, &cx.y(0), &cx.op("Cos", &[&cx.x(0)]))
}

/// −sin x.
pub(super) fn cosine(cx: &Cx) -> Done {
    lower(cx, &cx.y(0), &cx.neg(&cx.op("Sin", &[&cx.x(0)])))
}

/// a − b·⌊a/b⌋ with the slope of a line for the floor: 0 for a, and y/b for b. So a value minus its
/// remainder, which is rounding in other words, has the slope that rounding has.
pub(super) fn remainder(cx: &Cx) -> Done {
    if cx.wants(1) {
        cx.give(1, cx.div(&cx.mul(&cx.gy(), &result(cx)), &cx.x_as_float(1)));
    }
    cx.give_first(cx.scale(&cx.gy(), 0.0))
}

/// α inside; outside α/√(1 + d), d the distance of αx + β from [0, 1].
pub(super) fn hard_sigmoid(cx: &Cx) -> Done {
    let alpha = cx.node.float("alpha", 0.2);
    let u = cx.add(&cx.scale(&cx.x(0), alpha), &cx.scalar(cx.node.float("beta", 0.5)));
    let beyond = cx.op("Abs", &[&cx.sub(&u, &cx.y(0))]);
    let slower = cx.add(&beyond, &cx.scalar(1.0));
    cx.give_first(cx.div(&cx.scale(&cx.gy(), alpha), &cx.op("Sqrt", &[&slower])))
}

/// The line that HardSigmoid clips.
pub(super) fn hard_sigmoid_line(cx: &Cx) -> Done {
    cx.give_first(cx.scale(&cx.gy(), cx.node.float("alpha", 0.2)))
}

/// [`LEAN`]/√(1 + |d|): the share of the gradient at a distance d from a kink, on the flat side. It falls
/// with d, so that the difference of two steep rectifiers has a slope where both are flat or both rise.
fn lean(cx: &Cx, d: &str) -> String {
    let root = cx.op("Sqrt", &[&cx.add(&cx.op("Abs", &[d]), &cx.scalar(1.0))]);
    cx.div(&cx.scalar(LEAN), &root)
}

/// `exact` plus [`lean`] on the negative side, minus [`lean`] on the positive side: the derivative of the
/// operator minus 2·LEAN·(√(1 + |x|) − 1).
pub(super) fn bent(cx: &Cx, exact: Apply) -> Done {
    exact(cx)?;
    let x = cx.x_as_float(0);
    let bend = cx.mul(&lean(cx, &x), &cx.neg(&cx.op("Sign", &[&x])));
    cx.give_first(cx.mul(&cx.gy(), &bend))
}

/// The step of Relu, bent.
pub(super) fn relu(cx: &Cx) -> Done {
    bent(cx, |cx| cx.give_first(cx.mul(&cx.gy(), &cx.positive(&result(cx)))))
}

/// Bent like Relu if the slope below zero is too small to be useful.
pub(super) fn leaky_relu(cx: &Cx, exact: Apply) -> Done {
    if cx.node.float("alpha", 0.01).abs() >= LEAN {
        cx.own();
        return exact(cx);
    }
    bent(cx, exact)
}

/// `exact` plus [`LEAN`] times the gradient everywhere: for operators that are flat around zero.
pub(super) fn with_leak(cx: &Cx, exact: Apply) -> Done {
    exact(cx)?;
    cx.give_first(cx.scale(&cx.gy(), LEAN))
}

/// Whether Clip has no bounds, or a bound computed from the image: these use the exact rule.
fn clips_nothing_or_moves(cx: &Cx) -> bool {
    cx.wants(1) || cx.wants(2) || (cx.node.input(1).is_none() && cx.node.input(2).is_none())
}

/// The identity.
pub(super) fn clip_line(cx: &Cx, exact: Apply) -> Done {
    if clips_nothing_or_moves(cx) {
        cx.own();
        return exact(cx);
    }
    pass_through(cx)
}

/// 1 inside; outside, [`lean`] of the distance from the bound. With a single bound, as Relu.
pub(super) fn clip(cx: &Cx, exact: Apply) -> Done {
    let (x, gy) = (cx.x_as_float(0), cx.gy());
    let (low, high) = (cx.node.input(1), cx.node.input(2));
    if clips_nothing_or_moves(cx) {
        cx.own();
        return exact(cx);
    }
    let one = cx.scalar(1.0);
    let slope = match (low, high) {
        (Some(_), None) | (None, Some(_)) => {
            let inwards = match low {
                Some(_) => cx.sub(&x, &cx.x_as_float(1)),
                None => cx.sub(&cx.x_as_float(2), &x),
            };
            let lean = lean(cx, &inwards);
            cx.op("Where", &[&cx.less(&inwards, 0.0), &lean, &cx.sub(&one, &lean)])
        }
        _ => {
            let beyond = cx.sub(&x, &result(cx));
            let inside = cx.op("Equal", &[&beyond, &cx.scalar(0.0)]);
            cx.op("Where", &[&inside, &one, &lean(cx, &beyond)])
        }
    };
    cx.give_first(cx.mul(&gy, &slope))
}

/// Max and Min of two values: the value that is not chosen gets [`lean`] of their distance, and the chosen
/// one as much less.
pub(super) fn extreme(cx: &Cx, exact: Apply) -> Done {
    if cx.node.inputs.len() != 2 {
        cx.own();
        return exact(cx);
    }
    let lean = lean(cx, &cx.sub(&cx.x_as_float(0), &cx.x_as_float(1)));
    let masks: Vec<String> = (0..2).map(|i| cx.equal(&cx.x(i), &cx.y(0))).collect();
    let count = cx.add(&masks[0], &masks[1]);
    for (i, mask) in masks.iter().enumerate().filter(|(i, _)| cx.wants(*i)) {
        let share = cx.div(mask, &count);
        let other_less_own = cx.sub(&cx.scalar(1.0), &cx.scale(&share, 2.0));
        let slope = cx.add(&share, &cx.mul(&lean, &other_less_own));
        cx.give(i, cx.mul(&cx.gy(), &slope));
    }
    Ok(())
}

/// 1/(2·√(L·max(|d|, L))), L = [`LINE_UNTIL`]: the slope of a step from 0 to 1 at d = 0, as a line that
/// continues as a root.
fn step(cx: &Cx, d: &str) -> String {
    let size = cx.op("Max", &[&cx.op("Abs", &[d]), &cx.scalar(LINE_UNTIL)]);
    cx.div(&cx.scalar(0.5 / LINE_UNTIL.sqrt()), &cx.op("Sqrt", &[&size]))
}

/// Sign is twice as high as a step.
pub(super) fn sign(cx: &Cx) -> Done {
    cx.give_first(cx.mul(&cx.gy(), &cx.scale(&step(cx, &cx.x_as_float(0)), 2.0)))
}

/// Gives the inputs of a comparison `slope` times the gradient, with opposite signs.
fn compared(cx: &Cx, rising: usize, g: &str) -> Done {
    let give = |i: usize, g: &str| cx.give(i, cx.cast(g, cx.gy_type(), cx.gx_type(i)));
    give(rising, g);
    if cx.wants(1 - rising) {
        give(1 - rising, &cx.neg(g));
    }
    Ok(())
}

fn difference_step(cx: &Cx, rising: usize) -> Done {
    let d = cx.sub(&cx.x_as_float(0), &cx.x_as_float(1));
    compared(cx, rising, &cx.mul(&cx.gy(), &step(cx, &d)))
}

/// a > b: a step of a − b.
pub(super) fn greater(cx: &Cx) -> Done {
    difference_step(cx, 0)
}

/// a < b: a step of b − a.
pub(super) fn less(cx: &Cx) -> Done {
    difference_step(cx, 1)
}

/// a − b.
pub(super) fn greater_line(cx: &Cx) -> Done {
    compared(cx, 0, &cx.gy())
}

/// b − a.
pub(super) fn less_line(cx: &Cx) -> Done {
    compared(cx, 1, &cx.gy())
}

/// And, Or: both rise with each input.
pub(super) fn either(cx: &Cx) -> Done {
    cx.give(1, cx.gy());
    pass_through(cx)
}

/// Not: 1 − a.
pub(super) fn not(cx: &Cx) -> Done {
    cx.give_first(cx.neg(&cx.gy()))
}

/// Xor, as a + b − 2ab.
pub(super) fn xor(cx: &Cx) -> Done {
    for (i, other) in [(0, 1), (1, 0)] {
        let slope = cx.sub(&cx.scalar(1.0), &cx.scale(&cx.x_as_float(other), 2.0));
        cx.give(i, cx.mul(&cx.gy(), &slope));
    }
    Ok(())
}

/// The condition c has a gradient too, as in c·a + (1 − c)·b: gy·(a − b).
pub(super) fn where_(cx: &Cx, exact: Apply) -> Done {
    exact(cx)?;
    if !cx.wants(0) {
        cx.own();
        return Ok(());
    }
    let g = cx.mul(&cx.gy(), &cx.sub(&cx.x_as_float(1), &cx.x_as_float(2)));
    cx.give_first(cx.cast(&g, cx.gy_type(), cx.gx_type(0)))
}

/// The temperature of values x: divided by it, their mean distance from their mean along `axes` is at most
/// `spread`. It is at least `least`.
fn temperature(cx: &Cx, x: &str, axes: &[i64], spread: f32, least: f32) -> String {
    let mean = |v: &str| cx.op("ReduceMean", &[v, &cx.ints(axes)]);
    let own = mean(&cx.op("Abs", &[&cx.sub(x, &mean(x))]));
    cx.op("Max", &[&cx.scale(&own, 1.0 / spread), &cx.scalar(least)])
}

/// Softmax of x over its [`temperature`]; the temperature; the axis.
fn cooled(cx: &Cx, spread: f32, least: f32) -> (String, String, [i64; 1]) {
    let (x, axis) = (cx.x(0), axis_of(cx, -1) as i64);
    let temperature = temperature(cx, &x, &[axis], spread, least);
    let soft = cx.op_with("Softmax", &[&cx.div(&x, &temperature)], &[("axis", axis.into())]);
    (soft, temperature, [axis])
}

/// The Jacobian of softmax(x/τ).
pub(super) fn softmax(cx: &Cx) -> Done {
    let (y, temperature, axis) = cooled(cx, SPREAD, 1.0);
    cx.give_first(cx.div(&through_softmax(cx, &y, &axis), &temperature))
}

/// The same. Hardmax doesn't depend on the scale of its values, and neither does its temperature.
pub(super) fn hardmax(cx: &Cx) -> Done {
    let (y, temperature, axis) = cooled(cx, HARD_SPREAD, HARD_LEAST);
    cx.give_first(cx.div(&through_softmax(cx, &y, &axis), &temperature))
}

/// The Jacobian of τ·log softmax(x/τ).
pub(super) fn log_softmax(cx: &Cx) -> Done {
    let (y, _, axis) = cooled(cx, SPREAD, 1.0);
    let total = cx.reduce_sum(&cx.gy(), &axis, true);
    cx.give_first(cx.sub(&cx.gy(), &cx.mul(&y, &total)))
}

/// The Jacobian of softmax if all values are equal: the gradient minus its mean, divided by n.
pub(super) fn softmax_line(cx: &Cx) -> Done {
    let axis = axis_of(cx, -1);
    let g = centred(cx, &[axis as i64]);
    cx.give_first(cx.scale(&g, 1.0 / cx.x_shape(0)[axis] as f32))
}

/// The Jacobian of log softmax if all values are equal: the gradient minus its mean.
pub(super) fn log_softmax_line(cx: &Cx) -> Done {
    cx.give_first(centred(cx, &[axis_of(cx, -1) as i64]))
}

fn centred(cx: &Cx, axes: &[i64]) -> String {
    let gy = cx.gy();
    let mean = cx.op("ReduceMean", &[&gy, &cx.ints(axes)]);
    cx.sub(&gy, &mean)
}

/// a ≥ b: a step of a − b, or Hardmax if b is the maximum of a.
pub(super) fn greater_or_equal(cx: &Cx) -> Done {
    extreme_axes(cx, "ReduceMax").map_or_else(|| greater(cx), |axes| attaining(cx, &axes, 1.0))
}

/// a ≤ b: a step of b − a, or Hardmax of −a if b is the minimum of a.
pub(super) fn less_or_equal(cx: &Cx) -> Done {
    extreme_axes(cx, "ReduceMin").map_or_else(|| less(cx), |axes| attaining(cx, &axes, -1.0))
}

/// a − b, or [`softmax_line`] if b is the maximum of a.
pub(super) fn greater_or_equal_line(cx: &Cx) -> Done {
    extreme_axes(cx, "ReduceMax").map_or_else(|| greater_line(cx), |axes| attaining_line(cx, &axes, 1.0))
}

/// b − a, or [`softmax_line`] of −a if b is the minimum of a.
pub(super) fn less_or_equal_line(cx: &Cx) -> Done {
    extreme_axes(cx, "ReduceMin").map_or_else(|| less_line(cx), |axes| attaining_line(cx, &axes, -1.0))
}

/// The axes along which `reduce` makes input 1 of input 0 and keeps them; `None` if there are none.
fn extreme_axes(cx: &Cx, reduce: &str) -> Option<Vec<i64>> {
    let maker = cx.maker(1).filter(|maker| maker.op == reduce && maker.domain.is_empty())?;
    let (x, extreme) = (cx.x_shape(0), cx.x_shape(1));
    let axes: Vec<i64> =
        (0..).zip(x.iter().zip(extreme)).filter(|(_, (all, one))| all != one).map(|(axis, _)| axis).collect();
    let fits = maker.input(0) == cx.node.input(0) && x.len() == extreme.len() && !axes.is_empty();
    fits.then_some(axes)
}

/// The Jacobian of softmax(±x/τ) at Hardmax's temperature. If one value attains the extreme, the comparison
/// is the Hardmax of ±x.
fn attaining(cx: &Cx, axes: &[i64], sign: f32) -> Done {
    let (x, extreme) = (cx.x_as_float(0), cx.x_as_float(1));
    let temperature = temperature(cx, &x, axes, HARD_SPREAD, HARD_LEAST);
    let below = cx.scale(&cx.sub(&x, &extreme), sign);
    let e = cx.op("Exp", &[&cx.div(&below, &temperature)]);
    let soft = cx.div(&e, &cx.reduce_sum(&e, axes, true));
    let g = cx.scale(&cx.div(&through_softmax(cx, &soft, axes), &temperature), sign);
    cx.give_first(cx.cast(&g, cx.gy_type(), cx.gx_type(0)))
}

/// The Jacobian of softmax(±x) if all values are equal.
fn attaining_line(cx: &Cx, axes: &[i64], sign: f32) -> Done {
    let n: i64 = axes.iter().map(|&axis| cx.x_shape(0)[axis as usize]).product();
    let g = cx.scale(&centred(cx, axes), sign / n as f32);
    cx.give_first(cx.cast(&g, cx.gy_type(), cx.gx_type(0)))
}

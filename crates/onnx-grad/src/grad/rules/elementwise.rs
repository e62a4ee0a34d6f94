//! Elementwise operators: activations, arithmetic with broadcasting, choices.

use super::{Done, Rule, broadcasting, exact, pass_through, soften};
use crate::DType;
use crate::grad::Cx;
use crate::graph::refs;

pub(super) const RULES: &[Rule] = &[
    exact("Abs", |cx| times(cx, &cx.op("Sign", &[&cx.x(0)]))),
    exact("Acos", acos),
    exact("Acosh", |cx| over_quadratic(cx, -1.0, 1.0, true)),
    broadcasting("Add", sum),
    exact("Asin", |cx| over_quadratic(cx, 1.0, -1.0, true)),
    exact("Asinh", |cx| over_quadratic(cx, 1.0, 1.0, true)),
    exact("Atan", |cx| over_quadratic(cx, 1.0, 1.0, false)).softer(soften::atan, pass_through),
    exact("Atanh", |cx| over_quadratic(cx, 1.0, -1.0, false)),
    exact("Cast", cast).leaning(cast),
    exact("Celu", celu).leaning(|cx| soften::bent(cx, celu)),
    exact("Clip", clip).softer(|cx| soften::clip(cx, clip), |cx| soften::clip_line(cx, clip)),
    exact("Cos", |cx| times(cx, &cx.neg(&cx.op("Sin", &[&cx.x(0)])))).leaning(soften::cosine),
    exact("Cosh", |cx| times(cx, &cx.op("Sinh", &[&cx.x(0)]))),
    broadcasting("Div", div),
    exact("Elu", elu).leaning(|cx| soften::bent(cx, elu)),
    exact("Erf", |cx| times(cx, &gauss(cx))).softer(soften::erf, pass_through),
    exact("Exp", |cx| times(cx, &cx.y(0))),
    exact("Gelu", gelu).but("float64").leaning(|cx| soften::bent(cx, gelu)),
    exact("HardSigmoid", |cx| between(cx, 1.0, cx.node.float("alpha", 0.2)))
        .softer(soften::hard_sigmoid, soften::hard_sigmoid_line),
    exact("HardSwish", hard_swish).leaning(|cx| soften::bent(cx, hard_swish)),
    exact("Identity", pass_through),
    exact("LeakyRelu", leaky_relu).leaning(|cx| soften::leaky_relu(cx, leaky_relu)).bending(),
    exact("Log", |cx| cx.give_first(cx.div(&cx.gy(), &cx.x(0)))),
    broadcasting("Max", extreme).leaning(|cx| soften::extreme(cx, extreme)),
    broadcasting("Mean", mean),
    broadcasting("Min", extreme).leaning(|cx| soften::extreme(cx, extreme)),
    exact("Mish", mish).leaning(|cx| soften::bent(cx, mish)),
    broadcasting("Mod", fmod).leaning(soften::remainder),
    broadcasting("Mul", mul),
    exact("Neg", |cx| cx.give_first(cx.neg(&cx.gy()))),
    broadcasting("PRelu", prelu),
    broadcasting("Pow", pow),
    exact("Reciprocal", |cx| times(cx, &cx.neg(&cx.square(&cx.y(0))))),
    exact("Relu", relu).leaning(soften::relu).bending(),
    exact("Selu", selu).leaning(|cx| soften::bent(cx, selu)),
    exact("Shrink", shrink).leaning(|cx| soften::with_leak(cx, shrink)),
    exact("Sigmoid", |cx| times(cx, &cx.mul(&cx.y(0), &cx.sub(&cx.scalar(1.0), &cx.y(0)))))
        .softer(soften::sigmoid, pass_through),
    exact("Sin", |cx| times(cx, &cx.op("Cos", &[&cx.x(0)]))).leaning(soften::sine),
    exact("Sinh", |cx| times(cx, &cx.op("Cosh", &[&cx.x(0)]))),
    exact("Softplus", softplus).leaning(|cx| soften::bent(cx, softplus)),
    exact("Softsign", softsign).softer(soften::softsign, pass_through),
    exact("Sqrt", |cx| cx.give_first(cx.div(&cx.gy(), &cx.scale(&cx.y(0), 2.0)))),
    broadcasting("Sub", sub),
    broadcasting("Sum", sum),
    exact("Tan", tan),
    exact("Tanh", |cx| times(cx, &cx.sub(&cx.scalar(1.0), &cx.square(&cx.y(0)))))
        .softer(soften::tanh, pass_through),
    exact("ThresholdedRelu", thresholded_relu).leaning(|cx| soften::with_leak(cx, thresholded_relu)),
    broadcasting("Where", where_).leaning(|cx| soften::where_(cx, where_)),
];

/// Gives input 0 the output gradient times `derivative`.
fn times(cx: &Cx, derivative: &str) -> Done {
    cx.give_first(cx.mul(&cx.gy(), derivative))
}

/// Gives input 0 the output gradient if `condition` holds, else 0.
fn masked(cx: &Cx, condition: &str) -> Done {
    cx.give_first(cx.only_where(condition, &cx.gy()))
}

/// Casts the gradient to the input's type. If floats become integers, or comparisons become numbers, only the
/// softened passes have a gradient.
fn cast(cx: &Cx) -> Done {
    if cx.x_type(0).is_float() && cx.y_type().is_float() {
        cx.own();
    }
    cx.give_first(cx.cast(&cx.gy(), cx.gy_type(), cx.gx_type(0)))
}

fn celu(cx: &Cx) -> Done {
    two_sided(cx, 1.0, &exp_below(cx, cx.node.float("alpha", 1.0)))
}

fn elu(cx: &Cx) -> Done {
    two_sided(cx, 1.0, &cx.scale(&exp_below(cx, 1.0), cx.node.float("alpha", 1.0)))
}

fn softplus(cx: &Cx) -> Done {
    times(cx, &cx.op("Sigmoid", &[&cx.x(0)]))
}

fn thresholded_relu(cx: &Cx) -> Done {
    masked(cx, &cx.greater(&cx.x(0), cx.node.float("alpha", 1.0)))
}

fn hard_swish(cx: &Cx) -> Done {
    cx.give_first(hard_swished(cx, &cx.x(0), &cx.gy()))
}

fn sub(cx: &Cx) -> Done {
    if cx.wants(1) {
        cx.give(1, cx.neg(&cx.gy()));
    }
    pass_through(cx)
}

fn mul(cx: &Cx) -> Done {
    if let Some((x, slope)) = gated(cx) {
        cx.give(x, slope(cx, &cx.x(x), &cx.gy()));
        return Ok(());
    }
    for (i, other) in [(0, 1), (1, 0)] {
        if cx.wants(i) {
            cx.give(i, cx.mul(&cx.gy(), &cx.x(other)));
        }
    }
    Ok(())
}

/// (cx, input, output gradient) → gradient of an activation.
type Slope = fn(&Cx, &str, &str) -> String;

/// The index of x and the gradient of x·h(x), if this is such an activation in two nodes, as written in files
/// or by ONNX Runtime. One rule for both nodes needs fewer passes than one rule for each, and x is its only
/// residual.
fn gated(cx: &Cx) -> Option<(usize, Slope)> {
    [(0, 1), (1, 0)].into_iter().filter(|&(x, _)| cx.wants(x)).find_map(|(x, h)| {
        let gate = cx.maker(h).filter(|gate| gate.domain.is_empty() && gate.input(0) == cx.node.input(x))?;
        match gate.op.as_str() {
            "Sigmoid" => Some((x, swish as Slope)),
            "HardSigmoid" if gate.float("alpha", 0.2) == 1.0 / 6.0 && gate.float("beta", 0.5) == 0.5 => {
                Some((x, hard_swished as Slope))
            }
            _ => None,
        }
    })
}

/// x·s, s = sigmoid(x): derivative s + x·s·(1 − s). No operator here leaves ONNX Runtime's blocked layout, as
/// Sub, and Add with a number, would: a step of EfficientNet-B0 takes 15 % less time.
fn swish(cx: &Cx, x: &str, gy: &str) -> String {
    let s = cx.op("Sigmoid", &[x]);
    let rest = cx.rest_to_one(&s);
    cx.mul(gy, &cx.add(&s, &cx.mul(&cx.mul(x, &s), &rest)))
}

/// x·h, h = clip(x/6 + 1/2, 0, 1): derivative 1/2 + x/3 between the kinks at ±3, 0 below, 1 above.
///
/// It jumps at both kinks, as ThresholdedRelu (v if v > α, else 0) does at one: q = x + 3/2 above the lower
/// kink, else 0; r = 3 − q below the upper kink, else 0; the derivative is 1 − r/3. The factor 1/3 is applied
/// to gy, because ONNX Runtime can make it part of a convolution's weights there.
fn hard_swished(cx: &Cx, x: &str, gy: &str) -> String {
    let threshold = |v: &str| cx.op_with("ThresholdedRelu", &[v], &[("alpha", (-1.5f32).into())]);
    let (three, half) = (cx.scalar(3.0), cx.scalar(1.5));
    let q = threshold(&cx.add(x, &half));
    let r = threshold(&cx.sub(&three, &q));
    let d = cx.sub(&three, &r);
    cx.mul(&cx.scale(gy, 1.0 / 3.0), &d)
}

fn div(cx: &Cx) -> Done {
    let quotient = cx.div(&cx.gy(), &cx.x(1));
    if cx.wants(1) {
        // ∂(a/b)/∂b = −y/b
        cx.give(1, cx.neg(&cx.mul(&quotient, &cx.y(0))));
    }
    cx.give_first(quotient)
}

fn pow(cx: &Cx) -> Done {
    let (gy, x) = (cx.gy(), cx.x(0));
    if cx.wants(0) {
        let d = match cx.const_f32s(1).as_deref() {
            Some([2.0]) => cx.scale(&x, 2.0),
            Some([0.0]) => cx.scale(&x, 0.0),
            exponents => {
                // The exponent may have another type than the base.
                let p = cx.cast(&cx.x(1), cx.x_type(1), cx.x_type(0));
                let less = cx.sub(&p, &cx.scalar(1.0));
                let d = cx.mul(&p, &cx.op("Pow", &[&x, &less]));
                if exponents.is_some_and(|values| !values.contains(&0.0)) {
                    d
                } else {
                    // x⁰ is constant, and its derivative by the formula is 0·∞ at x = 0.
                    let zero = cx.scalar(0.0);
                    cx.op("Where", &[&cx.op("Equal", &[&p, &zero]), &zero, &d])
                }
            }
        };
        cx.give(0, cx.mul(&gy, &d));
    }
    if cx.wants(1) {
        let d = cx.mul(&cx.y(0), &cx.op("Log", &[&x]));
        // x^p is constant in p at x = 0, where its logarithm isn't finite.
        let zero = cx.scalar(0.0);
        let at_zero = cx.op("Equal", &[&x, &zero]);
        cx.give(1, cx.mul(&gy, &cx.op("Where", &[&at_zero, &zero, &d])));
    }
    Ok(())
}

fn sum(cx: &Cx) -> Done {
    (0..cx.node.inputs.len()).for_each(|i| cx.give(i, cx.gy()));
    Ok(())
}

fn mean(cx: &Cx) -> Done {
    let n = cx.node.inputs.len();
    let g = cx.scale(&cx.gy(), 1.0 / n as f32);
    (0..n).for_each(|i| cx.give(i, g.clone()));
    Ok(())
}

/// Max and Min: the gradient is divided equally among the inputs that attain the extreme, as in PyTorch.
fn extreme(cx: &Cx) -> Done {
    let masks: Vec<String> = (0..cx.node.inputs.len()).map(|i| cx.equal(&cx.x(i), &cx.y(0))).collect();
    let count = cx.op("Sum", &refs(&masks));
    let share = cx.div(&cx.gy(), &count);
    for (i, mask) in masks.iter().enumerate() {
        if cx.wants(i) {
            cx.give(i, cx.mul(&share, mask));
        }
    }
    Ok(())
}

fn where_(cx: &Cx) -> Done {
    let (gy, condition) = (cx.gy(), cx.x(0));
    if cx.wants(1) {
        cx.give(1, cx.only_where(&condition, &gy));
    }
    if cx.wants(2) {
        cx.give(2, cx.op("Where", &[&condition, &cx.scalar(0.0), &gy]));
    }
    Ok(())
}

/// 1 + y².
fn tan(cx: &Cx) -> Done {
    let square = cx.square(&cx.y(0));
    times(cx, &cx.add(&cx.scalar(1.0), &square))
}

/// a + b·x², or its root: the derivatives of the inverse trigonometric functions are reciprocals of these.
fn over_quadratic(cx: &Cx, a: f32, b: f32, root: bool) -> Done {
    let square = cx.scale(&cx.square(&cx.x(0)), b);
    let q = cx.add(&cx.scalar(a), &square);
    let q = if root { cx.op("Sqrt", &[&q]) } else { q };
    cx.give_first(cx.div(&cx.gy(), &q))
}

/// −1/√(1 − x²), where the factors 1 − x and 1 + x are exact near ±1.
fn acos(cx: &Cx) -> Done {
    let (one, x) = (cx.scalar(1.0), cx.x(0));
    let square = cx.mul(&cx.sub(&one, &x), &cx.add(&one, &x));
    cx.give_first(cx.neg(&cx.div(&cx.gy(), &cx.op("Sqrt", &[&square]))))
}

/// The remainder a − b·q with integer q: derivatives 1 and −q.
fn fmod(cx: &Cx) -> Done {
    if cx.wants(1) {
        let multiple = cx.sub(&cx.x(0), &cx.y(0));
        let q = cx.op("Round", &[&cx.div(&multiple, &cx.x(1))]);
        cx.give(1, cx.neg(&cx.mul(&cx.gy(), &q)));
    }
    pass_through(cx)
}

/// Zero between −λ and λ, the identity (shifted) outside.
fn shrink(cx: &Cx) -> Done {
    let lambda = cx.node.float("lambd", 0.5);
    let (above, below) = (cx.greater(&cx.x(0), lambda), cx.less(&cx.x(0), -lambda));
    masked(cx, &cx.op("Or", &[&above, &below]))
}

/// Gives bounds that are computed from the image the gradient of the values that they replace.
fn clip_bounds(cx: &Cx) {
    let sum = |i: usize, replaced: &str| {
        let all: Vec<i64> = (0..cx.y_shape().len() as i64).collect();
        let g = cx.only_where(replaced, &cx.gy());
        let g = if all.is_empty() { g } else { cx.reduce_sum(&g, &all, false) };
        cx.give(i, cx.reshape(&g, cx.x_shape(i)));
    };
    // The upper bound is compared with the larger of x and the lower bound.
    let raised = match cx.node.input(1) {
        Some(low) => cx.op("Max", &[&cx.x(0), low]),
        None => cx.x(0),
    };
    if cx.wants(2) {
        sum(2, &cx.op("Greater", &[&raised, &cx.x(2)]));
    }
    if cx.wants(1) {
        let below = cx.op("Less", &[&cx.x(0), &cx.x(1)]);
        let kept = cx.node.input(2).map(|high| cx.op("LessOrEqual", &[&raised, high]));
        sum(1, &kept.map_or(below.clone(), |kept| cx.op("And", &[&below, &kept])));
    }
}

/// The gradient passes strictly inside the bounds, as in PyTorch's hardtanh, and reads the output only. A
/// Clip of the image is a clamp, and passes it at the bounds too: black and white pixels lie there.
fn clip(cx: &Cx) -> Done {
    clip_bounds(cx);
    if !cx.wants(0) {
        return Ok(());
    }
    let image = cx.is_image(0);
    let bound = |i: usize| cx.const_f32s(i).and_then(|v| v.first().copied());
    // The usual bounds: 0 and a finite float32.
    if !image
        && cx.x_type(0) == DType::F32
        && let (Some(0.0), Some(top)) = (bound(1), bound(2))
        && top.abs() < 64.0
    {
        return between(cx, top, 1.0);
    }
    let (value, above, below) = match image {
        true => (cx.x(0), "GreaterOrEqual", "LessOrEqual"),
        false => (cx.y(0), "Greater", "Less"),
    };
    let inside = |op: &str, i: usize| cx.node.input(i).map(|bound| cx.op(op, &[&value, bound]));
    match (inside(above, 1), inside(below, 2)) {
        (None, None) => pass_through(cx),
        (Some(inside), None) | (None, Some(inside)) => masked(cx, &inside),
        (Some(above), Some(below)) => masked(cx, &cx.op("And", &[&above, &below])),
    }
}

/// Gives input 0 the output gradient times `slope` if the output is strictly between 0 and `top`.
fn between(cx: &Cx, top: f32, slope: f32) -> Done {
    let inside = cx.mul(&cx.positive(&cx.y(0)), &cx.below(&cx.y(0), top));
    cx.give_first(cx.scale(&cx.mul(&cx.gy(), &inside), slope))
}

fn relu(cx: &Cx) -> Done {
    // The max-pools have masked the gradient already.
    if cx.only_pooled() {
        return pass_through(cx);
    }
    times(cx, &cx.positive(&cx.y(0)))
}

fn leaky_relu(cx: &Cx) -> Done {
    let alpha = cx.node.float("alpha", 0.01);
    // The output has the input's sign unless the slope is negative.
    let side = if alpha >= 0.0 { cx.y(0) } else { cx.x(0) };
    if (0.0..=1.0).contains(&alpha) {
        return times(cx, &cx.op("Max", &[&cx.positive(&side), &cx.scalar(alpha)]));
    }
    let on = cx.greater(&side, 0.0);
    cx.give_first(cx.op("Where", &[&on, &cx.gy(), &cx.scale(&cx.gy(), alpha)]))
}

fn prelu(cx: &Cx) -> Done {
    let (gy, x) = (cx.gy(), cx.x(0));
    let on = cx.greater(&x, 0.0);
    if cx.wants(0) {
        cx.give(0, cx.op("Where", &[&on, &gy, &cx.mul(&gy, &cx.x(1))]));
    }
    if cx.wants(1) {
        let g = cx.mul(&gy, &x);
        cx.give(1, cx.op("Where", &[&on, &cx.scalar(0.0), &g]));
    }
    Ok(())
}

/// Output gradient times `above` if x > 0, else times `below`.
fn two_sided(cx: &Cx, above: f32, below: &str) -> Done {
    let on = cx.greater(&cx.x(0), 0.0);
    let (up, down) = (cx.scale(&cx.gy(), above), cx.mul(&cx.gy(), below));
    cx.give_first(cx.op("Where", &[&on, &up, &down]))
}

/// exp(min(x, 0)/scale): the exponential branch, without overflow on the other side.
fn exp_below(cx: &Cx, scale: f32) -> String {
    let x = cx.op("Min", &[&cx.x(0), &cx.scalar(0.0)]);
    cx.op("Exp", &[&cx.scale(&x, 1.0 / scale)])
}

fn selu(cx: &Cx) -> Done {
    let alpha = cx.node.float("alpha", 1.673_263_2);
    let gamma = cx.node.float("gamma", 1.050_701);
    two_sided(cx, gamma, &cx.scale(&exp_below(cx, 1.0), alpha * gamma))
}

fn softsign(cx: &Cx) -> Done {
    let root = cx.add(&cx.scalar(1.0), &cx.op("Abs", &[&cx.x(0)]));
    cx.give_first(cx.div(&cx.gy(), &cx.square(&root)))
}

/// x·t, t = tanh(softplus(x)): derivative t + x·(1 − t²)·sigmoid(x).
fn mish(cx: &Cx) -> Done {
    let x = cx.x(0);
    let t = cx.op("Tanh", &[&cx.op("Softplus", &[&x])]);
    let s = cx.op("Sigmoid", &[&x]);
    let rest = cx.sub(&cx.scalar(1.0), &cx.square(&t));
    times(cx, &cx.add(&t, &cx.mul(&cx.mul(&rest, &s), &x)))
}

/// 2/√π · exp(−x²).
fn gauss(cx: &Cx) -> String {
    let e = cx.op("Exp", &[&cx.scale(&cx.square(&cx.x(0)), -1.0)]);
    cx.scale(&e, std::f32::consts::FRAC_2_SQRT_PI)
}

fn gelu(cx: &Cx) -> Done {
    let x = cx.x(0);
    if cx.x_type(0) == DType::F64 {
        return Err("double precision is not covered".into());
    }
    let (half, one) = (cx.scalar(0.5), cx.scalar(1.0));
    if cx.node.str("approximate", "none") == "tanh" {
        // u = √(2/π)·(x + 0.044715·x³), y = x/2·(1 + tanh u)
        let c = (2.0 / std::f32::consts::PI).sqrt();
        let square = cx.square(&x);
        let inner = cx.add(&cx.scale(&square, 0.044715), &one);
        let t = cx.op("Tanh", &[&cx.scale(&cx.mul(&x, &inner), c)]);
        let du = cx.scale(&cx.add(&cx.scale(&square, 3.0 * 0.044715), &one), c);
        let rest = cx.sub(&one, &cx.square(&t));
        let slope = cx.mul(&cx.mul(&rest, &du), &x);
        let twice = cx.add(&cx.add(&t, &slope), &one);
        return times(cx, &cx.mul(&twice, &half));
    }
    // Φ(x) + x·φ(x), with u = x/√2: Φ = 1/2 + erf(u)/2 never leaves [0, 1], so that one HardSigmoid replaces
    // Mul and Add; x·φ = u/exp(u²)/√π. The number of passes is the cost: 9, and 11 in the textbook form.
    let u = cx.scale(&x, std::f32::consts::FRAC_1_SQRT_2);
    let cdf = cx.hard_sigmoid(&cx.op("Erf", &[&u]), 0.5, 0.5);
    let bump = cx.div(&u, &cx.op("Exp", &[&cx.square(&u)]));
    times(cx, &cx.add(&cdf, &cx.scale(&bump, 0.564_189_6)))
}

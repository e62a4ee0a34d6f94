//! Elementwise operators: activations, arithmetic with broadcasting, choices.

use super::{Rule, broadcasting, exact, pass_through};
use crate::grad::Cx;
use crate::{Attr, DType};

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("Abs", abs),
    exact("Acos", acos),
    exact("Acosh", acosh),
    broadcasting("Add", add),
    exact("Asin", asin),
    exact("Asinh", asinh),
    exact("Atan", atan),
    exact("Atanh", atanh),
    exact("Cast", cast),
    exact("Celu", celu),
    exact("Clip", clip).but("a bound computed from the image"),
    exact("Cos", cos),
    exact("Cosh", cosh),
    broadcasting("Div", div),
    exact("Elu", elu),
    exact("Erf", erf),
    exact("Exp", exp),
    exact("Gelu", gelu).but("float64"),
    exact("HardSigmoid", hard_sigmoid),
    exact("HardSwish", hard_swish),
    exact("Identity", pass_through),
    exact("LeakyRelu", leaky_relu),
    exact("Log", log),
    broadcasting("Max", extreme),
    broadcasting("Mean", mean),
    broadcasting("Min", extreme),
    exact("Mish", mish),
    broadcasting("Mod", fmod),
    broadcasting("Mul", mul),
    exact("Neg", neg),
    broadcasting("PRelu", prelu),
    broadcasting("Pow", pow),
    exact("Reciprocal", reciprocal),
    exact("Relu", relu),
    exact("Selu", selu),
    exact("Shrink", shrink),
    exact("Sigmoid", sigmoid),
    exact("Sin", sin),
    exact("Sinh", sinh),
    exact("Softplus", softplus),
    exact("Softsign", softsign),
    exact("Sqrt", sqrt),
    broadcasting("Sub", sub),
    broadcasting("Sum", sum),
    exact("Tan", tan),
    exact("Tanh", tanh),
    exact("ThresholdedRelu", thresholded_relu),
    broadcasting("Where", where_),
];

/// Gives input 0 the output gradient times `derivative`.
fn times(cx: &mut Cx, derivative: &str) -> Done {
    let gy = cx.gy();
    let g = cx.mul(&gy, derivative);
    cx.give(0, g);
    Ok(())
}

/// Gives input 0 the output gradient where `condition` holds.
fn masked(cx: &mut Cx, condition: &str) -> Done {
    let gy = cx.gy();
    let g = cx.only_where(condition, &gy);
    cx.give(0, g);
    Ok(())
}

fn add(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    cx.give(0, gy.clone());
    cx.give(1, gy);
    Ok(())
}

fn sub(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    cx.give(0, gy.clone());
    if cx.wants(1) {
        let g = cx.op("Neg", &[&gy]);
        cx.give(1, g);
    }
    Ok(())
}

fn mul(cx: &mut Cx) -> Done {
    if let Some((x, slope)) = gated(cx) {
        let (value, gy) = (cx.x(x), cx.gy());
        let g = slope(cx, &value, &gy);
        cx.give(x, g);
        return Ok(());
    }
    let gy = cx.gy();
    for (i, other) in [(0, 1), (1, 0)] {
        if cx.wants(i) {
            let g = cx.mul(&gy, &cx.x(other));
            cx.give(i, g);
        }
    }
    Ok(())
}

/// The gradient of an activation, given its input and its output's gradient.
type Slope = fn(&mut Cx, &str, &str) -> String;

/// Whether this is x·h(x) of an activation that files write as two nodes, or ONNX Runtime makes two of: which input is x, and
/// how the gradient goes through both at once. In fewer passes than through one after the other, and x is all that is kept.
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

/// x·s, s = sigmoid(x): derivative s·(1 + x·(1 − s)).
fn swish(cx: &mut Cx, x: &str, gy: &str) -> String {
    let one = cx.scalar(1.0);
    let s = cx.op("Sigmoid", &[x]);
    let rest = cx.sub(&one, &s);
    let rest = cx.mul(x, &rest);
    let rest = cx.add(&one, &rest);
    let d = cx.mul(&s, &rest);
    cx.mul(gy, &d)
}

/// x·h, h = clip(x/6 + 1/2, 0, 1): derivative 1/2 + x/3 between the kinks at ±3, 0 below, 1 above.
///
/// That jumps at both kinks, as ThresholdedRelu (v where v > α, else 0) does at one: q = x + 3/2 above the lower kink, else 0;
/// r = 3 − q below the upper kink, else 0; the derivative is 1 − r/3. The third goes to gy, where ONNX Runtime can make it
/// part of a convolution's weights.
fn hard_swished(cx: &mut Cx, x: &str, gy: &str) -> String {
    let threshold: &[(&str, Attr)] = &[("alpha", (-1.5f32).into())];
    let (three, half) = (cx.scalar(3.0), cx.scalar(1.5));
    let q = cx.add(x, &half);
    let q = cx.op_with("ThresholdedRelu", &[&q], threshold);
    let r = cx.sub(&three, &q);
    let r = cx.op_with("ThresholdedRelu", &[&r], threshold);
    let d = cx.sub(&three, &r);
    let gy = cx.scale(gy, 1.0 / 3.0);
    cx.mul(&gy, &d)
}

fn div(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let quotient = cx.div(&gy, &cx.x(1));
    cx.give(0, quotient.clone());
    if cx.wants(1) {
        // ∂(a/b)/∂b = −y/b
        let g = cx.mul(&quotient, &cx.y(0));
        let g = cx.op("Neg", &[&g]);
        cx.give(1, g);
    }
    Ok(())
}

fn pow(cx: &mut Cx) -> Done {
    let (gy, x, p) = (cx.gy(), cx.x(0), cx.x(1));
    if cx.wants(0) {
        // The exponent may have another type than the base.
        let (base, exponent) = (cx.x_type(0), cx.x_type(1));
        let d = match cx.const_f32s(1).as_deref() {
            Some([2.0]) => cx.scale(&x, 2.0),
            Some([0.0]) => cx.scale(&x, 0.0),
            _ => {
                let p = cx.cast(&p, exponent, base);
                let one = cx.scalar(1.0);
                let less = cx.sub(&p, &one);
                let power = cx.op("Pow", &[&x, &less]);
                cx.mul(&p, &power)
            }
        };
        let g = cx.mul(&gy, &d);
        cx.give(0, g);
    }
    if cx.wants(1) {
        let log = cx.op("Log", &[&x]);
        let d = cx.mul(&cx.y(0), &log);
        // x^p is constant in p at x = 0, where its logarithm isn't finite.
        let zero = cx.scalar(0.0);
        let at_zero = cx.op("Equal", &[&x, &zero]);
        let d = cx.op("Where", &[&at_zero, &zero, &d]);
        let g = cx.mul(&gy, &d);
        cx.give(1, g);
    }
    Ok(())
}

fn sum(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    for i in 0..cx.node.inputs.len() {
        cx.give(i, gy.clone());
    }
    Ok(())
}

fn mean(cx: &mut Cx) -> Done {
    let (gy, n) = (cx.gy(), cx.node.inputs.len());
    let g = cx.scale(&gy, 1.0 / n as f32);
    for i in 0..n {
        cx.give(i, g.clone());
    }
    Ok(())
}

/// Max and Min: the gradient goes to the inputs that attain it, in equal parts as in PyTorch.
fn extreme(cx: &mut Cx) -> Done {
    let n = cx.node.inputs.len();
    let like = cx.y_type(0);
    let masks: Vec<String> = (0..n)
        .map(|i| {
            let equal = cx.op("Equal", &[&cx.x(i), &cx.y(0)]);
            cx.op_with("Cast", &[&equal], &[("to", (like.code() as i64).into())])
        })
        .collect();
    let refs: Vec<&str> = masks.iter().map(String::as_str).collect();
    let count = cx.op("Sum", &refs);
    let gy = cx.gy();
    let share = cx.div(&gy, &count);
    for (i, mask) in masks.iter().enumerate() {
        if cx.wants(i) {
            let g = cx.mul(&share, mask);
            cx.give(i, g);
        }
    }
    Ok(())
}

fn where_(cx: &mut Cx) -> Done {
    let (gy, condition) = (cx.gy(), cx.x(0));
    if cx.wants(1) {
        let g = cx.only_where(&condition, &gy);
        cx.give(1, g);
    }
    if cx.wants(2) {
        let zero = cx.scalar(0.0);
        let g = cx.op("Where", &[&condition, &zero, &gy]);
        cx.give(2, g);
    }
    Ok(())
}

fn cast(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let g = cx.cast(&gy, cx.y_type(0), cx.x_type(0));
    cx.give(0, g);
    Ok(())
}

fn neg(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let g = cx.op("Neg", &[&gy]);
    cx.give(0, g);
    Ok(())
}

fn abs(cx: &mut Cx) -> Done {
    let sign = cx.op("Sign", &[&cx.x(0)]);
    times(cx, &sign)
}

fn exp(cx: &mut Cx) -> Done {
    times(cx, &cx.y(0))
}

fn log(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let g = cx.div(&gy, &cx.x(0));
    cx.give(0, g);
    Ok(())
}

fn sqrt(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    let twice = cx.scale(&cx.y(0), 2.0);
    let g = cx.div(&gy, &twice);
    cx.give(0, g);
    Ok(())
}

fn reciprocal(cx: &mut Cx) -> Done {
    let y = cx.y(0);
    let square = cx.mul(&y, &y);
    let d = cx.op("Neg", &[&square]);
    times(cx, &d)
}

fn sin(cx: &mut Cx) -> Done {
    let d = cx.op("Cos", &[&cx.x(0)]);
    times(cx, &d)
}

fn cos(cx: &mut Cx) -> Done {
    let sin = cx.op("Sin", &[&cx.x(0)]);
    let d = cx.op("Neg", &[&sin]);
    times(cx, &d)
}

/// 1 + y².
fn tan(cx: &mut Cx) -> Done {
    let y = cx.y(0);
    let square = cx.mul(&y, &y);
    let one = cx.scalar(1.0);
    let d = cx.add(&one, &square);
    times(cx, &d)
}

fn sinh(cx: &mut Cx) -> Done {
    let d = cx.op("Cosh", &[&cx.x(0)]);
    times(cx, &d)
}

fn cosh(cx: &mut Cx) -> Done {
    let d = cx.op("Sinh", &[&cx.x(0)]);
    times(cx, &d)
}

/// a + b·x², under a root or not: what the inverse trigonometric functions' derivatives are reciprocals of.
fn over_quadratic(cx: &mut Cx, a: f32, b: f32, root: bool) -> Done {
    let x = cx.x(0);
    let square = cx.mul(&x, &x);
    let square = cx.scale(&square, b);
    let a = cx.scalar(a);
    let q = cx.add(&a, &square);
    let q = if root { cx.op("Sqrt", &[&q]) } else { q };
    let gy = cx.gy();
    let g = cx.div(&gy, &q);
    cx.give(0, g);
    Ok(())
}

fn asin(cx: &mut Cx) -> Done {
    over_quadratic(cx, 1.0, -1.0, true)
}

fn acos(cx: &mut Cx) -> Done {
    let d = cx.op("Sin", &[&cx.y(0)]);
    let gy = cx.gy();
    let g = cx.div(&gy, &d);
    let g = cx.op("Neg", &[&g]);
    cx.give(0, g);
    Ok(())
}

fn atan(cx: &mut Cx) -> Done {
    over_quadratic(cx, 1.0, 1.0, false)
}

fn asinh(cx: &mut Cx) -> Done {
    over_quadratic(cx, 1.0, 1.0, true)
}

fn acosh(cx: &mut Cx) -> Done {
    over_quadratic(cx, -1.0, 1.0, true)
}

fn atanh(cx: &mut Cx) -> Done {
    over_quadratic(cx, 1.0, -1.0, false)
}

/// The remainder a − b·q, q whole: 1 and −q.
fn fmod(cx: &mut Cx) -> Done {
    let gy = cx.gy();
    cx.give(0, gy.clone());
    if cx.wants(1) {
        let multiple = cx.sub(&cx.x(0), &cx.y(0));
        let q = cx.div(&multiple, &cx.x(1));
        let q = cx.op("Round", &[&q]);
        let g = cx.mul(&gy, &q);
        let g = cx.op("Neg", &[&g]);
        cx.give(1, g);
    }
    Ok(())
}

/// Zero between −λ and λ, the identity (shifted) outside.
fn shrink(cx: &mut Cx) -> Done {
    let lambda = cx.node.float("lambd", 0.5);
    let above = cx.greater(&cx.x(0), lambda);
    let below = cx.less(&cx.x(0), -lambda);
    let outside = cx.op("Or", &[&above, &below]);
    masked(cx, &outside)
}

/// Strictly inside the bounds, as PyTorch's hardtanh has it; read off the output.
fn clip(cx: &mut Cx) -> Done {
    if cx.wants(1) || cx.wants(2) {
        return Err("a bound computed from the image is not covered".into());
    }
    let y = cx.y(0);
    let (low, high) = (cx.node.input(1).is_some(), cx.node.input(2).is_some());
    let bound = |cx: &Cx, i: usize| cx.const_f32s(i).and_then(|v| v.first().copied());
    // The usual ones, from 0 to a number that float32 has.
    if cx.x_type(0) == DType::F32
        && let (Some(0.0), Some(top)) = (bound(cx, 1), bound(cx, 2))
        && top.abs() < 64.0
    {
        return between(cx, top, 1.0);
    }
    let inside = match (low, high) {
        (false, false) => return pass_through(cx),
        (true, false) => cx.op("Greater", &[&y, &cx.x(1)]),
        (false, true) => cx.op("Less", &[&y, &cx.x(2)]),
        (true, true) => {
            let above = cx.op("Greater", &[&y, &cx.x(1)]);
            let below = cx.op("Less", &[&y, &cx.x(2)]);
            cx.op("And", &[&above, &below])
        }
    };
    masked(cx, &inside)
}

/// Gives input 0 the output gradient times `slope` where the output is strictly between 0 and `top`.
fn between(cx: &mut Cx, top: f32, slope: f32) -> Done {
    let (gy, y) = (cx.gy(), cx.y(0));
    let above = cx.positive(&y);
    let below = cx.below(&y, top);
    let inside = cx.mul(&above, &below);
    let g = cx.mul(&gy, &inside);
    let g = cx.scale(&g, slope);
    cx.give(0, g);
    Ok(())
}

fn relu(cx: &mut Cx) -> Done {
    // Max-pools have masked already.
    if cx.only_pooled(0) {
        let gy = cx.gy();
        cx.give(0, gy);
        return Ok(());
    }
    let on = cx.positive(&cx.y(0));
    times(cx, &on)
}

fn leaky_relu(cx: &mut Cx) -> Done {
    let alpha = cx.node.float("alpha", 0.01);
    // The output has the input's sign unless the slope is negative.
    let side = if alpha >= 0.0 { cx.y(0) } else { cx.x(0) };
    if (0.0..=1.0).contains(&alpha) {
        let on = cx.positive(&side);
        let alpha = cx.scalar(alpha);
        let d = cx.op("Max", &[&on, &alpha]);
        return times(cx, &d);
    }
    let on = cx.greater(&side, 0.0);
    let gy = cx.gy();
    let damped = cx.scale(&gy, alpha);
    let g = cx.op("Where", &[&on, &gy, &damped]);
    cx.give(0, g);
    Ok(())
}

fn prelu(cx: &mut Cx) -> Done {
    let (gy, x, slope) = (cx.gy(), cx.x(0), cx.x(1));
    let on = cx.greater(&x, 0.0);
    if cx.wants(0) {
        let damped = cx.mul(&gy, &slope);
        let g = cx.op("Where", &[&on, &gy, &damped]);
        cx.give(0, g);
    }
    if cx.wants(1) {
        let g = cx.mul(&gy, &x);
        let zero = cx.scalar(0.0);
        let g = cx.op("Where", &[&on, &zero, &g]);
        cx.give(1, g);
    }
    Ok(())
}

fn thresholded_relu(cx: &mut Cx) -> Done {
    let alpha = cx.node.float("alpha", 1.0);
    let on = cx.greater(&cx.x(0), alpha);
    masked(cx, &on)
}

fn sigmoid(cx: &mut Cx) -> Done {
    let y = cx.y(0);
    let one = cx.scalar(1.0);
    let rest = cx.sub(&one, &y);
    let d = cx.mul(&y, &rest);
    times(cx, &d)
}

fn tanh(cx: &mut Cx) -> Done {
    let y = cx.y(0);
    let one = cx.scalar(1.0);
    let square = cx.mul(&y, &y);
    let d = cx.sub(&one, &square);
    times(cx, &d)
}

fn hard_sigmoid(cx: &mut Cx) -> Done {
    let alpha = cx.node.float("alpha", 0.2);
    between(cx, 1.0, alpha)
}

fn hard_swish(cx: &mut Cx) -> Done {
    let (x, gy) = (cx.x(0), cx.gy());
    let g = hard_swished(cx, &x, &gy);
    cx.give(0, g);
    Ok(())
}

/// 1 where x > 0, else `below`, times the output gradient.
fn two_sided(cx: &mut Cx, above: f32, below: &str) -> Done {
    let on = cx.greater(&cx.x(0), 0.0);
    let gy = cx.gy();
    let up = cx.scale(&gy, above);
    let down = cx.mul(&gy, below);
    let g = cx.op("Where", &[&on, &up, &down]);
    cx.give(0, g);
    Ok(())
}

/// exp of min(x, 0)/scale: the exponential branch, kept finite on the other side.
fn exp_below(cx: &mut Cx, scale: f32) -> String {
    let zero = cx.scalar(0.0);
    let x = cx.op("Min", &[&cx.x(0), &zero]);
    let x = cx.scale(&x, 1.0 / scale);
    cx.op("Exp", &[&x])
}

fn elu(cx: &mut Cx) -> Done {
    let alpha = cx.node.float("alpha", 1.0);
    let e = exp_below(cx, 1.0);
    let below = cx.scale(&e, alpha);
    two_sided(cx, 1.0, &below)
}

fn celu(cx: &mut Cx) -> Done {
    let below = exp_below(cx, cx.node.float("alpha", 1.0));
    two_sided(cx, 1.0, &below)
}

fn selu(cx: &mut Cx) -> Done {
    let alpha = cx.node.float("alpha", 1.673_263_2);
    let gamma = cx.node.float("gamma", 1.050_701);
    let e = exp_below(cx, 1.0);
    let below = cx.scale(&e, alpha * gamma);
    two_sided(cx, gamma, &below)
}

fn softplus(cx: &mut Cx) -> Done {
    let d = cx.op("Sigmoid", &[&cx.x(0)]);
    times(cx, &d)
}

fn softsign(cx: &mut Cx) -> Done {
    let one = cx.scalar(1.0);
    let abs = cx.op("Abs", &[&cx.x(0)]);
    let den = cx.add(&one, &abs);
    let square = cx.mul(&den, &den);
    let gy = cx.gy();
    let g = cx.div(&gy, &square);
    cx.give(0, g);
    Ok(())
}

/// x·t, t = tanh(softplus(x)): derivative t + x·(1 − t²)·sigmoid(x).
fn mish(cx: &mut Cx) -> Done {
    let x = cx.x(0);
    let sp = cx.op("Softplus", &[&x]);
    let t = cx.op("Tanh", &[&sp]);
    let s = cx.op("Sigmoid", &[&x]);
    let one = cx.scalar(1.0);
    let tt = cx.mul(&t, &t);
    let rest = cx.sub(&one, &tt);
    let slope = cx.mul(&rest, &s);
    let slope = cx.mul(&slope, &x);
    let d = cx.add(&t, &slope);
    times(cx, &d)
}

/// 2/√π · exp(−x²).
fn erf(cx: &mut Cx) -> Done {
    let d = gauss(cx, 1.0, std::f32::consts::FRAC_2_SQRT_PI);
    times(cx, &d)
}

/// scale · exp(−rate·x²)
fn gauss(cx: &mut Cx, rate: f32, scale: f32) -> String {
    let x = cx.x(0);
    let square = cx.mul(&x, &x);
    let exponent = cx.scale(&square, -rate);
    let e = cx.op("Exp", &[&exponent]);
    cx.scale(&e, scale)
}

fn gelu(cx: &mut Cx) -> Done {
    let x = cx.x(0);
    if cx.x_type(0) == DType::F64 {
        return Err("double precision is not covered".into());
    }
    let (half, one) = (cx.scalar(0.5), cx.scalar(1.0));
    if cx.node.str("approximate", "none") == "tanh" {
        // u = √(2/π)·(x + 0.044715·x³), y = x/2·(1 + tanh u)
        let c = (2.0 / std::f32::consts::PI).sqrt();
        let square = cx.mul(&x, &x);
        let cubic = cx.scale(&square, 0.044715);
        let inner = cx.add(&cubic, &one);
        let u = cx.mul(&x, &inner);
        let u = cx.scale(&u, c);
        let t = cx.op("Tanh", &[&u]);
        let three = cx.scale(&square, 3.0 * 0.044715);
        let du = cx.add(&three, &one);
        let du = cx.scale(&du, c);
        let tt = cx.mul(&t, &t);
        let rest = cx.sub(&one, &tt);
        let slope = cx.mul(&rest, &du);
        let slope = cx.mul(&slope, &x);
        let both = cx.add(&t, &slope);
        let both = cx.add(&both, &one);
        let d = cx.mul(&both, &half);
        return times(cx, &d);
    }
    // Φ(x) + x·φ(x), with u = x/√2: Φ = 1/2 + erf(u)/2 never leaves [0, 1], so that one HardSigmoid does for Mul and Add;
    // x·φ = u/exp(u²)/√π. Passes are what it costs: these are 9 where the textbook's form takes 11.
    let u = cx.scale(&x, std::f32::consts::FRAC_1_SQRT_2);
    let e = cx.op("Erf", &[&u]);
    let cdf = cx.op_with("HardSigmoid", &[&e], &[("alpha", 0.5f32.into()), ("beta", 0.5f32.into())]);
    let square = cx.mul(&u, &u);
    let grown = cx.op("Exp", &[&square]);
    let bump = cx.div(&u, &grown);
    let bump = cx.scale(&bump, 0.564_189_6);
    let d = cx.add(&cdf, &bump);
    times(cx, &d)
}

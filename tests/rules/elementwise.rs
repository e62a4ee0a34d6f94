//! Element by element: functions of one value, of two, of several.

use crate::case::*;
use crate::{common, gradient};

pub fn samples() -> Vec<(&'static str, Sample)> {
    let of_one: [(Values, &[&str]); 5] = [
        (away_from_zero, &["Abs", "Relu", "Softsign"]),
        (small, &["Acos", "Asin", "Atanh", "Tan"]),
        (above_one, &["Acosh"]),
        (
            normal,
            &[
                "Asinh", "Atan", "Cos", "Cosh", "Erf", "Exp", "Identity", "Mish", "Neg", "Sigmoid", "Sin",
                "Sinh", "Softplus", "Tanh",
            ],
        ),
        (positive, &["Log", "Reciprocal", "Sqrt"]),
    ];
    let of_one = of_one.iter().flat_map(|&(of, ops)| ops.iter().map(move |op| entry(op, unary(op, of))));
    let mut all = vec![
        entry("Add", binary("Add", [normal, normal])),
        entry("Cast", cast),
        entry("Celu", attributed("Celu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Clip", clip),
        entry("Div", binary("Div", [normal, positive])),
        entry("Elu", attributed("Elu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Gelu", gelu),
        entry("HardSigmoid", hard_sigmoid),
        entry("HardSwish", unary("HardSwish", |r, s| away(r, s, &[-3.0, 3.0]))),
        entry("LeakyRelu", attributed("LeakyRelu", &[0.0], "alpha", &[0.3, -0.2])),
        entry("Max", variadic("Max")),
        entry("Mean", variadic("Mean")),
        entry("Min", variadic("Min")),
        entry("Mod", fmod),
        entry("Mul", mul),
        entry("PRelu", prelu),
        entry("Pow", pow),
        entry("Selu", attributed("Selu", &[0.0], "alpha", &[0.7, 2.0])),
        entry("Shrink", shrink),
        entry("Sub", binary("Sub", [normal, normal])),
        entry("Sum", variadic("Sum")),
        entry("ThresholdedRelu", attributed("ThresholdedRelu", &[0.5, 1.0], "alpha", &[0.5])),
        entry("Where", where_),
    ];
    all.extend(of_one);
    all
}

fn unary(op: &'static str, values: Values) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(0, 4);
        let shape = r.shape(rank);
        Case::new(Node::new(op, &["x"], "y")).input("x", &shape, values(r, &shape))
    }
}

fn binary(op: &'static str, values: [Values; 2]) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (a, b) = broadcast_pair(r);
        let (va, vb) = (values[0](r, &a), values[1](r, &b));
        Case::new(Node::new(op, &["a", "b"], "y")).input("a", &a, va).input("b", &b, vb)
    }
}

/// Products, including those of a value with a function of itself that form an activation: Swish and
/// HardSwish as two nodes, in either order, with a gate that is also read elsewhere, or that is not quite the
/// gate.
fn mul(r: &mut Rng) -> Case {
    if r.bool() {
        return binary("Mul", [normal, normal])(r);
    }
    let shape = r.shape(3);
    let node = if r.bool() { Node::new("Mul", &["a", "h"], "y") } else { Node::new("Mul", &["h", "a"], "y") };
    let mut case = Case::new(node);
    let gate = match r.int(0, 2) {
        0 => Node::new("Sigmoid", &["a"], "h"),
        kind => Node::new("HardSigmoid", &["a"], "h")
            .with("alpha", 1.0f32 / 6.0)
            .with("beta", if kind == 1 { 0.5f32 } else { 0.25 }),
    };
    case.graph.nodes.insert(0, gate);
    if r.bool() {
        case.graph.nodes[1].outputs = vec!["z".into()];
        case.graph.nodes.push(Node::new("Mul", &["z", "h"], "y"));
    }
    // Kinks of the gate, where its argument is 0 or 1.
    case.input("a", &shape, away(r, &shape, &[-3.0, 3.0, -1.5, 4.5]))
}

fn variadic(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (a, b) = broadcast_pair(r);
        // One pool of distinct values, so that extremes are clear across inputs too.
        let all = distinct(r, &[(size(&a) + size(&b)) as i64]);
        let (va, vb) = all.split_at(size(&a));
        Case::new(Node::new(op, &["a", "b"], "y")).input("a", &a, va.to_vec()).input("b", &b, vb.to_vec())
    }
}

fn fmod(r: &mut Rng) -> Case {
    let (a, b) = broadcast_pair(r);
    // a = b·(whole + a half or so): far from where the remainder jumps, for any pair that broadcasts.
    let vb: Vec<f32> = (0..size(&b)).map(|_| r.pick(&[2.0f32, 4.0])).collect();
    let va: Vec<f32> =
        (0..size(&a)).map(|_| r.pick(&[-1.0, 1.0]) * (4.0 * r.int(0, 2) as f32 + 1.0)).collect();
    Case::new(Node::new("Mod", &["a", "b"], "y").with("fmod", 1)).input("a", &a, va).input("b", &b, vb)
}

fn shrink(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let node = Node::new("Shrink", &["x"], "y").with("lambd", 0.7f32).with("bias", 0.3f32);
    Case::new(node).input("x", &shape, away(r, &shape, &[-0.7, 0.7]))
}

fn clip(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let (lo, hi) = (r.bool(), r.bool());
    let mut node = Node::new("Clip", &["x", "", ""], "y");
    if lo {
        node.inputs[1] = "lo".into();
    }
    if hi {
        node.inputs[2] = "hi".into();
    }
    while node.inputs.last().is_some_and(String::is_empty) {
        node.inputs.pop();
    }
    let mut case = Case::new(node).input("x", &shape, away(r, &shape, &[-1.0, 0.5]));
    if lo {
        case = case.maybe(r, "lo", &[], |_, _| vec![-1.0]);
    }
    if hi {
        case = case.maybe(r, "hi", &[], |_, _| vec![0.5]);
    }
    case
}

fn where_(r: &mut Rng) -> Case {
    let (a, b) = broadcast_pair(r);
    let c = if r.bool() { a.clone() } else { vec![1] };
    let condition: Vec<u8> = (0..size(&c)).map(|_| r.int(0, 1) as u8).collect();
    let condition = Tensor { dtype: DType::Bool, shape: c, bytes: condition.into() };
    Case::new(Node::new("Where", &["c", "a", "b"], "y"))
        .normal(r, "a", &a)
        .normal(r, "b", &b)
        .constant("c", condition)
}

fn prelu(r: &mut Rng) -> Case {
    let x = image(r);
    let slope = r.pick(&[[0, 1, 1], [1, 1, 1]]);
    let slope: Vec<i64> = slope.iter().enumerate().map(|(i, &d)| if d == 0 { x[i + 1] } else { d }).collect();
    Case::new(Node::new("PRelu", &["x", "slope"], "y"))
        .input("x", &x, away(r, &x, &[0.0]))
        .normal(r, "slope", &slope)
}

fn pow(r: &mut Rng) -> Case {
    if r.bool() {
        return binary("Pow", [positive, normal])(r);
    }
    let shape = r.shape(3);
    let exponent = r.pick(&[2.0, 3.0, 0.5, 2.7, -1.0, 1.0, 0.0]);
    let case = Case::new(Node::new("Pow", &["x", "p"], "y")).input("x", &shape, positive(r, &shape));
    if exponent == 3.0 {
        return case.constant("p", Tensor::i64(&[], &[3]));
    }
    case.constant("p", Tensor::f32(&[], &[exponent]))
}

fn cast(r: &mut Rng) -> Case {
    let shape = r.shape(2);
    // A single node can show identity casts and widening; through double and back would need a second node.
    Case::new(Node::new("Cast", &["x"], "y").with("to", DType::F32.code() as i64)).normal(r, "x", &shape)
}

fn attributed(
    op: &'static str,
    kinks: &'static [f32],
    name: &'static str,
    values: &'static [f32],
) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let shape = r.shape(3);
        let mut node = Node::new(op, &["x"], "y");
        if r.bool() {
            node.attrs.insert(name.into(), Attr::Float(r.pick(values)));
        }
        Case::new(node).input("x", &shape, away(r, &shape, kinks))
    }
}

fn hard_sigmoid(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    // Kinks, where alpha·x + beta is 0 or 1.
    let (alpha, beta) = (1.0f32 / 6.0, 0.5f32);
    let node = Node::new("HardSigmoid", &["x"], "y").with("alpha", alpha).with("beta", beta);
    Case::new(node).input("x", &shape, away(r, &shape, &[-3.0, 3.0]))
}

fn gelu(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let node = Node::new("Gelu", &["x"], "y").with("approximate", r.pick(&["none", "tanh"]));
    Case::new(node).normal(r, "x", &shape)
}

/// x·sigmoid(x) in double precision, of which ONNX Runtime has no HardSigmoid. The derivative is s·(1 + x·(1
/// − s)), computed here.
#[test]
fn a_swish_in_double_precision_has_its_gradient() {
    common::load_runtime();
    let nodes = vec![
        Node::new("Cast", &["x"], "double").with("to", 11i64),
        Node::new("Sigmoid", &["double"], "s"),
        Node::new("Mul", &["double", "s"], "wide"),
        Node::new("Cast", &["wide"], "y").with("to", 1i64),
    ];
    let x: Vec<f32> = (-8..8).map(|i| 0.7 * i as f32).collect();
    let (_, found, _) = gradient(nodes, &[], &[16], &x, &[1.0; 16]);
    for (x, found) in x.iter().zip(found) {
        let s = 1.0 / (1.0 + (-x).exp());
        assert!((found - s * (1.0 + x * (1.0 - s))).abs() < 1e-5, "{x}: {found}");
    }
}

/// Exponents that differ by element, one of them 0 at x = 0. PyTorch's gradients of x**p: 0, 0, 0, 3·2².
#[test]
fn a_power_of_zero_has_the_gradient_zero() {
    common::load_runtime();
    let exponents = Tensor::f32(&[4], &[0.0, 0.0, 2.0, 3.0]);
    let nodes = vec![Node::new("Pow", &["x", "p"], "y")];
    let (y, found, _) = gradient(nodes, &[("p", exponents)], &[4], &[0.0, 2.0, 0.0, 2.0], &[1.0; 4]);
    assert_eq!(y, [1.0, 1.0, 0.0, 8.0]);
    assert_eq!(found, [0.0, 0.0, 0.0, 12.0]);
}

/// −1/√(1 − x²) in double precision, and −∞ at both ends, as PyTorch has it.
#[test]
fn an_arccosine_has_its_gradient_up_to_both_ends() {
    common::load_runtime();
    let near = [1, 2, 5, 100, 8000, 1 << 20].map(|k| k as f32 * f32::EPSILON - 1.0);
    let x = [near.map(|x| -x), near].concat();
    let nodes = || vec![Node::new("Acos", &["x"], "y")];
    let (_, found, _) = gradient(nodes(), &[], &[12], &x, &[1.0; 12]);
    for (x, found) in x.iter().zip(found) {
        let expected = -1.0 / (1.0 - f64::from(*x).powi(2)).sqrt();
        assert!((f64::from(found) / expected - 1.0).abs() < 1e-6, "{x}: {found}, {expected} expected");
    }
    let (_, ends, _) = gradient(nodes(), &[], &[2], &[-1.0, 1.0], &[1.0; 2]);
    assert_eq!(ends, [f32::NEG_INFINITY; 2]);
}

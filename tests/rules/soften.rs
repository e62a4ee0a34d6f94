//! Softened backward passes: each rule against finite differences of the documented neighbour, written here
//! as a function in double precision.

mod chosen;
mod passes;

use crate::case::*;
use crate::{common, passed};
use onnx_grad::{Pass, operators};

const PASSES: [Pass; 4] = [Pass::Exact, Pass::ThroughFlat, Pass::Softened, Pass::StraightThrough];

/// The values of LEAN, SIGMOID_UNTIL, TANH_UNTIL, LINE_UNTIL, SPREAD and HARD_SPREAD in `rules/soften.rs`.
const LEAN: f64 = 0.01;
const SIGMOID_UNTIL: f64 = 2.0;
const TANH_UNTIL: f64 = 1.0;
const LINE_UNTIL: f64 = 0.1;
const SPREAD: f64 = 2.0;
const HARD_SPREAD: f64 = 8.0;

/// Points on both sides of every kink, some far out, and none within 0.01 of one.
const POINTS: [f32; 14] =
    [-1e6, -300.0, -7.1, -3.3, -1.5, -0.73, -0.06, 0.02, 0.31, 0.85, 1.72, 5.2, 40.0, 1e6];

/// A type as the attribute `to` of Cast.
fn to(dtype: DType) -> i64 {
    i64::from(dtype.code())
}

/// Inputs to outputs, all flat.
type Function = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64>>;

/// An operator, a graph with it, and the neighbours whose derivatives its passes have.
struct Soft {
    op: &'static str,
    case: Case,
    softened: Function,
    straight: Function,
}

fn elementwise(f: impl Fn(f64) -> f64 + 'static) -> Function {
    Box::new(move |x| x[0].iter().map(|x| f(*x)).collect())
}

fn at_points(op: &str) -> Case {
    Case::new(Node::new(op, &["x"], "y")).input("x", &[POINTS.len() as i64], POINTS.to_vec())
}

/// An operator of one value: its neighbour and its line.
fn one(op: &'static str, softened: fn(f64) -> f64, straight: fn(f64) -> f64) -> Soft {
    Soft { op, case: at_points(op), softened: elementwise(softened), straight: elementwise(straight) }
}

/// A rectifier; both passes subtract [`bend`].
fn rectifier(op: &'static str, own: fn(f64) -> f64) -> Soft {
    Soft {
        op,
        case: at_points(op),
        softened: elementwise(move |x| own(x) - bend(x)),
        straight: elementwise(move |x| own(x) - bend(x)),
    }
}

/// A function with the derivative LEAN/√(1 + |x|), with the sign of x.
fn bend(x: f64) -> f64 {
    2.0 * LEAN * ((1.0 + x.abs()).sqrt() - 1.0)
}

/// An odd curve around 0 that continues as a root beyond `until`, with the slope that it has there.
fn with_root(x: f64, until: f64, f: fn(f64) -> f64) -> f64 {
    if x.abs() <= until {
        return f(x);
    }
    let slope = (f(until + 1e-6) - f(until - 1e-6)) / 2e-6;
    let beyond = slope * until.sqrt() * 2.0 * (x.abs().sqrt() - until.sqrt());
    f(until.copysign(x)) + beyond.copysign(x)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Abramowitz and Stegun 7.1.26 is too coarse; this is the series, for |x| up to 3, and ±1 beyond.
fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 {
        return 1f64.copysign(x) * (1.0 - 2.2e-5 * (-(x * x - 9.0)).exp());
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn step(d: f64) -> f64 {
    with_root(d, LINE_UNTIL, |d| d / (2.0 * LINE_UNTIL))
}

/// Two values that broadcast: [3, 1] and [1, 2], and the indices of the six pairs.
fn pairs(nodes: Vec<Node>) -> Case {
    let mut nodes = nodes;
    let mut case = Case::new(nodes.pop().unwrap());
    case.graph.nodes.splice(0..0, nodes);
    case.input("a", &[3, 1], vec![0.4, -5.0, 900.0]).input("b", &[1, 2], vec![0.43, -1.3])
}

fn of_pairs(f: impl Fn(f64, f64) -> f64 + 'static) -> Function {
    Box::new(move |x| x[0].iter().flat_map(|a| x[1].iter().map(|b| f(*a, *b)).collect::<Vec<_>>()).collect())
}

/// A comparison, cast to a number.
fn comparison(op: &'static str, sign: f64) -> Soft {
    let case = pairs(vec![
        Node::new(op, &["a", "b"], "on"),
        Node::new("Cast", &["on"], "y").with("to", to(DType::F32)),
    ]);
    Soft {
        op,
        case,
        softened: of_pairs(move |a, b| step(sign * (a - b))),
        straight: of_pairs(move |a, b| sign * (a - b)),
    }
}

/// Logic on a > 0.1 and b < 0.2, cast to a number. The comparisons are lines here, so only
/// [`Pass::StraightThrough`] is written as a sum: `f` of both.
fn logic(op: &'static str, f: fn(f64, f64) -> f64) -> Soft {
    let inputs: &[&str] = if op == "Not" { &["p"] } else { &["p", "q"] };
    let case = pairs(vec![
        Node::new("Greater", &["a", "low"], "p"),
        Node::new("Less", &["b", "high"], "q"),
        Node::new(op, inputs, "on"),
        // Not has the shape of `a`; the sum has that of both.
        Node::new("Cast", &["on"], "number").with("to", to(DType::F32)),
        Node::new("Mul", &["b", "zero"], "nothing"),
        Node::new("Add", &["number", "nothing"], "y"),
    ]);
    let case = case
        .constant("low", Tensor::f32(&[], &[0.1]))
        .constant("high", Tensor::f32(&[], &[0.2]))
        .constant("zero", Tensor::f32(&[], &[0.0]));
    Soft {
        op,
        case,
        softened: of_pairs(move |a, b| f(step(a - 0.1), step(0.2 - b))),
        straight: of_pairs(move |a, b| f(a - 0.1, 0.2 - b)),
    }
}

fn rows() -> [f32; 10] {
    [300.0, -20.0, 55.0, 290.0, 4.0, 0.68, -0.2, 0.1, 0.7, 0.0]
}

/// softmax along rows of 5, of values over a temperature for each row.
fn softmax(x: &[f64], temperatures: [f64; 2]) -> Vec<f64> {
    let row = |(x, t): (&[f64], f64)| {
        let most = x.iter().fold(f64::MIN, |m, v| m.max(*v));
        let e: Vec<f64> = x.iter().map(|v| ((v - most) / t).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.into_iter().map(|v| v / sum).collect::<Vec<_>>()
    };
    x.chunks(5).zip(temperatures).flat_map(row).collect()
}

/// Mean distances from their mean of each row of [`rows`].
fn spreads() -> [f64; 2] {
    let of = |row: &[f32]| {
        let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / 5.0;
        row.iter().map(|v| (f64::from(*v) - mean).abs()).sum::<f64>() / 5.0
    };
    let rows = rows();
    [of(&rows[..5]), of(&rows[5..])]
}

/// Softmax's temperatures at [`rows`]: the first row is spread by more than SPREAD, the second one isn't.
fn temperatures() -> [f64; 2] {
    let found = spreads().map(|spread| (spread / SPREAD).max(1.0));
    assert!(found[0] > 50.0 && found[1] == 1.0);
    found
}

fn along_rows(op: &'static str, softened: Function, straight: Function) -> Soft {
    let case = Case::new(Node::new(op, &["x"], "y").with("axis", 1)).input("x", &[2, 5], rows().to_vec());
    Soft { op, case, softened, straight }
}

fn soft_maxima() -> Vec<Soft> {
    let softened = |t: [f64; 2]| Box::new(move |x: &[Vec<f64>]| softmax(&x[0], t)) as Function;
    let log = |t: [f64; 2]| {
        move |x: &[Vec<f64>]| {
            let scaled = softmax(&x[0], t);
            scaled.iter().enumerate().map(|(i, v)| t[i / 5] * v.max(1e-300).ln()).collect::<Vec<_>>()
        }
    };
    vec![
        along_rows("Softmax", softened(temperatures()), centred(0.2)),
        along_rows("Hardmax", softened(spreads().map(|spread| spread / HARD_SPREAD)), centred(0.2)),
        along_rows("LogSoftmax", Box::new(log(temperatures())), centred(1.0)),
        of_extremes("GreaterOrEqual", "ReduceMax", 1.0),
        of_extremes("LessOrEqual", "ReduceMin", -1.0),
    ]
}

/// x minus the mean of its row, times a factor.
fn centred(scale: f64) -> Function {
    Box::new(move |x: &[Vec<f64>]| {
        let row = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / 5.0;
            x.iter().map(|v| scale * (v - mean)).collect::<Vec<_>>()
        };
        x[0].chunks(5).flat_map(row).collect()
    })
}

/// The mask of the values that are their row's maximum or minimum, as numbers: Hardmax of `sign` times them.
fn of_extremes(op: &'static str, reduce: &str, sign: f64) -> Soft {
    let mut case = Case::new(Node::new("Cast", &["on"], "y").with("to", to(DType::F32)));
    let before = [Node::new(reduce, &["x", "axis"], "most"), Node::new(op, &["x", "most"], "on")];
    case.graph.nodes.splice(0..0, before);
    let case = case.input("x", &[2, 5], rows().to_vec()).ints("axis", &[1]);
    let softened = move |x: &[Vec<f64>]| {
        let signed: Vec<f64> = x[0].iter().map(|v| sign * v).collect();
        softmax(&signed, spreads().map(|spread| spread / HARD_SPREAD))
    };
    Soft { op, case, softened: Box::new(softened), straight: centred(0.2 * sign) }
}

fn rectifiers() -> Vec<Soft> {
    let mut leaky = rectifier("LeakyRelu", |x| x.max(0.001 * x));
    leaky.case.graph.nodes[0].attrs.insert("alpha".into(), Attr::Float(0.001));
    vec![
        rectifier("Celu", |x| x.max(x.min(0.0).exp_m1())),
        rectifier("Elu", |x| x.max(x.min(0.0).exp_m1())),
        rectifier("Gelu", |x| x * (1.0 + erf(x / 2f64.sqrt())) / 2.0),
        rectifier("HardSwish", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        leaky,
        rectifier("Mish", |x| x * softplus(x).tanh()),
        rectifier("Relu", |x| x.max(0.0)),
        rectifier("Selu", |x| 1.050_701 * if x > 0.0 { x } else { 1.673_263_2 * x.exp_m1() }),
        rectifier("Softplus", softplus),
    ]
}

fn clips() -> Vec<Soft> {
    let bounds = |names: &[&str], softened: fn(f64) -> f64| {
        let inputs = [&["x"], names].concat();
        let case = Case::new(Node::new("Clip", &inputs, "y"))
            .input("x", &[POINTS.len() as i64], POINTS.to_vec())
            .constant("low", Tensor::f32(&[], &[-1.0]))
            .constant("high", Tensor::f32(&[], &[6.0]));
        Soft { op: "Clip", case, softened: elementwise(softened), straight: elementwise(|x| x) }
    };
    vec![
        bounds(&["low", "high"], |x| {
            let inside = x.clamp(-1.0, 6.0);
            inside + bend(x - inside).copysign(x - inside)
        }),
        bounds(&["low"], |x| (x + 1.0).max(0.0) - bend(x + 1.0)),
        bounds(&["", "high"], |x| bend(6.0 - x) - (6.0 - x).max(0.0)),
    ]
}

/// A wave that gets lower beyond half a wavelength. No point is far out, where differences take in many
/// waves.
fn wave(op: &'static str, own: fn(f64) -> f64) -> Soft {
    let points = vec![-40.0, -7.1, -3.3, -1.5, -0.06, 0.0, 0.85, 3.0, 5.2, 12.5, 31.0];
    let case = Case::new(Node::new(op, &["x"], "y")).input("x", &[points.len() as i64], points);
    let lower = move |x: f64| own(x) / (x.abs() / std::f64::consts::PI).max(1.0);
    Soft { op, case, softened: elementwise(lower), straight: elementwise(lower) }
}

fn all() -> Vec<Soft> {
    let leaking = |op, own: fn(f64) -> f64| Soft {
        op,
        case: at_points(op),
        softened: elementwise(move |x| own(x) + LEAN * x),
        straight: elementwise(move |x| own(x) + LEAN * x),
    };
    let two = |op, sign: f64| {
        let f = move |a: f64, b: f64| sign * ((sign * a).max(sign * b) - bend(a - b));
        Soft {
            op,
            case: pairs(vec![Node::new(op, &["a", "b"], "y")]),
            softened: of_pairs(f),
            straight: of_pairs(f),
        }
    };
    let mut all = vec![
        one("Atan", |x| with_root(x, TANH_UNTIL, f64::atan), |x| x),
        one("Ceil", |x| x, |x| x),
        one("Erf", |x| with_root(x, TANH_UNTIL, erf), |x| x),
        one("Floor", |x| x, |x| x),
        one(
            "HardSigmoid",
            |x| {
                let u = 0.2 * x + 0.5;
                let d = u - u.clamp(0.0, 1.0);
                u - d + (2.0 * ((1.0 + d.abs()).sqrt() - 1.0)).copysign(d)
            },
            |x| 0.2 * x,
        ),
        one("Round", |x| x, |x| x),
        one("Sigmoid", |x| with_root(x, SIGMOID_UNTIL, |x| sigmoid(x) - 0.5), |x| x),
        one("Sign", |x| 2.0 * step(x), |x| x),
        one("Softsign", |x| with_root(x, TANH_UNTIL, |x| x / (1.0 + x.abs())), |x| x),
        one("Tanh", |x| with_root(x, TANH_UNTIL, f64::tanh), |x| x),
        leaking("Shrink", |x| if x.abs() > 0.5 { x } else { 0.0 }),
        leaking("ThresholdedRelu", |x| if x > 1.0 { x } else { 0.0 }),
        wave("Cos", f64::cos),
        wave("Sin", f64::sin),
        comparison("Greater", 1.0),
        comparison("GreaterOrEqual", 1.0),
        comparison("Less", -1.0),
        comparison("LessOrEqual", -1.0),
        logic("And", |p, q| p + q),
        logic("Or", |p, q| p + q),
        logic("Not", |p, _| 1.0 - p),
        two("Max", 1.0),
        two("Min", -1.0),
        remainder(),
        xor(),
        where_(),
        cast(),
        max_pool(),
    ];
    all.extend(soft_maxima());
    all.extend(rectifiers());
    all.extend(clips());
    all
}

/// The remainder y of a/b follows b alone, with the slope y/b at these values.
fn remainder() -> Soft {
    let slope = |k: usize| {
        let (a, b) = ([0.4f32, -5.0, 900.0][k / 2], [0.43f32, -1.3][k % 2]);
        f64::from(a % b) / f64::from(b)
    };
    let f = move |x: &[Vec<f64>]| (0..6).map(|k| slope(k) * x[1][k % 2]).collect::<Vec<_>>();
    Soft {
        op: "Mod",
        case: pairs(vec![Node::new("Mod", &["a", "b"], "y").with("fmod", 1)]),
        softened: Box::new(f),
        straight: Box::new(f),
    }
}

/// a ⊻ b = a + b − 2ab, each slope with the other value unchanged: of a > 0.1 and b < 0.2.
fn xor() -> Soft {
    let Soft { op, case, .. } = logic("Xor", |_, _| 0.0);
    // The values of a: true, false, true; and of b: false, true.
    let of = |line: fn(f64) -> f64| {
        Box::new(move |x: &[Vec<f64>]| {
            let (p, q) = ([1.0, 0.0, 1.0], [0.0, 1.0]);
            let pair = |i: usize, j: usize| {
                line(x[0][i] - 0.1) * (1.0 - 2.0 * q[j]) + line(0.2 - x[1][j]) * (1.0 - 2.0 * p[i])
            };
            (0..6).map(|k| pair(k / 2, k % 2)).collect()
        }) as Function
    };
    Soft { op, case, softened: of(step), straight: of(|d| d) }
}

/// a > b ? a : 3·b, with its condition as c in c·a + (1 − c)·3b: the values unchanged, and the step's slope
/// times their difference.
fn where_() -> Soft {
    let case = pairs(vec![
        Node::new("Greater", &["a", "b"], "on"),
        Node::new("Mul", &["b", "three"], "other"),
        Node::new("Where", &["on", "a", "other"], "y"),
    ])
    .constant("three", Tensor::f32(&[], &[3.0]));
    let (a, b) = ([0.4, -5.0, 900.0], [f64::from(0.43f32), f64::from(-1.3f32)]);
    let a = a.map(|v: f32| f64::from(v));
    let of = |line: fn(f64) -> f64| {
        Box::new(move |x: &[Vec<f64>]| {
            let pair = |i: usize, j: usize| {
                let taken = if a[i] > b[j] { x[0][i] } else { 3.0 * x[1][j] };
                taken + line(x[0][i] - x[1][j]) * (a[i] - 3.0 * b[j])
            };
            (0..6).map(|k| pair(k / 2, k % 2)).collect()
        }) as Function
    };
    Soft { op: "Where", case, softened: of(step), straight: of(|d| d) }
}

/// Numbers to integers, moved, rectified and back: the gradient is the same as if they stayed numbers.
fn cast() -> Soft {
    let mut case = Case::new(Node::new("Cast", &["kept"], "y").with("to", to(DType::F32)));
    let before = [
        Node::new("Cast", &["x"], "whole").with("to", to(DType::I32)),
        Node::new("Reshape", &["whole", "shape"], "moved"),
        Node::new("Relu", &["moved"], "kept"),
    ];
    case.graph.nodes.splice(0..0, before);
    let values = vec![3.7, -2.2, 0.9, 40.4];
    let case = case.input("x", &[2, 2], values.clone()).ints("shape", &[4]);
    let whole: Vec<f64> = values.iter().map(|v| f64::from(v.trunc())).collect();
    let f = move |x: &[Vec<f64>]| {
        // The bend has the slope at the integer; at 0 it has none.
        let each = x[0].iter().zip(&whole).map(|(x, n)| {
            let slope = f64::from(u8::from(*n > 0.0))
                - LEAN / (1.0 + n.abs()).sqrt() * if *n == 0.0 { 0.0 } else { n.signum() };
            slope * x
        });
        each.collect::<Vec<_>>()
    };
    Soft { op: "Cast", case, softened: Box::new(f.clone()), straight: Box::new(f) }
}

/// Behind a Relu whose window is all below 0, the gradient passes to the first value and the Relu's bend.
fn max_pool() -> Soft {
    let mut case = Case::new(
        Node::new("MaxPool", &["r"], "y").with("kernel_shape", vec![1i64, 2]).with("strides", vec![1i64, 2]),
    );
    case.graph.nodes.insert(0, Node::new("Relu", &["x"], "r"));
    let case = case.input("x", &[1, 1, 1, 4], vec![-3.0, -8.0, 2.0, 5.0]);
    let f = |x: &[Vec<f64>]| {
        let bent = |x: f64| x.max(0.0) - bend(x);
        vec![bent(x[0][0]), bent(x[0][3])]
    };
    Soft { op: "MaxPool", case, softened: Box::new(f), straight: Box::new(f) }
}

/// The gradient of Σ cᵢ·f(x)ᵢ at each input, by central differences in double precision.
fn differences(f: &Function, points: &[Vec<f32>], cotangent: &[f32]) -> Vec<Vec<f64>> {
    let mut x: Vec<Vec<f64>> = points.iter().map(|p| p.iter().map(|v| f64::from(*v)).collect()).collect();
    let mut found = Vec::new();
    for i in 0..x.len() {
        let mut own = Vec::new();
        for k in 0..x[i].len() {
            let (at, h) = (x[i][k], 1e-4 * x[i][k].abs().max(1.0));
            let mut moved = |to: f64| {
                x[i][k] = to;
                f(&x).iter().zip(cotangent).map(|(y, c)| y * f64::from(*c)).sum::<f64>()
            };
            let slope = (moved(at + h) - moved(at - h)) / (2.0 * h);
            moved(at);
            own.push(slope);
        }
        found.push(own);
    }
    found
}

#[test]
fn softened_rules_are_derivatives_of_their_neighbours() {
    common::load_runtime();
    let mut wrong = Vec::new();
    for Soft { op, case, softened, straight } in all() {
        for (pass, neighbour) in [(Pass::Softened, softened), (Pass::StraightThrough, straight)] {
            let mut r = Rng::new(7);
            let found =
                passed(&case, pass, |shapes| shapes.iter().map(|s| away_from_zero(&mut r, s)).collect());
            let (_, cotangents, gradients) = match found {
                Ok(found) => found,
                Err(e) => {
                    wrong.push(format!("{op}, {pass:?}: {e}"));
                    continue;
                }
            };
            let expected = differences(&neighbour, &case.points, &cotangents[0]);
            for (found, expected) in gradients.iter().flatten().zip(expected.iter().flatten()) {
                let close = (f64::from(*found) - expected).abs() <= 1e-3 * expected.abs() + 1e-6;
                if !close {
                    wrong.push(format!("{op}, {pass:?}: {found} where {expected} is expected"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_softened_rule_has_a_neighbour_here() {
    let tested: Vec<&str> = all().iter().map(|soft| soft.op).collect();
    let missing: Vec<&str> =
        operators::all().filter(|o| o.softened && !tested.contains(&o.name)).map(|o| o.name).collect();
    assert!(missing.is_empty(), "no neighbour in tests/rules/soften.rs for {missing:?}");
}

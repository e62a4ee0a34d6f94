//! Softened backward passes: each rule against finite differences of the documented neighbour, written here
//! as a function in double precision.

use crate::case::*;
use crate::{common, passed};
use audit::model::runtime;
use onnx_grad::{Differentiated, Pass, Processor, Unsupported, differentiate, operators};

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
        Node::new("Cast", &["on"], "y").with("to", i64::from(DType::F32.code())),
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
        Node::new("Cast", &["on"], "number").with("to", i64::from(DType::F32.code())),
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

/// A wave that gets lower beyond half a wavelength. No point is far out, where differences take in many waves.
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
    let mut case = Case::new(Node::new("Cast", &["kept"], "y").with("to", i64::from(DType::F32.code())));
    let before = [
        Node::new("Cast", &["x"], "whole").with("to", i64::from(DType::I32.code())),
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

/// Nodes from x [3] to y, differentiated.
fn of_nodes(nodes: &[Node], constants: &[(&str, Tensor)], pass: Pass) -> Result<Differentiated, Unsupported> {
    let constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes.to_vec(), constants);
    graph.inputs.push(Value::new("x", DType::F32, &[3]));
    graph.outputs.push(Value::new("y", DType::F32, &[3]));
    let types = runtime::infer(&graph).unwrap();
    differentiate(&graph, &types, &["x"], pass, Processor::Cpu)
}

/// The gradient at x of Σ cᵢ·yᵢ.
fn slope(nodes: &[Node], constants: &[(&str, Tensor)], pass: Pass, x: &[f32; 3], c: [f32; 3]) -> Vec<f32> {
    let mut nodes = nodes.to_vec();
    let mut case = Case::new(nodes.pop().unwrap());
    case.graph.nodes = [nodes, std::mem::take(&mut case.graph.nodes)].concat();
    case.graph.constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let case = case.input("x", &[3], x.to_vec());
    passed(&case, pass, |_| vec![c.to_vec()]).unwrap().2.remove(0)
}

const PASSES: [Pass; 4] = [Pass::Exact, Pass::ThroughFlat, Pass::Softened, Pass::StraightThrough];

fn number(value: f32) -> Tensor {
    Tensor::f32(&[], &[value])
}

fn to(dtype: DType) -> i64 {
    i64::from(dtype.code())
}

#[test]
fn thresholds_have_a_gradient_in_softened_passes_alone() {
    common::load_runtime();
    let constants = [("half", number(0.5)), ("one", number(1.0)), ("zero", number(0.0))];
    let on = Node::new("Greater", &["x", "half"], "on");
    let cast = [on.clone(), Node::new("Cast", &["on"], "y").with("to", to(DType::F32))];
    let chosen = [on, Node::new("Where", &["on", "one", "zero"], "y")];
    for nodes in [&cast, &chosen] {
        for pass in [Pass::Exact, Pass::ThroughFlat] {
            assert!(of_nodes(nodes, &constants, pass).unwrap_err().disconnected, "{pass:?}");
        }
        let at = |pass| slope(nodes, &constants, pass, &[0.45, 0.9, -2.0], [1.0, 2.0, -1.0]);
        // 1/(2·√(0.1·max(|x − 0.5|, 0.1))): 5 within 0.1, 2.5 at 0.4, 1 at 2.5.
        let found = at(Pass::Softened);
        for (found, expected) in found.iter().zip([5.0, 5.0, -1.0]) {
            assert!((found - expected).abs() < 1e-4, "{found} where {expected} is expected");
        }
        assert_eq!(at(Pass::StraightThrough), [1.0, 2.0, -1.0]);
        let g = of_nodes(nodes, &constants, Pass::Softened).unwrap();
        let labels = [r#"Greater "on""#.to_string(), nodes[1].label()];
        assert_eq!((g.softened.as_slice(), g.notes.len()), (&labels[..], 0));
    }
}

#[test]
fn rounding_passes_as_asked() {
    common::load_runtime();
    let nodes = [Node::new("Round", &["x"], "y")];
    let at = |pass| slope(&nodes, &[], pass, &[0.2, 1.7, -3.0], [1.0, 2.0, -1.0]);
    assert_eq!(PASSES.map(|pass| at(pass)[1]), [0.0, 2.0, 2.0, 2.0]);
    let said = PASSES.map(|pass| {
        let g = of_nodes(&nodes, &[], pass).unwrap();
        (g.notes.first().map(|note| note.straight_through), g.softened.len())
    });
    assert_eq!(said, [(Some(false), 0), (Some(true), 0), (None, 1), (None, 1)]);
}

/// x − (x mod 1/4) rounds down. Its exact gradient is 0, with no flat operator in it.
#[test]
fn a_value_minus_its_remainder_passes_like_rounding() {
    common::load_runtime();
    let nodes =
        [Node::new("Mod", &["x", "quarter"], "rest").with("fmod", 1), Node::new("Sub", &["x", "rest"], "y")];
    let at = |pass| slope(&nodes, &[("quarter", number(0.25))], pass, &[0.2, 1.7, -3.1], [1.0, 2.0, -1.0]);
    assert_eq!(PASSES.map(|pass| at(pass)[1]), [0.0, 0.0, 2.0, 2.0]);
}

/// The numbers that ArgMin and ReduceMin choose from below: two images, of two parts with three values each.
const SCORES: [f32; 12] = [0.3, 0.1, 0.14, 4.0, 9.0, 4.5, 1.0, 1.2, 1.05, 0.5, 0.4, 0.41];

/// Nodes that read "scores", [2, 2, 3], and write "y", of 8 values.
struct Chosen {
    nodes: Vec<Node>,
    constants: Vec<(&'static str, Tensor)>,
}

impl Chosen {
    fn new(nodes: Vec<Node>, constants: &[(&'static str, Tensor)]) -> Chosen {
        // Two rows of three for each part.
        let rows = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, -2.0, 4.0, 0.5, -1.0, 6.0, -3.0];
        let always = [
            ("table", Tensor::f32(&[6, 2], &rows)),
            ("parts", Tensor::f32(&[2, 3, 2], &rows)),
            ("offset", Tensor::ints(&[0, 3])),
            ("last", Tensor::ints(&[-1])),
        ];
        Chosen { nodes, constants: [&always[..], constants].concat() }
    }

    /// The nodes behind an Identity of x, as a case.
    fn case(&self, scores: Vec<f32>) -> Case {
        let mut nodes = self.nodes.clone();
        let mut case = Case::new(nodes.pop().unwrap());
        nodes.insert(0, Node::new("Identity", &["x"], "scores"));
        case.graph.nodes.splice(0..0, nodes);
        case.graph.constants = self.constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        case.graph.prune();
        case.input("x", &[2, 2, 3], scores)
    }

    /// The case in softer operators.
    fn written(&self, scores: Vec<f32>) -> Case {
        let mut case = self.case(scores);
        let mut types = runtime::infer(&case.graph).unwrap();
        case.graph.write_in_softer_operators(&mut types);
        let made = case.graph.nodes.iter().flat_map(|node| &node.outputs);
        assert!(made.chain(case.graph.constants.keys()).all(|name| types.contains_key(name)));
        case
    }
}

/// The values of y.
fn value(case: &Case) -> Vec<f32> {
    let mut session = runtime::Session::new(&case.graph, common::CPU, runtime::Optimise::Off).unwrap();
    let found = session.run(&[("x", runtime::Input::Host(&[2, 2, 3], &case.points[0]))], &["y"]).unwrap();
    found[0].floats().unwrap().1.to_vec()
}

fn arg_min() -> Node {
    Node::new("ArgMin", &["scores"], "at").with("axis", -1i64).with("keepdims", 0i64)
}

/// The rows of a product quantiser, in the forms in which PyTorch and its exporters write them.
fn product_quantisers() -> Vec<(&'static str, Chosen)> {
    let min = arg_min;
    let add = Node::new("Add", &["at", "offset"], "row");
    let pick = |at: &str| Node::new("Gather", &["table", at], "y");
    let of_parts = |marks: &str| {
        [Node::new("Unsqueeze", &[marks, "minus 2"], "each"), Node::new("MatMul", &["each", "parts"], "y")]
    };
    let minus_2 = ("minus 2", Tensor::ints(&[-2]));
    let three = ("depth", Tensor::ints(&[3]));
    let swapped = |v: &str, to: &str| Node::new("Transpose", &[v], to).with("perm", vec![0i64, 2, 1]);
    let float = |v: &str, to: &str| Node::new("Cast", &[v], to).with("to", self::to(DType::F32));
    let whole = ("marks", Tensor::ints(&[0, 1]));
    let part = |shape: &[i64], of: &[i64]| ("part", Tensor::i64(shape, of));
    let coordinates = || {
        vec![
            min(),
            Node::new("Unsqueeze", &["at", "last"], "within"),
            Node::new("Concat", &["part", "within"], "pair").with("axis", -1i64),
            Node::new("GatherND", &["parts", "pair"], "y"),
        ]
    };
    vec![
        ("Gather", Chosen::new(vec![min(), add.clone(), pick("row")], &[])),
        (
            "Gather of a flat list of int32",
            Chosen::new(
                vec![
                    min(),
                    Node::new("Cast", &["at"], "short").with("to", to(DType::I32)),
                    Node::new("Add", &["shorts", "short"], "row"),
                    Node::new("Reshape", &["row", "last"], "list"),
                    pick("list"),
                ],
                &[(
                    "shorts",
                    Tensor {
                        dtype: DType::I32,
                        shape: vec![1, 2],
                        bytes: vec![0, 0, 0, 0, 3, 0, 0, 0].into(),
                    },
                )],
            ),
        ),
        (
            "Gather along the second axis",
            Chosen::new(
                vec![
                    swapped("scores", "across"),
                    Node::new("ArgMin", &["across"], "at").with("axis", 1i64),
                    Node::new("Add", &["at", "offset"], "row"),
                    pick("row"),
                ],
                &[],
            ),
        ),
        (
            "GatherND",
            Chosen::new(
                vec![
                    min(),
                    add,
                    Node::new("Unsqueeze", &["row", "last"], "list"),
                    Node::new("GatherND", &["table", "list"], "y"),
                ],
                &[],
            ),
        ),
        ("GatherND of two coordinates", Chosen::new(coordinates(), &[part(&[2, 2, 1], &[0, 1, 0, 1])])),
        (
            "OneHot",
            Chosen::new(
                [
                    vec![min(), Node::new("OneHot", &["at", "depth", "marks"], "m"), float("m", "numbers")],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                &[minus_2.clone(), three.clone(), whole],
            ),
        ),
        (
            "OneHot along the second axis",
            Chosen::new(
                [
                    vec![
                        min(),
                        Node::new("OneHot", &["at", "depth", "marks"], "across").with("axis", 1i64),
                        swapped("across", "numbers"),
                    ],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                &[minus_2.clone(), three, ("marks", Tensor::f32(&[2], &[0.0, 1.0]))],
            ),
        ),
        (
            "ScatterElements",
            Chosen::new(
                [
                    vec![
                        min().with("keepdims", 1i64),
                        Node::new("ScatterElements", &["zeros", "at", "ones"], "numbers").with("axis", -1i64),
                    ],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                &[
                    minus_2.clone(),
                    ("zeros", Tensor::f32(&[2, 2, 3], &[0.0; 12])),
                    ("ones", Tensor::f32(&[2, 2, 1], &[1.0; 4])),
                ],
            ),
        ),
        (
            "Equal with positions",
            Chosen::new(
                [
                    vec![
                        min(),
                        Node::new("Unsqueeze", &["at", "last"], "column"),
                        Node::new("Equal", &["column", "positions"], "m"),
                        float("m", "numbers"),
                    ],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                &[minus_2.clone(), ("positions", Tensor::ints(&[0, 1, 2]))],
            ),
        ),
        (
            "Equal with the minimum",
            Chosen::new(
                [
                    vec![
                        Node::new("ReduceMin", &["scores", "last"], "least"),
                        Node::new("Equal", &["least", "scores"], "m"),
                        float("m", "numbers"),
                    ],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                std::slice::from_ref(&minus_2),
            ),
        ),
        (
            "Equal with the minimum, its axis put back",
            Chosen::new(
                [
                    vec![
                        Node::new("ReduceMin", &["scores", "last"], "flat").with("keepdims", 0i64),
                        Node::new("Unsqueeze", &["flat", "last"], "least"),
                        Node::new("Equal", &["scores", "least"], "m"),
                        float("m", "numbers"),
                    ],
                    of_parts("numbers").to_vec(),
                ]
                .concat(),
                &[minus_2],
            ),
        ),
    ]
}

/// No pass has a slope for a position. Written in softer operators, every form has the same value, and the
/// slope of PyTorch's autograd for softmax(−scores/τ) times the rows of the part, τ an eighth of the mean
/// distance of the part's scores from their mean and constant.
#[test]
fn chosen_rows_have_a_softened_slope_as_products() {
    common::load_runtime();
    let cotangent = vec![1.0, -2.0, 0.5, 3.0, 2.0, 1.0, -1.0, 0.25];
    let expected = [
        -8.387569e-7f32,
        -14.13016,
        14.13016,
        -7.319613,
        2.242656e-7,
        7.319613,
        12.47041,
        -8.186771e-7,
        -12.47041,
        -4.410442e-6,
        -129.1696,
        129.1696,
    ];
    for (form, chosen) in product_quantisers() {
        let plain = chosen.case(SCORES.to_vec());
        assert!(passed(&plain, Pass::Softened, |_| vec![cotangent.clone()]).is_err(), "{form}");
        let written = chosen.written(SCORES.to_vec());
        assert_eq!(value(&plain), [3.0, 5.0, -2.0, 4.0, 1.0, 2.0, 0.5, -1.0], "{form}");
        assert_eq!(value(&written), value(&plain), "{form}");
        let (_, _, gradients) = passed(&written, Pass::Softened, |_| vec![cotangent.clone()]).unwrap();
        for (found, expected) in gradients[0].iter().zip(expected) {
            let close = (found - expected).abs() <= 1e-3 * expected.abs() + 1e-4;
            assert!(close, "{form}: {found} where {expected} is expected");
        }
    }
}

/// The first of equal values is chosen by ArgMin, and all of them by Equal.
#[test]
fn equal_values_are_chosen_as_before() {
    common::load_runtime();
    let ties = [0.0, -0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 1.0, 1.0, f32::INFINITY, 4.0, 4.0];
    for (form, chosen) in product_quantisers() {
        assert_eq!(value(&chosen.written(ties.to_vec())), value(&chosen.case(ties.to_vec())), "{form}");
    }
}

/// A product of one-hot vectors with all rows of all parts would be as many times larger as there are parts.
#[test]
fn a_table_of_parts_is_shared_and_not_copied() {
    common::load_runtime();
    for (form, chosen) in product_quantisers().into_iter().take(5) {
        let tables: Vec<&Tensor> =
            chosen.constants.iter().map(|(_, t)| t).filter(|t| t.dtype == DType::F32).collect();
        let written = chosen.written(SCORES.to_vec()).graph;
        let floats: Vec<&Tensor> = written.constants.values().filter(|t| t.dtype == DType::F32).collect();
        let [table] = floats[..] else { panic!("{form}: {floats:?}") };
        assert!(tables.iter().any(|t| t.bytes.as_ptr() == table.bytes.as_ptr()), "{form}");
        assert_eq!(table.len(), 12, "{form}");
        let product = written.nodes.iter().find(|node| node.op == "MatMul").unwrap();
        let types = runtime::infer(&written).unwrap();
        let one_hot = &types[&product.inputs[0]].1;
        assert_eq!(one_hot.iter().product::<i64>(), 12, "{form}: {one_hot:?}");
    }
}

/// A vector quantiser that stands alone, of a table with more rows than there are to choose from; a table of
/// numbers; and Hardmax's name in results.
#[test]
fn one_chosen_row_has_a_softened_slope() {
    common::load_runtime();
    let of = |nodes: Vec<Node>, table: Tensor, out: &[i64]| {
        let mut graph = Graph::new(nodes, [("table".to_string(), table)].into());
        graph.inputs.push(Value::new("x", DType::F32, &[2, 3]));
        graph.outputs.push(Value::new("y", DType::F32, out));
        let mut types = runtime::infer(&graph).unwrap();
        let passed = |graph: &Graph, types: &onnx_grad::Types| {
            differentiate(graph, types, &["x"], Pass::Softened, Processor::Cpu)
        };
        assert!(passed(&graph, &types).unwrap_err().disconnected);
        graph.write_in_softer_operators(&mut types);
        assert_eq!(passed(&graph, &types).unwrap().softened, [r#"Hardmax "choice/y/1""#]);
        let mut session = runtime::Session::new(&graph, common::CPU, runtime::Optimise::All).unwrap();
        let x = [0.3f32, 0.1, 0.2, 4.0, 9.0, 1.0];
        let y = session.run(&[("x", runtime::Input::Host(&[2, 3], &x))], &["y"]).unwrap();
        y[0].floats().unwrap().1.to_vec()
    };
    let nodes = vec![
        Node::new("ArgMin", &["x"], "at").with("axis", -1i64).with("keepdims", 0i64),
        Node::new("Gather", &["table", "at"], "y"),
    ];
    let rows = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0];
    assert_eq!(of(nodes.clone(), Tensor::f32(&[3, 2], &rows[..6]), &[2, 2]), [3.0, 5.0, 7.0, 11.0]);
    assert_eq!(of(nodes.clone(), Tensor::f32(&[4, 2], &rows), &[2, 2]), [3.0, 5.0, 7.0, 11.0]);
    assert_eq!(of(nodes, Tensor::f32(&[3], &rows[..3]), &[2]), [2.0, 3.0]);
}

/// What only looks like such a choice stays as it is.
#[test]
fn other_positions_and_masks_are_not_written_anew() {
    common::load_runtime();
    let min = arg_min;
    let pick = |at: &str| Node::new("Gather", &["table", at], "y");
    let add = |a: &str, b: &str, to: &str| Node::new("Add", &[a, b], to);
    let mark =
        |nodes: Vec<Node>| [nodes, vec![Node::new("Cast", &["m"], "y").with("to", to(DType::F32))]].concat();
    let one_hot = |inputs: &[&str]| mark(vec![min(), Node::new("OneHot", inputs, "m")]);
    let column = || vec![min(), Node::new("Unsqueeze", &["at", "last"], "column")];
    let equal = |a: &str, b: &str| Node::new("Equal", &[a, b], "m");
    let ints = |name: &'static str, values: &[i64]| (name, Tensor::ints(values));
    let least =
        |axes: &str, keep: i64| Node::new("ReduceMin", &["scores", axes], "least").with("keepdims", keep);
    let others = [
        (
            "the last of equal values",
            vec![min().with("select_last_index", 1i64), add("at", "offset", "r"), pick("r")],
        ),
        (
            "an offset that is computed",
            vec![min(), Node::new("Identity", &["offset"], "own"), add("at", "own", "r"), pick("r")],
        ),
        ("two offsets", vec![min(), add("at", "offset", "r"), add("r", "zeros", "s"), pick("s")]),
        ("parts in another order", vec![min(), add("at", "3 0", "r"), pick("r")]),
        ("rows beyond the table", vec![min(), add("at", "1 4", "r"), pick("r")]),
        ("rows from the end", vec![min(), add("at", "-6 -3", "r"), pick("r")]),
        ("columns", vec![min(), pick("at").with("axis", 1i64)]),
        ("a product of positions", vec![min(), Node::new("Mul", &["at", "offset"], "r"), pick("r")]),
        ("another depth", one_hot(&["at", "4", "marks"])),
        ("other values", one_hot(&["at", "3", "0 2"])),
        (
            "twos",
            vec![
                min().with("keepdims", 1i64),
                Node::new("ScatterElements", &["nothing", "at", "twos"], "y").with("axis", -1i64),
            ],
        ),
        ("positions from 1", mark([column(), vec![equal("column", "1 2 3")]].concat())),
        ("a position alone", mark([column(), vec![equal("column", "1")]].concat())),
        ("the minimum of all images", mark(vec![least("first", 0), equal("scores", "least")])),
        (
            "the minimum of other values",
            mark(vec![Node::new("Neg", &["scores"], "other"), least("last", 1), equal("other", "least")]),
        ),
    ];
    let constants = [
        ints("zeros", &[0, 0]),
        ints("3 0", &[3, 0]),
        ints("1 4", &[1, 4]),
        ints("-6 -3", &[-6, -3]),
        ints("4", &[4]),
        ints("3", &[3]),
        ints("1", &[1]),
        ints("marks", &[0, 1]),
        ints("0 2", &[0, 2]),
        ints("1 2 3", &[1, 2, 3]),
        ints("first", &[0]),
        ("nothing", Tensor::f32(&[2, 2, 3], &[0.0; 12])),
        ("twos", Tensor::f32(&[2, 2, 1], &[2.0; 4])),
    ];
    for (what, nodes) in others {
        let chosen = Chosen::new(nodes, &constants);
        assert_eq!(
            chosen.written(SCORES.to_vec()).graph.nodes,
            chosen.case(SCORES.to_vec()).graph.nodes,
            "{what}"
        );
    }
}

/// A note and no error: without softening, the gradient also bypasses these nodes.
#[test]
fn integers_that_are_not_numbers_end_the_way_and_nothing_else() {
    common::load_runtime();
    let whole = Node::new("Cast", &["x"], "at").with("to", to(DType::I64));
    // Positions that depend on the image: 1, 0, 1.
    let picked = [whole.clone(), Node::new("Gather", &["x", "at"], "y")];
    // An integer product.
    let product = [
        whole,
        Node::new("Mul", &["at", "at"], "square"),
        Node::new("Cast", &["square"], "number").with("to", to(DType::F32)),
        Node::new("Add", &["x", "number"], "y"),
    ];
    for pass in PASSES {
        assert_eq!(slope(&picked, &[], pass, &[1.2, 0.3, 1.9], [1.0, 2.0, 4.0]), [2.0, 5.0, 0.0], "{pass:?}");
        assert_eq!(
            slope(&product, &[], pass, &[1.2, 0.3, 1.9], [1.0, 2.0, 4.0]),
            [1.0, 2.0, 4.0],
            "{pass:?}"
        );
    }
    let notes = of_nodes(&product, &[], Pass::Softened).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].node == r#"Mul "square""#, "{notes:?}");
}

#[test]
fn a_graph_without_such_operators_has_one_backward_graph() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![128].into() };
    let constants = [("s", number(0.1)), ("z", byte)];
    // Quantisation always passes straight through. No other operator here saturates, and the Clip has no
    // bounds.
    let nodes = [
        Node::new("QuantizeLinear", &["x", "s", "z"], "q"),
        Node::new("DequantizeLinear", &["q", "s", "z"], "d"),
        Node::new("Exp", &["d"], "e"),
        Node::new("Clip", &["e"], "c"),
        Node::new("Cast", &["c"], "y").with("to", to(DType::F32)),
    ];
    let of = |pass| of_nodes(&nodes, &constants, pass).unwrap();
    let exact = of(Pass::Exact);
    for pass in PASSES {
        let g = of(pass);
        assert!(g.softened.is_empty(), "{pass:?}: {:?}", g.softened);
        assert_eq!((&g.backward, &g.forward, &g.notes), (&exact.backward, &exact.forward, &exact.notes));
    }
}

/// ONNX Runtime's static quantisation with QuantFormat.QOperator pools integers. By hand: the second value is
/// the largest of all three windows, so that it takes the sum of the cotangents.
#[test]
fn a_pool_of_quantised_integers_passes_the_gradient_in_every_pass() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![128].into() };
    let ints = |name, values: &[i64]| (name, Tensor::ints(values));
    let constants = [("s", number(0.1)), ("z", byte), ints("image", &[1, 1, 1, 3]), ints("flat", &[3])];
    let pool = Node::new("MaxPool", &["q"], "p").with("kernel_shape", vec![1i64, 3]);
    let nodes = [
        Node::new("Reshape", &["x", "image"], "r"),
        Node::new("QuantizeLinear", &["r", "s", "z"], "q"),
        pool.with("pads", vec![0i64, 1, 0, 1]),
        Node::new("DequantizeLinear", &["p", "s", "z"], "d"),
        Node::new("Reshape", &["d", "flat"], "y"),
    ];
    for pass in PASSES {
        let found = slope(&nodes, &constants, pass, &[0.2, 1.7, 0.5], [1.0, 2.0, 4.0]);
        let close =
            found.iter().zip([0.0, 7.0, 0.0]).all(|(found, expected)| (found - expected).abs() < 1e-5);
        assert!(close, "{pass:?}: {found:?}");
    }
}

/// The other passes take all shapes and attributes that the exact rules take.
#[test]
#[ignore = "slow"]
fn every_sample_case_has_all_passes() {
    common::load_runtime();
    let mut wrong = Vec::new();
    for (op, sample) in crate::samples() {
        for seed in 0..15 {
            let case = sample(&mut Rng::new(seed * 1000 + op.len() as u64));
            let found = PASSES.map(|pass| {
                let choose =
                    |shapes: &[Vec<i64>]| shapes.iter().map(|s| normal(&mut Rng::new(seed), s)).collect();
                passed(&case, pass, choose).map(|(_, _, gradients)| gradients)
            });
            let shapes = |g: &[Vec<f32>]| g.iter().map(Vec::len).collect::<Vec<_>>();
            let Ok(exact) = &found[0] else { panic!("{op} #{seed}: {found:?}") };
            for (pass, found) in PASSES.iter().zip(&found) {
                match found {
                    Ok(g) if shapes(g) == shapes(exact) && g.iter().flatten().all(|v| v.is_finite()) => {}
                    other => wrong.push(format!("{op} #{seed}, {pass:?}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

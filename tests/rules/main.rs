//! Every gradient rule against central finite differences of ONNX Runtime's own forward pass: one-node graphs
//! of random shapes and attributes, points away from kinks, tolerance 1e-3. Each file has the cases of a
//! family of rules.

mod case;
#[path = "../common/mod.rs"]
mod common;
mod conv;
mod elementwise;
mod fourier;
mod index;
mod linear;
mod norm;
mod pool;
mod quantise;
mod reduce;
mod resize;
mod sample;
mod shape;
mod soften;
mod unfolded;
mod wider;

use audit::model::runtime::{self, Input, Optimise, Session};
use case::*;
use common::CPU;
use onnx_grad::operators::{self, Class};
use onnx_grad::{Differentiated, Pass, Processor, Types, differentiate};
use rayon::prelude::*;

const CASES: u64 = 100;
/// Steps of the finite differences.
const STEPS: [f32; 3] = [3e-2, 1e-2, 3e-3];
/// A gradient with a larger error is wrong.
const TOLERANCE: f64 = 1e-3;
/// Errors that are injected into the gradient of every rule. Each must be detected in some of the rule's
/// cases.
const INJECTED: [&str; 3] =
    ["a factor of 1.005", "noise a twentieth as long", "the first and last values off by a fifth"];

/// The sample cases: one entry for each rule.
fn samples() -> Vec<(&'static str, Sample)> {
    let families = [
        conv::samples(),
        elementwise::samples(),
        fourier::samples(),
        index::samples(),
        linear::samples(),
        norm::samples(),
        pool::samples(),
        quantise::samples(),
        reduce::samples(),
        resize::samples(),
        sample::samples(),
        shape::samples(),
        unfolded::samples(),
    ];
    families.into_iter().flatten().collect()
}

/// ⟨a, b⟩ in double precision.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum()
}

/// The derivative along one direction by finite differences, at several steps.
fn differences(
    case: &Case,
    forward: &mut Session,
    cotangents: &[Vec<f32>],
    v: &[Vec<f32>],
) -> [f64; STEPS.len()] {
    let names: Vec<&str> = case.graph.outputs.iter().map(|o| o.name.as_str()).collect();
    let shapes: Vec<Vec<i64>> = case.graph.inputs.iter().map(shape).collect();
    let mut phi = |h: f32| -> f64 {
        let moved = |(x, v): (&Vec<f32>, &Vec<f32>)| x.iter().zip(v).map(|(x, v)| x + h * v).collect();
        let points: Vec<Vec<f32>> = case.points.iter().zip(v).map(moved).collect();
        let inputs = case.graph.inputs.iter().enumerate();
        let feed: Vec<(&str, Input)> =
            inputs.map(|(i, input)| (input.name.as_str(), Input::Host(&shapes[i], &points[i]))).collect();
        let y = forward.run(&feed, &names).unwrap();
        y.iter().zip(cotangents).map(|(y, c)| dot(y.floats().unwrap().1, c)).sum()
    };
    STEPS.map(|h| {
        // Two central differences, extrapolated: the error falls with h⁴.
        let central = |phi: &mut dyn FnMut(f32) -> f64, h: f32| (phi(h) - phi(-h)) / (2.0 * h as f64);
        let (wide, narrow) = (central(&mut phi, h), central(&mut phi, h / 2.0));
        (4.0 * narrow - wide) / 3.0
    })
}

/// Gradients of all inputs, made of a rule's by injecting errors that the test must detect.
fn injected(gradient: &[Vec<f32>], r: &mut Rng) -> [Vec<Vec<f32>>; INJECTED.len()] {
    let each = |f: &mut dyn FnMut(usize, usize, f32) -> f32| -> Vec<Vec<f32>> {
        gradient.iter().map(|g| g.iter().enumerate().map(|(i, v)| f(i, g.len(), *v)).collect()).collect()
    };
    let length = gradient.iter().map(|g| dot(g, g)).sum::<f64>().sqrt();
    let count = gradient.iter().map(Vec::len).sum::<usize>();
    let noise = (length / 20.0 / (count as f64).sqrt()) as f32;
    [
        each(&mut |_, _, v| 1.005 * v),
        each(&mut |_, _, v| v + noise * r.normal()),
        each(&mut |i, n, v| if i == 0 || i + 1 == n { 1.2 * v } else { v }),
    ]
}

fn shape(value: &Value) -> Vec<i64> {
    use onnx_grad::graph::Dim;
    let dims = value.shape.as_deref().unwrap_or_default();
    dims.iter().map(|d| if let Dim::Known(n) = d { *n } else { panic!("{value:?}") }).collect()
}

/// Forward graph, cotangents of the outputs, gradients of the inputs.
type Found = (Session, Vec<Vec<f32>>, Vec<Vec<f32>>);

/// Differentiates a case, for the cotangents that `choose` makes of its outputs' shapes.
fn differentiated(case: &Case, choose: impl FnOnce(&[Vec<i64>]) -> Vec<Vec<f32>>) -> Result<Found, String> {
    passed(case, Pass::Exact, choose)
}

/// [`differentiated`] with another backward pass.
fn passed(
    case: &Case,
    pass: Pass,
    choose: impl FnOnce(&[Vec<i64>]) -> Vec<Vec<f32>>,
) -> Result<Found, String> {
    let steps = Steps::of(case)?;
    let g = steps.differentiate(pass, Processor::Cpu)?;
    let (forward, cotangents, gradients) = run(case, &steps.graph, &g, choose)?;
    Ok((steps.whole.unwrap_or(forward), cotangents, gradients))
}

/// The graph of a case, with the types of its values. If its node is written out in steps, `whole` is the
/// node itself, of which finite differences are taken.
struct Steps {
    graph: Graph,
    types: Types,
    whole: Option<Session>,
}

impl Steps {
    fn of(case: &Case) -> Result<Steps, String> {
        let text = |e: audit::Error| e.to_string();
        let types = runtime::infer(&case.graph).map_err(text)?;
        let (mut graph, types, whole) = match case.graph.unfold(&types)? {
            Some(unfolded) => {
                let whole = Session::new(&case.graph, CPU, Optimise::Off).map_err(text)?;
                let types = runtime::infer(&unfolded).map_err(text)?;
                (unfolded, types, Some(whole))
            }
            None => (case.graph.clone(), types, None),
        };
        for out in &mut graph.outputs {
            let (dtype, dims) = &types[&out.name];
            *out = Value::new(out.name.clone(), *dtype, dims);
        }
        Ok(Steps { graph, types, whole })
    }

    fn differentiate(&self, pass: Pass, processor: Processor) -> Result<Differentiated, String> {
        let wrt: Vec<&str> = self.graph.inputs.iter().map(|i| i.name.as_str()).collect();
        differentiate(&self.graph, &self.types, &wrt, pass, processor).map_err(|e| e.to_string())
    }
}

/// Runs a differentiated graph of a case.
fn run(
    case: &Case,
    graph: &Graph,
    g: &Differentiated,
    choose: impl FnOnce(&[Vec<i64>]) -> Vec<Vec<f32>>,
) -> Result<Found, String> {
    let text = |e: audit::Error| e.to_string();
    let mut forward = Session::new(&g.forward, CPU, Optimise::Off).map_err(text)?;
    let mut backward = Session::new(&g.backward, CPU, Optimise::All).map_err(text)?;

    let shapes: Vec<Vec<i64>> = graph.inputs.iter().map(shape).collect();
    let host = |name: &str| {
        let i = graph.inputs.iter().position(|x| x.name == name)?;
        Some(Input::Host(&shapes[i], &case.points[i]))
    };
    let feed: Vec<(&str, Input)> =
        graph.inputs.iter().map(|i| (i.name.as_str(), host(&i.name).unwrap())).collect();
    let from_forward: Vec<&str> =
        g.residuals.iter().map(String::as_str).filter(|n| host(n).is_none()).collect();
    let held = forward.run(&feed, &from_forward).map_err(text)?;
    let y_shapes: Vec<Vec<i64>> = graph.outputs.iter().map(shape).collect();
    let cotangents = choose(&y_shapes);
    let mut feed: Vec<(&str, Input)> =
        from_forward.iter().copied().zip(held.iter().map(Input::Runtime)).collect();
    feed.extend(g.residuals.iter().filter_map(|n| Some((n.as_str(), host(n)?))));
    feed.extend(
        g.cotangents.iter().enumerate().map(|(i, n)| (n.as_str(), Input::Host(&y_shapes[i], &cotangents[i]))),
    );
    feed.retain(|(n, _)| g.backward.inputs.iter().any(|i| i.name == *n));
    let names: Vec<&str> = g.gradients.iter().map(String::as_str).collect();
    let gradients = backward.run(&feed, &names).map_err(text)?;
    let gradients: Vec<Vec<f32>> = gradients.iter().map(|g| g.floats().unwrap().1.to_vec()).collect();
    drop(held);
    Ok((forward, cotangents, gradients))
}

/// Relative errors, each the median over directions at the best of several steps: of the gradient, and of the
/// gradient with each injected error.
struct Errors {
    own: f64,
    wrong: [f64; INJECTED.len()],
}

/// The errors of a case, or why it failed.
fn check(case: &Case, r: &mut Rng) -> Result<Errors, String> {
    let steps = Steps::of(case)?;
    let g = steps.differentiate(Pass::Exact, Processor::Cpu)?;
    let (forward, cotangents, gradients) =
        run(case, &steps.graph, &g, |shapes| shapes.iter().map(|s| normal(r, s)).collect())?;
    let scale = gradients.iter().map(|g| dot(g, g)).sum::<f64>().sqrt().max(1e-3);
    // The forms for a GPU compute the same gradient. Most rules have no others.
    let on_gpu = steps.differentiate(Pass::Exact, Processor::Gpu)?;
    if on_gpu.forward != g.forward || on_gpu.backward != g.backward {
        let (_, _, found) = run(case, &steps.graph, &on_gpu, |_| cotangents.clone())?;
        let pairs = gradients.iter().flatten().zip(found.iter().flatten());
        let apart: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
        if apart.sqrt() > 1e-5 * scale {
            return Err(format!(
                "the gradient in the forms for a GPU differs by {:.1e}",
                apart.sqrt() / scale
            ));
        }
    }
    let mut forward = steps.whole.unwrap_or(forward);
    let found: Vec<(Vec<Vec<f32>>, [f64; STEPS.len()])> = (0..5)
        .map(|_| {
            let v: Vec<Vec<f32>> =
                case.points.iter().map(|p| p.iter().map(|_| r.normal() / 2.0).collect()).collect();
            let differences = differences(case, &mut forward, &cotangents, &v);
            (v, differences)
        })
        .collect();
    let error = |gradient: &[Vec<f32>]| {
        let along = |v: &[Vec<f32>]| gradient.iter().zip(v).map(|(g, v)| dot(g, v)).sum::<f64>();
        let best = |(v, found): &(Vec<Vec<f32>>, [f64; STEPS.len()])| {
            found.iter().map(|d| (d - along(v)).abs() / scale).fold(f64::INFINITY, f64::min)
        };
        let mut errors: Vec<f64> = found.iter().map(best).collect();
        errors.sort_by(f64::total_cmp);
        errors[2]
    };
    Ok(Errors { own: error(&gradients), wrong: injected(&gradients, r).map(|wrong| error(&wrong)) })
}

/// The differentiated graph of some nodes x → y: y and the gradient at `x` for a cotangent.
fn gradient(
    nodes: Vec<Node>,
    constants: &[(&str, Tensor)],
    shape: &[i64],
    x: &[f32],
    cotangent: &[f32],
) -> (Vec<f32>, Vec<f32>, Differentiated) {
    let constants = constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs.push(Value::new("x", DType::F32, shape));
    graph.outputs.push(Value::new("y", DType::F32, shape));
    let types = runtime::infer(&graph).unwrap();
    let g = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu).unwrap();
    let mut forward = Session::new(&g.forward, CPU, Optimise::Off).unwrap();
    let mut backward = Session::new(&g.backward, CPU, Optimise::All).unwrap();
    let residuals = g.residuals.iter().map(String::as_str).filter(|r| !["x", "y"].contains(r));
    let handed: Vec<&str> = std::iter::once("y").chain(residuals).collect();
    let held = forward.run(&[("x", Input::Host(shape, x))], &handed).unwrap();
    let mut feed: Vec<(&str, Input)> = handed.iter().copied().zip(held.iter().map(Input::Runtime)).collect();
    feed.push(("x", Input::Host(shape, x)));
    feed.push((&g.cotangents[0], Input::Host(shape, cotangent)));
    feed.retain(|(name, _)| g.backward.inputs.iter().any(|i| i.name == *name));
    let out = backward.run(&feed, &[&g.gradients[0]]).unwrap();
    (held[0].floats().unwrap().1.to_vec(), out[0].floats().unwrap().1.to_vec(), g)
}

/// If a value is cut into pieces, its gradient is one concatenation and not a sum of padded pieces. These
/// graphs compute a permutation, whose gradient is the inverse permutation of the cotangent.
#[test]
fn pieces_of_a_value_are_joined() {
    common::load_runtime();
    let slice = |from: &str, to: &str, y: &str| Node::new("Slice", &["x", from, to, "last"], y);
    let ints = |name: &'static str, v: &[i64]| (name, Tensor::ints(v));
    let constants = [ints("0", &[0]), ints("2", &[2]), ints("3", &[3]), ints("5", &[5]), ints("last", &[1])];
    let (x, ct): (Vec<f32>, Vec<f32>) =
        ((0..10).map(|i| i as f32).collect(), (0..10).map(|i| (i * i) as f32).collect());
    let concat = |parts: &[&str]| Node::new("Concat", parts, "y").with("axis", 1);
    let ops = |g: &Differentiated| g.backward.nodes.iter().map(|n| n.op.clone()).collect::<Vec<_>>();

    let rolled = vec![slice("2", "5", "a"), slice("0", "2", "b"), concat(&["a", "b"])];
    let (y, gradient, g) = gradient(rolled, &constants, &[2, 5], &x, &ct);
    assert_eq!(y, [2.0, 3.0, 4.0, 0.0, 1.0, 7.0, 8.0, 9.0, 5.0, 6.0]);
    assert_eq!(gradient, [9.0, 16.0, 0.0, 1.0, 4.0, 64.0, 81.0, 25.0, 36.0, 49.0]);
    assert!(!ops(&g).iter().any(|op| op == "Pad" || op == "Add"), "{:?}", ops(&g));

    // The value is used once more: y = roll(x) + x.
    let mut with_another = vec![slice("2", "5", "a"), slice("0", "2", "b"), concat(&["a", "b"])];
    with_another[2].outputs = vec!["c".into()];
    with_another.push(Node::new("Add", &["c", "x"], "y"));
    let (_, gradient, g) = self::gradient(with_another, &constants, &[2, 5], &x, &ct);
    assert_eq!(gradient, [9.0, 17.0, 4.0, 10.0, 20.0, 89.0, 117.0, 74.0, 100.0, 130.0]);
    assert!(!ops(&g).iter().any(|op| op == "Pad"), "{:?}", ops(&g));

    // Overlapping pieces are summed: x[:, 2] is in both.
    let overlapping = vec![slice("2", "5", "a"), slice("0", "3", "b"), slice("0", "2", "d"), {
        Node::new("Mul", &["b", "a"], "e")
    }];
    let joined = [overlapping, vec![Node::new("Concat", &["e", "d"], "y").with("axis", 1)]].concat();
    let (_, gradient, _) = self::gradient(joined, &constants, &[2, 5], &x, &ct);
    // y = (x2·x0, x3·x1, x4·x2, x0, x1) in each row.
    let row = |x: &[f32], c: &[f32]| {
        [c[0] * x[2] + c[3], c[1] * x[3] + c[4], c[0] * x[0] + c[2] * x[4], c[1] * x[1], c[2] * x[2]]
    };
    assert_eq!(gradient, [row(&x[..5], &ct[..5]), row(&x[5..], &ct[5..])].concat());
}

/// Values x² written one after the other: what is written over has no gradient. The expected numbers are
/// those of PyTorch, for a list of scalars of which each assignment replaces one.
#[test]
fn what_a_scatter_writes_over_has_no_gradient() {
    common::load_runtime();
    let (x, ct) = ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 10.0, 100.0, 1000.0, 10000.0]);
    let (y_expected, expected) = ([25.0, 16.0, 9.0, 0.0, 0.0], [0.0, 0.0, 600.0, 80.0, 10.0]);
    let (at, zeros) = ([2, 0, -3, 1, 0], Tensor::f32(&[5], &[0.0; 5]));
    for (op, shape) in [("ScatterElements", vec![5]), ("ScatterND", vec![5, 1])] {
        for computed in [false, true] {
            let given = if computed { "given" } else { "at" };
            let mut nodes =
                vec![Node::new("Mul", &["x", "x"], "u"), Node::new(op, &["zeros", "at", "u"], "y")];
            if computed {
                nodes.insert(0, Node::new("Identity", &["given"], "at"));
            }
            let constants = [(given, Tensor::i64(&shape, &at)), ("zeros", zeros.clone())];
            let (y, gradient, _) = gradient(nodes, &constants, &[5], &x, &ct);
            assert_eq!(y, y_expected, "{op}");
            assert_eq!(gradient, expected, "{op}, positions computed: {computed}");
        }
    }

    // Positions that are constant and differ cost nothing.
    let nodes =
        vec![Node::new("Mul", &["x", "x"], "u"), Node::new("ScatterElements", &["zeros", "at", "u"], "y")];
    let constants = [("at", Tensor::i64(&[5], &[2, 0, -1, 1, 3])), ("zeros", zeros)];
    let (_, _, g) = gradient(nodes, &constants, &[5], &x, &ct);
    assert!(!g.backward.nodes.iter().any(|node| node.op == "CumSum"));
}

/// Otherwise part of a gradient would be missing without a message.
#[test]
fn what_no_rule_covers_is_refused() {
    common::load_runtime();
    let image = || vec![0.5; 12];
    let pad = Case::new(Node::new("Pad", &["x", "pads"], "y").with("mode", "wrap"));
    let regions = || {
        let case = Case::new(Node::new("RoiAlign", &["x", "r", "b"], "y")).input("x", &[1, 1, 3, 4], image());
        case.constant("b", Tensor::i64(&[1], &[0]))
    };
    let far = Tensor::f32(&[1, 4], &[0.0, 0.0, 5000.0, 1.0]);
    // One frame or block of more than 4,096 values needs the square of that many numbers.
    let frame = Case::new(Node::new("STFT", &["x", "step", "w"], "y"))
        .input("x", &[1, 4097, 1], vec![0.5; 4097])
        .constant("step", Tensor::i64(&[], &[1]))
        .constant("w", Tensor::f32(&[4097], &[1.0; 4097]));
    let block = Case::new(Node::new("Col2Im", &["x", "image", "block"], "y"))
        .input("x", &[1, 65 * 64, 1], vec![0.5; 65 * 64])
        .ints("image", &[65, 64])
        .ints("block", &[65, 64]);
    let cases = [
        (frame, "a matrix of 4097 x 4097 numbers"),
        (block, "a matrix of 4160 x 4160 numbers"),
        (pad.input("x", &[3, 4], image()).ints("pads", &[-1, 0, 2, 0]), "wrap that crops"),
        (regions().constant("r", far), "more than 4096 samples in a bin"),
        (regions().input("r", &[1, 4], vec![0.0, 0.0, 2.0, 2.0]), "the gradient of the regions"),
    ];
    for (case, expected) in cases {
        let error = differentiated(&case, |_| vec![]).map(drop).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn every_rule_has_a_sample_case() {
    let samples = samples();
    let missing: Vec<&str> = operators::all()
        .filter(|o| matches!(o.class, Class::Exact | Class::Unfolded))
        .map(|o| o.name)
        .filter(|op| !samples.iter().any(|(name, _)| name == op))
        .collect();
    assert!(missing.is_empty(), "no sample case in tests/rules/ for {missing:?}");
}

#[test]
fn every_rule_agrees_with_finite_differences() {
    common::load_runtime();
    // RULES=Conv,Resize: only these.
    let only = std::env::var("RULES").ok();
    let checked = |index: usize| {
        let (op, sample) = samples().swap_remove(index);
        let (mut wrong, mut seen) = (Vec::new(), [false; INJECTED.len()]);
        if only.as_ref().is_some_and(|only| !only.split(',').any(|o| o == op)) {
            return (wrong, Vec::new());
        }
        for seed in 0..CASES {
            let mut r = Rng::new(seed * 1000 + op.len() as u64);
            let case = sample(&mut r);
            let node = case.graph.nodes.iter().rev().find(|node| node.op == op);
            let node = node.unwrap_or_else(|| panic!("no {op} in its own case"));
            let what = match check(&case, &mut r) {
                Ok(errors) if errors.own < TOLERANCE => {
                    (0..INJECTED.len()).for_each(|i| seen[i] |= errors.wrong[i] >= TOLERANCE);
                    continue;
                }
                Ok(errors) => format!("error {:.1e}:", errors.own),
                Err(e) => e,
            };
            let shapes: Vec<String> = case.graph.inputs.iter().map(|i| i.shape_text()).collect();
            wrong.push(format!("{op} #{seed}: {what} {:?} {shapes:?}", node.attrs));
        }
        let missed = (0..INJECTED.len()).filter(|i| !seen[*i]).map(|i| format!("{op}: {}", INJECTED[i]));
        (wrong, missed.collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..samples().len()).into_par_iter().map(checked).collect();
    let (wrong, missed): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let (wrong, missed) = (wrong.concat(), missed.concat());
    assert!(missed.is_empty(), "wrong gradients that no case shows:\n{}", missed.join("\n"));
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_table_of_operators_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operators.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == audit::operators::markdown(),
        "docs/operators.md is out of date: cargo run -- ops --markdown > docs/operators.md"
    );
}

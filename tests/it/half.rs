//! Attack steps in float16: their distance from float32's, models that don't fit, and the detection of weaker
//! attacks.

use crate::common::models::{Bench, DIM, Weights, grey, small, trunk_weights};
use crate::common::transcript::Transcript;
use crate::common::{CPU, Rng, Temp, bundled, load_runtime, one_line, run, says};
use audit::check::{self, attacked::Outcomes, float16::compare};
use audit::feature::merge;
use audit::judge::score::Basis;
use audit::model::card::Card;
use audit::model::runtime::{Input, Optimise, Session, infer};
use audit::model::{Differentiable, Model};
use audit::record::{Form, HalfPrecision, Metric, Precision, Report, Severity};
use audit::report::terminal;
use audit::{Exit, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use onnx_grad::graph::{DType, Node, Tensor, Value};
use onnx_grad::{Graph, Pass, Processor, differentiate, narrow::half_name};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// An audit with float16 steps of a model on 6 classes of 5 images.
fn in_half(graph: &Graph, args: &[&str]) -> Result<Report> {
    let fixed = ["--steps", "8", "--attack-precision", "fp16", "--strong-sample", "off"];
    Bench::new(graph, 6, 5, 1).audit(&[&fixed[..], args].concat())
}

/// A model for float16 steps, and a batch of random images.
fn opened(path: &Path, batch: usize) -> (Model, Vec<f32>) {
    load_runtime();
    let beside = std::fs::read_to_string(path.with_extension("yaml")).ok();
    let card: Card = beside.map_or(Card::default(), |yaml| audit::yaml::read("card", &yaml).unwrap());
    let model = Model::open_in(path, &card, CPU, Some(batch), true, &|_| {}).unwrap();
    let pixels = Rng::new(3).units(batch * model.pixels());
    (model, pixels)
}

/// Many operators: batch and layer normalisation, attention with a mask of −3e38, GELU, max and mean pooling,
/// a norm.
fn mixed() -> Graph {
    let nodes = vec![
        Node::new("Conv", &["image", "w1"], "c1").with("pads", vec![1i64, 1, 1, 1]),
        Node::new("Relu", &["c1"], "r1"),
        Node::new("BatchNormalization", &["r1", "s", "b", "m", "v"], "n1"),
        Node::new("MaxPool", &["n1"], "p1")
            .with("kernel_shape", vec![3i64, 3])
            .with("strides", vec![2i64, 2])
            .with("pads", vec![1i64, 1, 1, 1]),
        Node::new("Reshape", &["p1", "tokens"], "t1"),
        Node::new("Transpose", &["t1"], "t2").with("perm", vec![0i64, 2, 1]),
        Node::new("LayerNormalization", &["t2", "s", "b"], "l1"),
        Node::new("MatMul", &["l1", "wq"], "q"),
        Node::new("Transpose", &["l1"], "k").with("perm", vec![0i64, 2, 1]),
        Node::new("MatMul", &["q", "k"], "a1"),
        Node::new("Add", &["a1", "mask"], "a2"),
        Node::new("Softmax", &["a2"], "a3"),
        Node::new("MatMul", &["a3", "l1"], "a4"),
        Node::new("Add", &["a4", "t2"], "a5"),
        Node::new("Gelu", &["a5"], "g1"),
        Node::new("ReduceMean", &["g1", "axis"], "g2").with("keepdims", 0i64),
        Node::new("MatMul", &["g2", "w2"], "e1"),
        Node::new("ReduceL2", &["e1", "axis"], "e2").with("keepdims", 1i64),
        Node::new("Div", &["e1", "e2"], "embedding"),
    ];
    let mask: Vec<f32> = (0..36).map(|i| if i % 7 == 3 { -3e38 } else { 0.0 }).collect();
    let weights = Weights::new(11)
        .normal("w1", &[4, 1, 3, 3], 0.5)
        .positive("s", &[4])
        .normal("b", &[4], 0.3)
        .normal("m", &[4], 0.3)
        .positive("v", &[4])
        .normal("wq", &[4, 4], 0.5)
        .normal("w2", &[4, DIM], 0.5)
        .floats("mask", &[36], &mask)
        .ints("tokens", &[0, 4, 36])
        .ints("axis", &[1]);
    let mut graph = grey(nodes, weights);
    graph.opsets.insert(String::new(), 21);
    graph
}

/// Between two layers, activations are scaled by 1e-8: float32 holds them, in float16 all are zero.
fn vanishing() -> Graph {
    through(&[("small", 1e-4), ("small", 1e-4), ("large", 1e4), ("large", 1e4)])
}

/// Activations scaled by 1e6: beyond float16.
fn overflowing() -> Graph {
    through(&[("large", 1e3), ("large", 1e3), ("small", 1e-3), ("small", 1e-3)])
}

/// The smallest model with factors between its layers.
fn through(factors: &[(&str, f32)]) -> Graph {
    let mut nodes = vec![
        Node::new("Conv", &["image", "w1"], "c1")
            .with("strides", vec![2i64, 2])
            .with("pads", vec![1i64, 1, 1, 1]),
        Node::new("Relu", &["c1"], "f0"),
    ];
    let mut weights = trunk_weights(Weights::new(1), "", 1);
    for (i, (name, value)) in factors.iter().enumerate() {
        weights = weights.floats(name, &[1], &[*value]);
        nodes.push(Node::new("Mul", &[&format!("f{i}"), name], &format!("f{}", i + 1)));
    }
    nodes.extend([
        Node::new("Relu", &[&format!("f{}", factors.len())], "r1"),
        Node::new("Flatten", &["r1"], "flat"),
        Node::new("Gemm", &["flat", "w2", "b2"], "embedding").with("transB", 1i64),
    ]);
    grey(nodes, weights)
}

/// Expected: ONNX Runtime's own Cast.
#[test]
fn weights_are_rounded_as_onnx_runtime_does() {
    load_runtime();
    let mut rng = Rng::new(8);
    let values: Vec<f32> = (0..20_000).map(|_| rng.normal() * 2f32.powi(rng.int(-30, 17) as i32)).collect();
    let mut graph = Graph::new(
        vec![
            Node::new("Cast", &["x"], "h").with("to", DType::F16.code() as i64),
            Node::new("Cast", &["h"], "y").with("to", DType::F32.code() as i64),
        ],
        Default::default(),
    );
    let shape = [values.len() as i64];
    graph.inputs = vec![Value::new("x", DType::F32, &shape)];
    graph.outputs = vec![Value::new("y", DType::F32, &shape)];
    let mut session = Session::new(&graph, CPU, Optimise::Off).unwrap();
    let held = session.run(&[("x", Input::Host(&shape, &values))], &["y"]).unwrap();
    let ours = Tensor::f32(&shape, &values).to_half().unwrap().to_f32s().unwrap();
    assert_eq!(held[0].floats().unwrap().1, ours);
    assert!(ours.iter().any(|v| v.is_infinite()) && ours.contains(&0.0));
}

/// The graphs for a GPU, checked by ONNX Runtime's type inference, and run on the CPU with its own casts.
/// Expected: the float32 gradient.
#[test]
fn graphs_with_float16_kernels_are_whole() {
    load_runtime();
    let typed = |graph: &Graph| -> HashMap<String, DType> {
        let mut probe = graph.clone();
        let made = graph.nodes.iter().flat_map(|n| &n.outputs).filter(|o| !o.is_empty());
        probe.outputs =
            made.map(|o| Value { name: o.clone(), dtype: DType::Other(0), shape: None }).collect();
        let found = Session::new(&probe, CPU, Optimise::Off).unwrap().output_types();
        let given = graph.inputs.iter().map(|i| (i.name.clone(), i.dtype));
        let constants = graph.constants.iter().map(|(n, t)| (n.clone(), t.dtype));
        found.into_iter().map(|(n, t, _)| (n, t)).chain(given).chain(constants).collect()
    };
    for mut graph in [small(), mixed()] {
        let shape = [2, 1, 12, 12];
        graph.inputs = vec![Value::new("image", DType::F32, &shape)];
        graph.outputs = vec![Value::new("embedding", DType::F32, &[2, DIM])];
        let types = infer(&graph).unwrap();
        let g = differentiate(&graph, &types, &["image"], Pass::Exact, Processor::Cpu).unwrap();
        let mut rng = Rng::new(4);
        let x = rng.units(2 * 144);
        let ct: Vec<f32> = (0..2 * DIM).map(|_| rng.normal()).collect();
        let run = |forward: &Graph, backward: &Graph, handed: Vec<String>| -> Vec<f32> {
            let mut sessions = [forward, backward].map(|g| Session::new(g, CPU, Optimise::All).unwrap());
            let names: Vec<&str> = handed.iter().map(String::as_str).collect();
            let held = sessions[0].run(&[("image", Input::Host(&shape, &x))], &names).unwrap();
            let ct_shape = [2, DIM];
            let mut feed = vec![(g.cotangents[0].as_str(), Input::Host(&ct_shape, &ct))];
            feed.push(("image", Input::Host(&shape, &x)));
            feed.extend(names.iter().copied().zip(held.iter().map(Input::Runtime)));
            feed.retain(|(name, _)| backward.inputs.iter().any(|i| i.name == *name));
            let out = sessions[1].run(&feed, &[&g.gradients[0]]).unwrap();
            out[0].floats().unwrap().1.to_vec()
        };
        let own: Vec<String> = g.residuals.iter().filter(|r| *r != "image").cloned().collect();
        let full = run(&g.forward, &g.backward, own.clone());
        let forward = g.forward.narrow(&typed(&g.forward), &Default::default(), &["embedding"], true);
        let backward = g.backward.narrow(&typed(&g.backward), &forward.halved, &[&g.gradients[0]], true);
        assert!(!forward.halved.is_empty());
        let halved = |r: String| if forward.halved.contains(&r) { half_name(&r) } else { r };
        let half = run(&forward.graph, &backward.graph, own.into_iter().map(halved).collect());
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let cosine = dot(&half, &full) / (dot(&half, &half) * dot(&full, &full)).sqrt();
        assert!(cosine > 0.999 && half != full, "{cosine}");
    }
}

/// Expected: the float32 gradient, which other tests compare with finite differences and PyTorch.
#[test]
fn signs_are_those_of_float32() {
    let temp = Temp::new();
    for (path, agree) in [
        (temp.write("small.onnx", small().encode()), 99.0),
        (temp.write("mixed.onnx", mixed().encode()), 97.0),
        (bundled("plain.onnx"), 97.0),
        (bundled("hardened.onnx"), 97.0),
    ] {
        let (mut model, x) = opened(&path, 8);
        let c = model.calibrate(&x, 8).unwrap().unwrap();
        println!("{}: {c:?}", path.display());
        assert!(c.sign_agreement > agree, "{}: {c:?}", path.display());
        assert!((c.zero - c.zero_full).abs() < 1.0, "{}: {c:?}", path.display());
        // A power of two, so that only the range changes.
        assert_eq!(c.loss_scale.log2().fract(), 0.0);

        // A step moves by exactly α or not at all, and only into the box; mostly as float32's.
        let n = x.len();
        let ct =
            Array2::from_shape_fn((8, model.info.dim), |(i, j)| ((i * 7 + j * 3) % 11) as f32 / 5.0 - 1.0);
        let low: Vec<f32> = x.iter().map(|v| (v - 0.01).max(0.0)).collect();
        let high: Vec<f32> = x.iter().map(|v| (v + 0.05).min(1.0)).collect();
        let alpha: Vec<f32> = (0..8).map(|i| if i == 7 { 0.0 } else { 0.02 }).collect();
        let step = |worker: &mut dyn Differentiable| {
            let steps = worker.signed_steps().unwrap();
            for slot in 0..8 {
                let at = slot * n / 8..(slot + 1) * n / 8;
                steps.put(slot, &x[at.clone()], &low[at.clone()], &high[at]).unwrap();
            }
            let mut seen = Array2::zeros((0, 0));
            let mut cotangent = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
                seen = e.to_owned();
                out.assign(&ct);
            };
            steps.step(&alpha, &mut cotangent).unwrap();
            let moved: Vec<f32> = (0..8).flat_map(|slot| steps.get(slot).unwrap().to_vec()).collect();
            (moved, seen)
        };
        let (half, e_half) = step(&mut model.workers_in_half()[0]);
        let (full, e_full) = step(model.workers()[0]);
        let same = (0..n).filter(|&i| half[i] == full[i]).count() as f64 / n as f64;
        assert!(same > 0.95, "{}: {same}", path.display());
        assert!((0..n).all(|i| (low[i]..=high[i]).contains(&half[i])));
        assert_eq!(half[7 * n / 8..], x[7 * n / 8..]);
        // Embeddings of float16, not of float32.
        assert!(e_half != e_full);
        let largest = e_full.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!(e_half.iter().zip(&e_full).all(|(a, b)| (a - b).abs() < 0.02 * largest));
        // Measurements are in float32, whatever the precision of steps.
        let measured = model.embed(&x).unwrap();
        assert_eq!(measured, e_full);
    }
}

#[test]
#[ignore = "slow"]
fn an_audit_says_what_ran_in_float16_and_repeats_a_sample() {
    let report = in_half(&small(), &["--suite", "full"]).unwrap();
    assert_eq!(report.suite.attack_precision, Precision::Fp16);
    assert!(report.errors().next().is_none(), "{:?}", report.warnings);
    let half = report.half_precision.as_ref().unwrap();
    // 30 queries are fewer than the smallest sample: all are repeated.
    assert_eq!(half.sample.len(), report.outcomes.len());
    let c = half.comparison.as_ref().unwrap();
    assert_eq!((c.queries, c.trials, c.score.as_str()), (30, report.outcomes.len(), "ARS"));
    assert!(c.difference.abs() < 3.0, "{c:?}");
    assert!((c.half - report.scores.ars.as_ref().unwrap().value).abs() < 1e-9);
    let codes: Vec<&str> = c.attacks.iter().map(|a| a.code.as_str()).collect();
    assert_eq!(codes, ["CA+", "CA-", "QA+", "QA-", "TMA", "ES:D", "ES:R", "LTM", "GTM", "GTT"]);
    // The sample equals an audit in float32.
    let in_full = ["--steps", "8", "--suite", "full", "--strong-sample", "off"];
    let full = Bench::new(&small(), 6, 5, 1).audit(&in_full).unwrap();
    assert_eq!(half.sample, full.outcomes);
    assert!((c.full - full.scores.ars.as_ref().unwrap().value).abs() < 1e-9);
    assert!(full.half_precision.is_none() && full.suite.attack_precision == Precision::Fp32);
    assert!(!serde_json::to_string(&full).unwrap().contains("half_precision"));
    // Also in words.
    let text = one_line(&terminal::render(&report));
    says(&text, &["8 steps in float16", "[half-precision]", "sample of 30 queries"]);
    assert!(!terminal::render(&full).contains("float16"));
    // Another precision is another run.
    let differs = audit::judge::compare::mismatches(&report, &full);
    assert_eq!(differs, ["attack precision: fp16 and fp32"]);
}

/// Gradients that float16 loses altogether: the attack does not move, and the sample shows it.
#[test]
fn an_attack_that_float16_weakens_is_not_trusted() {
    let report = in_half(&vanishing(), &["--suite", "ars"]).unwrap();
    let half = report.half_precision.as_ref().unwrap();
    assert_eq!((half.zero, half.sign_agreement), (100.0, 0.0));
    assert!(half.zero_full < 50.0);
    let c = half.comparison.as_ref().unwrap();
    assert!(c.half > c.full + 10.0, "{c:?}");
    let found = report.warnings.iter().find(|w| w.id == "half-precision").unwrap();
    assert_eq!(found.severity, Severity::Error);
    says(&found.text, &["weaker", "--attack-precision"]);
    assert_eq!(report.exit(), Some(Exit::Untrusted));
    // The sample compared with itself.
    let full = Report { outcomes: half.sample.clone(), ..report.clone() };
    assert!(compare(&full).unwrap().difference == 0.0);
}

#[test]
fn what_overflows_is_an_error() {
    let error = in_half(&overflowing(), &["--suite", "smoke"]).unwrap_err();
    assert_eq!(error.exit, Exit::Untrusted);
    says(&error.message, &["--attack-precision", "overflow", "not finite", "float32"]);
    // Overflow only under attack: calibrated on black images, then given bright ones.
    let temp = Temp::new();
    let (mut model, x) = opened(&temp.write("model.onnx", overflowing().encode()), 4);
    model.calibrate(&vec![0.0; x.len()], 4).unwrap();
    let pixels = x.len() / 4;
    let mut workers = model.workers_in_half();
    let steps = workers[0].signed_steps().unwrap();
    for (slot, image) in x.chunks(pixels).enumerate() {
        steps.put(slot, image, &vec![0.0; pixels], &vec![1.0; pixels]).unwrap();
    }
    let error = steps.step(&[0.1; 4], &mut |_, mut out| out.fill(1.0)).unwrap_err();
    says(&error.message, &["not finite"]);
    // Slots without a trial may hold anything.
    steps.step(&[0.0; 4], &mut |_, mut out| out.fill(1.0)).unwrap();
}

#[test]
fn parts_and_the_journal_know_of_it() {
    let bench = Bench::new(&small(), 8, 20, 1);
    let run_in = |precision: &str, args: &[&str]| {
        let fixed = ["--steps", "2", "--suite", "ers", "--attack-precision", precision];
        bench.audit(&[&fixed[..], &["--strong-sample", "off"], args].concat()).unwrap()
    };
    let run = |args: &[&str]| run_in("fp16", args);
    let whole = run(&[]);
    let half = whole.half_precision.as_ref().unwrap();
    let queries: std::collections::BTreeSet<&str> = half.sample.iter().map(|o| o.query.as_str()).collect();
    assert_eq!((queries.len(), whole.suite.queries), (128, 160));
    let parts = ["hash:1/2", "hash:2/2"].map(|part| {
        let file = bench.path(&format!("part{}.json", &part[5..6]));
        let report = run(&["--partition", part, "-o", &file]);
        assert!(report.half_precision.unwrap().comparison.is_none());
        PathBuf::from(file)
    });
    let merged = merge::merge(&parts, "audit merge").unwrap();
    let without_command = |r: &Report| crate::common::lasting(&Report { command: None, ..r.clone() });
    assert_eq!(without_command(&merged), without_command(&whole));
    // A part in float32 belongs to another run.
    let other = bench.path("other.json");
    run_in("fp32", &["--partition", "hash:2/2", "-o", &other]);
    let error = merge::merge(&[parts[0].clone(), other.into()], "").unwrap_err();
    says(&error.message, &["attack precision: fp16 and fp32"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let temp = Transcript::new(Temp::new());
    let error = in_half(&small(), &["--suite", "ars", "--gradient", "estimate"]).unwrap_err();
    assert_eq!(error.exit, Exit::Usage);
    temp.note(&error.message);
    let path = temp.write("model.onnx", small().encode()).display().to_string();
    let doctor = run(&temp, ["doctor", &path, "--attack-precision", "fp16"]).ended(2);
    temp.note(&doctor.err);
    insta::assert_snapshot!(temp.told());
}

fn compared(difference: f64, interval: (f64, f64), single: (f64, f64)) -> Severity {
    let half = json!({
        "loss_scale": 256.0, "sign_agreement": 99.0, "zero": 1.0, "zero_full": 1.0, "sample": [],
        "comparison": {
            "queries": 64, "trials": 512, "score": "ARS", "half": 50.0, "full": 50.0 - difference,
            "difference": difference, "interval": interval,
            "attacks": [{
                "code": "GTM", "half": 50.0, "full": 50.0 - single.0, "difference": single.0, "error": single.1,
            }],
        },
    });
    let half: HalfPrecision = serde_json::from_value(half).unwrap();
    let all = Outcomes {
        outcomes: &[],
        ball: &audit::threat::BALLS[0],
        eps: 0.1,
        gradient_free: false,
        steps: 32,
        basis: Basis { ranked: 100, form: Form::Published, metric: Metric::Cosine, foreign: None },
        half: Some(&half),
        softened: &[],
        estimated: false,
    };
    check::of_outcomes(&all).into_iter().find(|f| f.check == "half-precision").unwrap().severity
}

/// By hand: a difference of more than half a point, beyond chance, makes the scores invalid.
#[test]
fn half_a_point_is_the_limit() {
    assert_eq!(compared(0.4, (0.3, 0.5), (0.0, 0.1)), Severity::Info);
    assert_eq!(compared(0.6, (0.1, 1.1), (0.0, 0.1)), Severity::Error);
    // One attack, beyond chance and not.
    assert_eq!(compared(0.3, (0.2, 0.4), (2.4, 0.7)), Severity::Error);
    assert_eq!(compared(0.3, (0.2, 0.4), (2.4, 1.0)), Severity::Info);
    assert_eq!(compared(-0.6, (-0.7, -0.5), (0.0, 0.1)), Severity::Warning);
    // Too few to decide.
    assert_eq!(compared(0.6, (-1.0, 2.0), (0.0, 0.1)), Severity::Warning);
    assert_eq!(compared(0.1, (-0.5, 0.7), (0.0, 0.1)), Severity::Warning);
}

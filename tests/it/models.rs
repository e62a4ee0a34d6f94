//! Kinds of model: each is audited unchanged (the check at load compares with the untouched file), or refused
//! if its gradient can't be right.

mod preprocessing;

use crate::common::models::{
    Bench, DIM, SIDE, Weights, before, free, grey, small, trunk, trunk_weights, value,
};
use crate::common::{CPU, Rng, Temp, audit, load_runtime, says, warning, words};
use audit::Exit;
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{Input, Optimise, Session};
use audit::record::Report;
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use std::path::Path;

/// A quick audit of a model on images of `channels` channels.
fn try_audit(graph: &Graph, channels: usize, args: &[&str]) -> audit::Result<Report> {
    let quick = ["--suite", "smoke", "--max-queries", "3", "--strong-sample", "off"];
    Bench::new(graph, 5, 4, channels).audit(&[&quick[..], args].concat())
}

/// [`try_audit`], which must work and give both scores.
#[track_caller]
fn audited(graph: &Graph, channels: usize, args: &[&str]) -> Report {
    let report = try_audit(graph, channels, args).unwrap();
    assert!(report.scores.ers.is_some() && report.scores.ars.is_some());
    let check = &report.model.gradient_check;
    assert!(check.embedding_error.is_some_and(|e| e <= 1e-4), "{check:?}");
    assert!(check.gradient_error.is_some_and(|e| e <= 1e-2), "{check:?}");
    report
}

/// Embeddings of the file's own graph by ONNX Runtime: [n, D].
fn as_onnx_runtime(graph: &Graph, shape: &[i64], values: &[f32]) -> Vec<f32> {
    let as_is = Graph::decode_as_is(graph.encode().into(), Path::new("test")).unwrap();
    outputs(&as_is, shape, values)
}

fn outputs(graph: &Graph, shape: &[i64], values: &[f32]) -> Vec<f32> {
    let mut session = Session::new(graph, CPU, Optimise::Off).unwrap();
    let held = session.run(&[(&graph.inputs[0].name, Input::Host(shape, values))], &[&graph.outputs[0].name]);
    held.unwrap()[0].floats().unwrap().1.to_vec()
}

fn pixels(count: usize) -> Vec<f32> {
    Rng::new(3).units(count)
}

/// The model's embeddings of two images are those of its file.
#[track_caller]
fn embeds(path: &Path, graph: &Graph, tolerance: f32) {
    let mut model = Model::open(path, &Card::default(), CPU, Some(2)).unwrap();
    let x = pixels(2 * 144);
    let expected = as_onnx_runtime(graph, &[2, 1, SIDE, SIDE], &x);
    close(model.embed(&x).unwrap().as_slice().unwrap(), &expected, tolerance);
}

#[track_caller]
fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    assert!(scale > 0.0);
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * scale, "{a} where {b} is expected");
    }
}

#[test]
fn free_and_fixed_batches_are_audited_alike() {
    let free = audited(&small(), 1, &[]);
    for size in [1, 3] {
        let mut fixed = small();
        fixed.inputs = vec![value("image", Dim::Known(size), &[1, SIDE, SIDE])];
        fixed.outputs = vec![value("embedding", Dim::Known(size), &[DIM])];
        for threads in ["1", "2"] {
            let fixed = audited(&fixed, 1, &["--threads", threads]);
            assert_eq!(fixed.timing.batch, size as usize);
            assert_eq!(fixed.trials, free.trials);
            assert!((fixed.benign.as_ref().unwrap().map - free.benign.as_ref().unwrap().map).abs() < 1e-6);
        }
    }
}

/// Opset 7: axes, pads, splits, limits and ends are attributes, Softmax flattens, batch norms say `spatial`.
fn opset_7() -> Graph {
    let mut bn = Node::new("BatchNormalization", &["c", "scale", "shift", "mean", "variance"], "bn");
    bn = bn.with("epsilon", 1e-3f32).with("momentum", 0.9f32).with("spatial", 1i64);
    let mut split = Node::new("Split", &["cut"], "").with("axis", 1i64).with("split", vec![3i64, 1]);
    split.outputs = vec!["three".into(), "one".into()];
    let mut dropout = Node::new("Dropout", &["bn"], "").with("ratio", 0.5f32);
    dropout.outputs = vec!["kept".into()];
    let nodes = vec![
        Node::new("Pad", &["image"], "padded")
            .with("mode", "constant")
            .with("pads", vec![0i64, 0, 2, 1, 0, 0, 0, 1])
            .with("value", 0.5f32),
        Node::new("Conv", &["padded", "w1"], "c").with("kernel_shape", vec![3i64, 3]),
        bn,
        dropout,
        Node::new("Clip", &["kept"], "clipped").with("min", -0.75f32).with("max", 1.25f32),
        Node::new("AveragePool", &["clipped"], "pooled")
            .with("kernel_shape", vec![2i64, 2])
            .with("pads", vec![0i64, 0, 1, 1])
            .with("strides", vec![1i64, 1]),
        Node::new("Slice", &["pooled"], "cut")
            .with("axes", vec![2i64, 3])
            .with("starts", vec![1i64, 1])
            .with("ends", vec![11i64, -1]),
        split,
        Node::new("Softmax", &["three"], "soft"), // over channels, rows and columns at once
        Node::new("Softmax", &["three"], "rows").with("axis", 3i64),
        Node::new("Mul", &["rows", "one"], "weighed"),
        Node::new("Sum", &["soft", "weighed", "three"], "sum"),
        Node::new("ReduceMean", &["sum"], "mean3").with("axes", vec![3i64]).with("keepdims", 1i64),
        Node::new("Squeeze", &["mean3"], "squeezed").with("axes", vec![3i64]),
        Node::new("Unsqueeze", &["squeezed"], "unsqueezed").with("axes", vec![1i64]),
        Node::new("Flatten", &["unsqueezed"], "flat"),
        Node::new("Gemm", &["flat", "w2", "b2"], "e").with("transB", 1i64),
        Node::new("ReduceSum", &["e"], "total").with("axes", vec![1i64]).with("keepdims", 1i64),
        Node::new("Add", &["e", "total"], "embedding"),
    ];
    let weights = Weights::new(2)
        .normal("w1", &[4, 1, 3, 3], 0.4)
        .positive("scale", &[4])
        .normal("shift", &[4], 0.2)
        .normal("mean", &[4], 0.2)
        .positive("variance", &[4])
        .normal("w2", &[DIM, 3 * 10], 0.5)
        .normal("b2", &[DIM], 0.1);
    let mut graph = grey(nodes, weights);
    graph.opsets.insert(String::new(), 7);
    graph
}

#[test]
fn old_attribute_forms_mean_what_onnx_runtime_takes_them_for() {
    audited(&opset_7(), 1, &[]);
    let temp = Temp::new();
    let path = temp.write("model.onnx", opset_7().encode());
    embeds(&path, &opset_7(), 1e-5);
}

/// Operators without a gradient rule, or that need none: only the canonical form, against the original file.
#[test]
fn operators_that_were_replaced_compute_what_they_did() {
    load_runtime();
    let several = |mut node: Node, outputs: &[&str]| {
        node.outputs = outputs.iter().map(|o| o.to_string()).collect();
        node
    };
    let one = |op: &str| Node::new(op, &["image"], "embedding");
    let (none, scales) = (|| Weights::new(1), [1.0f32, 1.0, 2.0, 1.5]);
    let top = Node::new("TopK", &["image"], "").with("k", 3i64).with("axis", 3i64);
    let split = Node::new("Split", &["image"], "").with("axis", 2i64);
    let dropout = Node::new("Dropout", &["image"], "");
    let mut cases = vec![
        ("TopK-1", 7, several(top, &["embedding", "places"]), none()),
        ("Softmax", 9, one("Softmax").with("axis", 2i64), none()),
        ("LogSoftmax", 9, one("LogSoftmax").with("axis", 0i64), none()),
        ("Hardmax", 9, one("Hardmax"), none()),
        ("Dropout-7", 9, several(dropout, &["embedding", "mask that nobody reads"]), none()),
        ("Split-13 into equal parts", 13, several(split, &["a", "b", "embedding"]), none()),
    ];
    for mode in ["nearest", "linear"] {
        let stated = one("Upsample").with("scales", scales.to_vec());
        cases.push(("Upsample-7", 7, stated.with("mode", mode), none()));
        for (name, op, version) in [("Upsample-9", "Upsample", 9), ("Resize-10", "Resize", 10)] {
            let node = Node::new(op, &["image", "scales"], "embedding").with("mode", mode);
            cases.push((name, version, node, none().floats("scales", &[4], &scales)));
        }
    }
    // Nearest rounds up along axes that shrink: at 0.75, outputs 0, 1, 2 are pixels 0, 2, 3.
    let resized = || Node::new("Resize", &["image", "scales"], "embedding").with("mode", "nearest");
    for (name, scales) in [
        ("Resize-10 that shrinks", [1.0, 1.0, 0.75, 0.75]),
        ("Resize-10 of one axis", [1.0, 1.0, 1.0, 0.75]),
        ("Resize-10 that shrinks and grows", [1.0f32, 1.0, 0.75, 1.5]),
    ] {
        cases.push((name, 10, resized(), none().floats("scales", &[4], &scales)));
    }
    // Without the attribute that version 16 added, whose default differs.
    let regions = Node::new("RoiAlign", &["image", "regions", "images"], "embedding")
        .with("output_height", 2i64)
        .with("output_width", 2i64)
        .with("sampling_ratio", 2i64);
    let boxes = none().floats("regions", &[2, 4], &[1.0, 2.0, 8.0, 9.0, 0.5, 0.5, 6.0, 4.0]);
    cases.push(("RoiAlign-10", 10, regions, boxes.ints("images", &[0, 1])));
    for (name, version, node, weights) in cases {
        let mut graph = grey(vec![node], weights);
        graph.opsets.insert(String::new(), version);
        graph.outputs[0].shape = None;
        graph.outputs[0].dtype = DType::Other(0);
        let canonical = Graph::decode(graph.encode().into(), Path::new(name)).unwrap();
        assert_eq!(canonical.opsets[""], onnx_grad::operators::OPSET);
        let x = pixels(2 * 144);
        let shape = [2, 1, SIDE, SIDE];
        let expected = as_onnx_runtime(&graph, &shape, &x);
        let found = outputs(&canonical, &shape, &x);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-6, "{name}: {a} where {b} is expected");
        }
    }
}

/// Open sizes must be stated, and then hold.
#[test]
fn open_sizes_are_asked_for() {
    let nodes = vec![
        Node::new("Conv", &["image", "w"], "c"),
        Node::new("Sigmoid", &["c"], "s"),
        Node::new("GlobalAveragePool", &["s"], "embedding"),
    ];
    let mut graph = grey(nodes, Weights::new(1).normal("w", &[DIM, 1, 3, 3], 1.0));
    let open = |name: &str| Dim::Free(name.into());
    let shape = vec![open("n"), Dim::Known(1), open("h"), open("w")];
    graph.inputs = vec![Value { name: "image".into(), dtype: DType::F32, shape: Some(shape) }];
    graph.outputs = vec![value("embedding", free(), &[DIM, 1, 1])];
    says(&try_audit(&graph, 1, &[]).unwrap_err().message, &["--size"]);
    let report = audited(&graph, 1, &["--size", "14x10"]);
    assert_eq!((report.model.preprocessing.height, report.model.preprocessing.width), (14, 10));
    assert_eq!((report.model.dim, report.model.output.as_str()), (DIM as usize, "embedding"));
    // The protocol follows from the size; its constants are those of the published evaluation code.
    for (size, protocol, eps) in [("32", "rob28", 0.30196), ("33", "rob224", 0.03137)] {
        let report = try_audit(&graph, 1, &["--size", size]).unwrap();
        assert_eq!((report.suite.protocol.to_string().as_str(), report.suite.eps), (protocol, eps));
        let most = report.outcomes.iter().fold(0.0f32, |m, o| m.max(o.linf));
        assert!(most <= eps + 1e-6, "{most}");
    }
}

#[test]
fn flags_override_the_suite() {
    let args = ["--eps", "8/255", "--alpha", "0.01", "--steps", "3", "--seed", "9", "--form", "corrected"];
    let report = audited(&small(), 1, &[&args[..], &["--protocol", "rob224"]].concat());
    let s = &report.suite;
    assert_eq!((s.eps, s.alpha, s.steps, s.queries), ((8.0f64 / 255.0) as f32, 0.01, 3, 3));
    let (form, protocol) = (s.form.to_string(), s.protocol.to_string());
    assert_eq!((form.as_str(), protocol.as_str(), report.seed), ("corrected", "rob224", 9));
    // Three steps of 0.01 move by at most 0.03, within the 0.0314 allowed.
    let most = report.outcomes.iter().fold(0.0f32, |m, o| m.max(o.linf));
    assert!(most > 0.0299 && most < 0.0301, "{most}");
    assert!(report.outcomes.iter().all(|o| o.steps <= 3));
}

/// From the oldest supported opset to the newest that this ONNX Runtime takes.
#[test]
fn every_opset_of_the_runtime_is_read() {
    load_runtime();
    let temp = Temp::new();
    let mut newest = 0;
    for version in 7..40 {
        let mut graph = small();
        graph.opsets.insert(String::new(), version);
        let as_is = Graph::decode_as_is(graph.encode().into(), Path::new("test")).unwrap();
        if let Err(e) = Session::new(&as_is, CPU, Optimise::Off) {
            let words =
                [format!("uses opset {version}"), format!("{newest} is the newest"), "older one".into()];
            says(&e.message, &words.each_ref().map(String::as_str));
            break;
        }
        newest = version;
        embeds(&temp.write("model.onnx", graph.encode()), &graph, 1e-6);
    }
    assert!(newest >= 24, "stopped at opset {newest}");
    println!("opsets 7 to {newest}");
}

#[test]
fn half_precision_is_audited_in_float32_and_said_so() {
    let mut graph = small();
    graph.inputs[0].dtype = DType::F16;
    graph.nodes.insert(0, Node::new("Cast", &["image"], "wide").with("to", 1i64));
    graph.nodes[1].inputs[0] = "wide".into();
    let report = try_audit(&graph, 1, &[]).unwrap();
    says(&warning(&report, "precision"), &["float16", "float32"]);
}

/// Half of the image passes through rounding to 1/2000, which finite differences see and the gradient does
/// not.
#[test]
fn a_gradient_that_misses_a_part_is_not_audited() {
    let front = vec![
        Node::new("Mul", &["image", "levels"], "scaled"),
        Node::new("Round", &["scaled"], "rounded"),
        Node::new("Div", &["rounded", "levels"], "coarse"),
        Node::new("Add", &["image", "coarse"], "both"),
    ];
    let weights = trunk_weights(Weights::new(1), "", 1).floats("levels", &[], &[2000.0]);
    let graph = grey([front, trunk("both", "embedding", "")].concat(), weights);
    let error = try_audit(&graph, 1, &[]).unwrap_err();
    assert_eq!(error.exit, Exit::Untrusted, "{error}");
    says(&error.message, &["gradient fails its check", "Round \"rounded\""]);
}

#[test]
fn flat_operators_that_hardly_matter_are_reported() {
    let nodes = vec![
        Node::new("ReduceMean", &["image", "all"], "mean").with("keepdims", 1i64),
        Node::new("Flatten", &["mean"], "light"),
        Node::new("Floor", &["light"], "bright"),
        Node::new("Add", &["e", "bright"], "embedding"),
    ];
    let graph = before(nodes, Weights::new(1).ints("all", &[1, 2, 3]));
    let report = audited(&graph, 1, &[]);
    says(&warning(&report, "flat-operators"), &["Floor \"bright\""]);
}

/// Every suite, form and metric on the built-in images runs and gives its scores.
#[test]
fn every_suite_runs_on_the_built_in_images() {
    let temp = Temp::new();
    let model = temp.write("model.onnx", small().encode()).display().to_string();
    let quick = ["--max-queries", "5", "--steps", "4", "--strong-sample", "off"];
    for suite in ["ers", "ars", "full", "ers-strict", "ars-strict", "smoke"] {
        let report = audit(&[&[model.as_str(), "--suite", suite], &quick[..]].concat()).unwrap();
        assert_eq!(report.suite.name, suite);
        assert_eq!((report.suite.queries, report.suite.protocol.to_string().as_str()), (5, "rob28"));
        let strict = suite.ends_with("strict");
        assert_eq!(report.suite.form.to_string(), if strict { "corrected" } else { "published" });
        assert_eq!(report.suite.schedule.to_string(), if strict { "adaptive" } else { "fixed" });
        let (ers, ars) = (&report.scores.ers, &report.scores.ars);
        assert_eq!(ers.is_some(), !suite.starts_with("ars"), "{suite}: {:?}", report.scores.notes);
        assert_eq!(ars.is_some(), !suite.starts_with("ers"), "{suite}: {:?}", report.scores.notes);
        for score in [ers, ars].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&score.value), "{suite}: {}", score.value);
        }
        assert!(report.data.classes >= 40 && report.data.images >= 40 * 20, "{:?}", report.data);
        let clean = report.benign.as_ref().unwrap();
        assert!(clean.r1 > 100.0 / report.data.classes as f64, "{clean:?}");
        assert!(report.warnings.iter().any(|w| w.id == "built-in-data"));
    }
}

#[test]
fn every_metric_runs_in_both_forms() {
    let mut maps = Vec::new();
    for metric in ["normalized-euclidean", "euclidean", "cosine"] {
        for form in ["published", "corrected"] {
            let line = format!("--suite full --steps 4 --metric {metric} --form {form} --strong-sample off");
            let report = Bench::new(&small(), 5, 4, 1).audit(&words(&line)).unwrap();
            let stated = (report.model.metric.to_string(), report.suite.form.to_string());
            assert_eq!(stated, (metric.into(), form.into()));
            assert_eq!(report.attacks.len(), 10);
            assert!(report.attacks.iter().all(|a| a.after.is_some()), "{metric} {form}");
            assert!(report.scores.ars.is_some());
            // Euclidean embeddings have no scale that ES:D could be a share of: a note, and no score.
            assert_eq!(report.scores.ers.is_some(), metric != "euclidean");
            let said = report.scores.notes.iter().any(|n| n.contains("no ERS"));
            assert_eq!(said, metric == "euclidean", "{:?}", report.scores.notes);
            // Each attack minimises its loss: after 4 steps it is no higher than at the start.
            let worse = report.outcomes.iter().filter(|o| o.loss_last > o.loss_first + 1e-6).count();
            assert!(worse * 10 <= report.outcomes.len(), "{metric} {form}: {worse} trials got worse");
            maps.push(report.benign.as_ref().unwrap().map);
        }
    }
    // Cosine ranks as the normalised Euclidean distance does; the plain Euclidean distance doesn't.
    assert!((maps[0] - maps[4]).abs() < 1e-6 && (maps[0] - maps[2]).abs() > 1e-6, "{maps:?}");
}

/// A file may store values in fields that this crate doesn't write: typed lists instead of raw bytes,
/// Constant nodes, weights among the inputs.
#[test]
fn constants_may_be_nodes() {
    let mut graph = small();
    let weight: Tensor = graph.constants.remove("w2").unwrap();
    graph.nodes.insert(0, Node::new("Constant", &[], "w2").with("value", weight));
    graph.inputs.push(Value::new("w1", DType::F32, &[4, 1, 3, 3]));
    let found = audited(&graph, 1, &[]);
    assert_eq!(found.benign.as_ref().unwrap().map, audited(&small(), 1, &[]).benign.as_ref().unwrap().map);
}

//! Refusals that name a command.

use super::pasted;
use crate::common::models::{Weights, free, grey, images, subgraph, trunk, trunk_weights, value};
use crate::common::{Temp, says};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Value};

/// Models that are refused as they are, each with the subject of its refusal.
fn refused() -> Vec<(&'static str, Graph)> {
    let sized = |name: &str, sides: [Dim; 2]| {
        let [height, width] = sides;
        let shape = Some(vec![free(), Dim::Known(1), height, width]);
        Value { name: name.into(), dtype: DType::F32, shape }
    };
    let open = || [Dim::Free("h".into()), Dim::Free("w".into())];
    let any = |name: &str| Value { name: name.into(), dtype: DType::F32, shape: None };
    let weights = || trunk_weights(Weights::new(1), "", 1);
    let trunk = || trunk("image", "embedding", "");
    let with = |more: Vec<Node>, weights: Weights, outputs: &[&str]| {
        let mut graph = grey([trunk(), more].concat(), weights);
        graph.outputs = outputs.iter().map(|name| any(name)).collect();
        graph
    };

    let pooled = vec![
        Node::new("Conv", &["image", "k"], "map"),
        Node::new("GlobalAveragePool", &["map"], "pooled"),
        Node::new("Flatten", &["pooled"], "embedding"),
    ];
    let mut convolutional = grey(pooled, Weights::new(1).normal("k", &[8, 1, 3, 3], 0.5));
    convolutional.inputs = vec![sized("image", open())];
    // As in a whole CLIP: the open size hides that texts are needed.
    let mut with_texts = convolutional.clone();
    with_texts.nodes.push(Node::new("Gemm", &["embedding", "texts"], "logits").with("transB", 1));
    with_texts.inputs.push(value("texts", Dim::Free("texts".into()), &[8]));
    with_texts.outputs = vec![any("logits")];

    let unstated = |shape: Option<Vec<Dim>>| Value { shape, ..any("image") };
    let axes = |names: [&str; 4]| Some(names.map(|name| Dim::Free(name.into())).to_vec());
    let mut open_channels = convolutional.clone();
    open_channels.inputs = vec![unstated(axes(["n", "c", "h", "w"]))];
    let mut no_shape = convolutional.clone();
    no_shape.inputs = vec![unstated(None)];
    let mut channels_last = convolutional.clone();
    let transpose = Node::new("Transpose", &["image"], "first").with("perm", vec![0i64, 3, 1, 2]);
    channels_last.nodes.insert(0, transpose);
    channels_last.nodes[1].inputs[0] = "first".into();
    channels_last.inputs = vec![unstated(axes(["n", "h", "w", "c"]))];

    let second =
        vec![Node::new("Mul", &["other", "two"], "doubled"), Node::new("Flatten", &["doubled"], "flat")];
    let mut two_inputs = with(second, weights().floats("two", &[], &[2.0]), &["embedding", "flat"]);
    two_inputs.inputs.push(value("other", free(), &[1, 12, 12]));

    let pair = vec![
        Node::new("Sub", &["embedding", "embedding2"], "difference"),
        Node::new("ReduceSumSquare", &["difference", "one"], "distance"),
    ];
    let twin = crate::common::models::trunk("image2", "embedding2", "other_");
    let mut siamese =
        with([twin, pair].concat(), trunk_weights(weights().ints("one", &[1]), "other_", 1), &["distance"]);
    siamese.inputs.push(value("image2", free(), &[1, 12, 12]));

    let halves = vec![Node::new("Neg", &["embedding"], "negated")];
    let tokens = vec![Node::new("Reshape", &["embedding", "shape"], "tokens")];
    let halved = Node::new("AveragePool", &["r1"], "halved")
        .with("kernel_shape", vec![2i64, 2])
        .with("strides", vec![2i64, 2]);
    let sequence = vec![Node::new("SequenceConstruct", &["embedding", "embedding"], "all")];
    let scores = vec![Node::new("MatMul", &["embedding", "classes"], "logits")];
    let mixed = vec![
        Node::new("Softmax", &["embedding"], "shares").with("axis", 0),
        Node::new("Add", &["embedding", "shares"], "mixed"),
    ];
    let drawn = vec![
        Node::new("RandomNormalLike", &["embedding"], "noise"),
        Node::new("Add", &["embedding", "noise"], "drawn"),
    ];
    // A loop of three steps; their number depends on the pixels.
    let nodes = vec![Node::new("Neg", &["v"], "w"), Node::new("Identity", &["go"], "on")];
    let inputs = vec![Value::new("i", DType::I64, &[]), Value::new("go", DType::Bool, &[]), any("v")];
    let body = subgraph(nodes, inputs, &["on", "w"]);
    let times = vec![
        Node::new("Mul", &["image", "zero"], "black"),
        Node::new("ReduceMax", &["black"], "most").with("keepdims", 0),
        Node::new("Add", &["most", "three"], "number"),
        Node::new("Cast", &["number"], "times").with("to", 7),
        Node::new("Loop", &["times", "", "embedding"], "turned").with("body", body),
    ];
    let numbers = weights().floats("zero", &[], &[0.0]).floats("three", &[], &[3.0]);
    vec![
        ("open size", convolutional),
        ("open channels", open_channels),
        ("open channels, which come last", channels_last),
        ("no shape", no_shape),
        ("open size and texts", with_texts),
        ("two inputs", two_inputs),
        ("two images", siamese),
        ("two outputs", with(halves, weights(), &["embedding", "negated"])),
        ("tokens", with(tokens, weights().ints("shape", &[0, 4, 2]), &["tokens"])),
        ("a map", with(vec![halved], weights(), &["halved"])),
        ("a sequence", with(sequence, weights(), &["all"])),
        ("class scores", with(scores, weights().normal("classes", &[8, 1000], 0.3), &["logits"])),
        ("a batch", with(mixed, weights(), &["mixed"])),
        ("random values", with(drawn, weights(), &["drawn"])),
        ("a loop", with(times, numbers, &["turned"])),
    ]
}

/// Each refusal advises one working command, of `audit` and of `audit inspect`.
#[test]
#[ignore = "slow"]
fn every_refusal_names_a_command_that_works() {
    let dir = Temp::new();
    images(&dir, "data", 6, 3, 1);
    let mut found = Vec::new();
    for (name, graph) in refused() {
        dir.write("m.onnx", graph.encode());
        let (code, said) = pasted(&dir, "audit m.onnx --data data --max-queries 10 -q -o r.json");
        if let Some((_, fix)) = said.split_once("\nfix: ") {
            assert!(matches!(code, Some(2 | 3 | 12)) && !dir.join("r.json").exists(), "{name}: {said}");
            let fix = fix.lines().next().unwrap();
            says(fix, &["audit m.onnx --data data --max-queries 10 -q -o r.json --"]);
            let (code, said) = pasted(&dir, fix);
            assert!(matches!(code, Some(0 | 12)), "{name}: {fix}: {said}");
            found.push(name);
        }
        assert!(dir.join("r.json").exists(), "{name}: {said}");
        std::fs::remove_file(dir.join("r.json")).unwrap();

        let (_, said) = pasted(&dir, "audit inspect m.onnx --json 2>/dev/null");
        let next = serde_json::from_str::<serde_json::Value>(&said).unwrap()["next"].clone();
        let next: Vec<&str> = next.as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
        let [line] = next.iter().filter(|line| line.starts_with("audit ")).collect::<Vec<_>>()[..] else {
            panic!("{name}: {next:?}")
        };
        let (code, said) = pasted(&dir, &format!("{line} --data data -q"));
        assert!(matches!(code, Some(0 | 12)) && dir.join("m-audit.html").exists(), "{name}: {line}: {said}");
        std::fs::remove_file(dir.join("m-audit.html")).unwrap();
    }
    // Class scores are audited, with a warning; `inspect` names the value before the classifier.
    let all: Vec<&str> = refused().iter().map(|(name, _)| *name).collect();
    assert_eq!(found, all.into_iter().filter(|name| *name != "class scores").collect::<Vec<_>>());
}

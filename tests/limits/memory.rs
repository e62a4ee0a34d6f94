//! Models that would take all memory or all time: refused, or bounded, with a message.

use crate::common::models::{Weights, grey, stage, trunk, trunk_weights};
use crate::common::{Ran, Temp, program, run, says};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Node, Tensor, Value};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Memory limit of the models here.
const LIMIT: &str = "1G";

/// No C++ reaches the user.
#[track_caller]
fn plain(name: &str, said: &str) {
    for raw in [
        "onnxruntime_src",
        "Status Message",
        "Non-zero status",
        "::",
        "BFCArena",
        ".cc:",
        "[ShapeInference",
        "Exception during",
    ] {
        assert!(!said.contains(raw), "{name}: {raw:?} in {said}");
    }
}

/// Embeds an image by a trunk, and adds one number: the sum of `big`, a float value that `nodes` compute.
fn bomb(nodes: Vec<Node>, constants: &[(&str, Tensor)], big: &str) -> Graph {
    let behind = vec![
        Node::new("ReduceSum", &[big], "sum").with("keepdims", 0i64),
        Node::new("Add", &["e", "sum"], "embedding"),
    ];
    let mut graph =
        grey([trunk("image", "e", ""), nodes, behind].concat(), trunk_weights(Weights::new(1), "", 1));
    graph.constants.extend(constants.iter().map(|(name, t)| (name.to_string(), t.clone())));
    graph
}

fn named(mut node: Node) -> Node {
    node.name = "bomb".into();
    node
}

fn cast(from: &str, to: &str, dtype: DType) -> Node {
    Node::new("Cast", &[from], to).with("to", dtype.code() as i64)
}

/// A graph within a node.
fn body(nodes: Vec<Node>, constants: &[(&str, Tensor)], inputs: Vec<Value>, outputs: &[&str]) -> Attr {
    let constants: BTreeMap<String, Tensor> =
        constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs = inputs;
    graph.outputs =
        outputs.iter().map(|name| Value { name: name.to_string(), dtype: DType::F32, shape: None }).collect();
    Attr::Graph(Box::new(graph))
}

/// Models that need 8 GiB or far more, with the operator that does, and how much of its size is known.
fn bombs() -> Vec<(&'static str, Graph, &'static [&'static str])> {
    let ints = Tensor::ints;
    let fill = |shape: &str| named(Node::new("ConstantOfShape", &[shape], "big"));
    let shape_of_image = || Node::new("Shape", &["image"], "shape");
    let sum = |big: &str, out: &str| Node::new("ReduceSum", &[big], out).with("keepdims", 0i64);
    let mut all: Vec<(&'static str, Graph, &'static [&'static str])> = vec![
        (
            "constant",
            bomb(vec![fill("to")], &[("to", ints(&[1 << 31]))], "big"),
            &["ConstantOfShape \"bomb\"", "shape [2147483648]", "8.0 GiB"],
        ),
        (
            "by a product",
            bomb(
                vec![Node::new("Mul", &["a", "b"], "to"), fill("to")],
                &[("a", ints(&[1 << 16])), ("b", ints(&[1 << 15]))],
                "big",
            ),
            &["ConstantOfShape \"bomb\"", "8.0 GiB"],
        ),
        (
            "by floats and a concatenation",
            bomb(
                vec![
                    cast("a", "f", DType::F32),
                    Node::new("Mul", &["f", "b"], "g"),
                    Node::new("Floor", &["g"], "h"),
                    cast("h", "i", DType::I64),
                    Node::new("Concat", &["i", "a"], "to").with("axis", 0i64),
                    fill("to"),
                ],
                &[("a", ints(&[1 << 10])), ("b", Tensor::f32(&[1], &[2048.0]))],
                "big",
            ),
            &["ConstantOfShape \"bomb\"", "8.0 GiB"],
        ),
        (
            "by a chain of shapes",
            bomb(
                vec![
                    Node::new("ConstantOfShape", &["three"], "zeros")
                        .with("value", Attr::Tensor(Tensor::ints(&[1 << 10]))),
                    Node::new("Cast", &["zeros"], "to").with("to", DType::I64.code() as i64),
                    fill("to"),
                ],
                &[("three", ints(&[4]))],
                "big",
            ),
            &["ConstantOfShape \"bomb\"", "4096.0 GiB"],
        ),
        (
            "by the image's shape",
            bomb(
                vec![
                    shape_of_image(),
                    Node::new("Mul", &["shape", "by"], "to"),
                    named(Node::new("Expand", &["one", "to"], "big")),
                ],
                &[("by", ints(&[1, 1 << 10, 1 << 10, 16])), ("one", Tensor::f32(&[1], &[1.0]))],
                "big",
            ),
            &["Expand \"bomb\"", "GiB"],
        ),
        (
            "by the image's values",
            bomb(
                vec![
                    Node::new("NonZero", &["image"], "places"),
                    Node::new("Shape", &["places"], "shape"),
                    Node::new("Add", &["shape", "more"], "to"),
                    fill("to"),
                ],
                &[("more", ints(&[1 << 16, 1 << 15]))],
                "big",
            ),
            &["ConstantOfShape \"bomb\" needs 8.0 GiB more"],
        ),
        (
            "tile",
            bomb(
                vec![named(Node::new("Tile", &["image", "times"], "big"))],
                &[("times", ints(&[1, 1, 1 << 12, 1 << 12]))],
                "big",
            ),
            &["Tile \"bomb\"", "GiB"],
        ),
        (
            "expand",
            bomb(
                vec![
                    Node::new("Unsqueeze", &["e", "axes"], "x"),
                    named(Node::new("Expand", &["x", "to"], "big")),
                ],
                &[("axes", ints(&[2, 3])), ("to", ints(&[1, 8, 1 << 15, 1 << 13]))],
                "big",
            ),
            &["Expand \"bomb\"", "GiB"],
        ),
        (
            "range",
            bomb(
                vec![
                    named(Node::new("Range", &["zero", "end", "one"], "many")),
                    cast("many", "big", DType::F32),
                ],
                &[
                    ("zero", Tensor::i64(&[], &[0])),
                    ("end", Tensor::i64(&[], &[1 << 31])),
                    ("one", Tensor::i64(&[], &[1])),
                ],
                "big",
            ),
            &["Range \"bomb\"", "16.0 GiB"],
        ),
        (
            "pad",
            bomb(
                vec![named(Node::new("Pad", &["image", "by"], "big"))],
                &[("by", ints(&[0, 0, 1 << 15, 1 << 15, 0, 0, 0, 0]))],
                "big",
            ),
            &["Pad \"bomb\"", "GiB"],
        ),
        (
            "resize",
            bomb(
                vec![named(Node::new("Resize", &["image", "", "scales"], "big"))],
                &[("scales", Tensor::f32(&[4], &[1.0, 1.0, 4096.0, 4096.0]))],
                "big",
            ),
            &["Resize \"bomb\"", "GiB"],
        ),
        (
            "one hot",
            bomb(
                vec![named(Node::new("OneHot", &["at", "depth", "off_on"], "big"))],
                &[
                    ("at", ints(&[0, 1])),
                    ("depth", Tensor::i64(&[], &[1 << 31])),
                    ("off_on", Tensor::f32(&[2], &[0.0, 1.0])),
                ],
                "big",
            ),
            &["OneHot \"bomb\"", "16.0 GiB"],
        ),
        (
            "outer product",
            bomb(
                vec![
                    Node::new("ConstantOfShape", &["tall"], "column"),
                    Node::new("ConstantOfShape", &["flat"], "row"),
                    named(Node::new("MatMul", &["column", "row"], "big")),
                ],
                &[("tall", ints(&[1 << 16, 1])), ("flat", ints(&[1, 1 << 15]))],
                "big",
            ),
            &["MatMul \"bomb\"", "8.0 GiB"],
        ),
        (
            "broadcast",
            bomb(
                vec![
                    Node::new("ConstantOfShape", &["tall"], "column"),
                    Node::new("ConstantOfShape", &["flat"], "row"),
                    named(Node::new("Add", &["column", "row"], "big")),
                ],
                &[("tall", ints(&[1 << 16, 1])), ("flat", ints(&[1, 1 << 15]))],
                "big",
            ),
            &["Add \"bomb\"", "8.0 GiB"],
        ),
        (
            "transposed convolution",
            bomb(
                vec![named(
                    Node::new("ConvTranspose", &["image", "kernel"], "big")
                        .with("strides", vec![4096i64, 4096]),
                )],
                &[("kernel", Tensor::f32(&[1, 1, 1, 1], &[1.0]))],
                "big",
            ),
            &["ConvTranspose \"bomb\"", "GiB"],
        ),
        (
            "many constants",
            bomb(
                [
                    (0..8).map(|i| Node::new("ConstantOfShape", &["to"], &format!("k{i}"))).collect(),
                    (0..8).map(|i| sum(&format!("k{i}"), &format!("t{i}"))).collect(),
                    vec![Node::new("Sum", &["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"], "big")],
                ]
                .concat(),
                &[("to", ints(&[1 << 26]))],
                "big",
            ),
            &["constants", "ConstantOfShape \"k4\"", "1.2 GiB"],
        ),
        (
            "beyond all counting",
            bomb(vec![fill("to")], &[("to", ints(&[1 << 40, 1 << 40]))], "big"),
            &["ConstantOfShape \"bomb\"", "more than 2^64 bytes"],
        ),
        (
            "times beyond all counting",
            bomb(
                vec![named(Node::new("Tile", &["image", "times"], "big"))],
                &[("times", ints(&[1, 1, 1 << 40, 1 << 40]))],
                "big",
            ),
            &["Tile \"bomb\"", "more than"],
        ),
    ];
    // The same nodes within graphs that the image chooses, so that nothing folds them away.
    let huge = || {
        body(
            vec![named(Node::new("ConstantOfShape", &["to"], "inner")), sum("inner", "s")],
            &[("to", ints(&[1 << 31]))],
            vec![],
            &["s"],
        )
    };
    let none = || body(vec![], &[("s", Tensor::f32(&[], &[0.0]))], vec![], &["s"]);
    let choose = || vec![sum("image", "bright"), Node::new("Greater", &["bright", "limit"], "on")];
    let branch = |then: Attr, otherwise: Attr| {
        let mut node = Node::new("If", &["on"], "big");
        node.attrs = [("then_branch".to_string(), then), ("else_branch".to_string(), otherwise)].into();
        bomb([choose(), vec![node]].concat(), &[("limit", Tensor::f32(&[], &[1e30]))], "big")
    };
    all.push(("a branch that is taken", branch(none(), huge()), &["ConstantOfShape \"bomb\"", "8.0 GiB"]));
    all.push(("a branch that is not", branch(huge(), none()), &["ConstantOfShape \"bomb\"", "8.0 GiB"]));
    let scalar = |name: &str, dtype: DType| Value::new(name, dtype, &[]);
    let mut repeat = Node::new("Loop", &["count", "", "start"], "big");
    repeat.attrs = [(
        "body".to_string(),
        body(
            vec![
                Node::new("Identity", &["go"], "goes"),
                named(Node::new("ConstantOfShape", &["to"], "inner")),
                sum("inner", "s"),
                Node::new("Add", &["state", "s"], "next"),
            ],
            &[("to", ints(&[1 << 31]))],
            vec![scalar("i", DType::I64), scalar("go", DType::Bool), scalar("state", DType::F32)],
            &["goes", "next"],
        ),
    )]
    .into();
    if let Some(Attr::Graph(inner)) = repeat.attrs.get_mut("body") {
        inner.outputs[0].dtype = DType::Bool;
    }
    all.push((
        "a loop",
        bomb(vec![repeat], &[("count", Tensor::i64(&[], &[2])), ("start", Tensor::f32(&[], &[0.0]))], "big"),
        &["ConstantOfShape", "8.0 GiB"],
    ));
    all
}

/// Runs the program to its end, and returns its peak memory, in bytes.
#[cfg(unix)]
#[allow(clippy::zombie_processes)] // wait4 waits, which also tells the memory.
fn run_measured(dir: &Temp, args: &[&str]) -> (Ran, u64) {
    let files = ["stdout", "stderr"].map(|name| dir.join(name));
    let [out, err] = files.clone().map(|path| std::fs::File::create(path).unwrap());
    let child = program(dir).args(args).stdout(out).stderr(err).spawn().unwrap();
    let mut status = 0;
    // SAFETY: the child is not waited for elsewhere, and the call writes to locals of the right types.
    #[allow(unsafe_code)]
    let (ended, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (libc::wait4(child.id() as i32, &mut status, 0, &mut usage), usage)
    };
    assert_eq!(ended, child.id() as i32);
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let [out, err] = files.map(|path| std::fs::read_to_string(path).unwrap());
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    (Ran { code, out, err }, usage.ru_maxrss as u64 * unit)
}

#[cfg(not(unix))]
fn run_measured(dir: &Temp, args: &[&str]) -> (Ran, u64) {
    (run(dir, args), 0)
}

/// The output, on one line.
fn output_line(done: &Ran) -> String {
    format!("{}{}", done.out, done.err).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each model needs at least eight times its limit: refused at once with the node and its size, and without
/// using the memory.
#[test]
fn memory_bombs_are_refused() {
    let dir = Temp::new();
    for (name, graph, words) in bombs() {
        dir.write("model.onnx", graph.encode());
        let began = Instant::now();
        let (done, most) = run_measured(&dir, &["inspect", "model.onnx", "--memory", LIMIT]);
        let (spent, text) = (began.elapsed(), output_line(&done));
        println!("{name}, {:.1} s: {text}", spent.as_secs_f64());
        assert_eq!(done.code, Some(3), "{name}: {text}");
        for word in words.iter().chain(&["--memory allows 1.0 GiB", "--memory SIZE"]) {
            assert!(text.contains(word), "{name}: no {word:?} in {text}");
        }
        plain(name, &text);
        // Two seconds, and as much again on a busy machine.
        assert!(spent < Duration::from_secs(10), "{name}: {spent:?}");
        assert!(most < 700 << 20, "{name}: {most} bytes");
    }
}

/// Every command that loads a model refuses it, whatever it does first.
#[test]
fn every_command_keeps_to_the_memory() {
    let dir = stage(2, 2);
    let (_, graph, words) = bombs().swap_remove(5);
    dir.write("model.onnx", graph.encode());
    for command in [
        &["model.onnx", "--data", "data", "-q"][..],
        &["model.onnx", "--data", "data", "-q", "--gradient", "estimate"],
        &["doctor", "model.onnx", "--data", "data", "-q"],
        &["geometry", "model.onnx", "--data", "data", "-q", "-o", "out.json"],
        &["embed", "model.onnx", "--data", "data", "-q", "-o", "out.parquet"],
        &["grad", "model.onnx", "-o", "out.onnx"],
    ] {
        let (done, most) = run_measured(&dir, &[command, &["--memory", LIMIT]].concat());
        let text = output_line(&done);
        assert_eq!(done.code, Some(3), "{command:?}: {text}");
        says(&text, words);
        plain(command[0], &text);
        assert!(most < 700 << 20, "{command:?}: {most} bytes");
    }
}

/// A model whose values fit into the memory one by one, but not all those that a gradient needs.
#[test]
fn values_of_a_gradient_count_too() {
    let dir = stage(2, 2);
    let mut nodes = vec![Node::new("Expand", &["image", "to"], "x0")];
    // Each takes 256 MB for an image, and the backward pass needs it.
    nodes.extend((0..12).map(|i| Node::new("Sigmoid", &[&format!("x{i}")], &format!("x{}", i + 1))));
    let to = Tensor::ints(&[1, 466_033, 12, 12]);
    dir.write("model.onnx", bomb(nodes, &[("to", to)], "x12").encode());
    let args = ["model.onnx", "--data", "data", "-q", "--memory", LIMIT, "--batch", "1", "--threads", "1"];
    let (done, most) = run_measured(&dir, &args);
    let text = output_line(&done.ended(3));
    says(&text, &["needs 256 MiB more", "--memory allows 1.0 GiB", "--memory SIZE"]);
    plain("gradient", &text);
    assert!(most < 1400 << 20, "{most} bytes");
}

/// A model that needs more than the limit is taken under a higher one.
#[test]
fn the_limit_is_the_users() {
    let dir = Temp::new();
    let fill = Node::new("ConstantOfShape", &["to"], "big");
    dir.write("model.onnx", bomb(vec![fill], &[("to", Tensor::ints(&[1 << 24]))], "big").encode());
    let done = run(&dir, &["inspect", "model.onnx", "--memory", "32M"]).ended(3);
    says(&output_line(&done), &["64 MiB, and --memory allows 32 MiB"]);
    run(&dir, &["inspect", "model.onnx", "--memory", "1G"]).ended(0);
    run(&dir, &["inspect", "model.onnx"]).ended(0);
    let done = run(&dir, &["inspect", "model.onnx", "--memory", "much"]).ended(2);
    says(&done.err, &["a size such as 4G or 512M"]);
}

/// Whatever a kernel says of a graph that can't be computed is said in our words, with exit code 3.
#[test]
fn failing_nodes_are_named_without_the_source() {
    let dir = Temp::new();
    // Indices and shapes that only a run knows.
    let beyond = vec![
        Node::new("Greater", &["image", "low"], "on"),
        cast("on", "zeros", DType::I64),
        Node::new("Add", &["zeros", "seven"], "at"),
        named(Node::new("Gather", &["table", "at"], "big")),
    ];
    let beyond = bomb(
        beyond,
        &[
            ("low", Tensor::f32(&[], &[1e30])),
            ("seven", Tensor::i64(&[], &[7])),
            ("table", Tensor::f32(&[3], &[1.0, 2.0, 3.0])),
        ],
        "big",
    );
    let reshape = vec![
        Node::new("NonZero", &["image"], "places"),
        Node::new("Shape", &["places"], "shape"),
        Node::new("Add", &["shape", "seven"], "to"),
        named(Node::new("Reshape", &["image", "to"], "big")),
    ];
    let reshape = bomb(reshape, &[("seven", Tensor::i64(&[1], &[7]))], "big");
    for (name, graph) in [("Gather", beyond), ("Reshape", reshape)] {
        dir.write("model.onnx", graph.encode());
        let done = run(&dir, &["inspect", "model.onnx"]).ended(3);
        let text = output_line(&done);
        println!("{text}");
        says(&text, &[&format!("{name} \"bomb\": ")]);
        plain(name, &text);
    }
}

/// Products of large factors, one after another: minutes, in little memory.
fn slow() -> Graph {
    let mut nodes = vec![
        Node::new("ReduceMean", &["image"], "mean").with("keepdims", 0i64),
        Node::new("Expand", &["mean", "to"], "a"),
        Node::new("MatMul", &["a", "a"], "p0"),
    ];
    nodes.extend((0..40).map(|i| Node::new("MatMul", &[&format!("p{i}"), "a"], &format!("p{}", i + 1))));
    bomb(nodes, &[("to", Tensor::ints(&[8192, 8192]))], "p40")
}

#[test]
#[ignore = "slow"]
fn inspect_says_what_it_does_and_ends_within_its_bound() {
    let dir = Temp::new();
    dir.write("model.onnx", slow().encode());
    let began = Instant::now();
    let args = ["inspect", "model.onnx", "--json", "--memory", "4G", "--time-limit", "5s"];
    let done = run(&dir, &args).ended(0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let found: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(found["cost"], serde_json::Value::Null);
    assert_eq!(found["embedding"]["dim"], 8);
    says(found["not_measured"].as_str().unwrap(), &["time of a forward pass", "5 s", "--time-limit"]);
    says(&done.err, &["inspect: timing a forward pass, 2 s so far"]);
    let done = run(&dir, &["inspect", "model.onnx", "--memory", "4G", "--time-limit", "1s"]).ended(0);
    says(&done.out, &["an audit    not measured: the time of a forward pass"]);
    // Within so short a time nothing is known of a file.
    let done = run(&dir, &["inspect", "model.onnx", "--memory", "4G", "--time-limit", "0.000001"]).ended(3);
    says(&output_line(&done), &["whether it can be audited is unknown", "--time-limit"]);
    let done = run(&dir, &["inspect", "model.onnx", "--time-limit", "soon"]).ended(2);
    says(&done.err, &["a time such as 30s or 5min"]);
}

/// Ctrl-C while ONNX Runtime computes, in commands that listen for it and in one that doesn't.
#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn every_command_ends_at_once_if_interrupted() {
    let dir = stage(2, 2);
    dir.write("model.onnx", slow().encode());
    for command in [
        &["inspect", "model.onnx"][..],
        &["grad", "model.onnx", "-o", "out.onnx"],
        &["model.onnx", "--data", "data"],
        &["doctor", "model.onnx", "--data", "data"],
        &["embed", "model.onnx", "--data", "data", "-o", "out.parquet"],
    ] {
        let mut started = program(&dir);
        started.args(command).args(["--memory", "4G", "--batch", "1", "--threads", "1"]);
        let child = started.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        let began = Instant::now();
        // SAFETY: a signal to a child of this process that is not waited for yet.
        #[allow(unsafe_code)]
        let sent = unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        assert_eq!(sent, 0);
        let output = child.wait_with_output().unwrap();
        let (spent, err) = (began.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned());
        println!("{command:?}: {spent:?} {err}");
        assert_eq!(output.status.code(), Some(130), "{command:?}: {err}");
        assert!(err.contains("interrupted"), "{command:?}: {err}");
        // A second, for the system to reclaim the memory, and for a busy machine.
        assert!(spent < Duration::from_secs(4), "{command:?}: {spent:?}");
    }
}

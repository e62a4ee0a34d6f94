//! Models that would take all memory or all time: refused, or bounded, with a message.

use crate::common::models::{Weights, before, stage};
use crate::common::{Ran, Temp, one_line, program, run, says};
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
    let cpp = ["onnxruntime_src", "Status Message", "Non-zero status", "::", "BFCArena", ".cc:"];
    for raw in cpp.into_iter().chain(["[ShapeInference", "Exception during"]) {
        assert!(!said.contains(raw), "{name}: {raw:?} in {said}");
    }
}

/// Embeds an image by a trunk, and adds one number: the sum of `big`, a float value that `nodes` compute.
fn bomb(nodes: Vec<Node>, constants: &[(&str, Tensor)], big: &str) -> Graph {
    let behind = vec![
        Node::new("ReduceSum", &[big], "sum").with("keepdims", 0i64),
        Node::new("Add", &["e", "sum"], "embedding"),
    ];
    let mut graph = before([nodes, behind].concat(), Weights::new(1));
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

fn body(nodes: Vec<Node>, constants: &[(&str, Tensor)], inputs: Vec<Value>, outputs: &[&str]) -> Attr {
    let constants: BTreeMap<String, Tensor> =
        constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs = inputs;
    graph.outputs =
        outputs.iter().map(|name| Value { name: name.to_string(), dtype: DType::F32, shape: None }).collect();
    Attr::Graph(Box::new(graph))
}

/// A model that needs 8 GiB or far more, by name, and what the refusal says: the operator that does, and how
/// much of its size is known.
type Bomb = (&'static str, Graph, &'static [&'static str]);

fn bombs() -> Vec<Bomb> {
    let (ints, node) = (Tensor::ints, Node::new);
    let one = |value: i64| Tensor::i64(&[], &[value]);
    let floats = |values: &[f32]| Tensor::f32(&[values.len() as i64], values);
    let fill = |shape: &str| named(Node::new("ConstantOfShape", &[shape], "big"));
    let bomb_of = |op: &str, inputs: &[&str]| named(Node::new(op, inputs, "big"));
    let sum = |big: &str, out: &str| Node::new("ReduceSum", &[big], out).with("keepdims", 0i64);
    let mut all: Vec<Bomb> = Vec::new();
    let mut add = |name, nodes: Vec<Node>, constants: &[(&str, Tensor)], said| {
        all.push((name, bomb(nodes, constants, "big"), said));
    };
    let constant = &["ConstantOfShape \"bomb\"", "8.0 GiB"];
    let said = &["ConstantOfShape \"bomb\"", "shape [2147483648]", "8.0 GiB"];
    add("constant", vec![fill("to")], &[("to", ints(&[1 << 31]))], said);
    let nodes = vec![node("Mul", &["a", "b"], "to"), fill("to")];
    add("by a product", nodes, &[("a", ints(&[1 << 16])), ("b", ints(&[1 << 15]))], constant);
    let nodes = vec![
        cast("a", "f", DType::F32),
        node("Mul", &["f", "b"], "g"),
        node("Floor", &["g"], "h"),
        cast("h", "i", DType::I64),
        node("Concat", &["i", "a"], "to").with("axis", 0i64),
        fill("to"),
    ];
    let constants = [("a", ints(&[1 << 10])), ("b", floats(&[2048.0]))];
    add("by floats and a concatenation", nodes, &constants, constant);
    let value = Attr::Tensor(ints(&[1 << 10]));
    let zeros = node("ConstantOfShape", &["three"], "zeros").with("value", value);
    let nodes = vec![zeros, cast("zeros", "to", DType::I64), fill("to")];
    let said = &["ConstantOfShape \"bomb\"", "4096.0 GiB"];
    add("by a chain of shapes", nodes, &[("three", ints(&[4]))], said);
    let nodes = vec![
        node("Shape", &["image"], "shape"),
        node("Mul", &["shape", "by"], "to"),
        bomb_of("Expand", &["one", "to"]),
    ];
    let constants = [("by", ints(&[1, 1 << 10, 1 << 10, 16])), ("one", floats(&[1.0]))];
    add("by the image's shape", nodes, &constants, &["Expand \"bomb\"", "GiB"]);
    let nodes = vec![
        node("NonZero", &["image"], "places"),
        node("Shape", &["places"], "shape"),
        node("Add", &["shape", "more"], "to"),
        fill("to"),
    ];
    let said = &["ConstantOfShape \"bomb\" needs 8.0 GiB more"];
    add(BY_VALUES, nodes, &[("more", ints(&[1 << 16, 1 << 15]))], said);
    let times = [("times", ints(&[1, 1, 1 << 12, 1 << 12]))];
    add("tile", vec![bomb_of("Tile", &["image", "times"])], &times, &["Tile \"bomb\"", "GiB"]);
    let nodes = vec![node("Unsqueeze", &["e", "axes"], "x"), bomb_of("Expand", &["x", "to"])];
    let constants = [("axes", ints(&[2, 3])), ("to", ints(&[1, 8, 1 << 15, 1 << 13]))];
    add("expand", nodes, &constants, &["Expand \"bomb\"", "GiB"]);
    let range = named(node("Range", &["zero", "end", "one"], "many"));
    let constants = [("zero", one(0)), ("end", one(1 << 31)), ("one", one(1))];
    let nodes = vec![range, cast("many", "big", DType::F32)];
    add("range", nodes, &constants, &["Range \"bomb\"", "16.0 GiB"]);
    let by = [("by", ints(&[0, 0, 1 << 15, 1 << 15, 0, 0, 0, 0]))];
    add("pad", vec![bomb_of("Pad", &["image", "by"])], &by, &["Pad \"bomb\"", "GiB"]);
    let scales = [("scales", floats(&[1.0, 1.0, 4096.0, 4096.0]))];
    add("resize", vec![bomb_of("Resize", &["image", "", "scales"])], &scales, &["Resize \"bomb\"", "GiB"]);
    let constants = [("at", ints(&[0, 1])), ("depth", one(1 << 31)), ("off_on", floats(&[0.0, 1.0]))];
    let one_hot = bomb_of("OneHot", &["at", "depth", "off_on"]);
    add("one hot", vec![one_hot], &constants, &["OneHot \"bomb\"", "16.0 GiB"]);
    let sides = [("tall", ints(&[1 << 16, 1])), ("flat", ints(&[1, 1 << 15]))];
    let outer = |op: &str| {
        let column = node("ConstantOfShape", &["tall"], "column");
        vec![column, node("ConstantOfShape", &["flat"], "row"), bomb_of(op, &["column", "row"])]
    };
    add("outer product", outer("MatMul"), &sides, &["MatMul \"bomb\"", "8.0 GiB"]);
    add("broadcast", outer("Add"), &sides, &["Add \"bomb\"", "8.0 GiB"]);
    let transposed = bomb_of("ConvTranspose", &["image", "kernel"]).with("strides", vec![4096i64, 4096]);
    let kernel = [("kernel", Tensor::f32(&[1, 1, 1, 1], &[1.0]))];
    add("transposed convolution", vec![transposed], &kernel, &["ConvTranspose \"bomb\"", "GiB"]);
    let nodes = [
        (0..8).map(|i| node("ConstantOfShape", &["to"], &format!("k{i}"))).collect(),
        (0..8).map(|i| sum(&format!("k{i}"), &format!("t{i}"))).collect(),
        vec![node("Sum", &["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"], "big")],
    ];
    let said = &["constants", "ConstantOfShape \"k4\"", "1.2 GiB"];
    add("many constants", nodes.concat(), &[("to", ints(&[1 << 26]))], said);
    let said = &["ConstantOfShape \"bomb\"", "more than 2^64 bytes"];
    add("beyond all counting", vec![fill("to")], &[("to", ints(&[1 << 40, 1 << 40]))], said);
    let times = [("times", ints(&[1, 1, 1 << 40, 1 << 40]))];
    let tile = bomb_of("Tile", &["image", "times"]);
    add("times beyond all counting", vec![tile], &times, &["Tile \"bomb\"", "more than"]);
    // The same nodes within graphs that the image chooses, so that nothing folds them away.
    let huge = || {
        let nodes = vec![named(node("ConstantOfShape", &["to"], "inner")), sum("inner", "s")];
        body(nodes, &[("to", ints(&[1 << 31]))], vec![], &["s"])
    };
    let none = || body(vec![], &[("s", Tensor::f32(&[], &[0.0]))], vec![], &["s"]);
    let limit = [("limit", Tensor::f32(&[], &[1e30]))];
    for (name, then, otherwise) in
        [("a branch that is taken", none(), huge()), ("a branch that is not", huge(), none())]
    {
        let mut choice = node("If", &["on"], "big");
        choice.attrs = [("then_branch".to_string(), then), ("else_branch".to_string(), otherwise)].into();
        let nodes = vec![sum("image", "bright"), node("Greater", &["bright", "limit"], "on"), choice];
        add(name, nodes, &limit, constant);
    }
    let scalar = |name: &str, dtype: DType| Value::new(name, dtype, &[]);
    let inputs = vec![scalar("i", DType::I64), scalar("go", DType::Bool), scalar("state", DType::F32)];
    let nodes = vec![
        node("Identity", &["go"], "goes"),
        named(node("ConstantOfShape", &["to"], "inner")),
        sum("inner", "s"),
        node("Add", &["state", "s"], "next"),
    ];
    let mut inner = body(nodes, &[("to", ints(&[1 << 31]))], inputs, &["goes", "next"]);
    if let Attr::Graph(inner) = &mut inner {
        inner.outputs[0].dtype = DType::Bool;
    }
    let repeat = node("Loop", &["count", "", "start"], "big").with("body", inner);
    let constants = [("count", one(2)), ("start", Tensor::f32(&[], &[0.0]))];
    add("a loop", vec![repeat], &constants, &["ConstantOfShape", "8.0 GiB"]);
    all
}

/// The bomb whose size only the image's values tell.
const BY_VALUES: &str = "by the image's values";

/// Runs the program to its end, and returns its peak memory, in bytes.
#[cfg(unix)]
#[allow(clippy::zombie_processes)] // wait4 waits, which also tells the memory.
pub fn run_measured(dir: &Temp, args: &[&str]) -> (Ran, u64) {
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

fn output_line(done: &Ran) -> String {
    one_line(&format!("{}{}", done.out, done.err))
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
    let (_, graph, words) = bombs().into_iter().find(|(name, ..)| *name == BY_VALUES).unwrap();
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
    let done = run(&dir, ["inspect", "model.onnx", "--memory", "32M"]).ended(3);
    says(&output_line(&done), &["64 MiB, and --memory allows 32 MiB"]);
    run(&dir, ["inspect", "model.onnx", "--memory", "1G"]).ended(0);
    run(&dir, ["inspect", "model.onnx"]).ended(0);
    let done = run(&dir, ["inspect", "model.onnx", "--memory", "much"]).ended(2);
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
    let (low, seven) = (Tensor::f32(&[], &[1e30]), Tensor::i64(&[], &[7]));
    let table = Tensor::f32(&[3], &[1.0, 2.0, 3.0]);
    let beyond = bomb(beyond, &[("low", low), ("seven", seven), ("table", table)], "big");
    let reshape = vec![
        Node::new("NonZero", &["image"], "places"),
        Node::new("Shape", &["places"], "shape"),
        Node::new("Add", &["shape", "seven"], "to"),
        named(Node::new("Reshape", &["image", "to"], "big")),
    ];
    let reshape = bomb(reshape, &[("seven", Tensor::i64(&[1], &[7]))], "big");
    for (name, graph) in [("Gather", beyond), ("Reshape", reshape)] {
        dir.write("model.onnx", graph.encode());
        let done = run(&dir, ["inspect", "model.onnx"]).ended(3);
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
    let done = run(&dir, args).ended(0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let found: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(found["cost"], serde_json::Value::Null);
    assert_eq!(found["embedding"]["dim"], 8);
    says(found["not_measured"].as_str().unwrap(), &["time of a forward pass", "5 s", "--time-limit"]);
    says(&done.err, &["inspect: timing a forward pass, 2 s so far"]);
    let done = run(&dir, ["inspect", "model.onnx", "--memory", "4G", "--time-limit", "1s"]).ended(0);
    says(&done.out, &["an audit    not measured: the time of a forward pass"]);
    // Within so short a time nothing is known of a file.
    let done = run(&dir, ["inspect", "model.onnx", "--memory", "4G", "--time-limit", "0.000001"]).ended(3);
    says(&output_line(&done), &["whether it can be audited is unknown", "--time-limit"]);
    let done = run(&dir, ["inspect", "model.onnx", "--time-limit", "soon"]).ended(2);
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

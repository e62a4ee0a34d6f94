//! Loading: local functions, conditions, embeddings of every shape, and damaged files.

use crate::common::models::{subgraph, untyped};
use crate::common::transcript::portable;
use crate::common::{CPU, Rng, says};
use audit::check;
use audit::model::Model;
use audit::model::card::{Card, Pooling};
use audit::model::runtime::Options;
use audit::record::{Finding, Severity};
use ndarray::{Array2, ArrayView2};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const SIDE: i64 = 8;
const BATCH: i64 = 2;

/// A graph of grey images "x" to the outputs named, of a fixed batch.
fn grey(batch: i64, nodes: Vec<Node>, constants: &[(&str, Tensor)], outputs: &[&str]) -> Graph {
    let constants = constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut graph = Graph::new(nodes, constants);
    graph.inputs = vec![Value::new("x", DType::F32, &[batch, 1, SIDE, SIDE])];
    graph.outputs = outputs.iter().map(|o| untyped(o)).collect();
    graph
}

fn weights(shape: &[i64]) -> Tensor {
    let mut r = Rng::new(5);
    let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| 0.3 * r.normal()).collect();
    Tensor::f32(shape, &values)
}

/// A graph whose first node is a convolution to "map", [batch, 4, 3, 3].
fn mapped(batch: i64, more: &[Node], constants: &[(&str, Tensor)], outputs: &[&str]) -> Graph {
    let conv = Node::new("Conv", &["x", "w"], "map").with("strides", vec![2, 2]);
    let weights = ("w", weights(&[4, 1, 3, 3]));
    grey(batch, [&[conv], more].concat(), &[&[weights], constants].concat(), outputs)
}

/// A model file, with the runtime loaded.
fn write(name: &str, bytes: &[u8]) -> PathBuf {
    crate::common::load_runtime();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{name}.onnx"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(name: &str, graph: &Graph, pooling: Option<Pooling>, output: Option<&str>) -> audit::Result<Model> {
    let card = Card { pooling, output: output.map(str::to_string), ..Default::default() };
    Model::open(&write(name, &graph.encode()), &card, CPU, None)
}

fn pixels(batch: i64) -> Vec<f32> {
    Rng::new(9).units((batch * SIDE * SIDE) as usize)
}

/// Why the model is refused.
#[track_caller]
fn refused(name: &str, graph: &Graph, pooling: Option<Pooling>) -> String {
    portable(&open(name, graph, pooling, None).err().expect("refused").message)
}

/// The check at load: the error of the gradient, and the findings.
fn measured(model: &mut Model) -> (Option<f64>, Vec<Finding>) {
    let measured = check::load::measure(model, &pixels(BATCH), BATCH as usize, &mut |_, _| {}).unwrap();
    let findings = check::at_load(&measured);
    check::admit(&model.info, &findings, "").unwrap();
    (measured.summary().gradient_error, findings)
}

/// Our embedding, pooled in the graph, against the file's output pooled on the CPU.
fn agrees(model: &mut Model, batch: i64, dim: usize) {
    let x = pixels(batch);
    let ours: Array2<f32> = model.embed(&x).unwrap();
    let theirs = model.reference().unwrap().embed(&x).unwrap().unwrap();
    assert_eq!(ours.dim(), (batch as usize, dim));
    assert_eq!(theirs.dim(), ours.dim());
    assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-5), "{ours} {theirs}");
}

/// The reference takes any number of images, whatever its own batch and the model's.
#[test]
fn the_reference_takes_any_number_of_images() {
    let mut graph = mapped(BATCH, &[Node::new("GlobalAveragePool", &["map"], "y")], &[], &["y"]);
    for free in [false, true] {
        if free {
            graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Free("n".into());
        }
        let path = write(&format!("reference-{free}"), &graph.encode());
        let model = Model::open(&path, &Card::default(), CPU, free.then_some(64)).unwrap();
        let mut reference = model.reference().unwrap();
        let all = pixels(40);
        let mut embed = |images: &[f32]| reference.embed(images).unwrap().unwrap();
        let alone: Vec<Array2<f32>> = all.chunks(model.pixels()).map(&mut embed).collect();
        for n in [1, 3, 8, 9, 40] {
            let together = embed(&all[..n * model.pixels()]);
            assert_eq!(together.dim(), (n, 4));
            for (row, alone) in together.rows().into_iter().zip(&alone) {
                assert!(row.iter().zip(alone).all(|(a, b)| (a - b).abs() < 1e-5), "{n} images");
            }
        }
    }
}

#[test]
fn feature_maps_and_tokens_are_pooled_as_stated() {
    let graph = mapped(BATCH, &[], &[], &["map"]);
    for pooling in [Pooling::Mean, Pooling::Max] {
        agrees(&mut open("map", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
    let told = [Some(Pooling::Cls), None].map(|pooling| refused("map", &graph, pooling));
    insta::assert_snapshot!(told.join("\n\n"));

    // [batch, 9 tokens, 4]
    let columns = Node::new("Reshape", &["map", "flat"], "columns");
    let tokens = Node::new("Transpose", &["columns"], "tokens").with("perm", vec![0, 2, 1]);
    let graph = mapped(BATCH, &[columns, tokens], &[("flat", Tensor::ints(&[0, 4, -1]))], &["tokens"]);
    for pooling in [Pooling::Cls, Pooling::Mean, Pooling::Max] {
        agrees(&mut open("tokens", &graph, Some(pooling), None).unwrap(), BATCH, 4);
    }
}

#[test]
fn dimensions_of_one_and_batches_of_one_are_no_hindrance() {
    let pool = Node::new("GlobalAveragePool", &["map"], "pooled");
    let graph = mapped(BATCH, std::slice::from_ref(&pool), &[], &["pooled"]);
    agrees(&mut open("pooled", &graph, None, None).unwrap(), BATCH, 4);
    let graph = mapped(1, &[pool, Node::new("Squeeze", &["pooled"], "vector")], &[], &["vector"]);
    agrees(&mut open("vector", &graph, None, None).unwrap(), 1, 4);
}

/// ONNX Runtime's GatherND would read beyond the data.
#[test]
fn indices_of_another_batch_are_refused() {
    let places = |batch: i64| Tensor::i64(&[batch, 2, 1], &[3, 1].repeat(batch as usize));
    let nodes = || {
        let gather = Node::new("GatherND", &["flat", "where"], "y").with("batch_dims", 1);
        vec![Node::new("Flatten", &["x"], "flat"), gather]
    };
    let graph = grey(BATCH, nodes(), &[("where", places(BATCH))], &["y"]);
    agrees(&mut open("places", &graph, None, None).unwrap(), BATCH, 2);
    let graph = grey(BATCH, nodes(), &[("where", places(2 * BATCH))], &["y"]);
    insta::assert_snapshot!(refused("displaced", &graph, None));
}

/// A value of 64 TiB, which no machine has: refused before anything is computed.
#[cfg(target_os = "linux")]
#[test]
fn what_no_memory_holds_is_refused() {
    use audit::model::memory::{Bytes, limit};
    let nodes = vec![
        Node::new("Flatten", &["x"], "flat"),
        Node::new("Unsqueeze", &["flat", "axis"], "tall"),
        Node::new("Expand", &["tall", "to"], "large"),
        Node::new("ReduceSum", &["large", "axis"], "y").with("keepdims", 0),
    ];
    let row = SIDE * SIDE;
    let to = Tensor::ints(&[BATCH, (1 << 44) / row / BATCH, row]);
    let graph = grey(BATCH, nodes, &[("axis", Tensor::ints(&[1])), ("to", to)], &["y"]);
    let told = refused("large", &graph, None);
    let free = Bytes(limit().unwrap().bytes).to_string();
    insta::assert_snapshot!(told.replace(&free, "…"));
}

/// Each thread takes its own batch: results don't depend on it, whether or not images fill the batches.
#[test]
fn threads_are_nothing_to_embeddings_and_gradients() {
    let bent = Node::new("Softplus", &["map"], "bent");
    let graph = mapped(BATCH, &[bent, Node::new("GlobalAveragePool", &["bent"], "mean")], &[], &["mean"]);
    let path = write("threads", &graph.encode());
    let all = pixels(4 * BATCH);
    let cotangent = Array2::from_shape_fn((4 * BATCH as usize, 4), |(i, j)| (i + 2 * j) as f32 - 3.0);
    let with = |threads: usize| {
        let options = Options { threads, ..CPU };
        let mut model = Model::open(&path, &Card::default(), options, None).unwrap();
        assert_eq!((model.batch(), model.at_once()), (BATCH as usize, threads * BATCH as usize));
        let some = model.embed(&all[..all.len() - model.pixels()]).unwrap();
        (some, model.gradient(&all, cotangent.view()).unwrap())
    };
    let one = with(1);
    assert_eq!(one.0.nrows(), 4 * BATCH as usize - 1);
    assert!(one.1.1.iter().any(|g| *g != 0.0));
    for threads in [2, 3, 8] {
        assert_eq!(with(threads), one, "{threads} threads");
    }
}

/// A gradient whose cotangents follow from the embeddings takes one forward pass; attacks on triplets rely on
/// that.
#[test]
fn cotangents_follow_from_the_forward_pass_of_their_gradient() {
    let bent = Node::new("Softplus", &["map"], "bent");
    let graph = mapped(BATCH, &[bent, Node::new("GlobalAveragePool", &["bent"], "mean")], &[], &["mean"]);
    let options = Options { threads: 2, ..CPU };
    let mut model = Model::open(&write("follow", &graph.encode()), &Card::default(), options, None).unwrap();
    let all = pixels(4 * BATCH);
    let batches = Mutex::new(Vec::new());
    let rows = |from: usize, e: ArrayView2<f32>| {
        batches.lock().unwrap().push(from);
        Ok(e.mapv(|v| v + from as f32))
    };
    let (embeddings, gradient) = model.gradient_from(&all, rows).unwrap();
    let mut batches = batches.into_inner().unwrap();
    batches.sort();
    assert_eq!(batches, Vec::from_iter((0..4).map(|batch| batch * BATCH as usize)));
    let mut cotangent = embeddings.clone();
    for (i, mut row) in cotangent.rows_mut().into_iter().enumerate() {
        row += (i / BATCH as usize * BATCH as usize) as f32;
    }
    assert_eq!(model.gradient(&all, cotangent.view()).unwrap(), (embeddings, gradient));
    let refusing = |_: usize, _: ArrayView2<f32>| Err(audit::Error::untrusted("not finite"));
    assert_eq!(model.gradient_from(&all, refusing).unwrap_err().message, "not finite");
}

#[test]
fn of_several_outputs_one_is_chosen() {
    let pools = ["mean", "max"].into_iter().zip(["GlobalAveragePool", "GlobalMaxPool"]);
    let pools: Vec<Node> = pools.map(|(name, op)| Node::new(op, &["map"], name)).collect();
    let graph = mapped(BATCH, &pools, &[], &["mean", "max", "map"]);
    insta::assert_snapshot!(refused("several", &graph, None));
    agrees(&mut open("several", &graph, None, Some("max")).unwrap(), BATCH, 4);
    // With stated pooling, only the feature map qualifies.
    let model = open("several", &graph, Some(Pooling::Mean), None).unwrap();
    assert_eq!(model.info.output, "map");
}

#[test]
fn a_condition_that_is_constant_is_folded() {
    let branch = |op: &str| subgraph(vec![Node::new(op, &["map"], "chosen")], vec![], &["chosen"]);
    let nodes = [
        // Known from the shape alone, as exporters write it.
        Node::new("Shape", &["map"], "shape"),
        Node::new("Size", &["shape"], "rank"),
        Node::new("Equal", &["rank", "four"], "is_map"),
        Node::new("If", &["is_map"], "y")
            .with("then_branch", branch("GlobalAveragePool"))
            .with("else_branch", branch("Identity")),
    ];
    let graph = mapped(BATCH, &nodes, &[("four", Tensor::i64(&[], &[4]))], &["y"]);
    agrees(&mut open("if", &graph, None, None).unwrap(), BATCH, 4);
}

/// A value that follows from shapes, the nodes from the map [N, 4, 3, 3] to "y" that use it, and their
/// constants.
type FromShapes = (&'static str, Vec<Node>, Vec<(&'static str, Tensor)>);

/// Sizes, scales, bounds and numbers of steps that follow from shapes, as exporters write them.
fn from_shapes() -> Vec<FromShapes> {
    let ints = |name: &'static str, values: &[i64]| (name, Tensor::ints(values));
    let one = |name: &'static str, value: i64| (name, Tensor::i64(&[], &[value]));
    let (float, int) = (i64::from(DType::F32.code()), i64::from(DType::I64.code()));
    let node = Node::new;
    let cast = |from: &str, to: &str, kind: i64| Node::new("Cast", &[from], to).with("to", kind);
    let tail = |of: &str, name: &str| Node::new("Shape", &[of], name).with("start", 2i64);
    let head = |of: &str, name: &str| Node::new("Shape", &[of], name).with("end", 2i64);
    let axis = |of: &str, at: &str, name: &str| {
        let shape = format!("{name}/shape");
        vec![Node::new("Shape", &[of], &shape), Node::new("Gather", &[&shape, at], name)]
    };
    let concat = |parts: &[&str], to: &str| Node::new("Concat", parts, to).with("axis", 0i64);
    let mut all: Vec<FromShapes> = Vec::new();
    let mut add = |what, nodes: &[&[Node]], constants: &[(&'static str, Tensor)]| {
        all.push((what, nodes.concat(), constants.to_vec()));
    };
    let scaled = [
        tail("x", "a"),
        tail("map", "b"),
        cast("a", "af", float),
        cast("b", "bf", float),
        node("Div", &["af", "bf"], "each"),
        concat(&["ones", "each"], "scales"),
        node("Resize", &["map", "", "scales"], "y").with("mode", "linear"),
    ];
    let ones = [("ones", Tensor::f32(&[2], &[1.0, 1.0]))];
    add("Resize by scales: the image's size by the map's", &[&scaled], &ones);
    let cubic = node("Resize", &["map", "", "", "sizes"], "y").with("mode", "cubic");
    let sized = [
        head("map", "front"),
        tail("x", "back"),
        concat(&["front", "back"], "sizes"),
        cubic.with("coordinate_transformation_mode", "align_corners"),
    ];
    add("Resize to the image's size", &[&sized], &[]);
    let floored = [
        head("map", "front"),
        tail("map", "back"),
        cast("back", "wide", float),
        node("Mul", &["wide", "factor"], "larger"),
        node("Floor", &["larger"], "whole"),
        cast("whole", "end", int),
        concat(&["front", "end"], "sizes"),
        node("Resize", &["map", "", "", "sizes"], "y").with("mode", "nearest"),
    ];
    let factor = [("factor", Tensor::f32(&[], &[1.7]))];
    add("Resize to the floor of a size times a factor", &[&floored], &factor);
    let step =
        vec![node("Tanh", &["s"], "t"), node("Add", &["t", "map"], "next"), node("Identity", &["go"], "on")];
    let inputs = vec![Value::new("i", DType::I64, &[]), Value::new("go", DType::Bool, &[]), untyped("s")];
    let body = subgraph(step, inputs, &["on", "next"]);
    let repeated =
        [node("Div", &["h", "two"], "count"), node("Loop", &["count", "", "map"], "y").with("body", body)];
    let (height, two) = (axis("x", "two", "h"), one("two", 2));
    let what = "Loop of as many steps as half the image is high";
    add(what, &[&height, &repeated], std::slice::from_ref(&two));
    let align = node("RoiAlign", &["map", "regions", "images"], "y").with("mode", "max");
    let align = align.with("output_height", 2i64).with("output_width", 2i64).with("sampling_ratio", 2i64);
    let regions = [
        node("Range", &["zero", "n", "one"], "images"),
        node("Unsqueeze", &["h", "first"], "h1"),
        node("Unsqueeze", &["width", "first"], "w1"),
        concat(&["none", "none", "w1", "h1"], "region"),
        cast("region", "wide", float),
        node("Unsqueeze", &["n", "first"], "n1"),
        concat(&["n1", "four"], "grid"),
        node("Expand", &["wide", "grid"], "regions"),
        align.with("spatial_scale", 0.375f32),
    ];
    let (batch, width) = (axis("map", "zero", "n"), axis("x", "three", "width"));
    let (three, first) = (one("three", 3), ints("first", &[0]));
    let [zero, one] = [one("zero", 0), one("one", 1)];
    let (none, four) = (ints("none", &[0]), ints("four", &[4]));
    let constants = [zero, one.clone(), two.clone(), three.clone(), first.clone(), none, four];
    let what = "RoiAlign by the largest, of a region for each image that the image's size bounds";
    add(what, &[&batch, &height, &width, &regions], &constants);
    let padded = [
        node("Mod", &["width", "two"], "over"),
        node("Unsqueeze", &["over", "first"], "more"),
        concat(&["nothing", "more"], "pads"),
        node("Pad", &["map", "pads"], "padded").with("mode", "reflect"),
        node("Shape", &["padded"], "whole"),
        node("Sub", &["whole", "ones"], "end"),
        node("Slice", &["padded", "starts", "end"], "cut"),
        node("Size", &["whole"], "rank"),
        node("Range", &["two", "rank", "one"], "axes"),
        node("ReduceMean", &["cut", "axes"], "y"),
    ];
    let lists = [ints("nothing", &[0; 7]), ints("ones", &[0, 0, 1, 1]), ints("starts", &[0; 4])];
    let constants = [&[one, two, three, first], &lists[..]].concat();
    let what = "Pad and Slice up to a multiple, mean over all axes behind the second";
    add(what, &[&axis("map", "three", "width"), &padded], &constants);
    all
}

/// Embeddings are those of ONNX Runtime, and gradients agree with finite differences of the file.
#[test]
fn what_follows_from_shapes_is_as_good_as_a_constant() {
    for (what, mut nodes, mut constants) in from_shapes() {
        nodes.extend([
            Node::new("Flatten", &["y"], "flat"),
            Node::new("Range", &["from", "until", "by"], "numbers"),
            Node::new("Gather", &["flat", "numbers"], "embedding").with("axis", 1i64),
        ]);
        constants
            .extend([("from", 0), ("until", 4), ("by", 1)].map(|(name, v)| (name, Tensor::i64(&[], &[v]))));
        for free in [false, true] {
            let mut graph = mapped(BATCH, &nodes, &constants, &["embedding"]);
            if free {
                graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Free("n".into());
            }
            let path = write("shapes", &graph.encode());
            let mut model = Model::open(&path, &Card::default(), CPU, free.then_some(BATCH as usize))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            agrees(&mut model, BATCH, 4);
            let error = measured(&mut model).0.expect("compared with finite differences");
            assert!(error < 1e-3, "{what}, batch free: {free}: {error}");
        }
    }
}

#[test]
fn nodes_in_any_order_are_sorted_and_cycles_are_named() {
    let n = 100_000;
    let value = |i: usize| if i == 0 { "x".to_string() } else { format!("v{i}") };
    let chain: Vec<Node> = (0..n).rev().map(|i| Node::new("Neg", &[&value(i)], &value(i + 1))).collect();
    let graph = grey(1, chain, &[], &[&value(n)]);
    let sorted = Graph::decode(graph.encode().into(), Path::new("chain.onnx")).unwrap();
    assert!(sorted.nodes.iter().enumerate().all(|(i, node)| node.inputs[0] == value(i)));

    let cycle = vec![Node::new("Add", &["x", "b"], "a"), Node::new("Neg", &["a"], "b")];
    let twice = vec![Node::new("Neg", &["x"], "a"), Node::new("Abs", &["x"], "a")];
    let told = [(cycle, "b"), (twice, "a")].map(|(nodes, output)| {
        let graph = grey(1, nodes, &[], &[output]);
        Graph::decode(graph.encode().into(), Path::new("c.onnx")).unwrap_err().to_string()
    });
    insta::assert_snapshot!(told.join("\n\n"));
}

/// Bytes flipped, cut and doubled: an error or a graph, never a panic.
#[test]
fn damaged_bytes_are_no_reason_to_panic() {
    let whole = mapped(BATCH, &[Node::new("GlobalAveragePool", &["map"], "y")], &[], &["y"]).encode();
    for seed in 0..3000 {
        let mut r = Rng::new(seed);
        let mut bytes = whole.clone();
        for _ in 0..r.int(1, 4) {
            let at = r.int(0, bytes.len() as i64 - 1) as usize;
            match r.int(0, 3) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = r.int(0, 255) as u8,
                2 => bytes[at] ^= 1 << r.int(0, 7),
                _ => bytes.insert(at, r.int(0, 255) as u8),
            }
        }
        let _ = Graph::decode(bytes.into(), Path::new("damaged.onnx"));
    }
}

/// Quantised: the warning names each quantiser that the gradient passes unchanged.
#[test]
fn quantised_models_say_where_the_gradient_is_led_past_rounding() {
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![0].into() };
    let mut quantise = Node::new("QuantizeLinear", &["x", "scale", "zero"], "q");
    quantise.name = "input_quantiser".into();
    let nodes = vec![
        quantise,
        Node::new("DequantizeLinear", &["q", "scale", "zero"], "seen"),
        Node::new("Conv", &["seen", "w"], "map"),
        Node::new("GlobalAveragePool", &["map"], "y"),
    ];
    let constants =
        [("scale", Tensor::f32(&[], &[1.0 / 255.0])), ("zero", byte), ("w", weights(&[4, 1, 3, 3]))];
    let mut model = open("quantised", &grey(BATCH, nodes, &constants, &["y"]), None, None).unwrap();
    let (error, findings) = measured(&mut model);
    assert!(error.unwrap() < 1e-2, "{error:?}");
    let said = findings.iter().find(|f| f.check == "straight-through").unwrap();
    assert_eq!(said.severity, Severity::Warning);
    says(&said.found, &["QuantizeLinear \"input_quantiser\""]);
}

/// A field of a protobuf message: number, content. [`Graph`] has no way to add a local function, but messages
/// can be appended to (onnx.proto: ModelProto.functions = 25, FunctionProto, NodeProto, AttributeProto).
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let varint = |mut n: u32| {
        let mut bytes = vec![];
        while n > 127 {
            bytes.push(n as u8 | 128);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    [varint(number << 3 | 2), varint(content.len() as u32), content.to_vec()].concat()
}

/// A node inside a function; `attribute` is a message.
fn inner(domain: &str, op: &str, inputs: &[&str], output: &str, attribute: &[u8]) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|x| field(1, x.as_bytes())).collect();
    node.extend([field(2, output.as_bytes()), field(4, op.as_bytes()), field(7, domain.as_bytes())].concat());
    if !attribute.is_empty() {
        node.extend(field(5, attribute));
    }
    field(7, &node)
}

/// local::`name`: v → w, with an attribute "slope".
fn function(name: &str, nodes: &[Vec<u8>]) -> Vec<u8> {
    let opset =
        |domain: &str, version: u8| field(9, &[field(1, domain.as_bytes()), vec![0x10, version]].concat());
    let parts = [
        field(1, name.as_bytes()),
        field(4, b"v"),
        field(5, b"w"),
        field(6, b"slope"),
        nodes.concat(),
        opset("", 17),
        opset("local", 1),
        field(10, b"local"),
    ];
    field(25, &parts.concat())
}

fn call(op: &str, input: &str, output: &str) -> Node {
    Node { domain: "local".into(), ..Node::new(op, &[input], output) }
}

/// bfloat16 throughout, and with Casts to and from float32 within: computed in float32, from the rounded
/// weights. ONNX Runtime has no kernels for it on the CPU, so the expected values come from a float32 model
/// of the same numbers.
#[test]
fn bfloat16_models_compute_in_float32_and_say_so() {
    let (bf16, f32) = (DType::BF16.code() as i64, DType::F32.code() as i64);
    let exact = weights(&[4, 1, 3, 3]);
    let bits = exact.bytes.chunks(4).flat_map(|b| [b[2], b[3]]).collect();
    let rounded = exact.bytes.chunks(4).flat_map(|b| [0, 0, b[2], b[3]]).collect();
    let narrow = Tensor { dtype: DType::BF16, shape: exact.shape.clone(), bytes: bits };
    let wide = Tensor { dtype: DType::F32, shape: exact.shape.clone(), bytes: rounded };
    let net = |input: &str| {
        vec![
            Node::new("Conv", &[input, "w"], "map").with("strides", vec![2, 2]),
            Node::new("Softplus", &["map"], "soft"),
        ]
    };
    let head = Node::new("GlobalAveragePool", &["soft"], "y");
    let mut all = grey(BATCH, [net("x"), vec![head.clone()]].concat(), &[("w", narrow.clone())], &["y"]);
    all.inputs[0].dtype = DType::BF16;
    let mut mixed = vec![Node::new("Cast", &["x"], "half").with("to", bf16)];
    mixed.extend(net("half"));
    mixed.push(Node::new("Cast", &["soft"], "single").with("to", f32));
    mixed.push(Node::new("GlobalAveragePool", &["single"], "y"));
    let mixed = grey(BATCH, mixed, &[("w", narrow)], &["y"]);
    let float = grey(BATCH, [net("x"), vec![head]].concat(), &[("w", wide)], &["y"]);

    let x = pixels(BATCH);
    let cotangent = Array2::from_elem((BATCH as usize, 4), 0.7f32);
    let mut expected = open("float", &float, None, None).unwrap();
    let (e, g) = expected.gradient(&x, cotangent.view()).unwrap();
    for (name, graph) in [("bf16", all), ("bf16-mixed", mixed)] {
        let mut model = open(name, &graph, None, None).unwrap();
        assert_eq!(model.info.precision, DType::BF16);
        let (ours, gradient) = model.gradient(&x, cotangent.view()).unwrap();
        assert!(ours.iter().zip(&e).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {ours} {e}");
        assert!(gradient.iter().zip(&g).all(|(a, b)| (a - b).abs() < 1e-6), "{name}");
        let (error, findings) = measured(&mut model);
        assert!(error.unwrap() < 1e-2, "{name}: {error:?}");
        says(&findings.iter().find(|f| f.check == "precision").expect(name).found, &["bfloat16"]);
    }
}

/// Functions that call functions, one of which passes an attribute on, against ONNX Runtime's own inlining.
#[test]
fn local_functions_compute_what_onnx_runtime_makes_of_them() {
    let twice = call("Twice", "map", "t").with("slope", 0.3f32);
    let mut graph = mapped(BATCH, &[twice, Node::new("GlobalAveragePool", &["t"], "y")], &[], &["y"]);
    graph.opsets.insert("local".into(), 1);
    let slope =
        |name: &str| [field(1, name.as_bytes()), field(21, b"slope"), vec![0xA0, 0x01, 0x01]].concat();
    let leak =
        [inner("", "LeakyRelu", &["v"], "a", &slope("alpha")), inner("", "Add", &["a", "v"], "w", &[])];
    let twice = [
        inner("local", "Leak", &["v"], "a", &slope("slope")),
        inner("local", "Leak", &["a"], "w", &slope("slope")),
    ];
    let bytes = [graph.encode(), function("Leak", &leak), function("Twice", &twice)].concat();
    let mut model = Model::open(&write("functions", &bytes), &Card::default(), CPU, None).unwrap();
    agrees(&mut model, BATCH, 4);
}

/// A function may draw random numbers too: the embedding is refused at once, exact or estimated.
#[test]
fn a_function_that_draws_random_numbers_is_found() {
    let mut graph =
        mapped(BATCH, &[call("Noisy", "map", "t"), Node::new("GlobalAveragePool", &["t"], "y")], &[], &["y"]);
    graph.opsets.insert("local".into(), 1);
    let noisy = [inner("", "RandomNormalLike", &["v"], "n", &[]), inner("", "Add", &["n", "v"], "w", &[])];
    let path = write("noisy", &[graph.encode(), function("Noisy", &noisy)].concat());
    let error = Model::open(&path, &Card::default(), CPU, None).err().unwrap();
    assert_eq!(error.exit, audit::Exit::Untrusted);
    insta::assert_snapshot!(portable(&error.message));
    let estimated = Model::open_estimated(&path, &Card::default(), CPU, None, 0).unwrap();
    assert_eq!(estimated.info.refuse_drawn().unwrap_err().exit, audit::Exit::Untrusted);
}

/// A window larger than its input has no output. It may be one path of several, which then has no gradient.
#[test]
fn a_pool_over_too_small_an_image_leaves_nothing() {
    let pool = || Node::new("AveragePool", &["x"], "p").with("kernel_shape", vec![2, SIDE + 1]);
    let nodes = vec![pool(), Node::new("Flatten", &["p"], "y")];
    insta::assert_snapshot!(refused("nothing", &grey(BATCH, nodes, &[], &["y"]), None));

    let both = vec![
        pool(),
        Node::new("Flatten", &["p"], "none"),
        Node::new("Flatten", &["x"], "all"),
        Node::new("Concat", &["none", "all"], "y").with("axis", 1),
    ];
    let mut model = open("one-path", &grey(BATCH, both, &[], &["y"]), None, None).unwrap();
    agrees(&mut model, BATCH, (SIDE * SIDE) as usize);
    let (e, g) = model
        .gradient(&pixels(BATCH), Array2::ones((BATCH as usize, (SIDE * SIDE) as usize)).view())
        .unwrap();
    assert_eq!(e.iter().copied().collect::<Vec<_>>(), pixels(BATCH));
    assert_eq!(g, vec![1.0; pixels(BATCH).len()]);
}

/// A function that calls another twice, which calls another twice …, and an endless loop: refused, by name.
#[test]
fn what_would_take_for_ever_is_refused() {
    let mut graph = grey(BATCH, vec![call("F0", "x", "y")], &[], &["y"]);
    graph.opsets.insert("local".into(), 1);
    let mut bytes = graph.encode();
    for i in 0..30 {
        let next = format!("F{}", i + 1);
        let twice = [inner("local", &next, &["v"], "a", &[]), inner("local", &next, &["a"], "w", &[])];
        bytes.extend(function(&format!("F{i}"), &twice));
    }
    bytes.extend(function("F30", &[inner("", "Neg", &["v"], "w", &[])]));
    let unfolding = Model::open(&write("unfolding", &bytes), &Card::default(), CPU, None).err().unwrap();

    let nodes = vec![Node::new("Neg", &["v"], "w"), Node::new("Identity", &["go"], "again")];
    let (step, go) = (Value::new("i", DType::I64, &[]), Value::new("go", DType::Bool, &[]));
    let inputs = vec![step, go, Value::new("v", DType::F32, &[BATCH, 1, SIDE, SIDE])];
    let body = subgraph(nodes, inputs, &["again", "w"]);
    let repeat = Node::new("Loop", &["for_ever", "", "x"], "y").with("body", body);
    let graph = grey(BATCH, vec![repeat], &[("for_ever", Tensor::i64(&[], &[i64::MAX]))], &["y"]);
    let told = [portable(&unfolding.message), refused("loop", &graph, None)];
    insta::assert_snapshot!(told.join("\n\n"));
}

/// With ceil_mode a window that begins behind the input doesn't count (since opset 22 by shape inference
/// too). ONNX Runtime takes the file, but not the same graph in opset 21.
#[test]
fn a_pool_that_rounds_up_may_have_a_window_less() {
    for op in ["MaxPool", "AveragePool"] {
        let pool = Node::new(op, &["c"], "p").with("kernel_shape", vec![1, 2]).with("strides", vec![2, 2]);
        let nodes = vec![
            Node::new("Sigmoid", &["x"], "c"),
            pool.with("ceil_mode", 1),
            Node::new("Flatten", &["p"], "f"),
            Node::new("MatMul", &["f", "w"], "y"),
        ];
        let mut graph = grey(BATCH, nodes, &[("w", weights(&[16, 3]))], &["y"]);
        graph.opsets.insert(String::new(), 22);
        let mut model = open("rounds-up", &graph, None, None).unwrap();
        agrees(&mut model, BATCH, 3);
        assert!(measured(&mut model).0.is_some_and(|error| error < 1e-2));
    }
}

/// Rows of the image as steps: a recurrent operator, and the same rows in a scan.
#[test]
fn models_with_steps_are_unfolded() {
    let rows = || {
        vec![
            Node::new("Squeeze", &["x", "one"], "s"),
            Node::new("Transpose", &["s"], "t").with("perm", vec![1, 0, 2]),
        ]
    };
    let mut lstm = Node::new("LSTM", &["t", "w", "r"], "").with("hidden_size", 3);
    lstm.outputs = vec![String::new(), "h".into()];
    let last = Node::new("Squeeze", &["h", "zero"], "y");
    let nodes = [rows(), vec![lstm, last]].concat();
    let axes = [("one", Tensor::ints(&[1])), ("zero", Tensor::ints(&[0]))];
    let constants = [&axes[..], &[("w", weights(&[1, 12, 8])), ("r", weights(&[1, 12, 3]))]].concat();

    let nodes_of_step = vec![
        Node::new("Add", &["state", "row"], "sum"),
        Node::new("Tanh", &["sum"], "next"),
        Node::new("Identity", &["next"], "shown"),
    ];
    let inputs = ["state", "row"].map(|name| Value::new(name, DType::F32, &[BATCH, SIDE])).to_vec();
    let body = subgraph(nodes_of_step, inputs, &["next", "shown"]);
    let mut scan = Node::new("Scan", &["start", "t"], "").with("num_scan_inputs", 1).with("body", body);
    scan.outputs = vec!["y".into(), "all".into()];
    let scanned = [rows(), vec![scan]].concat();
    let start = [&axes[..], &[("start", weights(&[BATCH, SIDE]))]].concat();

    let (lstm, scan) = (grey(BATCH, nodes, &constants, &["y"]), grey(BATCH, scanned, &start, &["y"]));
    for (name, graph, dim) in [("lstm", lstm, 3), ("scan", scan, 8)] {
        let mut model = open(name, &graph, None, None).unwrap();
        agrees(&mut model, BATCH, dim);
        assert!(measured(&mut model).0.is_some_and(|error| error < 1e-2), "{name}");
    }
}

/// Gradients estimated from forward passes, against exact ones.
#[test]
fn estimated_signs_agree_with_exact_ones_and_follow_from_the_seed() {
    let mut r = Rng::new(1);
    let values: Vec<f32> = (0..64 * 4).map(|_| 0.2 * r.normal()).collect();
    let nodes = vec![
        Node::new("Flatten", &["x"], "flat"),
        Node::new("MatMul", &["flat", "w"], "product"),
        Node::new("Tanh", &["product"], "y"),
    ];
    let graph = grey(2, nodes, &[("w", Tensor::f32(&[64, 4], &values))], &["y"]);
    let path = write("estimate", &graph.encode());
    let mut r = Rng::new(2);
    let x = r.units(2 * 64);
    let cotangent = Array2::from_shape_fn((2, 4), |_| r.normal());
    let (_, exact) =
        Model::open(&path, &Card::default(), CPU, None).unwrap().gradient(&x, cotangent.view()).unwrap();
    let estimate = |seed| {
        let mut model = Model::open_estimated(&path, &Card::default(), CPU, None, seed).unwrap();
        let (_, g) = model.gradient(&x, cotangent.view()).unwrap();
        // 50 mirrored pairs, and the embedding itself.
        assert_eq!(model.passes(), 101);
        assert!(model.info.estimated);
        g
    };
    let g = estimate(7);
    let agree = g.iter().zip(&exact).filter(|(a, b)| a.signum() == b.signum()).count();
    // 50 directions of 64: the expected cosine is about 0.65, for which 70 % of signs agree; chance gives 50
    // ± 4 %.
    assert!(agree as f32 > 0.62 * exact.len() as f32, "{agree} of {}", exact.len());
    assert_eq!(g, estimate(7));
    assert_ne!(g, estimate(8));
}

/// ONNX Runtime's last level of optimisation writes these operators into saved models.
#[test]
fn a_model_saved_for_one_machine_says_so() {
    let mut conv = Node::new("Conv", &["x", "w"], "map");
    conv.domain = "com.microsoft.nchwc".into();
    let mut graph = grey(BATCH, vec![conv], &[("w", weights(&[8, 1, 3, 3]))], &["map"]);
    graph.opsets.insert("com.microsoft.nchwc".into(), 1);
    insta::assert_snapshot!(refused("blocked", &graph, None));
}

//! Files as they may come: in any order, damaged, with local functions, and without end.

use super::*;

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

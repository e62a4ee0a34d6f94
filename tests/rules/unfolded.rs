//! Operators that are written step by step, against differences of ONNX Runtime's own kernels for the whole.

use crate::case::*;
use crate::{TOLERANCE, check, common};

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("ConcatFromSequence", sequence("ConcatFromSequence")),
        entry("GRU", recurrent("GRU", 3)),
        entry("LSTM", recurrent("LSTM", 4)),
        entry("Loop", repeat),
        entry("RNN", recurrent("RNN", 1)),
        entry("Scan", scan),
        entry("SequenceAt", sequence("SequenceAt")),
        entry("SequenceConstruct", sequence("SequenceConstruct")),
        entry("SequenceEmpty", sequence("SequenceEmpty")),
        entry("SequenceErase", sequence("SequenceErase")),
        entry("SequenceInsert", sequence("SequenceInsert")),
        entry("SequenceLength", sequence("SequenceLength")),
        entry("SplitToSequence", sequence("SplitToSequence")),
    ]
}

/// Two sequences of the rows of tanh(x), or of pairs of rows: one split or put together, the other with
/// elements inserted and erased. The result joins all, reads one, and is multiplied by a length. Cases of an
/// operator have it.
fn sequence(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (parts, each) = (r.int(2, 4), r.int(1, 3));
        let shape = [parts * each, r.int(1, 3)];
        let mut nodes = vec![Node::new("Tanh", &["x"], "t")];
        let mut constants: Vec<(&str, Tensor)> = vec![("axis", Tensor::ints(&[0]))];
        let pieces: Vec<String> = (0..parts).map(|i| format!("piece{i}")).collect();
        let names: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let lengths = Tensor::ints(&vec![each; parts as usize]);
        let kind = match op {
            "SplitToSequence" => r.int(0, 2),
            "SequenceEmpty" => 4,
            _ => 3,
        };
        let insert =
            |from: &str, piece: &str, at: &str, to: &str| Node::new("SequenceInsert", &[from, piece, at], to);
        if kind >= 3 {
            constants.push(("lengths", lengths.clone()));
            let mut split = Node::new("Split", &["t", "lengths"], "").with("axis", 0);
            split.outputs.clone_from(&pieces);
            nodes.push(split);
        }
        match kind {
            // Lengths, one length for all, or single rows that keep or lose their axis.
            0 | 1 => {
                constants.push(("lengths", if kind == 0 { lengths } else { Tensor::i64(&[], &[each]) }));
                nodes.push(
                    Node::new("SplitToSequence", &["t", "lengths"], "s").with("axis", r.pick(&[0, -2])),
                );
            }
            2 => nodes.push(Node::new("SplitToSequence", &["t"], "s").with("axis", 0).with("keepdims", 1)),
            3 => nodes.push(Node::new("SequenceConstruct", &names, "s")),
            _ => {
                nodes.push(Node::new("SequenceEmpty", &[], "s0"));
                for (i, piece) in pieces.iter().enumerate() {
                    let to = if i + 1 == pieces.len() { "s".into() } else { format!("s{}", i + 1) };
                    nodes.push(Node::new("SequenceInsert", &[&format!("s{i}"), piece], &to));
                }
            }
        }
        let count = if kind == 2 { parts * each } else { parts };
        constants.push(("at", Tensor::i64(&[], &[r.int(-count, count - 1)])));
        constants.push(("to", Tensor::i64(&[], &[r.int(-count, count)])));
        constants.push(("gone", Tensor::i64(&[], &[r.int(-count - 1, count)])));
        nodes.extend([
            Node::new("SequenceAt", &["s", "at"], "one"),
            insert("s", "one", "to", "more"),
            Node::new("Identity", &["more"], "again"),
            Node::new("SequenceErase", &["again", "gone"], "fewer"),
            Node::new("ConcatFromSequence", &["fewer"], "joined").with("axis", r.pick(&[0, -2])),
            Node::new("ConcatFromSequence", &["s"], "stacked")
                .with("axis", r.pick(&[0, -1]))
                .with("new_axis", 1),
            Node::new("SequenceLength", &["again"], "length"),
            Node::new("Cast", &["length"], "count").with("to", i64::from(DType::F32.code())),
            Node::new("ReduceSum", &["stacked"], "sum").with("keepdims", 0),
            Node::new("Mul", &["joined", "count"], "scaled"),
        ]);
        let mut case = Case::new(Node::new("Add", &["scaled", "sum"], "y")).normal(r, "x", &shape);
        case.graph.nodes.splice(0..0, nodes);
        constants.into_iter().fold(case, |case, (name, t)| case.constant(name, t))
    }
}

fn recurrent(op: &'static str, gates: i64) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let (steps, batch, input, hidden) = (r.int(1, 4), r.int(1, 3), r.int(1, 3), r.int(1, 3));
        let direction = r.pick(&["forward", "reverse", "bidirectional"]);
        let ways = if direction == "bidirectional" { 2 } else { 1 };
        let lstm = op == "LSTM";
        let inputs: &[&str] =
            if lstm { &["x", "w", "r", "b", "n", "h", "c", "p"] } else { &["x", "w", "r", "b", "n", "h"] };
        let mut node = Node::new(op, inputs, "").with("direction", direction).with("hidden_size", hidden);
        node.outputs = ["y", "yh", "yc"][..if lstm { 3 } else { 2 }].iter().map(|o| o.to_string()).collect();
        if op == "GRU" {
            node = node.with("linear_before_reset", r.int(0, 1));
        }
        if op == "RNN" && r.bool() {
            // ONNX's default names both directions; a single direction reads the first.
            let names = ["Tanh", if ways == 2 { "Tanh" } else { "Relu" }];
            node = node.with("activations", &names[..]);
        }
        let lengths: Vec<u8> = (0..batch).flat_map(|_| (r.int(1, steps) as i32).to_le_bytes()).collect();
        let lengths = Tensor { dtype: DType::I32, shape: vec![batch], bytes: lengths.into() };
        let mut case = Case::new(node)
            .normal(r, "x", &[steps, batch, input])
            .maybe(r, "w", &[ways, gates * hidden, input], normal)
            .maybe(r, "r", &[ways, gates * hidden, hidden], normal)
            .maybe(r, "b", &[ways, 2 * gates * hidden], normal);
        match r.bool() {
            true => case = case.constant("n", lengths),
            false => case.graph.nodes[0].inputs[4] = String::new(),
        }
        case = case.maybe(r, "h", &[ways, batch, hidden], normal);
        if lstm {
            case =
                case.maybe(r, "c", &[ways, batch, hidden], normal).maybe(r, "p", &[ways, 3 * hidden], normal);
        }
        case
    }
}

/// With activations that the sample cases don't draw.
#[test]
fn recurrent_operators_with_softplus() {
    common::load_runtime();
    let all: [(&str, i64, &[&str]); 3] = [
        ("RNN", 1, &["Softplus"]),
        ("GRU", 3, &["Sigmoid", "Softplus"]),
        ("LSTM", 4, &["Sigmoid", "Softplus", "Tanh"]),
    ];
    for (op, gates, names) in all {
        let mut r = Rng::new(gates as u64);
        let node = Node::new(op, &["x", "w", "r"], "y").with("hidden_size", 2).with("activations", names);
        let case = Case::new(node)
            .normal(&mut r, "x", &[3, 2, 2])
            .normal(&mut r, "w", &[1, 2 * gates, 2])
            .normal(&mut r, "r", &[1, 2 * gates, 2]);
        let errors = check(&case, &mut r).unwrap_or_else(|e| panic!("{op}: {e}"));
        assert!(errors.own < TOLERANCE, "{op}: {}", errors.own);
    }
}

/// The body of a loop whose nodes have names, as torch.onnx.export gives them to scripted modules.
fn body_of(mut nodes: Vec<Node>) -> Graph {
    nodes.iter_mut().for_each(|node| node.name.clone_from(&node.op));
    Graph::new(nodes, Default::default())
}

fn value(name: &str, dtype: DType) -> Value {
    Value { name: name.into(), dtype, shape: None }
}

/// s ← tanh(s · x) + k, and s · x at each step.
fn repeat(r: &mut Rng) -> Case {
    let shape = r.shape(2);
    let float = DType::F32.code() as i64;
    let nodes = vec![
        Node::new("Mul", &["s", "x"], "product"),
        Node::new("Tanh", &["product"], "bounded"),
        Node::new("Cast", &["k"], "number").with("to", float),
        Node::new("Add", &["bounded", "number"], "next"),
        // Continues on the same condition, or while the number of the step is small.
        if r.bool() { Node::new("Identity", &["go"], "on") } else { Node::new("Less", &["k", "last"], "on") },
    ];
    let last = Tensor::i64(&[], &[r.int(0, 3)]);
    let mut body = body_of(nodes);
    body.inputs = vec![
        Value::new("k", DType::I64, &[]),
        Value::new("go", DType::Bool, &[]),
        Value::new("s", DType::F32, &shape),
    ];
    body.outputs = vec![value("on", DType::Bool), value("next", DType::F32), value("product", DType::F32)];
    let mut node =
        Node::new("Loop", &["count", "first", "start"], "").with("body", Attr::Graph(Box::new(body)));
    node.outputs = vec!["y".into(), "all".into()];
    Case::new(node)
        .normal(r, "x", &shape)
        .normal(r, "start", &shape)
        .constant("count", Tensor::i64(&[], &[r.int(1, 4)]))
        .constant("first", Tensor { dtype: DType::Bool, shape: vec![], bytes: vec![1].into() })
        .constant("last", last)
}

/// s ← s + tanh(s · x) along an axis, in either direction.
fn scan(r: &mut Rng) -> Case {
    let (shape, steps) = (r.shape(2), r.int(1, 4));
    let nodes = vec![
        Node::new("Mul", &["s", "step"], "product"),
        Node::new("Tanh", &["product"], "bounded"),
        Node::new("Add", &["bounded", "s"], "next"),
        Node::new("Identity", &["next"], "shown"),
    ];
    let mut body = body_of(nodes);
    body.inputs = vec![Value::new("s", DType::F32, &shape), Value::new("step", DType::F32, &shape)];
    body.outputs = vec![Value::new("next", DType::F32, &shape), Value::new("shown", DType::F32, &shape)];
    let axis = r.int(-3, 2);
    let mut whole = shape.clone();
    whole.insert(((axis + 3) % 3) as usize, steps);
    let mut node = Node::new("Scan", &["start", "x"], "")
        .with("body", Attr::Graph(Box::new(body)))
        .with("num_scan_inputs", 1)
        .with("scan_input_axes", vec![axis])
        .with("scan_input_directions", vec![r.int(0, 1)])
        .with("scan_output_axes", vec![r.int(-3, 2)])
        .with("scan_output_directions", vec![r.int(0, 1)]);
    node.outputs = vec!["last".into(), "y".into()];
    Case::new(node).normal(r, "start", &shape).normal(r, "x", &whole)
}

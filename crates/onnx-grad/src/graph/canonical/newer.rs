//! Operators that are newer than the canonical opset, except fused ones and normalisations.

use super::{Attr, DAMAGED, DType, Done, Expansion, Graph, Node, Rewrite, Value, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("CausalConvWithState", 27, causal_conv).refuses("weights computed in the graph"),
    standard("CumProd", 26, cum_prod),
    standard("LinearAttention", 27, linear_attention),
    contrib("LinearAttention", linear_attention).refuses("state_window"),
    standard("SwiGLU", 28, |rw, node| {
        let a = node.x(0)?;
        let steeper = rw.scale(&a, node.float("alpha", 1.0));
        let gate = rw.op("Sigmoid", &[&steeper]);
        let gated = rw.op("Mul", &[&a, &gate]);
        rw.finish(node, "Mul", &[&gated, &node.x(1)?], &[])
    }),
    standard("TensorScatter", 24, tensor_scatter),
];

/// Operators that ONNX Runtime doesn't run in the canonical opset and that have no expansion.
const UNKNOWN: [(&str, i64); 1] = [("BitCast", 26)];

/// Refuses operators that the canonical opset can't express.
pub(super) fn known(node: &Node) -> Done {
    match UNKNOWN.iter().find(|(op, _)| *op == node.op && node.domain.is_empty()) {
        None => Ok(()),
        Some((_, since)) => Err(format!(
            "came with opset {since}, and can't be written with operators of opset {}. Export the model with older operators",
            super::OPSET
        )),
    }
}

/// Each output is the product of the inputs up to its position: of a copy of the axis with 1 at all others.
fn cum_prod(rw: &mut Rewrite, node: &Node) -> Done {
    let x = node.x(0)?;
    let [before, size, after] = rw.around(&x, &node.x(1)?);
    let one = rw.ints(&[1]);
    let apart = rw.concat(&[&before, &one, &size, &after], 0);
    let copies = rw.op("Reshape", &[&x, &apart]);
    let (of, with) = (rw.counted(&size, 1, &[1, -1, 1, 1]), rw.counted(&size, 1, &[1, 1, -1, 1]));
    let (low, high) = if node.int("reverse", 0) == 0 { (with, of) } else { (of, with) };
    let compare = if node.int("exclusive", 0) == 0 { "LessOrEqual" } else { "Less" };
    let seen = rw.op(compare, &[&low, &high]);
    let factor = rw.scalar(1.0);
    let factor = rw.op("CastLike", &[&factor, &x]);
    let factors = rw.op("Where", &[&seen, &copies, &factor]);
    let axis = rw.ints(&[2]);
    let product = rw.push("ReduceProd", &[&factors, &axis], &[("keepdims", 0i64.into())]);
    let shape = rw.op("Shape", &[&x]);
    rw.finish(node, "Reshape", &[&product, &shape], &[])
}

/// Writes the rows of an update into a cache, from an index on; each entry of the batch has its own index.
fn tensor_scatter(rw: &mut Rewrite, node: &Node) -> Done {
    let (past, update) = (node.x(0)?, node.x(1)?);
    let axis = rw.int(node.int("axis", -2));
    let [_, size, after] = rw.around(&past, &axis);
    let [_, rows, _] = rw.around(&update, &axis);
    let (batch, any) = (rw.dim(&past, 0), rw.ints(&[-1]));
    let mut fold = |x: &str, size: &str| {
        let shape = rw.concat(&[&batch, &any, size, &after], 0);
        rw.op("Reshape", &[x, &shape])
    };
    let (folded, update) = (fold(&past, &size), fold(&update, &rows));
    let mut at = rw.counted(&rows, 1, &[1, 1, -1, 1]);
    if let Some(index) = node.input(2) {
        let index = rw.reshape(index, &[-1, 1, 1, 1]);
        let index = rw.cast(&index, DType::I64);
        at = rw.op("Add", &[&at, &index]);
    }
    match node.str("mode", "linear") {
        "linear" => {}
        "circular" => at = rw.op("Mod", &[&at, &size]),
        other => return Err(format!("mode={other} is not known")),
    }
    let shape = rw.op("Shape", &[&update]);
    let at = rw.op("Expand", &[&at, &shape]);
    let written = rw.push("ScatterElements", &[&folded, &at, &update], &[("axis", 2i64.into())]);
    let shape = rw.op("Shape", &[&past]);
    rw.finish(node, "Reshape", &[&written, &shape], &[])
}

/// Attention with a state to which every position adds and that its queries read: a Scan along the positions.
///
/// S ← exp(g)·S + β·k ⊗ (v − (exp(g)·S)ᵀk) and o = scale·Sᵀq. A rule without gate has no g, and one without
/// delta adds k ⊗ v.
fn linear_attention(rw: &mut Rewrite, node: &Node) -> Done {
    node.only("state_window", 0)?;
    let (gated, delta) = match node.str("update_rule", "gated_delta") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(format!("update_rule={other} is not known")),
    };
    let (queries, heads) = (node.int("q_num_heads", 0), node.int("kv_num_heads", 0));
    if heads < 1 || queries < heads || queries % heads != 0 {
        return Err(format!(
            "kv_num_heads is {heads} and q_num_heads {queries}, expected 1 or more and a multiple of it. {DAMAGED}"
        ));
    }
    // [batch, positions, heads, …]: each head serves the same number of queries.
    let q = rw.reshape(&node.x(0)?, &[0, 0, heads, queries / heads, -1]);
    let mut apart = |i: usize, shape: &[i64]| Ok::<String, String>(rw.reshape(&node.x(i)?, shape));
    let mut scanned = vec![q.clone(), apart(1, &[0, 0, heads, -1, 1])?, apart(2, &[0, 0, heads, 1, -1])?];
    if gated {
        scanned.push(apart(4, &[0, 0, heads, -1, 1])?);
    }
    if delta {
        // One per head, or one for all.
        scanned.push(apart(5, &[0, 0, -1, 1, 1])?);
    }
    let state = match node.input(3) {
        Some(past) => past.to_string(),
        None => {
            let (batch, all) = (rw.dim(&q, 0), rw.ints(&[heads]));
            let (keys, values) = (rw.dim(&q, -1), rw.dim(&scanned[2], -1));
            let shape = rw.concat(&[&batch, &all, &keys, &values], 0);
            rw.zeros_like(&q, &shape)
        }
    };
    let body = linear_step(rw, gated, delta);
    let count = scanned.len();
    let inputs: Vec<&str> = [&state].into_iter().chain(&scanned).map(String::as_str).collect();
    let (last, read) = (rw.name("state"), rw.name("read"));
    let mut scan = Node::new("Scan", &inputs, "")
        .with("body", Attr::Graph(Box::new(body)))
        .with("num_scan_inputs", count as i64)
        .with("scan_input_axes", vec![1i64; count])
        .with("scan_output_axes", vec![1i64]);
    // Names must differ, unless they are empty.
    if !node.name.is_empty() {
        scan.name = format!("{}/positions", node.name);
    }
    scan.outputs = vec![last.clone(), read.clone()];
    rw.nodes.push(scan);
    rw.also(node, 1, &last);
    let scale = match node.float("scale", 0.0) {
        0.0 => rw.inverse_root(&q),
        scale => rw.scalar(scale),
    };
    let scaled = rw.op("Mul", &[&read, &scale]);
    let shape = rw.ints(&[0, 0, -1]);
    rw.finish(node, "Reshape", &[&scaled, &shape], &[])
}

/// One position: (S, q, k, v, g, β) → (S, o). S is [batch, heads, keys, values].
fn linear_step(rw: &mut Rewrite, gated: bool, delta: bool) -> Graph {
    let outer = std::mem::take(&mut rw.nodes);
    rw.makers = Default::default();
    let [state, q, k, v] = ["state", "query", "key", "value"].map(|part| rw.name(part));
    let mut inputs = vec![state.clone(), q.clone(), k.clone(), v.clone()];
    let mut kept = state;
    if gated {
        let gate = rw.name("gate");
        let factor = rw.op("Exp", &[&gate]);
        kept = rw.op("Mul", &[&kept, &factor]);
        inputs.push(gate);
    }
    let mut update = v;
    if delta {
        let rate = rw.name("rate");
        let key = rw.transpose(&k, &[0, 1, 3, 2]);
        let known = rw.op("MatMul", &[&key, &kept]);
        let new = rw.op("Sub", &[&update, &known]);
        update = rw.op("Mul", &[&new, &rate]);
        inputs.push(rate);
    }
    let product = rw.op("Mul", &[&k, &update]);
    let next = rw.op("Add", &[&kept, &product]);
    let read = rw.op("MatMul", &[&q, &next]);
    let mut body = Graph::new(std::mem::replace(&mut rw.nodes, outer), Default::default());
    rw.makers = Default::default();
    let float = |name: String| Value { name, dtype: DType::F32, shape: None };
    body.inputs = inputs.into_iter().map(float).collect();
    body.outputs = [next, read].into_iter().map(float).collect();
    body
}

/// A depthwise convolution over the past followed by the input.
fn causal_conv(rw: &mut Rewrite, node: &Node) -> Done {
    let (x, weights) = (node.x(0)?, node.x(1)?);
    let Some(&[channels, _, kernel]) = rw.constants.get(&weights).map(|w| w.shape.as_slice()) else {
        return Err("its weights must be constant, of three dimensions".into());
    };
    let past = match node.input(3) {
        Some(past) => past.to_string(),
        None => {
            let (batch, sizes) = (rw.dim(&x, 0), rw.ints(&[channels, kernel - 1]));
            let shape = rw.concat(&[&batch, &sizes], 0);
            rw.zeros_like(&x, &shape)
        }
    };
    let whole = rw.concat(&[&past, &x], 2);
    if let Some(out) = node.output(1) {
        // The last values; none if the kernel is 1.
        let from = rw.ints(&[if kernel > 1 { 1 - kernel } else { i64::MAX }]);
        let (to, axis) = (rw.ints(&[i64::MAX]), rw.ints(&[2]));
        rw.nodes.push(Node::new("Slice", &[&whole, &from, &to, &axis], out));
    }
    let inputs: Vec<&str> = [whole.as_str(), &weights].into_iter().chain(node.input(2)).collect();
    let y = rw.push("Conv", &inputs, &[("group", channels.into())]);
    match node.str("activation", "none") {
        "none" => rw.finish(node, "Identity", &[&y], &[]),
        "silu" | "swish" => {
            let gate = rw.op("Sigmoid", &[&y]);
            rw.finish(node, "Mul", &[&y, &gate], &[])
        }
        other => Err(format!("activation={other} is not known")),
    }
}

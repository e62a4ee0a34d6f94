//! Converts protobuf messages to a graph.

use super::tensor::{self, External};
use super::{Attr, AttrProto, DType, Dim, Graph, Node, OPSET, Tensor, Value, proto, sane};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

pub(super) fn norm(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

pub(super) fn graph(g: &mut proto::GraphProto, external: External) -> std::result::Result<Graph, String> {
    let mut out = Graph::default();
    let mut narrow: HashMap<String, &str> = HashMap::new();
    for t in &mut g.initializer {
        let name = t.name.clone();
        narrow.extend(tensor::narrow(t.data_type).map(|(_, kind)| (name.clone(), kind)));
        let tensor = Tensor::from_proto(t, external).map_err(|e| format!("initializer {name:?} {e}"))?;
        out.constants.insert(name, tensor);
    }
    if !g.sparse_initializer.is_empty() {
        return Err("has sparse initializers, which are not supported. Export it with dense weights".into());
    }
    if g.node.len() > sane::MOST_NODES {
        return Err(format!(
            "has {} nodes; {} are the most that is taken. Fold or simplify the graph (onnxsim), or export it again",
            g.node.len(),
            sane::MOST_NODES
        ));
    }
    let mut nodes = Vec::with_capacity(g.node.len());
    for n in &mut g.node {
        let node = node(n, external)?;
        if node.op == "Constant"
            && node.domain.is_empty()
            && let Some(name) = node.output(0)
            && let Some(t) = constant(&node)
        {
            out.constants.insert(name.to_string(), t);
            continue;
        }
        sane::check(&node)?;
        result_type(&node, &narrow)?;
        nodes.push(node);
    }
    // Old exporters list weights as inputs too.
    out.inputs = g.input.iter().filter(|v| !out.constants.contains_key(&v.name)).map(value).collect();
    out.outputs = g.output.iter().map(value).collect();
    let given: HashSet<&String> =
        out.inputs.iter().map(|input| &input.name).chain(out.constants.keys()).collect();
    for node in &nodes {
        if let Some(name) = node.outputs.iter().find(|name| given.contains(name)) {
            return Err(format!(
                "value {name:?} is given twice, by {} and as an input or a constant of the graph. Export the model again",
                node.label()
            ));
        }
    }
    out.nodes = sort(nodes)?;
    Ok(out)
}

fn node(n: &mut proto::NodeProto, external: External) -> std::result::Result<Node, String> {
    let mut node = Node {
        op: std::mem::take(&mut n.op_type),
        domain: norm(&n.domain).to_string(),
        name: std::mem::take(&mut n.name),
        inputs: std::mem::take(&mut n.input),
        outputs: std::mem::take(&mut n.output),
        ..Default::default()
    };
    // ONNX Runtime (1.31) mistakes a missing last input with the name "" for a present one, and may crash.
    while node.inputs.last().is_some_and(String::is_empty) {
        node.inputs.pop();
    }
    for a in &mut n.attribute {
        let value = attr(a, external).map_err(|e| format!("{}: attribute {:?} {e}", node.label(), a.name))?;
        node.attrs.insert(a.name.clone(), value);
    }
    Ok(node)
}

/// Refuses a node whose result has a type that the canonical opset lacks, known from a constant of that type.
fn result_type(node: &Node, narrow: &HashMap<String, &str>) -> std::result::Result<(), String> {
    let example = match node.op.as_str() {
        "QuantizeLinear" => node.input(2),
        "CastLike" => node.input(1),
        _ => None,
    };
    match example.and_then(|name| narrow.get(name)) {
        None => Ok(()),
        Some(kind) => Err(format!(
            "{}: makes {kind}, which opset {} doesn't have. Export the model with 8-bit or 4-bit integers, or in float",
            node.label(),
            OPSET
        )),
    }
}

fn value(v: &proto::ValueInfoProto) -> Value {
    use proto::tensor_shape_proto::dimension::Value as D;
    use proto::type_proto::Value as T;
    let tensor = match v.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(T::TensorType(t)) => Some(t),
        _ => None,
    };
    let shape = tensor.and_then(|t| t.shape.as_ref()).map(|s| {
        s.dim
            .iter()
            .map(|d| match &d.value {
                Some(D::DimValue(n)) if *n >= 0 => Dim::Known(*n),
                Some(D::DimParam(name)) => Dim::Free(name.clone()),
                _ => Dim::Free(String::new()),
            })
            .collect()
    });
    Value { name: v.name.clone(), dtype: DType::from_code(tensor.map_or(0, |t| t.elem_type)), shape }
}

pub(super) fn attr(a: &mut proto::AttributeProto, external: External) -> std::result::Result<Attr, String> {
    use proto::attribute_proto::AttributeType as K;
    let text = |s: &[u8]| String::from_utf8_lossy(s).into_owned();
    if !a.ref_attr_name.is_empty() {
        // Inside a function: the call has the value.
        return Ok(Attr::Other(Box::new(AttrProto(a.clone()))));
    }
    Ok(match K::try_from(a.r#type) {
        Ok(K::Int) => Attr::Int(a.i),
        Ok(K::Float) => Attr::Float(a.f),
        Ok(K::String) => Attr::Str(text(&a.s)),
        Ok(K::Ints) => Attr::Ints(a.ints.clone()),
        Ok(K::Floats) => Attr::Floats(a.floats.clone()),
        Ok(K::Tensor) => match a.t.as_mut() {
            Some(t) if DType::is_stored(t.data_type) => Attr::Tensor(Tensor::from_proto(t, external)?),
            _ => Attr::Other(Box::new(AttrProto(a.clone()))),
        },
        Ok(K::Graph) => match a.g.as_mut() {
            Some(g) => Attr::Graph(Box::new(graph(g, external)?)),
            None => return Err("is an empty graph".into()),
        },
        _ => Attr::Other(Box::new(AttrProto(a.clone()))),
    })
}

fn constant(node: &Node) -> Option<Tensor> {
    match node.attrs.iter().next()? {
        (k, Attr::Tensor(t)) if k == "value" => Some(t.clone()),
        (k, Attr::Int(v)) if k == "value_int" => Some(Tensor::i64(&[], &[*v])),
        (k, Attr::Float(v)) if k == "value_float" => Some(Tensor::f32(&[], &[*v])),
        (k, Attr::Ints(v)) if k == "value_ints" => Some(Tensor::ints(v)),
        (k, Attr::Floats(v)) if k == "value_floats" => Some(Tensor::f32(&[v.len() as i64], v)),
        _ => None,
    }
}

/// ONNX requires topological order, which some tools don't produce. Nodes that are in order stay in place.
fn sort(nodes: Vec<Node>) -> std::result::Result<Vec<Node>, String> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for out in node.outputs.iter().filter(|o| !o.is_empty()) {
            if let Some(first) = producer.insert(out, i) {
                return Err(format!(
                    "value {out:?} is produced twice, by {} and by {}. Export the model again",
                    nodes[first].label(),
                    node.label()
                ));
            }
        }
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0usize; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let mut read = |name: &str| {
            if let Some(&from) = producer.get(name) {
                readers[from].push(i);
                missing[i] += 1;
            }
        };
        node.inputs.iter().for_each(|name| read(name));
        node.each_captured(&mut read);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&i| missing[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &reader in &readers[i] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if let Some(stuck) = missing.iter().position(|&n| n > 0) {
        return Err(format!(
            "its nodes form a cycle; {} waits for its own result, or for one that does. Export the model again",
            nodes[stuck].label()
        ));
    }
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| nodes[i].take()).collect())
}

//! `.onnx` file → [`Graph`].

use super::{Attr, AttrProto, DType, Dim, Graph, Node, Tensor, Value, canonical, proto, sane, tensor};
use crate::{Error, Result};
use prost::{Message, bytes::Bytes};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

impl Graph {
    /// Loads a model and rewrites it to the canonical opset ([`super::OPSET`]).
    ///
    /// Weights may be inline or external (files beside the model). Errors (exit code 3) name the
    /// file and what is wrong with it: not ONNX, truncated, external data missing.
    pub fn load(path: &Path) -> Result<Graph> {
        let bytes = regular(path).and_then(|()| std::fs::read(path)).map_err(|e| {
            Error::Unreadable(format!(
                "can't read the model {}: {e}. Give the path of an .onnx file",
                path.display()
            ))
        })?;
        Self::decode(bytes.into(), path)
    }

    /// [`Graph::load`] of bytes already read; `path` locates external data and names the file in errors.
    pub fn decode(bytes: Bytes, path: &Path) -> Result<Graph> {
        let mut graph = Self::decode_as_is(bytes, path)?;
        canonical::rewrite(&mut graph).map_err(|e| Error::Model(format!("{}: {e}", path.display())))?;
        Ok(graph)
    }

    /// Decodes without touching the opset; for graphs that ONNX Runtime wrote back.
    pub fn decode_as_is(bytes: Bytes, path: &Path) -> Result<Graph> {
        let bad = |why: String| Error::Model(format!("{}: {why}", path.display()));
        let mut model =
            proto::ModelProto::decode(bytes.clone()).map_err(|e| bad(not_onnx(&bytes, Some(&e))))?;
        let opsets = model.opset_import.iter().map(|o| (norm(&o.domain).to_string(), o.version)).collect();
        let Some(mut g) = model.graph.take() else { return Err(bad(not_onnx(&bytes, None))) };
        if g.node.is_empty() && g.output.is_empty() {
            return Err(bad("holds an empty graph. Export the model again".into()));
        }
        // Written after the graph: a file that was cut off there is still good protobuf.
        if model.opset_import.is_empty() {
            return Err(bad("is truncated: it names no operator set. Copy or export it again".into()));
        }
        let external = move |location: &str, offset: u64, length: Option<u64>| {
            read_external(path, location, offset, length)
        };
        let mut graph = graph(&mut g, &external).map_err(bad)?;
        graph.opsets = opsets;
        graph.functions = model.functions;
        graph.metadata = model.metadata_props.into_iter().map(|p| (p.key, p.value)).collect();
        Ok(graph)
    }
}

fn not_onnx(bytes: &[u8], error: Option<&prost::DecodeError>) -> String {
    // Every ONNX file starts with field 1 (ir_version) as a varint.
    if bytes.is_empty() {
        return "is empty, not an ONNX model".into();
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return "is a Git LFS pointer, not the model itself. Fetch it with `git lfs pull`".into();
    }
    if bytes[0] != 0x08 {
        return "is not an ONNX file. Export the model with torch.onnx.export or tf2onnx".into();
    }
    match error {
        Some(e) => {
            format!("is truncated or damaged after {} bytes ({e}). Copy or export it again", bytes.len())
        }
        None => "is truncated: it ends before its graph. Copy or export it again".into(),
    }
}

/// Reads external data: (location, offset, length) → bytes.
pub(super) type External<'a> = &'a dyn Fn(&str, u64, Option<u64>) -> std::result::Result<Vec<u8>, String>;

/// Refuses pipes and devices, which may never end.
fn regular(path: &Path) -> std::io::Result<()> {
    let kind = std::fs::metadata(path)?;
    match kind.is_file() || kind.is_dir() {
        true => Ok(()),
        false => Err(std::io::Error::other("expected a regular file, found a pipe or a device")),
    }
}

fn read_external(
    model: &Path,
    location: &str,
    offset: u64,
    length: Option<u64>,
) -> std::result::Result<Vec<u8>, String> {
    // A model file is somebody else's: it may not name files outside of its own folder.
    let relative = Path::new(location);
    if location.is_empty()
        || relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(format!("has external data at {location:?}, which is not a file beside the model"));
    }
    let path = model.parent().unwrap_or(Path::new("")).join(relative);
    let fail = |e: std::io::Error| {
        format!("has external data in {}: {e}. Put that file beside the model", path.display())
    };
    // Nor by way of a link. Where the model is a link itself, as in caches of downloads, the folder of its target counts too.
    let real = path.canonicalize().map_err(fail)?;
    let beside = |model: &Path| {
        let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
    };
    if !beside(model) && !model.canonicalize().is_ok_and(|model| beside(&model)) {
        return Err(format!(
            "has external data at {location:?}, which is a link out of the model's folder. Copy the file itself there"
        ));
    }
    regular(&path).map_err(fail)?;
    let mut file = std::fs::File::open(&path).map_err(fail)?;
    let available = file.metadata().map_err(fail)?.len().saturating_sub(offset);
    let length = length.unwrap_or(available);
    if length > available {
        return Err(format!(
            "has external data in {}, which is too short: {length} bytes wanted at offset {offset}, {available} there. \
             Copy it again",
            path.display()
        ));
    }
    file.seek(SeekFrom::Start(offset)).map_err(fail)?;
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

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
        let mut node = Node {
            op: std::mem::take(&mut n.op_type),
            domain: norm(&n.domain).to_string(),
            name: std::mem::take(&mut n.name),
            inputs: std::mem::take(&mut n.input),
            outputs: std::mem::take(&mut n.output),
            ..Default::default()
        };
        // ONNX Runtime (1.31) takes an absent last input that is named "" for a present one, and may crash.
        while node.inputs.last().is_some_and(String::is_empty) {
            node.inputs.pop();
        }
        for a in &mut n.attribute {
            let value =
                attr(a, external).map_err(|e| format!("{}: attribute {:?} {e}", node.label(), a.name))?;
            node.attrs.insert(a.name.clone(), value);
        }
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
    // Old exporters list weights among the inputs too.
    out.inputs = g.input.iter().filter(|v| !out.constants.contains_key(&v.name)).map(value).collect();
    out.outputs = g.output.iter().map(value).collect();
    out.nodes = sort(nodes)?;
    Ok(out)
}

/// Refuses a node whose result has a type that the canonical opset doesn't have, by the example of a constant of that type.
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
            super::OPSET
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
        // Inside a function: the call says the value.
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

/// ONNX demands topological order; files from careless tools don't always have it. Nodes already in order keep their
/// places.
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

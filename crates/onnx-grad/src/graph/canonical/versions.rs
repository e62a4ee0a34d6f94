//! Raises older versions of standard operators: attributes that became inputs, changed defaults, replaced
//! operators.

use super::{Done, Rewrite, refs};
use crate::graph::tensor;
use crate::{Attr, DType, Node, Tensor, Value};

/// The oldest supported version.
pub const OLDEST: i64 = 7;

/// The result of a change.
enum Raised {
    /// The node was changed, and is not yet appended.
    Changed,
    /// The node's replacement has been appended.
    Written,
}

type Raise = fn(&mut Rewrite, &mut Node) -> Result<Raised, String>;

/// For files of every version.
const ALWAYS: i64 = i64::MAX;

/// Operators, the version that changed them, and the rewrite of an older node. The rows of an operator are
/// applied in order.
const CHANGES: &[(&[&str], i64, Raise)] = &[
    (&["Squeeze", "Unsqueeze", "ReduceSum"], 13, axes),
    (&["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"], 18, axes),
    (&["ReduceMin", "ReduceProd", "ReduceSumSquare"], 18, axes),
    (&["BatchNormalization"], 9, one_spatial_mean),
    (&["BatchNormalization"], 14, outputs_say_training),
    (&["BatchNormalization"], ALWAYS, batch_normalization),
    (&["Cast", "CastLike"], ALWAYS, cast),
    (&["Clip"], 11, |rw, node| {
        rw.float_to_input(node, "min", 1, None);
        rw.float_to_input(node, "max", 2, None);
        Ok(Raised::Changed)
    }),
    (&["DFT"], 20, |rw, node| {
        let axis = match node.attrs.remove("axis") {
            Some(Attr::Int(axis)) => axis,
            _ => 1,
        };
        let axis = rw.int(axis);
        set_input(node, 2, axis);
        Ok(Raised::Changed)
    }),
    (&["DequantizeLinear"], ALWAYS, dequantize),
    (&["Dropout"], ALWAYS, dropout),
    (&["GRU", "LSTM", "RNN"], ALWAYS, batch_in_front),
    (&["GridSample"], 20, grid_sample),
    (&["Mod"], ALWAYS, modulo),
    (&["Pad"], 11, |rw, node| {
        rw.ints_to_input(node, "pads", 1);
        rw.float_to_input(node, "value", 2, Some(0.0));
        Ok(Raised::Changed)
    }),
    (&["QuantizeLinear"], ALWAYS, |_, node| {
        node.attrs.remove("precision");
        Ok(Raised::Changed)
    }),
    (&["Range"], ALWAYS, range),
    (&["Resize"], 11, |rw, node| {
        let scales = node.input(1).unwrap_or("").to_string();
        resize_from_asymmetric(rw, node, scales)
    }),
    // Version 16 added the attribute, with another default than the rule before it.
    (&["RoiAlign"], 16, |_, node| {
        node.attrs.insert("coordinate_transformation_mode".into(), "output_half_pixel".into());
        Ok(Raised::Changed)
    }),
    (&["Scan"], 9, scan_of_batch),
    (&["Scatter"], ALWAYS, |_, node| {
        node.op = "ScatterElements".into();
        Ok(Raised::Changed)
    }),
    (&["Slice"], 10, |rw, node| {
        for (i, attr) in [(1, "starts"), (2, "ends"), (3, "axes")] {
            rw.ints_to_input(node, attr, i);
        }
        Ok(Raised::Changed)
    }),
    (&["Softmax", "LogSoftmax", "Hardmax"], 13, flattened),
    (&["SpaceToDepth"], ALWAYS, depth_in_front),
    (&["Split"], 13, |rw, node| {
        rw.ints_to_input(node, "split", 1);
        Ok(Raised::Changed)
    }),
    // Since 18, an even split needs the number of parts.
    (&["Split"], ALWAYS, |_, node| {
        if node.input(1).is_none() && !node.attrs.contains_key("num_outputs") {
            node.attrs.insert("num_outputs".into(), Attr::Int(node.outputs.len() as i64));
        }
        Ok(Raised::Changed)
    }),
    (&["TopK"], 10, |rw, node| {
        if let Some(Attr::Int(k)) = node.attrs.remove("k") {
            let k = rw.ints(&[k]);
            set_input(node, 1, k);
        }
        Ok(Raised::Changed)
    }),
    (&["Upsample"], ALWAYS, |rw, node| {
        let scales = match node.attrs.remove("scales") {
            Some(Attr::Floats(v)) => rw.constant(Tensor::f32(&[v.len() as i64], &v)),
            _ => node.input(1).unwrap_or("").to_string(),
        };
        resize_from_asymmetric(rw, node, scales)
    }),
];

/// Appends a node of the standard set, of opset `version`, in the canonical opset.
pub(super) fn raise(rw: &mut Rewrite, mut node: Node, version: i64) -> Done {
    let op = node.op.clone();
    for (_, _, change) in
        CHANGES.iter().filter(|(ops, from, _)| version < *from && ops.contains(&op.as_str()))
    {
        if let Raised::Written = change(rw, &mut node)? {
            return Ok(());
        }
    }
    rw.nodes.push(node);
    Ok(())
}

impl Rewrite<'_> {
    /// Sets input `i` from a list attribute, if the node has it.
    fn ints_to_input(&mut self, node: &mut Node, attr: &str, i: usize) {
        if let Some(Attr::Ints(v)) = node.attrs.remove(attr) {
            let name = self.ints(&v);
            set_input(node, i, name);
        }
    }
    /// Sets input `i` from a float attribute or its default.
    fn float_to_input(&mut self, node: &mut Node, attr: &str, i: usize, default: Option<f32>) {
        let value = match node.attrs.remove(attr) {
            Some(Attr::Float(v)) => Some(v),
            _ => default,
        };
        if let Some(v) = value {
            let name = self.scalar(v);
            set_input(node, i, name);
        }
    }
}

fn set_input(node: &mut Node, i: usize, name: String) {
    if node.inputs.len() <= i {
        node.inputs.resize(i + 1, String::new());
    }
    node.inputs[i] = name;
}

fn axes(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    rw.ints_to_input(node, "axes", 1);
    Ok(Raised::Changed)
}

/// Dropout is the identity, except in training mode.
fn dropout(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    let off = |mode: &str| rw.constants.get(mode).and_then(Tensor::to_i64s).is_some_and(|mode| mode == [0]);
    if node.input(2).is_some_and(|mode| !off(mode)) {
        return Ok(Raised::Changed);
    }
    if let Some(mask) = node.output(1) {
        // The mask: nothing is dropped.
        let shape = rw.op("Shape", &[&node.x(0)?]);
        let all = Tensor { dtype: DType::Bool, shape: vec![1], bytes: vec![1].into() };
        rw.nodes.push(Node::new("ConstantOfShape", &[&shape], mask).with("value", all));
    }
    node.op = "Identity".into();
    node.attrs.clear();
    node.inputs.truncate(1);
    node.outputs.truncate(1);
    Ok(Raised::Changed)
}

/// With spatial = 0 there is a mean for each position of a channel. MXNet wrote it together with one mean per
/// channel, which ONNX Runtime reads as spatial = 1.
fn one_spatial_mean(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    let of_channels = |i: usize| {
        let values = node.input(i).and_then(|name| rw.constants.get(name));
        values.is_some_and(|values| values.shape.len() == 1)
    };
    match node.int("spatial", 1) {
        0 if !(1..5).all(of_channels) => Err(
            "spatial = 0 is covered where scale, bias, mean and variance are constants of one value for each channel. Export the model with \
             opset 9 or later, which doesn't have this attribute"
                .into(),
        ),
        _ => Ok(Raised::Changed),
    }
}

/// Several outputs mean training mode.
fn outputs_say_training(_: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    if node.outputs.iter().skip(1).any(|out| !out.is_empty()) {
        node.attrs.insert("training_mode".into(), Attr::Int(1));
        node.outputs.truncate(3);
    }
    Ok(Raised::Changed)
}

fn batch_normalization(_: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    for attr in ["spatial", "is_test", "consumed_inputs"] {
        node.attrs.remove(attr);
    }
    // Weight standardisation is exported as a batch norm in training mode, over weights; it folds away.
    if node.int("training_mode", 0) == 0 {
        node.outputs.truncate(1);
    }
    Ok(Raised::Changed)
}

/// Softmax and similar operators that flatten to two dimensions at `axis` (default 1) and work along the
/// second.
fn flattened(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    let axis = node.int("axis", 1);
    if axis == -1 {
        return Ok(Raised::Changed);
    }
    let x = node.x(0)?;
    let shape = rw.op("Shape", &[&x]);
    let flat = rw.push("Flatten", &[&x], &[("axis", axis.into())]);
    let soft = rw.push(&node.op, &[&flat], &[("axis", (-1i64).into())]);
    rw.finish(node, "Reshape", &[&soft, &shape], &[])?;
    Ok(Raised::Written)
}

fn grid_sample(_: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    *node = node.clone().with("mode", grid_mode(node));
    Ok(Raised::Changed)
}

/// The mode of an older GridSample by its name of today.
pub(super) fn grid_mode(node: &Node) -> &str {
    match node.str("mode", "bilinear") {
        "bilinear" => "linear",
        "bicubic" => "cubic",
        other => other,
    }
}

fn range(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    node.attrs.remove("stash_type");
    // ONNX Runtime accepts scalars only; some files have lists of one.
    for i in 0..node.inputs.len() {
        if !rw.constants.get(&node.inputs[i]).is_some_and(|t| t.shape.is_empty()) {
            node.inputs[i] = rw.reshape(&node.inputs[i], &[]);
        }
    }
    Ok(Raised::Changed)
}

fn cast(_: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    node.attrs.remove("round_mode");
    match tensor::narrow(i32::try_from(node.int("to", 0)).unwrap_or(0)) {
        Some((_, kind)) => Err(format!(
            "makes {kind}, which opset {} doesn't have. Export the model without it",
            super::OPSET
        )),
        None => Ok(Raised::Changed),
    }
}

/// The remainder with the divisor's sign, which floats have since version 28: fmod(fmod(x, y) + y, y).
fn modulo(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    if node.int("fmod", 0) != 0 || !rw.dtype(&node.x(0)?).is_some_and(DType::is_float) {
        return Ok(Raised::Changed);
    }
    let y = node.x(1)?;
    let fmod = [("fmod", Attr::Int(1))];
    let rest = rw.push("Mod", &[&node.x(0)?, &y], &fmod);
    let sum = rw.op("Add", &[&rest, &y]);
    rw.finish(node, "Mod", &[&sum, &y], &fmod)?;
    Ok(Raised::Written)
}

fn dequantize(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    let to = match node.attrs.remove("output_dtype") {
        Some(Attr::Int(to)) if to != 0 => to,
        _ => return Ok(Raised::Changed),
    };
    let attrs: Vec<(&str, Attr)> = node.attrs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let y = rw.push("DequantizeLinear", &refs(&node.inputs), &attrs);
    rw.finish(node, "Cast", &[&y], &[("to", to.into())])?;
    Ok(Raised::Written)
}

/// SpaceToDepth with channels (channel, row, column), from the older form's (row, column, channel).
fn depth_in_front(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    match node.attrs.remove("mode") {
        Some(Attr::Str(mode)) if mode == "CRD" => {}
        _ => return Ok(Raised::Changed),
    }
    let block = node.int("blocksize", 1);
    let y = rw.push("SpaceToDepth", &[&node.x(0)?], &[("blocksize", block.into())]);
    let (lead, any, sizes) = (rw.ints(&[0, block * block]), rw.ints(&[-1]), rw.dims(&y, 2, None));
    let apart = rw.concat(&[&lead, &any, &sizes], 0);
    let apart = rw.op("Reshape", &[&y, &apart]);
    let swapped = rw.transpose(&apart, &[0, 2, 1, 3, 4]);
    let shape = rw.op("Shape", &[&y]);
    rw.finish(node, "Reshape", &[&swapped, &shape], &[])?;
    Ok(Raised::Written)
}

/// A recurrent operator with the batch as first axis, rewritten with the sequence first: ONNX Runtime has no
/// kernels for the other layout.
fn batch_in_front(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    if node.int("layout", 0) != 1 {
        return Ok(Raised::Changed);
    }
    let mut inner = node.clone();
    inner.attrs.remove("layout");
    for i in [0, 5, 6] {
        if let Some(x) = node.input(i) {
            inner.inputs[i] = rw.transpose(x, &[1, 0, 2]);
        }
    }
    let perms: [&[i64]; 3] = [&[2, 0, 1, 3], &[1, 0, 2], &[1, 0, 2]];
    let mut after = Vec::new();
    for (i, perm) in perms.into_iter().enumerate() {
        if let Some(out) = node.output(i) {
            inner.outputs[i] = rw.name("sequence");
            after.push(Node::new("Transpose", &[&inner.outputs[i]], out).with("perm", perm));
        }
    }
    rw.nodes.push(inner);
    rw.nodes.extend(after);
    Ok(Raised::Written)
}

/// Scan's old form with a batch axis, as a scan along the batch whose step is the scan of one entry.
fn scan_of_batch(rw: &mut Rewrite, node: &mut Node) -> Result<Raised, String> {
    node.without_inputs(&[(0, "sequence_lens")])?;
    let given: Vec<&str> = node.inputs.iter().skip(1).map(String::as_str).collect();
    let float = |name: &String| Value { name: name.clone(), dtype: DType::F32, shape: None };
    let of_item: Vec<String> = given.iter().map(|_| rw.name("item")).collect();
    let made: Vec<String> = node.outputs.iter().map(|_| rw.name("made")).collect();
    let mut item = Node::new("Scan", &refs(&of_item), "");
    item.outputs = made.clone();
    for (name, value) in &node.attrs {
        let name = if name == "directions" { "scan_input_directions" } else { name };
        item.attrs.insert(name.to_string(), value.clone());
    }
    let mut body = crate::Graph::new(vec![item], Default::default());
    body.inputs = of_item.iter().map(float).collect();
    body.outputs = made.iter().map(float).collect();
    let mut whole = Node::new("Scan", &given, "")
        .with("body", Attr::Graph(Box::new(body)))
        .with("num_scan_inputs", given.len() as i64);
    whole.name = node.name.clone();
    whole.outputs = node.outputs.clone();
    rw.nodes.push(whole);
    Ok(Raised::Written)
}

/// Upsample and Resize-10 have one coordinate rule. The standard doesn't say how the nearest pixel is
/// rounded: ONNX Runtime rounds up along an axis that shrinks, and down along others. Scales that nodes
/// compute count as growing.
fn resize_from_asymmetric(rw: &mut Rewrite, node: &mut Node, scales: String) -> Result<Raised, String> {
    let factors = rw.constants.get(&scales).and_then(Tensor::to_f32s).unwrap_or_default();
    node.inputs = vec![node.x(0)?, String::new(), scales];
    node.op = "Resize".into();
    node.attrs.insert("coordinate_transformation_mode".into(), "asymmetric".into());
    node.attrs.insert("nearest_mode".into(), "floor".into());
    let nearest = node.str("mode", "nearest") == "nearest";
    let shrinks = nearest && factors.iter().any(|factor| *factor < 1.0);
    if !shrinks {
        return Ok(Raised::Changed);
    }
    if factors.iter().any(|factor| *factor > 1.0) {
        // A node has one way of rounding, so the axes that grow get their own.
        let part = |keep: fn(f32) -> f32| -> Tensor {
            let part: Vec<f32> = factors.iter().map(|factor| keep(*factor)).collect();
            Tensor::f32(&[part.len() as i64], &part)
        };
        let (larger, smaller) = (part(|factor| factor.max(1.0)), part(|factor| factor.min(1.0)));
        let mut grown = node.clone();
        grown.inputs[2] = rw.constant(larger);
        grown.outputs = vec![rw.name("Resize")];
        grown.name.clear();
        node.inputs[0].clone_from(&grown.outputs[0]);
        node.inputs[2] = rw.constant(smaller);
        rw.nodes.push(grown);
    }
    node.attrs.insert("nearest_mode".into(), "ceil".into());
    Ok(Raised::Changed)
}

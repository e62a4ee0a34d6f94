//! Older versions of standard operators, brought up: attributes that became inputs, defaults that changed, operators
//! that were replaced.

use super::{Done, Rewrite};
use crate::graph::tensor;
use crate::{Attr, DType, Node, Tensor, Value};

/// The oldest version that is understood.
pub const OLDEST: i64 = 7;

impl Rewrite<'_> {
    /// Sets input `i` from a list attribute, if the node has it.
    fn ints_to_input(&mut self, node: &mut Node, attr: &str, i: usize) {
        if let Some(Attr::Ints(v)) = node.attrs.remove(attr) {
            let name = self.constant(Tensor::ints(&v));
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
            let name = self.constant(Tensor::f32(&[], &[v]));
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

/// Appends what a node of the standard set, in `version`, is in the canonical one.
pub(super) fn raise(rw: &mut Rewrite, mut node: Node, version: i64) -> Done {
    match node.op.as_str() {
        "Squeeze" | "Unsqueeze" | "ReduceSum" if version < 13 => rw.ints_to_input(&mut node, "axes", 1),
        "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceSumSquare"
            if version < 18 =>
        {
            rw.ints_to_input(&mut node, "axes", 1);
        }
        "Split" => {
            if version < 13 {
                rw.ints_to_input(&mut node, "split", 1);
            }
            // Since 18 an even split must say into how many parts.
            if node.input(1).is_none() && !node.attrs.contains_key("num_outputs") {
                node.attrs.insert("num_outputs".into(), Attr::Int(node.outputs.len() as i64));
            }
        }
        "Slice" if version < 10 => {
            rw.ints_to_input(&mut node, "starts", 1);
            rw.ints_to_input(&mut node, "ends", 2);
            rw.ints_to_input(&mut node, "axes", 3);
        }
        "Clip" if version < 11 => {
            rw.float_to_input(&mut node, "min", 1, None);
            rw.float_to_input(&mut node, "max", 2, None);
        }
        "Pad" if version < 11 => {
            rw.ints_to_input(&mut node, "pads", 1);
            rw.float_to_input(&mut node, "value", 2, Some(0.0));
        }
        "TopK" if version < 10 => {
            if let Some(Attr::Int(k)) = node.attrs.remove("k") {
                let k = rw.constant(Tensor::ints(&[k]));
                set_input(&mut node, 1, k);
            }
        }
        // An exported model is an inference graph: dropout is the identity there, whatever the file says.
        "Dropout" => {
            if let Some(mask) = node.output(1) {
                // Nothing is dropped.
                let shape = rw.op("Shape", &[&node.x(0)?]);
                let all = Tensor { dtype: DType::Bool, shape: vec![1], bytes: vec![1].into() };
                rw.nodes.push(Node::new("ConstantOfShape", &[&shape], mask).with("value", all));
            }
            node.op = "Identity".into();
            node.attrs.clear();
            node.inputs.truncate(1);
            node.outputs.truncate(1);
        }
        "BatchNormalization" => {
            if version < 9 && node.int("spatial", 1) == 0 {
                return Err(format!("{}: spatial=0 is not supported", node.label()));
            }
            for attr in ["spatial", "is_test", "consumed_inputs"] {
                node.attrs.remove(attr);
            }
            // Before 14 more outputs said so.
            if version < 14 && node.outputs.iter().skip(1).any(|out| !out.is_empty()) {
                node.attrs.insert("training_mode".into(), Attr::Int(1));
                node.outputs.truncate(3);
            }
            // Weight standardisation is exported as a batch norm in training mode, over weights: that one folds away.
            if node.int("training_mode", 0) == 0 {
                node.outputs.truncate(1);
            }
        }
        // Before 13 these flatten to two dimensions at `axis` (default 1) and work along the second.
        "Softmax" | "LogSoftmax" | "Hardmax" if version < 13 => {
            let axis = node.int("axis", 1);
            if axis == -1 {
                rw.nodes.push(node);
                return Ok(());
            }
            let x = node.x(0)?;
            let shape = rw.op("Shape", &[&x]);
            let flat = rw.push("Flatten", &[&x], &[("axis", axis.into())]);
            let soft = rw.push(&node.op, &[&flat], &[("axis", (-1i64).into())]);
            return rw.finish(&node, "Reshape", &[&soft, &shape], &[]);
        }
        "Upsample" => {
            let scales = match node.attrs.remove("scales") {
                Some(Attr::Floats(v)) => rw.constant(Tensor::f32(&[v.len() as i64], &v)),
                _ => node.input(1).unwrap_or("").to_string(),
            };
            resize_from_asymmetric(&mut node, scales)?;
        }
        "Resize" if version < 11 => {
            let scales = node.input(1).unwrap_or("").to_string();
            resize_from_asymmetric(&mut node, scales)?;
        }
        "Scatter" => node.op = "ScatterElements".into(),
        "DFT" if version < 20 => {
            let axis = match node.attrs.remove("axis") {
                Some(Attr::Int(axis)) => axis,
                _ => 1,
            };
            let axis = rw.constant(Tensor::i64(&[], &[axis]));
            set_input(&mut node, 2, axis);
        }
        "GridSample" if version < 20 => {
            let mode = match node.str("mode", "bilinear") {
                "bilinear" => "linear",
                "bicubic" => "cubic",
                other => other,
            };
            node = node.clone().with("mode", mode);
        }
        "Range" => {
            node.attrs.remove("stash_type");
            // ONNX Runtime takes scalars only, where some files have lists of one.
            for i in 0..node.inputs.len() {
                if !rw.constants.get(&node.inputs[i]).is_some_and(|t| t.shape.is_empty()) {
                    let none = rw.constant(Tensor::i64(&[0], &[]));
                    node.inputs[i] = rw.op("Reshape", &[&node.inputs[i], &none]);
                }
            }
        }
        "Cast" | "CastLike" => {
            node.attrs.remove("round_mode");
            if let Some((_, kind)) = tensor::narrow(i32::try_from(node.int("to", 0)).unwrap_or(0)) {
                return Err(format!(
                    "makes {kind}, which opset {} doesn't have. Export the model without it",
                    super::OPSET
                ));
            }
        }
        "Mod" if node.int("fmod", 0) == 0 && rw.dtype(&node.x(0)?).is_some_and(DType::is_float) => {
            // The remainder with the divisor's sign, which floats have since version 28: fmod of (fmod of x and y) + y and y.
            let y = node.x(1)?;
            let fmod = [("fmod", Attr::Int(1))];
            let rest = rw.push("Mod", &[&node.x(0)?, &y], &fmod);
            let sum = rw.op("Add", &[&rest, &y]);
            return rw.finish(&node, "Mod", &[&sum, &y], &fmod);
        }
        "Scan" if version < 9 => return scan_of_batch(rw, &node),
        "QuantizeLinear" => drop(node.attrs.remove("precision")),
        "DequantizeLinear" => {
            if let Some(Attr::Int(to)) = node.attrs.remove("output_dtype")
                && to != 0
            {
                let inputs: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
                let attrs: Vec<(&str, Attr)> =
                    node.attrs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
                let y = rw.push("DequantizeLinear", &inputs, &attrs);
                return rw.finish(&node, "Cast", &[&y], &[("to", to.into())]);
            }
        }
        "SpaceToDepth" => {
            if let Some(Attr::Str(mode)) = node.attrs.remove("mode")
                && mode == "CRD"
            {
                return depth_in_front(rw, &node);
            }
        }
        "GRU" | "LSTM" | "RNN" if node.int("layout", 0) == 1 => return batch_in_front(rw, &node),
        _ => {}
    }
    rw.nodes.push(node);
    Ok(())
}

/// SpaceToDepth whose channels are (channel, row, column), where the older form has (row, column, channel).
fn depth_in_front(rw: &mut Rewrite, node: &Node) -> Done {
    let block = node.int("blocksize", 1);
    let y = rw.push("SpaceToDepth", &[&node.x(0)?], &[("blocksize", block.into())]);
    let (lead, any, sizes) = (rw.ints(&[0, block * block]), rw.ints(&[-1]), rw.dims(&y, 2, None));
    let apart = rw.concat(&[&lead, &any, &sizes], 0);
    let apart = rw.op("Reshape", &[&y, &apart]);
    let swapped = rw.transpose(&apart, &[0, 2, 1, 3, 4]);
    let shape = rw.op("Shape", &[&y]);
    rw.finish(node, "Reshape", &[&swapped, &shape], &[])
}

/// A recurrent operator whose batch is the first axis, with the sequence first: ONNX Runtime has no kernels for the other.
fn batch_in_front(rw: &mut Rewrite, node: &Node) -> Done {
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
    Ok(())
}

/// Upsample and Resize-10 know one coordinate rule and round down.
/// The form with a batch in front, as a scan along the batch whose step is the scan of one item.
fn scan_of_batch(rw: &mut Rewrite, node: &Node) -> Done {
    node.without_inputs(&[(0, "sequence_lens")])?;
    let given: Vec<&str> = node.inputs.iter().skip(1).map(String::as_str).collect();
    let float = |name: &String| Value { name: name.clone(), dtype: DType::F32, shape: None };
    let of_item: Vec<String> = given.iter().map(|_| rw.name("item")).collect();
    let made: Vec<String> = node.outputs.iter().map(|_| rw.name("made")).collect();
    let mut item = Node::new("Scan", &of_item.iter().map(String::as_str).collect::<Vec<_>>(), "");
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
    Ok(())
}

fn resize_from_asymmetric(node: &mut Node, scales: String) -> Done {
    node.inputs = vec![node.x(0)?, String::new(), scales];
    node.op = "Resize".into();
    node.attrs.insert("coordinate_transformation_mode".into(), "asymmetric".into());
    node.attrs.insert("nearest_mode".into(), "floor".into());
    Ok(())
}

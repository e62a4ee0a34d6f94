//! Older versions of standard operators, brought up: attributes that became inputs, defaults that changed, operators
//! that were replaced.

use super::{Done, Rewrite};
use crate::{Attr, Node, Tensor};

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
            if node.output(1).is_some() {
                let label = node.label();
                return Err(format!("{label}: its mask output is used, which only training graphs do"));
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
        _ => {}
    }
    rw.nodes.push(node);
    Ok(())
}

/// Upsample and Resize-10 know one coordinate rule and round down.
fn resize_from_asymmetric(node: &mut Node, scales: String) -> Done {
    node.inputs = vec![node.x(0)?, String::new(), scales];
    node.op = "Resize".into();
    node.attrs.insert("coordinate_transformation_mode".into(), "asymmetric".into());
    node.attrs.insert("nearest_mode".into(), "floor".into());
    Ok(())
}

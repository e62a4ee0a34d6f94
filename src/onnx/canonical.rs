//! Rewrites a graph to one opset, so that everything after knows one form of each operator.
//!
//! Up: attributes that became inputs, defaults that changed, operators that were replaced. Newer opsets
//! down: apart from new operators, versions 22 to 26 only widened types, so the version is all there is to change.

use super::{Attr, Graph, Node, Tensor};

/// The canonical version of the standard operator set. From 22 on ONNX Runtime's CUDA kernels lag behind.
pub const OPSET: i64 = 21;

/// The oldest version that is understood.
const OLDEST: i64 = 7;

pub(super) fn rewrite(graph: &mut Graph) -> Result<(), String> {
    let version = *graph.opsets.get("").unwrap_or(&OPSET);
    if version < OLDEST {
        return Err(format!(
            "uses opset {version}; {OLDEST} is the oldest that is understood. Convert it with onnx.version_converter, \
             or export it again with opset_version=17"
        ));
    }
    let mut fresh = 0;
    rewrite_graph(graph, version, &mut fresh)?;
    graph.opsets.insert(String::new(), OPSET);
    Ok(())
}

/// What a node is rewritten with: new nodes and constants take unused names.
struct Rewrite<'a> {
    constants: &'a mut std::collections::BTreeMap<String, Tensor>,
    nodes: Vec<Node>,
    fresh: &'a mut usize,
}

impl Rewrite<'_> {
    fn name(&mut self, hint: &str) -> String {
        *self.fresh += 1;
        format!("audit/{hint}/{}", self.fresh)
    }
    fn constant(&mut self, hint: &str, t: Tensor) -> String {
        let name = self.name(hint);
        self.constants.insert(name.clone(), t);
        name
    }
    /// Sets input `i` from a list attribute, if the node has it.
    fn ints_to_input(&mut self, node: &mut Node, attr: &str, i: usize) {
        if let Some(Attr::Ints(v)) = node.attrs.remove(attr) {
            let name = self.constant(attr, Tensor::ints(&v));
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
            let name = self.constant(attr, Tensor::f32(&[], &[v]));
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

fn rewrite_graph(graph: &mut Graph, version: i64, fresh: &mut usize) -> Result<(), String> {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut rw = Rewrite { constants: &mut graph.constants, nodes: Vec::with_capacity(nodes.len()), fresh };
    for mut node in nodes {
        for attr in node.attrs.values_mut() {
            if let Attr::Graph(g) = attr {
                rewrite_graph(g, version, rw.fresh)?;
            }
        }
        if node.domain.is_empty() {
            rewrite_node(&mut rw, node, version)?;
        } else {
            rw.nodes.push(node);
        }
    }
    graph.nodes = rw.nodes;
    Ok(())
}

fn rewrite_node(rw: &mut Rewrite, mut node: Node, version: i64) -> Result<(), String> {
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
                let k = rw.constant("k", Tensor::ints(&[k]));
                set_input(&mut node, 1, k);
            }
        }
        // An exported model is an inference graph: dropout is the identity there, whatever the file says.
        "Dropout" => {
            if node.output(1).is_some() {
                return Err(format!(
                    "{}: its mask output is used, which only training graphs do",
                    node.label()
                ));
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
            // Weight standardisation is exported as a batch norm in training mode, over weights: that one folds away.
            if node.int("training_mode", 0) == 0 {
                node.outputs.truncate(1);
            }
        }
        // Before 13 these flatten to two dimensions at `axis` (default 1) and work along the second.
        "Softmax" | "LogSoftmax" if version < 13 => {
            let axis = node.int("axis", 1);
            if axis == -1 {
                rw.nodes.push(node);
                return Ok(());
            }
            let (x, y, op) = (node.inputs[0].clone(), node.outputs[0].clone(), node.op.clone());
            let (shape, flat, soft) = (rw.name("shape"), rw.name("flat"), rw.name("soft"));
            rw.nodes.push(Node::new("Shape", &[&x], &shape));
            rw.nodes.push(Node::new("Flatten", &[&x], &flat).with("axis", axis));
            let mut inner = Node::new(&op, &[&flat], &soft).with("axis", -1);
            inner.name = node.name;
            rw.nodes.push(inner);
            rw.nodes.push(Node::new("Reshape", &[&soft, &shape], &y));
            return Ok(());
        }
        "Upsample" => {
            let scales = match node.attrs.remove("scales") {
                Some(Attr::Floats(v)) => rw.constant("scales", Tensor::f32(&[v.len() as i64], &v)),
                _ => node.input(1).unwrap_or("").to_string(),
            };
            resize_from_asymmetric(&mut node, scales);
        }
        "Resize" if version < 11 => {
            let scales = node.input(1).unwrap_or("").to_string();
            resize_from_asymmetric(&mut node, scales);
        }
        "Scatter" => node.op = "ScatterElements".into(),
        _ => {}
    }
    rw.nodes.push(node);
    Ok(())
}

/// Upsample and Resize-10 know one coordinate rule and round down.
fn resize_from_asymmetric(node: &mut Node, scales: String) {
    node.op = "Resize".into();
    node.inputs = vec![node.inputs[0].clone(), String::new(), scales];
    node.attrs.insert("coordinate_transformation_mode".into(), "asymmetric".into());
    node.attrs.insert("nearest_mode".into(), "floor".into());
}

//! Computes integer inputs in floats, such as images of uint8 whose first node is a Cast.

use super::{DType, Graph, Node, Tensor};
use std::collections::HashMap;
use std::ops::Range;

/// Integer types of inputs with 256 grey levels, and the values of black and white.
const LEVELS: [(DType, [f32; 2]); 8] = [
    (DType::U8, [0.0, 255.0]),
    (DType::I8, [-128.0, 127.0]),
    (DType::U16, [0.0, 255.0]),
    (DType::I16, [0.0, 255.0]),
    (DType::U32, [0.0, 255.0]),
    (DType::I32, [0.0, 255.0]),
    (DType::U64, [0.0, 255.0]),
    (DType::I64, [0.0, 255.0]),
];

/// Operators that move the values of their first input and compute nothing.
const MOVE: [&str; 15] = [
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherND",
    "Identity",
    "Reshape",
    "ReverseSequence",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

impl DType {
    /// The values of black and white in an input of this integer type; `None` for other types.
    pub fn grey_levels(self) -> Option<[f32; 2]> {
        LEVELS.iter().find(|(dtype, _)| *dtype == self).map(|(_, levels)| *levels)
    }
}

impl Graph {
    /// Makes an integer input one of float32, and computes in floats the integers that depend on it. For
    /// integer values the graph computes the same as before; between them, its derivative is that of the
    /// arithmetic after the conversion. Expects a graph of the canonical opset. Changes nothing unless the
    /// input's type has grey levels ([`DType::grey_levels`]).
    ///
    /// Error: the label of a node that computes with the integers in a way that floats don't, and why.
    pub fn widen_integers(&mut self, input: &str) -> Result<(), String> {
        let Some(value) = self.inputs.iter_mut().find(|i| i.name == input) else { return Ok(()) };
        if value.dtype.grey_levels().is_none() {
            return Ok(());
        }
        // Former integers that are floats now → their former type.
        let mut moving: HashMap<String, DType> = [(input.to_string(), value.dtype)].into();
        value.dtype = DType::F32;
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes {
            let label = node.label();
            let widened = self.widened(node, &mut moving).map_err(|why| format!("{label} {why}"))?;
            self.nodes.extend(widened);
        }
        match self.outputs.iter().find(|out| moving.contains_key(&out.name)) {
            Some(out) => Err(format!("output {:?} holds the integers themselves", out.name)),
            None => Ok(()),
        }
    }

    /// The nodes that replace `node`.
    fn widened(
        &mut self,
        node: Node,
        moving: &mut HashMap<String, DType>,
    ) -> Result<Vec<Node>, &'static str> {
        if node.captured().iter().any(|name| moving.contains_key(name)) {
            return Err("reads the integers in a branch");
        }
        let Some(dtype) = node.inputs.iter().find_map(|name| moving.get(name).copied()) else {
            return Ok(vec![node]);
        };
        let first = node.inputs.first().is_some_and(|name| moving.contains_key(name));
        let alone = first && !node.inputs[1..].iter().any(|name| moving.contains_key(name));
        let standard = node.domain.is_empty();
        match node.op.as_str() {
            "Shape" | "Size" if standard => Ok(vec![node]),
            "Cast" if standard => {
                let to = DType::from_code(node.int("to", 0) as i32);
                if to.is_float() {
                    return Ok(vec![node]);
                }
                if !holds(to, dtype) {
                    return Err("converts the integers to a type that doesn't hold all of them");
                }
                let copy = Node { op: "Identity".into(), attrs: Default::default(), ..node };
                moving.insert(copy.outputs[0].clone(), to);
                Ok(vec![copy])
            }
            "CastLike" if standard && alone => {
                let to = self.constants.get(&node.inputs[1]).map(|t| t.dtype).filter(|to| to.is_float());
                let to = to.ok_or("converts the integers to a type that the graph doesn't state")?;
                Ok(vec![Node::new("Cast", &[&node.inputs[0]], &node.outputs[0]).with("to", to)])
            }
            op if standard && alone && MOVE.contains(&op) => self.moved(node, 0..0, dtype, moving),
            "Concat" if standard => self.moved(node, 0..usize::MAX, dtype, moving),
            // The third input is the border's value.
            "Pad" if standard && first => self.moved(node, 2..3, dtype, moving),
            "Resize" if standard && alone && node.str("mode", "nearest") == "nearest" => {
                self.moved(node, 0..0, dtype, moving)
            }
            // Sums and products of grey levels and constants are exact in float32. Narrower integers
            // overflow.
            "Add" | "Sub" | "Mul" if standard && matches!(dtype, DType::I32 | DType::I64) => {
                self.moved(node, 0..2, dtype, moving)
            }
            "DequantizeLinear" if standard && alone => self.dequantised(&node),
            _ => Err("computes with the integers in another way than with floats"),
        }
    }

    /// The node with the former integers among its outputs, and the inputs in `joined` as floats.
    fn moved(
        &mut self,
        mut node: Node,
        joined: Range<usize>,
        dtype: DType,
        moving: &mut HashMap<String, DType>,
    ) -> Result<Vec<Node>, &'static str> {
        for name in node.inputs.iter_mut().take(joined.end).skip(joined.start) {
            *name = self.as_float(name, moving)?;
        }
        moving.extend(node.outputs.iter().map(|out| (out.clone(), dtype)));
        Ok(vec![node])
    }

    /// A former integer value as floats: the value itself, or a constant.
    fn as_float(&mut self, name: &str, moving: &HashMap<String, DType>) -> Result<String, &'static str> {
        if name.is_empty() || moving.contains_key(name) {
            return Ok(name.to_string());
        }
        let constant = self.constants.get(name).ok_or("joins the integers with others")?;
        let values = constant.to_i64s().ok_or("joins the integers with others")?;
        let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        let (float, t) = (format!("audit/float-of/{name}"), Tensor::f32(&constant.shape, &values));
        self.constants.insert(float.clone(), t);
        Ok(float)
    }

    /// (x − zero point) · scale, with a single scale.
    fn dequantised(&mut self, node: &Node) -> Result<Vec<Node>, &'static str> {
        const SEVERAL: &str = "has a scale that is no constant, or several";
        let one = |t: &Tensor| t.len() == 1;
        let scale = node.input(1).and_then(|name| self.constants.get(name)).filter(|t| one(t));
        let scale = scale.and_then(Tensor::to_f32s).ok_or(SEVERAL)?[0];
        let zero = match node.input(2) {
            None => 0,
            Some(name) => {
                let zero = self.constants.get(name).filter(|t| one(t));
                zero.and_then(Tensor::to_i64s).ok_or(SEVERAL)?[0]
            }
        };
        let out = &node.outputs[0];
        let [scaled, zeroed, moved] =
            ["scale", "zero", "moved"].map(|part| format!("audit/input-{part}-of/{out}"));
        self.constants.insert(scaled.clone(), Tensor::f32(&[], &[scale]));
        self.constants.insert(zeroed.clone(), Tensor::f32(&[], &[zero as f32]));
        let mut last = Node::new("Mul", &[&moved, &scaled], out);
        last.name.clone_from(&node.name);
        Ok(vec![Node::new("Sub", &[&node.inputs[0], &zeroed], &moved), last])
    }
}

/// Whether an integer type has all values of another one, for images and sums of grey levels.
fn holds(to: DType, from: DType) -> bool {
    match (from, to) {
        (_, DType::I32 | DType::I64) | (DType::I8, DType::I16) => true,
        (DType::U8, DType::I16 | DType::U16 | DType::U32 | DType::U64) => true,
        _ => to == from,
    }
}

//! The vocabulary of rules: the growing list of backward nodes, and a rule's view of its node.

use super::Processor;
use crate::graph::refs;
use crate::{Attr, Bytes, DType, Graph, Node, Tensor, Types};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of elements of a constant that is shared with equal ones.
const SHORT: usize = 16;

/// Maximum size of an identity matrix: 64 MiB. The limit of memory doesn't count the graph's constants.
const MOST_OF_IDENTITY: i64 = 4096;

/// Operators whose output is an image if their input is, as in [`Cx::is_image`].
const IMAGE_OPERATORS: [&str; 29] = [
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "DepthToSpace",
    "Div",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Mean",
    "Mul",
    "Neg",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Sub",
    "Sum",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// The backward graph while it grows.
pub(super) struct Tape<'a> {
    pub types: &'a Types,
    processor: Processor,
    /// Forward value → the node that makes it.
    makers: HashMap<&'a str, &'a Node>,
    /// Values that only max-pools read.
    pooled: HashSet<&'a str>,
    pub nodes: Vec<Node>,
    /// Output of an Expand → its input.
    expanded: HashMap<String, String>,
    /// Values that are padded with zeros along one axis.
    placed: HashMap<String, Placed>,
    pub constants: BTreeMap<String, Tensor>,
    /// Constants of at most [`SHORT`] elements, by type, shape and bytes.
    short: HashMap<(DType, Vec<i64>, Bytes), String>,
    /// Outputs that rules add to the forward graph: node, output slot, name, type, shape.
    pub extra_outputs: Vec<(usize, usize, String, DType, Vec<i64>)>,
    /// Prefix of the names of backward values. No name of the graph begins with it.
    prefix: String,
    fresh: usize,
}

/// A value between zeros along one axis.
#[derive(Clone)]
struct Placed {
    value: String,
    axis: usize,
    /// Where the value begins and ends.
    from: i64,
    to: i64,
    /// The length of the axis with the zeros.
    size: i64,
}

impl<'a> Tape<'a> {
    pub fn new(graph: &'a Graph, types: &'a Types, processor: Processor) -> Self {
        let made = |node: &'a Node| node.outputs.iter().map(move |out| (out.as_str(), node));
        let makers = graph.nodes.iter().flat_map(made).collect();
        let is_pool = |node: &Node| node.op == "MaxPool" && node.domain.is_empty();
        let (pools, others): (Vec<&Node>, Vec<&Node>) = graph.nodes.iter().partition(|node| is_pool(node));
        let mut pooled: HashSet<&str> = pools.iter().filter_map(|pool| pool.input(0)).collect();
        let outputs = graph.outputs.iter().map(|out| out.name.clone());
        for name in others.into_iter().flat_map(Node::reads).chain(outputs) {
            pooled.remove(name.as_str());
        }
        Tape {
            types,
            processor,
            makers,
            pooled,
            nodes: vec![],
            expanded: HashMap::new(),
            placed: HashMap::new(),
            constants: BTreeMap::new(),
            short: HashMap::new(),
            extra_outputs: vec![],
            prefix: graph.free_prefix("backward"),
            fresh: 0,
        }
    }
    pub fn push(&mut self, node: Node) {
        if node.op == "Expand" {
            self.expanded.insert(node.outputs[0].clone(), node.inputs[0].clone());
        }
        self.nodes.push(node);
    }
    fn name(&mut self, hint: &str) -> String {
        self.fresh += 1;
        format!("{}{hint}_{}", self.prefix, self.fresh)
    }
    fn constant(&mut self, t: Tensor) -> String {
        // The same axes and scalars occur many times; each needs one initializer only.
        let key = (t.len() <= SHORT).then(|| (t.dtype, t.shape.clone(), t.bytes.clone()));
        if let Some(name) = key.as_ref().and_then(|key| self.short.get(key)) {
            return name.clone();
        }
        let name = self.name("const");
        self.short.extend(key.map(|key| (key, name.clone())));
        self.constants.insert(name.clone(), t);
        name
    }
    /// Replaces parts that fill an axis side by side, such as those of a value that was split, by one Concat.
    /// It copies once; otherwise each part would be padded with zeros and added.
    fn joined(&mut self, parts: Vec<String>) -> Vec<String> {
        let (mut placed, mut rest): (Vec<Placed>, Vec<String>) = (Vec::new(), Vec::new());
        for part in &parts {
            match self.placed.get(part) {
                Some(found) => placed.push(found.clone()),
                None => rest.push(part.clone()),
            }
        }
        placed.sort_by_key(|part| part.from);
        let [first, .., last] = &placed[..] else { return parts };
        let fills = (first.from, last.to) == (0, first.size)
            && placed.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].axis == pair[1].axis);
        if !fills {
            return parts;
        }
        let (out, axis) = (self.name("joined"), first.axis as i64);
        let inputs: Vec<&str> = placed.iter().map(|part| part.value.as_str()).collect();
        self.push(Node::new("Concat", &inputs, &out).with("axis", axis));
        rest.insert(0, out);
        rest
    }
    /// Sum of gradient contributions; `None` if there are none.
    pub fn sum(&mut self, parts: Vec<String>) -> Option<String> {
        let parts = self.joined(parts);
        match parts.len() {
            0 | 1 => parts.into_iter().next(),
            n => {
                let out = self.name("sum");
                let mut inputs = refs(&parts);
                // A sum broadcasts by itself if one part has the full shape: the gradient of a mean then
                // needs no Expand.
                if !parts.iter().all(|part| self.expanded.contains_key(part)) {
                    let source = |part| self.expanded.get(part).map_or(part, String::as_str);
                    inputs = parts.iter().map(|part| source(part)).collect();
                }
                self.push(Node::new(if n == 2 { "Add" } else { "Sum" }, &inputs, &out));
                Some(out)
            }
        }
    }
    /// Zeros of the shape and type of a forward value.
    pub fn zeros(&mut self, like: &str) -> String {
        let (dtype, shape) = self.types[like].clone();
        self.filled(0.0, float_view(dtype), &shape)
    }
    fn scalar(&mut self, value: f32, dtype: DType) -> String {
        let c = self.constant(Tensor::f32(&[], &[value]));
        if dtype == DType::F32 {
            return c;
        }
        let out = self.name("cast");
        self.push(Node::new("Cast", &[&c], &out).with("to", dtype));
        out
    }
    fn filled(&mut self, value: f32, dtype: DType, shape: &[i64]) -> String {
        let value = self.scalar(value, dtype);
        let shape = self.constant(Tensor::ints(shape));
        let out = self.name("fill");
        self.push(Node::new("Expand", &[&value, &shape], &out));
        out
    }
}

/// The type of a value's gradient: the value's own type, float32 for quantised integers.
fn float_view(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

/// Slope of a step in float32, 2¹²⁰: a power of two, so that products with it are exact and the step is at
/// the right value. For positive numbers below 1e-36 the step is less than 1.
const STEEP: f32 = f32::from_bits((127 + 120) << 23);

/// A rule's view of its node: inputs, outputs, their shapes, the output gradients. The rule appends nodes,
/// and gives each input its gradient ([`Cx::give`]).
///
/// Values are names. A forward value that a rule reads becomes a residual. Every method takes `&self`, so
/// that calls nest as in the formula.
pub struct Cx<'a, 't> {
    /// The node.
    pub node: &'a Node,
    graph: &'a Graph,
    index: usize,
    tape: RefCell<&'a mut Tape<'t>>,
    types: &'t Types,
    gy: Vec<Option<String>>,
    gy_read: Vec<Cell<bool>>,
    wants: Vec<bool>,
    given: RefCell<Vec<Vec<String>>>,
    own: Cell<bool>,
}

impl<'a, 't> Cx<'a, 't> {
    pub(super) fn new(
        graph: &'a Graph,
        node: &'a Node,
        index: usize,
        tape: &'a mut Tape<'t>,
        gy: Vec<Option<String>>,
        wants: Vec<bool>,
    ) -> Self {
        let given = RefCell::new(vec![vec![]; node.inputs.len()]);
        let gy_read = vec![Cell::new(false); gy.len()];
        Cx {
            node,
            graph,
            index,
            types: tape.types,
            tape: RefCell::new(tape),
            gy,
            gy_read,
            wants,
            given,
            own: Cell::new(false),
        }
    }

    /// Why the rule doesn't cover the node: an output has a gradient that the rule did not read, and that
    /// would be lost.
    pub(super) fn lost(&self) -> Option<String> {
        let i = (0..self.gy.len()).find(|&i| self.gy[i].is_some() && !self.gy_read[i].get())?;
        Some(format!("its output {i} is used too, whose gradient is not covered"))
    }

    /// Tells that a softened rule does the same as the exact one, at this node.
    pub fn own(&self) {
        self.own.set(true);
    }
    /// Whether the rule has called [`Cx::own`].
    pub(super) fn is_own(&self) -> bool {
        self.own.get()
    }

    /// The contributions by input. With `broadcasts`, each is first summed down to its input's shape.
    pub(super) fn finish(self, broadcasts: bool) -> Vec<(usize, Vec<String>)> {
        let given = self.given.take().into_iter().enumerate().filter(|(_, parts)| !parts.is_empty());
        let summed = |i: usize, part: &String| match broadcasts {
            true => self.unbroadcast(part, self.y_shape(), self.x_shape(i)),
            false => part.clone(),
        };
        given.map(|(i, parts)| (i, parts.iter().map(|part| summed(i, part)).collect())).collect()
    }

    /// The processor for which the backward graph is made.
    pub fn processor(&self) -> Processor {
        self.tape.borrow().processor
    }

    /// Forward input `i`.
    pub fn x(&self, i: usize) -> String {
        self.node.inputs[i].clone()
    }
    /// Forward output `i`.
    pub fn y(&self, i: usize) -> String {
        self.node.outputs[i].clone()
    }
    /// Gradient of output 0; zeros if only other outputs have one.
    pub fn gy(&self) -> String {
        self.gy_of(0)
    }
    /// Whether output `i` has a gradient.
    pub fn has_gy(&self, i: usize) -> bool {
        self.gy.get(i).is_some_and(Option::is_some)
    }
    /// Gradient of output `i`; zeros if it has none.
    pub fn gy_of(&self, i: usize) -> String {
        self.gy_read[i].set(true);
        let zeros = || self.tape.borrow_mut().zeros(&self.node.outputs[i]);
        self.gy[i].clone().unwrap_or_else(zeros)
    }
    /// Whether input `i` is an input of the graph that was only moved, cropped, padded, resampled, clipped, or
    /// mapped by a factor and an offset. Looks at the first nodes only, where preprocessing is.
    pub fn is_image(&self, i: usize) -> bool {
        const FIRST: usize = 32;
        let mut open = HashSet::from([self.node.inputs[i].as_str()]);
        // Nodes are in the order of their values.
        for node in self.graph.nodes.iter().take(FIRST.min(self.index)).rev() {
            if node.outputs.iter().filter(|out| open.remove(out.as_str())).count() == 0 {
                continue;
            }
            let constant = |name: &str| name.is_empty() || self.graph.constants.contains_key(name);
            let moving: Vec<&str> =
                node.inputs.iter().map(String::as_str).filter(|input| !constant(input)).collect();
            let known = node.domain.is_empty() && IMAGE_OPERATORS.contains(&node.op.as_str());
            if !known || moving.is_empty() || (moving.len() > 1 && node.op != "Concat") {
                return false;
            }
            open.extend(moving);
        }
        open.iter().all(|name| self.graph.inputs.iter().any(|input| input.name == *name))
    }
    /// Whether input `i` is on the path, so that it needs a gradient.
    pub fn wants(&self, i: usize) -> bool {
        self.wants.get(i).copied().unwrap_or(false)
    }
    /// Adds to the gradient of input `i`, if it needs one.
    pub fn give(&self, i: usize, gradient: String) {
        if self.wants(i) {
            self.given.borrow_mut()[i].push(gradient);
        }
    }
    /// Adds to the gradient of input 0, as the last step of a rule.
    pub fn give_first(&self, gradient: String) -> Result<(), String> {
        self.give(0, gradient);
        Ok(())
    }
    /// Shape of input `i`.
    pub fn x_shape(&self, i: usize) -> &'t [i64] {
        &self.types[&self.node.inputs[i]].1
    }
    /// Shape of output 0.
    pub fn y_shape(&self) -> &'t [i64] {
        &self.types[&self.node.outputs[0]].1
    }
    /// Element type of input `i`.
    pub fn x_type(&self, i: usize) -> DType {
        self.types[&self.node.inputs[i]].0
    }
    /// Element type of output 0.
    pub fn y_type(&self) -> DType {
        self.types[&self.node.outputs[0]].0
    }
    /// The node that makes input `i`, unless it is an input of the graph or a constant.
    pub fn maker(&self, i: usize) -> Option<&'t Node> {
        self.tape.borrow().makers.get(self.node.input(i)?).copied()
    }
    /// Whether only max-pools read output 0.
    pub fn only_pooled(&self) -> bool {
        self.tape.borrow().pooled.contains(self.node.outputs[0].as_str())
    }
    /// Input `i` as constant integers (axes, pads, …); `None` if the input is absent.
    pub fn const_ints(&self, i: usize) -> Result<Option<Vec<i64>>, String> {
        let Some(name) = self.node.input(i) else { return Ok(None) };
        let values = self.graph.const_ints(name);
        let computed = || format!("input {i} ({name}) must be a constant and is computed in the graph");
        values.map(Some).ok_or_else(computed)
    }
    /// Input `i` as constant floats; `None` if it is absent or computed.
    pub fn const_f32s(&self, i: usize) -> Option<Vec<f32>> {
        self.const_tensor(i)?.to_f32s()
    }
    /// The constant behind input `i`.
    pub fn const_tensor(&self, i: usize) -> Option<&'a Tensor> {
        self.graph.constants.get(self.node.input(i)?)
    }
    /// Adds the optional output `slot`, of a given type and shape, to the forward node.
    pub fn extra_output(&self, slot: usize, dtype: DType, shape: &[i64]) -> String {
        if let Some(name) = self.node.output(slot) {
            return name.to_string();
        }
        let mut tape = self.tape.borrow_mut();
        let name = format!("{}{}/output{slot}", tape.prefix, self.node.outputs[0]);
        tape.extra_outputs.push((self.index, slot, name.clone(), dtype, shape.to_vec()));
        name
    }

    /// Appends an operator; returns its output.
    pub fn op(&self, op: &str, inputs: &[&str]) -> String {
        self.op_with(op, inputs, &[])
    }
    /// Appends an operator with attributes; returns its output.
    pub fn op_with(&self, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> String {
        self.op_outputs(op, inputs, attrs, 1).remove(0)
    }
    /// Appends an operator with several outputs.
    pub fn op_outputs(&self, op: &str, inputs: &[&str], attrs: &[(&str, Attr)], n: usize) -> Vec<String> {
        let mut tape = self.tape.borrow_mut();
        let outs: Vec<String> = (0..n).map(|_| tape.name(op)).collect();
        let mut node = Node::new(op, inputs, "");
        node.outputs = outs.clone();
        node.attrs = attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        tape.push(node);
        outs
    }
    /// Element type of the gradient of output 0.
    pub fn gy_type(&self) -> DType {
        float_view(self.y_type())
    }
    /// Element type of the gradient of input `i`.
    pub fn gx_type(&self, i: usize) -> DType {
        float_view(self.x_type(i))
    }
    /// Converts to another element type; returns `a` if the type is the same.
    pub fn cast(&self, a: &str, from: DType, to: DType) -> String {
        if from == to {
            return a.to_string();
        }
        self.op_with("Cast", &[a], &[("to", to.into())])
    }
    /// A float constant of the gradients' element type.
    pub fn scalar(&self, value: f32) -> String {
        self.tape.borrow_mut().scalar(value, self.gy_type())
    }
    /// A float32 constant, cast to the gradients' element type.
    pub fn floats(&self, shape: &[i64], values: &[f32]) -> String {
        self.cast(&self.constant(Tensor::f32(shape, values)), DType::F32, self.gy_type())
    }
    /// An identity matrix, in any shape that keeps the order of its n² values. Error: it would be too large.
    pub fn identity(&self, shape: &[i64], n: i64) -> Result<String, String> {
        Ok(self.cast(&self.identity_f32(shape, n)?, DType::F32, self.gy_type()))
    }
    /// [`Cx::identity`] in float32.
    pub fn identity_f32(&self, shape: &[i64], n: i64) -> Result<String, String> {
        if n > MOST_OF_IDENTITY {
            return Err(format!(
                "its gradient needs a matrix of {n} x {n} numbers, and at most {MOST_OF_IDENTITY} x {MOST_OF_IDENTITY} are covered"
            ));
        }
        let values: Vec<f32> = (0..n * n).map(|i| f32::from(i % (n + 1) == 0)).collect();
        Ok(self.constant(Tensor::f32(shape, &values)))
    }
    /// A one-dimensional integer constant.
    pub fn ints(&self, values: &[i64]) -> String {
        self.constant(Tensor::ints(values))
    }
    pub fn constant(&self, t: Tensor) -> String {
        self.tape.borrow_mut().constant(t)
    }
    /// One value in all places of a shape.
    pub fn filled(&self, value: f32, shape: &[i64]) -> String {
        self.tape.borrow_mut().filled(value, self.gy_type(), shape)
    }
    /// Zeros of a shape.
    pub fn zeros(&self, shape: &[i64]) -> String {
        self.filled(0.0, shape)
    }
    /// Zeros of a shape with `updates` added at `indices`, by ScatterND or ScatterElements.
    ///
    /// Half precision is added in float32: the runtime's CPU kernels add in no narrower type.
    pub fn scatter_add(
        &self,
        op: &str,
        shape: &[i64],
        indices: &str,
        updates: &str,
        attrs: &[(&str, Attr)],
    ) -> String {
        let own = self.gy_type();
        let wide = if own == DType::F64 { own } else { DType::F32 };
        let zeros = self.tape.borrow_mut().filled(0.0, wide, shape);
        let updates = self.cast(updates, own, wide);
        let attrs = [attrs, &[("reduction", "add".into())]].concat();
        let sum = self.op_with(op, &[&zeros, indices, &updates], &attrs);
        self.cast(&sum, wide, own)
    }

    /// a + b.
    pub fn add(&self, a: &str, b: &str) -> String {
        self.op("Add", &[a, b])
    }
    /// a − b.
    pub fn sub(&self, a: &str, b: &str) -> String {
        self.op("Sub", &[a, b])
    }
    /// a · b, elementwise.
    pub fn mul(&self, a: &str, b: &str) -> String {
        self.op("Mul", &[a, b])
    }
    /// a · a, elementwise.
    pub fn square(&self, a: &str) -> String {
        self.mul(a, a)
    }
    /// a / b.
    pub fn div(&self, a: &str, b: &str) -> String {
        self.op("Div", &[a, b])
    }
    /// −a.
    pub fn neg(&self, a: &str) -> String {
        self.op("Neg", &[a])
    }
    /// a · value.
    pub fn scale(&self, a: &str, value: f32) -> String {
        if value == 1.0 {
            return a.to_string();
        }
        self.mul(a, &self.scalar(value))
    }
    /// aᵖ, elementwise.
    pub fn power(&self, a: &str, p: f32) -> String {
        self.op("Pow", &[a, &self.scalar(p)])
    }
    /// `a` if the condition is true, else 0.
    pub fn only_where(&self, condition: &str, a: &str) -> String {
        self.op("Where", &[condition, a, &self.scalar(0.0)])
    }
    /// Input `i` in the gradients' element type. In softened passes, integers and booleans are numbers too.
    pub fn x_as_float(&self, i: usize) -> String {
        self.cast(&self.x(i), self.x_type(i), self.gy_type())
    }
    /// 1 if a condition is true, else 0, as floats.
    pub fn one_where(&self, condition: &str) -> String {
        self.cast(condition, DType::Bool, self.gy_type())
    }
    /// 1 if `a` equals `b`, else 0, as floats.
    pub fn equal(&self, a: &str, b: &str) -> String {
        self.one_where(&self.op("Equal", &[a, b]))
    }
    /// 1 if `a` is positive, else 0, as floats. One pass on all threads, and one for the product: half the
    /// time of a comparison and Where, which ONNX Runtime (1.31, CPU) runs on one thread.
    pub fn positive(&self, a: &str) -> String {
        self.step(a, STEEP, 0.0)
    }
    /// 1 if `a` is below `value`, else 0, as floats.
    pub fn below(&self, a: &str, value: f32) -> String {
        self.step(a, -STEEP, STEEP * value)
    }
    /// clip(slope·a + offset, 0, 1), steep enough to be a step.
    fn step(&self, a: &str, slope: f32, offset: f32) -> String {
        match self.gy_type() {
            DType::F32 => self.hard_sigmoid(a, slope, offset),
            // The slope would be infinite, or there is no kernel.
            _ if slope > 0.0 => self.one_where(&self.greater(a, 0.0)),
            _ => self.one_where(&self.less(a, offset / STEEP)),
        }
    }
    /// 1 − a, for values from 0 to 1. HardSigmoid keeps values in ONNX Runtime's blocked layout; Sub leaves
    /// it.
    pub fn rest_to_one(&self, a: &str) -> String {
        match self.gy_type() {
            DType::F32 => self.hard_sigmoid(a, -1.0, 1.0),
            _ => self.sub(&self.scalar(1.0), a),
        }
    }
    /// clip(slope·a + offset, 0, 1).
    pub fn hard_sigmoid(&self, a: &str, slope: f32, offset: f32) -> String {
        self.op_with("HardSigmoid", &[a], &[("alpha", slope.into()), ("beta", offset.into())])
    }
    /// a > value.
    pub fn greater(&self, a: &str, value: f32) -> String {
        self.op("Greater", &[a, &self.scalar(value)])
    }
    /// a < value.
    pub fn less(&self, a: &str, value: f32) -> String {
        self.op("Less", &[a, &self.scalar(value)])
    }
    /// Reshape to fixed dimensions.
    pub fn reshape(&self, a: &str, shape: &[i64]) -> String {
        self.op_with("Reshape", &[a, &self.ints(shape)], &[("allowzero", 1i64.into())])
    }
    /// Reshape from one shape to another; returns `a` if they are equal.
    pub fn reshape_from(&self, a: &str, from: &[i64], to: &[i64]) -> String {
        if from == to { a.to_string() } else { self.reshape(a, to) }
    }
    /// Broadcast to fixed dimensions.
    pub fn expand(&self, a: &str, shape: &[i64]) -> String {
        self.op("Expand", &[a, &self.ints(shape)])
    }
    /// Permute dimensions.
    pub fn transpose(&self, a: &str, perm: &[i64]) -> String {
        self.op_with("Transpose", &[a], &[("perm", perm.into())])
    }
    /// The inverse of a transpose with `perm`.
    pub fn untranspose(&self, a: &str, perm: &[i64]) -> String {
        let mut inverse = vec![0; perm.len()];
        for (to, &from) in perm.iter().enumerate() {
            inverse[from as usize] = to as i64;
        }
        self.transpose(a, &inverse)
    }
    /// Sum over axes.
    pub fn reduce_sum(&self, a: &str, axes: &[i64], keepdims: bool) -> String {
        let keepdims = i64::from(keepdims).into();
        self.op_with("ReduceSum", &[a, &self.ints(axes)], &[("keepdims", keepdims)])
    }
    /// Puts `a`, which has `length` values along an axis, after `from` zeros of an axis of `size`.
    pub fn place(&self, a: &str, rank: usize, axis: usize, [from, length, size]: [i64; 3]) -> String {
        let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
        (before[axis], after[axis]) = (from, size - from - length);
        let out = self.pad(a, &before, &after);
        if out != a {
            let placed = Placed { value: a.to_string(), axis, from, to: from + length, size };
            self.tape.borrow_mut().placed.insert(out.clone(), placed);
        }
        out
    }
    /// Zero-pads, or crops if negative: `before` and `after` for every dimension.
    pub fn pad(&self, a: &str, before: &[i64], after: &[i64]) -> String {
        self.pad_with(a, 0.0, before, after)
    }
    /// [`Cx::pad`] with another value.
    pub fn pad_with(&self, a: &str, value: f32, before: &[i64], after: &[i64]) -> String {
        if before.iter().chain(after).all(|&p| p == 0) {
            return a.to_string();
        }
        let pads = self.ints(&[before, after].concat());
        if value == 0.0 {
            return self.op("Pad", &[a, &pads]);
        }
        self.op("Pad", &[a, &pads, &self.scalar(value)])
    }
    /// Sums a gradient of the broadcast shape `from` down to `to`.
    pub fn unbroadcast(&self, g: &str, from: &[i64], to: &[i64]) -> String {
        if from == to {
            return g.to_string();
        }
        let lead = from.len() - to.len();
        let axes: Vec<i64> = (0..from.len())
            .filter(|&d| d < lead || (to[d - lead] == 1 && from[d] != 1))
            .map(|d| d as i64)
            .collect();
        let summed = if axes.is_empty() { g.to_string() } else { self.reduce_sum(g, &axes, true) };
        if lead == 0 { summed } else { self.reshape(&summed, to) }
    }
}

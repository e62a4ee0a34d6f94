//! The vocabulary of rules: the growing list of backward nodes, and a rule's view of its node. `operators.rs`
//! has what a rule appends.

mod operators;

use super::Processor;
use crate::graph::refs;
use crate::{Bytes, DType, Graph, Node, Tensor, Types};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of elements of a constant that is shared with equal ones.
const SHORT: usize = 16;

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
    /// Whether input `i` is an input of the graph that was only moved, cropped, padded, resampled, clipped,
    /// or mapped by a factor and an offset. Looks at the first nodes only, where preprocessing is.
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
}

//! Rewrites a graph to one opset, so that all other code knows one form of each operator.
//!
//! Older versions are raised ([`versions`]). Newer operators, and the fused ones of com.microsoft that ONNX
//! Runtime's optimisers write into saved models, are expanded into standard operators: [`EXPANSIONS`] has a
//! row for each. Apart from new operators and a few attributes ([`versions`]), versions 22 to 28 only added
//! types. Local functions are inlined ([`functions`]).
//!
//! Shapes aren't known yet: expansions compute with `Shape`, which folds away when the batch is fixed.

mod attention;
mod contrib;
mod functions;
mod fused;
mod learned;
mod newer;
mod norm;
mod optional;
mod quantised;
mod rotary;
pub(crate) mod unfold;
mod versions;

pub use versions::OLDEST;

use super::sane::DAMAGED;
use super::{Attr, DType, Graph, MICROSOFT, Node, OPSET, Tensor, Types, Value, precision, refs};
use functions::Functions;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The newest supported version. Nobody has checked what later ones change.
pub const NEWEST: i64 = 28;

/// Error: why the node can't be expanded.
type Done = Result<(), String>;

/// One row: an operator that the canonical opset doesn't have, and its expansion into operators that it has.
pub struct Expansion {
    /// Operator set; empty for the standard set.
    pub domain: &'static str,
    /// Name of the operator.
    pub op: &'static str,
    /// The version of its operator set that added it.
    pub since: i64,
    /// Unsupported forms, for the table of operators.
    pub refused: &'static str,
    /// The nodes that [`Graph::unfold`] expands.
    when: unfold::When,
    expand: fn(&mut Rewrite, &Node) -> Done,
}

const fn standard(op: &'static str, since: i64, expand: fn(&mut Rewrite, &Node) -> Done) -> Expansion {
    Expansion { domain: "", op, since, refused: "", when: unfold::When::Shaped, expand }
}

const fn contrib(op: &'static str, expand: fn(&mut Rewrite, &Node) -> Done) -> Expansion {
    Expansion { domain: MICROSOFT, ..standard(op, 1, expand) }
}

impl Expansion {
    const fn refuses(self, refused: &'static str) -> Expansion {
        Expansion { refused, ..self }
    }

    const fn when(self, when: unfold::When) -> Expansion {
        Expansion { when, ..self }
    }
}

const EXPANSIONS: &[&[Expansion]] = &[
    attention::EXPANSIONS,
    contrib::EXPANSIONS,
    fused::EXPANSIONS,
    learned::EXPANSIONS,
    newer::EXPANSIONS,
    norm::EXPANSIONS,
    optional::EXPANSIONS,
    quantised::EXPANSIONS,
    rotary::EXPANSIONS,
];

/// Operators that are expanded at load.
pub fn expanded() -> impl Iterator<Item = &'static Expansion> {
    EXPANSIONS.iter().flat_map(|family| family.iter())
}

pub(super) fn rewrite(graph: &mut Graph) -> Done {
    let version = *graph.opsets.get("").unwrap_or(&OPSET);
    if version < OLDEST {
        return Err(format!(
            "uses opset {version}; {} is the oldest that is understood. Convert it with onnx.version_converter, \
             or export it again with opset_version=17",
            OLDEST
        ));
    }
    if version > NEWEST {
        return Err(format!(
            "uses opset {version}; {NEWEST} is the newest that is understood. Export it again with an older one: \
             torch.onnx.export(…, opset_version=18)"
        ));
    }
    // Names that the file has must not be given again.
    let mut fresh = unfold::largest(graph);
    let functions = Functions::of(graph, fresh)?;
    rewrite_graph(graph, version, &functions, &mut fresh)?;
    graph.opsets.insert(String::new(), OPSET);
    graph.precision = precision::widen(graph);
    Ok(())
}

fn rewrite_graph(graph: &mut Graph, version: i64, functions: &Functions, fresh: &mut usize) -> Done {
    let mut nodes = std::mem::take(&mut graph.nodes);
    drop_unread_masks(&mut nodes, &graph.outputs);
    let mut rw = Rewrite::new(&mut graph.constants, &graph.inputs, functions, None, fresh);
    for node in nodes {
        rw.node(node, version, 0)?;
    }
    graph.nodes = rw.nodes;
    Ok(())
}

/// Removes outputs for a dropout's mask that no node reads: some exporters write them.
fn drop_unread_masks(nodes: &mut [Node], outputs: &[Value]) {
    if !nodes.iter().any(|node| node.op == "Dropout" && node.outputs.len() > 1) {
        return;
    }
    let mut read: HashSet<String> = outputs.iter().map(|out| out.name.clone()).collect();
    read.extend(nodes.iter().flat_map(Node::reads));
    let of_dropout = |node: &&mut Node| node.op == "Dropout" && node.domain.is_empty();
    for node in nodes.iter_mut().filter(of_dropout) {
        if node.output(1).is_some_and(|mask| !read.contains(mask)) {
            node.outputs.truncate(1);
        }
    }
}

/// The nodes that replace a node. New nodes and constants get unused names.
struct Rewrite<'a> {
    nodes: Vec<Node>,
    constants: &'a mut BTreeMap<String, Tensor>,
    inputs: &'a [Value],
    functions: &'a Functions,
    /// Shapes, if known already.
    types: Option<&'a Types>,
    /// Sequence → its elements, if known.
    sequences: HashMap<String, Vec<String>>,
    /// Elements of all sequences together.
    elements: usize,
    makers: RefCell<Makers>,
    /// Values that [`Rewrite::settled`] has looked for.
    settled: RefCell<HashMap<String, Option<i64>>>,
    fresh: &'a mut usize,
}

/// Value → the index of the node that makes it, of the first nodes of [`Rewrite::nodes`]. That list only
/// grows; who replaces it starts a new index.
#[derive(Default)]
struct Makers {
    indexed: usize,
    by_value: HashMap<String, usize>,
}

impl<'a> Rewrite<'a> {
    fn new(
        constants: &'a mut BTreeMap<String, Tensor>,
        inputs: &'a [Value],
        functions: &'a Functions,
        types: Option<&'a Types>,
        fresh: &'a mut usize,
    ) -> Rewrite<'a> {
        Rewrite {
            nodes: Vec::new(),
            constants,
            inputs,
            functions,
            types,
            sequences: HashMap::new(),
            elements: 0,
            makers: Default::default(),
            settled: Default::default(),
            fresh,
        }
    }

    /// Appends `node` in the canonical opset. `depth`: number of function calls around it.
    fn node(&mut self, mut node: Node, version: i64, depth: usize) -> Done {
        for g in node.graphs_mut() {
            rewrite_graph(g, version, self.functions, self.fresh)?;
        }
        if let Some(function) = self.functions.get(&node) {
            return functions::inline(self, &node, function, depth);
        }
        newer::known(&node).map_err(|why| format!("{}: {why}", node.label()))?;
        match expanded().find(|e| e.op == node.op && e.domain == node.domain) {
            Some(e) => (e.expand)(self, &node).map_err(|why| format!("{}: {why}", node.label())),
            _ if node.domain.is_empty() => {
                let label = node.label();
                versions::raise(self, node, version).map_err(|why| format!("{label}: {why}"))
            }
            _ => {
                self.nodes.push(node);
                Ok(())
            }
        }
    }

    /// The node that makes a value, of those so far.
    fn maker(&self, name: &str) -> Option<&Node> {
        let mut makers = self.makers.borrow_mut();
        for (i, node) in self.nodes.iter().enumerate().skip(makers.indexed) {
            makers.by_value.extend(node.outputs.iter().map(|out| (out.clone(), i)));
        }
        makers.indexed = self.nodes.len();
        makers.by_value.get(name).map(|&i| &self.nodes[i])
    }

    fn name(&mut self, hint: &str) -> String {
        *self.fresh += 1;
        format!("audit/{hint}/{}", self.fresh)
    }
    fn constant(&mut self, t: Tensor) -> String {
        let name = self.name("constant");
        self.constants.insert(name.clone(), t);
        name
    }
    fn scalar(&mut self, value: f32) -> String {
        self.constant(Tensor::f32(&[], &[value]))
    }
    fn ints(&mut self, values: &[i64]) -> String {
        self.constant(Tensor::ints(values))
    }
    /// An integer without dimensions.
    fn int(&mut self, value: i64) -> String {
        self.constant(Tensor::i64(&[], &[value]))
    }
    /// Appends an operator; returns its output.
    fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.push(op, inputs, &[])
    }
    /// Appends an operator with attributes; returns its output.
    fn push(&mut self, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> String {
        let out = self.name(op);
        self.nodes.push(with_attrs(Node::new(op, inputs, &out), attrs));
        out
    }
    /// Appends the operator that replaces `node`, with its first output and its name.
    fn finish(&mut self, node: &Node, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> Done {
        let mut last = with_attrs(Node::new(op, inputs, node.output(0).unwrap_or("")), attrs);
        last.name = node.name.clone();
        self.nodes.push(last);
        Ok(())
    }
    /// Names a value like output `i` of `node`, if that exists.
    fn also(&mut self, node: &Node, i: usize, value: &str) {
        if let Some(out) = node.output(i) {
            self.nodes.push(Node::new("Identity", &[value], out));
        }
    }

    /// a · value; returns `a` for 1.
    fn scale(&mut self, a: &str, value: f32) -> String {
        if value == 1.0 {
            return a.to_string();
        }
        let value = self.scalar(value);
        self.op("Mul", &[a, &value])
    }
    fn cast(&mut self, x: &str, to: DType) -> String {
        self.push("Cast", &[x], &[("to", to.into())])
    }
    /// Dimensions `from`..`to` of a value's shape, as a list.
    fn dims(&mut self, x: &str, from: i64, to: Option<i64>) -> String {
        let mut attrs = vec![("start", Attr::Int(from))];
        attrs.extend(to.map(|to| ("end", Attr::Int(to))));
        self.push("Shape", &[x], &attrs)
    }
    /// One dimension, as a list of one; counted from the end if negative.
    fn dim(&mut self, x: &str, i: i64) -> String {
        self.dims(x, i, (i != -1).then_some(i + 1))
    }
    /// 1/√n, for n values along the last dimension.
    fn inverse_root(&mut self, x: &str) -> String {
        let size = self.dim(x, -1);
        let size = self.cast(&size, DType::F32);
        let root = self.op("Sqrt", &[&size]);
        self.op("Reciprocal", &[&root])
    }
    /// Zeros of the type of a value.
    fn zeros_like(&mut self, x: &str, shape: &str) -> String {
        let zero = self.scalar(0.0);
        let zero = self.op("CastLike", &[&zero, x]);
        self.op("Expand", &[&zero, shape])
    }
    /// 0, `step`, … below `end`, which is a list of one; reshaped to `shape`.
    fn counted(&mut self, end: &str, step: i64, shape: &[i64]) -> String {
        let end = self.reshape(end, &[]);
        let (zero, step) = (self.int(0), self.int(step));
        let range = self.op("Range", &[&zero, &end, &step]);
        self.reshape(&range, shape)
    }
    fn concat(&mut self, parts: &[&str], axis: i64) -> String {
        self.push("Concat", parts, &[("axis", axis.into())])
    }
    /// Parts of given sizes along an axis.
    fn split(&mut self, x: &str, sizes: &[i64], axis: i64) -> Vec<String> {
        let parts: Vec<String> = sizes.iter().map(|_| self.name("part")).collect();
        let sizes = self.ints(sizes);
        let mut split = Node::new("Split", &[x, &sizes], "").with("axis", axis);
        split.outputs.clone_from(&parts);
        self.nodes.push(split);
        parts
    }
    /// Entry `i` along an axis, without that axis.
    fn entry(&mut self, x: &str, i: i64, axis: i64) -> String {
        let place = self.int(i);
        self.push("Gather", &[x, &place], &[("axis", axis.into())])
    }
    fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.ints(shape);
        self.op("Reshape", &[x, &shape])
    }
    fn transpose(&mut self, x: &str, perm: &[i64]) -> String {
        self.push("Transpose", &[x], &[("perm", perm.into())])
    }
    /// Three sizes, each as a list of one: the product of the dimensions before an axis, the axis, the
    /// product of those after it.
    fn around(&mut self, x: &str, axis: &str) -> [String; 3] {
        let rw = self;
        let shape = rw.op("Shape", &[x]);
        let one = rw.ints(&[1]);
        let (axis, zero) = (rw.op("Reshape", &[axis, &one]), rw.ints(&[0]));
        let axis = rw.cast(&axis, DType::I64);
        let rank = rw.op("Size", &[&shape]);
        let counted = rw.op("Add", &[&axis, &rank]);
        let negative = rw.op("Less", &[&axis, &zero]);
        let axis = rw.op("Where", &[&negative, &counted, &axis]);
        let (after, end) = (rw.op("Add", &[&axis, &one]), rw.ints(&[i64::MAX]));
        let mut part = |from: &str, to: &str| {
            let sizes = rw.op("Slice", &[&shape, from, to]);
            rw.op("ReduceProd", &[&sizes])
        };
        let parts = [part(&zero, &axis), part(&axis, &after), part(&after, &end)];
        let line = rw.ints(&[1]);
        parts.map(|part| rw.op("Reshape", &[&part, &line]))
    }
    /// x[from..to] along the last dimension; the bounds are lists of one.
    fn slice_last(&mut self, x: &str, from: &str, to: &str) -> String {
        let axis = self.ints(&[-1]);
        self.op("Slice", &[x, from, to, &axis])
    }

    /// Element type of a value, if it follows from the graph itself: types aren't inferred yet.
    fn dtype(&self, name: &str) -> Option<DType> {
        let mut name = name;
        // Masks are made in a few steps; longer chains aren't worth the time.
        for _ in 0..16 {
            if let Some(t) = self.constants.get(name) {
                return Some(t.dtype);
            }
            if let Some(v) = self.inputs.iter().find(|v| v.name == name) {
                return Some(v.dtype);
            }
            let made = self.maker(name)?;
            match made.op.as_str() {
                "And" | "Or" | "Not" | "Xor" | "Equal" | "Greater" | "GreaterOrEqual" | "Less"
                | "LessOrEqual" | "IsNaN" | "IsInf" => return Some(DType::Bool),
                "Cast" => return Some(DType::from_code(made.int("to", 0) as i32)),
                "ConstantOfShape" => {
                    return Some(match made.attrs.get("value") {
                        Some(Attr::Tensor(t)) => t.dtype,
                        _ => DType::F32,
                    });
                }
                "Where" | "CastLike" => name = made.input(1)?,
                "Concat" | "Expand" | "Flatten" | "Gather" | "GatherND" | "GatherElements" | "Identity"
                | "Pad" | "Reshape" | "ScatterND" | "Slice" | "Squeeze" | "Tile" | "Transpose" | "Trilu"
                | "Unsqueeze" | "Add" | "Sub" | "Mul" | "Div" => name = made.input(0)?,
                _ => return None,
            }
        }
        None
    }
}

fn with_attrs(node: Node, attrs: &[(&str, Attr)]) -> Node {
    attrs.iter().fold(node, |node, (name, value)| node.with(name, value.clone()))
}

impl Node {
    /// Input `i`, which is required.
    fn x(&self, i: usize) -> Result<String, String> {
        self.input(i).map(str::to_string).ok_or_else(|| format!("has no input {i}"))
    }
    /// Refuses unsupported optional inputs.
    fn without_inputs(&self, inputs: &[(usize, &str)]) -> Done {
        match inputs.iter().find(|(i, _)| self.input(*i).is_some()) {
            Some((_, name)) => Err(format!("its input {name} is not covered")),
            None => Ok(()),
        }
    }
    /// Refuses unsupported optional outputs.
    fn without_outputs(&self, outputs: &[(usize, &str)]) -> Done {
        match outputs.iter().find(|(i, _)| self.output(*i).is_some()) {
            Some((_, name)) => Err(format!("its output {name} is used, which is not covered")),
            None => Ok(()),
        }
    }
    /// Refuses other values of an integer attribute.
    fn only(&self, attr: &str, value: i64) -> Done {
        match self.int(attr, value) {
            v if v == value => Ok(()),
            v => Err(format!("{attr} = {v} is not covered, only {value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Clip's bounds become constants. A weight with the name that the first of them would get keeps its
    /// value.
    #[test]
    fn names_of_the_file_are_not_given_again() {
        let weight = Tensor::f32(&[], &[7.0]);
        let name = "audit/constant/1";
        let clip = Node::new("Clip", &["x"], "clipped").with("min", 0.0f32).with("max", 1.0f32);
        let add = Node::new("Add", &["clipped", name], "y");
        let mut graph = Graph::new(vec![clip, add], [(name.to_string(), weight.clone())].into());
        graph.opsets.insert(String::new(), 10);
        graph.inputs.push(Value::new("x", DType::F32, &[2]));
        graph.outputs.push(Value::new("y", DType::F32, &[2]));
        let canonical = Graph::decode(graph.encode().into(), Path::new("test")).unwrap();
        assert_eq!(canonical.constants[name], weight);
        let clip = &canonical.nodes[0];
        let bound = |i: usize| canonical.constants[clip.input(i).unwrap()].to_f32s().unwrap();
        assert_eq!((bound(1), bound(2)), (vec![0.0], vec![1.0]));
    }

    /// Also of the branches of an If; numbers that no rewrite reaches don't count.
    #[test]
    fn names_of_branches_count() {
        let constants = [("audit/constant/5".to_string(), Tensor::ints(&[1]))];
        let branch = Graph::new(vec![], constants.into());
        let node = Node::new("If", &["audit/x/99999999999999999999"], "y")
            .with("then_branch", Attr::Graph(Box::new(branch)));
        assert_eq!(unfold::largest(&Graph::new(vec![node], Default::default())), 5);
    }
}

//! ONNX files as graphs: load, save, rewrite to one canonical opset. Independent of gradients and ONNX
//! Runtime.

mod apart;
mod canonical;
mod external;
mod integers;
mod load;
mod precision;
#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod proto;
mod random;
mod read;
pub(crate) mod sane;
mod save;
mod tensor;

pub use apart::{Apart, TensorData};
pub(crate) use canonical::unfold::unfolded;
pub(crate) use canonical::{Expansion, expanded};
pub use canonical::{NEWEST, OLDEST};
pub use external::ExternalRange;
pub use prost::bytes::Bytes;
pub use random::Drawn;
pub use save::Encoded;
pub use tensor::{DType, Tensor};

use std::collections::{BTreeMap, HashMap, HashSet};

/// The canonical version of the standard operator set, to which every graph is rewritten at load. ONNX
/// Runtime lacks CUDA kernels for some operators of 22 and later.
pub const OPSET: i64 = 21;

/// ONNX Runtime's own operator set.
pub const MICROSOFT: &str = "com.microsoft";

/// Element type and shape of every value of a graph, constants included.
pub type Types = HashMap<String, (DType, Vec<i64>)>;

/// A graph: nodes, constants, inputs and outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Initializers and the values of Constant nodes, by name.
    pub constants: BTreeMap<String, Tensor>,
    /// Inputs that aren't constants.
    pub inputs: Vec<Value>,
    /// Outputs.
    pub outputs: Vec<Value>,
    /// Version of each operator set; the standard set has the empty name.
    pub opsets: BTreeMap<String, i64>,
    /// The narrowest float in the file, before it was widened to float32.
    pub precision: DType,
    /// The file's `metadata_props`.
    pub metadata: BTreeMap<String, String>,
    /// Local functions, unchanged from the file.
    pub(crate) functions: Vec<proto::FunctionProto>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions; `None`: unknown rank.
    pub shape: Option<Vec<Dim>>,
}

/// A dimension of a [`Value`].
#[derive(Clone, Debug, PartialEq)]
pub enum Dim {
    /// A number.
    Known(i64),
    /// A name, such as "batch"; empty if the file has none.
    Free(String),
}

/// An operator applied to named values. A missing optional input or output has the empty name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name of the operator, such as "Conv".
    pub op: String,
    /// Operator set; empty for the standard set.
    pub domain: String,
    /// The node's own name, for messages.
    pub name: String,
    /// Input values.
    pub inputs: Vec<String>,
    /// Output values.
    pub outputs: Vec<String>,
    /// Attributes.
    pub attrs: BTreeMap<String, Attr>,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Attr {
    Int(i64),
    Float(f32),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Tensor(Tensor),
    Graph(Box<Graph>),
    /// A kind that no rule reads, passed on unchanged.
    Other(Box<AttrProto>),
}

/// An attribute as protobuf, opaque outside this module.
#[derive(Clone, Debug, PartialEq)]
pub struct AttrProto(proto::AttributeProto);

impl Attr {
    /// The sub-graph, if the attribute is one.
    pub(crate) fn graph(&self) -> Option<&Graph> {
        match self {
            Attr::Graph(g) => Some(g),
            _ => None,
        }
    }
}

impl AttrProto {
    /// The elements of a list of strings.
    pub(crate) fn strings(&self) -> Vec<String> {
        self.0.strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect()
    }
}

/// Names as arguments of an operator.
pub(crate) fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

impl Value {
    /// A value of known shape.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[i64]) -> Self {
        Value { name: name.into(), dtype, shape: Some(shape.iter().map(|&d| Dim::Known(d)).collect()) }
    }
    /// The first dimension, the batch, if it is a number.
    pub fn fixed_batch(&self) -> Option<usize> {
        match self.shape.as_deref()?.first()? {
            Dim::Known(n) => Some(*n as usize),
            Dim::Free(_) => None,
        }
    }
    /// The shape as text, free dimensions by name: `[batch, 3, 224, 224]`.
    pub fn shape_text(&self) -> String {
        match &self.shape {
            None => "[rank unknown]".into(),
            Some(dims) => {
                let dims: Vec<String> = dims
                    .iter()
                    .map(|d| match d {
                        Dim::Known(n) => n.to_string(),
                        Dim::Free(n) if n.is_empty() => "?".into(),
                        Dim::Free(n) => n.clone(),
                    })
                    .collect();
                format!("[{}]", dims.join(", "))
            }
        }
    }
}

impl Node {
    /// A node of the standard operator set with one output.
    pub fn new(op: &str, inputs: &[&str], output: &str) -> Self {
        Node {
            op: op.into(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: vec![output.into()],
            ..Default::default()
        }
    }
    /// Moves the node to another operator set.
    pub fn in_domain(mut self, domain: &str) -> Self {
        self.domain = domain.into();
        self
    }
    /// Adds an attribute.
    pub fn with(mut self, name: &str, value: impl Into<Attr>) -> Self {
        self.attrs.insert(name.into(), value.into());
        self
    }
    /// The node in messages: `Conv "layer1/conv1"`.
    pub fn label(&self) -> String {
        let name =
            if self.name.is_empty() { self.outputs.iter().find(|o| !o.is_empty()) } else { Some(&self.name) };
        format!("{} \"{}\"", self.operator(), name.map_or("", |n| n))
    }
    /// The operator, with its operator set unless that is the standard set.
    pub(crate) fn operator(&self) -> String {
        if self.domain.is_empty() { self.op.clone() } else { format!("{}::{}", self.domain, self.op) }
    }
    /// Input `i`; `None` if absent.
    pub fn input(&self, i: usize) -> Option<&str> {
        self.inputs.get(i).map(String::as_str).filter(|s| !s.is_empty())
    }
    /// Output `i`; `None` if absent.
    pub fn output(&self, i: usize) -> Option<&str> {
        self.outputs.get(i).map(String::as_str).filter(|s| !s.is_empty())
    }
    /// Integer attribute with its default.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        match self.attrs.get(name) {
            Some(Attr::Int(v)) => *v,
            _ => default,
        }
    }
    /// Float attribute with its default.
    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.given_float(name).unwrap_or(default)
    }
    /// Float attribute.
    pub(crate) fn given_float(&self, name: &str) -> Option<f32> {
        match self.attrs.get(name) {
            Some(Attr::Float(v)) => Some(*v),
            _ => None,
        }
    }
    /// Float list attribute.
    pub(crate) fn floats(&self, name: &str) -> Option<&[f32]> {
        match self.attrs.get(name) {
            Some(Attr::Floats(v)) => Some(v),
            _ => None,
        }
    }
    /// Integer list attribute.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attrs.get(name) {
            Some(Attr::Ints(v)) => Some(v),
            _ => None,
        }
    }
    /// Integer list attribute with its default.
    pub(crate) fn ints_or(&self, name: &str, default: &[i64]) -> Vec<i64> {
        self.ints(name).unwrap_or(default).to_vec()
    }
    /// String attribute with its default.
    pub fn str<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        match self.attrs.get(name) {
            Some(Attr::Str(v)) => v,
            _ => default,
        }
    }
}

macro_rules! attr_from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Attr {
            fn from(v: $from) -> Attr { Attr::$variant(v.into()) }
        }
    )*};
}
attr_from!(i64 => Int, f32 => Float, &str => Str, &[i64] => Ints, Vec<i64> => Ints, Vec<f32> => Floats, Tensor => Tensor);

impl From<DType> for Attr {
    fn from(dtype: DType) -> Attr {
        Attr::Int(dtype.code().into())
    }
}

impl From<&[&str]> for Attr {
    fn from(words: &[&str]) -> Attr {
        let strings = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let kind = proto::attribute_proto::AttributeType::Strings as i32;
        Attr::Other(Box::new(AttrProto(proto::AttributeProto {
            strings,
            r#type: kind,
            ..Default::default()
        })))
    }
}

impl Graph {
    /// A graph of the canonical opset, without inputs and outputs.
    pub fn new(nodes: Vec<Node>, constants: BTreeMap<String, Tensor>) -> Graph {
        Graph { nodes, constants, opsets: [(String::new(), OPSET)].into(), ..Default::default() }
    }

    /// Whether `node` calls a local function of the file.
    pub fn defines(&self, node: &Node) -> bool {
        self.functions.iter().any(|f| f.name == node.op && f.domain == node.domain)
    }

    /// A node that repeats a sub-graph an unknown number of times, in this graph or in a branch.
    pub fn find_loop(&self) -> Option<&Node> {
        self.nodes.iter().find_map(|node| match node.op.as_str() {
            "Loop" | "SequenceMap" => Some(node),
            _ => node.graphs().find_map(Graph::find_loop),
        })
    }

    /// Whether a node makes or reads a sequence, which has elements instead of a shape.
    pub fn has_sequences(&self) -> bool {
        self.nodes.iter().any(|node| node.domain.is_empty() && canonical::unfold::of_sequences(&node.op))
    }

    /// A constant as integers, for axes, shapes, pads and the like.
    pub fn const_ints(&self, name: &str) -> Option<Vec<i64>> {
        self.constants.get(name)?.to_i64s()
    }

    /// Drops nodes without readers, then constants without readers.
    pub fn prune(&mut self) {
        let mut wanted: HashSet<String> = self.outputs.iter().map(|o| o.name.clone()).collect();
        let mut kept = Vec::with_capacity(self.nodes.len());
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if node.outputs.iter().any(|o| !o.is_empty() && wanted.contains(o)) {
                wanted.extend(node.reads());
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        self.constants.retain(|name, _| wanted.contains(name));
    }

    /// Renames a value everywhere. Another value of the new name gets a third one.
    pub fn rename(&mut self, from: &str, to: &str) {
        if from == to {
            return;
        }
        let mut taken = HashSet::new();
        self.each_name(&mut |name| {
            taken.insert(name.clone());
        });
        let mut aside = format!("{to}/inner");
        while taken.contains(&aside) {
            aside.push('_');
        }
        self.each_name(&mut |name| {
            if name == to {
                name.clone_from(&aside);
            } else if name == from {
                *name = to.to_string();
            }
        });
    }

    /// Calls `f` with the name of every value at every occurrence, sub-graphs included.
    fn each_name(&mut self, f: &mut dyn FnMut(&mut String)) {
        let constants = std::mem::take(&mut self.constants).into_iter();
        self.constants = constants
            .map(|(mut name, t)| {
                f(&mut name);
                (name, t)
            })
            .collect();
        self.inputs.iter_mut().chain(&mut self.outputs).for_each(|value| f(&mut value.name));
        for node in &mut self.nodes {
            node.inputs.iter_mut().chain(&mut node.outputs).filter(|n| !n.is_empty()).for_each(&mut *f);
            node.graphs_mut().for_each(|g| g.each_name(f));
        }
    }

    /// Calls `f` with the name of every value, once or more, sub-graphs included.
    pub(crate) fn visit_names(&self, f: &mut dyn FnMut(&str)) {
        self.constants.keys().for_each(|name| f(name));
        self.inputs.iter().chain(&self.outputs).for_each(|value| f(&value.name));
        for node in &self.nodes {
            node.inputs.iter().chain(&node.outputs).for_each(|name| f(name));
            node.graphs().for_each(|g| g.visit_names(f));
        }
    }

    /// `word/`, with underscores behind the word if names of the graph begin so, as in files that `audit
    /// grad` wrote: no name of the graph begins with the result.
    pub fn free_prefix(&self, word: &str) -> String {
        let mut word = word.to_string();
        loop {
            let prefix = format!("{word}/");
            let mut begins = false;
            self.visit_names(&mut |name| begins |= name.starts_with(&prefix));
            if !begins {
                return prefix;
            }
            word.push('_');
        }
    }

    /// Drops inputs that no node reads and that are not outputs.
    pub fn prune_inputs(&mut self) {
        let mut read: HashSet<String> = self.outputs.iter().map(|o| o.name.clone()).collect();
        read.extend(self.nodes.iter().flat_map(Node::reads));
        self.inputs.retain(|i| read.contains(&i.name));
    }
}

impl Node {
    /// The node's sub-graphs.
    pub fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.attrs.values().filter_map(Attr::graph)
    }
    /// The node's sub-graphs, to be changed.
    pub(crate) fn graphs_mut(&mut self) -> impl Iterator<Item = &mut Graph> {
        self.attrs.values_mut().filter_map(|attr| match attr {
            Attr::Graph(g) => Some(&mut **g),
            _ => None,
        })
    }
    /// All values that the node or its sub-graphs read.
    pub(crate) fn reads(&self) -> Vec<String> {
        self.inputs.iter().cloned().chain(self.captured()).collect()
    }
    /// All outer values that the node's sub-graphs read.
    pub fn captured(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.each_captured(&mut |name| names.push(name.to_string()));
        names
    }
    /// Calls `f` with every outer value that the node's sub-graphs read.
    pub fn each_captured(&self, f: &mut dyn FnMut(&str)) {
        for g in self.graphs() {
            let made = g.nodes.iter().flat_map(|n| &n.outputs);
            let own: HashSet<&str> = made
                .chain(g.constants.keys())
                .chain(g.inputs.iter().map(|v| &v.name))
                .map(String::as_str)
                .collect();
            let mut outer = |name: &str| {
                if !name.is_empty() && !own.contains(name) {
                    f(name);
                }
            };
            for node in &g.nodes {
                node.inputs.iter().for_each(|n| outer(n));
                node.each_captured(&mut outer);
            }
            g.outputs.iter().for_each(|o| outer(&o.name));
        }
    }
}

//! Reverse-mode differentiation, graph to graph, in standard ONNX operators.
//!
//! [`differentiate`] turns a graph x → y into two: the forward graph, which also outputs the
//! *residuals*, values that the backward pass reads again; and the backward graph
//! (residuals, cotangent ∂L/∂y) → ∂L/∂x. Weights are constants, so each rule is half of its textbook form.
//!
//! The walk is here: which values carry a gradient, fan-out sums, un-broadcasting, what is missing. A rule
//! (see [`rules::RULES`]) only says how one node's output gradient becomes gradients of its inputs.
//! Knows nothing of ONNX Runtime.

pub(crate) mod rules;
mod tape;

use tape::Cx;
pub(crate) use tape::refs;

use crate::operators::Class;
use crate::{Attr, DType, Graph, Node, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Element type and shape of every value of a graph, constants included.
pub type Types = HashMap<String, (DType, Vec<i64>)>;

/// The result of [`differentiate`].
#[derive(Debug)]
pub struct Differentiated {
    /// x → y and the residuals (outputs: the original ones, then [`Differentiated::residuals`]).
    pub forward: Graph,
    /// (residuals, cotangents) → gradients.
    pub backward: Graph,
    /// Values that the forward graph hands to the backward graph.
    pub residuals: Vec<String>,
    /// Backward input for each output's cotangent ∂L/∂y, of that output's shape.
    pub cotangents: Vec<String>,
    /// Backward output for each differentiated input, of that input's shape.
    pub gradients: Vec<String>,
    /// Nodes whose gradient is not that of the function itself.
    pub notes: Vec<Note>,
}

impl Differentiated {
    /// Both graphs as one: (inputs, cotangents) → (outputs, gradients).
    pub fn join(self) -> Graph {
        let Differentiated { forward: mut joined, backward, cotangents, .. } = self;
        let made: HashSet<String> = joined.nodes.iter().flat_map(|n| n.outputs.iter().cloned()).collect();
        // What only constants lead to is computed in both.
        let again = |node: &Node| node.outputs.iter().any(|out| made.contains(out));
        joined.nodes.extend(backward.nodes.into_iter().filter(|node| !again(node)));
        joined.constants.extend(backward.constants);
        joined.inputs.extend(backward.inputs.into_iter().filter(|input| cotangents.contains(&input.name)));
        // Behind the outputs come the residuals.
        joined.outputs.truncate(cotangents.len());
        joined.outputs.extend(backward.outputs);
        joined.prune();
        joined
    }
}

/// A node on the path whose true derivative is zero almost everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The node, as [`Node::label`] names it.
    pub node: String,
    /// Whether the gradient passes as if the node were the identity (straight-through), or is zero.
    pub straight_through: bool,
}

/// Why a graph can't be differentiated: all reasons at once.
#[derive(Debug, Default)]
pub struct Unsupported {
    /// Operator without a rule → its nodes.
    pub operators: Vec<(String, Vec<String>)>,
    /// Node and what about it no rule covers.
    pub nodes: Vec<(String, String)>,
    /// Set when an output doesn't depend on any input that was asked for.
    pub disconnected: bool,
}

impl std::error::Error for Unsupported {}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.disconnected {
            return write!(f, "the output doesn't depend on the input through differentiable operators");
        }
        let mut parts = Vec::new();
        for (op, nodes) in &self.operators {
            let shown: Vec<&str> = nodes.iter().take(8).map(String::as_str).collect();
            let more = if nodes.len() > 8 { format!(" and {} more", nodes.len() - 8) } else { String::new() };
            parts.push(format!("  {op}: {}{more}", shown.join(", ")));
        }
        for (node, why) in &self.nodes {
            parts.push(format!("  {node}: {why}"));
        }
        write!(f, "{}", parts.join("\n"))
    }
}

/// Differentiates the outputs of `graph` with respect to the inputs named in `wrt`.
///
/// `types` must cover every value. With `straight_through`, operators that are flat almost everywhere (Round, Floor,
/// …) pass the gradient on as the identity does; otherwise it is zero there; either way they are in the notes.
pub fn differentiate(
    graph: &Graph,
    types: &Types,
    wrt: &[&str],
    straight_through: bool,
) -> Result<Differentiated, Unsupported> {
    let path = Path::find(graph, types, wrt);
    let mut unsupported = path.unsupported(graph);
    let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
    if !outputs.iter().any(|o| path.active.contains(*o))
        && unsupported.operators.is_empty()
        && unsupported.nodes.is_empty()
    {
        unsupported.disconnected = true;
        return Err(unsupported);
    }

    let mut tape = tape::Tape::new(graph, types);
    let cotangents: Vec<String> = outputs.iter().map(|out| format!("cotangent/{out}")).collect();
    let mut sums: HashMap<String, Vec<String>> = HashMap::new();
    for (out, cotangent) in outputs.iter().zip(&cotangents) {
        sums.entry(out.to_string()).or_default().push(cotangent.clone());
    }
    let mut notes = path.notes.clone();
    for &index in path.nodes.iter().rev() {
        let node = &graph.nodes[index];
        let sum = |out| tape.sum(sums.remove(out).unwrap_or_default());
        let gy: Vec<Option<String>> = node.outputs.iter().map(sum).collect();
        if gy.iter().all(Option::is_none) {
            continue;
        }
        let Some(rule) = rules::find(node) else { continue };
        match rule.class {
            Class::Exact => {}
            Class::StraightThrough => notes.push(Note { node: node.label(), straight_through: true }),
            Class::Flat => notes.push(Note { node: node.label(), straight_through }),
            Class::Discrete | Class::Expanded => continue,
        }
        if rule.class == Class::Flat && !straight_through {
            continue;
        }
        let wants = node.inputs.iter().map(|i| path.active.contains(i)).collect();
        let cx = Cx::new(graph, node, index, &mut tape, gy, wants);
        if let Err(why) = (rule.apply)(&cx) {
            unsupported.nodes.push((node.label(), why));
            continue;
        }
        if let Some(i) = cx.unread() {
            let why = format!("its output {i} is used too, whose gradient is not covered");
            unsupported.nodes.push((node.label(), why));
            continue;
        }
        for (i, parts) in cx.finish(rule.broadcasts) {
            sums.entry(node.inputs[i].clone()).or_default().extend(parts);
        }
    }
    if !unsupported.operators.is_empty() || !unsupported.nodes.is_empty() {
        return Err(unsupported);
    }
    notes.dedup();

    // An input that nothing but flat nodes leads to has a gradient of zeros.
    let gradients: Vec<String> = wrt
        .iter()
        .map(|x| {
            let parts = sums.remove(*x).unwrap_or_default();
            let g = tape.sum(parts).unwrap_or_else(|| tape.zeros(x));
            let name = format!("gradient/{x}");
            tape.push(Node::new("Identity", &[&g], &name));
            name
        })
        .collect();
    Ok(finish(graph, types, tape, cotangents, gradients, wrt, notes))
}

fn finish(
    graph: &Graph,
    types: &Types,
    tape: tape::Tape,
    cotangents: Vec<String>,
    gradients: Vec<String>,
    wrt: &[&str],
    notes: Vec<Note>,
) -> Differentiated {
    let typed = |name: &str, like: &str| {
        let (dtype, shape) = &types[like];
        Value::new(name, *dtype, shape)
    };
    let mut forward = graph.clone();
    let mut extra_types: HashMap<String, (DType, Vec<i64>)> = HashMap::new();
    for (index, slot, name, dtype, shape) in &tape.extra_outputs {
        let outputs = &mut forward.nodes[*index].outputs;
        if outputs.len() <= *slot {
            outputs.resize(slot + 1, String::new());
        }
        outputs[*slot] = name.clone();
        extra_types.insert(name.clone(), (*dtype, shape.clone()));
    }

    let mut nodes = recomputed(graph, &tape.nodes);
    nodes.extend(tape.nodes);
    let mut backward = Graph::new(nodes, tape.constants);
    for (name, x) in gradients.iter().zip(wrt) {
        backward.outputs.push(typed(name, x));
    }
    for (name, out) in cotangents.iter().zip(&graph.outputs) {
        backward.inputs.push(typed(name, &out.name));
    }
    backward.prune();

    // What the backward nodes read and nobody in the backward graph makes comes from the forward graph:
    // a constant, shared, or a residual.
    let mut made: HashSet<String> = backward.nodes.iter().flat_map(|n| n.outputs.iter().cloned()).collect();
    made.extend(cotangents.iter().cloned());
    let mut residuals = Vec::new();
    let mut seen = BTreeSet::new();
    for node in &backward.nodes {
        for name in node.inputs.iter().filter(|n| !n.is_empty()) {
            if made.contains(name) || backward.constants.contains_key(name) || !seen.insert(name.clone()) {
                continue;
            }
            residuals.push(name.clone());
        }
    }
    residuals.retain(|name| match graph.constants.get(name) {
        Some(t) => {
            backward.constants.insert(name.clone(), t.clone());
            false
        }
        None => true,
    });
    for name in &residuals {
        let (dtype, shape) = extra_types.get(name).unwrap_or_else(|| &types[name]);
        let value = Value::new(name.clone(), *dtype, shape);
        backward.inputs.push(value.clone());
        let is_output = forward.outputs.iter().any(|o| &o.name == name);
        let is_input = forward.inputs.iter().any(|i| &i.name == name);
        if !is_output && !is_input {
            forward.outputs.push(value);
        }
    }
    Differentiated { forward, backward, residuals, cotangents, gradients, notes }
}

/// The nodes of `graph` that must be repeated for values that `backward` reads and only constants lead to, such as
/// weights stored as integers: computed (mostly once, when the session is made) rather than handed over at every run.
fn recomputed(graph: &Graph, backward: &[Node]) -> Vec<Node> {
    let mut constant: HashMap<&str, usize> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let known = |name: &String| {
            name.is_empty() || graph.constants.contains_key(name) || constant.contains_key(name.as_str())
        };
        let fixed =
            !node.op.starts_with("Random") && !matches!(node.op.as_str(), "Bernoulli" | "Multinomial");
        let plain = !node.attrs.values().any(|a| matches!(a, Attr::Graph(_)));
        if fixed && plain && node.inputs.iter().all(known) {
            constant.extend(node.outputs.iter().filter(|o| !o.is_empty()).map(|o| (o.as_str(), i)));
        }
    }
    let mut wanted = BTreeSet::new();
    let mut open: Vec<&str> = backward.iter().flat_map(|n| n.inputs.iter().map(String::as_str)).collect();
    while let Some(name) = open.pop() {
        if let Some(&i) = constant.get(name)
            && wanted.insert(i)
        {
            open.extend(graph.nodes[i].inputs.iter().map(String::as_str));
        }
    }
    wanted.into_iter().map(|i| graph.nodes[i].clone()).collect()
}

/// Operators that only move values, so that quantised integers may pass through them.
const MOVES: [&str; 12] = [
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// The part of a graph that the gradient goes through.
struct Path {
    /// Values that depend on a differentiated input through float operators.
    active: HashSet<String>,
    /// Nodes with an active input that an output depends on, in topological order.
    nodes: Vec<usize>,
    /// Operators on it that pass no gradient although their output goes on to matter.
    notes: Vec<Note>,
    /// Nodes and why no gradient can pass them.
    refused: Vec<(String, String)>,
}

impl Path {
    fn find(graph: &Graph, types: &Types, wrt: &[&str]) -> Path {
        let mut needed: HashSet<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
        let mut useful = vec![false; graph.nodes.len()];
        for (i, node) in graph.nodes.iter().enumerate().rev() {
            if node.outputs.iter().any(|o| needed.contains(o)) {
                useful[i] = true;
                needed.extend(node.reads());
            }
        }
        let is_float = |name: &str| types.get(name).is_some_and(|t| t.0.is_float());
        let mut active: HashSet<String> = wrt.iter().map(|s| s.to_string()).collect();
        let mut path = Path { active: HashSet::new(), nodes: vec![], notes: vec![], refused: vec![] };
        for (i, node) in graph.nodes.iter().enumerate() {
            if !useful[i] || !node.reads().iter().any(|x| active.contains(x)) {
                continue;
            }
            let class = rules::find(node).map(|rule| rule.class);
            if node.op == "OneHot"
                && node.domain.is_empty()
                && node.input(2).is_some_and(|v| active.contains(v))
            {
                path.refused.push((node.label(), "values computed from the image are not covered".into()));
                continue;
            }
            if class == Some(Class::Discrete) {
                continue;
            }
            // Of active values the integers are quantised ones, whose gradient is that of the numbers they stand for.
            let quantised = node.inputs.iter().any(|x| active.contains(x) && !is_float(x));
            let moves = MOVES.contains(&node.op.as_str()) && node.domain.is_empty();
            if quantised && !moves && node.op != "DequantizeLinear" && class.is_some() {
                let why = "computes with quantised integers, of which only DequantizeLinear and operators that \
                           move values are covered";
                path.refused.push((node.label(), why.into()));
                continue;
            }
            let passing: Vec<&String> = if class == Some(Class::StraightThrough) {
                node.outputs.iter().take(1).collect()
            } else {
                node.outputs.iter().filter(|o| is_float(o) || (quantised && moves)).collect()
            };
            if passing.is_empty() && class.is_some() {
                // Float in, integers out (Cast, comparisons): whatever they become, no gradient comes back through them.
                path.notes.push(Note { node: node.label(), straight_through: false });
                continue;
            }
            active.extend(passing.into_iter().cloned());
            path.nodes.push(i);
        }
        path.active = active;
        path
    }

    fn unsupported(&self, graph: &Graph) -> Unsupported {
        let mut unsupported = Unsupported { nodes: self.refused.clone(), ..Default::default() };
        for &i in &self.nodes {
            let node = &graph.nodes[i];
            if rules::find(node).is_none() {
                let op = node.operator();
                let name = node.label().split_once(' ').map_or(String::new(), |(_, n)| n.to_string());
                match unsupported.operators.iter_mut().find(|(o, _)| *o == op) {
                    Some((_, nodes)) => nodes.push(name),
                    None => unsupported.operators.push((op, vec![name])),
                }
            }
        }
        unsupported
    }
}

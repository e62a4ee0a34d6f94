//! Reverse-mode differentiation from graph to graph, in standard ONNX operators.
//!
//! [`differentiate`] turns a graph x → y into two. The forward graph also outputs the *residuals*, the values
//! that the backward pass reads again. The backward graph is (residuals, cotangent ∂L/∂y) → ∂L/∂x. Weights
//! are constants, so each rule is half of its textbook form.
//!
//! `path.rs` finds the part of the graph that the gradient goes through. This file walks it back: sums over
//! several readers, sums over broadcast axes, operators without a rule. A rule (see [`rules::RULES`]) only
//! turns the gradient of one node's output into the gradients of its inputs. Nothing here depends on ONNX
//! Runtime.

mod path;
pub(crate) mod rules;
mod tape;
#[cfg(test)]
mod tests;

use path::Path;
use tape::Cx;

use crate::{Graph, Node, Types, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The result of [`differentiate`].
#[derive(Clone, Debug)]
pub struct Differentiated {
    /// x → y and the residuals. Outputs: those of the original graph, then [`Differentiated::residuals`].
    pub forward: Graph,
    /// (residuals, cotangents) → gradients.
    pub backward: Graph,
    /// Values that the forward graph passes to the backward graph.
    pub residuals: Vec<String>,
    /// Backward input for each output's cotangent ∂L/∂y, of that output's shape.
    pub cotangents: Vec<String>,
    /// Backward output for each differentiated input, of that input's shape.
    pub gradients: Vec<String>,
    /// Nodes whose gradient is not the derivative of their operator.
    pub notes: Vec<Note>,
    /// Nodes that have another slope than their own in this pass, as named by [`Node::label`]. If this is
    /// empty, the backward graph is that of [`Pass::Exact`].
    pub softened: Vec<String>,
}

/// The slopes of operators in the backward graph.
///
/// All passes but [`Pass::Exact`] replace derivatives that are useless to an attack: if an operator saturates
/// or is flat, its derivative doesn't show in which direction to change its input. The forward graph is the
/// same in every pass. See the README.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The derivative. It is zero for flat operators (Round, Floor, …).
    #[default]
    Exact,
    /// The derivative, but operators that are flat almost everywhere pass the gradient unchanged, like the
    /// identity.
    ThroughFlat,
    /// The slope of a smoother function, if an operator saturates or is flat. Comparisons, logic and
    /// conversions to integers have a slope too.
    Softened,
    /// Like [`Pass::Softened`], but operators that saturate on both sides or are flat almost everywhere have
    /// the slope of a straight line.
    StraightThrough,
}

/// The processor for which the backward graph is fast. The graph runs on both, with the same results up to
/// rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// ONNX Runtime's kernels for CPUs.
    Cpu,
    /// ONNX Runtime's kernels for CUDA.
    Gpu,
}

impl Differentiated {
    /// Both graphs as one: (inputs, cotangents) → (outputs, gradients).
    pub fn join(self) -> Graph {
        let Differentiated { forward: mut joined, backward, cotangents, .. } = self;
        let mut made: HashSet<String> = joined.nodes.iter().flat_map(|n| n.outputs.iter().cloned()).collect();
        // Nodes that depend on constants only are in both graphs.
        let again = |node: &Node| node.outputs.iter().any(|out| made.contains(out));
        joined.nodes.extend(backward.nodes.into_iter().filter(|node| !again(node)));
        joined.constants.extend(backward.constants);
        made.extend(joined.inputs.iter().map(|input| input.name.clone()));
        joined.inputs.extend(backward.inputs.into_iter().filter(|input| !made.contains(&input.name)));
        // The residuals follow the outputs.
        joined.outputs.truncate(cotangents.len());
        joined.outputs.extend(backward.outputs);
        joined.prune();
        joined
    }
}

/// A node on the path whose true derivative is zero almost everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The node, as named by [`Node::label`].
    pub node: String,
    /// True if the gradient passes as through the identity (straight-through), false if it is zero.
    pub straight_through: bool,
}

/// All reasons why a graph can't be differentiated.
#[derive(Debug, Default)]
pub struct Unsupported {
    /// Operator without a rule → its nodes.
    pub operators: Vec<(String, Vec<String>)>,
    /// Node → why no rule covers it.
    pub nodes: Vec<(String, String)>,
    /// Whether an output depends on none of the inputs in `wrt`.
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

/// Differentiates the outputs of `graph` with respect to the inputs named in `wrt`, with the slopes of
/// `pass`, in the forms that are fast on `processor`.
///
/// `types` must cover every value. Operators that are flat almost everywhere are in the notes, unless the
/// pass softens them.
pub fn differentiate(
    graph: &Graph,
    types: &Types,
    wrt: &[&str],
    pass: Pass,
    processor: Processor,
) -> Result<Differentiated, Unsupported> {
    // An operator that only a softened pass reaches is no reason to refuse a graph.
    let exact = Path::find(graph, types, wrt, Pass::Exact);
    let mut unsupported = exact.unsupported(graph);
    let path = if pass == Pass::Exact { exact.clone() } else { Path::find(graph, types, wrt, pass) };
    let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
    if !outputs.iter().any(|o| path.active.contains(*o))
        && unsupported.operators.is_empty()
        && unsupported.nodes.is_empty()
    {
        unsupported.disconnected = true;
        return Err(unsupported);
    }

    let [cotangent, gradient] = ["cotangent", "gradient"].map(|word| graph.free_prefix(word));
    let cotangents: Vec<String> = outputs.iter().map(|out| format!("{cotangent}{out}")).collect();
    let mut sums = Sums::new();
    for (out, cotangent) in outputs.iter().zip(&cotangents) {
        sums.entry(out.to_string()).or_default().push(cotangent.clone());
    }
    let beyond = path.refused.iter().filter(|refused| !exact.refused.contains(refused));
    let beyond = beyond.map(|(node, _)| Note { node: node.clone(), straight_through: false });
    let slopes = SlopeNotes { notes: path.notes.iter().cloned().chain(beyond).collect(), softened: vec![] };
    let tape = tape::Tape::new(graph, types, processor);
    let mut walk = Walk { graph, pass, exact: &exact, path: &path, tape, sums, slopes };
    for &index in path.nodes.iter().rev() {
        if let Err(why) = walk.node(index) {
            unsupported.nodes.push((graph.nodes[index].label(), why));
        }
    }
    if !unsupported.operators.is_empty() || !unsupported.nodes.is_empty() {
        return Err(unsupported);
    }
    let Walk { mut tape, mut sums, mut slopes, .. } = walk;
    slopes.notes.dedup();

    // An input that only flat nodes read has a gradient of zeros.
    let gradients: Vec<String> = wrt
        .iter()
        .map(|x| {
            let parts = sums.remove(*x).unwrap_or_default();
            let g = tape.sum(parts).unwrap_or_else(|| tape.zeros(x));
            let name = format!("{gradient}{x}");
            tape.push(Node::new("Identity", &[&g], &name));
            name
        })
        .collect();
    Ok(finish(graph, tape, cotangents, gradients, wrt, slopes))
}

/// Value → the contributions to its gradient.
type Sums = HashMap<String, Vec<String>>;

/// The way back along a path.
struct Walk<'a> {
    graph: &'a Graph,
    pass: Pass,
    /// The path of [`Pass::Exact`].
    exact: &'a Path,
    /// The path of the pass.
    path: &'a Path,
    tape: tape::Tape<'a>,
    sums: Sums,
    slopes: SlopeNotes,
}

impl Walk<'_> {
    /// Adds to the gradients of a node's inputs. Error: why no rule covers the node, if the exact gradient
    /// goes through it.
    fn node(&mut self, index: usize) -> Result<(), String> {
        let (graph, pass) = (self.graph, self.pass);
        let node = &graph.nodes[index];
        // Nodes without values, such as a pool with a window larger than its input, have no gradient.
        let empty = |name: &String| self.tape.types.get(name).is_some_and(|(_, shape)| shape.contains(&0));
        if node.outputs.iter().all(|out| out.is_empty() || empty(out)) {
            return Ok(());
        }
        let sum = |out| self.tape.sum(self.sums.remove(out).unwrap_or_default());
        let gy: Vec<Option<String>> = node.outputs.iter().map(sum).collect();
        if gy.iter().all(Option::is_none) {
            return Ok(());
        }
        let Some((apply, broadcasts)) = self.slopes.rule(node, pass) else { return Ok(()) };
        let mut tries = vec![self.path.wants(node, pass)];
        let first = self.exact.wants(node, Pass::Exact);
        if first != tries[0] {
            tries.push(first);
        }
        let mut refused = None;
        for wants in tries.into_iter().filter(|wants| wants.contains(&true)) {
            let cx = Cx::new(graph, node, index, &mut self.tape, gy.clone(), wants);
            refused = apply(&cx).err().or_else(|| cx.lost());
            if refused.is_none() {
                self.slopes.softened(node, pass, &cx);
                for (i, parts) in cx.finish(broadcasts) {
                    self.sums.entry(node.inputs[i].clone()).or_default().extend(parts);
                }
                break;
            }
        }
        match refused {
            Some(why) if self.exact.nodes.contains(&index) => return Err(why),
            Some(_) => self.slopes.notes.push(Note { node: node.label(), straight_through: false }),
            None => {}
        }
        Ok(())
    }
}

/// Nodes whose gradient is not their own derivative, for the result.
struct SlopeNotes {
    notes: Vec<Note>,
    softened: Vec<String>,
}

impl SlopeNotes {
    /// The rule to apply at a node, and whether its inputs broadcast. `None` if the pass has no rule for it.
    fn rule(&mut self, node: &Node, pass: Pass) -> Option<(rules::Apply, bool)> {
        let Some(rule) = rules::find(node) else {
            self.notes.push(Note { node: node.label(), straight_through: false });
            return None;
        };
        if let Some(instead) = rule.instead(pass) {
            return Some((instead, rule.broadcasts));
        }
        let mut note = |straight_through| self.notes.push(Note { node: node.label(), straight_through });
        match rule.class {
            rules::Class::Exact => {}
            rules::Class::StraightThrough => note(true),
            rules::Class::Flat => {
                note(pass == Pass::ThroughFlat);
                if pass != Pass::ThroughFlat {
                    return None;
                }
            }
            rules::Class::Discrete | rules::Class::Expanded | rules::Class::Unfolded => return None,
        }
        Some((rule.apply, rule.broadcasts))
    }

    /// Adds the node to the softened ones, unless the rule did the same as the exact one.
    fn softened(&mut self, node: &Node, pass: Pass, cx: &Cx) {
        if rules::find(node).is_some_and(|rule| rule.instead(pass).is_some()) && !cx.is_own() {
            self.softened.push(node.label());
        }
    }
}

/// Both graphs, of the nodes on the tape.
fn finish(
    graph: &Graph,
    tape: tape::Tape,
    cotangents: Vec<String>,
    gradients: Vec<String>,
    wrt: &[&str],
    slopes: SlopeNotes,
) -> Differentiated {
    let types = tape.types;
    let typed = |name: &str, like: &str| {
        let (dtype, shape) = &types[like];
        Value::new(name, *dtype, shape)
    };
    let (mut forward, extra_types) = with_extra_outputs(graph, &tape);
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

    let residuals = take_constants(graph, &mut backward, &cotangents);
    // A set, because there may be tens of thousands.
    let known: HashSet<String> =
        forward.outputs.iter().chain(&forward.inputs).map(|value| value.name.clone()).collect();
    for name in &residuals {
        let (dtype, shape) = extra_types.get(name).unwrap_or_else(|| &types[name]);
        let value = Value::new(name.clone(), *dtype, shape);
        backward.inputs.push(value.clone());
        if !known.contains(name) {
            forward.outputs.push(value);
        }
    }
    let SlopeNotes { notes, mut softened } = slopes;
    softened.reverse();
    Differentiated { forward, backward, residuals, cotangents, gradients, notes, softened }
}

/// The graph with the outputs that rules add to its nodes, and their types.
fn with_extra_outputs(graph: &Graph, tape: &tape::Tape) -> (Graph, Types) {
    let mut forward = graph.clone();
    let mut extra_types = Types::new();
    for (index, slot, name, dtype, shape) in &tape.extra_outputs {
        let outputs = &mut forward.nodes[*index].outputs;
        if outputs.len() <= *slot {
            outputs.resize(slot + 1, String::new());
        }
        outputs[*slot] = name.clone();
        extra_types.insert(name.clone(), (*dtype, shape.clone()));
    }
    (forward, extra_types)
}

/// Values that backward nodes read and no backward node makes come from the forward graph: as constants,
/// which `backward` gets too, or as residuals. Returns the residuals.
fn take_constants(graph: &Graph, backward: &mut Graph, cotangents: &[String]) -> Vec<String> {
    let mut known: HashSet<&String> =
        backward.nodes.iter().flat_map(|node| &node.outputs).chain(cotangents).collect();
    let read = backward.nodes.iter().flat_map(|node| &node.inputs).filter(|name| !name.is_empty());
    let unmade = read.filter(|&name| !backward.constants.contains_key(name) && known.insert(name));
    let mut residuals: Vec<String> = unmade.cloned().collect();
    residuals.retain(|name| match graph.constants.get(name) {
        Some(t) => {
            backward.constants.insert(name.clone(), t.clone());
            false
        }
        None => true,
    });
    residuals
}

/// The nodes of `graph` that make values which `backward` reads and which depend on constants only, such as
/// weights stored as integers. The backward graph repeats these nodes, mostly once when the session is built,
/// instead of taking their values as inputs at every run.
fn recomputed(graph: &Graph, backward: &[Node]) -> Vec<Node> {
    let mut constant: HashMap<&str, usize> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let known = |name: &String| {
            name.is_empty() || graph.constants.contains_key(name) || constant.contains_key(name.as_str())
        };
        if node.is_function() && node.inputs.iter().all(known) {
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

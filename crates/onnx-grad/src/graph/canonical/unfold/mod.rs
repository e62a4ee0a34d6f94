//! Unfolds operators that repeat a step, once shapes are known: the number of steps is a shape, or a
//! constant. Sequences of known length are replaced by their elements.

mod control;
mod recurrent;
mod sequences;

use super::functions::Functions;
use super::{Done, Expansion, Node, Rewrite, refs};
use crate::graph::sane::MOST_NODES;
use crate::graph::{Graph, Types};
use std::collections::HashSet;

const UNFOLDED: &[&[Expansion]] = &[control::EXPANSIONS, recurrent::EXPANSIONS, sequences::EXPANSIONS];

/// The nodes of an operator that are expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Nodes that depend on inputs, once the shapes of their own inputs are known.
    Shaped,
    /// Nodes that depend on inputs.
    Reached,
    /// All nodes, because no runtime folds a sequence. Such a node may also remain, for other readers.
    Always,
}

/// Operators that are unfolded.
pub fn unfolded() -> impl Iterator<Item = &'static Expansion> {
    UNFOLDED.iter().flat_map(|family| family.iter())
}

/// Whether an operator of the standard set makes or reads a sequence.
pub fn of_sequences(op: &str) -> bool {
    sequences::EXPANSIONS.iter().any(|e| e.op == op)
}

impl Graph {
    /// Unfolds the recurrent operators, loops with a constant number of steps, and scans that depend on the
    /// graph's inputs. Nodes that read a sequence of known elements read the elements. `None` if there are
    /// none. New values are not in `types`.
    ///
    /// `types`: element types and shapes, if known. Without them, Scan and the recurrent operators stay.
    /// Error: a message that names the node and its unsupported form.
    pub fn unfold(&self, types: &Types) -> Result<Option<Graph>, String> {
        let row = |node: &Node| unfolded().find(|e| e.op == node.op && e.domain == node.domain);
        if !self.nodes.iter().any(|node| row(node).is_some()) {
            return Ok(None);
        }
        let mut graph = self.clone();
        let mut reached: HashSet<String> = graph.inputs.iter().map(|input| input.name.clone()).collect();
        // Names of an earlier pass must not occur again.
        let mut fresh = largest(&graph);
        let mut changed = false;
        let nodes = std::mem::take(&mut graph.nodes);
        let functions = Functions::none();
        let mut rw = Rewrite::new(&mut graph.constants, &graph.inputs, &functions, Some(types), &mut fresh);
        for node in nodes {
            let on_path = node.reads().iter().any(|x| reached.contains(x));
            if on_path {
                reached.extend(node.outputs.iter().filter(|out| !out.is_empty()).cloned());
            }
            let known = |x: &String| x.is_empty() || types.contains_key(x) || rw.constants.contains_key(x);
            let expanded = |e: &&Expansion| match e.when {
                When::Shaped => on_path && node.inputs.iter().all(known),
                When::Reached => on_path,
                When::Always => true,
            };
            match row(&node).filter(expanded) {
                Some(e) => {
                    (e.expand)(&mut rw, &node).map_err(|why| format!("{}: {why}", node.label()))?;
                    changed |= rw.nodes.last() != Some(&node);
                }
                None => {
                    rw.follow(&node).map_err(|why| format!("{}: {why}", node.label()))?;
                    rw.nodes.push(node);
                }
            }
            if rw.nodes.len() > MOST_NODES {
                return Err(format!("the steps of its loops are more than {MOST_NODES} nodes together"));
            }
        }
        graph.nodes = rw.nodes;
        // Sequences without readers.
        graph.prune();
        Ok(changed.then_some(graph))
    }
}

/// The largest number in a name that a rewrite has given, or may give.
pub(super) fn largest(graph: &Graph) -> usize {
    let mut most = 0;
    graph.visit_names(&mut |name| {
        let Some(rest) = name.strip_prefix("audit/") else { return };
        // No rewrite counts further than u32.
        let numbers = rest.split('/').filter_map(|part| part.parse::<u32>().ok());
        most = numbers.map(|n| n as usize).fold(most, usize::max);
    });
    most
}

impl Rewrite<'_> {
    /// Shape of a value of the graph.
    fn shape(&self, name: &str) -> Result<Vec<i64>, String> {
        if let Some(t) = self.constants.get(name) {
            return Ok(t.shape.clone());
        }
        let known = self.types.and_then(|types| types.get(name));
        known.map(|(_, shape)| shape.clone()).ok_or_else(|| format!("the shape of {name} is not known"))
    }
    /// Splits x along an axis into `count` slices without that axis.
    fn slices(&mut self, x: &str, axis: i64, count: i64) -> Vec<String> {
        let parts = self.split(x, &vec![1; count as usize], axis);
        let axis = self.ints(&[axis]);
        parts.iter().map(|part| self.op("Squeeze", &[part, &axis])).collect()
    }
    /// Stacks values of one shape along a new axis, as output `output`.
    fn stack(&mut self, parts: &[String], axis: i64, output: &str) {
        let at = self.ints(&[axis]);
        let parts: Vec<String> = parts.iter().map(|part| self.op("Unsqueeze", &[part, &at])).collect();
        self.nodes.push(Node::new("Concat", &refs(&parts), output).with("axis", axis));
    }
}

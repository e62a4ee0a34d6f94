//! The part of a graph that the gradient goes through.

use super::{Note, Pass, Unsupported, rules};
use crate::{Graph, Node, Types};
use std::collections::HashSet;

/// Operators that only move values. Quantised integers may pass through them.
const MOVES: [&str; 17] = [
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Operators that read quantised integers as numbers.
const NUMBERS: [&str; 4] = ["Cast", "ConvInteger", "DequantizeLinear", "MatMulInteger"];

fn moves(node: &Node) -> bool {
    let moves = MOVES.contains(&node.op.as_str()) && node.domain.is_empty();
    // In other modes Resize computes values between pixels.
    moves && (node.op != "Resize" || node.str("mode", "nearest") == "nearest")
}

/// Whether an output of the graph depends on a node, for each node.
fn useful(graph: &Graph) -> Vec<bool> {
    let mut needed: HashSet<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
    let mut useful = vec![false; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        if node.outputs.iter().any(|o| needed.contains(o)) {
            useful[i] = true;
            needed.extend(node.reads());
        }
    }
    useful
}

/// The part of a graph that the gradient goes through.
#[derive(Clone)]
pub(super) struct Path {
    /// Values that depend on an input in `wrt` through float operators and operators that the pass softens.
    pub active: HashSet<String>,
    /// The active integers and booleans that were computed from floats. They have a gradient in softened
    /// passes only.
    pub rounded: HashSet<String>,
    /// Nodes with an active input that an output depends on, in topological order.
    pub nodes: Vec<usize>,
    /// Operators on the path that pass no gradient, although the graph's outputs depend on them.
    pub notes: Vec<Note>,
    /// Node → why no gradient can pass it.
    pub refused: Vec<(String, String)>,
}

impl Path {
    pub fn find(graph: &Graph, types: &Types, wrt: &[&str], pass: Pass) -> Path {
        let useful = useful(graph);
        let mut path = Path {
            active: wrt.iter().map(|s| s.to_string()).collect(),
            rounded: HashSet::new(),
            nodes: vec![],
            notes: vec![],
            refused: vec![],
        };
        for (i, node) in graph.nodes.iter().enumerate() {
            if useful[i] && node.reads().iter().any(|x| path.active.contains(x)) {
                path.add(i, node, types, pass);
            }
        }
        path
    }

    /// Adds node `i`, which reads an active value, or notes that no gradient comes through it.
    fn add(&mut self, i: usize, node: &Node, types: &Types, pass: Pass) {
        let is_float = |name: &str| types.get(name).is_some_and(|t| t.0.is_float());
        let rule = rules::find(node);
        let class = rule.map(|rule| rule.class);
        let softens = rule.is_some_and(|rule| rule.instead(pass).is_some());
        if node.op == "Range" && node.domain.is_empty() {
            self.refused.push((node.label(), "how many values it makes is computed from the image".into()));
            return;
        }
        if class == Some(rules::Class::Discrete) && !softens {
            return;
        }
        let none = Note { node: node.label(), straight_through: false };
        if !node.reads().iter().any(|x| self.takes(node, x, softens)) {
            self.notes.push(none);
            return;
        }
        // Active integers are quantised values, whose gradient is that of the numbers that they
        // represent, or were computed from floats in a softened pass.
        let integers = |x: &String| self.takes(node, x, softens) && !is_float(x);
        let quantised = node.inputs.iter().any(|x| integers(x) && !self.rounded.contains(x));
        let rounded = node.inputs.iter().any(|x| integers(x) && self.rounded.contains(x));
        let moves = moves(node);
        if quantised && !moves && !softens && !NUMBERS.contains(&node.op.as_str()) && class.is_some() {
            let why = "computes with quantised integers, of which only DequantizeLinear, ConvInteger, MatMulInteger, \
                       Cast and operators that move values are covered";
            self.refused.push((node.label(), why.into()));
            return;
        }
        let passing: Vec<String> = if class == Some(rules::Class::StraightThrough) || softens {
            node.outputs.iter().take(1).cloned().collect()
        } else {
            let passes = |o: &&String| is_float(o) || ((quantised || rounded) && moves);
            node.outputs.iter().filter(passes).cloned().collect()
        };
        if passing.is_empty() && class.is_some() {
            // Floats in, integers out (Cast, comparisons): no gradient comes back through them.
            self.notes.push(none);
            return;
        }
        // A pool only moves quantised integers, and its softened rule too.
        if (softens && !(quantised && moves)) || rounded {
            self.rounded.extend(passing.iter().filter(|o| !is_float(o)).cloned());
        }
        self.active.extend(passing);
        self.nodes.push(i);
    }

    /// Whether `node`, which reads `value`, may add to its gradient. `softens`: whether the pass softens the
    /// node.
    fn takes(&self, node: &Node, value: &str, softens: bool) -> bool {
        self.active.contains(value) && (softens || moves(node) || !self.rounded.contains(value))
    }

    /// Whether each input of a node needs a gradient.
    pub fn wants(&self, node: &Node, pass: Pass) -> Vec<bool> {
        let softens = rules::find(node).is_some_and(|rule| rule.instead(pass).is_some());
        node.inputs.iter().map(|x| self.takes(node, x, softens)).collect()
    }

    pub fn unsupported(&self, graph: &Graph) -> Unsupported {
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

//! Operators that draw random numbers, and the values that depend on what they draw.

use super::{Attr, Graph, Node};
use std::collections::HashMap;

/// Value that depends on random numbers → the first node that draws them.
pub type Drawn<'g> = HashMap<&'g str, &'g Node>;

/// The graphs whose values a node may read, from the innermost outwards.
struct Scope<'g, 's> {
    graph: &'g Graph,
    outer: Option<&'s Scope<'g, 's>>,
}

/// Whether a node of the operator draws.
type Draws = fn(&Node, &Scope) -> bool;

/// Operators that draw random numbers.
const DRAWING: &[(&str, Draws)] = &[
    ("Bernoulli", |_, _| true),
    ("Dropout", |node, scope| {
        let trains = node.input(2).is_some_and(|mode| scope.truth(mode) != Some(false));
        trains && node.input(1).is_none_or(|ratio| scope.float(ratio) != Some(0.0))
    }),
    ("Multinomial", |_, _| true),
    ("RandomNormal", |node, _| node.float("scale", 1.0) != 0.0),
    ("RandomNormalLike", |node, _| node.float("scale", 1.0) != 0.0),
    ("RandomUniform", |node, _| node.float("low", 0.0) != node.float("high", 1.0)),
    ("RandomUniformLike", |node, _| node.float("low", 0.0) != node.float("high", 1.0)),
];

/// Operators whose result depends only on the shape of their input.
const OF_SHAPE: [&str; 2] = ["Shape", "Size"];

/// Maximum number of nodes between a constant and the switch that it sets.
const FARTHEST: usize = 16;

impl Graph {
    /// The values that depend on random numbers. Doesn't validate the graph.
    pub fn drawn(&self) -> Drawn<'_> {
        spread(&Scope { graph: self, outer: None }, &Drawn::new())
    }
}

impl Node {
    /// Whether the node's values follow from its inputs, the same in every run, and from no sub-graph.
    pub fn is_function(&self) -> bool {
        let may_draw = self.domain.is_empty() && DRAWING.iter().any(|(op, _)| *op == self.op);
        !may_draw && self.graphs().next().is_none()
    }
}

/// The values of the innermost graph that depend on random numbers. `outer`: those of the graphs around it.
fn spread<'g>(scope: &Scope<'g, '_>, outer: &Drawn<'g>) -> Drawn<'g> {
    let mut drawn = outer.clone();
    for node in &scope.graph.nodes {
        let inner =
            || branches(node, scope).into_iter().find_map(|branch| draws_inside(branch, scope, &drawn));
        let source = if draws(node, scope) {
            Some(node)
        } else if node.domain.is_empty() && OF_SHAPE.contains(&node.op.as_str()) {
            None
        } else {
            node.inputs.iter().find_map(|name| drawn.get(name.as_str()).copied()).or_else(inner)
        };
        if let Some(source) = source {
            let named = node.outputs.iter().filter(|name| !name.is_empty());
            drawn.extend(named.map(|name| (name.as_str(), source)));
        }
    }
    drawn
}

/// The drawing node on which a result of the sub-graph `branch` depends.
fn draws_inside<'g>(branch: &'g Graph, scope: &Scope<'g, '_>, outer: &Drawn<'g>) -> Option<&'g Node> {
    let drawn = spread(&Scope { graph: branch, outer: Some(scope) }, outer);
    branch.outputs.iter().find_map(|out| drawn.get(out.name.as_str()).copied())
}

/// The sub-graphs of a node that may run. If a condition is constant, only one.
fn branches<'g>(node: &'g Node, scope: &Scope) -> Vec<&'g Graph> {
    let truth = match node.op.as_str() {
        "If" => node.input(0).and_then(|condition| scope.truth(condition)),
        _ => None,
    };
    let skipped = truth.map(|truth| if truth { "else_branch" } else { "then_branch" });
    let taken = node.attrs.iter().filter(|(name, _)| Some(name.as_str()) != skipped);
    taken.filter_map(|(_, attr)| attr.graph()).collect()
}

fn draws(node: &Node, scope: &Scope) -> bool {
    node.domain.is_empty() && DRAWING.iter().any(|(op, draws)| *op == node.op && draws(node, scope))
}

impl Scope<'_, '_> {
    /// The value of a switch, if a constant sets it.
    fn truth(&self, name: &str) -> Option<bool> {
        self.number(name, FARTHEST).map(|number| number != 0.0)
    }

    /// The value of a constant with one element.
    fn float(&self, name: &str) -> Option<f32> {
        self.number(name, FARTHEST)
    }

    fn number(&self, name: &str, farthest: usize) -> Option<f32> {
        let farthest = farthest.checked_sub(1)?;
        if let Some(constant) = self.graph.constants.get(name) {
            let whole = || Some(constant.to_i64s()?.into_iter().map(|value| value as f32).collect());
            let values: Vec<f32> = constant.to_f32s().or_else(whole)?;
            return if let [value] = values[..] { Some(value) } else { None };
        }
        let made = self.graph.nodes.iter().find(|node| node.outputs.iter().any(|out| out == name));
        let Some(node) = made else { return self.outer?.number(name, farthest) };
        let from = || self.number(node.input(0)?, farthest);
        match node.op.as_str() {
            "Identity" | "Cast" => from(),
            "Not" => from().map(|value| f32::from(value == 0.0)),
            "Constant" => match node.attrs.values().next()? {
                Attr::Int(value) => Some(*value as f32),
                Attr::Float(value) => Some(*value),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor, Value};
    use std::collections::BTreeMap;

    fn graph(nodes: Vec<Node>, constants: &[(&str, Tensor)]) -> Graph {
        let constants: BTreeMap<_, _> =
            constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
        let mut graph = Graph::new(nodes, constants);
        graph.inputs = vec![Value::new("x", DType::F32, &[1, 4])];
        graph.outputs = vec![Value::new("y", DType::F32, &[1, 4])];
        graph
    }

    fn flag(on: bool) -> Tensor {
        Tensor { dtype: DType::Bool, shape: vec![], bytes: vec![u8::from(on)].into() }
    }

    /// Label of the node on which `y` depends.
    fn source(graph: &Graph) -> Option<String> {
        graph.drawn().get("y").map(|node| node.label())
    }

    #[test]
    fn what_depends_on_random_numbers_is_known() {
        for (op, attrs, inputs) in [
            ("RandomNormalLike", vec![], vec!["x"]),
            ("RandomUniformLike", vec![], vec!["x"]),
            ("RandomNormal", vec![("seed", Attr::Float(3.0))], vec![]),
            ("RandomUniform", vec![], vec![]),
            ("Bernoulli", vec![], vec!["x"]),
            ("Multinomial", vec![], vec!["x"]),
        ] {
            let mut noise = Node::new(op, &inputs, "n");
            noise.attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
            let found = source(&graph(vec![noise, Node::new("Add", &["x", "n"], "y")], &[]));
            assert_eq!(found, Some(format!("{op} \"n\"")));
        }
        // Its shape isn't random.
        let nodes = vec![
            Node::new("RandomNormalLike", &["x"], "n"),
            Node::new("Shape", &["n"], "s"),
            Node::new("Reshape", &["x", "s"], "y"),
        ];
        assert_eq!(source(&graph(nodes, &[])), None);
        let still = Node::new("RandomNormalLike", &["x"], "n").with("scale", Attr::Float(0.0));
        assert_eq!(source(&graph(vec![still, Node::new("Add", &["x", "n"], "y")], &[])), None);
    }

    #[test]
    fn a_dropout_draws_if_it_trains() {
        let half = Tensor::f32(&[], &[0.5]);
        for (mode, ratio, expected) in [
            (Some(true), half.clone(), true),
            (Some(false), half.clone(), false),
            (Some(true), Tensor::f32(&[], &[0.0]), false),
            (None, half.clone(), false),
        ] {
            let mut inputs = vec!["x", "ratio"];
            inputs.extend(mode.map(|_| "mode"));
            let node = Node::new("Dropout", &inputs, "y");
            let constants = [("ratio", ratio), ("mode", flag(mode == Some(true)))];
            assert_eq!(source(&graph(vec![node], &constants)).is_some(), expected, "{mode:?}");
        }
        // The switch is computed.
        for (op, expected) in [("Identity", true), ("Not", false)] {
            let nodes =
                vec![Node::new(op, &["mode"], "on"), Node::new("Dropout", &["x", "ratio", "on"], "y")];
            let constants = [("ratio", half.clone()), ("mode", flag(true))];
            assert_eq!(source(&graph(nodes, &constants)).is_some(), expected, "{op}");
        }
    }

    #[test]
    fn graphs_within_a_node_are_looked_into() {
        let branch = |nodes: Vec<Node>| {
            let mut g = Graph { nodes, ..Graph::default() };
            g.outputs = vec![Value::new("r", DType::F32, &[1, 4])];
            Attr::Graph(Box::new(g))
        };
        let taken = |on: Option<bool>| {
            let mut node = Node::new("If", &["c"], "y");
            let noise = vec![Node::new("RandomNormalLike", &["x"], "n"), Node::new("Add", &["x", "n"], "r")];
            node.attrs.insert("then_branch".into(), branch(noise));
            node.attrs.insert("else_branch".into(), branch(vec![Node::new("Identity", &["x"], "r")]));
            let constants: Vec<_> = on.map(|on| ("c", flag(on))).into_iter().collect();
            source(&graph(vec![node], &constants))
        };
        let noise = Some("RandomNormalLike \"n\"".to_string());
        assert_eq!([taken(None), taken(Some(true)), taken(Some(false))], [noise.clone(), noise, None]);
    }
}

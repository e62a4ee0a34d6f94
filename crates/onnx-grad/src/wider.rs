//! A graph in which operators that saturate on both sides do so later: a smooth neighbour of the graph, as a
//! surrogate for attacks.
//!
//! A softened backward pass ([`Pass::Softened`](crate::Pass)) gives a saturated operator a slope. The rest of
//! the gradient is still taken at the values that the operator puts out, which are all at its two ends. Where
//! an operator is made wider, its outputs lie between the ends, and the gradient is that of a function whose
//! slopes agree. It is of another function: what an attack on it finds must be measured with the graph
//! itself. In the words of the literature it transfers from a surrogate (Papernot et al. 2016), which here is
//! made of the model.

use crate::grad::rules::soften::{SIGMOID_UNTIL, TANH_UNTIL};
use crate::{DType, Graph, Node, Tensor, Types};

/// An operator that saturates on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturating {
    /// Its node's index.
    pub node: usize,
    /// The value that it saturates in.
    pub input: String,
    /// The middle of the range in which it has a useful slope.
    pub centre: f32,
    /// Half of this range's width.
    pub reach: f32,
}

/// Centre and reach of a node's operator; `None` where it does not saturate on both sides.
type Range = fn(&Graph, &Node) -> Option<[f32; 2]>;

/// The operators that saturate on both sides, and an operator of the same ends that takes the place of one
/// that no factor makes wider.
const SATURATING: &[(&str, Range, Option<&str>)] = &[
    ("Sigmoid", |_, _| Some([0.0, SIGMOID_UNTIL]), None),
    ("Tanh", |_, _| Some([0.0, TANH_UNTIL]), None),
    ("Erf", |_, _| Some([0.0, TANH_UNTIL]), None),
    ("HardSigmoid", hard_sigmoid, None),
    ("Clip", clip, None),
    ("Sign", |_, _| Some([0.0, 1.0]), Some("Tanh")),
];

fn row(node: &Node) -> Option<&'static (&'static str, Range, Option<&'static str>)> {
    SATURATING.iter().find(|(op, ..)| node.domain.is_empty() && node.op == *op)
}

/// αx + β is clipped to [0, 1].
fn hard_sigmoid(_: &Graph, node: &Node) -> Option<[f32; 2]> {
    let alpha = node.float("alpha", 0.2);
    (alpha > 0.0).then(|| [(0.5 - node.float("beta", 0.5)) / alpha, 0.5 / alpha])
}

/// The middle of both bounds, where both are constant.
fn clip(graph: &Graph, node: &Node) -> Option<[f32; 2]> {
    let bound = |i| graph.constants.get(node.input(i)?)?.to_f32s()?.first().copied();
    let (low, high): (f32, f32) = (bound(1)?, bound(2)?);
    (low < high && (high - low).is_finite()).then(|| [(low + high) / 2.0, (high - low) / 2.0])
}

impl Graph {
    /// The float32 operators that saturate on both sides. `types` covers every value.
    pub fn saturating(&self, types: &Types) -> Vec<Saturating> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter_map(|(index, node)| {
                let [centre, reach] = row(node)?.1(self, node)?;
                let input = node.input(0)?.to_string();
                (types.get(&input)?.0 == DType::F32).then_some(Saturating {
                    node: index,
                    input,
                    centre,
                    reach,
                })
            })
            .collect()
    }

    /// The graph with some operators made wider: f(x) becomes f(c + (x − c)/τ), c the operator's centre and τ
    /// the factor beside it. `types` gets the values that are new.
    pub fn wider(&self, factors: &[(Saturating, f32)], types: &mut Types) -> Graph {
        let mut graph = self.clone();
        graph.nodes.clear();
        for (index, node) in self.nodes.iter().enumerate() {
            let mut node = node.clone();
            if let Some((place, factor)) = factors.iter().find(|(place, _)| place.node == index) {
                let scaled = format!("wider/{index}/scaled");
                let moved = format!("wider/{index}");
                let constants = [("by", 1.0 / factor), ("from", place.centre * (1.0 - 1.0 / factor))];
                for (name, value) in constants {
                    let name = format!("wider/{index}/{name}");
                    types.insert(name.clone(), (DType::F32, vec![]));
                    graph.constants.insert(name, Tensor::f32(&[], &[value]));
                }
                for name in [&scaled, &moved] {
                    types.insert(name.clone(), types[&place.input].clone());
                }
                graph.nodes.push(Node::new("Mul", &[&place.input, &format!("wider/{index}/by")], &scaled));
                graph.nodes.push(Node::new("Add", &[&scaled, &format!("wider/{index}/from")], &moved));
                node.inputs[0] = moved;
                if let Some(instead) = row(&node).and_then(|row| row.2) {
                    node.op = instead.into();
                }
            }
            graph.nodes.push(node);
        }
        graph
    }
}

//! Widens operators that saturate on both sides, so that they saturate later: the widened model is a
//! surrogate for attacks.
//!
//! A softened backward pass ([`Pass::Softened`](crate::Pass)) gives a saturated operator a slope. The rest of
//! the gradient is still evaluated at the operator's outputs, which are all at its two extremes. The outputs
//! of a widened operator are between the extremes, and the gradient is the derivative of one function. This
//! is another function: measure attacked images with the original graph. In the literature this is a transfer
//! attack (Papernot et al. 2016); here the surrogate is made from the model.

use crate::grad::rules::soften::{SIGMOID_UNTIL, TANH_UNTIL};
use crate::{DType, Graph, Node, Tensor, Types};

/// An operator that saturates on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturating {
    /// Index of the node.
    pub node: usize,
    /// The input that saturates it.
    pub input: String,
    /// Middle of the range in which it has a useful slope.
    pub centre: f32,
    /// Half of the width of this range.
    pub reach: f32,
}

/// Centre and reach of a node's operator; `None` if it does not saturate on both sides.
type Range = fn(&Graph, &Node) -> Option<[f32; 2]>;

/// Operators that saturate on both sides; and, if a factor can't widen one, a replacement with the same
/// extremes.
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

/// The middle of the two bounds, if both are constant.
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

    /// The graph with widened operators: f(x) becomes f(c + (x − c)/τ), with the operator's centre c and the
    /// factor τ of its pair. Adds the new values to `types`.
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

//! Swish x·σ(x) (Ramachandran et al. 2017, also called SiLU) with a gradient.
//!
//! ONNX Runtime has an operator for Swish, `QuickGelu` with α = 1, which needs one pass over memory instead
//! of two. It doesn't use it where σ(x) is read for the derivative too. A chain gets σ(x) from Swish and x.

use super::operator::{DOMAIN, SIGMOID_OF_SWISH};
use super::{Readers, is_large, operator_index};
use crate::EMBEDDING;
use onnx_grad::graph::{MICROSOFT, Node};
use onnx_grad::{Graph, Types};
use std::collections::{HashMap, HashSet};

/// Makes one operator each of Sigmoid and the product with its input, if all other readers of the sigmoid can
/// be in chains and the embedding doesn't need them: its digits stay.
pub(super) fn join(graph: &mut Graph, types: &Types) {
    let mut forward = graph.clone();
    forward.outputs.retain(|value| value.name == EMBEDDING);
    forward.prune();
    let needed: HashSet<&String> = forward.nodes.iter().flat_map(|node| &node.outputs).collect();
    let readers = Readers::new(graph);
    let mut made: HashMap<usize, [Node; 2]> = HashMap::new();
    let mut products = HashSet::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        if node.op != "Sigmoid" || !node.domain.is_empty() {
            continue;
        }
        let (x, sigmoid) = (node.inputs[0].as_str(), node.outputs[0].as_str());
        let large = types.get(sigmoid).is_some_and(|(dtype, shape)| is_large(*dtype, shape));
        let read_by = readers.nodes(sigmoid);
        let is_swish = |&i: &usize| {
            let node = &graph.nodes[i];
            node.op == "Mul"
                && node.inputs.len() == 2
                && [x, sigmoid].iter().all(|v| node.inputs.iter().any(|n| n == v))
        };
        let (swish, others): (Vec<usize>, Vec<usize>) = read_by.iter().partition(|i| is_swish(i));
        let in_chains = others.iter().all(|&i| {
            let node = &graph.nodes[i];
            operator_index(node).is_some() && !needed.contains(&node.outputs[0])
        });
        let [product] = swish[..] else { continue };
        if !large || !readers.are_nodes(sigmoid) || others.is_empty() || !in_chains {
            continue;
        }
        let swish = graph.nodes[product].outputs[0].as_str();
        let fused = Node::new("QuickGelu", &[x], swish).with("alpha", 1.0f32).in_domain(MICROSOFT);
        let back = Node::new(SIGMOID_OF_SWISH, &[swish, x], sigmoid).in_domain(DOMAIN);
        made.insert(i, [fused, back]);
        products.insert(product);
    }
    if made.is_empty() {
        return;
    }
    let nodes = graph.nodes.iter().enumerate().filter(|(i, _)| !products.contains(i));
    graph.nodes =
        nodes.flat_map(|(i, node)| made.remove(&i).map_or_else(|| vec![node.clone()], Vec::from)).collect();
    graph.opsets.insert(MICROSOFT.into(), 1);
}

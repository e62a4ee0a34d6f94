//! A graph of which every type and shape is known, without loops.

use super::{PrepareMode, remedy, runtime};
use audit_base::{Error, Result};
use onnx_grad::graph::{Attr, DType, MICROSOFT, Node, Value};
use onnx_grad::{Graph, Types};

/// How often loops may lie within loops.
const DEEPEST: usize = 8;
/// How often a graph is unfolded: each depth takes one pass, and the sequences that a loop reads one before
/// it and one behind it.
const PASSES: usize = 3 * DEEPEST;

/// Specialises a graph of fixed input shapes, unfolds its loops and recurrent operators, and infers the type
/// and shape of each value.
///
/// Errors (exit code 3): an operator of a domain that ONNX Runtime doesn't have, a loop that can't be
/// unfolded, or whatever ONNX Runtime refuses.
pub fn shaped(graph: &Graph, mode: PrepareMode) -> Result<(Graph, Types)> {
    foreign_operators(graph)?;
    let mut graph = match runtime::specialise(graph) {
        Err(_) if graph.nodes.iter().any(rounds_up) => runtime::specialise(&with_pads(graph)?)?,
        specialised => specialised?,
    };
    for _ in 0..PASSES {
        // Loops go before shapes are inferred: that runs the graph, and a loop might not end. The length of a
        // sequence may be a shape, and the number of a loop's steps such a length.
        if !mode.loops {
            let types = if graph.has_sequences() { runtime::infer_statically(&graph)? } else { Types::new() };
            if let Some(unfolded) = graph.unfold(&types).map_err(looping)? {
                graph = runtime::specialise(&unfolded)?;
                continue;
            }
            if let Some(node) = graph.find_loop() {
                return Err(looping(format!(
                    "{} is control flow, which has no gradient here. Export the model with loops unrolled; as a last \
                     resort, --gradient estimate does without the gradient, slowly and less well",
                    node.label()
                )));
            }
        }
        let infer = if mode.unrun { runtime::infer_unrun } else { runtime::infer };
        let types = infer(&graph)?;
        match if mode.loops { None } else { graph.unfold(&types).map_err(looping)? } {
            Some(unfolded) => graph = runtime::specialise(&unfolded)?,
            None => {
                for node in graph.nodes.iter_mut().filter(|node| rounds_up(node)) {
                    if let Some((_, shape)) = node.input(0).and_then(|input| types.get(input)) {
                        give_pads(node, shape);
                    }
                }
                return Ok((graph, types));
            }
        }
    }
    Err(Error::model(format!(
        "has loops within loops, deeper than {DEEPEST}. Export the model with loops unrolled"
    )))
}

/// The error for loops that can't be unfolded.
fn looping(why: String) -> Error {
    Error::model(why).lacking([remedy::estimate()])
}

/// The operators that ONNX Runtime's last level of optimisation writes into saved models.
pub(crate) const BLOCKED: &str = "com.microsoft.nchwc";

/// The nodes of a part of a graph, sub-graphs included, whose operators ONNX Runtime doesn't know.
fn foreign_nodes<'a>(part: &'a Graph, whole: &Graph) -> Vec<&'a Node> {
    const KNOWN: [&str; 3] = ["", "ai.onnx.ml", MICROSOFT];
    let mut foreign = Vec::new();
    for node in &part.nodes {
        if !KNOWN.contains(&node.domain.as_str()) && !whole.defines(node) {
            foreign.push(node);
        }
        foreign.extend(node.graphs().flat_map(|inner| foreign_nodes(inner, whole)));
    }
    foreign
}

/// Refuses operators that ONNX Runtime does not know. It lists all of them; ONNX Runtime itself would stop at
/// the first.
fn foreign_operators(graph: &Graph) -> Result<()> {
    let nodes = foreign_nodes(graph, graph);
    let labels: Vec<String> = nodes.iter().map(|n| format!("  {}", n.label())).collect();
    if labels.is_empty() {
        return Ok(());
    }
    if nodes.iter().any(|n| n.domain == BLOCKED) {
        return Err(Error::model(format!(
            "was saved by ONNX Runtime with all optimisations, so that channels lie in blocks as wide as the registers of the \
             machine that saved it:\n{}\nSave it with ORT_ENABLE_EXTENDED, or take the file that it was made from",
            labels.join("\n")
        )));
    }
    Err(Error::model(format!(
        "has operators of a domain that ONNX Runtime doesn't come with, and that have no gradient here:\n{}\n\
         Export the model with standard operators: `audit ops` lists what is covered",
        labels.join("\n")
    )))
}

fn rounds_up(node: &Node) -> bool {
    node.domain.is_empty() && node.int("ceil_mode", 0) != 0 && node.str("auto_pad", "NOTSET") == "NOTSET"
}

/// A graph whose pools with ceil_mode have pads instead, where shape inference refuses what follows.
fn with_pads(graph: &Graph) -> Result<Graph> {
    let mut graph = graph.clone();
    for i in 0..graph.nodes.len() {
        if !rounds_up(&graph.nodes[i]) {
            continue;
        }
        let Some(input) = graph.nodes[i].input(0).map(str::to_string) else { continue };
        let mut front = graph.clone();
        front.outputs = vec![Value { name: input.clone(), dtype: DType::Other(0), shape: None }];
        front.prune();
        front.prune_inputs();
        // The input of the graph itself needs no inference.
        let shape = match front.nodes.is_empty() {
            true => {
                runtime::fixed_shape(graph.inputs.iter().find(|v| v.name == input).ok_or_else(|| {
                    Error::model(format!("{}: its input {input} is made by no node", graph.nodes[i].label()))
                })?)?
            }
            false => runtime::infer(&runtime::specialise(&front)?)?[&input].1.clone(),
        };
        give_pads(&mut graph.nodes[i], &shape);
    }
    Ok(graph)
}

/// Gives a pool equivalent pads instead of ceil_mode, if a window would begin behind its input.
///
/// Such a window doesn't count. Shape inference of opsets before 22 counts it: sessions then have outputs of
/// another shape than they expect.
fn give_pads(node: &mut Node, shape: &[i64]) {
    if let Some(pads) = pads_for(node, &shape[2.min(shape.len())..]) {
        node.attrs.insert("pads".into(), Attr::Ints(pads));
        node.attrs.remove("ceil_mode");
    }
}

/// The pads with which a pool over an input (spatial sizes) has as many windows as with ceil_mode; `None`
/// where ceil_mode makes no window that begins behind the input, or no pads do.
fn pads_for(node: &Node, sizes: &[i64]) -> Option<Vec<i64>> {
    let n = sizes.len();
    let list = |name: &str, default: i64, count: usize| {
        node.ints(name).filter(|v| v.len() == count).map_or(vec![default; count], <[i64]>::to_vec)
    };
    let kernel = node.ints("kernel_shape").filter(|v| v.len() == n)?;
    let (strides, dilations, mut pads) =
        (list("strides", 1, n), list("dilations", 1, n), list("pads", 0, 2 * n));
    let (mut behind, mut longer) = (false, false);
    for d in 0..n {
        let extent = (kernel[d] - 1) * dilations[d] + 1;
        let room = sizes[d] + pads[d] + pads[n + d] - extent;
        let mut last = (room + strides[d] - 1).div_euclid(strides[d]);
        if last * strides[d] >= sizes[d] + pads[d] {
            last -= 1;
            behind = true;
        }
        let after = (last * strides[d] + extent - sizes[d] - pads[d]).max(0);
        longer |= after > pads[n + d];
        pads[n + d] = after;
    }
    // Kernels refuse pads that a window fits into.
    let fit = (0..n).all(|d| pads[n + d] < kernel[d]);
    // An average would count pads that ceil_mode doesn't have.
    (behind && fit && !(longer && node.int("count_include_pad", 0) != 0)).then_some(pads)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator of an unknown domain in a branch is named, as one outside is.
    #[test]
    fn foreign_operators_of_branches_are_refused() {
        let own = |name: &str| Node { domain: "audit.fused".into(), ..Node::new("Chain", &["x"], name) };
        let branch = Attr::Graph(Box::new(Graph::new(vec![own("inner")], Default::default())));
        let choice =
            Node::new("If", &["flag"], "y").with("then_branch", branch.clone()).with("else_branch", branch);
        let graph = Graph::new(vec![own("outer"), choice], Default::default());
        let message = foreign_operators(&graph).unwrap_err().message;
        assert!(message.contains("\"outer\"") && message.contains("\"inner\""), "{message}");
    }
}

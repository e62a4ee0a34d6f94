//! A graph of which every type and shape is known, without loops.

use super::runtime;
use crate::{Error, Result};
use onnx_grad::{Graph, Types};

/// How often loops may lie within loops.
const DEEPEST: usize = 8;

/// Specialises a graph of fixed input shapes, unfolds its loops and recurrent operators, and infers the type and shape of each value.
///
/// With `loops` they stay: a graph that is run forward alone may have them. Errors (exit code 3): an operator of a domain that
/// ONNX Runtime doesn't have, a loop that can't be unfolded, or whatever ONNX Runtime refuses.
pub fn shaped(graph: &Graph, loops: bool) -> Result<(Graph, Types)> {
    foreign_operators(graph)?;
    let mut graph = runtime::specialise(graph)?;
    for _ in 0..DEEPEST {
        // Loops go before shapes are inferred: that runs the graph, and a loop might not end.
        if !loops {
            if let Some(unfolded) = graph.unfold(&Types::new()).map_err(Error::model)? {
                graph = runtime::specialise(&unfolded)?;
                continue;
            }
            if let Some(node) = graph.find_loop() {
                return Err(Error::model(format!(
                    "{} is control flow, which has no gradient here. Export the model with loops unrolled; as a last \
                     resort, --gradient estimate does without the gradient, slowly and less well",
                    node.label()
                )));
            }
        }
        let types = runtime::infer(&graph)?;
        match if loops { None } else { graph.unfold(&types).map_err(Error::model)? } {
            Some(unfolded) => graph = runtime::specialise(&unfolded)?,
            None => return Ok((graph, types)),
        }
    }
    Err(Error::model(format!(
        "has loops within loops, deeper than {DEEPEST}. Export the model with loops unrolled"
    )))
}

/// Refuses operators that ONNX Runtime does not know. It lists all of them; ONNX Runtime itself would stop at the
/// first.
fn foreign_operators(graph: &Graph) -> Result<()> {
    const KNOWN: [&str; 3] = ["", "ai.onnx.ml", "com.microsoft"];
    let labels: Vec<String> = graph
        .nodes
        .iter()
        .filter(|n| !KNOWN.contains(&n.domain.as_str()) && !graph.defines(n))
        .map(|n| format!("  {}", n.label()))
        .collect();
    if labels.is_empty() {
        return Ok(());
    }
    Err(Error::model(format!(
        "has operators of a domain that ONNX Runtime doesn't come with, and that have no gradient here:\n{}\n\
         Export the model with standard operators: `audit ops` lists what is covered",
        labels.join("\n")
    )))
}

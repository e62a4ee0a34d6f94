//! A model and its gradient, joined into one graph of standard operators.

use super::runtime::Options;
use super::{Card, EMBEDDING, Info, ModelSource, PrepareMode, Prepared};
use audit_base::{Error, Exit, Result};
use onnx_grad::graph::Node;
use onnx_grad::{Graph, Note, Pass, Processor, batch};
use std::collections::HashSet;
use std::path::Path;

/// Names of the graph's inputs and outputs: the images, ∂L/∂embedding, the embedding, ∂L/∂image.
pub const NAMES: [&str; 4] = ["image", "cotangent", "embedding", "gradient"];

/// Batches whose graphs are compared to find the values that depend on the batch. They are primes that models
/// rarely have as a dimension.
const BATCHES: [usize; 2] = [11, 13];

/// A model and its gradient in one graph.
pub struct Joined {
    /// Facts about the model.
    pub info: Info,
    /// Nodes whose gradient rule differs from the true derivative.
    pub notes: Vec<Note>,
    /// (image, cotangent) → (embedding, gradient), in float32.
    pub graph: Graph,
    /// The batch; `None` where it is free.
    pub batch: Option<usize>,
}

impl Joined {
    /// Builds the gradient of a model for a `batch`, or for any batch where it is `None`. A model with a
    /// fixed batch keeps its own. With `raw`, the gradient is with respect to the model's own input instead
    /// of pixels.
    ///
    /// Errors (exit code 3): those of [`super::Model::open`]; the graphs of two batches differ in a way that
    /// the batch does not explain.
    pub fn form(
        path: &Path,
        card: &Card,
        options: Options,
        batch: Option<usize>,
        raw: bool,
    ) -> Result<Joined> {
        let source =
            ModelSource { path, card, options, batch, mode: PrepareMode { raw, ..PrepareMode::default() } };
        let batch = match batch {
            Some(n) => Some(n),
            None => Prepared::read(source)?.info.fixed_batch,
        };
        let of = |n: usize| -> Result<Joined> {
            let prepared = Prepared::read(ModelSource { batch: Some(n), ..source }).map_err(|mut e| {
                if batch.is_none() && e.exit == Exit::Model {
                    e.message += &format!(
                        ".\nThis was for a batch of {n}, because the file leaves its batch open. If the model takes one batch \
                         alone, state it: --batch 1"
                    );
                }
                e
            })?;
            let image = if raw { &prepared.input } else { super::IMAGE };
            let g = prepared.differentiate(image, Pass::Exact, Processor::Cpu)?;
            let names = [image, &g.cotangents[0], EMBEDDING, &g.gradients[0]].map(str::to_string);
            let notes = g.notes.clone();
            let mut graph = g.join();
            names.iter().zip(NAMES).for_each(|(from, to)| graph.rename(from, to));
            Ok(Joined { info: prepared.info, notes, graph, batch })
        };
        if let Some(n) = batch {
            return of(n).map(Joined::usable);
        }
        let [a, b] = [of(BATCHES[0])?, of(BATCHES[1])?];
        let graph = batch::free([&a.graph, &b.graph], BATCHES.map(|n| n as i64), NAMES[0]).map_err(|e| {
            Error::model(format!(
                "{}: no graph for any batch can be made: {e}. Write one for a fixed batch: --batch 1",
                path.display()
            ))
        })?;
        Ok(Joined { graph, ..a }.usable())
    }

    /// The same, for ONNX Runtime's default options.
    fn usable(mut self) -> Joined {
        keep_quantisers(&mut self.graph);
        self
    }
}

/// Operators past which ONNX Runtime's QDQPropagationTransformer moves a DequantizeLinear.
const PASSED: [&str; 6] = ["MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"];

/// Puts a Max of one value between a DequantizeLinear and each such operator that reads it. It changes
/// nothing, and stops this optimiser, which puts further quantisers behind operators of the gradient. If they
/// are int8, ONNX Runtime makes uint8 of their zero points on x86, and refuses the graph (1.31). Where the
/// operator's result is quantised, the optimiser adds nothing, and integer kernels need both side by side.
fn keep_quantisers(graph: &mut Graph) {
    let is = |node: &Node, op: &str| node.op == op && node.domain.is_empty();
    let quantisers = graph.nodes.iter().filter(|node| is(node, "QuantizeLinear"));
    let quantised: HashSet<String> = quantisers.filter_map(|node| Some(node.input(0)?.to_string())).collect();
    let mut dequantised: HashSet<String> = HashSet::new();
    let mut held: HashSet<String> = HashSet::new();
    for mut node in std::mem::take(&mut graph.nodes) {
        let passed = node.domain.is_empty() && PASSED.contains(&node.op.as_str());
        if let Some(x) = node.input(0).map(str::to_string)
            && passed
            && dequantised.contains(&x)
            && !node.outputs.iter().any(|y| quantised.contains(y))
        {
            let name = format!("audit/kept/{x}");
            if held.insert(x.clone()) {
                graph.nodes.push(Node::new("Max", &[&x], &name));
            }
            node.inputs[0] = name;
        }
        // Weights stay where they are.
        let constant = node.input(0).is_some_and(|x| graph.constants.contains_key(x));
        if is(&node, "DequantizeLinear") && !constant {
            dequantised.extend(node.outputs.iter().cloned());
        }
        graph.nodes.push(node);
    }
}

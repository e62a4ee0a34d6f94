//! Embeddings that are drawn at random.

use super::card::{Axes, Pooling};
use super::output;
use super::remedy;
use audit_base::Error;
use audit_report::record::reason;
use onnx_grad::graph::Node;
use onnx_grad::{Graph, Types};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

/// An embedding that is drawn at random: another one at every run.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnEmbedding {
    /// The value of the file.
    output: String,
    /// Label of the node that draws.
    node: String,
    /// Whether it is a dropout in training mode.
    dropout: bool,
    /// The nearest value before the embedding that has its shape and is not drawn.
    pub instead: Option<String>,
}

impl DrawnEmbedding {
    /// `graph` is the file's, and `types` are those of its values that are left once its shapes are fixed.
    /// `None` if the value `output` is not drawn.
    pub(super) fn of(
        graph: &Graph,
        types: &Types,
        output: &str,
        batch: usize,
        pooling: Option<Pooling>,
        layout: Axes,
    ) -> Option<DrawnEmbedding> {
        let drawn = graph.drawn();
        let node = drawn.get(output)?;
        let mut seen: HashSet<&str> =
            graph.inputs.iter().map(|i| i.name.as_str()).filter(|name| !name.is_empty()).collect();
        // Values that depend on an input.
        for node in &graph.nodes {
            if read_by(node).iter().any(|name| seen.contains(name.as_str())) {
                seen.extend(node.outputs.iter().map(String::as_str).filter(|name| !name.is_empty()));
            }
        }
        let made: HashMap<&str, _> =
            graph.nodes.iter().flat_map(|n| n.outputs.iter().map(move |out| (out.as_str(), n))).collect();
        let suits = |name: &str| {
            let of_file = !name.starts_with("audit/") && made.contains_key(name);
            let fits = || {
                let Some((dtype, shape)) = types.get(name) else { return false };
                dtype.is_float() && output::fits(shape, batch, pooling, layout)
            };
            of_file && seen.contains(name) && !drawn.contains_key(name) && fits()
        };
        let (mut queue, mut visited) =
            (VecDeque::from([output.to_string()]), HashSet::from([output.to_string()]));
        let mut instead = None;
        while let Some(name) = queue.pop_front() {
            if suits(&name) {
                instead = Some(name);
                break;
            }
            let inputs = made.get(name.as_str()).map(|node| read_by(node)).unwrap_or_default();
            queue.extend(inputs.into_iter().filter(|name| !name.is_empty() && visited.insert(name.clone())));
        }
        Some(DrawnEmbedding {
            output: output.to_string(),
            node: node.label(),
            dropout: node.op == "Dropout",
            instead,
        })
    }

    /// In words, with the value to audit instead.
    pub fn in_words(&self) -> String {
        let DrawnEmbedding { output, node, .. } = self;
        let how = match self.dropout {
            true => format!(
                "{node} has training_mode = true and drops values at every run (ONNX Runtime's default optimisation removes such a node, \
                 other runtimes and settings do not)"
            ),
            false => format!("{node} draws numbers at every run"),
        };
        let instead = self
            .instead
            .as_ref()
            .map_or(String::new(), |name| format!(". The value `{name}` before it is not: --output {name}"));
        format!("the embedding `{output}` is drawn at random: {how}{instead}")
    }

    /// The refusal (exit code 12) of the model at `path`.
    pub fn error(&self, path: &Path) -> Error {
        Error::untrusted(format!("{}: {}. {}", path.display(), self.in_words(), reason::RANDOMISED.advice))
            .lacking(self.instead.iter().map(|value| remedy::row("--output", value)))
    }
}

/// The values that a node reads, those that graphs within it read included.
fn read_by(node: &Node) -> Vec<String> {
    let mut names = node.inputs.clone();
    node.each_captured(&mut |name| names.push(name.to_string()));
    names
}

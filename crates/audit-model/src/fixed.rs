//! A model's graph for images of one size, in batches of one length.

use super::card::{Card, Preprocessing, prepend, preprocessing};
use super::kind::Seen;
use super::prepared::{ModelSource, PrepareMode, declared, fix_input, forget_shapes};
use super::workers::{Workers, workers_of};
use super::{IMAGE, output, remedy, shaped};
use audit_base::{Error, Result};
use onnx_grad::graph::{Tensor, Value};
use onnx_grad::{Graph, Types};
use std::collections::HashSet;

/// A graph for images of one size in batches of one length, of which every type and shape is known.
pub(super) struct Fixed {
    pub graph: Graph,
    pub types: Types,
    pub preprocessing: Preprocessing,
    pub workers: Workers,
}

impl Fixed {
    pub fn new(mut graph: Graph, input: &Value, source: ModelSource, seen: &mut Seen) -> Result<Fixed> {
        let ModelSource { card, mode, .. } = source;
        let outputs: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
        let inputs = declared(&graph.inputs);
        let preprocessing = preprocessing(input, card)?;
        let workers = workers_of(input, source.batch, &preprocessing, source.options)?;
        let batch = workers.each;
        seen.images = Some([batch, preprocessing.height, preprocessing.width]);

        fix_input(&mut graph, &input.name, &preprocessing, batch);
        if !mode.raw {
            prepend(&preprocessing, &mut graph, &input.name, batch);
        }
        let chosen = card.output.as_deref().or_else(|| output::usual(&outputs));
        if let Some(name) = chosen {
            output::choose(&mut graph, name)?;
        }
        forget_shapes(&mut graph);
        graph.prune();
        graph.prune_inputs();
        only_input(&graph, if mode.raw { &input.name } else { IMAGE }, &inputs)?;
        let (graph, types) = shaped(&graph, mode)?;
        Ok(Fixed { graph, types, preprocessing, workers })
    }

    /// The graph at the one usual size of images that it takes, if the input leaves the size open and nothing
    /// states it: a vision transformer has an embedding of each position. Errors (exit code 2): it takes
    /// several sizes, or none.
    pub fn at_usual_size(
        graph: &Graph,
        input: &Value,
        source: ModelSource,
        seen: &mut Seen,
    ) -> Result<Fixed> {
        let ModelSource { card, mode, .. } = source;
        let trial = PrepareMode { unrun: true, ..mode };
        let mut fit: Vec<usize> = Vec::new();
        for side in USUAL_SIZES {
            let card = Card { size: Some([side; 2]), ..card.clone() };
            let source = ModelSource { card: &card, mode: trial, ..source };
            if Fixed::new(graph.clone(), input, source, &mut Seen::default()).is_ok() {
                fit.push(side);
            }
            if fit.len() == 2 {
                break;
            }
        }
        match fit[..] {
            [side] => {
                let card = Card { size: Some([side; 2]), ..card.clone() };
                let source = ModelSource { card: &card, ..source };
                let mut fixed = Fixed::new(graph.clone(), input, source, seen)?;
                fixed.preprocessing.size_found = true;
                Ok(fixed)
            }
            _ => {
                let open = preprocessing(input, card).map(drop);
                // If none fits, something else may be missing beside the size, such as an output that needs
                // no texts.
                let sides = if fit.is_empty() { &USUAL_SIZES[..] } else { &fit };
                let rows = sides.iter().map(|side| remedy::row("--size", side));
                Err(open.err().unwrap_or_else(|| Error::internal("an open size")).lacking(rows))
            }
        }
    }
}

/// Sides of square images that models are usually trained with, in pixels, the most usual first.
const USUAL_SIZES: [usize; 19] =
    [224, 384, 256, 336, 448, 512, 518, 378, 299, 288, 192, 160, 128, 112, 96, 64, 48, 32, 28];

/// Refuses a graph that depends on inputs other than the images. `all` lists the file's inputs for the
/// message.
fn only_input(graph: &Graph, image: &str, all: &[String]) -> Result<()> {
    if graph.inputs.iter().all(|i| i.name == image) {
        return Ok(());
    }
    Err(Error::model(format!(
        "needs other inputs beside the images, and nothing says their values. Its inputs are:\n  {}\n\
         Export it with those fixed, or choose an output that does without them with --output",
        all.join("\n  ")
    ))
    .lacking(of_images_alone(graph, image).iter().map(|name| remedy::row("--output", name))))
}

/// Values that depend on the images and on no other input, and that are an output or that a node combines
/// with another input: the last few. What no weights went into is the image itself, such as one that a mask
/// is laid over, and left out.
fn of_images_alone(graph: &Graph, image: &str) -> Vec<String> {
    let mut alone = HashSet::from([image]);
    let matrix = |t: &Tensor| t.shape.iter().filter(|size| **size > 1).count() >= 2;
    let mut weights: HashSet<&str> =
        graph.constants.iter().filter(|(_, t)| matrix(t)).map(|(name, _)| name.as_str()).collect();
    let mut learned: HashSet<&str> = HashSet::new();
    let mut other: HashSet<&str> = graph.inputs.iter().map(|i| i.name.as_str()).collect();
    other.remove(image);
    let mut found: Vec<String> = Vec::new();
    for node in &graph.nodes {
        let has = |set: &HashSet<&str>| node.inputs.iter().any(|name| set.contains(name.as_str()));
        // An output that is left out and an input that is left out have the same name, the empty one.
        let outputs = node.outputs.iter().map(String::as_str).filter(|name| !name.is_empty());
        match (has(&alone), has(&other)) {
            (true, false) => {
                if has(&learned) || has(&weights) {
                    learned.extend(outputs.clone());
                }
                alone.extend(outputs);
            }
            // Weights may be made of others, such as of quantised ones.
            (false, false) if has(&weights) => weights.extend(outputs),
            (false, false) => {}
            (mixes, true) => {
                let last = node.inputs.iter().filter(|name| mixes && learned.contains(name.as_str()));
                found.extend(last.cloned());
                other.extend(outputs);
            }
        }
    }
    found.extend(graph.outputs.iter().filter(|o| learned.contains(o.name.as_str())).map(|o| o.name.clone()));
    found.reverse();
    found.truncate(TRIED);
    found
}

/// Values that are tried as the embedding at most.
const TRIED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_grad::graph::{DType, Node};

    /// By hand: the features of the image depend on the image alone, although the net of the text leaves an
    /// output out and the net of the image an input.
    #[test]
    fn what_is_left_out_connects_no_nodes() {
        let mut text = Node::new("LSTM", &["text", "weights", "weights"], "");
        text.outputs.push("state".into());
        let image = Node::new("Conv", &["image", "weights", ""], "features");
        let both = Node::new("Mul", &["features", "state"], "scores");
        let weights = Tensor::f32(&[2, 2], &[1.0; 4]);
        let mut graph = Graph::new(vec![text, image, both], [("weights".into(), weights)].into());
        let value = |name: &str| Value::new(name, DType::F32, &[1, 2]);
        (graph.inputs, graph.outputs) = (vec![value("image"), value("text")], vec![value("scores")]);
        assert_eq!(of_images_alone(&graph, "image"), ["features"]);
    }
}

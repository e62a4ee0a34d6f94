//! A model's file, read and prepared for differentiation.

use super::card::{self, Card, Preprocessing, Unlike, image_like, unlike};
use super::drawn::DrawnEmbedding;
use super::fixed::Fixed;
use super::identity::ModelIdentity;
use super::kind::{ModelKind, Seen};
use super::runtime::{self, Options};
use super::{Info, Workers, output, refused, remedy};
use audit_base::{Error, Exit, Result, files};
use onnx_grad::graph::{Bytes, DType, Node, Value};
use onnx_grad::{Differentiated, Graph, Pass, Processor, Types, differentiate};
use std::path::Path;

/// A model's file, decoded. Copies share the weights.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) identity: ModelIdentity,
    pub(super) graph: Graph,
}

/// A model file and how to prepare it.
#[derive(Clone, Copy)]
pub(super) struct ModelSource<'a> {
    pub(super) path: &'a Path,
    pub(super) card: &'a Card,
    pub(super) options: Options,
    /// Images in a batch; `None`: the file's number, or the default.
    pub(super) batch: Option<usize>,
    pub(super) mode: PrepareMode,
}

/// How a file is prepared.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrepareMode {
    /// Whether the graph may have loops. A loop has no gradient here, and running it to infer shapes might
    /// not end.
    pub loops: bool,
    /// Whether the graph keeps the model's own input, without preprocessing.
    pub raw: bool,
    /// Whether shape inference doesn't run the graph, because the caller does.
    pub unrun: bool,
}

/// A model that is ready to run forward and is not differentiated yet.
pub(super) struct Prepared {
    pub(super) info: Info,
    pub(super) input: String,
    pub(super) graph: Graph,
    pub(super) types: Types,
    pub(super) workers: Workers,
}

impl Loaded {
    /// Reads and decodes a file. Errors: it can't be read (exit code 2), or is no ONNX model (exit code 3).
    pub(super) fn read(path: &Path) -> Result<Loaded> {
        let bytes = files::read(path, files::LARGE).map_err(|e| {
            Error::usage(format!(
                "can't read the model {}: {e}. Give the path of an .onnx file",
                path.display()
            ))
        })?;
        let bytes = Bytes::from(bytes);
        // First, since its errors say more of a damaged file.
        let graph = Graph::decode(bytes.clone(), path).map_err(refused)?;
        Ok(Loaded { identity: ModelIdentity::of(bytes, path)?, graph })
    }
}

impl Prepared {
    pub(super) fn read(source: ModelSource) -> Result<Prepared> {
        Prepared::of(Loaded::read(source.path)?, source, &mut Seen::default())
    }

    /// [`Prepared::read`] of a file that was read already. `seen` gets what was found out of it, also before
    /// an error. If the model is refused for what flags can state, the error has flags with which it was
    /// read.
    pub(super) fn of(file: Loaded, source: ModelSource, seen: &mut Seen) -> Result<Prepared> {
        Prepared::in_batch(file.clone(), source, seen).map_err(|refused| {
            let ModelSource { path, card, .. } = source;
            let look = ModelKind::of(&file.graph, seen, card.output.as_deref(), None);
            // No flag makes boxes or masks an embedding of the image.
            if look.is_other() || refused.flags.is_empty() {
                return look.explain(refused.lacking([]));
            }
            // Class scores of places are no embedding however they are pooled.
            let rows = [look.before(), refused.flags.clone()].concat();
            let open = |card: &Card| Prepared::opens(&file, ModelSource { card, ..source });
            if let Some(working) = remedy::working(card, &rows, &open) {
                return refused.lacking([working]);
            }
            let tried =
                refused.flags.first().and_then(|row| remedy::why_not(card, row, &open, &|e| e.brief(path)));
            let message = [Some(refused.message.clone()), tried].into_iter().flatten().collect::<Vec<_>>();
            Error { message: message.join("\n"), flags: Vec::new(), ..refused }
        })
    }

    /// Whether a file can be prepared, or why not. The graph is not run.
    pub(super) fn opens(file: &Loaded, source: ModelSource) -> Result<()> {
        let mode = PrepareMode { unrun: true, ..source.mode };
        Prepared::in_batch(file.clone(), ModelSource { mode, ..source }, &mut Seen::default()).map(drop)
    }

    /// [`Prepared::of`] without a search for flags.
    ///
    /// Exporters leave the batch of an input open although a constant further in fixes it to 1. So a model
    /// that takes no usual batch is taken one image at a time, if it takes that.
    fn in_batch(file: Loaded, source: ModelSource, seen: &mut Seen) -> Result<Prepared> {
        let again = file.clone();
        let mut error = match Prepared::at(file, source, None, seen) {
            Err(e) if source.batch.is_none() && e.exit == Exit::Model => e,
            done => return done,
        };
        let usual = seen.images.map_or(0, |[batch, ..]| batch);
        let why = format!("in batches of {usual}, {}", error.brief(source.path));
        let mut alone = Seen::default();
        match Prepared::at(again, ModelSource { batch: Some(1), ..source }, Some(why), &mut alone) {
            // If the file itself fixes its batch, this try does not differ from the first.
            Ok(prepared) if prepared.info.alone.is_some() => {
                *seen = alone;
                Ok(prepared)
            }
            _ => {
                // If the outputs have the same shape in both batches, nodes fix the batch.
                let same = !seen.outputs.is_empty() && seen.outputs == alone.outputs;
                let fixed = same || runtime::is_failed_run(&error);
                if let (true, Some([batch, ..])) = (fixed, seen.images) {
                    error.message += &format!(
                        ".\nThis was in a batch of {batch}, because the file leaves its batch open. If its nodes fix it, state it: \
                         --batch N"
                    );
                }
                Err(error)
            }
        }
    }

    /// [`Prepared::in_batch`] at one batch. `alone`: why images are taken one at a time if the file leaves
    /// its batch open.
    fn at(
        Loaded { identity, graph }: Loaded,
        source: ModelSource,
        alone: Option<String>,
        seen: &mut Seen,
    ) -> Result<Prepared> {
        let ModelSource { path, card, .. } = source;
        if let Some(stated) = card.sha256.as_ref().filter(|s| !identity.is(s)) {
            return Err(Error::usage(format!(
                "the model card is of another file: it states sha256 {stated}, and {}{} has {}. If it describes this \
                 file too, write this sha256 into the card, or leave the key out",
                path.display(),
                identity.with_beside(),
                identity.sha256
            )));
        }
        let named = |e: Error| e.context(path.display());
        // Weights are shared by the copies of a graph.
        let as_read = graph.clone();
        let outputs: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
        let inputs = declared(&graph.inputs);
        let nodes = graph.nodes.len();
        let precision = graph.precision;
        let input = pick_input(&graph, card).map_err(named)?;
        let alone = alone.filter(|_| input.fixed_batch().is_none());
        let graph = in_floats(graph, &input.name).map_err(named)?;
        let fixed = match card::open_sides(&input, card) {
            false => Fixed::new(graph, &input, source, seen),
            true => Fixed::at_usual_size(&graph, &input, source, seen),
        };
        let Fixed { mut graph, mut types, preprocessing, workers } = fixed.map_err(named)?;
        let batch = workers.each;
        let shape_of = |name: &str| Some((name.to_string(), types.get(name)?.1.clone()));
        seen.outputs = graph.outputs.iter().filter_map(|o| shape_of(&o.name)).collect();
        let (output, dim) =
            output::pick(&mut graph, &mut types, batch, card.pooling, preprocessing.layout).map_err(named)?;
        let output_why = output::why(&outputs, card, &output);
        let drawn = DrawnEmbedding::of(&as_read, &types, &output, batch, card.pooling, preprocessing.layout);
        let look = ModelKind::of(&as_read, seen, Some(&output), Some(dim));
        let mut operators: Vec<String> = graph.nodes.iter().map(|n| n.op.clone()).collect();
        operators.sort();
        operators.dedup();
        let info = Info {
            path: path.to_path_buf(),
            identity,
            inputs,
            output,
            output_why,
            fixed_batch: input.fixed_batch().or(alone.as_ref().map(|_| 1)),
            alone,
            drawn,
            pooling: card.pooling,
            dim,
            look,
            precision,
            preprocessing,
            operators,
            nodes,
        };
        Ok(Prepared { info, input: input.name, graph, types, workers })
    }

    /// Differentiates the graph with respect to its input `image`, with the slopes of `pass`, for
    /// `processor`.
    pub(super) fn differentiate(
        &self,
        image: &str,
        pass: Pass,
        processor: Processor,
    ) -> Result<Differentiated> {
        self.differentiate_as(&self.graph, image, pass, processor)
    }

    /// [`Prepared::differentiate`] of a form of its graph.
    pub(super) fn differentiate_as(
        &self,
        graph: &Graph,
        image: &str,
        pass: Pass,
        processor: Processor,
    ) -> Result<Differentiated> {
        differentiate(graph, &self.types, &[image], pass, processor).map_err(|missing| {
            // That it is drawn at random is worse.
            if let Some(drawn) = &self.info.drawn {
                return drawn.error(&self.info.path);
            }
            Error::model(format!(
                "{}: no gradient can be formed, so white-box attacks can't be run.\n{missing}\n\
                 Export the model with other operators, or ask for these: `audit ops` lists what is covered. \
                 As a last resort, --gradient estimate does without, slowly and less well",
                self.info.path.display()
            ))
            .lacking([remedy::estimate()])
        })
    }

    /// Bytes of all values that a forward pass of one worker computes, plus two copies of its images.
    /// [`Workers::fitting`] doubles the sum, which then covers the four copies that a worker holds: the
    /// images, their two bounds, and the images that are only embedded.
    pub(super) fn bytes(&self) -> u64 {
        let outputs = self.graph.nodes.iter().flat_map(|n| &n.outputs);
        let sizes = outputs.filter_map(|name| runtime::bytes_of(self.types.get(name)?));
        let images = self.info.preprocessing.pixels() * self.workers.each * size_of::<f32>();
        sizes.fold(2 * images as u64, u64::saturating_add)
    }
}

/// The error for a graph without an input of images: what keeps each input from being one, and what to do
/// about the nearest.
fn no_images(graph: &Graph, card: &Card) -> Error {
    let inputs: Vec<(&Value, Unlike)> = graph.inputs.iter().map(|i| (i, unlike(i, card))).collect();
    let listed: String = inputs
        .iter()
        .map(|(i, unlike)| format!("\n  {} {}: {}", i.name, i.shape_text(), unlike.why(i)))
        .collect();
    let nearest = inputs.iter().map(|(_, unlike)| *unlike).min();
    let message = format!(
        "no input is a batch of images, [N, 1 or 3, H, W] or [N, H, W, 1 or 3]. Its inputs are:{listed}"
    );
    match nearest {
        Some(nearest) => Error::model(format!("{message}\n{}", nearest.instead())).lacking(nearest.flags()),
        None => Error::model("has no input. Export the model with an input of images, [N, C, H, W]"),
    }
}

/// Inputs or outputs as a file declares them: names and shapes.
pub(super) fn declared(values: &[Value]) -> Vec<String> {
    values.iter().map(|value| format!("{} {}", value.name, value.shape_text())).collect()
}

fn pick_input(graph: &Graph, card: &Card) -> Result<Value> {
    let listed = || format!("  {}", declared(&graph.inputs).join("\n  "));
    let input = match &card.input {
        Some(name) => {
            graph.inputs.iter().find(|i| &i.name == name).ok_or_else(|| {
                Error::model(format!("has no input {name:?}. Its inputs are:\n{}", listed()))
            })?
        }
        None => {
            let images: Vec<&Value> = graph.inputs.iter().filter(|i| image_like(i, card).is_some()).collect();
            match images[..] {
                [one] => one,
                [] => return Err(no_images(graph, card)),
                _ => {
                    return Err(Error::model(format!(
                        "several inputs look like images:\n{}\nChoose one of them with --input",
                        listed()
                    ))
                    .lacking(images.iter().map(|i| remedy::row("--input", &i.name))));
                }
            }
        }
    };
    if input.dtype != DType::F32 && input.dtype.grey_levels().is_none() {
        return Err(Error::model(format!(
            "input {:?} is {}. Inputs of float32, float16, bfloat16 and of integers of 8 bits and more are covered. Export the model with \
             one of these",
            input.name,
            input.dtype.name()
        )));
    }
    Ok(input.clone())
}

pub(super) fn fix_input(graph: &mut Graph, name: &str, p: &Preprocessing, batch: usize) {
    if let Some(input) = graph.inputs.iter_mut().find(|i| i.name == name) {
        *input = Value::new(name, DType::F32, &p.input_shape(batch));
    }
}

/// Drops the declared types and shapes of the outputs. The declared shapes may be wrong once the batch is
/// fixed.
pub(super) fn forget_shapes(graph: &mut Graph) {
    for out in &mut graph.outputs {
        out.dtype = DType::Other(0);
        out.shape = None;
    }
}

/// A graph whose input of integers, if it is one, is of floats ([`Graph::widen_integers`]). Errors (exit code
/// 3): it can't be.
pub(super) fn in_floats(mut graph: Graph, input: &str) -> Result<Graph> {
    let dtype = graph.inputs.iter().find(|i| i.name == input).map_or("", |i| i.dtype.name());
    match graph.widen_integers(input) {
        Ok(()) => Ok(graph),
        Err(why) => Err(Error::model(format!(
            "input {input:?} is {dtype}, and {why}, so that there is no gradient by the image. Export the model with a Cast to float as \
             the first node that computes"
        ))),
    }
}

/// Adds casts so that a graph in half precision, or with an input of integers, reads and writes float32.
pub(super) fn as_f32(graph: &mut Graph, input: &str, output: &str) {
    let own = graph.inputs.iter_mut().find(|v| v.name == input && v.dtype != DType::F32);
    if let Some(value) = own {
        let inner = format!("audit/half-of/{input}");
        let to = std::mem::replace(&mut value.dtype, DType::F32);
        rename_inside(graph, input, &inner);
        graph.nodes.insert(0, Node::new("Cast", &[input], &inner).with("to", to));
    }
    // The output keeps its name, so its producer gets a new one.
    let inner = format!("audit/half-of/{output}");
    rename_inside(graph, output, &inner);
    graph.nodes.push(Node::new("Cast", &[&inner], output).with("to", DType::F32));
}

/// Renames a value, sub-graphs included, but not as input or output of the graph.
fn rename_inside(graph: &mut Graph, name: &str, inner: &str) {
    graph.rename(name, inner);
    let declared = graph.inputs.iter_mut().chain(&mut graph.outputs);
    declared.filter(|value| value.name == inner).for_each(|value| value.name = name.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_grad::graph::Attr;

    /// Branches that read the image read the cast image, and not the graph's input.
    #[test]
    fn casts_reach_into_branches() {
        let half = |name: &str| Value::new(name, DType::F16, &[2]);
        let mut branch = Graph::new(vec![Node::new("Identity", &["image"], "same")], Default::default());
        branch.outputs.push(half("same"));
        let branch = Attr::Graph(Box::new(branch));
        let choice =
            Node::new("If", &["flag"], "y").with("then_branch", branch.clone()).with("else_branch", branch);
        let mut graph = Graph::new(vec![choice], Default::default());
        graph.inputs = vec![half("image"), Value::new("flag", DType::Bool, &[])];
        graph.outputs = vec![half("y")];
        as_f32(&mut graph, "image", "y");
        assert_eq!((graph.inputs[0].name.as_str(), graph.inputs[0].dtype), ("image", DType::F32));
        let [first, choice, last] = &graph.nodes[..] else { panic!("{:?}", graph.nodes) };
        assert_eq!((first.op.as_str(), first.inputs.as_slice()), ("Cast", &["image".to_string()][..]));
        assert_eq!(choice.captured(), [first.outputs[0].as_str(); 2]);
        assert_eq!((&last.inputs, last.output(0)), (&choice.outputs, Some("y")));
        assert_ne!(choice.output(0), Some("y"));
    }
}

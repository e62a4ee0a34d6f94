//! An ONNX model as something to embed images with and to differentiate.

pub mod card;
pub mod runtime;

use crate::attack::{Batch, Differentiable};
use crate::grad::{self, Note};
use crate::onnx::{DType, Dim, Graph, Node, Value};
use crate::{Error, Result};
use card::{Card, Preprocessing, image_like};
use ndarray::{Array2, ArrayView2};
use runtime::{Input, Optimise, Options, Session};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The input of every graph made here: pixels in [0,1], RGB or grey, [batch, channels, height, width].
pub const IMAGE: &str = "audit/image";
const EMBEDDING: &str = "audit/embedding";
const NEXT: &str = "audit/next";
const LOW: &str = "audit/low";
const HIGH: &str = "audit/high";
const ALPHA: &str = "audit/alpha";

/// What was found in the model file, for reports.
#[derive(Clone, Debug)]
pub struct Info {
    /// The file.
    pub path: PathBuf,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// Inputs with their shapes, as the file has them.
    pub inputs: Vec<String>,
    /// The one that takes the images.
    pub input: String,
    /// The value that is the embedding.
    pub output: String,
    /// Length of an embedding.
    pub dim: usize,
    /// What is done to pixels before the model's input.
    pub preprocessing: Preprocessing,
    /// Nodes whose gradient isn't that of the function itself.
    pub notes: Vec<Note>,
    /// Nodes of the model, and of the graphs made of it: forward, backward, values handed over.
    pub nodes: [usize; 4],
}

/// A model in ONNX Runtime, with its gradient.
pub struct Model {
    /// What it is.
    pub info: Info,
    forward: Session,
    backward: Session,
    /// Outputs of the forward session: the embedding, then what the backward session reads again.
    handed: Vec<String>,
    cotangent: String,
    gradient: String,
    reads_image: bool,
    batch: usize,
    options: Options,
}

impl Model {
    /// Loads a model, puts its preprocessing in front and differentiates it.
    ///
    /// `batch` is how many images go through at once; a model with a fixed batch keeps its own. Errors (exit code 3):
    /// not an ONNX file, no image input or several, ambiguous output, operators without a rule.
    pub fn open(path: &Path, card: &Card, options: Options, batch: Option<usize>) -> Result<Model> {
        let bytes = std::fs::read(path).map_err(|e| {
            Error::usage(format!(
                "can't read the model {}: {e}. Give the path of an .onnx file",
                path.display()
            ))
        })?;
        let sha256 = hex(&Sha256::digest(&bytes));
        if let Some(stated) = card.sha256.as_ref().filter(|s| !s.eq_ignore_ascii_case(&sha256)) {
            return Err(Error::usage(format!(
                "the model card is of another file: it states sha256 {stated}, and {} has {sha256}",
                path.display()
            )));
        }
        let named = |e: Error| e.context(path.display());
        let mut graph = Graph::decode(bytes.into(), path)?;
        let inputs: Vec<String> =
            graph.inputs.iter().map(|i| format!("{} {}", i.name, i.shape_text())).collect();
        let file_nodes = graph.nodes.len();
        let input = pick_input(&graph, card).map_err(named)?;
        let preprocessing = Preprocessing::of(&input, card).map_err(named)?;
        let batch = batch_of(&input, batch, &preprocessing)?;

        fix_input(&mut graph, &input.name, &preprocessing, batch);
        preprocessing.prepend(&mut graph, &input.name, batch);
        if let Some(output) = &card.output {
            choose_output(&mut graph, output).map_err(named)?;
        }
        forget_shapes(&mut graph);
        graph.prune();
        graph.prune_inputs();
        only_input(&graph, IMAGE, &inputs).map_err(named)?;
        foreign_operators(&graph).map_err(named)?;
        let mut graph = runtime::specialise(&graph).map_err(named)?;
        let output = pick_output(&mut graph, batch).map_err(named)?;
        let types = runtime::infer(&graph).map_err(named)?;
        let dim = types[EMBEDDING].1[1] as usize;

        let g = grad::differentiate(&graph, &types, &[IMAGE], false).map_err(|missing| {
            Error::model(format!(
                "{}: no gradient can be formed, so white-box attacks can't be run.\n{missing}\n\
                 Export the model with other operators, or ask for these: `audit ops` lists what is covered",
                path.display()
            ))
        })?;
        let mut backward = g.backward;
        append_update(&mut backward, &g.gradients[0], &preprocessing.pixel_shape(batch));
        let reads_image = backward.inputs.iter().any(|i| i.name == IMAGE);
        let mut handed = vec![EMBEDDING.to_string()];
        handed.extend(g.residuals.iter().filter(|r| *r != EMBEDDING && *r != IMAGE).cloned());
        let nodes = [file_nodes, g.forward.nodes.len(), backward.nodes.len(), handed.len() - 1];
        Ok(Model {
            forward: Session::new(&g.forward, options, Optimise::All).map_err(named)?,
            backward: Session::new(&backward, options, Optimise::All).map_err(named)?,
            handed,
            cotangent: g.cotangents[0].clone(),
            gradient: g.gradients[0].clone(),
            reads_image,
            batch,
            options,
            info: Info {
                path: path.to_path_buf(),
                sha256,
                inputs,
                input: input.name,
                output,
                dim,
                preprocessing,
                notes: g.notes,
                nodes,
            },
        })
    }

    /// ∂⟨f(x), ē⟩/∂x of a full batch: `images` [B, P], `cotangent` ē [B, D]. Returns embeddings [B, D] and the
    /// gradient [B, P].
    pub fn gradient(
        &mut self,
        images: &[f32],
        cotangent: ArrayView2<f32>,
    ) -> Result<(Array2<f32>, Vec<f32>)> {
        let still = vec![0.0; self.batch];
        let mut e = Array2::zeros((0, 0));
        let out = self.gradient.clone();
        let g = self.forward_backward(images, images, images, &still, &out, &mut |z| {
            e = z.to_owned();
            cotangent.to_owned()
        })?;
        Ok((e, g))
    }

    /// The model file as it is, apart from the output chosen, unoptimised, with the preprocessing done on the CPU:
    /// what parity and finite differences are taken from.
    pub fn reference(&self) -> Result<Reference> {
        let info = &self.info;
        let bytes = std::fs::read(&info.path)
            .map_err(|e| Error::internal(format!("can't read {} again: {e}", info.path.display())))?;
        let mut graph = Graph::decode_as_is(bytes.into(), &info.path)?;
        choose_output(&mut graph, &info.output)?;
        forget_shapes(&mut graph);
        graph.prune();
        graph.prune_inputs();
        Ok(Reference {
            plain: Session::new(&graph, self.options, Optimise::Off)?,
            optimised: Session::as_shipped(&graph, self.options)?,
            input: info.input.clone(),
            output: info.output.clone(),
            preprocessing: info.preprocessing.clone(),
            batch: self.batch,
            dim: info.dim,
        })
    }

    fn forward_backward(
        &mut self,
        x: &[f32],
        lo: &[f32],
        hi: &[f32],
        alpha: &[f32],
        output: &str,
        cotangent: &mut dyn FnMut(ArrayView2<f32>) -> Array2<f32>,
    ) -> Result<Vec<f32>> {
        let shape = self.info.preprocessing.pixel_shape(self.batch);
        let e_shape = [self.batch as i64, self.info.dim as i64];
        let alpha_shape = [self.batch as i64, 1, 1, 1];
        let names: Vec<&str> = self.handed.iter().map(String::as_str).collect();
        let held = self.forward.run(&[(IMAGE, Input::Host(&shape, x))], &names)?;
        let ct = cotangent(embeddings(&held[0], self.batch, self.info.dim)?);
        let ct = ct.as_standard_layout();
        let ct = ct.as_slice().ok_or_else(|| Error::internal("a cotangent isn't contiguous"))?;
        let mut feed: Vec<(&str, Input)> = vec![
            (&self.cotangent, Input::Host(&e_shape, ct)),
            (LOW, Input::Host(&shape, lo)),
            (HIGH, Input::Host(&shape, hi)),
            (ALPHA, Input::Host(&alpha_shape, alpha)),
        ];
        if self.reads_image {
            feed.push((IMAGE, Input::Host(&shape, x)));
        }
        feed.extend(names.iter().copied().zip(held.iter().map(Input::Held)).skip(1));
        let out = self.backward.run(&feed, &[output])?;
        Ok(out[0].floats()?.1.to_vec())
    }
}

impl Differentiable for Model {
    fn batch(&self) -> usize {
        self.batch
    }
    fn pixels(&self) -> usize {
        self.info.preprocessing.pixels()
    }
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let n = images.len() / self.pixels();
        let shape = self.info.preprocessing.pixel_shape(self.batch);
        let padded;
        let full = if n == self.batch {
            images
        } else {
            let mut v = images.to_vec();
            v.resize(self.batch * self.pixels(), 0.0);
            padded = v;
            &padded
        };
        let held = self.forward.run(&[(IMAGE, Input::Host(&shape, full))], &[EMBEDDING])?;
        let e = embeddings(&held[0], self.batch, self.info.dim)?;
        Ok(e.slice(ndarray::s![..n, ..]).to_owned())
    }
    fn step(
        &mut self,
        batch: &mut Batch,
        cotangent: &mut dyn FnMut(ArrayView2<f32>) -> Array2<f32>,
    ) -> Result<()> {
        let Batch { x, lo, hi, alpha } = batch;
        *x = self.forward_backward(x, lo, hi, alpha, NEXT, cotangent)?;
        Ok(())
    }
}

/// The untouched model, to compare with.
pub struct Reference {
    plain: Session,
    optimised: Session,
    input: String,
    output: String,
    preprocessing: Preprocessing,
    batch: usize,
    dim: usize,
}

impl Reference {
    /// Embeddings [B, D] of a full batch of pixels, by the unoptimised model.
    pub fn embed(&mut self, pixels: &[f32]) -> Result<Array2<f32>> {
        Self::run(
            &mut self.plain,
            &self.preprocessing,
            &self.input,
            &self.output,
            self.batch,
            self.dim,
            pixels,
        )
    }
    /// The same by the model as ONNX Runtime optimises it by default, which is how users run it.
    pub fn embed_optimised(&mut self, pixels: &[f32]) -> Result<Array2<f32>> {
        Self::run(
            &mut self.optimised,
            &self.preprocessing,
            &self.input,
            &self.output,
            self.batch,
            self.dim,
            pixels,
        )
    }
    fn run(
        session: &mut Session,
        preprocessing: &Preprocessing,
        input: &str,
        output: &str,
        batch: usize,
        dim: usize,
        pixels: &[f32],
    ) -> Result<Array2<f32>> {
        let x = preprocessing.apply(pixels);
        let shape = preprocessing.input_shape(batch);
        let held = session.run(&[(input, Input::Host(&shape, &x))], &[output])?;
        Ok(embeddings(&held[0], batch, dim)?.to_owned())
    }
}

fn embeddings(held: &runtime::Held, batch: usize, dim: usize) -> Result<ArrayView2<'_, f32>> {
    let (shape, values) = held.floats()?;
    ArrayView2::from_shape((batch, dim), values)
        .map_err(|_| Error::internal(format!("embeddings have shape {shape:?}, expected [{batch}, {dim}]")))
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn pick_input(graph: &Graph, card: &Card) -> Result<Value> {
    let listed = || {
        let all: Vec<String> =
            graph.inputs.iter().map(|i| format!("  {} {}", i.name, i.shape_text())).collect();
        all.join("\n")
    };
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
                [] => {
                    return Err(Error::model(format!(
                        "no input looks like a batch of images, [N, 1 or 3, H, W] or [N, H, W, 1 or 3]. Its inputs \
                         are:\n{}\nIf one of them is, name it with --input, and --channels or --image-layout",
                        listed()
                    )));
                }
                _ => {
                    return Err(Error::model(format!(
                        "several inputs look like images; choose one with --input:\n{}",
                        listed()
                    )));
                }
            }
        }
    };
    if input.dtype != DType::F32 {
        return Err(Error::model(format!(
            "input {:?} is {:?}; only float32 inputs are covered. Export the model in float32",
            input.name, input.dtype
        )));
    }
    Ok(input.clone())
}

/// Refuses a graph that depends on other inputs than the images; `all` are the file's.
fn only_input(graph: &Graph, image: &str, all: &[String]) -> Result<()> {
    if graph.inputs.iter().all(|i| i.name == image) {
        return Ok(());
    }
    Err(Error::model(format!(
        "needs other inputs beside the images, and nothing says their values. Its inputs are:\n  {}\n\
         Export it with those fixed, or choose an output that does without them with --output",
        all.join("\n  ")
    )))
}

/// Names what ONNX Runtime itself can't know; it would stop at the first.
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

/// Images per run. More fill the cores better up to where activations leave the caches.
fn batch_of(input: &Value, asked: Option<usize>, p: &Preprocessing) -> Result<usize> {
    let fixed = match input.shape.as_deref().and_then(|s| s.first()) {
        Some(Dim::Known(n)) => Some(*n as usize),
        _ => None,
    };
    match (fixed, asked) {
        (Some(n), Some(m)) if n != m => {
            Err(Error::usage(format!("--batch {m}: the model's batch is fixed to {n}. Leave --batch out")))
        }
        (Some(n), _) => Ok(n),
        (None, Some(0)) => Err(Error::usage("--batch must be at least 1")),
        (None, Some(m)) => Ok(m),
        (None, None) if p.height * p.width <= 64 * 64 => Ok(64),
        (None, None) => Ok(8),
    }
}

fn fix_input(graph: &mut Graph, name: &str, p: &Preprocessing, batch: usize) {
    if let Some(input) = graph.inputs.iter_mut().find(|i| i.name == name) {
        *input = Value::new(name, DType::F32, &p.input_shape(batch));
    }
}

/// Outputs keep their names only: what the file says of their shapes may not hold for a fixed batch.
fn forget_shapes(graph: &mut Graph) {
    for out in &mut graph.outputs {
        out.dtype = DType::Other(0);
        out.shape = None;
    }
}

fn choose_output(graph: &mut Graph, name: &str) -> Result<()> {
    let exists = graph.nodes.iter().any(|n| n.outputs.iter().any(|o| o == name));
    if !exists {
        let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
        return Err(Error::model(format!("has no value {name:?}. Its outputs are: {}", outputs.join(", "))));
    }
    graph.outputs = vec![Value { name: name.to_string(), dtype: DType::Other(0), shape: None }];
    Ok(())
}

/// Finds the embedding among the outputs of a specialised graph, brings it to [batch, D] under a fixed name; returns
/// its name in the file.
fn pick_output(graph: &mut Graph, batch: usize) -> Result<String> {
    let types = runtime::infer(graph)?;
    let all: Vec<(String, DType, Vec<i64>)> = graph
        .outputs
        .iter()
        .filter_map(|o| types.get(&o.name).map(|(dtype, shape)| (o.name.clone(), *dtype, shape.clone())))
        .collect();
    let listed = || {
        let lines: Vec<String> = all.iter().map(|(name, _, shape)| format!("  {name} {shape:?}")).collect();
        lines.join("\n")
    };
    let is_embedding = |shape: &[i64]| {
        shape.len() >= 2 && shape[0] == batch as i64 && shape[1] > 1 && shape[2..].iter().all(|&d| d == 1)
    };
    let found: Vec<&(String, DType, Vec<i64>)> =
        all.iter().filter(|(_, dtype, shape)| dtype.is_float() && is_embedding(shape)).collect();
    let (name, dtype, shape) = match found[..] {
        [one] => one.clone(),
        [] => {
            return Err(Error::model(format!(
                "no output is an embedding, [N, D] or [N, D, 1, 1]. Its outputs, for a batch of {batch}, are:\n{}\n\
                 Name the value that is, inside the graph if need be, with --output",
                listed()
            )));
        }
        _ => {
            return Err(Error::model(format!(
                "several outputs could be the embedding; choose one with --output:\n{}",
                listed()
            )));
        }
    };
    if dtype != DType::F32 {
        return Err(Error::model(format!("output {name:?} is {dtype:?}; only float32 models are covered")));
    }
    let op = if shape.len() == 2 {
        Node::new("Identity", &[&name], EMBEDDING)
    } else {
        Node::new("Flatten", &[&name], EMBEDDING).with("axis", 1)
    };
    graph.nodes.push(op);
    graph.outputs = vec![Value::new(EMBEDDING, DType::F32, &shape[..2])];
    graph.prune();
    Ok(name)
}

/// The PGD update as the tail of the backward graph, so that images need not leave the device:
/// clip(x − α·sign(g), low, high).
fn append_update(backward: &mut Graph, gradient: &str, shape: &[i64; 4]) {
    let alpha = [shape[0], 1, 1, 1];
    for (name, dims) in [(LOW, &shape[..]), (HIGH, &shape[..]), (ALPHA, &alpha[..])] {
        backward.inputs.push(Value::new(name, DType::F32, dims));
    }
    if !backward.inputs.iter().any(|i| i.name == IMAGE) {
        backward.inputs.push(Value::new(IMAGE, DType::F32, shape));
    }
    for (op, inputs, output) in [
        ("Sign", vec![gradient], "audit/sign"),
        ("Mul", vec!["audit/sign", ALPHA], "audit/move"),
        ("Sub", vec![IMAGE, "audit/move"], "audit/moved"),
        ("Max", vec!["audit/moved", LOW], "audit/above"),
        ("Min", vec!["audit/above", HIGH], NEXT),
    ] {
        backward.nodes.push(Node::new(op, &inputs, output));
    }
    backward.outputs.push(Value::new(NEXT, DType::F32, shape));
}

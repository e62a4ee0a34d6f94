//! An ONNX model that embeds images and whose embedding can be differentiated.

pub mod card;
pub mod difference;
mod differentiable;
mod drawn;
pub mod estimate;
pub mod exported;
mod fixed;
pub mod grad_export;
mod gradient;
pub mod half;
pub mod identity;
pub mod inspect;
mod kind;
pub mod memory;
pub mod mixing;
pub mod operators;
pub mod output;
mod prepared;
pub mod reference;
pub mod remedy;
pub mod runtime;
mod sessions;
mod softened;
mod specialise;
mod together;
mod worker;
mod workers;

use audit_base::{Error, Result};
use audit_report::record::Metric;
pub use differentiable::{Cotangent, Differentiable, OnWorkers, SignedSteps};
pub use softened::{Route, Softened};

use card::{Card, Pooling, Preprocessing};
use drawn::DrawnEmbedding;
use estimate::Estimator;
use half::Half;
use identity::ModelIdentity;
use kind::{ModelKind, Seen};
use mixing::Mixing;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use onnx_grad::graph::DType;
use onnx_grad::{Note, Pass};
pub use prepared::PrepareMode;
use prepared::{Loaded, ModelSource, Prepared};
use rayon::prelude::*;
use reference::Untouched;
use runtime::{Optimise, Options, Provider, Session};
use sessions::{Sessions, append_update, left_to_cpu};
pub use specialise::shaped;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use worker::{Gradient, Worker};
use workers::Workers;

/// An error of the graph in the program's terms: exit code 2 if the file can't be read, 3 if the model can't
/// be audited.
pub fn refused(error: onnx_grad::Error) -> Error {
    match error {
        onnx_grad::Error::Unreadable(message) => Error::usage(message),
        onnx_grad::Error::Model(message) => Error::model(message),
    }
}

/// The name of the image input of every graph built here. It holds pixels in [0, 1], RGB or grey,
/// [batch, channels, height, width].
pub const IMAGE: &str = "audit/image";
const EMBEDDING: &str = "audit/embedding";
const NEXT: &str = "audit/next";
const LOW: &str = "audit/low";
const HIGH: &str = "audit/high";
const ALPHA: &str = "audit/alpha";

/// Stages of opening a model, for progress. Reading includes a first run, for the shapes.
pub const STAGES: [&str; 3] = ["reading", "gradient graph", "sessions"];

/// What the report states about the model file.
#[derive(Clone, Debug)]
pub struct Info {
    /// Path of the model file.
    pub path: PathBuf,
    /// Hashes and size.
    pub identity: ModelIdentity,
    /// The inputs and their shapes, as the file declares them.
    pub inputs: Vec<String>,
    /// Name of the value that is the embedding.
    pub output: String,
    /// Why this value, in words.
    pub output_why: String,
    /// The batch, where the file fixes it.
    pub fixed_batch: Option<usize>,
    /// Why the model takes one image at a time, if its input leaves the batch open and its nodes fix it.
    pub alone: Option<String>,
    /// How the embedding is drawn at random; `None` if it is not.
    pub drawn: Option<DrawnEmbedding>,
    /// How tokens or a feature map are pooled to one vector per image; `None` where the output already is one
    /// vector.
    pub pooling: Option<Pooling>,
    /// Length D of an embedding.
    pub dim: usize,
    /// What the file looks like.
    pub look: ModelKind,
    /// The narrowest float type that the file computes in. This program computes in float32, except for
    /// [`half`] steps.
    pub precision: DType,
    /// The preprocessing of pixels before the model's own input.
    pub preprocessing: Preprocessing,
    /// Kinds of operators in the graph that is differentiated, sorted.
    pub operators: Vec<String>,
    /// Number of the file's nodes.
    pub nodes: usize,
}

/// Facts about the graphs that were built from the file.
#[derive(Clone, Debug)]
pub struct GraphInfo {
    /// Whether gradients are estimated from forward passes instead of computed by a gradient graph.
    pub estimated: bool,
    /// Nodes whose gradient rule differs from the true derivative.
    pub notes: Vec<Note>,
    /// Number of the backward graph's nodes; 0 if gradients are estimated.
    pub backward_nodes: usize,
    /// Nodes that run on the CPU although another provider was requested.
    pub cpu_nodes: Vec<String>,
}

impl GraphInfo {
    /// Whether the gradient passes through rounding as if nothing were rounded.
    pub fn straight_through(&self) -> bool {
        self.notes.iter().any(|n| n.straight_through)
    }
}

/// A model in ONNX Runtime, with its gradient.
pub struct Model {
    /// Facts about the model, for reports.
    pub info: Info,
    /// Facts about its graphs.
    pub graphs: GraphInfo,
    /// Name of the model's own input.
    input: String,
    workers: Vec<Worker>,
    card: Card,
    options: Options,
    /// Whether an operator saturates on both sides.
    saturates: bool,
    /// The model with other gradients, as far as they were requested; `None` for a route that changes
    /// nothing, and why for one that could not be formed.
    others: Vec<(Route, std::result::Result<Option<Softened>, String>)>,
}

impl Model {
    /// Loads a model, puts its preprocessing in front and differentiates it.
    ///
    /// `batch` is the number of images that each worker processes at a time. A model with a fixed batch keeps
    /// its own. Errors (exit code 3): the file is not ONNX; it has no image input or several; the output is
    /// ambiguous; an operator has no gradient rule.
    pub fn open(path: &Path, card: &Card, options: Options, batch: Option<usize>) -> Result<Model> {
        Model::open_in(path, card, options, batch, false, &|_| {})
    }

    /// Like [`Model::open`]. With `half`, attack steps run in float16 ([`half`]); then [`Model::calibrate`]
    /// must be called before the first step. `tell` gets the index of each of [`STAGES`] when it begins.
    pub fn open_in(
        path: &Path,
        card: &Card,
        options: Options,
        batch: Option<usize>,
        half: bool,
        tell: &dyn Fn(usize),
    ) -> Result<Model> {
        tell(0);
        let file = Loaded::read(path)?;
        let source = ModelSource { path, card, options, batch, mode: PrepareMode::default() };
        let prepared = Prepared::of(file.clone(), source, &mut Seen::default())?;
        let free = prepared.info.fixed_batch.is_none() && batch.is_none();
        let available = runtime::available(options.provider);
        let workers = prepared.workers.fitting(free, prepared.bytes(), available);
        let prepared = if workers.each < prepared.workers.each {
            drop(prepared);
            let smaller = ModelSource { batch: Some(workers.each), ..source };
            Prepared::of(file, smaller, &mut Seen::default())?
        } else {
            prepared
        };
        tell(1);
        let g = prepared.differentiate(IMAGE, Pass::Exact, options.provider.processor());
        let g = g.map_err(|refused| prepared.info.look.explain(refused))?;
        let Prepared { info, input, graph, types, .. } = prepared;
        let inner = workers.options(options);
        let saturates = !graph.saturating(&types).is_empty();
        drop((graph, types));
        let named = |e: Error| e.context(path.display());
        tell(2);
        let half = half.then(|| Sessions::in_half(&g, &info, workers, inner)).transpose().map_err(named)?;
        let notes = g.notes.clone();
        let exact = Sessions::new(g, &info, workers, inner).map_err(named)?;
        let sessions: Vec<&Session> = [&exact].into_iter().chain(&half).flat_map(Sessions::both).collect();
        let cpu_nodes = left_to_cpu(&sessions, options).map_err(named)?;
        let graphs = GraphInfo { estimated: false, notes, backward_nodes: exact.nodes, cpu_nodes };
        let worker = || {
            let half = half.as_ref().map(|half| Half::new(half, &info, workers.each)).transpose()?;
            exact.worker(&exact.forward, half, &info, workers.each)
        };
        let workers = (0..workers.count).map(|_| worker()).collect::<Result<_>>().map_err(named)?;
        Ok(Model { info, graphs, input, workers, card: card.clone(), options, saturates, others: Vec::new() })
    }

    /// Loads a model that is attacked through forward passes alone ([`estimate`]). It serves models that
    /// [`Model::open`] cannot differentiate.
    pub fn open_estimated(
        path: &Path,
        card: &Card,
        options: Options,
        batch: Option<usize>,
        seed: u64,
    ) -> Result<Model> {
        let mode = PrepareMode { loops: true, ..PrepareMode::default() };
        let Prepared { info, input, graph, workers, .. } =
            Prepared::read(ModelSource { path, card, options, batch, mode })?;
        let named = |e: Error| e.context(path.display());
        let inner = workers.options(options);
        let forward = Arc::new(Session::new(&graph, inner, Optimise::All).map_err(named)?);
        let cpu_nodes = left_to_cpu(&[&forward], options).map_err(named)?;
        let graphs = GraphInfo { estimated: true, notes: Vec::new(), backward_nodes: 0, cpu_nodes };
        let estimate = || Gradient::Estimate(Estimator::new(seed));
        let worker = || Worker::new(&forward, estimate(), None, &info, workers.each);
        let workers = (0..workers.count).map(|_| worker()).collect::<Result<_>>()?;
        let (card, saturates, others) = (card.clone(), false, Vec::new());
        Ok(Model { info, graphs, input, workers, card, options, saturates, others })
    }

    /// Images per run of a graph, B.
    pub fn batch(&self) -> usize {
        self.workers[0].batch()
    }

    /// How its sessions were made.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Images that all workers process at the same time.
    pub fn at_once(&self) -> usize {
        self.workers.len() * self.batch()
    }

    /// Name of the model's own input that takes the images.
    pub fn input(&self) -> &str {
        &self.input
    }

    /// Values in one image, C·H·W.
    pub fn pixels(&self) -> usize {
        self.info.preprocessing.pixels()
    }

    /// The shape of an image, [C, H, W].
    pub fn shape(&self) -> [usize; 3] {
        let p = &self.info.preprocessing;
        [p.channels, p.height, p.width]
    }

    /// The workers, for attacks.
    pub fn workers(&mut self) -> Vec<&mut dyn Differentiable> {
        self.workers.iter_mut().map(|worker| worker as &mut dyn Differentiable).collect()
    }

    /// Workers with the gradients of a route. `None` if the model has no distinct backward pass for this
    /// route, no operator to widen, or if the pass can't be built ([`Model::unformed`] has the reason). The
    /// first call for a route loads the model once more ([`Model::softened`]).
    pub fn workers_with(&mut self, route: Route) -> Option<Vec<&mut dyn Differentiable>> {
        if route == Route::Exact {
            return Some(self.workers());
        }
        self.other(route)?.as_mut().ok()?.as_mut().map(Softened::workers)
    }

    /// The routes that attacks take which prefer the first of these to the others: up to one for which the
    /// model has a backward pass of its own ([`Model::workers_with`]), each behind those that it is compared
    /// with.
    pub fn routes_taken(&mut self, preferred: impl IntoIterator<Item = Route>) -> Vec<Route> {
        let mut taken = Vec::new();
        for route in preferred {
            taken.extend(route.compared());
            if route == Route::Exact || matches!(self.other(route), Some(Ok(Some(_)))) {
                break;
            }
        }
        taken
    }

    /// The model with the gradients of a route, which is loaded unless it is already, as are those that it is
    /// compared with; `None` for the exact gradient.
    fn other(&mut self, route: Route) -> Option<&mut std::result::Result<Option<Softened>, String>> {
        for &route in route.compared() {
            if !self.others.iter().any(|(of, _)| *of == route) {
                let opened = self.softened(route).map_err(|e| e.message);
                self.others.push((route, opened));
            }
        }
        self.others.iter_mut().find(|(of, _)| *of == route).map(|(_, model)| model)
    }

    /// [`Model::workers_with`] as a function, for the strong search.
    pub fn passes_for_search(&mut self) -> impl FnMut(Route, &mut OnWorkers) -> Result<bool> {
        |route, work| match self.workers_with(route) {
            Some(workers) => work(workers).map(|()| true),
            None => Ok(false),
        }
    }

    /// Requested routes that could not be built, each with the reason.
    pub fn unformed(&self) -> impl Iterator<Item = (Route, &str)> {
        self.others.iter().filter_map(|(route, model)| Some((*route, model.as_ref().err()?.as_str())))
    }

    /// Routes requested so far, besides the exact gradient.
    pub fn requested_routes(&self) -> Vec<Route> {
        self.others.iter().map(|(route, _)| *route).collect()
    }

    /// Labels of the nodes that the backward passes of some routes soften, in the order of the graph. `of`
    /// chooses among the requested routes.
    pub fn softened_nodes(&self, of: impl Fn(Route) -> bool) -> Vec<String> {
        let mut nodes: Vec<String> = Vec::new();
        let chosen = self.others.iter().filter(|(route, _)| of(*route));
        for node in chosen.filter_map(|(_, model)| model.as_ref().ok()?.as_ref()).flat_map(|m| &m.nodes) {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        nodes
    }

    /// Forward passes, each of one worker's batch, that gradient estimation has used so far.
    pub fn passes(&self) -> u64 {
        let of = |worker: &Worker| match &worker.gradient {
            Gradient::Exact(_) => 0,
            Gradient::Estimate(estimator) => estimator.passes,
        };
        self.workers.iter().map(of).sum()
    }

    /// Embeddings [n, D] of any number of images (`images.len() == n * pixels()`).
    pub fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let none = Array2::zeros((0, self.info.dim));
        let parts = self.by_workers(images, |worker, _, images| worker.embed(images))?;
        stack(parts.iter().chain([&none]))
    }

    /// Computes ∂⟨f(x), ē⟩/∂x for images [n, P] and `cotangent` ē [n, D], where n is a multiple of the batch.
    /// Returns the embeddings [n, D] and the gradient [n, P].
    pub fn gradient(
        &mut self,
        images: &[f32],
        cotangent: ArrayView2<f32>,
    ) -> Result<(Array2<f32>, Vec<f32>)> {
        let rows = |from, e: ArrayView2<f32>| Ok(cotangent.slice(s![from..from + e.nrows(), ..]).to_owned());
        self.gradient_from(images, rows)
    }

    /// As [`Model::gradient`], of cotangents that follow from the embeddings of its own forward pass:
    /// `cotangent` gets the index of a batch's first image and the embeddings [B, D] of the batch, and
    /// returns its ē [B, D].
    pub fn gradient_from(
        &mut self,
        images: &[f32],
        cotangent: impl Fn(usize, ArrayView2<f32>) -> Result<Array2<f32>> + Sync,
    ) -> Result<(Array2<f32>, Vec<f32>)> {
        let found = self.by_workers(images, |worker, from, images| {
            worker.product(images, |embeddings| cotangent(from, embeddings))
        })?;
        let (embeddings, gradients): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok((stack(&embeddings)?, gradients.concat()))
    }

    /// Divides the images into batches and runs `work` on them in all workers. `work` gets the worker, the
    /// index of the batch's first image, and the batch. The results are in the order of the images.
    fn by_workers<T: Send>(
        &mut self,
        images: &[f32],
        work: impl Fn(&mut Worker, usize, &[f32]) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (each, pixels, count) = (self.batch(), self.pixels(), self.workers.len());
        let share = |(k, worker): (usize, &mut Worker)| {
            let mine = images.chunks(each * pixels).enumerate().skip(k).step_by(count);
            mine.map(|(i, images)| Ok((i, work(worker, i * each, images)?))).collect::<Result<Vec<_>>>()
        };
        let all = self.workers.par_iter_mut().enumerate().map(share).collect::<Result<Vec<_>>>()?;
        let mut all: Vec<(usize, T)> = all.into_iter().flatten().collect();
        all.sort_by_key(|(i, _)| *i);
        Ok(all.into_iter().map(|(_, part)| part).collect())
    }

    /// The unchanged model file, for comparison. It runs on the CPU whichever provider the model uses.
    pub fn reference(&self) -> Result<Untouched> {
        let options = Options { provider: Provider::Cpu, ..self.options };
        Untouched::open(&self.info, self.graphs.straight_through(), &self.input, self.batch(), options)
    }

    /// Whether values are quantised on the way to the embedding.
    pub fn quantised(&self) -> bool {
        const ROUND: [&str; 2] = ["QuantizeLinear", "DynamicQuantizeLinear"];
        self.graphs.straight_through() || self.info.operators.iter().any(|op| ROUND.contains(&op.as_str()))
    }

    /// Label of the first node whose result for an image depends on the other images of its batch, by images
    /// [n, P]; `None` if it can't be told.
    pub fn mixing_node(&self, images: &[f32]) -> Option<String> {
        mixing::node(images, &self.info, &self.input, Options { provider: Provider::Cpu, ..self.options })
    }

    /// Looks whether images of a batch change each other's embeddings, by those of `images` ([n, P]) that go
    /// into one batch.
    pub fn mixing(&mut self, images: &[f32]) -> Result<Option<Mixing>> {
        let one = images.len().min(self.batch() * self.pixels());
        let options = Options { provider: Provider::Cpu, ..self.options };
        let (info, input) = (self.info.clone(), self.input.clone());
        mixing::look(&images[..one], &info, &input, options, &mut |images| self.embed(images))
    }

    /// Whether matrix products may round their factors to TensorFloat-32.
    pub fn tf32(&self) -> bool {
        matches!(self.options.provider, Provider::Cuda(cuda) if cuda.tf32)
    }
}

/// The rows of all parts, in one array.
fn stack<'a>(parts: impl IntoIterator<Item = &'a Array2<f32>>) -> Result<Array2<f32>> {
    let views: Vec<ArrayView2<f32>> = parts.into_iter().map(|part| part.view()).collect();
    concatenate(Axis(0), &views).map_err(|e| Error::internal(format!("embeddings: {e}")))
}

impl Info {
    /// Refuses an embedding that is drawn at random (exit code 12).
    pub fn refuse_drawn(&self) -> Result<()> {
        self.drawn.as_ref().map_or(Ok(()), |drawn| Err(drawn.error(&self.path)))
    }

    /// The embedding, the input and the preprocessing in one line.
    pub fn in_words(&self, metric: Metric) -> String {
        let batch = match (&self.alone, self.fixed_batch) {
            (Some(why), _) => format!(", one image at a time ({why})"),
            (None, Some(n)) => format!(", batch fixed to {n}"),
            (None, None) => String::new(),
        };
        format!(
            "{}: embedding `{}` of {} ({}), {metric} · input {}{batch} · {}",
            self.path.display(),
            self.output,
            self.dim,
            self.output_why,
            self.inputs.join(", "),
            self.preprocessing.words()
        )
    }
}

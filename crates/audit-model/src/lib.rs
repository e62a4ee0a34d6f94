//! An ONNX model that embeds images and whose embedding can be differentiated.

pub mod apart;
pub mod card;
mod differentiable;
mod drawn;
pub mod estimate;
mod exact;
pub mod exported;
mod fixed;
pub mod half;
pub mod identity;
pub mod inspect;
pub mod joined;
pub mod memory;
pub mod mixing;
pub mod operators;
pub mod output;
pub mod remedy;
pub mod runtime;
mod shaped;
mod softened;
mod together;
pub mod untouched;
mod worker;

use audit_base::files;
use audit_base::{Error, Exit, Result};
use audit_report::record::Metric;
pub use differentiable::{Cotangent, Differentiable, OnWorkers, SignedSteps};
pub use softened::{Route, Softened};

use card::{Card, Pooling, Preprocessing, Unlike, image_like, unlike};
use drawn::DrawnEmbedding;
use estimate::Estimator;
use exact::Exact;
use fixed::Fixed;
use half::Half;
use identity::ModelIdentity;
use inspect::{Look, Seen};
use mixing::Mixing;
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};
use onnx_grad::graph::{Bytes, DType, Node, Value};
use onnx_grad::{Differentiated, Graph, Note, Pass, Processor, Types, differentiate};
use rayon::prelude::*;
use runtime::{Optimise, Options, Provider, Session};
pub use shaped::shaped;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use untouched::Untouched;
use worker::{Gradient, Worker};

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

/// Default batch of one worker on the CPU for photographs. The values of two photographs stay in a core's
/// cache from one operator to the next. The default is never one image: some operators use other kernels for
/// a batch of one, and these round differently.
const PHOTOGRAPHS: usize = 2;
/// Default batch of one worker on the CPU for small images. It is large enough that the work of an operator
/// outweighs the cost of its call, and no larger: the last searches of the strong search run on few images,
/// which fill no large batch.
const SMALL_IMAGES: usize = 8;
/// Number of values of a photograph. Smaller images make batches of as many values, up to [`SMALL_IMAGES`].
const PHOTOGRAPH: usize = 3 * 224 * 224;
/// Number of values of an image up to which it counts as small on a GPU. The default batch there shrinks in
/// proportion as images grow.
const SMALL: usize = 3 * 64 * 64;
/// Images of all workers together on a GPU, for photographs and for small images, and the smallest batch of a
/// worker.
const ALL_ON_GPU: [usize; 2] = [64, 512];
const EACH_ON_GPU: [usize; 2] = [16, 64];

/// Stages of opening a model, for progress. Reading includes a first run, for the shapes.
pub const STAGES: [&str; 3] = ["reading", "gradient graph", "sessions"];

/// The largest number of values in a batch of pixels: 2 GB of float32. A model that needs more is taken for a
/// damaged file.
const MOST_VALUES: usize = 1 << 29;

/// What the report states about the model file and the graphs built from it.
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
    pub look: Look,
    /// The narrowest float type that the file computes in. This program computes in float32, except for
    /// [`half`] steps.
    pub precision: DType,
    /// Whether gradients are estimated from forward passes instead of computed by a gradient graph.
    pub estimated: bool,
    /// The preprocessing of pixels before the model's own input.
    pub preprocessing: Preprocessing,
    /// Nodes whose gradient rule differs from the true derivative.
    pub notes: Vec<Note>,
    /// Kinds of operators in the graph that is differentiated, sorted.
    pub operators: Vec<String>,
    /// Node counts of the file, the forward graph and the backward graph, and the number of values that the
    /// forward graph hands to the backward graph.
    pub nodes: [usize; 4],
    /// Nodes of these graphs that run on the CPU although another provider was requested.
    pub cpu_nodes: Vec<String>,
}

/// A model in ONNX Runtime, with its gradient.
pub struct Model {
    /// Facts about the model, for reports.
    pub info: Info,
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

/// The two sessions of a gradient.
struct Sessions {
    forward: Arc<Session>,
    backward: Arc<Session>,
    /// Inputs of the backward graph.
    inputs: Vec<Value>,
    /// Names of the backward graph's cotangent and gradient.
    names: [String; 2],
    /// Number of nodes of the backward graph.
    nodes: usize,
}

/// How work is divided into workers. A worker is one thread's share: its own tensors and its own batch of
/// images.
///
/// On the CPU each worker runs its batch through the whole graph in its own thread. With one batch for all
/// threads, every operator would wait for the slowest thread, and operators that ONNX Runtime does not
/// parallelise would use one thread.
///
/// On a GPU the workers take turns. While one of them computes, the others compute losses and move images on
/// the host; and a long search on few images, which fill no batch, computes a small one. docs/cuda.md has
/// measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workers {
    count: usize,
    /// Images per worker: the batch that the graphs are built for.
    each: usize,
}

/// A model's file, decoded. Copies share the weights.
#[derive(Clone)]
struct Loaded {
    identity: ModelIdentity,
    graph: Graph,
}

/// A model file and how to prepare it.
#[derive(Clone, Copy)]
struct ModelSource<'a> {
    path: &'a Path,
    card: &'a Card,
    options: Options,
    /// Images in a batch; `None`: the file's number, or the default.
    batch: Option<usize>,
    mode: PrepareMode,
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
struct Prepared {
    info: Info,
    input: String,
    graph: Graph,
    types: Types,
    workers: Workers,
    /// Whether the model accepts any batch.
    free: bool,
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
        let mut prepared = Prepared::of(file.clone(), source, &mut Seen::default())?;
        let free = prepared.free && batch.is_none();
        let available = runtime::available(options.provider);
        let workers = prepared.workers.fitting(free, prepared.bytes(), available);
        if workers.each < prepared.workers.each {
            let smaller = ModelSource { batch: Some(workers.each), ..source };
            prepared = Prepared::of(file, smaller, &mut Seen::default())?;
        }
        prepared.workers = workers;
        tell(1);
        let g = prepared.differentiate(IMAGE, Pass::Exact, options.provider.processor())?;
        let Prepared { mut info, input, graph, types, workers, .. } = prepared;
        let inner = workers.options(options);
        let saturates = !graph.saturating(&types).is_empty();
        drop((graph, types));
        let named = |e: Error| e.context(path.display());
        tell(2);
        let half = half.then(|| Sessions::in_half(&g, &info, workers, inner)).transpose().map_err(named)?;
        let handed = g.residuals.iter().filter(|name| ![IMAGE, EMBEDDING].contains(&name.as_str())).count();
        info.notes = g.notes.clone();
        let forward_nodes = g.forward.nodes.len();
        let exact = Sessions::new(g, &info, workers, inner).map_err(named)?;
        info.nodes[1..].copy_from_slice(&[forward_nodes, exact.nodes, handed]);
        let sessions: Vec<&Session> = [&exact].into_iter().chain(&half).flat_map(Sessions::both).collect();
        info.cpu_nodes = left_to_cpu(&sessions, options).map_err(named)?;
        let worker = || {
            let half = half.as_ref().map(|half| Half::new(half, &info, workers.each)).transpose()?;
            exact.worker(&exact.forward, half, &info, workers.each)
        };
        let workers = (0..workers.count).map(|_| worker()).collect::<Result<_>>().map_err(named)?;
        Ok(Model { info, input, workers, card: card.clone(), options, saturates, others: Vec::new() })
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
        let Prepared { mut info, input, graph, workers, .. } =
            Prepared::read(ModelSource { path, card, options, batch, mode })?;
        info.estimated = true;
        info.nodes[1] = graph.nodes.len();
        let named = |e: Error| e.context(path.display());
        let inner = workers.options(options);
        let forward = Arc::new(Session::new(&graph, inner, Optimise::All).map_err(named)?);
        info.cpu_nodes = left_to_cpu(&[&forward], options).map_err(named)?;
        let estimate = || Gradient::Estimate(Estimator::new(seed));
        let worker = || Worker::new(&forward, estimate(), None, &info, workers.each);
        let workers = (0..workers.count).map(|_| worker()).collect::<Result<_>>()?;
        Ok(Model { info, input, workers, card: card.clone(), options, saturates: false, others: Vec::new() })
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
        self.form(route);
        let found = self.others.iter_mut().find(|(of, _)| *of == route);
        found.and_then(|(_, model)| model.as_mut().ok()?.as_mut()).map(Softened::workers)
    }

    /// Loads the model with the gradients of a route, unless it is loaded already. Returns whether the model
    /// has a backward pass of its own for this route ([`Model::workers_with`]).
    pub fn form(&mut self, route: Route) -> bool {
        // A straight-through pass that equals the softened one counts as the softened one, so that one is
        // loaded first.
        let order: &[Route] = match route {
            Route::Exact => &[],
            Route::StraightThrough => &[Route::Softened, Route::StraightThrough],
            _ => &[route],
        };
        for &route in order {
            if !self.others.iter().any(|(of, _)| *of == route) {
                let opened = self.softened(route).map_err(|e| e.message);
                self.others.push((route, opened));
            }
        }
        let found = self.others.iter().find(|(of, _)| *of == route);
        route == Route::Exact || found.is_some_and(|(_, model)| matches!(model, Ok(Some(_))))
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
        Untouched::open(&self.info, &self.input, self.batch(), options)
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

impl Sessions {
    /// Loads both graphs of a gradient. Errors (exit code 3): ONNX Runtime refuses them.
    fn new(mut g: Differentiated, info: &Info, workers: Workers, options: Options) -> Result<Sessions> {
        let names = [g.cotangents[0].clone(), g.gradients[0].clone()];
        append_update(&mut g.backward, &names[1], &info.preprocessing.pixel_shape(workers.each));
        // ONNX Runtime may refuse a graph that it wrote itself. Two graphs compute the same.
        let together = together::pays(&g, options).then(|| together::sessions(g.clone().join(), options));
        match together {
            Some(Ok((forward, backward, inputs))) => {
                let nodes = g.backward.nodes.len();
                Ok(Sessions { forward: forward.into(), backward: backward.into(), inputs, names, nodes })
            }
            Some(Err(e)) if e.exit != Exit::Model => Err(e),
            _ => Sessions::load(&g.forward, g.backward, names, options),
        }
    }

    /// Loads two graphs, each optimised alone. `names` are those of the cotangent and the gradient.
    fn load(forward: &Graph, backward: Graph, names: [String; 2], options: Options) -> Result<Sessions> {
        let session = |graph: &Graph| Session::new(graph, options, Optimise::All).map(Arc::new);
        Ok(Sessions {
            forward: session(forward)?,
            backward: session(&backward)?,
            names,
            nodes: backward.nodes.len(),
            inputs: backward.inputs,
        })
    }

    fn both(&self) -> [&Session; 2] {
        [&self.forward, &self.backward]
    }

    /// A worker of `each` images whose gradients these sessions make, and whose embeddings `forward` makes.
    fn worker(&self, forward: &Arc<Session>, half: Option<Half>, info: &Info, each: usize) -> Result<Worker> {
        let exact = Exact::new(self, info, each)?;
        Worker::new(forward, Gradient::Exact(Box::new(exact)), half, info, each)
    }
}

impl Workers {
    /// The default workers for images of `pixels` values.
    fn usual(options: Options, pixels: usize) -> Workers {
        let of = |[few, many]: [usize; 2]| (many * SMALL / pixels.max(1)).clamp(few, many);
        let (count, each) = match options.provider {
            Provider::Cpu => {
                let as_many = PHOTOGRAPHS * PHOTOGRAPH / pixels.max(1);
                (threads(options), as_many.clamp(PHOTOGRAPHS, SMALL_IMAGES))
            }
            Provider::Cuda(_) => {
                let (all, fewest) = (of(ALL_ON_GPU), of(EACH_ON_GPU));
                let count = 1 << threads(options).min(all / fewest).ilog2();
                (count, all / count)
            }
        };
        Workers { count, each }
    }

    /// Reduces the workers until one attack step of all of them fits into half of the `available` memory.
    ///
    /// The values of the forward pass (`bytes` per worker) are kept for the backward pass, which computes
    /// about as many. `free` says whether the batch may be reduced too.
    fn fitting(self, free: bool, bytes: u64, available: Option<u64>) -> Workers {
        let Some(available) = available else { return self };
        let bytes = bytes / self.each as u64;
        let fits = |count: usize, each: usize| 2 * bytes * (count * each) as u64 <= available / 2;
        let halves = |n: usize| std::iter::successors(Some(n), |n| Some(n / 2)).take_while(|n| *n > 0);
        let count = halves(self.count).find(|n| fits(*n, self.each)).unwrap_or(1);
        let each = halves(self.each).find(|n| !free || fits(count, *n)).unwrap_or(1);
        Workers { count, each }
    }

    /// Session options: the threads are divided among the workers, for use within operators.
    fn options(self, options: Options) -> Options {
        match options.provider {
            Provider::Cpu => Options { threads: (threads(options) / self.count).max(1), ..options },
            Provider::Cuda(_) => options,
        }
    }
}

/// The requested number of threads, or one per core.
fn threads(options: Options) -> usize {
    if options.threads > 0 { options.threads } else { runtime::cores() }
}

/// The rows of all parts, in one array.
fn stack<'a>(parts: impl IntoIterator<Item = &'a Array2<f32>>) -> Result<Array2<f32>> {
    let views: Vec<ArrayView2<f32>> = parts.into_iter().map(|part| part.view()).collect();
    concatenate(Axis(0), &views).map_err(|e| Error::internal(format!("embeddings: {e}")))
}

impl Loaded {
    /// Reads and decodes a file. Errors: it can't be read (exit code 2), or is no ONNX model (exit code 3).
    fn read(path: &Path) -> Result<Loaded> {
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
    /// Reads and prepares a model.
    fn read(source: ModelSource) -> Result<Prepared> {
        Prepared::of(Loaded::read(source.path)?, source, &mut Seen::default())
    }

    /// [`Prepared::read`] of a file that was read already. `seen` gets what was found out of it, also before
    /// an error. If the model is refused for what flags can state, the error has flags with which it was
    /// read.
    fn of(file: Loaded, source: ModelSource, seen: &mut Seen) -> Result<Prepared> {
        Prepared::in_batch(file.clone(), source, seen).map_err(|refused| {
            let ModelSource { path, card, .. } = source;
            let look = inspect::look(&file.graph, seen, card.output.as_deref(), None);
            // No flag makes boxes or masks an embedding of the image.
            if matches!(look, Look::Detector | Look::Dense) || refused.flags.is_empty() {
                return refused.lacking([]);
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
    fn opens(file: &Loaded, source: ModelSource) -> Result<()> {
        let mode = PrepareMode { unrun: true, ..source.mode };
        Prepared::in_batch(file.clone(), ModelSource { mode, ..source }, &mut Seen::default()).map(drop)
    }

    /// [`Prepared::of`] without a search for flags.
    ///
    /// Exporters leave the batch of an input open although a constant further in fixes it to 1. So a model
    /// that takes no usual batch is taken one image at a time, if it takes that.
    fn in_batch(file: Loaded, source: ModelSource, seen: &mut Seen) -> Result<Prepared> {
        let again = file.clone();
        let mut error = match Prepared::at(file, source, seen) {
            Err(e) if source.batch.is_none() && e.exit == Exit::Model => e,
            done => return done,
        };
        // If the file itself fixes its batch, this try does not differ from the first: `free` is false then.
        let mut alone = Seen::default();
        match Prepared::at(again, ModelSource { batch: Some(1), ..source }, &mut alone) {
            Ok(mut prepared) if prepared.free => {
                let usual = seen.images.map_or(0, |[batch, ..]| batch);
                let why = error.brief(source.path);
                prepared.info.alone = Some(format!("in batches of {usual}, {why}"));
                prepared.info.fixed_batch = Some(1);
                prepared.free = false;
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

    /// [`Prepared::in_batch`] at one batch.
    fn at(Loaded { identity, graph }: Loaded, source: ModelSource, seen: &mut Seen) -> Result<Prepared> {
        let ModelSource { path, card, .. } = source;
        if let Some(stated) = card.sha256.as_ref().filter(|s| !identity.is(s)) {
            return Err(Error::usage(format!(
                "the model card is of another file: it states sha256 {stated}, and {}{} has {}",
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
        let file_nodes = graph.nodes.len();
        let precision = graph.precision;
        let input = pick_input(&graph, card).map_err(named)?;
        let free = input.fixed_batch().is_none();
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
        let look = inspect::look(&as_read, seen, Some(&output), Some(dim));
        let mut operators: Vec<String> = graph.nodes.iter().map(|n| n.op.clone()).collect();
        operators.sort();
        operators.dedup();
        let info = Info {
            path: path.to_path_buf(),
            identity,
            inputs,
            output,
            output_why,
            fixed_batch: input.fixed_batch(),
            alone: None,
            drawn,
            pooling: card.pooling,
            dim,
            look,
            precision,
            estimated: false,
            preprocessing,
            notes: vec![],
            operators,
            nodes: [file_nodes, 0, 0, 0],
            cpu_nodes: vec![],
        };
        Ok(Prepared { info, input: input.name, graph, types, workers, free })
    }

    /// Differentiates the graph with respect to its input `image`, with the slopes of `pass`, for
    /// `processor`.
    fn differentiate(&self, image: &str, pass: Pass, processor: Processor) -> Result<Differentiated> {
        self.differentiate_as(&self.graph, image, pass, processor)
    }

    /// [`Prepared::differentiate`] of a form of its graph.
    fn differentiate_as(
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
    fn bytes(&self) -> u64 {
        let outputs = self.graph.nodes.iter().flat_map(|n| &n.outputs);
        let sizes = outputs.filter_map(|name| runtime::bytes_of(self.types.get(name)?));
        let images = self.info.preprocessing.pixels() * self.workers.each * size_of::<f32>();
        sizes.fold(2 * images as u64, u64::saturating_add)
    }
}

/// The nodes that CUDA left to the CPU. Errors (exit code 3): there are some, and the options do not allow
/// them.
fn left_to_cpu(sessions: &[&Session], options: Options) -> Result<Vec<String>> {
    let nodes: Vec<String> = sessions.iter().flat_map(|s| s.cpu_nodes()).cloned().collect();
    match options.provider {
        Provider::Cuda(cuda) if !cuda.cpu_nodes && !nodes.is_empty() => Err(Error::model(format!(
            "CUDA has no kernel for {} nodes of the model or its gradient, which would run on the CPU, slowly: {}. \
             --allow-cpu-nodes accepts that; --ep cpu runs everything there",
            nodes.len(),
            runtime::shortened(&nodes, runtime::SHOWN)
        ))),
        _ => Ok(nodes),
    }
}

impl Info {
    /// Refuses an embedding that is drawn at random (exit code 12).
    pub fn refuse_drawn(&self) -> Result<()> {
        self.drawn.as_ref().map_or(Ok(()), |drawn| Err(drawn.error(&self.path)))
    }

    /// Whether values are quantised on the way to the embedding.
    pub fn quantised(&self) -> bool {
        const ROUND: [&str; 2] = ["QuantizeLinear", "DynamicQuantizeLinear"];
        self.notes.iter().any(|n| n.straight_through)
            || self.operators.iter().any(|op| ROUND.contains(&op.as_str()))
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
fn declared(values: &[Value]) -> Vec<String> {
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

/// The workers for this input. The batch is the model's own where it is fixed, else `requested`, else the
/// default.
fn workers_of(
    input: &Value,
    requested: Option<usize>,
    p: &Preprocessing,
    options: Options,
) -> Result<Workers> {
    let usual = Workers::usual(options, p.pixels());
    let each = match (input.fixed_batch(), requested) {
        (Some(n), Some(m)) if n != m => {
            return Err(Error::usage(format!(
                "--batch {m}: the model's batch is fixed to {n}. Leave --batch out"
            )));
        }
        (Some(0), _) => {
            return Err(Error::model("its batch is fixed to 0. Export it with another, or a free one"));
        }
        (None, Some(0)) => return Err(Error::usage("--batch must be at least 1")),
        (fixed, requested) => fixed.or(requested).unwrap_or(usual.each),
    };
    match p.pixels().checked_mul(each) {
        Some(values) if values <= MOST_VALUES => Ok(Workers { each, ..usual }),
        _ => Err(Error::model(format!(
            "a batch of {each} images of {}x{} is more than can be held. Choose a smaller --batch or --size",
            p.height, p.width
        ))),
    }
}

fn fix_input(graph: &mut Graph, name: &str, p: &Preprocessing, batch: usize) {
    if let Some(input) = graph.inputs.iter_mut().find(|i| i.name == name) {
        *input = Value::new(name, DType::F32, &p.input_shape(batch));
    }
}

/// Drops the declared types and shapes of the outputs. The declared shapes may be wrong once the batch is
/// fixed.
fn forget_shapes(graph: &mut Graph) {
    for out in &mut graph.outputs {
        out.dtype = DType::Other(0);
        out.shape = None;
    }
}

/// A graph whose input of integers, if it is one, is of floats ([`Graph::widen_integers`]). Errors (exit code
/// 3): it can't be.
fn in_floats(mut graph: Graph, input: &str) -> Result<Graph> {
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
fn as_f32(graph: &mut Graph, input: &str, output: &str) {
    let float = DType::F32.code() as i64;
    if let Some(value) = graph.inputs.iter_mut().find(|v| v.name == input && v.dtype != DType::F32) {
        let inner = format!("audit/half-of/{input}");
        let to = value.dtype.code() as i64;
        value.dtype = DType::F32;
        for name in graph.nodes.iter_mut().flat_map(|n| &mut n.inputs).filter(|n| *n == input) {
            *name = inner.clone();
        }
        graph.nodes.insert(0, Node::new("Cast", &[input], &inner).with("to", to));
    }
    // The output keeps its name, so its producer gets a new one.
    let inner = format!("audit/half-of/{output}");
    for node in &mut graph.nodes {
        for name in node.inputs.iter_mut().chain(&mut node.outputs).filter(|n| *n == output) {
            *name = inner.clone();
        }
    }
    graph.nodes.push(Node::new("Cast", &[&inner], output).with("to", float));
}

/// Appends the PGD update clip(x − α·sign(g), low, high) to the backward graph. Images then need not leave
/// the device between steps.
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

#[cfg(test)]
mod tests {
    use super::Workers;
    use super::runtime::{Cuda, Options, Provider};

    #[test]
    fn small_images_go_many_at_a_time() {
        let usual = |provider, threads, side: usize| {
            let Workers { count, each } = Workers::usual(Options { provider, threads }, 3 * side * side);
            [count, each]
        };
        let sides = [28, 64, 112, 224, 5000];
        let on_cpu = sides.map(|side| usual(Provider::Cpu, 3, side));
        assert_eq!(on_cpu, [[3, 8], [3, 8], [3, 8], [3, 2], [3, 2]]);
        let cuda = Provider::Cuda(Cuda::default());
        let on_gpu = sides.map(|side| usual(cuda, 16, side));
        assert_eq!(on_gpu, [[8, 64], [8, 64], [8, 20], [4, 16], [4, 16]]);
        // Threads are what workers need.
        assert_eq!([1, 2, 3].map(|threads| usual(cuda, threads, 224)), [[1, 64], [2, 32], [2, 32]]);
    }

    #[test]
    fn a_batch_takes_half_of_the_memory_at_most() {
        let workers = |count, each| Workers { count, each };
        let fitting = |free, bytes, available| workers(2, 4).fitting(free, bytes, available);
        assert_eq!(fitting(true, 1 << 29, None), workers(2, 4));
        // 1 GiB of values for both workers and as many for the backward pass: 2 GiB, half of 4 GiB.
        assert_eq!(fitting(true, 1 << 29, Some(4 << 30)), workers(2, 4));
        assert_eq!(fitting(true, 1 << 29, Some(3 << 30)), workers(1, 4));
        assert_eq!(fitting(true, 1 << 29, Some(1 << 30)), workers(1, 2));
        assert_eq!(fitting(false, 1 << 29, Some(1 << 30)), workers(1, 4));
        assert_eq!(fitting(true, 1 << 29, Some(1 << 20)), workers(1, 1));
    }
}

//! ONNX Runtime: sessions and their tensors. Only this folder uses the crate `ort`.

mod assignment;
mod fused;
mod handover;
mod library;
mod pieces;
mod places;
mod provider;
mod shapes;
mod sizes;
mod telemetry;
mod tensor;
mod version;
mod words;

pub use fused::fuse;
pub use library::{build, cores, load, untested, version};
pub use pieces::is_whole;
pub(super) use places::list;
pub use provider::{Cuda, Provider, available, choose, require};
pub use shapes::{infer, infer_statically, infer_unrun, infers_wrong, optimised, specialise};
pub use sizes::{bytes_of, exposed, hollow};
pub use telemetry::disable_telemetry;
pub use tensor::{BoundTensor, RuntimeTensor};
pub use version::VERSION;
pub use words::is_failed_run;

use assignment::nodes_of;
use provider::no_cuda;
pub(super) use shapes::fixed_shape;

use crate::memory;
use audit_base::{Error, Result, guard};
use onnx_grad::graph::{DType, Encoded, Value};
use onnx_grad::{Graph, Types};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, OutputSelector, RunOptions, SessionInputValue};
use ort::value::{TensorRef, ValueType};
use pieces::Cuts;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tensor::dtype;

/// Bytes of weights from which they are passed beside the model. A protobuf message cannot be larger than 2
/// GB.
pub const INLINE_LIMIT: usize = 1_500_000_000;
/// Bytes of weights below which an extra copy in memory does not matter.
const SMALL: usize = 16_000_000;

/// Optimisers that are off in every session, because they change results or fail (ONNX Runtime 1.31). The
/// first replaces a zero Pad before a MaxPool by the pool's own padding, which pads with −∞: wrong for
/// negative values (reference/census). The second quantises float weights between quantised values, and the
/// third makes one quantiser of two that follow each other. The last puts int8 quantisers behind a Reshape or
/// MaxPool of dequantised values. On x86 another optimiser makes uint8 of their zero points, and the graph is
/// refused.
const DISABLED: &str = "Pad_Fusion;WeightBiasQuantization;DoubleQDQPairsRemover;QDQPropagationTransformer";
/// Nodes of a graph from which some optimisers are off where it is compiled as a whole. Their time grows with
/// the square of the number of nodes: of the time for 16,000 convolutions, ReLUs and sums they take three
/// quarters.
const LARGE: usize = 10_000;
/// These optimisers.
const QUADRATIC: &str = "CommonSubexpressionElimination;NchwcTransformer";

/// Options of a session.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Execution provider.
    pub provider: Provider,
    /// Threads within an operator; 0 leaves the choice to ONNX Runtime (one per core).
    pub threads: usize,
}

/// How far ONNX Runtime may rewrite a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimise {
    /// No rewriting, for reference results that others are compared with.
    Off,
    /// Every optimisation except those that change results or fail.
    All,
}

/// Turns a failed call of ONNX Runtime that is about no node into an error.
fn fault(doing: &str) -> impl Fn(ort::Error) -> Error {
    move |e| words::failed_call(&e.to_string(), doing)
}

/// `nodes`: how many the graph has.
fn builder(options: Options, optimise: Optimise, nodes: usize) -> Result<SessionBuilder> {
    let environment = library::environment()?;
    let configure = || -> ort::Result<SessionBuilder> {
        let mut b = SessionBuilder::new(environment)?
            .with_optimization_level(match optimise {
                Optimise::Off => GraphOptimizationLevel::Disable,
                Optimise::All => GraphOptimizationLevel::All,
            })?
            .with_config_entry("optimization.disable_specified_optimizers", disabled(DISABLED, nodes))?;
        if options.threads > 0 {
            b = b.with_intra_threads(options.threads)?;
        }
        if memory::limit().is_some() {
            b = b.with_env_allocators()?;
        }
        Ok(b)
    };
    let b = configure().map_err(fault("setting up"))?;
    let Provider::Cuda(cuda) = options.provider else { return Ok(b) };
    // The exhaustive search times algorithms and takes the fastest. The choice may differ between runs, and
    // with it the rounding.
    let provider = ort::ep::CUDA::default()
        .with_device_id(cuda.device)
        .with_tf32(cuda.tf32)
        .with_conv_algorithm_search(ort::ep::cuda::ConvAlgorithmSearch::Heuristic)
        .build();
    let configure = || -> ort::Result<SessionBuilder> {
        let b = b.with_config_entry(ASSIGNMENT, "1")?;
        Ok(b.with_execution_providers([provider.error_on_failure()])?)
    };
    configure().map_err(|e| no_cuda(cuda, &e.to_string()))
}

/// The optimisers that are off for a graph of so many nodes: `always`, and those that large graphs do
/// without.
fn disabled(always: &str, nodes: usize) -> String {
    if nodes < LARGE { always.into() } else { format!("{always};{QUADRATIC}") }
}

/// Makes ONNX Runtime record which provider took which node.
const ASSIGNMENT: &str = "session.record_ep_graph_assignment_info";

/// A compiled graph.
pub struct Session {
    /// One, or those of a large graph, each after those whose values it reads.
    pieces: Vec<ort::session::Session>,
    cuts: Arc<Cuts>,
    provider: Provider,
    /// Locked during a run where the provider does not support concurrent runs.
    alone: Mutex<()>,
    /// Nodes that the provider left to the CPU, as "Operator (name)".
    cpu_nodes: Vec<String>,
}

/// An input of a run.
pub enum Input<'a> {
    /// Shape and float32 values in host memory.
    Host(&'a [i64], &'a [f32]),
    /// An output of an earlier run, without a copy.
    Runtime(&'a RuntimeTensor),
}

/// The memory that a [`BoundTensor`] is allocated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Memory of the device that the session computes on.
    Device,
    /// Host memory.
    Host,
}

/// The assignment of a session's inputs and outputs to [`BoundTensor`]s, for any number of runs. Outputs that
/// are not bound are not computed.
pub struct Binding {
    /// Of each piece of the session.
    pieces: Vec<IoBinding>,
    cuts: Arc<Cuts>,
}

impl Session {
    /// Compiles a graph. Errors (exit code 3): ONNX Runtime refuses the graph.
    pub fn new(graph: &Graph, options: Options, optimise: Optimise) -> Result<Session> {
        Self::in_pieces(graph, options, &|options, nodes| builder(options, optimise, nodes))
    }

    /// Compiles a graph with ONNX Runtime's defaults: every optimisation that is on by default, those that
    /// change results or fail included.
    pub fn as_shipped(graph: &Graph, options: Options) -> Result<Session> {
        Self::in_pieces(graph, options, &|options, nodes| {
            builder(options, Optimise::All, nodes)?
                .with_config_entry("optimization.disable_specified_optimizers", disabled("", nodes))
                .map_err(|e| fault("setting up")(e.into()))
        })
    }

    /// Compiles a graph, a large one piece by piece.
    fn in_pieces(
        graph: &Graph,
        options: Options,
        builder: &dyn Fn(Options, usize) -> Result<SessionBuilder>,
    ) -> Result<Session> {
        // Each piece would have threads of its own, hundreds in all.
        let of_one = Options { threads: 1, ..options };
        let mut types = Types::new();
        let (mut pieces, mut cpu_nodes) = (Vec::new(), Vec::new());
        let whole = || Self::commit(graph, options.provider, builder(options, graph.nodes.len())?);
        let Some(cuts) = pieces::cut(graph) else { return whole() };
        for mut part in cuts.parts(graph) {
            if !pieces::declare(&mut part, &types) {
                return whole();
            }
            let made = Self::commit(&part, options.provider, builder(of_one, part.nodes.len())?)?;
            types.extend(made.output_types().into_iter().map(|(name, dtype, shape)| (name, (dtype, shape))));
            pieces.extend(made.pieces);
            cpu_nodes.extend(made.cpu_nodes);
        }
        let cuts = Arc::new(cuts.typed(types));
        Ok(Session { pieces, cuts, provider: options.provider, alone: Mutex::new(()), cpu_nodes })
    }

    fn commit(graph: &Graph, provider: Provider, mut b: SessionBuilder) -> Result<Session> {
        let weights = graph.weight_bytes();
        if let Some(domain) = fused::domain(graph)? {
            b = b.with_operators(domain).map_err(|e| fault("setting up")(e.into()))?;
        }
        let commit = || -> Result<ort::Result<ort::session::Session>> {
            if weights < SMALL {
                return Ok(b.commit_from_memory(&graph.encode()));
            }
            if weights < INLINE_LIMIT {
                return handover::send(graph.encode_parts(), |path| b.commit_from_file(path));
            }
            let encoded = graph.encode_external();
            let b = b.with_external_initializer_file_in_memory(Encoded::WEIGHTS, encoded.weights.into());
            Ok(b.map_err(Into::into).and_then(|mut b| b.commit_from_memory(&encoded.model)))
        };
        // ONNX Runtime may infer a negative size for a damaged graph, and ort panics at it.
        match guard::quietly(commit) {
            Ok(committed) => {
                let inner = committed?.map_err(|e| words::refused(&e.to_string()))?;
                let cpu_nodes = match provider {
                    Provider::Cpu => vec![],
                    Provider::Cuda(_) => {
                        nodes_of(&inner, "CPUExecutionProvider").map_err(fault("setting up"))?
                    }
                };
                let cuts = Arc::default();
                Ok(Session { pieces: vec![inner], cuts, provider, alone: Mutex::new(()), cpu_nodes })
            }
            Err(_) => Err(Error::model(
                "ONNX Runtime doesn't take the graph: the shapes that follow from its attributes are impossible",
            )),
        }
    }

    /// Nodes that the chosen provider left to the CPU, as "Operator (name)".
    pub fn cpu_nodes(&self) -> &[String] {
        &self.cpu_nodes
    }

    /// Runs the graph and returns the named outputs in the given order.
    pub fn run(&mut self, inputs: &[(&str, Input)], outputs: &[&str]) -> Result<Vec<RuntimeTensor>> {
        if outputs.is_empty() {
            return Ok(vec![]);
        }
        let mut held: HashMap<String, RuntimeTensor> = HashMap::new();
        let mut run = || -> ort::Result<Vec<RuntimeTensor>> {
            for (i, piece) in self.pieces.iter_mut().enumerate() {
                let names = self.cuts.wanted(i, outputs);
                if names.is_empty() {
                    continue;
                }
                let mut feed: Vec<(Cow<str>, SessionInputValue)> = Vec::with_capacity(inputs.len());
                for (name, input) in inputs.iter().filter(|(name, _)| self.cuts.reads(i, name)) {
                    let value: SessionInputValue = match input {
                        Input::Host(shape, values) => TensorRef::from_array_view((*shape, *values))?.into(),
                        Input::Runtime(held) => (&held.0).into(),
                    };
                    feed.push((Cow::Borrowed(*name), value));
                }
                let earlier = held.iter().filter(|(name, _)| self.cuts.reads(i, name));
                feed.extend(earlier.map(|(name, held)| (Cow::Owned(name.clone()), (&held.0).into())));
                let selector = names.iter().fold(OutputSelector::no_default(), |s, name| s.with(*name));
                let options = RunOptions::new()?.with_outputs(selector);
                let mut produced = piece.run_with_options(feed, &options)?;
                let found: Vec<(String, RuntimeTensor)> = names
                    .iter()
                    .filter_map(|name| Some((name.to_string(), RuntimeTensor(produced.remove(name)?))))
                    .collect();
                drop(produced);
                held.extend(found);
            }
            outputs
                .iter()
                .map(|name| {
                    held.remove(*name)
                        .ok_or_else(|| ort::Error::new(format!("the graph has no output {name:?}")))
                })
                .collect()
        };
        run().map_err(|e| words::failed_run(&e.to_string(), self.provider))
    }

    /// Allocates a tensor for a value of fixed shape. Its initial content is undefined. Errors: no memory.
    pub fn place(&self, value: &Value, side: Memory) -> Result<BoundTensor> {
        let shape = fixed_shape(value)?;
        let make = || -> ort::Result<BoundTensor> {
            let of = |device, id, kind| {
                Allocator::new(&self.pieces[0], MemoryInfo::new(device, id, kind, MemoryType::Default)?)
            };
            let allocator = match self.provider {
                Provider::Cuda(Cuda { device, .. }) if side == Memory::Device => {
                    of(AllocationDevice::CUDA, device, AllocatorType::Device)?
                }
                // The arena that the session's own tensors come from: what a tensor here takes is not left to
                // them.
                Provider::Cpu => of(AllocationDevice::CPU, 0, AllocatorType::Arena)?,
                Provider::Cuda(_) => Allocator::default(),
            };
            BoundTensor::new(&allocator, value.dtype, shape)
        };
        make().map_err(fault("making room for a tensor"))
    }

    /// A binding without inputs or outputs.
    pub fn binding(&self) -> Result<Binding> {
        let make = |piece: &ort::session::Session| piece.create_binding().map_err(fault("binding tensors"));
        let pieces = self.pieces.iter().map(make).collect::<Result<_>>()?;
        let mut binding = Binding { pieces, cuts: self.cuts.clone() };
        for value in &self.cuts.between {
            // The bindings keep the tensor.
            binding.output(&value.name, &mut self.place(value, Memory::Device)?)?;
        }
        Ok(binding)
    }

    /// Runs the graph. It reads inputs from their places and writes outputs to theirs. On the CPU several
    /// threads may call it at once, each with its own binding.
    ///
    /// This calls the C function, because ort's own method needs the session exclusively, as other providers
    /// do.
    #[allow(unsafe_code)]
    pub fn run_bound(&self, binding: &mut Binding) -> Result<()> {
        use ort::{AsPointer, ortsys};
        let _alone = (self.provider != Provider::Cpu).then(|| self.alone.lock());
        let mut run = || -> ort::Result<()> {
            for (piece, binding) in self.pieces.iter().zip(&mut binding.pieces) {
                // SAFETY: the session and the binding are borrowed during the call, so both pointers are
                // valid. The binding is borrowed mutably, so nothing else uses it. ONNX Runtime does not
                // change the session through its pointer and allows concurrent runs; our own kernels
                // (fused/operator.rs, fused/spread.rs) have nothing that changes. For providers where ort
                // does not rely on that, the lock allows one run at a time.
                ortsys![unsafe RunWithBinding(piece.ptr().cast_mut(), std::ptr::null(), binding.ptr())?];
            }
            Ok(())
        };
        run().map_err(|e| words::failed_run(&e.to_string(), self.provider))
    }

    /// Name, element type and shape (−1 where unknown) of each output that is a tensor.
    pub fn output_types(&self) -> Vec<(String, DType, Vec<i64>)> {
        let outputs = self.pieces.iter().flat_map(|piece| piece.outputs());
        outputs
            .filter_map(|o| match o.dtype() {
                ValueType::Tensor { ty, shape, .. } => {
                    Some((o.name().to_string(), dtype(*ty), shape.to_vec()))
                }
                _ => None,
            })
            .collect()
    }
}

impl Binding {
    /// Binds the input `name` to `place`.
    pub fn input(&mut self, name: &str, place: &BoundTensor) -> Result<()> {
        for i in self.cuts.readers(name) {
            self.pieces[i].bind_input(name, &place.tensor).map_err(fault("binding an input"))?;
        }
        Ok(())
    }

    /// Binds the output `name` to `place`. An input may use the same place if every node that reads the input
    /// runs before the node that writes the output.
    pub fn output(&mut self, name: &str, place: &mut BoundTensor) -> Result<()> {
        let maker = self.cuts.maker(name);
        self.pieces[maker].bind_output(name, &mut place.tensor).map_err(fault("binding an output"))?;
        // Later pieces may read it too.
        if self.cuts.is_read(name) { self.input(name, place) } else { Ok(()) }
    }
}

/// Nodes that messages name.
pub const SHOWN: usize = 12;

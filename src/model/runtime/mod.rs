//! ONNX Runtime: sessions, and what they are fed. Only this folder names `ort`.

mod library;
mod provider;
mod shapes;
mod version;

pub use library::{cores, load, version};
pub use provider::{Cuda, Provider, require};
pub use shapes::{bytes_of, infer, specialise};
pub use version::VERSION;

use provider::no_cuda;
use shapes::fixed_shape;

use crate::{Error, Result, guard};
use onnx_grad::{DType, Encoded, Graph, Value};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, OutputSelector, RunOptions, SessionInputValue};
use ort::value::{DynTensor, DynValue, TensorElementType, TensorRef, ValueType};
use std::borrow::Cow;
use std::sync::Mutex;
use tempfile::TempDir;

/// Protobuf messages end at 2 GB; models near it travel with their weights apart.
const INLINE_LIMIT: usize = 1_500_000_000;
/// Models whose copies are nothing to mind.
const SMALL: usize = 16_000_000;

/// Basic optimisation turns a zero Pad before a MaxPool into the pool's own padding, which pads with −∞: wrong for
/// negative values (ONNX Runtime 1.31, reference/census). It stays off in every session.
const DISABLED: &str = "Pad_Fusion";

/// How sessions are made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Execution provider.
    pub provider: Provider,
    /// Threads within an operator; 0 leaves it to ONNX Runtime (one per core).
    pub threads: usize,
}

/// How far ONNX Runtime may rewrite a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimise {
    /// Not at all: the reference that everything else is compared with.
    Off,
    /// All it can.
    All,
}

/// What a failed call of the runtime becomes.
fn fault(doing: &str) -> impl Fn(ort::Error) -> Error {
    move |e| {
        Error::internal(format!("ONNX Runtime failed while {doing}: {}", e.to_string().trim_end_matches('.')))
    }
}

fn builder(options: Options, optimise: Optimise) -> Result<SessionBuilder> {
    let environment = library::environment()?;
    let configure = || -> ort::Result<SessionBuilder> {
        let mut b = SessionBuilder::new(environment)?
            .with_optimization_level(match optimise {
                Optimise::Off => GraphOptimizationLevel::Disable,
                Optimise::All => GraphOptimizationLevel::All,
            })?
            .with_config_entry("optimization.disable_specified_optimizers", DISABLED)?;
        if options.threads > 0 {
            b = b.with_intra_threads(options.threads)?;
        }
        Ok(b)
    };
    let b = configure().map_err(fault("setting up"))?;
    let Provider::Cuda(cuda) = options.provider else { return Ok(b) };
    // The search would time algorithms and take the fastest, which may be another one, with other last bits, next time.
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

/// Has the runtime remember which provider took which node.
const ASSIGNMENT: &str = "session.record_ep_graph_assignment_info";

/// A graph ready to run.
pub struct Session {
    inner: ort::session::Session,
    provider: Provider,
    /// Held while a graph runs that may not run twice at a time.
    alone: Mutex<()>,
    /// Nodes that the provider left to the CPU, as "Operator (name)".
    cpu_nodes: Vec<String>,
}

/// A tensor that the runtime owns, on whatever device it lies.
pub struct Held(DynValue);

/// An input of a run.
pub enum Input<'a> {
    /// float32 values in host memory.
    Host(&'a [i64], &'a [f32]),
    /// An output of an earlier run, not copied.
    Held(&'a Held),
}

/// A tensor that stays where it is from run to run: what one session writes there ([`Binding::output`]) another reads
/// ([`Binding::input`]), without a copy and without an allocation.
pub struct Place {
    tensor: DynTensor,
    /// The way to and from the host, of a tensor on a device.
    staging: Option<DynTensor>,
}

/// Where a [`Place`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the session computes.
    Device,
    /// In host memory.
    Host,
}

/// A session's inputs and outputs, each at its [`Place`], for any number of runs. Outputs that are not bound aren't made.
pub struct Binding(IoBinding);

impl Session {
    /// Compiles a graph. Errors of the runtime about the graph itself are errors about the model (exit code 3).
    pub fn new(graph: &Graph, options: Options, optimise: Optimise) -> Result<Session> {
        Self::commit(graph, options.provider, builder(options, optimise)?)
    }

    /// Compiles a graph as users do: every optimisation that is on by default, those we switch off included.
    pub fn as_shipped(graph: &Graph, options: Options) -> Result<Session> {
        let b = builder(options, Optimise::All)?
            .with_config_entry("optimization.disable_specified_optimizers", "")
            .map_err(|e| fault("setting up")(e.into()))?;
        Self::commit(graph, options.provider, b)
    }

    fn commit(graph: &Graph, provider: Provider, mut b: SessionBuilder) -> Result<Session> {
        let refused = |e: String| Error::model(format!("ONNX Runtime doesn't take the graph: {e}"));
        let weights = graph.weight_bytes();
        // By way of a file, large weights aren't in memory once more while the runtime makes its copies.
        let folder = (SMALL..INLINE_LIMIT).contains(&weights).then(scratch).transpose()?;
        let file = folder.as_ref().map(|folder| folder.path().join("model.onnx"));
        if let Some(file) = &file {
            std::fs::write(file, graph.encode())
                .map_err(|e| Error::internal(format!("can't write {}: {e}", file.display())))?;
        }
        let commit = || -> ort::Result<ort::session::Session> {
            if let Some(file) = &file {
                return b.commit_from_file(file);
            }
            if weights < INLINE_LIMIT {
                return b.commit_from_memory(&graph.encode());
            }
            let encoded = graph.encode_external();
            b.with_external_initializer_file_in_memory(Encoded::WEIGHTS, encoded.weights.into())?
                .commit_from_memory(&encoded.model)
        };
        // Of a damaged graph the runtime may infer a negative size, at which ort panics.
        match guard::quietly(commit) {
            Ok(committed) => {
                let inner = committed.map_err(|e| refused(e.to_string()))?;
                let cpu_nodes = match provider {
                    Provider::Cpu => vec![],
                    Provider::Cuda(_) => {
                        nodes_of(&inner, "CPUExecutionProvider").map_err(fault("setting up"))?
                    }
                };
                Ok(Session { inner, provider, alone: Mutex::new(()), cpu_nodes })
            }
            Err(_) => Err(refused("the shapes that follow from its attributes are impossible".into())),
        }
    }

    /// Nodes that the provider asked for left to the CPU, as "Operator (name)".
    pub fn cpu_nodes(&self) -> &[String] {
        &self.cpu_nodes
    }

    /// Runs the graph for the outputs named, in that order.
    pub fn run(&mut self, inputs: &[(&str, Input)], outputs: &[&str]) -> Result<Vec<Held>> {
        if outputs.is_empty() {
            return Ok(vec![]);
        }
        let mut run = || -> ort::Result<Vec<Held>> {
            let mut feed: Vec<(Cow<str>, SessionInputValue)> = Vec::with_capacity(inputs.len());
            for (name, input) in inputs {
                let value: SessionInputValue = match input {
                    Input::Host(shape, values) => TensorRef::from_array_view((*shape, *values))?.into(),
                    Input::Held(held) => (&held.0).into(),
                };
                feed.push((Cow::Borrowed(*name), value));
            }
            let selector = outputs.iter().fold(OutputSelector::no_default(), |s, name| s.with(*name));
            let options = RunOptions::new()?.with_outputs(selector);
            let mut produced = self.inner.run_with_options(feed, &options)?;
            outputs
                .iter()
                .map(|name| {
                    produced
                        .remove(name)
                        .map(Held)
                        .ok_or_else(|| ort::Error::new(format!("the graph has no output {name:?}")))
                })
                .collect()
        };
        run().map_err(fault("running the graph"))
    }

    /// Memory for a value of fixed shape, kept until it is dropped; what it holds at first is undefined. Errors: no memory.
    pub fn place(&self, value: &Value, side: Side) -> Result<Place> {
        let shape = fixed_shape(value)?;
        let make = || -> ort::Result<DynTensor> {
            let allocator = match self.provider {
                Provider::Cuda(Cuda { device, .. }) if side == Side::Device => {
                    let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
                    Allocator::new(
                        &self.inner,
                        MemoryInfo::new(AllocationDevice::CUDA, device, kind, memory)?,
                    )?
                }
                _ => Allocator::default(),
            };
            DynTensor::new(&allocator, element_type(value.dtype)?, shape)
        };
        let tensor = make().map_err(fault("making room for a tensor"))?;
        Ok(Place { tensor, staging: None })
    }

    /// A binding of nothing yet.
    pub fn binding(&self) -> Result<Binding> {
        self.inner.create_binding().map(Binding).map_err(fault("binding tensors"))
    }

    /// Runs the graph on what lies in the places of its inputs; what it finds lies in those of its outputs. On the CPU
    /// several threads may do so at once, each with its binding.
    #[allow(unsafe_code)] // ort wants the session for itself, for the sake of other providers.
    pub fn run_bound(&self, binding: &mut Binding) -> Result<()> {
        use ort::{AsPointer, ortsys};
        let _alone = (self.provider != Provider::Cpu).then(|| self.alone.lock());
        let run = || -> ort::Result<()> {
            // SAFETY: the session and the binding are borrowed while this runs, so that both pointers are good; the
            // binding, borrowed alone, is nobody else's. The runtime doesn't change the session through its pointer, and
            // lets several threads run it at once; with providers of which ort doubts that, the lock keeps it to one.
            ortsys![unsafe RunWithBinding(self.inner.ptr().cast_mut(), std::ptr::null(), binding.0.ptr())?];
            Ok(())
        };
        run().map_err(fault("running the graph"))
    }

    /// Name, element type and shape (−1 where unknown) of each output that is a tensor.
    pub fn output_types(&self) -> Vec<(String, DType, Vec<i64>)> {
        self.inner
            .outputs()
            .iter()
            .filter_map(|o| match o.dtype() {
                ValueType::Tensor { ty, shape, .. } => {
                    Some((o.name().to_string(), dtype(*ty), shape.to_vec()))
                }
                _ => None,
            })
            .collect()
    }
}

impl Held {
    /// Shape and values in host memory. Errors: not float32.
    pub fn floats(&self) -> Result<(&[i64], &[f32])> {
        let (shape, values) = self.0.try_extract_tensor::<f32>().map_err(fault("reading a result"))?;
        Ok((shape, values))
    }

    fn ints(&self) -> Result<Vec<i64>> {
        let (_, values) = self.0.try_extract_tensor::<i64>().map_err(fault("reading a result"))?;
        Ok(values.to_vec())
    }
}

impl Binding {
    /// The input `name` is what lies at `place` when the session runs.
    pub fn input(&mut self, name: &str, place: &Place) -> Result<()> {
        self.0.bind_input(name, &place.tensor).map_err(fault("binding an input"))
    }

    /// The output `name` goes to `place`. That may be an input's place too, where every node that reads the input comes
    /// before the one that makes the output.
    pub fn output(&mut self, name: &str, place: &mut Place) -> Result<()> {
        self.0.bind_output(name, &mut place.tensor).map_err(fault("binding an output"))
    }
}

impl Place {
    /// Replaces the values, the first where there are fewer: the others become zero. Errors: not float32, or too many.
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        let mut write = || match self.on_host() {
            true => fill(&mut self.tensor, values),
            false => {
                fill(self.staging()?, values)?;
                self.staging.iter().try_for_each(|staging| staging.copy_into(&mut self.tensor))
            }
        };
        write().map_err(fault("writing a tensor"))
    }

    /// The values, brought to the host if they are elsewhere. Errors: not float32.
    pub fn read(&mut self) -> Result<&[f32]> {
        self.values().map_err(fault("reading a tensor"))
    }

    fn values(&mut self) -> ort::Result<&[f32]> {
        if !self.on_host() {
            self.staging()?;
            self.staging.iter_mut().try_for_each(|staging| self.tensor.copy_into(staging))?;
        }
        Ok(self.staging.as_ref().unwrap_or(&self.tensor).try_extract_tensor()?.1)
    }

    fn on_host(&self) -> bool {
        self.tensor.memory_info().is_cpu_accessible()
    }

    /// The host's copy, made at the first use.
    fn staging(&mut self) -> ort::Result<&mut DynTensor> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => {
                let shape = self.tensor.shape().to_vec();
                DynTensor::new(&Allocator::default(), *self.tensor.data_type(), shape)?
            }
        };
        Ok(self.staging.insert(staging))
    }
}

fn fill(tensor: &mut DynTensor, values: &[f32]) -> ort::Result<()> {
    let (shape, room) = tensor.try_extract_tensor_mut::<f32>()?;
    let Some((first, rest)) = room.split_at_mut_checked(values.len()) else {
        return Err(ort::Error::new(format!("{} values were given for the shape {shape:?}", values.len())));
    };
    first.copy_from_slice(values);
    rest.fill(0.0);
    Ok(())
}

fn element_type(dtype: DType) -> ort::Result<TensorElementType> {
    Ok(match dtype {
        DType::F32 => TensorElementType::Float32,
        DType::F16 => TensorElementType::Float16,
        DType::BF16 => TensorElementType::Bfloat16,
        DType::F64 => TensorElementType::Float64,
        DType::I64 => TensorElementType::Int64,
        DType::I32 => TensorElementType::Int32,
        DType::I16 => TensorElementType::Int16,
        DType::I8 => TensorElementType::Int8,
        DType::U64 => TensorElementType::Uint64,
        DType::U32 => TensorElementType::Uint32,
        DType::U16 => TensorElementType::Uint16,
        DType::U8 => TensorElementType::Uint8,
        DType::Bool => TensorElementType::Bool,
        other => return Err(ort::Error::new(format!("no tensor can be made of {other:?}"))),
    })
}

/// A list for messages: the first few, and how many more.
pub fn shortened(nodes: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = nodes.len().saturating_sub(SHOWN);
    let some = nodes[..nodes.len() - more].join(", ");
    if more > 0 { format!("{some} and {more} more") } else { some }
}

/// The nodes that an execution provider took, in a session made with [`ASSIGNMENT`]: as basic optimisation left the graph,
/// before kernels are fused.
#[allow(unsafe_code)] // Not wrapped by ort.
fn nodes_of(session: &ort::session::Session, provider: &str) -> ort::Result<Vec<String>> {
    use ort::{AsPointer, ortsys};
    use std::ffi::{CStr, c_char};
    use std::ptr::null;
    /// # Safety
    /// `from` is null, or a string that ends in 0 and stays as it is while this runs.
    unsafe fn text(from: *const c_char) -> String {
        if from.is_null() {
            return String::new();
        }
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
    }
    // All that is asked for here belongs to the session, which is borrowed throughout: arrays, what they point to, and
    // strings stay where they are. Results are written to locals of the types that the C header declares.
    let mut nodes = Vec::new();
    let (mut groups, mut count) = (null(), 0);
    // SAFETY: the session is alive; both results are locals.
    ortsys![unsafe Session_GetEpGraphAssignmentInfo(session.ptr(), &mut groups, &mut count)?];
    for group in 0..count {
        // SAFETY: the call above succeeded, so that `groups` points to `count` pointers, and `group` is below that.
        let group = unsafe { *groups.add(group) };
        let mut name = null();
        // SAFETY: `group` is one of the session's; the result is a local.
        ortsys![unsafe EpAssignedSubgraph_GetEpName(group, &mut name)?];
        // SAFETY: the call above succeeded, so that `name` is a string of the session's.
        if unsafe { text(name) } != provider {
            continue;
        }
        let (mut members, mut count) = (null(), 0);
        // SAFETY: `group` is one of the session's; both results are locals.
        ortsys![unsafe EpAssignedSubgraph_GetNodes(group, &mut members, &mut count)?];
        for member in 0..count {
            // SAFETY: the call above succeeded, so that `members` points to `count` pointers, and `member` is below that.
            let member = unsafe { *members.add(member) };
            let (mut op, mut name) = (null(), null());
            // SAFETY: `member` is one of the session's nodes; the result is a local.
            ortsys![unsafe EpAssignedNode_GetOperatorType(member, &mut op)?];
            // SAFETY: as above.
            ortsys![unsafe EpAssignedNode_GetName(member, &mut name)?];
            // SAFETY: both calls succeeded, so that both are strings of the session's.
            nodes.push(match unsafe { (text(op), text(name)) } {
                (op, name) if name.is_empty() => op,
                (op, name) => format!("{op} ({name})"),
            });
        }
    }
    Ok(nodes)
}

fn dtype(ty: TensorElementType) -> DType {
    match ty {
        TensorElementType::Float32 => DType::F32,
        TensorElementType::Float16 => DType::F16,
        TensorElementType::Bfloat16 => DType::BF16,
        TensorElementType::Float64 => DType::F64,
        TensorElementType::Int64 => DType::I64,
        TensorElementType::Int32 => DType::I32,
        TensorElementType::Int16 => DType::I16,
        TensorElementType::Int8 => DType::I8,
        TensorElementType::Uint64 => DType::U64,
        TensorElementType::Uint32 => DType::U32,
        TensorElementType::Uint16 => DType::U16,
        TensorElementType::Uint8 => DType::U8,
        TensorElementType::Bool => DType::Bool,
        _ => DType::Other(0),
    }
}

/// A folder of our own under the system's temporary one, gone when dropped.
fn scratch() -> Result<TempDir> {
    tempfile::Builder::new().prefix("audit-").tempdir().map_err(|e| {
        Error::internal(format!("can't make a temporary folder in {}: {e}", std::env::temp_dir().display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_grad::Node;

    /// Without a GPU every node is the CPU's, which is what the check for nodes that CUDA left out looks for.
    #[test]
    fn nodes_are_told_by_provider() {
        if load(None).is_err() {
            println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
            return;
        }
        let value = |name: &str| Value::new(name, DType::F32, &[2]);
        let mut nodes = vec![Node::new("Neg", &["x"], "y"), Node::new("Relu", &["y"], "z")];
        nodes[0].name = "first".into();
        let mut graph = Graph::new(nodes, [].into());
        (graph.inputs, graph.outputs) = (vec![value("x")], vec![value("z")]);
        let cpu = Options { provider: Provider::Cpu, threads: 1 };
        let b = builder(cpu, Optimise::All).unwrap().with_config_entry(ASSIGNMENT, "1").ok().unwrap();
        let session = Session::commit(&graph, Provider::Cpu, b).unwrap();
        let found = nodes_of(&session.inner, "CPUExecutionProvider").unwrap();
        assert!(found.iter().any(|n| n == "Neg (first)") && found.len() == 2, "{found:?}");
        assert!(nodes_of(&session.inner, "CUDAExecutionProvider").unwrap().is_empty());
    }
}

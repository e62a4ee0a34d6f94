//! ONNX Runtime: finding the library, sessions, specialising a graph. The only file that names `ort`.

use crate::grad::Types;
use crate::onnx::{DType, Encoded, Graph, Node, Value, sane};
use crate::{Error, Result};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{IoBinding, OutputSelector, RunOptions, SessionInputValue};
use ort::value::{DynTensor, DynValue, TensorElementType, TensorRef, ValueType};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, Once, OnceLock};
use std::{fmt, panic};

/// The version of ONNX Runtime that set-up fetches and that everything was tested with.
pub const VERSION: &str = "1.31.1";

/// Protobuf messages end at 2 GB; models near it travel with their weights apart.
const INLINE_LIMIT: usize = 1_500_000_000;
/// Models whose copies are nothing to mind.
const SMALL: usize = 16_000_000;

/// Basic optimisation turns a zero Pad before a MaxPool into the pool's own padding, which pads with −∞: wrong for
/// negative values (ONNX Runtime 1.31, reference/census). It stays off in every session.
const DISABLED: &str = "Pad_Fusion";

static ENVIRONMENT: OnceLock<ort::environment::Environment> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Where a graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The CPU execution provider.
    Cpu,
    /// The CUDA execution provider.
    Cuda(Cuda),
}

/// How CUDA is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// The device's number.
    pub device: i32,
    /// Whether products may round their factors to TensorFloat-32 (10 bits of mantissa in place of 23).
    pub tf32: bool,
    /// Whether nodes that CUDA has no kernel for may run on the CPU, with what they need copied back and forth.
    pub cpu_nodes: bool,
}

impl FromStr for Provider {
    type Err = Error;
    fn from_str(text: &str) -> Result<Provider> {
        let cuda = |device: u16| Provider::Cuda(Cuda { device: device.into(), ..Cuda::default() });
        match text.split_once(':') {
            None if text == "cpu" => Ok(Provider::Cpu),
            None if text == "cuda" => Ok(cuda(0)),
            Some(("cuda", n)) => n.parse().map(cuda).map_err(|_| {
                Error::usage(format!(
                    "`{n}` is no device number: expected one such as cuda:0; `nvidia-smi -L` lists them"
                ))
            }),
            _ => Err(Error::usage("expected cpu, cuda or cuda:N")),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Provider::Cpu => f.write_str("cpu"),
            Provider::Cuda(cuda) => write!(f, "cuda:{}", cuda.device),
        }
    }
}

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

/// Loads the library, once per process: `path` if given, else ORT_DYLIB_PATH, else beside the executable or where
/// `cargo xtask setup` puts it.
pub fn load(path: Option<&Path>) -> Result<()> {
    let _one_at_a_time = LOADING.lock();
    if ENVIRONMENT.get().is_some() {
        return Ok(());
    }
    let library = find_library(path)?;
    let failed = |e: String| {
        Error::usage(format!(
            "can't load ONNX Runtime from {}: {e}. Version {VERSION} is wanted: `cargo xtask setup` fetches it",
            library.display()
        ))
    };
    let environment = ort::init_from(&library)
        .map_err(|e| failed(e.to_string()))?
        .with_name("audit")
        .with_telemetry(false)
        .build()
        .map_err(|e| failed(e.to_string()))?;
    // Warnings of the runtime about our own graphs mean nothing to the user; its errors come back as ours.
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    let _ = ENVIRONMENT.set(environment);
    Ok(())
}

/// Which ONNX Runtime is loaded, as it says itself: a release's version, or else the commit it was built from.
pub fn version() -> String {
    let info = ort::info();
    let field = |key: &str| info.split(key).nth(1).and_then(|v| v.split([',', ' ']).next());
    match (field("git-branch=rel-"), field("git-commit-id=")) {
        (Some(version), _) => version.to_string(),
        (None, Some(commit)) => format!("of commit {commit}"),
        (None, None) => info.to_string(),
    }
}

fn find_library(given: Option<&Path>) -> Result<PathBuf> {
    let from_env = std::env::var_os("ORT_DYLIB_PATH").filter(|v| !v.is_empty()).map(PathBuf::from);
    let (named, by) = match (given, from_env) {
        (Some(p), _) => (Some(p.to_path_buf()), "--ort-lib"),
        (None, Some(p)) => (Some(p), "ORT_DYLIB_PATH"),
        (None, None) => (None, ""),
    };
    if let Some(path) = named {
        let found = if path.is_dir() { library_in(&path) } else { path.is_file().then(|| path.clone()) };
        return found.ok_or_else(|| {
            Error::usage(format!(
                "{by} names {}, where there is no ONNX Runtime library. Give the path of libonnxruntime.so \
                 (.dylib, onnxruntime.dll), or leave it out and run `cargo xtask setup`",
                path.display()
            ))
        });
    }
    let mut folders = Vec::new();
    if let Ok(exe) = std::env::current_exe() {
        for dir in exe.ancestors().skip(1).take(3) {
            folders.push(dir.to_path_buf());
            folders.push(dir.join("onnxruntime"));
        }
    }
    folders.iter().find_map(|dir| library_in(dir)).ok_or_else(|| {
        Error::usage(
            "ONNX Runtime isn't here. `cargo xtask setup` fetches it (once). If you have your own, point to it: \
             --ort-lib PATH, or ORT_DYLIB_PATH=PATH",
        )
    })
}

/// The runtime's shared library in a folder; providers' libraries beside it have longer names.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let is_library = |name: &str| {
        name == "onnxruntime.dll"
            || name.starts_with("libonnxruntime.so")
            || (name.starts_with("libonnxruntime.") && name.ends_with(".dylib"))
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(is_library))
        .collect();
    found.sort();
    found.pop()
}

/// What a failed call of the runtime becomes.
fn fault(doing: &str) -> impl Fn(ort::Error) -> Error {
    move |e| {
        Error::internal(format!("ONNX Runtime failed while {doing}: {}", e.to_string().trim_end_matches('.')))
    }
}

fn builder(options: Options, optimise: Optimise) -> Result<SessionBuilder> {
    let environment =
        ENVIRONMENT.get().ok_or_else(|| Error::internal("ONNX Runtime is used before it is loaded"))?;
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

/// Refuses a provider that can't be used here, before any model is loaded (exit code 2): the library has no CUDA, its own
/// libraries or the driver are missing, there is no such device.
pub fn require(options: Options) -> Result<()> {
    let Provider::Cuda(cuda) = options.provider else { return Ok(()) };
    let value = |name: &str| Value::new(name, DType::F32, &[1]);
    let nodes = vec![Node::new("Neg", &["x"], "y")];
    let mut graph = Graph::new(nodes, [].into());
    (graph.inputs, graph.outputs) = (vec![value("x")], vec![value("y")]);
    let b = builder(options, Optimise::Off)?;
    let run =
        || Session::commit(&graph, options.provider, b)?.run(&[("x", Input::Host(&[1], &[1.0]))], &["y"]);
    match run() {
        Ok(y) if y[0].floats()?.1 == [-1.0] => Ok(()),
        Ok(_) => Err(no_cuda(
            cuda,
            "the device computes wrongly: it found something other than -1 for the negative of 1",
        )),
        Err(e) => Err(no_cuda(cuda, &e.message)),
    }
}

/// What a failure of CUDA becomes. The runtime's own words are long; the end of the first line has what happened.
fn no_cuda(cuda: Cuda, said: &str) -> Error {
    let has = |any: &[&str]| any.iter().any(|text| said.contains(text));
    let next = if has(&["not enabled in this build", "is not available", "ailed to find symbol"]) {
        format!(
            "This library of ONNX Runtime was built without CUDA. Fetch the one with it, `cargo xtask setup --cuda`, and name \
             it: --ort-lib target/onnxruntime-gpu (any onnxruntime-gpu {VERSION} will do)"
        )
    } else if has(&["libcuda.so"]) {
        "The NVIDIA driver is missing, or the system's loader doesn't find its libcuda: see whether `nvidia-smi` runs".to_string()
    } else if has(&["cannot open shared object", "ailed to load library", "LoadLibrary failed"]) {
        "A library is missing: CUDA 13 and cuDNN 9 must be where the system's loader looks, such as in LD_LIBRARY_PATH"
            .to_string()
    } else if has(&["invalid device ordinal", "nvalid device"]) {
        format!("There is no device {}: `nvidia-smi -L` lists those there are", cuda.device)
    } else {
        "See whether `nvidia-smi` shows the GPU, and a driver for CUDA 13 or newer".to_string()
    };
    let said = said.trim().lines().next().unwrap_or_default().trim_end_matches('.');
    let said = said.rsplit(" : FAIL : ").next().unwrap_or(said);
    Error::usage(format!(
        "--ep {}: CUDA can't be used: {said}. {next}. --ep cpu does without",
        Provider::Cuda(cuda)
    ))
}

/// Runs `f`; `None` if it panics, of which nobody hears.
fn quietly<T>(f: impl FnOnce() -> T) -> Option<T> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(f)).ok();
    QUIET.set(false);
    result
}

/// Cores that a process may use: threads of one core would only wait for each other's arithmetic.
pub fn cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let core = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let distinct: BTreeSet<String> = (0..).map_while(core).collect();
    if distinct.is_empty() { allowed } else { allowed.min(distinct.len()) }
}

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
        let folder = (SMALL..INLINE_LIMIT).contains(&weights).then(Scratch::new).transpose()?;
        let file = folder.as_ref().map(|f| f.0.join("model.onnx"));
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
        match quietly(commit) {
            Some(committed) => {
                let inner = committed.map_err(|e| refused(e.to_string()))?;
                let cpu_nodes = match provider {
                    Provider::Cpu => vec![],
                    Provider::Cuda(_) => {
                        nodes_of(&inner, "CPUExecutionProvider").map_err(fault("setting up"))?
                    }
                };
                Ok(Session { inner, provider, alone: Mutex::new(()), cpu_nodes })
            }
            None => Err(refused("the shapes that follow from its attributes are impossible".into())),
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
            // SAFETY: both pointers live as long as what they are taken from. ONNX Runtime's sessions may be run by several
            // threads at once; those of providers of which ort doubts it run one at a time, by the lock.
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
    /// SAFETY: the runtime's strings end in 0 and live as long as the session.
    unsafe fn text(from: *const c_char) -> String {
        if from.is_null() {
            return String::new();
        }
        unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
    }
    let mut nodes = Vec::new();
    let (mut groups, mut count) = (null(), 0);
    ortsys![unsafe Session_GetEpGraphAssignmentInfo(session.ptr(), &mut groups, &mut count)?];
    for group in 0..count {
        // SAFETY: `groups` points to `count` groups, of the session as long as it lives; so do `members` below.
        let group = unsafe { *groups.add(group) };
        let mut name = null();
        ortsys![unsafe EpAssignedSubgraph_GetEpName(group, &mut name)?];
        if unsafe { text(name) } != provider {
            continue;
        }
        let (mut members, mut count) = (null(), 0);
        ortsys![unsafe EpAssignedSubgraph_GetNodes(group, &mut members, &mut count)?];
        for member in 0..count {
            let member = unsafe { *members.add(member) };
            let (mut op, mut name) = (null(), null());
            ortsys![unsafe EpAssignedNode_GetOperatorType(member, &mut op)?];
            ortsys![unsafe EpAssignedNode_GetName(member, &mut name)?];
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

/// Has ONNX Runtime fold what is constant in a graph of fixed input shapes: shape arithmetic, batch norms into
/// convolutions, dead nodes. The result has only standard operators, and no shape arithmetic.
pub fn specialise(graph: &Graph) -> Result<Graph> {
    let once = fold(graph)?;
    // Operators without a kernel are inlined after shapes were inferred: what that adds folds the second time.
    let left = |n: &Node| matches!(n.op.as_str(), "Shape" | "Size") && n.domain.is_empty();
    if once.nodes.iter().any(left) { fold(&once) } else { Ok(once) }
}

fn fold(graph: &Graph) -> Result<Graph> {
    let folder = Scratch::new()?;
    let path = folder.0.join("specialised.onnx");
    let cpu = Options { provider: Provider::Cpu, threads: 0 };
    let b = builder(cpu, Optimise::Off)?
        .with_optimization_level(GraphOptimizationLevel::Level1)
        .map_err(|e| fault("setting up")(e.into()))?
        .with_optimized_model_path(&path)
        .map_err(|e| fault("setting up")(e.into()))?;
    drop(Session::commit(graph, Provider::Cpu, b)?);
    let bytes = std::fs::read(&path).map_err(|e| {
        Error::internal(format!("ONNX Runtime left no specialised graph at {}: {e}", path.display()))
    })?;
    let mut specialised = Graph::decode_as_is(bytes.into(), &path)?;
    // The file declares every operator set that the runtime knows.
    specialised.opsets.retain(|domain, _| graph.opsets.contains_key(domain));
    specialised.precision = graph.precision;
    specialised.prune();
    Ok(specialised)
}

/// A folder of our own under the system's temporary one, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("audit-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| {
            Error::internal(format!("can't make the temporary folder {}: {e}", dir.display()))
        })?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes of a value; `None` where its shape isn't known. As many as can be said, where that is not enough.
pub fn bytes_of((dtype, shape): &(DType, Vec<i64>)) -> Option<u64> {
    let size = |&d: &i64| u64::try_from(d).ok();
    let count = shape.iter().map(size).try_fold(1u64, |all, d| Some(all.saturating_mul(d?)))?;
    Some(count.saturating_mul(dtype.size()? as u64))
}

/// Element type and shape of every value of a graph whose input shapes are fixed.
///
/// The graph runs once, on zeros: what its kernels don't take must not be differentiated (inference lets impossible
/// attributes pass), and the run tells the shapes that inference leaves open or is known to get wrong.
pub fn infer(graph: &Graph) -> Result<Types> {
    let mut types: Types =
        graph.constants.iter().map(|(n, t)| (n.clone(), (t.dtype, t.shape.clone()))).collect();
    for input in &graph.inputs {
        types.insert(input.name.clone(), (input.dtype, fixed_shape(input)?));
    }
    // The runtime names no type for values that nobody asks for: ask for all.
    let mut probe = graph.clone();
    let untyped = |name: &str| Value { name: name.to_string(), dtype: DType::Other(0), shape: None };
    probe.outputs = graph
        .nodes
        .iter()
        .flat_map(|n| n.outputs.iter().filter(|o| !o.is_empty()))
        .map(|o| untyped(o))
        .collect();
    let cpu = Options { provider: Provider::Cpu, threads: 0 };
    let session = Session::new(&probe, cpu, Optimise::Off)?;
    // Inference counts pooling windows that start beyond the padding in ceil_mode; the kernels leave them out.
    let doubtful = graph.nodes.iter().any(|n| n.int("ceil_mode", 0) != 0);
    let mut open = Vec::new();
    for (name, dtype, shape) in session.output_types() {
        // An empty shape may be a scalar's or stand for an unknown rank.
        if doubtful || shape.is_empty() || shape.iter().any(|&d| d < 0) {
            open.push(name.clone());
        }
        types.insert(name, (dtype, shape));
    }
    drop((session, probe));
    for node in &graph.nodes {
        sane::check_shapes(node, |name| types.get(name).map(|(_, shape)| shape.as_slice()))
            .map_err(Error::model)?;
    }
    let free = super::memory::available(Provider::Cpu).unwrap_or(u64::MAX);
    for (node, out) in graph.nodes.iter().flat_map(|node| node.outputs.iter().map(move |out| (node, out))) {
        if let Some(bytes) = types.get(out).and_then(bytes_of).filter(|bytes| *bytes > free) {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            return Err(Error::model(format!(
                "{} makes {out} of shape {:?}, {:.1} GiB, and {:.1} GiB of memory are free. If the file is not damaged, ask for \
                 fewer images at a time with --batch, or for smaller ones with --size",
                node.label(),
                types[out].1,
                gib(bytes),
                gib(free)
            )));
        }
    }
    // All values at once would fill the memory: run for the outputs and the shapes alone.
    let shape_of = |name: &str| format!("audit/shape-of/{name}");
    let mut probe = graph.clone();
    for name in &open {
        probe.nodes.push(Node::new("Shape", &[name], &shape_of(name)));
        probe.outputs.push(untyped(&shape_of(name)));
    }
    let mut session = Session::new(&probe, cpu, Optimise::Off)?;
    let zeros: Vec<(String, Vec<i64>, Vec<f32>)> = graph
        .inputs
        .iter()
        .map(|i| {
            let shape = types[&i.name].1.clone();
            let count = shape.iter().product::<i64>() as usize;
            (i.name.clone(), shape, vec![0.0; count])
        })
        .collect();
    let feed: Vec<(&str, Input)> = zeros.iter().map(|(n, s, v)| (n.as_str(), Input::Host(s, v))).collect();
    let shapes: Vec<String> = open.iter().map(|n| shape_of(n)).collect();
    let outputs = graph.outputs.iter().map(|o| o.name.as_str());
    let asked: Vec<&str> = shapes.iter().map(String::as_str).chain(outputs).collect();
    let ran = session.run(&feed, &asked).map_err(|e| Error::model(e.to_string()))?;
    for (name, shape) in open.iter().zip(ran) {
        if let Some(entry) = types.get_mut(name) {
            entry.1 = shape.ints()?;
        }
    }
    Ok(types)
}

fn fixed_shape(value: &Value) -> Result<Vec<i64>> {
    use crate::onnx::Dim;
    let dims = value.shape.as_deref().unwrap_or_default();
    dims.iter()
        .map(|d| match d {
            Dim::Known(n) => Ok(*n),
            Dim::Free(_) => {
                Err(Error::internal(format!("input {} has shape {}", value.name, value.shape_text())))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn failures_of_cuda_say_what_to_do() {
        let says = |said: &str| no_cuda(Cuda { device: 3, ..Cuda::default() }, said).message;
        assert!(
            says("CUDA execution provider is not enabled in this build.\nmore")
                .contains("xtask setup --cuda")
        );
        assert!(says("libcudnn.so.9: cannot open shared object file").contains("cuDNN 9"));
        assert!(
            says("libcuda.so.1: cannot open shared object file").contains("The NVIDIA driver is missing")
        );
        assert!(
            says("a.cc:1 [E] : 1 : FAIL : no libcublas.so.13")
                .starts_with("--ep cuda:3: CUDA can't be used: no")
        );
        assert!(says("CUDA failure 101: invalid device ordinal").contains("no device 3"));
        assert!(says("CUDA failure 35: CUDA driver version is insufficient").contains("nvidia-smi"));
    }
}

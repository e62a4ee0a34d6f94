//! Execution providers, and the error messages for those that cannot be used.

use super::library::preload_cuda;
use super::{Input, Optimise, Options, Session, VERSION, builder};
use crate::memory;
use audit_base::{Error, Result};
use onnx_grad::graph::{DType, Node, Value};
use onnx_grad::{Graph, Processor};
use ort::ep::ExecutionProvider;
use std::fmt;
use std::str::FromStr;

/// The execution provider of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The CPU execution provider.
    Cpu,
    /// The CUDA execution provider.
    Cuda(Cuda),
}

/// Settings of the CUDA provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// The device's number.
    pub device: i32,
    /// Whether matrix products may round their factors to TensorFloat-32 (10 bits of mantissa instead of 23).
    pub tf32: bool,
    /// Whether nodes without a CUDA kernel may run on the CPU. Their tensors are then copied to the host and
    /// back.
    pub cpu_nodes: bool,
}

impl Provider {
    /// What it computes on.
    pub fn processor(self) -> Processor {
        match self {
            Provider::Cpu => Processor::Cpu,
            Provider::Cuda(_) => Processor::Gpu,
        }
    }

    /// The name without a device's number.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Cpu => "cpu",
            Provider::Cuda(_) => "cuda",
        }
    }
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
                    "`{n}` is no device number. Expected is one such as cuda:0. `nvidia-smi -L` lists them"
                ))
            }),
            _ => Err(Error::usage("expected cpu, cuda or cuda:N")),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Provider::Cpu => f.write_str(self.name()),
            Provider::Cuda(cuda) => write!(f, "{}:{}", self.name(), cuda.device),
        }
    }
}

/// Tests the provider before any model is loaded. Errors (exit code 2): the library was built without CUDA;
/// CUDA's libraries or the driver are missing; the device does not exist.
pub fn require(options: Options) -> Result<()> {
    let Provider::Cuda(cuda) = options.provider else { return Ok(()) };
    preload_cuda();
    let value = |name: &str| Value::new(name, DType::F32, &[1]);
    let nodes = vec![Node::new("Neg", &["x"], "y")];
    let mut graph = Graph::new(nodes, [].into());
    (graph.inputs, graph.outputs) = (vec![value("x")], vec![value("y")]);
    let b = builder(options, Optimise::Off, 0)?;
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

/// The provider that `--ep auto` takes: CUDA if the library has it and a device computes, else the CPU. If
/// there was a choice, why.
pub fn choose(threads: usize) -> (Provider, Option<String>) {
    if !ort::ep::CUDA::is_available().unwrap_or(false) {
        return (Provider::Cpu, None);
    }
    let cuda = Provider::Cuda(Cuda::default());
    match require(Options { provider: cuda, threads }) {
        Ok(()) => (cuda, Some("a CUDA device is there".into())),
        Err(e) => (Provider::Cpu, Some(brief(&e.message))),
    }
}

/// Free memory of the device of `provider`, in bytes; `None` if unknown.
pub fn available(provider: Provider) -> Option<u64> {
    match provider {
        Provider::Cpu => memory::limit().map(|limit| limit.bytes),
        Provider::Cuda(cuda) => on_device(cuda),
    }
}

/// Asks CUDA's runtime library, which ONNX Runtime has loaded before. ort doesn't wrap its functions.
#[allow(unsafe_code)]
fn on_device(cuda: Cuda) -> Option<u64> {
    use std::ffi::c_int;
    const LIBRARY: &str = if cfg!(windows) { "cudart64_13.dll" } else { "libcudart.so.13" };
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: the signatures are those of CUDA's documentation. Both functions return 0 on success.
    let failures = unsafe {
        let library = libloading::Library::new(LIBRARY).ok()?;
        let choose = library.get::<unsafe extern "C" fn(c_int) -> c_int>(b"cudaSetDevice\0").ok()?;
        let ask =
            library.get::<unsafe extern "C" fn(*mut usize, *mut usize) -> c_int>(b"cudaMemGetInfo\0").ok()?;
        [choose(cuda.device), ask(&mut free, &mut total)]
    };
    (failures == [0, 0]).then_some(free as u64)
}

/// The cause in a message of [`no_cuda`], without what to do.
fn brief(message: &str) -> String {
    let reason = message.split_once(UNUSABLE).map_or(message, |(_, reason)| reason);
    format!("CUDA can't be used: {}", reason.split(". ").next().unwrap_or(reason))
}

const UNUSABLE: &str = "CUDA can't be used: ";

/// Turns a failure of CUDA into a usage error with the next step. ONNX Runtime's message is long; the end of
/// its first line states the cause.
pub(super) fn no_cuda(cuda: Cuda, message: &str) -> Error {
    let has = |any: &[&str]| any.iter().any(|text| message.contains(text));
    let next = if has(&["not enabled in this build", "is not available", "ailed to find symbol"]) {
        format!(
            "This library of ONNX Runtime was built without CUDA. Install the one with it: `pip uninstall onnxruntime`, then `pip install \
             onnxruntime-gpu`. Or fetch it, `cargo xtask setup --cuda`, and name it: --ort-lib \
             target/onnxruntime-gpu (any onnxruntime-gpu {VERSION} will do)"
        )
    } else if has(&["libcuda.so"]) {
        "The NVIDIA driver is missing, or the system's loader doesn't find its libcuda: see whether `nvidia-smi` runs".to_string()
    } else if has(&["cannot open shared object", "ailed to load library", "LoadLibrary failed"]) {
        "A library is missing: CUDA 13 and cuDNN 9 must be in the Python environment (`pip install nvidia-cudnn-cu13 nvidia-cublas \
         nvidia-cufft nvidia-curand nvidia-cuda-nvrtc nvidia-cuda-runtime`) or where the system's loader looks, such as in LD_LIBRARY_PATH"
            .to_string()
    } else if has(&["invalid device ordinal", "nvalid device"]) {
        format!("There is no device {}: `nvidia-smi -L` lists those there are", cuda.device)
    } else {
        "See whether `nvidia-smi` shows the GPU, and a driver for CUDA 13 or newer".to_string()
    };
    let reason = message.trim().lines().next().unwrap_or_default().trim_end_matches('.');
    let reason = reason.rsplit(" : FAIL : ").next().unwrap_or(reason);
    Error::usage(format!("--ep {}: {UNUSABLE}{reason}. {next}. --ep cpu does without", Provider::Cuda(cuda)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_cuda_say_what_to_do() {
        let says = |message: &str| no_cuda(Cuda { device: 3, ..Cuda::default() }, message).message;
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
        assert_eq!(
            brief(&says("libcudnn.so.9: cannot open shared object file")),
            "CUDA can't be used: libcudnn.so.9: cannot open shared object file"
        );
        assert!(says("CUDA failure 35: CUDA driver version is insufficient").contains("nvidia-smi"));
    }
}

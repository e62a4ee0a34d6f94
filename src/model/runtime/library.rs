//! Finding and loading ONNX Runtime's shared library.

use super::version::VERSION;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

static ENVIRONMENT: OnceLock<ort::environment::Environment> = OnceLock::new();
static VERSION_FOUND: OnceLock<String> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Loads the library, once per process. The search order is `path`, the variable ORT_DYLIB_PATH, then the folders at
/// and above the executable, where `cargo xtask setup` puts the library. Errors (exit code 2): the library is not
/// found, or it does not load.
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
    // ONNX Runtime's warnings are about graphs that this program built, so users cannot act on them. Its errors are
    // returned.
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    let _ = VERSION_FOUND.set(stated_version(&library).unwrap_or_else(|| VERSION.to_string()));
    let _ = ENVIRONMENT.set(environment);
    Ok(())
}

/// The environment of the loaded library. Errors: [`load`] was not called.
pub(super) fn environment() -> Result<&'static ort::environment::Environment> {
    ENVIRONMENT.get().ok_or_else(|| Error::internal("ONNX Runtime is used before it is loaded"))
}

/// The version that the loaded ONNX Runtime states, such as 1.31.0; empty before [`load`].
pub fn version() -> String {
    VERSION_FOUND.get().cloned().unwrap_or_default()
}

/// What the loaded ONNX Runtime says of its build: commit, flags. Two libraries of one version may differ in it.
pub fn build() -> String {
    ort::info().to_string()
}

/// Asks a library for its version. The library is loaded already, so that this opens it only by name.
#[allow(unsafe_code)] // ort reads the version too, and keeps it to itself.
fn stated_version(library: &Path) -> Option<String> {
    use std::ffi::{CStr, c_char, c_void};
    /// ONNX Runtime's entry point, `OrtApiBase` of onnxruntime_c_api.h.
    #[repr(C)]
    struct Base {
        api: unsafe extern "C" fn(u32) -> *const c_void,
        version: unsafe extern "C" fn() -> *const c_char,
    }
    // SAFETY: the signatures are those of ONNX Runtime's header, which never change. Both pointers are static.
    unsafe {
        let library = libloading::Library::new(library).ok()?;
        let base = library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0").ok()?();
        let version = CStr::from_ptr((base.as_ref()?.version)());
        Some(version.to_str().ok()?.to_string())
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

/// Finds the runtime's shared library in a folder. The libraries of its providers beside it have longer names.
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

/// The number of physical cores that this process may use. Two threads on one core would compete for its arithmetic
/// units.
pub fn cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let core = |cpu: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(path).ok()
    };
    let distinct: BTreeSet<String> = (0..).map_while(core).collect();
    if distinct.is_empty() { allowed } else { allowed.min(distinct.len()) }
}

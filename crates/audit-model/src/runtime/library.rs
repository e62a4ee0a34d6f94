//! Finding and loading ONNX Runtime's shared library.

use super::disable_telemetry;
use super::places::{PLACES, Surroundings, cuda_libraries, list};
use super::version::{NEWEST, OLDEST, VERSION};
use crate::memory;
use audit_base::{Error, Result};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

static ENVIRONMENT: OnceLock<(ort::environment::Environment, PathBuf)> = OnceLock::new();
static VERSION_FOUND: OnceLock<String> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// How to get a library, for errors.
const FETCH: &str = "`pip install onnxruntime` brings one, and so does `cargo xtask setup` in a checkout";

/// Loads the library, once per process. The search order is `path`, the variable ORT_DYLIB_PATH, then the
/// rows of `PLACES`: the folders at and above the program, its Python environment, conda, the system. Of
/// these places the first library that loads serves. Errors (exit code 2): no library is found, or none
/// loads; every place is named.
///
/// Its telemetry is off ([`disable_telemetry`], which says what that asks of callers with threads). All its
/// sessions together take at most `memory` for their tensors, of which the default is what is free less a
/// reserve ([`crate::memory`]). Later calls refuse another `memory` (exit code 2), and find the library of
/// the first.
pub fn load(path: Option<&Path>, memory: Option<memory::Bytes>) -> Result<()> {
    let _one_at_a_time = LOADING.lock();
    if ENVIRONMENT.get().is_some() {
        return memory::refuse_other(memory);
    }
    disable_telemetry();
    let (environment, library) = match named_library(path)? {
        Some(library) => {
            let loaded = open(&library).map_err(|e| {
                let name = library.display();
                Error::usage(format!(
                    "can't load ONNX Runtime from {name}: {e}. Version {VERSION} is recommended: {FETCH}"
                ))
            })?;
            (loaded, library)
        }
        None => search(&Surroundings::here())?,
    };
    // ONNX Runtime's warnings are about graphs that this program built, so users cannot act on them. Its
    // errors are returned.
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    memory::settle(memory);
    if let Some(limit) = memory::limit() {
        share_arena(&environment, limit.bytes).map_err(super::fault("limiting its memory"))?;
    }
    let _ = VERSION_FOUND.set(stated_version(&library).unwrap_or_else(|| VERSION.to_string()));
    let _ = ENVIRONMENT.set((environment, library));
    Ok(())
}

fn open(library: &Path) -> std::result::Result<ort::environment::Environment, String> {
    // ort's own refusal names versions of ort.
    if let Some(found) = stated_version(library).filter(|found| age(found) == Some(Age::TooOld)) {
        return Err(format!("its version is {found}, and the oldest that works is {}", minor(OLDEST)));
    }
    let started = ort::init_from(library).map_err(|e| e.to_string())?;
    started.with_name("audit").with_telemetry(false).build().map_err(|e| e.to_string())
}

/// Makes the arena of `bytes` at most that all sessions on the CPU take their tensors from, by
/// [`SessionBuilder::with_env_allocators`]. A request beyond it fails before any memory is used. ort doesn't
/// wrap these functions.
///
/// [`SessionBuilder::with_env_allocators`]: ort::session::builder::SessionBuilder::with_env_allocators
#[allow(unsafe_code)]
fn share_arena(environment: &ort::environment::Environment, bytes: u64) -> ort::Result<()> {
    use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
    use ort::{AsPointer, ortsys};
    let keys = [c"max_mem".as_ptr()];
    let values = [usize::try_from(bytes).unwrap_or(usize::MAX)];
    let memory = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Arena, MemoryType::Default)?;
    let mut settings = std::ptr::null_mut();
    // SAFETY: the arrays have one element each and outlive the call; the key is a zero-terminated string; the
    // result is a local.
    ortsys![unsafe CreateArenaCfgV2(keys.as_ptr(), values.as_ptr(), keys.len(), &mut settings)?];
    let register = || -> ort::Result<()> {
        // SAFETY: all three are alive during the call. ONNX Runtime copies the settings, and locks its
        // environment while it changes it.
        ortsys![unsafe CreateAndRegisterAllocator(environment.ptr().cast_mut(), memory.ptr(), settings)?];
        Ok(())
    };
    let registered = register();
    // SAFETY: the settings were made above, and nothing uses them any more.
    ortsys![unsafe ReleaseArenaCfg(settings)];
    registered
}

/// Loads the first library that serves.
fn search(at: &Surroundings) -> Result<(ort::environment::Environment, PathBuf)> {
    let mut seen = Vec::new();
    for place in &PLACES {
        let folders = (place.folders)(at);
        let mut failures = Vec::new();
        for library in folders.iter().filter_map(|folder| library_in(folder)) {
            match open(&library) {
                Ok(environment) => return Ok((environment, library)),
                Err(e) => failures.push(format!("{} doesn't load: {e}", library.display())),
            }
        }
        let listed = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        let found = match (failures.is_empty(), folders.is_empty()) {
            (false, _) => failures.join("; "),
            (true, false) => format!("no library in {listed}"),
            (true, true) => "there is none".into(),
        };
        seen.push(format!("\n  {}: {found}", place.name));
    }
    Err(Error::usage(format!(
        "ONNX Runtime {VERSION} isn't here: neither --ort-lib nor ORT_DYLIB_PATH names a library, and no other place has one that \
         serves:{}\n{FETCH}. If `audit` is outside of the Python environment that has onnxruntime, set ORT_DYLIB_PATH to \
         the folder onnxruntime/capi there",
        seen.concat()
    )))
}

/// Loads the libraries of CUDA and cuDNN that Python packages brought, so that ONNX Runtime's CUDA provider
/// finds them without LD_LIBRARY_PATH. What does not load is left to the provider, whose error names it.
#[allow(unsafe_code)] // Loading a library runs its initialisers.
pub(super) fn preload_cuda() {
    let Some((_, runtime)) = ENVIRONMENT.get() else { return };
    for path in cuda_libraries(runtime, &Surroundings::here()) {
        // SAFETY: these are NVIDIA's libraries, which ONNX Runtime would load in the same way. They are never
        // unloaded.
        if let Ok(library) = unsafe { libloading::Library::new(path) } {
            std::mem::forget(library);
        }
    }
}

/// The environment of the loaded library. Errors: [`load`] was not called.
pub(super) fn environment() -> Result<&'static ort::environment::Environment> {
    let loaded = ENVIRONMENT.get().map(|(environment, _)| environment);
    loaded.ok_or_else(|| Error::internal("ONNX Runtime is used before it is loaded"))
}

/// The version that the loaded ONNX Runtime states, such as 1.31.0; empty before [`load`].
pub fn version() -> String {
    VERSION_FOUND.get().cloned().unwrap_or_default()
}

/// A note if the loaded version was not tested; `None` if it was, or before [`load`].
pub fn untested() -> Option<String> {
    untested_version(VERSION_FOUND.get()?)
}

fn untested_version(found: &str) -> Option<String> {
    let (oldest, newest) = (minor(OLDEST), minor(NEWEST));
    (age(found) != Some(Age::Tested)).then(|| {
        format!(
            "ONNX Runtime {found} is not among the versions that audit was tested with, {oldest} to {newest}. The check at load compares \
             embeddings and gradients all the same"
        )
    })
}

/// Where a version is in the range of those that work.
#[derive(Debug, PartialEq)]
enum Age {
    TooOld,
    Tested,
    Newer,
}

/// `None` if it isn't written as versions are.
fn age(version: &str) -> Option<Age> {
    let [oldest, newest, found] = [OLDEST, NEWEST, version].map(numbers);
    let found = found?;
    Some(match () {
        () if Some(found) < oldest => Age::TooOld,
        () if Some(found) > newest => Age::Newer,
        () => Age::Tested,
    })
}

/// Major and minor version. What comes after them changes no interface.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Whether ONNX Runtime folds no constant of a size that is unknown or beyond a bound
/// ([`super::sizes::MOST_FOLDED`]).
pub(super) fn bounds_folding() -> bool {
    VERSION_FOUND.get().and_then(|found| numbers(found)) >= Some((1, 27))
}

/// 1.24 of 1.24.1.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// Build information of the loaded ONNX Runtime: commit, flags. Two libraries of one version may differ in
/// it.
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
    // SAFETY: the signatures are those of ONNX Runtime's header, which never change. Both pointers are
    // static.
    unsafe {
        let library = libloading::Library::new(library).ok()?;
        let base = library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0").ok()?();
        let version = CStr::from_ptr((base.as_ref()?.version)());
        Some(version.to_str().ok()?.to_string())
    }
}

/// The library that the user names: by the flag, `given`, or else by ORT_DYLIB_PATH; a folder stands for the
/// library in it.
fn named_library(given: Option<&Path>) -> Result<Option<PathBuf>> {
    let from_env = || std::env::var_os("ORT_DYLIB_PATH").filter(|v| !v.is_empty()).map(PathBuf::from);
    let named = given.map(|path| (path.to_path_buf(), "--ort-lib"));
    let Some((path, by)) = named.or_else(|| from_env().map(|path| (path, "ORT_DYLIB_PATH"))) else {
        return Ok(None);
    };
    let found = if path.is_dir() { library_in(&path) } else { path.is_file().then(|| path.clone()) };
    found.map(Some).ok_or_else(|| {
        Error::usage(format!(
            "{by} names {}, where there is no ONNX Runtime library. Give the path of libonnxruntime.so \
             (.dylib, onnxruntime.dll), or leave it out: {FETCH}",
            path.display()
        ))
    })
}

/// Finds the runtime's shared library in a folder. The libraries of its providers beside it have longer
/// names.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let is_library = |name: &str| {
        name == "onnxruntime.dll"
            || name.starts_with("libonnxruntime.so")
            || (name.starts_with("libonnxruntime.") && name.ends_with(".dylib"))
    };
    list(dir).into_iter().rfind(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(is_library))
}

/// The number of physical cores that this process may use. Two threads on one core would compete for its
/// arithmetic units.
pub fn cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    cores_of(allowed, &|path| std::fs::read_to_string(path).ok())
}

/// The physical cores of the CPUs that this process may run on, at most `allowed`, which a quota may set. An
/// offline CPU has no topology.
fn cores_of(allowed: usize, read: &dyn Fn(&str) -> Option<String>) -> usize {
    let status = read("/proc/self/status").unwrap_or_default();
    let mine = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let core = |cpu: usize| read(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let distinct: BTreeSet<String> = mine.split(',').filter_map(cpus).flatten().filter_map(core).collect();
    if distinct.is_empty() { allowed } else { allowed.min(distinct.len()) }
}

/// The CPUs of a part of a list, such as 4-7 or 9.
fn cpus(part: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_that_this_process_may_use() {
        // 8 CPUs, two to a core: neighbours, or `apart` by 4.
        let cores = |allowed: usize, mine: &str, apart: bool, offline: &[usize]| {
            cores_of(allowed, &|path| {
                if path == "/proc/self/status" {
                    return Some(format!(
                        "Name:\taudit\nCpus_allowed_list:\t{mine}\nMems_allowed_list:\t0\n"
                    ));
                }
                let cpu = path.strip_prefix("/sys/devices/system/cpu/cpu")?;
                let cpu: usize = cpu.strip_suffix("/topology/thread_siblings_list")?.parse().ok()?;
                let core = if apart { cpu % 4 } else { cpu / 2 };
                (cpu < 8 && !offline.contains(&cpu)).then(|| format!("core {core}\n"))
            })
        };
        assert_eq!(cores(8, "0-7", false, &[]), 4);
        // Hyper-threading is off, and the CPUs 1, 3, 5, 7 are offline.
        assert_eq!(cores(4, "0-7", false, &[1, 3, 5, 7]), 4);
        assert_eq!(cores(7, "0-7", true, &[0]), 4);
        // taskset: two CPUs of one core, or of two; a quota of three CPUs.
        assert_eq!(cores(2, "0,4", true, &[]), 1);
        assert_eq!(cores(3, "0-1,4", true, &[]), 2);
        assert_eq!(cores(3, "0-7", false, &[]), 3);
        // Other systems.
        assert_eq!(cores_of(6, &|_| None), 6);
    }

    #[test]
    fn versions_from_the_oldest_to_the_newest_are_tested() {
        for (version, expected) in [
            ("1.23.2", Age::TooOld),
            ("1.9.0", Age::TooOld),
            ("0.40.0", Age::TooOld),
            ("1.24.0", Age::Tested),
            (OLDEST, Age::Tested),
            (VERSION, Age::Tested),
            (NEWEST, Age::Tested),
            ("1.32.7", Age::Tested),
            ("1.33.0", Age::Newer),
            ("1.100.0", Age::Newer),
            ("2.0.0", Age::Newer),
        ] {
            assert_eq!(age(version), Some(expected), "{version}");
        }
        assert_eq!(age("main"), None);
        assert_eq!(untested_version(NEWEST), None);
        for version in ["1.33.0", "main"] {
            let warning = untested_version(version).unwrap();
            assert!(warning.contains(version) && warning.contains("1.24 to 1.32"), "{warning}");
        }
    }
}

//! Free memory of the host and of a GPU.

use super::runtime::{Cuda, Provider};

/// Bytes that are free where `provider` computes; `None` where the system does not report them.
pub fn available(provider: Provider) -> Option<u64> {
    match provider {
        Provider::Cpu => on_host(),
        Provider::Cuda(cuda) => on_device(cuda),
    }
}

fn on_host() -> Option<u64> {
    let about = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
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

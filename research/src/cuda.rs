//! `cargo research cuda DIR`: everything that a machine with a GPU needs to run audit, small enough to be
//! carried there.
//!
//! The library of CUDA kernels holds each of them for every GPU: those of one GPU are kept (by
//! slim_cuda_provider.py of the reference data), and everything is compressed by xz. CUDA, cuDNN and the
//! driver are the machine's.

use crate::bench;
use clap::Args;
use std::{fs, path::PathBuf, process::Command};
use xtask::{
    project::{Error, Result, built, cargo, file, output, reference, root, run, shown, target},
    python, setup,
    wheel::megabytes,
};

/// What is packed, for which GPU.
#[derive(Args)]
pub struct Flags {
    /// The folder to write
    dir: PathBuf,
    /// Compute capability of the GPU
    #[arg(default_value_t = 90)]
    capability: u32,
}

/// Arguments: source, target. Machine code takes 3 % less with absolute jumps.
const XZ: &str = "
import lzma, shutil, sys
filters = [{'id': lzma.FILTER_X86}, {'id': lzma.FILTER_LZMA2, 'preset': 9}]
with open(sys.argv[1], 'rb') as source, lzma.open(sys.argv[2], 'wb', filters=filters) as target:
    shutil.copyfileobj(source, target, 1 << 20)
";

pub fn pack(flags: &Flags) -> Result {
    let Flags { dir, capability } = flags;
    let slim = reference("tools/slim_cuda_provider.py");
    if !slim.is_file() {
        return Err(Error::Failed(format!(
            "packing needs {}, which is not there; without it, copy target/release/audit and target/onnxruntime-gpu as they are",
            slim.display()
        )));
    }
    let python = python::environment()?;
    setup::setup_cuda()?;
    run(&mut cargo(&["build", "--release", "--locked", "--bin", "audit"]))?;

    let draft = setup::Draft::beside(&target()?.join("cuda-pack"))?;
    file("make", dir, fs::create_dir_all(dir))?;
    let gpu = target()?.join("onnxruntime-gpu");
    run(Command::new(&python)
        .arg(&slim)
        .arg(gpu.join("libonnxruntime_providers_cuda.so"))
        .arg(draft.0.join("libonnxruntime_providers_cuda.so"))
        .args(["--keep", &capability.to_string()]))?;
    for (from, name) in [(built("release/audit")?, "audit"), (crate::this_program()?, "measure")] {
        run(Command::new("strip").arg("-o").arg(draft.0.join(name)).arg(&from))?;
    }
    for name in ["libonnxruntime.so", "libonnxruntime_providers_shared.so"] {
        file("copy", &gpu.join(name), fs::copy(gpu.join(name), draft.0.join(name)))?;
    }
    let tools = root().join("research/tools");
    let models = tools.join("cuda_models.py");
    run(Command::new(&python).arg(&models).arg(&draft.0).args(bench::MODELS))?;
    for name in ["plain.onnx", "hardened.onnx"] {
        let from = root().join("models").join(name);
        file("copy", &from, fs::copy(&from, draft.0.join(name)))?;
    }

    let protocol = reference("tools/reference_audit.py");
    for from in [tools.join("bench_step.py"), tools.join("bench_suite.py"), protocol] {
        let name = from.file_name().unwrap_or_default();
        file("copy", &from, fs::copy(&from, draft.0.join(name)))?;
    }

    let mut whole = 0;
    let mut names: Vec<_> =
        file("read", &draft.0, fs::read_dir(&draft.0))?.flatten().map(|e| e.path()).collect();
    names.sort();
    for path in &names {
        let packed = dir.join(format!("{}.xz", path.file_name().unwrap_or_default().to_string_lossy()));
        output(python::script(&python, XZ).arg(path).arg(&packed))?;
        whole += file("read", &packed, fs::metadata(&packed))?.len();
        println!("  {}: {} of {}", shown(&packed), megabytes(&packed), megabytes(path));
    }
    let script = tools.join("cuda_run.sh");
    file("copy", &script, fs::copy(&script, dir.join("run.sh")))?;
    println!("{}: {:.1} MB. On the machine: sh {}/run.sh", shown(dir), whole as f64 / 1e6, shown(dir));
    Ok(())
}

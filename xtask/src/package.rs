//! `cargo xtask wheel`: the package `onnx-audit` as pip installs it, and what its tests say of it.

use crate::{
    project::{Error, Result, Since, file, output, remove, root, run, shown, target},
    python,
    wheel::megabytes,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

pub const ARGUMENTS: &str = "[--manylinux]";

/// The oldest glibc that published wheels run on: that of RHEL 8, Debian 11 and Ubuntu 20.04.
const MANYLINUX: &str = "manylinux_2_28";

/// Builds the wheel, installs it into a fresh environment, and tests it there.
pub fn wheel(arguments: &[String]) -> Result {
    let manylinux = match arguments {
        [] => false,
        [flag] if flag == "--manylinux" => true,
        [first, ..] => {
            return Err(Error::Usage(format!("wheel takes {ARGUMENTS}, and found `{first}`")));
        }
    };
    let folder = target()?.join("wheel");
    let built = build(&folder, manylinux)?;
    println!("wheel: {}, {}", shown(&built), megabytes(&built));
    let python = fresh(&folder, &built)?;
    audit_alone(&folder, &python)?;
    test(&python)
}

/// Builds the wheel with maturin: for this machine, or, with zig as the linker, for any Linux since
/// `MANYLINUX`.
fn build(folder: &Path, manylinux: bool) -> Result<PathBuf> {
    let started = Instant::now();
    let tools = tools(folder)?;
    let out = folder.join(if manylinux { MANYLINUX } else { "native" });
    remove(&out)?;
    let mut maturin = Command::new(&tools);
    maturin.args(["-m", "maturin", "build", "--release", "--out"]).arg(&out).current_dir(root());
    if manylinux {
        let linker = zig_linker(folder, &tools)?;
        maturin.args(["--compatibility", MANYLINUX, "--", "-C"]).arg(format!("linker={}", linker.display()));
    }
    run(&mut maturin)?;
    let found = file("read", &out, fs::read_dir(&out))?.flatten().map(|entry| entry.path());
    let wheel = found
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("expected a wheel from maturin in {}, found none", shown(&out)))?;
    println!("built in {}", Since(started));
    Ok(wheel)
}

/// `cargo xtask container`: the images of the Dockerfile, or, where nothing builds images, what a linter says
/// of it.
pub fn container() -> Result {
    let tools = tools(&target()?.join("wheel"))?;
    run(Command::new(tools.with_file_name("hadolint")).arg("Dockerfile").current_dir(root()))?;
    println!("hadolint has nothing to say about the Dockerfile");
    if output(Command::new("docker").arg("info")).is_err() {
        println!("skipped: no docker builds images here");
        return Ok(());
    }
    for name in ["cpu", "cuda"] {
        let mut build = Command::new("docker");
        build.args(["build", "--target", name, "--tag", &format!("audit-{name}"), "."]).current_dir(root());
        run(&mut build)?;
    }
    run(Command::new("docker").args(["run", "--rm", "audit-cpu", "--version"]))
}

/// The Python with what tools/requirements-wheel.txt lists.
fn tools(folder: &Path) -> Result<PathBuf> {
    let python = environment(&folder.join("tools"))?;
    let list = root().join("tools/requirements-wheel.txt");
    python::install(&python, ["--requirement".as_ref(), list.as_os_str()])?;
    Ok(python)
}

/// A script that links as cc does, with zig and for the glibc of `MANYLINUX`. What is compiled doesn't depend
/// on the version of glibc, and which version is needed is settled by the linker: so only the program is
/// linked anew.
fn zig_linker(folder: &Path, tools: &Path) -> Result<PathBuf> {
    let bin = tools.parent().unwrap_or(tools);
    let glibc = MANYLINUX.trim_start_matches("manylinux_").replace('_', ".");
    let text = format!(
        "#!/bin/sh\nPATH=\"{0}:$PATH\" exec \"{0}/maturin\" zig cc -- -target {1}-linux-gnu.{glibc} \"$@\"\n",
        bin.display(),
        env::consts::ARCH
    );
    let script = folder.join("zig-linker.sh");
    file("write", &script, fs::write(&script, text))?;
    run(Command::new("chmod").arg("+x").arg(&script))?;
    Ok(script)
}

/// A virtual environment, made anew where there is none that works.
pub fn environment(folder: &Path) -> Result<PathBuf> {
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if python::pip(&python).is_err() {
        run(Command::new(python::find()?).args(["-m", "venv", "--clear"]).arg(folder)).map_err(|error| {
            error.then(
                "if venv or ensurepip is missing, install it (Debian, Ubuntu: apt install python3-venv)",
            )
        })?;
    }
    Ok(python)
}

/// A fresh environment with the wheel and its extra `cpu`, and nothing else.
fn fresh(folder: &Path, wheel: &Path) -> Result<PathBuf> {
    let venv = folder.join("venv");
    remove(&venv)?;
    let python = environment(&venv)?;
    python::install(&python, [format!("{}[cpu]", wheel.display())])?;
    Ok(python)
}

/// The installed command audits the bundled model in a folder that has nothing else of ours.
fn audit_alone(folder: &Path, python: &Path) -> Result {
    let alone = folder.join("alone");
    remove(&alone)?;
    file("make", &alone, fs::create_dir_all(&alone))?;
    for name in ["plain.onnx", "plain.yaml"] {
        let from = root().join("models").join(name);
        file("copy", &from, fs::copy(&from, alone.join(name)))?;
    }
    let mut audit = Command::new(python.with_file_name("audit"));
    audit.args(["--suite", "smoke", "plain.onnx", "-q", "-o", "report.json"]).current_dir(&alone);
    for variable in ["ORT_DYLIB_PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX", "PYTHONPATH"] {
        audit.env_remove(variable);
    }
    output(&mut audit)?;
    println!("the installed audit wrote {}", shown(&alone.join("report.json")));
    Ok(())
}

/// Runs python/tests on the installed package. Libraries of `target/python` are visible where it is there,
/// for tests that need PyTorch.
fn test(python: &Path) -> Result {
    let site = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let torch = target()?.join("python/bin/python");
    if torch.is_file() {
        let [theirs, ours] = [&torch, python].map(|python| output(&mut python::script(python, site)));
        let link = PathBuf::from(ours?).join("target-python.pth");
        file("write", &link, fs::write(&link, theirs? + "\n"))?;
    }
    let list = root().join("python/requirements-test.txt");
    python::install(python, ["--requirement".as_ref(), list.as_os_str()])?;
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "python/tests"]).current_dir(root());
    for variable in ["AUDIT_BIN", "ORT_DYLIB_PATH", "PYTHONPATH"] {
        pytest.env_remove(variable);
    }
    run(&mut pytest)
}

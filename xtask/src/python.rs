//! Python: the user's own, for fetching and unpacking, and `target/python`, where PyTorch and its exporters
//! live.

use crate::package;
use crate::project::{Error, Result, Since, file, output, root, run, shown, target};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The user's Python 3.
pub fn find() -> Result<PathBuf> {
    let starts = |program: &&str| {
        works(Command::new(program).args(["-c", "import sys; sys.exit(sys.version_info < (3,))"]))
    };
    ["python3", "python"].iter().find(|program| starts(program)).map(PathBuf::from).ok_or_else(|| {
        Error::Failed(
            "expected Python 3 as `python3` or `python` on the PATH, found neither; install it \
             (Debian, Ubuntu: apt install python3-pip python3-venv)"
                .to_owned(),
        )
    })
}

/// That Python's pip, with the user's own settings, proxies and caches.
pub fn pip(python: &Path) -> Result<Command> {
    let command = || {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip"]);
        pip
    };
    if !works(command().arg("--version")) {
        return Err(Error::Failed(format!(
            "expected pip in {}, found none; install it (Debian, Ubuntu: apt install python3-pip; elsewhere: {} -m ensurepip)",
            python.display(),
            python.display()
        )));
    }
    let mut pip = command();
    pip.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").stdin(Stdio::null());
    Ok(pip)
}

/// A few lines of Python, run apart from the user's own modules.
pub fn script(python: &Path, code: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-I", "-c", code]).stdin(Stdio::null());
    command
}

fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The user's Python, and a folder with the package `onnx` for it: the versions are those of
/// tools/requirements.txt.
pub fn with_onnx() -> Result<(PathBuf, PathBuf)> {
    let list = root().join("tools/requirements.txt");
    let text = file("read", &list, fs::read_to_string(&list))?;
    let wanted: Vec<&str> = text
        .lines()
        .filter(|line| {
            ["onnx", "numpy", "protobuf", "ml_dtypes", "typing_extensions"]
                .iter()
                .any(|n| line.split("==").next() == Some(n))
        })
        .collect();
    let python = find()?;
    let folder = target()?.join("onnx");
    let stamp = folder.join("requirements.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|found| found == wanted.join("\n")) {
        println!("Python: installing {} into {}", wanted.join(", "), shown(&folder));
        let mut install = pip(&python)?;
        install
            .args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade", "--target"])
            .arg(&folder)
            .args(&wanted);
        run(&mut install)
            .map_err(|error| error.then("pip's own words are above; the list wants Python 3.11 or newer"))?;
        file("write", &stamp, fs::write(&stamp, wanted.join("\n")))?;
    }
    Ok((python, folder))
}

/// What the requirements are for. Importing it all proves the list complete, for pip was told not to look.
const IMPORTS: &str = "import torch, torchvision, timm, transformers, open_clip, onnx, onnxscript, onnxruntime, onnxconverter_common, onnx2pytorch, sklearn, duckdb";

/// The Python in `target/python` with all that `tools/requirements.txt` lists, installed if it is not there
/// yet.
pub fn environment() -> Result<PathBuf> {
    let started = Instant::now();
    let list = root().join("tools/requirements.txt");
    let wanted = file("read", &list, fs::read_to_string(&list))?;
    let folder = target()?.join("python");
    let python = package::environment(&folder)?;
    // The stamp is the list itself: whoever wonders what is installed can read it. An environment that was
    // made anew has none.
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        println!("Python: {} has what {} lists", shown(&folder), shown(&list));
        return Ok(python);
    }

    println!("Python: installing {} into {} (5 GB, a few minutes)", shown(&list), shown(&folder));
    let mut install = pip(&python)?;
    install.args(["install", "--quiet", "--no-deps", "--only-binary=:all:", "--requirement"]).arg(&list);
    run(&mut install).map_err(|error| {
        error.then("pip's own words are above. The list wants Python 3.11 or newer, 64-bit Linux, macOS or Windows, 5 GB of free \
             disk and a network; run again to go on where it stopped")
    })?;
    output(&mut script(&python, IMPORTS)).map_err(|error| {
        error.then("if a module is missing, tools/requirements.txt lacks it: the list is installed without looking up more")
    })?;
    file("write", &stamp, fs::write(&stamp, wanted))?;
    println!("  installed, and torch and the exporters import, in {}", Since(started));
    Ok(python)
}

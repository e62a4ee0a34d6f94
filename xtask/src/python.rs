//! Python: the user's own, for fetching and unpacking, and `target/python`, where PyTorch and its exporters
//! live.

use crate::package;
use crate::project::{Error, Result, Since, file, output, root, run, shown, target, works};
use std::{
    ffi::OsStr,
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

/// Has that Python's pip install what the words say.
pub fn install<W: AsRef<OsStr>>(python: &Path, words: impl IntoIterator<Item = W>) -> Result {
    twice(pip(python)?.args(["install", "--quiet"]).args(words))
}

/// Runs pip, and once more if that fails: pip tries a connection again, but it gives up if one breaks in the
/// middle of a file.
pub fn twice(pip: &mut Command) -> Result {
    run(pip).or_else(|_| {
        println!("  pip failed; trying once more");
        run(pip)
    })
}

/// A few lines of Python, run apart from the user's own modules.
pub fn script(python: &Path, code: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-I", "-c", code]).stdin(Stdio::null());
    command
}

/// The packages that `with_onnx` takes of tools/requirements.txt.
const ONNX: [&str; 5] = ["onnx", "numpy", "protobuf", "ml_dtypes", "typing_extensions"];

/// The Python in `target/onnx`, which has the package `onnx`.
pub fn with_onnx() -> Result<PathBuf> {
    let wanted = |line: &str| ONNX.contains(&line.split("==").next().unwrap_or_default());
    of_the_list("onnx", wanted, "import onnx", "0.1 GB")
}

/// What the requirements are for. Importing it all proves the list complete, for pip was told not to look.
const IMPORTS: &str = "import torch, torchvision, timm, transformers, open_clip, onnx, onnxscript, onnxruntime, onnxconverter_common, onnx2pytorch, sklearn, duckdb";

/// The Python in `target/python`, which has all that tools/requirements.txt lists.
pub fn environment() -> Result<PathBuf> {
    of_the_list("python", |_| true, IMPORTS, "5 GB")
}

/// The Python in a folder of `target`, with those packages of tools/requirements.txt whose lines are wanted.
/// They are installed if they are not there yet.
fn of_the_list(name: &str, wanted: impl Fn(&str) -> bool, imports: &str, size: &str) -> Result<PathBuf> {
    let started = Instant::now();
    let list = root().join("tools/requirements.txt");
    let text = file("read", &list, fs::read_to_string(&list))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && wanted(line));
    let wanted = lines.collect::<Vec<_>>().join("\n");
    let folder = target()?.join(name);
    let python = package::environment(&folder)?;
    // The stamp is the list itself: whoever wonders what is installed can read it. An environment that was
    // made anew has none.
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        println!("Python: {} has what {} lists", shown(&folder), shown(&list));
        return Ok(python);
    }

    println!("Python: installing what {} lists into {} ({size})", shown(&list), shown(&folder));
    // From here on, and if this is interrupted, it is not what an old stamp says.
    if stamp.exists() {
        file("remove", &stamp, fs::remove_file(&stamp))?;
    }
    let words = ["--no-deps", "--only-binary=:all:"].into_iter().chain(wanted.lines());
    install(&python, words).map_err(|error| {
        error.then(&format!(
            "pip's own words are above. The list wants Python 3.11 or newer, 64-bit Linux, macOS or Windows, free disk ({size}) \
             and a network; run again to go on where it stopped"
        ))
    })?;
    output(&mut script(&python, imports)).map_err(|error| {
        error.then("if a module is missing, tools/requirements.txt lacks it: the list is installed without looking up more")
    })?;
    file("write", &stamp, fs::write(&stamp, &wanted))?;
    println!("  installed, and all of it imports, in {}", Since(started));
    Ok(python)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::setup::Draft;
    use std::env;

    #[test]
    fn a_download_that_breaks_is_tried_once_more() {
        let draft = Draft::beside(&env::temp_dir().join("xtask-twice")).ok().unwrap();
        let tries = draft.0.join("tries");
        for (failures, expected) in [(0, (true, 1)), (1, (true, 2)), (9, (false, 2))] {
            fs::write(&tries, "").unwrap();
            let mut pip = Command::new("sh");
            pip.args(["-c", &format!("echo >> tries; [ $(wc -l < tries) -gt {failures} ]")])
                .current_dir(&draft.0);
            let ended = twice(&mut pip).is_ok();
            assert_eq!((ended, fs::read_to_string(&tries).unwrap().len()), expected, "{failures} failures");
        }
    }
}

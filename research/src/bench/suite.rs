//! `cargo research bench suite`: the ARS suite, from the model file to the report, beside the protocol in
//! PyTorch on the same trials. research/tools/bench_suite.py does the work.

use super::ONE_THREAD;
use super::ratios::{Benchmark, Cell, Turn};
use super::step::numbers;
use std::path::PathBuf;
use std::process::Command;
use xtask::project::{self, Result, built, cargo, reference, root, target};
use xtask::{python, setup};

/// Names that research/tools/bench_suite.py knows.
const MODELS: [&str; 3] = ["plain.onnx", "hardened.onnx", "tv.resnet18"];

const COLUMNS: &[(&str, Cell)] = &[
    ("images", Cell::Number(0, |n| n[0])),
    ("queries", Cell::Number(0, |n| n[1])),
    ("image steps", Cell::Number(0, |n| n[2])),
    ("ours", Cell::Seconds(3)),
    ("PyTorch", Cell::Seconds(5)),
    ("ours / PyTorch", Cell::Ratio(|n| n[3] / n[5])),
    ("ARS, ours", Cell::Number(2, |n| n[6])),
    ("PyTorch's", Cell::Number(2, |n| n[7])),
];

pub fn benchmark() -> Benchmark {
    let peer = match peer() {
        Some(_) => "the reference of the protocol",
        None => "research/tools/bench_suite.py",
    };
    Benchmark {
        name: "suite",
        about: format!("CPU seconds, one thread, beside {peer}"),
        of: "model",
        columns: COLUMNS,
        cases: MODELS.map(str::to_owned).to_vec(),
        usual: true,
        prepare: Box::new(prepare),
    }
}

/// The reference of the protocol, if it is there.
fn peer() -> Option<PathBuf> {
    Some(reference("tools/reference_audit.py")).filter(|path| path.is_file())
}

fn prepare() -> Result<Turn> {
    setup::setup()?;
    let python = python::environment()?;
    project::run(&mut cargo(&["build", "--release", "--locked"]))?;
    let audit = built("release/audit")?;
    let folder = target()?.join("bench");
    Ok(Box::new(move |name| {
        let mut command = Command::new(&python);
        command.arg(root().join("research/tools/bench_suite.py")).arg(&audit).arg(&folder);
        command.args([ONE_THREAD, "1", "cpu"]).args(peer()).args(["--model", name]);
        Ok(numbers::<8>(&mut command)?.to_vec())
    }))
}

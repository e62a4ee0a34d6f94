//! `cargo research bench step`: a PGD step of common embedding models, beside two forward passes, and beside
//! PyTorch's step on the same weights. Our half is `bench model`, PyTorch's research/tools/bench_step.py;
//! each is a process of its own.

use super::ONE_THREAD;
use super::ratios::{Benchmark, Cell, Turn};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::project::{self, Error, Result, output, root, target};
use xtask::{python, setup};

/// Names that research/tools/bench_step.py knows.
pub const MODELS: [&str; 9] = [
    "tv.resnet18",
    "tv.resnet50",
    "tv.resnext50_32x4d",
    "tv.regnet_y_400mf",
    "tv.efficientnet_b0",
    "tv.mobilenet_v3_large",
    "timm.convnext_tiny",
    "timm.vit_small_patch16_224",
    "timm.swin_tiny_patch4_window7_224",
];
const BATCH: usize = 8;
/// Seconds of each side in a turn; PyTorch has them for its forward pass and for each layout.
const SECONDS: usize = 3;

/// Columns of forward pass and step, and of PyTorch's forward pass, step, and step with channels last.
const COLUMNS: &[(&str, Cell)] = &[
    ("forward", Cell::Seconds(0)),
    ("step", Cell::Seconds(1)),
    ("step / (2 × forward)", Cell::Ratio(|t| t[1] / (2.0 * t[0]))),
    ("images/s", Cell::Number(1, |t| BATCH as f64 / t[1])),
    ("PyTorch forward", Cell::Seconds(2)),
    ("PyTorch step", Cell::Seconds(3)),
    ("channels-last", Cell::Seconds(4)),
    ("ours / its best", Cell::Ratio(|t| t[1] / t[3].min(t[4]))),
];

/// The benchmark of these models, or of all.
pub fn benchmark(models: Vec<String>) -> Result<Benchmark> {
    let usual = models.is_empty();
    let cases = if usual { MODELS.map(str::to_owned).to_vec() } else { models };
    cases.iter().try_for_each(|name| known(name))?;
    let about = format!("CPU seconds, batch {BATCH}, one thread");
    Ok(Benchmark {
        name: "step",
        about,
        of: "model",
        columns: COLUMNS,
        cases,
        usual,
        prepare: Box::new(prepare),
    })
}

/// Refuses models that research/tools/bench_step.py can't make: names are those of torchvision (`tv.`) and
/// timm (`timm.`).
fn known(name: &str) -> Result {
    let rest = name.strip_prefix("tv.").or_else(|| name.strip_prefix("timm."));
    match rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic())) {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "bench step: expected names of models such as {} and {}, found `{name}`",
            MODELS[0], MODELS[6]
        ))),
    }
}

fn prepare() -> Result<Turn> {
    setup::setup()?;
    let python = python::environment()?;
    let program = crate::this_program()?;
    let [batch, seconds] = [BATCH, SECONDS].map(|n| n.to_string());
    Ok(Box::new(move |name| {
        let onnx = exported(&python, name)?;
        let mut ours = Command::new(&program);
        ours.args(["bench", "model"]).arg(onnx).args([&batch, ONE_THREAD, &seconds]);
        let mut theirs = Command::new(&python);
        theirs.arg(script()).args(["time", name, &batch, ONE_THREAD, &seconds]);
        Ok([numbers::<2>(&mut ours)?.to_vec(), numbers::<3>(&mut theirs)?.to_vec()].concat())
    }))
}

fn script() -> PathBuf {
    root().join("research/tools/bench_step.py")
}

/// The file of a model with random weights, made if it is missing.
pub fn exported(python: &Path, name: &str) -> Result<PathBuf> {
    let folder = target()?.join("bench");
    let file = folder.join(format!("{name}.onnx"));
    if !file.is_file() {
        project::run(Command::new(python).arg(script()).arg("export").arg(&folder).arg(name))?;
    }
    Ok(file)
}

/// The numbers that a command prints.
pub fn numbers<const N: usize>(command: &mut Command) -> Result<[f64; N]> {
    let printed = output(command)?;
    let numbers: Option<Vec<f64>> = printed.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
        Error::Failed(format!("expected {N} numbers from {}, found {printed:?}", project::line(command)))
    })
}

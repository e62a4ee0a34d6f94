//! `cargo research bench`: measurements of audit, beside a peer where there is one. Results go into docs/performance.md, those
//! of `strong` into docs/strength.md.

mod file;
mod graph;
mod load;
mod members;
mod rank;
mod step;
mod strong;

use crate::Outcome;
use clap::Subcommand;
use std::{
    fs,
    process::Command,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use xtask::{
    project::{self, Error, Result, cargo, file, output, reference, root, shown, target},
    python, setup,
};

/// Benchmarks. With their own sizes, the result is written into the documentation.
#[derive(Subcommand)]
pub enum Bench {
    /// Exact ranks in a large gallery, beside the bare matrix product of the same size
    Rank(rank::Sizes),
    /// Steps of PGD, beside PyTorch's on the same weights
    Step {
        /// Models of torchvision (tv.resnet18) and timm (timm.convnext_tiny)
        models: Vec<String>,
    },
    /// Whole audits, beside the protocol in PyTorch
    Suite,
    /// The strong search beside the published suites, more effort and the attacks of others
    Strong(strong::Flags),
    /// CPU time and memory of loading a model of many nodes
    Load(load::Flags),
    /// One side of `bench step`: seconds of a forward pass and of a step of one model
    Model(step::Flags),
    /// A step on a photograph, through resize and crop, beside one at the model's input
    File(file::Flags),
    /// Time graphs of one operator or a few, such as bench_forms.py writes
    Graph(graph::Flags),
    /// One part of `bench strong`: each member of the strong search alone
    Members(members::Flags),
}

/// Runs a benchmark.
pub fn run(bench: Bench) -> Outcome {
    match bench {
        Bench::Rank(sizes) => rank(&sizes)?,
        Bench::Step { models } => step(&models)?,
        Bench::Suite => suite()?,
        Bench::Strong(flags) => strong::strong(&flags)?,
        Bench::Load(flags) => println!("{}", load::measure(&flags)?),
        Bench::Model(flags) => step::measure(&flags)?,
        Bench::File(flags) => file::measure(&flags)?,
        Bench::Graph(flags) => graph::measure(&flags)?,
        Bench::Members(flags) => members::each_alone(&flags)?,
    }
    Ok(())
}

fn rank(sizes: &rank::Sizes) -> Result {
    let text = rank::measure(sizes)?;
    println!("{text}");
    match sizes.usual() {
        true => keep(PAGE, "bench rank", &format!("{}\n\n```text\n{text}\n```", conditions()?)),
        false => Ok(()),
    }
}

/// What people embed images with, by names that research/tools/bench_step.py knows.
pub const MODELS: [&str; 6] = [
    "tv.resnet18",
    "tv.resnet50",
    "tv.mobilenet_v3_large",
    "timm.convnext_tiny",
    "timm.vit_small_patch16_224",
    "timm.swin_tiny_patch4_window7_224",
];
const BATCH: usize = 8;
const THREADS: usize = 2;
/// Both sides are measured in turns, this often and this long, and the best counts: other work only adds to a time.
const ROUNDS: usize = 2;
const SECONDS: usize = 3;

/// Refuses what research/tools/bench_step.py can't make a model of: names are those of torchvision (`tv.`) and timm (`timm.`).
fn known(name: &str) -> Result {
    let rest = name.strip_prefix("tv.").or_else(|| name.strip_prefix("timm."));
    match rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic())) {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "bench step: expected names of models such as {} and {}, found `{name}`",
            MODELS[0], MODELS[3]
        ))),
    }
}

/// A PGD step of each model, beside PyTorch's on the same weights.
fn step(names: &[String]) -> Result {
    let names: Vec<&str> =
        if names.is_empty() { MODELS.to_vec() } else { names.iter().map(String::as_str).collect() };
    names.iter().try_for_each(|name| known(name))?;
    setup::setup()?;
    let python = python::environment()?;
    let script = root().join("research/tools/bench_step.py");
    let dir = target()?.join("bench");
    let onnx = |name: &str| dir.join(format!("{name}.onnx"));
    let missing: Vec<&str> = names.iter().copied().filter(|name| !onnx(name).is_file()).collect();
    if !missing.is_empty() {
        project::run(Command::new(&python).arg(&script).arg("export").arg(&dir).args(missing))?;
    }

    let [batch, threads, seconds] = [BATCH, THREADS, SECONDS].map(|n| n.to_string());
    let mut table = String::from(
        "| model | forward | step | step / (2 × forward) | images/s | PyTorch forward | step | channels-last | ours / its best |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for name in &names {
        let mut least = [f64::INFINITY; 5];
        for _ in 0..ROUNDS {
            let mut ours = Command::new(crate::this_program()?);
            let ours =
                numbers(ours.args(["bench", "model"]).arg(onnx(name)).args([&batch, &threads, &seconds]))?;
            let mut theirs = Command::new(&python);
            let theirs = numbers(theirs.arg(&script).args(["time", name, &batch, &threads, &seconds]))?;
            for (least, time) in least.iter_mut().zip(ours.iter().chain(&theirs)) {
                *least = least.min(*time);
            }
        }
        let [forward, step, their_forward, contiguous, last] = least;
        let row = format!(
            "| {name} | {forward:.3} s | {step:.3} s | {:.2} | {:.1} | {their_forward:.3} s | {contiguous:.3} s | {last:.3} s | {:.2} |\n",
            step / (2.0 * forward),
            BATCH as f64 / step,
            step / contiguous.min(last)
        );
        print!("{row}");
        table += &row;
    }
    if names != MODELS {
        return Ok(());
    }
    keep(PAGE, "bench step", &format!("{} batch {BATCH}, {THREADS} threads:\n\n{table}", conditions()?))
}

/// The ARS suite, from the model file to the report, beside the protocol in PyTorch on the same trials.
fn suite() -> Result {
    setup::setup()?;
    let python = python::environment()?;
    project::run(&mut cargo(&["build", "--release", "--locked"]))?;
    let audit = target()?.join("release").join("audit").with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = Command::new(python);
    command.arg(root().join("research/tools/bench_suite.py")).arg(audit).arg(target()?.join("bench"));
    command.args([THREADS, ROUNDS].map(|n| n.to_string())).arg("cpu");
    let reference = reference("tools/reference_audit.py");
    command.args(reference.is_file().then_some(&reference));
    let peer =
        if reference.is_file() { "the reference of the protocol" } else { "research/tools/bench_suite.py" };
    let table = output(&mut command)?;
    println!("{table}");
    keep(PAGE, "bench suite", &format!("{} {THREADS} threads, beside {peer}:\n\n{table}\n", conditions()?))
}

/// The numbers that a command prints.
fn numbers(command: &mut Command) -> Result<Vec<f64>> {
    let said = output(command)?;
    let numbers: Option<Vec<f64>> = said.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers.ok_or_else(|| Error::Failed(format!("expected numbers of {command:?}, found {said:?}")))
}

/// The page that has the results of every benchmark but `strong`.
const PAGE: &str = "docs/performance.md";

/// Puts `text` between the marks of `name` in a page.
fn keep(page: &str, name: &str, text: &str) -> Result {
    let path = root().join(page);
    let page = file("read", &path, fs::read_to_string(&path))?;
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let parts = page.split_once(&start).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(Error::Failed(format!("expected {} and {end} in {}", start.trim(), shown(&path))));
    };
    file("write", &path, fs::write(&path, format!("{head}{start}{text}\n{end}{tail}")))
}

/// Machine, date and versions.
fn conditions() -> Result<String> {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let lock = file("read", &root().join("Cargo.lock"), fs::read_to_string(root().join("Cargo.lock")))?;
    let version = |name: &str| {
        // Of several versions the last is the newest, ours.
        let (_, rest) = lock.rsplit_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    let crates = ["ndarray", "matrixmultiply", "rayon", "ort"].map(version);
    let mut rustc = std::process::Command::new("rustc");
    let rustc = output(rustc.arg("--version"))?;
    let rustc = rustc.split(" (").next().unwrap_or(&rustc);
    let crates = crates.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(format!("{}, {cores} cores of {model}, {rustc}, {crates}:", date(seconds / 86_400)))
}

/// A day since 1970 as year, month and day, by Howard Hinnant's algorithm (chrono-Compatible Low-Level Date Algorithms,
/// `civil_from_days`), for years after 1970.
fn date(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    /// As `date -u -d @SECONDS +%F` has them.
    #[test]
    fn days_are_dates() {
        for (day, expected) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21")] {
            assert_eq!(super::date(day), expected);
        }
    }
}

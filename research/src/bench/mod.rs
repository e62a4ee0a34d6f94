//! `cargo research bench`: measurements of audit, beside a peer if there is one. Results go into
//! docs/performance.md, those of `strong` into docs/strength-measured.md.

mod file;
mod graph;
mod load;
mod members;
mod model;
mod rank;
mod ratios;
mod step;
mod strong;
mod suite;

use crate::Outcome;
use clap::{Args, Subcommand};
use std::{
    fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};
use xtask::project::{Error, Result, file, output, root, shown};

pub use step::MODELS;

/// All ratios beside the committed ones, or one benchmark.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(flatten)]
    keep: Keep,
    #[command(subcommand)]
    which: Option<Bench>,
}

#[derive(Args)]
struct Keep {
    /// Write the tables into docs/performance.md, whose last commit is what ratios are compared with
    #[arg(long)]
    keep: bool,
}

/// Without a command: `rank`, `step`, `suite` and `file`, all ratios in one table.
#[derive(Subcommand)]
enum Bench {
    /// Exact ranks in a large gallery, beside the bare matrix product of the same size
    Rank {
        #[command(flatten)]
        sizes: rank::Sizes,
        #[command(flatten)]
        keep: Keep,
    },
    /// Steps of PGD, beside PyTorch's on the same weights
    Step {
        /// Models of torchvision (tv.resnet18) and timm (timm.convnext_tiny) [default: those of the page]
        models: Vec<String>,
        #[command(flatten)]
        keep: Keep,
    },
    /// Whole audits, beside the protocol in PyTorch
    Suite {
        #[command(flatten)]
        keep: Keep,
    },
    /// A step on a photograph, through resize and crop, beside one at the model's input
    File {
        #[command(flatten)]
        photograph: file::Photograph,
        #[command(flatten)]
        keep: Keep,
    },
    /// The strong search beside the published suites, more effort and the attacks of others
    Strong(strong::Flags),
    /// CPU time and memory of loading a model of many nodes
    Load(load::Flags),
    /// One side of `bench step`: seconds of a forward pass and of a step of one model
    Model(model::Flags),
    /// Time graphs of one operator or a few, such as bench_forms.py writes
    Graph(graph::Flags),
    /// One part of `bench strong`: each member of the strong search alone
    Members(members::Flags),
}

/// Runs a benchmark, or all that have a ratio.
pub fn run(flags: Flags) -> Outcome {
    let Some(bench) = flags.which else {
        return Ok(ratios::run(all()?, flags.keep.keep)?);
    };
    match bench {
        Bench::Rank { sizes, keep } => ratios::run(vec![rank::benchmark(sizes)?], keep.keep)?,
        Bench::Step { models, keep } => ratios::run(vec![step::benchmark(models)?], keep.keep)?,
        Bench::Suite { keep } => ratios::run(vec![suite::benchmark()], keep.keep)?,
        Bench::File { photograph, keep } => ratios::run(vec![file::benchmark(photograph)], keep.keep)?,
        Bench::Strong(flags) => strong::strong(&flags)?,
        Bench::Load(flags) => println!("{}", load::measure(&flags)?),
        Bench::Model(flags) => model::measure(&flags)?,
        Bench::Graph(flags) => graph::measure(&flags)?,
        Bench::Members(flags) => members::each_alone(&flags)?,
    }
    Ok(())
}

/// All benchmarks with a ratio, with their usual cases.
fn all() -> Result<Vec<ratios::Benchmark>> {
    Ok(vec![
        step::benchmark(Vec::new())?,
        suite::benchmark(),
        file::benchmark(file::Photograph::default()),
        rank::benchmark(rank::Sizes::default())?,
    ])
}

/// CPU seconds of this process so far, in all its threads.
#[cfg(unix)]
fn cpu_seconds() -> audit::Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own, which outlives the call.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    match failed {
        0 => Ok(time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64),
        _ => Err(audit::Error::internal("the system does not say how much CPU time this process took")),
    }
}

#[cfg(not(unix))]
fn cpu_seconds() -> audit::Result<f64> {
    Err(audit::Error::usage("CPU time is measured on Linux and macOS alone. Run the benchmark there"))
}

/// An error of the library as one of a task.
fn failed(error: audit::Error) -> Error {
    Error::Failed(error.message)
}

/// CPU seconds are measured on one thread: threads that wait for each other take CPU time too.
const ONE_THREAD: &str = "1";

/// The page with the results of every benchmark but `strong`.
const PAGE: &str = "docs/performance.md";

/// The marks before and behind the table called `name` in a page.
fn marks(name: &str) -> [String; 2] {
    [format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->")]
}

/// Puts `text` between the marks of `name` in a page.
fn keep(page: &str, name: &str, text: &str) -> Result {
    let path = root().join(page);
    let page = file("read", &path, fs::read_to_string(&path))?;
    let [start, end] = marks(name);
    let parts = page.split_once(&start).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(Error::Failed(format!("expected {} and {end} in {}", start.trim(), shown(&path))));
    };
    file("write", &path, fs::write(&path, format!("{head}{start}{text}\n{end}{tail}")))
}

/// Date, machine, versions, and the load of the machine before the measurements.
fn conditions() -> Result<String> {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let lock = file("read", &root().join("Cargo.lock"), fs::read_to_string(root().join("Cargo.lock")))?;
    let version = |name: &str| {
        // Of several versions the last is the newest: ours.
        let (_, rest) = lock.rsplit_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    let crates = ["ndarray", "matrixmultiply", "rayon", "ort"].map(version);
    let mut rustc = std::process::Command::new("rustc");
    let rustc = output(rustc.arg("--version"))?;
    let rustc = rustc.split(" (").next().unwrap_or(&rustc);
    let crates = crates.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty());
    let load = load.map_or(String::new(), |load| format!(", load average before it {load}"));
    Ok(format!("{}, {cores} cores of {model}, {rustc}, {crates}{load}:", date(seconds / 86_400)))
}

/// A day since 1970 as year, month and day, by Howard Hinnant's algorithm (chrono-Compatible Low-Level Date
/// Algorithms, `civil_from_days`), for years after 1970.
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
    /// As printed by `date -u -d @SECONDS +%F`.
    #[test]
    fn days_are_dates() {
        for (day, expected) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21")] {
            assert_eq!(super::date(day), expected);
        }
    }
}

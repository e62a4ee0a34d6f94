//! `cargo research COMMAND`: experiments for papers, and measurements of audit itself. The README.md of this
//! package describes the results of each.

mod bench;
mod cuda;
mod matrix;
mod omniglot;
mod soak;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::project;

/// Experiments for papers, and measurements of audit itself
#[derive(Parser)]
#[command(name = "research", bin_name = "cargo research")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Time ranks, steps and whole audits beside the committed ratios; also loading, and the strong search
    /// beside other attacks
    Bench(bench::Flags),
    /// Train and audit every defence on Omniglot, and write research/pages/omniglot.md (two hours on two
    /// cores)
    Experiment(omniglot::Flags),
    /// Train and audit methods × seeds × data, and write one page; finished work is not repeated
    Matrix(matrix::plan::Flags),
    /// Audit a million generated images, whole or in parts, and measure time and memory
    Soak(soak::Flags),
    /// Pack audit, ONNX Runtime with CUDA and a few models for a machine with a GPU
    Cuda(cuda::Flags),
}

/// The error of a command: of a task that runs programs, or of the library `audit`.
enum Failure {
    Task(project::Error),
    Audit(audit::Error),
}

impl From<project::Error> for Failure {
    fn from(error: project::Error) -> Self {
        Failure::Task(error)
    }
}

impl From<audit::Error> for Failure {
    fn from(error: audit::Error) -> Self {
        Failure::Audit(error)
    }
}

type Outcome<T = ()> = Result<T, Failure>;

fn main() -> ExitCode {
    // Before any thread starts.
    audit::model::runtime::disable_telemetry();
    let outcome = match Cli::parse().command {
        Command::Bench(flags) => bench::run(flags),
        Command::Experiment(flags) => omniglot::run(flags),
        Command::Matrix(flags) => matrix::plan::run(&flags),
        Command::Soak(flags) => soak::soak(&flags).map_err(Failure::from),
        Command::Cuda(flags) => cuda::pack(&flags).map_err(Failure::from),
    };
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Task(project::Error::Usage(message))) => (message, 2),
        Err(Failure::Task(project::Error::Failed(message))) => (message, 1),
        Err(Failure::Audit(error)) => (error.message, error.exit as u8),
    };
    eprintln!("research: {message}");
    ExitCode::from(code)
}

/// The program itself, for measurements in a process of their own.
fn this_program() -> project::Result<std::path::PathBuf> {
    std::env::current_exe()
        .map_err(|error| project::Error::Failed(format!("cannot find this program: {error}")))
}

/// Kilobytes that a process has in memory: a line of `/proc/PROCESS/status`, such as VmHWM, the peak. `None`
/// if the system doesn't report it.
fn memory(process: &str, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let rest = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::fs;

    #[test]
    fn commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_depends_on_this_package() {
        let root = project::root();
        let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let manifests = crates.chain([root.to_path_buf(), root.join("fuzz"), root.join("xtask")]);
        for manifest in manifests.map(|folder| folder.join("Cargo.toml")) {
            let text = fs::read_to_string(&manifest).unwrap();
            let needs =
                text.lines().any(|line| line.starts_with("research ") || line.ends_with(".research]"));
            assert!(!needs, "{}", manifest.display());
        }
    }
}

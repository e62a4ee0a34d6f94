//! The trainer: parse, run, print the error, map it to an exit code.

use audit::{Error, Result, guard};
use audit_train::cli::{Cli, Command};
use audit_train::{curves, export, run, tables};
use clap::Parser;
use matrix::plan::{self, Tools};
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before there are threads. This program loads no ONNX Runtime, but starts others that do.
    audit::model::runtime::disable_telemetry();
    let cli = Cli::parse();
    // tch panics where libtorch throws (memory is out, a device is lost): its words, and no backtrace.
    let done = guard::quietly(|| work(&cli))
        .unwrap_or_else(|words| Err(Error::internal(format!("libtorch failed: {words}"))));
    match done {
        Ok(text) => {
            // A closed pipe is no error: whoever reads has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Error { exit, message }) => {
            eprintln!("audit-train: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

/// The trainer of a matrix is this program.
fn matrix(
    plan: &Path,
    audit: &Option<PathBuf>,
    jobs: usize,
    work: &Option<PathBuf>,
    out: &Option<PathBuf>,
) -> Result<String> {
    let trainer = env::current_exe()
        .map_err(|e| Error::internal(format!("can't find this program, which trains: {e}")))?;
    let beside = trainer.with_file_name("audit").with_extension(env::consts::EXE_EXTENSION);
    let audit = audit.clone().unwrap_or(beside);
    if !audit.is_file() {
        return Err(Error::usage(format!(
            "the program audit is not at {}; build it or name it with --audit",
            audit.display()
        )));
    }
    plan::run(plan, &Tools { trainer, audit, jobs, work: work.clone(), out: out.clone() })
}

fn work(cli: &Cli) -> Result<String> {
    match &cli.command {
        None => run(&cli.run),
        Some(Command::Export { checkpoint, out }) => export(checkpoint, out),
        Some(Command::Report { logs, output }) => curves::write(logs, output),
        Some(Command::Matrix { plan, audit, jobs, work, out }) => matrix(plan, audit, *jobs, work, out),
        Some(Command::Methods) => Ok(tables()),
    }
}

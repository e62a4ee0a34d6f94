//! The trainer: parse, run, print the error, map it to an exit code.

use audit::{Error, Result, guard};
use audit_train::cli::{Cli, Command};
use audit_train::{curves, export, run, tables};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before there are threads: --ers-every loads ONNX Runtime.
    audit::model::runtime::disable_telemetry();
    let cli = Cli::parse_words(std::env::args_os()).unwrap_or_else(|e| e.exit());
    // tch panics if libtorch throws (out of memory, a lost device): shows its message, without a backtrace.
    let done = guard::quietly(|| work(&cli))
        .unwrap_or_else(|words| Err(Error::internal(format!("libtorch failed: {words}"))));
    match done {
        Ok(text) => {
            // A closed pipe is not an error: the reader has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Error { exit, message, .. }) => {
            // `eprintln!` panics if stderr is closed, and the exit code would be another.
            let _ = writeln!(std::io::stderr(), "audit-train: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

fn work(cli: &Cli) -> Result<String> {
    match &cli.command {
        None => run(&cli.run),
        Some(Command::Export { checkpoint, out }) => export(checkpoint, out),
        Some(Command::Report { logs, output }) => curves::write(logs, output),
        Some(Command::Methods) => Ok(tables()),
    }
}

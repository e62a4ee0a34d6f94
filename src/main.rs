//! Parses the command line, runs the command, prints its result, and exits with its code.

use audit::command::{self, Cli, Done};
use audit::progress::Mode;
use audit::{Error, Exit, Result};
use clap::Parser;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any thread starts.
    audit::model::runtime::disable_telemetry();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(text) = command::short_help(&words) {
        return helped(print((text.into(), None)));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Only the misspelt command is reported, not the arguments after it.
        Err(wrong) => match explained(&wrong) {
            Some(error) => {
                Mode::Auto.error(&error);
                return ExitCode::from(error.exit as u8);
            }
            None if wrong.use_stderr() => wrong.exit(),
            // A text of help, or the version.
            None => return helped(written(wrong.print(), None)),
        },
    };
    let mode = cli.mode();
    let answering = audit::interrupt::answer(move |error| mode.error_line(error));
    match answering.and_then(|()| cli.run(std::env::args_os().skip(1))).and_then(print) {
        Ok(exit) => ended(exit.map_or(0, |exit| exit as u8)),
        Err(error) => {
            let error = command::with_fix(error, &words);
            mode.error(&error);
            ended(error.exit as u8)
        }
    }
}

/// The exit code after a text of help.
fn helped(printed: Result<Option<Exit>>) -> ExitCode {
    match printed {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            Mode::Auto.error(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}

/// The exit code of a process in which no work continues.
fn ended(exit: u8) -> ExitCode {
    audit::interrupt::end_abandoned(exit);
    ExitCode::from(exit)
}

/// A more helpful message than clap's, if there is one.
fn explained(wrong: &clap::Error) -> Option<Error> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    words.first().and_then(|word| command::misspelt(word)).or_else(|| command::advised(wrong, &words))
}

fn print((text, exit): Done) -> Result<Option<Exit>> {
    written(std::io::stdout().write_all(text.as_bytes()), exit)
}

/// The end of a command whose text was passed to standard output.
fn written(passed: std::io::Result<()>, exit: Option<Exit>) -> Result<Option<Exit>> {
    match passed.and_then(|()| std::io::stdout().flush()) {
        // A closed pipe is no error: its reader needs no more.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::internal(format!("can't write to standard output: {e}")))
        }
        _ => Ok(exit),
    }
}

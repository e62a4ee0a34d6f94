//! Parse, run, print the error, map it to an exit code.

use audit::cli::{Cli, Command};
use audit::{Error, Result, attack, audit as conductor, data, grad, report, suite};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let text = match cli.command {
        None => conductor::run(&cli.run).map(|r| report::terminal::render(&r)),
        Some(Command::Run(run)) => conductor::run(&run).map(|r| report::terminal::render(&r)),
        Some(Command::Ops { markdown }) => Ok(grad::rules::table(markdown)),
        Some(Command::Attacks) => Ok(attacks()),
        Some(Command::Suites) => suites(),
        Some(Command::Images(flags)) => images(&flags),
    };
    match text {
        Ok(text) => {
            // A closed pipe is no error: whoever reads has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(Error { exit, message }) => {
            eprintln!("audit: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

fn attacks() -> String {
    attack::ATTACKS.iter().map(|a| format!("{:<5} {}\n", a.code, a.about)).collect()
}

fn suites() -> Result<String> {
    let all = suite::Suite::built_in()?;
    Ok(all.into_iter().map(|(name, about)| format!("{name:<12} {about}\n")).collect())
}

fn images(flags: &audit::cli::Images) -> Result<String> {
    let prep =
        data::Preparation { channels: flags.channels, height: flags.size, width: flags.size, resize: None };
    let count =
        data::Dataset::generated(flags.seed, flags.classes, flags.samples).export(&flags.out, &prep)?;
    Ok(format!("{count} images in {}\n", flags.out.display()))
}

//! `cargo xtask experiment omniglot`: every defence at equal budgets and over several seeds, audited, and written up.
//!
//! [`mod@specs`] says what is trained, [`matrix`] has it made and reads what came of it, and the [`page`] is written from that.

mod page;
mod specs;

use audit::{Error, Result};
use clap::Parser;
use matrix::lab::Lab;
use matrix::outcome::TrainedModel;
use matrix::{picture, split, write};
use specs::{Budget, plain, specs};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of the experiment.
#[derive(Clone, Debug, Parser)]
struct Flags {
    /// Folder with `train` and `test`, each with a folder per class
    #[arg(long)]
    data: PathBuf,
    /// The program audit
    #[arg(long)]
    audit: PathBuf,
    /// The program audit-train
    #[arg(long)]
    trainer: PathBuf,
    /// How much
    #[arg(long, value_enum, default_value = "full")]
    budget: Budget,
    /// Models trained at a time, one thread each
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Where models, logs and reports are kept [default: target/experiment/omniglot-BUDGET]
    #[arg(long)]
    work: Option<PathBuf>,
    /// The page to write [default: docs/experiments/omniglot.md for the full budget, else a file in the work folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(Error { exit, message }) => {
            eprintln!("omniglot-experiment: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

/// Runs what is not done yet, and writes the page.
fn run(flags: &Flags) -> Result<String> {
    let size = flags.budget.size();
    let budget = format!("{:?}", flags.budget).to_lowercase();
    let work =
        flags.work.clone().unwrap_or_else(|| PathBuf::from(format!("target/experiment/omniglot-{budget}")));
    fs::create_dir_all(&work).map_err(|e| Error::usage(format!("can't make {}: {e}", work.display())))?;
    let out = flags.out.clone().unwrap_or_else(|| match flags.budget {
        Budget::Full => PathBuf::from("docs/experiments/omniglot.md"),
        _ => work.join("omniglot.md"),
    });
    for part in ["train", "test"] {
        let folder = flags.data.join(part);
        if !folder.is_dir() {
            return Err(Error::usage(format!(
                "--data: {} is missing; expected a folder of classes",
                folder.display()
            )));
        }
    }
    let mut audit_words: Vec<String> =
        split(&format!("--suite full --max-queries {}", size.queries)).collect();
    audit_words.extend(size.attack.map(|steps| ["--steps".into(), steps.to_string()]).into_iter().flatten());
    let lab = Lab {
        trainer: flags.trainer.clone(),
        audit: flags.audit.clone(),
        train: flags.data.join("train"),
        test: flags.data.join("test"),
        audit_words,
        seeds: (0..size.seeds).collect(),
        jobs: flags.jobs,
        threads: 1,
        work: work.clone(),
        began: Instant::now(),
    };
    let specs: Vec<_> = std::iter::once(plain(size.plain)).chain(specs(size.base)).collect();
    lab.make_all(&specs)?;
    let models: Vec<TrainedModel> = specs.into_iter().map(|spec| lab.read(spec)).collect::<Result<_>>()?;
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder)
            .map_err(|e| Error::usage(format!("can't make {}: {e}", folder.display())))?;
    }
    let beside = out.with_extension("svg");
    write(&beside, &picture::scatter(&models))?;
    let picture = beside.file_name().unwrap_or_default().to_string_lossy();
    write(&out, &page::write_up(&models, &size, flags.budget, &picture))?;
    Ok(format!("{}: {} models\n", out.display(), models.iter().map(|m| m.runs.len()).sum::<usize>()))
}

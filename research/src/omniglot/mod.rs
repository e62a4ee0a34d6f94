//! `cargo research experiment`: every defence at equal budgets and over several seeds, audited, with a page
//! of results.
//!
//! [`mod@specs`] has the trainings, [`crate::matrix`] runs them and reads the results, and [`page`] writes
//! them up.

mod page;
mod specs;

use crate::Outcome;
use crate::matrix::lab::Lab;
use crate::matrix::outcome::TrainedModel;
use crate::matrix::{picture, split, write};
use audit::{Error, Result};
use clap::Args;
use specs::{Budget, plain, specs};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use xtask::project::{file, root};
use xtask::reference::REFERENCE;
use xtask::train::{self, Tools};

/// Flags of the experiment. Paths are relative to the checkout.
#[derive(Args)]
pub struct Flags {
    /// Folder with `train` and `test`, each with a folder per class [default: Omniglot of the reference data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How much
    #[arg(long, value_enum, default_value = "full")]
    budget: Budget,
    /// Models trained at a time, one thread each
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Where models, logs and reports are kept [default: target/experiment/omniglot-BUDGET]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// The page to write [default: research/pages/omniglot.md for the full budget, else a file in the work
    /// folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Builds both programs, runs the unfinished part, and writes the page.
pub fn run(flags: Flags) -> Outcome {
    let tools = train::build()?;
    // Models are made again if their command lines change, and these contain paths.
    file("enter", root(), env::set_current_dir(root()))?;
    println!("{}", make(&flags, &tools)?);
    Ok(())
}

fn make(flags: &Flags, tools: &Tools) -> Result<String> {
    let data = flags.data.clone().unwrap_or_else(|| Path::new(REFERENCE).join("data/omniglot28"));
    let size = flags.budget.size();
    let budget = format!("{:?}", flags.budget).to_lowercase();
    let work =
        flags.work.clone().unwrap_or_else(|| PathBuf::from(format!("target/experiment/omniglot-{budget}")));
    fs::create_dir_all(&work).map_err(|e| Error::usage(format!("can't make {}: {e}", work.display())))?;
    let out = flags.out.clone().unwrap_or_else(|| match flags.budget {
        Budget::Full => PathBuf::from("research/pages/omniglot.md"),
        _ => work.join("omniglot.md"),
    });
    for part in ["train", "test"] {
        let folder = data.join(part);
        if !folder.is_dir() {
            return Err(Error::usage(format!(
                "--data: {} is missing; expected Omniglot at 28×28 pixels, or a folder with `train` and `test`, each with a folder \
                 per class",
                folder.display()
            )));
        }
    }
    let mut audit_words: Vec<String> =
        split(&format!("--suite full --max-queries {}", size.queries)).collect();
    audit_words.extend(size.attack.map(|steps| ["--steps".into(), steps.to_string()]).into_iter().flatten());
    let lab = Lab {
        trainer: tools.trainer.clone(),
        audit: tools.audit.clone(),
        train: data.join("train"),
        test: data.join("test"),
        audit_words,
        seeds: (0..size.seeds).collect(),
        jobs: flags.jobs,
        threads: 1,
        work: work.clone(),
        for_all: String::new(),
        began: Instant::now(),
    };
    let specs: Vec<_> = std::iter::once(plain(size.plain)).chain(specs(size.base)).collect();
    lab.check_all(&specs)?;
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
    Ok(format!("{}: {} models", out.display(), models.iter().map(|m| m.runs.len()).sum::<usize>()))
}

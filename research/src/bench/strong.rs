//! `cargo research bench strong`: the strong search beside the published suites, with more effort, and beside
//! attacks of others. research/tools/bench_strong.py does the work, and research/tools/peer_attacks.py in
//! PyTorch. With 100 queries and the attacks of others, the result is written to docs/strength-measured.md
//! and the pictures beside it.

use super::{conditions, keep};
use clap::Args;
use std::{
    fs,
    path::{self, PathBuf},
    process::Command,
};
use xtask::{
    project::{Error, Result, built, cargo, file, reference, root, run, shown, target},
    python, setup,
};

/// Queries of each model in the written result.
const QUERIES: usize = 100;
const PAGE: &str = "docs/strength-measured.md";
/// Pictures, in docs/.
const PICTURES: [&str; 2] = ["strength.svg", "members.svg"];

/// What is measured.
#[derive(Args)]
pub struct Flags {
    /// Queries of each model
    #[arg(long, default_value_t = QUERIES)]
    queries: usize,
    /// Nets of `cargo research experiment`, NAME-0.onnx [default: target/experiment/omniglot-full]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Their test images [default: those of the reference data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Leave out the attacks of others
    #[arg(long)]
    no_peers: bool,
    /// Take reports that an earlier run left
    #[arg(long)]
    reuse: bool,
}

/// Measures, and writes the result if it is complete.
pub fn strong(flags: &Flags) -> Result {
    if flags.queries == 0 {
        return Err(Error::Usage("expected at least one query after --queries, found 0".into()));
    }
    // The script runs in the root of the checkout.
    let from_here = |given: &Option<PathBuf>, usual: PathBuf| match given {
        Some(folder) => file("find", folder, path::absolute(folder)),
        None => Ok(usual),
    };
    let models = from_here(&flags.models, root().join("target/experiment/omniglot-full"))?;
    let data = from_here(&flags.data, reference("data/omniglot28/test"))?;
    setup::setup()?;
    run(&mut cargo(&["build", "--release", "--locked"]))?;
    run(&mut cargo(&["build", "--release", "--locked", "--example", "masked"]))?;
    let python = if !flags.no_peers { python::environment()? } else { python::find()? };
    let folder = target()?.join("bench").join("strong");
    let mut command = Command::new(&python);
    command.arg(root().join("research/tools/bench_strong.py"));
    command.arg(built("release/audit")?).arg(built("release/examples/masked")?);
    command.arg(crate::this_program()?).arg(&folder);
    command.arg("--queries").arg(flags.queries.to_string());
    command.arg("--models").arg(models).arg("--data").arg(data);
    if !flags.no_peers {
        command.arg("--peers").arg(&python);
    }
    command.args(flags.reuse.then_some("--reuse")).current_dir(root());
    run(&mut command)?;
    if flags.queries != QUERIES || flags.no_peers {
        println!("The tables and pictures are in {}.", shown(&folder));
        return Ok(());
    }
    let result = folder.join("strength.md");
    let text = file("read", &result, fs::read_to_string(&result))?;
    for name in PICTURES {
        let to = root().join("docs").join(name);
        file("write", &to, fs::copy(folder.join(name), &to))?;
    }
    keep(PAGE, "bench strong", &format!("{}\n\n{}", conditions()?, text.trim_end()))
}

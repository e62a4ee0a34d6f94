//! `cargo xtask experiment omniglot`: every defence, trained, audited and compared by `crates/omniglot-experiment`.

use crate::{
    project::{Error, Result, root, run, shown},
    train,
};
use std::process::Command;

pub const ARGUMENTS: &str = "omniglot [--budget smoke|short|full] [--jobs N] [--data DIR]";

pub fn experiment(arguments: &[String]) -> Result {
    let Some((_, rest)) = arguments.split_first().filter(|(name, _)| *name == "omniglot") else {
        return Err(Error::Usage(format!("expected {ARGUMENTS}")));
    };
    let tools = train::build()?;
    let data = root().join("../shared/data/omniglot28");
    let mut command = Command::new(&tools.experiment);
    command
        .arg("--audit")
        .arg(&tools.audit)
        .arg("--trainer")
        .arg(&tools.trainer)
        .args(rest)
        .current_dir(root());
    if !rest.iter().any(|word| word == "--data") {
        if !data.join("train").is_dir() {
            return Err(Error::Failed(format!(
                "expected Omniglot at 28×28 pixels in {}, found none; give a folder with `train` and `test` in it, each with a \
                 folder per class, as --data DIR",
                shown(&data)
            )));
        }
        command.arg("--data").arg("../shared/data/omniglot28");
    }
    run(&mut command)
}

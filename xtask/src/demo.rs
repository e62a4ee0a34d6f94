//! `cargo xtask demo`: from a fresh clone to `audit demo`.

use crate::{
    project::{Result, Since, built, cargo, remove, root, run, shown},
    setup,
};
use std::{process::Command, time::Instant};

/// Where the demo writes, from the root.
const FOLDER: &str = "reports/demo";

pub fn demo() -> Result {
    setup::setup()?;
    run(&mut cargo(&["build", "--release", "--locked"]))?;
    let audit = built("release/audit")?;
    remove(&root().join(FOLDER))?;
    let started = Instant::now();
    println!("\n{} demo --out {FOLDER}", shown(&audit));
    run(Command::new(&audit).args(["demo", "--out", FOLDER]).current_dir(root()))?;
    println!("in {}", Since(started));
    Ok(())
}

//! `cargo xtask demo`: from a fresh clone to `audit demo`.

use crate::{
    project::{Result, Since, cargo, file, root, run, shown, target},
    setup,
};
use std::{env, fs, process::Command, time::Instant};

/// Where the demo writes, from the root.
const FOLDER: &str = "reports/demo";

pub fn demo() -> Result {
    setup::setup()?;
    run(&mut cargo(&["build", "--release"]))?;
    let audit = target()?.join("release/audit").with_extension(env::consts::EXE_EXTENSION);
    let folder = root().join(FOLDER);
    if folder.exists() {
        file("remove", &folder, fs::remove_dir_all(&folder))?;
    }
    let started = Instant::now();
    println!("\n{} demo --out {FOLDER}", shown(&audit));
    run(Command::new(&audit).args(["demo", "--out", FOLDER]).current_dir(root()))?;
    println!("in {}", Since(started));
    Ok(())
}

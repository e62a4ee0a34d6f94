//! `cargo xtask demo`: from a fresh clone to two reports.

use crate::{
    project::{Result, Since, cargo, root, run, shown, target},
    setup,
};
use std::{env, process::Command, time::Instant};

pub fn demo() -> Result {
    setup::setup()?;
    run(&mut cargo(&["build", "--release"]))?;
    let audit = target()?.join("release/audit").with_extension(env::consts::EXE_EXTENSION);
    for name in ["plain", "hardened"] {
        let started = Instant::now();
        let (model, report) = (format!("models/{name}.onnx"), format!("reports/{name}.json"));
        println!("\n{} --suite ars {model} -o {report}", shown(&audit));
        run(Command::new(&audit).args(["--suite", "ars", &model, "-o", &report]).current_dir(root()))?;
        println!("audited {model} in {}", Since(started));
    }
    println!("\nThe reports are reports/plain.json and reports/hardened.json.");
    Ok(())
}

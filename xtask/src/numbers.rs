//! `cargo xtask numbers`: audits the README's three models, and writes their numbers into the README and its
//! picture.

use crate::{
    project::{Error, Result, built, cargo, file, remove, root, run, shown, target},
    setup,
};
use std::{fs, path::Path, process::Command};

/// The mask of tests/common/masked.rs that hides the gradient of the model in the middle.
const MASK: &str = "sigmoid-200";
/// The exit code of an audit that finds masked gradients.
const UNTRUSTED: i32 = 12;

pub fn numbers() -> Result {
    setup::setup()?;
    run(&mut cargo(&["build", "--release", "--locked"]))?;
    run(&mut cargo(&["build", "--release", "--locked", "--example", "masked", "--example", "numbers"]))?;
    let program = built("release/audit")?;
    let folder = target()?.join("numbers");
    // An interrupted run leaves journals, with which an audit does not begin anew.
    remove(&folder)?;
    file("make", &folder, fs::create_dir_all(&folder))?;
    run(Command::new(built("release/examples/masked")?)
        .arg("models/plain.onnx")
        .arg(&folder)
        .current_dir(root()))?;
    let masked = folder.join(MASK).with_extension("onnx");
    let models = [
        ("plain", Path::new("models/plain.onnx")),
        ("masked", &masked),
        ("hardened", Path::new("models/hardened.onnx")),
    ];
    let mut reports = Vec::new();
    for (name, model) in models {
        let report = folder.join(name).with_extension("json");
        println!("auditing {}", shown(model));
        let mut audit = Command::new(&program);
        audit.arg(model).arg("-q").arg("-o").arg(&report).current_dir(root());
        let ended = file("run", &program, audit.status())?;
        if !ended.success() && (name != "masked" || ended.code() != Some(UNTRUSTED)) {
            return Err(Error::Failed(format!("the audit of {} ended with {ended}", shown(model))));
        }
        reports.push(report);
    }
    run(Command::new(built("release/examples/numbers")?)
        .args(["README.md", "docs/numbers.svg"])
        .args(&reports)
        .current_dir(root()))
}

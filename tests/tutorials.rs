//! Every page of docs/tutorials, run from its own text (tests/common/tutorial.rs says how). The one on training is run with the
//! trainer, in crates/audit-train/tests/tutorial.rs.
#![cfg(unix)]

mod common;
#[path = "common/stand_in.rs"]
mod stand_in;
#[path = "common/tutorial.rs"]
mod tutorial;

use common::Temp;
use onnx_grad::Graph;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(page: &str, instead: &[(&str, String)]) {
    let dir = Temp::new();
    let page = Path::new(ROOT).join("docs/tutorials").join(page);
    let runtime = common::runtime_folder().map(|folder| folder.canonicalize().unwrap());
    let programs = [Path::new(env!("CARGO_BIN_EXE_audit"))];
    tutorial::run(
        &page,
        &tutorial::Place { checkout: Path::new(ROOT), folder: &dir, programs: &programs, runtime, instead },
    );
}

/// The model is made here, as the example of the command makes it.
#[test]
fn audit_the_face_model_you_bought() {
    let made = Temp::new();
    let plain = Graph::load(&common::bundled("plain.onnx")).unwrap();
    let model = made.write("face.onnx", stand_in::stand_in(&plain).encode());
    let command = "cargo run --quiet --manifest-path $AUDIT/Cargo.toml --example stand_in -- face.onnx";
    run("face.md", &[(command, format!("cp '{}' face.onnx", model.display()))]);
}

#[test]
fn gate_a_model_in_ci() {
    run("gate.md", &[]);
}

#[test]
fn read_a_report() {
    run("report.md", &[]);
}

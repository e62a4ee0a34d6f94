//! Every page of docs/tutorials and the README's sample, run from their own text (tests/common/tutorial.rs
//! says how). The page on training is run with the trainer, in crates/audit-train/tests/train/harden.rs.
use crate::common::Temp;
use crate::report_fixture::python;
use onnx_grad::Graph;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// `page`: its path in the checkout.
fn run(page: &str, instead: &[(&str, String)]) {
    run_with(page, instead, &[]);
}

/// `more`: programs of the page besides `audit`.
fn run_with(page: &str, instead: &[(&str, String)], more: &[&Path]) {
    let dir = Temp::new();
    let page = Path::new(ROOT).join(page);
    let runtime = crate::common::runtime_folder().map(|folder| folder.canonicalize().unwrap());
    let mut programs = vec![Path::new(env!("CARGO_BIN_EXE_audit"))];
    programs.extend(more);
    crate::tutorial::run(
        &page,
        &crate::tutorial::Place {
            checkout: Path::new(ROOT),
            folder: &dir,
            programs: &programs,
            runtime,
            instead,
        },
    );
}

/// The test makes the model in the same way as the example of the command.
#[test]
#[ignore = "slow"]
fn audit_the_face_model_you_bought() {
    let made = Temp::new();
    let plain = Graph::load(&crate::common::bundled("plain.onnx")).unwrap();
    let model = made.write("face.onnx", crate::common::stand_in::stand_in(&plain).encode());
    let command = "cargo run --quiet --manifest-path $AUDIT/Cargo.toml --example stand_in -- face.onnx";
    run("docs/tutorials/face.md", &[(command, format!("cp '{}' face.onnx", model.display()))]);
}

/// Model and images belong to others and come over the network: AUDIT_FACES names a folder with prepared
/// copies.
#[test]
#[ignore = "needs the MobileFaceNet of its tutorial"]
fn impersonate_and_dodge_a_recogniser_of_somebody_else() {
    let page = "docs/tutorials/mobilefacenet.md";
    let folder =
        std::env::var_os("AUDIT_FACES").expect("AUDIT_FACES, the folder in which steps 1 and 2 were done");
    let folder = Path::new(&folder).canonicalize().unwrap();
    let command = "ls mobilefacenet.onnx faces/pairs.csv";
    let copied = format!("cp -r '{0}/mobilefacenet.onnx' '{0}/faces' . && {command}", folder.display());
    run(page, &[(command, copied)]);
}

#[test]
#[ignore = "slow"]
fn gate_a_model_in_ci() {
    run("docs/tutorials/gate.md", &[]);
}

#[test]
#[ignore = "slow"]
fn read_a_report() {
    run("docs/tutorials/report.md", &[]);
}

/// The page calls `python3`, which is beside the Python with the modules.
#[test]
#[ignore = "needs Python with numpy, onnxruntime, PIL"]
fn confirm_an_attacked_photograph_without_audit() {
    let executable = python("numpy, onnxruntime, PIL", "import sys; print(sys.executable)", &[]);
    run_with("docs/tutorials/photograph.md", &[], &[Path::new(executable.trim())]);
}

/// The sample runs in the checkout, because its first line has the model's path there.
#[test]
#[ignore = "slow"]
fn what_the_readme_shows_of_the_demo() {
    let command = "audit models/hardened.onnx -q";
    run("README.md", &[(command, format!("cd \"$AUDIT\" && {command}"))]);
}

//! docs/tutorials/harden.md, run from its own text with this package's program. It also needs `audit`, which
//! cargo doesn't build for the tests of this package: if it isn't beside the trainer, the test is skipped
//! with a message.

#[path = "../../../../tests/common/tutorial.rs"]
mod tutorial;

use std::path::Path;

#[test]
fn harden_your_model_and_compare() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let trainer = Path::new(env!("CARGO_BIN_EXE_audit-train"));
    if !trainer.with_file_name("audit").is_file() {
        eprintln!("skipped: there is no program `audit` beside {}; run: cargo build", trainer.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = crate::runtime_folder().map(|folder| folder.canonicalize().unwrap());
    let page = checkout.join("docs/tutorials/harden.md");
    let place = tutorial::Place {
        checkout: &checkout,
        folder: dir.path(),
        programs: &[trainer],
        runtime,
        instead: &[],
    };
    tutorial::run(&page, &place);
}

//! The command after an audit loads the library of ONNX Runtime that its user named. Those of a page name no
//! library (`files_kept.rs`).

use crate::report_fixture::report;
use audit::report::terminal::{Paint, brief_with};

#[test]
fn the_next_command_loads_the_library_of_the_audit() {
    let mut report = report(0.5);
    report.model.path = "model.onnx".into();
    report.command = Some("audit model.onnx --ort-lib 'my libs/ort.so' --threads 2 -q".into());
    let brief = brief_with(&report, "", 400, Paint(false));
    let command = brief.lines().find(|line| line.starts_with("  audit ")).expect("no command");
    assert!(command.contains("--ort-lib 'my libs/ort.so' --threads 2"), "{command}");
}

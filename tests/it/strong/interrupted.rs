//! The strong search, interrupted and gone on, and without a model that it needs.

use super::finding;
use crate::common::{Temp, bundled, bundled_path, program, ran, says, words};
use audit::record::{Report, Severity};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Trials of the strong search in a journal.
fn strong(journal: &[u8]) -> usize {
    String::from_utf8_lossy(journal).matches("\"attack\":\"R1\"").count()
}

/// The file of the model is missing when the strong search needs softened backward passes.
#[test]
fn members_whose_backward_pass_cannot_be_formed_are_left_out() {
    let temp = Temp::new();
    temp.write("s.yaml", "form: published\nattacks: [ES]\nsteps: 40\neps: 0.4\n");
    let model = temp.write("m.onnx", std::fs::read(bundled("hardened.onnx")).unwrap());
    temp.write("m.yaml", std::fs::read(bundled("hardened.yaml")).unwrap());
    let mut command = program(temp.path());
    command.args(words("m.onnx --suite s.yaml --max-queries 12 --batch 4 --threads 1 -o r.json"));
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let journal = temp.join("r.json.journal");
    let began = || std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"attack\":\"ES\""));
    while !began() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::fs::remove_file(&model).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Report = serde_json::from_value(temp.json("r.json")).unwrap();
    let left_out: Vec<_> = report.warnings.iter().filter(|w| w.id == "pass-left-out").collect();
    assert_eq!(left_out.len(), 2, "softened and straight-through: {:?}", report.warnings);
    says(&left_out[0].text, &["the softened backward pass", "m.onnx", "left out"]);
    let robust = report.scores.robust_r1.as_ref().unwrap();
    assert_eq!(robust.queries, 12);
    let row = |name: &str| robust.members.iter().find(|m| m.name == name).unwrap().queries;
    assert_eq!((row("es, softened"), row("margin, softened")), (0, 0));
    // The others ran; those that prefer the softened pass used the exact one.
    assert!(row("margin") > 0 && row("es, random start") > 0);
    assert_eq!(finding(&report, "pass-left-out"), Some(Severity::Warning));
}

/// Killed and interrupted during the strong search, and its journal cut at its trials: the report is that
/// of one run.
#[test]
#[ignore = "slow"]
fn a_strong_search_goes_on_where_it_was_ended() {
    let temp = Temp::new();
    temp.write("s.yaml", "form: published\nattacks: [ES]\nsteps: 4\n");
    let model = bundled_path("hardened.onnx");
    let command = |out: &str, more: &[&str]| {
        let mut command = program(temp.path());
        command.args([model.as_str(), "--suite", "s.yaml", "--max-queries", "16", "-o", out]).args(more);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        command
    };
    let report = |name: &str| {
        let mut value = temp.json(name);
        for key in ["timing", "command"] {
            value.as_object_mut().unwrap().remove(key);
        }
        value
    };
    ran(&mut command("whole.json", &[])).ended(0);
    let whole = report("whole.json");
    let all = whole["outcomes"].as_array().unwrap().iter().filter(|o| o["attack"] == "R1").count();
    assert_eq!(all, 16);
    let journal = temp.join("cut.json.journal");
    let read = || std::fs::read(&journal).unwrap_or_default();
    let mut cut = Vec::new();
    for signal in ["-KILL", "-INT"] {
        let before = strong(&read());
        let mut child = command("cut.json", &["--resume"]).spawn().unwrap();
        while strong(&read()) <= before && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "it ended too soon");
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        if signal == "-INT" {
            assert_eq!(output.status.code(), Some(130), "{err}");
            says(&err, &["interrupted", "cut.json.journal", "--resume"]);
        }
        let found = read();
        assert!(strong(&found) > before && strong(&found) < all, "{} of {all}: {err}", strong(&found));
        cut.push(found);
    }
    // Before the first trial of the strong search, within the last line, and uncut.
    let last = cut.pop().unwrap();
    let ends: Vec<usize> =
        last.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    for at in [ends[16], ends[ends.len() - 2] + 30, last.len()] {
        std::fs::write(&journal, &last[..at]).unwrap();
        let done = ran(&mut command("cut.json", &["--resume"])).ended(0);
        says(&done.err, &["trials are done already"]);
        assert_eq!(report("cut.json"), whole, "cut at {at}");
    }
    let left = |name: &String| name.contains("journal") || name.contains("partial");
    assert!(!temp.names().iter().any(left), "{:?}", temp.names());
}

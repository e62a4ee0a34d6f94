//! Names of models and images of other people: a terminal shows them and never obeys them.

use crate::common::models::{self, DIM, Weights, free, trunk_weights, value};
use crate::common::{as_json, on_terminal, program, ran, run, words};
use audit::record::Report;
use audit::report::terminal::{Paint, brief_with};
use audit::visible::{is_obeyed, visible};
use onnx_grad::Graph;
use onnx_grad::graph::Node;

/// The title of the window, the whole screen, and a forged line.
const HOSTILE: &str = "\u{1b}]0;pwn\u{7}\u{1b}[2J\u{9b}31mfeat\nfix: audit other.onnx";

/// Fails if a terminal would obey a character of the text.
#[track_caller]
fn inert(text: &str) {
    assert!(!text.contains(|c: char| is_obeyed(c) && c != '\n'), "{text:?}");
}

/// Features under a hostile name, and scores computed from them.
fn hostile() -> Graph {
    let weights = trunk_weights(Weights::new(1), "", 1).normal("w3", &[DIM, DIM], 0.3);
    let mut graph = models::grey(models::trunk("image", HOSTILE, ""), weights);
    graph.nodes.push(Node::new("MatMul", &[HOSTILE, "w3"], "lo\u{1b}[31mgits"));
    graph.outputs = [HOSTILE, "lo\u{1b}[31mgits"].map(|name| value(name, free(), &[DIM])).into();
    graph
}

#[test]
fn names_in_a_model() {
    let dir = models::stage(2, 2);
    dir.write("hostile.onnx", hostile().encode());
    let told = run(&dir, ["inspect", "hostile.onnx"]).ended(3);
    inert(&(told.out.clone() + &told.err));
    assert!(told.out.contains("\\u{1b}]0;pwn\\u{7}\\u{1b}[2J"), "{}", told.out);
    // No line that could be pasted, and none of the model's own.
    let begins = |word: &str| told.out.lines().any(|line| line.trim_start().starts_with(word));
    assert!(!begins("next") && !begins("fix:"), "{}", told.out);

    let json = run(&dir, ["inspect", "hostile.onnx", "--json"]).ended(3).out;
    inert(&json);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let shown = json["outputs"][0].as_str().unwrap();
    assert!(shown.starts_with(HOSTILE), "{shown}");
    assert_eq!(json["next"], serde_json::json!([]));

    let err = run(&dir, words("hostile.onnx -q --data data")).ended(3).err;
    inert(&err);
    assert!(!err.lines().any(|line| line.starts_with("fix:")), "{err}");
    let events = run(&dir, words("hostile.onnx --data data --progress json")).ended(3).err;
    inert(&events);
    for line in events.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn names_of_images_and_of_reports() {
    let dir = models::stage(3, 4);
    let class = std::fs::read_dir(dir.join("data")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(class.join("u\u{1b}[2Jn\rread.png"), "no image").unwrap();
    let flags = "model.onnx --data data --suite smoke --max-queries 3 --strong-sample off -o a.json";
    for more in ["", " -v", " -q"] {
        let told = run(&dir, words(&format!("{flags}{more}"))).ended(0);
        inert(&(told.out + &told.err));
    }
    // A report of somebody else, on a terminal with colours: only these are left.
    let mut report = Report::load(&dir.join("a.json")).unwrap();
    report.model.path = HOSTILE.into();
    report.data.source += "\u{1b}[8m";
    inert(&on_terminal(&report, 80));
    let coloured = brief_with(&report, "\u{1b}[1;31m", 80, Paint(true));
    assert!(coloured.contains(&*visible("\u{1b}[1;31m")), "{coloured:?}");
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    assert!(!coloured.contains("\u{1b}[2J") && !coloured.contains('\u{7}'), "{coloured:?}");
    assert!(as_json(&report, "json")["model"]["path"].as_str() == Some(HOSTILE));
    let err = ran(program(dir.path()).args(["nowhere\u{1b}[2J.onnx", "-q"])).ended(2).err;
    inert(&err);
}

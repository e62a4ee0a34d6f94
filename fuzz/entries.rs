//! What the fuzz targets call, one function a target. Each takes any bytes and returns: a panic is a finding.
//! The targets include this file, and so does tests/it/corpus.rs, which calls the same functions with every
//! file of the corpus.

#[path = "gradient.rs"]
mod made;

use audit::data::Dataset;
use audit::model::card::Card;
use audit::record::Report;
use audit::shards::journal::{Journal, checksum};
use audit::suite::Suite;
use onnx_grad::{Graph, Types};
use std::path::{Path, PathBuf};

/// What a target does with the bytes of an input.
pub type Entry = fn(&[u8]);

/// Name and function of each target. Its corpus is the folder of that name.
pub const TARGETS: [(&str, Entry); 7] = [
    ("model", model),
    ("gradient", gradient),
    ("card", card),
    ("suite", suite),
    ("image_list", image_list),
    ("journal", journal),
    ("report", report),
];

/// A model file: decoded, rewritten to the canonical opset, its loops unfolded, and written again. What is
/// written must be read again with as many nodes.
pub fn model(bytes: &[u8]) {
    let Ok(mut graph) = Graph::decode(bytes.to_vec().into(), Path::new("fuzzed.onnx")) else { return };
    graph.prune();
    graph.prune_inputs();
    if let Ok(Some(unfolded)) = graph.unfold(&Types::new()) {
        graph = unfolded;
    }
    if !graph.outputs.is_empty() {
        let again = Graph::decode_as_is(graph.encode().into(), Path::new("written.onnx"));
        let again = again.expect("what was written can be read");
        assert_eq!(again.nodes.len(), graph.nodes.len());
    }
}

/// The gradient of a sound graph that is made from the bytes.
pub use made::entry as gradient;

/// A model card.
pub fn card(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(card) = audit::yaml::read::<Card>("fuzzed.yaml", text) {
        let _ = card.check("fuzzed.yaml");
    }
}

/// A suite, and the plan of its trials.
pub fn suite(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(suite) = Suite::parse("fuzzed.yaml", text) {
        let _ = suite.plan(224, 0);
    }
}

/// A list of images.
pub fn image_list(bytes: &[u8]) {
    let path = scratch("fuzzed.csv", bytes);
    let _ = Dataset::open(&path, None, None);
}

/// A journal: as it is, and with the checksum that each line should have. A journal of no trials is removed,
/// as after a run.
pub fn journal(bytes: &[u8]) {
    let lines = bytes.split(|&b| b == b'\n');
    let signed: Vec<u8> =
        lines.flat_map(|json| [checksum(json).as_bytes(), b" ", json, b"\n"].concat()).collect();
    for bytes in [bytes, &signed] {
        let path = scratch("fuzzed.journal", bytes);
        let _ = Journal::open(&path, true);
    }
}

/// A saved report: read, and shown in every format. What is written as JSON must be read again as the same
/// report.
pub fn report(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(report) = Report::parse(text) else { return };
    let _ = audit::report::terminal::render(&report);
    let _ = audit::judge::compare::mismatches(&report, &report);
    for format in audit::report::FORMATS {
        let _ = (format.render)(&report);
    }
    let json = audit::report::json(&report).expect("a report that was read can be written");
    let again = Report::parse(std::str::from_utf8(&json).expect("JSON is text"));
    let again = again.expect("a report that was written can be read");
    assert_eq!(audit::report::json(&again).expect("a report that was read can be written"), json);
}

/// A file of these bytes, in a folder of this process and thread.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let thread = format!("{:?}", std::thread::current().id());
    let folder = std::env::temp_dir().join(format!("audit-fuzz-{}-{thread}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a temporary file can be written");
    path
}

//! The memory of a model whose evidence is made.

use crate::common::{models, run, words};

/// The limit of the report's command line is left out, and a model that needs more than is free could not be
/// bundled: who makes the evidence states another.
#[test]
fn evidence_is_made_within_the_memory_that_its_user_states() {
    let dir = models::stage(3, 4);
    dir.write("suite.yaml", "form: published\nattacks: [ES]\nsteps: 2\n");
    let line = "model.onnx --suite suite.yaml --data data --strong-sample off --max-queries 4 -q -o r.json";
    run(&dir, words(line)).ended(0);
    run(&dir, words("report r.json --bundle e.zip --memory 1B")).ended(3);
    assert!(!dir.join("e.zip").exists());
    run(&dir, words("report r.json --bundle e.zip --memory 1G")).ended(0);
    assert!(dir.join("e.zip").exists());
    run(&dir, words("report r.json --memory 1G")).ended(2);
}

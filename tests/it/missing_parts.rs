//! Folders of parts that other programs filled.

use crate::common::{models, run, says, words};

/// `onnx_audit.ray` writes the settings of a run beside its parts: no file to be warned of.
#[test]
fn the_settings_of_a_run_are_no_damaged_part() {
    let dir = models::stage(3, 4);
    dir.write("suite.yaml", "form: published\nattacks: [ES]\nsteps: 2\n");
    dir.write("parts/run.json", "{\"version\": \"audit\", \"parts\": 2}\n");
    let line = "model.onnx --suite suite.yaml --data data --strong-sample off -q --partition hash:1/2";
    run(&dir, words(&format!("{line} -o parts/1.json"))).ended(0);
    let missing = || run(&dir, ["merge", "--missing", "parts"]).ended(13);
    let found = missing();
    assert_eq!((found.out.as_str(), found.err.as_str()), ("2\n", ""));
    // Another file that is no part is named.
    dir.write("parts/2.json", "{");
    let found = missing();
    says(&found.err, &["parts/2.json"]);
    assert_eq!(found.out, "2\n");
}

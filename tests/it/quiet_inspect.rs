//! `audit inspect` has the flags of progress that all commands on a model have.

use crate::common::{models, run, words};
use serde_json::Value;

#[test]
fn inspect_is_quiet_or_tells_programs() {
    let dir = models::stage(2, 2);
    for flag in ["-q", "--quiet", "--progress none"] {
        let done = run(&dir, words(&format!("inspect model.onnx --json {flag}"))).ended(0);
        assert_eq!(done.err, "", "{flag}");
        let found: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(found["embedding"]["name"], "embedding", "{flag}");
        // No audit is quiet because the inspection was.
        let next = found["next"].as_array().unwrap();
        let own = |step: &Value| step.as_str().unwrap().split_whitespace().any(|word| word == "-q");
        assert!(!next.iter().any(own), "{next:?}");
    }
    let err = run(&dir, words("inspect nowhere.onnx --progress json")).ended(2).err;
    let event: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((&event["event"], &event["exit"]), (&Value::from("error"), &Value::from(2)));
}

//! The report as an in-toto statement about the model file, with the predicate `test-result/v0.1`. It is not
//! signed: whoever made the audit signs it.

use super::catalogues::references;
use audit_base::Result;
use audit_report::record::{CheckResult, ModelRecord, Report, Severity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The warned test of a report that no gate judged.
const NO_GATE: &str = "gate/none";

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let checks = report.gate.iter().flat_map(|gate| &gate.checks);
    let unjudged = checks.clone().next().is_none().then(|| (NO_GATE.to_string(), CheckResult::Warn));
    let of_gate = checks.map(|c| (format!("gate/{}/{}", c.metric, c.kind.name()), c.result));
    let findings = report.warnings.iter().filter(|w| w.severity > Severity::Info);
    let of_trust = findings.map(|w| {
        let result = if report.fails_by(w) { CheckResult::Fail } else { CheckResult::Warn };
        (format!("trust/{}", w.id), result)
    });
    let tests: Vec<(String, CheckResult)> = of_gate.chain(unjudged).chain(of_trust).collect();
    let named = |result| -> Vec<&str> {
        tests.iter().filter(|(_, r)| *r == result).map(|(name, _)| name.as_str()).collect()
    };
    let (passed, warned, failed) =
        (named(CheckResult::Pass), named(CheckResult::Warn), named(CheckResult::Fail));
    let result = match (report.exit().is_some() || !failed.is_empty(), warned.is_empty()) {
        (true, _) => "FAILED",
        (false, false) => "WARNED",
        (false, true) => "PASSED",
    };
    super::json::pretty(&json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [subject(&report.model, report.model_name())],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {
            "result": result,
            "configuration": configuration(report)?,
            "passedTests": passed,
            "warnedTests": warned,
            "failedTests": failed
        }
    }))
}

/// The model. A net with external data is no single file: its digest is that of docs/formats.md, and
/// `net_sha256` names the net however it is saved.
fn subject(model: &ModelRecord, name: impl Into<Value>) -> Value {
    let mut subject = json!({ "name": name.into(), "digest": { "sha256": model.sha256 } });
    if let (Some(net), Some(bytes)) = (&model.net_sha256, model.bytes) {
        subject["annotations"] = json!({ "net_sha256": net, "bytes": bytes });
    }
    subject
}

/// What was run: the suite with its settings, the images, and the program.
fn configuration(report: &Report) -> Result<Value> {
    let suite = STANDARD.encode(super::json::pretty(&report.suite)?);
    let read_on: Vec<String> = references(report).map(|r| r.line()).collect();
    Ok(json!([
        {
            "name": format!("suite {}", report.suite.name),
            "mediaType": "application/json",
            "content": suite,
            "annotations": { "seed": report.seed, "program": report.tool.in_words(), "references": read_on }
        },
        { "name": report.data.source, "digest": { "sha256": report.data.sha256 } }
    ]))
}

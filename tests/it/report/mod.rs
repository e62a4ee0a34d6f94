//! Reports: every format of one report, in none of which a file's text becomes code; the schema; the page in
//! a browser.

mod files;
mod machines;
mod page;
mod wording;

use crate::common::transcript::{Transcript, readable};
use crate::common::{Temp, as_json, bundled, on_terminal, program, ran, rendered, run, says, words};
use crate::report_fixture::{
    NASTY, PIXEL, add_strong_search, python, report as fixture, warning, with_ladder,
};
use audit::judge::gate::Rules;
use audit::judge::quantity::{Quantity, ROBUST};
use audit::judge::row::alarm;
use audit::record::reason::{MASKED_GRADIENTS, REASONS};
use audit::record::{Example, Found, Outcome, Report, Retrieval, Surrogate, Verdict};
use audit::report::{self, FORMATS, Target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::process::Command;

/// The report with a verdict: one check passes, one fails.
fn judged() -> Report {
    judge(fixture(0.5))
}

fn judge(mut report: Report) -> Report {
    let demands = ["ars=1", "ers=99"].map(String::from);
    let rules = Rules::settle(&[], &demands, &[], &[]).unwrap();
    report.gate = Some(Verdict::judge(&report, None, &rules).unwrap());
    report
}

/// With a strong search, which contradicts the scores: of the 32 queries ES, LTM and GTM leave about half.
fn searched() -> Report {
    let mut report = fixture(0.5);
    report.model.path = "models/a.onnx".into();
    add_strong_search(&mut report);
    judge(report)
}

fn named(report: Report) -> Report {
    let nasty = serde_json::to_string(NASTY).unwrap();
    let text = rendered(&report, "json").replace(nasty.trim_matches('"'), "N");
    Report { command: Some("audit models/a.onnx".into()), ..Report::parse(&text).unwrap() }
}

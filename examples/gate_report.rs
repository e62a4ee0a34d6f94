//! Holds a report to rules of its own, as a build of a model registry would:
//!
//! ```text
//! audit models/hardened.onnx --suite smoke -o report.json
//! cargo run --release --example gate_report -- report.json robust_r1=30
//! ```

use audit::judge::gate::Rules;
use audit::record::{Report, Verdict};
use audit::{Error, Result};
use std::path::Path;
use std::process::ExitCode;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rules @ ..] = &arguments[..] else {
        return Err(Error::usage("expected a report, and rules such as robust_r1=30"));
    };
    let report = Report::load(Path::new(file))?;
    let rules = Rules::settle(&[], rules, &[], &[])?;
    let verdict = Verdict::judge(&report, None, &rules)?;
    for check in &verdict.checks {
        println!("{}", check.text);
    }
    Ok(match verdict.exit() {
        None => ExitCode::SUCCESS,
        Some(exit) => ExitCode::from(exit as u8),
    })
}

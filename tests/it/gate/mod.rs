//! The gate and the comparison, through the command line: one verdict behind text, files and exit code.

mod baseline;
mod bounds;
mod comparison;

use crate::common::transcript::Transcript;
use crate::common::{Temp, as_json, one_line, rendered, run, says};
use crate::report_fixture::{self, report as fixture, search_strongly, warning};
use audit::judge::quantity::{Needs, Quantity};
use audit::judge::{breakdown, corruption, score, strong};
use audit::record::{CmcPoint, Corrupted, Enough, Report, Score, ScoreName};
use audit::threat::term::Term;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn text(dir: &Temp, name: &str, content: impl AsRef<[u8]>) -> String {
    dir.write(name, content);
    name.into()
}

fn save(dir: &Temp, name: &str, report: &Report) -> String {
    text(dir, name, rendered(report, "json"))
}

/// The report with the strong search on all of its 60 queries, which leaves the first `left` of them correct.
fn with_strong(mut report: Report, left: usize) -> Report {
    search_strongly(&mut report, 0..60, None, |i| i < left);
    scored(report)
}

/// The report with ARS of the strong search, and its row.
fn scored(mut report: Report) -> Report {
    let (attacks, scores) =
        score::score(&report.outcomes, &report.skipped, &report.basis(), &ScoreName::ALL, report.seed);
    let all = scores.ars_strong.unwrap();
    report.scores.ars_strong = Some(Score { withheld: false, ..all });
    report.attacks.retain(|a| a.code != "R1");
    report.attacks.extend(attacks.into_iter().find(|row| row.code == "R1"));
    report
}

/// [`with_strong`] at 8/255, with a ladder of ε: the queries that fail do so from 2/255 on.
fn with_ladder(name: &str, left: usize) -> Report {
    let mut report = scored(report_fixture::with_ladder(5, 0..60, 2.0, |i| i < left));
    report.model.path = format!("{name}.onnx");
    report
}

/// The report with clean ranks: the first `wrong` of 201 queries find their class only as the second item.
fn with_clean(mut report: Report, wrong: usize) -> Report {
    report.benign.as_mut().unwrap().first = (0..201).map(|i| usize::from(i < wrong)).collect();
    report.benign.as_mut().unwrap().r1 = 100.0 * (201 - wrong) as f64 / 201.0;
    report
}

//! JUnit XML: one test case per first number, per check of the gate, per reason to distrust the result and
//! per attack. The failures are those that decide the exit code: failed checks of the gate, findings that
//! invalidate the scores, and then the gate as a whole.

use super::escape::markup as escape;
use super::headline::headlines;
use super::view::{measures, numbers};
use audit_base::Result;
use audit_report::judge::row::State as NumberState;
use audit_report::record::{Attack, CheckResult, Report, Severity, State, Warning};

/// How a test case ended.
#[derive(PartialEq)]
enum Status {
    Passed,
    Skipped,
    /// With the kind of the failure.
    Failed(&'static str),
}

/// A test case: its name, its status, and the text about it.
type Case = (String, Status, String);

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let model = escape(report.model_name());
    let note = report.gate.as_ref().and_then(|gate| gate.note.as_ref());
    let note = note.map_or(String::new(), |note| format!("    {}\n", system_out(&escape(note))));
    let suites = [
        ("scores", scores(report), ""),
        ("gate", gate(report), note.as_str()),
        ("trust", trust(report), ""),
        ("attacks", attacks(report), ""),
    ];
    let failed =
        |cases: &[Case]| cases.iter().filter(|(_, status, _)| matches!(status, Status::Failed(_))).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"audit {model}\" tests=\"{}\" \
         failures=\"{}\" errors=\"0\">\n",
        suites.iter().map(|(_, cases, _)| cases.len()).sum::<usize>(),
        suites.iter().map(|(_, cases, _)| failed(cases)).sum::<usize>(),
    );
    for (name, cases, after) in suites {
        let class = format!("{model}.{name}");
        out += &format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}{after}  \
             </testsuite>\n",
            cases.len(),
            failed(&cases),
            cases.iter().filter(|(_, status, _)| *status == Status::Skipped).count(),
            cases.iter().map(|case| test_case(&class, case)).collect::<String>()
        );
    }
    Ok((out + "</testsuites>\n").into_bytes())
}

fn system_out(text: &str) -> String {
    format!("<system-out>{text}</system-out>")
}

fn test_case(class: &str, (name, status, text): &Case) -> String {
    let (name, text) = (escape(name), escape(text));
    let content = match status {
        Status::Passed => system_out(&text),
        Status::Skipped => format!("<skipped message=\"{text}\"/>"),
        Status::Failed(kind) => format!("<failure type=\"{kind}\" message=\"{text}\">{text}</failure>"),
    };
    format!("    <testcase classname=\"{class}\" name=\"{name}\">{content}</testcase>\n")
}

fn scores(report: &Report) -> Vec<Case> {
    let caveat = report.caveat().map(|caveat| (String::from("caveat"), Status::Passed, caveat));
    let first = headlines(report).into_iter().map(|f| {
        let status = if f.row.value.is_none() { Status::Skipped } else { Status::Passed };
        let line = f.line();
        (f.label, status, line)
    });
    caveat.into_iter().chain(first).collect()
}

fn gate(report: &Report) -> Vec<Case> {
    let unjudged = report.gate.iter().filter(|g| g.untrusted);
    let unjudged = unjudged.map(|g| (String::from("verdict"), Status::Failed("untrusted"), g.headline()));
    let checks = report.gate.iter().flat_map(|g| &g.checks).map(|c| {
        let (status, text) = match c.result {
            CheckResult::Fail => (Status::Failed(c.kind.name()), c.text.clone()),
            CheckResult::Warn => (Status::Passed, format!("warning: {}", c.text)),
            CheckResult::Pass => (Status::Passed, c.text.clone()),
        };
        (format!("{} {}", c.metric, c.kind.name()), status, text)
    });
    unjudged.chain(checks).collect()
}

fn trust(report: &Report) -> Vec<Case> {
    let case = |w: &Warning| {
        let not_checked = w.state == State::NotChecked;
        let (status, text) = match w.severity {
            _ if report.fails_by(w) => (Status::Failed("untrusted"), w.text.clone()),
            _ if not_checked => (Status::Skipped, w.text.clone()),
            Severity::Ok | Severity::Info => return None,
            severity => (Status::Passed, format!("{}: {}", severity.word(), w.text)),
        };
        Some((w.id.clone(), status, text))
    };
    report.warnings.iter().filter_map(case).collect()
}

fn attacks(report: &Report) -> Vec<Case> {
    let case = |a: &Attack| {
        let found = numbers(report, a);
        let measures = measures(report, a);
        let (status, text) = match found.state {
            NumberState::NotMeasured => (Status::Skipped, "no trial could be run".into()),
            NumberState::Withheld => {
                let why = found.why.as_deref().unwrap_or_default();
                (Status::Skipped, format!("{measures}: {}, {why}", found.cell()))
            }
            NumberState::Measured => (
                Status::Passed,
                format!("{measures}: {} before, {} after", found.number(a.before), found.cell()),
            ),
        };
        (a.code.clone(), status, text)
    };
    report.attacks.iter().map(case).collect()
}

//! JUnit XML: one test case per first number, per check of the gate, per reason to distrust the result and
//! per attack. The failures are those that decide the exit code: failed checks of the gate, and findings that
//! invalidate the scores.

use super::escape::markup as escape;
use super::headline::headlines;
use super::view::{measures, numbers};
use audit_base::Result;
use audit_report::judge::row::State as NumberState;
use audit_report::record::{CheckResult, Report, Severity, State, Warning};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let model = escape(report.model_name());
    let checks = report.gate.iter().flat_map(|g| &g.checks);
    let failures = checks.clone().filter(|c| c.result == CheckResult::Fail).count();
    let gate: Vec<String> = checks
        .map(|c| {
            let text = escape(&c.text);
            let inside = match c.result {
                CheckResult::Fail => {
                    format!("<failure type=\"{}\" message=\"{text}\">{text}</failure>", c.kind.name())
                }
                CheckResult::Warn => format!("<system-out>warning: {text}</system-out>"),
                CheckResult::Pass => format!("<system-out>{text}</system-out>"),
            };
            let name = escape(&format!("{} {}", c.metric, c.kind.name()));
            format!("    <testcase classname=\"{model}.gate\" name=\"{name}\">{inside}</testcase>\n")
        })
        .collect();
    let first = headlines(report);
    let caveat = report.caveat().map(|caveat| {
        let text = escape(&caveat);
        format!("    <testcase classname=\"{model}.scores\" name=\"caveat\"><system-out>{text}</system-out></testcase>\n")
    });
    let scores = first.iter().map(|f| {
        let text = escape(&f.line());
        let inside = match f.row.value {
            None => format!("<skipped message=\"{text}\"/>"),
            Some(_) => format!("<system-out>{text}</system-out>"),
        };
        format!("    <testcase classname=\"{model}.scores\" name=\"{}\">{inside}</testcase>\n", f.label)
    });
    let scores: Vec<String> = caveat.into_iter().chain(scores).collect();
    let attacks: Vec<String> = report
        .attacks
        .iter()
        .map(|a| {
            let found = numbers(report, a);
            let measures = escape(&measures(report, a));
            let inside = match found.state {
                NumberState::NotMeasured => "<skipped message=\"no trial could be run\"/>".into(),
                NumberState::Withheld => {
                    format!(
                        "<skipped message=\"{measures}: {}, {}\"/>",
                        found.cell(),
                        escape(found.why.as_deref().unwrap_or_default())
                    )
                }
                NumberState::Measured => format!(
                    "<system-out>{measures}: {} before, {} after</system-out>",
                    found.number(a.before),
                    found.cell()
                ),
            };
            let code = escape(&a.code);
            format!("    <testcase classname=\"{model}.attacks\" name=\"{code}\">{inside}</testcase>\n")
        })
        .collect();
    let gap = |w: &Warning| w.state == State::NotChecked;
    let trust: Vec<String> = (report.warnings.iter().filter(|w| w.severity > Severity::Info || gap(w)))
        .map(|w| {
            let (id, text) = (escape(&w.id), escape(&w.text));
            let inside = match w.severity {
                Severity::Error if !report.allow_untrusted => {
                    format!("<failure type=\"untrusted\" message=\"{text}\">{text}</failure>")
                }
                _ if gap(w) => format!("<skipped message=\"{text}\"/>"),
                severity => format!("<system-out>{}: {text}</system-out>", severity.word()),
            };
            format!("    <testcase classname=\"{model}.trust\" name=\"{id}\">{inside}</testcase>\n")
        })
        .collect();
    let untrusted = if report.allow_untrusted { 0 } else { report.errors().count() };
    let skipped = report.attacks.iter().filter(|a| numbers(report, a).state != NumberState::Measured).count();
    let unchecked = report.warnings.iter().filter(|w| gap(w) && w.severity < Severity::Error).count();
    let unmeasured = first.iter().filter(|f| f.row.value.is_none()).count();
    let note = report.gate.as_ref().and_then(|gate| gate.note.as_ref());
    let note = note.map_or(String::new(), |note| format!("    <system-out>{}</system-out>\n", escape(note)));
    let suite = |name: &str, cases: &[String], failures, skipped, after: &str| {
        format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{}{after}  \
             </testsuite>\n",
            cases.len(),
            cases.concat()
        )
    };
    let out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"audit {model}\" tests=\"{}\" \
         failures=\"{}\" errors=\"0\">\n{}{}{}{}</testsuites>\n",
        scores.len() + gate.len() + trust.len() + attacks.len(),
        failures + untrusted,
        suite("scores", &scores, 0, unmeasured, ""),
        suite("gate", &gate, failures, 0, &note),
        suite("trust", &trust, untrusted, unchecked, ""),
        suite("attacks", &attacks, 0, skipped, ""),
    );
    Ok(out.into_bytes())
}

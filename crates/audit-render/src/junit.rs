//! JUnit XML: one test case per first number, per check of the gate, per reason to distrust the result and
//! per attack. The failures are those that decide the exit code: failed checks of the gate, findings that
//! invalidate the scores, and then the gate as a whole.

use super::escape::markup as escape;
use super::headline::headlines;
use super::view::{measures, numbers};
use audit_base::Result;
use audit_report::judge::row::State as NumberState;
use audit_report::record::{CheckResult, Report, Severity, State, Warning};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let model = escape(report.model_name());
    let test_case = |suite: &str, name: &str, content: String| {
        format!("    <testcase classname=\"{model}.{suite}\" name=\"{name}\">{content}</testcase>\n")
    };
    let system_out = |text: &str| format!("<system-out>{text}</system-out>");
    let skipped_because = |text: &str| format!("<skipped message=\"{text}\"/>");
    let failure =
        |kind: &str, text: &str| format!("<failure type=\"{kind}\" message=\"{text}\">{text}</failure>");
    let checks = report.gate.iter().flat_map(|g| &g.checks);
    let unjudged = report.gate.iter().filter(|g| g.untrusted);
    let failures =
        checks.clone().filter(|c| c.result == CheckResult::Fail).count() + unjudged.clone().count();
    let unjudged =
        unjudged.map(|g| test_case("gate", "verdict", failure("untrusted", &escape(&g.headline()))));
    let gate = unjudged.chain(checks.map(|c| {
        let text = escape(&c.text);
        let content = match c.result {
            CheckResult::Fail => failure(c.kind.name(), &text),
            CheckResult::Warn => system_out(&format!("warning: {text}")),
            CheckResult::Pass => system_out(&text),
        };
        test_case("gate", &escape(&format!("{} {}", c.metric, c.kind.name())), content)
    }));
    let first = headlines(report);
    let caveat = report.caveat().map(|caveat| test_case("scores", "caveat", system_out(&escape(&caveat))));
    let scores = first.iter().map(|f| {
        let text = escape(&f.line());
        test_case(
            "scores",
            &escape(&f.label),
            if f.row.value.is_none() { skipped_because(&text) } else { system_out(&text) },
        )
    });
    let attacks = report.attacks.iter().map(|a| {
        let found = numbers(report, a);
        let measures = escape(&measures(report, a));
        let content = match found.state {
            NumberState::NotMeasured => skipped_because("no trial could be run"),
            NumberState::Withheld => {
                let why = escape(found.why.as_deref().unwrap_or_default());
                skipped_because(&format!("{measures}: {}, {why}", found.cell()))
            }
            NumberState::Measured => {
                system_out(&format!("{measures}: {} before, {} after", found.number(a.before), found.cell()))
            }
        };
        test_case("attacks", &escape(&a.code), content)
    });
    let not_checked = |w: &Warning| w.state == State::NotChecked;
    let listed = report.warnings.iter().filter(|w| w.severity > Severity::Info || not_checked(w));
    let trust = listed.map(|w| {
        let text = escape(&w.text);
        let content = match w.severity {
            _ if report.fails_by(w) => failure("untrusted", &text),
            _ if not_checked(w) => skipped_because(&text),
            severity => system_out(&format!("{}: {text}", severity.word())),
        };
        test_case("trust", &escape(&w.id), content)
    });
    let untrusted = report.warnings.iter().filter(|w| report.fails_by(w)).count();
    let skipped = report.attacks.iter().filter(|a| numbers(report, a).state != NumberState::Measured).count();
    let unchecked = report.warnings.iter().filter(|w| not_checked(w) && w.severity < Severity::Error).count();
    let unmeasured = first.iter().filter(|f| f.row.value.is_none()).count();
    let note = report.gate.as_ref().and_then(|gate| gate.note.as_ref());
    let note = note.map_or(String::new(), |note| format!("    {}\n", system_out(&escape(note))));
    let suites = [
        ("scores", caveat.into_iter().chain(scores).collect::<Vec<_>>(), 0, unmeasured, ""),
        ("gate", gate.collect(), failures, 0, &note),
        ("trust", trust.collect(), untrusted, unchecked, ""),
        ("attacks", attacks.collect(), 0, skipped, ""),
    ];
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"audit {model}\" tests=\"{}\" \
         failures=\"{}\" errors=\"0\">\n",
        suites.iter().map(|(_, cases, ..)| cases.len()).sum::<usize>(),
        failures + untrusted,
    );
    for (name, cases, failures, skipped, after) in suites {
        out += &format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{}{after}  \
             </testsuite>\n",
            cases.len(),
            cases.concat()
        );
    }
    Ok((out + "</testsuites>\n").into_bytes())
}

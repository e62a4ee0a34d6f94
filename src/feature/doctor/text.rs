//! The findings for a terminal.

use super::result::Examination;
use crate::check::CHECKS;
use crate::record::{Severity, State, number_of_queries};
use crate::report;
use crate::report::terminal::wrap;

impl Examination {
    /// How many checks passed, failed and did not run, and what this means, in two or three sentences.
    fn conclusion(&self) -> String {
        let failed = |of: Severity| {
            self.findings.iter().filter(|f| f.state == State::Failed && f.severity == of).count()
        };
        let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Info].map(failed);
        let passed = self.findings.iter().filter(|f| f.state == State::Passed).count();
        let gaps: Vec<&str> =
            self.findings.iter().filter(|f| f.state == State::NotChecked).map(|f| f.check.as_str()).collect();
        let has = |id: &str| self.findings.iter().any(|f| f.check == id);
        let left_out = CHECKS.iter().filter(|c| !has(c.reason.id)).count();
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let kinds = [(errors, "error"), (warnings, "warning"), (notes, "note")];
        let kinds: Vec<String> =
            kinds.iter().filter(|(n, _)| *n > 0).map(|(n, what)| counted(*n, what)).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let mut text = format!(
            "{} checks: {passed} passed, {} failed{kinds}, {} not checked. ",
            self.findings.len(),
            errors + warnings + notes,
            gaps.len()
        );
        text += match (errors, warnings, gaps.is_empty() && left_out == 0) {
            (0, 0, true) => "Nothing casts doubt on an audit of this model",
            (0, 0, false) => "No check that ran casts doubt on an audit of this model",
            (0, ..) => "Scores of this model are valid, within what the warnings say",
            _ => "Scores of this model are not to be trusted: see the errors above",
        };
        if !gaps.is_empty() {
            text += &format!(". Not checked: {}", gaps.join(", "));
        }
        if left_out > 0 {
            text += &format!(". --only left out {}", counted(left_out, "check"));
        }
        text
    }

    /// The table, and what to do.
    pub fn render(&self) -> String {
        let s = &self.suite;
        let mut out = wrap(&format!(
            "{} · {} images, {} classes · {}",
            self.model.path, self.data.images, self.data.classes, self.data.source
        ));
        out.push('\n');
        let search = match s.effort {
            Some(effort) => format!("strong search, effort {effort}"),
            None => format!("{} steps", s.steps),
        };
        out += &wrap(&format!(
            "looking into suite {} ({} form) · {}: ε {}, {search} · {} · seed {}",
            s.name,
            s.form,
            s.protocol,
            report::bound(s),
            number_of_queries(s.queries),
            self.seed
        ));
        out.push('\n');
        out += &report::terminal::findings(&self.findings);
        out += &wrap(&self.conclusion());
        out.push('\n');
        out
    }
}

//! References to catalogues of threats and controls, for further reading. They don't claim compliance.

use audit_report::facts::{Schedule, gradient_free};
use audit_report::record::Report;

pub(super) struct CatalogueEntry {
    /// The catalogue and its edition.
    pub catalogue: &'static str,
    /// The entry's id in it.
    pub id: &'static str,
    /// What a report has to do with it.
    pub about: &'static str,
    concerns: fn(&Report) -> bool,
}

impl CatalogueEntry {
    /// The entry in a few words.
    pub fn line(&self) -> String {
        format!("{} {} ({})", self.catalogue, self.id, self.about)
    }

    /// The entry as one word, for tags.
    pub fn tag(&self) -> String {
        format!("{} {}", self.catalogue, self.id).to_lowercase().replace(' ', "-")
    }
}

const ATLAS: &str = "MITRE ATLAS";
const AISVS: &str = "OWASP AISVS 1.0";

const fn entry(
    catalogue: &'static str,
    id: &'static str,
    about: &'static str,
    concerns: fn(&Report) -> bool,
) -> CatalogueEntry {
    CatalogueEntry { catalogue, id, about, concerns }
}

const REFERENCES: [CatalogueEntry; 10] = [
    entry(ATLAS, "AML.T0043", "images are changed so that the model is mistaken", attacked),
    entry(ATLAS, "AML.T0043.000", "along the model's gradient", along_gradient),
    entry(ATLAS, "AML.T0043.001", "by the model's answers alone", blind),
    entry(ATLAS, "AML.T0043.002", "made on another model", |r| attacked(r) && r.suite.surrogate.is_some()),
    entry(AISVS, "C11.1.3", "adversarial robustness", attacked),
    entry(AISVS, "C11.1.4", "adversarial robustness", attacked),
    entry(AISVS, "C3.2.2", "tests before a model is released", |r| r.gate.is_some()),
    entry(AISVS, "C3.2.3", "tests before a model is released", |r| r.gate.is_some()),
    entry("OWASP", "LLM09:2026", "where the model retrieves for an LLM", attacked),
    entry("NIST AI 100-2", "E2025", "evasion attacks", attacked),
];

fn attacked(report: &Report) -> bool {
    !report.outcomes.is_empty()
}

/// Whether trials were attacked along the audited model's own gradient: by the attacks of the suite, or by
/// the strong search beside black-box attacks.
fn along_gradient(report: &Report) -> bool {
    let strong = || report.outcomes.iter().any(|o| o.members.is_some());
    let own = !report.estimated() && report.suite.surrogate.is_none();
    attacked(report) && own && (report.suite.forward_passes.is_none() || strong())
}

/// Whether trials were attacked without the gradient: all of them, or by a member of the strong search.
fn blind(report: &Report) -> bool {
    let results = || report.outcomes.iter().flat_map(|o| o.members.iter().flatten());
    let searched = Schedule::find(&report.suite.schedule).is_ok_and(|search| !search.needs_gradient);
    report.estimated() || searched || results().any(|m| m.steps > 0 && gradient_free(&m.member))
}

/// The entries that concern a report.
pub(super) fn references(report: &Report) -> impl Iterator<Item = &'static CatalogueEntry> {
    REFERENCES.iter().filter(|reference| (reference.concerns)(report))
}

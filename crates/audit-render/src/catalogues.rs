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
    /// Whether it concerns a report.
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

/// Every entry.
const REFERENCES: [CatalogueEntry; 9] = [
    CatalogueEntry {
        catalogue: ATLAS,
        id: "AML.T0043",
        about: "images are changed so that the model is mistaken",
        concerns: attacked,
    },
    CatalogueEntry {
        catalogue: ATLAS,
        id: "AML.T0043.000",
        about: "along the model's gradient",
        concerns: |report| attacked(report) && !report.estimated(),
    },
    CatalogueEntry {
        catalogue: ATLAS,
        id: "AML.T0043.001",
        about: "by the model's answers alone",
        concerns: blind,
    },
    CatalogueEntry { catalogue: AISVS, id: "C11.1.3", about: "adversarial robustness", concerns: attacked },
    CatalogueEntry { catalogue: AISVS, id: "C11.1.4", about: "adversarial robustness", concerns: attacked },
    CatalogueEntry {
        catalogue: AISVS,
        id: "C3.2.2",
        about: "tests before a model is released",
        concerns: judged,
    },
    CatalogueEntry {
        catalogue: AISVS,
        id: "C3.2.3",
        about: "tests before a model is released",
        concerns: judged,
    },
    CatalogueEntry {
        catalogue: "OWASP",
        id: "LLM09:2026",
        about: "where the model retrieves for an LLM",
        concerns: attacked,
    },
    CatalogueEntry { catalogue: "NIST AI 100-2", id: "E2025", about: "evasion attacks", concerns: attacked },
];

fn attacked(report: &Report) -> bool {
    !report.outcomes.is_empty()
}

fn judged(report: &Report) -> bool {
    report.gate.is_some()
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

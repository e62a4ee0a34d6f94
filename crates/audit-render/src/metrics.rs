//! The numbers of a report as one flat JSON object, for experiment trackers: MLflow, Weights & Biases, DVC.
//!
//! Trackers allow different characters in names. All of them allow letters, digits and underscores, so a
//! metric of gates gets a name of these: `attack.CA+.resistance` is `attack_CA_plus_resistance`.

use audit_base::Result;
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::Mark;
use audit_report::judge::strong::Contradictions;
use audit_report::record::{Report, Severity};
use serde_json::{Map, Value};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let (mut all, known) = (Map::new(), Contradictions::of(report));
    for quantity in Quantity::of(report) {
        let row = quantity.row(report);
        let name = plain(quantity.name);
        if let Some((low, high)) = row.interval {
            all.insert(format!("{name}_low"), low.into());
            all.insert(format!("{name}_high"), high.into());
        }
        if let Some(mark) = row.mark(&known) {
            let mark = match mark {
                Mark::Withheld => "withheld",
                Mark::MaskedGradients | Mark::Untrusted => "void",
                Mark::Contradicted => "contradicted",
            };
            all.insert(format!("{name}_{mark}"), 1.into());
        }
        if row.is_above() {
            all.insert(format!("{name}_above"), 1.into());
        }
        if let Some(value) = row.value {
            all.insert(name, value.into());
        }
    }
    all.insert("queries".into(), report.suite.queries.into());
    if let Some(robust) = report.scores.robust() {
        let name = Quantity::robust(report).name;
        all.insert(format!("{name}_queries"), robust.queries.into());
        all.insert(format!("{name}_eps"), report.suite.eps.into());
    }
    // A number alone doesn't say that it means nothing.
    for (name, severity) in [("findings_error", Severity::Error), ("findings_warning", Severity::Warning)] {
        let found = report.warnings.iter().filter(|w| w.severity == severity).count();
        all.insert(name.into(), found.into());
    }
    if let Some(gate) = &report.gate {
        all.insert("gate_passed".into(), u8::from(gate.exit().is_none()).into());
    }
    super::json::pretty(&Value::Object(all))
}

/// A metric's name in letters, digits and underscores.
fn plain(name: &str) -> String {
    let spelled = name.replace('+', "_plus").replace('-', "_minus").replace('@', "_at_");
    spelled.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_stay_apart() {
        let names: Vec<String> = Quantity::all().map(|q| plain(q.name)).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(names.contains(&"attack_CA_minus_resistance".to_string()));
        assert!(names.contains(&"benign_cmc_at_5".to_string()));
    }
}

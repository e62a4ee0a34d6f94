//! Findings of parts in the merged report, and what else a review found.

use crate::common::models::{Bench, small};
use crate::common::{Temp, bundled_path, near, on_terminal, one_line, outcome, rendered, says, words};
use audit::feature::doctor::{self, Doctor};
use audit::feature::merge;
use audit::judge::exact::exact;
use audit::judge::quantity::Quantity;
use audit::judge::row;
use audit::record::{CheckResult, Measures, Outcome, Severity, reason};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Part 2 ran on a machine on which the model is randomised; part 1 saw a lesser finding of the same check.
#[test]
fn the_merged_report_has_the_findings_of_every_part() {
    let bench = Bench::new(&small(), 6, 5, 1);
    let parts: Vec<PathBuf> = (1..=2)
        .map(|m| {
            let file = bench.path(&format!("{m}.json"));
            let part = format!("hash:{m}/2");
            let flags = ["--suite", "smoke", "--strong-sample", "off", "--partition", &part, "-o", &file];
            bench.audit(&flags).unwrap();
            file.into()
        })
        .collect();
    let merged = || merge::merge(&parts, "audit merge").unwrap();
    let before = merged();
    assert!(!before.allow_untrusted);
    let found = |part: &str, allowed: bool, rows: [Value; 2]| {
        let mut report = bench.temp.json(part);
        report["warnings"].as_array_mut().unwrap().extend(rows);
        report["allow_untrusted"] = allowed.into();
        bench.temp.write(part, report.to_string());
    };
    let finding =
        |id: &str, severity: &str, text: &str| json!({"id": id, "severity": severity, "text": text});
    let nodes = |text: &str| finding("cpu-nodes", "info", text);
    let lesser = finding("randomised", "warning", "differs by 1e-6");
    found("1.json", false, [lesser, nodes("2 nodes")]);
    found("2.json", true, [finding("randomised", "error", "differs by 1e-2"), nodes("3 nodes")]);
    let after = merged();
    assert!(after.allow_untrusted);
    says(&row::alarm(&after).unwrap(), &["randomised"]);
    let of = |id: &str| -> Vec<(Severity, &str)> {
        let mine = after.warnings.iter().filter(|w| w.id == id);
        mine.map(|w| (w.severity, w.text.as_str())).collect()
    };
    assert_eq!(of("randomised"), [(Severity::Error, "differs by 1e-2")]);
    assert_eq!(of("cpu-nodes"), [(Severity::Info, "2 nodes")], "of equals, that of the first part");
    assert!(of(reason::PART_OF_A_RUN.id).is_empty());
    assert_eq!(after.warnings.len(), before.warnings.len() + 2);
}

/// The folders `a/test` and `b/test` have one name and other images.
#[test]
fn a_model_card_keeps_the_results_of_other_images() {
    let dir = Temp::new();
    let card = dir.join("README.md");
    let audited = |source: &str, sha256: &str| {
        let mut report = crate::report_fixture::report(0.5);
        (report.data.source, report.data.sha256) = (source.into(), sha256.into());
        audit::report::model_card::write(&report, &card).unwrap();
        dir.text("README.md").matches("Image retrieval under attack").count()
    };
    assert_eq!(audited("a/test", "aa"), 1);
    assert_eq!(audited("b/test", "bb"), 2);
    assert_eq!(audited("c/moved", "bb"), 2, "the same images in another folder");
    says(&dir.text("README.md"), &["sha256: \"aa\"", "sha256: \"bb\"", "name: \"moved\""]);
    // Of an entry without a hash only the name is known.
    let text = dir.text("README.md").replace("sha256: \"aa\"", "note: \"aa\"");
    std::fs::write(&card, text).unwrap();
    assert_eq!(audited("d/test", "dd"), 2);
}

/// The doctor's table for a suite, with the check `one-step` alone of those that attack, and what this check
/// found.
fn one_step(suite: &str) -> [String; 2] {
    let bench = Bench::new(&small(), 6, 5, 1);
    let fixed = [bench.model.as_str(), "--data", &bench.data, "--mean", "0", "--std", "1"];
    let audit = crate::common::request(&[&fixed[..], &["--suite", suite, "--max-queries", "4"]].concat());
    let found = doctor::run(&Doctor { audit, only: vec!["one-step".into()] }).unwrap();
    let row = found.findings.iter().find(|f| f.check == "one-step").unwrap();
    [one_line(&found.render()), row.found.clone()]
}

/// An audit of suite `robust` attacks by the strong search alone. A search that beats a single search of 32
/// steps says nothing of it.
#[test]
fn the_doctor_examines_the_search_that_the_audit_makes() {
    let [table, found] = one_step("robust");
    says(&table, &["looking into suite robust", "strong search, effort 1 · 4 queries"]);
    assert!(!table.contains("32 steps"), "{table}");
    says(&found, &["gets more success than the strong search on", "of 4 trials"]);
}

/// R1 is attacked by the strong search beside other attacks too: only the trials of ES are compared with
/// other single searches.
#[test]
fn the_doctor_examines_no_search_that_the_audit_does_not_make() {
    let folder = Temp::new();
    let suite = folder.file("both.yaml", "form: corrected\nattacks: [ES, R1]\nladder: 2\nsteps: 8\n");
    let [table, found] = one_step(&suite);
    says(&table, &["8 steps · 4 queries"]);
    says(&found, &["than the audit's 8 steps on", "of 4 trials"]);
}

/// 0.03137, the protocols' ε, is 7.99935/255 and stands for 8/255: a gate takes the rungs by the names of
/// whole numbers, and the report agrees with itself.
#[test]
fn the_ladder_of_a_truncated_eps_has_rungs_of_whole_levels() {
    let model = bundled_path("plain.onnx");
    let fixed = [model.as_str(), "--eps", "0.03137", "--max-queries", "12"];
    let bounds = words("--fail-under robust_r1@8/255=0 --fail-under robust_r1_file@1/255=0");
    let found = crate::common::audit(&[&fixed[..], &bounds].concat()).unwrap();
    assert!(found.gate.as_ref().unwrap().checks.iter().all(|check| check.result == CheckResult::Pass));
    let ladder = found.scores.robust_r1.as_ref().unwrap().ladder.as_ref().unwrap();
    let value = |name: &str| Quantity::find(name).unwrap().value(&found);
    for (rung, levels) in ladder.rungs.iter().zip(["8", "4", "2", "1", "0.5", "0.25"]) {
        assert_eq!(value(&format!("robust_r1@{levels}/255")), Some(rung.r1), "{levels}");
        assert_eq!(rung.as_file.is_some(), !levels.starts_with("0."), "{levels}");
    }
    // A change of a whole level counts as one within the rung.
    let level = |o: &Outcome| o.enough.and_then(|enough| enough.as_file).map_or(9.0, |size| 255.0 * size);
    for (rung, levels) in ladder.rungs.iter().zip([8.0, 4.0, 2.0, 1.0]) {
        let left = found.outcomes.iter().filter(|o| level(o) > levels + 1e-3).count();
        near(rung.as_file.unwrap(), 100.0 * left as f64 / 12.0, 1e-9, "as a file");
    }
    let names: Vec<&str> = Quantity::of(&found).map(|of| of.name).collect();
    assert!(names.contains(&"robust_r1@4/255") && names.contains(&"robust_r1_file@8/255"), "{names:?}");
    let refused = Quantity::find("robust_r1@9/255").unwrap().beside_ladder(&found).unwrap();
    assert_eq!(refused, "its largest ε is 8/255");
}

/// The weakest class under the attack that makes most of one fail is chosen among two classes and two
/// attacks. With the queries of both classes together there are three intervals for each attack: its own is
/// at 1 − 0.05/6.
#[test]
fn the_weakest_class_is_chosen_among_classes_and_attacks() {
    let mut report = crate::report_fixture::report(0.5);
    report.outcomes.clear();
    report.labels.clear();
    let hit = |hit| Measures { hit: Some(hit), ..Measures::default() };
    for (attack, class, right) in [("ES", "ant", 9), ("ES", "bee", 6), ("LTM", "ant", 11), ("LTM", "bee", 10)]
    {
        for i in 0..12 {
            let query = format!("{class}/{i:02}");
            report.outcomes.push(outcome(attack, &query, hit(true), hit(i < right)));
            report.labels.insert(query, class.into());
        }
    }
    let (low, high) = exact(6.0, 12.0, 0.05 / 6.0);
    let within = format!("(95 % for the weakest of all {low:.1} – {high:.1} %)");
    let text = on_terminal(&report, 400);
    says(&text, &["Weakest of 2 classes under ES:R", "bee 6 of 12, ant 3 of 12", &within]);
    // The table has each attack for itself.
    let (low, high) = exact(6.0, 12.0, 0.05 / 3.0);
    let page = rendered(&report, "html");
    says(&page, &[&format!("{low:.1} – {high:.1}"), "for new queries of these classes", "Wilson", "Clopper"]);
    // Two attacks that break a whole class: the first of the report's table is named.
    for o in &mut report.outcomes {
        o.after = hit(!o.query.starts_with("bee/"));
    }
    says(&on_terminal(&report, 400), &["Weakest of 2 classes under ES:R", "bee 12 of 12"]);
}

//! The gate and the comparison, through the command line: one verdict behind text, files and exit code.

mod report_fixture;

use audit::report::metric::Metric;
use audit::report::{CmcPoint, FORMATS, Report};
use report_fixture::{audit, folder};
use std::path::{Path, PathBuf};

fn save(dir: &Path, name: &str, report: &Report) -> String {
    let json = FORMATS.iter().find(|f| f.extension == "json").unwrap();
    let path: PathBuf = dir.join(name);
    std::fs::write(&path, (json.render)(report).unwrap()).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn thresholds_decide_the_exit_code_and_the_text() {
    let dir = folder("thresholds");
    let report = save(&dir, "r.json", &report_fixture::report(0.5));
    let (code, out, _) =
        audit(&["gate", &report, "--fail-under", "ars=40", "--fail-under", "attack.ES:R=10"]);
    assert!(code == 0 && out.starts_with("gate passed: 2 checks"), "{code} {out}");
    let (code, out, _) =
        audit(&["gate", &report, "--fail-under", "ars=40", "--fail-under", "attack.ES:R=90"]);
    assert!(
        code == 10
            && out.contains("FAILED")
            && out.contains("FAIL  attack.ES:R")
            && out.contains("pass  ars"),
        "{out}"
    );
    let (code, out, _) = audit(&["gate", &report, "--fail-over", "attack.CA-=30"]);
    assert!(code == 10 && out.contains("above the allowed 30"), "{out}");
    let junit = dir.join("g.junit.xml");
    let (code, _, _) = audit(&["gate", &report, "--fail-under", "ars=99", "-o", junit.to_str().unwrap()]);
    assert_eq!(code, 10);
    assert!(std::fs::read_to_string(junit).unwrap().contains("<failure type=\"min\""));
}

/// 58 hits of 100 are 57.99999999999999 % in floating point.
#[test]
fn a_threshold_that_is_just_met_is_met() {
    let dir = folder("boundary");
    let at = |name: &str, r1: f64| {
        let mut report = report_fixture::report(0.5);
        report.benign.r1 = r1;
        save(&dir, name, &report)
    };
    let (met, base) = (at("met.json", 100.0 * 0.58), at("base.json", 100.0 * 0.59));
    let (code, out, _) = audit(&["gate", &met, "--fail-under", "benign.r1=58"]);
    assert!(code == 0 && out.contains("58.0") && !out.contains("57.9"), "{out}");
    let (code, out, _) = audit(&["gate", &met, "--fail-under", "benign.r1=58.001"]);
    assert!(code == 10 && out.contains("58.0, below the required 58.001"), "{out}");
    let (code, out, _) = audit(&["gate", &met, "--baseline", &base, "--max-drop", "benign.r1=1"]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn suites_that_demand_nothing_are_mistakes() {
    let dir = folder("nothing");
    let report = save(&dir, "r.json", &report_fixture::report(0.5));
    for (rule, said) in [
        ("ars: { min: .nan }", "min of ars"),
        ("ars: { max_drop: .inf }", "max_drop of ars"),
        ("benign.r1: {}", "demanded nothing of"),
    ] {
        let suite = dir.join("suite.yaml");
        std::fs::write(&suite, format!("name: s\nform: published\nattacks: [ES]\ngate:\n  {rule}\n"))
            .unwrap();
        let (code, _, err) = audit(&["gate", &report, "--suite", suite.to_str().unwrap()]);
        assert!(code == 2 && err.contains(said), "{rule}: {code} {err}");
    }
}

#[test]
fn what_cannot_be_checked_is_a_mistake_not_a_pass() {
    let dir = folder("mistakes");
    let full = report_fixture::report(0.5);
    let report = save(&dir, "r.json", &full);
    let mut without = full.clone();
    without.scores.ars = None;
    let without = save(&dir, "without.json", &without);
    for (flags, said) in [
        (vec!["gate", &report, "--fail-under", "arz=1"], "did you mean `ars`?"),
        (vec!["gate", &report, "--fail-under", "ars"], "such as ars=45"),
        (vec!["gate", &report, "--fail-under", "ars=x"], "such as ars=45"),
        (vec!["gate", &report, "--fail-under", "ars=nan"], "such as ars=45"),
        (vec!["gate", &report, "--fail-under", "attack.CA-=1"], "state an upper one"),
        (vec!["gate", &report, "--fail-over", "ars=1"], "state a lower one"),
        (vec!["gate", &report, "--max-drop", "ars=1"], "add --baseline"),
        (vec!["gate", &report], "nothing is demanded"),
        (vec!["gate", &without, "--fail-under", "ars=1"], "has no `ars`"),
        (vec!["gate", &report, "--baseline", &without, "--max-drop", "ars=1"], "has no `ars`"),
        (vec!["gate", "nowhere.json", "--fail-under", "ars=1"], "can't read"),
    ] {
        let (code, out, err) = audit(&flags);
        assert!(code == 2 && err.contains(said) && out.is_empty(), "{flags:?}: {code} {out} {err}");
    }
}

#[test]
fn a_drop_counts_beyond_the_tolerance_and_beyond_chance() {
    let dir = folder("drops");
    let base = save(&dir, "base.json", &report_fixture::report(0.6));
    let worse = save(&dir, "worse.json", &report_fixture::report(0.45));
    let (code, out, _) = audit(&["gate", &worse, "--baseline", &base]);
    assert!(code == 11 && out.contains("regression") && out.contains("FAIL  ars"), "{code} {out}");
    let (code, out, _) = audit(&["gate", &worse, "--baseline", &base, "--max-drop", "ars=90"]);
    assert!(
        code == 0 && out.contains("within the tolerance 90") && out.contains("benign.r1"),
        "{code} {out}"
    );
    let (code, _, _) = audit(&["gate", &base, "--baseline", &worse]);
    assert_eq!(code, 0, "better is no regression");
    let (code, out, _) = audit(&["gate", &worse, "--baseline", &base, "--fail-under", "ars=99"]);
    assert_eq!(code, 10, "a missed threshold comes first: {out}");
    // Two queries of 60 lost: 3.3 points, beyond the tolerance, and no more than chance explains.
    let mut unlucky = report_fixture::report(0.6);
    let hits = unlucky.outcomes.iter_mut().filter(|o| o.attack == "ES" && o.after.hit == Some(true));
    hits.take(2).for_each(|o| o.after.hit = Some(false));
    let row = unlucky.attacks.iter_mut().find(|a| a.code == "ES:R").unwrap();
    row.after = row.after.map(|v| v - 200.0 / 60.0);
    let unlucky = save(&dir, "unlucky.json", &unlucky);
    let (code, out, _) = audit(&["gate", &unlucky, "--baseline", &base, "--max-drop", "attack.ES:R=1"]);
    assert!(code == 0 && out.contains("no more than chance explains"), "{code} {out}");
}

#[test]
fn a_collapse_of_retrieval_is_a_regression_however_high_the_score() {
    let dir = folder("collapse");
    let base = save(&dir, "base.json", &report_fixture::report(0.4));
    let mut collapsed = report_fixture::report(0.9);
    collapsed.benign.r1 = 0.8;
    let collapsed = save(&dir, "collapsed.json", &collapsed);
    let (code, out, _) = audit(&["gate", &collapsed, "--baseline", &base, "--max-drop", "ers=1"]);
    assert!(code == 11 && out.contains("FAIL  benign.r1") && out.contains("pass  ers"), "{code} {out}");
}

/// The suite's own word on R@1 is a threshold that warns: the watch against the baseline stays one that fails, unless R@1 is
/// switched off.
#[test]
fn a_warning_about_r1_does_not_put_the_watch_on_it_to_sleep() {
    let dir = folder("watch");
    let base = save(&dir, "base.json", &report_fixture::report(0.5));
    let mut lost = report_fixture::report(0.5);
    lost.benign.r1 -= 5.0;
    let lost = save(&dir, "lost.json", &lost);
    let judge = |rule: &str| {
        let suite = dir.join("s.yaml");
        std::fs::write(&suite, format!("form: published\nattacks: [CA+]\ngate:\n  benign.r1: {rule}\n"))
            .unwrap();
        audit(&["gate", &lost, "--baseline", &base, "--suite", suite.to_str().unwrap()])
    };
    let (code, out, _) = judge("{min: 90, level: warn}");
    assert!(code == 11 && out.contains("warn  benign.r1") && out.contains("FAIL  benign.r1"), "{code} {out}");
    let (code, out, _) = judge("{max_drop: 1, level: warn}");
    assert!(code == 0 && out.contains("warn  benign.r1"), "{code} {out}");
    let (code, out, _) = judge("{max_drop: 6}");
    assert!(code == 0 && out.contains("pass  benign.r1"), "{code} {out}");
    let (code, out, _) = judge("{level: off}");
    assert!(code == 0 && !out.contains("benign.r1"), "{code} {out}");
}

#[test]
fn every_number_of_a_report_can_be_demanded() {
    let dir = folder("any");
    let mut full = report_fixture::report(0.5);
    (full.benign.ami, full.benign.mrr) = (Some(50.0), Some(75.0));
    (full.benign.r_precision, full.benign.map_at_c) = (Some(45.0), Some(44.0));
    full.benign.cmc = [1, 5, 10, 20].map(|k| CmcPoint { k, value: 70.0 + k as f64 }).into();
    let file = save(&dir, "r.json", &full);
    for metric in Metric::all() {
        let value = metric.value(&full).unwrap_or_else(|| panic!("{}", metric.name));
        let flag = if metric.lower_is_better() { "--fail-over" } else { "--fail-under" };
        for (bound, code) in [(value - 1.0, 0), (value + 1.0, 10)] {
            let bound = if metric.lower_is_better() { 2.0 * value - bound } else { bound };
            let (found, out, err) = audit(&["gate", &file, flag, &format!("{}={bound}", metric.name)]);
            assert_eq!(found, code, "{}: {out}{err}", metric.name);
        }
        // Paired, every attacked metric has an interval of its change.
        let (code, out, _) =
            audit(&["gate", &file, "--baseline", &file, "--max-drop", &format!("{}=0", metric.name)]);
        let line = out
            .lines()
            .find(|l| l.starts_with(&format!("  pass  {} ", metric.name)))
            .unwrap_or_else(|| panic!("{out}"));
        assert!(code == 0 && line.contains("95 %") == metric.attacked(), "{line}");
    }
}

#[test]
fn suites_set_levels() {
    let dir = folder("levels");
    let report = save(&dir, "r.json", &report_fixture::report(0.5));
    let suite = dir.join("s.yaml");
    let yaml = "form: published\nattacks: [CA+]\ngate:\n  ars: {min: 99, level: warn}\n  ers: {min: 99, level: off}\n";
    std::fs::write(&suite, yaml).unwrap();
    let suite = suite.to_str().unwrap();
    let (code, out, _) = audit(&["gate", &report, "--suite", suite]);
    assert!(code == 0 && out.contains("warn  ars") && !out.contains("ers"), "{code} {out}");
    let (code, out, _) = audit(&["gate", &report, "--suite", suite, "--fail-under", "ars=98"]);
    assert!(code == 10 && out.contains("required 98"), "a flag outranks the suite: {code} {out}");
}

#[test]
fn what_differs_is_named_and_refused() {
    let dir = folder("mismatch");
    let base_report = report_fixture::report(0.5);
    let base = save(&dir, "base.json", &base_report);
    let mut other = base_report.clone();
    other.data.sha256 = "00".repeat(32);
    other.suite.steps = 7;
    other.trials.attacks.get_mut("qa-").unwrap()[3].targets = Some(vec!["another".into()]);
    let other = save(&dir, "other.json", &other);
    for flags in [vec!["compare", &base, &other], vec!["gate", &other, "--baseline", &base]] {
        let (code, _, err) = audit(&flags);
        assert_eq!(code, 2);
        assert!(
            err.contains("data:") && err.contains("steps: 32 and 7") && err.contains("targets of QA-"),
            "{err}"
        );
        assert!(!err.contains("targets of QA+") && !err.contains("in eps"), "{err}");
    }
    let (code, out, _) = audit(&["compare", &base, &other, "--anyway"]);
    assert!(code == 0 && out.contains("caution"), "{code} {out}");
}

/// As two models come out that were audited with the same command: compared, and said. A gate asks for the same trials.
#[test]
fn own_neighbours_are_compared_with_a_remark() {
    let dir = folder("neighbours");
    let base_report = report_fixture::report(0.5);
    let base = save(&dir, "base.json", &base_report);
    let with = |code: &str, seed: u64| {
        let mut other = base_report.clone();
        other.seed = seed;
        other.trials.attacks.get_mut(code).unwrap()[3].targets = Some(vec!["another".into()]);
        save(&dir, &format!("{code}{seed}.json"), &other)
    };
    let other = with("qa-", base_report.seed);
    let (code, out, _) = audit(&["compare", &base, &other]);
    assert!(code == 0 && out.contains("own neighbours") && out.contains("--trials"), "{code} {out}");
    assert_eq!(audit(&["gate", &other, "--baseline", &base]).0, 2);
    for other in [with("qa+", base_report.seed), with("qa-", base_report.seed + 1)] {
        assert_eq!(audit(&["compare", &base, &other]).0, 2);
    }
}

#[test]
fn comparisons_are_paired_sorted_and_saved() {
    let dir = folder("compare");
    let named = |strength: f64, name: &str| {
        let mut report = report_fixture::report(strength);
        report.model.path = format!("models/{name}.onnx");
        save(&dir, &format!("{name}.json"), &report)
    };
    let (weak, strong) = (named(0.3, "weak"), named(0.6, "strong"));
    let same = named(0.3, "same");
    let (html, json) = (dir.join("c.html"), dir.join("c.json"));
    let (code, out, err) = audit(&[
        "compare",
        &weak,
        &same,
        &strong,
        "--sort",
        "ars",
        "-o",
        html.to_str().unwrap(),
        "-o",
        json.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{err}");
    let at = |name: &str| out.find(name).unwrap();
    assert!(at("strong.onnx") < at("weak.onnx (base)"), "{out}");
    assert!(std::fs::read_to_string(html).unwrap().contains("strong.onnx against weak.onnx"));
    let saved: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let row = |model: &str| {
        let models = saved["models"].as_array().unwrap();
        let model = models.iter().find(|m| m["model"] == model).unwrap();
        model["rows"].as_array().unwrap().iter().find(|r| r["metric"] == "ars").unwrap().clone()
    };
    // The same outcomes: paired resamples differ by nothing at all.
    assert_eq!(row("same.onnx")["difference"]["interval"], serde_json::json!([0.0, 0.0]));
    assert_eq!(row("same.onnx")["direction"], 0);
    let strong = row("strong.onnx");
    let interval = |i: usize| strong["difference"]["interval"][i].as_f64().unwrap();
    // Queries differ in luck by far more than the difference varies from query to query.
    assert!(interval(0) > 20.0 && interval(1) < 40.0 && strong["direction"] == 1, "{strong}");
    let (code, _, err) = audit(&["compare", &weak, &same, "--sort", "nonsense"]);
    assert!(code == 2 && err.contains("unknown metric"), "{err}");
}

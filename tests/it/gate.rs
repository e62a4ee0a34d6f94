//! The gate and the comparison, through the command line: one verdict behind text, files and exit code.

use crate::common::transcript::Transcript;
use crate::common::{Temp, one_line, outcome, rendered, run};
use audit::judge::quantity::{Needs, Quantity};
use audit::judge::{breakdown, corruption, ladder, score, strong};
use audit::record::{CmcPoint, Corrupted, Enough, Measures, Outcome, Report, Robust, Score, ScoreName};
use audit::threat::term::{TERMS, Term};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Writes a file, and returns its name.
fn text(dir: &Temp, name: &str, content: impl AsRef<[u8]>) -> String {
    dir.write(name, content);
    name.into()
}

/// Writes a report, and returns the name of its file.
fn save(dir: &Temp, name: &str, report: &Report) -> String {
    text(dir, name, rendered(report, "json"))
}

/// The report with the strong search on all of its 60 queries, which leaves the first `left` of them correct.
fn with_strong(mut report: Report, left: usize) -> Report {
    let hit = |hit| Measures { hit: Some(hit), ..Measures::default() };
    let queries: Vec<String> =
        report.outcomes.iter().filter(|o| o.attack == "ES").map(|o| o.query.clone()).collect();
    assert_eq!(queries.len(), 60);
    let found = queries.iter().enumerate().map(|(i, query)| Outcome {
        members: Some(Vec::new()),
        ..outcome("R1", query, hit(true), hit(i < left))
    });
    report.outcomes.extend(found);
    let (attacks, scores) =
        score::score(&report.outcomes, &report.skipped, &report.basis(), &ScoreName::ALL, report.seed);
    report.scores.robust_r1 = strong::robust(&report.outcomes);
    let all = scores.ars_strong.unwrap();
    report.scores.ars_strong = Some(Score { withheld: false, ..all });
    report.attacks.retain(|a| a.code != "R1");
    report.attacks.extend(attacks.into_iter().find(|row| row.code == "R1"));
    report
}

/// [`with_strong`] at 8/255, with a ladder of ε: the queries that fail do so from 2/255 on.
fn with_ladder(name: &str, left: usize) -> Report {
    let mut report = with_strong(crate::report_fixture::report(1.2), left);
    report.model.path = format!("{name}.onnx");
    report.suite.eps = 8.0 / 255.0;
    report.suite.ladder = Some(5);
    for o in report.outcomes.iter_mut().filter(|o| o.attack == "R1") {
        let size = (o.after.hit == Some(false)).then_some(2.0 / 255.0);
        o.linf = 2.0 / 255.0;
        o.enough = Some(Enough { size, as_file: size, ..Enough::default() });
    }
    let found = ladder::ladder(&report);
    report.scores.robust_r1.as_mut().unwrap().ladder = found;
    report
}

/// The strong search leaves no query correct, and ES, LTM and GTM leave the same half. No bound on these
/// attacks, or on scores with them, is met.
#[test]
fn a_number_that_a_stronger_attack_contradicts_passes_no_bound() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &with_strong(crate::report_fixture::report(0.5), 0));
    let gate = |code, bound: &str| dir.ended(&["gate", &report, "--fail-under", bound], code);
    for name in ["ars", "ars.table", "ers", "attack.ES:R", "attack.LTM.resistance", "attack.GTM.table"] {
        gate(10, &format!("{name}=10"));
    }
    for bound in ["benign.r1=10", "attack.GTT=10", "attack.CA+=10", "attack.QA-.resistance=10", "robust_r1=0"]
    {
        let out = gate(0, bound);
        assert!(!out.contains("contradicts") && !out.contains("published numbers only"), "{out}");
    }
    // A missed bound is only missed.
    let out = gate(10, "ars=99");
    assert!(!out.contains("contradicts"), "{out}");
    gate(10, "robust_r1=1");
    // Rules of level warn only warn.
    let yaml = "form: published\nattacks: [CA+]\ngate:\n  ars: {min: 10, level: warn}\n";
    dir.ended(&["gate", &report, "--suite", &text(&dir, "s.yaml", yaml)], 0);
    // If it finds no more than the suite's attacks, their numbers stand.
    let agreeing = save(&dir, "agreeing.json", &with_strong(crate::report_fixture::report(0.5), 60));
    dir.ended(&["gate", &agreeing, "--fail-under", "ars=10"], 0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_gate_without_the_strong_search_says_so() {
    let dir = Transcript::new(Temp::new());
    let mut report = crate::report_fixture::report(0.5);
    report.scores.robust_r1 = None;
    report.outcomes.retain(|o| o.attack != "R1");
    let report = save(&dir, "r.json", &report);
    dir.ended(&["gate", &report, "--fail-under", "ars=10"], 0);
    dir.ended(&["gate", &report, "--fail-under", "robust_r1=10"], 2);
    // Rules that need a baseline check nothing without one, and other rules are judged.
    let drops = "form: published\nattacks: [CA+]\ngate:\n  ars: {max_drop: 1}\n";
    dir.ended(&["gate", &report, "--suite", &text(&dir, "drops.yaml", drops)], 2);
    let both = "form: published\nattacks: [CA+]\ngate:\n  ars: {min: 10, max_drop: 1}\n";
    dir.ended(&["gate", &report, "--suite", &text(&dir, "both.yaml", both)], 0);
    insta::assert_snapshot!(dir.told());
}

/// Robust R@1 is watched against a baseline, unless drops are stated. ARS, which the strong search
/// contradicts in the worse report, bounds nothing: it warns if it is watched, and fails if the user asked
/// for it.
#[test]
fn a_drop_of_robust_r1_is_a_regression() {
    let dir = Transcript::new(Temp::new());
    let of = |name: &str, left| save(&dir, name, &with_strong(crate::report_fixture::report(0.9), left));
    let (base, worse) = (of("base.json", 60), of("worse.json", 10));
    let gate = ["gate", &worse, "--baseline", &base];
    dir.ended(&gate, 11);
    let asked = [&gate[..], &["--max-drop", "ars=1"]].concat();
    let out = dir.ended(&asked, 11);
    assert!(!out.contains("robust_r1:"), "{out}");
    dir.ended(&["gate", &base, "--baseline", &worse], 0);
    dir.ended(&[&gate[..], &["--max-drop", "attack.CA+=1"]].concat(), 0);
    insta::assert_snapshot!(dir.told());
}

/// The strong search breaks no query of either report, and the suite's own attacks break a tenth of one
/// report's and half of the other's. Robust R@1 counts these, and so does the interval of its change.
#[test]
fn a_change_of_robust_r1_counts_what_the_suite_broke() {
    let dir = Transcript::new(Temp::new());
    let of =
        |name: &str, strength| save(&dir, name, &with_strong(crate::report_fixture::report(strength), 60));
    let (base, worse) = (of("base.json", 0.9), of("worse.json", 0.5));
    let out = dir.ended(&["gate", &worse, "--baseline", &base], 11);
    let line = out.lines().find(|line| line.contains("robust_r1")).unwrap();
    assert!(line.contains("(95 % -") && !line.contains("… +"), "{line}");
    insta::assert_snapshot!(dir.told());
}

#[test]
fn thresholds_decide_the_exit_code_and_the_text() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &crate::report_fixture::report(0.5));
    let both = |limit| ["gate", &report, "--fail-under", "ars=40", "--fail-under", limit];
    dir.ended(&both("attack.ES:R=10"), 0);
    dir.ended(&both("attack.ES:R=90"), 10);
    dir.ended(&["gate", &report, "--fail-over", "attack.CA-=30"], 10);
    let junit = dir.join("g.junit.xml");
    dir.ended(&["gate", &report, "--fail-under", "ars=99", "-o", junit.to_str().unwrap()], 10);
    assert!(std::fs::read_to_string(junit).unwrap().contains("<failure type=\"min\""));
    insta::assert_snapshot!(dir.told());
}

/// 58 hits of 100 are 57.99999999999999 % in floating point.
#[test]
fn a_threshold_that_is_just_met_is_met() {
    let dir = Transcript::new(Temp::new());
    let at = |name: &str, r1: f64| {
        let mut report = crate::report_fixture::report(0.5);
        report.benign.as_mut().unwrap().r1 = r1;
        save(&dir, name, &report)
    };
    let (met, base) = (at("met.json", 100.0 * 0.58), at("base.json", 100.0 * 0.59));
    let out = dir.ended(&["gate", &met, "--fail-under", "benign.r1=58"], 0);
    assert!(!out.contains("57.9"), "{out}");
    dir.ended(&["gate", &met, "--fail-under", "benign.r1=58.001"], 10);
    dir.ended(&["gate", &met, "--baseline", &base, "--max-drop", "benign.r1=1"], 0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn suites_that_demand_nothing_are_mistakes() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &crate::report_fixture::report(0.5));
    for rule in ["ars: { min: .nan }", "ars: { max_drop: .inf }", "benign.r1: {}"] {
        let yaml = format!("name: s\nform: published\nattacks: [ES]\ngate:\n  {rule}\n");
        dir.ended(&["gate", &report, "--suite", &text(&dir, "suite.yaml", yaml)], 2);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn what_cannot_be_checked_is_a_mistake_not_a_pass() {
    let dir = Transcript::new(Temp::new());
    let full = crate::report_fixture::report(0.5);
    let report = save(&dir, "r.json", &full);
    let mut without = full.clone();
    without.scores.ars = None;
    let without = save(&dir, "without.json", &without);
    for flags in [
        &[&report, "--fail-under", "arz=1"][..],
        &[&report, "--fail-under", "ars"],
        &[&report, "--fail-under", "ars=x"],
        &[&report, "--fail-under", "ars=nan"],
        &[&report, "--fail-under", "attack.CA-=1"],
        &[&report, "--fail-over", "ars=1"],
        &[&report, "--max-drop", "ars=1"],
        &[&report],
        &[&without, "--fail-under", "ars=1"],
        &[&report, "--baseline", &without, "--max-drop", "ars=1"],
        &["nowhere.json", "--fail-under", "ars=1"],
    ] {
        dir.refused(&[&["gate"], flags].concat(), 2);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_drop_counts_beyond_the_tolerance_and_beyond_chance() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.6));
    let worse = save(&dir, "worse.json", &crate::report_fixture::report(0.45));
    let gate = ["gate", &worse, "--baseline", &base];
    dir.ended(&gate, 11);
    let tolerated = [&gate[..], &["--max-drop", "ars=90"]].concat();
    dir.ended(&tolerated, 0);
    // An improvement is no regression, and a missed threshold comes first.
    dir.ended(&["gate", &base, "--baseline", &worse], 0);
    dir.ended(&[&gate[..], &["--fail-under", "ars=99"]].concat(), 10);
    // Two queries of 60 lost: 3.3 points, beyond the tolerance, but within chance.
    let mut unlucky = crate::report_fixture::report(0.6);
    let hits = unlucky.outcomes.iter_mut().filter(|o| o.attack == "ES" && o.after.hit == Some(true));
    hits.take(2).for_each(|o| o.after.hit = Some(false));
    let row = unlucky.attacks.iter_mut().find(|a| a.code == "ES:R").unwrap();
    row.after = row.after.map(|v| v - 200.0 / 60.0);
    let unlucky = save(&dir, "unlucky.json", &unlucky);
    let gate = ["gate", &unlucky, "--baseline", &base, "--max-drop", "attack.ES:R=1"];
    dir.ended(&gate, 0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_collapse_of_retrieval_is_a_regression_however_high_the_score() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.4));
    let mut collapsed = crate::report_fixture::report(0.9);
    collapsed.benign.as_mut().unwrap().r1 = 0.8;
    let collapsed = save(&dir, "collapsed.json", &collapsed);
    let gate = ["gate", &collapsed, "--baseline", &base, "--max-drop", "ers=1"];
    dir.ended(&gate, 11);
    insta::assert_snapshot!(dir.told());
}

/// The suite's own rule for R@1 is a threshold that warns: the watch against the baseline still fails, unless
/// R@1 is switched off.
#[test]
fn a_warning_about_r1_does_not_put_the_watch_on_it_to_sleep() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.5));
    let mut lost = crate::report_fixture::report(0.5);
    lost.benign.as_mut().unwrap().r1 -= 5.0;
    let lost = save(&dir, "lost.json", &lost);
    let judge = |code, rule: &str| {
        let yaml = format!("form: published\nattacks: [CA+]\ngate:\n  benign.r1: {rule}\n");
        dir.ended(&["gate", &lost, "--baseline", &base, "--suite", &text(&dir, "s.yaml", yaml)], code)
    };
    judge(11, "{min: 90, level: warn}");
    judge(0, "{max_drop: 1, level: warn}");
    judge(0, "{max_drop: 6}");
    let out = judge(0, "{level: off}");
    assert!(!out.contains("benign.r1"), "{out}");
    insta::assert_snapshot!(dir.told());
}

#[test]
#[ignore = "slow"]
fn every_number_of_a_report_can_be_demanded() {
    let dir = Temp::new();
    let mut full = with_strong(crate::report_fixture::report(0.5), 60);
    let benign = full.benign.as_mut().unwrap();
    (benign.ami, benign.mrr) = (Some(50.0), Some(75.0));
    (benign.r_precision, benign.map_at_c) = (Some(45.0), Some(44.0));
    benign.cmc = [1, 5, 10, 20].map(|k| CmcPoint { k, value: 70.0 + k as f64 }).into();
    // 60 queries in 5 classes and 2 groups.
    for (i, o) in full.outcomes.iter().enumerate() {
        full.labels.insert(o.query.clone(), format!("class {}", i % 5));
        full.groups.insert(o.query.clone(), format!("group {}", i % 2));
    }
    full.breakdowns = breakdown::breakdowns(&full);
    // The strong search finds nothing on the ladder, so that no other number is contradicted.
    full.suite.ladder = Some(5);
    for o in full.outcomes.iter_mut().filter(|o| o.attack == "R1") {
        o.enough = Some(Enough::default());
    }
    let robust = strong::robust(&full.outcomes);
    full.scores.robust_r1 = robust.map(|robust| Robust { ladder: ladder::ladder(&full), ..robust });
    full.breakdowns = breakdown::breakdowns(&full);
    // One corruption stands for all, which have rows of the same kind.
    let queries: BTreeSet<String> = full.outcomes.iter().map(|o| o.query.clone()).collect();
    full.corrupted = (queries.into_iter().enumerate())
        .map(|(i, query)| Corrupted {
            corruption: "blur".into(),
            query,
            first: std::array::from_fn(|strength| i % 7 > strength),
            ap: std::array::from_fn(|strength| 0.7 - 0.1 * strength as f64),
        })
        .collect();
    full.corruptions = corruption::corruptions(&full);
    let file = save(&dir, "r.json", &full);
    for metric in Quantity::of(&full) {
        let name = metric.name;
        // The report has the attacks behind the scores; others have rows of the same kind.
        let apart = |term: &Term| term.ers.is_none() && term.weights == [0, 0];
        let code = name.strip_prefix("attack.").and_then(|rest| rest.split('.').next());
        let other_attack = TERMS.iter().find(|term| code == Some(term.name)).is_some_and(apart);
        let other_corruption = matches!(metric.needs, Needs::Corruption(Some(of)) if of.name != "blur");
        // The images have classes.
        if metric.beside(true).is_some() || other_attack || other_corruption {
            continue;
        }
        let value = metric.value(&full).unwrap_or_else(|| panic!("{name}"));
        let flag = if metric.lower_is_better { "--fail-over" } else { "--fail-under" };
        // The bound on the worst of several is compared with its interval.
        let beyond = if metric.part_of.is_some() { metric.row(&full).interval.unwrap().1 } else { value };
        for (bound, code) in [(value - 1.0, 0), (beyond + 1.0, 10)] {
            let bound = if metric.lower_is_better { 2.0 * value - bound } else { bound };
            run(&dir, ["gate", &file, flag, &format!("{name}={bound}")]).ended(code);
        }
        // Paired, every attacked metric has an interval of its change, and so have corrupted queries. How far
        // two numbers differ that are above the largest ε is unknown.
        let out =
            run(&dir, ["gate", &file, "--baseline", &file, "--max-drop", &format!("{name}=0")]).ended(0).out;
        let passed = format!("  pass  {name} ");
        let line = out.lines().find(|l| l.starts_with(&passed)).unwrap_or_else(|| panic!("{out}"));
        let corrupted = matches!(metric.needs, Needs::Corruption(_));
        let expected = (metric.attacked() || corrupted) && !metric.row(&full).is_above();
        assert_eq!(line.contains("95 %"), expected, "{line}");
    }
}

#[test]
fn suites_set_levels() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &crate::report_fixture::report(0.5));
    let yaml = "form: published\nattacks: [CA+]\ngate:\n  ars: {min: 99, level: warn}\n  ers: {min: 99, level: off}\n";
    let suite = text(&dir, "s.yaml", yaml);
    let out = dir.ended(&["gate", &report, "--suite", &suite], 0);
    assert!(!out.contains("  ers "), "{out}");
    // A flag outranks the suite.
    dir.ended(&["gate", &report, "--suite", &suite, "--fail-under", "ars=98"], 10);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn what_differs_is_named_and_refused() {
    let dir = Transcript::new(Temp::new());
    let base_report = crate::report_fixture::report(0.5);
    let base = save(&dir, "base.json", &base_report);
    let mut other = base_report.clone();
    other.data.sha256 = "00".repeat(32);
    other.suite.steps = 7;
    other.trials.attacks.get_mut("qa-").unwrap()[3].targets = Some(vec!["another".into()]);
    let other = save(&dir, "other.json", &other);
    for flags in [vec!["compare", &base, &other], vec!["gate", &other, "--baseline", &base]] {
        let err = dir.ended(&flags, 2);
        assert!(!err.contains("targets of QA+") && !err.contains("in eps"), "{err}");
    }
    dir.ended(&["compare", &base, &other, "--anyway"], 0);
    insta::assert_snapshot!(dir.told());
}

/// Two models audited with the same command: compared, with a note. A gate requires the same trials.
#[test]
fn own_neighbours_are_compared_with_a_remark() {
    let dir = Transcript::new(Temp::new());
    let base_report = crate::report_fixture::report(0.5);
    let base = save(&dir, "base.json", &base_report);
    let with = |code: &str, seed: u64| {
        let mut other = base_report.clone();
        other.seed = seed;
        other.trials.attacks.get_mut(code).unwrap()[3].targets = Some(vec!["another".into()]);
        save(&dir, &format!("{code}{seed}.json"), &other)
    };
    let other = with("qa-", base_report.seed);
    dir.ended(&["compare", &base, &other], 0);
    dir.ended(&["gate", &other, "--baseline", &base], 2);
    for other in [with("qa+", base_report.seed), with("qa-", base_report.seed + 1)] {
        dir.ended(&["compare", &base, &other], 2);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn comparisons_are_paired_sorted_and_saved() {
    let dir = Transcript::new(Temp::new());
    let named = |strength: f64, name: &str| {
        let mut report = crate::report_fixture::report(strength);
        report.model.path = format!("models/{name}.onnx");
        save(&dir, &format!("{name}.json"), &report)
    };
    let (weak, strong) = (named(0.3, "weak"), named(0.6, "strong"));
    let same = named(0.3, "same");
    let [html, json] = ["c.html", "c.json"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let compare = ["compare", &weak, &same, &strong, "--sort", "ars"];
    let out = dir.ended(&[&compare[..], &["-o", &html, "-o", &json]].concat(), 0);
    let at = |name: &str| out.find(name).unwrap();
    assert!(at("strong.onnx") < at("weak.onnx (baseline)"), "{out}");
    assert!(std::fs::read_to_string(html).unwrap().contains("strong.onnx against weak.onnx"));
    let saved = dir.json("c.json");
    let row = |model: &str| {
        let models = saved["models"].as_array().unwrap();
        let model = models.iter().find(|m| m["model"] == model).unwrap();
        model["rows"].as_array().unwrap().iter().find(|r| r["metric"] == "ars").unwrap().clone()
    };
    // The same outcomes: paired resamples don't differ at all.
    assert_eq!(row("same.onnx")["difference"]["interval"], serde_json::json!([0.0, 0.0]));
    assert_eq!(row("same.onnx")["direction"], 0);
    let strong = row("strong.onnx");
    let interval = |i: usize| strong["difference"]["interval"][i].as_f64().unwrap();
    // Luck varies between queries by far more than the difference does.
    assert!(interval(0) > 20.0 && interval(1) < 40.0 && strong["direction"] == 1, "{strong}");
    dir.ended(&["compare", &weak, &same, "--sort", "nonsense"], 2);
    insta::assert_snapshot!(dir.told());
}

/// The comparison of reports as `audit compare` writes it, in every format and as text.
fn compared(dir: &Temp, reports: &[(&str, &Report)], more: &[&str]) -> (Value, [String; 3]) {
    let files: Vec<String> =
        reports.iter().map(|(name, report)| save(dir, &format!("{name}.json"), report)).collect();
    let outputs = ["c.json", "c.html", "c.md"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let mut args = vec!["compare"];
    args.extend(files.iter().map(String::as_str));
    outputs.iter().for_each(|file| args.extend(["-o", file]));
    args.extend(more);
    let out = run(dir, &args).ended(0).out;
    let long = out.lines().any(|line| line.chars().count() > 80);
    assert!(!long || more.contains(&"--all"), "{out}");
    (dir.json("c.json"), [out, dir.text("c.html"), dir.text("c.md").replace("&#64;", "@")])
}

/// A row of the second model of a comparison.
fn row_of<'c>(comparison: &'c Value, metric: &str) -> &'c Value {
    row_of_model(comparison, 1, metric)
}

fn row_of_model<'c>(comparison: &'c Value, model: usize, metric: &str) -> &'c Value {
    let rows = comparison["models"][model]["rows"].as_array().unwrap();
    rows.iter().find(|r| r["metric"] == metric).unwrap_or_else(|| panic!("no {metric}"))
}

/// The report with clean ranks: the first `wrong` of 201 queries find their class only as the second item.
fn with_clean(mut report: Report, wrong: usize) -> Report {
    report.benign.as_mut().unwrap().first = (0..201).map(|i| usize::from(i < wrong)).collect();
    report.benign.as_mut().unwrap().r1 = 100.0 * (201 - wrong) as f64 / 201.0;
    report
}

/// Of 201 clean queries one model finds 191 and the other 101, so that R@1 falls by 44.8 points: the standard
/// error of the paired difference is √(0.448 · 0.552 / 201) = 3.5. This is worse, and not "no significant
/// difference"; a change without an interval is neither.
#[test]
fn a_loss_of_clean_recall_is_worse_and_comes_first() {
    let dir = Transcript::new(Temp::new());
    let mut base = with_clean(with_strong(crate::report_fixture::report(1.2), 10), 10);
    base.model.path = "models/base.onnx".into();
    let mut worse = with_clean(with_strong(crate::report_fixture::report(1.2), 50), 100);
    worse.model.path = "models/worse.onnx".into();
    worse.benign.as_mut().unwrap().nmi = Some(20.0);
    // On the same images, so that the interval is of paired queries.
    assert_eq!(base.data.sha256, worse.data.sha256);
    let (comparison, texts) = compared(&dir, &[("base", &base), ("worse", &worse)], &["--all"]);
    let r1 = row_of(&comparison, "benign.r1");
    let judged = ["word", "direction", "state"].map(|key| &r1[key]);
    assert_eq!(judged, [&json!("worse"), &json!(-1), &json!("measured")]);
    let [low, high] = [0, 1].map(|i| r1["difference"]["interval"][i].as_f64().unwrap());
    assert!((high - low) / 2.0 / 1.96 - 3.5 < 0.5 && low < -44.8 && high > -44.8 && high < -30.0, "{r1}");
    assert_eq!(r1["difference"]["queries"], 201);
    let nmi = row_of(&comparison, "benign.nmi");
    assert_eq!((&nmi["word"], &nmi["direction"]), (&"no_interval".into(), &0.into()));
    // Among the first two, both find every class.
    assert_eq!(row_of(&comparison, "benign.r2")["word"], "no_significant_difference");
    let answer = comparison["answer"].as_str().unwrap();
    for text in &texts {
        let flat = one_line(text);
        let begin: String = answer.chars().take(60).collect();
        let found = flat.find(&begin).unwrap_or_else(|| panic!("no answer in {flat}"));
        assert!(flat.find("robust_r1 at 77/255").is_some_and(|row| found < row), "the answer comes first");
    }
    dir.note(&texts[0]);
    let cells = texts[1].split(">benign.r1<").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(cells.contains(">worse<") && !cells.contains("no significant"), "{cells}");

    // Reports of versions without the results of clean queries: only the queries that both attacked count,
    // and their number is stated.
    let old = |mut report: Report, hits: usize| {
        report.benign.as_mut().unwrap().first.clear();
        let queries: Vec<String> =
            report.outcomes.iter().filter(|o| o.attack == "R1").map(|o| o.query.clone()).collect();
        for o in report.outcomes.iter_mut().filter(|o| o.attack == "R1") {
            o.before.hit = Some(queries.iter().position(|query| *query == o.query).unwrap() < hits);
        }
        report
    };
    let (comparison, texts) = compared(&dir, &[("base", &old(base, 58)), ("worse", &old(worse, 30))], &[]);
    let r1 = row_of(&comparison, "benign.r1");
    assert_eq!((&r1["word"], &r1["difference"]["queries"]), (&"worse".into(), &60.into()));
    dir.note(&texts[0]);
    insta::assert_snapshot!(dir.told());
    assert!(texts[1].contains("(60 queries)") && texts[2].contains("(60 queries)"), "{}", texts[2]);
}

/// A score that its own report withholds is neither shown nor judged in a comparison.
#[test]
fn what_a_report_withholds_a_comparison_withholds() {
    let dir = Transcript::new(Temp::new());
    let base = crate::report_fixture::report(0.3);
    let mut wide = crate::report_fixture::report(0.6);
    let ars = wide.scores.ars.as_mut().unwrap();
    (ars.interval, ars.withheld) = (Some((5.0, 90.0)), true);
    for (first, second) in [(&base, &wide), (&wide, &base)] {
        let (comparison, texts) = compared(&dir, &[("a", first), ("b", second)], &["--sort", "ars"]);
        let rows = [0, 1].map(|model| row_of_model(&comparison, model, "ars"));
        // Withheld numbers are sorted behind known ones.
        let states = rows.map(|row| (row["state"].as_str().unwrap(), row["value"].is_null()));
        assert_eq!(states, [("measured", false), ("withheld", true)]);
        for row in rows.into_iter().filter(|row| row["word"] != "baseline") {
            let judged = ["word", "direction", "difference"].map(|key| &row[key]);
            assert_eq!(judged, [&json!("withheld"), &json!(0), &json!(null)]);
        }
        let why = "its 95 % interval, 5.0 – 90.0, is wider than 40 points";
        assert!(texts.iter().all(|text| one_line(text).contains(why)), "{texts:?}");
        dir.note(&texts[0]);
    }
    insta::assert_snapshot!(dir.told());
}

/// "Which is the most robust?" is answered in a sentence, with the reason if it can't be.
#[test]
fn the_most_robust_model_is_named_or_why_none_is() {
    let told = Transcript::new(Temp::new());
    let named = |name: &str, left: usize| {
        let mut report = with_strong(crate::report_fixture::report(1.2), left);
        report.model.path = format!("{name}.onnx");
        report
    };
    let answer = |reports: &[Report]| {
        let names = reports.iter().map(|r| r.model.path.clone()).collect();
        audit::judge::compare::of_reports(names, reports, None, true).unwrap().answer
    };
    let (a, b, c) = (named("a", 10), named("b", 40), named("c", 12));
    let two = answer(&[a.clone(), b.clone()]);
    // The same in either order, and for three models.
    assert_eq!(answer(&[b.clone(), a.clone()]), two);
    told.note(&two);
    told.note(&answer(&[a.clone(), c.clone(), b.clone()]));
    told.note(&answer(&[a.clone(), c.clone()]));
    let with = |change: &dyn Fn(&mut Report)| {
        let mut other = b.clone();
        change(&mut other);
        other
    };
    let error = || crate::report_fixture::warning("an-error", "error", "x");
    for other in [
        // Two models of one name are told apart by their reports.
        with(&|r| r.model.path = "x/a.onnx".into()),
        with(&|r| r.scores.robust_r1 = None),
        with(&|r| r.suite.eps = 0.1),
        with(&|r| r.outcomes.retain(|o| !o.query.ends_with('1'))),
        with(&|r| r.warnings.push(error())),
        with(&|r| r.scores.robust_r1.as_mut().unwrap().queries = 8),
    ] {
        told.note(&answer(&[a.clone(), other]));
    }
    let mut first = a.clone();
    first.scores.robust_r1 = None;
    told.note(&answer(&[first, b.clone()]));
    let without = |mut report: Report| {
        report.scores.robust_r1 = None;
        report.outcomes.retain(|o| o.attack != "R1");
        report
    };
    told.note(&answer(&[without(a), without(b)]));
    insta::assert_snapshot!(told.told());
}

/// ε50 decides if all models have it under the same largest ε. If more than half of the correct queries of
/// two models withstand that ε, robust R@1 decides, and the difference of their ε50 is unknown.
#[test]
fn two_models_above_the_largest_eps_are_not_alike() {
    let dir = Transcript::new(Temp::new());
    let (low, high, higher) = (with_ladder("low", 10), with_ladder("high", 40), with_ladder("higher", 50));
    let compared = |reports: [&Report; 2]| {
        let names = reports.iter().map(|r| r.model.path.clone()).collect();
        audit::judge::compare::of_reports(names, &reports.map(Clone::clone), None, true).unwrap()
    };
    dir.note(&compared([&low, &high]).answer);
    let mut other = high.clone();
    other.suite.eps = 4.0 / 255.0;
    dir.note(&compared([&low, &other]).answer);
    // It begins with the answer.
    dir.note(&audit::feature::compare::render(&compared([&high, &higher]), false));

    let (base, file) = (save(&dir, "base.json", &high), save(&dir, "r.json", &higher));
    dir.ended(&["gate", &file, "--baseline", &base, "--max-drop", "eps50=0.1"], 0);
    dir.ended(&["gate", &file, "--fail-under", "eps50=10"], 10);

    // Every format says that it is above.
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let flat = json(&rendered(&higher, "metrics.json"));
    assert_eq!([&flat["eps50"], &flat["eps50_above"]], [&json!(8.0), &json!(1)]);
    assert!(!rendered(&low, "metrics.json").contains("_above"));
    let sarif = json(&rendered(&higher, "sarif"));
    assert_eq!(sarif["runs"][0]["properties"]["eps50"]["above"], true);
    audit::report::model_card::write(&higher, &dir.join("README.md")).unwrap();
    let card = dir.text("README.md");
    let row = card.split("- args:\n").find(|row| row.contains("type: \"eps50\"")).expect("a row of eps50");
    dir.note(row);
    insta::assert_snapshot!(dir.told());
}

/// A resistance rests on the queries that could get worse, and not on all.
#[test]
fn a_resistance_of_few_queries_meets_no_bound() {
    let dir = Transcript::new(Temp::new());
    let mut report = crate::report_fixture::report(0.5);
    report.attacks.iter_mut().find(|a| a.code == "CA-").unwrap().counted = Some(3);
    let file = save(&dir, "r.json", &report);
    for metric in ["attack.CA-.resistance", "attack.CA-.table"] {
        dir.ended(&["gate", &file, "--fail-under", &format!("{metric}=1")], 10);
    }
    dir.ended(&["gate", &file, "--fail-over", "attack.CA-=99"], 0);
    insta::assert_snapshot!(dir.told());
}

/// Two of 201 clean queries are lost, which chance explains if the 201 are a sample.
#[test]
fn a_drop_of_sampled_clean_recall_counts_beyond_chance_only() {
    let dir = Transcript::new(Temp::new());
    let sampled = |name: &str, wrong: usize, sampling: Option<&str>| {
        let mut report = with_clean(crate::report_fixture::report(0.5), wrong);
        report.benign.as_mut().unwrap().sampling = sampling.map(String::from);
        save(&dir, name, &report)
    };
    for (sampling, code) in [(Some("a sample"), 0), (None, 11)] {
        let (base, other) = (sampled("base.json", 10, sampling), sampled("other.json", 12, sampling));
        let gate = ["gate", &other, "--baseline", &base, "--max-drop", "benign.r1=0.5"];
        let out = dir.ended(&gate, code);
        assert_eq!(out.contains("(95 % -"), sampling.is_some(), "{out}");
    }
    // A change that rounds to the tolerance has more digits.
    let (base, other) = (sampled("base.json", 0, None), sampled("other.json", 21, None));
    let gate = ["gate", &other, "--baseline", &base, "--max-drop", "benign.r1=10.4"];
    dir.ended(&gate, 11);
    insta::assert_snapshot!(dir.told());
}

/// If a score is missing on one side, the gate must not check only the rest.
#[test]
fn a_score_that_one_side_lacks_is_a_mistake_not_a_pass() {
    let dir = Transcript::new(Temp::new());
    let full = save(&dir, "full.json", &crate::report_fixture::report(0.5));
    let mut without = crate::report_fixture::report(0.5);
    without.scores.ars = None;
    let without = save(&dir, "without.json", &without);
    dir.ended(&["gate", &full, "--baseline", &without], 2);
    dir.ended(&["gate", &without, "--baseline", &full], 2);
    dir.ended(&["gate", &without, "--baseline", &without], 0);
    insta::assert_snapshot!(dir.told());
}

/// The fixture's numbers follow from its outcomes; the numbers of a report edited by hand don't.
#[test]
fn numbers_that_the_outcomes_contradict_are_refused() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.6));
    let low = crate::report_fixture::report(0.3);
    let edited = |name: &str, edit: &dyn Fn(&mut Report)| {
        let mut report = low.clone();
        edit(&mut report);
        save(&dir, name, &report)
    };
    let ars = edited("ars.json", &|r| r.scores.ars.as_mut().unwrap().value = 99.0);
    let es = low.attacks.iter().position(|a| a.code == "ES:R").unwrap();
    let row = edited("row.json", &|r| r.attacks[es].after = Some(99.0));
    let trials = edited("trials.json", &|r| r.outcomes.retain(|o| o.attack != "ES"));
    dir.ended(&["gate", &ars, "--fail-under", "ars=40"], 2);
    dir.ended(&["gate", &ars, "--baseline", &base], 2);
    dir.ended(&["gate", &base, "--baseline", &ars], 2);
    dir.ended(&["gate", &row, "--fail-under", "attack.ES:R=40"], 2);
    dir.ended(&["gate", &trials, "--fail-under", "attack.ES:R=1"], 2);
    // A number without a bound is not checked.
    dir.ended(&["gate", &row, "--fail-under", "benign.r1=1"], 0);
    insta::assert_snapshot!(dir.told());
}

/// A withheld score meets no bound, however low.
#[test]
fn a_withheld_score_meets_no_bound() {
    let dir = Transcript::new(Temp::new());
    let mut report = crate::report_fixture::report(0.5);
    let ars = report.scores.ars.as_mut().unwrap();
    (ars.interval, ars.withheld) = (Some((5.0, 90.0)), true);
    let file = save(&dir, "wide.json", &report);
    dir.ended(&["gate", &file, "--fail-under", "ars=1"], 10);
    dir.ended(&["gate", &file, "--fail-under", "benign.r1=1"], 0);
    insta::assert_snapshot!(dir.told());
}

/// Reports of separate runs don't compare; the message has the command that makes comparable ones.
#[test]
fn reports_made_apart_say_how_to_make_comparable_ones() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.5));
    let mut other = crate::report_fixture::report(0.5);
    other.suite.steps = 7;
    let other = save(&dir, "other.json", &other);
    dir.ended(&["gate", &other, "--baseline", &base], 2);
    dir.ended(&["compare", &base, &other], 2);
    insta::assert_snapshot!(dir.told());
}

/// In a comparison an untrusted score is struck through.
#[test]
fn a_comparison_strikes_scores_that_mean_nothing() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &crate::report_fixture::report(0.5));
    let mut other = crate::report_fixture::report(0.5);
    let collapse = "all embeddings are nearly the same";
    other.warnings.push(crate::report_fixture::warning("collapse", "error", collapse));
    let other = save(&dir, "other.json", &other);
    let files = ["md", "html"].map(|ending| dir.join(&format!("c.{ending}")).display().to_string());
    let args = ["compare", &base, &other, "-o", &files[0], "-o", &files[1]];
    let text = dir.ended(&args, 0);
    // Its ARS and ERS in both tables, and nothing of the baseline.
    assert_eq!(text.matches("✗ ").count(), 2 + 2 + 1, "{text}");
    let [markdown, page] = files.map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!(markdown.matches("~~").count(), 2 * 4, "{markdown}");
    assert!(page.contains("<s>"), "{page}");
    insta::assert_snapshot!(dir.told());
}

//! Bounds on the numbers of one report.

use super::*;

/// The strong search leaves no query correct, and ES, LTM and GTM leave the same half. No bound on these
/// attacks, or on scores with them, is met.
#[test]
fn a_number_that_a_stronger_attack_contradicts_passes_no_bound() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &with_strong(fixture(0.5), 0));
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
    let agreeing = save(&dir, "agreeing.json", &with_strong(fixture(0.5), 60));
    dir.ended(&["gate", &agreeing, "--fail-under", "ars=10"], 0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_gate_without_the_strong_search_says_so() {
    let dir = Transcript::new(Temp::new());
    let mut report = fixture(0.5);
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

#[test]
fn thresholds_and_levels_decide_the_exit_code_and_the_text() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &fixture(0.5));
    let both = |limit| ["gate", &report, "--fail-under", "ars=40", "--fail-under", limit];
    dir.ended(&both("attack.ES:R=10"), 0);
    dir.ended(&both("attack.ES:R=90"), 10);
    dir.ended(&["gate", &report, "--fail-over", "attack.CA-=30"], 10);
    let junit = dir.join("g.junit.xml");
    dir.ended(&["gate", &report, "--fail-under", "ars=99", "-o", junit.to_str().unwrap()], 10);
    assert!(std::fs::read_to_string(junit).unwrap().contains("<failure type=\"min\""));
    // A suite sets levels, and a flag outranks it.
    let yaml = "form: published\nattacks: [CA+]\ngate:\n  ars: {min: 99, level: warn}\n  ers: {min: 99, level: off}\n";
    let suite = text(&dir, "s.yaml", yaml);
    let out = dir.ended(&["gate", &report, "--suite", &suite], 0);
    assert!(!out.contains("  ers "), "{out}");
    dir.ended(&["gate", &report, "--suite", &suite, "--fail-under", "ars=98"], 10);
    insta::assert_snapshot!(dir.told());
}

/// 58 hits of 100 are 57.99999999999999 % in floating point.
#[test]
fn a_threshold_that_is_just_met_is_met() {
    let dir = Transcript::new(Temp::new());
    let at = |name: &str, r1: f64| {
        let mut report = fixture(0.5);
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
fn what_cannot_be_checked_is_a_mistake_not_a_pass() {
    let dir = Transcript::new(Temp::new());
    let full = fixture(0.5);
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
    // A suite that demands nothing.
    for rule in ["ars: { min: .nan }", "ars: { max_drop: .inf }", "benign.r1: {}"] {
        let yaml = format!("name: s\nform: published\nattacks: [ES]\ngate:\n  {rule}\n");
        dir.ended(&["gate", &report, "--suite", &text(&dir, "suite.yaml", yaml)], 2);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
#[ignore = "slow"]
fn every_number_of_a_report_can_be_demanded() {
    let dir = Temp::new();
    let mut full = with_strong(fixture(0.5), 60);
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
    full.scores.robust_r1 = strong::robust(&full);
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
        let other_attack = Term::all().find(|term| code == Some(term.name)).is_some_and(apart);
        let other_corruption = matches!(metric.needs, Needs::Corruption(Some(of)) if of.name != "blur");
        let sizes = matches!(metric.needs, Needs::Smallest);
        // The images have classes.
        if metric.beside(true).is_some() || other_attack || other_corruption || sizes {
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

/// A score of a wide interval, and a resistance, which rests on the queries that could get worse and not on
/// all, meet no bound, however low. The other numbers of the report do.
#[test]
fn a_withheld_number_meets_no_bound() {
    let dir = Transcript::new(Temp::new());
    let mut report = fixture(0.5);
    report.attacks.iter_mut().find(|a| a.code == "CA-").unwrap().counted = Some(3);
    let ars = report.scores.ars.as_mut().unwrap();
    (ars.interval, ars.withheld) = (Some((5.0, 90.0)), true);
    let file = save(&dir, "r.json", &report);
    for metric in ["ars", "attack.CA-.resistance", "attack.CA-.table"] {
        dir.ended(&["gate", &file, "--fail-under", &format!("{metric}=1")], 10);
    }
    dir.ended(&["gate", &file, "--fail-under", "benign.r1=1"], 0);
    dir.ended(&["gate", &file, "--fail-over", "attack.CA-=99"], 0);
    insta::assert_snapshot!(dir.told());
}

/// The fixture's numbers follow from its outcomes; the numbers of a report edited by hand don't.
#[test]
fn numbers_that_the_outcomes_contradict_are_refused() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &fixture(0.6));
    let low = fixture(0.3);
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

//! A report against a baseline.

use super::*;

/// Robust R@1 is watched against a baseline, unless drops are stated. ARS, which the strong search
/// contradicts in the worse report, bounds nothing: it warns if it is watched, and fails if the user asked
/// for it.
#[test]
fn a_drop_of_robust_r1_is_a_regression() {
    let dir = Transcript::new(Temp::new());
    let of = |name: &str, left| save(&dir, name, &with_strong(fixture(0.9), left));
    let (base, worse) = (of("base.json", 60), of("worse.json", 10));
    let gate = ["gate", &worse, "--baseline", &base];
    dir.ended(&gate, 11);
    let asked = [&gate[..], &["--max-drop", "ars=1"]].concat();
    let out = dir.ended(&asked, 10);
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
    let of = |name: &str, strength| save(&dir, name, &with_strong(fixture(strength), 60));
    let (base, worse) = (of("base.json", 0.9), of("worse.json", 0.5));
    let out = dir.ended(&["gate", &worse, "--baseline", &base], 11);
    let line = out.lines().find(|line| line.contains("robust_r1")).unwrap();
    assert!(line.contains("(95 % -") && !line.contains("… +"), "{line}");
    insta::assert_snapshot!(dir.told());
}

/// `gate_reasons.rs` has a drop that chance explains.
#[test]
fn a_drop_counts_beyond_the_tolerance() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &fixture(0.6));
    let worse = save(&dir, "worse.json", &fixture(0.45));
    let gate = ["gate", &worse, "--baseline", &base];
    dir.ended(&gate, 11);
    let tolerated = [&gate[..], &["--max-drop", "ars=90"]].concat();
    dir.ended(&tolerated, 0);
    // An improvement is no regression, and a missed threshold comes first.
    dir.ended(&["gate", &base, "--baseline", &worse], 0);
    dir.ended(&[&gate[..], &["--fail-under", "ars=99"]].concat(), 10);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_collapse_of_retrieval_is_a_regression_however_high_the_score() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &fixture(0.4));
    let mut collapsed = fixture(0.9);
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
    let base = save(&dir, "base.json", &fixture(0.5));
    let mut lost = fixture(0.5);
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

/// Two of 201 clean queries are lost, which chance explains if the 201 are a sample.
#[test]
fn a_drop_of_sampled_clean_recall_counts_beyond_chance_only() {
    let dir = Transcript::new(Temp::new());
    let sampled = |name: &str, wrong: usize, sampling: Option<&str>| {
        let mut report = with_clean(fixture(0.5), wrong);
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

//! Attacked pairs that share identities: intervals of groups of people, and of differences of two reports.
//! Expected values: research/golden/golden_groups.py, which sums over pairs of pairs.

use crate::common::{near, outcome, says};
use crate::report_fixture::report;
use audit::judge::breakdown::{breakdowns, weakest};
use audit::judge::compare::of_reports;
use audit::judge::gate::Rules;
use audit::judge::paired::PairedReports;
use audit::judge::quantity::Quantity;
use audit::judge::row::Difference;
use audit::judge::score;
use audit::record::{Measures, Outcome, Report, Scores, Verdict};
use serde_json::{from_value, json};
use std::collections::BTreeMap;

/// A report of attacked pairs. For each pair: the names of both people, its group, and whether it is decided
/// wrongly without and under the attack.
fn of_pairs(pairs: impl Iterator<Item = ([String; 2], String, [bool; 2])>, attack: &str) -> Report {
    let mut found = report(0.5);
    let decided =
        |wrong: bool| Measures { accepted: Some(wrong != (attack == "DODGE")), ..Measures::default() };
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    (found.outcomes, found.labels) = (Vec::new(), BTreeMap::new());
    for (i, (people, group, [before, after])) in pairs.enumerate() {
        let [query, target] = ["q", "t"].map(|of| format!("{of}{i:02}"));
        let of_pair = outcome(attack, &query, decided(before), decided(after));
        found.outcomes.push(Outcome { targets: vec![target.clone()], ..of_pair });
        groups.insert(query.clone(), group);
        found.labels.extend([query, target].into_iter().zip(people));
    }
    let verification = json!({"threshold": 1.0, "listed": true, "genuine": 80, "impostor": 80, "far": 0.1, "tar": 99.0,
        "eer": 1.0, "group_of": {attack: groups}});
    found.verification = Some(from_value(verification).unwrap());
    found.skipped.clear();
    found.attacks = score::score(&found.outcomes, &[], &found.basis(), &[], found.seed).0;
    found.breakdowns = breakdowns(&found);
    found
}

/// 80 impostor pairs of 20 people in two groups, as the script has them.
fn of_twenty(model: usize) -> Report {
    let pair = |i: usize| {
        let (a, b) = (i % 20, (i % 20 + 1 + 3 * (i / 20)) % 20);
        let before = i.is_multiple_of(11);
        let after = before || (a * a + i / 20 / 2 + model * (a % 3)) % 7 < 3 - model;
        let people = [a, b].map(|who| format!("person {who:02}"));
        (people, ["even", "odd"][a % 2].to_string(), [before, after])
    };
    of_pairs((0..80).map(pair), "IMPERSONATE")
}

/// The report if nobody is on two images.
fn apart(report: &Report) -> Report {
    let mut found = Report { labels: BTreeMap::new(), ..report.clone() };
    found.breakdowns = breakdowns(&found);
    found
}

#[track_caller]
fn close(found: (f64, f64), (low, high): (f64, f64)) {
    near(found.0, low, 0.02, "low");
    near(found.1, high, 0.02, "high");
}

/// The intervals of rows, of the worst group, and of the group whose correct decisions fail most often.
#[test]
fn groups_of_pairs_that_share_identities_count_less() {
    let found = of_twenty(0);
    let [worst] = found.breakdowns.as_slice() else { panic!("{:?}", found.breakdowns) };
    let rows: Vec<_> =
        worst.rows.iter().map(|row| (row.name.as_str(), row.queries, row.before, row.after)).collect();
    assert_eq!(rows, [("even", 40, 10.0, 60.0), ("odd", 40, 10.0, 57.5)]);
    close(worst.rows[0].interval, (29.31518, 85.79020));
    close(worst.rows[1].interval, (21.91068, 88.02699));
    close(worst.interval, (31.13117, 89.42510));
    let all = weakest(&found);
    let [weak] = all.as_slice() else { panic!("{} are weakest", all.len()) };
    let counts: Vec<_> = weak.rows.iter().map(|row| (row.failed, row.correct)).collect();
    assert_eq!(counts, [(20, 36), (19, 36)]);
    close(weak.interval(), (25.32927, 86.40772));
    // The same decisions on disjoint pairs: `beta.ppf([.0125, .9875], [24, 25], [17, 16])`.
    close(apart(&found).breakdowns[0].rows[0].interval, (41.16027, 76.92034));
}

/// A class is one person, and its interval is about other images of this person: 6 of 12, as in breakdown.rs.
/// A group of one person says nothing about others in the group:
/// `beta.ppf([.0125, .9875], [.5, 1.5], [1.5, .5])`.
#[test]
fn a_class_is_one_identity_and_a_group_has_several() {
    let pair = |i: usize| {
        let who = ["anna", "ben"][i / 12];
        ([who, who].map(String::from), format!("group of {who}"), [false, i % 12 < 6])
    };
    let found = of_pairs((0..24).map(pair), "DODGE");
    let row = |by: &str| found.breakdowns.iter().find(|b| b.by == by).unwrap().rows[0].interval;
    close(row("class"), (18.26763, 81.73237));
    close(row("group"), (0.00964, 99.99036));
}

fn difference(base: &Report, other: &Report, metric: &str) -> Difference {
    PairedReports::new(base, other).difference(Quantity::find(metric).unwrap()).unwrap()
}

/// The interval of a difference of shares, and how much wider those from resamples become.
#[test]
fn differences_on_pairs_that_share_identities_are_wider() {
    let [base, other] = [0, 1].map(of_twenty);
    let found = difference(&base, &other, "attack.IMPERSONATE");
    near(found.value, -32.5, 1e-9, "difference");
    close(found.interval.unwrap(), (-54.27315, -3.18383));
    for (metric, value, factor) in [
        ("attack.IMPERSONATE.worst_group", -32.5, 1.84624),
        ("attack.IMPERSONATE.resistance", 36.11111, 1.82333),
    ] {
        let found = difference(&base, &other, metric);
        near(found.value, value, 1e-4, metric);
        let (low, high) = difference(&apart(&base), &apart(&other), metric).interval.unwrap();
        assert!(high - low > 10.0, "{metric}: {low} {high}");
        close(found.interval.unwrap(), (value - factor * (value - low), value + factor * (high - value)));
    }
    // Other pairs of the same probes are not the same pairs.
    let mut elsewhere = other.clone();
    elsewhere.outcomes[7].targets = vec!["t09".into()];
    for metric in ["attack.IMPERSONATE", "attack.IMPERSONATE.worst_group"] {
        assert_eq!(difference(&base, &elsewhere, metric).interval, None, "{metric}");
    }
}

/// A list of pairs has no robust R@1, and no flag gives it any. A gate says that it compared retrieval alone.
#[test]
fn reports_of_listed_pairs_are_compared_by_their_attacks() {
    let [base, other] = [0, 1].map(of_twenty).map(|report| Report { scores: Scores::default(), ..report });
    let names = ["base.json", "other.json"].map(String::from).to_vec();
    let found = of_reports(names, &[base.clone(), other.clone()], None, true).unwrap();
    says(
        &found.answer,
        &["decisions about pairs were attacked, and not robust R@1. Compare attack.IMPERSONATE"],
    );
    assert!(!found.answer.contains("--strong-sample"), "{}", found.answer);
    let verdict = Verdict::judge(&other, Some(&base), &Rules::default()).unwrap();
    let checked: Vec<&str> = verdict.checks.iter().map(|check| check.metric.as_str()).collect();
    assert_eq!(checked, ["benign.r1"]);
    let add = "No number under attack was compared with the baseline. Add --max-drop attack.IMPERSONATE=1";
    says(&verdict.note.unwrap(), &[add]);
}

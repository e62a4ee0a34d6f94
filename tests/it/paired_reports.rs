//! Two reports side by side: which are comparable, what a reader must know of both, and which of their
//! differences chance explains.

use crate::common::{Temp, audit, bundled_path, save, says};
use crate::report_fixture::report;
use audit::judge::compare::mismatches;
use audit::record::MaskRecord;
use audit::shards::identity::Identity;

/// The ladder adds searches, so that runs with and without it have other outcomes.
#[test]
fn the_ladder_is_a_part_of_a_runs_identity() {
    let at_eps = report(0.5);
    let mut with_ladder = at_eps.clone();
    with_ladder.suite.ladder = Some(5);
    let differs = ["ladder: none and 5"];
    assert_eq!(Identity::of(&at_eps).differences(&Identity::of(&with_ladder)), differs);
    assert_eq!(mismatches(&at_eps, &with_ladder), differs);
}

/// Means over corruptions are comparable if both reports have the same, made with the same random numbers.
/// The order of the list changes nothing, and neither does a suite that measures none.
#[test]
fn corruptions_are_compared_with_the_same_ones_only() {
    let with = |names: &[&str], seed: u64| {
        let mut found = report(0.5);
        found.suite.corruptions = names.iter().map(|name| name.to_string()).collect();
        found.seed = seed;
        found
    };
    let base = with(&["noise", "blur"], 0);
    let cases: [(&[&str], u64, &[&str]); 4] = [
        (&["blur"], 0, &["corruptions: noise, blur and blur"]),
        (&["noise", "blur"], 7, &["seed of corruptions: 0 and 7 (set it by --seed)"]),
        (&["blur", "noise"], 0, &[]),
        (&[], 7, &[]),
    ];
    for (names, seed, differs) in cases {
        assert_eq!(mismatches(&base, &with(names, seed)), differs, "{names:?}");
    }
    // Blur has no random numbers.
    assert!(mismatches(&with(&["blur"], 0), &with(&["blur"], 7)).is_empty());
    // The seed draws the places of patches, too.
    let patched = |seed: u64| {
        let mut found = with(&[], seed);
        found.suite.mask = Some(MaskRecord { path: None, sha256: None, share: 0.1 });
        found
    };
    assert_eq!(mismatches(&patched(0), &patched(7)), ["seed of patches: 0 and 7 (set it by --seed)"]);
}

/// A replay attacks queries that the report of its trials chose, and says how. A list of trials doesn't say.
#[test]
fn a_replay_keeps_how_its_queries_were_chosen() {
    let dir = Temp::new();
    let run = |model: &str, more: &[&str]| {
        let flags = ["--suite", "smoke", "--steps", "1", "--max-queries", "4", "--strong-sample", "off"];
        audit(&[&[bundled_path(model).as_str()], &flags[..], more].concat()).unwrap()
    };
    let [short, apart] = ["short.json", "apart.json"].map(|name| dir.join(name).display().to_string());
    let base = run("hardened.onnx", &["--sample", "correct", "-o", &short, "--trials-out", &apart]);
    let words = base.suite.sampling.clone().unwrap();
    says(&words, &["4 of 960 queries, correct ones first, ", "seed 0"]);
    assert!(base.suite.prefers_correct());
    let whole = save(&dir, "whole.json", &base);
    let list = dir.file("list.json", base.trials.to_string());
    for (from, file, expected) in
        [("--trials", whole, Some(&words)), ("--baseline", short, Some(&words)), ("--trials", list, None)]
    {
        let replayed = run("plain.onnx", &[from, &file, "--seed", "3"]);
        assert_eq!(replayed.suite.sampling.as_ref(), expected, "{from} {file}");
    }
}

//! A result depends on seed, suite and data, and not on batch size and threads. For the strong search:
//! `tests/it/strong.rs`.

use crate::common::models::{Bench, small};
use crate::common::rendered;
use audit::record::{Outcome, Report};
use std::collections::BTreeMap;

struct Stage(Bench);

impl Stage {
    /// 6 classes of 5 images and the plainest model; 6 steps.
    fn new() -> Stage {
        Stage(Bench::new(&small(), 6, 5, 1))
    }
    fn run(&self, args: &[&str]) -> Report {
        self.run_suite("full", args)
    }
    fn run_suite(&self, suite: &str, args: &[&str]) -> Report {
        let fixed = ["--steps", "6", "--strong-sample", "off", "--suite", suite];
        self.0.audit(&[&fixed[..], args].concat()).unwrap()
    }
}

const SEEDED: [&str; 4] = ["--max-queries", "12", "--seed", "5"];

#[test]
fn batch_size_and_threads_do_not_change_the_trials() {
    let stage = Stage::new();
    let run = |batch, threads| stage.run(&[&SEEDED[..], &["--batch", batch, "--threads", threads]].concat());
    let first = run("8", "1");
    assert_eq!(first.outcomes.len(), 9 * 12);
    for (batch, threads) in [("3", "1"), ("64", "1"), ("8", "2"), ("64", "2")] {
        let other = run(batch, threads);
        assert_eq!(other.trials, first.trials, "batch {batch}, {threads} threads");
        assert_eq!(other.data.sha256, first.data.sha256);
        // Rounding may differ in the last digit, and so may an image here and there; the result doesn't.
        for (a, b) in other.attacks.iter().zip(&first.attacks) {
            let (after, expected) = (a.after.unwrap(), b.after.unwrap());
            let close = (after - expected).abs() <= 0.02 * expected.abs().max(1.0);
            assert!(a.code == b.code && close, "{}: {after}, {expected}", a.code);
        }
        for (a, b) in other.outcomes.iter().zip(&first.outcomes) {
            assert_eq!((&a.attack, &a.query, &a.targets), (&b.attack, &b.query, &b.targets));
            assert_eq!(a.before, b.before);
        }
    }
    let other = stage.run(&["--max-queries", "12", "--seed", "6"]);
    assert_ne!(other.trials, first.trials, "another seed");
    assert_eq!(other.benign.as_ref().unwrap().map, first.benign.as_ref().unwrap().map);
    assert_eq!(other.data.sha256, first.data.sha256);
}

/// With fewer queries the batches differ: neither targets nor outcomes change by a bit. Resuming and merging
/// rely on this.
#[test]
fn fewer_queries_are_a_part_of_more_with_the_same_outcomes() {
    let stage = Stage::new();
    // Fixed steps; adaptive ones with random starts; drawn directions.
    for (suite, extra) in [("full", &[][..]), ("ers-strict", &[]), ("smoke", &["--gradient", "estimate"])] {
        let run = |args: &[&str]| -> BTreeMap<(String, String), Outcome> {
            let report = stage.run_suite(suite, &[args, extra, &["--seed", "5"]].concat());
            report.outcomes.into_iter().map(|o| ((o.attack.clone(), o.query.clone()), o)).collect()
        };
        let mut larger = run(&["--max-queries", "30"]);
        for most in ["12", "5"] {
            let fewer = run(&["--max-queries", most]);
            assert!(fewer.len() < larger.len());
            for (trial, outcome) in &fewer {
                assert_eq!(larger.get(trial), Some(outcome), "{suite}, {trial:?}");
            }
            larger = fewer;
        }
    }
}

/// Outcomes without the clusters of their queries, which k-means numbers by the seed.
fn unclustered(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for outcome in &mut outcomes {
        let found =
            [&mut outcome.before, &mut outcome.after].into_iter().filter_map(|m| m.retrieval.as_mut());
        found.for_each(|retrieval| retrieval.cluster = None);
    }
    outcomes
}

#[test]
fn trials_of_an_earlier_report_replay_to_the_same_outcomes() {
    let stage = Stage::new();
    for form in ["published", "corrected"] {
        let path = stage.0.path(&format!("{form}.json"));
        let first = stage.run(&[&SEEDED[..], &["--form", form, "-o", &path]].concat());
        // The seed differs, but has no effect.
        let again = stage.run(&["--trials", &path, "--seed", "77", "--form", form]);
        assert_eq!(unclustered(again.outcomes), unclustered(first.outcomes.clone()), "{form}");
        assert_eq!((&again.trials, &again.skipped), (&first.trials, &first.skipped));
        assert_eq!(again.scores.ers.as_ref().unwrap().value, first.scores.ers.as_ref().unwrap().value);
        // The trials alone, in their own file, work too.
        let alone = stage.0.temp.write("trials.json", first.trials.to_string()).display().to_string();
        let again = stage.run(&["--trials", &alone, "--form", form]).outcomes;
        assert_eq!(unclustered(again), unclustered(first.outcomes));
    }
}

#[test]
fn every_report_file_is_complete_and_what_the_audit_returned() {
    let stage = Stage::new();
    let before = stage.0.temp.names();
    let paths = ["a.json", "b.json"].map(|name| stage.0.path(name));
    let report = stage.run(&[&SEEDED[..], &["-o", &paths[0], "-o", &paths[1]]].concat());
    for path in &paths {
        assert_eq!(std::fs::read_to_string(path).unwrap(), rendered(&report, "json"));
    }
    let mut expected = [before, vec!["a.json".into(), "b.json".into()]].concat();
    expected.sort();
    assert_eq!(stage.0.temp.names(), expected);
}

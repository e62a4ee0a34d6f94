//! Two reports side by side: which are comparable, what a reader must know of both, and which of their
//! differences chance explains.

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

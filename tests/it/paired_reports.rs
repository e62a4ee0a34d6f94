//! Two reports side by side: which are comparable, what a reader must know of both, and which of their
//! differences chance explains.

use crate::report_fixture::report;
use audit::judge::compare::mismatches;
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

//! What earlier versions wrote is still read, and a refusal doesn't call it edited.

use crate::report_fixture::{add_strong_search, report};
use audit::Exit;
use audit::judge::gate::Rules;
use audit::judge::ladder::ladder;
use audit::record::{Enough, Verdict};

/// 0.03137 stands for 8/255, and its half for 4/255. Earlier versions counted within the half itself,
/// 3.99968/255, which a change of 4 levels does not lie in.
#[test]
fn a_gate_takes_rungs_as_earlier_versions_counted_them() {
    let mut report = report(0.5);
    add_strong_search(&mut report);
    // 20 of 32 queries fail from 4 levels on, 11 from 6, and one withstands all.
    report.outcomes.retain(|o| o.attack == "R1");
    for (i, outcome) in report.outcomes.iter_mut().enumerate() {
        let levels = [(20, 4.0), (31, 6.0)].into_iter().find(|(until, _)| i < *until);
        let size = levels.map(|(_, levels)| levels / 255.0);
        outcome.enough = Some(Enough { size, ..Enough::default() });
        outcome.linf = 8.0 / 255.0;
    }
    (report.suite.eps, report.suite.ladder) = (0.03137, Some(5));
    let own = ladder(&report);
    report.scores.robust_r1.as_mut().unwrap().ladder = own;
    let rules = Rules::settle(&[], &["robust_r1@4/255=0".into()], &[], &[]).unwrap();
    for (saved, accepted) in [(37.5, true), (100.0, true), (50.0, false)] {
        let rung = &mut report.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap().rungs[1];
        // What this version counts.
        assert!(saved != 37.5 || rung.r1 == saved, "{}", rung.r1);
        rung.r1 = saved;
        match Verdict::judge(&report, None, &rules) {
            Ok(verdict) => assert!(accepted && verdict.checks[0].found == Some(saved), "{verdict:?}"),
            Err(e) => assert!(!accepted && e.exit == Exit::Usage, "{e}"),
        }
    }
}

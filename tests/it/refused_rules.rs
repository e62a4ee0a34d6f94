//! Rules of the gate that an audit can't judge are refused before its attacks.

use crate::report_fixture::report;
use audit::Exit;
use audit::judge::gate::{Rules, refuse_unmeasured};
use audit::record::reason::NO_CLUSTERING;

/// A large gallery is clustered only with --nmi. Without it no attack need run to know that a rule about NMI
/// can't be judged, whatever it bounds.
#[test]
fn rules_about_clusters_need_a_clustering() {
    let mut planned = report(0.5);
    planned.outcomes.clear();
    let under = ["benign.nmi=1".to_string()];
    let rules = [
        Rules::settle(&[], &under, &[], &[]).unwrap(),
        Rules::settle(&[], &[], &[], &under).unwrap(),
        Rules::settle(&[], &["benign.ami=1".into()], &[], &[]).unwrap(),
    ];
    let others = Rules::settle(&[], &["benign.r1=1".into(), "benign.map=1".into()], &[], &[]).unwrap();
    assert!(rules.iter().all(|rules| refuse_unmeasured(rules, &planned).is_ok()));
    planned.benign.as_mut().unwrap().nmi = None;
    planned.warnings.push(NO_CLUSTERING.note("NMI and AMI are left out. Add --nmi"));
    for rules in &rules {
        assert_eq!(refuse_unmeasured(rules, &planned).unwrap_err().exit, Exit::Usage);
    }
    refuse_unmeasured(&others, &planned).unwrap();
}

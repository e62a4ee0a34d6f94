//! What an audit on another machine may differ in without a consequence.

use crate::report_fixture::report;
use audit::judge::gate::{self, Rules};
use audit::record::Verdict;

/// The last digits of means depend on the machine. Losses that a report shows are losses.
#[test]
fn a_baseline_may_be_replaced_from_another_machine() {
    let base = report(0.5);
    let worse_by = |loss: f64| {
        let mut report = base.clone();
        report.benign.as_mut().unwrap().r1 -= loss;
        let verdict = Verdict::judge(&report, Some(&base), &Rules::settle(&[], &[], &[], &[]).unwrap());
        gate::worse(&verdict.unwrap()).len()
    };
    assert_eq!([0.0, 1e-6, 0.04, 0.06, 0.5].map(worse_by), [0, 0, 0, 1, 1]);
    assert_eq!(worse_by(-1e-6), 0);
}

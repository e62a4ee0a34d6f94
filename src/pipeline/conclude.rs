//! The last step of an audit: scores, rows and findings from the outcomes of its attacks.

use super::warnings;
use crate::check::float16;
use crate::facts::is_robust_term;
use crate::judge::{breakdown, corruption, retrieval, score, smallest, strong, verification};
use crate::record::{self, Outcome, Report, ScoreName, Scores};
use crate::threat::Objective;
use std::collections::BTreeSet;

/// A report with the outcomes of all its trials.
pub struct Attacked {
    report: Report,
}

impl Attacked {
    /// A report with its outcomes.
    pub fn new(report: Report) -> Attacked {
        Attacked { report }
    }

    /// The report with rows, scores and findings. `requested` are the scores of the suite.
    pub fn conclude(self, requested: &[ScoreName]) -> Report {
        let Attacked { mut report } = self;
        report.suite.queries = queries(&report.outcomes);
        report.verification = verification::attacked(&report);
        let robust = strong::robust(&report);
        let (mut attacks, scores) =
            score::score(&report.outcomes, &report.skipped, &report.basis(), requested, report.seed);
        // Robust R@1 counts what any attack broke, and must have the same interval everywhere in a report.
        if let Some(robust) = &robust {
            let strong = |row: &&mut record::Attack| is_robust_term(&row.code);
            attacks.iter_mut().filter(strong).for_each(|row| row.after_interval = robust.interval);
        }
        let (robust_r1, robust_top1) = match report.data.has_classes() {
            true => (robust, None),
            false => (None, robust),
        };
        report.attacks = attacks;
        report.scores = Scores { robust_r1, robust_top1, ..scores };
        report.retrieval = retrieval::rows(&report.outcomes, &report.labels);
        report.smallest = smallest::smallest(&report);
        report.corruptions = corruption::corruptions(&report);
        report.breakdowns = breakdown::breakdowns(&report);
        if report.part.is_none() {
            let comparison = float16::compare(&report);
            if let Some(half) = &mut report.half_precision {
                half.comparison = comparison;
            }
        }
        report.warnings.extend(warnings::after_attacks(&report));
        report
    }
}

/// The number of attacked queries. Items of the gallery that CA± perturbs are no queries, unless there is no
/// other attack.
fn queries(outcomes: &[Outcome]) -> usize {
    let perturbs_candidate =
        |o: &Outcome| Objective::find(&o.attack).is_ok_and(|of| of.measure.moves_candidate);
    let count = |candidates: bool| -> usize {
        let ids = outcomes.iter().filter(|o| perturbs_candidate(o) == candidates).map(|o| &o.query);
        ids.collect::<BTreeSet<_>>().len()
    };
    match count(false) {
        0 => count(true),
        queries => queries,
    }
}

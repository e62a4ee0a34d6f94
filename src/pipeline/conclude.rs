//! The last step of an audit: scores, rows and warnings from the outcomes of its attacks.

use super::warnings;
use crate::check::float16;
use crate::facts::is_robust_term;
use crate::judge::score::{self, ComputedScores, Estimate, Summary};
use crate::judge::{breakdown, corruption, ladder, retrieval, smallest, strong, verification};
use crate::record::{self, Form, Outcome, Report, ScoreName};
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

    /// The report with rows, scores and warnings. `asked` are the scores of the suite.
    pub fn conclude(self, asked: &[ScoreName]) -> Report {
        let Attacked { mut report } = self;
        report.suite.queries = queries(&report.outcomes);
        let scores = score::score(&report.outcomes, &report.skipped, &report.basis(), report.seed);
        report.attacks = scores.summaries.iter().map(|summary| row(summary, report.suite.form)).collect();
        report.retrieval = retrieval::rows(&report.outcomes, &report.labels);
        report.smallest = smallest::smallest(&report);
        report.corruptions = corruption::corruptions(&report);
        verification::conclude(&mut report);
        report.scores = requested_scores(asked, scores);
        let (eps, ladder) = (Some(report.suite.eps), ladder::ladder(&report));
        let robust = strong::robust(&report.outcomes).map(|robust| record::Robust { eps, ladder, ..robust });
        match report.data.has_classes() {
            true => report.scores.robust_r1 = robust,
            false => report.scores.robust_top1 = robust,
        }
        // The bootstrap has no width if all queries agree, and a share must have the same interval everywhere
        // in a report.
        if let Some(robust) = report.scores.robust() {
            let strong = |row: &&mut record::Attack| is_robust_term(&row.code);
            report.attacks.iter_mut().filter(strong).for_each(|row| row.after_interval = robust.interval);
        }
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

fn row(s: &Summary, form: Form) -> record::Attack {
    record::Attack {
        code: s.term.name.into(),
        form,
        queries: s.queries,
        skipped: s.skipped,
        counted: s.counted,
        before: s.before,
        after: s.after.map(|a| a.value),
        after_interval: s.after.and_then(|a| a.interval),
        ers_term: s.ers_term,
        resistance: record::Resistance { per_trial: s.per_trial, table: s.table },
    }
}

/// The scores of the suite; others aren't missed.
fn requested_scores(asked: &[ScoreName], scores: ComputedScores) -> record::Scores {
    let score = |name: ScoreName, found: Option<Estimate>, table: Option<Estimate>| {
        found.filter(|_| asked.contains(&name)).map(|e| record::Score {
            value: e.value,
            interval: e.interval,
            table: table.map(|e| e.value),
            table_interval: table.and_then(|e| e.interval),
            withheld: e.withheld(),
        })
    };
    let about = |(name, note)| asked.contains(&name).then_some(note);
    record::Scores {
        ers: score(ScoreName::Ers, scores.ers, None),
        ars: score(ScoreName::Ars, scores.ars, scores.ars_table),
        ars_strong: score(ScoreName::ArsStrong, scores.ars_strong, None),
        robust_r1: None,
        robust_top1: None,
        notes: scores.notes.into_iter().filter_map(about).collect(),
    }
}

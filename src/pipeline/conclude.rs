//! The last step of an audit: the report, whose scores, rows and findings follow from the outcomes of its
//! attacks.

use super::describe::Run;
use super::warnings;
use crate::check::{attacked, float16};
use crate::facts::{Facts, is_robust_term};
use crate::judge::{breakdown, corruption, retrieval, score, smallest, strong, verification};
use crate::record::reason::SAMPLING_NOISE;
use crate::record::{
    Attack, Corrupted, Examples, HalfPrecision, ModelRecord, Outcome, Report, SCHEMA_VERSION, ScoreName,
    Scores, SuiteRecord, Timing, Verdict, Warning,
};
use crate::threat::Objective;
use std::collections::BTreeSet;

/// A run, all of whose trials have run.
pub struct Attacked {
    pub run: Run,
    pub results: Results,
}

/// What the attacks of a run gave.
#[derive(Default)]
pub struct Results {
    pub outcomes: Vec<Outcome>,
    pub corrupted: Vec<Corrupted>,
    /// The scale of float16 steps and a sample with float32 steps, if attacks ran in float16.
    pub half_precision: Option<HalfPrecision>,
    pub examples: Option<Examples>,
    /// Nodes with a softened gradient in the backward passes that the strong search used.
    pub softened: Vec<String>,
    /// Findings of the attacks themselves.
    pub warnings: Vec<Warning>,
    /// Computed attack steps of single images.
    pub image_steps: usize,
    /// Seconds of the attacks.
    pub attacks_s: f64,
    /// Seconds of the sample with float32 steps.
    pub check_s: f64,
}

impl Run {
    /// The report of `results`, without the numbers that follow from them.
    pub fn report(self, results: Results) -> Report {
        let timing = Timing {
            attacks_s: self.timing.attacks_s + results.attacks_s,
            check_s: self.timing.check_s + results.check_s,
            image_steps: self.timing.image_steps + results.image_steps,
            ..self.timing
        };
        Report {
            schema_version: SCHEMA_VERSION,
            tool: self.tool,
            model: ModelRecord { softened: results.softened, ..self.model },
            data: self.data,
            suite: SuiteRecord { queries: queries(&results.outcomes), ..self.suite },
            seed: self.seed,
            allow_untrusted: self.allow_untrusted,
            benign: self.benign,
            attacks: Vec::new(),
            retrieval: Vec::new(),
            smallest: None,
            hub: self.hub,
            targets: self.targets,
            breakdowns: Vec::new(),
            universal: self.universal,
            corruptions: None,
            verification: self.verification,
            scores: Scores::default(),
            trials: self.trials,
            outcomes: results.outcomes,
            corrupted: results.corrupted,
            trials_file: None,
            skipped: self.skipped,
            labels: self.labels,
            groups: self.groups,
            half_precision: results.half_precision,
            warnings: [self.warnings, results.warnings].concat(),
            part: self.part,
            gate: None,
            examples: results.examples,
            command: self.command,
            timing,
        }
    }
}

impl Attacked {
    /// The report with rows, scores and findings. `requested` are the scores of the suite.
    pub fn conclude(self, requested: &[ScoreName]) -> Report {
        let measured = self.run.report(self.results);
        let robust = strong::robust(&measured);
        let (attacks, scores) =
            score::score(&measured.outcomes, &measured.skipped, &measured.basis(), requested, measured.seed);
        // Robust R@1 counts what any attack broke, and must have the same interval everywhere in a report.
        let row = |row: Attack| match &robust {
            Some(robust) if is_robust_term(&row.code) => Attack { after_interval: robust.interval, ..row },
            // Attacked pairs may share identities, as those without an attack.
            _ if Facts::of_term(&row.code).is_some_and(|of| of.pairs.is_some()) => {
                Attack { after_interval: verification::of_attack(&measured, &row.code), ..row }
            }
            _ => row,
        };
        let attacks = attacks.into_iter().map(row).collect();
        let (robust_r1, robust_top1) = match measured.data.has_classes() {
            true => (robust, None),
            false => (None, robust),
        };
        let comparison = match measured.part {
            None => float16::compare(&measured),
            Some(_) => None,
        };
        let scored = Report {
            attacks,
            scores: Scores { robust_r1, robust_top1, ..scores },
            retrieval: retrieval::rows(&measured.outcomes, &measured.labels),
            smallest: smallest::smallest(&measured),
            corruptions: corruption::corruptions(&measured),
            verification: verification::attacked(&measured),
            half_precision: measured.half_precision.map(|half| HalfPrecision { comparison, ..half }),
            ..measured
        };
        let rows = Report { breakdowns: breakdown::breakdowns(&scored), ..scored };
        let found = warnings::after_attacks(&rows);
        Report { warnings: [rows.warnings, found].concat(), ..rows }
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

/// The report with the gate's verdict, and what the gate can't detect. A finding of an earlier verdict is
/// about another baseline, and goes.
pub fn with_verdict(report: Report, verdict: Verdict) -> Report {
    let report = Report { gate: Some(verdict), ..report };
    let noise = attacked::sampling_noise(&report);
    let others = report.warnings.iter().filter(|w| !SAMPLING_NOISE.made(w)).cloned();
    Report { warnings: others.chain(noise).collect(), ..report }
}

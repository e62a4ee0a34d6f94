//! The report as a value: what is known before the attacks, and what follows from their outcomes.

use super::reservations;
use crate::Result;
use crate::cli::{Precision, Run};
use crate::data::Dataset;
use crate::judge::check::load::GradientCheck;
use crate::judge::check::{Warning, half};
use crate::judge::score::{self, Estimate, Scores};
use crate::model::Model;
use crate::model::card::Card;
use crate::model::runtime;
use crate::report::{self, Report};
use crate::space::Metric;
use crate::space::benign::{Benign, CMC};
use crate::suite::{Protocol, ScoreName, Suite};
use crate::threat::Plan;
use std::collections::BTreeSet;

/// The warning that a report is of a part.
pub const PART: &str = "part-of-a-run";

/// Fills in what follows from a report's outcomes: rows, scores and reservations. `asked` are the scores of the suite.
pub fn conclude(report: &mut Report, asked: &[ScoreName]) -> Result<()> {
    let queries: BTreeSet<&str> = report.outcomes.iter().map(|o| o.query.as_str()).collect();
    report.suite.queries = queries.len();
    let scores = score::score(&report.outcomes, &report.skipped, &report.basis()?, report.seed);
    report.attacks = rows(&scores, &report.suite.form);
    report.scores = wanted(asked, scores);
    if report.part.is_none() {
        let comparison = half::compare(report)?;
        if let Some(half) = &mut report.half_precision {
            half.comparison = comparison;
        }
    }
    let found = match &report.part {
        None => reservations::after_attacks(report),
        Some(part) => vec![Warning::new(
            PART,
            format!(
                "this is part {} of a run: its numbers are those of its own queries. `audit merge` puts the parts together",
                part.partition
            ),
        )],
    };
    report.warnings.extend(found);
    Ok(())
}

/// What makes the report.
pub fn tool(flags: &Run, model: &Model) -> report::Tool {
    report::Tool {
        name: "audit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        runtime: format!("ONNX Runtime {}", runtime::version()),
        provider: flags.ep.to_string(),
        fast_math: flags.fast_math,
        cpu_nodes: model.info.cpu_nodes.clone(),
    }
}

/// What is run, as reports describe it. The number of queries follows from the outcomes.
pub fn suite(
    suite: &Suite,
    protocol: Protocol,
    plan: &Plan,
    precision: Precision,
    sampling: Option<String>,
) -> report::Suite {
    report::Suite {
        name: suite.name.clone(),
        form: plan.form.to_string(),
        protocol: protocol.name().into(),
        eps: plan.eps,
        alpha: plan.alpha,
        steps: plan.steps,
        schedule: format!("{:?}", plan.schedule).to_lowercase(),
        restarts: plan.restarts,
        attack_precision: precision.name().into(),
        queries: 0,
        sampling,
    }
}

/// The model as reports describe it.
pub fn model(model: &Model, card: &Card, metric: Metric, gradient_check: GradientCheck) -> report::Model {
    let info = &model.info;
    report::Model {
        path: info.path.display().to_string(),
        sha256: info.sha256.clone(),
        inputs: info.inputs.clone(),
        output: info.output.clone(),
        dim: info.dim,
        metric: metric.name().into(),
        preprocessing: info.preprocessing.clone(),
        licence: card.licence.clone(),
        source: card.source.clone(),
        gradient_check,
    }
}

/// Retrieval without attack, in per cent.
pub fn benign(b: &Benign, dataset: &Dataset) -> report::Benign {
    let curve = CMC.iter().zip(&b.cmc).map(|(&k, share)| report::CmcPoint { k, value: 100.0 * share });
    let classes = b.classes.iter().map(|row| report::ClassRow {
        class: dataset.classes[row.label].clone(),
        queries: row.queries,
        r1: 100.0 * row.r_at_1,
        map_at_r: 100.0 * row.map_at_r,
    });
    report::Benign {
        r1: 100.0 * b.r_at_1,
        r2: 100.0 * b.r_at_2,
        map: 100.0 * b.map,
        map_at_r: 100.0 * b.map_at_r,
        nmi: b.nmi.map(|v| 100.0 * v),
        ami: b.ami.map(|v| 100.0 * v),
        mrr: Some(100.0 * b.mrr),
        r_precision: Some(100.0 * b.r_precision),
        map_at_c: Some(100.0 * b.map_at_c),
        cmc: curve.collect(),
        classes: classes.collect(),
        queries: b.queries,
        without_positive: b.without_positive,
    }
}

fn rows(scores: &Scores, form: &str) -> Vec<report::Attack> {
    scores
        .summaries
        .iter()
        .map(|s| report::Attack {
            code: s.term.clone(),
            form: form.into(),
            queries: s.queries,
            skipped: s.skipped,
            before: s.before,
            after: s.after.map(|a| a.value),
            after_interval: s.after.and_then(|a| a.interval),
            ers_term: s.ers_term,
            resistance: report::Resistance { per_trial: s.per_trial, table: s.table },
        })
        .collect()
}

/// The scores that the suite asks for; one that it doesn't isn't missed.
fn wanted(asked: &[ScoreName], scores: Scores) -> report::Scores {
    let asks = |score| asked.contains(&score);
    let score = |e: Option<Estimate>| {
        e.map(|e| report::Score { value: e.value, interval: e.interval, table: None, table_interval: None })
    };
    let (ers, ars) = (asks(ScoreName::Ers), asks(ScoreName::Ars));
    let mut found = score(scores.ars.filter(|_| ars));
    if let Some(found) = &mut found {
        found.table = scores.ars_table.map(|e| e.value);
        found.table_interval = scores.ars_table.and_then(|e| e.interval);
    }
    let about = |note: &String| (ers && note.starts_with("no ERS")) || (ars && note.starts_with("no ARS"));
    report::Scores {
        ers: score(scores.ers.filter(|_| ers)),
        ars: found,
        notes: scores.notes.into_iter().filter(about).collect(),
    }
}

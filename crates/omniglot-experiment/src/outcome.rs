//! What came of the models: read from audit-train's logs and audit's reports.

use crate::specs::Spec;
use audit::record::{Report, Score};
use audit::threat::term::TERMS;
use audit::{Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// A model, over seeds.
pub struct TrainedModel {
    pub spec: Spec,
    pub runs: Vec<SeedResult>,
}

/// A model of one seed.
pub struct SeedResult {
    /// Mean distance of clean embeddings.
    pub distance: f64,
    pub scores: AuditScores,
    pub image_steps: f64,
    pub seconds: f64,
    /// At which step.
    pub collapsed: Option<u64>,
}

/// What a report says of a model.
pub struct AuditScores {
    /// Without attack, %.
    pub r1: f64,
    /// The terms of ARS with their resistance per trial, in its order.
    pub terms: Vec<(String, Option<f64>)>,
    pub ers: f64,
    pub ars: f64,
}

impl AuditScores {
    /// The one place that reads scores from a report; `name` is the model's.
    fn of(report: &Report, name: &str) -> Result<AuditScores> {
        let value = |score: &Option<Score>, which: &str| {
            let score = score.as_ref().map(|s| s.value);
            score.ok_or_else(|| Error::internal(format!("the audit of {name} gives no {which}")))
        };
        let resistance = |term: &str| report.attacks.iter().find(|a| a.code == term)?.resistance.per_trial;
        let in_ars = TERMS.iter().filter(|t| t.resistance.is_some());
        Ok(AuditScores {
            r1: report.benign.r1,
            terms: in_ars.map(|t| (t.name.to_string(), resistance(t.name))).collect(),
            ers: value(&report.scores.ers, "ERS")?,
            ars: value(&report.scores.ars, "ARS")?,
        })
    }
}

impl SeedResult {
    /// Reads `stem`.jsonl and `stem`.json.
    pub fn read(stem: &str) -> Result<SeedResult> {
        let rows = read_log(Path::new(&format!("{stem}.jsonl")))?;
        let report = Report::load(Path::new(&format!("{stem}.json")))?;
        let name = Path::new(stem).file_name().unwrap_or_default().to_string_lossy();
        let last = &rows[rows.len() - 1];
        Ok(SeedResult {
            distance: last.clean.distance,
            scores: AuditScores::of(&report, &name)?,
            image_steps: last.image_steps as f64,
            seconds: last.seconds,
            collapsed: rows.iter().find(|r| r.collapsed).map(|r| r.step),
        })
    }
}

/// A line of the log, with those of its fields that are used. Lines of other kinds have none of them.
#[derive(Deserialize)]
struct LogLine {
    epoch: Option<EpochRow>,
}

#[derive(Deserialize)]
struct EpochRow {
    step: u64,
    clean: Clean,
    image_steps: u64,
    seconds: f64,
    collapsed: bool,
}

#[derive(Deserialize)]
struct Clean {
    distance: f64,
}

/// The epochs of a log, at least one. Exit code 2 where it is no log or holds no epoch.
fn read_log(path: &Path) -> Result<Vec<EpochRow>> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read the log {shown}: {e}")))?;
    let wrong = |i: usize, e| format!("{shown}, line {}: not a line of audit-train's log: {e}", i + 1);
    let lines = text.lines().enumerate();
    let epoch = |(i, line)| {
        serde_json::from_str(line).map(|l: LogLine| l.epoch).map_err(|e| Error::usage(wrong(i, e)))
    };
    let rows: Vec<EpochRow> = lines.map(epoch).filter_map(Result::transpose).collect::<Result<_>>()?;
    match rows.is_empty() {
        true => Err(Error::usage(format!("{shown} holds no epoch yet"))),
        false => Ok(rows),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A model of which only R@1, ARS and collapse matter.
    pub fn model(name: &str, family: &str, runs: &[(f64, f64, Option<u64>)]) -> TrainedModel {
        let run = |&(r1, ars, collapsed): &(f64, f64, Option<u64>)| SeedResult {
            distance: 1.0,
            scores: AuditScores { r1, terms: vec![], ers: ars, ars },
            image_steps: 1e6,
            seconds: 60.0,
            collapsed,
        };
        let spec = Spec {
            name: name.into(),
            family: family.into(),
            point: "main".into(),
            main: true,
            words: vec![],
            steps: 0,
        };
        TrainedModel { spec, runs: runs.iter().map(run).collect() }
    }
}

//! The results of the models, read from audit-train's logs and audit's reports.

use crate::matrix::Spec;
use audit::judge::row::attacked_r1;
use audit::record::{Benign, Report, Score, ScoreName};
use audit::threat::term::Term;
use audit::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
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
    /// The step of the collapse, or at which the loss was not a number; `None` if it was trained to its end
    /// without. Other runs are left out of comparisons.
    pub collapsed: Option<u64>,
    /// Whether the loss was not a number. The scores are of the last state before that.
    pub diverged: bool,
}

/// The numbers of a model's report.
#[derive(Default)]
pub struct AuditScores {
    /// R@1 without an attack, %.
    pub r1: f64,
    /// Retrieval without an attack, by name, %. Not every report has every measure.
    pub benign: Vec<(&'static str, Option<f64>)>,
    /// Resistance per trial of the terms of ARS, in the order of the report.
    pub terms: Vec<(String, Option<f64>)>,
    /// Every term's mean after the attack, in its own unit.
    pub after: Vec<(String, Option<f64>)>,
    /// R@1 under the strong search, %, and scores of 0 to 100, if the report has them.
    pub robust_r1: Option<f64>,
    /// Numbers by their names in plans: retrieval without an attack, and that of attacked queries behind the
    /// attack's code.
    pub numbers: BTreeMap<String, f64>,
    pub ers: Option<f64>,
    pub ars: Option<f64>,
}

impl AuditScores {
    /// The one place that reads scores from a report.
    fn of(report: &Report) -> AuditScores {
        let scores = &report.scores;
        // Every data set of a matrix has classes.
        let benign = report.benign.as_ref();
        let of = |number: fn(&Benign) -> Option<f64>| benign.and_then(number);
        let in_ars = |code: &str| Term::all().any(|t| t.name == code && t.weight(ScoreName::Ars) > 0);
        let value = |score: &Option<Score>| score.as_ref().map(|s| s.value);
        let attacks = || report.attacks.iter();
        let r1 = of(|b| Some(b.r1));
        let clean = vec![
            ("R@2", of(|b| Some(b.r2))),
            ("mAP", of(|b| Some(b.map))),
            ("mAP@R", of(|b| Some(b.map_at_r))),
            ("mAP@C", of(|b| b.map_at_c)),
            ("NMI", of(|b| b.nmi)),
        ];
        let mut numbers: BTreeMap<String, f64> = [("R@1", r1)]
            .iter()
            .chain(&clean)
            .filter_map(|(name, value)| Some(((*name).to_string(), (*value)?)))
            .collect();
        for row in &report.retrieval {
            let found = [
                ("R@1", attacked_r1(row)),
                ("mAP@R", Some(row.after.map_at_r)),
                ("mAP@C", Some(row.after.map_at_c)),
                ("NMI", row.after.nmi),
            ];
            let named = found
                .into_iter()
                .filter_map(|(name, value)| Some((format!("{} {name}", row.attack), value?)));
            numbers.extend(named);
        }
        AuditScores {
            r1: r1.unwrap_or(f64::NAN),
            benign: clean,
            numbers,
            terms: attacks()
                .filter(|a| in_ars(&a.code))
                .map(|a| (a.code.clone(), a.resistance.per_trial))
                .collect(),
            after: attacks().map(|a| (a.code.clone(), a.after)).collect(),
            robust_r1: scores.robust_r1.as_ref().map(|r| r.value),
            ers: value(&scores.ers),
            ars: value(&scores.ars),
        }
    }
}

impl SeedResult {
    /// Reads `stem`.jsonl and `stem`.json.
    pub fn read(stem: &str) -> Result<SeedResult> {
        let (rows, diverged) = read_log(Path::new(&format!("{stem}.jsonl")))?;
        let report = Report::load(Path::new(&format!("{stem}.json")))?;
        let last = &rows[rows.len() - 1];
        Ok(SeedResult {
            distance: last.clean.distance,
            scores: AuditScores::of(&report),
            image_steps: last.image_steps as f64,
            seconds: last.seconds,
            collapsed: rows.iter().find(|r| r.collapsed).map(|r| r.step).or(diverged),
            diverged: diverged.is_some(),
        })
    }
}

/// A line of the log, with the fields that are used. Lines of other kinds have none of them.
#[derive(Deserialize)]
struct LogLine {
    epoch: Option<EpochRow>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    how: String,
    step: u64,
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

/// The epochs of a log, at least one, and the step after which the loss was not a number, if it was none.
/// Exit code 2 if it is no log or has no epoch.
fn read_log(path: &Path) -> Result<(Vec<EpochRow>, Option<u64>)> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read the log {shown}: {e}")))?;
    let wrong = |i: usize, e| format!("{shown}, line {}: not a line of audit-train's log: {e}", i + 1);
    let (mut rows, mut diverged) = (vec![], None);
    for (i, line) in text.lines().enumerate() {
        let line: LogLine = serde_json::from_str(line).map_err(|e| Error::usage(wrong(i, e)))?;
        rows.extend(line.epoch);
        diverged = diverged.or(line.end.filter(|end| end.how == "not-a-number").map(|end| end.step));
    }
    match rows.is_empty() {
        true => Err(Error::usage(format!("{shown} holds no epoch yet"))),
        false => Ok((rows, diverged)),
    }
}

/// A model made from pairs of R@1 and ARS, and the step at which a seed collapsed; everything else is empty.
/// For tests of computations on these.
#[cfg(test)]
pub fn made_up(name: &str, family: &str, runs: &[(f64, f64, Option<u64>)]) -> TrainedModel {
    let run = |&(r1, ars, collapsed): &(f64, f64, Option<u64>)| SeedResult {
        distance: 1.0,
        scores: AuditScores { r1, ers: Some(ars), ars: Some(ars), ..AuditScores::default() },
        image_steps: 1e6,
        seconds: 60.0,
        collapsed,
        diverged: false,
    };
    let spec = Spec {
        name: name.into(),
        family: family.into(),
        point: "main".into(),
        main: true,
        words: vec![],
        from: None,
    };
    TrainedModel { spec, runs: runs.iter().map(run).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::page::Models;

    #[test]
    fn a_loss_that_is_not_a_number_is_no_finished_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let row =
            r#"{"epoch":{"step":7,"clean":{"distance":1.5},"image_steps":2,"seconds":6,"collapsed":false}}"#;
        for (how, expected) in [("done", None), ("not-a-number", Some(9))] {
            let end = format!(r#"{{"end":{{"how":"{how}","step":9,"why":""}}}}"#);
            fs::write(&path, format!("{row}\n{end}\n")).unwrap();
            let (rows, diverged) = read_log(&path).unwrap();
            assert_eq!((rows.len(), diverged), (1, expected), "{how}");
        }
        let mut model = made_up("hm", "hm", &[(50.0, 30.0, None), (50.0, 30.0, Some(9))]);
        model.runs[1].diverged = true;
        let page = Models(&[model]).table();
        assert!(page.contains("| **1 of 2**, step 9: loss not a number |"), "{page}");
        assert!(page.contains(" So is a run whose loss was not a number;"), "{page}");
    }
}

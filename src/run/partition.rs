//! A run in parts: which queries a part takes, and the parts put together again.

use super::{examples, summary};
use crate::progress::Mode;
use crate::record::{
    Examples, HalfPrecision, Outcome, Part, Partition, Report, ScoreName, Skipped, Timing, TrialList, reason,
};
use crate::run::identity::Identity;
use crate::space::Gallery;
use crate::threat::{self, Objective, Selection};
use crate::{Error, Result};
use std::path::PathBuf;

impl Partition {
    /// What this part has of a selection, and where in the whole that stands. `trials_sha256` is the whole's.
    pub fn split(
        self,
        whole: &Selection,
        gallery: &Gallery,
        trials_sha256: String,
        asked: &[ScoreName],
    ) -> (Selection, Part) {
        let trials = whole.trials.iter().enumerate().filter(|(_, t)| self.takes(&gallery.ids[t.query]));
        let skipped = whole.skipped.iter().enumerate().filter(|(_, s)| self.takes(&s.query));
        let (places, trials) = trials.map(|(i, t)| (i, t.clone())).unzip();
        let (skipped_places, skipped) = skipped.map(|(i, s)| (i, s.clone())).unzip();
        let part = Part {
            partition: self.to_string(),
            trials: whole.trials.len(),
            skipped: whole.skipped.len(),
            places,
            skipped_places,
            trials_sha256,
            scores: asked.to_vec(),
        };
        (Selection { trials, skipped }, part)
    }
}

/// Puts the reports of all parts of a run together: the report of the whole, which states the command line `command`. Errors: a report that is of no part (exit code
/// 2); parts of different runs, missing parts (exit code 13).
pub fn merge(files: &[PathBuf], command: &str) -> Result<Report> {
    let mut parts: Vec<(String, Partition, Part, Report)> = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let report = Report::load(file)?;
        let Some(part) = report.part.clone() else {
            return Err(Error::usage(format!(
                "{name} is the report of a whole run: expected parts, as `audit MODEL --partition hash:1/3 -o \
                 part1.json` writes them"
            )));
        };
        let partition =
            part.partition.parse().map_err(|e| Error::usage(format!("{name}: its partition: {e}")))?;
        parts.push((name, partition, part, report));
    }
    parts.sort_by_key(|(_, partition, ..)| partition.index);
    let Some((first_name, first, head, base)) = parts.first() else {
        return Err(Error::usage("name the reports of all parts"));
    };
    let identity = Identity::of(base);
    let mut wrong = Vec::new();
    for (name, partition, part, report) in &parts[1..] {
        let mut differs = identity.differences(&Identity::of(report));
        if partition.of != first.of {
            differs.push(format!("number of parts: {} and {}", first.of, partition.of));
        }
        if part.scores != head.scores {
            differs.push("the suite's scores".into());
        }
        if !differs.is_empty() {
            wrong.push(format!("{first_name} and {name} differ in {}", differs.join("; in ")));
        }
    }
    if !wrong.is_empty() {
        return Err(Error::incomplete(format!("these are not parts of one run: {}", wrong.join(". "))));
    }
    for pair in parts.windows(2) {
        if pair[0].1 == pair[1].1 {
            return Err(Error::incomplete(format!(
                "{} and {} are the same part, {}: name each once",
                pair[0].0, pair[1].0, pair[0].1
            )));
        }
    }
    let missing: Vec<String> = (1..=first.of)
        .map(|index| Partition { index, of: first.of })
        .filter(|p| !parts.iter().any(|(_, has, ..)| has == p))
        .map(|p| p.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(Error::incomplete(format!(
            "{} of {} parts are missing: {}. Run the same audit with --partition {} and name its report too",
            missing.len(),
            first.of,
            missing.join(", "),
            missing[0]
        )));
    }

    // Every trial is in a part: what claims more is damaged, and no memory holds it.
    let places: usize = parts.iter().map(|(_, _, part, _)| part.places.len()).sum();
    let skipped_places: usize = parts.iter().map(|(_, _, part, _)| part.skipped_places.len()).sum();
    if (places, skipped_places) != (head.trials, head.skipped) {
        return Err(Error::incomplete(format!(
            "the parts don't make a whole: they hold {places} trials and {skipped_places} that can't be run, and the run has {} \
             and {}. Run them anew",
            head.trials, head.skipped
        )));
    }
    let mut outcomes: Vec<Option<Outcome>> = vec![None; head.trials];
    let mut skipped: Vec<Option<Skipped>> = vec![None; head.skipped];
    let mut timing = Timing { batch: base.timing.batch, threads: base.timing.threads, ..Default::default() };
    for (name, _, part, report) in &parts {
        let whole = fill(&mut outcomes, &part.places, &report.outcomes)
            && fill(&mut skipped, &part.skipped_places, &report.skipped);
        if !whole {
            return Err(damaged(name));
        }
        timing.add(&report.timing);
    }
    let outcomes: Option<Vec<Outcome>> = outcomes.into_iter().collect();
    let skipped: Option<Vec<Skipped>> = skipped.into_iter().collect();
    let Some((outcomes, skipped)) = outcomes.zip(skipped) else {
        return Err(Error::incomplete(
            "the parts don't make a whole: some trials are in none. Run them anew",
        ));
    };

    let shown: Vec<(&[Outcome], &Examples)> =
        parts.iter().filter_map(|(_, _, _, r)| Some((r.outcomes.as_slice(), r.examples.as_ref()?))).collect();
    let examples = if shown.len() == parts.len() { examples::merge(&shown) } else { None };
    if examples.is_none() && !shown.is_empty() {
        Mode::Auto.note(
            "only some of the parts hold pictures, so that the whole has none: give every part an .html",
        );
    }
    let trials = record(base, &outcomes)?;
    let half_precision =
        HalfPrecision::merged(parts.iter().filter_map(|(_, _, _, r)| r.half_precision.as_ref()), &outcomes);
    let mut whole = Report {
        part: None,
        gate: None,
        outcomes,
        skipped,
        examples,
        timing,
        trials,
        half_precision,
        command: Some(command.into()),
        ..base.clone()
    };
    if Identity::of(&whole) != identity {
        return Err(Error::incomplete(
            "the parts don't make the whole that they say they are of. Run them anew",
        ));
    }
    whole.warnings.retain(|w| !reason::PART_OF_A_RUN.made(w));
    summary::conclude(&mut whole, &head.scores);
    Ok(whole)
}

/// Puts each of `some` in its place; whether all places were there and free.
fn fill<T: Clone>(all: &mut [Option<T>], places: &[usize], some: &[T]) -> bool {
    places.len() == some.len()
        && places
            .iter()
            .zip(some)
            .all(|(&place, one)| all.get_mut(place).is_some_and(|slot| slot.replace(one.clone()).is_none()))
}

fn damaged(name: &str) -> Error {
    Error::incomplete(format!("{name}: its outcomes are not those of its trials. Run this part anew"))
}

/// The trials of the whole, as the audit itself writes them.
fn record(base: &Report, outcomes: &[Outcome]) -> Result<TrialList> {
    let found = outcomes.iter().map(|o| Objective::find(&o.attack)).collect::<Result<Vec<_>>>()?;
    let rows = found.into_iter().zip(outcomes).map(|(of, o)| (of, o.query.clone(), o.targets.clone()));
    Ok(TrialList { attacks: threat::rows_of(rows), ..base.trials.clone() })
}

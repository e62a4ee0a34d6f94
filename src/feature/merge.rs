//! `audit merge`: the parts of a run put together again.

use super::{corruption, verification};
use crate::data::embedded::Embedded;
use crate::pipeline::conclude::{Attacked, Results};
use crate::pipeline::describe::Run;
use crate::pipeline::examples;
use crate::pipeline::selection;
use crate::progress::Mode;
use crate::record::{
    Examples, HalfPrecision, Outcome, Part, Partition, Report, Skipped, State, Timing, TrialList, Warning,
    reason,
};
use crate::report::Destination;
use crate::shards::identity::Identity;
use crate::shards::share::attempts_hash;
use crate::threat::{self, Objective};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The settings of a run, which `onnx_audit.ray` writes into the folder of its parts.
const SETTINGS: &str = "run.json";

/// The report of a part.
struct Piece {
    /// Its file.
    name: String,
    partition: Partition,
    part: Part,
    report: Report,
}

/// Puts the reports of all parts of a run together: the report of the whole, which states the command line
/// `command`. Errors: a report that is of no part (exit code 2); parts of different runs, missing parts (exit
/// code 13).
pub fn merge(files: &[PathBuf], command: &str) -> Result<Report> {
    let mut pieces = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    pieces.sort_by_key(|piece| piece.partition.index);
    let Some(Piece { part: head, report: base, .. }) = pieces.first() else {
        return Err(Error::usage("name the reports of all parts"));
    };
    let parts = || pieces.iter().map(|piece| &piece.report);
    of_one_run(&pieces)?;
    let named: Vec<_> = pieces.iter().map(|piece| (piece.name.clone(), piece.partition)).collect();
    Partition::refuse_incomplete(&named)?;
    let (outcomes, skipped) = in_place(&pieces)?;
    if outcomes.is_empty() {
        return Err(selection::no_trial(&skipped));
    }
    let mut timing = Timing { batch: base.timing.batch, threads: base.timing.threads, ..Timing::default() };
    parts().for_each(|part| timing.add(&part.timing));
    let mut softened: Vec<String> = Vec::new();
    for node in parts().flat_map(|part| &part.model.softened) {
        if !softened.contains(node) {
            softened.push(node.clone());
        }
    }
    let run = Run {
        tool: base.tool.clone(),
        model: base.model.clone(),
        data: base.data.clone(),
        suite: base.suite.clone(),
        seed: base.seed,
        allow_untrusted: parts().any(|part| part.allow_untrusted),
        benign: base.benign.clone(),
        hub: parts().filter_map(|part| part.hub.clone()).max_by_key(|hub| hub.sample),
        targets: base.targets.clone(),
        universal: parts().find_map(|part| part.universal),
        verification: verification::merged(parts()),
        trials: record(base, &outcomes)?,
        skipped,
        labels: parts().flat_map(|part| part.labels.clone()).collect(),
        groups: base.groups.clone(),
        warnings: warnings(&pieces),
        part: None,
        command: Some(command.into()),
        timing,
    };
    let halves = parts().filter_map(|part| part.half_precision.as_ref());
    let results = Results {
        corrupted: corruption::merged(parts()),
        half_precision: HalfPrecision::merged(halves, &outcomes),
        examples: pictures(&pieces),
        softened,
        outcomes,
        ..Results::default()
    };
    Ok(Attacked { run, results }.conclude(&head.scores))
}

/// The findings of all parts. Parts may run on different machines, so that one of them finds what the others
/// don't; and a finding's text holds measured numbers, so that they differ in words. Of each reason, those of
/// the part with the most severe one count.
fn warnings(pieces: &[Piece]) -> Vec<Warning> {
    // These are of a part's own trials. One run has them in this order, after all others.
    let of_trials = [&reason::KEPT_ITEMS, &reason::PASS_LEFT_OUT];
    let all = || pieces.iter().flat_map(|piece| &piece.report.warnings);
    let of_run =
        |w: &&Warning| !reason::PART_OF_A_RUN.made(w) && !of_trials.iter().any(|reason| reason.made(w));
    let mut ids: Vec<&str> = Vec::new();
    for warning in all().filter(of_run) {
        if !ids.contains(&warning.id.as_str()) {
            ids.push(&warning.id);
        }
    }
    let mut found = Vec::new();
    for id in ids {
        let of = |piece: &Piece| -> Vec<Warning> {
            piece.report.warnings.iter().filter(|w| w.id == id).cloned().collect()
        };
        let rank = |of: &Vec<Warning>| of.iter().map(|w| (w.state != State::NotChecked, w.severity)).max();
        // Of equals, the first part counts.
        found.extend(pieces.iter().rev().map(of).max_by_key(rank).unwrap_or_default());
    }
    for reason in of_trials {
        for warning in all().filter(|w| reason.made(w)) {
            if !found.contains(warning) {
                found.push(warning.clone());
            }
        }
    }
    found
}

/// Whether a part, by its name, is one of `audit embed`.
pub fn holds_embeddings(part: &Path) -> bool {
    part.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet"))
}

/// Puts the embeddings of all parts together, in the file of `output`; what it says.
pub fn merge_embeddings(parts: &[PathBuf], output: &[PathBuf]) -> Result<String> {
    if let Some(other) = parts.iter().chain(output).find(|path| !holds_embeddings(path)) {
        return Err(Error::usage(format!(
            "{}: parts of `audit embed` make a file of embeddings, so that all names end in .parquet",
            other.display()
        )));
    }
    let [path] = output else {
        return Err(Error::usage("name one file for the embeddings: -o gallery.parquet"));
    };
    Destination::open("-o", path)?;
    let whole = Embedded::merge(parts)?;
    let summary = format!("{}: {} embeddings of {} parts\n", path.display(), whole.images.len(), parts.len());
    whole.write(path)?;
    Ok(summary)
}

/// The parts of a run that `folder` holds no finished report of, as job arrays take them: `3,7-9`. Where it
/// holds no reports, those of `audit embed`. Empty where none is missing. Errors (exit code 2): the folder
/// holds no part, or parts of different runs.
pub fn missing(folder: &Path) -> Result<String> {
    let wrong =
        |what: &dyn std::fmt::Display| Error::usage(format!("--missing {}: {what}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(|e| wrong(&e))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let part = |file: &PathBuf| -> Option<Partition> {
        let found = match holds_embeddings(file) {
            true => Embedded::read(file).ok().and_then(|read| read.part),
            false => Report::load(file).ok().and_then(|report| Some(report.part?.partition)),
        };
        if found.is_none() && file.file_name().is_none_or(|name| name != SETTINGS) {
            Mode::Auto
                .note(&format!("{}: not the finished report of a part; it is left out", file.display()));
        }
        found
    };
    let of_kind = |kind: &str| -> Vec<Partition> {
        files.iter().filter(|file| file.extension().is_some_and(|e| e == kind)).filter_map(part).collect()
    };
    let mut found = of_kind("json");
    if found.is_empty() {
        found = of_kind("parquet");
    }
    let Some(first) = found.first() else {
        return Err(wrong(
            &"it has no finished part, so that the number of parts is unknown; run all of them",
        ));
    };
    if let Some(other) = found.iter().find(|part| part.of != first.of) {
        let (a, b) = (first.of, other.of);
        return Err(wrong(&format!(
            "it has parts of {a} and parts of {b}; use a separate folder for each run"
        )));
    }
    let missing: Vec<u64> = first.missing(&found).iter().map(|part| part.index).collect();
    Ok(ranges(&missing))
}

/// Rising numbers as `3,7-9` and a line's end; nothing where there are none.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(u64::to_string).collect(),
    });
    let text = runs.collect::<Vec<_>>().join(",");
    if text.is_empty() { text } else { text + "\n" }
}

fn read(file: &Path) -> Result<Piece> {
    let name = file.display().to_string();
    let report = Report::load(file)?;
    let Some(part) = report.part.clone() else {
        return Err(Error::usage(format!(
            "{name} is the report of a whole run: expected parts, as `audit MODEL --partition hash:1/3 -o part1.json` \
             writes them"
        )));
    };
    let partition = part.partition;
    Ok(Piece { name, partition, part, report })
}

fn of_one_run(pieces: &[Piece]) -> Result<()> {
    let first = &pieces[0];
    let identity = Identity::of(&first.report);
    let mut wrong = Vec::new();
    for piece in &pieces[1..] {
        let mut differs = identity.differences(&Identity::of(&piece.report));
        if piece.partition.of != first.partition.of {
            differs.push(format!("number of parts: {} and {}", first.partition.of, piece.partition.of));
        }
        if piece.part.scores != first.part.scores {
            differs.push("the suite's scores".into());
        }
        if !differs.is_empty() {
            wrong.push(format!("{} and {} differ in {}", first.name, piece.name, differs.join("; in ")));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::incomplete(format!("these are not parts of one run: {}", wrong.join(". ")))),
    }
}

/// Result of a trial: its outcome, or why it could not be run.
type Slot = std::result::Result<Outcome, Skipped>;

/// Outcomes of all parts, and trials that could not be run, both in the order of the whole run.
fn in_place(pieces: &[Piece]) -> Result<(Vec<Outcome>, Vec<Skipped>)> {
    let head = &pieces[0].part;
    // Every trial is in a part: what claims more is damaged, and no memory holds it.
    let places: usize = pieces.iter().map(|p| p.part.places.len() + p.part.skipped_places.len()).sum();
    if places != head.trials {
        return Err(Error::incomplete(format!(
            "the parts don't make a whole run: they have {places} trials, and the run has {}. Run them again",
            head.trials
        )));
    }
    let mut slots: Vec<Option<Slot>> = vec![None; head.trials];
    for Piece { name, part, report, .. } in pieces {
        let whole = fill(&mut slots, &part.places, report.outcomes.iter().cloned().map(Ok))
            && fill(&mut slots, &part.skipped_places, report.skipped.iter().cloned().map(Err));
        if !whole {
            return Err(Error::incomplete(format!(
                "{name}: its outcomes are not those of its trials. Run this part again"
            )));
        }
    }
    let slots: Vec<Slot> = slots.into_iter().flatten().collect();
    let attempts = slots.iter().map(|slot| match slot {
        Ok(outcome) => (outcome.attack.as_str(), outcome.query.as_str()),
        Err(skipped) => (skipped.attack.as_str(), skipped.query.as_str()),
    });
    if attempts_hash(attempts) != head.trials_sha256 {
        return Err(Error::incomplete("the parts don't make the whole run that they state. Run them again"));
    }
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    for slot in slots {
        match slot {
            Ok(outcome) => outcomes.push(outcome),
            Err(why) => skipped.push(why),
        }
    }
    Ok((outcomes, skipped))
}

/// The pictures of all parts; none where one has none.
fn pictures(pieces: &[Piece]) -> Option<Examples> {
    let shown: Vec<(&[Outcome], &Examples)> = pieces
        .iter()
        .filter_map(|piece| Some((piece.report.outcomes.as_slice(), piece.report.examples.as_ref()?)))
        .collect();
    let examples =
        if shown.len() == pieces.len() { examples::merge(&shown, &pieces[0].report.basis()) } else { None };
    if examples.is_none() && !shown.is_empty() {
        Mode::Auto.note(
            "only some of the parts hold pictures, so that the whole has none: give every part --pictures",
        );
    }
    examples
}

/// Puts each of `some` in its place; whether all places were there and free.
fn fill<T>(all: &mut [Option<T>], places: &[usize], some: impl ExactSizeIterator<Item = T>) -> bool {
    places.len() == some.len() && { places.iter().zip(some) }
        .all(|(&place, one)| all.get_mut(place).is_some_and(|slot| slot.replace(one).is_none()))
}

/// The trials of the whole, as the audit itself writes them.
fn record(base: &Report, outcomes: &[Outcome]) -> Result<TrialList> {
    let found = outcomes.iter().map(|o| Objective::find(&o.attack)).collect::<Result<Vec<_>>>()?;
    let rows = found.into_iter().zip(outcomes).map(|(of, o)| (of, o.query.clone(), o.targets.clone()));
    Ok(TrialList { attacks: threat::rows_of(rows), ..base.trials.clone() })
}

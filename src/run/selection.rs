//! Which trials an audit runs: drawn, or those of a file or of the baseline.

use crate::cli::{AuditFlags, Sample, StrongSample};
use crate::record::{Protocol, Report, Skipped};
use crate::space::{Gallery, benign};
use crate::suite::Suite;
use crate::threat::objective::r1::R1;
use crate::threat::{self, Objective, Plan, Selection, TrialFile};
use crate::{Error, Result, files};
use std::collections::BTreeSet;
use std::path::Path;

/// The trials: drawn, or replayed.
pub fn select(
    flags: &AuditFlags,
    suite: &Suite,
    protocol: Protocol,
    plan: &Plan,
    gallery: &Gallery,
) -> Result<Selection> {
    // A baseline's trials are replayed, so that differences are paired.
    let Some(path) = flags.trials.as_ref().or(flags.demands.baseline.as_ref()) else {
        let queries = match (flags.sample, suite.max_queries) {
            (Sample::Correct, Some(most)) => prefer_right(gallery, most, flags.seed),
            (_, most) => threat::sample_queries(gallery, most, flags.seed),
        };
        let candidates = candidates(flags, gallery, &queries);
        let mut all = Selection::default();
        for entry in &suite.attacks {
            let of_attack = of_pairs(flags, suite, gallery, entry.objective)?;
            let perturbed = match &of_attack {
                Some(probes) => probes,
                None if entry.objective.measure.moves_candidate() => &candidates,
                None => &queries,
            };
            let one =
                threat::select(gallery, entry.objective, entry.count, plan.form, flags.seed, perturbed)?;
            all.trials.extend(one.trials);
            all.skipped.extend(one.skipped);
        }
        return some_trials(all);
    };
    let name = path.display().to_string();
    let json =
        files::read_text(path, files::LARGE).map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
    let (trials, skipped) = trials_of(path, &json)?;
    let TrialFile { protocol: file_protocol, form, metric, mut selection } =
        threat::read_trials(&name, &trials, gallery)?;
    selection.again(skipped, form, gallery).map_err(|e| e.context(&name))?;
    for (what, theirs, ours) in [
        ("protocol", file_protocol.name().to_string(), protocol.name().to_string()),
        ("form", form.to_string(), plan.form.to_string()),
        ("metric", metric.name().to_string(), gallery.metric.name().to_string()),
    ] {
        if theirs != ours {
            return Err(Error::usage(format!(
                "{name}: these trials are of {what} {theirs}, and this audit is of {ours}. Add --{what} {theirs}"
            )));
        }
    }
    for entry in &suite.attacks {
        let code = entry.objective.code;
        if !selection.trials.iter().any(|t| t.objective.code == code)
            && !selection.skipped.iter().any(|s| s.attack == code)
        {
            return Err(Error::usage(format!(
                "{name} has no trials of {code}, which suite {} runs",
                suite.name
            )));
        }
    }
    // Trials of robust R@1 are replayed too: no suite need list them.
    let asked = flags.strong_sample.is_none();
    let listed =
        |code: &str| asked && code == R1.code || suite.attacks.iter().any(|e| e.objective.code == code);
    selection.trials.retain(|t| listed(t.objective.code));
    selection.skipped.retain(|s| listed(&s.attack));
    some_trials(selection)
}

/// The probes that an attack on listed pairs perturbs: those of genuine pairs, or of impostor pairs. `None` for other attacks, and where
/// no list gives the pairs.
fn of_pairs(
    flags: &AuditFlags,
    suite: &Suite,
    gallery: &Gallery,
    objective: &Objective,
) -> Result<Option<Vec<usize>>> {
    let Some(same) = objective.measure.pairs().filter(|_| gallery.has_list()) else { return Ok(None) };
    if flags.sample == Sample::Correct {
        return Err(Error::usage(format!(
            "--sample correct is about queries that R@1 finds right, and {} attacks pairs: leave it out",
            objective.code
        )));
    }
    let probes = gallery.pairs().probes(same);
    Ok(Some(threat::sample_of(gallery, &probes, suite.max_queries, flags.seed)))
}

/// The items that CA± perturbs. Candidates are items of the gallery: the queries where these are such items, otherwise as
/// many items of the gallery. Of a gallery of embeddings there are no images, so that the queries' have to stand for them.
fn candidates(flags: &AuditFlags, gallery: &Gallery, queries: &[usize]) -> Vec<usize> {
    let inside = queries.iter().all(|&q| q < gallery.len());
    match inside || flags.gallery.is_some() {
        true => queries.to_vec(),
        false => threat::sample_candidates(gallery, queries.len(), flags.seed),
    }
}

/// At most `most` queries in the order of samples, those first that are right without attack. Ascending.
fn prefer_right(gallery: &Gallery, most: usize, seed: u64) -> Vec<usize> {
    const BATCH: usize = 256;
    let (mut right, mut others) = (Vec::new(), Vec::new());
    for some in threat::order(gallery, seed).chunks(BATCH) {
        if right.len() >= most {
            break;
        }
        for (&query, hit) in some.iter().zip(benign::right(gallery, some)) {
            if hit { &mut right } else { &mut others }.push(query);
        }
    }
    right.extend(others);
    right.truncate(most);
    right.sort_unstable();
    right
}

/// Adds the trials of robust R@1 to a selection, unless it has some: the strong search on a sample of the queries that
/// the suite attacks.
pub fn add_strong_sample(
    whole: &mut Selection,
    flags: &AuditFlags,
    plan: &Plan,
    gallery: &Gallery,
) -> Result<()> {
    // Robust R@1 is a white-box number, and has no place beside those of a transfer. A list of pairs knows too little of who is who for
    // it, unless somebody asks.
    let of_pairs = whole.trials.iter().all(|t| t.objective.measure.pairs().is_some());
    let pairs = flags.strong_sample.is_none() && gallery.has_list() && of_pairs;
    if flags.surrogate.is_some() || pairs {
        return Ok(());
    }
    let has = whole.trials.iter().any(|t| t.objective.code == R1.code);
    let work = plan.work_of(whole.trials.iter().map(|t| t.objective));
    let Some(most) = strong_most(flags.strong_sample, work, plan).filter(|_| !has) else { return Ok(()) };
    let attacked: BTreeSet<usize> = whole.trials.iter().map(|t| t.query).collect();
    let mut sample = threat::order(gallery, flags.seed);
    sample.retain(|query| attacked.contains(query) && gallery.positives(*query).next().is_some());
    sample.truncate(most);
    sample.sort_unstable();
    let found = threat::select(gallery, &R1, 1, plan.form, flags.seed, &sample)?;
    whole.trials.extend(found.trials);
    Ok(())
}

/// How many queries the strong search attacks at most beside a suite of so much `work`, in image steps; `None` for none.
pub fn strong_most(asked: Option<StrongSample>, work: usize, plan: &Plan) -> Option<usize> {
    match asked {
        Some(StrongSample::Off) => None,
        Some(StrongSample::Most(n)) => Some(n),
        None => Some((work / plan.work(&R1)).max(LEAST_SAMPLE)),
    }
}

/// Fewest queries that the strong search attacks besides a suite, where there are so many.
const LEAST_SAMPLE: usize = 32;

fn some_trials(selection: Selection) -> Result<Selection> {
    if selection.trials.is_empty() {
        let why = selection.skipped.first().map_or("nothing was selected", |s| s.why.as_str());
        return Err(Error::empty(format!("no trial can be run: {why}")));
    }
    Ok(selection)
}

/// A report holds its trials under a key of its own, or in a file that it names, and queries that an attack could not be run on
/// under another.
fn trials_of(path: &Path, json: &str) -> Result<(String, Vec<Skipped>)> {
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(v) if v.get("trials_file").is_some() => {
            let report = Report::load(path)?;
            Ok((report.trials.to_string(), report.skipped))
        }
        Ok(mut v) if v.get("schema_version").is_some() => {
            let skipped = serde_json::from_value(v["skipped"].take());
            Ok((v["trials"].to_string(), skipped.unwrap_or_default()))
        }
        _ => Ok((json.to_string(), Vec::new())),
    }
}

/// How the queries were chosen, where they are not all.
pub fn sampling(flags: &AuditFlags, suite: &Suite, gallery: &Gallery) -> Option<String> {
    let all = gallery.queries().len();
    if let Some(most) = suite.max_queries.filter(|_| suite.of_pairs() && gallery.has_list()) {
        let more = [true, false].into_iter().any(|same| gallery.pairs().probes(same).len() > most);
        return more.then(|| format!("{most} probes for each attack at most, seed {}", flags.seed));
    }
    let replayed = flags.trials.is_some() || flags.demands.baseline.is_some();
    let most = suite.max_queries.filter(|&most| most < all && !replayed)?;
    let first = match flags.sample {
        Sample::Any => "",
        Sample::Correct => ", those first that are right without attack",
    };
    Some(format!("{most} of {all} queries{first}, stratified by class, seed {}", flags.seed))
}

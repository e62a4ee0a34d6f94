//! The trials of an audit: drawn, or those of a file or of the baseline. The attacked queries, and the part
//! of a run that attacks each, follow from names and classes alone: a part draws only its own trials, and
//! knows their places without drawing the others.

use super::cost::strong_most;
use super::open::Setup;
use crate::data::Dataset;
use crate::feature::verification;
use crate::record::{CORRECT_FIRST, Report, Skipped};
use crate::request::{Request, Sample};
use crate::space::{Gallery, benign};
use crate::suite::Suite;
use crate::threat::objective::r1::R1;
use crate::threat::{self, AttackContext, Objective, Plan, Selection, TrialFile};
use crate::{Error, Result, files};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An attack on a query, which is given by its gallery index.
pub type Attempt = (&'static Objective, usize);

/// The trials of an audit.
#[derive(Clone)]
pub struct TrialSet {
    /// The trials of this process. A part of a run draws only its own.
    pub selection: Selection,
    /// The attacks and queries of the whole run, in the order of its report, whether they can be run or not.
    pub attempts: Vec<Attempt>,
    /// How the queries of replayed trials were chosen, in words, if their report says it.
    pub replayed: Option<String>,
}

/// The file that trials are replayed from. The baseline's trials are replayed so that differences are paired.
pub fn replayed(request: &Request) -> Option<&PathBuf> {
    request.queries.trials.as_ref().or(request.gate.baseline.as_ref())
}

/// The queries that are attacked if trials are drawn, ascending.
pub fn queries(request: &Request, suite: &Suite, gallery: &Gallery) -> Result<Vec<usize>> {
    match (request.queries.sample, suite.max_queries) {
        (Sample::Correct, Some(most)) => prefer_correct(gallery, most, request.seed),
        (_, most) => Ok(threat::sample_queries(gallery, most, request.seed)),
    }
}

/// The trials of an audit: drawn for `queries`, or replayed, and those of robust R@1.
pub fn choose(
    request: &Request,
    setup: &Setup,
    context: &AttackContext,
    queries: &[usize],
) -> Result<TrialSet> {
    let chosen = select(request, setup, context, queries)?;
    with_strong_sample(chosen, request, &setup.plan, context)
}

/// The trials of the suite's own attacks: drawn for `queries`, or replayed.
pub fn select(
    request: &Request,
    setup: &Setup,
    context: &AttackContext,
    queries: &[usize],
) -> Result<TrialSet> {
    let chosen = match replayed(request) {
        Some(path) => replay(request, setup, context, path)?,
        None => draw(request, setup, context, queries)?,
    };
    // Of a part, the merged report reports it.
    match chosen.selection.trials.is_empty() && request.run.partition.is_none() {
        true => Err(no_trial(&chosen.selection.skipped)),
        false => Ok(chosen),
    }
}

/// Draws the trials of the suite's own attacks on `queries`.
fn draw(request: &Request, setup: &Setup, context: &AttackContext, queries: &[usize]) -> Result<TrialSet> {
    let Setup { suite, plan, .. } = setup;
    let gallery = &context.gallery;
    let candidates = candidates(request, gallery, queries);
    let (mut selection, mut attempts) = (Selection::default(), Vec::new());
    for entry in &suite.attacks {
        let (sample, most) = (request.queries.sample, suite.max_queries);
        let probes = verification::probes(context, entry.objective, sample, most, request.seed)?;
        let perturbed = match &probes {
            Some(probes) => probes,
            None if entry.objective.measure.moves_candidate => &candidates,
            None => queries,
        };
        attempts.extend(perturbed.iter().map(|&query| (entry.objective, query)));
        let own: Vec<usize> =
            perturbed.iter().copied().filter(|&query| takes(request, gallery, query)).collect();
        let one = threat::select(context, entry.objective, entry.count, plan.form, request.seed, &own)?;
        selection.trials.extend(one.trials);
        selection.skipped.extend(one.skipped);
    }
    Ok(TrialSet { selection, attempts, replayed: None })
}

/// Reads the trials of the suite's attacks, and those of robust R@1, whether or not the suite lists them.
fn replay(request: &Request, setup: &Setup, context: &AttackContext, path: &Path) -> Result<TrialSet> {
    let (suite, gallery) = (&setup.suite, &context.gallery);
    let name = path.display().to_string();
    let json =
        files::read_text(path, files::LARGE).map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
    let (trials, skipped, replayed) = trials_of(path, &json)?;
    let TrialFile { protocol, form, metric, mut selection } = threat::read_trials(&name, &trials, context)?;
    selection.again(skipped, form, context).map_err(|e| e.context(&name))?;
    for (what, theirs, ours) in [
        ("protocol", protocol.to_string(), setup.protocol.to_string()),
        ("form", form.to_string(), setup.plan.form.to_string()),
        ("metric", metric.name().to_string(), gallery.metric.name().to_string()),
    ] {
        if theirs != ours {
            return Err(Error::usage(format!(
                "{name}: these trials are of {what} {theirs}, and this audit is of {ours}. Add --{what} {theirs}"
            )));
        }
    }
    let lacks = |code: &str| {
        let tried = selection.trials.iter().any(|t| t.objective.code == code);
        !tried && !selection.skipped.iter().any(|s| s.attack == code)
    };
    if let Some(code) = suite.objectives().map(|objective| objective.code).find(|code| lacks(code)) {
        return Err(Error::usage(format!(
            "{name} has no trials of {code}, which suite {} runs. Give the trials of an audit with this suite, or take the suite of \
             the trials",
            suite.name
        )));
    }
    let any_strong = request.queries.strong.is_none();
    let listed =
        |of: &Objective| any_strong && of.strong_only || suite.objectives().any(|own| own.code == of.code);
    selection.trials.retain(|t| listed(t.objective));
    selection.skipped.retain(|s| Objective::find(&s.attack).is_ok_and(listed));
    let tried = selection.trials.iter().map(|t| Ok((t.objective, t.query)));
    let skipped = selection.skipped.iter().map(|s| {
        let query =
            gallery.find(&s.query).ok_or_else(|| Error::internal(format!("no image `{}`", s.query)))?;
        Ok((Objective::find(&s.attack)?, query))
    });
    let attempts = tried.chain(skipped).collect::<Result<_>>()?;
    Ok(TrialSet { selection, attempts, replayed })
}

/// Whether this process attacks a query: it has no part, or the query is in its part.
fn takes(request: &Request, gallery: &Gallery, query: usize) -> bool {
    request.run.partition.is_none_or(|part| part.takes(&gallery.ids[query]))
}

/// The items that CA± perturbs. Candidates are items of the gallery: the queries where these are such items,
/// otherwise as many items of the gallery. Of a gallery of embeddings there are no images, so that the
/// queries' have to stand for them.
fn candidates(request: &Request, gallery: &Gallery, queries: &[usize]) -> Vec<usize> {
    let inside = queries.iter().all(|&q| q < gallery.len());
    match inside || request.images.gallery.is_some() {
        true => queries.to_vec(),
        false => threat::sample_candidates(gallery, queries.len(), request.seed),
    }
}

/// Up to `most` queries, in ascending order. Queries that are correct without an attack come first, then
/// others, in the order of samples.
fn prefer_correct(gallery: &Gallery, most: usize, seed: u64) -> Result<Vec<usize>> {
    const BATCH: usize = 256;
    let (mut right, mut others) = (Vec::new(), Vec::new());
    for some in threat::order(gallery, seed).chunks(BATCH) {
        if right.len() >= most {
            break;
        }
        for (&query, hit) in some.iter().zip(benign::right(gallery, some)?) {
            if hit { &mut right } else { &mut others }.push(query);
        }
    }
    right.extend(others);
    right.truncate(most);
    right.sort_unstable();
    Ok(right)
}

/// The trials of a run with those of robust R@1, unless it has some: the strong search on a sample of the
/// queries that the suite attacks. The sample does not depend on outcomes, so that every part draws the same
/// one.
pub fn with_strong_sample(
    chosen: TrialSet,
    request: &Request,
    plan: &Plan,
    context: &AttackContext,
) -> Result<TrialSet> {
    let gallery = &context.gallery;
    let objectives = || chosen.attempts.iter().map(|&(objective, _)| objective);
    let strong = verification::strong_sample(request.queries.strong, context.pairs.listed, objectives());
    let most = strong_most(strong, plan.work_of(objectives()), plan);
    // Robust R@1 is a white-box number and doesn't belong beside transfer attacks.
    let fits = request.attack.surrogate.is_none() && !objectives().any(|objective| objective.strong_only);
    let Some(most) = most.filter(|_| fits) else { return Ok(chosen) };
    let attacked: BTreeSet<usize> = chosen.attempts.iter().map(|&(_, query)| query).collect();
    let mut sample = threat::order(gallery, request.seed);
    sample.retain(|query| attacked.contains(query) && gallery.positives(*query).next().is_some());
    sample.truncate(most);
    sample.sort_unstable();
    // It has no targets, so all of its trials are drawn at once.
    let found = threat::select(context, &R1, 1, plan.form, request.seed, &sample)?.trials;
    let TrialSet { selection: Selection { mut trials, skipped }, mut attempts, replayed } = chosen;
    attempts.extend(found.iter().map(|trial| (trial.objective, trial.query)));
    trials.extend(found.into_iter().filter(|t| takes(request, gallery, t.query)));
    Ok(TrialSet { selection: Selection { trials, skipped }, attempts, replayed })
}

/// The error (exit code 4) if no trial of a run can be run.
pub fn no_trial(skipped: &[Skipped]) -> Error {
    let why = skipped.first().map_or("nothing was selected", |s| s.why.as_str());
    Error::empty(format!("no trial can be run: {why}"))
}

/// A report has its trials under their own key, or in a file that it names, the queries that an attack could
/// not be run on under another key, and how its queries were chosen, in words, in its suite.
fn trials_of(path: &Path, json: &str) -> Result<(String, Vec<Skipped>, Option<String>)> {
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(v) if v.get("trials_file").is_some() => {
            let report = Report::load(path)?;
            Ok((report.trials.to_string(), report.skipped, report.suite.sampling))
        }
        Ok(mut v) if v.get("schema_version").is_some() => {
            let skipped = serde_json::from_value(v["skipped"].take());
            let sampling = v["suite"]["sampling"].as_str().map(String::from);
            Ok((v["trials"].to_string(), skipped.unwrap_or_default(), sampling))
        }
        _ => Ok((json.to_string(), Vec::new(), None)),
    }
}

/// Says that `--max-queries` has no effect, if replayed trials have another number of queries.
pub fn note_replayed(request: &Request, chosen: &TrialSet) {
    let (Some(path), Some(most)) = (replayed(request), request.queries.most) else { return };
    let queries: BTreeSet<usize> = chosen.selection.trials.iter().map(|trial| trial.query).collect();
    if queries.len() != most {
        let flag = if request.queries.trials.is_some() { "--trials" } else { "--baseline" };
        request.progress.note(&format!(
            "{flag} repeats the {} queries of {}; --max-queries {most} has no effect",
            queries.len(),
            path.display()
        ));
    }
}

/// The choice of queries, in words, if not all are attacked.
pub fn sampling(
    request: &Request,
    suite: &Suite,
    context: &AttackContext,
    dataset: &Dataset,
    chosen: &TrialSet,
) -> Option<String> {
    if replayed(request).is_some() || chosen.replayed.is_some() {
        return chosen.replayed.clone();
    }
    let all = context.gallery.queries().len();
    let of_pairs = context.pairs.listed && verification::of_pairs(suite.objectives());
    if let Some(most) = suite.max_queries.filter(|_| of_pairs) {
        return verification::sampling(context, most, request.seed);
    }
    let most = suite.max_queries.filter(|&most| most < all)?;
    let first = match request.queries.sample {
        Sample::Any => String::new(),
        Sample::Correct => format!(", {CORRECT_FIRST}"),
    };
    let stratified = if dataset.classless { "" } else { ", stratified by class" };
    Some(format!("{most} of {all} queries{first}{stratified}, seed {}", request.seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;
    use ndarray::Array2;

    /// Every part knows the attacks and queries of the whole run, and draws only its own trials. Together
    /// these are one run's.
    #[test]
    fn parts_draw_their_own_trials() {
        // Items 0 to 59 in 12 classes of 5, and one that is alone in its class, so that some attacks can't be
        // run on it.
        let points = Array2::from_shape_fn((61, 3), |(i, k)| ((7 * i + 3 * k) % 61) as f32 + 1.0);
        let labels = (0..61).map(|i| i / 5).collect();
        let ids = (0..61).map(|i| format!("{i}.png")).collect();
        let gallery = Gallery::new(Metric::NormalizedEuclidean, points, labels, ids).unwrap();
        let suite = Suite::load("full").unwrap();
        let (protocol, plan) = suite.plan(28, 0).unwrap();
        let setup = Setup { suite, protocol, plan, alpha_scaled_from: None };
        let attacks: Vec<_> = setup.suite.objectives().collect();
        let context = AttackContext::new(gallery, &attacks, Default::default()).unwrap();
        let chosen = |part: Option<&str>| {
            let mut request = Request::default();
            request.run.partition = part.map(|part| part.parse().unwrap());
            let queries = queries(&request, &setup.suite, &context.gallery).unwrap();
            let TrialSet { selection, attempts, .. } = choose(&request, &setup, &context, &queries).unwrap();
            let trials = selection.trials.iter().map(|t| (t.objective.code, t.query, t.targets.clone()));
            let skipped = selection.skipped.iter().map(|s| (s.attack.clone(), s.query.clone()));
            let attempts: Vec<_> =
                attempts.iter().map(|&(objective, query)| (objective.code, query)).collect();
            let (mut trials, mut skipped): (Vec<_>, Vec<_>) = (trials.collect(), skipped.collect());
            trials.sort();
            skipped.sort();
            (trials, skipped, attempts)
        };
        let (trials, skipped, attempts) = chosen(None);
        assert!(trials.iter().any(|t| t.0 == R1.code) && !skipped.is_empty());
        assert_eq!(trials.len() + skipped.len(), attempts.len());
        let parts: Vec<_> = (1..=3).map(|m| chosen(Some(&format!("hash:{m}/3")))).collect();
        assert!(parts.iter().all(|part| part.2 == attempts && part.0.len() < trials.len() / 2));
        let mut all: Vec<_> = parts.iter().flat_map(|part| part.0.clone()).collect();
        let mut none: Vec<_> = parts.iter().flat_map(|part| part.1.clone()).collect();
        all.sort();
        none.sort();
        assert_eq!((all, none), (trials, skipped));
    }
}

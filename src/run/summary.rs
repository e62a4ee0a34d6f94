//! The report as a value: what is known before the attacks, and what follows from their outcomes.

use super::prepare::{Clean, Subject};
use super::selection::Asked;
use super::warnings;
use crate::data::Dataset;
use crate::files::hex;
use crate::judge::check::{self, float16};
use crate::judge::score::{self, ComputedScores, Estimate, Summary};
use crate::judge::{breakdown, corruption, retrieval, smallest, strong, verification};
use crate::model::runtime;
use crate::progress::Phase;
use crate::record::{self, Form, Outcome, Precision, Report, ScoreName, Surrogate, Verification, Warning};
use crate::request::Request;
use crate::space::Gallery;
use crate::space::benign::{BenignRetrieval, CMC};
use crate::space::verification::{Distances, folds};
use crate::suite::Suite;
use crate::threat::measure::captured;
use crate::threat::{self, Mask, Objective, Selection, Trial};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::PoisonError;

/// The report before the attacks: everything that they don't change.
pub fn begin(request: &Request, subject: &Subject, clean: &Clean) -> Report {
    let Clean { gallery, data, benign: retrieval, benign_sampling, selection, asked, sampling } = clean;
    let info = &subject.model.info;
    let plan = &subject.plan;
    let mut warnings: Vec<Warning> = check::warnings(subject.findings.clone()).collect();
    warnings.extend(warnings::before_attacks(&subject.dataset, info, data, retrieval));
    warnings.extend(warnings::of_machine(request, &info.cpu_nodes));
    warnings.extend(warnings::of_trials(gallery, &selection.trials, asked));
    Report {
        schema_version: record::SCHEMA_VERSION,
        tool: tool(request, subject),
        model: model(subject),
        data: data.clone(),
        suite: suite(subject, request.attack.precision, sampling.clone()),
        seed: request.seed,
        allow_untrusted: request.allow_untrusted,
        benign: benign(retrieval, &subject.dataset, benign_sampling.clone()),
        trials: threat::list(subject.protocol, plan.form, gallery, &selection.trials),
        skipped: selection.skipped.clone(),
        labels: labels(selection, gallery, &subject.dataset),
        groups: groups(asked, gallery, &subject.dataset),
        half_precision: subject.in_half.clone(),
        warnings,
        command: request.command.clone(),
        timing: subject.timing.clone(),
        // To come:
        part: None,
        trials_file: None,
        outcomes: Vec::new(),
        corrupted: Vec::new(),
        corruptions: None,
        attacks: Vec::new(),
        retrieval: Vec::new(),
        breakdowns: Vec::new(),
        smallest: None,
        hub: hub(&selection.trials, gallery),
        targets: request.images.targets.as_deref().and_then(|path| foreign(path, gallery)),
        universal: universal(&selection.trials, gallery),
        verification: verification(request, subject, gallery, &selection.trials),
        scores: record::Scores::default(),
        gate: None,
        examples: None,
    }
}

/// Classes of all items that a selection names.
fn labels(selection: &Selection, gallery: &Gallery, dataset: &Dataset) -> BTreeMap<String, String> {
    let tried = selection.trials.iter().flat_map(|t| t.targets.iter().copied().chain([t.query]));
    let skipped = selection.skipped.iter().filter_map(|s| gallery.find(&s.query));
    let class = |i: usize| dataset.classes[gallery.labels[i]].clone();
    let images = tried.chain(skipped).filter(|i| !gallery.targets().contains(i));
    images.map(|i| (gallery.ids[i].clone(), class(i))).collect()
}

/// Groups of all queries that a run asks for.
fn groups(asked: &[Asked], gallery: &Gallery, dataset: &Dataset) -> BTreeMap<String, String> {
    let group = |&(_, i): &Asked| Some((gallery.ids[i].clone(), dataset.items[i].group()?.into()));
    asked.iter().filter_map(group).collect()
}

/// Fills in what follows from a report's outcomes: rows, scores and warnings. `asked` are the scores of the suite.
pub fn conclude(report: &mut Report, asked: &[ScoreName]) {
    report.suite.queries = queries(&report.outcomes);
    let scores = score::score(&report.outcomes, &report.skipped, &report.basis(), report.seed);
    report.attacks = scores.summaries.iter().map(|summary| row(summary, report.suite.form)).collect();
    report.retrieval = retrieval::rows(&report.outcomes, &report.labels);
    report.smallest = smallest::smallest(report);
    report.corruptions = corruption::corruptions(report);
    verification::conclude(report);
    report.scores = wanted(asked, scores);
    report.scores.robust_r1 = strong::robust_r1(&report.outcomes)
        .map(|robust| record::RobustR1 { eps: Some(report.suite.eps), ..robust });
    // The bootstrap has no width where all queries agree; one share has one interval in a report.
    if let Some(robust) = &report.scores.robust_r1 {
        let strong =
            |row: &&mut record::Attack| Objective::of_term(&row.code).is_some_and(|of| of.strong_only);
        report.attacks.iter_mut().filter(strong).for_each(|row| row.after_interval = robust.interval);
    }
    report.breakdowns = breakdown::breakdowns(report);
    if report.part.is_none() {
        let comparison = float16::compare(report);
        if let Some(half) = &mut report.half_precision {
            half.comparison = comparison;
        }
    }
    report.warnings.extend(warnings::after_attacks(report));
}

/// The number of queries that were attacked. Items of the gallery that CA± perturbs are no queries, unless there is no
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

/// What makes the report.
pub fn tool(request: &Request, subject: &Subject) -> record::Tool {
    record::Tool {
        name: "audit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        runtime: format!("ONNX Runtime {}", runtime::version()),
        provider: subject.machine.options.provider.to_string(),
        provider_why: subject.machine.why.clone(),
        fast_math: request.compute.fast_math,
        cpu_nodes: subject.model.info.cpu_nodes.clone(),
    }
}

/// The name of the strong search where reports name a search.
const STRONG: &str = "strong";

/// What is run, as reports describe it. The number of queries follows from the outcomes.
pub fn suite(subject: &Subject, precision: Precision, sampling: Option<String>) -> record::SuiteRecord {
    let plan = &subject.plan;
    record::SuiteRecord {
        name: subject.settings.suite.name.clone(),
        form: plan.form,
        protocol: subject.protocol,
        norm: plan.ball.name.into(),
        mask: plan.mask.as_ref().map(Mask::described),
        eps: plan.eps,
        alpha: plan.alpha,
        alpha_scaled_from: subject.alpha_scaled_from,
        steps: if plan.effort.is_some() { 0 } else { plan.steps },
        schedule: if plan.effort.is_some() { STRONG } else { plan.search.name }.into(),
        effort: plan.effort,
        surrogate: subject.surrogate.as_ref().map(|surrogate| {
            let (other, _) = &*surrogate.lock().unwrap_or_else(PoisonError::into_inner);
            Surrogate {
                path: other.info.path.display().to_string(),
                sha256: other.info.identity.sha256.clone(),
            }
        }),
        forward_passes: (plan.effort.is_none() && !plan.search.needs_gradient)
            .then_some((plan.steps + 1) * (plan.restarts + 1)),
        hub_class: subject.settings.suite.hub_class.clone(),
        threshold: subject.settings.suite.threshold,
        xi_k: attacks_keep(&subject.settings.suite).then_some(subject.settings.suite.xi_k),
        restarts: plan.restarts,
        corruptions: subject.settings.suite.corruptions.iter().map(|c| c.name.into()).collect(),
        attack_precision: precision,
        queries: 0,
        sampling,
    }
}

/// What hubs are measured on, where `trials` craft some.
fn hub(trials: &[Trial], gallery: &Gallery) -> Option<record::Hub> {
    let crafted = trials.iter().filter(|t| t.objective.measure.captures);
    let sample = crafted.map(|t| t.targets.len()).max()?;
    let heads = captured::heads(gallery);
    let best_clean = [1, captured::FIRST].map(|k| 100.0 * heads.best(gallery, k));
    Some(record::Hub { queries: heads.queries.len(), sample, best_clean })
}

/// The foreign targets of a gallery, read from `path`.
fn foreign(path: &Path, gallery: &Gallery) -> Option<record::ForeignTargetsRecord> {
    let targets = gallery.foreign()?;
    let mut contents = Sha256::new();
    for (at, id) in targets.ids.iter().enumerate() {
        contents.update(format!("{id}\t"));
        targets.point(at).iter().for_each(|v| contents.update(v.to_le_bytes()));
    }
    let sha256 = hex(&contents.finalize());
    Some(record::ForeignTargetsRecord { path: path.display().to_string(), sha256, count: targets.len() })
}

/// How the perturbations that `trials` share are crafted, where some do.
fn universal(trials: &[Trial], gallery: &Gallery) -> Option<record::Universal> {
    let shared = trials.iter().find_map(|t| t.objective.shared)?;
    let samples = (shared.samples)(gallery);
    let sample = samples.iter().map(Vec::len).max().unwrap_or(0);
    Some(record::Universal { perturbations: samples.len(), sample })
}

/// How often a threshold is wrong without attack, where an attack is about one, and the groups of the pairs that are attacked.
fn verification(
    request: &Request,
    subject: &Subject,
    gallery: &Gallery,
    trials: &[Trial],
) -> Option<Verification> {
    let acceptance = subject.settings.suite.threshold?;
    let phase = Phase::new("pairs", 0, request.progress);
    let distances = Distances::of(gallery);
    let listed = gallery.pairs().listed;
    let seed = subject.plan.seed;
    let mut found = verification::clean(&distances, listed, acceptance, gallery.threshold(), seed)?;
    found.folds = verification::of_folds(folds(gallery));
    phase.finish();
    for trial in trials.iter().filter(|_| listed) {
        let Some(same) = trial.objective.pairs else { continue };
        let mut pairs = gallery.pairs().of(trial.query, same);
        let pair = pairs.find(|p| trial.targets == [p.reference]);
        let Some(group) = pair.and_then(|p| p.group.clone()) else { continue };
        found
            .group_of
            .entry(trial.objective.code.into())
            .or_default()
            .insert(gallery.ids[trial.query].clone(), group);
    }
    Some(found)
}

/// Whether an attack of the suite keeps other items at the top.
fn attacks_keep(suite: &Suite) -> bool {
    suite.attacks.iter().any(|entry| entry.objective.measure.keeps)
}

/// The model as reports describe it.
pub fn model(subject: &Subject) -> record::ModelRecord {
    let (info, card) = (&subject.model.info, &subject.settings.card);
    record::ModelRecord {
        path: info.path.display().to_string(),
        sha256: info.identity.sha256.clone(),
        net_sha256: Some(info.identity.net_sha256.clone()),
        bytes: Some(info.identity.bytes),
        inputs: info.inputs.clone(),
        output: info.output.clone(),
        output_why: Some(info.output_why.clone()),
        dim: info.dim,
        metric: subject.metric,
        preprocessing: info.preprocessing.clone(),
        licence: card.licence.clone(),
        source: card.source.clone(),
        gradient_check: subject.gradient_check,
        softened: Vec::new(),
    }
}

/// Retrieval without attack, in per cent.
pub fn benign(b: &BenignRetrieval, dataset: &Dataset, sampling: Option<String>) -> record::Benign {
    let curve = CMC.iter().zip(&b.cmc).map(|(&k, share)| record::CmcPoint { k, value: 100.0 * share });
    let classes = b.classes.iter().map(|row| record::ClassRow {
        class: dataset.classes[row.label].clone(),
        queries: row.queries,
        r1: 100.0 * row.r_at_1,
        map_at_r: 100.0 * row.map_at_r,
    });
    record::Benign {
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
        first: b.first.clone(),
        queries: b.queries,
        without_positive: b.without_positive,
        sampling,
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

/// The scores that the suite asks for; one that it doesn't isn't missed.
fn wanted(asked: &[ScoreName], scores: ComputedScores) -> record::Scores {
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
        notes: scores.notes.into_iter().filter_map(about).collect(),
    }
}

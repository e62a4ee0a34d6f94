//! A run before its attacks: the model, the images, the suite and its trials, as reports describe them.

use super::attack::Surrogate;
use super::embed::Embedded;
use super::open::{Setup, Subject};
use super::selection::{self, Attempt, TrialSet};
use super::warnings;
use crate::check;
use crate::choice::Choice;
use crate::data::Dataset;
use crate::facts::measures::FIRST;
use crate::feature::verification;
use crate::files::hex;
use crate::model::inspect::ModelKind;
use crate::model::{Info, Model, runtime};
use crate::record::{self, Part, Precision, Skipped, Space, Timing, TrialList, Warning};
use crate::request::Request;
use crate::space::Gallery;
use crate::threat::{self, AttackContext, Mask, Selection, Trial};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// What is known of a run before its attacks. Reports have it under the same names.
#[derive(Clone)]
pub struct Run {
    pub tool: record::Tool,
    pub model: record::ModelRecord,
    pub data: record::Data,
    pub suite: record::SuiteRecord,
    pub seed: u64,
    pub allow_untrusted: bool,
    pub benign: Option<record::Benign>,
    pub hub: Option<record::Hub>,
    pub targets: Option<record::ForeignTargetsRecord>,
    pub universal: Option<record::Universal>,
    /// Without an attack.
    pub verification: Option<record::Verification>,
    pub trials: TrialList,
    pub skipped: Vec<Skipped>,
    pub labels: BTreeMap<String, String>,
    pub groups: BTreeMap<String, String>,
    pub warnings: Vec<Warning>,
    pub part: Option<Part>,
    pub command: Option<String>,
    /// Seconds before the attacks.
    pub timing: Timing,
}

impl Run {
    /// The run of all `chosen` trials.
    pub fn new(
        request: &Request,
        embedded: &Embedded,
        setup: &Setup,
        surrogate: Option<&Surrogate>,
        chosen: &TrialSet,
    ) -> Run {
        let Embedded { subject, context, data, benign, .. } = embedded;
        let TrialSet { selection, attempts, .. } = chosen;
        let (gallery, trials, acceptance) = (&context.gallery, &selection.trials, setup.suite.threshold);
        let Model { info, graphs, .. } = &subject.model;
        let sampling = selection::sampling(request, &setup.suite, context, &subject.dataset, chosen);
        let found = check::warnings(embedded.findings.clone())
            .chain(warnings::before_attacks(&subject.dataset, info, data, benign.as_ref()))
            .chain(warnings::of_machine(request, &graphs.cpu_nodes))
            .chain(warnings::of_trials(context, trials, attempts));
        Run {
            tool: tool(request, subject),
            model: model(subject),
            data: data.clone(),
            suite: suite(setup, surrogate, request.attack.precision, sampling),
            seed: request.seed,
            allow_untrusted: request.allow_untrusted,
            benign: benign.clone(),
            hub: hub(trials, context),
            targets: request.images.targets.as_deref().and_then(|path| foreign(path, gallery)),
            universal: universal(trials, context),
            verification: verification::clean(context, acceptance, trials, setup.plan.seed, request.progress),
            trials: threat::list(setup.protocol, setup.plan.form, gallery, trials),
            skipped: selection.skipped.clone(),
            labels: labels(selection, gallery, &subject.dataset),
            groups: groups(attempts, gallery, &subject.dataset),
            warnings: found.collect(),
            part: None,
            command: request.command.clone(),
            timing: embedded.timing.clone(),
        }
    }
}

/// Classes of all items that a selection names; empty if images have none.
fn labels(selection: &Selection, gallery: &Gallery, dataset: &Dataset) -> BTreeMap<String, String> {
    if dataset.classless {
        return BTreeMap::new();
    }
    let tried = selection.trials.iter().flat_map(|t| t.targets.iter().copied().chain([t.query]));
    let skipped = selection.skipped.iter().filter_map(|s| gallery.find(&s.query));
    let class = |i: usize| dataset.classes[gallery.labels[i]].clone();
    let images = tried.chain(skipped).filter(|i| !gallery.targets().contains(i));
    images.map(|i| (gallery.ids[i].clone(), class(i))).collect()
}

/// Groups of all queries of a run.
fn groups(attempts: &[Attempt], gallery: &Gallery, dataset: &Dataset) -> BTreeMap<String, String> {
    let group = |&(_, i): &Attempt| Some((gallery.ids[i].clone(), dataset.items[i].group()?.into()));
    attempts.iter().filter_map(group).collect()
}

/// The program and the machine that make the report.
pub fn tool(request: &Request, subject: &Subject) -> record::Tool {
    record::Tool {
        name: "audit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        runtime: format!("ONNX Runtime {}", runtime::version()),
        provider: subject.machine.options.provider.to_string(),
        provider_why: subject.machine.why.clone(),
        fast_math: request.compute.fast_math,
        cpu_nodes: subject.model.graphs.cpu_nodes.clone(),
    }
}

/// The name of the strong search, as a search, in reports.
const STRONG: &str = "strong";

/// The suite as reports describe it. The number of queries follows from the outcomes.
pub fn suite(
    setup: &Setup,
    surrogate: Option<&Surrogate>,
    precision: Precision,
    sampling: Option<String>,
) -> record::SuiteRecord {
    let Setup { suite, protocol, plan, alpha_scaled_from } = setup;
    record::SuiteRecord {
        name: suite.name.clone(),
        form: plan.form,
        protocol: *protocol,
        norm: plan.ball.name.into(),
        mask: plan.mask.as_ref().map(Mask::described),
        space: plan.space,
        jpeg: plan.jpeg,
        eps: plan.eps,
        alpha: plan.alpha,
        alpha_scaled_from: *alpha_scaled_from,
        steps: if plan.effort.is_some() { 0 } else { plan.steps },
        schedule: if plan.effort.is_some() { STRONG } else { plan.search.name }.into(),
        effort: plan.effort,
        ladder: plan.ladder,
        file_column: if plan.in_files { Space::File } else { Space::Input },
        surrogate: surrogate.map(|other| {
            let info = &other.model.info;
            record::Surrogate {
                path: info.path.display().to_string(),
                sha256: info.identity.sha256.clone(),
                output: Some(info.output.clone()),
                pooling: pooling(info),
                metric: Some(other.context.gallery.metric),
                preprocessing: Some(info.preprocessing.clone()),
            }
        }),
        forward_passes: (plan.effort.is_none() && !plan.search.needs_gradient)
            .then_some((plan.steps + 1) * (plan.restarts + 1)),
        hub_class: suite.hub_class.clone(),
        threshold: suite.threshold,
        xi_k: suite.objectives().any(|objective| objective.measure.keeps).then_some(suite.xi_k),
        restarts: plan.restarts,
        corruptions: suite.corruptions.iter().map(|c| c.name.into()).collect(),
        attack_precision: precision,
        queries: 0,
        sampling,
    }
}

/// A model's pooling by name, if it has one.
fn pooling(info: &Info) -> Option<String> {
    info.pooling.map(|pooling| pooling.name().into())
}

/// The queries that hubs are measured on, if `trials` craft hubs.
fn hub(trials: &[Trial], context: &AttackContext) -> Option<record::Hub> {
    let crafted = trials.iter().filter(|t| t.objective.measure.captures);
    let sample = crafted.map(|t| t.targets.len()).max()?;
    let heads = context.heads.as_ref()?;
    let best_clean = [1, FIRST].map(|k| 100.0 * heads.best(&context.gallery, k));
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

/// How the perturbations that `trials` share are crafted, if they share any.
fn universal(trials: &[Trial], context: &AttackContext) -> Option<record::Universal> {
    let trial = trials.iter().find(|t| t.objective.shared.is_some())?;
    let samples = context.samples(trial.objective);
    let sample = samples.iter().map(Vec::len).max().unwrap_or(0);
    Some(record::Universal { perturbations: samples.len(), sample })
}

/// The model as reports describe it.
pub fn model(subject: &Subject) -> record::ModelRecord {
    let (info, card) = (&subject.model.info, &subject.card);
    record::ModelRecord {
        path: info.path.display().to_string(),
        sha256: info.identity.sha256.clone(),
        net_sha256: Some(info.identity.net_sha256.clone()),
        bytes: Some(info.identity.bytes),
        inputs: info.inputs.clone(),
        output: info.output.clone(),
        output_why: Some(info.output_why.clone()),
        before_classifier: match &info.look {
            ModelKind::Classifier(before) => before.clone(),
            _ => None,
        },
        dim: info.dim,
        metric: subject.metric,
        preprocessing: info.preprocessing.clone(),
        pooling: pooling(info),
        licence: card.licence.clone(),
        source: card.source.clone(),
        gradient_check: subject.gradient_check,
        softened: Vec::new(),
    }
}

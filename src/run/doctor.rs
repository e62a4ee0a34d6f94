//! `audit doctor`: every check there is on one model and the audit that the flags describe, as a table.

use crate::cli::{Doctor, Run};
use crate::data::{Dataset, vectors};
use crate::judge::check::attacked::Outcomes;
use crate::judge::check::clean::Retrieval;
use crate::judge::check::doctor::Patient;
use crate::judge::check::preprocessing::Sample;
use crate::judge::check::{self, CHECKS};
use crate::model::Model;
use crate::model::card::Card;
use crate::progress::Phase;
use crate::record::{self, Finding, Metric, Precision, Severity, reason};
use crate::report::terminal::wrap;
use crate::report::{self, Destination};
use crate::run::{images, open_model, selection, settings::Settings, summary};
use crate::space::Gallery;
use crate::space::benign::benign;
use crate::threat::{Plan, Selection};
use crate::{Error, Exit, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Queries attacked, unless told otherwise: each is attacked some fifty times over.
const QUERIES: usize = 16;

/// What the checks found.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Examination {
    /// [`record::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What made it.
    pub tool: record::Tool,
    /// The model.
    pub model: record::Model,
    /// The images.
    pub data: record::Data,
    /// The audit that was looked into.
    pub suite: record::Suite,
    /// Fixes everything drawn.
    pub seed: u64,
    /// Whether findings of weight error were to be lived with.
    pub allow_untrusted: bool,
    /// A finding for each check, in the order of the table.
    pub findings: Vec<Finding>,
}

/// Makes every check, and writes the findings to every file that was asked for.
pub fn run(flags: &Doctor) -> Result<Examination> {
    let mut run = flags.run.clone();
    run.max_queries = run.max_queries.or(Some(QUERIES));
    let files = run.reports.drain(..).map(json_file).collect::<Result<Vec<_>>>()?;
    if run.demands.asked() || run.save_baseline.is_some() {
        return Err(Error::usage(
            "the doctor holds nothing against a gate: leave the gate's flags out, or run an audit",
        ));
    }
    if run.attack_precision != Precision::Fp32 {
        return Err(Error::usage(
            "the doctor looks into the attack with float32 steps: leave --attack-precision out. An audit compares its own \
             float16 steps with float32 ones",
        ));
    }
    if run.resume || run.journal.is_some() || run.partition.is_some() {
        return Err(Error::usage(
            "the doctor is done in one go: leave --resume, --journal and --partition out",
        ));
    }
    let Settings { suite, model: path, card, .. } = Settings::settle(&run)?;
    let mut dataset = images::open(&run)?;
    let given = run.gallery.as_deref().map(vectors::read).transpose()?;
    let mut model = open_model(&run, &path, &card)?;
    let preprocessing = model.info.preprocessing.clone();
    let prep = images::preparation(&preprocessing);
    let (protocol, plan) = suite.plan(preprocessing.height.max(preprocessing.width), run.seed)?;

    let (first, count) = images::first_batch(&dataset, &model)?;
    let measured = check::load::measure(&mut model, &first, count)?;
    let mut findings = check::at_load(&measured);
    let metric = card.metric.unwrap_or(Metric::NormalizedEuclidean);
    if run.data.is_some() {
        let mut sample = Sample { dataset: &dataset, model: &mut model, metric, prep: prep.clone() };
        findings.extend(check::of_preprocessing(&mut sample)?);
    }
    let mut examination = Examination {
        schema_version: record::SCHEMA_VERSION,
        tool: summary::tool(&run, &model),
        model: summary::model(&model, &card, metric, measured.summary()),
        data: record::Data::default(),
        suite: summary::suite(&suite, protocol, &plan, run.attack_precision, None),
        seed: run.seed,
        allow_untrusted: run.allow_untrusted,
        findings,
    };
    // Embeddings that aren't finite make no gallery, and nothing to attack.
    if !examination.findings.iter().any(|f| f.condemns(&reason::FINITE)) {
        let gallery_given = given.is_some();
        let (gallery, data) = images::embed(&run, &mut dataset, given, &mut model, metric)?;
        examination.data = data;
        let benign = benign(&gallery, None, run.seed)?;
        examination.findings.extend(check::of_retrieval(&Retrieval { gallery: &gallery, benign: &benign }));
        let Selection { trials, .. } = selection::select(&run, &suite, protocol, &plan, &gallery)?;
        let queries: std::collections::BTreeSet<usize> = trials.iter().map(|t| t.query).collect();
        examination.suite.queries = queries.len();
        examination.suite.sampling = selection::sampling(&run, &suite, &gallery);
        let surrogate = match &flags.surrogate {
            Some(_) if gallery_given => {
                return Err(Error::usage("--surrogate embeds the gallery itself: leave --gallery out"));
            }
            Some(path) => Some(surrogate(&run, path, &model, &mut dataset)?),
            None => None,
        };
        let pixels = |i: usize| dataset.pixels(i, &prep).map(|p| p.data);
        let mut patient = Patient::new(&mut model, &gallery, &pixels, &trials, &plan, surrogate)?;
        examination.findings.extend(attacks(&run, &mut patient, &plan, plan.form.ranked_in(&gallery))?);
    }
    for file in files {
        let mut bytes = serde_json::to_vec_pretty(&examination)
            .map_err(|e| Error::internal(format!("the findings as JSON: {e}")))?;
        bytes.push(b'\n');
        file.write(&bytes)?;
    }
    Ok(examination)
}

/// The checks that attack.
fn attacks(run: &Run, patient: &mut Patient, plan: &Plan, ranked: usize) -> Result<Vec<Finding>> {
    let mut progress = Phase::new("checks", CHECKS.len() as u64, run.mode());
    let outcomes = patient.outcomes()?;
    let all = Outcomes {
        outcomes: &outcomes,
        eps: plan.eps,
        steps: plan.steps,
        form: plan.form,
        ranked: ranked as f64,
        half: None,
    };
    let mut findings = check::of_outcomes(&all);
    for (i, c) in CHECKS.iter().enumerate() {
        if let check::Run::Doctor(examine) = c.run {
            progress.set(i as u64, None);
            findings.push(c.reason.finding(examine(patient)?));
        }
    }
    progress.finish();
    Ok(findings)
}

fn json_file(path: std::path::PathBuf) -> Result<Destination> {
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("json")) {
        return Err(Error::usage(format!("-o {}: the doctor writes .json only", path.display())));
    }
    Destination::open("-o", &path)
}

/// Another model of the same images, and its embeddings of them.
fn surrogate(run: &Run, path: &Path, model: &Model, dataset: &mut Dataset) -> Result<(Model, Gallery)> {
    let card: Card = crate::run::settings::settle_card(run.card()?, None, path)?;
    let mut other = open_model(run, path, &card)?;
    let size = |m: &Model| {
        let p = &m.info.preprocessing;
        [p.channels, p.height, p.width]
    };
    if size(&other) != size(model) {
        return Err(Error::usage(format!(
            "--surrogate {}: it takes images of {:?} (channels, height, width), and the model of {:?}; name one of the \
             same input",
            path.display(),
            size(&other),
            size(model)
        )));
    }
    let metric = card.metric.unwrap_or(Metric::NormalizedEuclidean);
    let (gallery, _) = images::embed(run, dataset, None, &mut other, metric)?;
    Ok((other, gallery))
}

impl Examination {
    /// 12 where a finding leaves a score without a meaning, unless that was to be lived with.
    pub fn exit(&self) -> Option<Exit> {
        let errors = self.findings.iter().any(|f| f.severity == Severity::Error);
        (errors && !self.allow_untrusted).then_some(Exit::Untrusted)
    }

    /// The table, and what to do.
    pub fn render(&self) -> String {
        let s = &self.suite;
        let mut out = wrap(&format!(
            "{} · {} images, {} classes · {}",
            self.model.path, self.data.images, self.data.classes, self.data.source
        ));
        out.push('\n');
        out += &wrap(&format!(
            "looking into suite {} ({} form) · {}: ε {:.5}, {} steps · {} queries · seed {}",
            s.name, s.form, s.protocol, s.eps, s.steps, s.queries, self.seed
        ));
        out.push('\n');
        out += &report::terminal::findings(&self.findings);
        let count = |of: Severity| self.findings.iter().filter(|f| f.severity == of).count();
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        out += &wrap(&format!(
            "{} checks: {}, {}. {}",
            self.findings.len(),
            counted(count(Severity::Error), "error"),
            counted(count(Severity::Warning), "warning"),
            match (count(Severity::Error), count(Severity::Warning)) {
                (0, 0) => "Nothing casts doubt on an audit of this model",
                (0, _) => "An audit of this model means something; read it with the warnings",
                _ =>
                    "A score of this model is not what it seems: by the errors above, it flatters or means nothing",
            }
        ));
        out.push('\n');
        out
    }
}

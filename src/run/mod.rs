//! The conductor: what `audit --suite ars model.onnx` does, from the first flag to the report. [`run`] is all of it; the
//! modules beneath hold what its lines call.

mod attacks;
pub mod doctor;
pub mod examples;
pub mod grad_file;
pub mod identity;
pub mod images;
mod journal;
pub mod partition;
mod reservations;
pub(crate) mod selection;
pub(crate) mod settings;
pub(crate) mod summary;

use crate::cli::{Gradient, Run};
use crate::data::vectors;
use crate::judge::check;
use crate::judge::check::clean::Retrieval;
use crate::judge::check::preprocessing::Sample;
use crate::judge::gate::{self, Rules};
use crate::model::Model;
use crate::model::card::Card;
use crate::model::runtime;
use crate::progress::Phase;
use crate::record::{self, HalfPrecision, Metric, Precision, Report, Verdict, Warning};
use crate::report::{self, Target};
use crate::run::examples::Collector;
use crate::run::identity::{Identity, trials_hash};
use crate::space::benign::benign;
use crate::threat::{self, Selection};
use crate::{Error, Exit, Result};
use attacks::Attacks;
use journal::Journal;
use settings::{Files, Settings};
use std::path::Path;
use std::time::Instant;

/// Restarts of the k-means behind NMI.
const CLUSTERINGS: usize = 4;
/// Items × classes × dimensions beyond which there is no clustering: an iteration would take seconds, and there are
/// hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// Runs an audit and returns its report, written to every file that was asked for. `command` is the command line that the
/// report states.
pub fn run(flags: &Run, command: &str) -> Result<Report> {
    let mut clock = Clock::start();
    let mut timing = record::Timing { threads: flags.threads, ..record::Timing::default() };

    // What was asked for, and where it goes: whatever is wrong with that is said before the work.
    let Settings { files, mut journal, baseline, suite, rules, model: path, card } = Settings::settle(flags)?;
    let mut dataset = images::open(flags)?;
    let vectors = flags.gallery.as_deref().map(vectors::read).transpose()?;

    // The model, its gradient, and whether both are right.
    let mut model = open_model(flags, &path, &card)?;
    let preprocessing = model.info.preprocessing.clone();
    let (protocol, plan) = suite.plan(preprocessing.height.max(preprocessing.width), flags.seed)?;
    timing.batch = model.batch();
    timing.model_s = clock.lap();
    let (first, count) = images::first_batch(&dataset, &model)?;
    let measured = check::load::measure(&mut model, &first, count)?;
    let found = check::at_load(&measured);
    if !flags.allow_untrusted {
        check::admit(&path.display().to_string(), &found)?;
    }
    let mut warnings: Vec<Warning> = check::warnings(found).collect();
    let in_half = model.calibrate(&first, count)?;
    timing.check_s = clock.lap();

    // The gallery: clean embeddings, and retrieval without attack.
    let metric = card.metric.unwrap_or(Metric::NormalizedEuclidean);
    if flags.data.is_some() {
        let prep = images::preparation(&preprocessing);
        let mut sample = Sample { dataset: &dataset, model: &mut model, metric, prep };
        warnings.extend(check::warnings(check::of_preprocessing(&mut sample)?));
    }
    let (gallery, data) = images::embed(flags, &mut dataset, vectors, &mut model, metric)?;
    let clustering = data.gallery as f64 * data.classes as f64 * model.info.dim as f64;
    let clusterings = (clustering <= MOST_CLUSTERING).then_some(CLUSTERINGS);
    let benign = benign(&gallery, clusterings, flags.seed)?;
    let retrieval = Retrieval { gallery: &gallery, benign: &benign };
    warnings.extend(check::warnings(check::of_retrieval(&retrieval)));
    warnings.extend(reservations::before_attacks(flags, &model.info, &data, &benign));
    warnings.extend(reservations::of_machine(flags, &model.info.cpu_nodes));
    timing.gallery_s = clock.lap();

    // The report so far: everything that the attacks don't change. A part of a run takes its share of the trials.
    let whole = selection::select(flags, &suite, protocol, &plan, &gallery)?;
    let trials = |of: &Selection| threat::list(protocol.name(), plan.form, &gallery, &of.trials);
    let mut report = Report {
        schema_version: record::SCHEMA_VERSION,
        tool: summary::tool(flags, &model),
        model: summary::model(&model, &card, metric, measured.summary()),
        data,
        suite: summary::suite(
            &suite,
            protocol,
            &plan,
            flags.attack_precision,
            selection::sampling(flags, &suite, &gallery),
        ),
        seed: flags.seed,
        allow_untrusted: flags.allow_untrusted,
        benign: summary::benign(&benign, &dataset),
        trials: trials(&whole),
        skipped: whole.skipped.clone(),
        half_precision: in_half.map(HalfPrecision::new),
        warnings,
        command: Some(command.into()),
        timing,
        // To come:
        part: None,
        outcomes: Vec::new(),
        attacks: Vec::new(),
        scores: record::Scores { ers: None, ars: None, notes: Vec::new() },
        gate: None,
        examples: None,
    };
    if let Some(baseline) = &baseline {
        gate::comparable(baseline, &report)?;
    }
    let mut ours = whole.trials.clone();
    if let Some(partition) = flags.partition {
        let (selection, part) = partition.split(&whole, &gallery, trials_hash(&report), &suite.scores);
        report.trials = trials(&selection);
        (report.skipped, report.part, ours) = (selection.skipped, Some(part), selection.trials);
    }

    // The attacks, as far as no earlier process ran them, and what follows from their outcomes.
    let mut phase = Phase::new("attacks", 0, flags.mode());
    let done = match &mut journal {
        Some(j) => j.begin(Identity::of(&report), flags.partition.map(|p| p.to_string()), ours.len())?,
        None => Vec::new(),
    };
    match done.len() {
        0 if flags.resume => flags.mode().note("no trial is done yet: the run begins anew"),
        0 => {}
        n => flags.mode().note(&format!("{n} of {} trials are done already", ours.len())),
    }
    let mut collector =
        files.targets.iter().any(Target::shows_examples).then(|| Collector::new(&gallery, &whole.trials));
    let prep = images::preparation(&preprocessing);
    let attacks = Attacks { dataset: &dataset, prep: &prep, gallery: &gallery, trials: &ours, plan: &plan };
    report.outcomes = attacks.run(&mut model, &mut journal, done, &mut collector, &mut phase)?;
    phase.finish();
    report.timing.attacks_s = clock.lap();
    if let Some(half) = &mut report.half_precision {
        let mut phase = Phase::new("sample in float32", 0, flags.mode());
        let queries = check::float16::sample(&whole.trials, &gallery, flags.seed);
        let repeated = attacks.in_float32(&mut model, &queries, &mut phase);
        half.sample = repeated.map_err(|e| kept(e, &journal))?;
        phase.finish();
    }
    report.timing.check_s += clock.lap();
    if let Some(c) = collector {
        report.examples = c.finish(&gallery, &dataset, &prep, plan.eps).map_err(|e| kept(e, &journal))?;
    }
    report.timing.attacks_s += clock.lap();
    report.timing.image_steps = report.outcomes.iter().map(|o| o.steps).sum::<usize>() * (plan.restarts + 1);
    summary::conclude(&mut report, &suite.scores);
    report.timing.total_s = clock.total();

    // The verdict, and the files.
    deliver(&mut report, flags, baseline.as_ref(), &rules, files).map_err(|e| kept(e, &journal))?;
    if let Some(journal) = &mut journal {
        journal.done();
    }
    Ok(report)
}

/// Judges the report where something is demanded, and writes it.
fn deliver(
    report: &mut Report,
    flags: &Run,
    baseline: Option<&Report>,
    rules: &Rules,
    files: Files,
) -> Result<()> {
    if baseline.is_some() || !rules.is_empty() {
        match report.part {
            None => report.gate = Some(Verdict::judge(report, baseline, rules)?),
            Some(_) => flags
                .mode()
                .note("a part is not judged: hold the merged report to the gate with `audit gate`"),
        }
        report.warnings.extend(check::attacked::sampling_noise(report));
    }
    for target in files.targets {
        target.write(report)?;
    }
    if let Some(file) = files.keep {
        // A failed gate must not lower the bar for the next audit.
        match report.exit() {
            None => file.write(&report::json(&report.as_baseline())?)?,
            Some(Exit::Untrusted) => {
                flags.mode().warn("--save-baseline: not saved, as the result is not to be trusted");
            }
            Some(_) => flags.mode().warn("--save-baseline: not saved, as the gate failed"),
        }
    }
    Ok(())
}

/// An error after the attacks, none of which need be run again.
fn kept(mut error: Error, journal: &Option<Journal>) -> Error {
    if let Some(journal) = journal {
        error.message = format!(
            "{}. All trials are done and kept in {}: the same command with --resume makes the report from there",
            error.message,
            journal.path().display()
        );
    }
    error
}

pub(crate) fn open_model(flags: &Run, path: &Path, card: &Card) -> Result<Model> {
    runtime::load(flags.ort_lib.as_deref())?;
    let options = flags.options();
    runtime::require(options)?;
    match flags.gradient {
        Gradient::Exact => {
            let half = flags.attack_precision == Precision::Fp16;
            Model::open_in(path, card, options, flags.batch, half)
        }
        Gradient::Estimate => Model::open_estimated(path, card, options, flags.batch, flags.seed),
    }
}

/// Seconds since the start, and since the last look.
struct Clock {
    start: Instant,
    last: Instant,
}

impl Clock {
    fn start() -> Clock {
        let now = Instant::now();
        Clock { start: now, last: now }
    }

    fn lap(&mut self) -> f64 {
        let last = std::mem::replace(&mut self.last, Instant::now());
        (self.last - last).as_secs_f64()
    }

    fn total(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

//! The conductor: what `audit --suite ars model.onnx` does, from the first flag to the report. [`run`] is all of it; the
//! modules beneath hold what its lines call.

pub mod images;
mod reservations;
mod selection;
mod settings;
mod summary;

use crate::attack::{self, Differentiable, Event, Outcome, Plan, Selection, Trial};
use crate::check::{self, Warning};
use crate::cli::{Gradient, Run};
use crate::data::Dataset;
use crate::data::vectors;
use crate::examples::Collector;
use crate::gate::Verdict;
use crate::model::Model;
use crate::model::card::Card;
use crate::model::runtime;
use crate::progress::Progress;
use crate::report::{self, Report, Target};
use crate::space::benign::benign;
use crate::space::{Gallery, Metric};
use crate::{Error, Result};
use settings::Settings;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Restarts of the k-means behind NMI.
const CLUSTERINGS: usize = 4;
/// Items × classes × dimensions beyond which there is no clustering: an iteration would take seconds, and there are
/// hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// Runs an audit and returns its report, written to every file that was asked for.
pub fn run(flags: &Run) -> Result<Report> {
    let mut clock = Clock::start();
    let mut timing = report::Timing { threads: flags.threads, ..report::Timing::default() };

    // What was asked for, and where it goes: whatever is wrong with that is said before the work.
    let Settings { targets, keep, baseline, suite, rules, model: path, card } = Settings::settle(flags)?;
    let mut dataset = images::open(flags)?;
    let vectors = flags.gallery.as_deref().map(vectors::read).transpose()?;

    // The model, its gradient, and whether both are right.
    let mut model = open_model(flags, &path, &card)?;
    let preprocessing = model.info.preprocessing.clone();
    let (protocol, plan) = suite.plan(preprocessing.height.max(preprocessing.width), flags.seed)?;
    timing.batch = model.batch();
    timing.model_s = clock.lap();
    let (first, count) = images::first_batch(&dataset, &model)?;
    let (gradient_check, found) = check::at_load(&mut model, &first, count)?;
    let mut warnings: Vec<Warning> = check::estimated(&model).into_iter().chain(found).collect();
    timing.check_s = clock.lap();

    // The gallery: clean embeddings, and retrieval without attack.
    let metric = card.metric.unwrap_or(Metric::NormalizedEuclidean);
    if flags.data.is_some() {
        warnings.extend(reservations::preprocessing(&dataset, &mut model, metric)?);
    }
    let (gallery, data) = images::embed(flags, &mut dataset, vectors, &mut model, metric)?;
    let clustering = data.gallery as f64 * data.classes as f64 * model.info.dim as f64;
    let clusterings = (clustering <= MOST_CLUSTERING).then_some(CLUSTERINGS);
    let benign = benign(&gallery, clusterings, flags.seed)?;
    warnings.extend(reservations::before_attacks(flags, &preprocessing, &data, &benign));
    timing.gallery_s = clock.lap();

    // The report so far: everything that the attacks don't change.
    let Selection { trials, skipped } = selection::select(flags, &suite, protocol, &plan, &gallery)?;
    let record = attack::write_trials(protocol.name(), plan.form, &gallery, &trials)?;
    let mut report = Report {
        schema_version: report::SCHEMA_VERSION,
        tool: summary::tool(flags),
        model: summary::model(&model, &card, metric, gradient_check),
        data,
        suite: summary::suite(&suite, protocol, &plan, selection::sampling(flags, &suite, &gallery)),
        seed: flags.seed,
        benign: summary::benign(&benign, &dataset),
        trials: serde_json::from_str(&record).map_err(|e| Error::internal(format!("trials: {e}")))?,
        skipped,
        warnings,
        command: Some(settings::command_line()),
        // To come:
        outcomes: Vec::new(),
        attacks: Vec::new(),
        scores: report::Scores { ers: None, ars: None, notes: Vec::new() },
        gate: None,
        examples: None,
        timing: report::Timing::default(),
    };

    // The attacks, and what follows from their outcomes.
    let mut collector = targets.iter().any(Target::shows_examples).then(Collector::new);
    report.outcomes = attack_all(flags, &dataset, &mut model, &gallery, &trials, &plan, &mut collector)?;
    if let Some(c) = collector {
        report.examples = c.finish(&gallery, &dataset, &images::preparation(&preprocessing), plan.eps)?;
    }
    timing.attacks_s = clock.lap();
    timing.image_steps = report.outcomes.iter().map(|o| o.steps).sum::<usize>() * (plan.restarts + 1);
    summary::conclude(&mut report, &suite.scores)?;
    timing.total_s = clock.total();
    report.timing = timing;

    // The verdict, and the files.
    if baseline.is_some() || !rules.is_empty() {
        report.gate = Some(Verdict::judge(&report, baseline.as_ref(), &rules)?);
    }
    for target in targets {
        target.write(&report)?;
    }
    if let Some(file) = keep {
        // A failed gate must not lower the bar for the next audit.
        match report.gate.as_ref().and_then(Verdict::exit) {
            None => file.write(&report::json(&report.as_baseline())?)?,
            Some(_) => eprintln!("--save-baseline: not saved, as the gate failed"),
        }
    }
    Ok(report)
}

fn open_model(flags: &Run, path: &Path, card: &Card) -> Result<Model> {
    runtime::load(flags.ort_lib.as_deref())?;
    match flags.gradient {
        Gradient::Exact => Model::open(path, card, flags.options(), flags.batch),
        Gradient::Estimate => Model::open_estimated(path, card, flags.options(), flags.batch, flags.seed),
    }
}

/// Runs the trials and returns their outcomes, in the same order.
fn attack_all(
    flags: &Run,
    dataset: &Dataset,
    model: &mut Model,
    gallery: &Gallery,
    trials: &[Trial],
    plan: &Plan,
    collector: &mut Option<Collector>,
) -> Result<Vec<Outcome>> {
    let prep = images::preparation(&model.info.preprocessing);
    let images = |i: usize| dataset.pixels(i, &prep).map(|p| p.data);
    let mut progress =
        Progress::new("attacks", (trials.len() * plan.steps * (plan.restarts + 1)) as u64, flags.quiet);
    let outcomes = attack::run(model, gallery, &images, trials, plan, &mut |event| {
        match event {
            Event::Steps(done, _) => progress.set(done as u64),
            Event::Done(outcome, evidence) => {
                collector.iter_mut().for_each(|c| c.see(outcome, evidence));
            }
        }
        ControlFlow::Continue(())
    })?;
    progress.finish();
    Ok(outcomes)
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

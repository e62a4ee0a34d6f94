//! What `audit --suite ars model.onnx` does, from the first flag to the report. [`run`] has every step in order; the modules below
//! implement the steps.

mod attacks;
mod corrupted;
mod cost;
pub mod crossed;
pub mod doctor;
pub mod embed;
pub mod evidence;
pub mod examples;
pub mod geometry;
pub mod grad_file;
pub mod identity;
pub mod images;
pub mod inspect;
pub mod journal;
mod kept;
mod kept_clean;
mod machine;
pub mod partition;
mod prepare;
pub(crate) mod selection;
pub(crate) mod settings;
mod stored;
pub(crate) mod summary;
pub mod sweep;
mod warnings;

use crate::judge::check;
use crate::judge::gate::{self, Rules};
use crate::judge::strong;
use crate::model::{Model, Route};
use crate::progress::Phase;
use crate::record::{Finding, Outcome, Report, Verdict};
use crate::report::{self, Target};
use crate::request::Request;
use crate::run::examples::Collector;
use crate::{Error, Exit, Result};
use attacks::Attacks;
use corrupted::Corrupting;
use journal::Journal;
use prepare::{CLUSTERINGS, Clean, Purpose, Subject};
use settings::{Files, Settings};

/// Runs an audit and returns its report, written to every file that was asked for.
pub fn run(request: &Request) -> Result<Report> {
    // Settings, model and images, and whether they can be trusted; then clean embeddings and the selection of trials.
    let mut subject = Subject::open(request, Purpose::Audit)?;
    let mut clean = subject.embed(request, Some(CLUSTERINGS))?;
    let Clean { gallery, selection, asked, .. } = &mut clean;
    selection::add_strong_sample(selection, asked, request, &subject.plan, gallery)?;

    // The report so far: everything that the attacks don't change. That of a part says where its trials stand among all.
    let mut report = summary::begin(request, &subject, &clean);
    let Subject { settings, dataset, mut model, surrogate, prep, plan, mut clock, .. } = subject;
    let Settings { files, mut journal, baseline, suite, rules, .. } = settings;
    let (gallery, asked) = (&clean.gallery, &clean.asked);
    if let Some(baseline) = &baseline {
        gate::comparable(baseline, &report)?;
    }
    gate::refuse_too_few(&rules, &report)?;
    let trials = partition::share(&mut report, request.run.partition, &clean, &suite.scores)?;

    // The attacks, as far as no earlier process ran them.
    let pictures = files.targets.iter().any(Target::shows_examples);
    let mut collector = pictures.then(|| Collector::new(gallery, asked, report.basis()));
    let attacks = Attacks {
        dataset: &dataset,
        prep: &prep,
        gallery,
        trials: &trials,
        plan: &plan,
        surrogate: surrogate.as_ref(),
    };
    execute(&attacks, &mut model, request, &mut report, &mut journal, &mut collector, &[])?;
    report.timing.attacks_s = clock.lap();

    // What follows from their outcomes.
    if let Some(half) = &mut report.half_precision {
        let queries = check::float16::sample(asked.iter().map(|&(_, query)| query), gallery, request.seed);
        let repeated = attacks.in_float32(&mut model, &queries, request.progress);
        half.sample = repeated.map_err(|e| kept(e, &mut journal))?;
    }
    report.timing.check_s += clock.lap();
    if let Some(collector) = collector {
        let examples = collector.finish(gallery, &dataset, &prep, &plan);
        report.examples = examples.map_err(|e| kept(e, &mut journal))?;
    }
    if !suite.corruptions.is_empty() {
        let corrupting = Corrupting::new(&suite, &dataset, &prep, gallery, &trials, request.seed);
        let done = corrupt(&corrupting, &mut model, request, &mut report);
        done.map_err(|e| kept(e, &mut journal))?;
    }
    report.timing.attacks_s += clock.lap();
    summary::conclude(&mut report, &suite.scores);
    report.timing.total_s = clock.total();

    // The verdict, and the files.
    deliver(&mut report, request, baseline.as_ref(), &rules, files).map_err(|e| kept(e, &mut journal))?;
    if let Some(journal) = &mut journal {
        journal.done();
    }
    Ok(report)
}

/// The report of the trials that `clean` selects, run on a subject of several such reports. It is written to no file. `known` are
/// outcomes of trials of such a report that ran under the same plan.
fn attacked(
    request: &Request,
    subject: &mut Subject,
    clean: &Clean,
    journal: &mut Option<Journal>,
    known: &[Outcome],
) -> Result<Report> {
    let mut report = summary::begin(request, subject, clean);
    let Subject { settings, dataset, model, surrogate, prep, plan, clock, .. } = subject;
    clock.lap();
    let attacks = Attacks {
        dataset,
        prep,
        gallery: &clean.gallery,
        trials: &clean.selection.trials,
        plan,
        surrogate: surrogate.as_ref(),
    };
    execute(&attacks, model, request, &mut report, journal, &mut None, known)?;
    report.timing.attacks_s = clock.lap();
    summary::conclude(&mut report, &settings.suite.scores);
    Ok(report)
}

/// Runs the attacks, but for trials that the journal holds or that are `known`, and puts their outcomes into the report.
fn execute(
    attacks: &Attacks,
    model: &mut Model,
    request: &Request,
    report: &mut Report,
    journal: &mut Option<Journal>,
    collector: &mut Option<Collector>,
    known: &[Outcome],
) -> Result<()> {
    let before = model.asked_routes();
    let mut phase = Phase::new("attacks", 0, request.progress);
    let mut done = attacks::earlier(journal, request, report, attacks.trials.len())?;
    done.extend(attacks.of_known(known));
    report.outcomes = attacks.run(model, journal, done, collector, &mut phase)?;
    phase.finish();
    // A report names the nodes whether this process or an earlier one used the passes, and none that only another report of this model
    // asked for.
    let mut used = Vec::new();
    for (route, or) in strong::routes(&report.outcomes) {
        used.push(route);
        if let (true, Some(or)) = (model.lanes_with(route).is_none(), or) {
            used.push(or);
            model.lanes_with(or);
        }
    }
    // Straight-through lanes are formed after softened ones.
    let follows = |route| route == Route::Softened && used.contains(&Route::StraightThrough);
    let own = |route| used.contains(&route) || follows(route) || !before.contains(&route);
    report.model.softened = model.softened_nodes(own);
    let unformed = model.unformed().filter(|(route, _)| own(*route));
    let unformed = unformed.map(|(route, why)| warnings::unformed(route, why));
    report.warnings.extend(unformed.filter_map(Finding::warning));
    report.timing.image_steps = attacks::image_steps(report, attacks.plan);
    Ok(())
}

/// Corrupts the queries, and shows one where the report shows examples.
fn corrupt(corrupting: &Corrupting, model: &mut Model, request: &Request, report: &mut Report) -> Result<()> {
    report.corrupted = corrupting.run(model, request.progress)?;
    if let Some(examples) = &mut report.examples {
        examples.corrupted = corrupting.pictures()?;
    }
    Ok(())
}

/// Judges the report where something is demanded, and writes it.
fn deliver(
    report: &mut Report,
    request: &Request,
    baseline: Option<&Report>,
    rules: &Rules,
    files: Files,
) -> Result<()> {
    if baseline.is_some() || !rules.is_empty() {
        match report.part {
            None => report.gate = Some(Verdict::judge(report, baseline, rules)?),
            Some(_) => request
                .progress
                .note("a part is not judged: hold the merged report to the gate with `audit gate`"),
        }
        report.warnings.extend(check::attacked::sampling_noise(report));
    }
    report::write_all(files.targets, files.trials, report)?;
    if let Some(file) = files.keep {
        // A failed gate must not lower the bar for the next audit.
        match report.exit() {
            None => file.write(&report::json(&report.as_baseline())?)?,
            Some(Exit::Untrusted) => {
                request.progress.warn("--save-baseline: not saved, as the result is not to be trusted");
            }
            Some(_) => request.progress.warn("--save-baseline: not saved, as the gate failed"),
        }
    }
    Ok(())
}

/// An error after the attacks, none of which need be run again.
fn kept(mut error: Error, journal: &mut Option<Journal>) -> Error {
    if let Some(journal) = journal {
        let what = match journal.kept() {
            Ok(path) => format!(
                "kept in {}: the same command with --resume makes the report from there",
                path.display()
            ),
            Err(e) => format!("lost: {e}"),
        };
        error.message = format!("{}. All trials are done and {what}", error.message);
    }
    error
}

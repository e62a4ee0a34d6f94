//! The third step of an audit: its trials, and their report before the attacks.

use super::attack::{self, Attacks, Surrogate, Work};
use super::attacked_files::AttackedFiles;
use super::conclude::Attacked;
use super::describe;
use super::embed::Embedded;
use super::examples::Collector;
use super::open::{Setup, Subject};
use super::photographs::Photographs;
use super::selection::{Attempt, Chosen};
use super::warnings;
use crate::check::float16;
use crate::feature::corruption::Corrupting;
use crate::model::Route;
use crate::progress::Phase;
use crate::record::{Finding, Outcome, Partition, Report, Space};
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::shards::journal::Journal;
use crate::shards::share::share;
use crate::threat::{self, AttackContext, Trial};
use crate::{Error, Exit, Result};

/// Trials that are ready to run.
pub struct Planned<'e> {
    pub(super) subject: &'e mut Subject,
    pub(super) context: &'e AttackContext,
    pub(super) setup: &'e Setup,
    /// The surrogate, until the attacks have run.
    pub(super) surrogate: Option<Surrogate<'e>>,
    /// The trials of this process: all, or those of a part of a run.
    pub(super) trials: Vec<Trial>,
    /// The attacks and queries of the whole run.
    pub(super) attempts: Vec<Attempt>,
    /// The report of these trials without outcomes.
    pub report: Report,
}

impl<'e> Planned<'e> {
    /// The `chosen` trials on an embedded subject. They are run with `setup`, on the `surrogate` if there is
    /// one.
    pub fn new(
        request: &Request,
        embedded: &'e mut Embedded,
        setup: &'e Setup,
        surrogate: Option<Surrogate<'e>>,
        chosen: Chosen,
    ) -> Planned<'e> {
        let report = describe::before_attacks(request, embedded, setup, surrogate.as_ref(), &chosen);
        let Embedded { subject, context, .. } = embedded;
        let Chosen { selection, attempts, .. } = chosen;
        Planned { subject, context, setup, surrogate, trials: selection.trials, attempts, report }
    }

    /// The trials of a part of the run, if one is requested.
    pub fn share(mut self, partition: Option<Partition>) -> Result<Planned<'e>> {
        if let Some(partition) = partition {
            let Planned { context, setup, attempts, trials, report, .. } = &mut self;
            let whole = (&trials[..], &report.skipped[..]);
            let (part, own, skipped) =
                share(partition, &context.gallery, attempts, whole, &setup.suite.scores)?;
            report.trials = threat::list(setup.protocol, setup.plan.form, &context.gallery, &own);
            (report.part, report.skipped, *trials) = (Some(part), skipped, own);
        }
        Ok(self)
    }

    /// Runs the trials without those in the journal or in `known`. With `pictures` the report gets examples.
    /// Errors: those of the attacks, with the saved trials and how to continue.
    pub fn attack(
        self,
        request: &Request,
        journal: &mut Option<Journal>,
        known: &[Outcome],
        pictures: bool,
    ) -> Result<Attacked> {
        let Planned { subject, context, setup, surrogate, trials, attempts, mut report } = self;
        let Subject { dataset, prep, model, clock, speed, .. } = subject;
        let (dataset, prep, gallery) = (&*dataset, &*prep, &context.gallery);
        clock.lap();
        let mut collector = pictures.then(|| Collector::new(gallery, &attempts, report.basis()));
        let photographs = Photographs::of(&setup.plan, dataset, prep, &trials, request.progress)?;
        let photographs = photographs.as_ref();
        let work =
            Work { dataset, prep, context, trials: &trials, plan: &setup.plan, photographs, speed: *speed };
        let attacked = request
            .output
            .attacked
            .as_deref()
            .map(|folder| AttackedFiles::new(folder, setup.plan.jpeg, dataset));
        let part = request.run.partition.is_some();
        let mut attacks = Attacks { work, model, surrogate, attacked, part };
        execute(&mut attacks, request, &mut report, journal, &mut collector, known)?;
        report.timing.attacks_s = clock.lap();
        if let Some(half) = &mut report.half_precision {
            let queries = float16::sample(attempts.iter().map(|&(_, query)| query), gallery, request.seed);
            let repeated = attacks.in_float32(&queries, request.progress);
            half.sample = repeated.map_err(|e| saved(e, journal))?;
        }
        report.timing.check_s += clock.lap();
        if let Some(collector) = collector {
            let shown = photographs.filter(|_| setup.plan.space == Space::File);
            let examples = collector.finish(context, dataset, prep, shown, &setup.plan);
            report.examples = examples.map_err(|e| saved(e, journal))?;
        }
        let corruptions = &setup.suite.corruptions;
        let corrupting = Corrupting { dataset, prep, gallery, corruptions, seed: request.seed };
        let corrupted = corrupting.measure(&trials, attacks.model, request.progress, &mut report);
        corrupted.map_err(|e| saved(e, journal))?;
        report.timing.attacks_s += clock.lap();
        Ok(Attacked::new(report))
    }
}

/// Runs the attacks and puts their outcomes into the report.
fn execute(
    attacks: &mut Attacks,
    request: &Request,
    report: &mut Report,
    journal: &mut Option<Journal>,
    collector: &mut Option<Collector>,
    known: &[Outcome],
) -> Result<()> {
    let before = attacks.model.requested_routes();
    let mut phase = Phase::new("attacks", 0, request.progress);
    let mut done = attack::earlier(journal, request, report, attacks.work.trials.len())?;
    if let Some(files) = &attacks.attacked {
        files.claim(&Identity::of_process(report))?;
    }
    done.extend(attacks.work.of_known(known));
    report.outcomes = attacks.run(journal, done, collector, &mut phase)?;
    phase.finish();
    // A report names the nodes whether this process or an earlier one used the passes, and none that only
    // another report of this model needed.
    let model = &mut *attacks.model;
    let mut used = Vec::new();
    for (route, or) in crate::threat::ensemble::routes(&report.outcomes) {
        used.push(route);
        if let (false, Some(or)) = (model.form(route), or) {
            used.push(or);
            model.form(or);
        }
    }
    // Straight-through passes are built after softened ones.
    let follows = |route| route == Route::Softened && used.contains(&Route::StraightThrough);
    let own = |route| used.contains(&route) || follows(route) || !before.contains(&route);
    report.model.softened = model.softened_nodes(own);
    let unformed = model.unformed().filter(|(route, _)| own(*route));
    let unformed = unformed.map(|(route, why)| warnings::unformed(route, why));
    report.warnings.extend(unformed.filter_map(Finding::warning));
    report.timing.image_steps = attack::image_steps(report, attacks.work.plan);
    Ok(())
}

/// An error after the attacks, none of which need be run again.
pub fn saved(mut error: Error, journal: &mut Option<Journal>) -> Error {
    if let Some(journal) = journal {
        let path = journal.path().display().to_string();
        let what = match error.exit {
            // A corrupted image's embedding that isn't finite would end the same command again.
            Exit::Untrusted => {
                journal.done();
                return error;
            }
            // It may be the file, which no second try will write either.
            Exit::Internal => journal.saved(&format!(
                "makes the report. To write another file: --journal {path} --resume -o OTHER"
            )),
            _ => journal.saved("makes the report"),
        };
        error.message = format!("{}. All trials are done and {what}", error.message);
    }
    error
}

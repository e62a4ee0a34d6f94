//! The third step of an audit: its trials. The fourth runs them.

use super::attack::{self, Attacks, Recorder, Surrogate, Work, saved};
use super::attacked_files::AttackedFiles;
use super::conclude::{Attacked, Results};
use super::describe::Run;
use super::embed::Embedded;
use super::examples::Collector;
use super::open::{Setup, Subject};
use super::photographs::Photographs;
use super::selection::{Attempt, TrialSet};
use super::warnings;
use crate::Result;
use crate::check::float16;
use crate::feature::corruption::Corrupting;
use crate::model::{Model, Route};
use crate::progress::Phase;
use crate::record::{Examples, Finding, HalfPrecision, Outcome, Partition, Report, Warning};
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::shards::journal::Journal;
use crate::shards::share::share;
use crate::threat::{self, AttackContext, Trial};

/// Trials that are ready to run.
pub struct Planned<'e> {
    subject: &'e mut Subject,
    context: &'e AttackContext,
    setup: &'e Setup,
    /// The surrogate, until the attacks have run.
    surrogate: Option<Surrogate<'e>>,
    /// The trials of this process: all, or those of a part of a run.
    trials: Vec<Trial>,
    /// The attacks and queries of the whole run.
    attempts: Vec<Attempt>,
    /// What is known of the run.
    run: Run,
}

impl<'e> Planned<'e> {
    /// The `chosen` trials on an embedded subject. They are run with `setup`, on the `surrogate` if there is
    /// one.
    pub fn new(
        request: &Request,
        embedded: &'e mut Embedded,
        setup: &'e Setup,
        surrogate: Option<Surrogate<'e>>,
        chosen: TrialSet,
    ) -> Planned<'e> {
        let run = Run::new(request, embedded, setup, surrogate.as_ref(), &chosen);
        let Embedded { subject, context, .. } = embedded;
        let TrialSet { selection, attempts, .. } = chosen;
        Planned { subject, context, setup, surrogate, trials: selection.trials, attempts, run }
    }

    /// The report of a run without outcomes. It has all that a baseline or a journal must agree with.
    pub fn report(&self) -> Report {
        self.run.clone().report(Results::default())
    }

    /// The trials of a part of the run, if one is requested.
    pub fn share(self, partition: Option<Partition>) -> Result<Planned<'e>> {
        let Some(partition) = partition else { return Ok(self) };
        let Planned { context, setup, attempts, trials, run, .. } = &self;
        let whole = (&trials[..], &run.skipped[..]);
        let scores = &setup.suite.scores;
        let (part, own, skipped) = share(partition, &context.gallery, attempts, whole, scores)?;
        let trials = threat::list(setup.protocol, setup.plan.form, &context.gallery, &own);
        let run = Run { part: Some(part), skipped, trials, ..self.run };
        Ok(Planned { trials: own, run, ..self })
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
        let (identity, basis) = {
            let before = self.report();
            (Identity::of_process(&before), before.basis())
        };
        let Planned { subject, context, setup, surrogate, trials, attempts, run } = self;
        let Subject { dataset, prep, model, clock, speed, half, .. } = subject;
        let (dataset, prep, gallery, plan) = (&*dataset, &*prep, &context.gallery, &setup.plan);
        let progress = request.progress;
        clock.lap();
        let collector = pictures.then(|| Collector::new(gallery, &attempts, basis));
        let photographs = Photographs::of(plan, dataset, prep, &trials, progress)?;
        let photographs = photographs.as_ref();
        let work = Work { dataset, prep, context, trials: &trials, plan, photographs, speed: *speed };
        let folder = request.output.attacked.as_deref();
        let attacked = folder.map(|folder| AttackedFiles::new(folder, plan.jpeg, dataset));

        let earlier_routes = model.requested_routes();
        let mut attacks = Attacks { work, model, surrogate };
        let mut recorder = Recorder { journal, collector, attacked };
        let mut phase = Phase::new("attacks", 0, progress);
        let mut done = recorder.begin(request, &identity, trials.len())?;
        done.extend(work.of_known(known));
        let part = request.run.partition.is_some();
        let outcomes = attacks.run(&mut recorder, done, part, &mut phase)?;
        phase.finish();
        let (softened, warnings) = used_passes(attacks.model, &earlier_routes, &outcomes);
        let attacks_s = clock.lap();

        let Recorder { journal, collector, .. } = recorder;
        let half_precision = half.as_ref().map(|half| -> Result<HalfPrecision> {
            let queries = float16::sample(attempts.iter().map(|&(_, query)| query), gallery, request.seed);
            let sample = attacks.in_float32(&queries, progress)?;
            Ok(HalfPrecision { sample, ..half.clone() })
        });
        let half_precision = half_precision.transpose().map_err(|e| saved(e, journal))?;
        let check_s = clock.lap();

        let examples = collector.map(|all| all.finish(&work)).transpose();
        let examples = examples.map_err(|e| saved(e, journal))?.flatten();
        let corruptions = &setup.suite.corruptions;
        let corrupting = Corrupting { dataset, prep, gallery, corruptions, seed: request.seed };
        let corrupted = corrupting.measure(&trials, attacks.model, examples.is_some(), progress);
        let (corrupted, pictures) = corrupted.map_err(|e| saved(e, journal))?;
        let results = Results {
            image_steps: attack::image_steps(&outcomes, run.universal.map_or(0, |of| of.sample), plan),
            outcomes,
            corrupted,
            half_precision,
            examples: examples.map(|examples| Examples { corrupted: pictures, ..examples }),
            softened,
            warnings,
            attacks_s: attacks_s + clock.lap(),
            check_s,
        };
        Ok(Attacked { run, results })
    }
}

/// Nodes with a softened gradient in the backward passes that the strong search used for `outcomes`, and
/// findings on passes that could not be built. A report names them whether this process or an earlier one
/// used the passes, and none that only another report of this model needed: its routes are the `earlier`
/// ones.
fn used_passes(model: &mut Model, earlier: &[Route], outcomes: &[Outcome]) -> (Vec<String>, Vec<Warning>) {
    let mut used = Vec::new();
    for (route, or) in threat::ensemble::routes(outcomes) {
        used.extend(model.routes_taken(std::iter::once(route).chain(or)));
    }
    let own = |route| used.contains(&route) || !earlier.contains(&route);
    let unformed = model.unformed().filter(|(route, _)| own(*route));
    let findings = unformed.map(|(route, why)| warnings::unformed(route, why));
    (model.softened_nodes(own), findings.filter_map(Finding::warning).collect())
}

//! The checks that attack, and the strong search beside them.

use super::cost;
use crate::check::attacked::Outcomes;
use crate::check::plans::{self, Amount};
use crate::check::stronger_attacks::{DoctorInput, PassCount};
use crate::check::{self, CHECKS};
use crate::error::did_you_mean;
use crate::judge::score::Basis;
use crate::pipeline::attack::Work;
use crate::pipeline::embed::{Embedded, SurrogateModel};
use crate::pipeline::open::{Setup, Subject};
use crate::pipeline::selection::{Attempt, TrialSet};
use crate::pipeline::{selection, warnings};
use crate::progress::Phase;
use crate::record::{Finding, Masking, Outcome};
use crate::request::Request;
use crate::threat::objective::r1::R1;
use crate::threat::{self, Passes, Room, Selection, Trial};
use crate::{Error, Result, interrupt};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Queries of the strong search.
const STRONG_QUERIES: usize = 32;

/// The checks that attack, or those of them that are named. Errors (exit code 2): a name that none of them
/// has.
pub fn named_checks(only: &[String]) -> Result<Vec<&'static check::Check>> {
    let all: Vec<&check::Check> = CHECKS.iter().filter(|c| c.attacks()).collect();
    let names: Vec<&str> = all.iter().map(|c| c.reason.id).collect();
    if let Some(name) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::usage(format!(
            "--only {name}: only checks that attack can be chosen{}: {}",
            did_you_mean(name, &names),
            names.join(", ")
        )));
    }
    Ok(all.into_iter().filter(|c| only.is_empty() || only.iter().any(|name| name == c.reason.id)).collect())
}

/// Makes checks that attack, on the `usual` number of queries or on as many as were asked for.
pub fn attacks(
    request: &Request,
    other: Option<&Path>,
    checks: &[&check::Check],
    embedded: &mut Embedded,
    chosen: &TrialSet,
    usual: bool,
) -> Result<Vec<Finding>> {
    let other = other.map(|path| embedded.open_other(request, path)).transpose()?;
    let other = other.map(|SurrogateModel { model, context }| (model, context));
    let sample = match checks.iter().any(|c| c.strong()) {
        true => strong_sample(request, embedded, chosen, usual)?,
        false => Selection::default(),
    };
    let trials = &chosen.selection.trials;
    let strong = foresee(embedded, trials)?;
    let amount = amount(embedded, checks, trials, other.is_some(), strong);
    let seconds = announce(request, embedded, trials, &sample, amount);
    let found = strong_search(request, embedded, &sample)?;
    let Embedded {
        subject: Subject { model, dataset, prep, .. }, setup: Setup { plan, .. }, context, ..
    } = embedded;
    let plan = &*plan;
    let (softened, estimated) = (model.softened_nodes(|_| true), model.graphs.estimated);
    let pixels = |i: usize| dataset.pixels(i, prep).map(|p| p.data.into());
    let progress = Mutex::new(Phase::new("checks", 0, request.progress));
    let phase = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    phase().begin(amount.usual as u64, 0);
    phase().expect(amount.usual, seconds);
    phase().enter("the suite's attacks");
    let mut watch = |Passes { made, left }: Passes, usual: usize| {
        let mut phase = phase();
        phase.expect(made + usual, None);
        phase.advance([made, left], None);
        interrupt::check(" while checks attacked")
    };
    let work = PassCount::new(&mut watch, strong);
    let mut input = DoctorInput::new(model, context, &pixels, trials, plan, other, work)?;
    input.expect(checks);
    let mut outcomes = input.outcomes()?;
    if !found.is_empty() {
        // One of the suite's own attacks by one search is no strong search.
        outcomes.retain(|o| !R1.made(o));
        outcomes.extend(found);
    }
    let all = Outcomes {
        outcomes: &outcomes,
        ball: plan.ball,
        eps: plan.eps,
        gradient_free: !plan.search.needs_gradient,
        steps: plan.steps,
        basis: Basis::of(&context.gallery, plan.form),
        half: None,
        softened: &softened,
        estimated,
    };
    let mut findings = check::of_outcomes(&all);
    // Whether gradients are masked decides what it means that another attack is better.
    let masking = Masking::of(&findings);
    findings.retain(|finding| !is_left_out(finding, checks));
    for (i, c) in checks.iter().enumerate() {
        phase().enter(c.reason.id);
        input.expect(&checks[i..]);
        findings.extend(c.examine(&mut input, masking)?);
    }
    findings.extend(input.model.unformed().map(|(route, why)| warnings::unformed(route, why)));
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    Ok(findings)
}

/// Prints how long the checks take, and returns the usual and the largest number of seconds; `None` if the
/// speed is not known.
fn announce(
    request: &Request,
    embedded: &Embedded,
    trials: &[Trial],
    sample: &Selection,
    amount: Amount,
) -> Option<[f64; 2]> {
    let speed = embedded.subject.speed?;
    let queries = trials.iter().map(|t| t.query).collect::<BTreeSet<_>>().len();
    let plan = &embedded.setup.plan;
    request.progress.plan(&cost::announcement(speed, plan, sample.trials.len(), queries, amount));
    Some([amount.usual, amount.most].map(|passes| speed.of_passes(passes)))
}

/// What the attacks of some checks take, the suite's own included. `other`: whether there is another model.
/// `strong`: see [`foresee`].
fn amount(
    embedded: &Embedded,
    checks: &[&check::Check],
    trials: &[Trial],
    other: bool,
    strong: [usize; 2],
) -> Amount {
    let Embedded { subject: Subject { model, .. }, setup: Setup { plan, .. }, .. } = embedded;
    let widest = (plan.ball.widest)(model.pixels());
    plans::amount(plan, widest, checks, trials, Room::of(model), other, strong)
}

/// Whether a finding is that of a check that attacks, and that is none of `checks`.
fn is_left_out(finding: &Finding, checks: &[&check::Check]) -> bool {
    let check = CHECKS.iter().find(|c| c.reason.id == finding.check && c.attacks());
    check.is_some_and(|c| !checks.iter().any(|a| a.reason.id == c.reason.id))
}

/// Forward passes that the suite's strong search takes by the gradients at some queries, and those that it
/// usually takes; zeros if it is not foreseen.
fn foresee(embedded: &mut Embedded, trials: &[Trial]) -> Result<[usize; 2]> {
    let Embedded { subject, setup: Setup { plan, .. }, context, .. } = embedded;
    if plan.effort.is_none() {
        return Ok([0; 2]);
    }
    let Subject { model, dataset, prep, .. } = subject;
    let work = Work { dataset, prep, context, trials, plan, photographs: None, speed: None };
    let all: Vec<usize> = (0..trials.len()).collect();
    let Some(forecast) = work.forecast(model, &all)? else { return Ok([0; 2]) };
    let usual = |trial: &Trial| plan.usual_passes(trial.objective, trials.len(), Room::of(model));
    Ok([forecast.usual[0], trials.first().map_or(0, usual)])
}

/// The queries of the suite's attacks, for the strong search for R@1, and a few others if the number of
/// queries is the `usual` one. None where the suite is one of the strong search itself, or has no attack on
/// queries.
fn strong_sample(
    request: &Request,
    embedded: &Embedded,
    chosen: &TrialSet,
    usual: bool,
) -> Result<Selection> {
    let Embedded { setup: Setup { plan, .. }, context, .. } = embedded;
    if plan.effort.is_some() && chosen.selection.trials.iter().any(|t| t.objective.strong_only) {
        return Ok(Selection::default());
    }
    let mut attempts: Vec<Attempt> =
        chosen.attempts.iter().copied().filter(|(of, _)| !of.strong_only).collect();
    if let (true, Some(&(objective, _))) = (usual, attempts.first()) {
        // The strong search takes less time than the other checks on as many queries, and a few can't be told
        // from chance.
        let more = threat::sample_queries(&context.gallery, Some(STRONG_QUERIES), request.seed);
        attempts.extend(more.into_iter().map(|query| (objective, query)));
    }
    let none = TrialSet { selection: Selection::default(), attempts, replayed: None };
    Ok(selection::with_strong_sample(none, request, plan, context)?.selection)
}

/// The strong search for R@1, as an audit of the suite makes it.
fn strong_search(request: &Request, embedded: &mut Embedded, sample: &Selection) -> Result<Vec<Outcome>> {
    let Embedded { subject, setup: Setup { plan, .. }, context, .. } = embedded;
    let Subject { model, dataset, prep, .. } = subject;
    let trials = &sample.trials;
    if trials.is_empty() {
        return Ok(Vec::new());
    }
    let work = Work { dataset, prep, context, trials, plan, photographs: None, speed: None };
    work.run(model, "strong search", request.progress)
}

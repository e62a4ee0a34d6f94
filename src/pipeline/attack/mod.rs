//! The attacks of a run: finished trials come from the journal, the others are run and written to it.

mod forecast;
mod recorder;
mod status;
mod stopping;
mod transfer;
mod work;

use super::embed::{Embedded, SurrogateModel};
use super::open::Subject;
use super::photographs::Photographs;
use crate::model::{Differentiable, Model};
use crate::progress::{Mode, Phase};
use crate::record::Outcome;
use crate::request::Request;
use crate::threat::{self, AttackContext, Event, Evidence, Objective, Passes, Room, Strong, Trial, Watch};
use crate::{Error, Result, interrupt};
pub use forecast::image_steps;
pub use recorder::Recorder;
use status::{Hint, Status};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
pub use stopping::saved;
use stopping::stopped;
pub use work::Work;

/// Surrogate model and its gallery, for transfer attacks.
pub struct Surrogate<'a> {
    /// The model.
    pub model: &'a mut Model,
    /// Its embeddings of the images.
    pub context: &'a AttackContext,
}

impl SurrogateModel {
    /// The surrogate for a plan.
    pub fn lend(&mut self) -> Surrogate<'_> {
        Surrogate { model: &mut self.model, context: &self.context }
    }
}

impl Embedded {
    /// Runs an objective, of the program or of the caller, on the request's queries, with the suite's ball,
    /// search and steps. Leaves out queries that the objective can't attack. Errors: those of the attacks; an
    /// objective on hubs, thresholds or shared perturbations, if the suite has no such attack (exit code 2).
    pub fn attack(&mut self, request: &Request, objective: &'static Objective) -> Result<Vec<Outcome>> {
        let Embedded { subject, setup, context, queries, .. } = self;
        if !context.serves(objective) {
            return Err(Error::usage(format!(
                "{} needs a hub, a threshold or samples of queries, and suite {} has no attack on these: choose one that has",
                objective.code, setup.suite.name
            )));
        }
        let Subject { dataset, prep, model, .. } = subject;
        let plan = &setup.plan;
        let count = objective.several.map_or(1, |(_, usual)| usual);
        let trials = threat::select(context, objective, count, plan.form, request.seed, queries)?.trials;
        let photographs = Photographs::of(plan, dataset, prep, &trials, request.progress)?;
        let work = Work {
            dataset,
            prep,
            context,
            trials: &trials,
            plan,
            photographs: photographs.as_ref(),
            speed: None,
        };
        work.run(model, "attacks", request.progress)
    }
}

/// Trials, and the models that they run on.
pub struct Attacks<'a> {
    /// The trials.
    pub work: Work<'a>,
    /// The audited model.
    pub model: &'a mut Model,
    /// The surrogate, if there is one.
    pub surrogate: Option<Surrogate<'a>>,
}

impl Attacks<'_> {
    /// Runs the trials without those that are `done`, and returns the outcomes of all, in their order. A
    /// finished trial is recorded at once. `part`: the trials are a part of a run, whose other parts must
    /// have the same number of queries. Errors: those that end the attacks (exit code 130 if the user asked
    /// for an end), with the next step.
    pub fn run(
        &mut self,
        recorder: &mut Recorder,
        done: Vec<(usize, Outcome)>,
        part: bool,
        phase: &mut Phase,
    ) -> Result<Vec<Outcome>> {
        let work = self.work;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; work.trials.len()];
        for (place, outcome) in done {
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = Some(outcome);
            }
        }
        if let Err(e) = self.rest(recorder, &mut outcomes, part, phase) {
            let done = outcomes.iter().flatten().count();
            return Err(stopped(e, recorder.journal, done, work.trials.len()));
        }
        let mut outcomes = finished(outcomes)?;
        // Trials of an earlier process that are shown, or lack their file, run again. Another processor may
        // round otherwise, and then the outcome counts that the picture and the file show.
        let again = recorder.missing(&work, &outcomes);
        let ran = self.each(&again, &mut |at, outcome, evidence| {
            outcomes[again[at]] = outcome.clone();
            recorder.show(&work, outcome, evidence)
        });
        ran.and_then(|()| recorder.finish(&work, &outcomes)).map_err(|e| saved(e, recorder.journal))?;
        Ok(outcomes)
    }

    /// Runs the trials at `places` and returns their outcomes in this order.
    pub fn images(&mut self, places: &[usize]) -> Result<Vec<(Outcome, Evidence)>> {
        let mut found = vec![None; places.len()];
        self.each(places, &mut |at, outcome, evidence| {
            found[at] = Some((outcome.clone(), evidence.clone()));
            Ok(())
        })?;
        let all: Option<Vec<_>> = found.into_iter().collect();
        all.ok_or_else(|| Error::internal("a trial did not finish; please report this"))
    }

    /// Runs the trials at `places`. `see` gets each finished one, with its index in `places`.
    fn each(
        &mut self,
        places: &[usize],
        see: &mut (dyn FnMut(usize, &Outcome, &Evidence) -> Result<()> + Send),
    ) -> Result<()> {
        let mut end = Ok(());
        self.attack_as_planned(places, &mut |event| {
            // Trials that end after the first error are reported too.
            if end.is_ok() {
                end = match event {
                    Event::Step { .. } => interrupt::check(""),
                    Event::Further(_) | Event::Broken(_) => Ok(()),
                    Event::Done(at, outcome, evidence) => see(at, outcome, evidence),
                };
            }
            unless_ended(&end)
        })?;
        end
    }

    /// Repeats the trials of some queries with float32 steps, if the others ran in float16.
    pub fn in_float32(&mut self, queries: &BTreeSet<usize>, mode: Mode) -> Result<Vec<Outcome>> {
        let work = self.work;
        let mut phase = Phase::new("sample in float32", 0, mode);
        let repeats =
            |trial: &Trial| queries.contains(&trial.query) && work.plan.strong(trial.objective).is_none();
        let places: Vec<usize> = (0..work.trials.len()).filter(|&i| repeats(&work.trials[i])).collect();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; places.len()];
        phase.begin((places.len() * work.plan.steps * (work.plan.restarts + 1)) as u64, 0);
        let mut end = Ok(());
        let ran = work.search(self.model.workers(), &places, &mut |event| {
            match event {
                Event::Step { passes, .. } => {
                    phase.advance([passes.made, passes.left], None);
                    end = interrupt::check(" while a sample was repeated in float32");
                }
                Event::Further(_) | Event::Broken(_) => (),
                Event::Done(at, outcome, _) => outcomes[at] = Some(outcome.clone()),
            }
            unless_ended(&end)
        });
        end?;
        ran?;
        phase.finish();
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Runs the trials without an outcome.
    fn rest(
        &mut self,
        recorder: &mut Recorder,
        outcomes: &mut [Option<Outcome>],
        part: bool,
        phase: &mut Phase,
    ) -> Result<()> {
        let work = self.work;
        let left: Vec<usize> = (0..outcomes.len()).filter(|&i| outcomes[i].is_none()).collect();
        let steps = |trial: &Trial| work.plan.work(trial.objective);
        let all: usize = work.trials.iter().map(steps).sum();
        let to_do: usize = left.iter().map(|&i| steps(&work.trials[i])).sum();
        phase.begin(all as u64, (all - to_do) as u64);
        let expected = self.expected(&left)?;
        let queries = || work.trials.iter().map(|trial| trial.query).collect::<BTreeSet<_>>().len();
        // An audit that was begun, or a part of one, can't be continued with fewer queries.
        let may_shorten = !part && to_do == all;
        let hint = Hint { queries: may_shorten.then(queries), saved: recorder.journal.is_some() };
        let mut status = Status::new(work, outcomes, expected, hint, phase);
        let mut end = Ok(());
        let ran = self.attack_as_planned(&left, &mut |event| {
            match event {
                // A batch is measured to its end even if the journal couldn't save one of its trials.
                _ if end.is_err() => {}
                Event::Step { passes, at, .. } => {
                    status.step(passes, at);
                    end = interrupt::check("");
                }
                Event::Further(further) => status.further(&further),
                Event::Broken(at) => status.broken(&work.trials[left[at]]),
                Event::Done(at, outcome, evidence) => {
                    let place = left[at];
                    end = recorder.add(&work, place, outcome, evidence);
                    outcomes[place] = Some(outcome.clone());
                    status.done(&work.trials[place]);
                }
            }
            unless_ended(&end)
        });
        end?;
        ran
    }

    /// Runs the trials at `places`: those of one search in the precision that the model was opened for, then
    /// those of the strong search. `watch` gets indices into `places`, and the steps of both together.
    fn attack_as_planned(&mut self, places: &[usize], watch: &mut Watch) -> Result<()> {
        let Attacks { work, model, surrogate } = self;
        if let Some(other) = surrogate {
            return work.transfer(other, model, places, watch);
        }
        let (strong, plain): (Vec<usize>, Vec<usize>) =
            (0..places.len()).partition(|&at| work.plan.strong(work.trials[places[at]].objective).is_some());
        let whole = |of: &[usize]| of.iter().map(|&at| places[at]).collect::<Vec<usize>>();
        let room = Room::of(model);
        let mut after = work.most_passes(strong.iter().map(|&at| places[at]), room);
        let (mut before, mut made, mut ended) = (0, 0, false);
        for (of, is_strong) in [(plain, false), (strong, true)] {
            if is_strong {
                after = 0;
            }
            let (mut latest, mut now) = (0, made);
            let mut mapped = |event: Event| {
                let flow = match event {
                    Event::Step { done, passes, at } => {
                        latest = done;
                        now = made + passes.made;
                        let passes = Passes { made: now, left: passes.left + after };
                        watch(Event::Step { done: before + latest, passes, at })
                    }
                    Event::Further(further) => watch(Event::Further(further)),
                    Event::Broken(i) => watch(Event::Broken(of[i])),
                    Event::Done(i, outcome, evidence) => watch(Event::Done(of[i], outcome, evidence)),
                };
                ended |= flow.is_break();
                flow
            };
            if is_strong {
                let shape = model.shape();
                let search = |strong: &Strong| strong.run(&mut model.passes_for_search(), &mut mapped);
                work.with_strong(shape, &whole(&of), search)?;
            } else {
                let mut workers = model.workers_in_half();
                let workers = workers.iter_mut().map(|worker| worker as &mut dyn Differentiable).collect();
                work.search(workers, &whole(&of), &mut mapped)?;
            }
            before += latest;
            made = now;
            if ended {
                break;
            }
        }
        Ok(())
    }
}

/// Ends a run at its first error.
fn unless_ended(end: &Result<()>) -> ControlFlow<()> {
    if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The outcomes of trials, all of which have run.
fn finished(outcomes: Vec<Option<Outcome>>) -> Result<Vec<Outcome>> {
    let of = outcomes.len();
    let done: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    match done.len() == of {
        true => Ok(done),
        false => {
            Err(Error::internal(format!("only {} of {of} trials finished. Please report this", done.len())))
        }
    }
}

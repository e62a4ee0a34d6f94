//! The attacks of a run: finished trials come from the journal, the others are run and written to it.

use super::attacked_files::AttackedFiles;
use super::cost::{PATIENCE, Speed, foreseen, revised};
use super::embed::{Embedded, SurrogateModel};
use super::examples::Collector;
use super::open::Subject;
use super::photographs::Photographs;
use super::plan::saved;
use crate::data::{Dataset, Preparation};
use crate::model::{Differentiable, Model};
use crate::progress::{Announcement, Mode, Phase, Position, span};
use crate::record::{Outcome, Report, Space};
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::shards::journal::Journal;
use crate::threat::{
    self, AttackContext, CleanImage, Event, Evidence, Forecast, ImageSource, Objective, Others, Passes, Plan,
    QueryFiles, Room, Strong, Trial, Watch,
};
use crate::{Error, Exit, Result, interrupt};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// Maximum size of all decoded queries, in bytes, for keeping them from one attack to the next.
const MAX_DECODED_BYTES: usize = 64 << 20;

/// Trials on the surrogate between two measurements: enough to fill its batches, few enough to hold their
/// images.
const TOGETHER: usize = 512;

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

/// Trials and their images.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The images.
    pub dataset: &'a Dataset,
    /// How they become pixels.
    pub prep: &'a Preparation,
    /// The audited model's embeddings of them.
    pub context: &'a AttackContext,
    /// The trials of this process.
    pub trials: &'a [Trial],
    /// How each is run.
    pub plan: &'a Plan,
    /// The queries' photographs, if some attack changes them; `None` if all change the model's input.
    pub photographs: Option<&'a Photographs>,
    /// Speed of the audited model; `None` if the time of the attacks is not shown.
    pub speed: Option<Speed>,
}

/// Trials, and the models that they run on.
pub struct Attacks<'a> {
    /// The trials.
    pub work: Work<'a>,
    /// The audited model.
    pub model: &'a mut Model,
    /// The surrogate, if there is one.
    pub surrogate: Option<Surrogate<'a>>,
    /// Folder for changed photographs.
    pub attacked: Option<AttackedFiles>,
    /// Whether the trials are a part of a run. The other parts must have the same number of queries.
    pub part: bool,
}

/// Begins or continues the journal, and returns the outcomes of an earlier process among the report's
/// `trials` trials, by place. Errors (exit code 2): the journal is of another run.
pub fn earlier(
    journal: &mut Option<Journal>,
    request: &Request,
    report: &Report,
    trials: usize,
) -> Result<Vec<(usize, Outcome)>> {
    let done = match journal {
        Some(j) => {
            j.begin(Identity::of_process(report), request.run.partition.map(|p| p.to_string()), trials)?
        }
        None => Vec::new(),
    };
    match done.len() {
        0 if request.run.resume => {
            request.progress.note("no trial is done yet: the run starts from the beginning")
        }
        0 => {}
        n => request.progress.note(&format!("{n} of {trials} trials are done already")),
    }
    Ok(done)
}

impl Attacks<'_> {
    /// Runs the trials without those that are `done`, and returns the outcomes of all, in their order. A
    /// finished trial is written to the journal at once. Errors: those that end the attacks (exit code 130 if
    /// the user asked for an end), with the next step.
    pub fn run(
        &mut self,
        journal: &mut Option<Journal>,
        done: Vec<(usize, Outcome)>,
        collector: &mut Option<Collector>,
        progress: &mut Phase,
    ) -> Result<Vec<Outcome>> {
        let work = self.work;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; work.trials.len()];
        for (place, outcome) in done {
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = Some(outcome);
            }
        }
        let count = |outcomes: &[Option<Outcome>]| outcomes.iter().flatten().count();
        let ended = self.rest(journal, &mut outcomes, collector, progress);
        if let Err(e) = ended {
            return Err(stopped(e, journal, count(&outcomes), work.trials.len()));
        }
        let outcomes = finished(outcomes)?;
        // Trials of an earlier process that the report shows or the folder needs are run again, with the same
        // result.
        let attacked = self.attacked.take();
        let mut again: BTreeSet<usize> = BTreeSet::new();
        if let Some(collector) = collector {
            again.extend(collector.unseen(&work.context.gallery, &outcomes));
        }
        if let Some(attacked) = &attacked {
            again.extend((0..outcomes.len()).filter(|&i| !attacked.has(&outcomes[i])));
        }
        self.each(&Vec::from_iter(again), &mut |_, outcome, evidence| {
            if let Some(collector) = collector {
                collector.see(&work.context.gallery, outcome, evidence);
            }
            attacked.as_ref().map_or(Ok(()), |files| files.write(outcome, evidence))
        })
        .map_err(|e| saved(e, journal))?;
        if let Some(attacked) = &attacked {
            let listed = attacked.finish(&outcomes, &work.context.gallery, work.dataset, work.plan.form);
            listed.map_err(|e| saved(e, journal))?;
        }
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
            if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        end
    }

    /// Repeats the trials of some queries with float32 steps, if the others ran in float16.
    pub fn in_float32(&mut self, queries: &BTreeSet<usize>, mode: Mode) -> Result<Vec<Outcome>> {
        let work = self.work;
        let mut progress = Phase::new("sample in float32", 0, mode);
        let repeats =
            |trial: &Trial| queries.contains(&trial.query) && work.plan.strong(trial.objective).is_none();
        let places: Vec<usize> = (0..work.trials.len()).filter(|&i| repeats(&work.trials[i])).collect();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; places.len()];
        progress.begin((places.len() * work.plan.steps * (work.plan.restarts + 1)) as u64, 0);
        let mut end = Ok(());
        let ran = work.search(self.model.workers(), &places, &mut |event| {
            match event {
                Event::Step { passes, .. } => {
                    progress.advance([passes.made, passes.left], None);
                    end = interrupt::check(" while a sample was repeated in float32");
                }
                Event::Further(_) | Event::Broken(_) => (),
                Event::Done(at, outcome, _) => outcomes[at] = Some(outcome.clone()),
            }
            if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        end?;
        ran?;
        progress.finish();
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Runs the trials without an outcome.
    fn rest(
        &mut self,
        journal: &mut Option<Journal>,
        outcomes: &mut [Option<Outcome>],
        collector: &mut Option<Collector>,
        progress: &mut Phase,
    ) -> Result<()> {
        let work = self.work;
        let left: Vec<usize> = (0..outcomes.len()).filter(|&i| outcomes[i].is_none()).collect();
        let steps = |places: &mut dyn Iterator<Item = usize>| -> usize {
            places.map(|i| work.plan.work(work.trials[i].objective)).sum()
        };
        let (all, to_do) = (steps(&mut (0..work.trials.len())), steps(&mut left.iter().copied()));
        let mut queries: HashMap<&str, Counted> = HashMap::new();
        for (trial, outcome) in work.trials.iter().zip(outcomes.iter()) {
            let counted = queries.entry(trial.objective.code).or_default();
            counted.done += usize::from(outcome.is_some());
            counted.broken += usize::from(outcome.as_ref().is_some_and(is_broken));
            counted.of += 1;
        }
        progress.begin(all as u64, (all - to_do) as u64);
        // The number of correct queries, if it is known, and the forward passes that are expected.
        let (correct, mut expected) = match self.forecast(&left)? {
            Some((correct, plan, passes)) => {
                progress.plan(&plan);
                progress.expect(passes, Some([plan.seconds, plan.seconds_at_most]));
                (Some(correct), passes)
            }
            None => {
                let model = self.surrogate.as_ref().map_or(&*self.model, |other| &*other.model);
                let passes = work.usual_passes(left.iter().copied(), Room::of(model));
                progress.expect(passes, None);
                (None, passes)
            }
        };
        // An audit that was begun, or a part of one, can't be continued with fewer queries.
        let may_shorten = !self.part && to_do == all;
        let attacked_queries = || work.trials.iter().map(|trial| trial.query).collect::<BTreeSet<_>>().len();
        let query_count = may_shorten.then(attacked_queries);
        let saved = journal.is_some();
        let (mut warned, mut made, mut withstood) = (false, 0, Vec::new());
        let attacked = self.attacked.take();
        let mut end = Ok(());
        let ran = self.attack_as_planned(&left, &mut |event| {
            match event {
                // A batch is measured to its end even if the journal couldn't save one of its trials.
                _ if end.is_err() => {}
                Event::Step { passes, at, .. } => {
                    let at = at.map(|(trial, step)| {
                        let Counted { done, broken, of } = queries[trial.objective.code];
                        let steps =
                            if work.plan.strong(trial.objective).is_some() { 0 } else { work.plan.steps };
                        Position { attack: trial.objective.code, step, steps, queries: done, broken, of }
                    });
                    made = passes.made;
                    // What takes longer than expected takes what is left at most.
                    if made > expected {
                        expected = made + passes.left;
                        progress.expect(expected, None);
                    }
                    progress.advance([made, passes.left], at);
                    let (spent, [more, most]) = progress.times();
                    if let Some(more) = more
                        && !warned
                        && spent > SETTLED
                    {
                        warned = true;
                        if let Some(text) = long(more, most, query_count, saved) {
                            progress.note(&wrap(&text));
                        }
                    }
                    end = interrupt::check("");
                }
                // The strong search attacks many queries in parts. The first part predicts the others.
                Event::Further(further) if !withstood.contains(&further.eps) => {
                    withstood.push(further.eps);
                    let (spent, _) = progress.times();
                    let pace = progress.pace().unwrap_or(spent / made.max(1) as f64);
                    progress.plan(&revised(&further, pace, work.plan.ball.name));
                    let part = made + further.usual;
                    let all = of_all_parts(part, further.of, correct).unwrap_or(part.max(expected));
                    expected = all;
                    progress.expect(all, None);
                }
                Event::Further(_) => (),
                Event::Broken(at) => {
                    queries.entry(work.trials[left[at]].objective.code).or_default().broken += 1;
                }
                Event::Done(at, outcome, evidence) => {
                    let place = left[at];
                    // The file of a trial is written before the trial is added to the journal.
                    end = attacked.as_ref().map_or(Ok(()), |files| files.write(outcome, evidence));
                    if end.is_ok() {
                        end = journal.as_mut().map_or(Ok(()), |j| j.add(place, outcome));
                    }
                    outcomes[place] = Some(outcome.clone());
                    queries.entry(work.trials[place].objective.code).or_default().done += 1;
                    if let Some(collector) = collector {
                        collector.see(&work.context.gallery, outcome, evidence);
                    }
                }
            }
            if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.attacked = attacked;
        end?;
        ran
    }

    /// How long the trials at `places` take, once the gallery is known: the number of correct queries, what
    /// is told, and the forward passes of all workers. `None` if nobody is told, or if no smallest
    /// perturbation is searched for.
    fn forecast(&mut self, places: &[usize]) -> Result<Option<(usize, Announcement, usize)>> {
        let Attacks { work, model, surrogate: None, .. } = self else { return Ok(None) };
        let Some(speed) = work.speed else { return Ok(None) };
        Ok(work.forecast(model, places)?.map(|forecast| {
            let plan = foreseen(&forecast, speed, work.plan);
            let passes = match work.plan.space {
                // A pass on a photograph counts as several.
                Space::Input => (plan.seconds / speed.of_passes(1)).ceil() as usize,
                Space::File => forecast.usual[0],
            };
            (forecast.correct, plan, passes)
        }))
    }

    /// Runs the trials at `places`: those of one search in the precision that the model was opened for, then
    /// those of the strong search. `watch` gets indices into `places`, and the steps of both together.
    fn attack_as_planned(&mut self, places: &[usize], watch: &mut Watch) -> Result<()> {
        let Attacks { work, model, surrogate, .. } = self;
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

impl Work<'_> {
    /// What the trials at `places` take by the gradients at some of them; `None` if no smallest perturbation
    /// is searched for.
    pub fn forecast(&self, model: &mut Model, places: &[usize]) -> Result<Option<Forecast>> {
        let ends = |&at: &usize| self.plan.ladder_of(self.trials[at].objective).is_none();
        if model.info.estimated || places.iter().any(ends) {
            return Ok(None);
        }
        let mut forecast = None;
        self.with_strong(model.shape(), places, |strong| {
            forecast = strong.forecast(model.workers())?;
            Ok(())
        })?;
        Ok(forecast)
    }

    /// Runs the trials on a model, where no trial is ever saved, and returns their outcomes.
    pub fn run(self, model: &mut Model, phase: &'static str, mode: Mode) -> Result<Vec<Outcome>> {
        let mut phase = Phase::new(phase, 0, mode);
        let mut attacks = Attacks { work: self, model, surrogate: None, attacked: None, part: false };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.trials.len()];
        attacks.rest(&mut None, &mut outcomes, &mut None, &mut phase)?;
        phase.finish();
        finished(outcomes)
    }

    /// Outcomes among `known` that belong to trials of this run, by place.
    pub fn of_known(&self, known: &[Outcome]) -> Vec<(usize, Outcome)> {
        let key = |o: &Outcome| (o.attack.clone(), o.query.clone(), o.targets.clone());
        let known: HashMap<_, &Outcome> = known.iter().map(|o| (key(o), o)).collect();
        let id = |i: usize| self.context.gallery.ids[i].clone();
        let of = |t: &Trial| {
            (t.objective.code.to_string(), id(t.query), t.targets.iter().map(|&i| id(i)).collect::<Vec<_>>())
        };
        let trials = self.trials.iter().enumerate();
        trials.filter_map(|(place, trial)| Some((place, (*known.get(&of(trial))?).clone()))).collect()
    }

    /// Runs the trials at `places` on another model and measures the images on `model`. Losses and steps are
    /// those of the search, on the other model; measures are the audited model's, and ES:D is measured at the
    /// end.
    fn transfer(
        &self,
        other: &mut Surrogate,
        model: &mut Model,
        places: &[usize],
        watch: &mut Watch,
    ) -> Result<()> {
        let (form, mut before, mut at) = (self.plan.form, 0, 0);
        let Surrogate { model: other, context: others } = other;
        let room = Room::of(other);
        let mut spent = 0;
        for (chunk, some) in places.chunks(TOGETHER).enumerate() {
            let later = self.most_passes(places.iter().skip((chunk + 1) * TOGETHER).copied(), room);
            let mut now = spent;
            let trials: Vec<Trial> = some.iter().map(|&i| self.trials[i].clone()).collect();
            let mut made: Vec<(usize, Outcome, Evidence)> = Vec::new();
            let (mut latest, pixels) = (0, other.pixels());
            self.with_images(&trials, pixels, |images| {
                let mut collect = |event: Event| match event {
                    Event::Step { done, passes, at } => {
                        latest = done;
                        now = spent + passes.made;
                        let passes = Passes { made: now, left: passes.left + later };
                        watch(Event::Step { done: before + done, passes, at })
                    }
                    Event::Further(_) | Event::Broken(_) => ControlFlow::Continue(()),
                    Event::Done(i, outcome, evidence) => {
                        made.push((i, outcome.clone(), evidence.clone()));
                        ControlFlow::Continue(())
                    }
                };
                threat::run(other.workers(), others, images, &trials, self.plan, &mut collect).map(drop)
            })?;
            let whole = made.len() == trials.len();
            made.sort_by_key(|(i, ..)| *i);
            let own: Vec<Trial> = made.iter().map(|(i, ..)| trials[*i].clone()).collect();
            let images: Vec<Vec<f32>> = made.iter().map(|(.., evidence)| evidence.image.clone()).collect();
            let (_, points) = threat::losses(model.workers(), self.context, form, &own, &images)?;
            let points: Vec<Vec<f32>> = points.outer_iter().map(|point| point.to_vec()).collect();
            let clean = |t: &Trial| self.context.gallery.point(t.query);
            let states = |points: Vec<&[f32]>| {
                threat::measure_all(self.context, form, &own.iter().zip(points).collect::<Vec<_>>())
            };
            let first = states(own.iter().map(clean).collect());
            let last = states(points.iter().map(Vec::as_slice).collect());
            let measured = own.iter().zip(points).zip(first.into_iter().zip(last));
            for ((i, outcome, evidence), ((trial, point), (first, last))) in made.into_iter().zip(measured) {
                let shift = self.context.gallery.metric.distance(&point, clean(trial));
                let outcome =
                    Outcome { before: first, after: last, shift, shift_before_last: shift, ..outcome };
                if watch(Event::Done(at + i, &outcome, &Evidence { point, ..evidence })).is_break() {
                    return Ok(());
                }
            }
            if !whole {
                return Ok(());
            }
            (before, at, spent) = (before + latest, at + some.len(), now);
        }
        Ok(())
    }

    /// Upper bound on the forward passes of the trials at `places`.
    fn most_passes(&self, places: impl Iterator<Item = usize>, room: Room) -> usize {
        self.of_each(places, |objective, count| self.plan.most_passes(objective, count, room))
    }

    /// Forward passes that they usually take.
    fn usual_passes(&self, places: impl Iterator<Item = usize>, room: Room) -> usize {
        self.of_each(places, |objective, count| self.plan.usual_passes(objective, count, room))
    }

    /// The sum of `passes` over the objectives of the trials at `places`, with the number of their trials.
    fn of_each(
        &self,
        places: impl Iterator<Item = usize>,
        passes: impl Fn(&Objective, usize) -> usize,
    ) -> usize {
        let mut queries: BTreeMap<&str, (&Objective, usize)> = BTreeMap::new();
        for place in places {
            let objective = self.trials[place].objective;
            queries.entry(objective.code).or_insert((objective, 0)).1 += 1;
        }
        queries.into_values().map(|(objective, count)| passes(objective, count)).sum()
    }

    /// Runs the plan's search on the trials at `places`.
    fn search(
        &self,
        workers: Vec<&mut dyn Differentiable>,
        places: &[usize],
        watch: &mut Watch,
    ) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let trials: Vec<Trial> = places.iter().map(|&i| self.trials[i].clone()).collect();
        let pixels = workers.first().map_or(0, |worker| worker.pixels());
        self.with_images(&trials, pixels, |images| {
            threat::run(workers, self.context, images, &trials, self.plan, watch).map(drop)
        })
    }

    /// Calls `work` with the strong search on the trials at `places`, if there are any.
    fn with_strong(
        &self,
        shape: [usize; 3],
        places: &[usize],
        work: impl FnOnce(&Strong) -> Result<()>,
    ) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let trials: Vec<Trial> = places.iter().map(|&i| self.trials[i].clone()).collect();
        let pixels = shape.iter().product();
        self.with_images(&trials, pixels, |images| {
            let effort = self.plan.effort.unwrap_or(1);
            let Work { context, plan, photographs, .. } = *self;
            let inputs = |i: usize| Ok(self.dataset.pixels(i, self.prep)?.data.into());
            let others = Others { images: &inputs, shape };
            let in_files = plan.space == Space::File;
            let largest = photographs.and_then(|all| all.sizes().max()).unwrap_or(pixels);
            let own = if in_files { largest } else { pixels };
            let strong =
                Strong { context, images, trials: &trials, plan, effort, others, largest: own, files: None };
            let Some(photographs) = photographs.filter(|_| !in_files) else { return work(&strong) };
            self.with_photographs(photographs, &trials, |images| {
                let resized = |i: usize| photographs.resized(i);
                // Without a measurement: a step on a photograph of a megapixel takes hardly longer.
                let weight = self.speed.map_or(1.0, |speed| 1.0 + speed.photograph_s / speed.step_s);
                work(&Strong {
                    files: Some(QueryFiles { images, resized: &resized, largest, weight }),
                    ..strong
                })
            })
        })
    }

    /// Calls `work` with the clean images of the trials' queries, as attacks change them.
    fn with_images(
        &self,
        trials: &[Trial],
        pixels: usize,
        work: impl FnOnce(&ImageSource) -> Result<()>,
    ) -> Result<()> {
        match self.photographs.filter(|_| self.plan.space == Space::File) {
            Some(photographs) => self.with_photographs(photographs, trials, work),
            None => {
                let decode = |i: usize| self.dataset.pixels(i, self.prep).map(|p| p.data.into());
                let queries: BTreeSet<usize> = trials.iter().map(|trial| trial.query).collect();
                decoded_once(&decode, queries.len() * pixels, queries, work)
            }
        }
    }

    /// Calls `work` with the photographs of the trials' queries.
    fn with_photographs(
        &self,
        photographs: &Photographs,
        trials: &[Trial],
        work: impl FnOnce(&ImageSource) -> Result<()>,
    ) -> Result<()> {
        let decode = |i: usize| photographs.image(self.dataset, self.prep, i);
        decoded_once(
            &decode,
            photographs.sizes().sum(),
            trials.iter().map(|trial| trial.query).collect(),
            work,
        )
    }
}

/// The passes of all parts, if one takes so many for `of` of the correct queries; `None` if it is unknown how
/// many these are, because other attacks follow.
fn of_all_parts(passes: usize, of: usize, correct: Option<usize>) -> Option<usize> {
    correct.map(|correct| passes * correct.max(of) / of.max(1))
}

/// Queries of an attack.
#[derive(Clone, Copy, Default)]
struct Counted {
    done: usize,
    /// Those that the strong search has broken so far.
    broken: usize,
    of: usize,
}

/// Whether the strong search reached the goal of a trial. One that is reached without an attack has no
/// members.
fn is_broken(outcome: &Outcome) -> bool {
    outcome.members.as_ref().is_some_and(|all| all.is_empty() || all.iter().any(|member| member.reached))
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

/// Calls `work` with images of `values` values in all. Every attack asks for the same queries: if they fit
/// into memory, each is decoded once.
fn decoded_once(
    decode: &ImageSource,
    values: usize,
    queries: BTreeSet<usize>,
    work: impl FnOnce(&ImageSource) -> Result<()>,
) -> Result<()> {
    let fit = values * size_of::<f32>() <= MAX_DECODED_BYTES;
    let decoded: HashMap<usize, OnceLock<CleanImage>> =
        queries.into_iter().filter(|_| fit).map(|i| (i, OnceLock::new())).collect();
    let images = |i: usize| match decoded.get(&i) {
        None => decode(i),
        Some(image) => match image.get() {
            Some(image) => Ok(image.clone()),
            None => decode(i).map(|new| image.get_or_init(|| new).clone()),
        },
    };
    work(&images)
}

/// Image steps of a report's outcomes. The strong search counts all its own steps, and shared perturbations
/// have those on their samples.
pub fn image_steps(report: &Report, plan: &Plan) -> usize {
    let (mut steps, mut shared) = (0, BTreeMap::new());
    for o in &report.outcomes {
        if let (Some(which), Ok(objective)) = (o.shared, Objective::find(&o.attack)) {
            shared.insert((which, objective.code), plan.work(objective));
        } else {
            steps += if o.members.is_some() { o.steps } else { o.steps * (plan.restarts + 1) };
        }
    }
    let sample = report.universal.map_or(0, |of| of.sample);
    steps + sample * shared.into_values().sum::<usize>()
}

/// Seconds after which the estimate of the time left is good enough for a hint.
const SETTLED: f64 = 20.0;

/// The hint in a long audit: about `left` seconds, at most `most`, and whether trials are saved. `queries`:
/// their number, if the audit may be started again with fewer.
fn long(left: f64, most: Option<f64>, queries: Option<usize>, saved: bool) -> Option<String> {
    let few = queries.map_or(0, |queries| (queries as f64 * PATIENCE / left) as usize / 10 * 10);
    let most = most.map(|most| most.max(left));
    let both = |share: f64| {
        let most = most.map_or(String::new(), |most| format!(", at most {}", span(most * share)));
        format!("{}{most}", span(left * share))
    };
    let fewer = if few < 10 {
        String::new()
    } else {
        let share = few as f64 / queries.unwrap_or(few) as f64;
        format!("; --max-queries {few} would take about {}", both(share))
    };
    let lost = if saved { "" } else { "; without -o or --journal nothing is saved if it is interrupted" };
    (left > PATIENCE).then(|| format!("this takes about {} more{fewer}{lost}", both(1.0)))
}

/// The error that ended the attacks, with the number of saved trials and how to continue.
fn stopped(mut error: Error, journal: &mut Option<Journal>, done: usize, of: usize) -> Error {
    match journal {
        // Embeddings that aren't finite would end the same trials again.
        Some(journal) if error.exit == Exit::Untrusted => journal.done(),
        Some(journal) if done > 0 => {
            let what = journal.saved("continues");
            error.message = format!("{}. {done} of {of} trials are done and {what}", error.message);
        }
        _ if error.exit == Exit::Interrupted => {
            // Of a sweep, those of an earlier point.
            let next = interrupt::saved().unwrap_or_else(|| {
                let why = match journal {
                    Some(_) => "No trial was done yet",
                    None => "Without -o or --journal no trial is saved",
                };
                format!("{why}. {}", interrupt::next_step())
            });
            error.message = format!("{}. {next}", error.message);
        }
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::{is_broken, long, of_all_parts};
    use crate::record::{MemberResult, Outcome};

    /// By hand: of 300 correct queries, the first 100 take 50 passes.
    #[test]
    fn the_first_part_predicts_the_others() {
        assert_eq!(of_all_parts(50, 100, Some(300)), Some(150));
        assert_eq!(of_all_parts(50, 100, Some(100)), Some(50));
        assert_eq!(of_all_parts(50, 100, None), None);
    }

    /// The strong search makes no attack on a query that is wrong without one.
    #[test]
    fn queries_of_an_earlier_process_count_as_broken() {
        let member =
            |reached| MemberResult { member: "margin".into(), steps: 1, value: 0.0, reached, counts: true };
        let broken = |members| is_broken(&Outcome { members, ..Outcome::default() });
        assert!(broken(Some(vec![])) && broken(Some(vec![member(false), member(true)])));
        assert!(!broken(Some(vec![member(false)])) && !broken(None));
    }

    #[test]
    fn long_audits_say_what_shortens_them() {
        assert_eq!(long(600.0, Some(2000.0), Some(960), false), None);
        let text = long(13_000.0, Some(26_000.0), Some(960), false).unwrap();
        assert_eq!(
            text,
            "this takes about 3 h 36 min, at most 7 h 13 min more; --max-queries 60 would take about 14 min, at most 28 min; without \
             -o or --journal nothing is saved if it is interrupted"
        );
        // An audit of even fewer queries would not help.
        let alone = "this takes about 27 h 46 min more";
        assert_eq!(long(100_000.0, None, Some(50), true).unwrap(), alone);
        assert_eq!(long(100_000.0, None, None, true).unwrap(), alone);
    }
}

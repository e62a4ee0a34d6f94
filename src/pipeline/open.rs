//! The first step of an audit: the model and the images are opened and checked.

use super::cost::{Amount, Outlook, Speed, ranking};
use super::machine::Machine;
use super::{images, photographs, settings, warnings};
use crate::cache::load_check::{CheckCache, Checked};
use crate::check;
use crate::check::preprocessing::PreprocessingSample;
use crate::data::vectors::{self, ForeignTargets, Vectors};
use crate::data::{Dataset, Preparation};
use crate::error::did_you_mean;
use crate::feature::verification;
use crate::model::Model;
use crate::model::card::{Card, usual_others};
use crate::progress::{Meter, Mode, Phase};
use crate::record::{
    EpsAlpha, Finding, GradientCheck, HalfPrecision, Metric, Protocol, Role, Severity, Space, Timing, reason,
};
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::suite::Suite;
use crate::threat::Plan;
use crate::{Error, Result, interrupt};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// A model and the images that it is audited on, both checked.
pub struct Subject {
    /// Description of the model by flags and card.
    pub card: Card,
    /// The images.
    pub dataset: Dataset,
    /// The execution provider.
    pub machine: Machine,
    /// The audited model.
    pub model: Model,
    /// The distance between embeddings.
    pub metric: Metric,
    /// How images become the model's pixels.
    pub prep: Preparation,
    /// The measurements of the check at load.
    pub gradient_check: GradientCheck,
    /// The scale of float16 steps, if they were requested.
    pub half: Option<HalfPrecision>,
    /// Speed of the model; `None` if no plan is shown.
    pub speed: Option<Speed>,
    /// Time since the audit began.
    pub clock: Clock,
}

/// A suite, with the values of its `auto` for a model.
#[derive(Clone)]
pub struct Setup {
    /// The suite.
    pub suite: Suite,
    /// Protocol of the attacks.
    pub protocol: Protocol,
    /// How each trial is run.
    pub plan: Plan,
    /// The ε and α that the plan's α is in proportion to, if it was not stated for the plan's ε.
    pub alpha_scaled_from: Option<EpsAlpha>,
}

impl Setup {
    /// The suite for a model. Errors (exit code 2): those of [`Suite::plan`]; a mask of another size than the
    /// model's images.
    pub fn new(suite: Suite, model: &Model, seed: u64) -> Result<Setup> {
        let input = &model.info.preprocessing;
        let (protocol, plan) = suite.plan(input.height.max(input.width), seed)?;
        let plan = Plan { whole_levels: input.integers.is_some(), ..plan };
        let alpha_scaled_from = suite.scaled_from(protocol, &plan)?;
        if let Some(mask) = plan.mask.as_ref().filter(|_| plan.space == Space::Input) {
            mask.fits(model.shape())?;
        }
        Ok(Setup { suite, protocol, plan, alpha_scaled_from })
    }

    /// The same setup. The file column of a ladder is searched for in the files of the queries, if they are
    /// files of other sizes.
    fn with_file_column(self, dataset: &Dataset, prep: &Preparation, progress: Mode) -> Result<Setup> {
        let in_files = photographs::resized_files(&self.plan, dataset, prep, progress)?;
        Ok(Setup { plan: Plan { in_files, ..self.plan }, ..self })
    }
}

/// A subject that was opened and checked. [`Opened::embed`] makes the next step from it.
pub struct Opened {
    /// The model and the images.
    pub subject: Subject,
    /// The suite.
    pub setup: Setup,
    /// The embeddings of `--gallery`.
    pub(super) vectors: Option<Vectors>,
    /// The embeddings of `--targets`.
    pub(super) targets: Option<ForeignTargets>,
    /// The label of the queries that hubs are crafted for.
    pub(super) hub_class: Option<usize>,
    /// Findings of all checks.
    pub findings: Vec<Finding>,
    /// Seconds so far.
    pub timing: Timing,
}

impl Opened {
    /// Opens the model and the images that the request names, and checks both. Errors: model or images can't
    /// be read; a check finds that the numbers will be invalid, unless `--allow-untrusted` (exit code 12).
    pub fn new(request: &Request, suite: Suite, card: Card, purpose: Purpose) -> Result<Opened> {
        let mut clock = Clock::start();
        let began =
            chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let dataset = images::open(request)?;
        let vectors = request.images.gallery.as_deref().map(vectors::read).transpose()?;
        let targets = request.images.targets.as_deref().map(vectors::read_targets).transpose()?;
        let alone = vectors.is_none() && targets.is_none() && dataset.pairs.is_empty();
        let suite = suite_for_classes(request, suite, &dataset, purpose, alone)?;
        let hub_class = hub_class(&suite, &dataset)?;
        photographs::refuse_without_files(suite.space, &dataset)?;

        let card = Card { stretched: dataset.stretched, ..card };
        let machine = Machine::choose(&request.compute, request.progress)?;
        let (model, machine, speed) = machine.open_timed(request, &card)?;
        if let Some((path, targets)) = request.images.targets.as_ref().zip(targets.as_ref()) {
            fit(path, targets, &model)?;
        }
        let prep = images::preparation(&model.info.preprocessing);
        let setup = Setup::new(suite, &model, request.seed)?;
        let setup = match purpose == Purpose::Audit && request.attack.space.is_none() {
            true => setup.with_file_column(&dataset, &prep, request.progress)?,
            false => setup,
        };
        let metric = metric(&card);
        request.progress.note(&wrap(&model.info.in_words(metric)));
        request.progress.note(&wrap(&format!("on {}", machine.in_words())));
        let model_s = clock.lap();

        let (first, count) = images::first_batch(&dataset, &model)?;
        let cache = CheckCache::of(request, machine.options, &card, &model, &first, count);
        let cached = cache.as_ref().and_then(CheckCache::find);
        let on_photographs = setup.plan.space == Space::File || setup.plan.in_files;
        let speed = speed.map(|speed| match on_photographs {
            true => Speed { photograph_s: photographs::step_seconds(&setup.plan, &dataset, &prep), ..speed },
            false => speed,
        });
        if let (Some(speed), Purpose::Audit | Purpose::Comparison) = (speed, purpose) {
            let given = vectors.as_ref().map_or(0, |v| v.ids.len());
            let amount = amount(request, &dataset, &model, given, count, cached.is_some());
            announce(request, &dataset, &setup, speed, amount, model.graphs.estimated);
        }
        let (mut model, first, checked, was_cached) =
            check_at_load(request, model, first, count, cache.as_ref(), cached)?;
        let gradient_check = checked.gradient_check;
        let findings: Vec<Finding> =
            checked.findings.into_iter().chain(warnings::of_files(&dataset)).collect();
        admit(request, &model, &findings)?;
        let half = model.calibrate(&first, count)?;
        let check_s = clock.lap();

        let of_preprocessing = check_preprocessing(request, &dataset, &mut model, metric, &prep)?;
        let findings = findings.into_iter().chain(of_preprocessing).collect();
        let timing = Timing {
            began,
            model_s,
            check_s,
            check_kept: was_cached,
            batch: model.batch(),
            threads: request.compute.threads,
            ..Timing::default()
        };
        let subject =
            Subject { card, dataset, machine, model, metric, prep, gradient_check, half, speed, clock };
        Ok(Opened { subject, setup, vectors, targets, hub_class, findings, timing })
    }
}

/// The suite for images with classes, or without. `alone`: queries can find nothing but these images. Errors:
/// the suite or the command needs classes (exit code 2); there is only one (exit code 4).
fn suite_for_classes(
    request: &Request,
    suite: Suite,
    dataset: &Dataset,
    purpose: Purpose,
    alone: bool,
) -> Result<Suite> {
    if dataset.classless {
        if matches!(purpose, Purpose::Checks | Purpose::Comparison) {
            return Err(Error::usage(format!(
                "{}: the images have no classes, which this command needs. `audit MODEL --data …` does without; else give each class a \
                 folder, or a list with the columns path and label",
                dataset.source
            )));
        }
        return settings::without_classes(request, suite, dataset);
    }
    let suite = settings::with_classes(suite)?;
    match &dataset.classes[..] {
        [only] if alone => Err(Error::empty(format!(
            "all {} images of {} are of one class, {only}: no image of another class can come first. Give two classes or more, \
             each in a folder of its own",
            dataset.items.len(),
            dataset.source
        ))),
        _ => Ok(suite),
    }
}

/// Refuses a model whose numbers will be invalid, unless `--allow-untrusted` (exit code 12).
fn admit(request: &Request, model: &Model, findings: &[Finding]) -> Result<()> {
    if request.allow_untrusted {
        return Ok(());
    }
    // Embeddings that are not finite can't be attacked, not even with --allow-untrusted.
    let finite = !findings.iter().any(|f| f.severity == Severity::Error && f.invalidates(&reason::FINITE));
    let otherwise = if finite { ". --allow-untrusted audits it anyway" } else { "" };
    check::admit(&model.info, findings, otherwise)
}

/// The amount of an audit. `given` images come as embeddings; the check at load looks at the `first` ones,
/// unless the model is `checked`.
fn amount(
    request: &Request,
    dataset: &Dataset,
    model: &Model,
    given: usize,
    first: usize,
    checked: bool,
) -> Amount {
    let others = if dataset.is_generated() { 0 } else { usual_others(&model.info.preprocessing).len() };
    Amount {
        images: dataset.items.len() - given,
        queries: dataset.roles().iter().filter(|role| **role != Role::Gallery).count(),
        parts: request.run.partition.map_or(1, |part| part.of as usize),
        may_shorten: request.run.partition.is_none() && !request.run.resume,
        checked,
        first,
        tried: check::preprocessing::SAMPLE_SIZE.min(dataset.items.len()) * others,
        ranking: ranking(request, dataset, model.info.dim),
    }
}

/// Prints how long the audit will take.
fn announce(
    request: &Request,
    dataset: &Dataset,
    setup: &Setup,
    speed: Speed,
    amount: Amount,
    estimated: bool,
) {
    let (listed, attacks) = (!dataset.pairs.is_empty(), setup.suite.objectives());
    let strong = verification::strong_sample(request.queries.strong, listed, attacks);
    let outlook = Outlook::of(speed, amount, estimated, &setup.suite, &setup.plan, strong);
    request.progress.plan(&outlook.announcement());
}

/// Refuses targets of another dimension than the model's embeddings (exit code 2).
fn fit(path: &Path, targets: &ForeignTargets, model: &Model) -> Result<()> {
    let (found, expected) = (targets.embeddings.ncols(), model.info.dim);
    match found == expected {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "--targets {}: its embeddings have {found} dimensions, and the model's `{}` has {expected}. Export both encoders' projected \
             embeddings, or choose another --output",
            path.display(),
            model.info.output
        ))),
    }
}

/// The label of the class that the suite's hubs are crafted for.
fn hub_class(suite: &Suite, dataset: &Dataset) -> Result<Option<usize>> {
    let Some(name) = &suite.hub_class else { return Ok(None) };
    let place = dataset.classes.iter().position(|class| class == name);
    place.map(Some).ok_or_else(|| {
        let known: Vec<&str> = dataset.classes.iter().map(String::as_str).collect();
        Error::usage(format!(
            "--hub-class {name}: none of the {} classes of the images has this name{}",
            known.len(),
            did_you_mean(name, &known)
        ))
    })
}

/// The purpose of opening a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An audit, whose plan is shown before the wait.
    Audit,
    /// One of two models that are compared, whose plan is shown too. It needs classes.
    Comparison,
    /// The checks of the doctor, the points of a sweep or a geometry: one plan says little about them. They
    /// need classes.
    Checks,
    /// Attacks that the caller runs.
    Attacks,
}

/// The check at load: a cached result or a new one. Also returns the model and the images, and whether the
/// result was cached.
fn check_at_load(
    request: &Request,
    mut model: Model,
    images: Vec<f32>,
    count: usize,
    place: Option<&CheckCache>,
    earlier: Option<Checked>,
) -> Result<(Model, Vec<f32>, Checked, bool)> {
    let mut phase = Phase::new("check", 0, request.progress);
    if let Some(checked) = earlier {
        phase.finish();
        request.progress.note("check: cached; --no-cache recomputes it");
        return Ok((model, images, checked, true));
    }
    let meter = Meter::default();
    let counted = meter.clone();
    let checked =
        interrupt::watched("while the model was checked", &mut || phase.follow(&meter), move || {
            let mut tell = |done, total| counted.set(done, total);
            let measured = check::load::measure(&mut model, &images, count, &mut tell);
            (model, images, measured)
        });
    let (model, images, measured) = checked?;
    let checked = Checked::of(&measured?);
    phase.finish();
    if let Some(Err(e)) = place.map(|place| place.store(&checked)) {
        request
            .progress
            .note(&format!("can't cache the result of the check: {e}. --no-cache turns the cache off"));
    }
    Ok((model, images, checked, false))
}

/// Checks whether another preprocessing than `prep` retrieves clearly better. Generated images can't tell.
fn check_preprocessing(
    request: &Request,
    dataset: &Dataset,
    model: &mut Model,
    metric: Metric,
    prep: &Preparation,
) -> Result<Vec<Finding>> {
    if dataset.is_generated() {
        return Ok(Vec::new());
    }
    let mut phase = Phase::new("preprocessing", 0, request.progress);
    let meter = Meter::default();
    let mut tell = |done, total| {
        meter.set(done, total);
        phase.follow(&meter);
    };
    let mut sample = PreprocessingSample { dataset, model, metric, prep: prep.clone(), tell: &mut tell };
    let findings = check::of_preprocessing(&mut sample)?;
    phase.finish();
    Ok(findings)
}

/// The metric of a card, or the default.
pub fn metric(card: &Card) -> Metric {
    card.metric.unwrap_or(Metric::NormalizedEuclidean)
}

/// Seconds since the start, and since the last look.
pub struct Clock {
    start: Instant,
    last: Instant,
}

impl Clock {
    fn start() -> Clock {
        let now = Instant::now();
        Clock { start: now, last: now }
    }

    /// Since the last call.
    pub fn lap(&mut self) -> f64 {
        let last = std::mem::replace(&mut self.last, Instant::now());
        (self.last - last).as_secs_f64()
    }

    /// Since the start.
    pub fn total(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

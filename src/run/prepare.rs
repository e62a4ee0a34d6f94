//! What an audit and the doctor do before they attack anything: they settle what was asked for, open model and images, check
//! both, embed the gallery and select the trials.

use super::attacks::{SurrogateModel, interrupted};
use super::cost::{Amount, Outlook, Sampled, Speed};
use super::kept::{CheckCache, Checked};
use super::machine::{Machine, STAGES};
use super::selection::{Asked, Chosen};
use super::settings::{Settings, settle_card};
use super::{images, kept_clean, selection, warnings};
use crate::data::vectors::{self, ForeignTargets, Vectors};
use crate::data::{self, Dataset, Preparation};
use crate::error::did_you_mean;
use crate::judge::check;
use crate::judge::check::clean::CleanRetrieval;
use crate::judge::check::preprocessing::PreprocessingSample;
use crate::model::Model;
use crate::model::card::Card;
use crate::progress::{Meter, Mode, Phase};
use crate::record::{
    self, Acceptance, EpsAlpha, Finding, GradientCheck, HalfPrecision, Metric, Precision, Protocol, Role,
    Timing,
};
use crate::report::terminal::wrap;
use crate::request::{BenignSample, Request, Sample, StrongSample};
use crate::space::Gallery;
use crate::space::benign::{BenignRetrieval, Stage, benign_of};
use crate::space::verification::{Distances, Pair};
use crate::suite::Suite;
use crate::threat::{self, Plan, Selection};
use crate::{Error, Result, interrupt};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// Restarts of the k-means behind NMI.
pub const CLUSTERINGS: usize = 4;
/// Items × classes × dimensions beyond which there is no clustering unless `--nmi` asks for it: an iteration would take seconds,
/// and there are hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// What is audited: a model, and the images that it is audited on.
pub struct Subject {
    pub settings: Settings,
    pub dataset: Dataset,
    /// The embeddings of `--gallery`, until [`Subject::embed`].
    vectors: Option<Vectors>,
    /// The embeddings of `--targets`, until [`Subject::embed`].
    targets: Option<ForeignTargets>,
    /// Where it computes.
    pub machine: Machine,
    pub model: Model,
    /// The model that attacks are made on, with its own embeddings of the images, where it is another one.
    pub surrogate: Option<SurrogateModel>,
    pub metric: Metric,
    /// How images become the model's pixels.
    pub prep: Preparation,
    /// What the suite's `auto` came to.
    pub protocol: Protocol,
    pub plan: Plan,
    /// The ε and α that the plan's α is in proportion to, where it was not stated for the plan's ε.
    pub alpha_scaled_from: Option<EpsAlpha>,
    pub gradient_check: GradientCheck,
    /// The scale of float16 steps, where they were asked for.
    pub in_half: Option<HalfPrecision>,
    /// Of all checks so far.
    pub findings: Vec<Finding>,
    pub timing: Timing,
    pub clock: Clock,
    /// How fast the model is; `None` where nobody is told.
    pub speed: Option<Speed>,
}

/// The gallery, what retrieval finds in it without attack, and which of its queries are attacked.
pub struct Clean {
    pub gallery: Gallery,
    pub data: record::Data,
    pub benign: BenignRetrieval,
    /// How the queries behind `benign` were chosen, where they are not all.
    pub benign_sampling: Option<String>,
    /// The trials of this process: all, or those that a part of a run draws.
    pub selection: Selection,
    /// What the whole run asks for.
    pub asked: Vec<Asked>,
    /// How the queries were chosen, where they are not all.
    pub sampling: Option<String>,
}

impl Subject {
    /// Opens the model and the images that the request names, and checks both. Errors: those of [`Settings::settle`]; model or
    /// images can't be read; a check finds that the numbers will mean nothing, unless `--allow-untrusted` (exit code 12).
    pub fn open(request: &Request, purpose: Purpose) -> Result<Subject> {
        let mut clock = Clock::start();
        // Whatever is wrong with the request is said before the work.
        let settings = Settings::settle(request)?;
        let dataset = images::open(request)?;
        let vectors = request.images.gallery.as_deref().map(vectors::read).transpose()?;
        let targets = request.images.targets.as_deref().map(vectors::read_targets).transpose()?;
        let alone = vectors.is_none() && targets.is_none() && dataset.pairs.is_empty();
        if let (true, [only]) = (alone, &dataset.classes[..]) {
            return Err(Error::empty(format!(
                "all {} images of {} are of one class, {only}: no image of another class can come first. Give two classes or more, \
                 each in a folder of its own",
                dataset.items.len(),
                dataset.source
            )));
        }

        let mut machine = Machine::choose(&request.compute, request.progress)?;
        let (model, speed) = open_timed(&mut machine, request, &settings)?;
        if let Some((path, targets)) = request.images.targets.as_ref().zip(targets.as_ref()) {
            fit(path, targets, &model)?;
        }
        let preprocessing = &model.info.preprocessing;
        let prep = images::preparation(preprocessing);
        let side = preprocessing.height.max(preprocessing.width);
        let (protocol, plan) = settings.suite.plan(side, request.seed)?;
        let alpha_scaled_from = settings.suite.scaled_from(protocol, &plan)?;
        if let Some(mask) = &plan.mask {
            mask.fits(model.shape())?;
        }
        let metric = metric(&settings.card);
        request.progress.note(&wrap(&model.info.in_words(metric)));
        request.progress.note(&wrap(&format!("on {}", machine.in_words())));
        let model_s = clock.lap();

        let (first, count) = images::first_batch(&dataset, &model)?;
        let place = CheckCache::of(request, machine.options, &settings.card, &model, &first, count);
        let earlier = place.as_ref().and_then(CheckCache::find);
        if let (Some(speed), Purpose::Audit) = (speed, purpose) {
            let others =
                if dataset.is_generated() { 0 } else { model.info.preprocessing.usual_others().len() };
            let amount = Amount {
                images: dataset.items.len() - vectors.as_ref().map_or(0, |v| v.ids.len()),
                queries: dataset.roles().iter().filter(|role| **role != Role::Gallery).count(),
                checked: earlier.is_some(),
                first: count,
                tried: check::preprocessing::SAMPLE_SIZE.min(dataset.items.len()) * others,
                ranking: ranking(request, &dataset, model.info.dim),
            };
            let mut sampled = Sampled::of(request, &settings.suite);
            if !dataset.pairs.is_empty() && settings.suite.of_pairs() {
                sampled.strong = sampled.strong.or(Some(StrongSample::Off));
            }
            let outlook = Outlook::of(speed, amount, model.info.estimated, &settings.suite, &plan, sampled);
            request.progress.plan(outlook.text().map(|text| wrap(&text)).as_deref(), outlook.event());
        }
        let (mut model, first, checked, kept) =
            check_at_load(request, model, first, count, place.as_ref(), earlier)?;
        let mut findings = checked.findings;
        findings.extend(warnings::of_files(&dataset));
        if !request.allow_untrusted {
            check::admit(&settings.model.display().to_string(), &findings)?;
        }
        let in_half = model.calibrate(&first, count)?.map(HalfPrecision::new);
        let check_s = clock.lap();

        findings.extend(check_preprocessing(request, &dataset, &mut model, metric, &prep)?);
        let timing = Timing {
            model_s,
            check_s,
            check_kept: kept,
            batch: model.batch(),
            threads: request.compute.threads,
            ..Timing::default()
        };
        let gradient_check = checked.gradient_check;
        Ok(Subject {
            settings,
            dataset,
            vectors,
            targets,
            machine,
            model,
            surrogate: None,
            metric,
            prep,
            protocol,
            plan,
            alpha_scaled_from,
            gradient_check,
            in_half,
            findings,
            timing,
            clock,
            speed,
        })
    }

    /// Embeds the images, checks what retrieval finds among them, selects the trials, and opens the surrogate. `clusterings` is the number of
    /// k-means restarts behind NMI; `None` leaves NMI out, as a gallery does that is too large for it without `--nmi`.
    pub fn embed(&mut self, request: &Request, clusterings: Option<usize>) -> Result<Clean> {
        let Subject { dataset, model, metric, .. } = self;
        let (gallery, data) = images::embed(request, dataset, self.vectors.take(), model, *metric)?;
        let gallery = for_suite(gallery, &self.settings.suite, dataset)?;
        let each = data.gallery as f64 * model.info.dim as f64;
        let clusterings = within_time(clusterings, request, each, data.classes);
        let (most, benign_sampling) = ranked(request, &gallery);
        // The centres of a clustering aren't kept, and a gallery that is clustered is small.
        let ranked = most.filter(|_| clusterings.is_none());
        let (suite, plan) = (&self.settings.suite, &self.plan);
        let place = ranked.and_then(|ranked| {
            kept_clean::RetrievalCache::of(request, suite, ranked, &gallery, &data.sha256)
        });
        let earlier = place.as_ref().and_then(|place| place.find(&gallery));
        if earlier.is_some() {
            request.progress.note("retrieval: an earlier audit's result is used; --no-cache recomputes it");
        }
        let (benign, queries) = match earlier {
            Some(kept_clean::CachedRetrieval { benign, queries }) => (Some(benign), queries),
            None => (None, None),
        };
        let found = benign.is_some();
        let mut benign = benign.map_or_else(|| retrieve(request, &gallery, most, clusterings), Ok)?;
        let mut gallery = gallery.with_centres(benign.centres.take());
        if let Some((path, targets)) = request.images.targets.as_ref().zip(self.targets.take()) {
            let named = |e: Error| e.context(format!("--targets {}", path.display()));
            gallery = gallery.with_targets(targets.embeddings, targets.ids).map_err(named)?;
        }
        self.findings.extend(check::of_retrieval(&CleanRetrieval { gallery: &gallery, benign: &benign }));
        self.timing.gallery_s = self.clock.lap();
        let queries = queries.map_or_else(|| selection::queries(request, suite, &gallery), Ok)?;
        if let Some(place) = place.filter(|_| !found) {
            let chosen = (request.queries.sample == Sample::Correct).then(|| queries.clone());
            let entry = kept_clean::CachedRetrieval { benign: benign.clone(), queries: chosen };
            if let Err(e) = place.keep(&entry) {
                request
                    .progress
                    .note(&format!("retrieval without attack can't be kept: {e}. --no-cache keeps none"));
            }
        }
        let Chosen { selection, asked } =
            selection::select(request, suite, self.protocol, plan, &gallery, &queries)?;
        let sampling = selection::sampling(request, suite, &gallery);
        self.surrogate =
            request.attack.surrogate.as_deref().map(|path| self.open_surrogate(request, path)).transpose()?;
        Ok(Clean { gallery, data, benign, benign_sampling, selection, asked, sampling })
    }
}

impl Subject {
    /// Another model, at `path`, with its own embeddings of the images. Errors (exit code 2):
    /// its input is another one, or the gallery is given as embeddings.
    pub fn open_surrogate(&mut self, request: &Request, path: &Path) -> Result<SurrogateModel> {
        if request.images.gallery.is_some() {
            return Err(Error::usage("--surrogate embeds the gallery itself: leave --gallery out"));
        }
        let card = settle_card(request.reading.stated.clone(), None, path)?;
        let mut phase = Phase::new("surrogate", 0, request.progress);
        let mut other = self.machine.open(request, path, &card, &mut phase)?;
        phase.finish();
        let size = |m: &Model| {
            let p = &m.info.preprocessing;
            [p.channels, p.height, p.width]
        };
        if size(&other) != size(&self.model) {
            return Err(Error::usage(format!(
                "--surrogate {}: it takes images of {:?} (channels, height, width), and the model of {:?}; name one of the \
                 same input",
                path.display(),
                size(&other),
                size(&self.model)
            )));
        }
        let (gallery, _) = images::embed(request, &mut self.dataset, None, &mut other, metric(&card))?;
        let gallery = for_suite(gallery, &self.settings.suite, &self.dataset)?;
        Ok(Mutex::new((other, gallery)))
    }
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

/// The gallery with what the suite's losses and measures are functions of. Errors (exit code 2): there is no class that hubs are for; a
/// threshold is stated that the metric has no distance for, or the impostor pairs are too few for its false accept rate.
fn for_suite(mut gallery: Gallery, suite: &Suite, dataset: &Dataset) -> Result<Gallery> {
    gallery.xi_k = suite.xi_k;
    gallery.hub_class = hub_class(suite, dataset)?;
    if !dataset.pairs.is_empty() {
        let pair = |p: &data::ListedPair| {
            // Images that can't be read have left the gallery, and their pairs with them.
            let (probe, reference) = (gallery.find(&p.probe)?, gallery.find(&p.reference)?);
            Some(Pair { probe, reference, same: p.same, group: p.group.clone(), fold: p.fold })
        };
        let pairs = dataset.pairs.iter().filter_map(pair).collect();
        gallery = gallery.with_pairs(pairs);
    }
    let Some(acceptance) = suite.threshold else { return Ok(gallery) };
    let threshold = match (acceptance.distance(gallery.metric)?, acceptance) {
        (None, Acceptance::Far(far)) => {
            let distances = Distances::of(&gallery);
            if !distances.resolves(far) {
                let (found, least) = (distances.counts()[1], (1.0 / far - 1e-9).ceil());
                return Err(Error::usage(format!(
                    "threshold {acceptance}: {found} impostor pairs can't tell a false accept rate of {far} from 0; at least {least} \
                     can. Give more pairs, take a larger rate, such as --threshold far={:.1e}, or state the threshold: --threshold \
                     cosine=…",
                    2.0 / found.max(4) as f64
                )));
            }
            distances.threshold(far)
        }
        (stated, _) => stated.unwrap_or(f64::NAN),
    };
    Ok(gallery.with_threshold(threshold))
}

/// The label of the class that the suite's hubs are for.
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

/// What a model is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An audit, whose plan is told before the wait.
    Audit,
    /// The checks of the doctor, or the points of a sweep: one plan says little of them.
    Checks,
}

/// Opens the model and times it. There is no time where nobody is told the plan.
fn open_timed(
    machine: &mut Machine,
    request: &Request,
    settings: &Settings,
) -> Result<(Model, Option<Speed>)> {
    let mut phase = Phase::new("model", 0, request.progress);
    let mut model = machine.open(request, &settings.model, &settings.card, &mut phase)?;
    let mut speed = None;
    // float16 steps have no scale yet, and without it there is nothing to time.
    if request.progress != Mode::None && request.attack.precision == Precision::Fp32 {
        let meter = Meter::default();
        meter.set(STAGES.len() - 1, STAGES.len());
        let mut look = || phase.stage(&meter, &STAGES);
        let timed = interrupt::watched("while the model was timed", &mut look, move || {
            let speed = Speed::measure(&mut model);
            (model, speed)
        });
        let measured;
        (model, measured) = timed?;
        speed = measured.ok();
    }
    phase.finish();
    Ok((model, speed))
}

/// The check at load: the result that an earlier audit kept, or a new one. Returns the model and the images too, and whether the
/// result was kept.
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
        request.progress.note("check: an earlier audit's result is used; --no-cache recomputes it");
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
    if let Some(Err(e)) = place.map(|place| place.keep(&checked)) {
        request.progress.note(&format!("the result of the check can't be kept: {e}. --no-cache keeps none"));
    }
    Ok((model, images, checked, false))
}

/// Looks whether another preprocessing than `prep` retrieves clearly better. Generated images are nobody's, and say nothing of it.
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

/// Multiplications that ranking queries may take before a sample of them has to do: half a minute to some minutes.
const MOST_RANKING: f64 = 2e11;
/// Fewest queries of such a sample.
const LEAST_RANKED: usize = 2000;

/// Iterations of k-means over all restarts, about.
const ITERATIONS: f64 = 100.0;

/// Multiplications that [`retrieve`] takes, about.
fn ranking(request: &Request, dataset: &Dataset, dim: usize) -> f64 {
    let (items, classes) = (dataset.items.len() as f64, dataset.classes.len() as f64);
    let each = items * dim as f64;
    let all = match request.queries.benign {
        Some(BenignSample::All) => items,
        Some(BenignSample::Most(n)) => items.min(n as f64),
        None => items.min((MOST_RANKING / each).max(LEAST_RANKED as f64)),
    };
    let clustering = if clusters(request, each, dataset.classes.len()) { each * classes } else { 0.0 };
    all * each + ITERATIONS * clustering
}

/// The restarts of k-means asked for; `None` where embeddings of so many numbers in all aren't clustered.
fn within_time(asked: Option<usize>, request: &Request, numbers: f64, classes: usize) -> Option<usize> {
    asked.filter(|_| clusters(request, numbers, classes))
}

/// Whether embeddings of so many numbers in all are clustered for NMI: where that is quick, and where `--nmi` asks for it.
fn clusters(request: &Request, numbers: f64, classes: usize) -> bool {
    request.queries.nmi || numbers * classes as f64 <= MOST_CLUSTERING
}

/// How many queries are ranked without attack, where not all are, and that in words.
fn ranked(request: &Request, gallery: &Gallery) -> (Option<usize>, Option<String>) {
    let all = gallery.queries().len();
    let each = (gallery.len() * gallery.dim()) as f64;
    let most = match request.queries.benign {
        Some(BenignSample::All) => None,
        Some(BenignSample::Most(n)) => Some(n),
        None => {
            (each * all as f64 > MOST_RANKING).then(|| ((MOST_RANKING / each) as usize).max(LEAST_RANKED))
        }
    };
    let most = most.filter(|most| *most < all);
    let words =
        most.map(|most| format!("{most} of {all} queries, stratified by class, seed {}", request.seed));
    (most, words)
}

/// Retrieval without attack of `most` queries, or of all.
fn retrieve(
    request: &Request,
    gallery: &Gallery,
    most: Option<usize>,
    clusterings: Option<usize>,
) -> Result<BenignRetrieval> {
    let queries = threat::sample_queries(gallery, most, request.seed);
    let mut phase = Phase::new("retrieval", queries.len() as u64, request.progress);
    phase.begin(queries.len() as u64, 0);
    let found = benign_of(gallery, &queries, clusterings, request.seed, &mut |stage| match stage {
        Stage::Ranked(done) => {
            phase.set(done as u64, None);
            interrupted("")
        }
        Stage::Clustering => {
            phase.beat();
            interrupted("")
        }
    })?;
    phase.finish();
    Ok(found)
}

/// The distance that a card names, or the usual one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Queries;

    /// CUB's test part at 512 dimensions is clustered, SOP's only on demand.
    #[test]
    fn nmi_of_a_large_gallery_is_there_on_demand() {
        let (cub, sop) = ((5924.0 * 512.0, 100), (60502.0 * 512.0, 11316));
        let asked = |queries| Request { queries, ..Request::default() };
        for (queries, (numbers, classes), expected) in [
            (Queries::default(), cub, true),
            (Queries::default(), sop, false),
            (Queries { nmi: true, ..Queries::default() }, sop, true),
            (Queries { benign: Some(BenignSample::All), ..Queries::default() }, sop, false),
        ] {
            let request = asked(queries.clone());
            assert_eq!(clusters(&request, numbers, classes), expected, "{queries:?} {classes}");
            // What is measured of a gallery, as if it were so large: NMI, and the clusters of attacked queries.
            let restarts = within_time(Some(CLUSTERINGS), &request, numbers, classes);
            let found = retrieve(&request, &gallery(), None, restarts).unwrap();
            assert_eq!((found.nmi.is_some(), found.centres.is_some()), (expected, expected), "{queries:?}");
            assert_eq!((found.r_at_1, found.queries), (1.0, 8));
        }
    }

    /// Four classes of two items on a line, far apart.
    fn gallery() -> Gallery {
        let points = ndarray::Array2::from_shape_fn((8, 1), |(i, _)| (10 * (i / 2) + i % 2) as f32);
        let ids = (0..8).map(|i| i.to_string()).collect();
        Gallery::new(Metric::Euclidean, points, (0..8).map(|i| i / 2).collect(), ids).unwrap()
    }
}

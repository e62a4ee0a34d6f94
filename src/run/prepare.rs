//! What an audit and the doctor do before they attack anything: they settle what was asked for, open model and images, check
//! both, embed the gallery and select the trials.

use super::settings::Settings;
use super::{images, reservations, selection};
use crate::cli::{AuditFlags, GradientSource};
use crate::data::vectors::{self, Vectors};
use crate::data::{Dataset, Preparation};
use crate::judge::check;
use crate::judge::check::clean::Retrieval;
use crate::judge::check::preprocessing::Sample;
use crate::model::Model;
use crate::model::card::Card;
use crate::model::runtime;
use crate::progress::Phase;
use crate::record::{self, Finding, GradientCheck, HalfPrecision, Metric, Precision, Protocol, Timing};
use crate::space::Gallery;
use crate::space::benign::{Benign, benign};
use crate::threat::{Plan, Selection};
use crate::{Result, interrupt};
use std::path::Path;
use std::time::Instant;

/// Restarts of the k-means behind NMI.
pub const CLUSTERINGS: usize = 4;
/// Items × classes × dimensions beyond which there is no clustering: an iteration would take seconds, and there are
/// hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// What is audited: a model, and the images that it is audited on.
pub struct Subject {
    pub settings: Settings,
    pub dataset: Dataset,
    /// The embeddings of `--gallery`, until [`Subject::embed`].
    vectors: Option<Vectors>,
    pub model: Model,
    pub metric: Metric,
    /// How images become the model's pixels.
    pub prep: Preparation,
    /// What the suite's `auto` came to.
    pub protocol: Protocol,
    pub plan: Plan,
    pub gradient_check: GradientCheck,
    /// The scale of float16 steps, where they were asked for.
    pub in_half: Option<HalfPrecision>,
    /// Of all checks so far.
    pub findings: Vec<Finding>,
    pub timing: Timing,
    pub clock: Clock,
}

/// The gallery, what retrieval finds in it without attack, and which of its queries are attacked.
pub struct Clean {
    pub gallery: Gallery,
    pub data: record::Data,
    pub benign: Benign,
    pub selection: Selection,
    /// How the queries were chosen, where they are not all.
    pub sampling: Option<String>,
}

impl Subject {
    /// Opens the model and the images that the flags name, and checks both. Errors: those of [`Settings::settle`]; model or
    /// images can't be read; a check finds that the numbers will mean nothing, unless `--allow-untrusted` (exit code 12).
    pub fn open(flags: &AuditFlags) -> Result<Subject> {
        let mut clock = Clock::start();
        // Whatever is wrong with the request is said before the work.
        let settings = Settings::settle(flags)?;
        let dataset = images::open(flags)?;
        let vectors = flags.gallery.as_deref().map(vectors::read).transpose()?;

        let phase = Phase::new("model", 1, flags.mode());
        let mut model = open_model(flags, &settings.model, &settings.card)?;
        phase.finish();
        let preprocessing = &model.info.preprocessing;
        let prep = images::preparation(preprocessing);
        let side = preprocessing.height.max(preprocessing.width);
        let (protocol, plan) = settings.suite.plan(side, flags.seed)?;
        let metric = metric(&settings.card);
        let model_s = clock.lap();

        let (first, count) = images::first_batch(&dataset, &model)?;
        let phase = Phase::new("check", 1, flags.mode());
        let checked = interrupt::heard("while the model was checked", move || {
            let measured = check::load::measure(&mut model, &first, count);
            (model, first, measured)
        });
        let (first, measured);
        (model, first, measured) = checked?;
        let measured = measured?;
        phase.finish();
        let mut findings = check::at_load(&measured);
        findings.extend(reservations::of_files(&dataset));
        if !flags.allow_untrusted {
            check::admit(&settings.model.display().to_string(), &findings)?;
        }
        let in_half = model.calibrate(&first, count)?.map(HalfPrecision::new);
        let check_s = clock.lap();

        if flags.data.is_some() {
            let mut sample = Sample { dataset: &dataset, model: &mut model, metric, prep: prep.clone() };
            findings.extend(check::of_preprocessing(&mut sample)?);
        }
        let timing =
            Timing { model_s, check_s, batch: model.batch(), threads: flags.threads, ..Timing::default() };
        let gradient_check = measured.summary();
        Ok(Subject {
            settings,
            dataset,
            vectors,
            model,
            metric,
            prep,
            protocol,
            plan,
            gradient_check,
            in_half,
            findings,
            timing,
            clock,
        })
    }

    /// Embeds the images, checks what retrieval finds among them, and selects the trials. `clusterings` is the number of
    /// k-means restarts behind NMI; `None` leaves NMI out, as a gallery does that is too large for it.
    pub fn embed(&mut self, flags: &AuditFlags, clusterings: Option<usize>) -> Result<Clean> {
        let Subject { dataset, model, metric, .. } = self;
        let (gallery, data) = images::embed(flags, dataset, self.vectors.take(), model, *metric)?;
        let cost = data.gallery as f64 * data.classes as f64 * model.info.dim as f64;
        let phase = Phase::new("retrieval", 1, flags.mode());
        let mut benign = benign(&gallery, clusterings.filter(|_| cost <= MOST_CLUSTERING), flags.seed)?;
        let gallery = gallery.with_centres(benign.centres.take());
        phase.finish();
        self.findings.extend(check::of_retrieval(&Retrieval { gallery: &gallery, benign: &benign }));
        self.timing.gallery_s = self.clock.lap();
        let suite = &self.settings.suite;
        let selection = selection::select(flags, suite, self.protocol, &self.plan, &gallery)?;
        let sampling = selection::sampling(flags, suite, &gallery);
        Ok(Clean { gallery, data, benign, selection, sampling })
    }
}

/// Loads ONNX Runtime and opens a model in it.
pub fn open_model(flags: &AuditFlags, path: &Path, card: &Card) -> Result<Model> {
    runtime::load(flags.ort_lib.as_deref())?;
    let options = flags.options();
    runtime::require(options)?;
    let (path, card, batch, seed) = (path.to_path_buf(), card.clone(), flags.batch, flags.seed);
    let (gradient, half) = (flags.gradient, flags.attack_precision == Precision::Fp16);
    interrupt::heard("while the model was loaded", move || match gradient {
        GradientSource::Exact => Model::open_in(&path, &card, options, batch, half),
        GradientSource::Estimate => Model::open_estimated(&path, &card, options, batch, seed),
    })?
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

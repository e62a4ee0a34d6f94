//! The second step of an audit: every image is embedded, and retrieval without an attack is measured.

use super::cost::{clusters, most_ranked};
use super::gather;
use super::open::{Opened, Setup, Subject, metric};
use super::selection;
use super::settings::settle_card;
use crate::cache::clean_retrieval::{CachedRetrieval, RetrievalCache};
use crate::check;
use crate::check::clean::CleanRetrieval;
use crate::data::Dataset;
use crate::feature::verification;
use crate::interrupt;
use crate::model::Model;
use crate::model::card::Card;
use crate::progress::Phase;
use crate::record::{self, Finding, Timing};
use crate::request::{Request, Sample};
use crate::space::Gallery;
use crate::space::benign::{self, Stage};
use crate::threat::{self, AttackContext, ContextSettings};
use crate::{Error, Result};
use ndarray::Array2;
use std::path::Path;

/// Restarts of the k-means behind NMI.
pub const CLUSTERINGS: usize = 4;
/// Model and images with their embeddings, and retrieval without an attack.
pub struct Embedded {
    /// The model and the images that can be read.
    pub subject: Subject,
    /// The suite.
    pub setup: Setup,
    /// The gallery, and what the suite's attacks need besides it.
    pub context: AttackContext,
    /// The images as reports describe them.
    pub data: record::Data,
    /// Retrieval without an attack; `None` if the images have no classes.
    pub benign: Option<record::Benign>,
    /// The queries that are attacked if trials are drawn, ascending.
    pub queries: Vec<usize>,
    /// Of all checks.
    pub findings: Vec<Finding>,
    /// Seconds so far.
    pub timing: Timing,
}

/// The surrogate model, with its own embeddings of the same images.
pub struct SurrogateModel {
    /// The model.
    pub model: Model,
    /// Its embeddings.
    pub context: AttackContext,
}

impl Opened {
    /// Embeds the images and checks their retrieval. `clusterings` is the number of k-means restarts behind
    /// NMI; `None` leaves NMI out, as does a gallery too large for it without `--nmi`.
    pub fn embed(self, request: &Request, clusterings: Option<usize>) -> Result<Embedded> {
        let Opened { mut subject, setup, vectors, targets, hub_class, mut findings, mut timing } = self;
        let Subject { dataset, model, metric, .. } = &mut subject;
        let (gallery, data, of_images) = gather::embed(request, dataset, vectors, model, *metric)?;
        let each = data.gallery as f64 * model.info.dim as f64;
        let clusterings = clusterings.filter(|_| clusters(request, each, data.classes));
        let (most, sampling) = ranked(request, &gallery);
        // The centres of a clustering aren't cached, and only small galleries are clustered.
        let ranked = most.filter(|_| clusterings.is_none() && !dataset.classless);
        let suite = &setup.suite;
        let cache =
            ranked.and_then(|ranked| RetrievalCache::of(request, suite, ranked, &gallery, &data.sha256));
        let cached = cache.as_ref().and_then(|cache| cache.find(&gallery));
        if cached.is_some() {
            request.progress.note("retrieval: cached; --no-cache recomputes it");
        }
        let found = cached.is_some();
        let (benign, queries) = cached.map(|entry| (entry.benign, entry.queries)).unzip();
        let (benign, centres) = match benign {
            None if !dataset.classless => {
                let (benign, centres) = retrieve(request, &gallery, &dataset.classes, most, clusterings)?;
                (Some(record::Benign { sampling, ..benign }), centres)
            }
            found => (found, None),
        };
        let mut gallery = gallery.with_centres(centres);
        if let Some((path, targets)) = request.images.targets.as_ref().zip(targets) {
            let named = |e: Error| e.context(format!("--targets {}", path.display()));
            gallery = gallery.with_targets(targets.embeddings, targets.ids).map_err(named)?;
        }
        findings.extend(of_images);
        findings.extend(check::of_retrieval(&CleanRetrieval { gallery: &gallery, benign: benign.as_ref() }));
        let queries = queries.flatten().map_or_else(|| selection::queries(request, suite, &gallery), Ok)?;
        if let Some((cache, benign)) = cache.filter(|_| !found).zip(benign.as_ref()) {
            let chosen = (request.queries.sample == Sample::Correct).then(|| queries.clone());
            let entry = CachedRetrieval { benign: benign.clone(), queries: chosen };
            if let Err(e) = cache.store(&entry) {
                request.progress.note(&format!(
                    "can't cache retrieval without an attack: {e}. --no-cache turns the cache off"
                ));
            }
        }
        let context = context(gallery, &setup, hub_class, dataset)?;
        timing.gallery_s = subject.clock.lap();
        Ok(Embedded { subject, setup, context, data, benign, queries, findings, timing })
    }
}

impl Embedded {
    /// The model of `--surrogate`, with its embeddings of the images; `None` without this flag.
    pub fn open_surrogate(&mut self, request: &Request) -> Result<Option<SurrogateModel>> {
        request.attack.surrogate.as_deref().map(|path| self.open_other(request, path)).transpose()
    }

    /// Another model, with its embeddings of the images. Errors (exit code 2): its input has another size, or
    /// the gallery is given as embeddings.
    pub fn open_other(&mut self, request: &Request, path: &Path) -> Result<SurrogateModel> {
        if request.images.gallery.is_some() {
            return Err(Error::usage("--surrogate embeds the gallery itself: leave --gallery out"));
        }
        let Subject { machine, model, dataset, .. } = &mut self.subject;
        let stated = Card { stretched: dataset.stretched, ..request.reading.stated.clone() };
        let card = settle_card(stated, None, path)?;
        let mut phase = Phase::new("surrogate", 0, request.progress);
        let (mut other, _) = machine.open(request, path, &card, &mut phase)?;
        phase.finish();
        if other.shape() != model.shape() {
            return Err(Error::usage(format!(
                "--surrogate {}: it takes images of {:?} (channels, height, width), and the model of {:?}; name one of the \
                 same input",
                path.display(),
                other.shape(),
                model.shape()
            )));
        }
        let (gallery, ..) = gather::embed(request, dataset, None, &mut other, metric(&card))?;
        let context = context(gallery, &self.setup, self.context.hub_class, dataset)?;
        Ok(SurrogateModel { model: other, context })
    }
}

/// The context of the suite's attacks. Errors: those of [`AttackContext::new`].
fn context(
    gallery: Gallery,
    setup: &Setup,
    hub_class: Option<usize>,
    dataset: &Dataset,
) -> Result<AttackContext> {
    let suite = &setup.suite;
    let attacks: Vec<_> = suite.objectives().collect();
    let pairs = verification::listed(dataset, &gallery);
    let settings = ContextSettings { xi_k: suite.xi_k, hub_class, acceptance: suite.threshold, pairs };
    AttackContext::new(gallery, &attacks, settings)
}

/// The number of queries ranked without an attack, if not all are, and the sampling in words.
fn ranked(request: &Request, gallery: &Gallery) -> (Option<usize>, Option<String>) {
    let all = gallery.queries().len();
    let most = most_ranked(request, all, (gallery.len() * gallery.dim()) as f64);
    let words =
        most.map(|most| format!("{most} of {all} queries, stratified by class, seed {}", request.seed));
    (most, words)
}

/// Retrieval of `most` queries, or of all, without an attack.
fn retrieve(
    request: &Request,
    gallery: &Gallery,
    classes: &[String],
    most: Option<usize>,
    clusterings: Option<usize>,
) -> Result<(record::Benign, Option<Array2<f32>>)> {
    let queries = threat::sample_queries(gallery, most, request.seed);
    let mut phase = Phase::new("retrieval", queries.len() as u64, request.progress);
    phase.begin(queries.len() as u64, 0);
    let name = |label: usize| classes[label].clone();
    let found = benign::benign(gallery, &queries, clusterings, request.seed, &name, &mut |stage| {
        match stage {
            Stage::Ranked(done) => phase.set(done as u64, None),
            Stage::Clustering => phase.beat(),
        }
        interrupt::check("").map_err(interrupt::with_next_step)
    })?;
    phase.finish();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;
    use crate::request::{BenignSample, Queries};

    /// CUB's test split at 512 dimensions is clustered, SOP's only on demand.
    #[test]
    fn nmi_of_a_large_gallery_is_there_on_demand() {
        let (cub, sop) = ((5924.0 * 512.0, 100), (60502.0 * 512.0, 11316));
        let request_of = |queries| Request { queries, ..Request::default() };
        for (queries, (numbers, classes), expected) in [
            (Queries::default(), cub, true),
            (Queries::default(), sop, false),
            (Queries { nmi: true, ..Queries::default() }, sop, true),
            (Queries { benign: Some(BenignSample::All), ..Queries::default() }, sop, false),
        ] {
            let request = request_of(queries.clone());
            assert_eq!(clusters(&request, numbers, classes), expected, "{queries:?} {classes}");
            // The measures of a gallery, as if it were so large: NMI, and the clusters of attacked queries.
            let restarts = expected.then_some(CLUSTERINGS);
            let names = ["a", "b", "c", "d"].map(String::from);
            let (found, centres) = retrieve(&request, &gallery(), &names, None, restarts).unwrap();
            assert_eq!((found.nmi.is_some(), centres.is_some()), (expected, expected), "{queries:?}");
            assert_eq!((found.r1, found.queries), (100.0, 8));
        }
    }

    /// Four classes of two items on a line, far apart.
    fn gallery() -> Gallery {
        let points = ndarray::Array2::from_shape_fn((8, 1), |(i, _)| (10 * (i / 2) + i % 2) as f32);
        let ids = (0..8).map(|i| i.to_string()).collect();
        Gallery::new(Metric::Euclidean, points, (0..8).map(|i| i / 2).collect(), ids).unwrap()
    }
}

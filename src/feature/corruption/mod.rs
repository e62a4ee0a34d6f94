//! Natural corruptions: what queries find when they are noisy, blurred or turned, without an attacker. Each
//! query is corrupted, embedded, and ranked in the clean gallery. It is a part of an audit: the steps call
//! this module, which uses none of them.

use crate::corruption::{CORRUPTIONS, Corruption, Picture, STRENGTHS};
use crate::data::{Dataset, Preparation};
use crate::interrupt;
use crate::model::Model;
use crate::pictures::picture;
use crate::progress::{Mode, Phase};
use crate::record::{Corrupted, CorruptedPictures, CorruptedRow, Report, Retrieval};
use crate::space::Gallery;
use crate::threat::{Objective, Trial, retrievals};
use crate::{Error, Result};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// The corruptions that a suite of `attacks` lists by `names`, each with its place in the file. Errors (exit
/// code 2): an unknown name, one that is listed twice, a suite that attacks no query.
pub fn listed<'n>(
    names: impl Iterator<Item = (String, &'n str)>,
    attacks: &[&Objective],
) -> Result<Vec<&'static Corruption>> {
    let mut found: Vec<&'static Corruption> = Vec::new();
    for (at, name) in names {
        let corruption = Corruption::find(name).map_err(|e| e.context(&at))?;
        if found.iter().any(|c| c.name == corruption.name) {
            return Err(Error::usage(format!("{at}: {} is listed twice", corruption.name)));
        }
        if attacks.iter().all(|objective| objective.measure.moves_candidate) {
            return Err(Error::usage(format!(
                "{at}: queries of attacks are corrupted, and those of this suite change images of the gallery: add an attack on queries, such \
                 as ES"
            )));
        }
        found.push(corruption);
    }
    Ok(found)
}

/// Why the suite of this name isn't for changed files; `None` if it has no corruptions.
pub fn beside_files(suite: &str, corruptions: &[&Corruption]) -> Option<String> {
    (!corruptions.is_empty())
        .then(|| format!("suite {suite} corrupts the model's input. Take --space input, or another suite"))
}

/// Why a suite isn't for images without classes; `None` if it has no corruptions.
pub fn without_classes(corruptions: &[&Corruption]) -> Option<&'static str> {
    (!corruptions.is_empty()).then_some("corruptions are measured by them: take another suite")
}

/// Refuses the suite of this name for sweeps and comparisons if it has corruptions (exit code 2).
pub fn refuse_several_models(suite: &str, corruptions: &[&Corruption]) -> Result<()> {
    match corruptions.is_empty() {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "suite {suite} has natural corruptions, which only an audit of one model measures: run an audit, or take a suite without \
             the key `corruptions`"
        ))),
    }
}

/// The input of corruptions.
pub struct Corrupting<'a> {
    pub dataset: &'a Dataset,
    pub prep: &'a Preparation,
    /// The clean gallery.
    pub gallery: &'a Gallery,
    /// The suite's corruptions.
    pub corruptions: &'a [&'static Corruption],
    pub seed: u64,
}

/// Images that are embedded for so many queries.
pub fn images(corruptions: &[&Corruption], queries: usize) -> usize {
    queries * corruptions.len() * STRENGTHS
}

impl Corrupting<'_> {
    /// Corrupts the queries of `trials` that have something to find. With `pictures`, there are some of the
    /// first query.
    pub fn measure(
        &self,
        trials: &[Trial],
        model: &mut Model,
        pictures: bool,
        mode: Mode,
    ) -> Result<(Vec<Corrupted>, Option<CorruptedPictures>)> {
        if self.corruptions.is_empty() {
            return Ok((Vec::new(), None));
        }
        let queries = self.queries(trials);
        let corrupted = self.run(&queries, model, mode)?;
        let first = queries.first().filter(|_| pictures);
        Ok((corrupted, first.map(|&query| self.pictures(query)).transpose()?))
    }

    /// The queries, ascending by id.
    fn queries(&self, trials: &[Trial]) -> Vec<usize> {
        let queries = trials.iter().filter(|t| !t.objective.measure.moves_candidate).map(|t| t.query);
        let finds = |query: &usize| self.gallery.positives(*query).next().is_some();
        let distinct: BTreeSet<usize> = queries.filter(finds).collect();
        let mut queries: Vec<usize> = distinct.into_iter().collect();
        queries.sort_by(|&a, &b| self.gallery.ids[a].cmp(&self.gallery.ids[b]));
        queries
    }

    /// The images of a query: for each corruption, one per strength.
    fn corrupted(&self, query: usize) -> Result<Vec<f32>> {
        let pixels = self.dataset.pixels(query, self.prep)?.data;
        let Preparation { channels, height, width, .. } = *self.prep;
        let picture = Picture { data: &pixels, shape: [channels, height, width] };
        let each = self.corruptions.iter().flat_map(|c| (1..=STRENGTHS).map(move |strength| (c, strength)));
        let made = each.map(|(c, strength)| c.apply(&picture, strength, self.seed, &self.gallery.ids[query]));
        Ok(made.collect::<Result<Vec<_>>>()?.concat())
    }

    /// What each query finds under each corruption of the suite, by query.
    fn run(&self, queries: &[usize], model: &mut Model, mode: Mode) -> Result<Vec<Corrupted>> {
        let mut phase = Phase::new("corruptions", images(self.corruptions, queries.len()) as u64, mode);
        let of_query = self.corruptions.len() * STRENGTHS;
        let (dim, metric) = (self.gallery.dim(), self.gallery.metric);
        let mut found = Vec::new();
        let at_once = (2 * model.at_once()).div_ceil(of_query).max(1);
        for (chunk, queries) in queries.chunks(at_once).enumerate() {
            let images = queries.par_iter().map(|&q| self.corrupted(q)).collect::<Result<Vec<_>>>()?.concat();
            let mut points = model.embed(&images)?.into_raw_vec_and_offset().0;
            for (&query, points) in queries.iter().zip(points.chunks_mut(of_query * dim)) {
                self.check(query, points)?;
                points.chunks_mut(dim).for_each(|point| metric.place(point));
                found.extend(self.judged(query, points)?);
            }
            phase.set(((chunk * at_once + queries.len()) * of_query) as u64, None);
            interrupt::check(" while queries were corrupted")?;
        }
        phase.finish();
        Ok(found)
    }

    /// Refuses embeddings [corruptions · strengths, D] of a query that are not finite (exit code 12): they
    /// have no rank.
    fn check(&self, query: usize, embeddings: &[f32]) -> Result<()> {
        let mut all = embeddings.chunks(self.gallery.dim());
        let Some(bad) = all.position(|one| one.iter().any(|v| !v.is_finite())) else { return Ok(()) };
        Err(Error::untrusted(format!(
            "{} at strength {} of query `{}`: the model's embedding is not finite, so that nothing can be ranked. Check the model's \
             arithmetic on such an image, or leave this corruption out of the suite",
            self.corruptions[bad / STRENGTHS].name,
            bad % STRENGTHS + 1,
            self.gallery.ids[query]
        )))
    }

    /// The ranks of one query from its `points` [corruptions · strengths, D].
    fn judged(&self, query: usize, points: &[f32]) -> Result<Vec<Corrupted>> {
        let clean = self.gallery.point(query);
        let all: Vec<(usize, &[f32])> =
            std::iter::once(clean).chain(points.chunks(self.gallery.dim())).map(|z| (query, z)).collect();
        let found = retrievals(self.gallery, &all);
        let [clean, corrupted @ ..] = &found[..] else { return Ok(Vec::new()) };
        let rows = self.corruptions.iter().zip(corrupted.chunks(STRENGTHS)).map(|(corruption, at)| {
            let one =
                |strength: usize| -> &Retrieval { if strength == 0 { clean } else { &at[strength - 1] } };
            Corrupted {
                corruption: corruption.name.into(),
                query: self.gallery.ids[query].clone(),
                first: std::array::from_fn(|strength| one(strength).first),
                ap: std::array::from_fn(|strength| one(strength).ap),
            }
        });
        Ok(rows.collect())
    }

    /// Pictures of a query, for the page.
    fn pictures(&self, query: usize) -> Result<CorruptedPictures> {
        let (images, prep) = (self.corrupted(query)?, self.prep);
        let pixels = images.len() / (self.corruptions.len() * STRENGTHS);
        let row = |(corruption, images): (&&Corruption, &[f32])| -> Result<CorruptedRow> {
            let pictures = images.chunks(pixels).map(|image| picture(image, prep));
            Ok(CorruptedRow {
                corruption: corruption.name.into(),
                pictures: pictures.collect::<Result<_>>()?,
            })
        };
        let rows = self.corruptions.iter().zip(images.chunks(pixels * STRENGTHS)).map(row);
        Ok(CorruptedPictures {
            query: self.gallery.ids[query].clone(),
            clean: picture(&self.dataset.pixels(query, prep)?.data, prep)?,
            rows: rows.collect::<Result<_>>()?,
        })
    }
}

/// The results of all `parts` of a run, in the order of one run.
pub fn merged<'r>(parts: impl Iterator<Item = &'r Report>) -> Vec<Corrupted> {
    let place = |c: &Corrupted| CORRUPTIONS.iter().position(|known| known.name == c.corruption);
    let mut all: Vec<Corrupted> = parts.flat_map(|part| part.corrupted.clone()).collect();
    all.sort_by(|a, b| a.query.cmp(&b.query).then(place(a).cmp(&place(b))));
    all
}

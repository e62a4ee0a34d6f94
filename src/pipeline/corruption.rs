//! Natural corruptions: each query is corrupted, embedded, and ranked in the clean gallery.

use super::examples::picture;
use crate::Result;
use crate::corruption::{CORRUPTIONS, Corruption, Picture, STRENGTHS};
use crate::data::{Dataset, Preparation};
use crate::interrupt;
use crate::model::Model;
use crate::progress::{Mode, Phase};
use crate::record::{Corrupted, CorruptedPictures, CorruptedRow, Retrieval};
use crate::space::Gallery;
use crate::suite::Suite;
use crate::threat::{Trial, retrievals};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// The input of corruptions.
pub struct Corrupting<'a> {
    pub dataset: &'a Dataset,
    pub prep: &'a Preparation,
    pub gallery: &'a Gallery,
    /// The suite's corruptions.
    pub corruptions: &'a [&'static Corruption],
    /// Queries, ascending by id.
    pub queries: Vec<usize>,
    pub seed: u64,
}

impl<'a> Corrupting<'a> {
    /// The queries of `trials` that have correct items, under the suite's corruptions.
    pub fn new(
        suite: &'a Suite,
        dataset: &'a Dataset,
        prep: &'a Preparation,
        gallery: &'a Gallery,
        trials: &[Trial],
        seed: u64,
    ) -> Corrupting<'a> {
        let asked = trials.iter().filter(|t| !t.objective.measure.moves_candidate).map(|t| t.query);
        let distinct: BTreeSet<usize> = asked.filter(|q| gallery.positives(*q).next().is_some()).collect();
        let mut queries: Vec<usize> = distinct.into_iter().collect();
        queries.sort_by(|&a, &b| gallery.ids[a].cmp(&gallery.ids[b]));
        Corrupting { dataset, prep, gallery, corruptions: &suite.corruptions, queries, seed }
    }

    /// Images that are embedded.
    pub fn images(&self) -> usize {
        self.queries.len() * self.corruptions.len() * STRENGTHS
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

    /// The ranks of each query under each corruption, by query, then in the order of [`CORRUPTIONS`].
    pub fn run(&self, model: &mut Model, mode: Mode) -> Result<Vec<Corrupted>> {
        let mut phase = Phase::new("corruptions", self.images() as u64, mode);
        let of_query = self.corruptions.len() * STRENGTHS;
        let (dim, metric) = (self.gallery.dim(), self.gallery.metric);
        let mut found = Vec::new();
        let at_once = (2 * model.at_once()).div_ceil(of_query).max(1);
        for (chunk, queries) in self.queries.chunks(at_once).enumerate() {
            let images = queries.par_iter().map(|&q| self.corrupted(q)).collect::<Result<Vec<_>>>()?.concat();
            let mut points = model.embed(&images)?.into_raw_vec_and_offset().0;
            points.chunks_mut(dim).for_each(|point| metric.place(point));
            for (&query, points) in queries.iter().zip(points.chunks(of_query * dim)) {
                found.extend(self.judged(query, points)?);
            }
            phase.set(((chunk * at_once + queries.len()) * of_query) as u64, None);
            interrupt::check(" while queries were corrupted")?;
        }
        phase.finish();
        Ok(found)
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

    /// Pictures of the first query, for the page; `None` if no query is corrupted.
    pub fn pictures(&self) -> Result<Option<CorruptedPictures>> {
        let Some(&query) = self.queries.first() else { return Ok(None) };
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
        Ok(Some(CorruptedPictures {
            query: self.gallery.ids[query].clone(),
            clean: picture(&self.dataset.pixels(query, prep)?.data, prep)?,
            rows: rows.collect::<Result<_>>()?,
        }))
    }
}

/// Sorts the results of single queries as [`Corrupting::run`] does.
pub fn sort(found: &mut [Corrupted]) {
    let place = |c: &Corrupted| CORRUPTIONS.iter().position(|known| known.name == c.corruption);
    found.sort_by(|a, b| a.query.cmp(&b.query).then(place(a).cmp(&place(b))));
}

//! The embedding space: metrics, distances, ranks, and the gallery.
//!
//! There are two kinds of distances:
//!
//! - *measured* ones (ranks, hits, shifts; twice per trial) are direct differences summed in `f64`
//!   ([`Metric::distance`]), because ranks depend on near ties; matrix products select the few differences
//!   that are needed ([`ranks`]);
//! - *optimised* ones (every step of every attack) are one matrix product for the whole batch
//!   ([`Gallery::distances_batch`], [`Gallery::gradient_batch`]). A rounding error may perturb a step, never
//!   a reported number.
//!
//! `arithmetic.rs` has sums and distances of single points, `batches.rs` the matrix products, and this file
//! the gallery.

mod arithmetic;
mod batches;
pub mod benign;
pub mod clustering;
pub mod geometry;
pub mod heads;
mod metric;
pub mod ranks;
mod sample;
pub mod sampler;
pub mod sharing;
mod spacing;
#[cfg(test)]
mod tests;
pub mod tsne;
pub mod verification;

use crate::data::Role;
use crate::name_index::NameIndex;
pub use arithmetic::{Angle, bits, cosine, hash, product, wide};
use arithmetic::{EUCLIDEAN, NORMALISED, squared_norms, sum_over};
use audit_base::{Error, Result};
use batches::{BLOCK, CANCELLED};
pub use metric::Metric;
use ndarray::{Array2, ArrayView1, Axis};
use rayon::prelude::*;
pub use sample::{order, sample_candidates, sample_of, sample_pairs, sample_queries};
pub use spacing::{ClassSpacing, Histogram, SamplerRow, Spacing, TripletState};
use std::collections::BTreeMap;
use std::ops::Range;

/// The usual k of SPQA and SPFOA: that for CUB-200-2011 and clothing (Zhou et al., T-PAMI 2024).
pub const XI_K: f64 = 4e4;

/// The label of foreign targets. No class has it.
const FOREIGN: usize = usize::MAX;

/// The gallery and the queries. An index names either: images 0..N are the gallery, further ones are queries
/// that are not in it. Mostly there are none of these, and every image of the gallery is a query.
pub struct Gallery {
    /// Metric of the space.
    pub metric: Metric,
    /// Clean embeddings as points of the space [N + further queries, D].
    pub points: Array2<f32>,
    /// Class of each image and further query.
    pub labels: Vec<usize>,
    /// Unique name of each image and further query, in reports and trial files.
    pub ids: Vec<String>,
    /// See [`Gallery::with_targets`].
    foreign: Option<Box<Gallery>>,
    /// Camera of each image, if any has one: see [`Gallery::same_view`].
    cameras: Vec<Option<u32>>,
    /// Number of images, N.
    size: usize,
    /// Indices of the queries, ascending.
    queries: Vec<usize>,
    /// ‖point‖² of each image.
    squares: Vec<f32>,
    largest_square: f32,
    index: NameIndex,
    /// See [`Gallery::with_centres`].
    centres: Option<Array2<f32>>,
}

/// Refuses embeddings of images that are not finite (exit code 12): they are at no distance from others. `id`
/// names an image by its place among them.
pub fn refuse_not_finite<'p, 'i>(
    embeddings: impl IntoIterator<Item = ArrayView1<'p, f32>>,
    id: impl Fn(usize) -> &'i str,
) -> Result<()> {
    let mut embeddings = embeddings.into_iter();
    match embeddings.position(|one| !one.fold(true, |all, v| all & v.is_finite())) {
        None => Ok(()),
        Some(bad) => Err(Error::untrusted(format!(
            "the clean embedding of `{}` is not finite: check the model's preprocessing and this image",
            id(bad)
        ))),
    }
}

impl Gallery {
    /// A gallery of raw embeddings [N, D], with the class and the name of each.
    pub fn new(metric: Metric, raw: Array2<f32>, labels: Vec<usize>, ids: Vec<String>) -> Result<Self> {
        let n = raw.nrows();
        if labels.len() != n || ids.len() != n {
            return Err(Error::internal(format!(
                "a gallery needs a label and an id per embedding: {n} embeddings, {} labels, {} ids",
                labels.len(),
                ids.len()
            )));
        }
        if n < 2 {
            return Err(Error::empty(format!(
                "there is nothing to rank: the gallery has {}. Give 2 images or more",
                if n == 1 { "only 1 image" } else { "no image" }
            )));
        }
        refuse_not_finite(raw.rows(), |i| ids[i].as_str())?;
        let name = |i: usize| ids[i].as_str();
        let index = NameIndex::of(n, name);
        if let Some((i, first)) = index.twice(name) {
            return Err(Error::usage(format!(
                "two images are called `{}` (numbers {first} and {i}): names must be unique",
                ids[i]
            )));
        }
        let points = metric.into_space(raw);
        let squares = squared_norms(&points);
        let largest_square = squares.iter().fold(0.0, |most: f32, &square| most.max(square));
        let (cameras, size, queries) = (Vec::new(), n, (0..n).collect());
        Ok(Gallery {
            metric,
            points,
            labels,
            ids,
            foreign: None,
            cameras,
            size,
            queries,
            squares,
            largest_square,
            index,
            centres: None,
        })
    }

    /// With the centres [k, D] of a clustering of its images.
    pub fn with_centres(self, centres: Option<Array2<f32>>) -> Self {
        Gallery { centres, ..self }
    }

    /// The cluster whose centre is nearest to the point `z` `[D]`; `None` without a clustering.
    pub fn cluster(&self, z: &[f32]) -> Option<usize> {
        let centres = self.centres.as_ref()?;
        let centres = centres.rows().into_iter().map(|c| c.to_slice().expect("row-major"));
        let all = centres.map(|c| sum_over(c, z, |c, z| (c - z) * (c - z))).enumerate();
        all.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0))).map(|(c, _)| c)
    }

    /// With a role and a camera for each image; queries that are not in the gallery must come last.
    pub fn with_roles(mut self, roles: &[Role], cameras: Vec<Option<u32>>) -> Result<Self> {
        let size = roles.iter().filter(|role| **role != Role::Query).count();
        let all = self.labels.len();
        if roles.len() != all || cameras.len() != all || roles[..size].contains(&Role::Query) {
            return Err(Error::internal(format!(
                "a gallery of {all} needs as many roles and cameras, queries last: {} roles, {} cameras",
                roles.len(),
                cameras.len()
            )));
        }
        if size < 1 || all < 2 {
            return Err(Error::empty(format!(
                "there is nothing to rank: {size} of {all} images are in the gallery. Give 2 images or more"
            )));
        }
        self.size = size;
        self.queries = (0..all).filter(|&i| roles[i] != Role::Gallery).collect();
        self.cameras = if cameras.iter().any(Option::is_some) { cameras } else { Vec::new() };
        if self.queries.is_empty() {
            return Err(Error::empty("no image is a query, so there is nothing to search for"));
        }
        Ok(self)
    }

    /// This gallery with one further image as the only query: its raw embedding `raw` `[D]`, and its name
    /// `id`. The gallery's image `without`, which is the same, is removed. `label`: the class of each
    /// remaining image; of the further image for `None`.
    pub fn searched_by(
        &self,
        id: String,
        raw: &[f32],
        without: Option<usize>,
        label: impl Fn(Option<usize>) -> usize,
    ) -> Result<Gallery> {
        let kept: Vec<usize> = (0..self.size).filter(|&i| Some(i) != without).collect();
        let mut rows: Vec<f32> = kept.iter().flat_map(|&i| self.point(i)).copied().collect();
        rows.extend(raw);
        let points = Array2::from_shape_vec((kept.len() + 1, self.dim()), rows)
            .map_err(|e| Error::internal(format!("an embedding of another length: {e}")))?;
        let mut ids: Vec<String> = kept.iter().map(|&i| self.ids[i].clone()).collect();
        ids.push(id);
        let labels = kept.iter().map(|&i| label(Some(i))).chain([label(None)]).collect();
        let mut roles = vec![Role::Gallery; kept.len()];
        roles.push(Role::Query);
        Gallery::new(self.metric, points, labels, ids)?.with_roles(&roles, vec![None; kept.len() + 1])
    }

    /// With foreign targets: raw embeddings [M, D] of other data than its images, such as texts, and their
    /// names. They are further points, neither queries nor images of the gallery. Errors (exit code 2): an
    /// image has the same name, fewer than two targets, an embedding without a direction under a normalising
    /// metric.
    pub fn with_targets(mut self, raw: Array2<f32>, ids: Vec<String>) -> Result<Self> {
        if let Some(id) = ids.iter().find(|id| self.find(id).is_some()) {
            return Err(Error::usage(format!(
                "the target `{id}` has the name of an image, and trials identify both by name: rename the target"
            )));
        }
        if ids.len() < 2 {
            return Err(Error::usage(format!(
                "{} target. Give two or more: the rank of a target is measured among the others",
                ids.len()
            )));
        }
        let (least, most) = if self.metric.normalizes() { NORMALISED } else { (0.0, EUCLIDEAN.1) };
        let length = |row: ArrayView1<f32>| row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        let mut lengths = raw.rows().into_iter().map(length).enumerate();
        if let Some((at, length)) = lengths.find(|(_, length)| !(least..=most).contains(length)) {
            return Err(Error::usage(format!(
                "the embedding of the target `{}` has length {length:.1e}. Supported lengths under `{}`: {least:.0e} to {most:.0e}. Leave the \
                 target out, or export it again",
                ids[at],
                self.metric.name()
            )));
        }
        let foreign = Gallery::new(self.metric, raw, vec![FOREIGN; ids.len()], ids.clone())?;
        self.points
            .append(Axis(0), foreign.points.view())
            .map_err(|e| Error::internal(format!("targets: {e}")))?;
        if !self.cameras.is_empty() {
            self.cameras.resize(self.ids.len() + ids.len(), None);
        }
        self.labels.resize(self.ids.len() + ids.len(), FOREIGN);
        self.ids.extend(ids);
        self.index = NameIndex::of(self.ids.len(), |i| self.ids[i].as_str());
        Ok(Gallery { foreign: Some(Box::new(foreign)), ..self })
    }

    /// The foreign targets as a separate gallery, whose image i is the point `targets().start + i`; `None`
    /// without any.
    pub fn foreign(&self) -> Option<&Gallery> {
        self.foreign.as_deref()
    }

    /// The indices of foreign targets; empty without any.
    pub fn targets(&self) -> Range<usize> {
        let count = self.foreign().map_or(0, Gallery::len);
        self.ids.len() - count..self.ids.len()
    }

    /// Indices of the queries, ascending; N and above: not in the gallery.
    pub fn queries(&self) -> &[usize] {
        &self.queries
    }

    /// Whether `a` and `b` are different images of one class from one camera. Neither ranks the other,
    /// because re-identification looks for images from other cameras.
    pub fn same_view(&self, a: usize, b: usize) -> bool {
        !self.cameras.is_empty()
            && a != b
            && self.cameras[a].is_some()
            && self.cameras[a] == self.cameras[b]
            && self.labels[a] == self.labels[b]
    }

    /// Whether `query` doesn't rank `item`: it is the query itself, or the same view.
    pub fn excluded(&self, query: usize, item: usize) -> bool {
        query == item || self.same_view(query, item)
    }

    /// The positives of `query` in the gallery, ascending.
    pub fn positives(&self, query: usize) -> impl Iterator<Item = usize> {
        let class = self.labels[query];
        (0..self.size).filter(move |&i| self.labels[i] == class && !self.excluded(query, i))
    }

    /// These images or queries by their class.
    pub(crate) fn by_class(&self, items: impl IntoIterator<Item = usize>) -> BTreeMap<usize, Vec<usize>> {
        let mut classes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        items.into_iter().for_each(|i| classes.entry(self.labels[i]).or_default().push(i));
        classes
    }

    /// Number of images in the gallery, N.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Dimension of the space, D.
    pub fn dim(&self) -> usize {
        self.points.ncols()
    }

    /// The point of image or further query `i`, D.
    pub fn point(&self, i: usize) -> &[f32] {
        let d = self.dim();
        &self.points.as_slice().expect("points are row-major by construction")[i * d..(i + 1) * d]
    }

    /// The index of an image or further query, by name.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.index.find(id, |i| self.ids[i].as_str())
    }

    /// Images that `query` doesn't rank, ascending: the same views, and the query itself if `own`.
    pub fn left_out(&self, query: usize, own: bool) -> Vec<usize> {
        if self.cameras.is_empty() {
            return Vec::from_iter((own && query < self.size).then_some(query));
        }
        (0..self.size).filter(|&i| self.same_view(query, i) || (own && i == query)).collect()
    }

    /// Distances from a point to every image, N, by direct difference, for measurements.
    pub fn distances(&self, z: &[f32]) -> Vec<f64> {
        let items = (0..self.len()).into_par_iter().with_min_len(BLOCK);
        items.map(|i| self.metric.distance(z, self.point(i))).collect()
    }

    /// The `k` nearest images by the distances `d` (N) among those that `keep` allows, nearest first; ties by
    /// index.
    pub fn nearest(&self, d: &[f64], k: usize, keep: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut items: Vec<usize> = (0..self.len()).filter(|&i| keep(i)).collect();
        let by_distance = |a: &usize, b: &usize| d[*a].total_cmp(&d[*b]).then(a.cmp(b));
        if k < items.len() {
            items.select_nth_unstable_by(k, by_distance);
            items.truncate(k);
        }
        items.sort_unstable_by(by_distance);
        items
    }

    /// Rank of image `i` by the distances `d` (N), 0 = nearest, ties by index, among the images that `keep`
    /// allows.
    pub fn position(&self, d: &[f64], i: usize, keep: impl Fn(usize) -> bool) -> usize {
        (0..self.len()).filter(|&j| keep(j) && (d[j] < d[i] || (d[j] == d[i] && j < i))).count()
    }
}

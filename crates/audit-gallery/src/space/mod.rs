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

pub mod benign;
pub mod geometry;
pub mod heads;
mod metric;
pub mod ranks;
mod sample;
pub mod sampler;
mod spacing;
pub mod tsne;
pub mod verification;

use crate::data::Role;
use crate::name_index::NameIndex;
use audit_base::{Error, Result};
pub use metric::Metric;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
pub use sample::{order, sample_candidates, sample_of, sample_queries};
pub use spacing::{ClassSpacing, Histogram, SamplerRow, Spacing, TripletState};
use std::ops::Range;

/// Minimum norm; smaller ones are replaced by it, as in `torch.nn.functional.normalize`.
const TINY_NORM: f64 = 1e-12;

/// Minimum and maximum length of embeddings under normalising metrics. A shorter row would not have length 1
/// after the division, and a longer one takes gradients out of float32's range.
const NORMALISED: (f64, f64) = (TINY_NORM, 1e30);
/// Minimum and maximum length of the longest embedding under the Euclidean metric, whose squares are float32.
/// Published losses add 1e-6 to every coordinate, which hides anything shorter.
const EUCLIDEAN: (f64, f64) = (1e-6, 1e18);

/// ‖a‖² + ‖b‖² − 2ab in `f32` has about 7 digits of ‖a‖² + ‖b‖². Squared distances below this share of it
/// would have fewer than 4, so they are computed by direct difference.
const CANCELLED: f32 = 2e-3;

/// Gallery rows per matrix product: enough to be efficient, few enough to divide among threads. Fixed, so
/// that sums don't depend on the number of threads.
const BLOCK: usize = 1024;

/// The usual k of SPQA and SPFOA: that for CUB-200-2011 and clothing (Zhou et al., T-PAMI 2024).
pub const XI_K: f64 = 4e4;

impl Metric {
    /// A model's raw embeddings [n, D] as points of the space [n, D]: [`Metric::place`] of each row. Rows of
    /// the result are contiguous.
    pub fn into_space(self, raw: Array2<f32>) -> Array2<f32> {
        let mut raw = if raw.is_standard_layout() { raw } else { raw.as_standard_layout().into_owned() };
        for mut row in raw.rows_mut() {
            self.place(row.as_slice_mut().expect("standard layout"));
        }
        raw
    }

    /// Makes a raw embedding (D) a point of the space: divides it by max(‖raw‖, 1e-12) under normalising
    /// metrics, and leaves it unchanged under the Euclidean one.
    pub fn place(self, raw: &mut [f32]) {
        if self.normalizes() {
            let norm = product(raw, raw).sqrt().max(TINY_NORM);
            raw.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
        }
    }

    /// Refuses embeddings [N, D] that are too short or too long to be compared (exit code 12). `ids`: their
    /// names. An embedding of 0 is not refused: it is a finding of the check of clean embeddings.
    pub fn check_lengths(self, raw: &Array2<f32>, ids: &[String]) -> Result<()> {
        let length = |row: ndarray::ArrayView1<f32>| match row.as_slice() {
            Some(row) => product(row, row).sqrt(),
            None => row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt(),
        };
        let lengths = raw.rows().into_iter().map(length).enumerate();
        let lengths = lengths.filter(|(_, length)| *length > 0.0 && length.is_finite());
        let (least, most) = if self.normalizes() { NORMALISED } else { EUCLIDEAN };
        let wrong = |(_, length): &(usize, f64)| !(least..=most).contains(length);
        let outlier = match self.normalizes() {
            true => { lengths }.find(wrong),
            false => lengths.max_by(|a, b| a.1.total_cmp(&b.1)).filter(wrong),
        };
        match outlier {
            None => Ok(()),
            Some((i, length)) => Err(Error::untrusted(format!(
                "the clean embedding of `{}` has length {length:.1e}. Supported lengths under `{}`: {least:.0e} to {most:.0e}. Scale the \
             model's output",
                ids[i],
                self.name()
            ))),
        }
    }

    /// Replaces ∂L/∂point (D) by ∂L/∂raw: the vector-Jacobian product of [`Metric::place`].
    pub fn pull_back(self, raw: &[f32], gradient: &mut [f32]) {
        if !self.normalizes() {
            return;
        }
        let norm = product(raw, raw).sqrt();
        let (scale, along) = if norm > TINY_NORM {
            (norm, product(raw, gradient) / (norm * norm))
        } else {
            // The norm is clamped, so the divisor is constant.
            (TINY_NORM, 0.0)
        };
        for (g, &r) in gradient.iter_mut().zip(raw) {
            *g = ((f64::from(*g) - along * f64::from(r)) / scale) as f32;
        }
    }

    /// The distance between two points, by direct difference.
    pub fn distance(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Metric::Cosine => 1.0 - product(a, b),
            _ => sum_over(a, b, |x, y| (x - y) * (x - y)).sqrt(),
        }
    }

    /// The distance d of a point `z` from `u`. Adds weight(d) · ∂d/∂z to `gradient`. `offset` is added to
    /// every coordinate of z − u (`torch.nn.functional.pairwise_distance` adds 1e-6). The gradient of a
    /// distance of 0 is 0.
    pub fn pair(
        self,
        z: &[f32],
        u: &[f64],
        offset: f64,
        gradient: &mut [f32],
        weight: impl FnOnce(f64) -> f32,
    ) -> f64 {
        if self == Metric::Cosine {
            let angle = Angle::between(z, u);
            let weight = weight(1.0 - angle.cosine);
            angle.add_gradient(z, u, gradient, -weight);
            return 1.0 - angle.cosine;
        }
        let distance = sum_over(z, u, |z, u| (z - u + offset).powi(2)).sqrt();
        let (per, weight) = (if distance > 0.0 { 1.0 / distance } else { 0.0 }, weight(distance));
        for (g, (&z, u)) in gradient.iter_mut().zip(z.iter().zip(u)) {
            *g += weight * ((f64::from(z) - u + offset) * per) as f32;
        }
        distance
    }
}

/// The angle between two vectors; norms are at least 1e-8, as in `torch.nn.functional.cosine_similarity`.
pub struct Angle {
    /// Cosine similarity.
    pub cosine: f64,
    /// ‖z‖ and ‖u‖, at least 1e-8.
    norms: [f64; 2],
}

impl Angle {
    /// The angle between `z` and `u`.
    pub fn between(z: &[f32], u: &[f64]) -> Angle {
        let norm = |squares: f64| squares.sqrt().max(1e-8);
        let (nz, nu) = (norm(product(z, z)), norm(product(u, u)));
        let cosine = product(z, u) / (nz * nu);
        Angle { cosine, norms: [nz, nu] }
    }

    /// Adds weight · ∂cosine/∂z to `gradient`.
    pub fn add_gradient(&self, z: &[f32], u: &[f64], gradient: &mut [f32], weight: f32) {
        let (cosine, [nz, nu]) = (self.cosine, self.norms);
        for (g, (&z, u)) in gradient.iter_mut().zip(z.iter().zip(u)) {
            *g += weight * (u / (nz * nu) - cosine * f64::from(z) / (nz * nz)) as f32;
        }
    }
}

/// Converts to `f64`.
pub fn wide(v: &[f32]) -> Vec<f64> {
    v.iter().map(|&x| f64::from(x)).collect()
}

/// Σ a_i b_i in `f64`.
pub fn product<A: Copy + Into<f64>, B: Copy + Into<f64>>(a: &[A], b: &[B]) -> f64 {
    sum_over(a, b, |x, y| x * y)
}

/// The cosine of the angle between two vectors; 0 if one of them is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    product(a, b) / (product(a, a) * product(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// Σ f(a_i, b_i) in `f64`, in eight partial sums that the compiler vectorises. Indexed, because the release
/// build inlines no iterator adapter of another codegen unit, and these took most of the time.
#[inline]
fn sum_over<A: Copy + Into<f64>, B: Copy + Into<f64>>(a: &[A], b: &[B], f: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0f64; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for at in 0..a.len().min(b.len()) {
        let (x, y) = (&a[at], &b[at]);
        for lane in 0..LANES {
            lanes[lane] += f(x[lane].into(), y[lane].into());
        }
    }
    let mut tail = 0.0;
    for at in 0..a_tail.len().min(b_tail.len()) {
        tail += f(a_tail[at].into(), b_tail[at].into());
    }
    lanes.iter().sum::<f64>() + tail
}

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
    /// Maximum of `squares`.
    largest_square: f32,
    /// Index of each id.
    index: NameIndex,
    /// See [`Gallery::with_centres`].
    centres: Option<Array2<f32>>,
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
                "a gallery of {n} image(s) has nothing to rank: give at least 2 images"
            )));
        }
        if let Some(bad) =
            raw.rows().into_iter().position(|row| !row.fold(true, |all, v| all & v.is_finite()))
        {
            return Err(Error::untrusted(format!(
                "the clean embedding of `{}` is not finite: check the model's preprocessing and this image",
                ids[bad]
            )));
        }
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
            return Err(Error::empty(format!("a gallery of {size} image(s) has nothing to rank")));
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

    /// Distances `d` [b, N] from a batch of points `z` [b, D] to every image, by one matrix product, for
    /// losses. Entries with cancellation are computed directly. `room`: a buffer for the product, with any
    /// content.
    pub fn distances_batch(&self, z: &[f32], d: &mut [f32], room: &mut Vec<f32>) {
        let (n, dim) = (self.len(), self.dim());
        let b = z.len() / dim;
        let rows = ArrayView2::from_shape((b, dim), z).expect("b·D values");
        room.resize(b * n, 0.0);
        room.par_chunks_mut((b * BLOCK).max(1)).enumerate().for_each(|(k, dots)| {
            let items = self.block(k);
            let mut dots = ArrayViewMut2::from_shape((b, items.nrows()), dots).expect("a block of products");
            general_mat_mul(1.0, &rows, &items.t(), 0.0, &mut dots);
        });
        d.par_chunks_mut(n).zip(z.par_chunks(dim)).enumerate().for_each(|(row, (d, z))| {
            let own = squared_norm(z);
            for (k, out) in d.chunks_mut(BLOCK).enumerate() {
                let dots = &room[k * b * BLOCK + row * out.len()..][..out.len()];
                if self.metric == Metric::Cosine {
                    out.iter_mut().zip(dots).for_each(|(out, dot)| *out = 1.0 - dot);
                    continue;
                }
                // The first loop has no branch, so that it is vectorised. The second one computes the few
                // distances with cancellation.
                let theirs = &self.squares[k * BLOCK..][..out.len()];
                // False for NaN too.
                let kept = |squared: f32, squares: f32| squared > CANCELLED * squares;
                let mut any = false;
                for ((out, &dot), their) in out.iter_mut().zip(dots).zip(theirs) {
                    let squares = own + their;
                    let squared = squares - 2.0 * dot;
                    any |= !kept(squared, squares);
                    *out = squared.max(0.0).sqrt();
                }
                for (j, (out, their)) in out.iter_mut().zip(theirs).enumerate().filter(|_| any) {
                    let squares = own + their;
                    if !kept(squares - 2.0 * dots[j], squares) {
                        *out = self.metric.distance(z, self.point(k * BLOCK + j)) as f32;
                    }
                }
            }
        });
    }

    /// Writes ∂L/∂z [b, D] to `gradient`, for a batch of points `z` [b, D], from their distances `d` [b, N]
    /// to every image and `weights` = ∂L/∂d [b, N], which are overwritten: z·Σᵢ(wᵢ/dᵢ) − (w/d)·X for the
    /// Euclidean metrics, −w·X for cosine; one matrix product in either case. A distance of 0 has no
    /// direction and contributes 0. `room`: as in [`Gallery::distances_batch`].
    pub fn gradient_batch(
        &self,
        z: &[f32],
        d: &[f32],
        weights: &mut [f32],
        gradient: &mut [f32],
        room: &mut Vec<f32>,
    ) {
        let (n, dim) = (self.len(), self.dim());
        let b = z.len() / dim;
        let of_rows = weights.par_chunks_mut(n).zip(d.par_chunks(n));
        let rows = gradient.par_chunks_mut(dim).zip(z.par_chunks(dim));
        of_rows.zip(rows).for_each(|((w, d), (gradient, z))| {
            let mut total = 0.0;
            if self.metric != Metric::Cosine {
                for (w, &d) in w.iter_mut().zip(d) {
                    *w = if d > 0.0 { *w / d } else { 0.0 };
                }
                total = sum_over(w, w, |w, _| w) as f32;
            }
            gradient.iter_mut().zip(z).for_each(|(g, &z)| *g = z * total);
        });
        let weights = ArrayView2::from_shape((b, n), &*weights).expect("b·N values");
        room.resize(n.div_ceil(BLOCK) * b * dim, 0.0);
        room.par_chunks_mut((b * dim).max(1)).enumerate().for_each(|(k, part)| {
            let items = self.block(k);
            let weights = weights.slice(s![.., k * BLOCK..k * BLOCK + items.nrows()]);
            let mut part = ArrayViewMut2::from_shape((b, dim), part).expect("b·D values");
            general_mat_mul(1.0, &weights, &items, 0.0, &mut part);
        });
        for part in room.chunks((b * dim).max(1)) {
            gradient.iter_mut().zip(part).for_each(|(g, part)| *g -= part);
        }
    }

    /// The points of the k-th matrix product, [at most BLOCK, D].
    fn block(&self, k: usize) -> ArrayView2<'_, f32> {
        self.points.slice(s![self.of_block(k), ..])
    }

    /// The images of the k-th matrix product.
    fn of_block(&self, k: usize) -> Range<usize> {
        k * BLOCK..self.len().min((k + 1) * BLOCK)
    }
}

fn squared_norms<S: ndarray::Data<Elem = f32>>(rows: &ndarray::ArrayBase<S, ndarray::Ix2, f32>) -> Vec<f32> {
    rows.rows().into_iter().map(|r| squared_norm(r.to_slice().expect("row-major"))).collect()
}

/// Bits of a coordinate, the same for equal coordinates.
pub fn bits(v: f32) -> u32 {
    // Adding 0 turns -0 into 0.
    (v + 0.0).to_bits()
}

/// A hash of a point (D), the same for equal points: multiplications by an odd number, as in FNV, in
/// independent lanes. Each step is a bijection, so points that differ in one coordinate have different
/// hashes.
pub fn hash(point: &[f32]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut lanes = [0u64; 8];
    for chunk in point.chunks(lanes.len()) {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane ^ u64::from(bits(*v))).wrapping_mul(FACTOR);
        }
    }
    lanes.iter().fold(0, |all: u64, lane| (all.rotate_left(11) ^ lane).wrapping_mul(FACTOR))
}

fn squared_norm(v: &[f32]) -> f32 {
    v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(n: usize, d: usize, seed: u64) -> Array2<f32> {
        let mut state = seed;
        Array2::from_shape_fn((n, d), |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
    }

    fn gallery(metric: Metric, raw: Array2<f32>) -> Gallery {
        let n = raw.nrows();
        Gallery::new(metric, raw, vec![0; n], (0..n).map(|i| i.to_string()).collect()).unwrap()
    }

    /// Distances in a buffer that already has other content.
    fn distances(gallery: &Gallery, z: &Array2<f32>) -> Array2<f32> {
        let mut d = Array2::zeros((z.nrows(), gallery.len()));
        let mut room = vec![7.0; 100];
        gallery.distances_batch(z.as_slice().unwrap(), d.as_slice_mut().unwrap(), &mut room);
        d
    }

    fn gradient(gallery: &Gallery, z: &Array2<f32>, d: &Array2<f32>, mut w: Array2<f32>) -> Array2<f32> {
        let mut gradient = Array2::from_elem(z.dim(), 7.0);
        let (z, d, w) = (z.as_slice().unwrap(), d.as_slice().unwrap(), w.as_slice_mut().unwrap());
        gallery.gradient_batch(z, d, w, gradient.as_slice_mut().unwrap(), &mut vec![7.0; 100]);
        gradient
    }

    #[test]
    fn names_and_letters_parse_and_serialise() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse::<Metric>().unwrap(), metric);
            assert_eq!(metric.letter().parse::<Metric>().unwrap(), metric);
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{}\"", metric.name()));
            assert_eq!(serde_json::from_str::<Metric>(&json).unwrap(), metric);
            assert_eq!(serde_json::from_str::<Metric>(&format!("\"{}\"", metric.letter())).unwrap(), metric);
        }
        assert!("manhattan".parse::<Metric>().unwrap_err().message.contains("euclidean (E)"));
    }

    #[test]
    fn matrix_product_agrees_with_direct_differences() {
        for metric in Metric::ALL {
            // More than one block; a query equal to an image; one within rounding of another.
            let raw = cloud(BLOCK + 37, 24, 1);
            let mut z = raw.slice(s![3..6, ..]).to_owned();
            z[[1, 0]] += 1e-4;
            z.row_mut(2).mapv_inplace(|v| -2.0 * v);
            let gallery = gallery(metric, raw);
            let z = metric.into_space(z);
            let fast = distances(&gallery, &z);
            for (row, fast) in fast.rows().into_iter().enumerate() {
                let exact = gallery.distances(z.row(row).as_slice().unwrap());
                for (i, (&f, e)) in fast.iter().zip(exact).enumerate() {
                    assert!(
                        (f64::from(f) - e).abs() < 2e-6 * (1.0 + e),
                        "{metric} row {row} item {i}: {f} vs {e}"
                    );
                }
            }
            if metric != Metric::Cosine {
                assert_eq!(fast[[0, 3]], 0.0, "an item is at distance exactly 0 from itself");
                assert!(
                    (f64::from(fast[[1, 4]])
                        - metric.distance(gallery.point(4), z.row(1).as_slice().unwrap()))
                    .abs()
                        < 1e-9
                );
            }
        }
    }

    /// L = Σ wᵢ·d(normalise(raw), xᵢ), differentiated numerically with respect to raw in `f64`.
    #[test]
    fn gradients_agree_with_finite_differences() {
        for metric in Metric::ALL {
            let gallery = gallery(metric, cloud(50, 8, 2));
            let raw = cloud(3, 8, 3) * 1.7;
            let weights = cloud(3, 50, 4);
            let z = metric.into_space(raw.clone());
            let d = distances(&gallery, &z);
            let mut gradient = gradient(&gallery, &z, &d, weights.clone());
            for (raw, mut gradient) in raw.rows().into_iter().zip(gradient.rows_mut()) {
                metric.pull_back(raw.as_slice().unwrap(), gradient.as_slice_mut().unwrap());
            }
            let loss = |row: usize, raw: &[f64]| -> f64 {
                let norm =
                    if metric.normalizes() { raw.iter().map(|v| v * v).sum::<f64>().sqrt() } else { 1.0 };
                (0..50)
                    .map(|i| {
                        let pairs =
                            raw.iter().map(|v| v / norm).zip(gallery.point(i).iter().map(|&x| f64::from(x)));
                        let d = match metric {
                            Metric::Cosine => 1.0 - pairs.map(|(a, b)| a * b).sum::<f64>(),
                            _ => pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
                        };
                        f64::from(weights[[row, i]]) * d
                    })
                    .sum()
            };
            for row in 0..3 {
                let at = wide(raw.row(row).as_slice().unwrap());
                for k in 0..8 {
                    let (mut up, mut down) = (at.clone(), at.clone());
                    up[k] += 1e-5;
                    down[k] -= 1e-5;
                    let numeric = (loss(row, &up) - loss(row, &down)) / 2e-5;
                    let found = f64::from(gradient[[row, k]]);
                    assert!(
                        (found - numeric).abs() < 1e-5 * (1.0 + numeric.abs()),
                        "{metric}: {found} vs {numeric}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_distance_of_zero_has_no_gradient() {
        let raw = cloud(4, 5, 5);
        for metric in [Metric::Euclidean, Metric::NormalizedEuclidean] {
            let gallery = gallery(metric, raw.clone());
            let z = gallery.points.slice(s![1..2, ..]).to_owned();
            let d = distances(&gallery, &z);
            let mut weights = Array2::zeros((1, 4));
            weights[[0, 1]] = 1.0;
            let gradient = gradient(&gallery, &z, &d, weights);
            assert!(gradient.iter().all(|&g| g == 0.0));
            let mut gradient = vec![0.0; 5];
            let own = wide(gallery.point(1));
            let distance = metric.pair(gallery.point(1), &own, 0.0, &mut gradient, |_| 1.0);
            assert!(distance == 0.0 && gradient.iter().all(|&g| g == 0.0));
        }
    }

    #[test]
    fn positions_break_ties_by_index_and_nearest_agrees() {
        let gallery = gallery(Metric::Euclidean, cloud(5, 2, 6));
        let d = [3.0, 1.0, 2.0, 1.0, 0.5];
        assert_eq!(gallery.nearest(&d, 3, |_| true), [4, 1, 3]);
        assert_eq!(gallery.nearest(&d, 9, |i| i != 4), [1, 3, 2, 0]);
        assert_eq!(gallery.position(&d, 3, |_| true), 2);
        assert_eq!(gallery.position(&d, 3, |i| i != 4), 1);
        assert_eq!(gallery.position(&d, 0, |_| true), 4);
    }

    #[test]
    fn galleries_refuse_what_cannot_be_ranked() {
        let ids = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        let refuse = |raw, labels, ids| Gallery::new(Metric::Euclidean, raw, labels, ids).err().unwrap();
        assert_eq!(refuse(cloud(1, 2, 7), vec![0], ids(1)).exit, audit_base::Exit::Empty);
        let twice = refuse(cloud(2, 2, 7), vec![0; 2], vec!["a".into(), "a".into()]);
        assert!(twice.message.contains("`a`") && twice.exit == audit_base::Exit::Usage);
        let mut nan = cloud(2, 2, 7);
        nan[[1, 0]] = f32::NAN;
        let nan = refuse(nan, vec![0; 2], ids(2));
        assert!(nan.message.contains("`1`") && nan.exit == audit_base::Exit::Untrusted);
    }
}

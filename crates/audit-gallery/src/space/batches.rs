//! Distances of a batch of points to the whole gallery, and their gradient, by matrix products.

use super::arithmetic::{squared_norm, sum_over};
use super::{Gallery, Metric};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;
use std::ops::Range;

/// ‖a‖² + ‖b‖² − 2ab in `f32` has about 7 digits of ‖a‖² + ‖b‖². Squared distances below this share of it
/// would have fewer than 4, so they are computed by direct difference.
pub(super) const CANCELLED: f32 = 2e-3;

/// Gallery rows per matrix product: enough to be efficient, few enough to divide among threads. Fixed, so
/// that sums don't depend on the number of threads.
pub(super) const BLOCK: usize = 1024;

impl Gallery {
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
                // The first loops have no branch, so that they are vectorised. The last ones compute the few
                // distances with cancellation.
                if self.metric == Metric::Cosine {
                    let kept = |d: f32| d > CANCELLED;
                    let mut any = false;
                    for (out, dot) in out.iter_mut().zip(dots) {
                        *out = 1.0 - dot;
                        any |= !kept(*out);
                    }
                    for (j, out) in out.iter_mut().enumerate().filter(|(_, d)| any && !kept(**d)) {
                        *out = self.metric.distance(z, self.point(k * BLOCK + j)) as f32;
                    }
                    continue;
                }
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

    /// How much nearer another point must be than image i at the distance `d`, so that rounding in
    /// [`Gallery::distances_batch`] doesn't decide: 1e-6 of the numbers whose difference the distance is.
    pub fn rounding(&self, i: usize, d: f64) -> f64 {
        let squares = f64::from(self.squares[i]);
        let share = match self.metric {
            Metric::Cosine if d > f64::from(CANCELLED) => 1.0,
            // The rounding of d² is divided by d.
            Metric::Euclidean | Metric::NormalizedEuclidean
                if d * d > 2.0 * f64::from(CANCELLED) * squares =>
            {
                squares.max(d * d) / d
            }
            // By direct difference.
            _ => d.abs(),
        };
        1e-6 * share
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
    pub(super) fn block(&self, k: usize) -> ArrayView2<'_, f32> {
        self.points.slice(s![self.of_block(k), ..])
    }

    /// The images of the k-th matrix product.
    pub(super) fn of_block(&self, k: usize) -> Range<usize> {
        k * BLOCK..self.len().min((k + 1) * BLOCK)
    }
}

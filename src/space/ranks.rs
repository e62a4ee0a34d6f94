//! Exact ranks in large galleries: matrix products tell nearly all items apart, and those that rounding might have
//! put on the wrong side are compared again by direct difference.

use super::{BLOCK, Gallery, Metric};
use ndarray::{ArrayView2, s};
use rayon::prelude::*;

/// Queries that one product takes.
const QUERIES: usize = 256;

/// Positions of `targets[r]` (items) in the gallery sorted by distance from row r of `z` [b, D], 0 = nearest, ties by
/// index: what [`Gallery::position`] says of [`Gallery::distances`], to the last tie. Every item counts, the query's
/// own as well.
///
/// Beside the gallery, this takes `QUERIES`×`BLOCK` values a thread.
pub fn ranks(gallery: &Gallery, z: ArrayView2<f32>, targets: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let z = z.as_standard_layout();
    let rows: Vec<&[f32]> =
        z.rows().into_iter().map(|row| row.to_slice().expect("standard layout")).collect();
    rows.chunks(QUERIES)
        .zip(targets.chunks(QUERIES))
        .enumerate()
        .flat_map(|(k, (rows, targets))| {
            let z = z.slice(s![k * QUERIES..k * QUERIES + rows.len(), ..]);
            let wanted: Vec<Vec<Target>> =
                rows.par_iter().zip(targets).map(|(z, ids)| Target::all(gallery, z, ids)).collect();
            let starts: Vec<usize> = wanted
                .iter()
                .scan(0, |sum, targets| Some(std::mem::replace(sum, *sum + targets.len())))
                .collect();
            let none = || vec![0usize; targets.iter().map(Vec::len).sum()];
            let counts = (0..gallery.len().div_ceil(BLOCK))
                .into_par_iter()
                .fold(none, |mut counts, block| {
                    let from = block * BLOCK;
                    let items = from..gallery.len().min(from + BLOCK);
                    let mut keys = z.dot(&gallery.points.slice(s![items.clone(), ..]).t());
                    for (row, targets) in wanted.iter().enumerate() {
                        let keys = keys.row_mut(row).into_slice().expect("standard layout");
                        let counts = &mut counts[starts[row]..][..targets.len()];
                        count(gallery, rows[row], items.clone(), keys, targets, counts);
                    }
                    counts
                })
                .reduce(none, |mut a, b| {
                    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                    a
                });
            wanted.iter().zip(starts).map(|(t, at)| counts[at..at + t.len()].to_vec()).collect::<Vec<_>>()
        })
        .collect()
}

/// An item whose position is wanted.
struct Target {
    item: usize,
    /// Its distance, by direct difference.
    distance: f64,
    /// Items with a key below are nearer for certain.
    low: f32,
    /// Items with a key above are farther for certain.
    high: f32,
}

impl Target {
    /// Keys order items as distances do, and need one product: ‖x‖²/2 − z·x, or −z·x under cosine. In `f32` they are
    /// off by at most (D+2)·u·‖z‖‖x‖ + 3u·‖x‖²/2, u = 2⁻²⁴ (Higham, Accuracy and Stability, section 3.1), in whatever
    /// order the product is summed.
    fn all(gallery: &Gallery, z: &[f32], items: &[usize]) -> Vec<Target> {
        let dot = |a: &[f32], b: &[f32]| super::sum_over(a, b, |x, y| x * y);
        let unit = 0.5 * f64::from(f32::EPSILON);
        let most = f64::from(gallery.largest_square);
        let slack = 1.01 * unit * ((z.len() + 2) as f64 * (dot(z, z) * most).sqrt() + 1.5 * most);
        items
            .iter()
            .map(|&item| {
                let x = gallery.point(item);
                let half = if gallery.metric == Metric::Cosine { 0.0 } else { dot(x, x) / 2.0 };
                let key = half - dot(z, x);
                let (low, high) = ((key - slack) as f32, (key + slack) as f32);
                let distance = gallery.metric.distance(z, x);
                Target { item, distance, low: low.next_down(), high: high.next_up() }
            })
            .collect()
    }
}

/// Adds to `counts` how many of `items` come before each target. `keys` holds the products z·x.
fn count(
    gallery: &Gallery,
    z: &[f32],
    items: std::ops::Range<usize>,
    keys: &mut [f32],
    targets: &[Target],
    counts: &mut [usize],
) {
    match gallery.metric {
        Metric::Cosine => keys.iter_mut().for_each(|key| *key = -*key),
        _ => keys.iter_mut().zip(&gallery.squares[items.clone()]).for_each(|(k, sq)| *k = 0.5 * sq - *k),
    }
    let mut exact: Vec<Option<f64>> = Vec::new();
    for (target, count) in targets.iter().zip(counts) {
        // Branchless, for the compiler to use vector instructions.
        let (mut below, mut within) = (0u32, 0u32);
        for &key in keys.iter() {
            below += u32::from(key < target.low);
            within += u32::from(key <= target.high);
        }
        *count += below as usize;
        if within == below {
            continue;
        }
        exact.resize(keys.len(), None);
        for (at, _) in keys.iter().enumerate().filter(|(_, k)| (target.low..=target.high).contains(*k)) {
            let item = items.start + at;
            let d = *exact[at].get_or_insert_with(|| gallery.metric.distance(z, gallery.point(item)));
            *count += usize::from(d < target.distance || (d == target.distance && item < target.item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    /// Against the definition: clouds, near ties, exact ties, more than one block and batch, uneven norms.
    #[test]
    fn ranks_are_those_of_direct_distances() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let (n, d) = (BLOCK + 200, 9);
        let mut raw = Array2::from_shape_fn((n, d), |_| next());
        for i in 0..n {
            match i % 5 {
                // Copies, copies moved by a rounding, and far ones.
                1 => raw.row_mut(i).fill(0.25),
                2 => raw.row_mut(i).fill(0.25 + (i % 7) as f32 * f32::EPSILON),
                3 => raw.row_mut(i).mapv_inplace(|v| v * 30.0),
                _ => {}
            }
        }
        for metric in Metric::ALL {
            let ids = (0..n).map(|i| i.to_string()).collect();
            let gallery = Gallery::new(metric, raw.clone(), vec![0; n], ids).unwrap();
            let queries: Vec<usize> = (0..QUERIES + 40).map(|i| i * 4 % n).collect();
            let z = gallery.points.select(ndarray::Axis(0), &queries);
            let targets: Vec<Vec<usize>> =
                queries.iter().map(|&q| (0..q % 4).map(|k| (q * 7 + k * 311) % n).collect()).collect();
            let found = ranks(&gallery, z.view(), &targets);
            assert_eq!(found.len(), queries.len());
            for ((&q, targets), found) in queries.iter().zip(&targets).zip(found) {
                let d = gallery.distances(gallery.point(q));
                let expected: Vec<usize> =
                    targets.iter().map(|&t| gallery.position(&d, t, |_| true)).collect();
                assert_eq!(found, expected, "{metric}, query {q}");
            }
        }
    }
}

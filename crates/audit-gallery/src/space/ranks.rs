//! Exact ranks in large galleries: matrix products order nearly all images; direct differences compare those
//! that rounding might misplace.

use super::{BLOCK, Gallery, Metric};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

/// Number of queries per product.
const QUERIES: usize = 256;

/// A query for the ranks of several places in a ranking.
pub struct Ask<'a> {
    /// The point from which distances are measured, D.
    pub z: &'a [f32],
    /// The places whose ranks are wanted.
    pub marks: Vec<Mark>,
    /// Images that aren't ranked.
    pub left_out: Vec<usize>,
}

/// A place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// An image: after nearer ones, and after equally near ones of lower index.
    Image(usize),
    /// A distance: before all images at this distance or farther.
    Distance(f64),
}

/// For each mark of each ask, the number of images before it, by direct differences in `f64`, with exact
/// ties.
///
/// Memory: `QUERIES`×`BLOCK` values per thread, besides the gallery.
pub fn ranks(gallery: &Gallery, asks: &[Ask]) -> Vec<Vec<usize>> {
    asks.chunks(QUERIES).flat_map(|asks| some_ranks(gallery, asks)).collect()
}

/// [`ranks`] of at most [`QUERIES`] asks.
fn some_ranks(gallery: &Gallery, asks: &[Ask]) -> Vec<Vec<usize>> {
    let mut z = Array2::zeros((asks.len(), gallery.dim()));
    z.rows_mut().into_iter().zip(asks).for_each(|(mut row, ask)| row.assign(&ArrayView1::from(ask.z)));
    let wanted: Vec<Vec<Target>> = asks.par_iter().map(|ask| Target::from_ask(gallery, ask)).collect();
    let starts: Vec<usize> =
        wanted.iter().scan(0, |sum, targets| Some(std::mem::replace(sum, *sum + targets.len()))).collect();
    let none = || vec![0usize; wanted.iter().map(Vec::len).sum()];
    let counts = (0..gallery.len().div_ceil(BLOCK))
        .into_par_iter()
        .fold(none, |mut counts, block| {
            let items = gallery.of_block(block);
            let mut keys = z.dot(&gallery.block(block).t());
            for (row, targets) in wanted.iter().enumerate() {
                let keys = keys.row_mut(row).into_slice().expect("standard layout");
                let counts = &mut counts[starts[row]..][..targets.len()];
                count(gallery, asks[row].z, items.clone(), keys, targets, counts);
            }
            counts
        })
        .reduce(none, |mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        });
    let answer = |(row, ask): (usize, &Ask)| {
        let gone: Vec<(usize, f64)> = ask
            .left_out
            .iter()
            .map(|&item| (item, gallery.metric.distance(ask.z, gallery.point(item))))
            .collect();
        let mut ranks = vec![0; ask.marks.len()];
        for (target, count) in wanted[row].iter().zip(&counts[starts[row]..]) {
            let left_out = gone.iter().filter(|(item, d)| target.follows(*item, *d)).count();
            ranks[target.mark] = count - left_out;
        }
        ranks
    };
    asks.par_iter().enumerate().map(|(row, ask)| answer((row, ask))).collect()
}

/// A mark, with bounds for comparisons.
struct Target {
    mark: usize,
    /// Equally far images of lower index come before it.
    item: usize,
    /// Distance, by direct difference.
    distance: f64,
    /// Images with a smaller key are certainly nearer.
    low: f32,
    /// Images with a larger key are certainly farther.
    high: f32,
}

impl Target {
    /// The targets of an ask, in ascending order of `low`, and so of `high`.
    ///
    /// Keys have the order of distances, and need one product: ‖x‖²/2 − z·x, or −z·x under cosine. In `f32`
    /// their error is at most (D+2)·u·‖z‖‖x‖ + 3u·‖x‖²/2, u = 2⁻²⁴ (Higham, Accuracy and Stability, section
    /// 3.1), in any order of summation.
    fn from_ask(gallery: &Gallery, Ask { z, marks, .. }: &Ask) -> Vec<Target> {
        let dot = super::product::<f32, f32>;
        let unit = 0.5 * f64::from(f32::EPSILON);
        let most = f64::from(gallery.largest_square);
        let z_square = dot(z, z);
        let slack = 1.01 * unit * ((z.len() + 2) as f64 * (z_square * most).sqrt() + 1.5 * most);
        let cosine = gallery.metric == Metric::Cosine;
        let target = |(mark, at): (usize, &Mark)| {
            let (item, distance, key) = match *at {
                Mark::Image(item) => {
                    let x = gallery.point(item);
                    let half = if cosine { 0.0 } else { dot(x, x) / 2.0 };
                    (item, gallery.metric.distance(z, x), half - dot(z, x))
                }
                // The key of an image at this distance.
                Mark::Distance(d) => (0, d, if cosine { d - 1.0 } else { (d * d - z_square) / 2.0 }),
            };
            let (low, high) = ((key - slack) as f32, (key + slack) as f32);
            Target { mark, item, distance, low: low.next_down(), high: high.next_up() }
        };
        let mut all: Vec<Target> = marks.iter().enumerate().map(target).collect();
        all.sort_unstable_by(|a, b| a.low.total_cmp(&b.low));
        all
    }

    /// Whether `item` at distance `d` comes before this target.
    fn follows(&self, item: usize, d: f64) -> bool {
        d < self.distance || (d == self.distance && item < self.item)
    }
}

/// Adds the number of `items` before each target to `counts`. `keys`: the products z·x.
fn count(
    gallery: &Gallery,
    z: &[f32],
    items: std::ops::Range<usize>,
    keys: &mut [f32],
    targets: &[Target],
    counts: &mut [usize],
) {
    /// Maximum number of targets at which it is faster to compare every key with all of them than to search
    /// for the key among them. At 64 both take the same time.
    const FEW: usize = 48;
    /// Keys that are counted together. In a smaller block, keys near a target are found faster.
    const SOME: usize = 64;
    match gallery.metric {
        Metric::Cosine => keys.iter_mut().for_each(|key| *key = -*key),
        _ => keys.iter_mut().zip(&gallery.squares[items.clone()]).for_each(|(k, sq)| *k = 0.5 * sq - *k),
    }
    let mut exact: Vec<Option<f64>> = Vec::new();
    let mut before = |target: &Target, at: usize| {
        exact.resize(items.len(), None);
        let item = items.start + at;
        let d = *exact[at].get_or_insert_with(|| gallery.metric.distance(z, gallery.point(item)));
        usize::from(target.follows(item, d))
    };
    if targets.len() > FEW {
        // Each key is below all targets from a certain one on.
        let mut steps = vec![0usize; targets.len()];
        for (at, &key) in keys.iter().enumerate() {
            let above = targets.partition_point(|target| target.low <= key);
            if let Some(step) = steps.get_mut(above) {
                *step += 1;
            }
            let near = (0..above).rev().take_while(|&t| targets[t].high >= key);
            near.for_each(|t| counts[t] += before(&targets[t], at));
        }
        let mut sum = 0;
        for (count, step) in counts.iter_mut().zip(steps) {
            sum += step;
            *count += sum;
        }
        return;
    }
    for (target, count) in targets.iter().zip(counts) {
        for (k, keys) in keys.chunks(SOME).enumerate() {
            // Branchless, so that the compiler vectorises it.
            let (mut below, mut within) = (0u32, 0u32);
            for &key in keys {
                below += u32::from(key < target.low);
                within += u32::from(key <= target.high);
            }
            *count += below as usize;
            if within > below {
                let near = keys.iter().enumerate().filter(|(_, k)| (target.low..=target.high).contains(*k));
                near.for_each(|(at, _)| *count += before(target, k * SOME + at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the definition: clouds, near ties, exact ties, more than one block and batch, unequal
    /// norms.
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
                // Copies, copies that differ by rounding, and distant points.
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
            let asks: Vec<Ask> = queries
                .iter()
                .map(|&q| {
                    // Few and many marks; images and distances, some exactly that of an image.
                    let many = if q % 8 == 0 { 40 } else { q % 4 };
                    let item = |k: usize| (q * 7 + k * 311) % n;
                    let at = |k| gallery.metric.distance(gallery.point(q), gallery.point(item(k)));
                    let mark = |k: usize| match k % 3 {
                        2 => Mark::Distance(at(k) + [0.0, 0.125][k / 3 % 2]),
                        _ => Mark::Image(item(k)),
                    };
                    let left_out = (0..q % 3).map(|k| (q * 5 + k * 401) % n).collect();
                    Ask { z: gallery.point(q), marks: (0..many).map(mark).collect(), left_out }
                })
                .collect();
            let found = ranks(&gallery, &asks);
            assert_eq!(found.len(), queries.len());
            for ((&q, ask), found) in queries.iter().zip(&asks).zip(found) {
                let d = gallery.distances(gallery.point(q));
                let expected = ask.marks.iter().map(|mark| {
                    let keep = |i: usize| !ask.left_out.contains(&i);
                    match *mark {
                        Mark::Image(item) => gallery.position(&d, item, keep),
                        Mark::Distance(at) => (0..n).filter(|&i| keep(i) && d[i] < at).count(),
                    }
                });
                assert_eq!(found, expected.collect::<Vec<_>>(), "{metric}, query {q}");
            }
        }
    }
}

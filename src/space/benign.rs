//! How well a model retrieves when nobody attacks it: R@k, mAP, mAP@R and NMI.

use super::{Gallery, draw_index, squared_norms, sum_over};
use crate::{Error, Result};
use ndarray::{Array2, s};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Retrieval quality on clean images, every item querying all others. Shares in [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Benign {
    /// Items with at least one other item of their class: the ones the averages run over.
    pub queries: usize,
    /// Items alone in their class, left out.
    pub without_positive: usize,
    /// Share of queries whose nearest item has their class.
    pub r_at_1: f64,
    /// Share of queries with an item of their class among the nearest 2.
    pub r_at_2: f64,
    /// Mean average precision over the whole ranking.
    pub map: f64,
    /// Mean over queries of (1/R) Σ_{k≤R} P@k·rel(k), R = other items of the class (Musgrave et al. 2020).
    pub map_at_r: f64,
    /// Normalised mutual information of a k-means clustering with the classes; `None` when not asked for.
    pub nmi: Option<f64>,
}

/// Measures `gallery`. `clustering` is the number of k-means restarts for the NMI; `None` leaves it out, as
/// its cost (items × classes × dimensions, dozens of times) dwarfs the rest on large galleries.
pub fn benign(gallery: &Gallery, clustering: Option<usize>, seed: u64) -> Result<Benign> {
    const BATCH: usize = 64;
    let n = gallery.len();
    // Only the ranks of the positives matter: r_1 < r_2 < … < r_R, 0 = nearest, self left out.
    let ranks: Vec<Vec<usize>> = (0..n)
        .step_by(BATCH)
        .flat_map(|from| {
            let to = n.min(from + BATCH);
            let d = gallery.distances_batch(gallery.points.slice(s![from..to, ..]));
            let rows = (from..to).into_par_iter();
            rows.map(|i| positive_ranks(gallery, i, d.row(i - from).as_slice().expect("row-major")))
                .collect::<Vec<_>>()
        })
        .filter(|ranks| !ranks.is_empty())
        .collect();
    if ranks.is_empty() {
        return Err(Error::empty(format!(
            "none of the {n} items shares its class with another: retrieval needs classes of at least 2 images"
        )));
    }
    let mean = |of: &dyn Fn(&[usize]) -> f64| ranks.iter().map(|r| of(r)).sum::<f64>() / ranks.len() as f64;
    let precision = |(k, &rank): (usize, &usize)| (k + 1) as f64 / (rank + 1) as f64;
    Ok(Benign {
        queries: ranks.len(),
        without_positive: n - ranks.len(),
        r_at_1: mean(&|r| f64::from(u8::from(r[0] < 1))),
        r_at_2: mean(&|r| f64::from(u8::from(r[0] < 2))),
        map: mean(&|r| r.iter().enumerate().map(precision).sum::<f64>() / r.len() as f64),
        map_at_r: mean(&|r| {
            r.iter().enumerate().filter(|(_, rank)| **rank < r.len()).map(precision).sum::<f64>()
                / r.len() as f64
        }),
        nmi: clustering.map(|restarts| {
            let classes = gallery.labels.iter().collect::<HashSet<_>>().len();
            nmi(&k_means(&gallery.points, classes, restarts, seed), &gallery.labels)
        }),
    })
}

/// Ascending ranks of the items of `i`'s class by the distances `d` (N), ties by index, `i` itself left out.
/// One pass over the gallery instead of a sort: each item pushes back the positives behind it.
fn positive_ranks(gallery: &Gallery, i: usize, d: &[f32]) -> Vec<usize> {
    let label = gallery.labels[i];
    let mut positives: Vec<(f32, usize)> =
        (0..d.len()).filter(|&j| j != i && gallery.labels[j] == label).map(|j| (d[j], j)).collect();
    positives.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut ahead = vec![0usize; positives.len() + 1];
    for (j, &dj) in d.iter().enumerate().filter(|&(j, _)| j != i) {
        ahead[positives.partition_point(|&(dp, p)| dp < dj || (dp == dj && p <= j))] += 1;
    }
    // `ahead[k]` items lie between positives k−1 and k, positive k−1 itself among them.
    let sums = ahead.iter().scan(0, |sum, &count| {
        *sum += count;
        Some(*sum)
    });
    sums.take(positives.len()).collect()
}

/// I(Ω, Γ) / ((H(Ω) + H(Γ)) / 2) of two labelings of the same items; 1 when both have a single class.
pub fn nmi(clusters: &[usize], classes: &[usize]) -> f64 {
    let n = clusters.len() as f64;
    let (mut joint, mut omega, mut gamma) = (HashMap::new(), HashMap::new(), HashMap::new());
    for (&a, &b) in clusters.iter().zip(classes) {
        *joint.entry((a, b)).or_insert(0usize) += 1;
        *omega.entry(a).or_insert(0usize) += 1;
        *gamma.entry(b).or_insert(0usize) += 1;
    }
    // Summed in a fixed order, as a map's own order changes from run to run and the last digit with it.
    let entropy = |counts: &HashMap<usize, usize>| {
        sorted(counts).iter().map(|&(_, c)| -(c as f64 / n) * (c as f64 / n).ln()).sum::<f64>()
    };
    let mean = (entropy(&omega) + entropy(&gamma)) / 2.0;
    if mean == 0.0 {
        return 1.0;
    }
    let information: f64 = sorted(&joint)
        .iter()
        .map(|&((a, b), c)| c as f64 / n * (c as f64 * n / (omega[&a] as f64 * gamma[&b] as f64)).ln())
        .sum();
    information / mean
}

fn sorted<K: Ord + Copy>(counts: &HashMap<K, usize>) -> Vec<(K, usize)> {
    let mut counts: Vec<_> = counts.iter().map(|(&k, &c)| (k, c)).collect();
    counts.sort_unstable();
    counts
}

/// Cluster of each point [N, D] after k-means: k-means++ starts, Lloyd's iterations until nothing moves, the
/// best of `restarts` by inertia.
pub fn k_means(points: &Array2<f32>, k: usize, restarts: usize, seed: u64) -> Vec<usize> {
    (0..restarts.max(1) as u64)
        .map(|restart| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(restart);
            lloyd(points, plus_plus(points, k, &mut rng))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("at least one restart")
        .1
}

/// k-means++: each further centre is a point drawn with probability proportional to its squared distance from
/// the centres so far (Arthur & Vassilvitskii 2007).
fn plus_plus(points: &Array2<f32>, k: usize, rng: &mut ChaCha8Rng) -> Array2<f32> {
    let n = points.nrows();
    let row = |i: usize| points.row(i).to_slice().expect("points are row-major");
    let mut centres = Array2::zeros((k, points.ncols()));
    let mut squared = vec![f64::INFINITY; n];
    let mut pick = draw_index(rng, n);
    for c in 0..k {
        centres.row_mut(c).assign(&points.row(pick));
        squared
            .par_iter_mut()
            .enumerate()
            .for_each(|(i, s)| *s = s.min(sum_over(row(i), row(pick), |a, b| (a - b) * (a - b))));
        let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut rest = unit * squared.iter().sum::<f64>();
        pick = squared
            .iter()
            .position(|&s| {
                rest -= s;
                rest < 0.0
            })
            .unwrap_or(0); // every point coincides with a centre: any will do
    }
    centres
}

/// Lloyd's iterations. Returns the inertia and the cluster of each point.
fn lloyd(points: &Array2<f32>, mut centres: Array2<f32>) -> (f64, Vec<usize>) {
    const MOST: usize = 300;
    const BATCH: usize = 256;
    let n = points.nrows();
    let squares: Vec<f64> = squared_norms(points).into_iter().map(f64::from).collect();
    let mut clusters = vec![usize::MAX; n];
    let mut inertia = f64::INFINITY;
    for _ in 0..MOST {
        let halves: Vec<f32> = squared_norms(&centres).into_iter().map(|s| s / 2.0).collect();
        let found: Vec<(usize, f64)> = (0..n.div_ceil(BATCH))
            .into_par_iter()
            .flat_map_iter(|block| {
                let from = block * BATCH;
                let dots = points.slice(s![from..n.min(from + BATCH), ..]).dot(&centres.t());
                let near = dots.rows().into_iter().enumerate().map(|(i, dots)| {
                    // ‖x − c‖² = ‖x‖² − 2(xc − ‖c‖²/2): the nearest centre has the largest bracket.
                    let brackets = dots.iter().zip(&halves).map(|(dot, half)| dot - half).enumerate();
                    let (c, bracket) =
                        brackets.fold((0, f32::NEG_INFINITY), |best, b| if b.1 > best.1 { b } else { best });
                    (c, (squares[from + i] - 2.0 * f64::from(bracket)).max(0.0))
                });
                near.collect::<Vec<_>>()
            })
            .collect();
        inertia = found.iter().map(|f| f.1).sum();
        let moved = clusters.iter().zip(&found).any(|(old, new)| *old != new.0);
        clusters = found.iter().map(|f| f.0).collect();
        if !moved {
            break;
        }
        let mut sums = Array2::<f64>::zeros(centres.dim());
        let mut counts = vec![0usize; centres.nrows()];
        for (point, &c) in points.rows().into_iter().zip(&clusters) {
            counts[c] += 1;
            sums.row_mut(c).zip_mut_with(&point, |s, &p| *s += f64::from(p));
        }
        // A centre that lost all its points restarts at the point worst served, each at another.
        let mut worst: Vec<usize> = (0..n).collect();
        if counts.contains(&0) {
            worst.sort_unstable_by(|&a, &b| found[b].1.total_cmp(&found[a].1).then(a.cmp(&b)));
        }
        let mut worst = worst.into_iter();
        for (c, &count) in counts.iter().enumerate() {
            if count > 0 {
                centres.row_mut(c).assign(&sums.row(c).mapv(|s| (s / count as f64) as f32));
            } else if let Some(i) = worst.next() {
                centres.row_mut(c).assign(&points.row(i));
            }
        }
    }
    (inertia, clusters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Metric;

    /// Six points on a line, worked out by hand.
    #[test]
    fn a_small_ranking_by_hand() {
        let raw = Array2::from_shape_vec((6, 1), vec![0.0, 1.0, 1.5, 3.0, 10.0, 30.0]).unwrap();
        let ids = (0..6).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 0, 1, 0, 1, 2], ids).unwrap();
        // Query: ranks of its positives. 0: [0, 2]; 1: [1, 2]; 2: [3]; 3: [1, 2]; 4: [1]; 5: none.
        let ranks: Vec<Vec<usize>> = (0..6)
            .map(|i| {
                let d: Vec<f32> = gallery.distances(gallery.point(i)).iter().map(|&d| d as f32).collect();
                positive_ranks(&gallery, i, &d)
            })
            .collect();
        assert_eq!(ranks, [vec![0, 2], vec![1, 2], vec![3], vec![1, 2], vec![1], vec![]]);
        let found = benign(&gallery, None, 0).unwrap();
        assert_eq!((found.queries, found.without_positive), (5, 1));
        let ap = [(1.0 + 2.0 / 3.0) / 2.0, (0.5 + 2.0 / 3.0) / 2.0, 0.25, (0.5 + 2.0 / 3.0) / 2.0, 0.5];
        assert!((found.map - ap.iter().sum::<f64>() / 5.0).abs() < 1e-12);
        let ap_at_r = [0.5, 0.25, 0.0, 0.25, 0.0];
        assert!((found.map_at_r - ap_at_r.iter().sum::<f64>() / 5.0).abs() < 1e-12);
        assert_eq!((found.r_at_1, found.r_at_2), (0.2, 0.8));
    }

    #[test]
    fn classes_of_one_are_nothing_to_evaluate() {
        let raw = Array2::from_shape_vec((2, 1), vec![0.0, 1.0]).unwrap();
        let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 1], vec!["a".into(), "b".into()]).unwrap();
        assert_eq!(benign(&gallery, None, 0).unwrap_err().exit, crate::Exit::Empty);
    }

    #[test]
    fn nmi_ignores_names_and_punishes_mixing() {
        assert!((nmi(&[5, 5, 9, 9], &[0, 0, 1, 1]) - 1.0).abs() < 1e-12);
        assert!(nmi(&[0, 1, 0, 1], &[0, 0, 1, 1]).abs() < 1e-12);
        assert_eq!(nmi(&[0, 0], &[3, 3]), 1.0);
    }

    #[test]
    fn k_means_finds_separate_heaps() {
        let points = Array2::from_shape_fn((60, 2), |(i, j)| {
            let heap = i % 3;
            10.0 * ((heap + j) % 3) as f32 + ((i * 7 + j * 3) % 11) as f32 / 11.0
        });
        let truth: Vec<usize> = (0..60).map(|i| i % 3).collect();
        let found = k_means(&points, 3, 4, 1);
        assert!((nmi(&found, &truth) - 1.0).abs() < 1e-12);
        assert_eq!(found, k_means(&points, 3, 4, 1), "seeded");
        // More centres than distinct points must end too.
        assert_eq!(k_means(&Array2::zeros((4, 2)), 3, 1, 1).len(), 4);
    }
}

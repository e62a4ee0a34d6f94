//! Clustering of a gallery by k-means, and its agreement with the classes: NMI and AMI.

use super::{squared_norms, sum_over};
use audit_base::Result;
use audit_base::random::Random;
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// I(Ω, Γ) / ((H(Ω) + H(Γ)) / 2) of two labelings of the same images; 1 if both have a single class.
pub fn nmi(clusters: &[usize], classes: &[usize]) -> f64 {
    let Agreement { information, mean, .. } = Agreement::new(clusters, classes);
    if mean == 0.0 { 1.0 } else { information / mean }
}

/// (I − E\[I\]) / ((H(Ω) + H(Γ)) / 2 − E\[I\]) of two labelings of the same images. E\[I\] is the expectation
/// for labelings of the same sizes (Vinh, Epps & Bailey 2010). 1 if both have a single class, or one class
/// per image.
pub fn ami(clusters: &[usize], classes: &[usize]) -> f64 {
    let Agreement { information, mean, omega, gamma } = Agreement::new(clusters, classes);
    let (most, n) = (clusters.len(), clusters.len() as f64);
    if (omega.len(), gamma.len()) == (1, 1) || (omega.len(), gamma.len()) == (most, most) {
        return 1.0;
    }
    let log_factorials: Vec<f64> = (0..=most)
        .scan(0.0, |sum, i| {
            *sum += (i.max(1) as f64).ln();
            Some(*sum)
        })
        .collect();
    let lf = |i: usize| log_factorials[i];
    // Many classes have the same size: each pair of sizes is computed once.
    let sizes = |counts: &[usize]| {
        let mut counts_by_size: BTreeMap<usize, usize> = BTreeMap::new();
        counts.iter().for_each(|&size| *counts_by_size.entry(size).or_default() += 1);
        counts_by_size
    };
    let mut expected = 0.0;
    for (a, times_a) in sizes(&omega) {
        for (b, times_b) in sizes(&gamma) {
            let fixed = lf(a) + lf(b) + lf(most - a) + lf(most - b) - lf(most);
            let sum: f64 = ((a + b).saturating_sub(most).max(1)..=a.min(b))
                .map(|k| {
                    let weight = fixed - lf(k) - lf(a - k) - lf(b - k) - lf(most + k - a - b);
                    k as f64 / n * (n * k as f64 / (a as f64 * b as f64)).ln() * weight.exp()
                })
                .sum();
            expected += (times_a * times_b) as f64 * sum;
        }
    }
    let gap = mean - expected;
    // After rounding, the gap may be zero or have the wrong sign.
    (information - expected) / if gap < 0.0 { gap.min(-f64::EPSILON) } else { gap.max(f64::EPSILON) }
}

/// Mutual information of two labelings.
struct Agreement {
    /// I(Ω, Γ).
    information: f64,
    /// (H(Ω) + H(Γ)) / 2.
    mean: f64,
    omega: Vec<usize>,
    gamma: Vec<usize>,
}

impl Agreement {
    fn new(clusters: &[usize], classes: &[usize]) -> Agreement {
        let n = clusters.len() as f64;
        let (mut joint, mut omega, mut gamma) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (&a, &b) in clusters.iter().zip(classes) {
            *joint.entry((a, b)).or_insert(0usize) += 1;
            *omega.entry(a).or_insert(0usize) += 1;
            *gamma.entry(b).or_insert(0usize) += 1;
        }
        // Summed in a fixed order: a map's own order differs between runs, and would change the last digit.
        let sizes = |counts: &HashMap<usize, usize>| sorted(counts).iter().map(|c| c.1).collect::<Vec<_>>();
        let entropy =
            |sizes: &[usize]| sizes.iter().map(|&c| -(c as f64 / n) * (c as f64 / n).ln()).sum::<f64>();
        let information = sorted(&joint)
            .iter()
            .map(|&((a, b), c)| c as f64 / n * (c as f64 * n / (omega[&a] as f64 * gamma[&b] as f64)).ln())
            .sum();
        let (omega, gamma) = (sizes(&omega), sizes(&gamma));
        Agreement { information, mean: (entropy(&omega) + entropy(&gamma)) / 2.0, omega, gamma }
    }
}

fn sorted<K: Ord + Copy>(counts: &HashMap<K, usize>) -> Vec<(K, usize)> {
    let mut counts: Vec<_> = counts.iter().map(|(&k, &c)| (k, c)).collect();
    counts.sort_unstable();
    counts
}

/// Cluster of each point [N, D] after k-means, and the centres [k, D]: k-means++ starts, Lloyd's iterations
/// until convergence, the best of `restarts` by inertia.
///
/// Calls `tell` after each centre and each iteration, and ends with its error.
pub fn k_means(
    points: ArrayView2<f32>,
    k: usize,
    restarts: usize,
    seed: u64,
    tell: &mut dyn FnMut() -> Result<()>,
) -> Result<(Vec<usize>, Array2<f32>)> {
    let mut run = |restart: u64| {
        let starts = plus_plus(points, k, &mut Random::seeded(seed).stream(restart), tell)?;
        lloyd(points, starts, tell)
    };
    let mut best = run(0)?;
    for restart in 1..restarts as u64 {
        let next = run(restart)?;
        if next.0.total_cmp(&best.0).is_lt() {
            best = next;
        }
    }
    Ok((best.1, best.2))
}

/// k-means++: each further centre is a point drawn with probability proportional to its squared distance from
/// the nearest centre so far (Arthur & Vassilvitskii 2007).
fn plus_plus(
    points: ArrayView2<f32>,
    k: usize,
    random: &mut Random,
    tell: &mut dyn FnMut() -> Result<()>,
) -> Result<Array2<f32>> {
    let n = points.nrows();
    let row = |i: usize| points.row(i).to_slice().expect("points are row-major");
    let mut centres = Array2::zeros((k, points.ncols()));
    let mut squared = vec![f64::INFINITY; n];
    let mut pick = random.index(n);
    for c in 0..k {
        centres.row_mut(c).assign(&points.row(pick));
        squared
            .par_iter_mut()
            .enumerate()
            .for_each(|(i, s)| *s = s.min(sum_over(row(i), row(pick), |a, b| (a - b) * (a - b))));
        let mut rest = random.unit_f64() * squared.iter().sum::<f64>();
        pick = squared
            .iter()
            .position(|&s| {
                rest -= s;
                rest < 0.0
            })
            // If every point coincides with a centre, any point can be the next centre.
            .unwrap_or(0);
        tell()?;
    }
    Ok(centres)
}

/// Lloyd's iterations. Returns the inertia, the cluster of each point, and the centres.
fn lloyd(
    points: ArrayView2<f32>,
    mut centres: Array2<f32>,
    tell: &mut dyn FnMut() -> Result<()>,
) -> Result<(f64, Vec<usize>, Array2<f32>)> {
    const MAX_ROUNDS: usize = 300;
    const BATCH: usize = 256;
    let n = points.nrows();
    let squares: Vec<f64> = squared_norms(&points).into_iter().map(f64::from).collect();
    let mut clusters = vec![usize::MAX; n];
    let mut inertia = f64::INFINITY;
    for _ in 0..MAX_ROUNDS {
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
        tell()?;
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
        // A centre without points restarts at a point farthest from its centre, each at another point.
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
    Ok((inertia, clusters, centres))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let cluster = |points: &Array2<f32>, k, restarts, seed| {
            k_means(points.view(), k, restarts, seed, &mut || Ok(())).unwrap()
        };
        let (found, centres) = cluster(&points, 3, 4, 1);
        assert!((nmi(&found, &truth) - 1.0).abs() < 1e-12);
        assert_eq!(found, cluster(&points, 3, 4, 1).0, "seeded");
        // A centre is the mean of its points, and is nearest to each of them.
        for (point, &cluster) in points.rows().into_iter().zip(&found) {
            assert!((&point - &centres.row(cluster)).iter().all(|d| d.abs() < 1.0));
        }
        // More centres than distinct points must terminate too.
        assert_eq!(cluster(&Array2::zeros((4, 2)), 3, 1, 1).0.len(), 4);
    }
}

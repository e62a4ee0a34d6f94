//! Pairs that share an identity. Their errors come together: somebody who looks like many others is confused
//! in many pairs. So a mean over pairs varies more than one over independent pairs.

use audit_base::distributions::student_over_normal;

/// Fewest identities from which the variance of pairs that share them is estimated.
const LEAST: usize = 10;

/// By how many times the variance of a sum over pairs exceeds that of independent pairs. Of each pair: the
/// identities of both images, and what it adds to the sum, minus the mean of its kind. It is exactly 1 if no
/// two pairs share an identity, and never less. `alpha` is the chance that an interval made with it misses.
///
/// If all pairs add the same, nothing tells how much pairs depend on each other. They then count as many as
/// are disjoint, and so do pairs of fewer than 10 identities.
///
/// The variance is the estimate for dyadic data: two pairs may be correlated if they share an identity
/// (Fafchamps and Gubert, 2007; Aronow, Samii and Assenova, Political Analysis 2015). Two pairs that share
/// both identities count for each of them. If they counted once, the estimate would be too low for few
/// people: in the simulation of docs/threats.md, 83 % of the intervals of a FAR of 0.1 would contain it for
/// 12 people, where 94 % do. As is usual for clustered variances, it grows by m/(m − 1) for m identities, and
/// the normal quantile becomes that of Student's t with m − 1 degrees of freedom.
pub fn inflation(pairs: &[([usize; 2], f64)], alpha: f64) -> f64 {
    let identities: Vec<[usize; 2]> = pairs.iter().map(|(pair, _)| *pair).collect();
    let disjoint = disjoint(&identities);
    if disjoint == pairs.len() {
        return 1.0;
    }
    let degrees = degrees(&identities);
    let count = degrees.iter().filter(|degree| **degree > 0).count();
    if count < LEAST || pairs.iter().all(|(_, value)| *value == 0.0) {
        return pairs.len() as f64 / disjoint as f64;
    }
    let mut sums = vec![0.0; degrees.len()];
    // A pair of two identities is in two of the sums, and must count once by itself.
    let (mut alone, mut twice) = (0.0, 0.0);
    for &([a, b], value) in pairs {
        sums[a] += value;
        alone += value * value;
        if a != b {
            sums[b] += value;
            twice += value * value;
        }
    }
    let shared = sums.iter().map(|sum| sum * sum).sum::<f64>() - twice;
    let freedom = (count - 1) as f64;
    (student_over_normal(freedom, alpha / 2.0).powi(2) * count as f64 / freedom * shared / alone).max(1.0)
}

/// A number of pairs no two of which share an identity: those that remain if pairs whose identities are in
/// the fewest pairs are taken first. At least half of the largest possible number.
pub fn disjoint(pairs: &[[usize; 2]]) -> usize {
    let degrees = degrees(pairs);
    let mut ordered = pairs.to_vec();
    ordered.sort_unstable_by_key(|&[a, b]| (degrees[a] + degrees[b], a, b));
    let mut taken = vec![false; degrees.len()];
    let mut count = 0;
    for [a, b] in ordered {
        if !taken[a] && !taken[b] {
            (taken[a], taken[b]) = (true, true);
            count += 1;
        }
    }
    count
}

/// Number of identities of these pairs.
pub fn identities(pairs: &[[usize; 2]]) -> usize {
    degrees(pairs).into_iter().filter(|degree| *degree > 0).count()
}

/// Number of pairs that each identity is in.
fn degrees(pairs: &[[usize; 2]]) -> Vec<usize> {
    let most = pairs.iter().flatten().max().map_or(0, |most| most + 1);
    let mut degrees = vec![0; most];
    for &[a, b] in pairs {
        degrees[a] += 1;
        degrees[b] += usize::from(a != b);
    }
    degrees
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand. Of K4, two pairs are disjoint; of a star, one; of the images of two people, two.
    #[test]
    fn disjoint_pairs_by_hand() {
        let all = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        assert_eq!((disjoint(&all), identities(&all)), (2, 4));
        assert_eq!(disjoint(&[[5, 0], [5, 1], [2, 5], [5, 3]]), 1);
        assert_eq!(disjoint(&[[0, 0], [0, 0], [1, 1]]), 2);
        // The middle of a path of three pairs is taken last.
        assert_eq!(disjoint(&[[1, 2], [0, 1], [2, 3]]), 2);
        assert_eq!((disjoint(&[]), identities(&[])), (0, 0));
    }

    /// By hand. Each of ten people has two pairs that both err or both don't: their sums have twice the
    /// variance, and the two corrections are 10/9 and the square of `scipy.stats.t.isf(a, 9) /
    /// scipy.stats.norm.isf(a)`, which is 1.154183 for a = 0.025 and 1.452932 for 0.0005.
    #[test]
    fn pairs_of_one_person_count_once() {
        let all: Vec<_> = (0..20).map(|i| ([i / 2; 2], if i < 4 { 0.8 } else { -0.2 })).collect();
        for (alpha, student, tolerance) in [(0.05, 1.154183f64, 4e-4), (0.001, 1.452932, 7e-3)] {
            let (found, expected) = (inflation(&all, alpha), 2.0 * 10.0 / 9.0 * student.powi(2));
            assert!((found / expected - 1.0).abs() < tolerance, "{found}, expected {expected}");
        }
        let apart: Vec<_> = (0..20).map(|i| ([2 * i, 2 * i + 1], all[i].1)).collect();
        assert_eq!(inflation(&apart, 0.05), 1.0);
        // If nothing varies, or of nine people, the disjoint pairs count.
        let alike: Vec<_> = all.iter().map(|(pair, _)| (*pair, 0.0)).collect();
        assert_eq!(inflation(&alike, 0.05), 2.0);
        assert_eq!(inflation(&all[..18], 0.05), 2.0);
        assert_eq!(inflation(&[], 0.05), 1.0);
    }
}

//! The exact interval of a share.

use audit_base::distributions::incomplete_beta;

/// The interval of a share at 1 − `alpha`, in per cent (Clopper and Pearson, Biometrika 1934): the shares
/// under which neither this many hits nor this few have a chance below `alpha`/2.
///
/// Numbers of hits and draws need not be whole: what was counted may vary like a smaller number of
/// independent draws. The binomial chance then becomes the beta function that it is for whole numbers (Korn
/// and Graubard, Survey Methodology 1998).
pub fn exact(hits: f64, of: f64, alpha: f64) -> (f64, f64) {
    let upper = |hits: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        // 50 halvings leave less than 1e-15.
        for _ in 0..50 {
            let p = (low + high) / 2.0;
            if at_most(hits, of, p) > alpha / 2.0 { low = p } else { high = p }
        }
        100.0 * (low + high) / 2.0
    };
    // The lower end is what the upper end of the misses leaves of 100.
    let low = if hits == 0.0 { 0.0 } else { 100.0 - upper(of - hits) };
    (low, if hits == of { 100.0 } else { upper(hits) })
}

/// The chance of at most `hits` of `of` draws, each with chance 0 < p < 1, if there are fewer hits than
/// draws.
fn at_most(hits: f64, of: f64, p: f64) -> f64 {
    incomplete_beta(1.0 - p, of - hits, hits + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: quantiles of the beta distribution, the intervals' other form, as printed by
    /// research/golden/golden_breakdown.py.
    #[test]
    fn intervals_as_the_beta_distribution_gives_them() {
        for (hits, of, alpha, low, high) in EXPECTED {
            let found = exact(hits, of, alpha);
            assert!((found.0 - low).abs() < 1e-6 && (found.1 - high).abs() < 1e-6, "{hits}/{of}: {found:?}");
        }
    }

    const EXPECTED: [(f64, f64, f64, f64, f64); 8] = [
        (0.0, 10.0, 0.05, 0.0, 30.8497108),
        (3.0, 10.0, 0.05, 6.6739511, 65.2452850),
        (10.0, 10.0, 0.05, 69.1502892, 100.0),
        (0.0, 20.0, 0.05 / 48.0, 0.0, 31.4772256),
        (7.0, 12.0, 0.05 / 5.0, 20.8527757, 89.6644523),
        (412.0, 1000.0, 0.05, 38.1291514, 44.3228111),
        (2.4, 7.3, 0.05, 5.5982806, 73.5912855),
        (0.2, 4.5, 0.01, 0.0, 73.1399982),
    ];
}

//! Intervals of shares, and of differences of two shares of the same queries.

use super::exact::exact;

/// The chance that an interval misses.
pub(super) const ALPHA: f64 = 0.05;

/// The 97.5 % quantile of the normal distribution.
pub(super) const Z: f64 = 1.959964;

/// The 95 % interval of a share, in per cent (Wilson, 1927). Unlike the bootstrap's it has a width if all
/// queries agree.
pub fn wilson(hits: usize, of: usize) -> (f64, f64) {
    wilson_of(hits as f64 / of as f64, of as f64)
}

/// [`wilson`] of a share p, if what was counted varies like `n` independent queries.
pub(super) fn wilson_of(p: f64, n: f64) -> (f64, f64) {
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    // Rounding may leave the ends of 0 and of all just short of the share.
    (100.0 * ((middle - half) / whole).max(0.0).min(p), 100.0 * ((middle + half) / whole).min(1.0).max(p))
}

/// Whether a value counts in a share: 1 does and 0 doesn't. `None` for other values, of which there is no
/// share.
pub(super) fn counts(value: f64) -> Option<bool> {
    (value == 0.0 || value == 1.0).then_some(value == 1.0)
}

/// The interval, in per cent, of a mean of `n` values in [0, 1] from resamples. If all are 0 or all are 1,
/// resamples have no width, and it is at least Wilson's.
pub(super) fn with_width(mean: f64, n: usize, resampled: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let Some(all) = counts(mean) else { return resampled };
    let (low, high) = wilson(n * usize::from(all), n);
    resampled.map(|(least, most)| (least.min(low), most.max(high)))
}

/// The 95 % interval, in per cent, of the difference of two shares of the same queries. Of each query,
/// whether it counts in the first share and in the second. `inflation` is that of [`difference`].
pub(super) fn paired(queries: &[[bool; 2]], inflation: f64) -> (f64, f64) {
    let count = |which: [bool; 2]| queries.iter().filter(|found| **found == which).count();
    difference(count([false, true]), count([true, false]), queries.len(), inflation)
}

/// An interval of `value` from resamples of independent queries, if the variance is `inflation` times theirs.
pub(super) fn widened(value: f64, (low, high): (f64, f64), inflation: f64) -> (f64, f64) {
    let more = inflation.sqrt() - 1.0;
    (low - more * (value - low).max(0.0), high + more * (high - value).max(0.0))
}

/// The 95 % interval, in per cent, of the difference of two shares of the same `of` queries, of which
/// `gained` count in the second share only, and `lost` in the first only.
///
/// It is the score interval of Tango (Statistics in Medicine 1998, 17:891–908), which has a width if no query
/// changes. Of few changes it takes too many for more than chance. So it is widened to the exact interval
/// given their number: that of the share gained (Clopper and Pearson). Then it excludes 0 only if the exact
/// sign test does at 5 %.
///
/// Queries may depend on each other, as pairs that share identities do. If the variance of the difference is
/// `inflation` times that of independent queries, the interval is that of `of / inflation` of these.
pub fn difference(gained: usize, lost: usize, of: usize, inflation: f64) -> (f64, f64) {
    let [gained, lost, of] = [gained, lost, of].map(|count| count as f64 / inflation);
    let (low, high) = tango(gained, lost, of);
    let changed = gained + lost;
    if changed == 0.0 {
        return (low, high);
    }
    let (few, many) = exact(gained, changed, ALPHA);
    let of_share = |share: f64| (2.0 * share - 100.0) * changed / of;
    (low.min(of_share(few)), high.max(of_share(many)))
}

/// The score interval of [`difference`].
fn tango(gained: f64, lost: f64, n: f64) -> (f64, f64) {
    let found = (gained - lost) / n;
    // The score of a difference δ. It falls as δ grows. `q` is the most likely share lost, given δ.
    let score = |delta: f64| {
        let b = (2.0 * n - gained + lost) * delta - gained - lost;
        let c = -lost * delta * (1.0 - delta);
        let q = ((b * b - 8.0 * n * c).max(0.0).sqrt() - b) / (4.0 * n);
        let variance = n * (2.0 * q + delta * (1.0 - delta));
        n * (found - delta) / variance.max(f64::MIN_POSITIVE).sqrt()
    };
    let root = |mut low: f64, mut high: f64, at: f64| {
        // 50 halvings leave less than 1e-14.
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            if score(middle) > at { low = middle } else { high = middle }
        }
        100.0 * (low + high) / 2.0
    };
    (root(-1.0, found, Z), root(found, 1.0, -Z))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
    /// Medicine 1998, table I, method 3.
    #[test]
    fn wilson_as_published() {
        for (hits, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(hits, of);
            assert!(
                (found.0 / 100.0 - low).abs() < 1e-4 && (found.1 / 100.0 - high).abs() < 1e-4,
                "{found:?}"
            );
        }
    }

    /// Expected values: Fagerland, Lydersen and Laake, "Statistical Analysis of Contingency Tables", 2017,
    /// chapter 8, as the authors' package contingencytables prints them: airway hyper-responsiveness (1 and 7
    /// of 21 children changed; Bentur et al., 2009), and complete response (6 and 16 of 161 patients; Cavo et
    /// al., 2012).
    #[test]
    fn the_score_interval_as_published() {
        for (gained, lost, of, low, high) in
            [(1.0, 7.0, 21.0, -0.517, -0.026), (6.0, 16.0, 161.0, -0.1240, -0.0054)]
        {
            let found = tango(gained, lost, of);
            let near = |found: f64, published: f64| (found / 100.0 - published).abs() < 5e-4;
            assert!(near(found.0, low) && near(found.1, high), "{found:?}");
        }
        // Without a change, Z² / (n + Z²) on both sides: the score there is √(n·δ / (1 − δ)).
        let (low, high) = tango(0.0, 0.0, 60.0);
        let expected = 100.0 * Z * Z / (60.0 + Z * Z);
        assert!((high - expected).abs() < 1e-9 && (low + expected).abs() < 1e-9, "{low} {high}");
    }

    /// The chance of at most `fewer` of `of` fair coins, twice: the exact sign test.
    fn sign_test(fewer: usize, of: usize) -> f64 {
        let (mut term, mut sum) = (0.5f64.powi(of as i32), 0.0);
        for k in 0..=fewer {
            sum += term;
            term *= (of - k) as f64 / (k + 1) as f64;
        }
        (2.0 * sum).min(1.0)
    }

    /// By hand: 4 losses without a gain have p 2/2⁴, 5 have 2/2⁵ and 6 have 2/2⁶; 7 to 1 have 2·(1 + 8)/2⁸,
    /// and 9 to 2 have 2·(1 + 11 + 55)/2¹¹.
    #[test]
    fn the_interval_excludes_zero_where_the_exact_test_does() {
        for (lost, gained, p) in
            [(4, 0, 0.125), (5, 0, 0.0625), (6, 0, 0.03125), (7, 1, 0.0703125), (9, 2, 0.0654296875)]
        {
            assert!((sign_test(gained, lost + gained) - p).abs() < 1e-12);
            assert_eq!(difference(gained, lost, 200, 1.0).1 < 0.0, p < 0.05, "{lost} to {gained}");
        }
        for changed in 1..=60 {
            for gained in 0..=changed / 2 {
                let significant = sign_test(gained, changed) < 0.05;
                for of in [changed.max(10), 200, 5000] {
                    let (low, high) = difference(gained, changed - gained, of, 1.0);
                    assert_eq!(high < 0.0, significant, "{gained} of {changed} of {of}: {low} {high}");
                    // The other side is its mirror image.
                    let (l, h) = difference(changed - gained, gained, of, 1.0);
                    assert!((l + high).abs() < 1e-9 && (h + low).abs() < 1e-9, "{l} {h}");
                    let value = 100.0 * (2.0 * gained as f64 - changed as f64) / of as f64;
                    assert!(low <= value + 1e-9 && value <= high, "{low} {value} {high}");
                }
            }
        }
    }
    /// 80 queries of which every four agree say as much as 20, and resamples are half as wide.
    #[test]
    fn queries_that_depend_on_each_other_count_less() {
        let [all, fewer] = [difference(8, 28, 80, 4.0), difference(2, 7, 20, 1.0)];
        assert_eq!(all, fewer);
        assert!(all.0 < difference(8, 28, 80, 1.0).0 && all.1 > difference(8, 28, 80, 1.0).1);
        assert_eq!(widened(3.0, (2.0, 5.0), 4.0), (1.0, 7.0));
        assert_eq!(widened(3.0, (2.0, 5.0), 1.0), (2.0, 5.0));
        // The value may lie outside of its resamples, which then stay.
        assert_eq!(widened(1.0, (2.0, 5.0), 4.0), (2.0, 9.0));
    }
}

//! The smallest perturbations that make attacks succeed: their median, and the share of queries left against
//! their size, from outcomes alone.

use super::score::{Replicate, Resampled};
use super::stars::{LEVELS, capped};
use crate::facts::{FACTS, Facts};
use crate::record::{CurvePoint, Outcome, Report, Smallest, unless_few};

/// Number of quantiles of the norms found, from the smallest to the largest, at which the curve has points.
const QUANTILES: usize = 19;

/// Results of the search for the smallest perturbations; `None` if the suite has none.
pub fn smallest(report: &Report) -> Option<Smallest> {
    let (objective, found) = norms(&report.outcomes)?;
    let norms: Vec<f64> = found.into_iter().map(|(_, norm)| norm).collect();
    let most = report.suite.eps;
    let mut right: Vec<f64> = norms.iter().copied().filter(|n| *n > 0.0).collect();
    right.sort_unstable_by(f64::total_cmp);
    Some(Smallest {
        attack: objective.code.into(),
        norm: report.suite.norm.clone(),
        most,
        queries: norms.len(),
        right: right.len(),
        median: median(&right),
        interval: unless_few(right.len(), interval_of_median(&right, f64::from(most))),
        curve: curve(&norms, &right, f64::from(most)),
    })
}

/// The objective that looks for the smallest perturbations, and the [`norm`] of each of its queries by id;
/// `None` if there are none.
pub(super) fn norms(outcomes: &[Outcome]) -> Option<(&'static Facts, Vec<(&str, f64)>)> {
    let made = |of: &&Facts| of.smallest.is_some() && outcomes.iter().any(|o| of.made(o));
    let objective = FACTS.iter().find(made)?;
    let mine = outcomes.iter().filter(|o| objective.made(o));
    let found: Vec<(&str, f64)> = mine.filter_map(|o| Some((o.query.as_str(), norm(o)?))).collect();
    (!found.is_empty()).then_some((objective, found))
}

/// The median of a resample, in 255ths.
pub(super) fn median_in(of: &Resampled, replicate: &Replicate) -> Option<f64> {
    replicate.median.map(|norm| capped(LEVELS * norm, of.most))
}

/// R@1, the share of `norms` that are larger, at ε 0, at quantiles of the norms found (the finite ones of
/// `right`, ascending and above 0), and at `most`: each point once.
fn curve(norms: &[f64], right: &[f64], most: f64) -> Vec<CurvePoint> {
    let found = &right[..right.partition_point(|n| n.is_finite())];
    let last = found.len().saturating_sub(1);
    let quantile = |i: usize| found.get((i * last + (QUANTILES - 1) / 2) / (QUANTILES - 1)).copied();
    // Norms are rounded, and a norm of ε counts as within it. Every norm that was found is within the largest
    // ε: changes of whole grey levels reach 8/255 if that is 0.03137.
    let within = |eps: f64| if eps < most { eps * (1.0 + 1e-5) } else { f64::MAX };
    let inner = (0..QUANTILES).filter_map(quantile).filter(|eps| within(*eps) < most);
    let mut at: Vec<f64> = std::iter::once(0.0).chain(inner).chain([most]).collect();
    at.dedup();
    let r1 = |eps: f64| 100.0 * norms.iter().filter(|n| **n > eps).count() as f64 / norms.len() as f64;
    at.into_iter().map(|eps| CurvePoint { eps, r1: r1(within(eps)) }).collect()
}

/// The norm of the attack's success: 0 if the attacker's goal is already reached, infinite if no perturbation
/// was found. `None` if R@1 of the query is undefined.
pub(super) fn norm(o: &Outcome) -> Option<f64> {
    Some(match (o.before.hit?, o.after.hit?) {
        (false, _) => 0.0,
        (true, false) => f64::from(o.size.unwrap_or(o.linf)),
        (true, true) => f64::INFINITY,
    })
}

/// The median of ascending numbers; `None` if there are none or it is not finite.
fn median(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    let (low, high) = (sorted.get(n.saturating_sub(1) / 2)?, sorted.get(n / 2)?);
    Some((low + high) / 2.0).filter(|m| m.is_finite())
}

/// The 95 % interval of the median of a population, from `sorted`, ascending numbers of a sample: by order
/// statistics, which assume no distribution (David and Nagaraja, "Order Statistics", 2003, section 7.1). An
/// end of which no norm up to `most` is known is `most`. `None` for fewer than 6 numbers.
fn interval_of_median(sorted: &[f64], most: f64) -> Option<(f64, f64)> {
    let n = sorted.len();
    // How many numbers lie below the median is binomial. `below` is the chance of at most k of them.
    let (mut ln, mut below, mut rank) = (-(n as f64) * 2f64.ln(), 0.0, 0);
    for k in 0..n {
        below += ln.exp();
        if below > 0.025 {
            break;
        }
        rank = k + 1;
        ln += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    let low = rank.checked_sub(1)?;
    Some((capped(sorted[low], most), capped(sorted[n - rank], most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_what_was_found_and_what_was_not() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[0.1]), Some(0.1));
        assert_eq!(median(&[0.1, 0.3]), Some(0.2));
        assert_eq!(median(&[0.1, 0.3, f64::INFINITY]), Some(0.3));
        assert_eq!(median(&[0.1, f64::INFINITY]), None);
    }

    /// Ranks as SciPy 1.17 finds them, for the numbers 1 to n:
    /// `quantile_test(range(1, n + 1), q=0, p=0.5).confidence_interval(0.95)`. Below 6 it has none.
    #[test]
    fn the_interval_of_a_median_has_the_ranks_that_scipy_finds() {
        for (n, low, high) in [
            (6, 1, 6),
            (9, 2, 8),
            (12, 3, 10),
            (20, 6, 15),
            (100, 40, 61),
            (1000, 469, 532),
            (5000, 2431, 2570),
        ] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let found = interval_of_median(&sorted, 1e9);
            assert_eq!(found, Some((f64::from(low), f64::from(high))), "{n}");
        }
        for n in 0..6 {
            assert_eq!(interval_of_median(&vec![0.1; n], 0.5), None, "{n}");
        }
        // Of 12 queries, three withstand ε: the tenth is one of them. Then ten, so that the third is one too.
        let right = |found: usize| -> Vec<f64> {
            (0..12).map(|i| if i < found { 0.01 * (i + 1) as f64 } else { f64::INFINITY }).collect()
        };
        assert_eq!(interval_of_median(&right(9), 0.5), Some((0.03, 0.5)));
        assert_eq!(interval_of_median(&right(2), 0.5), Some((0.5, 0.5)));
        // A norm that was found at ε, but for rounding, is not above it.
        let (_, high) = interval_of_median(&[0.500001; 12], 0.5).unwrap();
        assert!(high < 0.5 && high > 0.4999, "{high}");
    }

    /// By hand: of 41 queries one is wrong already, 37 are wrong from 0.001, 0.002, … 0.037 on, and 3
    /// withstand 0.5. Every second norm from the smallest to the largest is a quantile, and at each two more
    /// are wrong.
    #[test]
    fn the_curve_has_its_points_where_the_norms_lie() {
        let right: Vec<f64> = (1..=37).map(|i| f64::from(i) / 1000.0).chain([f64::INFINITY; 3]).collect();
        let norms = [&[0.0], &right[..]].concat();
        let found = curve(&norms, &right, 0.5);
        let point = |eps: f64, withstand: u32| (eps, 100.0 * f64::from(withstand) / 41.0);
        let quantiles = (0..19u32).map(|i| point(f64::from(1 + 2 * i) / 1000.0, 39 - 2 * i));
        let expected: Vec<_> = [point(0.0, 40)].into_iter().chain(quantiles).chain([point(0.5, 3)]).collect();
        let found: Vec<_> = found.iter().map(|p| (p.eps, p.r1)).collect();
        assert_eq!(found, expected);
        // Few norms, equal ones, one at the largest ε except for rounding, and none.
        let points =
            |norms: &[f64]| curve(norms, norms, 0.5).iter().map(|p| (p.eps, p.r1)).collect::<Vec<_>>();
        assert_eq!(points(&[0.1, 0.1, 0.2, 0.500001]), [(0.0, 100.0), (0.1, 50.0), (0.2, 25.0), (0.5, 0.0)]);
        assert_eq!(points(&[f64::INFINITY]), [(0.0, 100.0), (0.5, 100.0)]);
        // A protocol's 0.03137 stands for 8/255: of four queries, one withstands it.
        let norms = [2.0 / 255.0, 8.0 / 255.0, 8.0 / 255.0, f64::INFINITY];
        let found = curve(&norms, &norms, 0.03137);
        assert_eq!(found.last().map(|p| (p.eps, p.r1)), Some((0.03137, 25.0)));
    }
}

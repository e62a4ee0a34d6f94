//! The smallest perturbations that make queries wrong: their median, and R@1 against their size, from outcomes alone.

use crate::record::{CurvePoint, Outcome, Report, Smallest};
use crate::threat::objective::min::MIN;

/// Points of the curve besides that of ε = 0.
const POINTS: usize = 20;

/// What the search for the smallest perturbations found; `None` where the suite has none.
pub fn smallest(report: &Report) -> Option<Smallest> {
    let outcomes = report.outcomes.iter().filter(|o| o.attack == MIN.code);
    let norms: Vec<f64> = outcomes.filter_map(norm).collect();
    if norms.is_empty() {
        return None;
    }
    let most = report.suite.eps;
    let r1 = |eps: f64| 100.0 * norms.iter().filter(|n| **n > eps).count() as f64 / norms.len() as f64;
    let point = |i: usize| {
        // The last point is exactly at ε.
        let eps = f64::from(most) * i as f64 / POINTS as f64;
        // Norms are rounded on their way, and one of ε counts as within it.
        CurvePoint { eps, r1: r1(eps * (1.0 + 1e-5)) }
    };
    let mut right: Vec<f64> = norms.iter().copied().filter(|n| *n > 0.0).collect();
    right.sort_unstable_by(f64::total_cmp);
    Some(Smallest {
        attack: MIN.code.into(),
        norm: report.suite.norm.clone(),
        most,
        queries: norms.len(),
        right: right.len(),
        median: median(&right),
        curve: (0..=POINTS).map(point).collect(),
    })
}

/// The norm that makes a query wrong: 0 where it is wrong already, infinite where nothing was found. `None` where R@1 of
/// the query is undefined.
pub(super) fn norm(o: &Outcome) -> Option<f64> {
    Some(match (o.before.hit?, o.after.hit?) {
        (false, _) => 0.0,
        (true, false) => f64::from(o.size.unwrap_or(o.linf)),
        (true, true) => f64::INFINITY,
    })
}

/// The median of ascending numbers; `None` where there are none or it is not finite.
fn median(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    let (low, high) = (sorted.get(n.saturating_sub(1) / 2)?, sorted.get(n / 2)?);
    Some((low + high) / 2.0).filter(|m| m.is_finite())
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
}

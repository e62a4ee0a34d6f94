//! Robust R@1, or robust top-1, on a ladder of ε, and ε50: the smallest change that makes searches fail.

use super::score::{self, Replicate, Resampled, interval};
use super::share::wilson;
use super::stars::{LEVELS, ROUNDING, Star, eps50, most, on_ladder, stars, withstands};
use crate::facts::Norm;
use crate::record::rungs;
use crate::record::{Eps50, Ladder, Report, Rung, unless_few};

pub(super) fn eps50_in(of: &Resampled, replicate: &Replicate) -> Option<f64> {
    eps50(of.stars.iter().copied().zip(replicate.stars.iter().copied()), of.most)
}

/// Robust R@1 at `eps`, in 255ths, of a resample. `size` is the size from which on a query fails.
pub(super) fn robust_in(
    of: &Resampled,
    replicate: &Replicate,
    eps: f64,
    size: fn(&Star) -> f64,
) -> Option<f64> {
    let (eps, largest) = (on_ladder(eps, of.most), on_ladder(of.most, of.most));
    let all: f64 = replicate.stars.iter().sum();
    let stars = of.stars.iter().zip(&replicate.stars);
    let right: f64 = stars.filter(|(star, _)| withstands(size(star), eps)).map(|(_, weight)| weight).sum();
    (all > 0.0 && eps <= largest).then(|| 100.0 * right / all)
}

/// Robust R@1 at ε and at its halves, and ε50; `None` if the suite has no ladder.
pub fn ladder(report: &Report) -> Option<Ladder> {
    let halvings = report.suite.ladder?;
    let stars: Vec<Star> = stars(&report.outcomes)?.into_iter().map(|(_, star)| star).collect();
    let queries = stars.len();
    let share = |left: usize| {
        (100.0 * left as f64 / queries as f64, unless_few(queries, Some(wilson(left, queries))))
    };
    let most = most(report);
    let of_files = Norm::counts_levels(&report.suite.norm);
    let rung = |eps: f32| {
        let at = on_ladder(LEVELS * f64::from(eps), most);
        let left =
            |size: &dyn Fn(&Star) -> f64| stars.iter().filter(|star| withstands(size(star), at)).count();
        let (r1, interval) = share(left(&|star| star.size));
        // No image of 8 bits differs by less than a grey level.
        let file = (of_files && at >= 1.0 - ROUNDING).then(|| share(left(&|star| star.as_file)));
        Rung { eps, r1, interval, as_file: file.map(|f| f.0), as_file_interval: file.and_then(|f| f.1) }
    };
    let right = stars.iter().filter(|star| star.right).count();
    let eps50 = eps50(stars.iter().map(|star| (*star, 1.0)), most).map(|value| {
        let resampled = score::resampled(report, report.seed);
        let all = resampled.replicates.iter().filter_map(|r| eps50_in(&resampled, r));
        Eps50 { value, most, interval: unless_few(right, interval(all.collect())), queries: right }
    });
    Some(Ladder {
        rungs: rungs(report.suite.eps, Some(halvings), report.suite.space).into_iter().map(rung).collect(),
        eps50,
    })
}

//! Matched R@1 and equal work, with intervals. Pure arithmetic.

use std::fmt;

/// One trained model.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub seed: usize,
    /// Clean R@1, %.
    pub r1: f64,
    pub ars: f64,
    /// Image steps.
    pub work: f64,
}

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

impl Interval {
    /// The interval of the mean of independent values; `None` for fewer than two.
    pub fn of(values: &[f64]) -> Option<Interval> {
        let freedom = values.len().checked_sub(2)?;
        let (mean, deviation) = mean_and_deviation(values);
        let t = STUDENT.get(freedom).copied().unwrap_or(STUDENT[9]);
        let half = t * deviation / (values.len() as f64).sqrt();
        Some(Interval { mean, low: mean - half, high: mean + half })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let text = format!("{:.1} ({:.1} to {:.1})", self.mean, self.low, self.high);
        f.write_str(&text.replace('-', "−"))
    }
}

/// Mean and standard deviation, which is 0 for one value.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (mean, if values.len() > 1 { (square / (n - 1.0)).sqrt() } else { 0.0 })
}

/// Two methods compared.
#[derive(Debug)]
pub struct MatchedComparison {
    /// ARS of the first minus that of the second; `None` for one seed.
    pub gap: Option<Interval>,
    /// Lowest and highest R@1 at which any seed was compared.
    pub range: (f64, f64),
    /// Number of points of each that counted, over all seeds.
    pub points: (usize, usize),
    /// Most image steps of a point that counts.
    pub work: f64,
    /// Seeds that could be compared.
    pub seeds: usize,
}

/// Number of R@1 values in a range at which curves are compared.
const PLACES: usize = 50;

/// A narrower range of R@1, in points, is compared only at its middle.
const NARROW: f64 = 1.0;

/// Compares curves of ARS over R@1, seed by seed. The error says why it can't be done.
///
/// With `equal_work`, points count only up to 10 % above the cost of the cheaper method's most expensive
/// point.
pub fn difference(a: &[Point], b: &[Point], equal_work: bool) -> Result<MatchedComparison, String> {
    if a.is_empty() || b.is_empty() {
        return Err("every run of one of them collapsed, or there is none".into());
    }
    let work = if equal_work { equal(a, b) } else { dearest(a).max(dearest(b)) };
    let (mut gaps, mut range, mut points) = (vec![], (f64::INFINITY, f64::NEG_INFINITY), (0, 0));
    for (ours, theirs) in by_seed(a, b, work) {
        points = (points.0 + ours.len(), points.1 + theirs.len());
        let (Some(a), Some(b)) = (Curve::of(&ours), Curve::of(&theirs)) else { continue };
        let (low, high) = (a.lowest().max(b.lowest()), a.highest().min(b.highest()));
        // Curves of one point each, or with almost touching ends: R@1 within a point counts as equal.
        if low > high + NARROW {
            continue;
        }
        let places: Vec<f64> = match high - low > NARROW {
            true => (0..=PLACES).map(|i| low + (high - low) * i as f64 / PLACES as f64).collect(),
            false => vec![(low + high) / 2.0],
        };
        let gap = |r: &f64| a.at(*r) - b.at(*r);
        gaps.push(places.iter().map(gap).sum::<f64>() / places.len() as f64);
        range = (range.0.min(low.min(high)), range.1.max(high.max(low)));
    }
    match gaps.is_empty() {
        true => Err("no seed in which both reach the same R@1".into()),
        false => Ok(MatchedComparison { gap: Interval::of(&gaps), range, points, work, seeds: gaps.len() }),
    }
}

/// The seeds in which one point of the first is better in R@1 and in ARS than every point of the second, and
/// the other way round, at equal work; and the seeds with points of both. It needs no common R@1, but has no
/// interval.
pub fn dominance(a: &[Point], b: &[Point]) -> (usize, usize, usize) {
    let beats = |ours: &[Point], theirs: &[Point]| {
        ours.iter().any(|p| theirs.iter().all(|q| p.r1 > q.r1 && p.ars > q.ars))
    };
    let pairs: Vec<_> = by_seed(a, b, equal(a, b)).filter(|(a, b)| !a.is_empty() && !b.is_empty()).collect();
    let ours = pairs.iter().filter(|(a, b)| beats(a, b)).count();
    let theirs = pairs.iter().filter(|(a, b)| beats(b, a)).count();
    (ours, theirs, pairs.len())
}

fn dearest(points: &[Point]) -> f64 {
    points.iter().map(|p| p.work).fold(f64::NAN, f64::max)
}

/// Maximum cost of a point at equal work.
fn equal(a: &[Point], b: &[Point]) -> f64 {
    1.1 * dearest(a).min(dearest(b))
}

/// The points of either method that cost at most `work`, seed by seed.
fn by_seed(a: &[Point], b: &[Point], work: f64) -> impl Iterator<Item = (Vec<Point>, Vec<Point>)> {
    let seeds = a.iter().chain(b).map(|p| p.seed).max().map_or(0, |s| s + 1);
    let of = move |points: &[Point], seed: usize| {
        points.iter().filter(|p| p.seed == seed && p.work <= work).copied().collect()
    };
    (0..seeds).map(move |seed| (of(a, seed), of(b, seed)))
}

/// The points that no other beats in both, by rising R@1 and so by falling ARS.
struct Curve(Vec<(f64, f64)>);

impl Curve {
    fn of(points: &[Point]) -> Option<Curve> {
        let beaten = |p: &Point| {
            points.iter().any(|q| q.r1 >= p.r1 && q.ars >= p.ars && (q.r1 > p.r1 || q.ars > p.ars))
        };
        let mut kept: Vec<(f64, f64)> = points.iter().filter(|p| !beaten(p)).map(|p| (p.r1, p.ars)).collect();
        kept.sort_by(|x, y| x.0.total_cmp(&y.0));
        kept.dedup();
        (!kept.is_empty()).then_some(Curve(kept))
    }

    fn lowest(&self) -> f64 {
        self.0[0].0
    }

    fn highest(&self) -> f64 {
        self.0[self.0.len() - 1].0
    }

    /// ARS at an R@1, by a straight line between neighbours; beyond the ends, the end's.
    fn at(&self, r1: f64) -> f64 {
        let next = self.0.partition_point(|p| p.0 < r1);
        match (next.checked_sub(1).map(|i| self.0[i]), self.0.get(next)) {
            (None, Some(p)) => p.1,
            (Some(p), None) => p.1,
            (Some(p), Some(q)) => p.1 + (q.1 - p.1) * (r1 - p.0) / (q.0 - p.0),
            (None, None) => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seed: usize, r1: f64, ars: f64, work: f64) -> Point {
        Point { seed, r1, ars, work }
    }

    /// scipy.stats.t.interval(0.95, 2, loc=mean, scale=sem) of 1, 2, 4: (-1.461, 6.128).
    #[test]
    fn intervals_are_students() {
        let found = Interval::of(&[1.0, 2.0, 4.0]).unwrap();
        assert!((found.low + 1.4612).abs() < 1e-3 && (found.high - 6.1279).abs() < 1e-3, "{found:?}");
        assert_eq!(Interval::of(&[1.0]), None);
        assert_eq!(found.to_string(), "2.3 (−1.5 to 6.1)");
    }

    #[test]
    fn curves_are_compared_where_both_are() {
        // A: 40 at R@1 50 falling to 20 at 70. B: 10 lower everywhere, on 60 to 80.
        let a = [point(0, 50.0, 40.0, 1.0), point(0, 70.0, 20.0, 1.0), point(0, 55.0, 10.0, 1.0)];
        let b = [point(0, 60.0, 20.0, 1.0), point(0, 80.0, 0.0, 1.0)];
        let found = difference(&a, &b, true).unwrap();
        assert_eq!((found.range, found.points, found.seeds, found.gap), ((60.0, 70.0), (3, 2), 1, None));
        let both: Vec<Point> = a.iter().chain(&a.map(|p| Point { seed: 1, ..p })).copied().collect();
        let theirs: Vec<Point> = b.iter().chain(&b.map(|p| Point { seed: 1, ..p })).copied().collect();
        let gap = difference(&both, &theirs, true).unwrap().gap.unwrap();
        assert!((gap.mean - 10.0).abs() < 1e-9 && gap.high - gap.low < 1e-9, "{gap:?}");
    }

    #[test]
    fn one_point_may_beat_all_others() {
        let a = [point(0, 60.0, 40.0, 1.0), point(0, 50.0, 10.0, 1.0), point(1, 60.0, 40.0, 1.0)];
        let b = [point(0, 55.0, 30.0, 1.0), point(1, 61.0, 30.0, 1.0), point(2, 1.0, 1.0, 1.0)];
        assert_eq!(dominance(&a, &b), (1, 0, 2));
        assert_eq!(dominance(&b, &a), (0, 1, 2));
        assert_eq!(dominance(&a, &[]), (0, 0, 0));
    }

    #[test]
    fn what_cannot_be_matched_is_not_compared() {
        let a = [point(0, 50.0, 40.0, 1.0)];
        assert!(difference(&a, &[point(0, 60.0, 10.0, 1.0)], true).is_err());
        assert!(difference(&a, &[point(1, 50.0, 10.0, 1.0)], true).is_err());
        assert!(difference(&a, &[], true).is_err());
        // More expensive points don't count: the one at twice the work is the only one at that R@1.
        let dear = [point(0, 50.0, 10.0, 2.0), point(0, 80.0, 0.0, 0.9)];
        assert!(difference(&a, &dear, true).is_err() && difference(&a, &dear, false).is_ok());
        assert!(difference(&a, &[point(0, 50.4, 10.0, 1.05)], true).is_ok());
    }
}

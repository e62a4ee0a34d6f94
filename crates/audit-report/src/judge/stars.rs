//! ε* of each query, the size of the smallest change that makes it wrong, from outcomes alone.

use super::survivors::{attacked, survivors};
use crate::record::{Outcome, Report};
use std::collections::BTreeMap;

/// Grey levels of the [0, 1] range. Sizes of changes here, like ε50, are in 255ths.
pub(super) const LEVELS: f64 = 255.0;
/// How far rounding may take the size of a change beyond its ε, as a share of ε, or of 2/255 if ε is less:
/// pixels near white are rounded alike in changes of any size.
pub(super) const ROUNDING: f64 = 1e-5;

/// Largest difference of two ε in 255ths that count as one. Protocols have truncated decimals, such as
/// 0.03137 for 8/255, which is 7.99935/255.
const SAME: f64 = 1e-3;

/// The smallest change that makes a query wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Star {
    /// Whether it is correct without an attack.
    pub right: bool,
    /// ε*: 0 if it is wrong already, infinite if no change within ε was found.
    pub size: f64,
    /// ε* of files, see [`crate::record::Enough::as_file`].
    pub as_file: f64,
}

/// Whether a query that fails from `size` on is correct under every change of at most `eps`.
pub(super) fn withstands(size: f64, eps: f64) -> bool {
    size > eps + ROUNDING * eps.max(2.0)
}

/// ε* of every query that the strong search attacked, smallest first, each behind the query's id; `None` if
/// it looked for no smaller changes. A query that only another attack broke fails from the size of that
/// change on.
pub fn stars(outcomes: &[Outcome]) -> Option<Vec<(&str, Star)>> {
    let standing: BTreeMap<&str, bool> = survivors(outcomes).into_iter().collect();
    let mut others: BTreeMap<&str, f32> = BTreeMap::new();
    for o in outcomes.iter().filter(|o| o.before.hit == Some(true) && o.after.hit == Some(false)) {
        let size = o.size.unwrap_or(o.linf);
        let least = others.entry(&o.query).or_insert(size);
        *least = least.min(size);
    }
    let star = |o: &'_ Outcome| -> Option<(f64, f64)> {
        let enough = o.enough?;
        let in_levels = |size: Option<f32>| size.map_or(f64::INFINITY, |size| LEVELS * f64::from(size));
        if o.before.hit != Some(true) {
            return Some((0.0, 0.0));
        }
        let lost = standing.get(o.query.as_str()) == Some(&false);
        let other = others.get(o.query.as_str()).copied().filter(|_| lost);
        Some((in_levels(enough.size).min(in_levels(other)), in_levels(enough.as_file)))
    };
    let found = attacked(outcomes).map(|o| {
        let (size, as_file) = star(o)?;
        Some((o.query.as_str(), Star { right: o.before.hit == Some(true), size, as_file }))
    });
    let mut found = found.collect::<Option<Vec<_>>>().filter(|stars: &Vec<_>| !stars.is_empty())?;
    found.sort_by(|a, b| a.1.size.total_cmp(&b.1.size).then(a.0.cmp(b.0)));
    Some(found)
}

/// ε50, the smallest ε at which half of the correct queries fail, from queries with their weights, ε*
/// ascending; `None` if none is correct. If fewer than half fail it is `most`, the largest ε searched, and
/// otherwise below it.
pub(super) fn eps50(stars: impl Iterator<Item = (Star, f64)> + Clone, most: f64) -> Option<f64> {
    let right = stars.filter(|(star, _)| star.right);
    let half = right.clone().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut failed = 0.0;
    for (star, weight) in right {
        failed += weight;
        if failed >= half && weight > 0.0 {
            return Some(capped(star.size, most));
        }
    }
    None
}

/// A size of a change, if `most` is the largest one searched: `most` itself if no change was found, and
/// below it otherwise.
pub(super) fn capped(size: f64, most: f64) -> f64 {
    if size.is_finite() { size.min(most * (1.0 - 1e-6)) } else { most }
}

/// The largest ε searched, in 255ths.
pub(super) fn most(report: &Report) -> f64 {
    // Without the error of ε in float32, so that 0.5/255 is 0.5.
    (1e6 * LEVELS * f64::from(report.suite.eps)).round() / 1e6
}

/// The rung that `eps` stands for, of a ladder from `most` down; `eps` itself if it is no rung. All are in
/// 255ths. A ladder from just below a whole number begins at this number: 7.99935 stands for 8, and three
/// halvings below it 0.99992 for the smallest change of a file.
pub(super) fn on_ladder(eps: f64, most: f64) -> f64 {
    let largest = (most + SAME).floor().max(most);
    let rung = largest / (largest / eps).log2().round().max(0.0).exp2();
    if (rung - eps).abs() <= SAME { rung } else { eps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Enough, Measures};

    fn outcome(query: usize, right: bool, size: Option<f32>) -> Outcome {
        let hit = |hit| Measures { hit: Some(hit), ..Measures::default() };
        Outcome {
            attack: "R1".into(),
            query: format!("q{query}"),
            before: hit(right),
            after: hit(right && size.is_none()),
            linf: 8.0 / 255.0,
            enough: Some(Enough { size: if right { size } else { Some(0.0) }, ..Enough::default() }),
            ..Outcome::default()
        }
    }

    /// Pixels that move by ε, in float32, at each ε of a ladder from 8/255: whatever their value, the change
    /// is of this size but for rounding.
    #[test]
    fn a_change_of_epsilon_lies_within_epsilon() {
        for halvings in 0..6 {
            let eps = 8.0 / 255.0 / 2.0f32.powi(halvings);
            let sizes = (0..950).map(|n| n as f32 / 1000.0).map(|v| (v + eps) - v);
            let largest = sizes.fold(0.0, f32::max);
            let [size, eps] = [largest, eps].map(|v| LEVELS * f64::from(v));
            assert!(!withstands(size, eps) && withstands(1.0001 * size, eps), "{size} at {eps}");
        }
    }

    /// By hand: of 6 queries one is wrong, and of the other five three fail, at 1, 2 and 4.
    #[test]
    fn queries_fail_from_their_smallest_change_on() {
        let level = |n: f32| Some(n / 255.0);
        let all: Vec<Outcome> = [
            (false, None),
            (true, level(4.0)),
            (true, None),
            (true, level(1.0)),
            (true, level(2.0)),
            (true, None),
        ]
        .into_iter()
        .enumerate()
        .map(|(i, (right, size))| outcome(i, right, size))
        .collect();
        let stars = stars(&all).unwrap();
        let left = |eps: f64| stars.iter().filter(|(_, s)| withstands(s.size, eps)).count();
        assert_eq!([8.0, 4.0, 2.0, 1.0, 0.5].map(left), [2, 2, 3, 4, 5]);
        let found = |weights: [f64; 6]| eps50(stars.iter().zip(weights).map(|((_, s), w)| (*s, w)), 8.0);
        // The third of five fails at 4. Without the query that fails at 1, two of four do; without the one at
        // 4 too, one of three.
        assert!((found([1.0; 6]).unwrap() - 4.0).abs() < 1e-6);
        assert!((found([1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).unwrap() - 4.0).abs() < 1e-6);
        assert_eq!(found([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]), Some(8.0));
        assert_eq!(found([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), None);
        // A change found at ε itself is not "above ε".
        let at = Star { right: true, size: 8.0, as_file: 8.0 };
        assert!(eps50([(at, 1.0)].into_iter(), 8.0).unwrap() < 8.0);
    }

    /// 0.03137 and its halves are 8/255 and its halves, however they are written.
    #[test]
    fn rungs_of_truncated_decimals_are_those_that_they_stand_for() {
        let most = LEVELS * 0.03137;
        let rungs = [8.0, 4.0, 2.0, 1.0, 0.5, 0.25];
        for (halvings, rung) in rungs.into_iter().enumerate() {
            let stored = most / f64::from(1u32 << halvings);
            let named = (stored * 1e4).round() / 1e4;
            for eps in [stored, named, rung] {
                assert_eq!(on_ladder(eps, most), rung, "{eps}");
            }
        }
        // What is no rung stays: between two, beyond the largest, and an ε that stands for itself.
        for (eps, most) in [(3.0, 8.0), (7.9, 8.0), (9.0, 8.0), (4.5, 4.5), (200.1, 200.1)] {
            assert_eq!(on_ladder(eps, most), eps);
        }
    }

    /// Another attack of the report counts if it made a query wrong.
    #[test]
    fn any_attack_may_make_a_query_wrong() {
        let mut all =
            vec![outcome(0, true, None), Outcome { attack: "ES".into(), ..outcome(0, true, Some(0.1)) }];
        all[1].enough = None;
        assert!((stars(&all).unwrap()[0].1.size - 8.0).abs() < 1e-5);
        all[0].enough = None;
        assert_eq!(stars(&all), None);
    }
}

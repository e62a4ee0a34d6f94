//! Retrieval under natural corruptions, and the ε of attacks with the same cost, from the results of single
//! queries.

use super::score::{RESAMPLES, interval};
use super::share::{wilson, with_width};
use super::smallest::norm;
use crate::facts::MIN;
use crate::record::{Corrupted, CorruptionRow, Corruptions, Report, SameEps, unless_few};
use audit_base::parallel;
use audit_base::random::Random;
use audit_gallery::corruption::{CORRUPTIONS, Corruption, STRENGTHS};
use std::collections::{BTreeMap, BTreeSet};

/// The corruptions of a report, each at five strengths; `None` if its suite has none.
pub fn corruptions(report: &Report) -> Option<Corruptions> {
    let ids: BTreeSet<&str> = report.corrupted.iter().map(|c| c.query.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().collect();
    if ids.is_empty() {
        return None;
    }
    let found: Vec<(&Corruption, Vec<&Corrupted>)> =
        CORRUPTIONS.iter().filter_map(|c| results_under(report, c, &ids)).collect();
    // Fewer than 10 queries have no interval of the ε with the same cost.
    let norms = Norms::of(report, &ids).filter(|_| unless_few(ids.len(), Some(())).is_some());
    let weights = resampled(ids.len(), report.seed);
    let within = |mean: f64, resampled| unless_few(ids.len(), with_width(mean / 100.0, ids.len(), resampled));
    let (_, any) = found.first()?;
    let input = &report.model.preprocessing;
    let side = input.height.max(input.width);
    let all: Vec<Row> = found
        .iter()
        .flat_map(|(corruption, queries)| {
            (1..=STRENGTHS).map(move |strength| (*corruption, queries, strength))
        })
        .map(|(corruption, queries, strength)| {
            let wrong: Vec<bool> = queries.iter().map(|q| !q.first[strength]).collect();
            let right = wrong.iter().filter(|wrong| !**wrong).count();
            let r1 = Mean::of(queries.iter().map(|q| f64::from(q.first[strength])), &weights);
            let map = Mean::of(queries.iter().map(|q| q.ap[strength]), &weights);
            let row = CorruptionRow {
                corruption: corruption.name.into(),
                strength,
                value: corruption.value(strength, side),
                r1: r1.value,
                r1_interval: unless_few(ids.len(), Some(wilson(right, ids.len()))),
                map: map.value,
                map_interval: within(map.value, interval(map.resampled.clone())),
                same_eps: norms.as_ref().map(|norms| norms.same_eps(&wrong, &weights)),
            };
            Row { row, r1, map }
        })
        .collect();
    let (mean_r1, mean_r1_interval) = mean_of(&all, |row| &row.r1);
    let (mean_map, mean_map_interval) = mean_of(&all, |row| &row.map);
    let clean =
        |of: &dyn Fn(&Corrupted) -> f64| 100.0 * any.iter().map(|q| of(q)).sum::<f64>() / ids.len() as f64;
    Some(Corruptions {
        queries: ids.len(),
        clean_r1: clean(&|q| f64::from(q.first[0])),
        clean_map: clean(&|q| q.ap[0]),
        mean_r1,
        mean_r1_interval: within(mean_r1, mean_r1_interval),
        mean_map,
        mean_map_interval: within(mean_map, mean_map_interval),
        rows: all.into_iter().map(|row| row.row).collect(),
    })
}

/// The results of the queries `ids` under `corruption`, in this order; `None` unless all of them have one.
fn results_under<'r>(
    report: &'r Report,
    corruption: &'static Corruption,
    ids: &[&str],
) -> Option<(&'static Corruption, Vec<&'r Corrupted>)> {
    let mine = report.corrupted.iter().filter(|c| c.corruption == corruption.name);
    let by_id: BTreeMap<&str, &Corrupted> = mine.map(|c| (c.query.as_str(), c)).collect();
    let found: Option<Vec<&Corrupted>> = ids.iter().map(|id| by_id.get(id).copied()).collect();
    found.map(|found| (corruption, found))
}

struct Row {
    row: CorruptionRow,
    r1: Mean,
    map: Mean,
}

/// A mean over queries in per cent, and the mean of each resample.
struct Mean {
    value: f64,
    resampled: Vec<f64>,
}

impl Mean {
    fn of(values: impl Iterator<Item = f64>, weights: &[Vec<f64>]) -> Mean {
        let values: Vec<f64> = values.collect();
        let n = values.len() as f64;
        let weighted = |i: usize| {
            100.0 * values.iter().zip(&weights[i]).map(|(value, weight)| value * weight).sum::<f64>() / n
        };
        Mean {
            value: 100.0 * values.iter().sum::<f64>() / n,
            resampled: parallel::each(weights.len(), &weighted),
        }
    }
}

/// The mean over rows and its interval: a resample has the same queries in all rows.
fn mean_of(rows: &[Row], of: impl Fn(&Row) -> &Mean) -> (f64, Option<(f64, f64)>) {
    let mean =
        |value: &dyn Fn(&Mean) -> f64| rows.iter().map(|row| value(of(row))).sum::<f64>() / rows.len() as f64;
    let resampled = (0..RESAMPLES).map(|i| mean(&|m| m.resampled[i])).collect();
    (mean(&|m| m.value), interval(resampled))
}

/// How often each of `count` queries is drawn in each resample. The resamples of scores are drawn in the same
/// way.
fn resampled(count: usize, seed: u64) -> Vec<Vec<f64>> {
    parallel::each(RESAMPLES, &|stream| Random::seeded(seed).stream(stream as u64).resample(count))
}

/// The smallest perturbations that make queries wrong.
struct Norms {
    /// (norm, place of the query), by norm, ascending. A norm is infinite if none was found.
    sorted: Vec<(f64, usize)>,
}

impl Norms {
    /// The results of the search for them; `None` if the suite has none.
    fn of(report: &Report, ids: &[&str]) -> Option<Norms> {
        let mine = report.outcomes.iter().filter(|o| MIN.made(o));
        let place = |id: &str| ids.binary_search(&id).ok();
        let mut sorted: Vec<(f64, usize)> = mine.filter_map(|o| Some((norm(o)?, place(&o.query)?))).collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        (!sorted.is_empty()).then_some(Norms { sorted })
    }

    /// The smallest ε at which as many queries are wrong as under a corruption, where they are `wrong`.
    fn same_eps(&self, wrong: &[bool], weights: &[Vec<f64>]) -> SameEps {
        let eps = |weight: &dyn Fn(usize) -> f64| -> f64 {
            let lost: f64 = self.sorted.iter().filter(|(_, q)| wrong[*q]).map(|(_, q)| weight(*q)).sum();
            let mut reached = 0.0;
            for &(norm, query) in &self.sorted {
                if reached >= lost {
                    break;
                }
                reached += weight(query);
                if reached >= lost {
                    return norm;
                }
            }
            0.0
        };
        let mut found = parallel::each(weights.len(), &|i| eps(&|q| weights[i][q]));
        found.sort_unstable_by(f64::total_cmp);
        let finite = |v: f64| Some(v).filter(|v| v.is_finite());
        let last = (found.len() - 1) as f64;
        SameEps {
            eps: finite(eps(&|_| 1.0)),
            low: finite(found[(0.025 * last).floor() as usize]),
            high: finite(found[(0.975 * last).ceil() as usize]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of five queries one is wrong without an attack, and ε = 0.1, 0.2, 0.3 and none break the others,
    /// counted by hand.
    #[test]
    fn the_same_loss_by_attack() {
        let norms = Norms { sorted: vec![(0.0, 4), (0.1, 2), (0.2, 0), (0.3, 3), (f64::INFINITY, 1)] };
        let same = |wrong: [bool; 5]| norms.same_eps(&wrong, &[vec![1.0; 5]]).eps;
        assert_eq!(same([false; 5]), Some(0.0));
        assert_eq!(same([false, true, false, false, false]), Some(0.0), "as many clean queries are wrong");
        assert_eq!(same([false, true, false, false, true]), Some(0.1));
        assert_eq!(same([true, true, false, true, true]), Some(0.3));
        assert_eq!(same([true; 5]), None);
        // A resample with the hard query twice, and the query that both break three times.
        let again = norms.same_eps(&[false, false, true, false, true], &[vec![0.0, 2.0, 3.0, 0.0, 0.0]]);
        assert_eq!((again.low, again.high), (Some(0.1), Some(0.1)));
    }
}

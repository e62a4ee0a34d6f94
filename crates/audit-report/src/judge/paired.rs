//! Two reports resampled query by query, and their differences with paired intervals.

use super::clean;
use super::quantity::{Follows, Needs, Quantity};
use super::row::Difference;
use super::score::{self, Resampled};
use super::share;
use super::verification::pairs_of;
use crate::facts::Facts;
use crate::record::{Report, unless_few};
use audit_base::numbers::mean;
use audit_gallery::space::sharing::inflation;
use std::collections::BTreeMap;

/// Two reports, resampled query by query.
pub struct PairedReports<'r> {
    base: &'r Report,
    candidate: &'r Report,
    resampled: Option<(Resampled, Resampled)>,
}

impl<'r> PairedReports<'r> {
    /// Resamples both reports. If their queries or images differ, differences under attack have no interval.
    pub fn new(base: &'r Report, candidate: &'r Report) -> PairedReports<'r> {
        // Both use one seed, so resample number i contains the same queries in both.
        let resample = |r: &Report| score::resampled(r, base.seed);
        let (a, b) = (resample(base), resample(candidate));
        // Images of different data sets may have the same names.
        let same = a.queries == b.queries && base.data.sha256 == candidate.data.sha256;
        PairedReports { base, candidate, resampled: same.then_some((a, b)) }
    }

    /// Whether both attacked the same queries of the same images, so that differences under attack have
    /// intervals.
    pub fn paired(&self) -> bool {
        self.resampled.is_some()
    }

    /// The difference in `metric`; `None` unless both reports have the number and may show it. Sizes in
    /// different norms have no unit in common, so that they, and what withstands one, have no difference.
    pub fn difference(&self, metric: &'static Quantity) -> Option<Difference> {
        let of_size = matches!(metric.needs, Needs::Ladder | Needs::Smallest);
        if of_size && self.base.suite.norm != self.candidate.suite.norm {
            return None;
        }
        let (base, candidate) = (metric.row(self.base), metric.row(self.candidate));
        let value = candidate.value? - base.value?;
        let queries = base.queries.min(candidate.queries);
        // Of two numbers that are only known to be larger than the largest ε, the difference is unknown.
        let unknown = base.is_above() && candidate.is_above();
        let census = clean::census(metric, self.base, self.candidate);
        let (interval, queries) = match (unknown, census) {
            (true, _) => (None, 0),
            (false, true) => (None, queries),
            (false, false) => self.interval(metric, value, queries),
        };
        Some(Difference { value, interval, queries, census })
    }

    /// The interval of a difference, `value`, of `queries` queries, and the number of queries behind the
    /// interval.
    fn interval(&self, metric: &'static Quantity, value: f64, queries: usize) -> (Option<(f64, f64)>, usize) {
        if !metric.attacked() {
            let pairs = clean::per_query(metric, self.base, self.candidate);
            return pairs.map_or((None, 0), |pairs| (clean::paired(&pairs, self.base.seed), pairs.len()));
        }
        let (Some((a, b)), Some(pairs)) = (&self.resampled, self.pairs(metric)) else { return (None, 0) };
        if let Some(shares) = self.shares(metric) {
            let changes = shares.iter().map(|(query, [a, b])| (query, f64::from(*b) - f64::from(*a)));
            let inflation = pairs.inflation(changes);
            let shares: Vec<[bool; 2]> = shares.values().copied().collect();
            return (unless_few(shares.len(), Some(share::paired(&shares, inflation))), queries);
        }
        let both = a.replicates.iter().zip(&b.replicates);
        let changes = both.filter_map(|(x, y)| Some(metric.in_replicate(b, y)? - metric.in_replicate(a, x)?));
        let resampled = unless_few(queries, score::interval(changes.collect()));
        let found = resampled.map(|found| match pairs.of.is_empty() {
            true => found,
            false => share::widened(value, found, pairs.inflation(self.without_each(metric, a).into_iter())),
        });
        (found, queries)
    }

    /// The difference without each query, both reports' `queries`, if it is then defined.
    fn without_each<'a>(&self, metric: &'static Quantity, a: &'a Resampled) -> Vec<(&'a String, f64)> {
        let of = |report| score::without_each(report, &|of, replicate| metric.in_replicate(of, replicate));
        let both = of(self.base).into_iter().zip(of(self.candidate));
        let without = a.queries.iter().zip(both);
        without.filter_map(|(query, (base, candidate))| Some((query, candidate? - base?))).collect()
    }

    /// Whether each query counts in the baseline and in the candidate, by its id; `None` unless the number is
    /// a share of the same queries in both.
    fn shares(&self, metric: &Quantity) -> Option<BTreeMap<String, [bool; 2]>> {
        let Follows::Outcomes(_, Some(of_queries)) = metric.follows() else { return None };
        let (base, candidate) = (of_queries(self.base)?, of_queries(self.candidate)?);
        let same = base.keys().eq(candidate.keys());
        let both = base.into_iter().zip(candidate.into_values()).map(|((query, a), b)| (query, [a, b]));
        same.then(|| both.collect())
    }

    /// The attacked pairs behind a number; `None` if the reports attacked different pairs.
    fn pairs(&self, metric: &'static Quantity) -> Option<Pairs<'r>> {
        let attack = metric.whole().term().and_then(|term| Facts::of_term(term.name));
        // A class is one identity, so that numbers of single classes are not about others.
        let of_identities = metric.part_of.is_none_or(|(_, by)| by.of_identities);
        let Some(attack) = attack.filter(|of| of.pairs.is_some() && of_identities) else {
            return Some(Pairs { of: BTreeMap::new() });
        };
        let [base, candidate] = [self.base, self.candidate].map(|report| pairs_of(report, attack.code));
        let targets = |of: &BTreeMap<&'r str, (&'r str, [usize; 2])>| -> Vec<(&'r str, &'r str)> {
            of.iter().map(|(query, (target, _))| (*query, *target)).collect()
        };
        let same = targets(&base) == targets(&candidate);
        let of = base.into_iter().map(|(query, (_, identities))| (query, identities));
        same.then(|| Pairs { of: of.collect() })
    }
}

/// The attacked pairs behind a number, if it is of decisions about pairs.
struct Pairs<'r> {
    /// The identities of both images of each pair, by query.
    of: BTreeMap<&'r str, [usize; 2]>,
}

impl Pairs<'_> {
    /// By how many times the variance of a difference exceeds that of independent queries. Of each query:
    /// what it adds to the difference, but for a constant.
    fn inflation<'q>(&self, changes: impl Iterator<Item = (&'q String, f64)>) -> f64 {
        let of_pair = |(query, change): (&String, f64)| Some((*self.of.get(query.as_str())?, change));
        let (identities, changes): (Vec<[usize; 2]>, Vec<f64>) = changes.filter_map(of_pair).unzip();
        let middle = mean(&changes);
        let residuals = changes.into_iter().map(|change| change - middle);
        inflation(&identities.into_iter().zip(residuals).collect::<Vec<_>>(), share::ALPHA)
    }
}

//! Scores: the results of each attack, ERS, ARS in both forms, and their intervals, computed from outcomes
//! alone.
//!
//! ERS and the attacks' terms follow Zhou et al. (T-PAMI 2024, arXiv:2106.03614). ARS follows Tian et al.
//! (ICML 2024, arXiv:2312.07364): equation 30 (`per_trial`), and the numbers that its tables print (`table`).
//! All scores are in 0–100; higher is better.

mod table;
#[cfg(test)]
mod tests;

use super::division::DIVISIONS;
use super::share::{wilson, with_width};
use super::stars::{self, Star};
use crate::facts::term::{Term, Unit, terms_of};
use crate::facts::{FACTS, Facts};
use crate::record::{
    Attack, Form, Metric, Outcome, Report, Resistance, Score, ScoreName, Scores, Skipped, unless_few,
};
use audit_base::parallel;
use audit_gallery::space::Gallery;
use std::collections::BTreeSet;
use table::{Column, Table};

pub use table::Means;

/// Bootstrap resamples of the queries per interval.
pub const RESAMPLES: usize = 1000;

/// The input of the scores besides the outcomes.
#[derive(Clone, Copy, Debug)]
pub struct Basis {
    /// Items in a ranking: [`Form::ranked`].
    pub ranked: usize,
    /// Published or corrected definitions.
    pub form: Form,
    /// Decides the scale of distances, such as ES:D.
    pub metric: Metric,
    /// Number of foreign targets, among which QA± ranks them; `None` if attacks aim at images.
    pub foreign: Option<usize>,
}

impl Basis {
    /// The basis of trials in `gallery`.
    pub fn of(gallery: &Gallery, form: Form) -> Basis {
        let foreign = gallery.foreign().map(Gallery::len);
        Basis { ranked: form.ranked_in(gallery), form, metric: gallery.metric, foreign }
    }

    /// Items in the rankings of this attack, by its code.
    pub fn ranked_by(&self, attack: &str) -> f64 {
        let measure = Facts::find(attack).map(|o| o.measured);
        match self.foreign {
            Some(count) if measure.is_ok_and(|m| m.takes_foreign && m.mean_rank) => count as f64,
            _ => self.ranked as f64,
        }
    }
}

impl Report {
    /// The input of the scores besides the outcomes.
    pub fn basis(&self) -> Basis {
        let (form, data) = (self.suite.form, &self.data);
        let ranked = match data.gallery {
            // Reports of versions without separate queries have no number of gallery images.
            0 => form.ranked(data.images, false),
            gallery => form.ranked(gallery, data.images > gallery),
        };
        let foreign = self.targets.as_ref().map(|targets| targets.count);
        Basis { ranked, form, metric: self.model.metric, foreign }
    }
}

/// The scores of one resample.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicate {
    /// The means of each term, in the order of [`Resampled::terms`].
    pub means: Vec<Option<Means>>,
    /// ERS of the resample.
    pub ers: Option<f64>,
    /// ARS per trial of the resample.
    pub ars: Option<f64>,
    /// ARS from the ratio of means, as published tables have it, of the resample.
    pub ars_table: Option<f64>,
    /// ARS of the results of the strong search of the resample.
    pub ars_strong: Option<f64>,
    /// R@1 of the strong search's queries after it, in per cent.
    pub robust: Option<f64>,
    /// The median of the smallest perturbations of the resample, in units of the [0, 1] range; infinite if
    /// half of the queries have none.
    pub median: Option<f64>,
    /// The worst mean after the attack of any class, and of any group, for each summary whose term is
    /// divided.
    pub worst: Vec<[Option<f64>; DIVISIONS.len()]>,
    /// The worst robust R@1 of any class, and of any group.
    pub robust_worst: [Option<f64>; DIVISIONS.len()],
    /// The weight of each of [`Resampled::stars`].
    pub stars: Vec<f64>,
}

impl Replicate {
    /// The score called `name`.
    pub fn score(&self, name: ScoreName) -> Option<f64> {
        match name {
            ScoreName::Ers => self.ers,
            ScoreName::Ars => self.ars,
            ScoreName::ArsStrong => self.ars_strong,
        }
    }
}

/// The rows and the scores of `outcomes`, without robust R@1. `skipped` are the trials that could not be run;
/// scores that are not `requested` are left out. Intervals come from [`RESAMPLES`] seeded resamples.
pub fn score(
    outcomes: &[Outcome],
    skipped: &[Skipped],
    basis: &Basis,
    requested: &[ScoreName],
    seed: u64,
) -> (Vec<Attack>, Scores) {
    let table = Table::new(outcomes, skipped, basis, None);
    let once = vec![1.0; table.queries];
    let point = table.replicate(&once, None);
    let replicates = table.resample(RESAMPLES, seed);
    let spread = |queries: usize, of: &dyn Fn(&Replicate) -> Option<f64>| {
        unless_few(queries, Some(())).and_then(|()| interval(replicates.iter().filter_map(of).collect()))
    };
    // An image that is crafted for many queries is measured on the held-out ones.
    let queries = |column: &Column| match column.outcomes.is_empty() {
        true => column.trials.len(),
        false => table.held_out,
    };
    let row = |(i, column): (usize, &Column)| {
        let means = point.means[i].as_ref();
        Attack {
            code: column.term.name.into(),
            form: basis.form,
            queries: column.trials.len(),
            skipped: column.left_out + means.map_or(0, |m| m.nothing_to_attack),
            counted: column.counted(),
            before: means.and_then(|m| m.before),
            after: means.map(|m| m.after),
            after_interval: means.and_then(|m| match column.hits() {
                // The bootstrap of a share has no width if all queries agree.
                Some(hits) => unless_few(column.trials.len(), Some(wilson(hits, column.trials.len()))),
                None => {
                    let found = spread(queries(column), &|r| Some(r.means[i].as_ref()?.after));
                    at_least_wilsons(column, m, queries(column), found)
                }
            }),
            ers_term: means.and_then(|m| Some((column.term.ers?)(m.after))),
            resistance: Resistance {
                per_trial: means.and_then(|m| m.per_trial),
                table: means.and_then(|m| m.table),
            },
        }
    };
    let score_of = |name: ScoreName| {
        let value = point.score(name).filter(|_| requested.contains(&name))?;
        // The queries of a score are those of its attack with the fewest. A resistance rests on those that an
        // attack could make worse.
        let behind = |column: &Column| match name {
            ScoreName::Ers => queries(column),
            ScoreName::Ars | ScoreName::ArsStrong => column.counted().unwrap_or_else(|| queries(column)),
        };
        let fewest = table.columns_of(terms_of(name)).map(behind).min().unwrap_or(0);
        let interval = spread(fewest, &|r| r.score(name));
        let table = point.ars_table.filter(|_| name == ScoreName::Ars);
        Some(Score {
            value,
            interval,
            table,
            table_interval: table.and_then(|_| spread(fewest, &|r| r.ars_table)),
            withheld: interval.is_none_or(|(low, high)| high - low > WIDEST),
        })
    };
    let missing = |name: &&ScoreName| requested.contains(*name) && point.score(**name).is_none();
    let scores = Scores {
        ers: score_of(ScoreName::Ers),
        ars: score_of(ScoreName::Ars),
        ars_strong: score_of(ScoreName::ArsStrong),
        notes: ScoreName::ALL.iter().filter(missing).map(|name| table.missing(*name)).collect(),
        ..Scores::default()
    };
    (table.columns.iter().enumerate().map(row).collect(), scores)
}

/// An interval from resamples of a term that is measured on so many `queries`. Resamples of a share have no
/// width if all queries agree: then at least Wilson's, as if queries were independent, also if they share
/// perturbations.
fn at_least_wilsons(
    column: &Column,
    means: &Means,
    queries: usize,
    found: Option<(f64, f64)>,
) -> Option<(f64, f64)> {
    match column.term.unit {
        Unit::Percent => with_width(means.after / 100.0, queries.max(column.trials.len()), found),
        Unit::Percentile | Unit::Plain => found,
    }
}

/// The scores of `resamples` bootstrap resamples of the queries. The same queries and seed give the same
/// resamples for every model, so that the difference of two audits can be resampled in pairs.
pub fn replicates(outcomes: &[Outcome], basis: &Basis, resamples: usize, seed: u64) -> Vec<Replicate> {
    Table::new(outcomes, &[], basis, None).resample(resamples, seed)
}

/// The resamples of an audit.
#[derive(Clone, Debug)]
pub struct Resampled {
    /// The terms that the entries of the replicates' lists belong to.
    pub terms: Vec<&'static Term>,
    /// Ids of the queries, ascending. Two audits with equal ids can be paired.
    pub queries: Vec<String>,
    /// The smallest sufficient change for each query of the strong search, ascending. Empty without a ladder.
    pub stars: Vec<Star>,
    /// The largest ε, in 255ths.
    pub most: f64,
    /// The replicates: [`RESAMPLES`], one from [`once`], or none if nothing varies.
    pub replicates: Vec<Replicate>,
}

impl Resampled {
    fn new(report: &Report, table: &Table, replicates: Vec<Replicate>) -> Resampled {
        let queries: BTreeSet<&String> = report.outcomes.iter().map(|o| &o.query).collect();
        Resampled {
            terms: table.columns.iter().map(|c| c.term).collect(),
            queries: queries.into_iter().cloned().collect(),
            stars: table.stars.iter().map(|(_, star)| *star).collect(),
            most: stars::most(report),
            replicates,
        }
    }
}

/// The outcomes of an audit by term, with its classes and groups.
fn table(report: &Report) -> Table<'_> {
    Table::new(&report.outcomes, &[], &report.basis(), Some(report))
}

/// Resamples an audit [`RESAMPLES`] times.
pub fn resampled(report: &Report, seed: u64) -> Resampled {
    let table = table(report);
    Resampled::new(report, &table, table.resample(RESAMPLES, seed))
}

/// An audit without resampling, in the form of [`resampled`]: its one replicate has every query once.
pub fn once(report: &Report) -> Resampled {
    let table = table(report);
    Resampled::new(report, &table, vec![table.replicate(&vec![1.0; table.queries], None)])
}

/// A number of an audit without each of its queries, in the order of [`Resampled::queries`]; `None` if it is
/// then undefined.
pub fn without_each(
    report: &Report,
    of: &(dyn Fn(&Resampled, &Replicate) -> Option<f64> + Sync),
) -> Vec<Option<f64>> {
    let table = table(report);
    let about = Resampled::new(report, &table, Vec::new());
    parallel::each(table.queries, &|left_out| {
        let mut weights = vec![1.0; table.queries];
        weights[left_out] = 0.0;
        of(&about, &table.replicate(&weights, None))
    })
}

/// ERS from the values of its terms after the attack. Percentiles and shares are in per cent, TMA is a
/// cosine, ES:D a distance in [0, 2]. `after` gives a term's value; the result is `None` if one is missing.
pub fn ers(after: impl Fn(&Term) -> Option<f64>) -> Option<f64> {
    let terms = terms_of(ScoreName::Ers);
    let sum = terms.clone().map(|term| Some((term.ers?)(after(term)?))).sum::<Option<f64>>();
    sum.map(|sum| sum / terms.count() as f64)
}

/// ARS, or another mean of resistances, from the resistances of its terms, in per cent; `None` if one is
/// missing.
pub fn ars(score: ScoreName, resistance: impl Fn(&Term) -> Option<f64>) -> Option<f64> {
    let terms = terms_of(score).map(|term| (term, term.weight(score) as f64));
    let weight: f64 = terms.clone().map(|(_, weight)| weight).sum();
    let sum = terms.map(|(term, weight)| Some(weight * resistance(term)?)).sum::<Option<f64>>();
    sum.map(|sum| sum / weight)
}

/// 1 − (after − before)/(goal − before), in per cent; `None` if the value already was the goal before the
/// attack.
pub fn resistance(before: f64, after: f64, goal: f64) -> Option<f64> {
    (goal != before).then(|| 100.0 * (1.0 - (after - before) / (goal - before)))
}

/// Resistance of one trial, in %: its [`resistance`], clamped to [0, 100], by the term that decides. Shares
/// give 0 or 100. `None` if the query could not get worse, or the attack is unknown.
pub fn withstood(outcome: &Outcome, basis: &Basis) -> Option<f64> {
    let objective = FACTS.iter().find(|o| o.code == outcome.attack)?;
    let term = objective.decisive();
    let (before, after) = (term.read)(outcome, basis.form)?;
    let found = resistance(before?, after, term.target(basis.ranked_by(&outcome.attack)))?;
    Some(found.clamp(0.0, 100.0))
}

/// Largest width of a score's 95 % interval, in points. A wider one can't tell a weak model from a strong
/// one.
pub const WIDEST: f64 = 40.0;

/// The 2.5 % and 97.5 % quantiles; `None` if fewer than half of the resamples are defined.
pub fn interval(mut values: Vec<f64>) -> Option<(f64, f64)> {
    if values.len() * 2 < RESAMPLES {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let quantile = |p: f64| {
        let at = p * (values.len() - 1) as f64;
        let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
        low + (high - low) * at.fract()
    };
    Some((quantile(0.025), quantile(0.975)))
}

//! Scores: the results of each attack, ERS, ARS in both forms, and their intervals, computed from outcomes
//! alone.
//!
//! ERS and the attacks' terms follow Zhou et al. (T-PAMI 2024, arXiv:2106.03614). ARS follows Tian et al.
//! (ICML 2024, arXiv:2312.07364): equation 30 (`per_trial`), and the numbers that its tables print (`table`).
//! All scores are in 0–100; higher is better.

use super::division::{DIVISIONS, LEAST, divided};
use super::stars::{self, Star};
use super::survivors::survivors;
use crate::facts::R1;
use crate::facts::term::{Averaging, Term, terms_of};
use crate::facts::{FACTS, Facts};
use crate::record::{
    Attack, Form, Metric, Outcome, Report, Resistance, Score, ScoreName, Scores, Skipped, unless_few,
};
use audit_base::parallel;
use audit_base::random::Random;
use audit_gallery::space::Gallery;
use std::collections::BTreeSet;

/// The stream of the resamples of held-out queries and of shared perturbations, far from those of the
/// queries.
const HELD_OUT: u64 = 1 << 32;

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
            after_interval: means
                .and_then(|_| spread(queries(column), &|r| Some(r.means[i].as_ref()?.after))),
            ers_term: means.and_then(|m| Some((column.term.ers?)(m.after))),
            resistance: Resistance {
                per_trial: means.and_then(|m| m.per_trial),
                table: means.and_then(|m| m.table),
            },
        }
    };
    let score_of = |name: ScoreName| {
        let value = point.score(name).filter(|_| requested.contains(&name))?;
        // The queries of a score are those of its attack with the fewest.
        let fewest = table.columns_of(terms_of(name)).map(queries).min().unwrap_or(0);
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
    /// The [`RESAMPLES`] replicates.
    pub replicates: Vec<Replicate>,
}

impl Resampled {
    fn new(report: &Report, replicates: impl Fn(&Table) -> Vec<Replicate>) -> Resampled {
        let table = Table::new(&report.outcomes, &[], &report.basis(), Some(report));
        let queries: BTreeSet<&String> = report.outcomes.iter().map(|o| &o.query).collect();
        Resampled {
            terms: table.columns.iter().map(|c| c.term).collect(),
            queries: queries.into_iter().cloned().collect(),
            stars: table.stars.iter().map(|(_, star)| *star).collect(),
            most: stars::most(report),
            replicates: replicates(&table),
        }
    }
}

/// Resamples an audit [`RESAMPLES`] times.
pub fn resampled(report: &Report, seed: u64) -> Resampled {
    Resampled::new(report, |table| table.resample(RESAMPLES, seed))
}

/// An audit without resampling, in the form of [`resampled`]: its one replicate has every query once.
pub fn once(report: &Report) -> Resampled {
    Resampled::new(report, |table| vec![table.replicate(&vec![1.0; table.queries], None)])
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

/// The trials of one term.
struct Column<'o> {
    term: &'static Term,
    /// The factor from a value to the unit of [`Attack`].
    unit: f64,
    /// The attacker's goal, not converted to the unit.
    goal: f64,
    /// Whether the values before the attack are meaningful.
    known_before: bool,
    /// (query, before, after).
    trials: Vec<(usize, f64, f64)>,
    /// The outcomes of the trials, if each is measured on many queries.
    outcomes: Vec<&'o Outcome>,
    /// For each trial, the perturbation that it shares with others.
    shared: Vec<Option<usize>>,
    /// Number of trials without a value.
    left_out: usize,
    /// Whether every trial has at most one target, as the definition of the scores requires.
    single: bool,
    /// The trials by class and by group, if the term is divided.
    parts: [Parts; DIVISIONS.len()],
}

/// Places of trials, for each class or group with at least [`LEAST`] of them.
type Parts = Vec<Vec<usize>>;

/// The parts of these queries of an attack, by the report's classes and groups; none without a report.
fn parts<'q>(
    queries: impl Iterator<Item = &'q str> + Clone,
    attack: &str,
    divisions: Option<&Report>,
) -> [Parts; DIVISIONS.len()] {
    DIVISIONS.each_ref().map(|by| {
        let Some(report) = divisions else { return Vec::new() };
        let found = divided(queries.clone(), (by.parts)(report, attack)).into_values();
        found.filter(|places| places.len() >= LEAST).collect()
    })
}

/// The worst mean of any part, if `trial` gives the weight and the value of each trial: the lowest, or if a
/// smaller number is better, the highest. Parts without weight are left out.
fn worst(parts: &Parts, lower_is_better: bool, trial: impl Fn(usize) -> (f64, f64)) -> Option<f64> {
    let mean = |places: &Vec<usize>| {
        let (weight, sum) = places.iter().fold((0.0, 0.0), |(weight, sum), &place| {
            let (w, value) = trial(place);
            (weight + w, sum + w * value)
        });
        (weight > 0.0).then(|| sum / weight)
    };
    let means = parts.iter().filter_map(mean);
    if lower_is_better { means.max_by(f64::total_cmp) } else { means.min_by(f64::total_cmp) }
}

/// Further weights of a resample.
struct Again {
    /// Of the queries that each trial is measured on, by place, if there are many.
    held_out: Vec<f64>,
    /// Of the shared perturbations.
    shared: Vec<f64>,
}

/// Weighted means of a term's trials, in its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    before: Option<f64>,
    /// Mean after the attack.
    pub after: f64,
    /// Resistance per trial.
    pub per_trial: Option<f64>,
    /// Resistance from the ratio of means.
    pub table: Option<f64>,
    nothing_to_attack: usize,
}

impl Column<'_> {
    /// The means with a weight per query; `None` if all weights are zero. `again` has further weights;
    /// without them each counts once.
    fn means(&self, weights: &[f64], again: Option<&Again>) -> Option<Means> {
        let (mut total, mut before, mut after) = (0.0, 0.0, 0.0);
        let (mut counted, mut resisted, mut nothing) = (0.0, 0.0, 0);
        for (i, &(query, b, a)) in self.trials.iter().enumerate() {
            let weight = weights[query] * self.weight_of_shared(i, again);
            let measured = self.outcomes.get(i).zip(again).zip(self.term.held_out);
            let a = match measured.map(|((outcome, again), read)| read(outcome, &again.held_out)) {
                None => a,
                Some(Some(a)) => a,
                Some(None) => continue,
            };
            total += weight;
            before += weight * b;
            after += weight * a;
            match resistance(b, a, self.goal) {
                Some(r) => {
                    counted += weight;
                    resisted += weight * r.clamp(0.0, 100.0);
                }
                None => nothing += 1,
            }
        }
        if total == 0.0 {
            return None;
        }
        let (before, after) = (before / total, after / total);
        let table = resistance(before, after, self.goal);
        let (per_trial, table, nothing) = match self.term.resistance {
            Some(Averaging::Trials) => ((counted > 0.0).then(|| resisted / counted), table, nothing),
            // R@1 after / R@1 before is undefined, not 0, if R@1 was 0 before. A query that was a miss before
            // stays in the means, because the ratio is defined on shares and not on single queries.
            Some(Averaging::Means) => (table, table, 0),
            None => (None, None, 0),
        };
        Some(Means {
            before: self.known_before.then_some(before * self.unit),
            after: after * self.unit,
            per_trial,
            table,
            nothing_to_attack: nothing,
        })
    }

    /// The weight of the perturbation that trial `i` shares with others; 1 if it has its own.
    fn weight_of_shared(&self, i: usize, again: Option<&Again>) -> f64 {
        again.zip(self.shared[i]).map_or(1.0, |(again, which)| again.shared[which])
    }

    /// The worst mean after the attack of any class, and of any group.
    fn worst(&self, weights: &[f64], again: Option<&Again>) -> [Option<f64>; DIVISIONS.len()] {
        self.parts.each_ref().map(|parts| {
            let trial = |i: usize| {
                let (query, _, after) = self.trials[i];
                (weights[query] * self.weight_of_shared(i, again), after * self.unit)
            };
            worst(parts, self.term.lower_is_better(), trial)
        })
    }

    /// Trials behind the resistance: those that could get worse.
    fn counted(&self) -> Option<usize> {
        self.term.resistance.map(|_| self.trials.iter().filter(|t| t.1 != self.goal).count())
    }
}

/// Outcomes grouped by term.
struct Table<'o> {
    columns: Vec<Column<'o>>,
    /// The queries of robust R@1, and whether each is still correct ([`survivors`]).
    survivors: Vec<(usize, bool)>,
    /// Those queries by class and by group.
    surviving_parts: [Parts; DIVISIONS.len()],
    /// The queries whose ε* is known, in the order of ε*.
    stars: Vec<(usize, Star)>,
    /// Number of distinct queries.
    queries: usize,
    metric: Metric,
    /// Number of the queries that trials are measured on, if there are many for one trial; otherwise 0.
    held_out: usize,
    /// Number of perturbations that trials share; 0 if each has its own.
    shared: usize,
    /// Whether attacks aim at foreign targets.
    foreign: bool,
}

impl<'o> Table<'o> {
    fn new(
        outcomes: &'o [Outcome],
        skipped: &[Skipped],
        basis: &Basis,
        divisions: Option<&Report>,
    ) -> Table<'o> {
        // The queries are sorted, so that resamples depend neither on the order of outcomes nor on the model.
        let ids: BTreeSet<&str> = outcomes.iter().map(|o| o.query.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let mut columns = Vec::new();
        for objective in FACTS {
            let ranked = basis.ranked_by(objective.code);
            let mine: Vec<&'o Outcome> = outcomes.iter().filter(|o| o.attack == objective.code).collect();
            let not_run = skipped.iter().filter(|s| s.attack == objective.code).count();
            if mine.is_empty() && not_run == 0 {
                continue;
            }
            for term in objective.terms {
                let read = |o: &&Outcome| {
                    let query = ids.binary_search(&o.query.as_str()).ok()?;
                    (term.read)(o, basis.form).map(|(before, after)| (query, before, after))
                };
                let found: Vec<_> = mine.iter().filter_map(read).collect();
                let divisions = divisions.filter(|_| term.divided);
                let measured = mine.iter().copied().filter(|o| term.held_out.is_some() && read(o).is_some());
                columns.push(Column {
                    term,
                    unit: term.scale(ranked),
                    goal: term.target(ranked),
                    parts: parts(found.iter().map(|(query, ..)| ids[*query]), objective.code, divisions),
                    known_before: found.iter().all(|(_, before, _)| before.is_some()),
                    left_out: not_run + mine.len() - found.len(),
                    trials: found
                        .into_iter()
                        .map(|(q, before, after)| (q, before.unwrap_or(0.0), after))
                        .collect(),
                    outcomes: measured.collect(),
                    shared: mine.iter().filter(|o| read(o).is_some()).map(|o| o.shared).collect(),
                    single: mine.iter().all(|o| o.targets.len() <= 1),
                });
            }
        }
        let place = |(query, right)| Some((ids.binary_search(&query).ok()?, right));
        let survivors: Vec<(usize, bool)> = survivors(outcomes).into_iter().filter_map(place).collect();
        let surviving_parts = parts(survivors.iter().map(|(query, _)| ids[*query]), R1.code, divisions);
        let stars = stars::stars(outcomes);
        let star = |(query, star): &(&str, Star)| Some((ids.binary_search(query).ok()?, *star));
        let captured = outcomes.iter().filter_map(|o| o.after.captured.as_ref());
        let held_out = captured.map(|c| c.queries).max().unwrap_or(0);
        let shared = outcomes.iter().filter_map(|o| o.shared).max().map_or(0, |most| most + 1);
        Table {
            columns,
            survivors,
            surviving_parts,
            stars: stars.iter().flatten().filter_map(star).collect(),
            queries: ids.len(),
            metric: basis.metric,
            held_out,
            shared,
            foreign: basis.foreign.is_some(),
        }
    }

    /// The columns of `terms`.
    fn columns_of<'t>(
        &'t self,
        terms: impl Iterator<Item = &'static Term> + Clone + 't,
    ) -> impl Iterator<Item = &'t Column<'o>> {
        self.columns.iter().filter(move |c| terms.clone().any(|t| t.name == c.term.name))
    }

    fn replicate(&self, weights: &[f64], again: Option<&Again>) -> Replicate {
        let means: Vec<Option<Means>> = self.columns.iter().map(|c| c.means(weights, again)).collect();
        let find = |term: &Term, of: &dyn Fn(&Means) -> Option<f64>| {
            let at = self.columns.iter().position(|c| c.term.name == term.name)?;
            means[at].as_ref().and_then(of)
        };
        let bounded = !self.foreign
            && self.metric != Metric::Euclidean
            && self.columns_of(terms_of(ScoreName::Ers)).all(|c| c.single);
        let single = !self.foreign && self.columns_of(terms_of(ScoreName::Ars)).all(|c| c.single);
        let mean = |score, of: &dyn Fn(&Means) -> Option<f64>| {
            single.then(|| ars(score, |term| find(term, of))).flatten()
        };
        Replicate {
            ers: bounded.then(|| ers(|term| find(term, &|m| Some(m.after)))).flatten(),
            ars: mean(ScoreName::Ars, &|m| m.per_trial),
            ars_table: mean(ScoreName::Ars, &|m| m.table),
            ars_strong: mean(ScoreName::ArsStrong, &|m| m.per_trial),
            robust: self.robust(weights),
            stars: self.stars.iter().map(|&(query, ..)| weights[query]).collect(),
            worst: self.columns.iter().map(|c| c.worst(weights, again)).collect(),
            robust_worst: self.surviving_parts.each_ref().map(|parts| {
                worst(parts, false, |i| {
                    let (query, right) = self.survivors[i];
                    (weights[query], if right { 100.0 } else { 0.0 })
                })
            }),
            means,
        }
    }

    /// Robust R@1 with a weight per query; `None` if all weights are zero.
    fn robust(&self, weights: &[f64]) -> Option<f64> {
        let all: f64 = self.survivors.iter().map(|&(query, _)| weights[query]).sum();
        let right: f64 = self.survivors.iter().filter(|s| s.1).map(|&(query, _)| weights[query]).sum();
        (all > 0.0).then(|| 100.0 * right / all)
    }

    /// Returns no resamples if nothing varies: a single query, and none held out.
    fn resample(&self, resamples: usize, seed: u64) -> Vec<Replicate> {
        let resamples = if self.queries.max(self.held_out) < 2 { 0 } else { resamples };
        parallel::each(resamples, &|stream| {
            let random = |first: u64| Random::seeded(seed).stream(first + stream as u64);
            let weights = random(0).resample(self.queries);
            let mut random = random(HELD_OUT);
            let again =
                Again { held_out: random.resample(self.held_out), shared: random.resample(self.shared) };
            self.replicate(&weights, Some(&again))
        })
    }

    /// The reason why `score` is missing.
    fn missing(&self, score: ScoreName) -> String {
        if self.foreign {
            return format!(
                "no {score}: it is defined for targets of the gallery, and --targets names others"
            );
        }
        if score == ScoreName::Ers && self.metric == Metric::Euclidean {
            return "no ERS: it takes ES:D as a share of the largest distance, 2 between unit embeddings; under the \
                    euclidean metric embeddings have no fixed scale"
                .into();
        }
        let terms = terms_of(score);
        let once = vec![1.0; self.queries];
        let means = |term: &Term| self.columns.iter().find(|c| c.term.name == term.name)?.means(&once, None);
        let names =
            |of: &mut dyn Iterator<Item = &'static Term>| of.map(|t| t.name).collect::<Vec<_>>().join(", ");
        let without = names(&mut terms.clone().filter(|t| means(t).is_none()));
        if !without.is_empty() {
            let all = names(&mut terms.clone());
            return format!("no {score}: it is the mean of {all}; without a result: {without}");
        }
        if !self.columns_of(terms.clone()).all(|c| c.single) {
            return format!("no {score}: it is defined for attacks on one target each (w = m = 1)");
        }
        let undefined = names(&mut terms.clone().filter(|t| means(t).is_some_and(|m| m.per_trial.is_none())));
        format!("no {score}: the resistance to {undefined} is undefined, because no query could get worse")
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Measures;

    const BASIS: Basis =
        Basis { ranked: 101, form: Form::Published, metric: Metric::NormalizedEuclidean, foreign: None };

    fn score(outcomes: &[Outcome], skipped: &[Skipped], basis: &Basis, seed: u64) -> (Vec<Attack>, Scores) {
        super::score(outcomes, skipped, basis, &ScoreName::ALL, seed)
    }

    fn row<'a>(attacks: &'a [Attack], term: &str) -> &'a Attack {
        attacks.iter().find(|row| row.code == term).unwrap()
    }

    fn outcome(attack: &str, query: usize, before: Measures, after: Measures) -> Outcome {
        Outcome {
            attack: attack.into(),
            query: format!("q{query}"),
            targets: vec!["t".into()],
            start: 0,
            steps: 32,
            loss_first: 1.0,
            loss_last: 0.5,
            loss_best: 0.5,
            late_fall: 0.0,
            shift: 0.8,
            shift_before_last: 0.6,
            linf: 0.03,
            size: None,
            before,
            after,
            shared: None,
            members: None,
            enough: None,
        }
    }

    fn rank(r: f64) -> Measures {
        Measures { rank: Some(r), ..Measures::default() }
    }

    fn hit(h: bool) -> Measures {
        Measures { hit: Some(h), ..Measures::default() }
    }

    /// Every attack on two queries.
    fn full() -> Vec<Outcome> {
        let cosine = |c| Measures { cosine: Some(c), ..Measures::default() };
        let retained = |r| Measures { retained: Some(r), ..Measures::default() };
        let mut all = Vec::new();
        for q in 0..2 {
            let f = q as f64;
            all.push(outcome("CA+", q, rank(50.0), rank(20.0 + 10.0 * f)));
            all.push(outcome("CA-", q, rank(f * 100.0), rank(60.0))); // the second has nothing to lose
            all.push(outcome("QA+", q, rank(40.0), rank(60.0 * f))); // the second backfires
            all.push(outcome("QA-", q, rank(0.0), rank(25.0)));
            all.push(outcome("TMA", q, cosine(0.0), cosine(0.9)));
            for attack in ["ES", "LTM", "GTM"] {
                all.push(outcome(attack, q, hit(true), hit(q == 0)));
            }
            all.push(outcome("GTT", q, retained(true), retained(false)));
        }
        all
    }

    #[test]
    fn terms_and_both_resistances_by_hand() {
        let (attacks, scores) = score(&full(), &[], &BASIS, 0);
        let row = |term: &str| row(&attacks, term);
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} vs {b}");
        assert_eq!(attacks.len(), 10);
        near(row("CA+").after, 2500.0 / 101.0);
        near(row("CA+").resistance.per_trial, 50.0);
        near(row("CA+").resistance.table, 50.0);
        near(row("QA+").resistance.per_trial, (0.0 + 100.0) / 2.0); // 150 % clamped
        near(row("QA+").resistance.table, 75.0);
        assert_eq!(row("CA-").skipped, 1);
        // One of two queries has nothing to lose to CA-; both were correct before GTM.
        assert_eq!([row("CA-").counted, row("GTM").counted, row("TMA").counted], [Some(1), Some(2), None]);
        near(row("CA-").resistance.per_trial, 40.0);
        near(row("CA-").resistance.table, 80.0);
        near(row("QA-").resistance.per_trial, 75.0);
        near(row("ES:D").after, 0.6); // published: before the last step
        near(row("ES:R").resistance.table, 50.0);
        near(row("GTT").resistance.per_trial, 0.0);
        let p = 100.0 / 101.0;
        let ers =
            (50.0 * p + 100.0 - 60.0 * p + 60.0 * p + 100.0 - 25.0 * p + 10.0 + 70.0 + 150.0 + 0.0) / 10.0;
        near(scores.ers.as_ref().map(|e| e.value), ers);
        near(scores.ars.as_ref().map(|e| e.value), (50.0 + 40.0 + 50.0 + 75.0 + 150.0 + 0.0) / 8.0);
        near(scores.ars.as_ref().and_then(|e| e.table), (50.0 + 80.0 + 75.0 + 75.0 + 150.0 + 0.0) / 8.0);
        // Without R1 only the strong score is missing.
        assert!(
            scores.notes.len() == 1 && scores.notes[0].starts_with("no ARS, strong: "),
            "{:?}",
            scores.notes
        );
        let (corrected, _) = score(&full(), &[], &Basis { ranked: 100, form: Form::Corrected, ..BASIS }, 0);
        near(super::tests::row(&corrected, "ES:D").after, 0.8);
    }

    /// R1 replaces ES:R, LTM and GTM: CA+, CA−, QA+, QA− and GTT have the resistances of the test above, and
    /// of three queries that were correct without an attack one is left, a third.
    #[test]
    fn the_strong_score_counts_r1_three_times() {
        let mut outcomes = full();
        for (query, before, after) in [(0, true, true), (1, true, false), (2, true, false), (3, false, false)]
        {
            outcomes.push(outcome("R1", query, hit(before), hit(after)));
        }
        let of = |outcomes: &[Outcome]| score(outcomes, &[], &BASIS, 0).1.ars_strong.map(|e| e.value);
        let expected = (50.0 + 40.0 + 50.0 + 75.0 + 0.0 + 3.0 * 100.0 / 3.0) / 8.0;
        assert!((of(&outcomes).unwrap() - expected).abs() < 1e-9, "{:?}", of(&outcomes));
        // The three have no part in it, and R1 has none in the published score.
        let published = |outcomes: &[Outcome]| score(outcomes, &[], &BASIS, 0).1.ars.map(|e| e.value);
        assert_eq!(published(&outcomes), published(&full()));
        outcomes.retain(|o| !["TMA", "ES", "LTM", "GTM"].contains(&o.attack.as_str()));
        assert!((of(&outcomes).unwrap() - expected).abs() < 1e-9);
        outcomes.retain(|o| o.attack != "R1");
        assert_eq!(of(&outcomes), None);
    }

    #[test]
    fn no_partial_scores() {
        let mut outcomes = full();
        outcomes.retain(|o| o.attack != "TMA");
        let (_, scores) = score(&outcomes, &[], &BASIS, 0);
        assert!(scores.ers.is_none() && scores.ars.is_some());
        assert!(scores.notes.iter().any(|n| n.contains("without a result: TMA")), "{:?}", scores.notes);
        outcomes.retain(|o| o.attack != "GTT");
        assert!(score(&outcomes, &[], &BASIS, 0).1.ars.is_none());

        let mut wide = full();
        wide.iter_mut().find(|o| o.attack == "CA+").unwrap().targets.push("u".into());
        let (_, scores) = score(&wide, &[], &BASIS, 0);
        assert!(scores.ers.is_none() && scores.ars.is_none() && scores.notes[0].contains("w = m = 1"));

        let (_, euclidean) = score(&full(), &[], &Basis { metric: Metric::Euclidean, ..BASIS }, 0);
        assert!(
            euclidean.ers.is_none()
                && euclidean.ars.is_some()
                && euclidean.notes[0].contains("no fixed scale")
        );
    }

    #[test]
    fn undefined_is_not_zero() {
        let mut outcomes = full();
        outcomes.iter_mut().filter(|o| o.attack == "LTM").for_each(|o| o.before = hit(false));
        let (attacks, scores) = score(&outcomes, &[], &BASIS, 0);
        let ltm = &row(&attacks, "LTM").resistance;
        assert!(ltm.per_trial.is_none() && ltm.table.is_none() && scores.ars.is_none());
        assert!(scores.notes[0].contains("LTM is undefined"), "{:?}", scores.notes);
        assert!(scores.ers.is_some(), "ERS uses the values after the attack only");

        // A query alone in its class has no R@1. It is left out and counted.
        let mut outcomes = full();
        outcomes.iter_mut().filter(|o| o.attack == "ES" && o.query == "q1").for_each(|o| {
            o.before = Measures::default();
            o.after = Measures::default();
        });
        let skipped = Skipped { attack: "LTM".into(), query: "q7".into(), why: "alone".into() };
        let (attacks, _) = score(&outcomes, &[skipped], &BASIS, 0);
        let row = |term: &str| row(&attacks, term);
        assert_eq!((row("ES:R").queries, row("ES:R").skipped), (1, 1));
        assert_eq!((row("ES:D").queries, row("ES:D").skipped), (2, 0));
        assert_eq!((row("LTM").queries, row("LTM").skipped), (2, 1));
    }

    /// Under one of two perturbations every query is correct, under the other none: the mean of two draws of
    /// them is 0, 50 or 100.
    #[test]
    fn intervals_resample_perturbations_that_queries_share() {
        let all = |shared: &dyn Fn(usize) -> Option<usize>| {
            let one = |q: usize| Outcome {
                shared: shared(q),
                ..outcome("UAP", q, hit(true), hit(q.is_multiple_of(2)))
            };
            let outcomes: Vec<Outcome> = (0..400).map(one).collect();
            row(&score(&outcomes, &[], &BASIS, 1).0, "UAP:R").clone()
        };
        let alone = all(&|_| None);
        let (low, high) = alone.after_interval.unwrap();
        assert!(alone.after == Some(50.0) && low > 44.0 && high < 56.0, "{low} {high}");
        assert_eq!(all(&|q| Some(q % 2)).after_interval, Some((0.0, 100.0)));
    }

    /// One image that captures 40 of 200 held-out queries: its share is binomial, with a standard error of
    /// √(0.2·0.8/200). With two images of 10 % and 30 % the mean varies with the images too: by ±10 % / √2 on
    /// average over resamples.
    #[test]
    fn intervals_of_hubs_resample_images_and_held_out_queries() {
        use crate::record::Captured;
        let of = |count: usize| Measures {
            captured: Some(Captured {
                sample: [0.0; 2],
                queries: 210,
                left_out: (200..210).collect(),
                first: (0..count).map(|place| (place, place % 2)).collect(),
            }),
            ..Measures::default()
        };
        let hub = |outcomes: &[Outcome]| {
            let (attacks, _) = score(outcomes, &[], &BASIS, 5);
            let row = row(&attacks, "HUB:10");
            let (low, high) = row.after_interval.unwrap();
            (row.before.unwrap(), row.after.unwrap(), (high - low) / 2.0 / 1.96)
        };
        let (before, after, error) = hub(&[outcome("HUB", 0, of(2), of(40))]);
        assert_eq!((before, after), (1.0, 20.0));
        let expected = 100.0 * (0.2f64 * 0.8 / 200.0).sqrt();
        assert!((error / expected - 1.0).abs() < 0.12, "{error}, expected {expected}");
        let (_, after, wider) = hub(&[outcome("HUB", 0, of(0), of(20)), outcome("HUB", 1, of(0), of(60))]);
        assert!((after - 20.0).abs() < 1e-9 && wider > 5.0, "{after} {wider}");
        // At k = 1 only every other captured query counts.
        let (attacks, _) = score(&[outcome("HUB", 0, of(0), of(40))], &[], &BASIS, 5);
        assert_eq!(row(&attacks, "HUB:1").after, Some(10.0));
    }

    #[test]
    fn intervals_cover_the_known_spread_and_ignore_order() {
        // 400 trials have ranks 0..=100 after the attack, in a fixed shuffle, so the mean's standard error is
        // known.
        let outcomes: Vec<Outcome> =
            (0..400).map(|q| outcome("CA+", q, rank(50.0), rank(f64::from((q as u32 * 37) % 101)))).collect();
        let first = |outcomes: &[Outcome], seed| score(outcomes, &[], &BASIS, seed).0.swap_remove(0);
        let found = first(&outcomes, 3);
        let (low, high) = found.after_interval.unwrap();
        let values: Vec<f64> = outcomes.iter().map(|o| o.after.rank.unwrap() * 100.0 / 101.0).collect();
        let mean = values.iter().sum::<f64>() / 400.0;
        let error = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 400.0 / 400.0).sqrt();
        assert!(((high - low) / (2.0 * 1.96 * error) - 1.0).abs() < 0.15, "{low}..{high}, error {error}");
        assert!(low < found.after.unwrap() && found.after.unwrap() < high);
        let mut reversed = outcomes.clone();
        reversed.reverse();
        let again = first(&reversed, 3).after_interval.unwrap();
        assert!((again.0 - low).abs() < 1e-9 && (again.1 - high).abs() < 1e-9);
        let other = first(&outcomes, 4).after_interval.unwrap();
        assert_ne!(other, (low, high), "another seed, other resamples");
    }

    #[test]
    fn resamples_are_shared_by_attacks() {
        // Two attacks with the same values are perfectly correlated over resamples.
        let mut outcomes = Vec::new();
        for q in 0..30 {
            outcomes.push(outcome("CA+", q, rank(50.0), rank(q as f64)));
            outcomes.push(outcome("QA+", q, rank(50.0), rank(q as f64)));
        }
        let replicates = replicates(&outcomes, &BASIS, 20, 1);
        assert!(replicates.iter().all(|r| r.means[0] == r.means[1] && r.means[0].is_some()));
        assert!(replicates.windows(2).any(|w| w[0] != w[1]));
    }

    #[test]
    fn nothing_gives_nothing() {
        let (attacks, scores) = score(&[], &[], &BASIS, 0);
        assert!(attacks.is_empty() && scores.ers.is_none() && scores.ars.is_none());
    }
}

//! Outcomes by term, and their weighted means.

use super::{Basis, Replicate, ars, ers, resistance};
use crate::facts::term::{Averaging, Term, terms_of};
use crate::facts::{FACTS, R1};
use crate::judge::division::{DIVISIONS, LEAST, divided};
use crate::judge::share::counts;
use crate::judge::smallest;
use crate::judge::stars::{self, Star};
use crate::judge::survivors::survivors;
use crate::record::{Metric, Outcome, Report, ScoreName, Skipped};
use audit_base::parallel;
use audit_base::random::Random;
use std::collections::BTreeSet;

/// The stream of the resamples of held-out queries and of shared perturbations, far from those of the
/// queries.
const HELD_OUT: u64 = 1 << 32;

pub(super) struct Column<'o> {
    pub(super) term: &'static Term,
    /// The factor from a value to the unit of [`crate::record::Attack`].
    unit: f64,
    /// The attacker's goal, not converted to the unit.
    goal: f64,
    /// Whether the values before the attack are meaningful.
    known_before: bool,
    /// (query, before, after).
    pub(super) trials: Vec<(usize, f64, f64)>,
    /// The outcomes of the trials, if each is measured on many queries.
    pub(super) outcomes: Vec<&'o Outcome>,
    /// For each trial, the perturbation that it shares with others.
    shared: Vec<Option<usize>>,
    /// Number of trials without a value.
    pub(super) left_out: usize,
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
pub(super) struct ResampleWeights {
    /// Of the queries that each trial is measured on, by place, if there are many.
    held_out: Vec<f64>,
    /// Of the shared perturbations.
    shared: Vec<f64>,
}

/// Weighted means of a term's trials, in its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    pub(super) before: Option<f64>,
    /// Mean after the attack.
    pub after: f64,
    /// Resistance per trial.
    pub per_trial: Option<f64>,
    /// Resistance from the ratio of means.
    pub table: Option<f64>,
    pub(super) nothing_to_attack: usize,
}

impl Column<'_> {
    /// The means with a weight per query; `None` if all weights are zero. `again` has further weights;
    /// without them each counts once.
    fn means(&self, weights: &[f64], again: Option<&ResampleWeights>) -> Option<Means> {
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
    fn weight_of_shared(&self, i: usize, again: Option<&ResampleWeights>) -> f64 {
        again.zip(self.shared[i]).map_or(1.0, |(again, which)| again.shared[which])
    }

    /// The worst mean after the attack of any class, and of any group.
    fn worst(&self, weights: &[f64], again: Option<&ResampleWeights>) -> [Option<f64>; DIVISIONS.len()] {
        self.parts.each_ref().map(|parts| {
            let trial = |i: usize| {
                let (query, _, after) = self.trials[i];
                (weights[query] * self.weight_of_shared(i, again), after * self.unit)
            };
            worst(parts, self.term.lower_is_better(), trial)
        })
    }

    /// Number of trials that count under attack, if each counts or doesn't and has a query and a perturbation
    /// of its own; otherwise `None`.
    pub(super) fn hits(&self) -> Option<usize> {
        let alone = self.term.counts_queries() && self.shared.iter().all(Option::is_none);
        let queries: BTreeSet<usize> = self.trials.iter().map(|&(query, ..)| query).collect();
        let all: Vec<bool> = self.trials.iter().map(|&(.., after)| counts(after)).collect::<Option<_>>()?;
        (alone && queries.len() == all.len()).then(|| all.into_iter().filter(|counts| *counts).count())
    }

    /// Trials behind the resistance: those that could get worse.
    pub(super) fn counted(&self) -> Option<usize> {
        self.term.resistance.map(|_| self.trials.iter().filter(|t| t.1 != self.goal).count())
    }
}

/// Outcomes grouped by term.
pub(super) struct Table<'o> {
    pub(super) columns: Vec<Column<'o>>,
    /// The queries of robust R@1, and whether each is still correct ([`survivors`]).
    survivors: Vec<(usize, bool)>,
    /// Those queries by class and by group.
    surviving_parts: [Parts; DIVISIONS.len()],
    /// The queries whose ε* is known, in the order of ε*.
    pub(super) stars: Vec<(usize, Star)>,
    /// The queries that a search for the smallest perturbations could make worse, with their norms,
    /// ascending.
    norms: Vec<(usize, f64)>,
    pub(super) queries: usize,
    metric: Metric,
    /// Number of the queries that trials are measured on, if there are many for one trial; otherwise 0.
    pub(super) held_out: usize,
    /// Number of perturbations that trials share; 0 if each has its own.
    shared: usize,
    /// Whether attacks aim at foreign targets.
    foreign: bool,
}

impl<'o> Table<'o> {
    pub(super) fn new(
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
        let norm = |(query, norm): (&str, f64)| Some((ids.binary_search(&query).ok()?, norm));
        let norms = smallest::norms(outcomes).map_or(Vec::new(), |(_, norms)| norms);
        let mut norms: Vec<(usize, f64)> =
            norms.into_iter().filter(|(_, norm)| *norm > 0.0).filter_map(norm).collect();
        norms.sort_by(|a, b| a.1.total_cmp(&b.1));
        let captured = outcomes.iter().filter_map(|o| o.after.captured.as_ref());
        let held_out = captured.map(|c| c.queries).max().unwrap_or(0);
        let shared = outcomes.iter().filter_map(|o| o.shared).max().map_or(0, |most| most + 1);
        Table {
            columns,
            survivors,
            surviving_parts,
            stars: stars.iter().flatten().filter_map(star).collect(),
            norms,
            queries: ids.len(),
            metric: basis.metric,
            held_out,
            shared,
            foreign: basis.foreign.is_some(),
        }
    }

    pub(super) fn columns_of<'t>(
        &'t self,
        terms: impl Iterator<Item = &'static Term> + Clone + 't,
    ) -> impl Iterator<Item = &'t Column<'o>> {
        self.columns.iter().filter(move |c| terms.clone().any(|t| t.name == c.term.name))
    }

    pub(super) fn replicate(&self, weights: &[f64], again: Option<&ResampleWeights>) -> Replicate {
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
            median: self.median(weights),
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

    /// The median of the smallest perturbations with a weight per query; `None` if all weights are zero.
    fn median(&self, weights: &[f64]) -> Option<f64> {
        let half = self.norms.iter().map(|&(query, _)| weights[query]).sum::<f64>() / 2.0;
        let (mut below, mut lower) = (0.0, None);
        for &(query, norm) in &self.norms {
            below += weights[query];
            // Of an even number of queries, the two in the middle count.
            if below >= half && lower.is_none() {
                lower = Some(norm);
            }
            if below > half {
                return lower.map(|lower| (lower + norm) / 2.0);
            }
        }
        None
    }

    /// Returns no resamples if nothing varies: a single query, and none held out.
    pub(super) fn resample(&self, resamples: usize, seed: u64) -> Vec<Replicate> {
        let resamples = if self.queries.max(self.held_out) < 2 { 0 } else { resamples };
        parallel::each(resamples, &|stream| {
            let random = |first: u64| Random::seeded(seed).stream(first + stream as u64);
            let weights = random(0).resample(self.queries);
            let mut random = random(HELD_OUT);
            let again = ResampleWeights {
                held_out: random.resample(self.held_out),
                shared: random.resample(self.shared),
            };
            self.replicate(&weights, Some(&again))
        })
    }

    /// The reason why `score` is missing.
    pub(super) fn missing(&self, score: ScoreName) -> String {
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

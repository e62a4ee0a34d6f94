//! Verification under attacks on pairs: error rates of the attacked pairs and wrong decisions by group, from
//! outcomes alone.

use super::mean::Mean;
use super::score::{RESAMPLES, interval};
use super::share::{ALPHA, widened, wilson_of, with_width};
use crate::facts::{DODGE, Facts, IMPERSONATE};
use crate::record::{
    Acceptance, AttackedPairs, Folds, Form, Outcome, PairGroup, Report, Verification, unless_few,
};
use audit_gallery::space::Gallery;
use audit_gallery::space::sharing::{disjoint, identities, inflation};
use audit_gallery::space::verification::{Accuracy, At, Distances, Pairs, folds};
use std::collections::{BTreeMap, BTreeSet};

/// A pair: the identities of both images, and whether it counts.
type Decided = ([usize; 2], bool);

/// The share of pairs that count.
fn share(pairs: &[Decided]) -> f64 {
    pairs.iter().filter(|(_, counts)| *counts).count() as f64 / pairs.len() as f64
}

/// What each pair adds to `weight` times the share of those that count, minus the mean. Nothing if the weight
/// is 0.
fn residuals(pairs: &[Decided], weight: f64) -> Vec<([usize; 2], f64)> {
    let (mean, scale) = (share(pairs), weight / pairs.len() as f64);
    let residual = |&(pair, counts): &Decided| (pair, scale * (f64::from(u8::from(counts)) - mean));
    pairs.iter().filter(|_| weight != 0.0).map(residual).collect()
}

/// The 95 % interval of a share of pairs, in per cent: Wilson's for as many independent pairs as vary as much
/// as these.
fn of_share(pairs: &[Decided]) -> Option<(f64, f64)> {
    let independent = pairs.len() as f64 / inflation(&residuals(pairs, 1.0), ALPHA);
    unless_few(pairs.len(), Some(wilson_of(share(pairs), independent)))
}

/// Intervals from resamples of the pairs as if no two shared an identity, widened by what they share.
struct Spread<'d> {
    distances: &'d Distances,
    resamples: Vec<Accuracy>,
}

impl Spread<'_> {
    fn new(distances: &Distances, at: At, seed: u64) -> Spread<'_> {
        Spread { distances, resamples: distances.resample(at, RESAMPLES, seed) }
    }

    /// The 95 % interval of `value`, if its variance is `inflation` times that of independent pairs.
    fn widened(&self, value: f64, inflation: f64, of: impl Fn(&Accuracy) -> f64) -> Option<(f64, f64)> {
        let [genuine, impostor] = self.distances.counts();
        let found = unless_few(genuine.min(impostor), interval(self.resamples.iter().map(of).collect()))?;
        let (low, high) = widened(value, found, inflation);
        Some((low.max(0.0), high))
    }

    /// The interval, in [0, 1], of the share of impostor pairs within the threshold of a false accept rate.
    fn ends(&self, far: f64) -> (f64, f64) {
        let [_, impostor] = self.distances.decisions(self.distances.threshold(far));
        let independent = impostor.len() as f64 / inflation(&residuals(&impostor, 1.0), ALPHA);
        let (low, high) = wilson_of(far, independent);
        (low / 100.0, high / 100.0)
    }

    /// The interval of a threshold that follows from a false accept rate: the distances at which the ends of
    /// the rate's interval are reached (Woodruff, Journal of the American Statistical Association 1952). If
    /// no pair may be accepted at the lower end, nothing bounds the threshold from below. Thresholds of
    /// resamples are never below the nearest pair, so that too few of them contain the true one.
    fn of_threshold(&self, far: f64) -> Option<(f64, f64)> {
        let [genuine, impostor] = self.distances.counts();
        let (low, high) = self.ends(far);
        // Just below the farthest of the pairs that the lower end accepts.
        let least = || self.distances.threshold(low - 1.0 / impostor as f64);
        let least = if self.distances.resolves(low) { least() } else { 0.0 };
        unless_few(genuine.min(impostor), Some((least, self.distances.threshold(high))))
    }

    /// The interval of TAR at the threshold of a false accept rate. If nothing bounds the threshold from
    /// below, nothing bounds TAR.
    fn of_tar(&self, tar: f64, far: f64) -> Option<(f64, f64)> {
        let [genuine, _] = self.distances.identities();
        let bounded = self.distances.resolves(self.ends(far).0);
        let found = self.of_rate(tar, far, disjoint(genuine), |a| a.tar);
        found.map(|(low, high)| (if bounded { low } else { 0.0 }, high))
    }

    /// The interval, in per cent, of an error rate in [0, 1] at the threshold of a false accept rate, TAR or
    /// EER. `n` is the number of disjoint pairs behind it.
    fn of_rate(&self, rate: f64, far: f64, n: usize, of: fn(&Accuracy) -> f64) -> Option<(f64, f64)> {
        let found = self.widened(100.0 * rate, self.inflation_at(far), |a| 100.0 * of(a));
        with_width(rate, n, found.map(|(low, high)| (low, high.min(100.0))))
    }

    /// Near the threshold of a false accept rate, an error in FAR moves TAR and EER as if TAR was wrong by
    /// FAR's error times the slope of the ROC curve, with the opposite sign. The slope is that over the 95 %
    /// interval of FAR.
    fn inflation_at(&self, far: f64) -> f64 {
        let (low, high) = wilson_of(far, self.distances.counts()[1] as f64);
        let ends = [low, high].map(|end| self.distances.accuracy(At::Far(end / 100.0)));
        let [Some(low), Some(high)] = ends else { return 1.0 };
        let [genuine, impostor] = self.distances.decisions(self.distances.threshold(far));
        let genuine = residuals(&genuine, high.far - low.far);
        inflation(&[genuine, residuals(&impostor, low.tar - high.tar)].concat(), ALPHA)
    }

    /// The interval of an EER in [0, 1]. The true EER lies between both true error rates at any distance. So
    /// if there are no errors, or only errors, it is known at least as well as the rate of which there are
    /// fewer disjoint pairs.
    fn of_eer(&self, eer: f64) -> Option<(f64, f64)> {
        let [genuine, impostor] = self.distances.identities();
        self.of_rate(eer, eer, disjoint(genuine).min(disjoint(impostor)), |a| a.eer)
    }
}

/// Verification of a gallery's pairs without an attack, at the false accept rate of `acceptance` or at
/// `threshold`. `group_of` has the groups of the pairs that will be attacked. `None` if one kind of pair is
/// missing.
pub fn clean(
    gallery: &Gallery,
    pairs: &Pairs,
    acceptance: Acceptance,
    threshold: f64,
    group_of: BTreeMap<String, BTreeMap<String, String>>,
    seed: u64,
) -> Option<Verification> {
    let at = match acceptance {
        Acceptance::Far(far) => At::Far(far),
        _ => At::Threshold(threshold),
    };
    let distances = Distances::of(gallery, pairs);
    let found = distances.accuracy(at)?;
    let spread = Spread::new(&distances, at, seed);
    let [genuine, impostor] = distances.counts();
    // A false accept rate sets the threshold anew in each resample.
    let (far_interval, tar_interval) = match at {
        At::Threshold(threshold) => {
            let [genuine, impostor] = distances.decisions(threshold).map(|pairs| of_share(&pairs));
            (impostor, genuine)
        }
        At::Far(far) => (None, spread.of_tar(found.tar, far)),
    };
    Some(Verification {
        threshold,
        threshold_interval: match at {
            At::Far(far) => spread.of_threshold(far),
            At::Threshold(_) => None,
        },
        listed: pairs.listed,
        genuine,
        impostor,
        identities: identities(&distances.identities().concat()),
        far: 100.0 * found.far,
        far_interval,
        tar: 100.0 * found.tar,
        tar_interval,
        eer: 100.0 * found.eer,
        eer_interval: spread.of_eer(found.eer),
        folds: of_folds(folds(gallery, pairs), in_several_folds(gallery, pairs)),
        attacked: Vec::new(),
        groups: Vec::new(),
        group_of,
    })
}

/// Number of identities that have pairs in more than one fold.
fn in_several_folds(gallery: &Gallery, pairs: &Pairs) -> usize {
    let mut folds_of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for pair in &pairs.all {
        for image in [pair.probe, pair.reference] {
            folds_of.entry(gallery.labels[image]).or_default().extend(pair.fold);
        }
    }
    folds_of.values().filter(|folds| folds.len() > 1).count()
}

/// Mean and standard error of the accuracies of folds, given as shares; `None` if there are none.
fn of_folds(accuracy: Vec<f64>, shared: usize) -> Option<Folds> {
    let accuracy: Vec<f64> = accuracy.into_iter().map(|share| 100.0 * share).collect();
    let Mean { value: mean, error: standard_error } = Mean::of(&accuracy)?;
    Some(Folds { accuracy, mean, standard_error, shared })
}

/// Verification of a report under attacks, from its verification without an attack and its outcomes.
pub fn attacked(report: &Report) -> Option<Verification> {
    let clean = report.verification.as_ref()?;
    let trials = trials(report);
    Some(Verification {
        attacked: attacked_pairs(&trials, report.suite.threshold, report.seed),
        groups: groups(&trials, &clean.group_of),
        ..clean.clone()
    })
}

/// The 95 % interval, in per cent, of the share of wrong decisions under an attack on pairs. `None` for few
/// pairs, and for other attacks.
pub fn of_attack(report: &Report, code: &str) -> Option<(f64, f64)> {
    let trials = trials(report);
    let mine = trials.iter().filter(|trial| trial.objective.code == code);
    let decided: Vec<Decided> =
        mine.filter_map(|trial| Some((trial.identities, trial.wrong()?[1]))).collect();
    of_share(&decided)
}

/// The attacked pairs of an attack, by query: the target, and the identities of both images. Empty for an
/// attack that is not on pairs.
pub(super) fn pairs_of<'r>(report: &'r Report, code: &str) -> BTreeMap<&'r str, (&'r str, [usize; 2])> {
    let on_pairs = Facts::find(code).is_ok_and(|of| of.pairs.is_some());
    let all = if on_pairs { trials(report) } else { Vec::new() };
    let mine = all.into_iter().filter(|trial| trial.objective.code == code);
    let pair = |trial: PairTrial<'r>| {
        let target = trial.outcome.targets.first()?;
        Some((trial.outcome.query.as_str(), (target.as_str(), trial.identities)))
    };
    mine.filter_map(pair).collect()
}

/// An attack on a pair.
struct PairTrial<'r> {
    objective: &'static Facts,
    outcome: &'r Outcome,
    /// Of the query and of its target.
    identities: [usize; 2],
}

impl PairTrial<'_> {
    /// Whether the decision is wrong without the attack, and under it.
    fn wrong(&self) -> Option<[bool; 2]> {
        let (before, after) = (self.objective.decisive().read)(self.outcome, Form::Corrected)?;
        Some([before? > 0.5, after > 0.5])
    }
}

/// The trials of attacks on pairs. Identities are the classes of a report, or the images if it has none.
fn trials<'r>(report: &'r Report) -> Vec<PairTrial<'r>> {
    let of_pair = |outcome: &'r Outcome| {
        let objective = Facts::find(&outcome.attack).ok().filter(|objective| objective.pairs.is_some())?;
        let identity = |image: &'r String| report.labels.get(image).unwrap_or(image).as_str();
        Some((objective, outcome, [&outcome.query, outcome.targets.first()?].map(identity)))
    };
    let found: Vec<(&'static Facts, &Outcome, [&str; 2])> =
        report.outcomes.iter().filter_map(of_pair).collect();
    let names: BTreeSet<&str> = found.iter().flat_map(|(_, _, names)| *names).collect();
    let numbers: BTreeMap<&str, usize> = names.into_iter().zip(0..).collect();
    let numbered = |(objective, outcome, names): (&'static Facts, _, [&str; 2])| PairTrial {
        objective,
        outcome,
        identities: names.map(|name| numbers[name]),
    };
    found.into_iter().map(numbered).collect()
}

/// Error rates of the attacked pairs, if both kinds were attacked: without an attack, under each of both
/// attacks, and under both.
fn attacked_pairs(trials: &[PairTrial<'_>], acceptance: Option<Acceptance>, seed: u64) -> Vec<AttackedPairs> {
    let distances = |objective: &Facts, after: bool| -> Vec<(f64, [usize; 2])> {
        let mine = trials.iter().filter(|trial| trial.objective.code == objective.code);
        let measured = |trial: &PairTrial<'_>| {
            let PairTrial { outcome, identities, .. } = trial;
            let measures = if after { &outcome.after } else { &outcome.before };
            Some((measures.distance?, *identities))
        };
        mine.filter_map(measured).collect()
    };
    let row = |(dodged, impersonated): (bool, bool)| {
        let pairs = Distances::new(distances(&DODGE, dodged), distances(&IMPERSONATE, impersonated));
        let far = match acceptance {
            Some(Acceptance::Far(far)) => Some(far),
            _ => None,
        };
        let at = At::Far(far.unwrap_or(0.5));
        let found = pairs.accuracy(at)?;
        let [genuine, impostor] = pairs.counts();
        let attacks = [(dodged, &DODGE), (impersonated, &IMPERSONATE)];
        Some(AttackedPairs {
            attacks: attacks.iter().filter(|(made, _)| *made).map(|(_, o)| o.code.to_string()).collect(),
            genuine,
            impostor,
            eer: 100.0 * found.eer,
            eer_interval: Spread::new(&pairs, at, seed).of_eer(found.eer),
            tar: far.filter(|far| pairs.resolves(*far)).map(|_| 100.0 * found.tar),
        })
    };
    [(false, false), (true, false), (false, true), (true, true)].into_iter().filter_map(row).collect()
}

/// The identities of a pair, and whether it is decided wrongly before and after an attack.
type Wrong = ([usize; 2], [bool; 2]);

/// Wrong decisions by group and attack; `group_of` has the group by attack and query.
fn groups(trials: &[PairTrial<'_>], group_of: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<PairGroup> {
    let mut found: BTreeMap<(&str, &str), Vec<Wrong>> = BTreeMap::new();
    for trial in trials {
        let code = trial.objective.code;
        let group = group_of.get(code).and_then(|of| of.get(&trial.outcome.query));
        let (Some(group), Some(wrong)) = (group, trial.wrong()) else { continue };
        found.entry((group, code)).or_default().push((trial.identities, wrong));
    }
    let row = |((group, attack), pairs): ((&str, &str), Vec<Wrong>)| {
        let [before, after] =
            [0, 1].map(|at| pairs.iter().map(|(pair, wrong)| (*pair, wrong[at])).collect::<Vec<Decided>>());
        PairGroup {
            group: group.into(),
            attack: attack.into(),
            pairs: pairs.len(),
            before: 100.0 * share(&before),
            after: 100.0 * share(&after),
            interval: of_share(&after),
        }
    };
    found.into_iter().map(row).collect()
}

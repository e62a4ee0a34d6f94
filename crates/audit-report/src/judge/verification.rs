//! Verification under attacks on pairs: error rates of the attacked pairs and wrong decisions by group, from
//! outcomes alone.

use super::mean::Mean;
use super::score::{RESAMPLES, interval};
use super::share::{wilson, with_width};
use crate::facts::{DODGE, Facts, IMPERSONATE};
use crate::record::{
    Acceptance, AttackedPairs, Folds, Form, Outcome, PairGroup, Report, Verification, unless_few,
};
use audit_gallery::space::Gallery;
use audit_gallery::space::verification::{Accuracy, At, Distances, Pairs, folds};
use std::collections::BTreeMap;

/// The 95 % interval of a number over resamples of these numbers of genuine and impostor pairs.
fn spread(
    [genuine, impostor]: [usize; 2],
    resamples: &[Accuracy],
    of: impl Fn(&Accuracy) -> f64,
) -> Option<(f64, f64)> {
    unless_few(genuine.min(impostor), interval(resamples.iter().map(of).collect()))
}

/// The 95 % interval of an EER in [0, 1]. The true EER lies between both true error rates at any distance. So
/// if there are no errors, or only errors, it is known at least as well as the rate of which there are fewer
/// pairs.
fn of_eer(eer: f64, [genuine, impostor]: [usize; 2], resamples: &[Accuracy]) -> Option<(f64, f64)> {
    let resampled = spread([genuine, impostor], resamples, |a| 100.0 * a.eer);
    with_width(eer, genuine.min(impostor), resampled)
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
    let resamples = distances.resample(at, RESAMPLES, seed);
    let counts = distances.counts();
    let [genuine, impostor] = counts;
    // At a stated threshold these are shares of independent decisions; a false accept rate sets the threshold
    // anew in each resample.
    let stated = |share: f64, n: usize| {
        let hits = (share * n as f64).round() as usize;
        unless_few(n, Some(wilson(hits, n)))
    };
    let (far_interval, tar_interval) = match at {
        At::Threshold(_) => (stated(found.far, impostor), stated(found.tar, genuine)),
        At::Far(_) => (None, with_width(found.tar, genuine, spread(counts, &resamples, |a| 100.0 * a.tar))),
    };
    Some(Verification {
        threshold,
        threshold_interval: matches!(at, At::Far(_))
            .then(|| spread(counts, &resamples, |a| a.threshold))
            .flatten(),
        listed: pairs.listed,
        genuine,
        impostor,
        far: 100.0 * found.far,
        far_interval,
        tar: 100.0 * found.tar,
        tar_interval,
        eer: 100.0 * found.eer,
        eer_interval: of_eer(found.eer, counts, &resamples),
        folds: of_folds(folds(gallery, pairs)),
        attacked: Vec::new(),
        groups: Vec::new(),
        group_of,
    })
}

/// Mean and standard error of the accuracies of folds, given as shares; `None` if there are none.
fn of_folds(accuracy: Vec<f64>) -> Option<Folds> {
    let accuracy: Vec<f64> = accuracy.into_iter().map(|share| 100.0 * share).collect();
    let Mean { value: mean, error: standard_error } = Mean::of(&accuracy)?;
    Some(Folds { accuracy, mean, standard_error })
}

/// Verification of a report under attacks, from its verification without an attack and its outcomes.
pub fn attacked(report: &Report) -> Option<Verification> {
    let clean = report.verification.as_ref()?;
    Some(Verification {
        attacked: attacked_pairs(&report.outcomes, report.suite.threshold, report.seed),
        groups: groups(&report.outcomes, &clean.group_of),
        ..clean.clone()
    })
}

/// Error rates of the attacked pairs, if both kinds were attacked: without an attack, under each of both
/// attacks, and under both.
fn attacked_pairs(outcomes: &[Outcome], acceptance: Option<Acceptance>, seed: u64) -> Vec<AttackedPairs> {
    let distances = |objective: &Facts, after: bool| -> Vec<f64> {
        let mine = outcomes.iter().filter(|o| o.attack == objective.code);
        mine.filter_map(|o| if after { o.after.distance } else { o.before.distance }).collect()
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
        let resamples = pairs.resample(at, RESAMPLES, seed);
        Some(AttackedPairs {
            attacks: attacks.iter().filter(|(made, _)| *made).map(|(_, o)| o.code.to_string()).collect(),
            genuine,
            impostor,
            eer: 100.0 * found.eer,
            eer_interval: of_eer(found.eer, [genuine, impostor], &resamples),
            tar: far.filter(|far| pairs.resolves(*far)).map(|_| 100.0 * found.tar),
        })
    };
    [(false, false), (true, false), (false, true), (true, true)].into_iter().filter_map(row).collect()
}

/// Wrong decisions by group and attack; `group_of` has the group by attack and query.
fn groups(outcomes: &[Outcome], group_of: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<PairGroup> {
    let mut found: BTreeMap<(&str, &str), Vec<[bool; 2]>> = BTreeMap::new();
    for o in outcomes {
        let group = group_of.get(&o.attack).and_then(|of| of.get(&o.query));
        let (Some(group), Ok(objective)) = (group, Facts::find(&o.attack)) else { continue };
        let Some((Some(before), after)) = (objective.decisive().read)(o, Form::Corrected) else {
            continue;
        };
        found.entry((group, objective.code)).or_default().push([before > 0.5, after > 0.5]);
    }
    let row = |((group, attack), pairs): ((&str, &str), Vec<[bool; 2]>)| {
        let count = |at: usize| pairs.iter().filter(|wrong| wrong[at]).count();
        let share = |at: usize| 100.0 * count(at) as f64 / pairs.len() as f64;
        PairGroup {
            group: group.into(),
            attack: attack.into(),
            pairs: pairs.len(),
            before: share(0),
            after: share(1),
            interval: unless_few(pairs.len(), Some(wilson(count(1), pairs.len()))),
        }
    };
    found.into_iter().map(row).collect()
}

//! Verification under attacks on pairs: error rates of the attacked pairs and wrong decisions by group, from
//! outcomes alone.

use super::mean::Mean;
use super::score::{RESAMPLES, interval};
use super::share::wilson;
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

/// The 95 % intervals of TAR and of EER, in per cent. If all resamples agree, as they do if every pair is
/// decided correctly, the bootstrap has no width: then Wilson's interval of the share takes its place, for EER
/// the mean of those of both kinds of pairs.
fn intervals(found: &Accuracy, resamples: &[Accuracy], counts: [usize; 2]) -> [Option<(f64, f64)>; 2] {
    let share = |share: f64, n: usize| wilson((share * n as f64).round() as usize, n);
    let [genuine, impostor] = counts.map(|n| share(found.eer, n));
    let eer = (0.5 * (genuine.0 + impostor.0), 0.5 * (genuine.1 + impostor.1));
    let of = |number: fn(&Accuracy) -> f64, alike: (f64, f64)| {
        let resampled = spread(counts, resamples, |a| 100.0 * number(a));
        resampled.map(|(low, high)| if low == high { alike } else { (low, high) })
    };
    [of(|a| a.tar, share(found.tar, counts[0])), of(|a| a.eer, eer)]
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
    let [tar_interval, eer_interval] = intervals(&found, &resamples, counts);
    Some(Verification {
        threshold,
        threshold_interval: matches!(at, At::Far(_))
            .then(|| spread(counts, &resamples, |a| a.threshold))
            .flatten(),
        listed: pairs.listed,
        genuine,
        impostor,
        far: 100.0 * found.far,
        tar: 100.0 * found.tar,
        tar_interval,
        eer: 100.0 * found.eer,
        eer_interval,
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
        let [_, eer_interval] = intervals(&found, &resamples, [genuine, impostor]);
        Some(AttackedPairs {
            attacks: attacks.iter().filter(|(made, _)| *made).map(|(_, o)| o.code.to_string()).collect(),
            genuine,
            impostor,
            eer: 100.0 * found.eer,
            eer_interval,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 38 genuine and 262 impostor pairs, all decided correctly, are no proof that no pair is decided wrongly.
    #[test]
    fn pairs_that_all_agree_have_intervals_with_a_width() {
        let pairs = Distances::new(vec![0.1; 38], vec![0.9; 262]);
        let at = At::Threshold(0.5);
        let found = pairs.accuracy(at).unwrap();
        assert_eq!((found.tar, found.eer), (1.0, 0.0));
        let of = |counts| intervals(&found, &pairs.resample(at, RESAMPLES, 0), counts);
        let [tar, eer] = of(pairs.counts()).map(Option::unwrap);
        assert!((tar.0 - 90.8).abs() < 0.05 && tar.1 == 100.0, "{tar:?}");
        assert!(eer.0 == 0.0 && (eer.1 - 5.3).abs() < 0.05, "{eer:?}");
        assert_eq!(of([9, 262]), [None, None], "below ten pairs there is none");
    }
}

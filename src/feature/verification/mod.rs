//! Verification: whether two images show one identity, decided by a threshold of their distance. It is a part
//! of an audit: the steps call this module, which uses none of them.

use crate::data::{Dataset, ListedPair};
use crate::judge::verification;
use crate::progress::{Mode, Phase};
use crate::record::{Acceptance, Report, Verification};
use crate::request::{Sample, StrongSample};
use crate::space::Gallery;
use crate::space::verification::{FAR, Pair};
use crate::threat::{self, AttackContext, Objective, Trial};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The pairs that the data set lists; `None` if it has no list.
pub fn listed(dataset: &Dataset, gallery: &Gallery) -> Option<Vec<Pair>> {
    let pair = |p: &ListedPair| {
        // Images that can't be read have left the gallery, and their pairs with them.
        let (probe, reference) = (gallery.find(&p.probe)?, gallery.find(&p.reference)?);
        Some(Pair { probe, reference, same: p.same, group: p.group.clone(), fold: p.fold })
    };
    (!dataset.pairs.is_empty()).then(|| dataset.pairs.iter().filter_map(pair).collect())
}

/// Whether all `attacks` are on pairs.
pub fn of_pairs<'o>(mut attacks: impl Iterator<Item = &'o Objective>) -> bool {
    attacks.all(|objective| objective.pairs.is_some())
}

/// The queries of the strong search for robust R@1. A list of pairs doesn't identify everybody, so that it
/// has robust R@1 only if that is `requested`.
pub fn strong_sample<'o>(
    requested: Option<StrongSample>,
    listed: bool,
    attacks: impl Iterator<Item = &'o Objective>,
) -> Option<StrongSample> {
    requested.or_else(|| (listed && of_pairs(attacks)).then_some(StrongSample::Off))
}

/// The probes that an attack on listed pairs perturbs, `most` at the most: those of genuine pairs, or of
/// impostor pairs. `None` for other attacks, and where no list gives the pairs.
pub fn probes(
    context: &AttackContext,
    objective: &Objective,
    sample: Sample,
    most: Option<usize>,
    seed: u64,
) -> Result<Option<Vec<usize>>> {
    let Some(same) = objective.pairs.filter(|_| context.pairs.listed) else { return Ok(None) };
    if sample == Sample::Correct {
        return Err(Error::usage(format!(
            "--sample correct is about queries with a correct R@1, but {} attacks pairs: leave it out",
            objective.code
        )));
    }
    Ok(Some(threat::sample_of(&context.gallery, &context.pairs.probes(same), most, seed)))
}

/// How the probes of listed pairs were chosen, `most` for each attack, if they are not all.
pub fn sampling(context: &AttackContext, most: usize, seed: u64) -> Option<String> {
    let more = [true, false].into_iter().any(|same| context.pairs.probes(same).len() > most);
    more.then(|| format!("{most} probes for each attack at most, seed {seed}"))
}

/// Source of the threshold: the stated one, or the usual false accept rate. Refuses a threshold that no
/// attack needs.
pub fn threshold<'o>(
    stated: Option<Acceptance>,
    attacks: impl IntoIterator<Item = &'o Objective>,
) -> Result<Option<Acceptance>> {
    let about = attacks.into_iter().any(|objective| objective.measure.decides);
    match stated {
        Some(stated) if !about => Err(Error::usage(format!(
            "threshold (--threshold) {stated}: no attack of the suite is about a threshold. Leave it out, or take --suite faces or \
             --suite threshold"
        ))),
        stated => Ok(about.then(|| stated.unwrap_or(Acceptance::Far(FAR)))),
    }
}

/// How often the threshold of a suite is wrong without an attack, and the groups of the pairs that `trials`
/// attack; `None` if no attack is about a threshold.
pub fn clean(
    context: &AttackContext,
    acceptance: Option<Acceptance>,
    trials: &[Trial],
    seed: u64,
    progress: Mode,
) -> Option<Verification> {
    let (AttackContext { gallery, pairs, threshold, .. }, acceptance) = (context, acceptance?);
    let phase = Phase::new("pairs", 0, progress);
    let groups = groups(context, trials);
    let found = verification::clean(gallery, pairs, acceptance, *threshold, groups, seed)?;
    phase.finish();
    Some(found)
}

/// The groups of the listed pairs that `trials` attack: by attack, then by query.
fn groups(context: &AttackContext, trials: &[Trial]) -> BTreeMap<String, BTreeMap<String, String>> {
    let AttackContext { gallery, pairs, .. } = context;
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for trial in trials.iter().filter(|_| pairs.listed) {
        let Some(same) = trial.objective.pairs else { continue };
        let pair = pairs.of(trial.query, same).find(|p| trial.targets == [p.reference]);
        let Some(group) = pair.and_then(|p| p.group.clone()) else { continue };
        let groups = found.entry(trial.objective.code.into()).or_default();
        groups.insert(gallery.ids[trial.query].clone(), group);
    }
    found
}

/// Verification without an attack of all `parts` of a run: that of any part, with the groups of all.
pub fn merged<'r>(parts: impl Iterator<Item = &'r Report>) -> Option<Verification> {
    let parts: Vec<&Verification> = parts.filter_map(|part| part.verification.as_ref()).collect();
    let mut group_of: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (attack, groups) in parts.iter().flat_map(|part| &part.group_of) {
        group_of.entry(attack.clone()).or_default().extend(groups.clone());
    }
    parts.first().map(|&first| Verification { group_of, ..first.clone() })
}

//! The threshold, and how often it is wrong without an attack.

use crate::judge::verification;
use crate::progress::{Mode, Phase};
use crate::record::{Acceptance, Verification};
use crate::space::verification::{Distances, FAR, folds};
use crate::threat::{AttackContext, Objective, Trial};
use crate::{Error, Result};

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
    let distances = Distances::of(gallery, pairs);
    let mut found = verification::clean(&distances, pairs.listed, acceptance, *threshold, seed)?;
    found.folds = verification::of_folds(folds(gallery, pairs));
    phase.finish();
    for trial in trials.iter().filter(|_| pairs.listed) {
        let Some(same) = trial.objective.pairs else { continue };
        let pair = pairs.of(trial.query, same).find(|p| trial.targets == [p.reference]);
        let Some(group) = pair.and_then(|p| p.group.clone()) else { continue };
        let groups = found.group_of.entry(trial.objective.code.into()).or_default();
        groups.insert(gallery.ids[trial.query].clone(), group);
    }
    Some(found)
}

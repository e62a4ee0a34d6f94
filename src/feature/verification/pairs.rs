//! The pairs of a list, and the attacks on them.

use crate::data::{Dataset, ListedPair};
use crate::request::{Sample, StrongSample};
use crate::space::Gallery;
use crate::space::verification::Pair;
use crate::threat::{self, AttackContext, Objective};
use crate::{Error, Result};

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
/// has robust R@1 only if it was `asked` for.
pub fn strong_sample<'o>(
    asked: Option<StrongSample>,
    listed: bool,
    attacks: impl Iterator<Item = &'o Objective>,
) -> Option<StrongSample> {
    asked.or_else(|| (listed && of_pairs(attacks)).then_some(StrongSample::Off))
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

//! A part's trials.

use crate::files::hex;
use crate::record::{Part, Partition, ScoreName, Skipped};
use crate::space::Gallery;
use crate::threat::{Objective, Trial};
use crate::{Error, Result};
use sha2::{Digest, Sha256};

/// A part's share of a run: its place in the run, its trials, and those that can't be run. Replayed trials
/// are those of all parts. `scores` are those of the suite.
pub fn share(
    partition: Partition,
    gallery: &Gallery,
    attempts: &[(&'static Objective, usize)],
    (trials, skipped): (&[Trial], &[Skipped]),
    scores: &[ScoreName],
) -> Result<(Part, Vec<Trial>, Vec<Skipped>)> {
    let takes = |id: &str| partition.takes(id);
    let own = trials.iter().filter(|t| takes(&gallery.ids[t.query]));
    let trials: Vec<Trial> = own.cloned().collect();
    let skipped: Vec<Skipped> = skipped.iter().filter(|s| takes(&s.query)).cloned().collect();
    let (places, skipped_places) = places(attempts, gallery, &trials, &skipped, takes)?;
    let part = Part {
        partition,
        trials: attempts.len(),
        places,
        skipped_places,
        trials_sha256: attempts_hash(
            attempts.iter().map(|(of, query)| (of.code, gallery.ids[*query].as_str())),
        ),
        scores: scores.to_vec(),
    };
    Ok((part, trials, skipped))
}

/// The places of a part's trials among all `attempts`, and of those that can't be run. All three are in
/// the same order.
fn places(
    attempts: &[(&'static Objective, usize)],
    gallery: &Gallery,
    trials: &[Trial],
    skipped: &[Skipped],
    takes: impl Fn(&str) -> bool,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let (mut places, mut skipped_places) = (Vec::new(), Vec::new());
    for (place, &(objective, query)) in attempts.iter().enumerate() {
        let id = &gallery.ids[query];
        let is_next = |t: &Trial| t.query == query && t.objective.code == objective.code;
        match trials.get(places.len()).is_some_and(is_next) {
            _ if !takes(id) => {}
            true => places.push(place),
            false => skipped_places.push(place),
        }
    }
    match (places.len(), skipped_places.len()) == (trials.len(), skipped.len()) {
        true => Ok((places, skipped_places)),
        false => Err(Error::internal("a part's trials are not those that the run asks for")),
    }
}

/// SHA-256 over the trials of a run: the attack's code and the query's id.
pub fn attempts_hash<'a>(attempts: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    attempts.for_each(|(code, query)| hash.update(format!("{code}\0{query}\0")));
    hex(&hash.finalize())
}

//! The key `corruptions` of a suite: what it lists, and what it can't stand beside.

use crate::corruption::Corruption;
use crate::threat::Objective;
use crate::{Error, Result};

/// The corruptions that a suite of `attacks` lists by `names`, each with its place in the file. Errors (exit
/// code 2): an unknown name, one that is listed twice, a suite that attacks no query.
pub fn listed<'n>(
    names: impl Iterator<Item = (String, &'n str)>,
    attacks: &[&Objective],
) -> Result<Vec<&'static Corruption>> {
    let mut found: Vec<&'static Corruption> = Vec::new();
    for (at, name) in names {
        let corruption = Corruption::find(name).map_err(|e| e.context(&at))?;
        if found.iter().any(|c| c.name == corruption.name) {
            return Err(Error::usage(format!("{at}: {} is listed twice", corruption.name)));
        }
        if attacks.iter().all(|objective| objective.measure.moves_candidate) {
            return Err(Error::usage(format!(
                "{at}: queries of attacks are corrupted, and those of this suite change items of the gallery: add an attack on queries, such \
                 as ES"
            )));
        }
        found.push(corruption);
    }
    Ok(found)
}

/// Why the suite of this name isn't for changed files; `None` if it has no corruptions.
pub fn beside_files(suite: &str, corruptions: &[&Corruption]) -> Option<String> {
    (!corruptions.is_empty()).then(|| {
        format!("suite {suite} corrupts the model's input. Leave --space out, or take another suite")
    })
}

/// Why a suite isn't for images without classes; `None` if it has no corruptions.
pub fn without_classes(corruptions: &[&Corruption]) -> Option<&'static str> {
    (!corruptions.is_empty()).then_some("corruptions are measured by them: take another suite")
}

/// Refuses the suite of this name for sweeps and comparisons if it has corruptions (exit code 2).
pub fn refuse_several_models(suite: &str, corruptions: &[&Corruption]) -> Result<()> {
    match corruptions.is_empty() {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "suite {suite} has natural corruptions, which only an audit of one model measures: run an audit, or take a suite without \
             the key `corruptions`"
        ))),
    }
}

//! Choice of the trials of an audit: random draws, or a trial file.

use super::draw::Draw;
use super::objective::OBJECTIVES;
use super::trial::{Drawn, Objective, Query, Targets, Trial};
use crate::trial::AttackContext;
use audit_base::{Error, Result};
use audit_gallery::space::{Gallery, Metric};
use audit_report::record::{Form, Protocol, Skipped, TrialList, TrialRow};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// What to do if a trial names an image that the data lack.
const ELSEWHERE: &str = "Are these trials of another data set? Give the --data of their audit, and its \
                         --targets if it had any";

/// The result of [`select`].
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Trials to run.
    pub trials: Vec<Trial>,
    /// Queries that cannot be attacked, with the reason.
    pub skipped: Vec<Skipped>,
}

impl Selection {
    /// Reconsiders the queries that were skipped when the trials were first selected. If the target follows
    /// from the model, this model may have one, so the trial is added. If targets were drawn, the query stays
    /// skipped. Errors (exit code 2): a query or an attack is unknown.
    pub fn again(&mut self, skipped: Vec<Skipped>, form: Form, context: &AttackContext) -> Result<()> {
        let gallery = &context.gallery;
        for was in skipped {
            let objective = Objective::find(&was.attack)?;
            let query = gallery.find(&was.query).ok_or_else(|| {
                let Skipped { attack, query, .. } = &was;
                Error::usage(format!("{attack}, skipped: no image is called `{query}`. {ELSEWHERE}"))
            })?;
            if objective.drawn != Drawn::No {
                self.skipped.push(was);
                continue;
            }
            let now = select(context, objective, 1, form, 0, &[query])?;
            self.trials.extend(now.trials);
            self.skipped.extend(now.skipped);
        }
        Ok(())
    }
}

/// The trials of one attack on `queries` (gallery indices) with `count` targets each, in the order of the
/// queries. Random choices depend only on (seed, attack, query id) and the gallery.
pub fn select(
    context: &AttackContext,
    objective: &'static Objective,
    count: usize,
    form: Form,
    seed: u64,
    queries: &[usize],
) -> Result<Selection> {
    let gallery = &context.gallery;
    let choose = |&index: &usize| {
        let query = Query { context, index, count, form };
        (objective.targets)(&query, &mut Draw::new(seed, objective.code, &gallery.ids[index], 0))
    };
    let chosen: Vec<Result<Targets>> = queries.par_iter().map(choose).collect();
    let mut selection = Selection::default();
    for (&query, targets) in queries.iter().zip(chosen) {
        match targets? {
            Targets::Chosen(targets) => selection.trials.push(Trial { objective, query, targets }),
            Targets::Skip(why) => selection.skipped.push(Skipped {
                attack: objective.code.into(),
                query: gallery.ids[query].clone(),
                why: why.into(),
            }),
        }
    }
    Ok(selection)
}

/// A trial file. It holds every random choice of an audit and identifies images by id. Attacks whose target
/// follows from the model list only the query.
#[derive(Clone, Debug)]
pub struct TrialFile {
    /// The protocol that the trials were made for, as the file names it.
    pub protocol: Protocol,
    /// The form of the definitions that the trials were made for.
    pub form: Form,
    /// The metric that the trials were made under: "the nearest 1 %" depends on it.
    pub metric: Metric,
    /// The trials, grouped by attack.
    pub selection: Selection,
}

/// Reads a trial file (JSON) for a gallery. `name` is the file's name in errors. Targets that follow from the
/// model are chosen here, in the file's form. Errors (exit code 2): the file is malformed, or names an
/// unknown attack or image.
pub fn read_trials(name: &str, json: &str, context: &AttackContext) -> Result<TrialFile> {
    let gallery = &context.gallery;
    let raw: TrialList =
        serde_json::from_str(json).map_err(|e| Error::usage(format!("{name} is not a trial file: {e}")))?;
    let mut lists = Vec::new();
    for (code, rows) in &raw.attacks {
        let objective = Objective::find(code).map_err(|e| e.context(name))?;
        lists.push((OBJECTIVES.iter().position(|o| o.code == objective.code), objective, rows));
    }
    lists.sort_by_key(|list| list.0);
    let mut selection = Selection::default();
    for (_, objective, rows) in lists {
        let find = |row: usize, id: &str| {
            gallery.find(id).ok_or_else(|| {
                Error::usage(format!(
                    "{name}: {}, row {row}: no image is called `{id}`. {ELSEWHERE}",
                    objective.code
                ))
            })
        };
        let mut following = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let at = i + 1;
            let query = find(at, &row.query)?;
            match (&row.targets, objective.drawn != Drawn::No) {
                (Some(ids), true) if objective.takes_targets(ids.len()) => {
                    let targets: Vec<usize> = ids.iter().map(|id| find(at, id)).collect::<Result<_>>()?;
                    refuse_targets(gallery, objective, &targets).map_err(|why| {
                        Error::usage(format!("{name}: {}, row {at}: {why}", objective.code))
                    })?;
                    selection.trials.push(Trial { objective, query, targets });
                }
                (None, false) => following.push(query),
                (_, true) => {
                    return Err(Error::usage(format!(
                        "{name}: {}, row {at}, query `{}`: `targets` must list {}",
                        objective.code,
                        row.query,
                        match objective.measure.orders {
                            true => "at least two ids",
                            false if objective.several.is_some() => "at least one id",
                            false => "one id",
                        }
                    )));
                }
                (Some(_), false) => {
                    return Err(Error::usage(format!(
                        "{name}: {}, row {at}, query `{}`: the target follows from the model. Leave out `targets`",
                        objective.code, row.query
                    )));
                }
            }
        }
        // These targets follow from the model, so the seed and the count do not matter.
        let chosen = select(context, objective, 1, raw.form, 0, &following)?;
        selection.trials.extend(chosen.trials);
        selection.skipped.extend(chosen.skipped);
    }
    Ok(TrialFile { protocol: raw.protocol, form: raw.form, metric: raw.metric, selection })
}

/// Refuses targets that an attack can't have in this audit. Error: why.
fn refuse_targets(
    gallery: &Gallery,
    objective: &Objective,
    targets: &[usize],
) -> std::result::Result<(), String> {
    // The targets of CA± are queries; those of all other attacks are gallery images.
    let by_queries = objective.measure.moves_candidate;
    let foreign = gallery.foreign().is_some() && objective.measure.takes_foreign;
    let aimed = |t: &&usize| gallery.targets().contains(*t) != foreign;
    if let Some(other) = targets.iter().find(aimed) {
        let (is, wanted) = if foreign { ("no foreign target", "") } else { ("a foreign target", "no ") };
        return Err(format!(
            "`{}` is {is}, and this audit aims at {wanted}foreign targets (--targets)",
            gallery.ids[*other]
        ));
    }
    let inside = by_queries || foreign;
    if let Some(outside) = targets.iter().find(|&&t| t >= gallery.len() && !inside) {
        return Err(format!(
            "`{}` is a query and not in the gallery. It can't be a target",
            gallery.ids[*outside]
        ));
    }
    Ok(())
}

/// Trials in the form that files and reports store and [`read_trials`] reads.
pub fn list(protocol: Protocol, form: Form, gallery: &Gallery, trials: &[Trial]) -> TrialList {
    let id = |i: usize| gallery.ids[i].clone();
    let rows = trials.iter().map(|t| (t.objective, id(t.query), t.targets.iter().map(|&i| id(i)).collect()));
    TrialList { protocol, form, metric: gallery.metric, attacks: rows_of(rows) }
}

/// Groups trials, given as (objective, query id, target ids), into rows by attack.
pub fn rows_of(
    trials: impl Iterator<Item = (&'static Objective, String, Vec<String>)>,
) -> BTreeMap<String, Vec<TrialRow>> {
    let mut attacks: BTreeMap<String, Vec<TrialRow>> = BTreeMap::new();
    for (objective, query, targets) in trials {
        let row = TrialRow { query, targets: (objective.drawn != Drawn::No).then_some(targets) };
        attacks.entry(objective.code.to_lowercase()).or_default().push(row);
    }
    attacks
}

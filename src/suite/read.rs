//! Suites as YAML: keys, mistakes, and what fits what.

use super::budget::alpha;
use super::{MOST_EFFORT, MOST_HALVINGS, MOST_RESTARTS, MOST_STEPS, MOST_TARGETS, Suite, SuiteAttack};
use crate::corruption::Corruption;
use crate::facts::Facts;
use crate::facts::protocols::{at, fraction, number};
use crate::feature::{corruption, verification};
use crate::judge::gate::{self, Demand, Rule};
use crate::judge::quantity::Quantity;
use crate::record::{Acceptance, Form, Protocol, ScoreName, Space};
use crate::space::XI_K;
use crate::threat::term::terms_of;
use crate::threat::{BALLS, Ball, Mask, OBJECTIVES, Objective, SEARCHES, Search};
use crate::yaml::Spanned;
use crate::{Error, Result, yaml};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The YAML form of a suite.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Option<String>,
    #[serde(default)]
    description: String,
    form: Form,
    attacks: Spanned<Vec<Spanned<String>>>,
    #[serde(default = "auto")]
    protocol: Protocol,
    norm: Option<Spanned<String>>,
    mask: Option<Spanned<String>>,
    #[serde(default)]
    space: Space,
    patch: Option<Spanned<String>>,
    eps: Option<Spanned<String>>,
    alpha: Option<Spanned<String>>,
    steps: Option<Spanned<usize>>,
    schedule: Option<Spanned<String>>,
    restarts: Option<Spanned<usize>>,
    effort: Option<Spanned<usize>>,
    ladder: Option<Spanned<usize>>,
    xi_k: Option<Spanned<f64>>,
    hub_class: Option<String>,
    #[serde(default)]
    corruptions: Vec<Spanned<String>>,
    threshold: Option<Spanned<String>>,
    max_queries: Option<Spanned<usize>>,
    #[serde(default)]
    scores: Vec<Spanned<ScoreName>>,
    #[serde(default)]
    gate: BTreeMap<String, Spanned<Demand>>,
}

fn auto() -> Protocol {
    Protocol::Auto
}

impl Suite {
    /// Parses a suite from YAML. `file` is its name in errors. Errors (exit code 2): the YAML is not a valid
    /// suite.
    pub fn parse(file: &str, yaml: &str) -> Result<Suite> {
        let raw: Raw = yaml::read(file, yaml)?;
        let ball = row_of(file, &raw.norm, Ball::find, &BALLS[0])?;
        let number = |text: &Option<Spanned<String>>, key| {
            text.as_ref().map(|text| fraction(file, key, text, ball)).transpose()
        };
        let search = search(file, &raw)?;
        refuse_beside_effort(file, &raw)?;
        let eps = number(&raw.eps, "eps")?;
        let alpha = raw.alpha.as_ref().map(|text| alpha(file, text, eps, ball)).transpose()?;
        let attacks = attacks(file, &raw, search)?;
        for score in &raw.scores {
            check_score(score.value, &attacks).map_err(|e| e.context(at(file, score)))?;
        }
        let gate = raw.gate.iter().map(|(name, demand)| rule(file, name, demand)).collect::<Result<_>>()?;
        let mask = mask(file, &raw)?;
        let ladder = ladder(file, &raw, &attacks)?;
        let objectives: Vec<&'static Objective> = attacks.iter().map(|entry| entry.objective).collect();
        let corruptions = corruptions(file, &raw, &objectives)?;
        let hub_class = raw.hub_class.clone();
        check_hub_class(&hub_class, &attacks).map_err(|e| e.context(file))?;
        let threshold = threshold(file, &raw, objectives)?;
        Ok(Suite {
            gate,
            name: raw.name.unwrap_or_else(|| {
                Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy().into_owned())
            }),
            description: raw.description,
            form: raw.form,
            attacks,
            protocol: raw.protocol,
            ball,
            mask,
            space: raw.space,
            jpeg: None,
            eps,
            alpha,
            steps: count(file, "steps", &raw.steps, 1, MOST_STEPS)?,
            search,
            restarts: count(file, "restarts", &raw.restarts, 0, MOST_RESTARTS)?.unwrap_or(0),
            effort: count(file, "effort", &raw.effort, 1, MOST_EFFORT)?,
            ladder,
            hub_class,
            corruptions,
            threshold,
            xi_k: xi_k(file, &raw.xi_k)?,
            max_queries: count(file, "max_queries", &raw.max_queries, 1, usize::MAX)?,
            scores: raw.scores.into_iter().map(|s| s.value).collect(),
        })
    }
}

/// The row of a table that a suite names, or the usual one.
fn row_of<T>(
    file: &str,
    name: &Option<Spanned<String>>,
    find: fn(&str) -> Result<&'static T>,
    usual: &'static T,
) -> Result<&'static T> {
    let Some(name) = name else { return Ok(usual) };
    find(&name.value).map_err(|e| e.context(at(file, name)))
}

/// The search that a suite names. Refuses a step size beside one that finds its own.
fn search(file: &str, raw: &Raw) -> Result<&'static Search> {
    let search = row_of(file, &raw.schedule, Search::find, &SEARCHES[0])?;
    match raw.alpha.as_ref().filter(|_| !search.takes_alpha) {
        Some(alpha) => Err(Error::usage(format!(
            "{}: `alpha` is a fixed step size, and schedule {} finds its own: leave `alpha` out",
            at(file, alpha),
            search.name
        ))),
        None => Ok(search),
    }
}

/// The corruptions that a suite lists.
fn corruptions(file: &str, raw: &Raw, objectives: &[&Objective]) -> Result<Vec<&'static Corruption>> {
    let place = |name: &Spanned<String>| at(file, name) + ": corruptions";
    let names = raw.corruptions.iter().map(|name| (place(name), name.value.as_str()));
    corruption::listed(names, objectives)
}

/// The threshold of a suite: the stated one, or the usual one if an attack needs it.
fn threshold(file: &str, raw: &Raw, objectives: Vec<&Objective>) -> Result<Option<Acceptance>> {
    let stated = raw.threshold.as_ref();
    let stated = stated.map(|text| text.value.parse().map_err(|e: Error| e.context(at(file, text))));
    verification::threshold(stated.transpose()?, objectives).map_err(|e| e.context(file))
}

/// A count between two bounds, if it is stated.
fn count(
    file: &str,
    key: &str,
    stated: &Option<Spanned<usize>>,
    least: usize,
    most: usize,
) -> Result<Option<usize>> {
    let Some(stated) = stated else { return Ok(None) };
    let refused = |why: String| Error::usage(format!("{}: `{key}` {why}", at(file, stated)));
    between(stated.value, least, most).map(|()| Some(stated.value)).map_err(refused)
}

/// How often a ladder halves ε, if the suite has one. Only the strong search for R@1 has it.
fn ladder(file: &str, raw: &Raw, attacks: &[SuiteAttack]) -> Result<Option<usize>> {
    let halvings = count(file, "ladder", &raw.ladder, 1, MOST_HALVINGS)?;
    let recall = attacks.iter().any(|a| a.objective.strong_only);
    match raw.ladder.as_ref().filter(|_| !recall) {
        Some(stated) => Err(Error::usage(format!(
            "{}: `ladder` asks at how small an ε queries fail, which is a matter of R1: list R1 among `attacks`, or leave `ladder` out",
            at(file, stated)
        ))),
        None => Ok(halvings),
    }
}

fn attacks(file: &str, raw: &Raw, search: &Search) -> Result<Vec<SuiteAttack>> {
    let mut attacks: Vec<SuiteAttack> = Vec::new();
    for text in &raw.attacks.value {
        let at = at(file, text);
        let entry = entry(&text.value).map_err(|e| e.context(&at))?;
        check_search(entry.objective, search, raw.effort.is_some()).map_err(|e| e.context(&at))?;
        if attacks.iter().any(|a| a.objective.code == entry.objective.code) {
            return Err(Error::usage(format!("{at}: {} is listed twice", entry.objective.code)));
        }
        let smallest = |entry: &SuiteAttack| entry.objective.smallest.is_some();
        if let Some(other) = attacks.iter().find(|a| smallest(a) && smallest(&entry)) {
            return Err(Error::usage(format!(
                "{at}: {} and {} both look for the smallest perturbation, of which a report has one median and curve: write a suite for each",
                other.objective.code, entry.objective.code
            )));
        }
        attacks.push(entry);
    }
    match attacks.is_empty() {
        true => Err(Error::usage(format!("{}: `attacks` must list at least one", at(file, &raw.attacks)))),
        false => Ok(attacks),
    }
}

/// A rule of a suite's gate.
fn rule(file: &str, name: &str, demand: &Spanned<Demand>) -> Result<Rule> {
    let at = at(file, demand) + ": gate";
    let metric = Quantity::find(name).map_err(|e| e.context(&at))?;
    let rule = Rule { metric, demand: demand.value };
    gate::check(&rule).map_err(|e| e.context(&at))?;
    Ok(rule)
}

/// The mask that a suite states: a file, whose path is relative to the suite's, or a patch's share of the
/// area.
fn mask(file: &str, raw: &Raw) -> Result<Option<Mask>> {
    match (&raw.mask, &raw.patch) {
        (Some(_), Some(patch)) => Err(Error::usage(format!(
            "{}: `mask` and `patch` both say where images may change: leave one of the two out",
            at(file, patch)
        ))),
        (Some(mask), None) => {
            let path = Path::new(file).parent().unwrap_or(Path::new("")).join(&mask.value);
            Mask::read(&path).map(Some).map_err(|e| e.context(at(file, mask)))
        }
        (None, Some(patch)) => parse_patch(&patch.value).map(Some).map_err(|e| e.context(at(file, patch))),
        (None, None) => Ok(None),
    }
}

/// Parses a patch's share of the image's area: "0.1" or "1/10", above 0 and at most 1.
pub fn parse_patch(text: &str) -> Result<Mask> {
    let share = number(text).map(|v| v as f32).filter(|v| *v > 0.0 && *v <= 1.0);
    share.map(|share| Mask::Patch { share }).ok_or_else(|| {
        Error::usage(format!(
            "patch `{text}`: expected a share of the image's area above 0 and at most 1, such as 0.1"
        ))
    })
}

/// Refuses the strong search for an attack whose trials share a perturbation, a search for the smallest
/// perturbation if the loss doesn't tell success, and any other search for an attack that needs the smallest
/// one.
fn check_search(objective: &Objective, search: &Search, strong: bool) -> Result<()> {
    if objective.shared.is_some() && (strong || search.smallest) {
        return Err(Error::usage(format!(
            "{} has one perturbation for many queries, which one search crafts: take it out of the suite, or state `schedule: \
             adaptive` and `restarts` in place of `effort` or another schedule",
            objective.code
        )));
    }
    let wants = objective.smallest.is_some();
    if objective.strong_only || wants == (search.smallest && !strong) {
        return Ok(());
    }
    let names: Vec<&str> = SEARCHES.iter().filter(|s| s.smallest).map(|s| s.name).collect();
    let names = names.join(" or ");
    Err(Error::usage(match wants {
        true => format!(
            "{} looks for the smallest perturbation, and schedule {} for the lowest loss within ε: state `schedule: {names}`, \
             without `effort`",
            objective.code, search.name
        ),
        false => format!(
            "schedule {} looks for the smallest perturbation with a loss below 0, which is success for {} alone: take {} out \
             of the suite, or another schedule than {names}",
            search.name,
            Facts::codes(|o| o.smallest.is_some()),
            objective.code
        ),
    }))
}

/// Refuses keys of one search in a suite of the strong search.
fn refuse_beside_effort(file: &str, raw: &Raw) -> Result<()> {
    let Some(effort) = &raw.effort else { return Ok(()) };
    let stated = [
        ("schedule", raw.schedule.is_some()),
        ("alpha", raw.alpha.is_some()),
        ("steps", raw.steps.is_some()),
        ("restarts", raw.restarts.is_some()),
    ];
    match stated.iter().find(|(_, stated)| *stated) {
        Some((key, _)) => Err(Error::usage(format!(
            "{}: `effort` asks for the strong search, whose members have their own `{key}`: leave one of the two out",
            at(file, effort)
        ))),
        None => Ok(()),
    }
}

/// The value of `xi_k`, or the usual one.
fn xi_k(file: &str, stated: &Option<Spanned<f64>>) -> Result<f64> {
    match stated {
        Some(k) if !(k.value.is_finite() && k.value >= 0.0) => Err(Error::usage(format!(
            "{}: `xi_k` must be a number, 0 or more, found {}",
            at(file, k),
            k.value
        ))),
        stated => Ok(stated.as_ref().map_or(XI_K, |k| k.value)),
    }
}

/// The error for a count, in words that follow its name.
pub fn between(count: usize, least: usize, most: usize) -> std::result::Result<(), String> {
    match count {
        n if n < least => Err(format!("must be at least {least}, found {n}")),
        n if n > most => Err(format!("must be at most {most}, found {n}")),
        _ => Ok(()),
    }
}

/// Refuses a class of queries if no attack needs one.
pub fn check_hub_class(class: &Option<String>, attacks: &[SuiteAttack]) -> Result<()> {
    match class.is_some() && !attacks.iter().any(|a| a.objective.measure.captures) {
        true => {
            let hub = Facts::codes(|o| o.measured.captures);
            Err(Error::usage(format!(
                "hub_class (--hub-class) names the queries that {hub} is for, and the suite has no {hub}: leave it out, or take --suite hub"
            )))
        }
        false => Ok(()),
    }
}

/// Parses an attack: "CA+", or "CA+ w=5".
fn entry(text: &str) -> Result<SuiteAttack> {
    let mut words = text.split_whitespace();
    let objective = Objective::find(words.next().unwrap_or_default())?;
    let mut count = objective.several.map_or(1, |(_, usual)| usual);
    let parameter = objective.several.map(|(key, _)| key);
    for word in words {
        let value = word.split_once('=').filter(|(key, _)| Some(*key) == parameter).map(|(_, v)| v);
        count = value.and_then(|v| v.parse().ok()).filter(|n| (1..=MOST_TARGETS).contains(n)).ok_or_else(|| {
            Error::usage(match parameter {
                Some(key) => {
                    format!("`{word}` is no parameter of {}: expected {key}=1, {key}=2, ..., {key}={MOST_TARGETS}", objective.code)
                }
                None => format!("`{word}`: {} takes no parameter", objective.code),
            })
        })?;
    }
    Ok(SuiteAttack { objective, count })
}

/// Checks that a suite with a score has all attacks of that score. A score is a mean over fixed terms.
fn check_score(score: ScoreName, attacks: &[SuiteAttack]) -> Result<()> {
    let name = Quantity::score(score).name;
    let judged = |o: &Objective| terms_of(score).any(|term| o.judged_by(term));
    let listed = |o: &Objective| attacks.iter().any(|a| a.objective.code == o.code);
    let missing: Vec<&str> = OBJECTIVES.iter().filter(|o| judged(o) && !listed(o)).map(|o| o.code).collect();
    if !missing.is_empty() {
        return Err(Error::usage(format!(
            "the score `{name}` needs {} too: add to `attacks`, or drop it from `scores`",
            missing.join(", ")
        )));
    }
    if let Some(entry) = attacks.iter().find(|a| a.count != 1 && judged(a.objective)) {
        return Err(Error::usage(format!(
            "the score `{name}` is defined for one target each, not for {} on {}: drop it from `scores`",
            entry.objective.code, entry.count
        )));
    }
    Ok(())
}

//! Suites: which attacks run, with which budget, on how many queries, and for which scores.

mod budget;

pub use budget::Alpha;

use crate::corruption::Corruption;
use crate::error::did_you_mean;
use crate::facts::Facts;
use crate::facts::protocols::{at, fraction, number};
use crate::feature::{corruption, verification};
use crate::judge::gate::{self, Demand, Rule};
use crate::judge::quantity::{Needs, Quantity};
use crate::record::{Acceptance, Form, Protocol, ScoreName, Space};
use crate::space::XI_K;
use crate::threat::term::terms_of;
use crate::threat::{BALLS, Ball, Mask, OBJECTIVES, Objective, SEARCHES, Search};
use crate::yaml::Spanned;
use crate::{Error, Result, files, yaml};
use budget::alpha;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The built-in suites: name and YAML.
const BUILT_IN: [(&str, &str); 26] = [
    ("robust", include_str!("../suites/robust.yaml")),
    ("ers", include_str!("../suites/ers.yaml")),
    ("ars", include_str!("../suites/ars.yaml")),
    ("full", include_str!("../suites/full.yaml")),
    ("ers-strict", include_str!("../suites/ers-strict.yaml")),
    ("ars-strict", include_str!("../suites/ars-strict.yaml")),
    ("strong", include_str!("../suites/strong.yaml")),
    ("nes", include_str!("../suites/nes.yaml")),
    ("square", include_str!("../suites/square.yaml")),
    ("order", include_str!("../suites/order.yaml")),
    ("smoke", include_str!("../suites/smoke.yaml")),
    ("panum", include_str!("../suites/panum.yaml")),
    ("panum-fgsm", include_str!("../suites/panum-fgsm.yaml")),
    ("panum-cw", include_str!("../suites/panum-cw.yaml")),
    ("adml", include_str!("../suites/adml.yaml")),
    ("geometry", include_str!("../suites/geometry.yaml")),
    ("hub", include_str!("../suites/hub.yaml")),
    ("targets", include_str!("../suites/targets.yaml")),
    ("universal", include_str!("../suites/universal.yaml")),
    ("corruptions", include_str!("../suites/corruptions.yaml")),
    ("faces", include_str!("../suites/faces.yaml")),
    ("threshold", include_str!("../suites/threshold.yaml")),
    ("minimum", include_str!("../suites/minimum.yaml")),
    ("minimum-l2", include_str!("../suites/minimum-l2.yaml")),
    ("minimum-cw", include_str!("../suites/minimum-cw.yaml")),
    ("minimum-target", include_str!("../suites/minimum-target.yaml")),
];

/// The most steps of a run. Longer runs take too long and find nothing more.
pub const MOST_STEPS: usize = 100_000;

/// The most random starts.
pub const MOST_RESTARTS: usize = 1000;
/// Largest effort of the strong search.
pub const MOST_EFFORT: usize = 1000;

/// The most halvings of ε. A thousandth of a grey level changes no embedding.
pub const MOST_HALVINGS: usize = 16;

/// The most targets of a trial.
pub const MOST_TARGETS: usize = 1000;

/// A suite that has been checked.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name in `--suite` and in reports.
    pub name: String,
    /// One sentence for `audit suites`.
    pub description: String,
    /// Form of the attacks' definitions.
    pub form: Form,
    /// In the order in which they run.
    pub attacks: Vec<SuiteAttack>,
    /// The named budget.
    pub protocol: Protocol,
    /// The norm that bounds a perturbation.
    pub ball: &'static Ball,
    /// Which pixels may change; `None` for all.
    pub mask: Option<Mask>,
    /// Which image is changed.
    pub space: Space,
    /// Quality of the JPEG files that changed images are saved as.
    pub jpeg: Option<u8>,
    /// Largest size ε of a perturbation, instead of the protocol's.
    pub eps: Option<f32>,
    /// Step size α, instead of the protocol's in proportion to ε.
    pub alpha: Option<Alpha>,
    /// Number of steps, instead of the protocol's.
    pub steps: Option<usize>,
    /// The search algorithm.
    pub search: &'static Search,
    /// Number of runs from random starts, in addition to the one from the clean image.
    pub restarts: usize,
    /// Multiple of the usual work of the strong search, if it replaces the search.
    pub effort: Option<usize>,
    /// How often ε is halved on the ladder of robust R@1; `None` for ε alone.
    pub ladder: Option<usize>,
    /// How strictly SPQA and SPFOA keep other images at the top: k of ξ = min(exp(k·s), 1e9).
    pub xi_k: f64,
    /// The class of the queries that HUB is crafted for; `None` for all.
    pub hub_class: Option<String>,
    /// Natural corruptions of the queries, besides the attacks.
    pub corruptions: Vec<&'static Corruption>,
    /// Source of the threshold, if an attack needs one.
    pub threshold: Option<Acceptance>,
    /// Largest number of queries; `None` for all.
    pub max_queries: Option<usize>,
    /// Scores in reports of this suite. `attacks` has the terms of each.
    pub scores: Vec<ScoreName>,
    /// Rules that apply unless flags override them.
    pub gate: Vec<Rule>,
}

/// An objective, and its number of targets.
#[derive(Clone, Copy, Debug)]
pub struct SuiteAttack {
    /// The objective of the attack.
    pub objective: &'static Objective,
    /// Number of targets per trial (w or m).
    pub count: usize,
}

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
    /// Whether a built-in suite has this name.
    pub fn knows(name: &str) -> bool {
        BUILT_IN.iter().any(|(known, _)| *known == name)
    }

    /// Name and description of every built-in suite.
    pub fn built_in() -> Result<Vec<(String, String)>> {
        BUILT_IN
            .iter()
            .map(|(name, yaml)| Suite::parse(name, yaml).map(|s| (s.name, s.description)))
            .collect()
    }

    /// The built-in suite called `name`, or the suite in the file `name`. Errors (exit code 2): neither
    /// exists, or the file is not a valid suite.
    pub fn load(name: &str) -> Result<Suite> {
        if let Some((name, yaml)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
            return Suite::parse(&format!("built-in suite {name}"), yaml);
        }
        let path = Path::new(name);
        let like_a_file = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        if !like_a_file && !path.is_file() {
            let known = BUILT_IN.map(|(n, _)| n);
            return Err(Error::usage(format!(
                "unknown suite `{name}`{}: expected one of {}, or the path of a .yaml file",
                did_you_mean(name, &known),
                known.join(", ")
            )));
        }
        let yaml = files::read_text(path, files::BY_HAND)
            .map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
        Suite::parse(name, &yaml)
    }

    /// Parses a suite from YAML. `file` is its name in errors. Errors (exit code 2): the YAML is not a valid
    /// suite.
    pub fn parse(file: &str, yaml: &str) -> Result<Suite> {
        fn row_of<T>(
            file: &str,
            name: &Option<Spanned<String>>,
            find: fn(&str) -> Result<&'static T>,
            usual: &'static T,
        ) -> Result<&'static T> {
            let Some(name) = name else { return Ok(usual) };
            find(&name.value).map_err(|e| e.context(at(file, name)))
        }
        let raw: Raw = yaml::read(file, yaml)?;
        let ball = row_of(file, &raw.norm, Ball::find, &BALLS[0])?;
        let number = |text: &Option<Spanned<String>>, key| {
            text.as_ref().map(|text| fraction(file, key, text, ball)).transpose()
        };
        let search = row_of(file, &raw.schedule, Search::find, &SEARCHES[0])?;
        if let Some(alpha) = raw.alpha.as_ref().filter(|_| !search.takes_alpha) {
            return Err(Error::usage(format!(
                "{}: `alpha` is a fixed step size, and schedule {} finds its own: leave `alpha` out",
                at(file, alpha),
                search.name
            )));
        }
        refuse_beside_effort(file, &raw)?;
        let eps = number(&raw.eps, "eps")?;
        let alpha = raw.alpha.as_ref().map(|text| alpha(file, text, eps, ball)).transpose()?;
        let within = |value: &Option<Spanned<usize>>, key, least, most| match value {
            Some(v) => between(v.value, least, most)
                .map_err(|why| Error::usage(format!("{}: `{key}` {why}", at(file, v))))
                .map(|()| Some(v.value)),
            None => Ok(None),
        };
        let attacks = attacks(file, &raw, search)?;
        for score in &raw.scores {
            check_score(score.value, &attacks).map_err(|e| e.context(at(file, score)))?;
        }
        let gate = raw.gate.iter().map(|(name, demand)| rule(file, name, demand)).collect::<Result<_>>()?;
        let mask = mask(file, &raw)?;
        let ladder = within(&raw.ladder, "ladder", 1, MOST_HALVINGS)?;
        let recall = attacks.iter().any(|a| a.objective.strong_only);
        if let Some(stated) = raw.ladder.as_ref().filter(|_| !recall) {
            return Err(Error::usage(format!(
                "{}: `ladder` asks at how small an ε queries fail, which is a matter of R1: list R1 among `attacks`, or leave `ladder` out",
                at(file, stated)
            )));
        }
        let objectives: Vec<&'static Objective> = attacks.iter().map(|entry| entry.objective).collect();
        let place = |name: &Spanned<String>| at(file, name) + ": corruptions";
        let names = raw.corruptions.iter().map(|name| (place(name), name.value.as_str()));
        let corruptions = corruption::listed(names, &objectives)?;
        let hub_class = raw.hub_class.clone();
        check_hub_class(&hub_class, &attacks).map_err(|e| e.context(file))?;
        let stated = raw.threshold.as_ref();
        let stated = stated.map(|text| text.value.parse().map_err(|e: Error| e.context(at(file, text))));
        let threshold =
            verification::threshold(stated.transpose()?, objectives).map_err(|e| e.context(file))?;
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
            steps: within(&raw.steps, "steps", 1, MOST_STEPS)?,
            search,
            restarts: within(&raw.restarts, "restarts", 0, MOST_RESTARTS)?.unwrap_or(0),
            effort: within(&raw.effort, "effort", 1, MOST_EFFORT)?,
            ladder,
            hub_class,
            corruptions,
            threshold,
            xi_k: xi_k(file, &raw.xi_k)?,
            max_queries: within(&raw.max_queries, "max_queries", 1, usize::MAX)?,
            scores: raw.scores.into_iter().map(|s| s.value).collect(),
        })
    }

    /// Whether the report of an audit with this suite contains `quantity`.
    pub fn gives(&self, quantity: &Quantity) -> bool {
        match quantity.needs {
            // The strong search attacks a sample beside every suite, unless it is off.
            Needs::Nothing => true,
            Needs::Score(score) => self.scores.contains(&score),
            Needs::Ladder => self.ladder.is_some(),
            Needs::Term(term) => self.attacks.iter().any(|a| a.objective.judged_by(term)),
            Needs::Corruption(None) => !self.corruptions.is_empty(),
            Needs::Corruption(Some(of)) => self.corruptions.iter().any(|c| c.name == of.name),
        }
    }

    /// The objectives of its attacks.
    pub fn objectives(&self) -> impl Iterator<Item = &'static Objective> {
        self.attacks.iter().map(|entry| entry.objective)
    }

    /// Whether the suite attacks robust R@1.
    pub fn has_robust_r1(&self) -> bool {
        self.attacks.iter().any(|entry| entry.objective.strong_only)
    }

    /// Whether the strong search runs on any of its attacks.
    pub fn searches_strongly(&self) -> bool {
        self.effort.is_some() || self.has_robust_r1()
    }

    /// Whether the strong search makes all its attacks, so that no step size applies.
    pub fn searches_strongly_alone(&self) -> bool {
        self.effort.is_some() || self.attacks.iter().all(|a| a.objective.strong_only)
    }
}

/// The attacks that a suite lists.
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

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const BASE: &str = "form: published\nattacks: [CA+]\n";

    /// The suite is refused with a message that contains all of `words`.
    #[track_caller]
    pub(super) fn refused(yaml: &str, words: &[&str]) {
        let error = Suite::parse("my.yaml", yaml).expect_err(yaml);
        assert_eq!(error.exit, crate::Exit::Usage);
        assert!(error.message.starts_with("my.yaml"), "{}", error.message);
        words.iter().for_each(|word| assert!(error.message.contains(word), "{word}: {}", error.message));
    }

    #[test]
    fn built_in_suites_are_valid_and_named_as_listed() {
        for (name, _) in BUILT_IN {
            let suite = Suite::load(name).unwrap();
            assert_eq!(suite.name, name);
            assert!(!suite.description.is_empty());
            let (strict, strong) = (name.ends_with("-strict"), name == "strong");
            // Suites of papers without scores.
            let other = suite.scores.is_empty() && name != "order";
            assert_eq!(suite.form == Form::Corrected, strict || strong || other);
            let universal = name == "universal";
            assert_eq!(suite.restarts > 0, strict || universal);
            assert_eq!(suite.search.name == "adaptive", strict || universal);
            assert_eq!(
                suite.effort,
                (strong || ["hub", "faces", "threshold", "targets"].contains(&name)).then_some(1)
            );
        }
        assert_eq!(Suite::built_in().unwrap().len(), BUILT_IN.len());
    }

    #[test]
    fn attacks_take_parameters() {
        let suite =
            Suite::parse("dir/my.yaml", "form: corrected\nattacks:\n  - ca+ w=5\n  - QA\u{2212} m=2\n")
                .unwrap();
        assert_eq!(suite.name, "my");
        let found: Vec<_> = suite.attacks.iter().map(|e| (e.objective.code, e.count)).collect();
        assert_eq!(found, [("CA+", 5), ("QA-", 2)]);
        refused("form: published\nattacks:\n  - CA+\n  - ES w=2\n", &["line 4: `w=2`: ES takes no"]);
        refused("form: published\nattacks: [CA+ m=2]\n", &["expected w=1"]);
        refused("form: published\nattacks: [CA+ w=0]\n", &["expected w=1"]);
        refused("form: published\nattacks: [CA+, ca+]\n", &["CA+ is listed twice"]);
        refused("form: published\nattacks: [XA]\n", &["unknown attack `XA`"]);
        refused("form: published\nattacks: []\n", &["at least one"]);
    }

    #[test]
    fn mistakes_are_located_and_nearest_keys_named() {
        refused("form: published\nattacks: [CA+]\nrestart: 3\n", &["line 3", "did you mean `restarts`?"]);
        refused("form: publish\nattacks: [CA+]\n", &["line 1", "did you mean `published`?"]);
        refused(&format!("{BASE}protocol: rob29\n"), &["line 3", "`rob28`"]);
        for eps in ["0", "-0.1", "8", "1.5", "8/0", "x", "nan", "256/255"] {
            refused(&format!("{BASE}eps: {eps}\n"), &["line 3", "at most 1"]);
        }
        refused(&format!("{BASE}schedule: adaptive\nalpha: 0.1\n"), &["line 4: `alpha`"]);
        refused(&format!("{BASE}schedule: adaptiv\n"), &["did you mean `adaptive`?"]);
        refused(&format!("{BASE}norm: l2\neps: -1\n"), &["above 0"]);
        let l2 = Suite::parse("my.yaml", &format!("{BASE}norm: l2\n")).unwrap();
        assert!(l2.plan(28, 0).unwrap_err().message.contains("state `eps` too"));
        let l2 = Suite::parse("my.yaml", &format!("{BASE}norm: l2\neps: 2.5\nsteps: 10\n")).unwrap();
        assert_eq!((l2.plan(28, 0).unwrap().1.eps, l2.plan(28, 0).unwrap().1.alpha), (2.5, 0.625));
        refused(&format!("{BASE}steps: 0\n"), &["line 3: `steps` must be at least 1"]);
        refused(&format!("{BASE}max_queries: 0\n"), &["`max_queries` must be at least 1"]);
        for (key, most) in [("steps", "100000"), ("restarts", "1000")] {
            for value in ["4000000000", "100000000000"] {
                let words = format!("line 3: `{key}` must be at most {most}, found {value}");
                refused(&format!("{BASE}{key}: {value}\n"), &[&words]);
            }
        }
        refused("form: published\nattacks: [CA+ w=1000000]\n", &["w=2, ..., w=1000"]);
        refused(&format!("{BASE}effort: 0\n"), &["line 3: `effort` must be at least 1"]);
        refused(&format!("{BASE}steps: many\n"), &["line 3"]);
        refused("attacks: [CA+]\n", &["form"]);
        refused("form: [\n", &["line"]);
        refused("", &[]);
    }

    /// Four perturbations on 100 queries each, 100 steps from two starts and random search of the same cost;
    /// each other query is measured once.
    #[test]
    fn a_shared_perturbation_costs_what_its_sample_does() {
        let suite = Suite::load("universal").unwrap();
        let plan = suite.plan(28, 0).unwrap().1;
        let work = |queries| plan.work_of(std::iter::repeat_n(suite.attacks[0].objective, queries));
        assert_eq!((work(10_000), work(10)), (400 * 300 + 10_000, 40 * 300 + 10));
        let ars = Suite::load("ars").unwrap().plan(28, 0).unwrap().1;
        assert_eq!(ars.work_of([Objective::find("ES").unwrap(); 3].into_iter()), 3 * 32);
    }

    /// Within a mask ε is 1 and steps follow it, unless the suite says otherwise.
    #[test]
    fn masks_are_read_and_widen_the_budget() {
        let suite = Suite::parse("my.yaml", &format!("{BASE}patch: 1/10\nsteps: 10\n")).unwrap();
        assert_eq!(suite.mask, Some(Mask::Patch { share: 0.1 }));
        let plan = suite.plan(28, 0).unwrap().1;
        assert_eq!((plan.eps, plan.alpha, plan.mask), (1.0, 0.25, suite.mask));
        let own = Suite::parse("my.yaml", &format!("{BASE}patch: 0.1\neps: 0.5\nalpha: 0.2\n")).unwrap();
        assert_eq!((own.plan(28, 0).unwrap().1.eps, own.plan(28, 0).unwrap().1.alpha), (0.5, 0.2));
        let l2 = Suite::parse("my.yaml", &format!("{BASE}patch: 0.1\nnorm: l2\n")).unwrap();
        assert!(l2.plan(28, 0).unwrap_err().message.contains("state `eps` too"));
        for share in ["0", "1.1", "x", "-0.1"] {
            refused(&format!("{BASE}patch: {share}\n"), &["line 3: patch", "such as 0.1"]);
        }
        refused(&format!("{BASE}mask: a.png\npatch: 0.1\n"), &["line 4: `mask` and `patch`"]);
        refused(&format!("{BASE}mask: nowhere.png\n"), &["line 3: mask nowhere.png: can't read"]);
    }

    /// The goal of a search must be that of the attack.
    #[test]
    fn searches_fit_their_attacks() {
        let of = |attack: &str, more: &str| format!("form: corrected\nattacks: [{attack}]\n{more}");
        assert!(Suite::parse("my.yaml", &of("MIN", "schedule: bisection\n")).is_ok());
        assert!(Suite::parse("my.yaml", &of("R1", "schedule: cw\n")).is_ok());
        refused(&of("MIN", ""), &["line 2", "`schedule: bisection or cw or fmn`"]);
        refused(&of("MIN", "effort: 1\n"), &["without `effort`"]);
        refused(&of("ES", "schedule: cw\n"), &["success for MIN, TMIN alone"]);
        refused(
            &of("MIN, TMIN", "schedule: cw\n"),
            &["MIN and TMIN both look for the smallest", "a suite for each"],
        );
    }

    /// The members of the strong search have steps, step sizes and restarts of their own.
    #[test]
    fn effort_takes_the_place_of_the_settings_of_one_search() {
        let suite = Suite::parse("my.yaml", &format!("{BASE}effort: 3\n")).unwrap();
        assert_eq!((suite.effort, suite.plan(28, 0).unwrap().1.effort), (Some(3), Some(3)));
        for (key, line) in [
            ("steps", "steps: 5"),
            ("schedule", "schedule: adaptive"),
            ("alpha", "alpha: 1/255"),
            ("restarts", "restarts: 1"),
        ] {
            refused(&format!("{BASE}{line}\neffort: 2\n"), &["line 4: `effort`", &format!("`{key}`")]);
        }
        refused(&format!("{BASE}effort: much\n"), &["line 3"]);
        refused(&format!("{BASE}effort: -1\n"), &["line 3"]);
    }

    #[test]
    fn scores_need_their_terms() {
        refused(&format!("{BASE}scores: [ars]\n"), &["line 3", "CA-, QA+, QA-, ES, LTM, GTM, GTT"]);
        let all = "form: published\nattacks: [CA+ w=2, CA-, QA+, QA-, ES, LTM, GTM, GTT]\nscores: [ars]\n";
        refused(all, &["one target each"]);
        refused(&format!("{BASE}scores: [arz]\n"), &["did you mean `ars`?"]);
    }

    #[test]
    fn gates_are_read_and_checked() {
        use crate::record::Level;
        let suite = Suite::parse(
            "my.yaml",
            &format!("{BASE}gate:\n  ars: {{min: 45, max_drop: 1}}\n  attack.ES:R: {{min: 5, level: warn}}\n  ers: {{level: off}}\n"),
        )
        .unwrap();
        let rule = |name: &str| suite.gate.iter().find(|r| r.metric.name == name).unwrap().demand;
        assert_eq!(
            (rule("ars").min, rule("ars").max_drop, rule("ars").level),
            (Some(45.0), Some(1.0), Level::Error)
        );
        assert_eq!((rule("attack.ES:R").level, rule("ers").level), (Level::Warn, Level::Off));
        refused(&format!("{BASE}gate:\n  arz: {{min: 1}}\n"), &["line 4", "The nearest are `ars`,"]);
        refused(&format!("{BASE}gate:\n  ars: {{mim: 1}}\n"), &["did you mean `min`?"]);
        refused(&format!("{BASE}gate:\n  ars: {{max: 1}}\n"), &["Set a lower one"]);
        refused(&format!("{BASE}gate:\n  attack.CA-: {{min: 1}}\n"), &["Set an upper one"]);
        refused(&format!("{BASE}gate:\n  ars: {{level: loud}}\n"), &["line 4"]);
    }

    #[test]
    fn unknown_suites_list_the_known() {
        let error = Suite::load("arrs").unwrap_err();
        assert!(
            error.message.contains("did you mean `ars`?") && error.message.contains("ers-strict"),
            "{error}"
        );
        assert!(Suite::load("nowhere.yaml").unwrap_err().message.contains("can't read nowhere.yaml"));
    }

    /// NES moves once for 100 images. Where no protocol has a step size, it is a share of the moves.
    #[test]
    fn a_population_has_few_moves() {
        let plan =
            |more: &str| Suite::parse("my.yaml", &format!("{BASE}schedule: population\n{more}"))?.plan(28, 0);
        let (_, found) = plan("norm: l2\neps: 1.0\nsteps: 3200\n").unwrap();
        assert_eq!(found.alpha, 6.0 / 32.0);
        let told = plan("steps: 99\n").unwrap_err().message;
        assert!(told.contains("steps` of at least 100"), "{told}");
    }
}

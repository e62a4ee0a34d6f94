//! Suites: which attacks run, with which budget, on how many queries, and for which scores. `read.rs` reads
//! them, and `budget.rs` settles ε, α and steps.

mod budget;
mod read;
#[cfg(test)]
mod tests;

pub use budget::Alpha;
pub use read::{between, check_hub_class, parse_patch};

use crate::corruption::Corruption;
use crate::error::did_you_mean;
use crate::judge::gate::Rule;
use crate::judge::quantity::{Needs, Quantity};
use crate::record::{Acceptance, Form, Protocol, ScoreName, Space};
use crate::threat::{Ball, Mask, Objective, Search};
use crate::{Error, Result, files};
use std::path::Path;

/// The built-in suites: name and YAML.
const BUILT_IN: [(&str, &str); 26] = [
    ("robust", include_str!("../../suites/robust.yaml")),
    ("ers", include_str!("../../suites/ers.yaml")),
    ("ars", include_str!("../../suites/ars.yaml")),
    ("full", include_str!("../../suites/full.yaml")),
    ("ers-strict", include_str!("../../suites/ers-strict.yaml")),
    ("ars-strict", include_str!("../../suites/ars-strict.yaml")),
    ("strong", include_str!("../../suites/strong.yaml")),
    ("nes", include_str!("../../suites/nes.yaml")),
    ("square", include_str!("../../suites/square.yaml")),
    ("order", include_str!("../../suites/order.yaml")),
    ("smoke", include_str!("../../suites/smoke.yaml")),
    ("panum", include_str!("../../suites/panum.yaml")),
    ("panum-fgsm", include_str!("../../suites/panum-fgsm.yaml")),
    ("panum-cw", include_str!("../../suites/panum-cw.yaml")),
    ("adml", include_str!("../../suites/adml.yaml")),
    ("geometry", include_str!("../../suites/geometry.yaml")),
    ("hub", include_str!("../../suites/hub.yaml")),
    ("targets", include_str!("../../suites/targets.yaml")),
    ("universal", include_str!("../../suites/universal.yaml")),
    ("corruptions", include_str!("../../suites/corruptions.yaml")),
    ("faces", include_str!("../../suites/faces.yaml")),
    ("threshold", include_str!("../../suites/threshold.yaml")),
    ("minimum", include_str!("../../suites/minimum.yaml")),
    ("minimum-l2", include_str!("../../suites/minimum-l2.yaml")),
    ("minimum-cw", include_str!("../../suites/minimum-cw.yaml")),
    ("minimum-target", include_str!("../../suites/minimum-target.yaml")),
];

/// Attacks and benchmarks by the names of other tools, and the built-in suite that comes nearest. A name may
/// go on, as in `pgd-20`.
const ELSEWHERE: [(&str, &str); 14] = [
    ("autoattack", "robust"),
    ("auto-attack", "robust"),
    ("apgd", "robust"),
    ("pgd", "ars"),
    ("bim", "ars"),
    ("fgsm", "panum-fgsm"),
    ("cw", "minimum-cw"),
    ("carlini", "minimum-cw"),
    ("deepfool", "minimum"),
    ("blackbox", "square"),
    ("black-box", "square"),
    ("uap", "universal"),
    ("imagenet-c", "corruptions"),
    ("lfw", "faces"),
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
            let plain = name.to_lowercase().replace('_', "-");
            let nearest = match ELSEWHERE.iter().find(|(other, _)| plain.starts_with(other)) {
                Some((_, suite)) => format!(": `{suite}` comes nearest"),
                None => did_you_mean(name, &BUILT_IN.map(|(n, _)| n)),
            };
            return Err(Error::usage(format!(
                "unknown suite `{name}`{nearest}. `audit suites` describes all; a suite of your own is a .yaml file"
            )));
        }
        let yaml = files::read_text(path, files::BY_HAND).map_err(|e| {
            Error::usage(format!("can't read the suite {name}: {e} (`audit suites` lists the built-in ones)"))
        })?;
        Suite::parse(name, &yaml)
    }

    /// Whether the report of an audit with this suite contains `quantity`.
    pub fn gives(&self, quantity: &Quantity) -> bool {
        match quantity.needs {
            // The strong search attacks a sample beside every suite, unless it is off.
            Needs::Nothing => true,
            Needs::Score(score) => self.scores.contains(&score),
            Needs::Ladder => self.ladder.is_some(),
            Needs::Smallest => self.objectives().any(|objective| objective.smallest.is_some()),
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

//! The suite of a request, with what flags override, and for images without classes.

use super::conflicts::refuse;
use crate::data::Dataset;
use crate::facts::protocols::parse_size;
use crate::feature::{corruption, verification};
use crate::record::Space;
use crate::request::{Request, Sample};
use crate::suite::{self, Alpha, Suite, SuiteAttack};
use crate::threat::objective::top1::TOP1;
use crate::threat::{Ball, Mask};
use crate::{Error, Result};

/// The suite, with what flags override.
pub(super) fn settle_suite(request: &Request) -> Result<Suite> {
    let suite = bounded(Suite::load(&request.attack.suite)?, request)?;
    let Request { attack, queries, .. } = request;
    let share = |flag: &str, text: &Option<String>| {
        text.as_ref().map(|t| parse_size(t, suite.ball).map_err(|e| e.context(flag))).transpose()
    };
    let (eps, alpha) = (share("--eps", &attack.eps)?, share("--alpha", &attack.alpha)?);
    if attack.alpha.is_some() && !suite.search.takes_alpha {
        return Err(Error::usage(format!(
            "--alpha is a fixed step size, and suite {} finds its own. Leave it out, or take a suite of fixed steps",
            suite.name
        )));
    }
    for (flag, count, most) in
        [("--steps", attack.steps, suite::MOST_STEPS), ("--max-queries", queries.most, usize::MAX)]
    {
        let checked = suite::between(count.unwrap_or(1), 1, most);
        checked.map_err(|why| Error::usage(format!("{flag} {why}")))?;
    }
    let own = [("--steps", attack.steps.is_some()), ("--alpha", attack.alpha.is_some())];
    if let Some((flag, _)) = own.iter().find(|(_, given)| *given && suite.searches_strongly_alone()) {
        return Err(Error::usage(format!(
            "{flag}: suite {} runs the strong search, whose members have their own steps. Leave {flag} out, or take a suite of \
             one search, such as --suite ars",
            suite.name
        )));
    }
    if queries.strong.is_some() && suite.has_robust_r1() {
        return Err(Error::usage(format!(
            "--strong-sample: suite {} runs the strong search on all queries that it attacks. Leave the flag out, and state \
             their number by --max-queries",
            suite.name
        )));
    }
    let suite = Suite {
        eps: eps.or(suite.eps),
        alpha: alpha.map(Alpha::Size).or(suite.alpha),
        steps: attack.steps.or(suite.steps),
        max_queries: queries.most.or(suite.max_queries),
        hub_class: attack.hub_class.clone().or(suite.hub_class),
        form: attack.form.unwrap_or(suite.form),
        ..suite
    };
    refuse_in_file_space(request, &suite)?;
    suite::check_hub_class(&suite.hub_class, &suite.attacks)?;
    let threshold = attack.threshold.or(suite.threshold);
    let threshold = verification::threshold(threshold, suite.objectives())?;
    Ok(Suite { threshold, protocol: attack.protocol.unwrap_or(suite.protocol), ..suite })
}

/// Refuses settings that attacks on files don't support (exit code 2).
fn refuse_in_file_space(request: &Request, suite: &Suite) -> Result<()> {
    if suite.space == Space::Input {
        return match suite.jpeg {
            None => Ok(()),
            Some(_) => Err(Error::usage(
                "--jpeg is about changed files, and this audit changes the model's input. Add --space file",
            )),
        };
    }
    let shares = suite.objectives().find(|objective| objective.shared.is_some());
    let corrupts = corruption::beside_files(&suite.name, &suite.corruptions);
    let refused = [
        (
            !suite.ball.is_box,
            format!("ε counts grey levels there, and {} is a length. Take --norm linf", suite.ball.name),
        ),
        (
            suite.eps.is_some_and(|eps| eps * 255.0 < 0.999),
            "a file changes by whole grey levels, and ε is below one. Give --eps 1/255 or more".into(),
        ),
        (
            shares.is_some(),
            format!(
                "{} is one perturbation for all images, and photographs have different sizes. Take --space input",
                shares.map_or("", |objective| objective.code)
            ),
        ),
        (corrupts.is_some(), corrupts.unwrap_or_default()),
        (
            request.attack.surrogate.is_some(),
            "attacks on files are made on the audited model. Leave --surrogate out".into(),
        ),
    ];
    refuse("--space file", refused)
}

/// Refuses a suite whose attacks change files, for a command that needs them at the model's input. `why` says
/// so (exit code 2).
pub fn refuse_file_space(suite: &Suite, why: &str) -> Result<()> {
    match suite.space {
        Space::Input => Ok(()),
        Space::File => Err(Error::usage(format!(
            "suite {} changes files (`space: file`), and {why}. Choose another suite",
            suite.name
        ))),
    }
}

/// The suite with norm, mask and space of the flags. The suite's sizes are for its own norm and mask, and
/// don't apply to others.
fn bounded(suite: Suite, request: &Request) -> Result<Suite> {
    let attack = &request.attack;
    let ball = attack.norm.as_deref().map(Ball::find).transpose().map_err(|e| e.context("--norm"))?;
    let patch = attack.patch.as_deref().map(suite::parse_patch).transpose();
    let patch = patch.map_err(|e| e.context("--patch"))?;
    let file = attack.mask.as_deref().map(Mask::read).transpose().map_err(|e| e.context("--mask"))?;
    let (ball, mask) = (ball.unwrap_or(suite.ball), file.or(patch));
    let (eps, alpha) = match ball != suite.ball || mask.is_some() {
        true => (None, suite.alpha.filter(|alpha| matches!(alpha, Alpha::Share(_)))),
        false => (suite.eps, suite.alpha),
    };
    if eps.is_none() && attack.eps.is_none() && !ball.is_box {
        return Err(Error::usage(format!(
            "suite {} has no ε in the norm {}: state --eps too, such as --eps 2.0",
            suite.name, ball.name
        )));
    }
    let (mask, space) = (mask.or(suite.mask), attack.space.unwrap_or(suite.space));
    Ok(Suite { ball, mask, space, jpeg: attack.jpeg, eps, alpha, ..suite })
}

/// The suite for images without classes: the model's result for the clean image replaces the class. Errors
/// (exit code 2): an attack, or another setting, needs classes.
pub fn without_classes(request: &Request, suite: Suite, dataset: &Dataset) -> Result<Suite> {
    let source = &dataset.source;
    let refused = |why: &str| Err(Error::usage(format!("{source}: the images have no classes, and {why}")));
    if let Some(entry) = suite.attacks.iter().find(|entry| !entry.objective.strong_only) {
        return refused(&format!(
            "{} of suite {} needs them. --suite robust does without; else give each class a folder, or a list with the columns path and label",
            entry.objective.code, suite.name
        ));
    }
    if request.queries.sample == Sample::Correct {
        return refused("--sample correct is about queries that find their class: leave it out");
    }
    if request.attack.surrogate.is_some() {
        return refused("attacks by --surrogate need them: leave it out");
    }
    if let Some(why) = corruption::without_classes(&suite.corruptions) {
        return refused(why);
    }
    let first = suite.attacks.into_iter().next();
    let attacks = first.map(|entry| SuiteAttack { objective: &TOP1, ..entry }).into_iter().collect();
    Ok(Suite { attacks, ..suite })
}

/// Refuses attacks that are only for images without classes (exit code 2).
pub fn with_classes(suite: Suite) -> Result<Suite> {
    match suite.attacks.iter().any(|entry| entry.objective.code == TOP1.code) {
        true => Err(Error::usage(format!(
            "suite {} lists {}, which is for images without classes. Add --labels none, or list R1 instead",
            suite.name, TOP1.code
        ))),
        false => Ok(suite),
    }
}

//! The gate's rules and its baseline, as far as they are known before the attacks.

use super::files::SAVE_BASELINE;
use crate::data::BUILTIN_SOURCE;
use crate::facts::Facts;
use crate::judge::gate::Rules;
use crate::judge::quantity::{Needs, Quantity, ROBUST};
use crate::record::Report;
use crate::report::Destination;
use crate::request::{Request, StrongSample};
use crate::suite::Suite;
use crate::{Error, Result};
use std::path::Path;

/// Reads the file of `--baseline`. Errors (exit code 2): it is missing or no report.
pub(super) fn load_baseline(path: &Path) -> Result<Report> {
    Report::load(path).map_err(|e| match path.exists() {
        true => e,
        false => {
            let first =
                format!("{SAVE_BASELINE} {} in place of --baseline makes the first one", path.display());
            Error { message: format!("{}. {first}", e.message), ..e }
        }
    })
}

/// Refuses a baseline on images of the user if the audit has no `--data` (exit code 2).
pub(super) fn refuse_without_data(request: &Request, baseline: &Report) -> Result<()> {
    let source = &baseline.data.source;
    if request.images.data.is_some() || source.contains(BUILTIN_SOURCE) {
        return Ok(());
    }
    let data = Path::new(source).exists().then(|| vec!["--data".to_string(), source.clone()]);
    Err(Error::usage(format!(
        "--data is missing: the baseline is of the images {source}, and without --data this audit takes generated ones"
    ))
    .lacking(data))
}

/// Claims the file of `--save-baseline`. Errors (exit code 2): the extension is not .json; those of
/// [`Destination::open`].
pub(super) fn open_baseline(path: &Path) -> Result<Destination> {
    match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
        true => Destination::open(SAVE_BASELINE, path),
        false => Err(Error::usage(format!(
            "{SAVE_BASELINE} {}: a baseline is a report in JSON. Name a file that ends in .json",
            path.display()
        ))),
    }
}

/// Rules of the gate. A metric that the audit won't measure is refused before the work.
pub(super) fn settle_rules(request: &Request, suite: &Suite) -> Result<Rules> {
    let demands = &request.gate;
    let rules = Rules::settle(&suite.gate, &demands.fail_under, &demands.fail_over, &demands.max_drop)?;
    if let Some(metric) = rules.metrics().find(|m| !suite.gives(m)) {
        return Err(Error::usage(format!(
            "the gate has a rule for `{}`, which suite {} doesn't measure. Choose another suite, or remove the rule",
            metric.name, suite.name
        )));
    }
    let off = request.queries.strong == Some(StrongSample::Off) && !suite.has_robust_r1();
    if off && rules.metrics().any(|metric| metric.whole() == ROBUST) {
        return Err(Error::usage(
            "the gate has a rule for `robust_r1`, but with --strong-sample off the strong search attacks no query. Leave one of the two out",
        ));
    }
    if !demands.max_drop.is_empty() && demands.baseline.is_none() {
        return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
    }
    Ok(rules)
}

/// Refuses gates on a part: the gate judges the numbers of a whole run.
pub(super) fn refuse_partial_gate(request: &Request) -> Result<()> {
    let demands = &request.gate;
    let judge = "use it in `audit gate` on the report of `audit merge`";
    // `audit gate` saves no baseline.
    let save = "take the report of `audit merge` as the baseline";
    let whole = [
        ("--fail-under", !demands.fail_under.is_empty(), judge),
        ("--fail-over", !demands.fail_over.is_empty(), judge),
        ("--max-drop", !demands.max_drop.is_empty(), judge),
        (SAVE_BASELINE, request.output.baseline.is_some(), save),
    ];
    match whole.iter().find(|(_, given, _)| *given && request.run.partition.is_some()) {
        Some((flag, _, instead)) => Err(Error::usage(format!(
            "{flag} is about a whole run, and --partition runs a part. Leave it out here, and {instead}"
        ))),
        None => Ok(()),
    }
}

/// Refuses demands on numbers that images with classes, or without, don't have (exit code 2).
pub fn refuse_beside_classes(rules: &Rules, has_classes: bool) -> Result<()> {
    let lacking = rules.metrics().find_map(|metric| Some((metric, metric.whole().beside(has_classes)?)));
    lacking.map_or(Ok(()), |(metric, why)| {
        let instead = if has_classes { "" } else { ". Demand robust_top1 or eps50" };
        Err(Error::usage(format!(
            "the gate has a rule for `{}`, which this audit can't measure: {why}{instead}",
            metric.name
        )))
    })
}

/// Refuses an audit that won't measure what the gate compares with the baseline (exit code 2).
pub fn refuse_unmeasured_drops(
    rules: &Rules,
    baseline: &Report,
    suite: &Suite,
    planned: &Report,
) -> Result<()> {
    let strong = |code: &str| Facts::find(code).is_ok_and(|of| of.strong_only);
    let skipped = || planned.skipped.iter().any(|s| strong(&s.attack));
    let searched = planned.trials.attacks.keys().any(|code| strong(code)) || skipped();
    let measured = |metric: &'static Quantity| {
        let of_search = metric.whole().is_robust() || matches!(metric.needs, Needs::Ladder);
        suite.gives(metric) && (searched || !of_search)
    };
    match rules.compared(baseline).into_iter().find(|&metric| !measured(metric)) {
        None => Ok(()),
        Some(metric) => Err(Error::usage(format!(
            "the gate compares `{}` with the baseline, and this audit doesn't measure it. Take the suite and \
             --strong-sample of the baseline, or switch it off in the suite's gate: {{ {}: {{ level: off }} }}",
            metric.name, metric.name
        ))),
    }
}

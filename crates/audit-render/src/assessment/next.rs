//! What to do next. Each command can be pasted and run; a step that needs another program, or files that are
//! not there yet, is a sentence.

use super::{Standing, far_above};
use crate::again::Again;
use crate::escape::shell;
use audit_base::Result;
use audit_report::judge::quantity::ROBUST;
use audit_report::judge::row::masked;
use audit_report::record::{Report, State, reason};

/// Queries of a further audit that measures more than a report did.
const MORE: usize = 200;
/// Queries of a search for the smallest changes, which takes hundreds of steps for each.
const SMALLEST: usize = 50;
/// A step of several verdicts.
const DISTRUST: &str = "Run all checks for reasons to distrust the numbers";

/// A step: a sentence, and the command that does it.
pub(super) type NextStep = (String, Option<String>);

fn say(text: &str) -> NextStep {
    (text.into(), None)
}

/// A step with its command. A report without the command line of its audit has none, so that the sentence
/// names the command, or the flag.
fn offer(text: &str, name: &str, command: Option<String>) -> NextStep {
    match command {
        Some(_) => (text.into(), command),
        None => say(&format!("{text} (`{name}`)")),
    }
}

fn all_checks(text: &str, again: &Option<Again>) -> NextStep {
    offer(text, "audit doctor", again.as_ref().map(Again::doctor))
}

/// The steps after a verdict. Errors: the protocols can't be read.
pub(super) fn next_steps(report: &Report, standing: Standing, own: bool) -> Result<Vec<NextStep>> {
    let again = &mut Again::of(report, own);
    let mut steps = correct_input(report, again);
    steps.extend(match standing {
        Standing::Void => vec![
            say("Correct what is marked ERROR below, and audit again"),
            all_checks("Run all checks to find the cause", again),
        ],
        Standing::Open if report.part.is_some() => {
            vec![say("Combine the parts: `audit merge` takes the reports of all, as JSON")]
        }
        // The suite is about decisions, and a list of pairs does not identify every image.
        Standing::Open | Standing::Between if report.verification.is_some() || report.lists_pairs() => {
            attack_more_decisions(report, again)
        }
        Standing::Open | Standing::Between => decide(report, standing, again)?,
        Standing::Falls => harden(report, again),
        Standing::Stands => refute(report, again)?,
    });
    if has(report, &reason::BUILT_IN_DATA) {
        steps.push(say("Audit on your own images: add `--data` and a folder with one folder for each class"));
    }
    Ok(steps)
}

fn has(report: &Report, of: &reason::Reason) -> bool {
    report.warnings.iter().any(|w| of.made(w) && w.state == State::Failed)
}

/// Steps if the numbers may be of something else than was meant.
fn correct_input(report: &Report, again: &mut Option<Again>) -> Vec<NextStep> {
    let mut steps = Vec::new();
    if masked(report) {
        steps.push(say("Audit the model without the layer that masks its gradient"));
    }
    // A part of a run has no conclusion yet.
    if report.part.is_some() {
        return steps;
    }
    if has(report, &reason::CLASS_SCORES) {
        steps.push(match &report.model.before_classifier {
            Some(name) => offer(
                "The output looks like class scores, not an embedding. Audit the value before the classifier",
                "--output",
                again.as_mut().map(|again| again.of_value(name)),
            ),
            None => say(
                "The output looks like class scores or boxes, not an embedding: `class-scores` below says what to audit",
            ),
        });
    }
    if has(report, &reason::PREPROCESSING_ASSUMED) {
        let text = "State the preprocessing in a model card; here it was assumed. This writes a draft";
        let inspect = again.as_ref().map(|again| again.inspect(true));
        steps.push(offer(text, "audit inspect --write-card", inspect));
    } else if has(report, &reason::PREPROCESSING_DOUBTFUL) || has(report, &reason::COLLAPSE) {
        let text = "Check the preprocessing: it may differ from the model's. This shows it";
        steps.push(offer(text, "audit inspect", again.as_ref().map(|again| again.inspect(false))));
    }
    steps
}

fn attack_more_decisions(report: &Report, again: &mut Option<Again>) -> Vec<NextStep> {
    let more = report.suite.sampling.is_some().then(|| {
        let most = MORE.max(2 * report.suite.queries);
        let pairs = again.as_mut().map(|again| again.on_more(most, "pairs"));
        offer("Attack more decisions than here", "--max-queries", pairs)
    });
    more.into_iter().chain([all_checks(DISTRUST, again)]).collect()
}

fn strongly_attacked(report: &Report) -> usize {
    report.scores.robust().map_or(0, |robust| robust.queries)
}

/// The number of all queries; `None` in reports of versions without separate queries, which have 0 of them.
fn all_queries(report: &Report) -> Option<usize> {
    Some(report.data.queries).filter(|queries| *queries > 0)
}

/// Whether the strong search left out queries.
fn queries_left(report: &Report) -> bool {
    let nothing = report.benign.as_ref().map_or(0, |benign| benign.without_positive);
    all_queries(report).is_none_or(|all| strongly_attacked(report) + nothing < all)
}

fn decide(report: &Report, standing: Standing, again: &mut Option<Again>) -> Result<Vec<NextStep>> {
    let mut steps = Vec::new();
    // An ε at which robust R@1 is no verdict is not repeated.
    let searched_far = report.smallest.is_some() && report.suite.mask.is_none();
    let usual = standing == Standing::Open && (searched_far || far_above(&report.suite).is_some());
    if usual || queries_left(report) {
        let attacked = strongly_attacked(report);
        let text = match (usual, attacked) {
            (true, _) => "Run the strong search at the protocol's ε",
            (false, 0) => "Run the strong search",
            (false, _) => "Run the strong search on more queries than here",
        };
        let more = MORE.max(2 * attacked).min(all_queries(report).unwrap_or(usize::MAX));
        let strong = again.as_mut().map(|again| again.strong(more, usual)).transpose()?;
        steps.push(offer(text, "--suite robust", strong));
    }
    // The doctor's checks need classes.
    if report.data.has_classes() {
        steps.push(all_checks(DISTRUST, again));
    }
    Ok(steps)
}

fn harden(report: &Report, again: &mut Option<Again>) -> Vec<NextStep> {
    let mut steps = vec![
        say(
            "If you have training data, harden the model by adversarial training. The trainer, audit-train, is built apart from this \
             program: docs/training.md in its repository",
        ),
        (compared(again.as_ref()), None),
    ];
    if report.smallest.is_none() && report.suite.ladder.is_none() && !report.lists_pairs() {
        let smallest = again.as_mut().and_then(|again| again.smallest(SMALLEST));
        steps.push(offer("Measure how small a change breaks a query", "--suite robust", smallest));
    }
    steps.push(say("Until then: a table below lists the weakest classes and queries"));
    steps
}

/// Steps that try to refute a good verdict, and one that holds later versions to it.
fn refute(report: &Report, again: &mut Option<Again>) -> Result<Vec<NextStep>> {
    let mut steps = vec![all_checks("Try to refute this verdict: all checks, and other attacks", again)];
    if queries_left(report) {
        // The suite's own number is 100.
        let all = all_queries(report).unwrap_or(report.data.images);
        let strong = again.as_mut().map(|again| again.strong(all, false)).transpose()?;
        steps.push(offer("Attack every query with the strong search", "--suite robust", strong));
    }
    if let Some((low, _)) = ROBUST.row(report).interval {
        let gated = again.as_ref().map(|again| again.gated(low.floor()));
        steps.push(offer("Hold later versions to this result with a gate", "--fail-under", gated));
    }
    Ok(steps)
}

/// The step to another model, for those who can't train this one too.
fn compared(again: Option<&Again>) -> String {
    let saved = again.and_then(Again::saved);
    let report = saved.unwrap_or("report.json");
    let audit = match again {
        Some(again) => format!(": `{}`", again.other(report)),
        None => format!(" with the flags of this audit and `--trials {report}`"),
    };
    let written =
        if saved.is_some() { "" } else { ". report.json is this report, written by `-o report.json`" };
    format!(
        "If you can't train it, look for a more robust model. Audit the other model, or the hardened one, on the same queries{audit}. Then \
         compare both: `audit compare {} other.json`{written}",
        shell(report)
    )
}

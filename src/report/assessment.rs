//! What a report comes to, in words: a verdict, what published models have, and what to do next.
//!
//! A verdict rests on robust R@1, which is an upper bound: that a model falls is shown by the images that make it fall, that it
//! stands is only as sure as the search is strong. So no verdict is good without the strong search, or where gradients were
//! estimated or another model's, or attacks had less room than those on the published models. Its border is what ES leaves of the R@1 of the weakest published defence.

use super::escape::shell;
use super::first::masked;
use super::shown::bound;
use crate::Result;
use crate::judge::published::{PUBLISHED_EPS, SPANS_FROM, Span, Spans, spans};
use crate::judge::quantity::{ARS, Quantity};
use crate::judge::strong;
use crate::record::{FEW, Report, RobustR1, Suite, reason};
use crate::threat::Ball;

/// What a report comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The numbers mean nothing.
    Void,
    /// Too little was measured.
    Open,
    /// Attacks leave less than they leave of the weakest published defence.
    Falls,
    /// On neither side of that border.
    Between,
    /// The strong search leaves more.
    Stands,
}

/// The verdict.
pub struct Assessment {
    /// What the report comes to.
    pub standing: Standing,
    /// The verdict in a sentence without a full stop.
    pub headline: String,
    /// What it rests on, in sentences.
    pub reasons: Vec<String>,
    /// What to do next: a sentence, and the command that does it.
    pub next: Vec<(String, Option<String>)>,
}

/// A row of the table of references: whose numbers they are, clean R@1, ARS, and R@1 under attack.
pub type ReferenceRow = (String, [String; 3]);

/// The verdict on a report. Errors: the published rows can't be read.
pub fn assess(report: &Report) -> Result<Assessment> {
    let spans = spans()?;
    let (standing, headline, mut reasons) = stand(report, &spans);
    if masked(report) {
        reasons.push("The model hides its gradient, so that scores of attacks along it mean nothing".into());
    }
    Ok(Assessment { standing, headline, reasons, next: next(report, standing) })
}

/// The verdict where numbers mean something. Where they don't, the alarm says so and why. Errors: as [`assess`].
pub fn beside_alarm(report: &Report) -> Result<Option<Assessment>> {
    let found = assess(report)?;
    Ok((found.standing != Standing::Void).then_some(found))
}

/// The model beside published ones, and what the published numbers are.
pub fn references(report: &Report) -> Result<(Vec<ReferenceRow>, String)> {
    let Spans { plain, defended } = spans()?;
    let shown = |q: Quantity| {
        let value = q.value(report).filter(|_| !q.void(report) && !q.withheld(report));
        value.map(|v| q.show(v))
    };
    let clean = format!("{:.1}", report.benign.r1);
    let dash = |text: Option<String>| text.unwrap_or("–".into());
    let robust = shown(Quantity::Robust).map(|robust| format!("{robust} (strong search)"));
    let row = |name: &str, span: Span| {
        let range = |[low, high]: [f64; 2]| match low == high {
            true => format!("{low:.1}"),
            false => format!("{low:.1} – {high:.1}"),
        };
        (name.to_string(), [range(span.clean), range(span.ars), format!("{} (ES)", range(span.after))])
    };
    let rows = vec![
        (report.model_name().to_string(), [clean, dash(shown(ARS)), dash(robust)]),
        row("published defences", defended),
        row("plain models, published", plain),
    ];
    let note = format!(
        "Published: {SPANS_FROM}. This report: {} images, ε {}. Numbers of other images or another ε are a rough guide, and ES is one \
         attack of the many in the strong search",
        report.data.images,
        bound(&report.suite)
    );
    Ok((rows, note))
}

fn stand(report: &Report, spans: &Spans) -> (Standing, String, Vec<String>) {
    if let Some(part) = &report.part {
        let headline = format!("No verdict: this is part {} of a run", part.partition);
        return (Standing::Open, headline, vec!["`audit merge` puts the parts together".into()]);
    }
    if report.errors().any(|w| !reason::MASKED_GRADIENTS.made(w)) {
        let headline = "No verdict: the numbers mean nothing".into();
        return (Standing::Void, headline, Vec::new());
    }
    match &report.scores.robust_r1 {
        None if of_list(report) => {
            let headline = "No verdict: a list of pairs has no robust R@1, by which verdicts are made".into();
            let read =
                "Read below how many decisions were wrong without attack, and how many after it".into();
            (Standing::Open, headline, [read].into_iter().chain(report.caveat()).collect())
        }
        Some(robust) => by_robust(report, robust, spans),
        None => by_ars(report, spans),
    }
}

/// The verdict by robust R@1: the share of the right queries that stay right, with its interval, against the border.
fn by_robust(report: &Report, robust: &RobustR1, spans: &Spans) -> (Standing, String, Vec<String>) {
    let count = |share: f64| (share * robust.queries as f64 / 100.0).round() as usize;
    let (right, left) = (count(robust.clean), count(robust.value));
    if right < FEW {
        let headline = format!("No verdict: only {right} queries are right without attack");
        let why = format!(
            "A verdict needs {FEW}: a query that is wrong without attack has nothing to lose, and {} were tried",
            robust.queries
        );
        return (Standing::Open, headline, vec![why]);
    }
    let (low, high) = strong::wilson(left, right);
    let [weakest, best] = spans.defended.kept;
    let mut reasons = vec![format!(
        "The strong search within ε {} leaves {:.1} % of R@1 (95 % {low:.1} – {high:.1}). ES, one attack, leaves published defences \
         {weakest:.1} to {best:.1} % and plain models {:.1} %",
        bound(&report.suite),
        100.0 * left as f64 / right as f64,
        spans.plain.kept[1]
    )];
    if let Some(score) = ARS.value(report)
        && strong::refuted(report, ARS).is_some()
        && !ARS.void(report)
    {
        reasons.push(format!(
            "ARS, {score:.1}, says more than that: the attacks behind it are weaker than the strong search"
        ));
    }
    let caveat = report.caveat().or_else(|| smaller(&report.suite));
    let standing = match () {
        () if high < weakest => Standing::Falls,
        () if low > weakest && caveat.is_none() => Standing::Stands,
        () => Standing::Between,
    };
    let headline = match standing {
        Standing::Falls => {
            format!("Not robust: {} of {right} queries that were right are made wrong", right - left)
        }
        Standing::Stands => format!("{left} of {right} queries stay right, whatever was tried"),
        _ => format!("Neither broken nor robust: {left} of {right} queries stay right"),
    };
    if standing != Standing::Falls {
        reasons.push("This is an upper bound: a better attack may lower it".into());
    }
    if standing == Standing::Between && (low..=high).contains(&weakest) {
        reasons.push("The interval spans the border, so that more queries would tell".into());
    }
    reasons.extend(caveat);
    (standing, headline, reasons)
}

/// What makes attacks weaker than those on the published models: a smaller part of the image or of ε.
fn smaller(suite: &Suite) -> Option<String> {
    let ball = Ball::find(&suite.norm).ok().filter(|ball| ball.is_box);
    match &suite.mask {
        Some(mask) => Some(format!("Published models were attacked on the whole image, this one on {mask}")),
        None if ball.is_none() => Some("Published models were attacked in another norm".into()),
        None if suite.eps < PUBLISHED_EPS => {
            Some("Published models were attacked with ε 8/255, this one with less".into())
        }
        None => None,
    }
}

/// The verdict by ARS, where the strong search was not run. Attacks that succeed are evidence, those that fail are not.
fn by_ars(report: &Report, spans: &Spans) -> (Standing, String, Vec<String>) {
    let [weakest, best] = spans.defended.ars;
    let found =
        ARS.value(report).filter(|_| !ARS.withheld(report)).and_then(|v| Some((v, ARS.interval(report)?)));
    let Some((value, (low, high))) = found else {
        let headline = "No verdict: neither robust R@1 nor ARS was measured well enough".into();
        return (Standing::Open, headline, report.caveat().into_iter().collect());
    };
    let range =
        format!("ARS is {value:.1} (95 % {low:.1} – {high:.1}); published defences have {weakest} to {best}");
    let mut reasons = vec![range];
    reasons.extend(report.caveat());
    if high < weakest {
        return (
            Standing::Falls,
            "Not robust: the attacks of the suite get most of what they want".into(),
            reasons,
        );
    }
    reasons.push("A score of attacks that fail says little until stronger ones were tried".into());
    (Standing::Open, "No verdict yet: no strong search was run".into(), reasons)
}

/// The suite that commands take where none is named.
const USUAL: &str = "ars";

/// Whether its images came as a list of pairs, which doesn't say who is on each of them, so that R@1 says little.
fn of_list(report: &Report) -> bool {
    report.verification.as_ref().is_some_and(|found| found.listed)
}

/// What to do next.
fn next(report: &Report, standing: Standing) -> Vec<(String, Option<String>)> {
    let model = shell(&report.model.path);
    let built_in = report.warnings.iter().any(|w| reason::BUILT_IN_DATA.made(w));
    let data = match of_list(report) {
        true => " --data PAIRS",
        false if built_in => "",
        false => " --data FOLDER",
    };
    // The doctor looks into the attacks of a suite. One of the user's own has no name that the program knows.
    let suite = Some(&report.suite.name).filter(|name| crate::suite::Suite::knows(name) && *name != USUAL);
    let suite = suite.map_or(String::new(), |name| format!(" --suite {name}"));
    let has = |of: &reason::Reason| report.warnings.iter().any(|w| of.made(w));
    let mut steps: Vec<(String, Option<String>)> = Vec::new();
    let mut step = |text: &str, command: Option<String>| steps.push((text.into(), command));
    let doctor = Some(format!("audit doctor{suite} {model}{data}"));
    let strong = |more: &str| Some(format!("audit --suite strong {model}{data}{more} -o strong.html"));
    match standing {
        Standing::Void => {
            step("Mend what is named below as ERROR, and audit again", None);
            step("Let every check look for the cause", doctor);
        }
        Standing::Open if report.part.is_some() => {
            step(
                "Put the parts together",
                Some("audit merge part*.json -o report.json -o report.html".into()),
            );
        }
        Standing::Open | Standing::Between if of_list(report) => {
            if report.suite.sampling.is_some() {
                let more = format!("audit{suite} {model}{data} --max-queries 200 -o pairs.html");
                step("Attack more pairs than here", Some(more));
            }
            step("Let every check look for reasons to distrust the numbers", doctor);
        }
        Standing::Open | Standing::Between => {
            step("Let the strong search decide, on more queries than here", strong(" --max-queries 200"));
            step("Let every check look for reasons to distrust the numbers", doctor);
        }
        Standing::Falls => {
            step(
                "Harden it: adversarial training on images of your own (docs/training.md)",
                Some("audit-train ca-tride --data FOLDER --out hardened.onnx".into()),
            );
            step(
                "Then make the same attacks on the hardened model, and compare",
                Some(format!("audit hardened.onnx{data} --trials report.json -o hardened.json")),
            );
            step("Until then: the classes and queries that fall first are in a table below", None);
        }
        Standing::Stands => {
            step("Try to prove it wrong: every check, and attacks of another kind", doctor);
            step("Attack every query by the strong search", strong(""));
            if let Some(robust) = &report.scores.robust_r1 {
                let least = robust.interval.0.floor();
                step(
                    "Hold later versions to it",
                    Some(format!("audit gate report.json --fail-under robust_r1={least}")),
                );
            }
        }
    }
    if masked(report) {
        step("Audit the model before what hides its gradient", None);
    }
    if has(&reason::PREPROCESSING_ASSUMED) {
        step(
            "State how images are prepared, in a card: here it was assumed",
            Some(format!("audit inspect {model} --write-card")),
        );
    }
    if built_in {
        step("Audit on images of your own: add --data FOLDER", None);
    }
    steps
}

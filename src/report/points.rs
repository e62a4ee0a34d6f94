//! What every format shows of the points of a sweep.

use super::shown::{Grid, RETRIEVAL, bound, median, retrieval_rows};
use crate::record::{Attack, Severity, SuiteRecord, Sweep, SweepPoint};
use crate::threat::BALLS;
use crate::threat::term::{TERMS, Term};

/// The terms that a point measured, in the order of reports.
pub(super) fn terms(sweep: &Sweep) -> Vec<&'static Term> {
    let measured = |t: &&Term| sweep.points.iter().any(|p| p.attacks.iter().any(|a| a.code == t.name));
    TERMS.iter().filter(measured).collect()
}

/// The row of a term at a point.
pub(super) fn row<'p>(point: &'p SweepPoint, term: &Term) -> Option<&'p Attack> {
    point.attacks.iter().find(|a| a.code == term.name)
}

/// A row for each point: its place, the scores, each term after the attack, and the median of the smallest perturbations where the
/// suite looks for them.
pub(super) fn table(sweep: &Sweep) -> Grid {
    let scores = scores(sweep).into_iter().map(|(name, _)| name);
    let terms = terms(sweep).into_iter().map(|t| t.name);
    let smallest = smallest(sweep).then_some("smallest ε, median");
    let axes = sweep.axes.iter().map(String::as_str);
    let head: Vec<&str> = axes.chain(scores).chain(terms).chain(smallest).collect();
    Grid::new(&head, &[], sweep.points.iter().map(|point| cells(sweep, point)))
}

fn cells(sweep: &Sweep, point: &SweepPoint) -> Vec<String> {
    let dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let scores = scores(sweep).into_iter().map(|(_, of)| dash(of(point).map(|v| format!("{v:.1}"))));
    let after = |t: &'static Term| dash(row(point, t).and_then(|a| a.after).map(|v| t.show(v)));
    let smallest = smallest(sweep).then(|| dash(point.smallest.as_ref().map(median)));
    let terms = terms(sweep).into_iter().map(after);
    point.at.iter().cloned().chain(scores).chain(terms).chain(smallest).collect()
}

/// Whether some point looked for the smallest perturbations.
fn smallest(sweep: &Sweep) -> bool {
    sweep.points.iter().any(|p| p.smallest.is_some())
}

/// What attacked queries find at each point; `None` where no attack moves queries.
pub(super) fn retrieval(sweep: &Sweep) -> Option<Grid> {
    let head: Vec<&str> = sweep.axes.iter().map(String::as_str).chain(RETRIEVAL).collect();
    let (mut rows, mut without_attack) = (Vec::new(), Vec::new());
    for point in &sweep.points {
        let (found, quiet) = retrieval_rows(&point.retrieval);
        without_attack.extend(quiet.iter().map(|row| rows.len() + row));
        rows.extend(found.into_iter().map(|cells| [point.at.clone(), cells].concat()));
    }
    (!rows.is_empty()).then(|| Grid::new(&head, &[], rows).set_back(without_attack))
}

/// A score by name, and where a point has it.
type ScoreColumn = (&'static str, fn(&SweepPoint) -> Option<f64>);

/// The scores that some point has.
fn scores(sweep: &Sweep) -> Vec<ScoreColumn> {
    let all: [ScoreColumn; 4] = [
        ("robust R@1", |p| p.scores.robust_r1.as_ref().map(|r| r.value)),
        ("ARS", |p| p.scores.ars.as_ref().map(|s| s.value)),
        ("ERS", |p| p.scores.ers.as_ref().map(|s| s.value)),
        ("ARS, strong", |p| p.scores.ars_strong.as_ref().map(|s| s.value)),
    ];
    all.into_iter().filter(|(_, of)| sweep.points.iter().any(|p| of(p).is_some())).collect()
}

/// What bounds perturbations where ε is an axis of the sweep; `None` for the largest change of any pixel.
fn bounded_by(suite: &SuiteRecord) -> Option<String> {
    let norm = (suite.norm != BALLS[0].name).then(|| format!("ε in {}", suite.norm));
    let mask = suite.mask.as_ref().map(|mask| format!("within {mask}"));
    Some([norm, mask].into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// What was swept, in a line.
pub(super) fn what(sweep: &Sweep) -> String {
    let Some(suite) = sweep.points.first().map(|p| &p.suite) else { return String::new() };
    let constant = |name: &str, text: String| (!sweep.axes.iter().any(|a| a == name)).then_some(text);
    let parts: Vec<String> = [
        constant("eps", format!("ε {}", bound(suite))).or_else(|| bounded_by(suite)),
        constant("steps", format!("{} steps", suite.steps)),
        Some(format!("α {:.5}", suite.alpha)),
        Some(suite.asked()),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!(
        "{} · {} images, {} classes · suite {} ({} form) over {} · {}",
        sweep.model.path,
        sweep.data.images,
        sweep.data.classes,
        suite.name,
        suite.form,
        sweep.axes.join(", "),
        parts.join(" · ")
    )
}

/// What takes the numbers of some points back: each finding of severity error once, with its points.
pub(super) fn alarms(sweep: &Sweep) -> Vec<String> {
    let of = |p: &SweepPoint| {
        let found: Vec<&str> =
            p.warnings.iter().filter(|w| w.severity == Severity::Error).map(|w| w.id.as_str()).collect();
        (!found.is_empty()).then(|| format!("{}: not to be trusted ({})", place(sweep, p), found.join(", ")))
    };
    sweep.points.iter().filter_map(of).collect()
}

/// The place of a point in words: `eps=8/255 steps=32`.
pub(super) fn place(sweep: &Sweep, point: &SweepPoint) -> String {
    let parts: Vec<String> = sweep.axes.iter().zip(&point.at).map(|(a, v)| format!("{a}={v}")).collect();
    parts.join(" ")
}

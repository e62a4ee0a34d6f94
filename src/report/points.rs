//! What every format shows of the points of a sweep.

use super::shown::{Grid, RETRIEVAL, bound, label_at, median, retrieval_rows};
use crate::record::{Attack, FEW, ScoreName, Severity, SuiteRecord, Sweep, SweepPoint};
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
    let scores: Vec<String> = scores.collect();
    let scores = scores.iter().map(String::as_str);
    let terms = terms(sweep).into_iter().map(|t| t.name);
    let smallest = smallest(sweep).then_some("smallest ε, median");
    let axes = sweep.axes.iter().map(String::as_str);
    let head: Vec<&str> = axes.chain(scores).chain(terms).chain(smallest).collect();
    Grid::new(&head, &[], sweep.points.iter().map(|point| cells(sweep, point)))
}

fn cells(sweep: &Sweep, point: &SweepPoint) -> Vec<String> {
    let dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let scores = scores(sweep).into_iter().map(|(_, of)| match of(point) {
        Some(Found::Value(value)) => format!("{value:.1}"),
        Some(Found::Withheld) => "withheld".into(),
        None => dash(None),
    });
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

/// A score of a point.
enum Found {
    Value(f64),
    /// It rests on too few queries, or its interval is too wide.
    Withheld,
}

/// A score by name, and where a point has it.
type ScoreColumn = (String, fn(&SweepPoint) -> Option<Found>);

/// The scores that some point has. Robust R@1 has its ε beside it: in its name, or in the column of the axis.
fn scores(sweep: &Sweep) -> Vec<ScoreColumn> {
    fn score(point: &SweepPoint, name: ScoreName) -> Option<Found> {
        let score = point.scores.get(name)?;
        Some(if score.withheld { Found::Withheld } else { Found::Value(score.value) })
    }
    fn robust(point: &SweepPoint) -> Option<Found> {
        let robust = point.scores.robust_r1.as_ref()?;
        Some(if robust.queries < FEW { Found::Withheld } else { Found::Value(robust.value) })
    }
    let budget = sweep.points.first().filter(|_| !along_eps(sweep)).map(|p| p.suite.budget());
    let all: [ScoreColumn; 4] = [
        (budget.map_or("robust R@1".into(), |budget| format!("robust R@1 at {budget}")), robust),
        ("ARS".into(), |p| score(p, ScoreName::Ars)),
        ("ERS".into(), |p| score(p, ScoreName::Ers)),
        ("ARS, strong".into(), |p| score(p, ScoreName::ArsStrong)),
    ];
    all.into_iter().filter(|(_, of)| sweep.points.iter().any(|p| of(p).is_some())).collect()
}

/// Whether ε is an axis of the sweep.
fn along_eps(sweep: &Sweep) -> bool {
    sweep.axes.iter().any(|axis| axis == "eps")
}

/// The label of a term's numbers in a sweep.
pub(super) fn label(sweep: &Sweep, term: &Term) -> String {
    let budget = sweep.points.first().filter(|_| !along_eps(sweep)).map(|p| p.suite.budget());
    label_at(term, budget.as_deref())
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

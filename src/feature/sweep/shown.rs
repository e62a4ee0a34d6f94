//! What every format shows of the points of a sweep.

use super::result::{Sweep, SweepPoint};
use super::{SEED, named};
use crate::facts::NORMS;
use crate::facts::term::{R1, Term};
use crate::judge::mean::Mean;
use crate::judge::quantity::{MEDIAN_EPS, Quantity, ROBUST};
use crate::judge::reading::{Reading, fewest};
use crate::judge::row::{DASH, Row, State};
use crate::record::{Attack, ScoreName, Severity, SuiteRecord, Verification, number_of_queries};
use crate::report::view::{
    Grid, RETRIEVAL, bound, in_proportion, label_at, median, retrieval_rows, scaled, strong_effort,
    takes_alpha,
};

/// The terms that a point measured, in the order of reports.
pub(super) fn terms(sweep: &Sweep) -> Vec<&'static Term> {
    let measured = |t: &&Term| sweep.points.iter().any(|p| p.attacks.iter().any(|a| a.code == t.name));
    Term::all().filter(measured).collect()
}

/// The terms that have a curve: robust R@1 first, which is the one to read.
pub(super) fn curves(sweep: &Sweep) -> Vec<&'static Term> {
    let (robust, others): (Vec<_>, Vec<_>) = terms(sweep).into_iter().partition(|term| **term == R1);
    let shown =
        |term: &&Term| sweep.points.iter().any(|p| after(p, term).is_some_and(|row| row.value.is_some()));
    robust.into_iter().chain(others).filter(shown).collect()
}

/// A term under attack at a point; `None` if it was not measured. That of the strong search is robust R@1: a
/// query is lost if any attack of the point makes it wrong.
pub(super) fn after(point: &SweepPoint, term: &Term) -> Option<Row> {
    match robust(point) {
        Some(robust) if *term == R1 => Some(robust),
        _ => Some(Quantity::after(term)?.row_of(Some(Reading::of_attack(row(point, term)?, term, None)?))),
    }
}

/// Robust R@1 at a point; `None` if it was not measured.
pub(super) fn robust(point: &SweepPoint) -> Option<Row> {
    point.scores.robust_r1.as_ref().map(|robust| ROBUST.row_of(Some(Reading::of_robust(robust))))
}

pub(super) fn row<'p>(point: &'p SweepPoint, term: &Term) -> Option<&'p Attack> {
    point.attacks.iter().find(|a| a.code == term.name)
}

/// The cell of a point; `None` if the point doesn't have it.
type Cell = dyn Fn(&SweepPoint) -> Option<String>;

/// A column of a table of points.
struct Column {
    name: String,
    cell: Box<Cell>,
}

/// A row for each point: its place, robust R@1 and the scores with their intervals, the threshold with its
/// error rates, and the step size if points differ in it; `None` if there is nothing of these. A number that
/// is invalid or unreliable says so. For searches for the smallest perturbations their median takes the place
/// of robust R@1, which says nothing at the largest ε that was searched.
pub(super) fn scores(sweep: &Sweep) -> Option<Grid> {
    let within = |p: &SweepPoint, row: Row| {
        let cell = match row.spread().filter(|_| row.state == State::Measured) {
            Some(spread) => format!("{} ({spread})", row.number()),
            None => row.cell(),
        };
        marked(cell, [p], row.quantity)
    };
    let column = |name: &'static str, of: ScoreName| {
        let score = Number::score(name, of);
        Column { name: name.into(), cell: Box::new(move |p| Some(within(p, (score.row)(p)?))) }
    };
    let decided = |name: &str, of: fn(&Verification) -> String| Column {
        name: name.into(),
        cell: Box::new(move |p| p.verification.as_ref().map(of)),
    };
    // Robust R@1 has its ε beside it: in its name, or in the column of the axis.
    let budget = sweep.points.first().filter(|_| !along_eps(sweep)).map(|p| p.suite.budget());
    let robust = Column {
        name: budget.map_or("robust R@1".into(), |budget| format!("robust R@1 at {budget}")),
        cell: Box::new(move |p| Some(within(p, robust(p).filter(|_| p.smallest.is_none())?))),
    };
    let threshold = decided("threshold", |found| bracketed(found.threshold, found.threshold_interval, 4));
    let far = decided("clean FAR, %", |found| bracketed(found.far, found.far_interval, 3));
    let tar = decided("clean TAR, %", |found| bracketed(found.tar, found.tar_interval, 1));
    let alpha = Column { name: "α".into(), cell: Box::new(|p| Some(format!("{:.5}", p.suite.alpha))) };
    let (ars, ers) = (column("ARS", ScoreName::Ars), column("ERS", ScoreName::Ers));
    let strong = column("ARS, strong", ScoreName::ArsStrong);
    let smallest = Column {
        name: "smallest ε, median".into(),
        cell: Box::new(|p| p.smallest.as_ref().map(|found| marked(median(found), [p], MEDIAN_EPS))),
    };
    let columns = vec![smallest, robust, ars, ers, strong, threshold, far, tar];
    grid(sweep, columns.into_iter().chain(alphas(sweep).then_some(alpha)).collect())
}

/// A value with its 95 % interval in brackets.
fn bracketed(value: f64, interval: Option<(f64, f64)>, digits: usize) -> String {
    let spread = interval.map_or(String::new(), |(low, high)| format!(" ({low:.digits$} – {high:.digits$})"));
    format!("{value:.digits$}{spread}")
}

/// A number of one point, or a mean over several, with what is known against it at any of them.
fn marked<'p>(cell: String, points: impl IntoIterator<Item = &'p SweepPoint>, of: &Quantity) -> String {
    match points.into_iter().find_map(|point| point.marks.get(of.name)) {
        Some(mark) => format!("{cell}, {}", mark.text()),
        None => cell,
    }
}

/// A row for each point: its place, and each term after the attack; `None` if there is none. Robust R@1 is
/// among the scores.
pub(super) fn table(sweep: &Sweep) -> Option<Grid> {
    let terms = terms(sweep).into_iter().filter(|term| **term != R1);
    let terms = terms.map(|term| Column {
        name: term.name.into(),
        cell: Box::new(move |p| Some(after(p, term)?.number())),
    });
    grid(sweep, terms.collect())
}

/// How a number is read off a point; `None` if the point doesn't have it.
type ReadRow = dyn Fn(&SweepPoint) -> Option<Row>;

/// A number that every point may have.
struct Number {
    name: &'static str,
    quantity: &'static Quantity,
    row: Box<ReadRow>,
}

impl Number {
    fn score(name: &'static str, of: ScoreName) -> Number {
        let row = move |p: &SweepPoint| {
            let queries = fewest(&p.attacks, None, of).unwrap_or(p.suite.queries);
            Some(Quantity::score(of).row_of(Some(Reading::of_score(&p.scores, of, queries)?)))
        };
        Number { name, quantity: Quantity::score(of), row: Box::new(row) }
    }

    /// Mean ± standard deviation over points; `None` if one of them lacks or withholds it.
    fn over(&self, points: &[&SweepPoint]) -> Option<String> {
        let values: Vec<f64> = points.iter().map(|p| (self.row)(p)?.value).collect::<Option<_>>()?;
        let Mean { value, error } = Mean::of(&values)?;
        let deviation = error * (values.len() as f64).sqrt();
        let shown = format!("{} ± {}", self.quantity.show(value), self.quantity.show(deviation));
        Some(marked(shown, points.iter().copied(), self.quantity))
    }
}

/// Points with the same values on all axes but one: these values, and the points.
pub(super) type SweepGroup<'s> = (Vec<String>, Vec<&'s SweepPoint>);

/// All points of a sweep, in groups that differ on one axis only.
pub(super) fn grouped(sweep: &Sweep, axis: usize) -> Vec<SweepGroup<'_>> {
    let mut groups: Vec<SweepGroup> = Vec::new();
    for point in &sweep.points {
        let mut at = point.at.clone();
        at.remove(axis);
        match groups.iter_mut().find(|(of, _)| *of == at) {
            Some((_, points)) => points.push(point),
            None => groups.push((at, vec![point])),
        }
    }
    groups
}

/// Mean ± standard deviation over the seeds, a row for each combination of the other settings; `None` without
/// several seeds.
pub(super) fn over_seeds(sweep: &Sweep) -> Option<Grid> {
    let groups = grouped(sweep, sweep.axes.iter().position(|axis| axis == SEED)?);
    if groups.iter().any(|(_, points)| points.len() < 2) {
        return None;
    }
    let mut numbers = vec![
        Number {
            name: "robust R@1",
            quantity: ROBUST,
            row: Box::new(|p| robust(p).filter(|_| p.smallest.is_none())),
        },
        Number::score("ARS", ScoreName::Ars),
        Number::score("ERS", ScoreName::Ers),
        Number::score("ARS, strong", ScoreName::ArsStrong),
    ];
    for term in terms(sweep).into_iter().filter(|term| **term != R1) {
        let quantity = Quantity::after(term)?;
        numbers.push(Number { name: term.name, quantity, row: Box::new(move |p| after(p, term)) });
    }
    numbers.retain(|number| groups.iter().any(|(_, points)| number.over(points).is_some()));
    let others = sweep.axes.iter().filter(|axis| *axis != SEED).map(String::as_str);
    let head: Vec<&str> = others.chain(["seeds"]).chain(numbers.iter().map(|number| number.name)).collect();
    let row = |(at, points): &SweepGroup| {
        let cells = numbers.iter().map(|number| number.over(points).unwrap_or_else(|| DASH.into()));
        at.iter().cloned().chain([points.len().to_string()]).chain(cells).collect()
    };
    (!numbers.is_empty()).then(|| Grid::new(&head, &[], groups.iter().map(row)))
}

/// The axes and those columns that some point has; `None` if no point has any.
fn grid(sweep: &Sweep, columns: Vec<Column>) -> Option<Grid> {
    let some = |column: &Column| sweep.points.iter().any(|p| (column.cell)(p).is_some());
    let columns: Vec<Column> = columns.into_iter().filter(some).collect();
    let head = sweep.axes.iter().map(String::as_str).chain(columns.iter().map(|column| column.name.as_str()));
    let row = |point: &SweepPoint| {
        let cells = columns.iter().map(|column| (column.cell)(point).unwrap_or_else(|| DASH.into()));
        point.at.iter().cloned().chain(cells).collect()
    };
    let head: Vec<&str> = head.collect();
    (!columns.is_empty()).then(|| Grid::new(&head, &[], sweep.points.iter().map(row)))
}

/// Whether steps have a size, and points have different ones.
fn alphas(sweep: &Sweep) -> bool {
    let size = |p: &SweepPoint| takes_alpha(&p.suite).then_some(p.suite.alpha);
    sweep.points.iter().any(|p| size(p).is_some() && size(p) != sweep.points.first().and_then(size))
}

/// Retrieval of attacked queries at each point; `None` if no attack moves queries.
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
    let norm = (suite.norm != NORMS[0].name).then(|| format!("ε in {}", suite.norm));
    let mask = suite.mask.as_ref().map(|mask| format!("within {mask}"));
    Some([norm, mask].into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Model, images, suite and grid, in a line.
pub(super) fn what(sweep: &Sweep) -> String {
    let Some(SweepPoint { suite, attacks, .. }) = sweep.points.first() else { return String::new() };
    let search = match strong_effort(suite, attacks) {
        Some(effort) => format!("strong search, effort {effort}"),
        None => format!("{} steps", suite.steps),
    };
    let constant = |name: &str, text: String| (!sweep.axes.iter().any(|a| a == name)).then_some(text);
    let parts: Vec<String> = [
        constant("eps", format!("ε {}", bound(suite))).or_else(|| bounded_by(suite)),
        constant("steps", search),
        steps(sweep, suite),
        Some(suite.queries_in_words()),
        attacked_strongly(sweep),
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

/// The step size of all points, or what it follows; `None` where the search has none.
fn steps(sweep: &Sweep, suite: &SuiteRecord) -> Option<String> {
    let from = sweep.points.iter().find_map(|p| p.suite.alpha_scaled_from);
    takes_alpha(suite).then(|| match (alphas(sweep), from) {
        (false, _) => format!("α {:.5}{}", suite.alpha, scaled(suite)),
        (true, Some(from)) => in_proportion(from),
        (true, None) => "α in proportion to ε".into(),
    })
}

/// How many queries the strong search attacked for robust R@1.
fn attacked_strongly(sweep: &Sweep) -> Option<String> {
    let mut counts: Vec<usize> =
        sweep.points.iter().filter_map(|p| Some(p.scores.robust_r1.as_ref()?.queries)).collect();
    counts.sort_unstable();
    counts.dedup();
    match counts[..] {
        [] => None,
        [one] => Some(format!("robust R@1 of {}", number_of_queries(one))),
        [least, .., most] => Some(format!("robust R@1 of {least} to {most} queries")),
    }
}

/// A finding, with the points that have it in the same words.
pub(super) struct SweepFinding<'s> {
    pub id: &'s str,
    pub severity: Severity,
    /// "note", "warning", "error" or "not checked".
    pub word: &'static str,
    pub text: &'s str,
    /// The points in words: "all points", or their places.
    pub places: Vec<String>,
}

impl SweepFinding<'_> {
    /// The points in one text.
    pub fn at(&self) -> String {
        self.places.join(", ")
    }
}

/// The findings of all points. Those of one reason are together, in the order of the first point that has it.
pub(super) fn findings(sweep: &Sweep) -> Vec<SweepFinding<'_>> {
    let mut found: Vec<SweepFinding> = Vec::new();
    for point in &sweep.points {
        for w in &point.warnings {
            let place = place(sweep, point);
            let word = w.word();
            let same = |f: &&mut SweepFinding| f.id == w.id && f.text == w.text && f.word == word;
            if let Some(known) = found.iter_mut().find(same) {
                known.places.push(place);
                continue;
            }
            let after = found.iter().rposition(|f| f.id == w.id).map_or(found.len(), |last| last + 1);
            let severity = w.severity;
            let one = SweepFinding { id: &w.id, severity, word, text: &w.text, places: vec![place] };
            found.insert(after, one);
        }
    }
    let all = sweep.points.len();
    for finding in found.iter_mut().filter(|f| all > 1 && f.places.len() == all) {
        finding.places = vec!["all points".into()];
    }
    found
}

/// Findings of severity error, each once, with the points that it invalidates.
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
    named(sweep.axes.iter().map(String::as_str), &point.at)
}

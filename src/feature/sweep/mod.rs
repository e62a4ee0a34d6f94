//! `audit sweep`: a suite over a grid of budgets, with one gallery of clean embeddings. Each point of the
//! grid is an audit with its own journal; all journals stay until the sweep is written.

mod page;
mod result;
mod shown;
mod text;

pub use result::{Sweep, SweepPoint};
pub use text::{open, terminal};

use super::corruption::refuse_several_models;
use crate::facts::protocols::parse_size;
use crate::judge::quantity::{ARS, ARS_STRONG, ERS, MEDIAN_EPS, Quantity, ROBUST};
use crate::judge::row::Mark;
use crate::judge::strong::Contradictions;
use crate::pipeline::embed::{CLUSTERINGS, SurrogateModel};
use crate::pipeline::open::{Opened, Purpose, Setup};
use crate::pipeline::plan::Planned;
use crate::pipeline::selection;
use crate::pipeline::settings::{self, Settings};
use crate::record::{self, Outcome, Report, Verification};
use crate::request::Request;
use crate::shards::journal::Journals;
use crate::suite::{self, Suite};
use crate::threat::Plan;
use crate::threat::objective::r1::R1;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The most points of a grid.
const MOST_POINTS: usize = 1000;

/// A setting that a sweep may vary.
struct Axis {
    name: &'static str,
    /// Sets a value of it, in the suite or as the seed, and returns it as a number.
    set: fn(&mut Suite, &mut u64, &str) -> Result<f64>,
    /// Whether the flags state it already.
    stated: fn(&Request) -> bool,
}

/// Every setting that a sweep may vary.
static AXES: [Axis; 6] = [
    Axis {
        name: "eps",
        set: |suite, _, text| {
            let eps = parse_size(text, suite.ball)?;
            suite.eps = Some(eps);
            Ok(f64::from(eps))
        },
        stated: |request| request.attack.eps.is_some(),
    },
    Axis {
        name: "steps",
        set: |suite, _, text| {
            one_search(suite)?;
            let steps = count(text, 1, suite::MOST_STEPS)?;
            suite.steps = Some(steps);
            Ok(steps as f64)
        },
        stated: |request| request.attack.steps.is_some(),
    },
    Axis {
        name: "restarts",
        set: |suite, _, text| {
            one_search(suite)?;
            suite.restarts = count(text, 0, suite::MOST_RESTARTS)?;
            Ok(suite.restarts as f64)
        },
        stated: |_| false,
    },
    Axis { name: "w", set: |suite, _, text| targets(suite, "w", text), stated: |_| false },
    Axis { name: "m", set: |suite, _, text| targets(suite, "m", text), stated: |_| false },
    Axis {
        name: SEED,
        set: |_, seed, text| {
            *seed = text.parse().map_err(|_| Error::usage(format!("`{text}` is no whole number")))?;
            Ok(*seed as f64)
        },
        stated: |_| false,
    },
];

/// The setting over which the results have a mean and a deviation.
const SEED: &str = "seed";

fn count(text: &str, least: usize, most: usize) -> Result<usize> {
    let n = text.parse().map_err(|_| Error::usage(format!("`{text}` is no whole number")))?;
    suite::between(n, least, most).map_err(Error::usage).map(|()| n)
}

fn one_search(suite: &Suite) -> Result<()> {
    if !suite.searches_strongly_alone() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "suite {} runs the strong search, whose members have their own steps and starts. Leave this axis out, or take a suite of one \
         search, such as --suite ars",
        suite.name
    )))
}

/// Sets the number of targets of the attacks that have the parameter `key`.
fn targets(suite: &mut Suite, key: &str, text: &str) -> Result<f64> {
    let n = count(text, 1, suite::MOST_TARGETS)?;
    let mut mine = suite
        .attacks
        .iter_mut()
        .filter(|entry| entry.objective.several.is_some_and(|(name, _)| name == key))
        .peekable();
    if mine.peek().is_none() {
        return Err(Error::usage(format!("no attack of suite {} has the parameter {key}", suite.name)));
    }
    mine.for_each(|entry| entry.count = n);
    Ok(n as f64)
}

/// Values of axes in words: `eps=8/255 steps=32`.
fn named<'a>(axes: impl Iterator<Item = &'a str>, values: &[String]) -> String {
    axes.zip(values).map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(" ")
}

/// One value of each axis, in the axes' order.
type GridPoint = Vec<String>;

/// A point with its seed, its values as numbers, and its suite.
type Settled<'g> = (&'g GridPoint, u64, Vec<f64>, Setup);

/// The grid: the axes that `--over` names, and every combination of their values.
struct Grid {
    axes: Vec<&'static Axis>,
    places: Vec<GridPoint>,
}

impl Grid {
    /// Parses texts such as `eps=2/255,4/255`. Errors (exit code 2): an unknown setting, one that is given
    /// twice, no value, or too many points.
    fn parse(over: &[String], request: &Request) -> Result<Grid> {
        let (mut axes, mut places): (Vec<&'static Axis>, Vec<GridPoint>) = (Vec::new(), vec![Vec::new()]);
        for text in over {
            let wrong = |why: &str| Error::usage(format!("--over {text}: {why}"));
            let names = AXES.each_ref().map(|a| a.name).join(", ");
            let (name, values) = text
                .split_once('=')
                .ok_or_else(|| wrong("expected a setting and its values, such as eps=2/255,4/255"))?;
            let axis = AXES
                .iter()
                .find(|a| a.name == name.trim())
                .ok_or_else(|| wrong(&format!("unknown setting `{name}`: expected one of {names}")))?;
            if axes.iter().any(|a| a.name == axis.name) {
                return Err(wrong(&format!("{} is given twice: name all its values at once", axis.name)));
            }
            if (axis.stated)(request) {
                return Err(wrong(&format!("--{} states one value: leave one of the two out", axis.name)));
            }
            let values: Vec<String> =
                values.split(',').map(|v| v.trim().to_string()).filter(|v| !v.is_empty()).collect();
            if values.is_empty() {
                return Err(wrong("name one value at least"));
            }
            let with = |place: &GridPoint| {
                let place = place.clone();
                values.iter().map(move |v| [place.clone(), vec![v.clone()]].concat()).collect::<Vec<_>>()
            };
            places = places.iter().flat_map(with).collect();
            axes.push(axis);
            if places.len() > MOST_POINTS {
                return Err(wrong(&format!(
                    "the grid has {} points, {MOST_POINTS} at most are run",
                    places.len()
                )));
            }
        }
        Ok(Grid { axes, places })
    }

    /// The first value of the axis called `name`, if the grid has it.
    fn first(&self, name: &str) -> Option<String> {
        let axis = self.axes.iter().position(|axis| axis.name == name)?;
        Some(self.places.first()?[axis].clone())
    }

    /// A place in words: `eps=8/255 steps=32`.
    fn named(&self, place: &GridPoint) -> String {
        named(self.axes.iter().map(|axis| axis.name), place)
    }

    /// The suite and the seed at a place, and the place in numbers.
    fn at(&self, place: &GridPoint, suite: &Suite, mut seed: u64) -> Result<(Suite, u64, Vec<f64>)> {
        let mut suite = suite.clone();
        let mut numbers = Vec::new();
        for (axis, value) in self.axes.iter().zip(place) {
            let number = (axis.set)(&mut suite, &mut seed, value);
            numbers.push(number.map_err(|e| e.context(format!("--over {}={value}", axis.name)))?);
        }
        Ok((suite, seed, numbers))
    }

    /// Every point; `usual` is the seed of those that set none. Errors (exit code 2): a value that the suite
    /// can't have, or a point that occurs twice.
    fn points(&self, opened: &Opened, usual: u64) -> Result<Vec<Settled<'_>>> {
        let mut points: Vec<Settled> = Vec::new();
        for place in &self.places {
            let (suite, seed, numbers) = self.at(place, &opened.setup.suite, usual)?;
            // Large seeds may be equal as numbers of f64.
            let same = points.iter().find(|(_, other, at, _)| *other == seed && *at == numbers);
            if let Some((other, ..)) = same {
                return Err(Error::usage(format!(
                    "--over: {} and {} are one point of the grid, and a point that counts twice distorts means over seeds. Name each value once",
                    self.named(other),
                    self.named(place)
                )));
            }
            let setup = Setup::new(suite, &opened.subject.model, seed);
            points.push((
                place,
                seed,
                numbers,
                setup.map_err(|e| e.context(format!("--over {}", self.named(place))))?,
            ));
        }
        Ok(points)
    }
}

/// Runs a sweep and writes it to every requested file. Errors: those
/// of an audit, and those of the grid (exit code 2).
pub fn run(base: &Request, over: &[String]) -> Result<Sweep> {
    let grid = Grid::parse(over, base)?;
    settings::refuse_over_inputs(base)?;
    let files = base.output.reports.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let mut request = base.clone();
    let mut journals = Journals::settle(&mut request)?;
    if request.attack.norm.is_some() {
        // A norm without a usual ε takes the first of the axis until each point sets its own.
        request.attack.eps = request.attack.eps.or_else(|| grid.first("eps"));
    }
    let Settings { suite, card, .. } = Settings::settle(&request)?;
    refuse_several_models(&suite.name, &suite.corruptions)?;
    let opened = Opened::new(&request, suite, card, Purpose::Checks)?;
    // Errors of a point come before the work.
    let points = grid.points(&opened, request.seed)?;
    let mut embedded = opened.embed(&request, Some(CLUSTERINGS))?;
    let mut surrogate = embedded.open_surrogate(&request)?;
    let (mut done, mut first) = (Vec::new(), None);
    let mut strong = StrongOutcomes::default();
    // The sample follows the seed, as the trials do. --sample correct ranks queries to draw it.
    let mut sample = (request.seed, embedded.queries.clone());
    for (i, (place, seed, numbers, setup)) in points.into_iter().enumerate() {
        request.progress.note(&format!("point {} of {}: {}", i + 1, grid.places.len(), grid.named(place)));
        let (mut journal, resume) = journals.open(i + 1)?;
        let mut request = request.clone();
        (request.run.resume, request.seed) = (resume, seed);
        if seed != sample.0 {
            sample = (seed, selection::queries(&request, &setup.suite, &embedded.context.gallery)?);
        }
        let chosen = selection::choose(&request, &setup, &embedded.context, &sample.1)?;
        let lent = surrogate.as_mut().map(SurrogateModel::lend);
        let planned = Planned::new(&request, &mut embedded, &setup, lent, chosen);
        let attacked = planned.attack(&request, &mut journal, &strong.of(&setup.plan), false)?;
        let report = attacked.conclude(&setup.suite.scores);
        strong.add(&setup.plan, &report);
        journals.hold(journal);
        done.push(point(place, numbers, &report));
        first.get_or_insert(report);
    }
    let first = first.ok_or_else(|| Error::internal("a sweep without points"))?;
    let sweep = Sweep {
        schema_version: record::SCHEMA_VERSION,
        tool: first.tool,
        model: first.model,
        data: first.data,
        benign: first.benign.ok_or_else(|| Error::internal("a sweep on images without classes"))?,
        seed: first.seed,
        axes: grid.axes.iter().map(|a| a.name.into()).collect(),
        points: done,
        command: base.command.clone().unwrap_or_default(),
    };
    files.into_iter().try_for_each(|file| file.write(&sweep))?;
    journals.done();
    Ok(sweep)
}

/// A point whose audit has this report.
fn point(place: &GridPoint, numbers: Vec<f64>, report: &Report) -> SweepPoint {
    let marks = marks(report);
    let Report { suite, attacks, retrieval, smallest, verification, scores, warnings, timing, .. } =
        report.clone();
    SweepPoint {
        at: place.clone(),
        place: numbers,
        suite,
        attacks,
        retrieval,
        smallest,
        verification: verification.map(|found| Verification { group_of: BTreeMap::new(), ..found }),
        scores,
        marks,
        warnings,
        timing,
    }
}

/// Why robust R@1 and the scores of a point are invalid or unreliable. The state of a number says whether it
/// is withheld.
fn marks(report: &Report) -> BTreeMap<String, Mark> {
    let known = Contradictions::of(report);
    let mark = |of: &'static Quantity| Some((of.name.to_string(), of.row(report).mark(&known)?));
    let all = [ROBUST, ARS, ERS, ARS_STRONG, MEDIAN_EPS].into_iter().filter_map(mark);
    all.filter(|(_, mark)| *mark != Mark::Withheld).collect()
}

/// Outcomes of the strong search for robust R@1, by ε, α and seed that they were found with. Steps, starts
/// and targets of a suite have no part in it, so that points which differ in these alone share them.
#[derive(Default)]
struct StrongOutcomes(Vec<((f32, f32, u64), Vec<Outcome>)>);

impl StrongOutcomes {
    fn of(&self, plan: &Plan) -> Vec<Outcome> {
        let found = self.0.iter().filter(|(budget, _)| *budget == (plan.eps, plan.alpha, plan.seed));
        found.flat_map(|(_, outcomes)| outcomes).cloned().collect()
    }

    fn add(&mut self, plan: &Plan, report: &Report) {
        let strong = report.outcomes.iter().filter(|o| R1.made(o)).cloned().collect();
        self.0.push(((plan.eps, plan.alpha, plan.seed), strong));
    }
}

//! The page of a sweep: the table, and a curve for each attack.

use super::named;
use super::result::{Sweep, SweepPoint};
use super::shown::{self, SweepGroup};
use crate::Result;
use crate::facts::term::Term;
use crate::report::escape;
use crate::report::html::page::{check_finding, finding, page, section, sentence, table};
use maud::{Markup, html};

/// Colours of the curves of a plot; more curves use them again.
const COLOURS: [&str; 4] = ["accent", "bad", "good", "soft"];
/// Width and height of a plot, and the room around its curves.
const SIZE: (f64, f64) = (340.0, 220.0);
const ROOM: (f64, f64) = (46.0, 26.0);
/// Room on the right, for half of the last value's name.
const RIGHT: f64 = 26.0;

/// Renders a sweep as an HTML page.
pub fn render(sweep: &Sweep) -> Result<Vec<u8>> {
    let alarms = shown::alarms(sweep);
    let caveat = sweep.points.first().and_then(|p| p.suite.caveat());
    let found = shown::retrieval(sweep).map(|found| html! { .card { (table(&found)) } });
    let tables = [shown::scores(sweep), shown::table(sweep)];
    let tables = html! { @for grid in tables.iter().flatten() { .card { (table(grid)) } } };
    let curves = html! {
        .scores.plots { @for term in shown::curves(sweep) { (plot(sweep, term)) } }
    };
    let findings = shown::findings(sweep);
    let trust = html! {
        .card {
            @for f in &findings {
                (check_finding(f.severity, f.word, html! { (sentence(f.text)) ". " b { (f.at()) } " " code { (f.id) } }))
            }
        }
    };
    let sections = html! {
        @if !alarms.is_empty() || caveat.is_some() {
            section.card {
                @for text in alarms.iter().chain(&caveat) { (finding("failed", "CAUTION", html! { (text) })) }
            }
        }
        @if let Some(over) = shown::over_seeds(sweep) {
            (section("Over the seeds", "Mean ± standard deviation.", html! { .card { (table(&over)) } }))
        }
        (section("All points", "In brackets 95 % intervals. Terms under attack; ranks and shares in per cent.", tables))
        @if !findings.is_empty() {
            (section("Can I trust the result?", "What an audit at each point finds, and the points that it is found at.", trust))
        }
        @if let Some(found) = found {
            (section("What do attacked queries find?", "Retrieval in the clean gallery, in per cent.", found))
        }
        @if let Some(axis) = along(sweep) {
            (section("Curves", &format!("One plot for each attack, along {}. Bars are 95 % intervals.", sweep.axes[axis]), curves))
        }
    };
    let lead = format!("{}.", escape::markup(&shown::what(sweep)));
    Ok(page("Sweep", sweep.model.name(), &lead, &sections.into_string()))
}

/// The axis that curves run along: the first with several values.
fn along(sweep: &Sweep) -> Option<usize> {
    let first = sweep.points.first()?;
    (0..sweep.axes.len()).find(|&axis| sweep.points.iter().any(|p| p.at[axis] != first.at[axis]))
}

/// The points of each curve, by the values of the other settings.
fn curves<'s>(sweep: &'s Sweep, axis: usize) -> Vec<(String, Vec<&'s SweepPoint>)> {
    let others = || sweep.axes.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, name)| name.as_str());
    let curve = |(at, mut points): SweepGroup<'s>| {
        points.sort_by(|a, b| a.place[axis].total_cmp(&b.place[axis]));
        (named(others(), &at), points)
    };
    shown::grouped(sweep, axis).into_iter().map(curve).collect()
}

fn plot(sweep: &Sweep, term: &'static Term) -> Markup {
    let Some(axis) = along(sweep) else { return Markup::default() };
    let places = || sweep.points.iter().map(|p| p.place[axis]);
    let (first, last) = (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
    let [low, high] = term.range;
    let x = |v: f64| ROOM.0 + (SIZE.0 - ROOM.0 - RIGHT) * (v - first) / (last - first).max(f64::MIN_POSITIVE);
    let y = |v: f64| 10.0 + (SIZE.1 - ROOM.1 - 10.0) * (1.0 - (v.clamp(low, high) - low) / (high - low));
    let mut ticks: Vec<(f64, &str)> =
        sweep.points.iter().map(|p| (p.place[axis], p.at[axis].as_str())).collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    ticks.dedup();
    // A name that would lie on the one before it is left out; on a telephone a letter is some 9 units wide.
    let mut free = f64::NEG_INFINITY;
    ticks.retain(|(v, name)| {
        let (at, half) = (x(*v), 4.5 * (name.len() + 1) as f64);
        let fits = at - half >= free;
        free = if fits { at + half } else { free };
        fits
    });
    let curves = curves(sweep, axis);
    html! {
        .card {
            p { b { (term.name) } " " span.quiet { (shown::label(sweep, term)) } }
            svg viewBox=(format!("0 0 {} {}", SIZE.0, SIZE.1)) width="100%" role="img" aria-label=(format!("{} along {}", term.name, sweep.axes[axis])) {
                @for v in [low, (low + high) / 2.0, high] {
                    line x1=(ROOM.0) x2=(SIZE.0 - RIGHT) y1=(y(v)) y2=(y(v)) stroke="var(--track)" {}
                    text x=(ROOM.0 - 6.0) y=(y(v) + 4.0) text-anchor="end" { (format!("{v}")) }
                }
                @for (v, name) in &ticks {
                    text x=(format!("{:.1}", x(*v))) y=(SIZE.1 - 6.0) text-anchor="middle" { (name) }
                }
                @for (i, (_, points)) in curves.iter().enumerate() {
                    (curve(points, term, axis, &x, &y, COLOURS[i % COLOURS.len()]))
                }
            }
            @if curves.len() > 1 {
                p.legend { @for (i, (name, _)) in curves.iter().enumerate() {
                    span style=(format!("color: var(--{})", COLOURS[i % COLOURS.len()])) { "● " (name) " " }
                } }
            }
        }
    }
}

/// A curve with its intervals.
fn curve(
    points: &[&SweepPoint],
    term: &Term,
    axis: usize,
    x: &dyn Fn(f64) -> f64,
    y: &dyn Fn(f64) -> f64,
    colour: &str,
) -> Markup {
    let found = points.iter().filter_map(|p| {
        let row = shown::after(p, term)?;
        Some((x(p.place[axis]), y(row.value?), row.interval))
    });
    let at: Vec<_> = found.collect();
    let line: Vec<String> = at.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    let stroke = format!("var(--{colour})");
    html! {
        polyline points=(line.join(" ")) fill="none" stroke=(stroke) stroke-width="2" {}
        @for (x, at_y, interval) in &at {
            @if let Some((low, high)) = interval {
                line x1=(format!("{x:.1}")) x2=(format!("{x:.1}")) y1=(format!("{:.1}", y(*low))) y2=(format!("{:.1}", y(*high))) stroke=(stroke) {}
            }
            circle cx=(format!("{x:.1}")) cy=(format!("{at_y:.1}")) r="3.5" fill=(stroke) {}
        }
    }
}

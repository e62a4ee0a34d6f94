//! Curves: how R@1 falls from member to member of the strong search, how far each attack gets on how many
//! queries, and retrieval without an attack by depth.

use super::page::{folded, line};
use crate::headline::for_recall;
use crate::view::{bounded, file_column};
use audit_report::facts::FACTS;
use audit_report::facts::term::Unit;
use audit_report::judge::quantity::Quantity;
use audit_report::judge::score::withstood;
use audit_report::record::{Report, Rung, size};
use maud::{Markup, html};

/// Points of a curve at the most.
const POINTS: usize = 100;

/// The section; empty where there is nothing to draw.
pub(super) fn section(report: &Report) -> Markup {
    let all: Vec<Markup> =
        search(report).into_iter().chain(attacks(report)).chain(retrieval(report)).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let lead = "From 0 at the bottom to 100 % at the top. The trials of an attack are sorted by how much they withstood.";
    folded("How far do attacks get?", lead, html! { .card.curves { @for one in all { (one) } } })
}

/// Size of the chart of the ladder, its margins, and the most labels below it, in SVG units.
const CHART: [f64; 2] = [360.0, 190.0];
const MARGINS: [f64; 4] = [8.0, 14.0, 34.0, 28.0];
const LABELS: usize = 7;

/// Robust R@1 by ε, each twice the one before it, with its interval, and that of files; from R@1 of these
/// queries without an attack on.
pub(super) fn ladder(report: &Report) -> Option<Markup> {
    let robust = report.scores.robust()?;
    let (rungs, clean) = (&robust.ladder.as_ref()?.rungs, robust.clean);
    let label = Quantity::robust(report).label;
    Quantity::robust(report).row(report).value?;
    let [width, height] = CHART;
    let [top, right, bottom, left] = MARGINS;
    // The largest ε comes first. Behind the smallest one lies 0.
    let last = rungs.len().max(1) as f64;
    let x = |place: usize| left + (width - left - right) * (1.0 - place as f64 / last);
    let y = |share: f64| top + (height - top - bottom) * (1.0 - share / 100.0);
    let points = |value: &dyn Fn(&Rung) -> Option<f64>| -> Vec<String> {
        let each = rungs.iter().enumerate().map(|(i, rung)| (i, value(rung)));
        let each = each.chain([(rungs.len(), Some(clean))]);
        each.filter_map(|(i, share)| Some(format!("{:.1},{:.1}", x(i), y(share?)))).collect()
    };
    let spread = |rung: &Rung| rung.interval.unwrap_or((rung.r1, rung.r1));
    let mut around = points(&|rung| Some(spread(rung).0));
    around.extend(points(&|rung| Some(spread(rung).1)).into_iter().rev());
    // Below 1/255 no file differs from the clean one.
    let as_file = points(&|rung| rung.as_file.or(Some(clean)));
    let every = (rungs.len() + 1).div_ceil(LABELS);
    let at = |rung: &Rung| size(&report.suite.norm, f64::from(rung.eps), 1);
    let in_levels = rungs.iter().all(|rung| at(rung).ends_with("/255"));
    let values = rungs.iter().map(|rung| format!("{:.1} at {}", rung.r1, at(rung)));
    let values: Vec<String> = values.chain([format!("{clean:.1} without an attack")]).collect();
    Some(html! {
        svg.chart viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(format!("{label} by ε: {}", values.join(", "))) {
            @for share in [0.0, 25.0, 50.0, 75.0, 100.0] {
                line x1=(left) x2=(width - right) y1=(y(share)) y2=(y(share)) stroke="var(--line)" {}
                text x=(left - 5.0) y=(y(share) + 3.5) text-anchor="end" { (share) }
            }
            @for (i, rung) in rungs.iter().enumerate().filter(|(i, _)| i % every == 0) {
                text x=(x(i)) y=(height - bottom + 14.0) text-anchor="middle" { (at(rung).trim_end_matches("/255")) }
            }
            text x=(left) y=(height - bottom + 14.0) text-anchor="middle" { "0" }
            text x=((left + width - right) / 2.0) y=(height - 4.0) text-anchor="middle" {
                (format!("{label} in %, by {}{}", bounded(report), if in_levels { " in 255ths" } else { "" }))
            }
            polygon points=(around.join(" ")) fill="var(--band)" fill-opacity="0.6" {}
            @if file_column(report).is_some() {
                polyline points=(as_file.join(" ")) fill="none" stroke="var(--soft)" stroke-dasharray="4 3" {}
            }
            polyline points=(points(&|rung| Some(rung.r1)).join(" ")) fill="none" stroke="var(--accent)" stroke-width="2" {}
        }
    })
}

/// R@1 over the image steps of the strong search, member by member. It ends at robust R@1, and is withheld
/// with it.
fn search(report: &Report) -> Option<Markup> {
    let robust = report.scores.robust()?;
    let row = Quantity::robust(report).row(report);
    let share = row.quantity.label.trim_start_matches("robust ");
    row.value?;
    let search = for_recall(report)?;
    let all = search.steps() as f64;
    let (mut steps, mut r1) = (0.0, robust.clean);
    let mut points = vec![(0.0, r1)];
    for member in &search.members {
        steps += member.steps as f64;
        r1 -= 100.0 * member.counts as f64 / robust.queries.max(1) as f64;
        points.push((steps / all.max(1.0), r1.max(0.0)));
    }
    let text = [
        format!("{share} {:.1}", robust.clean),
        format!("strong search, {} image steps", search.steps()),
        row.number(),
    ];
    Some(line(&format!("{share} over the strong search"), &points, &text))
}

/// What the trials of each attack withstood, sorted. Shares have no curve: each is 0 or 100.
fn attacks(report: &Report) -> Vec<Markup> {
    let basis = report.basis();
    let graded = |o: &&audit_report::facts::Facts| o.decisive().unit != Unit::Percent;
    let mut all = Vec::new();
    for objective in FACTS.iter().filter(graded) {
        let mine = report.outcomes.iter().filter(|o| o.attack == objective.code);
        let mut found: Vec<f64> = mine.filter_map(|o| withstood(o, &basis)).collect();
        if found.len() < 2 {
            continue;
        }
        found.sort_by(f64::total_cmp);
        let last = found.len() - 1;
        let places = (0..=POINTS.min(last)).map(|i| i * last / POINTS.min(last));
        let points: Vec<(f64, f64)> = places.map(|i| (i as f64 / last as f64, found[i])).collect();
        let middle = format!("{}: withstood by {} trials", objective.code, found.len());
        let text = [format!("{:.0} %", found[0]), middle, format!("{:.0} %", found[last])];
        all.push(line(&format!("what trials of {} withstood", objective.code), &points, &text));
    }
    all
}

/// The cumulative match curve.
fn retrieval(report: &Report) -> Option<Markup> {
    let curve = &report.benign.as_ref()?.cmc;
    let (first, last) = (curve.first()?, curve.last().filter(|_| curve.len() > 1)?);
    // Depths double or so: by their logarithm they are about as far apart.
    let place = |k: usize| (k as f64).ln() / (last.k as f64).ln().max(1e-9);
    let points: Vec<(f64, f64)> = curve.iter().map(|p| (place(p.k), p.value)).collect();
    let text = [
        format!("R@{} {:.1}", first.k, first.value),
        "without an attack, by depth".into(),
        format!("R@{} {:.1}", last.k, last.value),
    ];
    Some(line("R@k without an attack", &points, &text))
}

//! Curves: how R@1 falls from member to member of the strong search, how far each attack gets on how many queries, and retrieval
//! without attack by depth.

use super::page::{line, section as framed};
use crate::judge::quantity::ROBUST;
use crate::judge::score::withstood;
use crate::record::{Report, Rung, size};
use crate::report::headline::for_recall;
use crate::threat::OBJECTIVES;
use crate::threat::term::Unit;
use maud::{Markup, html};

/// Points of a curve at the most.
const POINTS: usize = 100;

/// The section; empty where there is nothing to draw.
pub(super) fn section(report: &Report) -> Markup {
    let all: Vec<Markup> = ladder(report)
        .into_iter()
        .chain(search(report))
        .chain(attacks(report))
        .chain(retrieval(report))
        .collect();
    if all.is_empty() {
        return Markup::default();
    }
    let lead = "From 0 at the bottom to 100 % at the top. The trials of an attack go from those that withstood least to those that \
                withstood most.";
    framed("How far do attacks get?", lead, html! { .card.curves { @for one in all { (one) } } })
}

/// Robust R@1 by ε, each twice the one before it.
fn ladder(report: &Report) -> Option<Markup> {
    let rungs = &report.scores.robust_r1.as_ref()?.ladder.as_ref()?.rungs;
    ROBUST.row(report).value?;
    let last = rungs.len().saturating_sub(1).max(1) as f64;
    let points: Vec<(f64, f64)> =
        rungs.iter().rev().enumerate().map(|(i, rung)| (i as f64 / last, rung.r1)).collect();
    let end = |rung: Option<&Rung>| {
        rung.map_or(String::new(), |rung| {
            format!("{:.1} at {}", rung.r1, size(&report.suite.norm, f64::from(rung.eps), 2))
        })
    };
    let text = [end(rungs.last()), "robust R@1 by ε, doubled from step to step".into(), end(rungs.first())];
    Some(line("robust R@1 by ε", &points, &text))
}

/// R@1 over the image steps of the strong search, member by member. It ends at robust R@1, and is withheld with it.
fn search(report: &Report) -> Option<Markup> {
    let robust = report.scores.robust_r1.as_ref()?;
    let row = ROBUST.row(report);
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
        format!("R@1 {:.1}", robust.clean),
        format!("strong search, {} image steps", search.steps()),
        row.number(),
    ];
    Some(line("R@1 over the strong search", &points, &text))
}

/// What the trials of each attack withstood, sorted. Shares have no curve: each is 0 or 100.
fn attacks(report: &Report) -> Vec<Markup> {
    let basis = report.basis();
    let graded = |o: &&crate::threat::Objective| o.decisive().unit != Unit::Percent;
    let mut all = Vec::new();
    for objective in OBJECTIVES.iter().filter(graded) {
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
    let curve = &report.benign.cmc;
    let (first, last) = (curve.first()?, curve.last().filter(|_| curve.len() > 1)?);
    // Depths double or so: by their logarithm they are about as far apart.
    let place = |k: usize| (k as f64).ln() / (last.k as f64).ln().max(1e-9);
    let points: Vec<(f64, f64)> = curve.iter().map(|p| (place(p.k), p.value)).collect();
    let text = [
        format!("R@{} {:.1}", first.k, first.value),
        "without attack, by depth".into(),
        format!("R@{} {:.1}", last.k, last.value),
    ];
    Some(line("R@k without attack", &points, &text))
}

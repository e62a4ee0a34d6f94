//! The section of examples: attacked queries, what they retrieve, the loss by step, and the map of
//! embeddings.

use super::page::{folded, line, section as framed, sentence};
use crate::view::{about, label_at};
use audit_report::facts::Facts;
use audit_report::judge::score::withstood;
use audit_report::record::{
    Example, Examples, Map, MapPoint, Move, Neighbour, Outcome, Report, number_of_queries,
};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The first example: a query that an attack broke, by the strong search if it has one.
fn first(report: &Report) -> Option<(&Examples, &Example)> {
    let examples = report.examples.as_ref()?;
    let lost = |e: &&Example| {
        let found = report.outcomes.iter().find(|o| o.attack == e.attack && o.query == e.query);
        let correct = Facts::find(&e.attack).is_ok_and(|of| of.hits_are_correct());
        correct && found.is_some_and(|o| o.before.hit == Some(true) && o.after.hit == Some(false))
    };
    let strong = |e: &Example| Facts::find(&e.attack).is_ok_and(|of| of.strong_only);
    examples.trials.iter().filter(lost).max_by_key(|e| strong(e)).map(|e| (examples, e))
}

/// One attacked query; empty if no attack succeeded, or the report has no pictures.
pub fn one(report: &Report) -> Markup {
    let Some((examples, e)) = first(report) else { return Markup::default() };
    let lead = format!(
        "A query that is correct without an attack: the clean image, the attacked one with a change of at most {}, their difference, and the \
         images that both find. {}. The curve is the loss that the attack lowers from step to step.",
        report.suite.budget(),
        marks(report)
    );
    framed("What does an attack look like?", &lead, html! { .examples.one { (card(e, examples, report)) } })
}

/// The legend of ✓ and ✗.
fn marks(report: &Report) -> &'static str {
    match report.data.has_classes() {
        true => "✓ marks the query's own class, ✗ another",
        false => "✓ marks the image that the clean query finds, and its near copies, ✗ another",
    }
}

/// All other examples, and the map.
pub fn section(report: &Report) -> Markup {
    let Some(examples) = &report.examples else {
        return html! {
            section {
                h2 { "Show me" }
                p.lead {
                    "This report has no pictures. An audit saves them if it writes a page: add "
                    code { "-o report.html" } "."
                }
            }
        };
    };
    let lead = format!(
        "For each attack the two images whose embedding it moved farthest, and of the others the one that withstood most, each \
                with the five images retrieved before and after. {}; an outer frame marks the attack's target. Where an attack moves a candidate ({}), the ranking is that of the query that it is moved for, \
                and the frame marks the candidate. A hub ({}) also has the first held-out queries that it captures. Photographs are shown small, as JPEG.",
        marks(report),
        Facts::codes(|o| o.measured.moves_candidate && o.measured.mean_rank),
        Facts::codes(|o| o.measured.captures)
    );
    let above = first(report).map(|(_, e)| e);
    let others: Vec<&Example> =
        examples.trials.iter().filter(|e| !above.is_some_and(|above| std::ptr::eq(above, *e))).collect();
    let content = html! {
        @for group in others.chunk_by(|a, b| a.attack == b.attack) {
            .group {
                h3 { (group[0].attack) }
                p.what { (sentence(about(&group[0].attack))) }
                .examples { @for e in group { (card(e, examples, report)) } }
            }
        }
    };
    html! { @if !others.is_empty() { (folded("Show me more", &lead, content)) } (map(&examples.map, report.data.has_classes())) }
}

/// An image. Anything but base64 is refused, because the text may come from a file.
pub fn image(base64: &str, alt: &str) -> Markup {
    let sound =
        !base64.is_empty() && base64.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
    // The first bytes of every JPEG.
    let kind = if base64.starts_with("/9j/") { "jpeg" } else { "png" };
    html! { @if sound { img src=(format!("data:image/{kind};base64,{base64}")) alt=(alt); } }
}

/// Result of the attack: a class, a word, and the attacked number without and under attack.
fn result(outcome: &Outcome, report: &Report) -> Option<(&'static str, &'static str, String)> {
    let basis = report.basis();
    let term = Facts::find(&outcome.attack).ok()?.decisive();
    let (before, after) = (term.read)(outcome, basis.form)?;
    let scale = term.scale(basis.ranked_by(&outcome.attack));
    let before = before.map_or(String::new(), |v| format!("{} → ", term.show(scale * v)));
    let label = label_at(term, Some(&report.suite.budget()));
    let (class, word) = match withstood(outcome, &basis) {
        None => ("quiet", "nothing to lose"),
        Some(r) if r >= 100.0 => ("pass", "attack failed"),
        Some(r) if r <= 0.0 => ("failed", "goal reached"),
        Some(_) => ("warned", "in part"),
    };
    Some((class, word, format!("{label}: {before}{}", term.show(scale * after))))
}

fn card(e: &Example, examples: &Examples, report: &Report) -> Markup {
    let amplified = format!("difference ×{:.1}", examples.amplification);
    let trio = [(&e.clean, "clean"), (&e.attacked, "attacked"), (&e.difference, &amplified)];
    let outcome = report.outcomes.iter().find(|o| o.attack == e.attack && o.query == e.query);
    html! {
        article.card.example {
            header { h4 title=(e.class) { (e.query) } }
            @if let Some((class, word, numbers)) = outcome.and_then(|o| result(o, report)) {
                p.result { span.tag.(class) { (word) } " " (numbers) }
            }
            .trio {
                @for (picture, caption) in trio { figure { (image(picture, caption)) figcaption { (caption) } } }
            }
            @let marked = marked(e, report);
            (rank("before", &e.nearest_before, e, examples, marked))
            (rank("after", &e.nearest_after, e, examples, marked))
            @if !e.captured.is_empty() { (rank("hub for", &e.captured, e, examples, false)) }
            (losses(&e.losses))
        }
    }
}

/// Whether retrieved items are marked as correct or wrong. The ranking of a foreign target has no marks,
/// because it has no class.
fn marked(e: &Example, report: &Report) -> bool {
    let of_target = Facts::find(&e.attack).is_ok_and(|of| of.measured.moves_candidate);
    report.targets.is_none() || !of_target
}

/// The retrieved items, nearest first, with marks of correct ones.
fn rank(name: &str, list: &[Neighbour], e: &Example, examples: &Examples, marked: bool) -> Markup {
    html! {
        .rank {
            span { (name) }
            @for n in list {
                @let (class, mark) = match (marked, n.relevant) {
                    (false, _) => ("plain", ""),
                    (true, true) => ("hit", "✓"),
                    (true, false) => ("miss", "✗"),
                };
                // The query itself is in a ranking only where the attack moves it in that of another.
                figure.(class).target[e.targets.contains(&n.id) || n.id == e.query] title=(n.id) {
                    @match examples.thumbnails.get(&n.id) {
                        Some(picture) => (image(picture, &n.id)),
                        // A foreign target has a name and no picture.
                        None => small { (n.id) },
                    }
                    i { (mark) }
                }
            }
        }
    }
}

/// The loss by step.
fn losses(losses: &[f64]) -> Markup {
    let finite: Vec<f64> = losses.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.len() < 2 {
        return Markup::default();
    }
    let low = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let high = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (spread, steps) = ((high - low).max(1e-12), finite.len() - 1);
    let points: Vec<(f64, f64)> = finite
        .iter()
        .enumerate()
        .map(|(i, v)| (i as f64 / steps as f64, 100.0 * (v - low) / spread))
        .collect();
    // Adding 0.0 avoids "-0.000".
    let brief = |v: f64| format!("{:.3}", (v * 1000.0).round() / 1000.0 + 0.0);
    let text = [
        format!("loss {}", brief(finite[0])),
        String::new(),
        format!("{} after {steps} steps", brief(finite[steps])),
    ];
    line("loss", &points, &text)
}

/// Side of a map, in SVG units.
const SIDE: f64 = 480.0;
/// Margin around the points of a map.
const MARGIN: f64 = 20.0;

/// The transformation from the plane to the drawing.
struct Frame {
    low: [f64; 2],
    unit: f64,
    /// Horizontal offset that centres points narrower than the drawing.
    indent: f64,
    height: f64,
}

impl Frame {
    /// The frame around `points`; `None` without points.
    fn around(points: impl Iterator<Item = [f32; 2]>) -> Option<Frame> {
        let (mut low, mut high) = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
        for p in points.map(|p| p.map(f64::from)).filter(|p| p.iter().all(|v| v.is_finite())) {
            for k in 0..2 {
                (low[k], high[k]) = (low[k].min(p[k]), high[k].max(p[k]));
            }
        }
        // Both axes have the same scale, so that distances can be compared.
        let [wide, tall] = [0, 1].map(|k| high[k] - low[k]);
        let inside = SIDE - 2.0 * MARGIN;
        let unit = inside / wide.max(tall).max(1e-12);
        let (indent, height) = (MARGIN + (inside - unit * wide) / 2.0, 2.0 * MARGIN + unit * tall);
        low[0].is_finite().then_some(Frame { low, unit, indent, height })
    }

    fn place(&self, p: [f32; 2]) -> [String; 2] {
        let [x, y] = [0, 1].map(|k| self.unit * (f64::from(p[k]) - self.low[k]));
        [self.indent + x, self.height - MARGIN - y].map(|v| format!("{v:.1}"))
    }
}

/// Two drawings of a map: the items with the queries where they were, and where they went. `colour` is that
/// of a class, if it has one. Nothing without points.
pub fn panels(items: &[MapPoint], queries: &[Move], colour: &dyn Fn(&str) -> Option<String>) -> Markup {
    let ends = queries.iter().flat_map(|q| [q.from, q.to]);
    let Some(frame) = Frame::around(items.iter().map(|p| p.at).chain(ends)) else {
        return Markup::default();
    };
    let (own, others): (Vec<_>, Vec<_>) =
        items.iter().map(|p| (frame.place(p.at), colour(&p.class))).partition(|(_, c)| c.is_some());
    let radius = if queries.len() > FEW { "4.5" } else { "7.5" };
    let panel = |title: &str, name: &str, after: bool| {
        html! {
            .card {
                h3 { (title) }
                svg viewBox=(format!("0 0 {SIDE} {:.0}", frame.height)) role="img"
                    aria-label=(format!("embeddings {name} the attack")) {
                    @for ([x, y], _) in &others {
                        circle cx=(x) cy=(y) r="2.2" fill="var(--faint)" fill-opacity=".35" {}
                    }
                    @for ([x, y], colour) in &own {
                        circle cx=(x) cy=(y) r="3.2" fill=[colour] fill-opacity=".55" {}
                    }
                    @for q in queries {
                        @let ([x, y], [u, v]) = (frame.place(q.from), frame.place(q.to));
                        @let colour = colour(&q.class);
                        @if after {
                            line x1=(x) y1=(y) x2=(u) y2=(v) stroke=[&colour] stroke-width="1.5" stroke-dasharray="4 3" {}
                        }
                        @let (x, y) = if after { (u, v) } else { (x, y) };
                        circle cx=(x) cy=(y) r=(radius) fill=[&colour] stroke="var(--card)" stroke-width="2" {}
                    }
                }
            }
        }
    };
    html! { .maps { (panel("Before", "before", false)) (panel("After", "after", true)) } }
}

/// Queries that are drawn large.
const FEW: usize = 8;

fn map(map: &Map, has_classes: bool) -> Markup {
    let classes: BTreeMap<&str, usize> =
        map.queries.iter().enumerate().map(|(i, q)| (q.class.as_str(), i % 8)).collect();
    let drawn =
        panels(&map.gallery, &map.queries, &|class| classes.get(class).map(|c| format!("var(--c{c})")));
    if drawn.0.is_empty() {
        return drawn;
    }
    let lead = format!(
        "The gallery in the plane of its two largest principal components ({:.0} % of its variance): distances in it are only \
         part of the truth. Large dots: {} under {}{}.",
        map.variance,
        number_of_queries(map.queries.len()),
        map.attack,
        match has_classes {
            true => ", each in the colour of its class; small dots of that colour: the images it should find",
            false => "",
        }
    );
    folded("Where do the embeddings go?", &lead, drawn)
}

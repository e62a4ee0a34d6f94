//! The page of a model's geometry: distances, triplets, attacks and a map of classes.

use super::result::Geometry;
use super::shown;
use crate::Result;
use crate::record::{Histogram, TripletState, number_of_queries};
use crate::report::html::examples::panels;
use crate::report::html::page::{conditions, finding, page, section, table};
use crate::report::view::Grid;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Width and height of a plot, and the room left and below.
const SIZE: (f64, f64) = (480.0, 260.0);
const ROOM: (f64, f64) = (52.0, 40.0);
/// Colours of classes in the style sheet.
const COLOURS: usize = 10;
/// Classes that the page lists.
const CLASSES: usize = 15;

/// Renders a geometry as an HTML page.
pub fn render(geometry: &Geometry) -> Result<Vec<u8>> {
    let sections = html! {
        (alarms(geometry)) (first(geometry)) (distances(geometry)) (map(geometry)) (attacked(geometry)) (mined(geometry))
        (classes(geometry)) (measured(geometry))
    };
    let lead = html! { (shown::what(geometry)) "." };
    Ok(page("Geometry of embeddings", geometry.model.name(), &lead.into_string(), &sections.into_string()))
}

fn alarms(geometry: &Geometry) -> Markup {
    let found = shown::alarms(geometry);
    html! {
        @if !found.is_empty() {
            section.card { @for text in &found { (finding("failed", "CAUTION", html! { (text) })) } }
        }
    }
}

/// The numbers that say most.
fn first(geometry: &Geometry) -> Markup {
    let s = &geometry.spacing;
    let card = |name: &str, value: String, about: &str| {
        html! { .card.score { .name { (name) } .value { (value) } p.about { (about) } } }
    };
    let two = |value: f64| format!("{value:.2}");
    let cards = html! {
        .scores {
            (card("Entanglement", two(s.entanglement), "Mean distance within classes ÷ between classes. Near 0: classes are tight and \
                                                    apart. 1: they can't be distinguished."))
            (card("Separability", two(s.separability), "Distance between classes less distance within, ÷ the mean distance d̄. Near 0 \
                                                    after training, the model has collapsed."))
            (card("Mean distance d̄", two(s.distance), "Of all pairs. A model that shrinks it makes attacks look weak that are measured \
                                                  by distance."))
            (card("R@1", format!("{:.1}", geometry.benign.r1), "Share of the queries whose nearest image has their class, in per cent, without an \
                                              attack."))
        }
    };
    section("How are classes placed?", "Clean embeddings, without an attack.", cards)
}

fn card(grid: &Grid) -> Markup {
    html! { .card { (table(grid)) } }
}

/// A plot: its title, the names of its axes and their ticks, and what is drawn. `x` and `y` are the ranges.
struct Plot<'a> {
    title: &'a str,
    axes: [&'a str; 2],
    x: (f64, f64),
    y: (f64, f64),
}

impl Plot<'_> {
    fn x(&self, v: f64) -> f64 {
        ROOM.0 + (SIZE.0 - ROOM.0 - 12.0) * (v - self.x.0) / (self.x.1 - self.x.0).max(f64::MIN_POSITIVE)
    }

    fn y(&self, v: f64) -> f64 {
        12.0 + (SIZE.1 - ROOM.1 - 12.0) * (self.y.1 - v) / (self.y.1 - self.y.0).max(f64::MIN_POSITIVE)
    }

    /// Round values within a range, and the digits that they need.
    fn ticks((low, high): (f64, f64)) -> (Vec<f64>, usize) {
        let rough = ((high - low) / 3.0).max(1e-9);
        let power = 10f64.powf(rough.log10().floor());
        let step = [5.0, 2.0, 1.0].map(|m| m * power).into_iter().find(|s| *s <= rough).unwrap_or(power);
        let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
        ((first..=last).map(|k| k as f64 * step).collect(), (-step.log10().floor()).max(0.0) as usize)
    }

    /// The plot with a legend; `numbered` says whether the first axis is one of numbers.
    fn draw(&self, numbered: bool, drawn: Markup, legend: Markup) -> Markup {
        let ((along, dx), (up, dy)) = (Plot::ticks(self.x), Plot::ticks(self.y));
        html! {
            .card {
                h3 { (self.title) }
                svg viewBox=(format!("0 0 {} {}", SIZE.0, SIZE.1)) class="drawn" style="max-width: 620px" role="img"
                    aria-label=(format!("{}: {} against {}", self.title, self.axes[1], self.axes[0])) {
                    @for &v in &up {
                        line x1=(ROOM.0) x2=(SIZE.0 - 12.0) y1=(at(self.y(v))) y2=(at(self.y(v))) stroke="var(--track)" {}
                        text x=(ROOM.0 - 6.0) y=(at(self.y(v) + 4.0)) text-anchor="end" { (format!("{v:.dy$}")) }
                    }
                    @for &v in along.iter().filter(|_| numbered) {
                        text x=(at(self.x(v))) y=(SIZE.1 - 22.0) text-anchor="middle" { (format!("{v:.dx$}")) }
                    }
                    text x=((SIZE.0 + ROOM.0) / 2.0) y=(SIZE.1 - 4.0) text-anchor="middle" { (self.axes[0]) }
                    (drawn)
                }
                p.legend { (legend) }
            }
        }
    }
}

fn at(v: f64) -> String {
    format!("{v:.1}")
}

/// The range of values with some room at both ends.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (low, high) =
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
    let room = (0.08 * (high - low)).max(1e-3);
    if low.is_finite() && high.is_finite() { (low - room, high + room) } else { (0.0, 1.0) }
}

/// A name in the legend.
fn key(colour: &str, name: &str) -> Markup {
    html! { span { span style=(format!("color: var(--{colour})")) { "● " } (name) } }
}

fn distances(geometry: &Geometry) -> Markup {
    let s = &geometry.spacing;
    let lead = match &s.sampling {
        Some(sampling) => format!("All pairs of {sampling}."),
        None => format!("All pairs of {} images.", s.items),
    };
    let body = html! {
        (histogram(&s.histogram))
        br;
        (card(&shown::measures(geometry)))
        @if s.coincident > 0 {
            p.lead { (s.coincident) " pairs of images have the same embedding. Hyperspherical energy leaves them out." }
        }
    };
    section("How far apart are images?", &lead, body)
}

fn histogram(h: &Histogram) -> Markup {
    let filled = |share: &f64| *share > 0.0;
    let last = |shares: &[f64]| shares.iter().rposition(filled).map_or(0, |at| at + 1);
    let bins = last(&h.within).max(last(&h.between)).max(1);
    let most = h.within.iter().chain(&h.between).copied().fold(0.0, f64::max);
    let plot = Plot {
        title: "Pairs by distance",
        axes: ["distance", "% of pairs"],
        x: (0.0, bins as f64 * h.width),
        y: (0.0, most.max(1e-9)),
    };
    let outline = |shares: &[f64]| {
        let corner = |x: f64, y: f64| format!("{:.1},{:.1}", plot.x(x * h.width), plot.y(y));
        let steps = shares.iter().take(bins).enumerate();
        let tops = steps.flat_map(|(b, &v)| [corner(b as f64, v), corner(b as f64 + 1.0, v)]);
        let ends = [corner(bins as f64, 0.0), corner(0.0, 0.0)];
        tops.chain(ends).collect::<Vec<_>>().join(" ")
    };
    let drawn = html! {
        @for (shares, colour) in [(&h.between, "c1"), (&h.within, "c0")] {
            polygon points=(outline(shares)) fill=(format!("var(--{colour})")) fill-opacity=".28"
                stroke=(format!("var(--{colour})")) stroke-width="1.5" {}
        }
    };
    plot.draw(true, drawn, html! { (key("c0", "pairs of one class")) (key("c1", "pairs of two classes")) })
}

fn map(geometry: &Geometry) -> Markup {
    let m = &geometry.map;
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    for class in m.items.iter().map(|p| p.class.as_str()).chain(m.queries.iter().map(|q| q.class.as_str())) {
        let next = classes.len();
        classes.entry(class).or_insert(next % COLOURS);
    }
    let drawn = panels(&m.items, &m.queries, &|class| classes.get(class).map(|c| format!("var(--c{c})")));
    let mut named: Vec<(&str, usize)> = classes.iter().map(|(class, colour)| (*class, *colour)).collect();
    named.sort_by_key(|(_, colour)| *colour);
    let body = html! {
        (drawn)
        p.legend { @for (class, colour) in named { (key(&format!("c{colour}"), class)) } }
    };
    let (how, meaning) = match m.perplexity.zip(m.divergence) {
        Some((perplexity, divergence)) => (
            "in one map by t-SNE",
            format!(
                "Neighbours on the map are neighbours in the space; far distances and the size of groups mean nothing. Perplexity \
                 {perplexity:.0}, KL divergence {divergence:.2}."
            ),
        ),
        None => (
            "in the plane of their embeddings, which have two dimensions",
            "Distances on the map are those of the space.".into(),
        ),
    };
    let lead = format!(
        "The first {} classes {how}: small dots are clean images, large ones {} before and after an attack ({}: {}; {}). \
         {meaning}",
        classes.len(),
        number_of_queries(m.queries.len()),
        m.attack,
        shown::mapped(geometry),
        shown::budget(geometry),
    );
    section("Where do the embeddings go?", &lead, body)
}

/// Triplets and queries under attack.
fn attacked(geometry: &Geometry) -> Markup {
    let body = html! {
        .maps { (bars(geometry)) (states(geometry)) }
        br;
        (card(&shown::triplets(geometry)))
        br;
        (card(&shown::shifts(geometry)))
    };
    let lead = format!(
        "{} semi-hard triplets of the gallery, made as hard as they get: anchors alone move (ANP), positives and negatives (CAP), \
         or all three (SIP, as in HM); {}. d̄ is that of the clean triplets. Overall: shift ÷ d̄ times the images that move in a \
         triplet. Below them, attacks on {} of the classes on the map; there d̄ is that of the gallery.",
        geometry.triplets.triplets.len(),
        shown::budget(geometry),
        number_of_queries(geometry.suite.queries)
    );
    section("How far do attacks move embeddings?", &lead, body)
}

/// CA-TRIDE's figure 5 for one model.
fn bars(geometry: &Geometry) -> Markup {
    let rows = &geometry.triplets.attacks;
    let most = rows.iter().flat_map(|r| [r.relative, r.overall]).fold(0.0, f64::max);
    let plot = Plot {
        title: "Embedding shift ÷ d̄",
        axes: ["what moves", "shift ÷ d̄"],
        x: (0.0, rows.len() as f64),
        // The numbers stand above the bars.
        y: (0.0, 1.1 * most.max(1e-9)),
    };
    let bar = |from: f64, value: f64, colour: &str| {
        let (x, wide) = (plot.x(from), plot.x(0.3) - plot.x(0.0));
        let (top, foot) = (plot.y(value), plot.y(0.0));
        html! {
            rect x=(at(x)) y=(at(top)) width=(at(wide)) height=(at(foot - top)) fill=(format!("var(--{colour})")) {}
            text x=(at(x + wide / 2.0)) y=(at(top - 3.0)) text-anchor="middle" { (format!("{value:.2}")) }
        }
    };
    let drawn = html! {
        @for (i, row) in rows.iter().enumerate() {
            (bar(i as f64 + 0.18, row.relative, "c0")) (bar(i as f64 + 0.52, row.overall, "c1"))
            text x=(at(plot.x(i as f64 + 0.5))) y=(SIZE.1 - 22.0) text-anchor="middle" { (row.moved) " (" (row.method) ")" }
        }
    };
    let legend = html! { (key("c0", "a moved image")) (key("c1", "all that move in a triplet")) };
    plot.draw(false, drawn, legend)
}

/// The plane of CA-TRIDE's figure 4, left: mean distance and separability, clean and attacked.
fn states(geometry: &Geometry) -> Markup {
    let t = &geometry.triplets;
    let all = || t.attacks.iter().map(|r| r.state).chain([t.clean]);
    let plot = Plot {
        title: "Separability and d̄ of the triplets",
        axes: ["mean distance d̄", "separability"],
        x: (0.0, 1.1 * all().map(|s| s.distance).fold(1e-9, f64::max)),
        y: range(all().map(|s| s.separability).chain([0.0]).collect::<Vec<_>>().into_iter()),
    };
    let place = |s: &TripletState| (at(plot.x(s.distance)), at(plot.y(s.separability)));
    let (x0, y0) = place(&t.clean);
    let zero = at(plot.y(0.0));
    let drawn = html! {
        line x1=(ROOM.0) x2=(SIZE.0 - 12.0) y1=(zero) y2=(zero) stroke="var(--soft)" stroke-dasharray="4 3" {}
        @for (i, row) in t.attacks.iter().enumerate() {
            @let (x, y) = place(&row.state);
            line x1=(x0) y1=(y0) x2=(x) y2=(y) stroke=(format!("var(--c{})", i + 1)) stroke-dasharray="4 3" {}
            circle cx=(x) cy=(y) r="5.5" fill=(format!("var(--c{})", i + 1)) {}
        }
        circle cx=(x0) cy=(y0) r="5.5" fill="var(--c0)" {}
    };
    let legend = html! {
        (key("c0", "clean"))
        @for (i, row) in t.attacks.iter().enumerate() { (key(&format!("c{}", i + 1), &row.method)) }
    };
    plot.draw(true, drawn, legend)
}

fn mined(geometry: &Geometry) -> Markup {
    let body = html! { (card(&shown::samplers(geometry))) br; (collapseness(geometry)) };
    let lead = format!(
        "Hardness H = d(a,p) − d(a,n) of clean triplets, by how negatives are chosen. {}. Triplets with H above 0 rank the negative \
         before the positive.",
        shown::drawn(geometry)
    );
    section("How hard are triplets?", &lead, body)
}

/// C against H of each batch.
fn collapseness(geometry: &Geometry) -> Markup {
    let batches = &geometry.batches;
    let plot = Plot {
        title: "Collapseness C against hardness H",
        axes: ["hardness H of a batch", "C"],
        x: range(batches.iter().map(|s| s.hardness)),
        y: range(batches.iter().map(|s| s.collapseness)),
    };
    let drawn = html! {
        @for s in batches {
            circle cx=(at(plot.x(s.hardness))) cy=(at(plot.y(s.collapseness))) r="3" fill="var(--c0)" fill-opacity=".55" {}
        }
    };
    let legend = html! {
        span {
            "One dot for each of " (batches.len()) " batches of semi-hard triplets. C counts near samples most (λ = "
            (geometry.mining.lambda) "): above 0 it announces a collapse of training."
        }
    };
    plot.draw(true, drawn, legend)
}

fn classes(geometry: &Geometry) -> Markup {
    let lead = format!(
        "Classes that lie least apart from another one: mean distance within the class, to the nearest other class, and their ratio. \
         {} of {} classes have a ratio of 1 or more: their images are no farther from another class than from each other.",
        shown::entangled(geometry),
        geometry.spacing.classes.len()
    );
    section("Which classes are entangled?", &lead, card(&shown::classes(geometry, CLASSES)))
}

fn measured(geometry: &Geometry) -> Markup {
    let s = &geometry.suite;
    let rows = vec![
        ("Attacks", html! { "suite " (s.name) ", " (s.form) " form: " (shown::budget(geometry)) }),
        ("Seed", html! { (geometry.seed) }),
        ("Tool", html! { (geometry.tool.in_words()) }),
        ("Time", html! { (format!("{:.0} s", geometry.seconds)) }),
        ("Command", html! { code { (geometry.command) } }),
    ];
    let lead = "docs/papers.md says which figure and table of the papers each part is.";
    conditions(&geometry.model, Some(&geometry.data), rows, lead)
}

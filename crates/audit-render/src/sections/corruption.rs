//! Natural corruptions: what queries find under them, the ε of attacks that cost as much, and how they look.

use super::{Content, Medium, Section};
use crate::html::examples::image;
use crate::html::page::{section, table};
use crate::view::{Grid, capital};
use audit_gallery::corruption::STRENGTHS;
use audit_report::record::{
    CorruptedPictures, CorruptionRow, Corruptions, Report, SameEps, number_of_queries, size,
};
use maud::{Markup, html};

/// The section; empty if the suite has no corruptions.
pub const SECTION: Section = Section { content, brief: true, page: Some(page) };

fn content(report: &Report, medium: Medium) -> Content {
    let Some(found) = &report.corruptions else { return Content::default() };
    let table = by_strength(report, found, medium == Medium::Page);
    Content { sentences: vec![sentence(found)], tables: vec![(title(found), table)] }
}

/// What the table has.
fn title(found: &Corruptions) -> &'static str {
    match found.rows.iter().any(|row| row.same_eps.is_some()) {
        true => {
            "natural corruptions, by strength: R@1 and mAP in %, and the smallest ε at which MIN lowers R@1 as much, an upper bound"
        }
        false => "natural corruptions, by strength: R@1 and mAP in %",
    }
}

fn page(report: &Report) -> Markup {
    let Some(found) = &report.corruptions else { return Markup::default() };
    let lead = "Benign robustness: what the queries find when they are noisy, blurred or turned, without an attacker. It is no part of ERS or \
                ARS. Columns are strengths; brackets hold 95 % intervals over queries.";
    let pictures = report.examples.as_ref().and_then(|examples| examples.corrupted.as_ref());
    let content = html! {
        .card { p { (capital(&sentence(found))) "." } }
        details.card open {
            summary { (capital(title(found))) }
            (table(&by_strength(report, found, true)))
        }
        @if let Some(pictures) = pictures { (shown(pictures)) }
    };
    section("What do natural corruptions cost?", lead, content)
}

/// A query under all corruptions.
fn shown(pictures: &CorruptedPictures) -> Markup {
    html! {
        .card {
            p { "The query " b { (pictures.query) } " as it is, and under each corruption at strengths 1 to 5:" }
            .trio.strengths { figure { (image(&pictures.clean, "clean")) figcaption { "clean" } } }
            @for row in &pictures.rows {
                .trio.strengths {
                    @for (i, picture) in row.pictures.iter().enumerate() {
                        @let caption = format!("{} {}", row.corruption, i + 1);
                        figure { (image(picture, &caption)) figcaption { (caption) } }
                    }
                }
            }
        }
    }
}

/// Retrieval under natural corruptions in a sentence without a full stop.
fn sentence(found: &Corruptions) -> String {
    let with = |value: f64, interval: Option<(f64, f64)>| {
        format!(
            "{value:.1}{}",
            interval.map_or(String::new(), |(low, high)| format!(" ({low:.1} – {high:.1})"))
        )
    };
    format!(
        "natural corruptions of {}, no attacker: R@1 {} and mAP {} on average, {:.1} and {:.1} without a corruption",
        number_of_queries(found.queries),
        with(found.mean_r1, found.mean_r1_interval),
        with(found.mean_map, found.mean_map_interval),
        found.clean_r1,
        found.clean_map
    )
}

/// The name of a corruption, empty below its first row; what the row is of; and a cell for each
/// strength, with its interval where there is room.
fn by_strength(report: &Report, found: &Corruptions, intervals: bool) -> Grid {
    let norm = report.smallest.as_ref().map_or(&report.suite.norm, |smallest| &smallest.norm);
    let (mut rows, mut parameters) = (Vec::new(), Vec::new());
    let mut add = |name: &str, of: &str, cells: Vec<String>| {
        parameters.extend((!name.is_empty()).then_some(rows.len()));
        rows.push([vec![name.to_string(), of.to_string()], cells].concat());
    };
    for group in found.rows.chunk_by(|a, b| a.corruption == b.corruption) {
        let share = |value: f64, interval: Option<(f64, f64)>| match interval.filter(|_| intervals) {
            Some((low, high)) => format!("{value:.1} ({low:.1} – {high:.1})"),
            None => format!("{value:.1}"),
        };
        let eps_of = |eps: Option<f64>| eps.map_or("more".into(), |eps| size(norm, eps, 2));
        let value = |value: f64| ((value * 1000.0).round() / 1000.0).to_string();
        // A report of another version may lack a strength.
        let each = |cell: &dyn Fn(&CorruptionRow) -> String| -> Vec<String> {
            let at = |strength: usize| group.iter().find(|row| row.strength == strength);
            (1..=STRENGTHS).map(|strength| at(strength).map_or(String::new(), cell)).collect()
        };
        add(&group[0].corruption, "parameter", each(&|row| value(row.value)));
        add("", "R@1", each(&|row| share(row.r1, row.r1_interval)));
        add("", "mAP", each(&|row| share(row.map, row.map_interval)));
        if group.iter().any(|row| row.same_eps.is_some()) {
            let cell = |row: &CorruptionRow, of: &dyn Fn(&SameEps) -> String| {
                row.same_eps.as_ref().map_or(String::new(), of)
            };
            let eps = each(&|row| cell(row, &|same| eps_of(same.eps)));
            add("", "ε of attack", eps);
            if intervals {
                let within =
                    each(&|row| cell(row, &|same| format!("{} – {}", eps_of(same.low), eps_of(same.high))));
                add("", "its interval", within);
            }
        }
    }
    let head = ["corruption", "of", "1", "2", "3", "4", "5"];
    let mut grid = Grid::new(&head, &[0, 1], rows).set_back(parameters);
    grid.strengths = true;
    grid
}

//! A model's geometry, for a terminal and as files.

use super::page;
use super::result::Geometry;
use super::shown::{alarms, budget, classes, drawn, entangled, measures, samplers, shifts, triplets, what};
use crate::Result;
use crate::report::terminal::{Paint, table, width, wrap};
use crate::report::{Output, Rendering, pretty};
use std::path::Path;

/// Every format; `-o` chooses by the file name's extension.
const FORMATS: &[Rendering<Geometry>] = &[("html", page::render), ("json", pretty)];

/// Claims `path` for a geometry. Errors (exit code 2): unknown extension, folder missing or not writable.
pub fn open(path: &Path) -> Result<Output<Geometry>> {
    Output::open(path, FORMATS)
}

/// Classes that a terminal shows.
const CLASSES: usize = 5;

/// The text for a terminal: a summary, of which JSON and HTML have all.
pub fn terminal(geometry: &Geometry) -> String {
    let mut out = String::new();
    let mut line = |text: &str| out += &(wrap(text) + "\n");
    alarms(geometry).iter().for_each(|alarm| line(&format!("!! {alarm}")));
    line(&what(geometry));
    line(&format!("without an attack: R@1 {:.1}", geometry.benign.r1));
    if let Some(sampling) = &geometry.spacing.sampling {
        line(&format!("distances of {sampling}"));
    }
    let mut short = measures(geometry);
    short.head.truncate(2);
    short.rows.iter_mut().for_each(|row| row.truncate(2));
    let sections = [
        (String::new(), short),
        (format!("hardness H = d(a,p) − d(a,n) of {}:", drawn(geometry)), samplers(geometry)),
        (
            format!(
                "{} triplets made as hard as they get (ANP moves anchors, CAP positives and negatives, SIP all), {}:",
                geometry.triplets.triplets.len(),
                budget(geometry)
            ),
            triplets(geometry),
        ),
        (format!("queries of the classes on the map, {}:", budget(geometry)), shifts(geometry)),
        (
            format!(
                "{} of {} classes are no farther from another class than their own images from each other; the most entangled:",
                entangled(geometry),
                geometry.spacing.classes.len()
            ),
            classes(geometry, CLASSES),
        ),
    ];
    for (title, grid) in sections {
        if !title.is_empty() {
            out += &(wrap(&title) + "\n");
        }
        out += &(table(&grid, width(), Paint(false)) + "\n");
    }
    out
}

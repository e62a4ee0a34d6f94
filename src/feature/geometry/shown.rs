//! What every format shows of a model's geometry: its tables, and what it was measured on.

use super::result::Geometry;
use crate::facts::Facts;
use crate::judge::row::DASH;
use crate::record::{Severity, TripletState};
use crate::report::view::{Grid, bound, scaled};

/// A dash where there is nothing.
fn dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| DASH.into())
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

/// A number near 0 with as many digits as say something.
fn small(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 { format!("{value:.1e}") } else { format!("{value:.4}") }
}

/// What a clean measure is, its value, and what the papers say of it.
pub(super) fn measures(geometry: &Geometry) -> Grid {
    let s = &geometry.spacing;
    let row = |name: &str, value: Option<f64>, in_papers: &str| {
        vec![name.to_string(), dash(value.map(three)), in_papers.to_string()]
    };
    let head = ["measure", "here", "in the papers"];
    Grid::new(
        &head,
        &[0, 2],
        vec![
            row(
                "mean distance of all pairs, d̄",
                Some(s.distance),
                "√2 = 1.414 where classes are spread evenly (ADML)",
            ),
            row("within classes", Some(s.within), "CUB 0.226, CARS 0.256, SOP 0.438 (CA-TRIDE, table 5)"),
            row("between classes", Some(s.between), "CUB 0.287, CARS 0.325, SOP 0.664"),
            row("entanglement, within ÷ between", Some(s.entanglement), "CUB 0.79, CARS 0.79, SOP 0.66"),
            row(
                "separability, (between − within) ÷ d̄",
                Some(s.separability),
                "about 0 in a collapse (CA-TRIDE, figure 4)",
            ),
            row(
                "alignment, mean d² within classes",
                Some(s.alignment),
                "0 at best; 0 too in a collapse (ADML, equation 1)",
            ),
            row(
                "unbiased loss, squared length of the mean",
                s.unbiased,
                "0 where the centre is the origin, 1 in a collapse (ADML, definition 5)",
            ),
            row(
                "hyperspherical energy, s = 0",
                s.he_0,
                "0.337 untrained, −0.337 at best on CUB (ADML, table 8)",
            ),
            row("hyperspherical energy, s = 1", s.he_1, "1/√2 = 0.707 where embeddings are spread evenly"),
            row("Gaussian energy, log of the mean", s.g_he, "−2 where embeddings are spread evenly"),
            row(
                "Gaussian energy, the mean itself",
                s.g_he.map(f64::exp),
                "0.594 untrained, 0.142 at best on CUB (ADML, table 8)",
            ),
        ],
    )
}

/// Hardness by sampler.
pub(super) fn samplers(geometry: &Geometry) -> Grid {
    let row = |s: &crate::record::SamplerRow| {
        vec![
            s.sampler.clone(),
            three(s.mean),
            small(s.variance),
            small(s.variance_within),
            format!("{:.1} %", s.hard),
        ]
    };
    let head = ["negatives", "mean H", "variance of means", "variance in a batch", "H above 0"];
    Grid::new(&head, &[0], geometry.samplers.iter().map(row))
}

/// Triplets before and under attack.
pub(super) fn triplets(geometry: &Geometry) -> Grid {
    let state = |s: &TripletState| [s.hardness, s.collapseness, s.separability, s.distance].map(three);
    let clean = ["none", "–", "–", "–", "–", "–"]
        .map(String::from)
        .into_iter()
        .chain(state(&geometry.triplets.clean));
    let rows = geometry.triplets.attacks.iter().map(|row| {
        let numbers = [row.shift, row.relative, row.overall, row.gain, row.gain_printed].map(three);
        std::iter::once(row.method.clone()).chain(numbers).chain(state(&row.state)).collect()
    });
    let head = ["moved", "shift", "÷ d̄", "overall", "ΔH ÷ shift", "printed", "H", "C", "separability", "d̄"];
    Grid::new(&head, &[0], std::iter::once(clean.collect()).chain(rows))
}

/// Queries under the suite's attacks.
pub(super) fn shifts(geometry: &Geometry) -> Grid {
    let share = |value: Option<f64>| dash(value.map(|v| format!("{v:.1}")));
    let row = |s: &super::result::ShiftRow| {
        let mean = |value: f64| dash((s.queries > 0).then(|| three(value)));
        vec![
            s.attack.clone(),
            s.queries.to_string(),
            mean(s.shift),
            mean(s.relative),
            share(s.r1_before),
            share(s.r1_after),
        ]
    };
    let head = ["attack", "queries", "shift", "shift ÷ d̄", "clean R@1", "R@1 under attack"];
    Grid::new(&head, &[0], geometry.shifts.iter().map(row))
}

/// The `most` classes that are least apart from another one.
pub(super) fn classes(geometry: &Geometry, most: usize) -> Grid {
    let row = |c: &crate::record::ClassSpacing| {
        vec![
            c.class.clone(),
            c.neighbour.clone(),
            c.items.to_string(),
            three(c.within),
            three(c.between),
            three(c.entanglement),
        ]
    };
    let head = ["class", "nearest class", "images", "within", "to it", "ratio"];
    Grid::new(&head, &[0, 1], geometry.spacing.classes.iter().take(most).map(row))
}

/// The number of classes whose images are as far from each other as from another class.
pub(super) fn entangled(geometry: &Geometry) -> usize {
    geometry.spacing.classes.iter().filter(|c| c.entanglement >= 1.0).count()
}

/// The attack that the map shows, in words.
pub(super) fn mapped(geometry: &Geometry) -> String {
    let code = &geometry.map.attack;
    Facts::find(code).map_or(code.clone(), |o| o.about.trim_end_matches('.').to_string())
}

/// The budget of the attacks, in words.
pub(super) fn budget(geometry: &Geometry) -> String {
    let s = &geometry.suite;
    format!("ε {}, {} steps of {:.5}{}", bound(s), s.steps, s.alpha, scaled(s))
}

/// Model, images and metric, in a line.
pub(super) fn what(geometry: &Geometry) -> String {
    let g = geometry;
    let embeddings = match g.model.metric.normalizes() {
        true => "embeddings of length 1",
        false => "embeddings as the model gives them",
    };
    format!(
        "{} · {} images, {} classes ({}) · Euclidean distances of {embeddings}",
        g.model.path, g.data.images, g.data.classes, g.data.source
    )
}

/// How triplets were drawn.
pub(super) fn drawn(geometry: &Geometry) -> String {
    let m = &geometry.mining;
    format!("{} batches of {} images, two of a class; semi-hard within η {}", m.batches, m.images, m.eta)
}

/// Findings of severity error, which invalidate the numbers.
pub(super) fn alarms(geometry: &Geometry) -> Vec<String> {
    let grave = geometry.warnings.iter().filter(|w| w.severity == Severity::Error);
    grave.map(|w| format!("not to be trusted ({}): {}", w.id, w.text)).collect()
}

//! An objective, a measure and a format of a caller: rows like those of the tables, from outside the crates.

use crate::common::{Temp, bundled, here};
use audit::Request;
use audit::facts::{self, Facts, Measured, measures};
use audit::record::Measures;
use audit::report::{Format, Target};
use audit::threat::objective::es::ES;
use audit::threat::{Loss, Measure, Objective};

const MEASURED: Measured = Measured { name: "from_class", ..measures::HIT };

/// The distance from the mean of the query's class.
static FROM_CLASS: Measure = Measure {
    facts: &MEASURED,
    asks: |_| Vec::new(),
    measured: |at, _| {
        let gallery = &at.context.gallery;
        let centre: Vec<f32> = centre(gallery, at.trial.query).iter().map(|value| *value as f32).collect();
        Measures { distance: Some(gallery.metric.distance(at.z, &centre)), ..Measures::default() }
    },
};

/// Moves a query away from the mean of its class.
static AWAY: Objective = Objective {
    facts: &Facts {
        code: "AWAY",
        about: "Moves a query away from the mean of its class.",
        measured: &MEASURED,
        ..facts::ES
    },
    measure: &FROM_CLASS,
    loss: |context, _, trial| {
        let gallery = &context.gallery;
        let centre = centre(gallery, trial.query);
        Loss::Point(Box::new(move |z, _, gradient| -gallery.metric.pair(z, &centre, 0.0, gradient, |_| -1.0)))
    },
    ..ES
};

fn centre(gallery: &audit::space::Gallery, query: usize) -> Vec<f64> {
    let own: Vec<&[f32]> = gallery.positives(query).map(|item| gallery.point(item)).collect();
    let mean = |k: usize| own.iter().map(|point| f64::from(point[k])).sum::<f64>() / own.len() as f64;
    (0..gallery.dim()).map(mean).collect()
}

fn request() -> Request {
    here(Request::model(bundled("plain.onnx")).suite("smoke").max_queries(6))
}

static COUNT: &[Format] = &[Format {
    extension: "count",
    render: |report| Ok(format!("{} trials\n", report.outcomes.len()).into_bytes()),
    shows_examples: false,
    names_trials: false,
}];

#[test]
fn an_objective_and_a_measure_of_a_caller_are_attacked_and_measured() {
    let request = request();
    let mut embedded = audit::embed(&request).unwrap();
    let outcomes = embedded.attack(&request, &AWAY).unwrap();
    assert_eq!(outcomes.len(), 6);
    for outcome in &outcomes {
        let (before, after) = (outcome.before.distance.unwrap(), outcome.after.distance.unwrap());
        assert!(outcome.attack == "AWAY" && after > before + 0.05, "{}: {before} to {after}", outcome.query);
    }
}

#[test]
fn a_format_of_a_caller_is_written_beside_those_of_the_program() {
    let dir = Temp::new();
    let report = audit::run(&request()).unwrap();
    let path = dir.join("report.count");
    Target::among(&path, COUNT).unwrap().write(&report).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, format!("{} trials\n", report.outcomes.len()));
    // The program's own formats don't know the extension, and this table doesn't know theirs.
    assert!(Target::open(&path).is_err() && Target::among(&dir.join("report.md"), COUNT).is_err());
}

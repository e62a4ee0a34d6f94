//! HUB: one image of the gallery comes among the first for as many queries as possible. It is CA+ with many
//! targets. The image is crafted on a sample of queries and measured on others.

use super::{Draw, Loss, Objective, Query, Reach, Targets, Trial, ca, measure, usual};
use crate::ensemble::members::{HINGE, SQUARE};
use crate::measure::captured::eligible_queries;
use crate::trial::{Aims, Ensemble, From, Member};
use audit_base::Result;
use audit_gallery::space::{Gallery, wide};
use audit_model::Route;
use audit_report::facts;
use audit_report::facts::measures::FIRST;
use audit_report::facts::members;

/// Raises a candidate's rank for the queries of a sample.
pub const HUB: Objective = Objective {
    measure: &measure::CAPTURED,
    // There may be no image that is near to all queries.
    reach: |_| Reach::Unknown,
    targets: sample,
    loss: ca::RAISE.loss,
    members: CAPTURE,
    ..usual(&facts::HUB)
};

/// Draws the sample: distinct queries that rank the candidate, and at most half of them.
fn sample(query: &Query, draw: &mut Draw) -> Result<Targets> {
    let Query { context, index, count, .. } = *query;
    let gallery = &context.gallery;
    if context.hub_class == Some(gallery.labels[index]) {
        return Ok(Targets::Skip("it has the class whose queries it is to capture"));
    }
    let eligible: Vec<usize> = eligible_queries(gallery, context.hub_class)
        .into_iter()
        .filter(|&q| !gallery.excluded(q, index))
        .collect();
    match eligible.len() / 2 {
        0 => Ok(Targets::Skip("fewer than two queries rank it")),
        most => Ok(Targets::Chosen(draw.distinct(eligible, count.min(most)))),
    }
}

/// The point of a query [D], and the distances of its first images, ascending.
type Head = (Vec<f64>, Vec<f64>);

/// The first 10 images of the sample's queries, without the candidate. With `class` (a label) only of queries
/// of that class.
fn sample_heads(gallery: &Gallery, trial: &Trial, class: Option<usize>) -> Vec<Head> {
    let head = |&q: &usize| {
        let d = gallery.distances(gallery.point(q));
        let ranked = |i: usize| i != trial.query && !gallery.excluded(q, i);
        let near = gallery.nearest(&d, FIRST, ranked).into_iter().map(|i| d[i]).collect();
        (wide(gallery.point(q)), near)
    };
    let counts = |q: &&usize| class.is_none_or(|class| gallery.labels[**q] == class);
    trial.targets.iter().filter(counts).map(head).filter(|(_, near): &Head| !near.is_empty()).collect()
}

/// mean over the sample's queries q and their first 10 images x of [d(q, c̃) − d(q, x)]₊. It is 0 if c̃ comes
/// first for all.
fn first_ten<'a>(gallery: &'a Gallery, trial: &Trial, class: Option<usize>) -> Loss<'a> {
    over(gallery, sample_heads(gallery, trial, class), |near, at| {
        let open = near.iter().filter(|d| **d < at);
        let n = near.len() as f64;
        (open.clone().map(|d| at - d).sum::<f64>() / n, open.count() as f64 / n)
    })
}

/// Width of the ramp from captured to not captured, as a share of the distance of the last image that counts.
const RAMP: f64 = 0.25;
/// The slope beyond the ramp, as a share of the slope on it: it leads to far queries.
const BEYOND: f64 = 0.02;

/// Approximately the share of the sample's queries that are not captured at `k`: for each query, a ramp that
/// rises from 0 to 1 beyond the distance of its k-th image. Unlike a hinge it gives up queries that are too
/// far.
fn not_captured<'a>(gallery: &'a Gallery, trial: &Trial, k: usize) -> Loss<'a> {
    over(gallery, sample_heads(gallery, trial, None), move |near, at| {
        let last = near[k.min(near.len()) - 1].max(f64::MIN_POSITIVE);
        let beyond = (at - last) / (RAMP * last);
        match beyond {
            b if b <= 0.0 => (0.0, 0.0),
            b if b < 1.0 => (b, 1.0 / (RAMP * last)),
            b => (1.0 + BEYOND * (b - 1.0), BEYOND / (RAMP * last)),
        }
    })
}

/// The mean of a function of each query's distance to the candidate, and of its slope, given the distances of
/// the query's first images.
fn over<'a>(
    gallery: &'a Gallery,
    heads: Vec<Head>,
    of: impl Fn(&[f64], f64) -> (f64, f64) + Send + Sync + 'a,
) -> Loss<'a> {
    if heads.is_empty() {
        return Loss::Still;
    }
    let metric = gallery.metric;
    let n = heads.len() as f64;
    Loss::Point(Box::new(move |z, _, gradient| {
        let mut loss = 0.0;
        for (query, near) in &heads {
            metric.pair(z, query, 0.0, gradient, |at| {
                let (value, slope) = of(near, at);
                loss += value;
                (slope / n) as f32
            });
        }
        loss / n
    }))
}

const FIRST_TEN: Member = Member {
    facts: &members::FIRST_TEN,
    loss: |context, _, trial, _| first_ten(&context.gallery, trial, None),
    ..HINGE
};

const CAPTURED: Member = Member {
    facts: &members::CAPTURED,
    loss: |context, _, trial, _| not_captured(&context.gallery, trial, FIRST),
    alpha: Some(0.3),
    from: From::Best,
    ..HINGE
};

/// For a hub. If queries lie far apart, one image captures some only by giving up others, so members aim at
/// one class each, and then at what is near. Images are compared by the number of the sample's queries that
/// they capture.
const CAPTURE: Ensemble = &[
    &[
        HINGE,
        FIRST_TEN,
        Member { facts: &members::FIRST_TEN_SOFTENED, route: Route::Softened, ..FIRST_TEN },
        Member {
            facts: &members::FIRST_TEN_CLASS,
            loss: |context, _, trial, class| first_ten(&context.gallery, trial, class),
            aims: Aims::Nearest(8),
            ..FIRST_TEN
        },
        Member { facts: &members::CAPTURED_RANDOM, alpha: Some(1.0), from: From::Random, ..CAPTURED },
    ],
    &[
        CAPTURED,
        Member { facts: &members::CAPTURED_SOFTENED, route: Route::Softened, ..CAPTURED },
        Member {
            facts: &members::CAPTURED_FIRST,
            loss: |context, _, trial, _| not_captured(&context.gallery, trial, 1),
            ..CAPTURED
        },
    ],
    &[Member { loss: CAPTURED.loss, ..SQUARE }],
];

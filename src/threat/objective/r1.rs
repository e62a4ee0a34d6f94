//! R1: recall at 1 under the strongest attack that this program has. Robust R@1 is its term: the share of the queries
//! for which no attack found an image that makes an item of another class the nearest.

use super::{Form, Loss, Objective, Reach, Trial, USUAL, es, ltm};
use crate::model::Route;
use crate::space::Gallery;
use crate::threat::ensemble::members::{HINGE, LOST, SQUARE};
use crate::threat::search::{COSINE, MOMENTUM, PGD, RANDOM_8_BIT};
use crate::threat::term;
use crate::threat::trial::AttackContext;
use crate::threat::trial::{Aims, Ensemble, From, Member};

/// Makes an item of any other class come first.
pub const R1: Objective = Objective {
    code: "R1",
    about: "Perturbs a query until any item of another class comes first, by every search there is.",
    terms: &[term::R1],
    reach: |_| Reach::Chance,
    targets: ltm::LTM.targets,
    loss: |context, form, trial| margin(context, form, trial, None),
    members: RECALL,
    strong_only: true,
    ..USUAL
};

/// A loss is below 0 only where the other class is nearer by this share of the distance, so that rounding doesn't decide.
const CLEARLY: f32 = 1e-6;

/// min over another class of d − min over the query's class of d. Below 0 the query is lost. With `class` (a label) only
/// items of that class count as another class: the loss of a targeted attack.
pub fn margin<'a>(context: &'a AttackContext, _: Form, trial: &Trial, class: Option<usize>) -> Loss<'a> {
    let gallery = &context.gallery;
    let own: Vec<usize> = gallery.positives(trial.query).collect();
    let left_out = gallery.left_out(trial.query, true);
    let mine = gallery.labels[trial.query];
    let wanted = |&i: &usize| match class {
        Some(class) => gallery.labels[i] == class,
        None => gallery.labels[i] != mine,
    };
    let others: Vec<usize> = (0..gallery.len()).filter(wanted).filter(|i| !left_out.contains(i)).collect();
    Loss::Gallery(Box::new(move |d, weights| {
        let nearest = |of: &[usize]| of.iter().copied().min_by(|&a, &b| d[a].total_cmp(&d[b]));
        let (Some(near), Some(other)) = (nearest(&own), nearest(&others)) else { return 0.0 };
        weights[other] = 1.0;
        weights[near] = -1.0;
        f64::from(d[other]) * f64::from(1.0 + CLEARLY) - f64::from(d[near])
    }))
}

/// The labels of the `count` other classes whose nearest item is nearest to the query, nearest first.
pub fn nearest_classes(gallery: &Gallery, query: usize, count: usize) -> Vec<usize> {
    let d = gallery.distances(gallery.point(query));
    let mine = gallery.labels[query];
    let left_out = gallery.left_out(query, true);
    let mut order: Vec<usize> = (0..gallery.len()).filter(|i| gallery.labels[*i] != mine).collect();
    order.retain(|i| !left_out.contains(i));
    order.sort_unstable_by(|&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
    let mut seen = std::collections::HashSet::new();
    order.into_iter().map(|i| gallery.labels[i]).filter(|label| seen.insert(*label)).take(count).collect()
}

const FRESH: Member = Member {
    name: "square, from stripes",
    about: "random search without gradients (Square), from random stripes, by whole grey levels",
    search: &RANDOM_8_BIT,
    from: From::Clean,
    ..SQUARE
};

/// The margin along the exact gradient.
pub const MARGIN: Member = Member {
    name: "margin",
    about: "nearest item of another class against nearest of the own, from the clean image",
    steps: 30,
    until: LOST,
    ..HINGE
};
const PROBE: Member = Member {
    name: "each class",
    about: "a few steps with momentum towards each of the nearest other classes",
    loss: margin,
    aims: Aims::Nearest(12),
    route: Route::Softened,
    or: Some(Route::Exact),
    search: &MOMENTUM,
    alpha: Some(0.5),
    steps: 20,
    until: LOST,
    ..HINGE
};
const CLASSES: Member = Member {
    name: "best classes",
    about: "with momentum towards the classes that came nearest",
    loss: margin,
    aims: Aims::Best(3),
    route: Route::Softened,
    or: Some(Route::Exact),
    search: &MOMENTUM,
    alpha: Some(0.5),
    steps: 100,
    until: LOST,
    ..HINGE
};

/// Where a search stops a hair's breadth from the goal, small steps of another direction pass it.
const SMALL_STEPS: Member = Member {
    name: "small steps",
    about: "small steps with momentum, from the best image so far",
    route: Route::Softened,
    or: Some(Route::Exact),
    search: &MOMENTUM,
    alpha: Some(0.1),
    from: From::Best,
    steps: 60,
    ..MARGIN
};

const SHIFT: Member = Member {
    name: "es",
    about: "ES with its published steps, from the clean image",
    loss: |context, form, trial, _| (es::ES.loss)(context, form, trial),
    search: &PGD,
    steps: 32,
    alpha: None,
    ..HINGE
};

/// For recall at 1. The second tier shows whether gradients are masked: on the queries that survived ES, it makes ES's
/// published steps along softened gradients, and as a control along the exact one from another image.
pub const RECALL: Ensemble = &[
    &[SHIFT],
    &[
        MARGIN,
        Member { name: CONTROL, about: "ES from a random image of the ball", from: From::Random, ..SHIFT },
        Member {
            name: "es, softened",
            about: "ES with the softened backward pass",
            route: Route::Softened,
            ..SHIFT
        },
        Member {
            name: "es, straight-through",
            about: "ES with the straight-through backward pass",
            route: Route::StraightThrough,
            ..SHIFT
        },
    ],
    &[
        Member {
            name: MARGIN_CONTROL,
            about: "the margin from a random image of the ball",
            from: From::Random,
            ..MARGIN
        },
        Member {
            name: "margin, softened",
            about: "the margin with the softened backward pass",
            route: Route::Softened,
            ..MARGIN
        },
        Member {
            name: "margin, straight-through",
            about: "the margin with the straight-through backward pass",
            route: Route::StraightThrough,
            ..MARGIN
        },
        Member {
            name: "margin, surrogate",
            about: "the margin of a surrogate, the model with saturated operators made wider",
            route: Route::Surrogate,
            until: None,
            ..MARGIN
        },
    ],
    &[PROBE],
    &[CLASSES],
    &[
        Member {
            name: "best classes, exact",
            about: "the same along the exact gradient, without momentum",
            aims: Aims::Best(3),
            route: Route::Exact,
            search: &COSINE,
            alpha: Some(1.0),
            steps: 60,
            ..CLASSES
        },
        Member {
            name: "best classes, random starts",
            about: "the same from random images of the ball",
            aims: Aims::Best(4),
            from: From::Random,
            steps: 80,
            ..CLASSES
        },
        Member { steps: 500, until: LOST, ..SQUARE },
    ],
    &[SMALL_STEPS],
    &[
        Member { name: "square, longer", steps: 1500, until: LOST, at_once: AT_ONCE, ..SQUARE },
        Member { steps: 2000, until: LOST, at_once: AT_ONCE, ..FRESH },
    ],
    &[Member { name: "square, closing in", steps: 4000, ..CLOSING }],
    &[Member { name: "square, still closing in", steps: 6000, ..CLOSING }],
];

/// Random search is slow, and of the queries that are left it breaks only those to whose limit it comes nearer and
/// nearer. So long runs are for these.
const CLOSING: Member = Member {
    about: "the same, on queries whose margin the tier before has cut by a quarter",
    until: LOST,
    at_once: AT_ONCE,
    closing: true,
    ..SQUARE
};
/// Images that a long random search tries at once. Most squares are rejected, so that the best of a few is seldom worse than one
/// after the other.
const AT_ONCE: usize = 4;

/// The members of [`RECALL`] that the members of their tiers with softened backward passes are compared with.
pub const CONTROLS: [&str; 2] = [CONTROL, MARGIN_CONTROL];
const CONTROL: &str = "es, random start";
const MARGIN_CONTROL: &str = "margin, random start";

//! R1: recall at 1 under the strongest attack that this program has. Robust R@1 is its term: the share of the
//! queries for which no attack found an image that makes an image of another class the nearest.

use super::{Form, Loss, Objective, Reach, Trial, es, ltm, nearest_of, usual};
use crate::ensemble::members::{HINGE, LOST, SOFT, SQUARE};
use crate::search::{COSINE, GREY_LEVELS, MOMENTUM, MULTI_EPS, PGD, RANDOM_8_BIT};
use crate::trial::AttackContext;
use crate::trial::{Aims, Ensemble, From, Member};
use audit_gallery::space::Gallery;
use audit_model::Route;
use audit_report::facts;
use audit_report::facts::members;

/// Makes an image of any other class come first.
pub const R1: Objective = Objective {
    reach: |_| Reach::Chance,
    targets: ltm::LTM.targets,
    loss: |context, form, trial| margin(context, form, trial, None),
    members: RECALL,
    ..usual(&facts::R1)
};

/// min over incorrect images of d − min over correct images of d. Below 0 the query is wrong, by more
/// than rounding. With `class` (a label) only images of that class count as incorrect: the loss of a targeted
/// attack.
pub fn margin<'a>(context: &'a AttackContext, _: Form, trial: &Trial, class: Option<usize>) -> Loss<'a> {
    let gallery = &context.gallery;
    let own = (trial.objective.correct)(gallery, trial);
    let mut others = incorrect(gallery, trial, &own);
    others.retain(|&i| class.is_none_or(|class| gallery.labels[i] == class));
    Loss::Gallery(Box::new(move |d, weights| {
        let (Some(near), Some(other)) = (nearest_of(d, &own), nearest_of(d, &others)) else { return 0.0 };
        weights[other] = 1.0;
        weights[near] = -1.0;
        let far = f64::from(d[other]);
        far + gallery.rounding(other, far) - f64::from(d[near])
    }))
}

/// The images that the trial's query ranks and that are not `correct`.
fn incorrect(gallery: &Gallery, trial: &Trial, correct: &[usize]) -> Vec<usize> {
    let mut others = vec![true; gallery.len()];
    correct.iter().chain(&gallery.left_out(trial.query, true)).for_each(|&i| others[i] = false);
    (0..gallery.len()).filter(|&i| others[i]).collect()
}

/// The labels of the `count` other classes whose nearest image is nearest to the trial's query, nearest
/// first.
pub fn nearest_classes(gallery: &Gallery, trial: &Trial, count: usize) -> Vec<usize> {
    let d = gallery.distances(gallery.point(trial.query));
    let mut order = incorrect(gallery, trial, &(trial.objective.correct)(gallery, trial));
    order.sort_unstable_by(|&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
    let mut seen = std::collections::HashSet::new();
    order.into_iter().map(|i| gallery.labels[i]).filter(|label| seen.insert(*label)).take(count).collect()
}

const FRESH: Member = Member { facts: &members::STRIPES, search: &RANDOM_8_BIT, from: From::Clean, ..SQUARE };

/// The margin along the exact gradient.
pub const MARGIN: Member = Member { facts: &members::MARGIN, steps: 30, until: LOST, ..HINGE };
const PROBE: Member = Member {
    facts: &members::PROBE,
    loss: margin,
    aims: Aims::Nearest(12),
    search: &MULTI_EPS,
    alpha: Some(0.5),
    steps: 20,
    until: LOST,
    ..SOFT
};
const CLASSES: Member = Member { facts: &members::CLASSES, aims: Aims::Best(3), steps: 100, ..PROBE };

/// Images that a file of 8 bits can hold, as those of [`FRESH`].
const LEVELS: Member =
    Member { facts: &members::LEVELS, aims: Aims::Best(2), search: &GREY_LEVELS, steps: 40, ..CLASSES };

/// If a search stops just short of the goal, small steps in another direction reach it.
const SMALL_STEPS: Member = Member {
    facts: &members::SMALL_STEPS,
    route: Route::Softened,
    or: Some(Route::Exact),
    search: &MOMENTUM,
    alpha: Some(0.1),
    from: From::Best,
    steps: 60,
    ..MARGIN
};

const SHIFT: Member = Member {
    facts: &members::SHIFT,
    loss: |context, form, trial, _| (es::ES.loss)(context, form, trial),
    search: &PGD,
    steps: 32,
    alpha: None,
    ..HINGE
};

/// For recall at 1. The second tier shows whether gradients are masked: on the queries that withstood ES, it
/// makes ES's published steps along softened gradients, and as a control along the exact one from another
/// image.
pub const RECALL: Ensemble = &[
    &[SHIFT],
    &[
        MARGIN,
        Member { facts: &members::SHIFT_RANDOM, from: From::Random, ..SHIFT },
        Member { facts: &members::SHIFT_SOFTENED, route: Route::Softened, ..SHIFT },
        Member { facts: &members::SHIFT_STRAIGHT, route: Route::StraightThrough, ..SHIFT },
    ],
    &[
        Member { facts: &members::MARGIN_RANDOM, from: From::Random, ..MARGIN },
        Member { facts: &members::MARGIN_SOFTENED, route: Route::Softened, ..MARGIN },
        Member { facts: &members::MARGIN_STRAIGHT, route: Route::StraightThrough, ..MARGIN },
        Member { facts: &members::MARGIN_WIDENED, route: Route::Widened, until: None, ..MARGIN },
    ],
    &[PROBE],
    &[CLASSES],
    &[
        Member {
            facts: &members::CLASSES_EXACT,
            aims: Aims::Best(3),
            route: Route::Exact,
            search: &COSINE,
            alpha: Some(1.0),
            steps: 60,
            ..CLASSES
        },
        Member {
            facts: &members::CLASSES_RANDOM,
            aims: Aims::Best(4),
            from: From::Random,
            steps: 80,
            ..CLASSES
        },
        Member { steps: 500, until: LOST, at_once: AT_ONCE, ..SQUARE },
    ],
    &[SMALL_STEPS],
    &[
        Member { facts: &members::LONGER, steps: 1500, until: LOST, at_once: AT_ONCE, ..SQUARE },
        Member { steps: 2000, until: LOST, at_once: AT_ONCE, ..FRESH },
        LEVELS,
    ],
    &[Member { facts: &members::CLOSING, steps: 4000, ..CLOSING }],
    &[Member { facts: &members::STILL_CLOSING, steps: 6000, ..CLOSING }],
];

/// Random search is slow, and of the remaining queries it breaks only those that come steadily nearer to
/// their limit. So long runs are only for these.
const CLOSING: Member = Member { until: LOST, at_once: 2 * AT_ONCE, closing: true, ..SQUARE };
/// Images that a random search tries at once. Most squares are rejected, so that the best of a few is seldom
/// worse than one after the other, and fewer places of the last batches stay empty. For a given number of
/// images, long searches reach as many goals with 8 at once as with 4.
pub const AT_ONCE: usize = 4;

/// Members of [`RECALL`] that are compared with the softened members of their tiers.
pub const CONTROLS: [&str; 2] = [members::SHIFT_RANDOM.name, members::MARGIN_RANDOM.name];

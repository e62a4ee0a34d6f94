//! The searches for the smallest perturbation, at ε and at its halves, and what they cost.

use super::members::{HINGE, LOST};
use super::{Aims, Ensemble, From, Member};
use crate::ball::Ball;
use crate::objective::r1;
use crate::passes::Room;
use crate::search::{FMN, GREY_LEVELS, MULTI_EPS, RANDOM, RANDOM_8_BIT, SMALLER_EPS};
use audit_gallery::data::GREY_LEVEL;
use audit_model::Route;
use audit_report::facts::members::MemberFacts;
use audit_report::record::Space;

/// Runs before the ensemble: on a net without a defence it makes most queries wrong within a few steps. A
/// later tier has the same member, which would find the same, so that the order changes no result.
pub const FIRST: Ensemble = &[&[r1::MARGIN]];

/// The search for the smallest perturbation, along the exact gradient.
pub const SMALLEST: Member = Member {
    facts: &MemberFacts::by_gradient("fmn", "the smallest perturbation by FMN, from the clean image"),
    loss: r1::margin,
    search: &FMN,
    steps: 15,
    alpha: None,
    ..HINGE
};
/// From what [`SMALLEST`] found, for every query: a second run of 15 steps finds smaller perturbations than
/// 30 steps in one.
pub const SECOND: Member = Member {
    facts: &MemberFacts::by_gradient(
        "fmn, again",
        "the smallest perturbation by FMN, from the smallest so far",
    ),
    from: From::Best,
    route: Route::Softened,
    or: Some(Route::Exact),
    ..SMALLEST
};
/// The first run again, along the softened backward pass, for queries that no member along the exact gradient
/// broke.
pub const SOFTENED: Member = Member {
    facts: &MemberFacts::by_gradient("fmn, softened", "the same along the softened backward pass"),
    route: Route::Softened,
    ..SMALLEST
};
/// From the smallest perturbation so far. Rounds are repeated as long as they gain [`GAIN`].
pub const AGAIN: Member = Member {
    facts: &MemberFacts::by_gradient("fmn, from the smallest", "the same from the smallest so far"),
    steps: 20,
    ..SECOND
};
/// Towards each of the nearest classes.
pub const CLASSES: Member = Member {
    facts: &MemberFacts::by_gradient("fmn, each class", "the same towards each of the nearest classes"),
    aims: Aims::Nearest(5),
    steps: 20,
    ..SMALLEST
};
/// Towards the classes that were reached by the smallest perturbations.
pub const BEST: Member = Member {
    facts: &MemberFacts::by_gradient("fmn, best classes", "the same towards the classes that came nearest"),
    aims: Aims::Best(2),
    route: Route::Softened,
    or: Some(Route::Exact),
    steps: 60,
    ..SMALLEST
};
/// From far away into a ball that is smaller than the smallest perturbation so far, towards each of the
/// nearest classes. Only in balls that are no boxes.
pub const FROM_FAR: Member = Member {
    facts: &MemberFacts::by_gradient(
        "multi-ε, smaller",
        "momentum in a ball that shrinks below the smallest so far",
    ),
    aims: Aims::Nearest(5),
    search: &SMALLER_EPS,
    alpha: Some(0.5),
    from: From::Best,
    steps: 40,
    ..SECOND
};
/// As the strong search does at ε: from far away into the ball of the first rung below ε*, from random images,
/// towards the classes that came nearest in [`FROM_FAR`]. Only in balls that are no boxes, on queries that
/// [`FROM_FAR`] gained on or whose ε* is at most [`NEAR`] times the rung.
pub const RUNG_RANDOM: Member = Member {
    facts: &MemberFacts::by_gradient(
        "rung, random starts",
        "momentum in a ball that shrinks to a rung, from random images",
    ),
    aims: Aims::Best(4),
    search: &MULTI_EPS,
    from: From::Random,
    steps: 60,
    until: LOST,
    ..FROM_FAR
};
/// The same from the clean image, on queries that [`FROM_FAR`] gained on and that are left.
pub const RUNG_CLASSES: Member = Member {
    facts: &MemberFacts::by_gradient("rung, best classes", "the same from the clean image"),
    aims: Aims::Best(3),
    from: From::Clean,
    ..RUNG_RANDOM
};
/// Queries of models/hardened.onnx on which [`FROM_FAR`] gains nothing break at a rung in the L2 ball only if
/// their ε* is at most 1.5 times the rung.
pub const NEAR: f32 = 1.6;
/// Without gradients, in balls of half the radius, for queries that only such a search broke, and those on
/// which the searches along gradients gain nothing.
pub const HALVED: Member = Member {
    facts: &MemberFacts::by_values("square, halved", "random search (Square) in balls of half the radius"),
    search: &RANDOM,
    steps: 200,
    from: From::Stretched,
    until: Some(0.0),
    at_once: r1::AT_ONCE,
    ..SMALLEST
};
/// A few images of whole grey levels, in balls of at most half the radius, for every query: the searches
/// above miss these if the gradient is masked within small changes alone, or if the model recognises
/// images that no file holds. One search goes along a gradient, and one along none.
pub const DOUBTS: [&Member; 2] = [
    &Member {
        facts: &MemberFacts::by_gradient(
            "whole grey levels, halved",
            "images of whole grey levels in balls of half the radius, from the clean image",
        ),
        route: Route::Softened,
        or: Some(Route::Exact),
        from: From::Clean,
        ..FILE
    },
    &Member {
        facts: &MemberFacts::by_values(
            "square, whole grey levels",
            "random search (Square) by whole grey levels in balls of half the radius, from random stripes",
        ),
        search: &RANDOM_8_BIT,
        // Of 37 queries of plain.onnx, whose ε50 is 3/255, 30 images break 10 at 19/255, 60 break 21, and 120
        // break 30. Of 32 queries of hardened.onnx, whose ε50 is 37/255, 60 break none there.
        steps: 60,
        from: From::Clean,
        ..HALVED
    },
];
/// Turns what was found into images of whole grey levels.
pub const FILE: Member = Member {
    facts: &MemberFacts::by_gradient("whole grey levels", "what was found, in whole grey levels"),
    search: &GREY_LEVELS,
    steps: 10,
    from: From::Stretched,
    until: Some(0.0),
    ..SMALLEST
};

/// The most rounds of [`AGAIN`], and the share that a round must take from a query's ε* for the next one.
pub const ROUNDS: usize = 3;
pub const GAIN: f32 = 0.02;
/// A query gets further searches if its ε* is above a grey level, or above ε halved so many times, whichever
/// is smaller. Smaller changes are far from what any defence withstands.
const WORTH: usize = 3;

/// Image steps for a query at most.
pub fn cost(ball: &Ball, rungs: usize, effort: usize) -> usize {
    all(ball, rungs).map(|(member, times)| member.cost(effort) * times).sum()
}

/// Image steps for a query that is wrong within a small change: the further searches are left out.
pub fn usual() -> usize {
    SMALLEST.steps + SECOND.steps
}

/// Forward passes of all workers that the searches for trials that withstand a small change usually take: the
/// first round of [`AGAIN`] gains too little for another one, and [`DOUBTS`] find nothing.
pub fn further(ball: &Ball, trials: usize, room: Room) -> usize {
    let first: &[&Member] = if ball.is_box { &DOUBTS } else { &[&FROM_FAR, &RUNG_RANDOM] };
    let all = first.iter().chain(&[&CLASSES, &AGAIN, &BEST, &AGAIN]);
    all.map(|member| member.passes(1, trials, room)).sum()
}

/// Image steps for a query for which a small change is enough: a few until it is wrong, and the search for
/// the smallest perturbation, which for files ends as soon as a grey level is enough.
pub fn small(space: Space) -> usize {
    const UNTIL_WRONG: usize = 4;
    match space {
        Space::Input => UNTIL_WRONG + usual(),
        Space::File => 2 * UNTIL_WRONG,
    }
}

/// Forward passes of all workers that `trials` trials take, of which `withstand` withstand a small change.
pub fn usual_passes(ball: &Ball, space: Space, [trials, withstand]: [usize; 2], room: Room) -> usize {
    let smallest = match space {
        Space::Input => 0,
        Space::File => room.passes(withstand, usual(), 1, &FMN),
    };
    room.passes(trials, small(space), 1, &FMN) + smallest + further(ball, withstand, room)
}

/// The ε of a small change: [`WORTH`] says which changes are.
pub fn small_change(ball: &Ball, rungs: &[f32]) -> f32 {
    let least = rungs[rungs.len().min(WORTH + 1) - 1];
    if ball.is_box { least.min(GREY_LEVEL) } else { least }
}

/// Forward passes of all workers that the searches take at most on so many trials.
pub fn passes(ball: &Ball, rungs: usize, effort: usize, trials: usize, room: Room) -> usize {
    all(ball, rungs).map(|(member, times)| member.passes(effort, trials, room) * times).sum()
}

/// Every member, with how often it runs at most. Only a box holds images of whole grey levels for certain.
fn all(ball: &Ball, rungs: usize) -> impl Iterator<Item = (&'static Member, usize)> {
    let [in_a_box, elsewhere] = if ball.is_box { [rungs, 0] } else { [0, rungs] };
    [
        (&SMALLEST, 1),
        (&SECOND, 1),
        (&SOFTENED, 1),
        (&CLASSES, 1),
        (&BEST, 1),
        (&AGAIN, 2 * ROUNDS + elsewhere),
        (&HALVED, rungs),
        (&FILE, in_a_box),
        (&FROM_FAR, if ball.is_box { 0 } else { ROUNDS }),
        (&RUNG_RANDOM, elsewhere),
        (&RUNG_CLASSES, elsewhere),
    ]
    .into_iter()
    .chain(DOUBTS.map(move |member| (member, in_a_box)))
}

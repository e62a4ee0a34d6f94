//! Systems that accept an item where its distance is at most a threshold t ([`AttackContext::threshold`]). In verification of faces and others
//! the attacker's image is compared with one reference: dodging and impersonation. In filters of near-duplicates and semantic caches it is
//! compared with all items: evasion and collision.

use super::{Aim, Draw, Drawn, Loss, Objective, Query, Reach, Targets, USUAL, measure};
use crate::Result;
use crate::model::Route;
use crate::space::wide;
use crate::threat::ensemble::members::{HINGE, LOST, THRESHOLD};
use crate::threat::measure::{duplicates, others};
use crate::threat::term;
use crate::threat::trial::AttackContext;
use crate::threat::trial::{Aims, Ensemble, Member};

/// A genuine pair is not accepted any more.
pub const DODGE: Objective = Objective {
    code: "DODGE",
    about: "Perturbs a probe until it is not accepted as of the identity of its own reference.",
    terms: &[term::DODGE],
    measure: &measure::REFERENCE,
    pairs: Some(true),
    // Nearly any other image does.
    reach: |_| Reach::Share(5.0),
    drawn: Drawn::Anywhere,
    targets: |query, draw| Ok(reference(query, draw, true)),
    loss: |context, _, trial| loss(context, trial.targets.clone(), Aim::Last),
    members: THRESHOLD,
    ..USUAL
};

/// An impostor pair is accepted.
pub const IMPERSONATE: Objective = Objective {
    code: "IMPERSONATE",
    about: "Perturbs a probe until it is accepted as of another identity, that of a given reference.",
    terms: &[term::IMPERSONATE],
    pairs: Some(false),
    targets: |query, draw| Ok(reference(query, draw, false)),
    loss: |context, _, trial| loss(context, trial.targets.clone(), Aim::First),
    ..DODGE
};

/// No item of the query's class is within t any more.
pub const EVADE: Objective = Objective {
    code: "EVADE",
    about: "Perturbs a query until none of its duplicates, the other items of its class, is within the threshold.",
    terms: &[term::EVADE],
    measure: &measure::DUPLICATES,
    pairs: None,
    drawn: Drawn::No,
    targets: |query, _| some(&duplicates(&query.context.gallery, query.index), "no other item has its class"),
    loss: |context, _, trial| loss(context, duplicates(&context.gallery, trial.query), Aim::Last),
    ..DODGE
};

/// Any item of another class is within t.
pub const COLLIDE: Objective = Objective {
    code: "COLLIDE",
    about: "Perturbs a query until any item of another class is within the threshold.",
    terms: &[term::COLLIDE],
    measure: &measure::OTHERS,
    pairs: None,
    drawn: Drawn::No,
    targets: |query, _| some(&others(&query.context.gallery, query.index, None), "no item has another class"),
    loss: |context, _, trial| loss(context, others(&context.gallery, trial.query, None), Aim::First),
    members: COLLISION,
    ..DODGE
};

fn some(items: &[usize], why: &'static str) -> Result<Targets> {
    Ok(match items.is_empty() {
        true => Targets::Skip(why),
        false => Targets::Chosen(Vec::new()),
    })
}

/// A reference of the query's identity, or of another one: one of its listed pairs, or where there is no list, any that it may rank.
fn reference(query: &Query, draw: &mut Draw, same: bool) -> Targets {
    let (gallery, pairs, own) = (&query.context.gallery, &query.context.pairs, query.index);
    if pairs.listed {
        let references: Vec<usize> = pairs.of(own, same).map(|pair| pair.reference).collect();
        return match (references.is_empty(), same) {
            (false, _) => Targets::drawn(draw, &references, 1),
            (_, true) => Targets::Skip("no genuine pair begins with it"),
            (_, false) => Targets::Skip("no impostor pair begins with it"),
        };
    }
    let like = |&i: &usize| (gallery.labels[i] == gallery.labels[own]) == same && !gallery.excluded(own, i);
    Targets::drawn(draw, &(0..gallery.len()).filter(like).collect::<Vec<_>>(), 1)
}

/// A loss is below 0 only where the distance is beyond t by this share of 1 + t, so that rounding doesn't decide.
const CLEARLY: f64 = 1e-6;

/// ±(min over the items of d − t): below 0 the attacker is successful. He wants the nearest item within t ([`Aim::First`]) or beyond it.
fn loss(context: &AttackContext, items: Vec<usize>, aim: Aim) -> Loss<'_> {
    let (gallery, sign, t) = (&context.gallery, aim.sign(), context.threshold);
    let value = move |d: f64| f64::from(sign) * (d - t) + CLEARLY * (1.0 + t);
    match items[..] {
        [] => Loss::Still,
        // One distance needs no product with the whole gallery.
        [one] => {
            let (metric, x) = (gallery.metric, wide(gallery.point(one)));
            Loss::Point(Box::new(move |z, _, gradient| value(metric.pair(z, &x, 0.0, gradient, |_| sign))))
        }
        _ => Loss::Gallery(Box::new(move |d, weights| {
            let nearest = items.iter().copied().min_by(|&a, &b| d[a].total_cmp(&d[b]));
            nearest.map_or(0.0, |i| {
                weights[i] = sign;
                value(f64::from(d[i]))
            })
        })),
    }
}

/// As [`THRESHOLD`], for an item of any class. Which one is nearest at first need not be the one that comes within the threshold.
const COLLISION: Ensemble = &[
    THRESHOLD[0],
    THRESHOLD[1],
    &[Member {
        name: "each class",
        about: "towards each of the nearest other classes",
        loss: |context, _, trial, class| {
            loss(context, others(&context.gallery, trial.query, class), Aim::First)
        },
        aims: Aims::Nearest(8),
        route: Route::Softened,
        or: Some(Route::Exact),
        until: LOST,
        ..HINGE
    }],
    THRESHOLD[2],
];

//! Systems that accept an image if its distance is at most a threshold t ([`AttackContext::threshold`]). In
//! verification (of faces, for example) the attacker's image is compared with one reference: dodging and
//! impersonation. In filters of near-duplicates and semantic caches it is compared with all images: evasion
//! and collision.

use super::{Aim, Draw, Loss, Objective, Query, Reach, Targets, measure, nearest_of, usual};
use crate::ensemble::members::{LOST, SOFT, THRESHOLD};
use crate::measure::{duplicates, others};
use crate::search::COSINE_MULTI_EPS;
use crate::trial::AttackContext;
use crate::trial::{Aims, Ensemble, Member};
use audit_base::Result;
use audit_gallery::space::wide;
use audit_report::facts;
use audit_report::facts::members;

/// A genuine pair is no longer accepted.
pub const DODGE: Objective = Objective {
    measure: &measure::REFERENCE,
    // Nearly any other image does.
    reach: |_| Reach::Share(5.0),
    targets: |query, draw| Ok(reference(query, draw, true)),
    loss: |context, _, trial| loss(context, trial.targets.clone(), Aim::Last),
    members: THRESHOLD,
    ..usual(&facts::DODGE)
};

/// An impostor pair is accepted.
pub const IMPERSONATE: Objective = Objective {
    facts: &facts::IMPERSONATE,
    targets: |query, draw| Ok(reference(query, draw, false)),
    loss: |context, _, trial| loss(context, trial.targets.clone(), Aim::First),
    ..DODGE
};

/// No image of the query's class is within t any longer.
pub const EVADE: Objective = Objective {
    facts: &facts::EVADE,
    measure: &measure::DUPLICATES,
    targets: |query, _| {
        non_empty(&duplicates(&query.context.gallery, query.index), "no other image has its class")
    },
    loss: |context, _, trial| loss(context, duplicates(&context.gallery, trial.query), Aim::Last),
    ..DODGE
};

/// Any image of another class is within t.
pub const COLLIDE: Objective = Objective {
    facts: &facts::COLLIDE,
    measure: &measure::OTHERS,
    targets: |query, _| {
        non_empty(&others(&query.context.gallery, query.index, None), "no image has another class")
    },
    loss: |context, _, trial| loss(context, others(&context.gallery, trial.query, None), Aim::First),
    members: COLLISION,
    ..DODGE
};

fn non_empty(items: &[usize], why: &'static str) -> Result<Targets> {
    Ok(match items.is_empty() {
        true => Targets::Skip(why),
        false => Targets::Chosen(Vec::new()),
    })
}

/// A reference of the query's identity, or of another one: from its listed pairs, or without a list, any that
/// it may rank.
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

/// A loss is below 0 only if the distance is beyond t by this share of 1 + t, so that rounding doesn't
/// decide.
const CLEARLY: f64 = 1e-6;

/// ±(min over the images of d − t): below 0 the attack succeeds, with the nearest image within t
/// ([`Aim::First`]) or beyond it.
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
            nearest_of(d, &items).map_or(0.0, |i| {
                weights[i] = sign;
                value(f64::from(d[i]))
            })
        })),
    }
}

/// [`THRESHOLD`] for an image of any class. The image that comes within the threshold need not be the one
/// that is nearest at first.
const COLLISION: Ensemble = &[
    THRESHOLD[0],
    THRESHOLD[1],
    &[Member {
        facts: &members::EACH_CLASS,
        loss: |context, _, trial, class| {
            loss(context, others(&context.gallery, trial.query, class), Aim::First)
        },
        search: &COSINE_MULTI_EPS,
        aims: Aims::Nearest(8),
        until: LOST,
        ..SOFT
    }],
    THRESHOLD[2],
];

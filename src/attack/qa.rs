//! QA±: the query moves, its targets are candidates; its ranking of them rises or falls.

use super::{Attack, Draw, Form, Goal, Loss, Measure, Query, Targets, Trial};
use crate::space::Gallery;
use crate::{Error, Result};

/// Raises m candidates drawn from the whole gallery.
pub const RAISE: Attack = Attack {
    code: "QA+",
    about: "Perturbs a query until it ranks random candidates first.",
    measure: Measure::QueryRank(Goal::First),
    drawn: true,
    several: Some("m"),
    targets: |query, draw| Ok(query.any_items(query.count, draw)),
    loss: |gallery, form, trial| loss(gallery, form, trial, Goal::First),
};

/// Lowers m distinct candidates drawn from the 1 % nearest.
pub const LOWER: Attack = Attack {
    code: "QA-",
    about: "Perturbs a query until it ranks its own best candidates last.",
    measure: Measure::QueryRank(Goal::Last),
    drawn: true,
    several: Some("m"),
    targets: distinct_near,
    loss: |gallery, form, trial| loss(gallery, form, trial, Goal::Last),
};

fn distinct_near(query: &Query, draw: &mut Draw) -> Result<Targets> {
    let mut near = query.top_percent();
    if query.count > near.len() {
        return Err(Error::usage(format!(
            "QA- with m = {} needs as many distinct items among the nearest 1 %, and a gallery of {} has {}: lower m \
             or give at least {} images",
            query.count,
            query.gallery.len(),
            near.len(),
            query.count * 100
        )));
    }
    for i in 0..query.count {
        let j = i + draw.index(near.len() - i);
        near.swap(i, j);
    }
    near.truncate(query.count);
    Ok(Targets::Chosen(near))
}

/// mean over c, x of [±(d(q̃, c) − d(q̃, x))]₊
pub fn loss<'a>(gallery: &'a Gallery, _: Form, trial: &Trial, goal: Goal) -> Loss<'a> {
    let (targets, query) = (trial.targets.clone(), trial.query);
    let terms = (targets.len() * gallery.len()) as f64;
    let (sign, per) = (goal.sign(), goal.sign() / terms as f32);
    Loss::Gallery(Box::new(move |d, weights| {
        let mut loss = 0.0;
        for &c in &targets {
            let mut open = 0usize;
            for (x, (&d_x, w)) in d.iter().zip(weights.iter_mut()).enumerate() {
                let gap = sign * (d[c] - d_x);
                if gap > 0.0 && !gallery.same_view(query, x) {
                    loss += f64::from(gap);
                    *w -= per;
                    open += 1;
                }
            }
            weights[c] += per * open as f32;
        }
        loss / terms
    }))
}

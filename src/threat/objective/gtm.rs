//! GTM: greedy top-1 misranking. The query joins the nearest item of another class.

use super::{Draw, Drawn, Form, Loss, Measure, Objective, Query, Reach, Targets, ltm};
use crate::Result;
use crate::space::wide;
use crate::threat::term;

/// Minimises the distance to the nearest item of another class.
pub const GTM: Objective = Objective {
    code: "GTM",
    about: "Perturbs a query until the nearest item of another class comes first.",
    terms: &[term::GTM],
    measure: Measure::Hit,
    // The published form may aim at an item of the query's own class.
    reach: |form| match form {
        Form::Published => Reach::Unknown,
        Form::Corrected => Reach::Chance,
    },
    drawn: Drawn::No,
    several: None,
    targets,
    // d(q̃, u)
    loss: |gallery, form, trial| {
        let metric = gallery.metric;
        let target = trial.targets.first().map_or_else(Vec::new, |&u| wide(gallery.point(u)));
        Loss::Point(Box::new(move |z, _, gradient| metric.pair(z, &target, form.offset(), gradient, |_| 1.0)))
    },
};

fn targets(query: &Query, _: &mut Draw) -> Result<Targets> {
    if let Err(why) = ltm::classes(query) {
        return Ok(Targets::Skip(why));
    }
    let (labels, own) = (&query.gallery.labels, query.index);
    let d = query.distances();
    let ranked = |i: usize| !query.gallery.excluded(own, i);
    let nearest = |keep: &dyn Fn(usize) -> bool| query.gallery.nearest(&d, 1, |i| ranked(i) && keep(i));
    let chosen = match query.form {
        Form::Corrected => nearest(&|i| labels[i] != labels[own]),
        // The released code filters the gallery by class, that of the nearest item and not of the query,
        // finds the nearest item's place in the filtered list, and takes that for an index into the whole
        // gallery.
        Form::Published => {
            let class = labels[nearest(&|_| true)[0]];
            let place = |u: &usize| labels[..*u].iter().filter(|&&l| l != class).count();
            let index = nearest(&|i| labels[i] != class).first().map(place);
            // That code knows no cameras: an index that falls on what the query may not rank is no target.
            match index.filter(|&i| !query.gallery.same_view(own, i)) {
                None if index.is_some() => nearest(&|i| labels[i] != labels[own]),
                index => index.into_iter().collect(),
            }
        }
    };
    // Empty when the query is the only item outside the nearest item's class.
    Ok(if chosen.is_empty() { Targets::Skip("no other class to join") } else { Targets::Chosen(chosen) })
}

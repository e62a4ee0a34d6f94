//! GTM: greedy top-1 misranking. The query moves to the nearest image of another class.

use super::{Draw, Form, Loss, Objective, Query, Reach, Targets, ltm, usual};
use audit_base::Result;
use audit_gallery::space::wide;
use audit_report::facts;

/// Minimises the distance to the nearest image of another class.
pub const GTM: Objective = Objective {
    // The published form may choose an image of the query's own class.
    reach: |form| match form {
        Form::Published => Reach::Unknown,
        Form::Corrected => Reach::Chance,
    },
    targets,
    // d(q̃, u)
    loss: |context, form, trial| {
        let gallery = &context.gallery;
        let metric = gallery.metric;
        let target = trial.targets.first().map_or_else(Vec::new, |&u| wide(gallery.point(u)));
        Loss::Point(Box::new(move |z, _, gradient| metric.pair(z, &target, form.offset(), gradient, |_| 1.0)))
    },
    ..usual(&facts::GTM)
};

fn targets(query: &Query, _: &mut Draw) -> Result<Targets> {
    if let Err(why) = ltm::classes(query) {
        return Ok(Targets::Skip(why));
    }
    let (labels, own) = (&query.context.gallery.labels, query.index);
    let d = query.distances();
    let left_out = query.own_image(&d);
    let ranked = |i: usize| i != left_out && !query.context.gallery.same_view(own, i);
    let nearest =
        |keep: &dyn Fn(usize) -> bool| query.context.gallery.nearest(&d, 1, |i| ranked(i) && keep(i));
    let chosen = match query.form {
        Form::Corrected => nearest(&|i| labels[i] != labels[own]),
        // The released code has an indexing error, which this form reproduces. It filters the gallery by the
        // class of the nearest image, not of the query. It finds the nearest image's position in the filtered
        // list and uses that position as an index into the whole gallery.
        Form::Published => {
            let class = labels[nearest(&|_| true)[0]];
            let place = |u: &usize| labels[..*u].iter().filter(|&&l| l != class).count();
            let index = nearest(&|i| labels[i] != class).first().map(place);
            // The released code does not know cameras. If its index is an image that the query does not rank,
            // the corrected target is used.
            match index.filter(|&i| !query.context.gallery.same_view(own, i)) {
                None if index.is_some() => nearest(&|i| labels[i] != labels[own]),
                index => index.into_iter().collect(),
            }
        }
    };
    // The choice is empty if the query is the only image outside the nearest image's class.
    Ok(if chosen.is_empty() { Targets::Skip("no other class to join") } else { Targets::Chosen(chosen) })
}

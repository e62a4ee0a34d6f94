//! LTM: learning to misrank (Wang et al., CVPR 2020). The farthest image of other classes becomes nearer than
//! the nearest image of the query's class.

use super::{Loss, Objective, Query, Reach, Targets, usual};
use audit_report::facts;

/// Moves the query away from its class and towards the others.
pub const LTM: Objective = Objective {
    reach: |_| Reach::Chance,
    targets: |query, _| Ok(classes(query).map_or_else(Targets::Skip, |()| Targets::Chosen(Vec::new()))),
    // [max over other classes of d − min over own class of d]₊. In the published form the query's class
    // contains the query itself, so the minimum is nearly always the distance to the clean embedding.
    loss: |context, form, trial| {
        let gallery = &context.gallery;
        let (query, class) = (trial.query, gallery.labels[trial.query]);
        Loss::Gallery(Box::new(move |d, weights| {
            let (mut far, mut near) = (None::<usize>, None::<usize>);
            for (i, &label) in gallery.labels[..gallery.len()].iter().enumerate() {
                if label != class {
                    far = far.filter(|&f| d[f] >= d[i]).or(Some(i));
                } else if form.ranks(gallery, query, i) {
                    near = near.filter(|&n| d[n] <= d[i]).or(Some(i));
                }
            }
            let (Some(far), Some(near)) = (far, near) else { return 0.0 };
            let gap = d[far] - d[near];
            if gap <= 0.0 {
                return 0.0;
            }
            weights[far] = 1.0;
            weights[near] = -1.0;
            f64::from(gap)
        }))
    },
    ..usual(&facts::LTM)
};

/// Checks that a query can be misranked: the gallery needs another image of its class and an image of another
/// class. The error is the reason.
pub fn classes(query: &Query) -> Result<(), &'static str> {
    let class = query.context.gallery.labels[query.index];
    if query.context.gallery.labels[..query.context.gallery.len()].iter().all(|&l| l == class) {
        Err("every image has the query's class")
    } else if query.context.gallery.positives(query.index).next().is_none() {
        Err("no other image has the query's class")
    } else {
        Ok(())
    }
}

//! GTT: greedy top-1 translocation. The query's best match leaves the top of its ranking.

use super::{Aim, Form, Loss, Objective, Reach, Targets, Trial, measure, qa, usual};
use crate::ensemble::members::{FREE, HINGE, LOST, RESTART, SOFT, SOFTENED, SQUARE, STRAIGHT};
use crate::measure::TOP;
use crate::search::COSINE_MULTI_EPS;
use crate::trial::AttackContext;
use crate::trial::{Aims, Ensemble, From, Member};
use audit_report::facts;
use audit_report::facts::members;

/// QA− on the nearest image. The measure is whether that image stays among the first 4.
pub const GTT: Objective = Objective {
    measure: &measure::RETAINED,
    reach: |_| Reach::Share(5.0),
    targets: |query, _| {
        let d = query.distances();
        let own = query.own_image(&d);
        let ranked = |i: usize| i != own && !query.context.gallery.same_view(query.index, i);
        let nearest = query.context.gallery.nearest(&d, 1, ranked);
        let others = (0..query.context.gallery.len()).filter(|&i| ranked(i)).take(TOP + 1).count();
        Ok(match others {
            0 => Targets::Skip("no image to rank"),
            _ if others <= TOP => {
                Targets::Skip("at most 4 images can be ranked, so that none can leave the first 4")
            }
            _ => Targets::Chosen(nearest),
        })
    },
    loss: |context, _, trial| qa::loss(&context.gallery, trial, Aim::Last),
    members: TRANSLOCATION,
    ..usual(&facts::GTT)
};

/// d of the nearest image but [`TOP`]` − 1`, without the target, − d(target). Below 0 the target has left the
/// first [`TOP`], by more than rounding.
pub fn margin<'a>(context: &'a AttackContext, _: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    let gallery = &context.gallery;
    let targets = trial.targets.clone();
    let left_out = gallery.left_out(trial.query, true);
    let ranked = |i: &usize| !targets.contains(i) && !left_out.contains(i);
    let others: Vec<usize> = (0..gallery.len()).filter(ranked).collect();
    Loss::Gallery(Box::new(move |d, weights| {
        let mut near = others.clone();
        let (Some(&target), true) = (targets.first(), near.len() >= TOP) else { return 0.0 };
        let (_, &mut last, _) =
            near.select_nth_unstable_by(TOP - 1, |&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
        weights[last] += 1.0;
        weights[target] -= 1.0;
        let far = f64::from(d[last]);
        far + gallery.rounding(last, far) - f64::from(d[target])
    }))
}

/// The hinge pushes the target behind all images, although four nearer images suffice. So trials that
/// withstand the hinge are attacked by the margin against the fourth.
const TRANSLOCATION: Ensemble = &[
    &[HINGE],
    &[
        Member { facts: &members::FOURTH, from: From::Best, ..PLACE },
        Member { loss: margin, until: LOST, ..SOFTENED },
        Member { loss: margin, until: LOST, ..STRAIGHT },
        Member { loss: margin, until: LOST, ..RESTART },
    ],
    &[
        Member {
            facts: &members::FOURTH_OTHERS,
            search: &COSINE_MULTI_EPS,
            aims: Aims::Several(6),
            from: From::Other,
            steps: 30,
            ..PLACE
        },
        Member { loss: margin, steps: 300, until: LOST, ..SQUARE },
        Member { loss: margin, steps: 50, until: LOST, ..FREE },
    ],
];
const PLACE: Member = Member { loss: margin, steps: 60, alpha: Some(1.0), until: LOST, ..SOFT };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draw, Query, measure};
    use audit_gallery::space::Gallery;
    use audit_report::record::{Form, Metric};
    use ndarray::Array2;

    /// Expected: the outcome as the runner measures it. Images lie at 0 to 10 on a line, and the query moves
    /// from 0 past its best match, 1. At 3 the fourth of the others is as far as the match, which is kept.
    #[test]
    fn the_margin_is_below_0_where_the_match_is_lost() {
        let points = Array2::from_shape_fn((11, 1), |(i, _)| i as f32);
        let ids = (0..11).map(|i| i.to_string()).collect();
        let context: AttackContext =
            Gallery::new(Metric::Euclidean, points, vec![0; 11], ids).unwrap().into();
        let trial = Trial { objective: &GTT, query: 0, targets: vec![1] };
        let Loss::Gallery(loss) = margin(&context, Form::Corrected, &trial, None) else {
            panic!("of another kind")
        };
        for (z, retained, expected) in
            [(0.0, true, 4.0), (2.6, true, 0.8), (3.0, true, 0.0), (3.25, false, -0.5)]
        {
            let d: Vec<f32> = context.gallery.distances(&[z]).iter().map(|&d| d as f32).collect();
            let mut weights = [0.0; 11];
            let found = loss(&d, &mut weights);
            assert!((found - expected).abs() < 1e-4, "at {z}: {found}, by hand {expected}");
            assert_eq!(measure(&context, Form::Corrected, &trial, &[z]).retained, Some(retained), "at {z}");
            assert_eq!(found < 0.0, !retained, "at {z}: {found}");
            assert!(weights[1] == -1.0 && weights.iter().sum::<f32>() == 0.0, "at {z}: {weights:?}");
        }
    }

    /// Among 5 images a query ranks 4: its best match always stays among them. Among 6 it may leave.
    #[test]
    fn what_cannot_be_lost_is_no_trial() {
        for (items, attacked) in [(2, false), (5, false), (6, true)] {
            let points = Array2::from_shape_fn((items, 1), |(i, _)| i as f32);
            let ids = (0..items).map(|i| i.to_string()).collect();
            let context = Gallery::new(Metric::Euclidean, points, vec![0; items], ids).unwrap().into();
            let query = Query { context: &context, index: 0, count: 1, form: Form::Corrected };
            let found = (GTT.targets)(&query, &mut Draw::new(0, "GTT", "0", 0)).unwrap();
            assert_eq!(matches!(found, Targets::Chosen(_)), attacked, "{items} items");
        }
    }
}

//! Mean ranks: of the perturbed item in the rankings of its targets, or of the targets in the ranking of the
//! perturbed query.

use super::{kept, marks, mean};
use crate::trial::{At, Measure};
use audit_gallery::space::Gallery;
use audit_gallery::space::ranks::{self, Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::{Form, Measures};

/// Mean rank of the perturbed item in the rankings of its targets.
pub const CANDIDATE_RANK: Measure = Measure {
    facts: &measures::CANDIDATE_RANK,
    asks: |at| at.trial.targets.iter().map(|&q| of_candidate(at, q)).collect(),
    measured: |_, ranks| Measures { rank: mean(ranks), ..Measures::default() },
};

/// Mean rank of the targets in the ranking of the perturbed query. Foreign targets are ranked among
/// themselves.
pub const QUERY_RANK: Measure = Measure {
    facts: &measures::QUERY_RANK,
    asks: |at| match at.trial.foreign(&at.context.gallery) {
        Some(_) => Vec::new(),
        None => vec![of_targets(at)],
    },
    measured: |at, ranks| {
        let foreign = of_foreign(at).map(|(foreign, ask)| ranks::ranks(foreign, &[ask]).concat());
        Measures { rank: mean(foreign.as_deref().unwrap_or(ranks)), ..Measures::default() }
    },
};

/// Mean rank of the targets, and of the kept items, in the ranking of the perturbed query.
pub const QUERY_RANK_AND_KEPT: Measure = Measure {
    facts: &measures::QUERY_RANK_AND_KEPT,
    asks: |at| vec![of_targets(at), kept::ask(at)],
    measured: |at, ranks| {
        let (of_targets, of_kept) = ranks.split_at(at.trial.targets.len());
        Measures { rank: mean(of_targets), kept: mean(of_kept), ..Measures::default() }
    },
};

/// The question for the perturbed item's rank in the ranking of `query`.
fn of_candidate<'a>(at: &At<'a>, query: usize) -> Ask<'a> {
    let (gallery, item) = (&at.context.gallery, at.trial.query);
    let own = at.form == Form::Corrected;
    let mut left_out = gallery.left_out(query, own);
    if own && item < gallery.len() && !left_out.contains(&item) {
        left_out.push(item);
    }
    let z = gallery.point(query);
    Ask { z, marks: vec![Mark::Distance(gallery.metric.distance(z, at.z))], left_out }
}

/// The question for the ranks of the targets, which are images.
fn of_targets<'a>(at: &At<'a>) -> Ask<'a> {
    Ask { z: at.z, marks: marks(&at.trial.targets), left_out: at.left_out() }
}

/// The gallery of foreign targets and the question for the ranks of the trial's targets in it; `None` if it
/// aims at images.
pub(super) fn of_foreign<'a>(at: &At<'a>) -> Option<(&'a Gallery, Ask<'a>)> {
    let (foreign, targets) = at.trial.foreign(&at.context.gallery)?;
    Some((foreign, Ask { z: at.z, marks: marks(&targets), left_out: Vec::new() }))
}

//! Mean ranks: of the perturbed image in the rankings of its targets, or of the targets in the ranking of the
//! perturbed query. The order of the targets in the latter.

use super::{marks, mean, preserved};
use crate::trial::{At, Measure, percent};
use audit_gallery::space::Gallery;
use audit_gallery::space::ranks::{self, Ask, Mark};
use audit_report::facts::measures;
use audit_report::record::{Form, Measures};

/// Mean rank of the perturbed image in the rankings of its targets.
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

/// Mean rank of the targets, and of the kept images, in the ranking of the perturbed query.
pub const QUERY_RANK_AND_KEPT: Measure = Measure {
    facts: &measures::QUERY_RANK_AND_KEPT,
    asks: |at| vec![of_targets(at), preserved::ask(at)],
    measured: |at, ranks| {
        let (of_targets, of_kept) = ranks.split_at(at.trial.targets.len());
        Measures { rank: mean(of_targets), kept: mean(of_kept), ..Measures::default() }
    },
};

/// The question for the perturbed image's rank in the ranking of `query`.
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

/// The order of the targets in the ranking of the perturbed query, and the share of them among its top.
pub const ORDER: Measure =
    Measure { facts: &measures::ORDER, asks: |at| vec![of_ordered(at)], measured: ordered };

/// [`ORDER`], and the mean rank of the kept images.
pub const ORDER_AND_KEPT: Measure = Measure {
    facts: &measures::ORDER_AND_KEPT,
    asks: |at| vec![of_ordered(at), preserved::ask(at)],
    measured: |at, ranks| {
        let (of_targets, of_kept) = ranks.split_at(at.trial.targets.len());
        Measures { kept: mean(of_kept), ..ordered(at, of_targets) }
    },
};

/// The question for the ranks of the targets. The top that they are drawn from leaves the clean copy out in
/// every form.
fn of_ordered<'a>(at: &At<'a>) -> Ask<'a> {
    let left_out = at.context.gallery.left_out(at.trial.query, true);
    Ask { z: at.z, marks: marks(&at.trial.targets), left_out }
}

fn ordered(at: &At, ranks: &[usize]) -> Measures {
    let At { context, trial, z, .. } = *at;
    let gallery = &context.gallery;
    let d = trial.targets.iter().map(|&t| gallery.metric.distance(z, gallery.point(t)));
    let top = ranks.iter().filter(|&&rank| rank < percent(gallery.len())).count();
    Measures {
        order: Some(order(&d.collect::<Vec<_>>())),
        top: Some(top as f64 / ranks.len() as f64),
        ..Measures::default()
    }
}

/// How well distances (of the targets, in the order of the trial) match the attacker's order. Two targets: 1
/// if their order is swapped, else 0. More: Kendall's τ (τ-b if distances are equal; 0 if all are).
fn order(d: &[f64]) -> f64 {
    if let [nearer, farther] = d {
        return f64::from(farther <= nearer);
    }
    let (mut agree, mut tied, mut pairs) = (0.0f64, 0.0, 0.0);
    for (i, first) in d.iter().enumerate() {
        for second in &d[i + 1..] {
            pairs += 1.0;
            tied += f64::from(first == second);
            agree += match first.total_cmp(second) {
                std::cmp::Ordering::Less => 1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => -1.0,
            };
        }
    }
    if tied == pairs { 0.0 } else { agree / (pairs * (pairs - tied)).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: `scipy.stats.kendalltau(range(len(d)), d)`, SciPy 1.14.
    #[test]
    fn orders_are_judged_as_scipy_does() {
        for (d, tau) in [
            (&[0.1, 0.2, 0.3, 0.4, 0.5][..], 1.0),
            (&[0.5, 0.4, 0.3, 0.2, 0.1], -1.0),
            (&[0.2, 0.1, 0.3, 0.5, 0.4], 0.6),
            (&[0.1, 0.1, 0.3, 0.2, 0.5], 0.737_864_787_372_622),
            (&[0.1, 0.1, 0.1], 0.0),
        ] {
            assert!((order(d) - tau).abs() < 1e-12, "{d:?}: {}", order(d));
        }
        assert_eq!((order(&[0.1, 0.2]), order(&[0.2, 0.1]), order(&[0.1, 0.1])), (0.0, 1.0, 1.0));
    }
}

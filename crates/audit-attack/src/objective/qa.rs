//! QA±: the query is perturbed. Its targets are candidates, and their rank for the query is raised or
//! lowered.

use super::{Aim, Draw, Loss, Objective, Query, Reach, Targets, Trial, foreign, measure, rank, usual};
use audit_base::{Error, Result};
use audit_gallery::space::Gallery;
use audit_report::facts;

/// Raises m candidates drawn from the whole gallery.
pub const RAISE: Objective = Objective {
    measure: &measure::QUERY_RANK,
    reach: |_| Reach::Almost(10.0),
    targets: |query, draw| Ok(query.any_targets(query.count, draw)),
    loss: |context, _, trial| loss(&context.gallery, trial, Aim::First),
    members: rank::RANKS,
    ..usual(&facts::QA_RAISE)
};

/// Lowers m distinct candidates drawn from the 1 % nearest to the query.
pub const LOWER: Objective = Objective {
    measure: &measure::QUERY_RANK,
    targets: distinct_near,
    loss: |context, _, trial| loss(&context.gallery, trial, Aim::Last),
    members: rank::RANKS,
    ..usual(&facts::QA_LOWER)
};

fn distinct_near(query: &Query, draw: &mut Draw) -> Result<Targets> {
    let near = foreign::near(query).unwrap_or_else(|| query.top_percent());
    if query.count > near.len() {
        return Err(Error::usage(format!(
            "QA- with m = {} needs as many distinct images among the nearest 1 %, and a gallery of {} has {}: lower m \
             or give at least {} images",
            query.count,
            query.context.gallery.foreign().unwrap_or(&query.context.gallery).len(),
            near.len(),
            query.count * 100
        )));
    }
    Ok(Targets::Chosen(draw.distinct(near, query.count)))
}

/// mean over c, x of [±(d(q̃, c) − d(q̃, x))]₊
pub fn loss<'a>(gallery: &'a Gallery, trial: &Trial, aim: Aim) -> Loss<'a> {
    if let Some((targets, at)) = trial.foreign(gallery) {
        // Foreign targets are no views of the query, so none is left out.
        let hinge = hinge(targets, usize::MAX, at, aim);
        return foreign::loss(targets, move |d, weights| hinge(d, 1.0, weights));
    }
    let hinge = hinge(gallery, trial.query, trial.targets.clone(), aim);
    Loss::Gallery(Box::new(move |d, weights| hinge(d, 1.0, weights)))
}

/// The loss of `targets` (0 if there are none) as a function of the distances d [N], a factor and ∂L/∂d [N]:
/// it adds the factor times its gradient to the latter.
pub fn hinge<'a>(
    gallery: &'a Gallery,
    query: usize,
    targets: Vec<usize>,
    aim: Aim,
) -> impl Fn(&[f32], f64, &mut [f32]) -> f64 + Send + Sync + 'a {
    let terms = (targets.len() * gallery.len()).max(1) as f64;
    let sign = aim.sign();
    // The ranges of x: all images, without the query's own view if images have views.
    let mut seen = Vec::new();
    let mut from = 0;
    for to in (0..gallery.len()).filter(|&x| gallery.same_view(query, x)).chain([gallery.len()]) {
        seen.push(from..to);
        from = to + 1;
    }
    move |d, factor, weights| {
        let per = sign * (factor / terms) as f32;
        let mut loss = 0.0;
        for &c in &targets {
            let mut open = 0.0;
            for seen in &seen {
                let hinges = hinges(&d[seen.clone()], d[c], sign, per, &mut weights[seen.clone()]);
                loss += hinges.0;
                open += hinges.1;
            }
            weights[c] += per * open;
        }
        loss / terms
    }
}

/// Returns Σ [±(at − d)]₊ and the number of positive terms, and subtracts `per` from the weight of each
/// positive term.
///
/// The loop has no branches and sums into separate accumulators, so the compiler can use vector registers. It
/// runs over all images in every step.
fn hinges(d: &[f32], at: f32, sign: f32, per: f32, weights: &mut [f32]) -> (f64, f32) {
    const LANES: usize = 16;
    let (mut sums, mut open) = ([0.0f64; LANES], [0.0f32; LANES]);
    for (d, w) in d.chunks(LANES).zip(weights.chunks_mut(LANES)) {
        for (lane, (d, w)) in d.iter().zip(w).enumerate() {
            let gap = (sign * (at - d)).max(0.0);
            let is_open = if gap > 0.0 { 1.0 } else { 0.0 };
            sums[lane] += f64::from(gap);
            open[lane] += is_open;
            *w -= per * is_open;
        }
    }
    (sums.iter().sum(), open.iter().sum())
}

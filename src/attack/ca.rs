//! CA±: the candidate moves, its targets are queries; their rankings of it rise or fall.

use super::{Attack, Draw, Form, Goal, Loss, Measure, Query, Targets, Trial};
use crate::Result;
use crate::space::{Gallery, wide};

/// Raises the candidate's rank for w queries drawn from all.
pub const RAISE: Attack = Attack {
    code: "CA+",
    about: "Perturbs a candidate until random queries rank it first.",
    measure: Measure::CandidateRank(Goal::First),
    drawn: true,
    several: Some("w"),
    targets: |query, draw| Ok(query.any_queries(query.count, draw)),
    loss: |gallery, form, trial| loss(gallery, form, trial, Goal::First),
};

/// Lowers the candidate's rank for w queries drawn from the 1 % nearest to it.
pub const LOWER: Attack = Attack {
    code: "CA-",
    about: "Perturbs a candidate until queries that it answers well rank it last.",
    measure: Measure::CandidateRank(Goal::Last),
    drawn: true,
    several: Some("w"),
    targets: near,
    loss: |gallery, form, trial| loss(gallery, form, trial, Goal::Last),
};

fn near(query: &Query, draw: &mut Draw) -> Result<Targets> {
    Ok(draw.from(&query.top_percent_of_queries(), query.count))
}

/// mean over q, x of [±(d(q, c̃) − d(q, x))]₊. The d(q, x) stay as they are while c̃ moves: sorted once and summed,
/// they say at each step which terms are open and what these come to.
fn loss<'a>(gallery: &'a Gallery, _: Form, trial: &Trial, goal: Goal) -> Loss<'a> {
    let metric = gallery.metric;
    let queries: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = trial
        .targets
        .iter()
        .map(|&q| {
            let mut d = gallery.distances(gallery.point(q));
            let mut item = 0..;
            d.retain(|_| item.next().is_some_and(|i| !gallery.same_view(q, i)));
            d.sort_unstable_by(f64::total_cmp);
            // Sums of the nearest, none to all.
            let sums = std::iter::once(0.0).chain(d.iter().scan(0.0, |sum, d| {
                *sum += d;
                Some(*sum)
            }));
            let sums = sums.collect();
            (wide(gallery.point(q)), d, sums)
        })
        .collect();
    let terms = (queries.len() * gallery.len()) as f64;
    Loss::Point(Box::new(move |z, _| {
        let mut loss = 0.0;
        let mut gradient = vec![0.0f32; z.len()];
        for (q, sorted, sums) in &queries {
            let (at, direction) = metric.pair(z, q, 0.0);
            let open = match goal {
                Goal::First => 0..sorted.partition_point(|&d| d < at),
                Goal::Last => sorted.partition_point(|&d| d <= at)..sorted.len(),
            };
            let far = sums[open.end] - sums[open.start];
            loss += (at * open.len() as f64 - far).abs();
            let weight = goal.sign() * (open.len() as f64 / terms) as f32;
            gradient.iter_mut().zip(&direction).for_each(|(g, d)| *g += weight * d);
        }
        (loss / terms, gradient)
    }))
}

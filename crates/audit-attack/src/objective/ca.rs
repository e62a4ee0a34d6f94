//! CA±: the candidate is perturbed. Its targets are queries, and its rank for them is raised or lowered.

use super::{Aim, Draw, Loss, Objective, Query, Reach, Targets, Trial, measure, rank, usual};
use audit_base::Result;
use audit_gallery::space::{Gallery, wide};
use audit_report::facts;

/// Raises the candidate's rank for w queries drawn from all queries.
pub const RAISE: Objective = Objective {
    measure: &measure::CANDIDATE_RANK,
    reach: |_| Reach::Almost(10.0),
    targets: |query, draw| Ok(query.any_queries(query.count, draw)),
    loss: |context, _, trial| loss(&context.gallery, trial, Aim::First),
    members: rank::RANKS,
    ..usual(&facts::CA_RAISE)
};

/// Lowers the candidate's rank for w queries drawn from the 1 % nearest to it.
pub const LOWER: Objective = Objective {
    measure: &measure::CANDIDATE_RANK,
    targets: near,
    loss: |context, _, trial| loss(&context.gallery, trial, Aim::Last),
    members: rank::RANKS,
    ..usual(&facts::CA_LOWER)
};

fn near(query: &Query, draw: &mut Draw) -> Result<Targets> {
    Ok(Targets::drawn(draw, &query.top_percent_of_queries(), query.count))
}

/// One target query, with its distances to the images that it ranks.
struct Ranking {
    /// The query's point [D].
    query: Vec<f64>,
    /// The distances, ascending.
    sorted: Vec<f64>,
    /// Entry k is the sum of the k·[`APART`] smallest distances.
    sums: Vec<f64>,
}

/// Distances between two stored sums: storing every sum would double the memory, for every image of a batch.
const APART: usize = 64;

impl Ranking {
    fn new(query: Vec<f64>, mut sorted: Vec<f64>) -> Ranking {
        sorted.sort_unstable_by(f64::total_cmp);
        let mut sum = 0.0;
        let mut sums = vec![sum];
        for some in sorted.chunks_exact(APART) {
            some.iter().for_each(|d| sum += d);
            sums.push(sum);
        }
        Ranking { query, sorted, sums }
    }

    /// The sum of the `count` smallest distances, added from the smallest to the largest.
    fn sum(&self, count: usize) -> f64 {
        let kept = count / APART;
        self.sorted[kept * APART..count].iter().fold(self.sums[kept], |sum, d| sum + d)
    }
}

/// mean over q, x of [±(d(q, c̃) − d(q, x))]₊. The d(q, x) are constant while c̃ moves. With them sorted, and
/// their prefix sums, a binary search finds the positive terms of a step and their sum.
fn loss<'a>(gallery: &'a Gallery, trial: &Trial, aim: Aim) -> Loss<'a> {
    let metric = gallery.metric;
    let ranking = |&q: &usize| {
        let mut sorted = gallery.distances(gallery.point(q));
        let mut item = 0..;
        sorted.retain(|_| item.next().is_some_and(|i| !gallery.same_view(q, i)));
        Ranking::new(wide(gallery.point(q)), sorted)
    };
    let rankings: Vec<Ranking> = trial.targets.iter().map(ranking).collect();
    let terms = (rankings.len() * gallery.len()) as f64;
    Loss::Point(Box::new(move |z, _, gradient| {
        let mut loss = 0.0;
        for ranking in &rankings {
            let sorted = &ranking.sorted;
            metric.pair(z, &ranking.query, 0.0, gradient, |at| {
                let open = match aim {
                    Aim::First => 0..sorted.partition_point(|&d| d < at),
                    Aim::Last => sorted.partition_point(|&d| d <= at)..sorted.len(),
                };
                let far = ranking.sum(open.end) - ranking.sum(open.start);
                loss += (at * open.len() as f64 - far).abs();
                aim.sign() * (open.len() as f64 / terms) as f32
            });
        }
        loss / terms
    }))
}

//! The plan of the attacks once more, as soon as more is known of the model.

use super::{ATTACKS, Speed, WAIT, at_most, range};
use crate::progress::{Announcement, span};
use crate::record::size;
use crate::threat::objective::r1::R1;
use crate::threat::{Forecast, Further, Plan};
use serde_json::json;

/// Two estimates agree if neither is so many times the other.
const AGREE: f64 = 1.5;

/// The attacks that are left, once it is known that queries withstand the searches that are enough for a
/// model without a defence. `pass_s`: seconds that a forward pass of all workers has taken so far. `norm`: of
/// ε.
pub fn revised(further: &Further, pass_s: f64, norm: &str) -> Announcement {
    let Further { eps, trials, of, usual, most } = *further;
    let ends = [usual, most].map(|passes| pass_s * passes as f64);
    let [usual_s, most_s] = ends;
    let text = || {
        let (eps, time) = (size(norm, f64::from(eps), 2), range(ends, span));
        format!(
            "plan: {trials} of {of} attacked queries withstand {eps} so far; more attacks on them take about {time}"
        )
    };
    Announcement {
        text: (most_s >= WAIT).then(text),
        event: json!({ "event": "plan", "phase": ATTACKS, "queries": trials,
            "seconds": usual_s.round(), "seconds_at_most": most_s.round() }),
        seconds: usual_s,
        seconds_at_most: most_s,
    }
}

/// The attacks, once embeddings and a gradient tell how far queries are from failing. There is a text unless
/// the first plan holds, which says what they take if a small change is enough for every query.
pub fn foreseen(forecast: &Forecast, speed: Speed, plan: &Plan) -> Announcement {
    let Forecast { queries, correct, sample, withstand, eps, usual, most } = *forecast;
    let [usual_s, most_s] = [usual, most].map(|work| speed.of_work(work));
    let least = [plan.least_work(&R1), plan.least_work_on_photographs(&R1)];
    let planned_s = speed.of_steps(least.map(|each| queries * each));
    let text = || {
        if correct == 0 {
            return "plan: no query is correct without an attack, so there is nothing to attack".into();
        }
        let enough = match correct - withstand {
            0 => "none".into(),
            some if some == correct => "all".into(),
            some => format!("about {some}"),
        };
        format!(
            "plan: {correct} of {queries} queries are correct without an attack. By gradients at {}, a change of {} is enough for \
             {enough} of them: the attacks take about {}{}",
            if correct > sample { format!("{sample} of these") } else { "these".into() },
            size(plan.ball.name, f64::from(eps), 2),
            span(usual_s),
            at_most(usual_s, most_s, span)
        )
    };
    let holds = (1.0 / AGREE..AGREE).contains(&(usual_s / planned_s));
    Announcement {
        text: (planned_s.max(usual_s) >= WAIT && !holds).then(text),
        event: json!({ "event": "plan", "phase": ATTACKS, "queries": queries, "correct": correct, "withstand": withstand,
            "seconds": usual_s.round(), "seconds_at_most": most_s.round() }),
        seconds: usual_s,
        seconds_at_most: most_s,
    }
}

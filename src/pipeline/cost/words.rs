//! The plan of an audit in words, and that of its attacks once more, as soon as more is known of the model.

use super::{ATTACKS, Ahead, Outlook, Speed, WAIT};
use crate::progress::{Announcement, span};
use crate::record::{number_of_queries, size};
use crate::threat::objective::r1::R1;
use crate::threat::{Forecast, Further, Plan};
use serde_json::json;

impl Outlook {
    pub(super) fn text(&self) -> Option<String> {
        let phase = |p: &Ahead| {
            let what = match p.phase {
                ATTACKS => format!(
                    "attacks on {} {}, {} a query{}",
                    number_of_queries(self.queries),
                    self.attacks_in_words(span),
                    range([self.least_s, self.query_s], seconds),
                    self.sooner()
                ),
                name => format!("{name} {}", span(p.seconds)),
            };
            if p.shorter.is_empty() { what } else { format!("{what} ({})", p.shorter) }
        };
        let all: Vec<String> = self.phases.iter().filter(|p| p.seconds >= 1.0).map(phase).collect();
        (self.total() >= WAIT).then(|| {
            let [least, most] = self.attacks();
            let others = self.total() - most;
            let total = range([others + least, self.total()], span);
            let most = at_most(self.total(), others + self.most_s, span);
            format!("plan: about {total}{most} in all: {}", all.join(" · "))
        })
    }

    /// How long the attacks take: usually, on which condition, and at most.
    pub fn attacks_in_words(&self, words: fn(f64) -> String) -> String {
        let small = self.small_change.iter();
        let condition: String =
            small.map(|small| format!(" if a change of {small} is enough to break the model")).collect();
        let usual = range(self.attacks(), words);
        format!("{usual}{condition}{}", at_most(self.attacks()[1], self.most_s, words))
    }

    /// What a range of times depends on; empty if there is one time, or if [`Outlook::attacks_in_words`] has
    /// a condition.
    pub fn sooner(&self) -> &'static str {
        let range = self.small_change.is_none() && self.least_s < self.query_s;
        if range { ", less if the strong search succeeds early" } else { "" }
    }

    /// The plan for people, if there is a wait, and for programs.
    pub fn announcement(&self) -> Announcement {
        let most = self.total() - self.attacks()[1] + self.most_s;
        Announcement {
            text: self.text(),
            event: json!({ "event": "plan", "seconds": self.total().round(), "seconds_at_most": most.round(),
                "queries": self.queries, "seconds_a_query": self.query_s, "phases": self.phases }),
            seconds: self.total(),
            seconds_at_most: most,
        }
    }
}

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

/// The most in words, behind what is usual, unless they read alike.
pub fn at_most(usual: f64, most: f64, words: fn(f64) -> String) -> String {
    let [usual, most] = [usual, most].map(words);
    if usual == most { String::new() } else { format!(", at most {most}") }
}

/// The least and the most in words, once if they read alike.
pub fn range(ends: [f64; 2], words: fn(f64) -> String) -> String {
    let [least, most] = ends.map(words);
    if least == most { most } else { format!("{least} to {most}") }
}

/// A duration with a digit after the point if it is short.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 0.05 => "less than 0.1 s".into(),
        s if s < 9.95 => format!("{s:.1} s"),
        s => span(s),
    }
}

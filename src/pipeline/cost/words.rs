//! The plan of an audit in words.

use super::{ATTACKS, Ahead, Outlook, WAIT};
use crate::progress::{Announcement, span};
use crate::record::number_of_queries;
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

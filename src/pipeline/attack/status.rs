//! What people are told while trials run: the position of each attack, and the time left.

use super::Work;
use super::forecast::Expected;
use crate::pipeline::cost::{PATIENCE, revised};
use crate::progress::{Phase, Position, span};
use crate::record::Outcome;
use crate::report::terminal::wrap;
use crate::threat::{Further, Passes, Trial};
use std::collections::HashMap;

/// Seconds after which the estimate of the time left is good enough for a hint.
const SETTLED: f64 = 20.0;

/// Progress of the attacks, as a phase shows it.
pub(super) struct Status<'a> {
    work: Work<'a>,
    phase: &'a mut Phase,
    /// By the attack's code.
    queries: HashMap<&'static str, Counted>,
    /// The number of correct queries, if it is known.
    correct: Option<usize>,
    /// Forward passes that are expected in all.
    expected: usize,
    /// Forward passes so far.
    made: usize,
    /// The ε that some queries withstand, as far as people were told.
    withstood: Vec<f32>,
    /// `None` after it was given.
    hint: Option<Hint>,
}

/// Queries of an attack.
#[derive(Clone, Copy, Default)]
struct Counted {
    done: usize,
    /// Those that the strong search has broken so far.
    broken: usize,
    of: usize,
}

/// The hint in a long audit.
pub(super) struct Hint {
    /// The number of queries, if the audit may be started again with fewer.
    pub queries: Option<usize>,
    /// Whether trials are saved.
    pub saved: bool,
}

impl<'a> Status<'a> {
    /// The status before the trials without an outcome run.
    pub fn new(
        work: Work<'a>,
        outcomes: &[Option<Outcome>],
        Expected { correct, passes, plan }: Expected,
        hint: Hint,
        phase: &'a mut Phase,
    ) -> Status<'a> {
        let mut queries: HashMap<&'static str, Counted> = HashMap::new();
        for (trial, outcome) in work.trials.iter().zip(outcomes) {
            let counted = queries.entry(trial.objective.code).or_default();
            counted.done += usize::from(outcome.is_some());
            counted.broken += usize::from(outcome.as_ref().is_some_and(is_broken));
            counted.of += 1;
        }
        if let Some(plan) = &plan {
            phase.plan(plan);
        }
        phase.expect(passes, plan.map(|plan| [plan.seconds, plan.seconds_at_most]));
        let (made, withstood) = (0, Vec::new());
        Status { work, phase, queries, correct, expected: passes, made, withstood, hint: Some(hint) }
    }

    /// A batch has made a step, `at` this step of one of its trials.
    pub fn step(&mut self, passes: Passes, at: Option<(&Trial, usize)>) {
        let position = at.map(|(trial, step)| self.position(trial, step));
        self.made = passes.made;
        // What takes longer than expected takes what is left at most.
        if self.made > self.expected {
            self.expect(passes.made + passes.left);
        }
        self.phase.advance([passes.made, passes.left], position);
        let (spent, [more, most]) = self.phase.times();
        if let Some(more) = more.filter(|_| spent > SETTLED)
            && let Some(hint) = self.hint.take()
            && let Some(text) = hint.text(more, most)
        {
            self.phase.note(&wrap(&text));
        }
    }

    fn position(&self, trial: &Trial, step: usize) -> Position {
        let Counted { done, broken, of } = self.queries[trial.objective.code];
        let strong = self.work.plan.strong(trial.objective).is_some();
        let steps = if strong { 0 } else { self.work.plan.steps };
        Position { attack: trial.objective.code, step, steps, queries: done, broken, of }
    }

    fn expect(&mut self, passes: usize) {
        self.expected = passes;
        self.phase.expect(passes, None);
    }

    /// The strong search attacks many queries in parts. The first part predicts the others.
    pub fn further(&mut self, further: &Further) {
        if self.withstood.contains(&further.eps) {
            return;
        }
        self.withstood.push(further.eps);
        let (spent, _) = self.phase.times();
        let pace = self.phase.pace().unwrap_or(spent / self.made.max(1) as f64);
        self.phase.plan(&revised(further, pace, self.work.plan.ball.name));
        let part = self.made + further.usual;
        self.expect(of_all_parts(part, further.of, self.correct).unwrap_or(part.max(self.expected)));
    }

    /// The strong search has broken the query of a trial.
    pub fn broken(&mut self, trial: &Trial) {
        self.queries.entry(trial.objective.code).or_default().broken += 1;
    }

    /// A trial is finished.
    pub fn done(&mut self, trial: &Trial) {
        self.queries.entry(trial.objective.code).or_default().done += 1;
    }
}

/// Whether the strong search reached the goal of a trial. One that is reached without an attack has no
/// members.
fn is_broken(outcome: &Outcome) -> bool {
    outcome.members.as_ref().is_some_and(|all| all.is_empty() || all.iter().any(|member| member.reached))
}

/// The passes of all parts, if one takes so many for `of` of the correct queries; `None` if it is unknown how
/// many these are, because other attacks follow.
fn of_all_parts(passes: usize, of: usize, correct: Option<usize>) -> Option<usize> {
    correct.map(|correct| passes * correct.max(of) / of.max(1))
}

impl Hint {
    /// In words, if about `left` seconds are left, at most `most`; `None` if they are few.
    fn text(&self, left: f64, most: Option<f64>) -> Option<String> {
        let few = self.queries.map_or(0, |queries| (queries as f64 * PATIENCE / left) as usize / 10 * 10);
        let most = most.map(|most| most.max(left));
        let both = |share: f64| {
            let most = most.map_or(String::new(), |most| format!(", at most {}", span(most * share)));
            format!("{}{most}", span(left * share))
        };
        let fewer = if few < 10 {
            String::new()
        } else {
            let share = few as f64 / self.queries.unwrap_or(few) as f64;
            format!("; --max-queries {few} would take about {}", both(share))
        };
        let lost =
            if self.saved { "" } else { "; without -o or --journal nothing is saved if it is interrupted" };
        (left > PATIENCE).then(|| format!("this takes about {} more{fewer}{lost}", both(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Hint, is_broken, of_all_parts};
    use crate::record::{MemberResult, Outcome};

    /// By hand: of 300 correct queries, the first 100 take 50 passes.
    #[test]
    fn the_first_part_predicts_the_others() {
        assert_eq!(of_all_parts(50, 100, Some(300)), Some(150));
        assert_eq!(of_all_parts(50, 100, Some(100)), Some(50));
        assert_eq!(of_all_parts(50, 100, None), None);
    }

    /// The strong search makes no attack on a query that is wrong without one.
    #[test]
    fn queries_of_an_earlier_process_count_as_broken() {
        let member = |reached| MemberResult {
            member: "margin".into(),
            steps: 1,
            value: 0.0,
            reached,
            counts: true,
            idle: false,
        };
        let broken = |members| is_broken(&Outcome { members, ..Outcome::default() });
        assert!(broken(Some(vec![])) && broken(Some(vec![member(false), member(true)])));
        assert!(!broken(Some(vec![member(false)])) && !broken(None));
    }

    #[test]
    fn long_audits_say_what_shortens_them() {
        let hint = |queries, saved| Hint { queries, saved };
        assert_eq!(hint(Some(960), false).text(600.0, Some(2000.0)), None);
        assert_eq!(
            hint(Some(960), false).text(13_000.0, Some(26_000.0)).unwrap(),
            "this takes about 3 h 36 min, at most 7 h 13 min more; --max-queries 60 would take about 14 min, at most 28 min; without \
             -o or --journal nothing is saved if it is interrupted"
        );
        // An audit of even fewer queries would not help.
        let alone = "this takes about 27 h 46 min more";
        assert_eq!(hint(Some(50), true).text(100_000.0, None).unwrap(), alone);
        assert_eq!(hint(None, true).text(100_000.0, None).unwrap(), alone);
    }
}

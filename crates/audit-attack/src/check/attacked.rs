//! Checks on the outcomes of an audit's attacks. They read only outcomes, which may come from several runs.

use crate::ball::whole_levels;
use crate::{BALLS, Ball, LAST, Objective};
use audit_report::facts::members;
use audit_report::judge::mean::Mean;
use audit_report::judge::score::Basis;
use audit_report::judge::strong;
use audit_report::judge::survivors::attacked;
use audit_report::record::{
    Found, GateCheck, GateCheckKind, HalfPrecision, Outcome, Report, Severity, Warning, reason,
};
use std::collections::{BTreeMap, BTreeSet};

/// Largest share of the loss's decrease that may happen in the last steps (Pintor et al.).
const LATE: f64 = 0.05;
/// Fewest trials from which the direction of an attack is judged, and fewest queries from which two attacks
/// are compared. Two may agree by chance and then have no variance.
pub(super) const ENOUGH: usize = 8;
/// Share of an attack's trials from which it has to move the embedding: the check at load refuses a gradient
/// that is zero on as many images.
const IDLE: f64 = 0.25;
/// Why an attack stays at images that other attacks move: only its own loss has no slope there.
const COPIES: &str = ". Other attacks moved the same images, so that the model has a gradient there; the targets are probably copies \
                      of the images. Remove the copies from the data";
/// Success, in per cent, from which an attack has reached its goal.
const ARRIVED: f64 = 98.0;

/// The outcomes of attacks, with what their checks need.
pub struct Outcomes<'a> {
    /// One outcome per trial.
    pub outcomes: &'a [Outcome],
    /// The norm that bounds perturbations.
    pub ball: &'static Ball,
    /// Largest size ε of a perturbation.
    pub eps: f32,
    /// Whether the search uses losses only.
    pub gradient_free: bool,
    /// Steps per run.
    pub steps: usize,
    /// Form and rankings.
    pub basis: Basis,
    /// The comparison with float32, if attack steps ran in float16.
    pub half: Option<&'a HalfPrecision>,
    /// Nodes that softened backward passes change, if the strong search used such passes.
    pub softened: &'a [String],
    /// Whether gradients are estimated from forward passes.
    pub estimated: bool,
}

impl<'a> From<&'a Report> for Outcomes<'a> {
    fn from(r: &'a Report) -> Outcomes<'a> {
        Outcomes {
            outcomes: &r.outcomes,
            ball: Ball::find(&r.suite.norm).unwrap_or(&BALLS[0]),
            eps: r.suite.eps,
            gradient_free: r.suite.forward_passes.is_some(),
            steps: r.suite.steps,
            basis: r.basis(),
            half: r.half_precision.as_ref(),
            softened: &r.model.softened,
            estimated: r.estimated(),
        }
    }
}

/// Whether the attack reached its goal, so that no attack could do better.
pub fn arrived(o: &Outcome, basis: &Basis) -> bool {
    let (form, ranked) = (basis.form, basis.ranked_by(&o.attack));
    let found = Objective::find(&o.attack).ok().and_then(|objective| objective.success(o, form, ranked));
    found.is_some_and(|(_, after)| after > ARRIVED)
}

fn by_attack<'a>(all: &Outcomes<'a>) -> BTreeMap<&'static str, (&'static Objective, Vec<&'a Outcome>)> {
    let mut sorted: BTreeMap<&'static str, (&'static Objective, Vec<&Outcome>)> = BTreeMap::new();
    for o in all.outcomes {
        if let Ok(objective) = Objective::find(&o.attack) {
            sorted.entry(objective.code).or_insert((objective, Vec::new())).1.push(o);
        }
    }
    sorted
}

pub(super) fn bounds(all: &Outcomes) -> Found {
    if all.outcomes.is_empty() {
        return no_attack();
    }
    // Changed files, and models that take integers, have whole levels.
    let eps = if all.ball.is_box { whole_levels(all.eps).max(all.eps) } else { all.eps };
    let most = all.outcomes.iter().fold(0.0f32, |m, o| m.max(o.size.unwrap_or(o.linf)));
    let what =
        if all.outcomes.iter().any(|o| o.size.is_some()) { "perturbation" } else { "change of a pixel" };
    let text = format!("the largest {what} is {most:.5}, ε is {eps:.5}; all pixels lie in [0, 1]");
    // In this form the condition is true for NaN too.
    let inside = most <= all.ball.largest(eps);
    Found::judged(!inside, Severity::Error, text)
}

/// The result of a check on outcomes if there are none.
fn no_attack() -> Found {
    Found::not_checked("no attack was run", "")
}

/// Whether the attacks of the outcomes move towards their goal. Attacks are in the order of their codes.
#[derive(Default)]
struct Directions {
    /// Attacks that moved the measure away from their goal.
    backwards: Vec<&'static str>,
    /// Attacks that moved no embedding.
    still: Vec<&'static str>,
    /// Attacks that did not move all embeddings, with their trials, in words.
    partly: Vec<String>,
    /// Whether one of these did not move a share of [`IDLE`] of the embeddings.
    mostly_idle: bool,
    /// Whether some unmoved image was not moved by any other attack either.
    stuck: bool,
    /// Whether an attack with enough trials to tell moved towards its goal.
    judged: bool,
    /// Attacks with too few trials to tell.
    few: Vec<&'static str>,
}

impl Directions {
    fn of(all: &Outcomes) -> Directions {
        let mut found = Directions::default();
        let moved_by_others = moved_from_clean(all);
        for (code, (objective, outcomes)) in by_attack(all) {
            let moved: Vec<f64> = outcomes
                .iter()
                .filter_map(|o| objective.success(o, all.basis.form, all.basis.ranked_by(&o.attack)))
                .map(|(before, after)| after - before)
                .collect();
            let away = Mean::of(&moved).is_some_and(|m| Mean { value: -m.value, ..m }.clearly_above(1.0));
            match moved.len() >= ENOUGH {
                true if away => found.backwards.push(code),
                true => found.judged = true,
                false => found.few.push(code),
            }
            found.see_idle(code, &outcomes, &all.basis, &moved_by_others);
        }
        found
    }

    /// Counts the trials of an attack that moved nothing. `moved`: queries that an attack moved from the clean
    /// image.
    fn see_idle(&mut self, code: &'static str, outcomes: &[&Outcome], basis: &Basis, moved: &BTreeSet<&str>) {
        // A trial whose hinge is closed at the start has no gradient and is not judged. A trial is judged if
        // its loss is not zero, even if its embedding did not move, or if its perturbation was crafted on
        // others.
        let judgeable: Vec<&&Outcome> = (outcomes.iter())
            .filter(|o| o.loss_first != 0.0 || o.shift > 0.0 || o.shared.is_some())
            .collect();
        let mut unmoved = judgeable.iter().filter(|o| o.shift == 0.0);
        self.stuck |= unmoved.any(|o| !moved.contains(o.query.as_str()));
        let idle = judgeable.iter().filter(|o| o.shift == 0.0 && !arrived(o, basis)).count();
        if !judgeable.is_empty() && judgeable.iter().all(|o| o.shift == 0.0) {
            self.still.push(code);
        } else if idle > 0 {
            self.partly.push(format!("{idle} of {} trials of {code}", outcomes.len()));
            self.mostly_idle |= judgeable.len() >= ENOUGH && idle as f64 >= IDLE * judgeable.len() as f64;
        }
    }

    /// The result of attacks all of which moved every embedding.
    fn all_moved(&self) -> Found {
        let why = || format!("{} on fewer than {ENOUGH} trials", self.few.join(", "));
        match (self.judged, self.few.is_empty()) {
            (true, true) => Found::passed("yes"),
            (true, false) => Found::passed(format!("yes; not judged: {}", why())),
            (false, _) => Found::not_checked(
                format!("the suite's attacks ran on too few trials to tell their direction: {}", why()),
                "Attack more queries: --max-queries",
            ),
        }
    }
}

pub(super) fn direction(all: &Outcomes) -> Found {
    if all.outcomes.is_empty() {
        return no_attack();
    }
    let found = Directions::of(all);
    let Directions { backwards, still, partly, .. } = &found;
    if backwards.is_empty()
        && still.is_empty()
        && let Some(text) = idle_search(all)
    {
        return Found::error(text);
    }
    let by_gradient = !all.gradient_free && !all.estimated;
    let copies = if by_gradient && !found.stuck { COPIES } else { "" };
    match (&backwards[..], &still[..]) {
        ([], []) if partly.is_empty() => found.all_moved(),
        ([], []) if found.mostly_idle => {
            let why = if copies.is_empty() { ": the gradient is zero there" } else { "" };
            Found::error(format!(
                "in {} the embedding did not move{why}. They count as resisted, so that scores are too high{copies}",
                partly.join(", ")
            ))
        }
        ([], []) => {
            let text = format!(
                "in {} the embedding did not move: the gradient at the first image is zero, for example because the target is a copy of the image. They count as resisted; `ars-strict` and `ers-strict` also start from other images",
                partly.join(", ")
            );
            Found::warning(text)
        }
        ([], still) => Found::error(format!("{} moved no embedding at all{copies}", still.join(", "))),
        (backwards, _) => {
            Found::error(format!("{} moved the measure away from the goal", backwards.join(", ")))
        }
    }
}

/// The queries that a single search moved from the clean image, along a gradient that is not zero there.
fn moved_from_clean<'a>(all: &Outcomes<'a>) -> BTreeSet<&'a str> {
    let moved = |o: &&Outcome| {
        o.members.is_none() && o.shared.is_none() && o.start == 0 && o.steps > 0 && o.shift > 0.0
    };
    all.outcomes.iter().filter(moved).map(|o| o.query.as_str()).collect()
}

/// In words, that the strong search along the exact gradient stayed at the clean image, on a share of
/// [`IDLE`] of the queries or more. ES ends at its last image, and so stays there only if the gradient is
/// zero.
fn idle_search(all: &Outcomes) -> Option<String> {
    let exact = [members::SHIFT.name, members::MARGIN.name];
    let idle = |o: &Outcome| -> Option<bool> {
        let mut own = o.members.iter().flatten().filter(|m| exact.contains(&m.member.as_str())).peekable();
        own.peek().is_some().then(|| own.all(|m| m.idle))
    };
    let found: Vec<bool> = attacked(all.outcomes).filter_map(idle).collect();
    let (of, count) = (found.len(), found.iter().filter(|idle| **idle).count());
    let many = of >= ENOUGH && count as f64 >= IDLE * of as f64 && !all.estimated;
    many.then(|| {
        format!(
            "on {count} of {of} queries the strong search along the exact gradient did not move the image: the gradient is zero there. \
             Only searches without this gradient attack such a model"
        )
    })
}

pub(super) fn masked(all: &Outcomes) -> Found {
    if all.estimated {
        let why = "gradients are estimated, so that there is no exact gradient to compare with";
        return Found::not_checked(why, reason::EXACT_GRADIENT);
    }
    super::masked::masked(all.outcomes, all.softened)
}

pub(super) fn contradicted(all: &Outcomes) -> Found {
    strong::contradicted(all.outcomes)
}

/// The outcomes of single searches: an ensemble has many searches, and no loss curve of its own.
fn of_one_search<'a>(all: &'a Outcomes) -> Vec<&'a Outcome> {
    all.outcomes.iter().filter(|o| o.members.is_none()).collect()
}

/// The outcomes whose search was for their query alone, so that its loss curve is the query's: no shared
/// perturbations.
fn of_own_search<'a>(all: &'a Outcomes) -> Vec<&'a Outcome> {
    of_one_search(all).into_iter().filter(|o| o.shared.is_none()).collect()
}

/// Why the loss curves show nothing; `None` if they do.
fn no_course(all: &Outcomes, outcomes: &[&Outcome]) -> Option<Found> {
    let why = match () {
        () if all.outcomes.is_empty() => return Some(no_attack()),
        () if all.outcomes.iter().all(|o| o.members.is_some()) => {
            "it does not apply to the strong search, which makes several searches of each query and takes their best image"
        }
        () if outcomes.is_empty() => "it does not apply to perturbations that queries share",
        () if all.gradient_free => {
            "a search without gradients tries images at random, some outside its bounds"
        }
        () => return None,
    };
    Some(Found::not_checked(why, ""))
}

pub(super) fn unfinished(all: &Outcomes) -> Found {
    let outcomes = of_own_search(all);
    if let Some(found) = no_course(all, &outcomes) {
        return found;
    }
    if all.steps < 2 * LAST {
        let why = format!("{} steps are too few to decide", all.steps);
        return Found::not_checked(why, format!("Attack with {} steps or more: --steps", 2 * LAST));
    }
    let late = outcomes.iter().filter(|o| o.late_fall > LATE && !arrived(o, &all.basis)).count();
    let share = 100.0 * late as f64 / outcomes.len().max(1) as f64;
    let text = format!(
        "{share:.0} % of the attacks missed their goal and were still improving after {} steps: more than {:.0} % of the fall of \
         the loss came in the last {LAST}",
        all.steps,
        100.0 * LATE
    );
    Found::judged(share > 10.0, Severity::Warning, text)
}

pub(super) fn silent(all: &Outcomes) -> Found {
    let better = |o: &Outcome| o.loss_last - o.loss_best > 0.01 * (o.loss_first - o.loss_best).abs();
    let outcomes = of_own_search(all);
    if let Some(found) = no_course(all, &outcomes) {
        return found;
    }
    let count = outcomes.iter().filter(|o| better(o) && !arrived(o, &all.basis)).count();
    let share = 100.0 * count as f64 / outcomes.len().max(1) as f64;
    let text = format!(
        "{share:.0} % of the attacks missed their goal although an earlier image was better than the last (by 1 % of the fall of the \
         loss or more)"
    );
    Found::judged(share > 10.0, Severity::Warning, text)
}

pub(super) fn worst_case(all: &Outcomes) -> Found {
    let mut hits: BTreeMap<&str, (bool, Vec<&str>)> = BTreeMap::new();
    let mut codes: Vec<&str> = Vec::new();
    for o in of_one_search(all) {
        let Some(hit) = o.after.hit else { continue };
        if !codes.contains(&o.attack.as_str()) {
            codes.push(&o.attack);
        }
        let entry = hits.entry(&o.query).or_insert((true, Vec::new()));
        entry.0 &= hit;
        entry.1.push(&o.attack);
    }
    if codes.len() < 2 {
        // The check finds a note at best, so nothing is lost without it.
        let why = "the suite has fewer than two attacks on R@1";
        return Found::not_checked(why, "").weighing(Severity::Ok);
    }
    let left = hits.values().filter(|(hit, _)| *hit).count();
    let share = 100.0 * left as f64 / hits.len().max(1) as f64;
    Found::note(format!("R@1 is {share:.1} % if the worst of {} counts for each query", codes.join(", ")))
}

/// Warns if the interval of a drop is wider than a gate's tolerance: the gate can't detect a drop of that
/// size.
pub fn sampling_noise(report: &Report) -> Option<Warning> {
    // Of a value that has not changed at all nothing is left to detect.
    let changed = |c: &&GateCheck| c.kind == GateCheckKind::Drop && c.found != c.baseline;
    let drops = report.gate.iter().flat_map(|g| &g.checks).filter(changed);
    let blurred: Vec<String> = drops
        .filter_map(|c| {
            let (low, high) = c.change_interval?;
            let half = (high - low) / 2.0;
            (half > c.limit).then(|| format!("{} by ± {half:.1}, tolerance {}", c.metric, c.limit))
        })
        .collect();
    (!blurred.is_empty()).then(|| {
        reason::SAMPLING_NOISE.warning(format!(
            "the change from the baseline is more uncertain than the gate tolerates: {}",
            blurred.join("; ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use audit_report::record::{Form, Measures, MemberResult, Metric};

    /// A trial of QA+ that reached half of its goal, as in a report.
    fn outcome(linf: f32, loss_best: f64) -> Outcome {
        let text = format!(
            r#"{{"attack": "QA+", "query": "q", "targets": ["t"], "start": 0, "steps": 32, "loss_first": 1.0,
                "loss_last": 0.5, "loss_best": {loss_best}, "late_fall": 0.0, "shift": 0.1, "shift_before_last": 0.1,
                "linf": {linf}, "before": {{"rank": 50.0}}, "after": {{"rank": 25.0}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Outcomes of 32 steps within 8/255 and 101 ranked images.
    fn all_of(outcomes: &[Outcome], form: Form) -> Outcomes<'_> {
        Outcomes {
            outcomes,
            ball: &BALLS[0],
            eps: 8.0 / 255.0,
            gradient_free: false,
            steps: 32,
            basis: Basis { ranked: 101, form, metric: Metric::NormalizedEuclidean, foreign: None },
            half: None,
            softened: &[],
            estimated: false,
        }
    }

    /// Trials of QA+ of which the first `idle` moved no embedding.
    fn moved(of: usize, idle: usize) -> Vec<Outcome> {
        (0..of).map(|i| Outcome { shift: if i < idle { 0.0 } else { 0.1 }, ..outcome(0.0, 0.5) }).collect()
    }

    /// The gradient may be zero on a few images. On a quarter of at least 8 the attack is none.
    #[test]
    fn an_attack_that_moves_nothing_on_many_images_is_an_error() {
        let level = |of: usize, idle: usize| direction(&all_of(&moved(of, idle), Form::Published)).severity();
        assert_eq!(level(40, 0), Severity::Ok);
        assert_eq!([(40, 9), (7, 6)].map(|(of, idle)| level(of, idle)), [Severity::Warning; 2]);
        assert_eq!([(40, 10), (40, 39), (8, 2)].map(|(of, idle)| level(of, idle)), [Severity::Error; 3]);
    }

    /// CA- aims at one image, the copy of its query: the distance to the copy has no slope there. QA+ moves
    /// the same images if the model has a gradient.
    #[test]
    fn targets_that_are_copies_are_told_from_a_gradient_of_zero() {
        let found = |shift: f64| {
            let still = Outcome { attack: "CA-".into(), shift: 0.0, steps: 0, ..outcome(0.0, 1.0) };
            let outcomes = vec![still, Outcome { shift, ..outcome(0.0, 0.5) }];
            direction(&all_of(&outcomes, Form::Published))
        };
        for (shift, copies) in [(0.1, true), (0.0, false)] {
            let Found::Failed(Severity::Error, text) = found(shift) else { panic!() };
            assert!(text.contains("CA-") && text.contains("moved no embedding at all"), "{text}");
            assert_eq!(text.contains("copies"), copies, "{text}");
        }
    }

    /// The model has a gradient at the images that stay, or it has none: the text says one of both.
    #[test]
    fn images_that_another_attack_moves_have_a_gradient() {
        for (images, copies) in [("same", true), ("others", false)] {
            let on = |(i, o): (usize, Outcome), of: &str| Outcome { query: format!("{of}{i}"), ..o };
            let still = moved(8, 4).into_iter().enumerate().map(|o| on(o, "same"));
            let other = moved(8, 0).into_iter().enumerate().map(|o| on(o, images));
            let other = other.map(|o| Outcome { attack: "CA+".into(), ..o });
            let outcomes: Vec<Outcome> = still.chain(other).collect();
            let found = direction(&all_of(&outcomes, Form::Published));
            let Found::Failed(Severity::Error, text) = found else { panic!() };
            assert!(text.contains("4 of 8 trials of QA+"), "{text}");
            assert_eq!(text.contains("gradient is zero"), !copies, "{text}");
            assert_eq!(text.contains("copies"), copies, "{text}");
        }
    }

    /// A report of R1 on 40 queries: along the exact gradient, `idle` of them stay at the clean image.
    #[test]
    fn a_strong_search_that_finds_nothing_along_the_gradient_is_an_error() {
        let level = |idle: usize| {
            let member = |i: usize, name: &str| MemberResult {
                member: name.into(),
                steps: 30,
                value: 100.0,
                reached: false,
                counts: false,
                idle: i < idle,
            };
            let of_query = |i: usize| Outcome {
                attack: "R1".into(),
                query: format!("q{i}"),
                shift: 0.1,
                before: Measures { hit: Some(true), ..Measures::default() },
                after: Measures { hit: Some(true), ..Measures::default() },
                members: Some(vec![member(i, "margin"), member(i, "es"), member(40, "square")]),
                ..Outcome::default()
            };
            let outcomes: Vec<Outcome> = (0..40).map(of_query).collect();
            direction(&all_of(&outcomes, Form::Corrected))
        };
        let Found::Failed(Severity::Error, text) = level(10) else { panic!() };
        assert!(text.contains("on 10 of 40 queries"), "{text}");
        assert!(level(9).severity() < Severity::Error);
    }

    /// No audit leaves the bounds, so the test constructs these faults.
    #[test]
    fn what_leaves_its_bounds_or_passed_a_better_image_is_found() {
        let judged = |check: fn(&Outcomes) -> Found, outcome: Outcome, eps: f32| {
            check(&Outcomes { eps, ..all_of(&[outcome], Form::Published) }).severity()
        };
        let level = |check: fn(&Outcomes) -> Found, outcome: Outcome| judged(check, outcome, 8.0 / 255.0);
        let within_published = |linf: f32| judged(bounds, outcome(linf, 0.5), 0.03137);
        assert_eq!(level(bounds, outcome(8.0 / 255.0, 0.5)), Severity::Ok);
        assert_eq!(level(bounds, outcome(8.1 / 255.0, 0.5)), Severity::Error);
        // The published ε of 0.03137 stands for 8 grey levels, which a changed file has.
        assert_eq!(within_published(8.0 / 255.0), Severity::Ok);
        assert_eq!(within_published(8.0 / 255.0 + 2e-6), Severity::Error);
        assert_eq!(level(silent, outcome(0.0, 0.5)), Severity::Ok);
        assert_eq!(level(silent, outcome(0.0, 0.4)), Severity::Warning);
    }
}

//! What the strong search says: robust R@1, whether gradients are masked, and whether published numbers stand.

use super::quantity::{Needs, Quantity, ROBUST};
use super::share::wilson;
use super::survivors::{attacked, survivors};
use crate::model::Route;
use crate::record::{FEW, Found, MemberRow, Outcome, Report, RobustR1, ScoreName, unless_few};
use crate::threat::ensemble::Member;
use crate::threat::objective::r1::{CONTROLS, R1};
use crate::threat::term::TERMS;
use crate::threat::term::Term;
use crate::threat::{OBJECTIVES, Objective};
use onnx_grad::operators;
use std::collections::{BTreeSet, HashMap};

fn members() -> impl Iterator<Item = &'static Member> {
    R1.members.iter().flat_map(|tier| tier.iter())
}

/// Robust R@1 of the queries that the strong search attacked; `None` where it attacked none. A query is lost if any attack
/// of the report made it wrong.
pub fn robust_r1(outcomes: &[Outcome]) -> Option<RobustR1> {
    let queries = attacked(outcomes).count();
    if queries == 0 {
        return None;
    }
    let share = |hits: usize| 100.0 * hits as f64 / queries as f64;
    let clean = attacked(outcomes).filter(|o| o.before.hit == Some(true)).count();
    let left = survivors(outcomes).into_iter().filter(|(_, right)| *right).count();
    let row = |member: &Member| {
        let results = || {
            let all = attacked(outcomes).flat_map(|o| o.members.iter().flatten());
            all.filter(|m| m.member == member.name)
        };
        MemberRow {
            name: member.name.into(),
            about: member.about.into(),
            queries: results().count(),
            broken: results().filter(|m| m.reached).count(),
            counts: results().filter(|m| m.reached && m.counts).count(),
            steps: results().map(|m| m.steps).sum(),
        }
    };
    Some(RobustR1 {
        value: share(left),
        interval: unless_few(queries, Some(wilson(left, queries))),
        eps: None,
        queries,
        clean: share(clean),
        members: members().map(row).collect(),
        ladder: None,
    })
}

/// The result of a check of the strong search, if it attacked nothing.
fn no_strong_search() -> Found {
    Found::not_checked(
        "no query was attacked by the strong search",
        "Leave --strong-sample off, --surrogate and --only out",
    )
}

/// How a check that counts queries sees more of them.
const MORE_QUERIES: &str = "Attack more queries: --max-queries";

/// Whether a softened or gradient-free member broke more queries than the exact gradient did in the same tier, on the
/// same queries, beyond chance. `softened` are the nodes that softened backward passes change.
pub fn masked(outcomes: &[Outcome], softened: &[String]) -> Found {
    if attacked(outcomes).next().is_none() {
        return no_strong_search();
    }
    let correct = || attacked(outcomes).filter(|o| o.before.hit == Some(true));
    let right = correct().count();
    if right == 0 {
        let why = "no query that the strong search attacked is correct without an attack";
        return Found::not_checked(why, MORE_QUERIES);
    }
    // The first tier goes along the exact gradient alone. What another member can break beyond it are the queries that it left.
    let first: Vec<&str> = R1.members.iter().take(1).flat_map(|tier| tier.iter()).map(|m| m.name).collect();
    let left = correct().filter(|o| broke(o, &first) != Some(true)).count();
    if (left as f64) < MATERIAL * right as f64 {
        return Found::passed(format!(
            "the exact gradient alone makes {} of {right} correct queries wrong",
            right - left
        ));
    }
    if !beyond_chance(left, 0) {
        let why = format!(
            "the exact gradient left {left} of {right} correct queries, too few to tell a difference from chance"
        );
        return Found::not_checked(why, MORE_QUERIES);
    }
    // Members that broke clearly more than the exact gradient did, and those of which chance may be the cause.
    let mut found: Option<(Duel, &Member, bool)> = None;
    let mut doubtful: Option<(Duel, &Member, bool)> = None;
    let mut before: Vec<&str> = Vec::new();
    for tier in R1.members {
        let named = |m: &&Member| CONTROLS.contains(&m.name);
        let controls = tier.iter().filter(|m| exact(m) && (named(m) || !tier.iter().any(|m| named(&m))));
        let control: Vec<&str> = controls.map(|m| m.name).collect();
        before.extend(tier.iter().filter(|m| exact(m)).map(|m| m.name));
        let equal = !control.is_empty();
        for member in tier.iter().filter(|m| !exact(m) && m.or != Some(Route::Exact)) {
            // A tier without a control runs on the queries that all earlier members left. Its member must break more than all members
            // along the exact gradient did together.
            let duel = match equal {
                true => Duel::of(outcomes, &[member.name], &control),
                false => Duel::over_all(outcomes, &[member.name], &before),
            };
            if duel.gain() < MATERIAL * right as f64 {
                continue;
            }
            let kept = if duel.beyond_chance() { &mut found } else { &mut doubtful };
            if kept.as_ref().is_none_or(|(best, ..)| duel.gain() > best.gain()) {
                *kept = Some((duel, member, equal));
            }
        }
    }
    let Some((duel, member, equal)) = found else {
        let Some((duel, member, _)) = doubtful else {
            return Found::passed("no other backward pass and no search without gradients does better");
        };
        let why = format!(
            "of {} queries `{}` made {} wrong, and the exact gradient {}: too few to tell this from chance",
            duel.both, member.name, duel.first, duel.second
        );
        return Found::not_checked(why, MORE_QUERIES);
    };
    let how = if member.gradient_free() {
        "a search without gradients".to_string()
    } else {
        format!("the same steps along {} gradients", member.route.in_words())
    };
    let place = if softened.is_empty() || member.gradient_free() {
        String::new()
    } else {
        format!(". Operators with another slope there: {}", named(softened))
    };
    let (of, first, second, name) = (duel.both, duel.first, duel.second, member.name);
    let text = match equal {
        true => format!(
            "of {of} queries that the exact gradient had left right, {how} (`{name}`) made {first} wrong, and the exact gradient at \
             equal terms {second}{place}"
        ),
        false => format!(
            "of {of} queries, {how} (`{name}`) made {first} wrong that every earlier member had left right, and all members along \
             the exact gradient together {second}"
        ),
    };
    Found::error(text)
}

/// The nodes most likely to mask, for a message: those that saturate or are flat before those that only bend. A report names each
/// as [`Node::label`](onnx_grad::Node::label) does, with its operator first.
fn named(nodes: &[String]) -> String {
    let bending: Vec<&str> = operators::all().filter(|o| o.bends).map(|o| o.name).collect();
    let bends = |node: &&String| node.split_once(' ').is_some_and(|(op, _)| bending.contains(&op));
    let (bent, flat): (Vec<&String>, Vec<&String>) = nodes.iter().partition(bends);
    let all: Vec<&String> = flat.into_iter().chain(bent).collect();
    let shown: Vec<&str> = all.iter().take(4).map(|node| node.as_str()).collect();
    let more = all.len().saturating_sub(shown.len());
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// A term of R@1 beside the strong search, on the queries that both attacked.
struct Beside {
    term: &'static Term,
    /// Queries that both attacked, and those of them that the term's attack left correct.
    of: usize,
    left: usize,
    /// Queries that only the strong search broke, and only the attack.
    only: [usize; 2],
}

impl Beside {
    /// Each term that an attack of the outcomes is judged by.
    fn all(outcomes: &[Outcome]) -> Vec<Beside> {
        let strong: HashMap<&str, bool> =
            attacked(outcomes).map(|o| (o.query.as_str(), o.after.hit == Some(true))).collect();
        let beside = |term: &'static Term| {
            let mut found = Beside { term, of: 0, left: 0, only: [0, 0] };
            let judged = |o: &&Outcome| {
                Objective::find(&o.attack).is_ok_and(|of| of.judged_by(term) && of.shared.is_none())
            };
            // One perturbation for many queries is another threat than one for each, and no weak search for the same.
            for o in outcomes.iter().filter(judged).filter(|o| !R1.made(o)) {
                let (Some(hit), Some(&robust)) = (o.after.hit, strong.get(o.query.as_str())) else {
                    continue;
                };
                found.of += 1;
                found.left += usize::from(hit);
                found.only[0] += usize::from(hit && !robust);
                found.only[1] += usize::from(!hit && robust);
            }
            (found.of > 0).then_some(found)
        };
        TERMS.iter().filter(|term| term.recall).filter_map(beside).collect()
    }

    /// Whether the strong search broke more queries, by a tenth of enough of them or more.
    fn material(&self) -> bool {
        self.of >= FEW && self.only[0] as f64 - self.only[1] as f64 >= MATERIAL * self.of as f64
    }

    /// The same beyond chance.
    fn contradicted(&self) -> bool {
        self.material() && beyond_chance(self.only[0], self.only[1])
    }

    /// Whether chance can't be the cause of what was seen: the strong search broke hardly more, of enough queries that the attack left;
    /// or it left too few to matter.
    fn decides(&self) -> bool {
        (!self.material() && beyond_chance(self.left, 0)) || (self.left as f64) < MATERIAL * self.of as f64
    }
}

/// The terms of R@1 that the strong search contradicts: it broke more queries than the attack did, of the same ones,
/// beyond chance and by a tenth of them or more, of [`FEW`] or more. Each with what its attack left of these queries, in per cent.
pub fn contradicted_terms(outcomes: &[Outcome]) -> Vec<(&'static Term, f64)> {
    let all = Beside::all(outcomes);
    let contradicted = all.iter().filter(|beside| beside.contradicted());
    contradicted.map(|b| (b.term, 100.0 * b.left as f64 / b.of as f64)).collect()
}

/// Whether robust R@1 is below what the suite's own attacks leave of the same queries, beyond chance.
pub fn contradicted(outcomes: &[Outcome]) -> Found {
    let Some(robust) = robust_r1(outcomes) else { return no_strong_search() };
    let all = Beside::all(outcomes);
    if all.is_empty() {
        return Found::not_checked(
            "no other attack of the suite is on R@1, so that there is nothing to confirm",
            "",
        );
    }
    let terms = contradicted_terms(outcomes);
    if terms.is_empty() {
        let few: Vec<&str> =
            all.iter().filter(|beside| !beside.decides()).map(|beside| beside.term.name).collect();
        let why = || format!("beside {} too few queries to tell a difference from chance", few.join(", "));
        let told = !all.iter().any(|b| b.material()) && all.iter().any(|b| beyond_chance(b.left, 0));
        let little = "a stronger attack finds little more than the suite's";
        return match (few.is_empty(), told) {
            (true, _) => Found::passed(little),
            (false, true) => Found::passed(format!("{little}; not judged: {}", why())),
            (false, false) => Found::not_checked(why(), MORE_QUERIES),
        };
    }
    let each: Vec<String> = terms.iter().map(|(term, left)| format!("{} {left:.0} %", term.name)).collect();
    Found::warning(format!(
        "under a stronger attack R@1 falls to {:.1} % at the same ε ({}{} queries); the suite's attacks leave more of \
         the same queries: {}. Scores of these attacks say how strong they are, more than how robust the model is",
        robust.value,
        robust.interval.map_or(String::new(), |(low, high)| format!("95 % {low:.1} – {high:.1}, ")),
        robust.queries,
        each.join(", ")
    ))
}

/// Why a bound on a quantity can't be passed: the strong search contradicts the number. `None` if it doesn't, and for
/// numbers that it says nothing about.
pub fn refuted(report: &Report, quantity: &Quantity) -> Option<String> {
    let robust = ROBUST.stored(report)?;
    let terms = || contradicted_terms(&report.outcomes);
    let hit = match quantity.needs {
        Needs::Term(term) => terms().iter().any(|(of, _)| *of == term),
        Needs::Score(ScoreName::Ars | ScoreName::Ers) => !terms().is_empty(),
        Needs::Score(ScoreName::ArsStrong) | Needs::Nothing | Needs::Ladder | Needs::Corruption(_) => false,
    };
    let show = |value| ROBUST.show(value);
    hit.then(|| {
        format!(
            "a stronger attack contradicts it: R@1 falls to {} %{} at {}. Gate on robust_r1",
            show(robust.value),
            robust.interval.map_or(String::new(), |(low, high)| format!(
                " (95 % {} – {})",
                show(low),
                show(high)
            )),
            report.suite.budget()
        )
    })
}

/// Smallest share of the queries, right without attack, that masked gradients must hide to be called that.
const MATERIAL: f64 = 0.1;
/// Chance that must be exceeded.
const CHANCE: f64 = 0.01;

/// Two groups of members on the queries that both attacked.
struct Duel {
    /// Queries that both attacked.
    both: usize,
    /// Queries that the first group broke, and the second.
    first: usize,
    second: usize,
    /// Queries that only the first group broke, and only the second.
    only: [usize; 2],
}

/// Whether one of these members broke a query; `None` where none attacked it.
fn broke(o: &Outcome, names: &[&str]) -> Option<bool> {
    let mut mine = o.members.iter().flatten().filter(|m| names.contains(&m.member.as_str())).peekable();
    mine.peek().is_some().then(|| mine.any(|m| m.reached))
}

impl Duel {
    fn of(outcomes: &[Outcome], first: &[&str], second: &[&str]) -> Duel {
        Duel::count(attacked(outcomes).filter_map(|o| Some((broke(o, first)?, broke(o, second)?))))
    }

    /// The same on all queries that the second group attacked. One that the first group did not attack counts as not broken by it.
    fn over_all(outcomes: &[Outcome], first: &[&str], second: &[&str]) -> Duel {
        let of = |o| Some((broke(o, first).unwrap_or(false), broke(o, second)?));
        Duel::count(attacked(outcomes).filter_map(of))
    }

    fn count(all: impl Iterator<Item = (bool, bool)>) -> Duel {
        let mut duel = Duel { both: 0, first: 0, second: 0, only: [0, 0] };
        for (a, b) in all {
            duel.both += 1;
            duel.first += usize::from(a);
            duel.second += usize::from(b);
            duel.only[0] += usize::from(a && !b);
            duel.only[1] += usize::from(b && !a);
        }
        duel
    }

    /// Queries that the first group broke beyond those of the second.
    fn gain(&self) -> f64 {
        self.first as f64 - self.second as f64
    }

    fn beyond_chance(&self) -> bool {
        beyond_chance(self.only[0], self.only[1])
    }
}

/// Whether `wins` against `losses` are more than chance explains: the one-sided sign test.
fn beyond_chance(wins: usize, losses: usize) -> bool {
    let n = wins + losses;
    // P(at least so many wins | wins and losses are equally likely), summed from the largest count down.
    let (mut term, mut sum) = (0.5f64.powi(n.min(1000) as i32), 0.0);
    for k in (wins..=n).rev() {
        sum += term;
        term *= k as f64 / (n - k + 1) as f64;
    }
    wins > losses && (n > 1000 || sum < CHANCE)
}

/// The routes that the strong search asked for, as outcomes tell: those of all members of a tier in which a member
/// ran, each with the one that is asked for where the model doesn't have it. They are in the order in which they are asked for,
/// since of two equal ones the first is taken.
pub fn routes(outcomes: &[Outcome]) -> Vec<(Route, Option<Route>)> {
    let ran: BTreeSet<(&str, &str)> = outcomes
        .iter()
        .flat_map(|o| o.members.iter().flatten().map(|m| (o.attack.as_str(), m.member.as_str())))
        .collect();
    let mut found = Vec::new();
    for objective in OBJECTIVES {
        let began = |tier: &&&[Member]| tier.iter().any(|m| ran.contains(&(objective.code, m.name)));
        for member in objective.members.iter().filter(began).flat_map(|tier| tier.iter()) {
            let asked = (member.route, member.or);
            if !found.contains(&asked) {
                found.push(asked);
            }
        }
    }
    found
}

/// Whether a member goes along the exact gradient.
fn exact(member: &Member) -> bool {
    member.route == Route::Exact && !member.gradient_free()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Severity, State};

    /// A trial on query `i`: right without attack, and whether it was after. `members` that ran on it, and whether each made
    /// it wrong.
    fn trial(attack: &str, i: usize, hit: bool, members: Option<&[(&str, bool)]>) -> Outcome {
        let of = |hit| crate::record::Measures { hit: Some(hit), ..Default::default() };
        let member = |&(name, reached): &(&str, bool)| crate::record::MemberResult {
            member: name.into(),
            steps: 10,
            value: f64::from(u8::from(!reached)),
            reached,
            counts: reached,
        };
        Outcome {
            attack: attack.into(),
            query: format!("q{i}"),
            before: of(true),
            after: of(hit),
            members: members.map(|all| all.iter().map(member).collect()),
            ..Outcome::default()
        }
    }

    /// The level of [`masked`] for `of` queries, of which a member broke the first `wins` and the exact gradient the last
    /// `losses`. Both ran on all.
    fn level(member: &str, control: &str, of: usize, wins: usize, losses: usize) -> Severity {
        let broke = |i: usize| [(member, i < wins), (control, i >= of - losses)];
        let all: Vec<Outcome> =
            (0..of).map(|i| trial("R1", i, i >= wins && i < of - losses, Some(&broke(i)))).collect();
        masked(&all, &[]).severity()
    }

    /// Expected by hand: that of n coins all fall on one side has the chance 2^-n, 0.0156 for 6 and 0.0078 for 7; that of
    /// 11 at least 10 do, 12/2048 = 0.0059; of 10 at least 9, 11/1024 = 0.0107. Less than 0.01 is beyond chance.
    #[test]
    fn masked_gradients_are_told_beyond_chance() {
        let soft = |wins, losses| level("es, softened", CONTROLS[0], 40, wins, losses);
        // A difference that counts and that chance may explain decides nothing: the check was not made.
        assert_eq!(soft(6, 0), Severity::Info);
        assert_eq!(soft(7, 0), Severity::Error);
        assert_eq!(soft(10, 1), Severity::Error);
        assert_eq!(soft(9, 1), Severity::Info);
        assert_eq!(soft(0, 20), Severity::Ok);
        assert_eq!(soft(20, 20), Severity::Ok);
    }

    /// Random search in a tier of its own has no control beside it. Of 50 queries, all members along the exact gradient broke
    /// 3, and it broke 20 of those that were left. Against 12 this is within chance (20 of 32 heads, probability 0.11). Against 30, as on a
    /// model that hides nothing, it is no sign at all.
    #[test]
    fn random_search_behind_all_others_tells_masked_gradients_too() {
        let level = |exact: usize| {
            let all: Vec<Outcome> = (0..50)
                .map(|i| {
                    let (by_exact, by_square) = (i < exact, i >= exact && i < exact + 20);
                    let seen = [("es", by_exact), ("square, from stripes", by_square)];
                    trial("R1", i, !by_exact && !by_square, Some(&seen[..if by_exact { 1 } else { 2 }]))
                })
                .collect();
            masked(&all, &[])
        };
        let Found::Failed(Severity::Error, text) = level(3) else { panic!() };
        assert!(
            text.contains("made 20 wrong that every earlier member had left right")
                && text.contains("together 3"),
            "{text}"
        );
        assert_eq!([12, 30].map(|exact| level(exact).state()), [State::NotChecked, State::Passed]);
    }

    /// A tenth of the queries that were right without attack: 7 of 60, and not of 80.
    #[test]
    fn a_few_queries_of_many_are_no_masked_gradients() {
        assert_eq!(level("es, softened", CONTROLS[0], 60, 7, 0), Severity::Error);
        assert_eq!(level("es, softened", CONTROLS[0], 80, 7, 0), Severity::Ok);
        assert_eq!(level("es, softened", CONTROLS[0], 80, 9, 0), Severity::Error);
    }

    /// A member without the exact gradient is compared with the exact one of its own tier: with the control where there is
    /// one, and not with `margin`, which has another loss. One from other images than the exact one's isn't compared.
    #[test]
    fn members_are_compared_within_their_tier() {
        for (member, control, found) in [
            ("es, straight-through", CONTROLS[0], Severity::Error),
            ("es, softened", "margin", Severity::Ok),
            ("margin, softened", "margin, random start", Severity::Error),
            ("margin, straight-through", "margin, random start", Severity::Error),
            ("best classes, random starts", "best classes, exact", Severity::Ok),
            ("square", "best classes, exact", Severity::Error),
            ("square", CONTROLS[0], Severity::Ok),
            ("margin", CONTROLS[0], Severity::Ok),
        ] {
            assert_eq!(level(member, control, 40, 20, 0), found, "{member} against {control}");
        }
    }

    #[test]
    fn masked_gradients_are_named_with_their_operators() {
        let broke = [("es, softened", true), (CONTROLS[0], false)];
        let all: Vec<Outcome> = (0..10).map(|i| trial("R1", i, false, Some(&broke))).collect();
        let nodes = ["Relu \"a\"", "Sigmoid \"mask\"", "MaxPool \"b\""].map(String::from);
        let Found::Failed(Severity::Error, text) = masked(&all, &nodes) else { panic!() };
        // What is flat comes before what only bends.
        assert!(text.contains("Sigmoid \"mask\", Relu \"a\", MaxPool \"b\""), "{text}");
        assert!(
            text.contains("of 10 queries") && text.contains("made 10 wrong") && text.contains("softened"),
            "{text}"
        );
        // A tier asks for the passes of all its members.
        let asked = [Route::Exact, Route::Softened, Route::StraightThrough];
        assert_eq!(routes(&all), asked.map(|route| (route, None)));
    }

    /// The strong search breaks the first `wins` of `of` queries, ES the last `losses`.
    fn both(of: usize, wins: usize, losses: usize) -> Vec<Outcome> {
        let strong = (0..of).map(|i| trial("R1", i, i >= wins, Some(&[])));
        strong.chain((0..of).map(|i| trial("ES", i, i < of - losses, None))).collect()
    }

    /// Chances as above. A tenth of the queries is what counts: a few of a thousand change no score.
    #[test]
    fn scores_are_contradicted_beyond_chance() {
        for (of, wins, losses, found) in [
            (40, 6, 0, Severity::Info),
            (40, 7, 0, Severity::Warning),
            (1000, 7, 0, Severity::Ok),
            (1000, 99, 0, Severity::Ok),
            (1000, 100, 0, Severity::Warning),
            (40, 10, 1, Severity::Warning),
            (40, 9, 1, Severity::Info),
            (40, 0, 20, Severity::Ok),
        ] {
            let outcomes = both(of, wins, losses);
            let result = contradicted(&outcomes);
            assert_eq!(result.severity(), found, "{wins} to {losses} of {of}: {result:?}");
            assert_eq!(contradicted_terms(&outcomes).is_empty(), found < Severity::Warning);
        }
        // Only the attack that leaves more is contradicted.
        let mut outcomes = both(40, 20, 0);
        outcomes.extend((0..40).map(|i| trial("LTM", i, i >= 20, None)));
        let terms = contradicted_terms(&outcomes);
        assert_eq!(
            terms.iter().map(|(term, left)| (term.name, *left)).collect::<Vec<_>>(),
            [("ES:R", 100.0)]
        );
        let Found::Failed(_, text) = contradicted(&outcomes) else { panic!() };
        assert!(text.contains("R@1 falls to 50.0 %") && text.contains("ES:R 100 %"), "{text}");
        // A perturbation that all queries share may well leave more of them than one for each.
        let shared = (0..40).map(|i| Outcome { shared: Some(0), ..trial("UAP", i, true, None) });
        outcomes.extend(shared);
        assert_eq!(contradicted_terms(&outcomes).len(), 1);
        // Queries that the strong search didn't attack say nothing.
        outcomes.retain(|o| o.attack != "R1" || o.query == "q1");
        assert_eq!(contradicted(&outcomes).state(), State::NotChecked);
    }

    /// What the strong search didn't attack, or attacked on too few queries for the sign test, is not checked. By hand: 7 to 0 is the
    /// least that is beyond chance, and a tenth is the least that counts.
    #[test]
    fn what_can_t_be_told_is_not_checked() {
        let state = |found: Found| found.state();
        assert_eq!(state(masked(&[], &[])), State::NotChecked);
        assert_eq!(state(contradicted(&[])), State::NotChecked);
        // Of `of` queries ES as the first member broke all but `left`.
        let left = |of: usize, left: usize| -> Vec<Outcome> {
            (0..of).map(|i| trial("R1", i, false, Some(&[("es", i >= left)]))).collect()
        };
        for (of, survivors, expected) in [
            (16, 1, State::Passed),
            (16, 6, State::NotChecked),
            (16, 7, State::Passed),
            (100, 6, State::Passed),
        ] {
            let found = masked(&left(of, survivors), &[]);
            assert_eq!(found.state(), expected, "{survivors} of {of}: {found:?}");
        }
        let mut wrong = left(16, 16);
        wrong.iter_mut().for_each(|o| o.before.hit = Some(false));
        assert_eq!(state(masked(&wrong, &[])), State::NotChecked);
        // ES as an attack of the suite, which leaves `survivors` of 16 queries; the strong search leaves as many.
        for (survivors, expected) in [(1, State::Passed), (6, State::NotChecked), (7, State::Passed)] {
            let strong = (0..16).map(|i| trial("R1", i, i < survivors, Some(&[])));
            let all: Vec<Outcome> =
                strong.chain((0..16).map(|i| trial("ES", i, i < survivors, None))).collect();
            assert_eq!(state(contradicted(&all)), expected, "{survivors}");
        }
        // Beside no attack on R@1 there is nothing to confirm.
        let alone: Vec<Outcome> = (0..16).map(|i| trial("R1", i, true, Some(&[]))).collect();
        assert_eq!(state(contradicted(&alone)), State::NotChecked);
    }

    /// By hand: of 10 queries the strong search breaks 4 and ES 3 others; 3 are left.
    #[test]
    fn a_query_is_lost_to_whatever_attack_broke_it() {
        let mut outcomes = both(10, 4, 3);
        let robust = robust_r1(&outcomes).unwrap();
        assert!((robust.value - 30.0).abs() < 1e-9 && robust.queries == 10 && robust.clean == 100.0);
        assert_eq!(robust.interval, Some(wilson(3, 10)));
        // One was wrong without attack.
        outcomes[9].before.hit = Some(false);
        let robust = robust_r1(&outcomes).unwrap();
        assert!((robust.value - 30.0).abs() < 1e-9 && (robust.clean - 90.0).abs() < 1e-9);
        outcomes[5].before.hit = Some(false);
        assert!((robust_r1(&outcomes).unwrap().value - 20.0).abs() < 1e-9);
        outcomes.retain(|o| o.attack != "R1");
        assert!(robust_r1(&outcomes).is_none());
    }

    #[test]
    fn members_are_summed_up() {
        let all = [
            trial("R1", 0, false, Some(&[("es", true)])),
            trial("R1", 1, false, Some(&[("es", false), ("margin", true), (CONTROLS[0], true)])),
            trial("R1", 2, true, Some(&[("es", false), ("margin", false), (CONTROLS[0], false)])),
        ];
        let robust = robust_r1(&all).unwrap();
        let row = |name: &str| {
            let m = robust.members.iter().find(|m| m.name == name).unwrap();
            (m.queries, m.broken, m.steps)
        };
        assert_eq!((row("es"), row("margin"), row("small steps")), ((3, 1, 30), (2, 1, 20), (0, 0, 0)));
        assert_eq!(robust.members.len(), members().count());
    }
}

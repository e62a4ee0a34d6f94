//! Whether gradients are masked, by the results of the members of the strong search.

use crate::ensemble::{Ensemble, Member, ladder};
use crate::objective::r1::{CONTROLS, R1};
use audit_base::error::shortened;
use audit_model::Route;
use audit_report::judge::strong::{MATERIAL, MORE_QUERIES, beyond_chance, no_strong_search};
use audit_report::judge::survivors::attacked;
use audit_report::record::{Found, Outcome};
use onnx_grad::operators;

/// Whether gradients are masked at ε, see [`masked_at_eps`], or only within smaller changes.
pub fn masked(outcomes: &[Outcome], softened: &[String]) -> Found {
    let found = masked_at_eps(outcomes, softened);
    if matches!(found, Found::Failed(..)) {
        return found;
    }
    masked_below(outcomes).unwrap_or(found)
}

/// The finding that the searches for the smallest change missed others of at most half the size, beyond
/// chance and on a tenth of the correct queries or more; see [`ladder::DOUBTS`].
fn masked_below(outcomes: &[Outcome]) -> Option<Found> {
    let right = attacked(outcomes).filter(|o| o.before.hit == Some(true));
    let passed_by: Vec<bool> = right.map(|o| o.enough.is_some_and(|enough| enough.passed_by)).collect();
    let (of, count) = (passed_by.len(), passed_by.iter().filter(|passed| **passed).count());
    let matters = count as f64 >= MATERIAL * of as f64 && beyond_chance(count, 0);
    matters.then(|| {
        Found::error(format!(
            "of {of} correct queries, a few images of whole grey levels made {count} wrong within half of the smallest change that the \
             searches along gradients had found. The gradient is masked within small changes, or the model behaves differently on \
             images that no file holds: a still smaller change than reported may be enough"
        ))
    })
}

/// Whether a softened or gradient-free member broke more queries than the exact gradient did in the same
/// tier, on the same queries, beyond chance. `softened` are the nodes that softened backward passes change.
fn masked_at_eps(outcomes: &[Outcome], softened: &[String]) -> Found {
    if attacked(outcomes).next().is_none() {
        return no_strong_search(outcomes);
    }
    let correct = || attacked(outcomes).filter(|o| o.before.hit == Some(true));
    let right = correct().count();
    if right == 0 {
        let why = "no query that the strong search attacked is correct without an attack";
        return Found::not_checked(why, MORE_QUERIES);
    }
    let left = correct().filter(|o| !broken_by_first(o)).count();
    if (left as f64) < MATERIAL * right as f64 {
        return Found::passed(format!(
            "the exact gradient alone breaks {} of {right} correct queries",
            right - left
        ));
    }
    if !beyond_chance(left, 0) {
        let why = format!(
            "the exact gradient left {left} of {right} correct queries, too few to tell a difference from chance"
        );
        return Found::not_checked(why, MORE_QUERIES);
    }
    let [found, doubtful] = widest_gains(outcomes, MATERIAL * right as f64);
    let Some((duel, member, equal)) = found else {
        let Some((duel, member, _)) = doubtful else {
            return Found::passed("no other backward pass and no search without gradients does better");
        };
        let why = format!(
            "of {} queries `{}` broke {}, and the exact gradient {}: too few to tell this from chance",
            duel.both, member.name, duel.first, duel.second
        );
        return Found::not_checked(why, MORE_QUERIES);
    };
    Found::error(in_words(&duel, member, equal, softened))
}

/// Whether the first tier broke a query. It uses the exact gradient only, and so does the tier before it in a
/// search for smaller changes: another member can break only the queries that these left.
fn broken_by_first(o: &Outcome) -> bool {
    let names = |tiers: Ensemble| -> Vec<&str> {
        tiers.iter().take(1).flat_map(|tier| tier.iter()).map(|m| m.name).collect()
    };
    let (first, before_it) = (names(R1.members), names(ladder::FIRST));
    broke(o, &first) == Some(true) || (o.enough.is_some() && broke(o, &before_it) == Some(true))
}

/// A member against the exact gradient, and whether the latter had equal work.
type Contest = (Duel, &'static Member, bool);

/// The member that broke the most queries beyond the exact gradient, at least `least`: of those that clearly
/// did, and of those that may have done so by chance.
fn widest_gains(outcomes: &[Outcome], least: f64) -> [Option<Contest>; 2] {
    let mut found: Option<Contest> = None;
    let mut doubtful: Option<Contest> = None;
    let mut before: Vec<&str> = Vec::new();
    for tier in R1.members {
        let named = |m: &&Member| CONTROLS.contains(&m.name);
        let controls = tier.iter().filter(|m| exact(m) && (named(m) || !tier.iter().any(|m| named(&m))));
        let control: Vec<&str> = controls.map(|m| m.name).collect();
        before.extend(tier.iter().filter(|m| exact(m)).map(|m| m.name));
        let equal = !control.is_empty();
        for member in tier.iter().filter(|m| !exact(m) && m.or != Some(Route::Exact)) {
            // A tier without a control runs on the queries that all earlier members left. Its member must
            // break more than all members along the exact gradient together.
            let duel = match equal {
                true => Duel::of(outcomes, &[member.name], &control),
                false => Duel::over_all(outcomes, &[member.name], &before),
            };
            if duel.gain() < least {
                continue;
            }
            let kept = if duel.beyond_chance() { &mut found } else { &mut doubtful };
            if kept.as_ref().is_none_or(|(best, ..)| duel.gain() > best.gain()) {
                *kept = Some((duel, member, equal));
            }
        }
    }
    [found, doubtful]
}

/// What a member broke, and what the exact gradient did.
fn in_words(duel: &Duel, member: &Member, equal: bool, softened: &[String]) -> String {
    let how = if member.gradient_free {
        "a search without gradients".to_string()
    } else {
        match member.route {
            Route::Widened => "the same steps along gradients of the widened model".to_string(),
            route => format!("the same steps along {} gradients", route.in_words()),
        }
    };
    let place = if softened.is_empty() || member.gradient_free {
        String::new()
    } else {
        format!(". Operators with another slope there: {}", named(softened))
    };
    let (of, first, second, name) = (duel.both, duel.first, duel.second, member.name);
    match equal {
        true => format!(
            "of {of} queries that the exact gradient had left correct, {how} (`{name}`) broke {first}, and the exact gradient with equal work {second}{place}"
        ),
        false => format!(
            "of {of} queries, {how} (`{name}`) broke {first} that every earlier member had left correct, and all members along the exact \
             gradient together {second}"
        ),
    }
}

/// The nodes most likely to mask, for a message: saturating or flat operators before those that only bend. A
/// report names each as [`Node::label`](onnx_grad::Node::label) does, with its operator first.
fn named(nodes: &[String]) -> String {
    let bending: Vec<&str> = operators::all().filter(|o| o.bends).map(|o| o.name).collect();
    let bends = |node: &&String| node.split_once(' ').is_some_and(|(op, _)| bending.contains(&op));
    let (bent, flat): (Vec<&String>, Vec<&String>) = nodes.iter().partition(bends);
    let all: Vec<&String> = flat.into_iter().chain(bent).collect();
    shortened(&all, 4)
}

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

/// Whether one of these members broke a query; `None` if none attacked it.
fn broke(o: &Outcome, names: &[&str]) -> Option<bool> {
    let mut mine = o.members.iter().flatten().filter(|m| names.contains(&m.member.as_str())).peekable();
    mine.peek().is_some().then(|| mine.any(|m| m.reached))
}

impl Duel {
    fn of(outcomes: &[Outcome], first: &[&str], second: &[&str]) -> Duel {
        Duel::count(attacked(outcomes).filter_map(|o| Some((broke(o, first)?, broke(o, second)?))))
    }

    /// The duel on all queries that the second group attacked. Those that the first group did not attack
    /// count as not broken by it.
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

/// Whether a member goes along the exact gradient.
fn exact(member: &Member) -> bool {
    member.route == Route::Exact && !member.gradient_free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ensemble::routes;
    use audit_report::record::{Enough, Severity, State};

    /// A trial on query `i`: correct without an attack, and `hit` under attack. `members` ran on it; each
    /// says whether it made the query wrong.
    fn trial(attack: &str, i: usize, hit: bool, members: Option<&[(&str, bool)]>) -> Outcome {
        let of = |hit| audit_report::record::Measures { hit: Some(hit), ..Default::default() };
        let member = |&(name, reached): &(&str, bool)| audit_report::record::MemberResult {
            member: name.into(),
            steps: 10,
            value: f64::from(!reached),
            reached,
            counts: reached,
            idle: false,
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

    /// The level of [`masked`] for `of` queries, of which a member broke the first `wins` and the exact
    /// gradient the last `losses`. Both ran on all.
    fn level(member: &str, control: &str, of: usize, wins: usize, losses: usize) -> Severity {
        let broke = |i: usize| [(member, i < wins), (control, i >= of - losses)];
        let all: Vec<Outcome> =
            (0..of).map(|i| trial("R1", i, i >= wins && i < of - losses, Some(&broke(i)))).collect();
        masked(&all, &[]).severity()
    }

    /// By hand: the chance that n coins all fall on one side is 2^-n, 0.0156 for 6 and 0.0078 for 7; that at
    /// least 10 of 11 do, 12/2048 = 0.0059; at least 9 of 10, 11/1024 = 0.0107. Less than 0.01 is beyond
    /// chance.
    #[test]
    fn masked_gradients_are_told_beyond_chance() {
        let soft = |wins, losses| level("es, softened", CONTROLS[0], 40, wins, losses);
        // A relevant difference that chance may explain decides nothing: not checked.
        assert_eq!(soft(6, 0), Severity::Info);
        assert_eq!(soft(7, 0), Severity::Error);
        assert_eq!(soft(10, 1), Severity::Error);
        assert_eq!(soft(9, 1), Severity::Info);
        assert_eq!(soft(0, 20), Severity::Ok);
        assert_eq!(soft(20, 20), Severity::Ok);
    }

    /// All queries are broken at once at ε. By hand: 7 to 0 is the least that is beyond chance, and a tenth
    /// of 80 queries are 8.
    #[test]
    fn a_gradient_that_is_masked_within_small_changes_alone_is_told() {
        let found = |of: usize, count: usize| {
            let all: Vec<Outcome> = (0..of)
                .map(|i| {
                    let enough = Enough { size: Some(0.1), passed_by: i < count, ..Enough::default() };
                    let broken = trial("R1", i, false, Some(&[("margin", true)]));
                    Outcome { enough: Some(enough), ..broken }
                })
                .collect();
            masked(&all, &[])
        };
        let Found::Failed(Severity::Error, text) = found(40, 7) else { panic!() };
        assert!(text.contains("of 40 correct queries") && text.contains("made 7 wrong"), "{text}");
        assert_eq!([(40, 6), (80, 7)].map(|(of, count)| found(of, count).state()), [State::Passed; 2]);
    }

    /// Random search in a tier of its own has no control. Of 50 queries, all members along the exact gradient
    /// broke 3, and random search broke 20 of those left. Against 12 this is within chance (20 of 32 heads,
    /// probability 0.11). Against 30, as on a model that hides nothing, it is no sign at all.
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
            text.contains("broke 20 that every earlier member had left correct")
                && text.contains("together 3"),
            "{text}"
        );
        assert_eq!([12, 30].map(|exact| level(exact).state()), [State::NotChecked, State::Passed]);
    }

    /// A tenth of the queries that were correct without an attack: 7 of 60, and not of 80.
    #[test]
    fn a_few_queries_of_many_are_no_masked_gradients() {
        assert_eq!(level("es, softened", CONTROLS[0], 60, 7, 0), Severity::Error);
        assert_eq!(level("es, softened", CONTROLS[0], 80, 7, 0), Severity::Ok);
        assert_eq!(level("es, softened", CONTROLS[0], 80, 9, 0), Severity::Error);
    }

    /// A member without the exact gradient is compared with the exact member of its own tier: with the
    /// control if there is one, and not with `margin`, which has another loss. A member that starts from
    /// other images than the exact one isn't compared.
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
        // Flat operators come before those that only bend.
        assert!(text.contains("Sigmoid \"mask\", Relu \"a\", MaxPool \"b\""), "{text}");
        assert!(
            text.contains("of 10 queries") && text.contains("broke 10") && text.contains("softened"),
            "{text}"
        );
        // A tier asks for the passes of all its members.
        let expected = [Route::Exact, Route::Softened, Route::StraightThrough];
        assert_eq!(routes(&all), expected.map(|route| (route, None)));
    }

    /// Queries that the strong search didn't attack, or too few for the sign test, are not checked. By hand:
    /// 7 to 0 is the least that is beyond chance, and a tenth is the least that counts.
    #[test]
    fn what_can_t_be_told_is_not_checked() {
        let state = |found: Found| found.state();
        assert_eq!(state(masked(&[], &[])), State::NotChecked);
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
    }
}

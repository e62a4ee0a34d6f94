//! What the strong search says: robust R@1, whether gradients are masked, and whether published numbers stand.

use super::quantity::Quantity;
use crate::model::Pass;
use crate::record::{Found, MemberRow, Outcome, Report, RobustR1, ScoreName, Severity};
use crate::threat::ensemble::{CONTROLS, Member};
use crate::threat::objective::r1::R1;
use crate::threat::term::TERMS;
use crate::threat::term::Term;
use crate::threat::{OBJECTIVES, Objective};
use std::collections::{BTreeSet, HashMap};

/// The outcomes of the strong search for recall at 1.
fn attacked(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> + Clone {
    outcomes.iter().filter(|o| o.attack == R1.code && o.after.hit.is_some())
}

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
    let published = published(outcomes);
    let survives = |o: &&Outcome| {
        let elsewhere = published.get(o.query.as_str()).is_none_or(|hit| *hit);
        o.before.hit == Some(true) && o.after.hit == Some(true) && elsewhere
    };
    let left = attacked(outcomes).filter(survives).count();
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
        interval: wilson(left, queries),
        queries,
        clean: share(clean),
        members: members().map(row).collect(),
    })
}

/// By query, whether it is right after all attacks of the suite that measure R@1. Attacks of the strong search aren't
/// among them.
fn published(outcomes: &[Outcome]) -> HashMap<&str, bool> {
    let mut left: HashMap<&str, bool> = HashMap::new();
    for o in outcomes.iter().filter(|o| o.attack != R1.code) {
        if let Some(hit) = o.after.hit {
            *left.entry(&o.query).or_insert(true) &= hit;
        }
    }
    left
}

/// Whether a softened or gradient-free member broke more queries than the exact gradient did in the same tier, on the
/// same queries, beyond chance. `softened` are the nodes that softened backward passes change.
pub fn masked(outcomes: &[Outcome], softened: &[String]) -> Found {
    let right = attacked(outcomes).filter(|o| o.before.hit == Some(true)).count();
    if right == 0 {
        return (Severity::Ok, "no query was attacked by the strong search".into());
    }
    let mut found: Option<(Duel, &Member)> = None;
    for tier in R1.members {
        let named = |m: &&Member| CONTROLS.contains(&m.name);
        let controls = tier.iter().filter(|m| exact(m) && (named(m) || !tier.iter().any(|m| named(&m))));
        let control: Vec<&str> = controls.map(|m| m.name).collect();
        if control.is_empty() {
            continue;
        }
        for member in tier.iter().filter(|m| !exact(m) && !m.or_exact) {
            let duel = Duel::of(outcomes, &[member.name], &control);
            let material = duel.gain() >= MATERIAL * right as f64;
            if material
                && duel.beyond_chance()
                && found.as_ref().is_none_or(|(best, _)| duel.gain() > best.gain())
            {
                found = Some((duel, member));
            }
        }
    }
    let Some((duel, member)) = found else {
        return (Severity::Ok, "no other backward pass and no search without gradients does better".into());
    };
    let how = if member.gradient_free() {
        "a search without gradients".to_string()
    } else {
        format!(
            "the same steps along {} gradients",
            if member.pass == Pass::Softened { "softened" } else { "straight-through" }
        )
    };
    let place = if softened.is_empty() || member.gradient_free() {
        String::new()
    } else {
        format!(". Operators with another slope there: {}", named(softened))
    };
    let text = format!(
        "of {} queries that the exact gradient had left right, {how} (`{}`) made {} wrong, and the exact gradient at equal terms \
         {}{place}",
        duel.both, member.name, duel.first, duel.second
    );
    (Severity::Error, text)
}

/// The nodes most likely to mask, for a message: those that saturate or are flat before those that only bend.
fn named(nodes: &[String]) -> String {
    let bends = |node: &&String| ["Relu ", "LeakyRelu ", "MaxPool "].iter().any(|op| node.starts_with(op));
    let (bent, flat): (Vec<&String>, Vec<&String>) = nodes.iter().partition(bends);
    let all: Vec<&String> = flat.into_iter().chain(bent).collect();
    let shown: Vec<&str> = all.iter().take(4).map(|node| node.as_str()).collect();
    let more = all.len().saturating_sub(shown.len());
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The terms of R@1 that the strong search contradicts: it broke more queries than the attack did, of the same ones,
/// beyond chance. Each with what its attack left of these queries, in per cent.
pub fn contradicted_terms(outcomes: &[Outcome]) -> Vec<(&'static Term, f64)> {
    let strong: HashMap<&str, bool> =
        attacked(outcomes).map(|o| (o.query.as_str(), o.after.hit == Some(true))).collect();
    let contradicted = |term: &&'static Term| {
        let (mut of, mut left, mut only) = (0, 0, [0, 0]);
        for o in outcomes.iter().filter(|o| Objective::find(&o.attack).is_ok_and(|of| of.judged_by(term))) {
            let (Some(hit), Some(&robust)) = (o.after.hit, strong.get(o.query.as_str())) else { continue };
            of += 1;
            left += usize::from(hit);
            only[0] += usize::from(hit && !robust);
            only[1] += usize::from(!hit && robust);
        }
        beyond_chance(only[0], only[1]).then(|| (*term, 100.0 * left as f64 / of as f64))
    };
    TERMS
        .iter()
        .filter(|term| term.recall() && **term != R1.terms[0])
        .filter_map(|t| contradicted(&t))
        .collect()
}

/// Whether robust R@1 is below what the suite's own attacks leave of the same queries, beyond chance.
pub fn contradicted(outcomes: &[Outcome]) -> Found {
    let Some(robust) = robust_r1(outcomes) else {
        return (Severity::Ok, "no query was attacked by the strong search".into());
    };
    let terms = contradicted_terms(outcomes);
    if terms.is_empty() {
        return (Severity::Ok, "a stronger attack finds little more than the suite's".into());
    }
    let (low, high) = robust.interval;
    let each: Vec<String> = terms.iter().map(|(term, left)| format!("{} {left:.0} %", term.name)).collect();
    let text = format!(
        "under a stronger attack R@1 falls to {:.1} % (95 % {low:.1} – {high:.1}, {} queries); the suite's attacks leave more of \
         the same queries: {}. Scores of these attacks say how strong they are, more than how robust the model is",
        robust.value,
        robust.queries,
        each.join(", ")
    );
    (Severity::Warning, text)
}

/// Why a bound on a quantity can't be passed: the strong search contradicts the number. `None` where it doesn't, and for
/// numbers that it says nothing about.
pub fn refuted(report: &Report, quantity: Quantity) -> Option<String> {
    let robust = report.scores.robust_r1.as_ref()?;
    let terms = contradicted_terms(&report.outcomes);
    let hit = match quantity {
        Quantity::After(term) | Quantity::Resistance(term) | Quantity::Ratio(term) => {
            terms.iter().any(|(of, _)| *of == term)
        }
        Quantity::Score(ScoreName::Ars | ScoreName::Ers) | Quantity::Table => !terms.is_empty(),
        _ => false,
    };
    hit.then(|| {
        format!(
            "a stronger attack contradicts it: R@1 falls to {:.1} % (95 % {:.1} – {:.1}). Gate on robust_r1",
            robust.value, robust.interval.0, robust.interval.1
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

impl Duel {
    fn of(outcomes: &[Outcome], first: &[&str], second: &[&str]) -> Duel {
        let mut duel = Duel { both: 0, first: 0, second: 0, only: [0, 0] };
        for o in attacked(outcomes) {
            let broke = |names: &[&str]| {
                let mut mine =
                    o.members.iter().flatten().filter(|m| names.contains(&m.member.as_str())).peekable();
                mine.peek().is_some().then(|| mine.any(|m| m.reached))
            };
            if let (Some(a), Some(b)) = (broke(first), broke(second)) {
                duel.both += 1;
                duel.first += usize::from(a);
                duel.second += usize::from(b);
                duel.only[0] += usize::from(a && !b);
                duel.only[1] += usize::from(b && !a);
            }
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

/// The backward passes that members used, as outcomes tell.
pub fn passes(outcomes: &[Outcome]) -> Vec<Pass> {
    let used: BTreeSet<&str> =
        outcomes.iter().flat_map(|o| o.members.iter().flatten()).map(|m| m.member.as_str()).collect();
    let mut found = Vec::new();
    for member in OBJECTIVES.iter().flat_map(|o| o.members.iter()).flat_map(|tier| tier.iter()) {
        if used.contains(member.name) && !found.contains(&member.pass) {
            found.push(member.pass);
        }
    }
    found
}

/// Whether a member goes along the exact gradient.
fn exact(member: &Member) -> bool {
    member.pass == Pass::Exact && !member.gradient_free()
}

/// The 95 % interval of a share, in per cent (Wilson, 1927). Unlike the bootstrap's it has a width where all queries
/// agree.
pub fn wilson(hits: usize, of: usize) -> (f64, f64) {
    const Z: f64 = 1.959964;
    let (n, p) = (of as f64, hits as f64 / of as f64);
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (100.0 * ((middle - half) / whole).max(0.0), 100.0 * ((middle + half) / whole).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine
    /// 1998, table I, method 3.
    #[test]
    fn wilson_as_published() {
        for (hits, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(hits, of);
            assert!(
                (found.0 / 100.0 - low).abs() < 1e-4 && (found.1 / 100.0 - high).abs() < 1e-4,
                "{found:?}"
            );
        }
    }
}

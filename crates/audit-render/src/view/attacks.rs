//! The attacks of a suite: their bound and their search.

use super::{label, numbers};
use audit_report::facts::{Facts, Norm, R1, Schedule, is_robust_term};
use audit_report::judge::row::State;
use audit_report::record::{Attack, EpsAlpha, Report, Space, SuiteRecord, number_of_queries};
use std::collections::BTreeSet;

/// The bound of perturbations. For the largest change of a pixel it is also a fraction: `0.30196 (77/255)`.
pub fn bound(suite: &SuiteRecord) -> String {
    let eps = suite.eps;
    match Norm::counts_levels(&suite.norm) {
        true => format!("{eps:.5} ({}){}", suite.budget(), within(suite)),
        false => format!("{eps:.5} ({}){}", suite.norm, within(suite)),
    }
}

/// The bound, always with the name of the norm.
pub fn bound_in_norm(suite: &SuiteRecord) -> String {
    if !Norm::counts_levels(&suite.norm) {
        return bound(suite);
    }
    let size = bound(&SuiteRecord { mask: None, space: Space::Input, ..suite.clone() });
    format!("{size} in {}{}", suite.norm, within(suite))
}

/// The changed image and the mask as a part of a sentence; empty for the usual ones.
pub fn within(suite: &SuiteRecord) -> String {
    let image = match (suite.space, suite.jpeg) {
        (Space::Input, _) => String::new(),
        (Space::File, None) => " in the file's pixels".into(),
        (Space::File, Some(quality)) => format!(" in the file's pixels, saved as JPEG {quality}"),
    };
    suite.mask.iter().fold(image, |image, mask| format!("{image} within {mask}"))
}

/// The search in words: the steps and random starts of a suite, or the members of the strong search.
pub fn stepping(report: &Report) -> String {
    let suite = &report.suite;
    if let Some(effort) = strong_effort(suite, &report.attacks) {
        return strong_search(report.attacks.iter().map(|a| a.code.as_str()), effort);
    }
    let steps = match Schedule::find(&suite.schedule) {
        Ok(search) => (search.words)(suite.steps, suite.alpha),
        Err(_) => format!("{} steps, {}", suite.steps, suite.schedule),
    };
    let starts = match suite.restarts {
        0 => String::new(),
        1 => ", 1 random start".into(),
        n => format!(", {n} random starts"),
    };
    format!("{steps}{}{starts}{}", suite.in_half(), scaled(suite))
}

/// The pair that the step size is in proportion to, as an addition to the steps; empty if α was stated for
/// this ε.
pub fn scaled(suite: &SuiteRecord) -> String {
    let from = suite.alpha_scaled_from.filter(|_| takes_alpha(suite));
    from.map_or(String::new(), |from| format!(", {}", in_proportion(from)))
}

/// Where a step size comes from that follows ε.
pub fn in_proportion(from: EpsAlpha) -> String {
    format!("α in proportion to ε ({:.5} at {:.5})", from.alpha, from.eps)
}

/// Whether the search of the suite has a step size.
pub fn takes_alpha(suite: &SuiteRecord) -> bool {
    suite.effort.is_none() && Schedule::find(&suite.schedule).is_ok_and(|search| search.takes_alpha)
}

/// The effort of the strong search if it made all attacks of a suite; `None` if other searches ran.
pub fn strong_effort(suite: &SuiteRecord, attacks: &[Attack]) -> Option<usize> {
    let for_robust_r1 = !attacks.is_empty() && attacks.iter().all(|row| is_robust_term(&row.code));
    suite.effort.or(for_robust_r1.then_some(1))
}

/// How robust R@1 was measured, where a suite of other attacks ran.
pub fn strong_sample(report: &Report) -> Option<String> {
    let other = strong_effort(&report.suite, &report.attacks).is_none();
    let robust = report.scores.robust().filter(|_| other)?;
    let search = strong_search([R1.code].into_iter(), 1);
    let at = report.suite.budget();
    let of = if robust.queries >= report.suite.queries { "all" } else { "a sample of" };
    Some(format!("at {at} by {search} on {of} {}", number_of_queries(robust.queries)))
}

/// The strong search on the attacks with these terms. A member that several attacks have counts once.
fn strong_search<'a>(terms: impl Iterator<Item = &'a str>, effort: usize) -> String {
    let attacks = terms.filter_map(Facts::of_term);
    let members = attacks.flat_map(|o| o.members);
    let names: BTreeSet<&str> = members.map(|m| m.name).collect();
    format!("strong search ({} members, effort {effort})", names.len())
}

/// The measures under attack that are no first numbers, with those on clean images, and which were not
/// measured: a sentence each, without a full stop.
pub fn under_attack(report: &Report) -> Vec<String> {
    // Robust R@1 is among the first numbers, and the sizes of the smallest changes have a sentence.
    let told = |a: &Attack| Facts::of_term(&a.code).is_some_and(|of| of.strong_only || of.smallest.is_some());
    let (mut measures, mut missing): (Vec<(String, Vec<String>)>, Vec<&str>) = (Vec::new(), Vec::new());
    for a in report.attacks.iter().filter(|a| !told(a)) {
        let found = numbers(report, a);
        if found.state == State::NotMeasured {
            missing.push(&a.code);
            continue;
        }
        let label = label(report, a);
        let (measure, unit) = label.strip_suffix(", %").map_or((label.as_str(), ""), |name| (name, " %"));
        let before = a.before.map_or(String::new(), |_| format!("{} → ", found.number(a.before)));
        let change = format!("{} {before}{}{unit}", a.code, found.cell());
        match measures.iter_mut().find(|(of, _)| of == measure) {
            Some((_, changes)) => changes.push(change),
            None => measures.push((measure.into(), vec![change])),
        }
    }
    let all = measures.iter().map(|(measure, changes)| format!("{measure}: {}", changes.join(", ")));
    let all = all.collect::<Vec<_>>().join(" · ");
    let changed = (!measures.is_empty()).then(|| format!("clean → under attack: {all}"));
    let missing =
        (!missing.is_empty()).then(|| format!("{}: {}", State::NotMeasured.text(), missing.join(", ")));
    changed.into_iter().chain(missing).collect()
}

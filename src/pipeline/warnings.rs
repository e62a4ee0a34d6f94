//! Findings of a report that no check of [`crate::check`] makes: on model and data before the attacks, on
//! outcomes after them.

use crate::check;
use crate::check::attacked::Outcomes;
use crate::data::{Dataset, unread};
use crate::error::shortened;
use crate::facts::{self, Facts};
use crate::judge::quantity::{ARS, ARS_STRONG, ERS, Quantity};
use crate::judge::row::State;
use crate::judge::share::wilson;
use crate::model::inspect::ModelKind;
use crate::model::runtime;
use crate::model::{Info, Route};
use crate::record::{self, Attack, Benign, Data, Finding, Found, Outcome, Report, Warning, reason};
use crate::request::Request;
use crate::threat::measure::preserved::{self, KEPT};
use crate::threat::objective::top1::NEAR_COPY;
use crate::threat::{AttackContext, Objective, Trial};
use rayon::prelude::*;

/// Findings on the model and the data.
pub fn before_attacks(dataset: &Dataset, model: &Info, data: &Data, benign: Option<&Benign>) -> Vec<Warning> {
    let mut found = Vec::new();
    if dataset.is_generated() {
        found.push(
            reason::BUILT_IN_DATA
                .warning("generated images: compare models with each other, not with published tables"),
        );
    }
    let preprocessing = &model.preprocessing;
    if preprocessing.assumed {
        found.push(reason::PREPROCESSING_ASSUMED.warning(format!(
            "no model card and no flags state mean and std: ImageNet's were assumed{}",
            preprocessing.resize_shorter.map_or(String::new(), |side| format!(
                ". The shorter side of images is resized to {side}, then the centre is cropped, as torchvision does; --resize {side} \
                 stretches instead"
            ))
        )));
    }
    if let ModelKind::Classifier(before) = &model.look {
        let before = before
            .as_ref()
            .map_or(String::new(), |value| format!(". The value before the classifier is `{value}`"));
        found.push(reason::CLASS_SCORES.warning(format!(
            "the {} values of the output `{}` look like class scores: by the output's name, a Softmax, or the number of ImageNet's \
             classes{before}",
            model.dim, model.output
        )));
    }
    if model.look == ModelKind::Detector {
        found.push(reason::CLASS_SCORES.warning(format!(
            "the model looks like a detector: the {} values of the output `{}` would be those of boxes, and no embedding of the image",
            model.dim, model.output
        )));
    }
    found.extend(left_out(&data.unreadable).map(|text| reason::UNREADABLE_IMAGES.warning(text)));
    if benign.is_some_and(|benign| benign.nmi.is_none()) {
        found.push(reason::NO_CLUSTERING.note(format!(
            "NMI and AMI are left out: clustering {} images into {} classes takes minutes or more. Add --nmi to compute them",
            data.gallery, data.classes
        )));
    }
    found
}

/// A finding that the strong search ran without a backward pass.
pub fn unformed(route: Route, why: &str) -> Finding {
    let found = format!(
        "the {} backward pass could not be built, and the members of the strong search that need it were left out: {why}. Robust \
         R@1 is the result of the other members, and masked gradients may go undetected",
        route.in_words()
    );
    reason::PASS_LEFT_OUT.finding(Found::warning(found))
}

/// How many images can't be read, and why the first ones can't; `None` if all can.
pub fn left_out(reasons: &[String]) -> Option<String> {
    let images = match reasons.len() {
        0 => return None,
        1 => "1 image can't be read and was".into(),
        count => format!("{count} images can't be read and were"),
    };
    Some(format!("{images} left out: {}", some_of(reasons, "; ")))
}

/// The first few of a list, and the number of the others.
fn some_of(all: &[String], between: &str) -> String {
    const SHOWN: usize = 5;
    let some = all[..all.len().min(SHOWN)].join(between);
    let more = all.len().saturating_sub(SHOWN);
    if more > 0 { format!("{some}{between}and {more} more") } else { some }
}

/// Findings on files beside the images that were not used.
pub fn of_files(dataset: &Dataset) -> impl Iterator<Item = Finding> {
    let others = &dataset.left_out;
    let others = (!others.is_empty()).then(|| {
        let unread =
            unread(others.iter().map(String::as_str)).map_or(String::new(), |why| format!(". {why}"));
        let found = format!(
            "{} files or folders beside the images were left out: {}{unread}",
            others.len(),
            some_of(others, ", ")
        );
        reason::OTHER_FILES.finding(Found::warning(found))
    });
    let notes = &dataset.notes;
    let unused = (!notes.is_empty()).then(|| reason::UNUSED_DATA.finding(Found::note(some_of(notes, "; "))));
    others.into_iter().chain(unused)
}

/// Findings on the trials before they are run. `trials` are those of this process, `attempts` those of the
/// whole run: each part of a run gives the same findings.
pub fn of_trials(
    context: &AttackContext,
    trials: &[Trial],
    attempts: &[(&'static Objective, usize)],
) -> Vec<Warning> {
    let gallery = &context.gallery;
    let mut found = Vec::new();
    let ranked = |o: &Facts| o.measured.moves_candidate && o.measured.mean_rank;
    let candidates = || attempts.iter().filter(|(objective, _)| ranked(objective));
    let outside = candidates().filter(|&&(_, query)| query >= gallery.len()).count();
    if outside > 0 {
        found.push(reason::CANDIDATES.warning(format!(
            "{outside} of {} trials of {} perturb the image of a query that is not in the gallery, as if it were added there",
            candidates().count(),
            Facts::codes(ranked)
        )));
    }
    let keeps_few = |t: &Trial| t.objective.measure.keeps && preserved::items(context, t).len() < KEPT;
    if trials.par_iter().any(keeps_few) {
        found.push(reason::KEPT_ITEMS.warning(format!(
            "in trials of {} the nearest 1 % of the gallery has fewer than {KEPT} images besides the targets, so that fewer are kept",
            Facts::codes(|o| o.measured.keeps)
        )));
    }
    let missing = [("genuine", true), ("impostor", false)];
    let missing = missing.iter().find(|(_, same)| context.pairs.probes(*same).is_empty());
    let decides = context.pairs.listed && !context.threshold.is_nan();
    if let Some((kind, _)) = missing.filter(|_| decides) {
        found.push(reason::ONE_KIND_OF_PAIRS.warning(format!(
            "the list has no {kind} pairs: FAR, TAR and EER, which take both kinds, and the attack on {kind} pairs were not measured"
        )));
    }
    found
}

/// Findings on how the machine computed.
pub fn of_machine(request: &Request, cpu_nodes: &[String]) -> Vec<Warning> {
    let mut found = Vec::new();
    if request.compute.fast_math {
        found.push(reason::FAST_MATH.warning(
            "--fast-math: factors of products were rounded to TensorFloat-32 (10 bits), both in attacks and in measurements",
        ));
    }
    if !cpu_nodes.is_empty() {
        found.push(reason::CPU_NODES.note(format!(
            "--allow-cpu-nodes: CUDA has no kernel for {} nodes, which ran on the CPU: {}",
            cpu_nodes.len(),
            shortened(cpu_nodes, runtime::SHOWN)
        )));
    }
    found
}

/// Findings on the outcomes. They depend only on the report, whose outcomes may come from several runs.
pub fn after_attacks(report: &Report) -> Vec<Warning> {
    if let Some(part) = &report.part {
        return vec![reason::PART_OF_A_RUN.warning(format!(
            "this is part {} of a run: its numbers are of its own queries only",
            part.partition
        ))];
    }
    let mut found: Vec<Warning> = check::warnings(check::of_outcomes(&Outcomes::from(report))).collect();
    found.extend(few_queries(report));
    found.extend(small_terms(report));
    found.extend(withheld(report));
    found.extend(rose(report));
    found.extend(near_copies(report));
    found
}

/// Half the width of a 95 % interval, in points, from which a sample of queries is called small.
const WIDE: f64 = 10.0;

/// Too few queries to know the share that withstands attacks, by its interval, if no other attack is
/// measured.
fn few_queries(report: &Report) -> Option<Warning> {
    let queries = report.suite.queries;
    let alone = report.attacks.iter().all(|attack| facts::is_robust_term(&attack.code));
    let robust = report.scores.robust().filter(|robust| alone && robust.queries == queries);
    let robust = robust.map(|robust| (Quantity::robust(report).label, robust.interval));
    few(queries, robust.or_else(|| wider(&report.attacks, queries)))
}

/// The attack on pairs with the widest interval, if this is wider than that of any share of so many queries:
/// pairs that share identities say less than others.
fn wider(attacks: &[Attack], queries: usize) -> Option<(&str, Option<(f64, f64)>)> {
    let width = |(low, high): (f64, f64)| high - low;
    let on_pairs = |row: &&Attack| Facts::of_term(&row.code).is_some_and(|of| of.pairs.is_some());
    let of_pairs = attacks.iter().filter(on_pairs);
    let intervals = of_pairs.filter_map(|row| Some((row.code.as_str(), row.after_interval?)));
    let (code, found) = intervals.max_by(|a, b| width(a.1).total_cmp(&width(b.1)))?;
    (width(found) > width(wilson(queries / 2, queries))).then_some((code, Some(found)))
}

/// `share`: the number in question and its 95 % interval. Without it, the widest interval of a share decides:
/// that of half of the queries.
fn few(queries: usize, share: Option<(&str, Option<(f64, f64)>)>) -> Option<Warning> {
    let widest = || record::unless_few(queries, Some(wilson(queries / 2, queries)));
    let (what, interval) = share.unwrap_or_else(|| ("a share of them", widest()));
    let half = interval.map(|(low, high)| (high - low) / 2.0);
    let known = half.map_or(String::new(), |half| format!(": {what} is known to within {half:.0} points"));
    let wide = half.is_none_or(|half| half > WIDE);
    let are = if queries == 1 { "is too" } else { "are" };
    let text = format!("{} {are} few{known}", record::number_of_queries(queries));
    wide.then(|| reason::FEW_QUERIES.warning(text))
}

/// Resistances of few trials.
fn small_terms(report: &Report) -> Option<Warning> {
    let small: Vec<String> = (report.attacks.iter().filter(|row| row.small()))
        .map(|row| match row.queries {
            0 => format!("{} on none", row.code),
            queries => format!("{} on {} of {queries}", row.code, row.counted.unwrap_or(0)),
        })
        .collect();
    (!small.is_empty()).then(|| {
        reason::SMALL_TERMS.warning(format!(
            "resistances measured on fewer than {} queries are unreliable: {}. Only queries that an attack can make worse count: for R@1, those that are correct without an attack",
            record::FEW,
            small.join(", ")
        ))
    })
}

/// Scores that are not shown.
fn withheld(report: &Report) -> Option<Warning> {
    let scores = [Quantity::robust(report), ARS, ERS, ARS_STRONG].map(|of| of.row(report));
    let withheld = scores.iter().filter(|row| row.state == State::Withheld);
    let all: Vec<String> =
        withheld.filter_map(|row| Some(format!("{}: {}", row.quantity.name, row.why.as_ref()?))).collect();
    (!all.is_empty()).then(|| {
        reason::WITHHELD.warning(format!(
            "not shown, because it can't distinguish a weak model from a strong one: {}",
            all.join("; ")
        ))
    })
}

/// Queries whose nearest image has near copies.
fn near_copies(report: &Report) -> Option<Warning> {
    let made: Vec<&Outcome> = report.outcomes.iter().filter(|o| facts::TOP1.made(o)).collect();
    let several = made.iter().filter(|o| o.targets.len() > 1).count();
    (several > 0).then(|| {
        reason::NEAR_COPIES.note(format!(
            "the nearest image of {several} of {} queries has near copies (cosine similarity {NEAR_COPY} or more), which count as the \
             same image",
            made.len()
        ))
    })
}

/// Resistances above 100.
fn rose(report: &Report) -> Option<Warning> {
    let above = |row: &&Attack| row.resistance.per_trial.is_some_and(|r| r > 100.0);
    let all: Vec<String> = (report.attacks.iter().filter(above))
        .map(|row| {
            let [before, after] = [row.before, row.after].map(|v| v.unwrap_or(0.0));
            format!("{} from {before:.1} to {after:.1} %", row.code)
        })
        .collect();
    (!all.is_empty()).then(|| {
        reason::ROSE.note(format!(
            "a resistance above 100 means that more queries are correct under attack than without it: {}. It is the ratio of the two, and \
             published tables don't cap it at 100 either",
            all.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval decides what is few. By hand (Wilson): if none of 50 queries withstands, the share is
    /// known to ± 3.6 points, and if half of them do, to ± 13.4; half of 100 to ± 9.6.
    #[test]
    fn fifty_queries_are_few_only_where_the_interval_is_wide() {
        let warning = |hits: usize, of: usize| {
            few(of, Some(("robust R@1", record::unless_few(of, Some(wilson(hits, of)))))).map(|w| w.text)
        };
        assert_eq!(warning(0, 50), None);
        assert_eq!(warning(50, 100), None);
        let text = warning(25, 50).unwrap();
        assert!(text.starts_with("50 queries are few: robust R@1 is known to within 13 points. "), "{text}");
        assert!(warning(0, 9).unwrap().starts_with("9 queries are few. "));
        assert!(warning(0, 1).unwrap().starts_with("1 query is too few. "));
        // 100 pairs that share identities say less than 100 others.
        let dodge = |interval: [f64; 2]| {
            let row = serde_json::json!({
                "code": "DODGE", "form": "corrected", "queries": 100, "skipped": 0, "before": 0.0, "after": 50.0,
                "after_interval": interval, "ers_term": null, "resistance": {"per_trial": 50.0, "table": 50.0},
            });
            let rows: [Attack; 1] = [serde_json::from_value(row).unwrap()];
            few(100, wider(&rows, 100)).map(|w| w.text)
        };
        assert_eq!(dodge([40.4, 59.6]), None);
        let text = dodge([36.0, 64.0]).unwrap();
        assert!(text.starts_with("100 queries are few: DODGE is known to within 14 points. "), "{text}");
        // For another number, the widest interval decides.
        assert!(few(50, None).unwrap().text.contains("a share of them is known to within 13 points"));
        assert!(few(100, None).is_none());
    }
}

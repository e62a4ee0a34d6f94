//! Comparison of two or more reports: whether they are comparable, and their differences with paired
//! intervals.

use crate::facts::{Drawn, Facts, Norm};
use crate::judge::answer;
pub use crate::judge::compared::{ComparedModel, ComparedValue, Comparison};
use crate::judge::paired::PairedReports;
use crate::judge::quantity::{ARS, ERS, Quantity};
use crate::judge::row::{Row, State, Word, alarm};
use crate::judge::strong::Contradictions;
use crate::record::{Report, SuiteRecord, as_typed, number_of_queries, reason};
use audit_base::{Error, Result};
use audit_gallery::corruption::CORRUPTIONS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The reasons why two reports are not comparable: other images, another protocol, other trials. Empty if
/// they are comparable.
pub fn mismatches(a: &Report, b: &Report) -> Vec<String> {
    let (mut found, targets) = differences(a, b);
    if !targets.is_empty() {
        found.push(format!(
            "targets of {} (of another seed, or drawn from each model's own neighbours: audit one with --trials of \
             the other's report)",
            targets.join(", ")
        ));
    }
    found
}

/// The mismatches in two parts: the conditions in words, and the codes of attacks whose drawn targets differ
/// for a query that both reports attacked.
fn differences(a: &Report, b: &Report) -> (Vec<String>, Vec<String>) {
    let mut found: Vec<String> = other_data(a, b).into_iter().collect();
    found.extend(other_settings(a, b));
    found.extend(other_corruptions(a, b));
    found.extend(other_draws(a, b));
    let regrouped =
        a.groups.iter().any(|(query, group)| b.groups.get(query).is_some_and(|other| other != group));
    if regrouped {
        found.push("groups of queries".into());
    }
    let (ours, theirs) = (Trials::of(a), Trials::of(b));
    let shared: Vec<&String> =
        ours.queries.keys().filter(|code| theirs.queries.contains_key(*code)).collect();
    if shared.is_empty() {
        found.push("attacks: none in common".into());
    }
    let queries: Vec<&str> = shared
        .iter()
        .filter(|code| ours.queries[**code] != theirs.queries[**code])
        .map(|code| code.as_str())
        .collect();
    if !queries.is_empty() {
        found.push(format!("queries of {}", queries.join(", ")));
    }
    let differ =
        ours.targets.iter().filter(|(key, t)| theirs.targets.get(*key).is_some_and(|other| other != *t));
    let codes: BTreeSet<&String> = differ.map(|((code, _), _)| code).collect();
    (found, codes.into_iter().cloned().collect())
}

/// The data of two reports, if they differ.
fn other_data(a: &Report, b: &Report) -> Option<String> {
    if a.data.sha256 != b.data.sha256 {
        let brief = |r: &Report| {
            format!("{} ({} images, sha256 {:.8}…)", r.data.source, r.data.images, r.data.sha256)
        };
        return Some(format!("data: {} and {}", brief(a), brief(b)));
    }
    let roles = |r: &Report| format!("{} ranked, {}", r.data.gallery, number_of_queries(r.data.queries));
    // Reports of versions without separate queries have 0 here.
    let differ = a.data.gallery > 0 && b.data.gallery > 0 && roles(a) != roles(b);
    differ.then(|| format!("data: {} and {}", roles(a), roles(b)))
}

/// Everything else under which two reports were made, if it differs.
fn other_settings(a: &Report, b: &Report) -> Vec<String> {
    let facts = |r: &Report| {
        let own = [
            ("attacks made on", made_on(&r.suite)),
            ("targets of another kind", foreign(r)),
            (
                "what a query should find",
                if r.data.has_classes() { "its class" } else { "its nearest image" }.into(),
            ),
            (
                "queries of R@1",
                r.benign.as_ref().and_then(|b| b.sampling.clone()).unwrap_or_else(|| "all".into()),
            ),
            ("metric", r.model.metric.to_string()),
            ("gradient", if r.estimated() { "estimated" } else { "exact" }.into()),
            ("TensorFloat-32", if r.tool.fast_math { "allowed" } else { "off" }.into()),
        ];
        r.suite.settings().into_iter().chain(own)
    };
    let differ = facts(a).zip(facts(b)).filter(|((_, x), (_, y))| x != y);
    // ε and α are typed in 255ths, unless lengths of changes are bounded.
    let of_pixels = [a, b].iter().all(|r| Norm::counts_levels(&r.suite.norm));
    let shown = |what: &str, value: String| match value.parse() {
        Ok(size) if of_pixels && ["eps", "alpha"].contains(&what) => as_typed(size),
        _ => value,
    };
    differ.map(|((what, x), (_, y))| format!("{what}: {} and {}", shown(what, x), shown(what, y))).collect()
}

/// The flags for settings of a report that others of its suite do not have, each after a blank. α follows ε.
pub(super) fn flags_of(report: &Report, others: &[Report]) -> String {
    let settings = |suite: &SuiteRecord| {
        let of_pixels = Norm::counts_levels(&suite.norm);
        let eps = if of_pixels { as_typed(suite.eps) } else { suite.eps.to_string() };
        [("--form", suite.form.to_string()), ("--norm", suite.norm.clone()), ("--eps", eps)]
    };
    let same_suite: Vec<_> =
        others.iter().filter(|r| r.suite.name == report.suite.name).map(|r| settings(&r.suite)).collect();
    let own = settings(&report.suite).into_iter().enumerate();
    let differ = own.filter(|(i, setting)| same_suite.iter().any(|other| other[*i] != *setting));
    differ.map(|(_, (flag, value))| format!(" {flag} {value}")).collect()
}

/// The corruptions of two reports, if both have some and not the same.
fn other_corruptions(a: &Report, b: &Report) -> Option<String> {
    let [of_a, of_b] = [a, b].map(|r| r.suite.corruptions.iter().collect::<BTreeSet<_>>());
    let differ = !of_a.is_empty() && !of_b.is_empty() && of_a != of_b;
    differ.then(|| {
        let [of_a, of_b] = [a, b].map(|r| r.suite.corruptions.join(", "));
        format!("corruptions: {of_a} and {of_b}")
    })
}

/// The seeds of two reports, if they differ and draw what both are measured under: corruptions, or the places
/// of patches.
fn other_draws(a: &Report, b: &Report) -> Option<String> {
    let both = |of: fn(&SuiteRecord) -> bool| of(&a.suite) && of(&b.suite);
    let corrupts = |suite: &SuiteRecord| {
        let drawn = |name: &String| CORRUPTIONS.iter().any(|of| of.drawn && of.name == *name);
        suite.corruptions.iter().any(drawn)
    };
    let patches = |suite: &SuiteRecord| suite.mask.as_ref().is_some_and(|mask| mask.path.is_none());
    let drawn = [(both(corrupts), "corruptions"), (both(patches), "patches")];
    let drawn: Vec<&str> = drawn.iter().filter(|(both, _)| *both).map(|(_, what)| *what).collect();
    (a.seed != b.seed && !drawn.is_empty())
        .then(|| format!("seed of {}: {} and {} (set it by --seed)", drawn.join(" and "), a.seed, b.seed))
}

/// What a reader of a report's numbers must know of the strength of its attacks.
pub(super) fn strength(report: &Report) -> Vec<String> {
    report.caveat().into_iter().chain(left_out(report)).collect()
}

/// That the strong search lacked a backward pass.
pub(super) fn left_out(report: &Report) -> Option<String> {
    report.warnings.iter().any(|w| reason::PASS_LEFT_OUT.made(w)).then(|| {
        format!(
            "The strong search ran without a backward pass that could not be built ({}), so that its numbers \
             may be too high",
            reason::PASS_LEFT_OUT.id
        )
    })
}

/// What a reader of the differences between two comparable reports must know.
pub(super) fn of_both(a: &Report, b: &Report) -> Vec<String> {
    let [of_a, of_b] = [a, b].map(|r| &r.tool.version);
    let versions = (of_a != of_b).then(|| {
        format!(
            "Made by audit {of_a} and {of_b}: the attacks of one version may be stronger than the other's"
        )
    });
    let chosen = [a, b].iter().any(|r| r.suite.prefers_correct()).then(|| {
        "The queries are those that one of the models retrieves correctly (--sample correct), which lowers \
         every number of the other under attack. Compare on queries that no model chose"
            .to_string()
    });
    versions.into_iter().chain(chosen).collect()
}

/// The model that the attacks were made on.
fn made_on(suite: &SuiteRecord) -> String {
    suite.surrogate.as_ref().map_or("the audited model".into(), |s| {
        format!("another model ({}, sha256 {:.8}…)", s.path, s.sha256)
    })
}

/// What attacks aimed at instead of images.
fn foreign(report: &Report) -> String {
    report
        .targets
        .as_ref()
        .map_or("none".into(), |t| format!("{} of {} (sha256 {:.8}…)", t.count, t.path, t.sha256))
}

struct Trials {
    /// Queries by attack, including those that could not be attacked, because that may depend on the model.
    queries: BTreeMap<String, BTreeSet<String>>,
    /// Drawn targets by (attack, query).
    targets: BTreeMap<(String, String), Vec<String>>,
}

impl Trials {
    fn of(report: &Report) -> Trials {
        let mut trials = Trials { queries: BTreeMap::new(), targets: BTreeMap::new() };
        for s in &report.skipped {
            trials.queries.entry(s.attack.clone()).or_default().insert(s.query.clone());
        }
        for (code, rows) in &report.trials.attacks {
            // Trial lists have codes in lower case.
            let code = code.to_uppercase();
            for row in rows {
                trials.queries.entry(code.clone()).or_default().insert(row.query.clone());
                if let Some(targets) = &row.targets {
                    trials.targets.insert((code.clone(), row.query.clone()), targets.clone());
                }
            }
        }
        trials
    }
}

/// Compares the reports in `files` with the first. `anyway` accepts reports that are not comparable. `sort`
/// names a metric that orders the models, the most robust first. Errors: fewer than two reports, an unknown
/// metric, or reports that are not comparable (exit code 2); a part of a run (exit code 13).
pub fn compare(files: &[PathBuf], sort: Option<&str>, anyway: bool) -> Result<Comparison> {
    let sort = sort.map(Quantity::find).transpose()?;
    let reports = files.iter().map(|f| Report::load(f)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    names.iter().zip(&reports).try_for_each(|(name, r)| r.whole().map_err(|e| e.context(name)))?;
    of_reports(names, &reports, sort, anyway)
}

/// [`compare`] for reports called `names`, which are no parts of runs.
pub fn of_reports(
    names: Vec<String>,
    reports: &[Report],
    sort: Option<&'static Quantity>,
    anyway: bool,
) -> Result<Comparison> {
    let [base, _, ..] = reports else {
        return Err(Error::usage("a comparison needs two reports or more. Name another one"));
    };
    let (mut cautions, remarks) = conditions(&names, reports);
    if !cautions.is_empty() && !anyway {
        return Err(Error::usage(format!(
            "these reports can't be compared: {}. Make the others with the trials of the first: audit MODEL --data … --suite {}{} \
             --trials {} -o OTHER.json; or add --anyway",
            cautions.join(". "),
            base.suite.name,
            flags_of(base, &reports[1..]),
            names[0]
        )));
    }
    cautions.extend(remarks);
    cautions.extend(further_cautions(&names, reports));
    let labels = labels(reports, &names);
    let mut models = Vec::new();
    for (i, ((name, label), report)) in names.into_iter().zip(labels).zip(reports).enumerate() {
        let pair = (i > 0).then(|| PairedReports::new(base, report));
        if pair.as_ref().is_some_and(|p| !p.paired()) {
            cautions.push(format!(
                "{name} attacked other queries or images than the baseline: its differences under attack \
                 have no interval"
            ));
        }
        // Beside a candidate's number at a rung of its own ladder stands the baseline's, if outcomes tell it.
        let all = if i == 0 { numbers_of(reports.iter()) } else { numbers_of([report, base].into_iter()) };
        models.push(entry([name, label], report, base, all, pair.as_ref()));
    }
    let answer = answer::most_robust(&models, reports);
    if let Some(metric) = sort {
        sort_by(&mut models, metric, reports)?;
    }
    Ok(Comparison { answer, models, cautions, crossed: None })
}

/// How the conditions of each report differ from those of the first, and remarks on reports that are
/// comparable although their targets differ.
fn conditions(names: &[String], reports: &[Report]) -> (Vec<String>, Vec<String>) {
    let (base, mut cautions, mut remarks) = (&reports[0], Vec::new(), Vec::new());
    for (name, other) in names.iter().zip(reports).skip(1) {
        let (conditions, targets) = differences(base, other);
        let neighbours =
            targets.iter().all(|code| Facts::find(code).is_ok_and(|o| o.drawn == Drawn::FromNeighbours));
        let own = neighbours && base.seed == other.seed && conditions.is_empty();
        let differs = if own { conditions } else { mismatches(base, other) };
        if own && !targets.is_empty() {
            remarks.push(format!(
                "{} of {name} aim at that model's own neighbours, not at those of {}; audited with --trials {} they \
                 would be the same",
                targets.join(" and "),
                names[0],
                names[0]
            ));
        }
        if !differs.is_empty() {
            cautions.push(format!("{} and {name} differ in {}", names[0], differs.join("; in ")));
        }
    }
    (cautions, remarks)
}

/// What else a reader of the differences must know: of each report with the first, and of each report alone.
fn further_cautions(names: &[String], reports: &[Report]) -> Vec<String> {
    let (base, mut cautions) = (&reports[0], Vec::new());
    for (name, other) in names.iter().zip(reports).skip(1) {
        let same = !base.outcomes.is_empty() && base.outcomes == other.outcomes;
        if same && base.model.sha256 == other.model.sha256 {
            cautions.push(format!("{} and {name} hold the same results of one model", names[0]));
        }
        let known = of_both(base, other).into_iter();
        cautions.extend(known.map(|text| format!("{} and {name}: {text}", names[0])));
    }
    for (name, report) in names.iter().zip(reports) {
        cautions.extend(strength(report).into_iter().map(|text| format!("{name}: {text}")));
    }
    for (name, report) in names.iter().zip(reports) {
        let score = [ARS, ERS].into_iter().find(|score| score.value(report).is_some());
        if let Some((score, why)) = score.and_then(|s| Some((s, Contradictions::of(report).refuted(s)?))) {
            cautions.push(format!("{} of {name}: {why}", score.name));
        }
    }
    for (name, report) in names.iter().zip(reports) {
        cautions.extend(alarm(report).map(|alarm| format!("{name}: {alarm}")));
        let scores = [Quantity::robust(report), ARS, ERS].map(|score| score.row(report));
        let withheld = scores.iter().filter(|row| row.state == State::Withheld);
        cautions.extend(withheld.map(|row| {
            let why = row.why.as_deref().unwrap_or_default();
            format!("{} of {name} is {}: {why}", row.quantity.name, row.state.text())
        }));
    }
    cautions
}

/// Sorts models by a metric, the most robust first. Errors (exit code 2): no report has it.
fn sort_by(models: &mut [ComparedModel], metric: &'static Quantity, reports: &[Report]) -> Result<()> {
    let key = |e: &ComparedModel| {
        let value = e.row(metric).and_then(|r| r.value).unwrap_or(f64::NEG_INFINITY);
        if metric.lower_is_better && value.is_finite() { -value } else { value }
    };
    if reports.iter().all(|r| metric.value(r).is_none()) {
        return Err(Error::usage(format!(
            "--sort {}: no report has it. Take a metric of `numbers` in a JSON report, such as robust_r1",
            metric.name
        )));
    }
    models.sort_by(|a, b| key(b).total_cmp(&key(a)));
    Ok(())
}

/// What tables call the models: by the names of their files, with as many folders as tell them apart, or by
/// those of the reports if the paths are equal.
fn labels(reports: &[Report], names: &[String]) -> Vec<String> {
    let models: Vec<&str> = reports.iter().map(|report| report.model.path.as_str()).collect();
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let same = || reports.iter().map(|report| report.model_name().to_string()).collect();
    apart(&models).or_else(|| apart(&files)).unwrap_or_else(same)
}

/// The shortest ends of paths, of whole names, that all differ; `None` if two paths are equal.
fn apart(paths: &[&str]) -> Option<Vec<String>> {
    let parts: Vec<Vec<&str>> = paths.iter().map(|path| path.split(['/', '\\']).collect()).collect();
    let longest = parts.iter().map(Vec::len).max()?;
    (1..=longest).find_map(|count| {
        let end = |names: &Vec<&str>| names[names.len().saturating_sub(count)..].join("/");
        let ends: Vec<String> = parts.iter().map(end).collect();
        let differ = ends.iter().collect::<BTreeSet<_>>().len() == ends.len();
        differ.then_some(ends)
    })
}

/// The numbers that any of these reports may have.
fn numbers_of<'r>(reports: impl Iterator<Item = &'r Report>) -> Vec<&'static Quantity> {
    let mut all: Vec<&'static Quantity> = Vec::new();
    for report in reports {
        let more: Vec<&'static Quantity> = Quantity::of(report).filter(|of| !all.contains(of)).collect();
        all.extend(more);
    }
    all
}

fn entry(
    [name, label]: [String; 2],
    report: &Report,
    base: &Report,
    all: Vec<&'static Quantity>,
    pair: Option<&PairedReports>,
) -> ComparedModel {
    let row = |metric: &'static Quantity| {
        let (own, of_base) = (metric.row(report).as_length(), metric.row(base));
        if [&own, &of_base].iter().all(|row| row.state == State::NotMeasured) {
            return None;
        }
        let difference = pair.and_then(|p| p.difference(metric));
        let word = match pair {
            Some(_) => Word::of(&of_base, &own, difference.as_ref()),
            None => Word::Baseline,
        };
        let direction = match word {
            Word::Better => 1,
            Word::Worse => -1,
            _ => 0,
        };
        let (above, spread) = (own.is_above(), own.spread());
        let Row { value, state, why, interval, queries, budget, norm, void, .. } = own;
        Some(ComparedValue {
            metric,
            value,
            above,
            state,
            why,
            interval,
            spread,
            queries,
            eps: budget,
            norm,
            difference,
            void,
            word,
            direction,
        })
    };
    ComparedModel {
        report: name,
        model: label,
        base: pair.is_none(),
        rows: all.into_iter().filter_map(row).collect(),
    }
}

//! Two reports side by side: which are comparable, what a reader must know of both, and which of their
//! differences chance explains.

use crate::common::{Temp, as_json, audit, bundled_path, outcome, rendered, save, says};
use crate::report_fixture::{self, add_strong_search, hit, report, warning};
use audit::judge::compare::{Comparison, mismatches, of_reports};
use audit::judge::gate::Rules;
use audit::judge::paired::PairedReports;
use audit::judge::quantity::{ARS, CLEAN_R1, ERS, Quantity};
use audit::judge::row::{Difference, State, Word};
use audit::judge::{corruption, score};
use audit::record::reason::{GRADIENT_ESTIMATED, MASKED_GRADIENTS, PASS_LEFT_OUT};
use audit::record::{
    Benign, CheckResult, Corrupted, Found, MaskRecord, Report, Retrieval, ScoreName, Verdict,
};
use audit::shards::identity::Identity;
use serde_json::{Value, json};

fn with(report: &Report, change: impl Fn(&mut Report)) -> Report {
    let mut other = report.clone();
    change(&mut other);
    other
}

/// Two reports compared, whatever differs.
fn compared(base: &Report, other: &Report) -> Comparison {
    let names: Vec<String> = ["base.json", "other.json"].map(String::from).into();
    of_reports(names, &[base.clone(), other.clone()], None, true).unwrap()
}

/// A report judged against a baseline by the default rules.
fn judged(base: &Report, other: &Report) -> Verdict {
    Verdict::judge(other, Some(base), &Rules::default()).unwrap()
}

/// The ladder adds searches, so that runs with and without it have other outcomes.
#[test]
fn the_ladder_is_a_part_of_a_runs_identity() {
    let at_eps = report(0.5);
    let mut with_ladder = at_eps.clone();
    with_ladder.suite.ladder = Some(5);
    let differs = ["ladder: none and 5"];
    assert_eq!(Identity::of(&at_eps).differences(&Identity::of(&with_ladder)), differs);
    assert_eq!(mismatches(&at_eps, &with_ladder), differs);
}

/// Means over corruptions are comparable if both reports have the same, made with the same random numbers.
/// The order of the list changes nothing, and neither does a suite that measures none.
#[test]
fn corruptions_are_compared_with_the_same_ones_only() {
    let of = |names: &[&str], seed: u64| {
        let mut found = report(0.5);
        found.suite.corruptions = names.iter().map(|name| name.to_string()).collect();
        found.seed = seed;
        found
    };
    let base = of(&["noise", "blur"], 0);
    let cases: [(&[&str], u64, &[&str]); 4] = [
        (&["blur"], 0, &["corruptions: noise, blur and blur"]),
        (&["noise", "blur"], 7, &["seed of corruptions: 0 and 7 (set it by --seed)"]),
        (&["blur", "noise"], 0, &[]),
        (&[], 7, &[]),
    ];
    for (names, seed, differs) in cases {
        assert_eq!(mismatches(&base, &of(names, seed)), differs, "{names:?}");
    }
    // Blur has no random numbers.
    assert!(mismatches(&of(&["blur"], 0), &of(&["blur"], 7)).is_empty());
    // The seed draws the places of patches, too.
    let patched = |seed: u64| {
        let mut found = of(&[], seed);
        found.suite.mask = Some(MaskRecord { path: None, sha256: None, share: 0.1 });
        found
    };
    assert_eq!(mismatches(&patched(0), &patched(7)), ["seed of patches: 0 and 7 (set it by --seed)"]);
}

/// A replay attacks queries that the report of its trials chose, and says how. A list of trials doesn't say.
#[test]
fn a_replay_keeps_how_its_queries_were_chosen() {
    let dir = Temp::new();
    let run = |model: &str, more: &[&str]| {
        let flags = ["--suite", "smoke", "--steps", "1", "--max-queries", "4", "--strong-sample", "off"];
        audit(&[&[bundled_path(model).as_str()], &flags[..], more].concat()).unwrap()
    };
    let [short, apart] = ["short.json", "apart.json"].map(|name| dir.join(name).display().to_string());
    let base = run("hardened.onnx", &["--sample", "correct", "-o", &short, "--trials-out", &apart]);
    let words = base.suite.sampling.clone().unwrap();
    says(&words, &["4 of 960 queries, correct ones first, ", "seed 0"]);
    assert!(base.suite.prefers_correct());
    let whole = save(&dir, "whole.json", &base);
    let list = dir.file("list.json", base.trials.to_string());
    for (from, file, expected) in
        [("--trials", whole, Some(&words)), ("--baseline", short, Some(&words)), ("--trials", list, None)]
    {
        let replayed = run("plain.onnx", &[from, &file, "--seed", "3"]);
        assert_eq!(replayed.suite.sampling.as_ref(), expected, "{from} {file}");
    }
}

/// Attacks along estimated gradients are weaker, and products in TensorFloat-32 are rounded.
#[test]
fn searches_of_other_strength_are_not_compared() {
    let base = report(0.5);
    let estimated = with(&base, |r| r.warnings.push(GRADIENT_ESTIMATED.warning("estimated")));
    assert_eq!(mismatches(&base, &estimated), ["gradient: exact and estimated"]);
    let rounded = with(&base, |r| r.tool.fast_math = true);
    assert_eq!(mismatches(&base, &rounded), ["TensorFloat-32: off and allowed"]);
}

/// Comparisons and gates of comparable reports say why attacks on one of them may be weaker.
#[test]
fn doubts_about_the_attacks_strength_are_said_beside_differences() {
    let base = report(0.5);
    type Change = fn(&mut Report);
    let cases: [(Change, &str); 4] = [
        (|r| r.warnings.push(PASS_LEFT_OUT.warning("none")), "without a backward pass"),
        (|r| r.tool.version = "0.2.0".into(), "Made by audit 0.1.0 and 0.2.0"),
        (
            |r| r.suite.sampling = Some("60 of 201 queries, correct ones first, seed 0".into()),
            "--sample correct",
        ),
        (|r| r.suite.forward_passes = Some(100), "Black box: "),
    ];
    for (change, words) in cases {
        let [plain, other] = [base.clone(), with(&base, change)].map(|other| {
            [compared(&base, &other).cautions.join("\n"), judged(&base, &other).note.unwrap_or_default()]
        });
        assert!(plain.iter().all(|said| !said.contains(words)), "{words}: {plain:?}");
        other.iter().for_each(|said| says(said, &[words]));
    }
    // Both along estimated gradients.
    let estimated = with(&base, |r| r.warnings.push(GRADIENT_ESTIMATED.warning("estimated")));
    let cautions = compared(&estimated, &estimated).cautions.join("\n");
    says(&cautions, &["base.json: Gradients were estimated", "other.json: Gradients were estimated"]);
    says(&judged(&estimated, &estimated).note.unwrap(), &["Gradients were estimated"]);
}

/// Images of different data sets may have the same names.
#[test]
fn equal_names_in_other_data_make_no_pairs() {
    let (base, worse) = (report(0.6), report(0.3));
    let elsewhere = with(&worse, |r| r.data.sha256 = "00".repeat(32));
    let metric = Quantity::find("attack.ES:R").unwrap();
    let difference = |other: &Report| PairedReports::new(&base, other).difference(metric).unwrap();
    assert!(difference(&worse).interval.is_some() && difference(&elsewhere).interval.is_none());
    assert_eq!(difference(&worse).value, difference(&elsewhere).value);
}

/// The word on a number of the second of two reports, and whether its difference has an interval.
fn word(base: &Report, other: &Report, name: &str) -> (Word, bool) {
    let found = compared(base, other);
    let row = found.models[1].row(Quantity::find(name).unwrap()).unwrap();
    (row.word, row.difference.unwrap().interval.is_some())
}

fn with_benign(report: &Report, change: impl Fn(&mut Benign)) -> Report {
    with(report, |r| change(r.benign.as_mut().unwrap()))
}

/// All clean queries are no sample: a gate and a comparison judge their means by the tolerance, 1 point.
#[test]
fn a_gate_and_a_comparison_agree_on_clean_numbers_of_all_queries() {
    let base = with_benign(&report(0.5), |benign| benign.first = (0..201).map(|i| i % 3).collect());
    for (change, expected) in
        [(-1.0, Word::NoSignificantDifference), (-1.5, Word::Worse), (1.5, Word::Better)]
    {
        let other = with_benign(&base, |benign| {
            benign.r1 += change;
            benign.map += change;
            benign.first.rotate_right(1);
        });
        for name in ["benign.r1", "benign.map"] {
            assert_eq!(word(&base, &other, name), (expected, false), "{name} {change}");
        }
        let checks = judged(&base, &other).checks;
        let check = checks.iter().find(|check| check.metric == CLEAN_R1.name).unwrap();
        assert_eq!(
            (check.result == CheckResult::Fail, check.change_interval),
            (expected == Word::Worse, None)
        );
    }
}

/// mAP of a sample rises a little, and that of the attacked queries, which are others, falls by 10 points.
#[test]
fn attacked_queries_say_nothing_about_other_clean_ones() {
    let of = |map: f64, ap: f64| {
        let mut found = with_benign(&report(0.5), |benign| {
            (benign.map, benign.sampling) = (map, Some("a sample".into()));
        });
        let retrieval = Retrieval { first: true, ap, ap_at_r: ap, at_c: ap, cluster: None };
        found.outcomes.iter_mut().for_each(|o| o.before.retrieval = Some(retrieval));
        found
    };
    assert_eq!(word(&of(50.0, 0.6), &of(50.2, 0.5), "benign.map"), (Word::NoInterval, false));
    // An interval on the other side of zero than its value judges nothing.
    let of = |value: f64| Difference { value, interval: Some((-10.0, -4.0)), queries: 60, census: false };
    assert_eq!([0.2, -0.2].map(|value| of(value).significant()), [Some(false), Some(true)]);
}

/// The report in which ES makes `lost` more queries wrong.
fn losing(report: &Report, lost: usize) -> Report {
    with(report, |r| {
        let hits = r.outcomes.iter_mut().filter(|o| o.attack == "ES" && o.after.hit == Some(true));
        hits.take(lost).for_each(|o| o.after.hit = Some(false));
        let row = r.attacks.iter_mut().find(|a| a.code == "ES:R").unwrap();
        row.after = row.after.map(|after| after - 100.0 * lost as f64 / 60.0);
    })
}

/// Of 60 queries none is gained. The exact sign test has p 0.063 for 5 losses, and 0.031 for 6.
#[test]
fn a_few_losses_of_a_share_are_chance() {
    let base = report(0.6);
    let rules = Rules::settle(&[], &[], &[], &["attack.ES:R=1".into()]).unwrap();
    for (lost, expected) in
        [(4, Word::NoSignificantDifference), (5, Word::NoSignificantDifference), (6, Word::Worse)]
    {
        let other = losing(&base, lost);
        assert_eq!(word(&base, &other, "attack.ES:R"), (expected, true), "{lost}");
        let verdict = Verdict::judge(&other, Some(&base), &rules).unwrap();
        assert_eq!(verdict.checks[0].result == CheckResult::Fail, expected == Word::Worse, "{lost}");
    }
    // If no query changes, the difference still has a width.
    let (low, high) = PairedReports::new(&base, &base)
        .difference(Quantity::find("attack.ES:R").unwrap())
        .and_then(|found| found.interval)
        .unwrap();
    assert!(low < -6.0 && high > 6.0, "{low} {high}");
}

/// The strong search on 20 queries, all correct without an attack, of which `lost` fail from 1/255 on.
fn with_ladder(lost: usize) -> Report {
    report_fixture::with_ladder(3, 1..21, 1.0, |i| i >= lost)
}

/// Robust R@1 and its rungs are shares, too.
#[test]
fn rungs_are_compared_as_shares() {
    for (lost, expected) in [(5, Word::NoSignificantDifference), (6, Word::Worse)] {
        for name in ["robust_r1", "robust_r1@4/255", "robust_r1_file@1/255"] {
            let found = word(&with_ladder(0), &with_ladder(lost), name);
            assert_eq!(found, (expected, true), "{name} {lost}");
        }
    }
}

/// ES and blur break all of 12 queries. By hand: Wilson's upper end is Z² / (12 + Z²), 24.2 %. An average
/// precision of 1 for all of them has the same width, from 100 down.
#[test]
fn shares_have_a_width_if_all_queries_agree() {
    let mut found = report(0.5);
    let ids: Vec<String> = (0..12).map(|i| format!("class/{i:02}")).collect();
    found.outcomes = ids.iter().map(|id| outcome("ES", id, hit(true), hit(false))).collect();
    let (attacks, _) = score::score(&found.outcomes, &[], &found.basis(), &[], 0);
    let interval = attacks.iter().find(|row| row.code == "ES:R").unwrap().after_interval.unwrap();
    assert!(interval.0 < 1e-9 && (interval.1 - 24.25).abs() < 0.01, "{interval:?}");
    let blurred = |id: &String| Corrupted {
        corruption: "blur".into(),
        query: id.clone(),
        first: [true, false, false, false, false, false],
        ap: [0.5, 1.0, 0.5, 0.5, 0.5, 0.5],
    };
    found.corrupted = ids.iter().map(blurred).collect();
    let blur = corruption::corruptions(&found).unwrap();
    assert!(blur.rows.iter().all(|row| row.r1_interval == Some(interval)), "{blur:?}");
    assert_eq!(blur.mean_r1_interval, Some(interval));
    let (low, high) = blur.rows[0].map_interval.unwrap();
    assert!((low - (100.0 - interval.1)).abs() < 1e-9 && high == 100.0, "{low} {high}");
}

/// The baseline corrupted 24 queries, of which blur breaks those with an odd number, and the candidate only
/// the 12 others. By hand: R@1 is 50 and 100. All 12 common queries agree, so that their interval has 0 in
/// its middle, and says nothing of a difference of 50 points.
#[test]
fn means_over_other_corrupted_queries_are_not_paired() {
    let blurred = |i: usize| {
        let hit = i.is_multiple_of(2);
        let (first, ap) = ([true, hit, hit, hit, hit, hit], [0.5; 6]);
        Corrupted { corruption: "blur".into(), query: format!("class/{i:02}"), first, ap }
    };
    let of = |queries: Vec<usize>| {
        let mut found = report(0.5);
        found.corrupted = queries.into_iter().map(blurred).collect();
        found.corruptions = corruption::corruptions(&found);
        found
    };
    let (all, even) = (of((0..24).collect()), of((0..24).step_by(2).collect()));
    let difference = |other: &Report, name: &str| {
        PairedReports::new(&all, other).difference(Quantity::find(name).unwrap()).unwrap()
    };
    for name in ["corruption.blur@1.r1", "corruption.r1"] {
        let (own, of_other) = (difference(&all, name), difference(&even, name));
        assert!(own.value == 0.0 && own.interval.is_some(), "{name}: {own:?}");
        assert!((of_other.value - 50.0).abs() < 1e-9 && of_other.interval.is_none(), "{name}: {of_other:?}");
    }
}

/// Of 60 queries 3 are correct without an attack, and ES, LTM and GTM break none of them. Their resistances,
/// and ARS with them, rest on 3 queries; ERS rests on all.
#[test]
fn ars_rests_on_the_queries_that_attacks_could_make_worse() {
    let mut found = report(0.5);
    for (i, o) in found.outcomes.iter_mut().enumerate().filter(|(_, o)| o.before.hit.is_some()) {
        let correct = i % 60 < 3;
        (o.before.hit, o.after.hit) = (Some(correct), Some(correct));
    }
    let (attacks, scores) = score::score(&found.outcomes, &[], &found.basis(), &ScoreName::ALL, found.seed);
    (found.attacks, found.scores) = (attacks, scores);
    let row = ARS.row(&found);
    assert_eq!((row.state, row.queries), (State::Withheld, 3), "{row:?}");
    assert!(found.scores.ars.as_ref().unwrap().interval.is_none());
    assert_eq!((ERS.row(&found).state, ERS.row(&found).queries), (State::Measured, 60));
    let rules = Rules::settle(&[], &["ars=0".into()], &[], &[]).unwrap();
    let check = &Verdict::judge(&found, None, &rules).unwrap().checks[0];
    assert!(check.withheld && check.result == CheckResult::Fail, "{check:?}");
    // Its row says so, too.
    says(&rendered(&found, "md"), &["100.0 (few) | 3/60 |"]);
}

/// The report with the strong search, and with a finding that its gradients are masked.
fn masked() -> Report {
    let mut found = report(0.5);
    add_strong_search(&mut found);
    found.warnings.extend(MASKED_GRADIENTS.finding(Found::error("softened gradients do better")).warning());
    found
}

/// A finding that invalidates scores invalidates every number under attack. What the strong search found
/// stays valid if gradients are masked.
#[test]
fn numbers_under_attack_of_an_untrusted_report_are_not_better() {
    let (base, better) = (report(0.3), report(0.6));
    let untrusted = with(&better, |r| r.warnings.push(warning("collapse", "error", "x")));
    for name in ["attack.ES:R", "attack.CA+", "attack.CA+.resistance"] {
        assert_eq!(word(&base, &better, name).0, Word::Better, "{name}");
        assert_eq!(word(&base, &untrusted, name).0, Word::Void, "{name}");
    }
    let of_masked = |name: &str| Quantity::find(name).unwrap().row(&masked()).void;
    let names = ["robust_r1", "attack.R1", "attack.R1.resistance", "attack.ES:R", "attack.CA+", "benign.r1"];
    assert_eq!(names.map(of_masked), [false, false, false, true, true, false]);
}

/// The mark of a number in each format for programs: the `mark` of JSON, the end of a flat name, and the
/// slice of the bill of materials.
fn marks(report: &Report, name: &str, flat: &str) -> (Value, Vec<String>, String) {
    let one = |list: &Value, key: &str| {
        list.as_array().unwrap().iter().find(|row| row[key] == name).unwrap_or(&Value::Null).clone()
    };
    let metrics = as_json(report, "metrics.json");
    let ends = ["withheld", "void", "contradicted"].into_iter();
    let ends = ends.filter(|end| metrics.get(format!("{flat}_{end}")).is_some()).map(String::from);
    let card = as_json(report, "cdx.json")["metadata"]["component"]["modelCard"].clone();
    let bill = one(&card["quantitativeAnalysis"]["performanceMetrics"], "type");
    let json = one(&as_json(report, "json")["numbers"], "name")["mark"].clone();
    (json, ends.collect(), bill["slice"].as_str().unwrap_or_default().into())
}

/// What takes a number back stands beside it in formats for programs, too.
#[test]
fn formats_for_programs_have_the_marks_of_every_number() {
    let mut contradicted = report(0.5);
    add_strong_search(&mut contradicted);
    let untrusted = with(&contradicted, |r| r.warnings.push(warning("collapse", "error", "x")));
    let mut few = report(0.5);
    few.attacks.iter_mut().find(|row| row.code == "CA-").unwrap().counted = Some(3);
    for (report, name, flat, mark, end, slice) in [
        (&contradicted, "ars", "ars", json!("contradicted"), "contradicted", "60 queries; contradicted"),
        (
            &contradicted,
            "attack.ES:R",
            "attack_ES_R",
            json!("contradicted"),
            "contradicted",
            "60 queries; contradicted",
        ),
        (
            &masked(),
            "attack.CA+",
            "attack_CA_plus",
            json!("masked_gradients"),
            "void",
            "60 queries; masked gradients",
        ),
        (
            &untrusted,
            "attack.ES:R",
            "attack_ES_R",
            json!("untrusted"),
            "void",
            "60 queries; not to be trusted",
        ),
        (
            &few,
            "ars",
            "ars",
            Value::Null,
            "withheld",
            "3 queries; withheld: it rests on 3 queries, fewer than 10",
        ),
        (&contradicted, "attack.CA+", "attack_CA_plus", Value::Null, "", "60 queries"),
        (&masked(), "robust_r1", "robust_r1", Value::Null, "", "32 queries; ε 77/255"),
    ] {
        let ends: Vec<String> = Some(end.to_string()).filter(|end| !end.is_empty()).into_iter().collect();
        assert_eq!(marks(report, name, flat), (mark, ends, slice.to_string()), "{name}");
    }
    // Of numbers that were not measured, nothing.
    let mut without = contradicted.clone();
    without.scores.ars = None;
    assert_eq!(marks(&without, "ars", "ars"), (Value::Null, Vec::new(), String::new()));
}
